"""The status of a run: its fields, records, text and client."""
