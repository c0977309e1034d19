"""Environments that are named by their class or function, and the settings that name them."""

import functools
import importlib
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.wrappers import FlattenObservation

from vedette_rl.envs import EnvConfig, make_env, make_vector_environment, probe_environment
from vedette_rl.envs.naming import environment_table
from vedette_rl.errors import UnknownEnvironmentError, UnknownNameError
from vedette_rl.evaluation.evaluator import GreedyEvaluator
from vedette_rl.testing import check_environment

MODULE = """
import functools
import os
from subprocess import run
import gymnasium as gym
from gymnasium.envs.classic_control.cartpole import CartPoleEnv, CartPoleVectorEnv
from gymnasium.wrappers import TimeLimit

class Cart(CartPoleEnv):
    pass

class Carts(CartPoleVectorEnv):
    pass

def limited(steps=7):
    return TimeLimit(Cart(), steps)

def nothing():
    return 3

ONE = Cart()

def same():
    return ONE

def broken():
    raise ValueError("no license")

short = functools.partial(limited, 3)

gym.register("Registered-v0", limited, kwargs={"steps": 5})
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    (tmp_path / "own_makers.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield importlib.import_module("own_makers")
    del sys.modules["own_makers"]
    gym.registry.pop("Registered-v0")


@pytest.mark.parametrize("name", ["Cart", "limited", "Carts"])
@pytest.mark.parametrize("vectorization", ["auto", "loop"])
def test_a_class_and_a_function_are_made_by_name(
    own: ModuleType, name: str, vectorization: Any
) -> None:
    config = EnvConfig(id=f"own_makers:{name}", vectorization=vectorization, max_episode_steps=4)
    assert probe_environment(config).observation.shape == (4,)
    envs = make_vector_environment(config, 3, seed=0)
    envs.reset()
    ends = [envs.step(np.zeros(3, np.int64)).truncated.copy() for _ in range(4)]
    assert [end.all() for end in ends] == [False, False, False, True]
    envs.close()


def test_arguments_go_to_the_function_and_what_it_wraps_stays(own: ModuleType) -> None:
    env = make_env(EnvConfig(id="own_makers:limited", kwargs={"steps": 3}))
    env.reset(seed=0)
    assert [env.step(0)[3] for _ in range(3)] == [False, False, True]


def test_a_class_is_evaluated_rendered_and_checked(own: ModuleType) -> None:
    config = EnvConfig(id="own_makers:Cart", max_episode_steps=5)
    assert make_env(config, render_mode="rgb_array").render_mode == "rgb_array"
    assert check_environment(config, steps=60).longest == 5

    class Still:
        def act(self, obs: Any, *, explore: bool) -> Any:
            return np.zeros(len(obs["obs"]), np.int64)

    played = GreedyEvaluator(config, 3, 0)
    assert played.evaluate(Still(), 1).lengths == (5, 5, 5)  # type: ignore[arg-type]  # acts only
    played.close()


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("Nope", "registers no environment 'Nope' and has no class .* it has .*Cart"),
        ("ONE", "no class of gymnasium.Env and no function"),
        ("os", "no class of gymnasium.Env and no function"),
        ("short", "no class of gymnasium.Env and no function"),
        ("run", "it is defined in 'subprocess': name it subprocess:run"),
        ("CartPoleEnv", "name it gymnasium.envs.classic_control.cartpole:CartPoleEnv"),
        ("nothing", "what it makes is no gymnasium.Env"),
    ],
)
def test_what_makes_no_environment_is_refused_in_one_line(
    own: ModuleType, name: str, why: str
) -> None:
    with pytest.raises(UnknownEnvironmentError, match=why) as refused:
        make_env(EnvConfig(id=f"own_makers:{name}"))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("name", ["queue", "test"])
def test_a_module_that_is_pythons_own_is_named_as_such(name: str) -> None:
    with pytest.raises(UnknownEnvironmentError, match=f"'{name}' is Python's own \\(.*/{name}"):
        make_env(EnvConfig(id=f"{name}:MyEnv"))


def test_ones_own_module_of_such_a_name_is_described_as_any_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "turtle.py").write_text("import gymnasium\nclass Cart(gymnasium.Env): ...\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "turtle", raising=False)
    with pytest.raises(UnknownEnvironmentError, match=r"it has .*Cart"):
        make_env(EnvConfig(id="turtle:Nope"))
    monkeypatch.delitem(sys.modules, "turtle")


REGISTERS = """
import gymnasium as gym

