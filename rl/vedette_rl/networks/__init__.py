"""Networks that agents are made of."""
