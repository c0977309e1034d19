"""What collects: on the newest model, and exploring."""

from __future__ import annotations

from typing import Any

import numpy as np

from vedette_rl.core import Columns, ModelInfo
from vedette_rl.envs import transition_dtype
from vedette_rl.envs.vector_env import LoopVectorEnv
from vedette_rl.rollout import RolloutLoop
from vedette_rl.steps import NStep
from vedette_rl.testing import ScriptedEnv


class Remembering:
    """Remembers how it was asked, on which model."""

    def __init__(self) -> None:
        self.version = -1
        self.asked: list[tuple[int, bool]] = []

    def sync_model(self, model: ModelInfo) -> None:
        self.version = model.version

    def act(self, obs: Columns, *, explore: bool) -> Any:
        self.asked.append((self.version, explore))
        return np.zeros(len(obs["obs"]), np.int64)


class Published:
    """A model source, and the model itself: the newest version."""

    epoch = 0

    def __init__(self) -> None:
        self.version, self.has_new = 0, True

    def publish(self, version: int) -> None:
        self.version, self.has_new = version, True

    def read(self) -> Published:
        self.has_new = False
        return self

    def info(self) -> ModelInfo:
        return ModelInfo(self.version, {})


def test_it_explores_on_the_newest_model() -> None:
    row, policy, models = (
        LoopVectorEnv([ScriptedEnv(), ScriptedEnv(1)], seed=0),
        Remembering(),
        Published(),
    )
    processor = NStep(3, 0.99, 2, transition_dtype(row.spaces))
    loop = RolloutLoop(row, policy, processor, models, 3)
    loop.begin()
    for version in (1, 1, 2, 7, 7, 7):
        if version != models.version:
            models.publish(version)
        loop.step()
    assert policy.asked == [(version, True) for version in (1, 1, 2, 7, 7, 7)]
    assert loop.acting_on == (0, 7)
    assert loop.env_steps == 12


def test_a_transition_is_as_old_as_the_model_that_began_it() -> None:
    row, models = LoopVectorEnv([ScriptedEnv()], seed=0), Published()
    processor = NStep(2, 0.99, 1, transition_dtype(row.spaces))
    loop = RolloutLoop(row, Remembering(), processor, models, 2)
    loop.begin()
    made_by = []
    for version in (1, 2, 3, 4):
        models.publish(version)
        loop.step()
        made_by.append(loop.made_by)
    assert made_by == [(0, 1), (0, 1), (0, 2), (0, 3)]
    loop.close()
