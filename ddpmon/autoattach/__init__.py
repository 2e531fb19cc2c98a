"""What `ddpmon run` does inside a training process: it finds the model, attaches to it, and reads loss and samples."""
