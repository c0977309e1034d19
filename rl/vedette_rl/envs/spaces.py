"""What an environment takes and gives, as Gymnasium describes it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gymnasium as gym


@dataclass(frozen=True)
class Spaces:
    """The observation and the action space of one environment."""

    observation: gym.Space[Any]
    action: gym.Space[Any]
