"""What every face says of a snapshot, in words and numbers: the same in the dashboard, in `status` and in JSON."""
