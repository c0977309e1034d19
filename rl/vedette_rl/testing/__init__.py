"""What your own agents, policies, step processors, replay buffers and environments can be held
against. Nothing here needs pytest."""
