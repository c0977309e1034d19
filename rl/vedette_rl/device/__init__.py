"""Batches on the device that learns: drawing, copying, several ranks."""
