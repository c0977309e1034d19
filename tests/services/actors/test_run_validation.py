"""What a run that came over the network may import."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fake_learner import a_run

from vedette_rl.envs.config import UNNAMED, EnvConfig
from vedette_services.actors.run_validation import (
    check_imports,
    ignored_settings,
    names_no_environment,
    validate_run,
)
from vedette_services.errors import RefusedError, RunImportRefusedError, RunNotUnderstoodError

PLAIN = EnvConfig(id="CartPole-v1")


def test_names_without_an_import_pass() -> None:
    check_imports(PLAIN, {"name": "dqn"}, [])
    framed = EnvConfig.model_validate(
        {"id": "CartPole-v1", "wrappers": ["gymnasium.wrappers:NormalizeReward"]}
    )
    check_imports(framed, {"name": "dqn"}, [])


@pytest.mark.parametrize("module", ["vedette_rl.teleop.takeover", "vedette_rl.envs.takeover"])
def test_wrappers_of_ours_pass_by_their_path_now_and_before(module: str) -> None:
    wrappers = [f"{module}:KeyboardTakeover"]
    env = EnvConfig.model_validate({"id": "CartPole-v1", "wrappers": wrappers})
    check_imports(env, {"name": "dqn"}, [])


@pytest.mark.parametrize(
    ("env", "agent"),
    [
        ({"id": "my_pkg.envs:Mine-v0"}, {"name": "dqn"}),
        ({"id": "my_pkg.envs:Mine"}, {"name": "dqn"}),
        ({"id": "CartPole-v1", "wrappers": ["my_pkg:Wrap"]}, {"name": "dqn"}),
        (
            {
                "id": "CartPole-v1",
                "wrappers": [
                    {
                        "name": "vedette_rl.networks.frozen_encoder:FrozenEncoder",
                        "kwargs": {"network": "my_pkg:make"},
                    }
                ],
            },
            {"name": "dqn"},
        ),
        ({"id": "CartPole-v1"}, {"name": "my_pkg.agents:MyAgent"}),
        ({"id": "CartPole-v1"}, {"name": "dqn", "network": "my_pkg.nets:Net"}),
        ({"id": "CartPole-v1"}, {"name": "dqn", "exploration": {"kind": "my_pkg:Explore"}}),
        ({"id": "CartPole-v1"}, {"name": "dqn", "parts": ["mlp", "my_pkg:Part"]}),
    ],
)
def test_an_import_is_refused_with_the_fix_and_passes_once_allowed(
    env: dict[str, object], agent: dict[str, object]
) -> None:
    config = EnvConfig.model_validate(env)
    with pytest.raises(RunImportRefusedError, match=r"--allow-import my_pkg$"):
        check_imports(config, agent, ["my", "other"])
    check_imports(config, agent, ["my_pkg"])


@pytest.mark.parametrize(
    ("env_id", "package"),
    [
        ("gymnasium.wrappers:RecordVideo", "gymnasium"),
        ("vedette_rl.envs.registry:import_environment_module", "vedette_rl"),
    ],
)
def test_modules_of_known_wrappers_make_no_environments_unless_allowed(
    env_id: str, package: str
) -> None:
    config = EnvConfig(id=env_id)
    with pytest.raises(RunImportRefusedError, match=f"--allow-import {package}$"):
        check_imports(config, {"name": "dqn"}, [])


def test_a_step_processor_is_an_import_too() -> None:
    actors = {"count": 2, "step_processor": "my_pkg:Steps"}
    with pytest.raises(RunImportRefusedError, match=r"--allow-import my_pkg$"):
        check_imports(PLAIN, {"name": "dqn"}, [], actors)
    check_imports(PLAIN, {"name": "dqn"}, ["my_pkg"], actors)


def test_a_package_that_only_begins_like_ours_is_refused() -> None:
    evil = EnvConfig.model_validate({"id": "x-v0", "wrappers": ["gymnasiumx.wrappers:W"]})
    with pytest.raises(RunImportRefusedError):
        check_imports(evil, {"name": "dqn"}, [])


def test_a_run_that_names_no_environment_is_for_simulators_that_own_their_loops() -> None:
    box = {"space": "box", "shape": [4]}
    two = {"space": "discrete", "n": 2}
    spaces = {"observation": box, "action": two}
    named = replace(a_run(), env={"id": "CartPole-v1", **spaces})
    nameless = replace(named, env={"id": UNNAMED, **spaces})
    validate_run(named, [])
    validate_run(nameless, [], makes_envs=False)
    assert (names_no_environment(named), names_no_environment(nameless)) == (False, True)
    with pytest.raises(RefusedError, match=r"set env\.id there, or play it from"):
        validate_run(nameless, [])


@pytest.mark.parametrize(
    ("part", "named"),
    [
        ({"env": {"id": "CartPole-v1", "lights": "off"}}, r"env.lights = 'off'"),
        ({"agent": {"name": "dqn", "exploration": {"decay": 2}}}, r"agent.exploration.decay = 2"),
        ({"agent": {"name": "rainbow"}}, r"agent.name = 'rainbow'"),
        ({"actors": {"outbox": "/tmp"}}, r"actors.outbox = '/tmp'"),
    ],
)
def test_a_setting_of_a_later_release_is_refused_by_name(
    part: dict[str, dict[str, object]], named: str
) -> None:
    with pytest.raises(RunNotUnderstoodError, match=named):
        validate_run(replace(a_run(), **part), [])


def test_a_loop_with_environments_of_its_own_ignores_how_others_are_made() -> None:
    run = a_run()
    run = replace(run, env={**run.env, "lights": "off"})
    validate_run(run, [], makes_envs=False)
    assert ignored_settings(run) == ["env.lights = 'off'"]
