"""Sweeps: several runs, side by side within the cores, over a grid of settings or by a study."""

from vedette.sweep.grid import (
    Changes,
    Configure,
    Sweep,
    describe_starts,
    exit_status,
    parse_sweep,
    plan_starts,
    plan_trials,
    report_on,
)
from vedette.sweep.jobs import Trial, TrialOutcome, jobs_within

__all__ = [
    "Changes",
    "Configure",
    "Sweep",
    "Trial",
    "TrialOutcome",
    "describe_starts",
    "exit_status",
    "jobs_within",
    "parse_sweep",
    "plan_starts",
    "plan_trials",
    "report_on",
]
