"""The actor manager daemon and its actors: what runs on every host that plays.

`manager_state` thinks, `manager` owns sockets and processes, `actor` is the process that plays,
`handover` carries its batches to the manager.
"""
