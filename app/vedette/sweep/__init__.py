"""Several runs of one experiment on this machine: its seeds, and settings beside one another."""

from vedette.sweep.runner import Sweep, TrialOutcome
from vedette.sweep.trials import Trial, plan_trials

__all__ = ["Sweep", "Trial", "TrialOutcome", "plan_trials"]
