"""The same verdicts over a table of steps and ranks that anyone can make from their own logs."""
