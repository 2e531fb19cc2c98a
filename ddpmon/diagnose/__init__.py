"""Pure verdicts: Run -> alerts."""
