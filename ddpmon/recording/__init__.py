"""A run in one SQLite file: written while it is watched, read, replayed, and exported."""
