"""Runs on this machine: `daemons` starts a learner and actors, `in_process` joins both in one."""
