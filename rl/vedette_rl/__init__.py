"""What learns: agents, replay, environments and evaluation, and no socket or process."""
