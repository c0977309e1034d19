"""Environments whose spaces change when they are reset, or from one instance to the next: an agent
has one space."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from vedette_rl.envs import EnvConfig, make_vector_environment, probe_environment
from vedette_rl.envs.vector_env import LoopVectorEnv, SerialEnvs
from vedette_rl.errors import SpaceLayoutError
from vedette_services.errors import EnvironmentProcessError
from vedette_services.host.env_workers import ProcessEnvs

STEPPING = ("serial", "threads", "processes")


class Changing(gym.Env[Any, Any]):
    """Has another space from its reset number `late` on, or in the instances from `later` on."""

    observation_space = gym.spaces.Box(-1.0, 1.0, (3,), np.float32)

    def __init__(
        self, part: str = "action", late: int = 10**9, odd: bool = False, in_place: bool = False
    ) -> None:
        self.action_space = gym.spaces.Discrete(5 if odd else 2)
        self.part = part
        self.late = late
        self.in_place = in_place
        self.resets = 0
        self.size = 3

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self.resets += 1
        if self.resets == self.late:
            self._change()
        return np.zeros(self.size, np.float32), {}

    def _change(self) -> None:
        if self.part == "observation":
            self.size = 5
            self.observation_space = gym.spaces.Box(-1.0, 1.0, (5,), np.float32)
        elif self.in_place:
            self.action_space.n = np.int64(5)
        else:
            self.action_space = gym.spaces.Discrete(5)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return np.zeros(self.size, np.float32), 0.0, True, False, {}


class SecondIsOdd(Changing):
    """As a driving simulator with a random map: other instances have other spaces."""

    made = 0

    def __init__(self, **kwargs: Any) -> None:
        type(self).made += 1
        super().__init__(odd=type(self).made % 2 == 0, **kwargs)


HERE = f"{__name__}:Changing"


def config(**kwargs: Any) -> EnvConfig:
    return EnvConfig(id=HERE, kwargs=kwargs)


@pytest.mark.parametrize("in_place", [False, True])
def test_a_space_of_actions_that_reset_changes_is_refused_at_the_start(in_place: bool) -> None:
    with pytest.raises(
        SpaceLayoutError,
        match=r"action space Discrete\(5\): reset\(\) has changed it, which was Discrete\(2\)",
    ):
        probe_environment(config(late=1, in_place=in_place))


def test_a_space_of_observations_that_reset_changes_is_named_and_not_only_the_shape() -> None:
    with pytest.raises(SpaceLayoutError, match=r"\(5,\).*has changed it, which was Box\(.*\(3,\)"):
        probe_environment(config(late=1, part="observation"))


def test_bounds_of_observations_may_change() -> None:
    class Wider(Changing):
        def _change(self) -> None:
            self.observation_space = gym.spaces.Box(-9.0, 9.0, (3,), np.float32)

    envs = LoopVectorEnv([Wider(late=1), Wider(late=2)], seed=0)
    envs.reset()
    envs.step(np.zeros(2, np.int64))


@pytest.mark.parametrize("stepping", STEPPING)
def test_a_space_of_actions_that_a_later_reset_changes_is_an_error_there(stepping: str) -> None:
    envs = make_vector_environment(
        config(late=3).model_copy(update={"stepping": stepping}),
        2,
        seed=0,
        make_processes=ProcessEnvs,
    )
    try:
        envs.reset()
        envs.step(np.zeros(2, np.int64))  # each step is followed by a reset
        with pytest.raises((SpaceLayoutError, EnvironmentProcessError), match=r"has changed it"):
            envs.step(np.zeros(2, np.int64))
    finally:
        envs.close()


def test_an_instance_with_another_space_is_refused_by_its_number() -> None:
    with pytest.raises(SpaceLayoutError, match=r"Discrete\(5\): the first instance has") as raised:
        SerialEnvs([Changing(), Changing(), Changing(odd=True)])
    assert any("in environment 2 of 3" in note for note in raised.value.__notes__)


@pytest.mark.parametrize("stepping", ["serial", "threads"])
def test_instances_are_compared_where_they_are_made(stepping: str) -> None:
    SecondIsOdd.made = 0
    odd = EnvConfig(id=f"{__name__}:SecondIsOdd").model_copy(update={"stepping": stepping})
    with pytest.raises(SpaceLayoutError, match="the first instance has"):
        make_vector_environment(odd, 2, seed=0)


def test_instances_in_processes_of_their_own_are_compared(tmp_path: Any) -> None:
    """Each process makes one, so that a file counts them."""
    odd = EnvConfig(id=f"{__name__}:OddByFile", kwargs={"folder": str(tmp_path)})
    with pytest.raises(SpaceLayoutError, match="the first instance has"):
        ProcessEnvs(odd, 2)


class OddByFile(Changing):
    """The first process to make it has another space than the second."""

    def __init__(self, folder: str) -> None:
        import pathlib

        try:
            (pathlib.Path(folder) / "made").touch(exist_ok=False)
        except FileExistsError:
            super().__init__(odd=True)
        else:
            super().__init__()
