"""The folder that `ddpmon run` puts on PYTHONPATH: Python imports its sitecustomize.py when it starts."""
