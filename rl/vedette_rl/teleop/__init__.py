"""A person who plays, or takes over: keyboard and gamepad."""
