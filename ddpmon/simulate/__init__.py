"""Simulated ranks: a real store filled by a few processes, so that a watcher cannot tell."""