for name in ("Race-v3", "RaceEasy-v0", "Chess-v0", "Go-v0", "Hex-v1", "Shogi-v0"):
    gym.register(f"own_games/{name}", entry_point="own_games.envs:Game")
gym.register("OwnCart-v0", entry_point="gymnasium.envs.classic_control.cartpole:CartPoleEnv")

class Old:
    def reset(self): ...
    def step(self, action): ...
"""


@pytest.fixture
def games(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A module `own_games` that registers environments when it is imported."""
    (tmp_path / "own_games.py").write_text(REGISTERS)
    monkeypatch.syspath_prepend(tmp_path)
    before = dict(gym.registry)
    yield
    gym.registry.clear()
    gym.registry.update(before)
    sys.modules.pop("own_games", None)


@pytest.mark.parametrize("imported_before", [False, True])
@pytest.mark.usefixtures("games")
def test_the_ids_that_a_module_registers_are_named_the_nearest_first(
    imported_before: bool,
) -> None:
    if imported_before:
        importlib.import_module("own_games")
    with pytest.raises(UnknownEnvironmentError) as refused:
        make_env(EnvConfig(id="own_games:own_games/Race-v2"))
    said = str(refused.value).partition("; it registers ")[2]
    assert said.startswith("own_games/Race-v3, own_games/RaceEasy-v0, own_games/")
    assert said.endswith(f" and {1 if imported_before else 2} more; it has Old")


@pytest.mark.usefixtures("games")
def test_an_id_of_the_package_gym_is_named_with_the_way_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gym_registration = ModuleType("gym.envs.registration")
    monkeypatch.setitem(sys.modules, "gym.envs.registration", gym_registration)
    since_0_26 = {"OldGame-v1": None}
    before_0_26 = ModuleType("registry")
    before_0_26.env_specs = since_0_26  # type: ignore[attr-defined]  # it stands for an object
    for registry in (since_0_26, before_0_26):
        monkeypatch.setattr(gym_registration, "registry", registry, raising=False)
        with pytest.raises(
            UnknownEnvironmentError, match=r"GymV26CompatibilityV0\(env_id=\.\.\.\)"
        ):
            make_env(EnvConfig(id="own_games:OldGame-v1"))
        with pytest.raises(UnknownEnvironmentError, match="it registers "):
            make_env(EnvConfig(id="own_games:OldGame-v2"))


def test_a_function_that_gives_one_environment_twice_is_refused(own: ModuleType) -> None:
    make_vector_environment(EnvConfig(id="own_makers:same"), 1, seed=0)
    with pytest.raises(UnknownEnvironmentError, match="the same environment at every call"):
        make_vector_environment(EnvConfig(id="own_makers:same"), 2, seed=0)


def test_an_error_of_the_function_comes_out_as_it_is(own: ModuleType) -> None:
    with pytest.raises(ValueError, match="no license"):
        make_env(EnvConfig(id="own_makers:broken"))


def test_objects_are_named_by_their_module(own: ModuleType) -> None:
    assert environment_table(own.Cart, shared=True) == {"id": "own_makers:Cart"}
    assert environment_table(own.limited, shared=True) == {"id": "own_makers:limited"}
    part = functools.partial(own.limited, steps=3)
    assert environment_table(part, shared=True) == {
        "id": "own_makers:limited",
        "kwargs": {"steps": 3},
    }


def test_a_specification_becomes_its_registered_name_and_what_differs() -> None:
    assert environment_table(gym.spec("CartPole-v1"), shared=True) == {"id": "CartPole-v1"}
    made = gym.make("Pendulum-v1", g=9.0, max_episode_steps=7, render_mode="rgb_array")
    wanted = {"id": "Pendulum-v1", "kwargs": {"g": 9.0}, "max_episode_steps": 7}
    assert environment_table(made, shared=True) == wanted
    settings = environment_table(FlattenObservation(made), shared=True)
    (wrapper,) = settings["wrappers"]
    assert wrapper["name"].endswith(":FlattenObservation")
    assert make_env(EnvConfig.model_validate(settings)).unwrapped.g == 9.0


