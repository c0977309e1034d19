"""Sockets, addresses and keys."""
