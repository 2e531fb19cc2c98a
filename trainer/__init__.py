"""The instrumented DDP trainer that comes with ddpmon."""