def test_an_own_specification_becomes_what_makes_it(own: ModuleType) -> None:
    settings = environment_table(gym.spec("Registered-v0"), shared=True)
    assert settings == {"id": "own_makers:limited", "kwargs": {"steps": 5}}


@pytest.mark.parametrize(
    ("env", "why"),
    [
        (lambda: gym.make("CartPole-v1"), "other processes cannot import it"),
        (functools.partial(print, 3), "its arguments must have names"),
        (3, "give an id, a class, a function"),
    ],
)
def test_what_other_processes_cannot_make_is_refused(env: object, why: str) -> None:
    with pytest.raises(UnknownNameError, match=why):
        environment_table(env, shared=True)


def test_an_environment_whose_making_is_not_known_is_refused(own: ModuleType) -> None:
    with pytest.raises(UnknownNameError, match="how it was made is not known: give its class"):
        environment_table(own.ONE, shared=False)


def test_an_argument_that_cannot_be_written_down_is_refused(own: ModuleType) -> None:
    part = functools.partial(own.limited, steps=np.arange(3))
    with pytest.raises(UnknownNameError, match=r"steps is an array of int64, \(3,\): give its"):
        environment_table(part, shared=True)


SCRIPT = """
import gymnasium as gym
from vedette_rl.envs.naming import environment_table

class Mine(gym.Env):
    pass

def name():
    return environment_table(Mine, shared={shared})

if {guard}:
    named = name()
"""
GUARD = '__name__ == "__main__"'


@pytest.mark.parametrize("shared", [False, True])
def test_a_class_of_a_script_is_named_by_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shared: bool
) -> None:
    (tmp_path / "own_script.py").write_text(SCRIPT.format(shared=shared, guard=GUARD))
    monkeypatch.syspath_prepend(str(tmp_path))
    ran = runpy.run_path(str(tmp_path / "own_script.py"), run_name="__main__")
    assert ran["named"] == {"id": "own_script:Mine"}
    assert sys.modules.pop("own_script").__name__ == "__main__"  # it is not run twice


def test_a_script_that_would_train_in_every_process_is_refused_before_it_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "unguarded.py"
    monkeypatch.syspath_prepend(str(tmp_path))
    script.write_text(SCRIPT.format(shared=False, guard="True"))  # nobody else imports it
    assert runpy.run_path(str(script), run_name="__main__")["named"]["id"] == "unguarded:Mine"
    del sys.modules["unguarded"]
    script.write_text(SCRIPT.format(shared=True, guard="True"))
    with pytest.raises(
        UnknownNameError,
        match=r"line 12 of unguarded\.py would train again .* "
        'put the call under `if __name__ == "__main__":`',
    ):
        runpy.run_path(str(script), run_name="__main__")


def test_a_script_that_cannot_be_imported_says_so(tmp_path: Path) -> None:
    (tmp_path / "own-script.py").write_text(SCRIPT.format(shared=True, guard=GUARD))
    with pytest.raises(UnknownNameError, match=r"own-script.py, which other processes cannot"):
        runpy.run_path(str(tmp_path / "own-script.py"), run_name="__main__")


def test_a_class_of_a_notebook_is_of_this_process_only(monkeypatch: pytest.MonkeyPatch) -> None:
    main = ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", main)
    exec("import gymnasium\nclass Mine(gymnasium.Env): pass", vars(main))
    assert environment_table(main.Mine, shared=False) == {"id": "__main__:Mine"}
    with pytest.raises(UnknownNameError, match=r"a notebook .* in_process=True"):
        environment_table(main.Mine, shared=True)
    del main.Mine
    with pytest.raises(UnknownEnvironmentError, match="defined in a notebook"):
        make_env(EnvConfig(id="__main__:Mine"))
