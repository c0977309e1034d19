"""Typed parts of the configuration, as they are stored, and suggestions for keys that do not exist."""
