"""The check before a run: what on these hosts would hurt it."""
