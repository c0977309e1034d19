"""Typed parts of the configuration, how they are stored, and suggestions for unknown keys."""
