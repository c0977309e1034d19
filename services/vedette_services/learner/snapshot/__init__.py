"""The snapshots of a run: a process beside the learner's others copies it to another disk."""
