"""The machine under the ranks: GPU, host, process."""
