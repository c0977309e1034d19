"""The dashboard: the report's charts of growing runs, and of a remote learner, in a browser."""

from vedette.dashboard.server import Dashboard
from vedette.dashboard.sources import DirectorySource, LearnerSource

__all__ = ["Dashboard", "DirectorySource", "LearnerSource"]
