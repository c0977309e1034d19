"""Batches on the device that learns: drawing, copying, and several processes that learn together."""
