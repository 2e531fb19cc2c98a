"""Inside the training process: the measurement."""
