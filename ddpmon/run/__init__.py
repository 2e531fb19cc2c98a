"""The watcher's model: all ranks' history, built from frames only."""
