"""A fake NVML: a library that answers what a scenario file says, built from C for tests and benches."""
