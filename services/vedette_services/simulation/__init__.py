"""The daemons' own states joined by an in-memory network on a virtual clock.

The in-process mode runs one manager on a network without faults; a simulation runs as many as it
likes, with faults drawn from a seed.
"""
