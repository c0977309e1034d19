"""The agents, by name."""
