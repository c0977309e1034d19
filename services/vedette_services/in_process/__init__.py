"""A whole run in one process, in lock step: for a debugger, for tests, for equivalence.

The learner's loop and the actors' are those of the daemons; what lies between them is plain arrays.
"""
