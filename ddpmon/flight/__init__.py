"""What torch's flight recorder dumped when a run timed out: read without trust, and who did not join."""
