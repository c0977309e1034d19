"""Environments and observations of other kinds are refused with what makes them ours."""

from __future__ import annotations

import shlex
import sys
import tomllib
from types import ModuleType
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces as s

from vedette_rl.envs import EnvConfig
from vedette_rl.envs.make import make_env
from vedette_rl.envs.spaces import observation_columns
from vedette_rl.errors import SpaceLayoutError, UnknownEnvironmentError


class Mission(s.Space[str]):
    """A text, as MiniGrid has one."""

    def __init__(self) -> None:
        super().__init__(dtype=str)


Mission.__module__ = "minigrid.core.mission"
IMAGE = s.Box(0, 255, (7, 7, 3), np.uint8)


@pytest.mark.parametrize(
    ("space", "why"),
    [
        (
            s.Dict(image=IMAGE, direction=s.Discrete(4), mission=Mission()),
            r"^observation space Dict: its part 'mission' is text: leave it out by "
            r"""'env\.wrappers=\["minigrid\.wrappers:ImgObsWrapper"\]'$""",
        ),
        (
            s.Dict(image=IMAGE, words=s.Text(9)),
            r"""its part 'words' is text: leave it out by .*FilterObservation", kwargs = """
            r"""\{filter_keys = \["image"\]\}\}\]', or name a wrapper""",
        ),
        (
            s.Dict(image=IMAGE, seen=s.Sequence(s.Discrete(2))),
            "its part 'seen' is a Sequence, of no fixed shape",
        ),
        (
            s.Dict(inner=s.Dict(words=s.Text(9)), image=IMAGE),
            "its part 'inner/words' is text: name",
        ),
        (s.Tuple((IMAGE, s.Text(9))), "its part '1' is text: name a wrapper"),
        (s.Text(9), r"^observation space Text: it is text: name a wrapper in env\.wrappers"),
    ],
)
def test_a_part_that_is_no_array_is_named_with_the_way_out(space: gym.Space[Any], why: str) -> None:
    with pytest.raises(SpaceLayoutError, match=why):
        observation_columns(space)


class Talking(gym.Env[Any, Any]):
    """Its observation has a part of text."""

    observation_space = s.Dict(image=IMAGE, words=s.Text(9))
    action_space = s.Discrete(2)


def test_the_way_out_of_a_text_works() -> None:
    with pytest.raises(SpaceLayoutError) as refused:
        observation_columns(Talking.observation_space)
    setting = str(refused.value).partition("leave it out by ")[2].partition(", or name")[0]
    [unquoted] = shlex.split(setting)  # as a shell passes it on
    wrappers = unquoted.removeprefix("env.wrappers=")
    table = tomllib.loads(f"wrappers = {wrappers}\nid = '{__name__}:Talking'")
    made = make_env(EnvConfig.model_validate(table))
    assert [leaf.name for leaf in observation_columns(made.observation_space)] == ["obs/image"]


class OldEnv:
    """An environment by its methods alone."""

    def reset(self) -> Any:
        """Begin."""

    def step(self, action: Any) -> Any:
        """Go on."""


class Plain(OldEnv):
    """One that has all of an environment but its base class."""

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        """Begin."""


def package(name: str, **classes: type) -> ModuleType:
    """A module that stands for another project's package."""
    module = ModuleType(name)
    for class_name, made in classes.items():
        made.__module__ = name
        setattr(module, class_name, made)
    return module


Gym = type("Env", (OldEnv,), {"unwrapped": property(lambda self: self)})
Turns = type("AECEnv", (OldEnv,), {"agent_iter": lambda self: None})
Parallel = type("ParallelEnv", (OldEnv,), {})
MODULES = {
    "gym.core": package("gym.core", Env=Gym),
    "pettingzoo.utils.env": package("pettingzoo.utils.env", AECEnv=Turns, ParallelEnv=Parallel),
}


class OldGym(Gym):  # type: ignore[misc, valid-type]  # made above
    """A class of the package gym."""


class Chess(Turns):  # type: ignore[misc, valid-type]  # likewise
    """One of several agents that act in turn."""


class Flock(Parallel):  # type: ignore[misc, valid-type]  # likewise
    """One of several agents that act at once."""


def make_chess() -> Any:
    """What `pettingzoo.classic.chess_v6:env` does."""
    return Chess()


def make_old() -> Any:
    """A function that makes an environment of the package gym."""
    return OldGym()


def make_number() -> Any:
    """No environment at all."""
    return 3


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("OldGym", r"of the package gym.*shimmy\.GymV26CompatibilityV0\(env=\.\.\.\)"),
        ("make_old", r"no gymnasium\.Env; it is one of the package gym.*shimmy"),
        (
            "Chess",
            r"PettingZoo's .* in turn \(AEC\): name a function that returns a gymnasium\.Env",
        ),
        ("make_chess", r"no gymnasium\.Env; it is one of PettingZoo's .* in turn"),
        ("Flock", "PettingZoo's for several agents: name a function"),
        ("Plain", r"it has reset\(\) and step\(\): have it inherit from gymnasium\.Env"),
        (
            "OldEnv",
            r"; its reset\(\) takes no seed, .*: name a function that returns "
            r"shimmy\.GymV21CompatibilityV0\(env=\.\.\.\) of it",
        ),
        ("make_number", r"what it makes is no gymnasium\.Env$"),
    ],
)
def test_a_class_of_another_package_is_refused_with_what_wraps_it(
    name: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module_name, module in MODULES.items():
        monkeypatch.setitem(sys.modules, module_name, module)
    with pytest.raises(UnknownEnvironmentError, match=why):
        make_env(EnvConfig(id=f"{__name__}:{name}"))


class Mapped(gym.Env[Any, Any]):
    """Its reset wants a map."""

    observation_space = s.Box(0, 9, (1,))
    action_space = s.Discrete(2)

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        return np.full(1, options["map"], np.float32), {"options": dict(options)}


def test_each_reset_is_given_the_options_of_the_configuration() -> None:
    config = EnvConfig(id=f"{__name__}:Mapped", reset_options={"map": 3}, frame_stack=2)
    env = make_env(config)
    for _ in range(2):
        obs, info = env.reset(seed=1)
        assert obs[-1] == 3
    _, info = env.reset(options={"map": 4, "of_caller": True})
    assert info["options"] == {"map": 4, "of_caller": True}


def test_a_vector_form_takes_no_options_and_auto_takes_no_vector_form() -> None:
    from vedette_rl.envs.native_vector_env import has_vector_form

    config = EnvConfig(id="CartPole-v1", reset_options={"low": -0.01})
    assert not has_vector_form(config, None)
    assert has_vector_form(EnvConfig(id="CartPole-v1"), None)
    forced = config.model_copy(update={"vectorization": "vector_entry_point"})
    with pytest.raises(UnknownEnvironmentError, match=r"without env\.reset_options; set env\.vec"):
        make_env(forced)
