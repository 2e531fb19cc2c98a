"""Follows one run through its store: finds it, reads its frames in turn, judges them, and builds snapshots."""
