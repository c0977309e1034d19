"""Several runs of one experiment on this machine: its seeds, and settings beside one another."""

from vedette.sweep.runner import Outcome, Sweep
from vedette.sweep.trials import Trial, plan

__all__ = ["Outcome", "Sweep", "Trial", "plan"]
