"""An actor of a queue plays its environments in runs: on one model, and handed over together."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from vedette_rl.core import Columns, ModelInfo
from vedette_rl.core.columns import SEQUENCE_KEYS
from vedette_rl.core.step_keys import StepKeys
from vedette_rl.envs.spaces import transition_dtype
from vedette_rl.envs.vector_env import LoopVectorEnv, SerialEnvs
from vedette_rl.rollout import RolloutLoop
from vedette_rl.steps import NStep
from vedette_rl.testing.inputs import ScriptedEnv
from vedette_services.actors.actor import ActorLoop
from vedette_services.actors.batching import WholeRows

STEPS = 3


class Zeros:
    def sync_model(self, model: ModelInfo) -> None:
        pass

    def act(self, obs: Columns, *, explore: bool) -> Any:
        return np.zeros(len(obs["obs"]), np.int64)


class NewAtEachStep:
    """Has a newer model whenever it is asked."""

    has_new = True
    epoch = 1

    def __init__(self) -> None:
        self.version = 0

    def read(self) -> NewAtEachStep:
        self.version += 1
        return self

    def info(self) -> ModelInfo:
        return ModelInfo(self.version, {})


class Slots:
    """Keeps what is published."""

    has_slot = True
    stopped = gone = False

    def __init__(self, dtype: Any, rows: int) -> None:
        self.columns: Columns = {
            name: np.zeros((rows, *dtype[name].shape), dtype[name].base) for name in dtype.names
        }
        self.batches: list[tuple[list[list[int]], int, int]] = []

    def poll(self, wait_s: float) -> None:
        pass

    def publish(
        self, rows: int, epoch: int, version: int, entries: int = 0, env_steps: int = 0
    ) -> None:
        keys = np.stack([self.columns["env"][:rows], self.columns["t"][:rows]], axis=1)
        # what is seen and what is numbered belong together
        assert (self.columns["obs"][:rows, 0] == self.columns["env"][:rows]).all()
        self.batches.append((keys.astype(int).tolist(), version, env_steps))


@pytest.fixture
def actor() -> tuple[ActorLoop, Slots]:
    made = [ScriptedEnv(0, ((2, "terminated"),)), ScriptedEnv(1, ((5, "truncated"),))]
    envs = LoopVectorEnv(SerialEnvs(made, make=lambda: ScriptedEnv(0)), seed=0)
    dtype = transition_dtype(envs.spaces, SEQUENCE_KEYS)
    processor = NStep(1, 0.9, 2, dtype)
    keys = StepKeys(2, 0)
    loop = RolloutLoop(envs, Zeros(), processor, NewAtEachStep(), 1, keys=keys, run_length=STEPS)
    slots = Slots(dtype, 2 * STEPS)
    actor = ActorLoop(
        loop=loop,
        writer=WholeRows(SEQUENCE_KEYS),
        n_buffer=2 * STEPS,
        env_steps_max=100,
        handover=slots,
        publish_stats=lambda stats: None,
        in_runs=True,
    )
    return actor, slots


def test_the_rows_of_a_batch_stand_by_environment_and_then_by_time(
    actor: tuple[ActorLoop, Slots],
) -> None:
    loop, slots = actor
    loop.sync()
    loop.begin()
    for _ in range(2 * STEPS):
        loop.step()
    assert [keys for keys, _, _ in slots.batches] == [
        [[0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [1, 2]],
        [[0, 3], [0, 4], [0, 5], [1, 3], [1, 4], [1, 5]],
    ]
    assert sum(env_steps for _, _, env_steps in slots.batches) == 4 * STEPS


def test_a_newer_model_is_taken_where_runs_begin(actor: tuple[ActorLoop, Slots]) -> None:
    loop, slots = actor
    loop.sync()
    loop.begin()
    versions = []
    for _ in range(2 * STEPS):
        loop.step()
        versions.append(loop.acting_on[1])
    assert versions == [2, 2, 2, 3, 3, 3]
    assert [version for _, version, _ in slots.batches] == [2, 3]


def test_an_end_hands_over_shorter_runs(actor: tuple[ActorLoop, Slots]) -> None:
    loop, slots = actor
    loop.sync()
    loop.begin()
    loop.step()
    loop.step()
    loop.finish()
    assert [keys for keys, _, _ in slots.batches] == [[[0, 0], [0, 1], [1, 0], [1, 1]]]
