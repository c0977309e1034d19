"""This host: processes, logs and files."""
