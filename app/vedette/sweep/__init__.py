"""Several runs of one experiment on this machine: its seeds, and settings beside one another."""

from vedette.sweep.runner import TrialOutcome, Sweep
from vedette.sweep.trials import Trial, plan_trials

__all__ = ["TrialOutcome", "Sweep", "Trial", "plan_trials"]
