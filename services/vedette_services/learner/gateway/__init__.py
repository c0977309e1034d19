"""The gateway: the process that owns the sockets, the ledger and the writing side of the replay."""
