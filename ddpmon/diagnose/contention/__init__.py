"""Resource contention: what on a rank's machine hurts it, or will, and whose doing that is."""
