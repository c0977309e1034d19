"""The numbers of `status --json` for Prometheus: off unless a port is given."""
