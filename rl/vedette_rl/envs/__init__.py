"""Environments: by name, several as one row, with their spaces as columns. No torch."""
