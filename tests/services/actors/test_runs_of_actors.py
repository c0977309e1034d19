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
from vedette_services.actors.actor_stats import ActorStats
from vedette_services.actors.batching import WholeRows
from vedette_services.actors.handover import AllowedRuns

STEPS = 3


class Zeros:
    def sync_model(self, model: ModelInfo) -> None:
        pass

    def act(self, obs: Columns, *, explore: bool) -> Any:
        return np.zeros(len(obs["obs"]), np.int64)


class Models:
    """Has a model when it is told to."""

    epoch = 1

    def __init__(self) -> None:
        self.version = 0
        self.has_new = True

    def publish(self, epoch: int, version: int) -> None:
        self.epoch = epoch
        self.version = version
        self.has_new = True

    def read(self) -> Models:
        self.has_new = False
        return self

    def info(self) -> ModelInfo:
        return ModelInfo(self.version, {})


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
    allowed_runs = AllowedRuns()

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
    return actor_of(NewAtEachStep())


def actor_of(models: Any, publish_stats: Any = lambda stats: None) -> tuple[ActorLoop, Slots]:
    made = [ScriptedEnv(0, ((2, "terminated"),)), ScriptedEnv(1, ((5, "truncated"),))]
    envs = LoopVectorEnv(SerialEnvs(made, make=lambda: ScriptedEnv(0)), seed=0)
    dtype = transition_dtype(envs.spaces, SEQUENCE_KEYS)
    processor = NStep(1, 0.9, 2, dtype)
    keys = StepKeys(2, 0)
    loop = RolloutLoop(envs, Zeros(), processor, models, 1, keys=keys, run_length=STEPS)
    slots = Slots(dtype, 2 * STEPS)
    actor = ActorLoop(
        loop=loop,
        writer=WholeRows(SEQUENCE_KEYS),
        n_buffer=2 * STEPS,
        env_steps_max=100,
        handover=slots,
        publish_stats=publish_stats,
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


def played(loop: ActorLoop, most: int = 5 * STEPS) -> int:
    """The steps that it plays until it waits."""
    for step in range(most):
        if not loop.may_play():
            return step
        loop.step()
    return most


def test_a_strict_actor_plays_as_many_runs_on_a_model_as_it_may_and_waits() -> None:
    models = Models()
    models.publish(1, 10)
    loop, slots = actor_of(models)
    slots.allowed_runs = AllowedRuns(1, 10, 1)
    loop.sync()
    loop.begin()
    assert played(loop) == STEPS
    assert played(loop) == 0
    slots.allowed_runs = AllowedRuns(1, 10, 3)
    assert played(loop) == 2 * STEPS
    slots.allowed_runs = AllowedRuns(1, 20, 1)
    assert played(loop) == 0, "not on a model that is older than the newest"
    models.publish(1, 20)
    assert played(loop) == STEPS
    assert [version for _, version, _ in slots.batches] == [10, 10, 10, 20]


def test_a_strict_actor_begins_no_run_on_a_model_that_it_knows_to_be_old() -> None:
    models = Models()
    models.publish(1, 10)
    loop, slots = actor_of(models)
    loop.sync()
    loop.begin()
    slots.allowed_runs = AllowedRuns(1, 20, 1)
    assert played(loop) == 0
    models.publish(1, 20)
    assert loop.may_play()
    loop.step()
    slots.allowed_runs = AllowedRuns(1, 30, 1)
    models.publish(1, 30)
    assert played(loop) == STEPS - 1 + STEPS, "a run that was begun is played to its end"
    assert [version for _, version, _ in slots.batches] == [20, 30]


@pytest.mark.parametrize("newer", [(1, 20), (2, 5)])
def test_on_a_model_that_is_newer_than_what_it_was_told_of_it_plays_one_run(
    newer: tuple[int, int],
) -> None:
    """Also of a trainer that has gone back: its epoch is later, and its version is not."""
    models = Models()
    models.publish(1, 10)
    loop, slots = actor_of(models)
    slots.allowed_runs = AllowedRuns(1, 10, 3)
    loop.sync()
    loop.begin()
    assert played(loop) == 3 * STEPS
    models.publish(*newer)
    assert played(loop) == STEPS
    slots.allowed_runs = AllowedRuns(*newer, 2)
    assert played(loop) == STEPS


def test_an_actor_that_was_told_nothing_does_not_wait() -> None:
    models = Models()
    loop, _ = actor_of(models)
    loop.sync()
    loop.begin()
    assert played(loop) == 5 * STEPS


def test_an_actor_that_waits_says_so_and_ends_when_it_is_told_to() -> None:
    models = Models()
    models.publish(1, 10)
    told: list[ActorStats] = []
    loop, slots = actor_of(models, told.append)
    slots.allowed_runs = AllowedRuns(1, 10, 1)

    def stop_once_it_waits(wait_s: float) -> None:
        slots.stopped = any(stats.state == "waiting for the next model" for stats in told)

    slots.poll = stop_once_it_waits  # type: ignore[method-assign]
    loop.run()
    assert told[-1].state == "ended"
    assert len(slots.batches) == 1
    last = told[-1]
    assert last.returns == last.episodes > 0
    assert last.return_sum == pytest.approx(last.returns * (last.return_mean or 0.0))
