"""Simulated GPUs: an NVML library that says what a scenario file tells it, for the demo and the tests."""
