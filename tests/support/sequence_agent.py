"""DQN that learns from sequences: from each step of them as from a sample."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

import vedette_rl.agents.dqn.policy as dqn
from vedette_rl.agents.dqn.config import DqnConfig
from vedette_rl.core import Agent, OptResult
from vedette_rl.envs.spaces import Spaces

OF_SEQUENCES = f"{__name__}:OfSequences"


class OfSequencesConfig(DqnConfig):
    learns_sequences = True
    name: str = OF_SEQUENCES


class StepByStep:
    """The half that learns."""

    def __init__(self, inner: Agent) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def opt(
        self,
        batch: Mapping[str, torch.Tensor],
        weights: torch.Tensor | None = None,
        *,
        record: bool = False,
    ) -> OptResult:
        learned = batch["learned"]
        names = ("action", "reward", "terminated", "truncated", "n_steps")
        rows = {name: batch[name][learned] for name in names}
        rows["obs"] = batch["obs"][:, :-1][learned]
        rows["next_obs"] = batch["obs"][:, 1:][learned]
        return OptResult(None, self._inner.opt(rows, record=record).record)


def build_agent(config: DqnConfig, spaces: Spaces, **how: Any) -> Agent:
    return StepByStep(dqn.KIND.build_agent(config, spaces, **how))


OfSequences = replace(
    dqn.KIND, name=OF_SEQUENCES, config=OfSequencesConfig, build_agent=build_agent
)
