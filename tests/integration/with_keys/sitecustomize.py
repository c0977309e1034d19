"""Python imports this at its start where this folder is on its path: rows of the run have keys."""

from vedette_rl.replay.config import ReplayConfig

ReplayConfig.sequence = 8
