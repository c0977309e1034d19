"""The trainer: the process that owns the agent, draws batches and takes optimization steps."""
