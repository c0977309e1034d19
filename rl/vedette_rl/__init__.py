"""Agents, replay, environments and evaluation; it opens no socket and starts no process."""
