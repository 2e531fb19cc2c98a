"""Pure verdicts: Run -> list[Finding]."""
