"""What a run says of itself while it runs and afterwards: the status, its records, its text, its client."""
