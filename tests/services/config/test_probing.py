"""How environments are stepped, and by how many actors, is chosen by the measured step."""

import json
import threading
import time
import warnings
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.passive_env_checker import check_obs

from vedette_rl.envs import EnvConfig
from vedette_services.config import RunConfig, load_config
from vedette_services.config.loading import complete_config
from vedette_services.config.probing import EnvironmentProbe, describe_warnings
from vedette_services.config.stepping import Shape, choose_shape, fit_stepping
from vedette_services.host import step_cost
from vedette_services.host.step_cost import StepCost


class Waiting(gym.Env[Any, Any]):
    """A step waits for a server, which may serve the program's main thread only.

    Args:
        confined: "made" or "reset", which refuses other threads; "": none does.
        reset_s: a reset takes so long.
        holds_reset: one reset waits for another.
        ends: each step ends an episode.
    """

    observation_space = gym.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)
    made = 0
    one_at_a_time = threading.Lock()

    def __init__(
        self,
        wait_s: float = 0.01,
        confined: str = "",
        reset_s: float = 0.0,
        holds_reset: bool = False,
        ends: bool = True,
    ) -> None:
        type(self).made += 1
        self.wait_s = wait_s
        self.confined = confined
        self.reset_s = reset_s
        self.holds_reset = holds_reset
        self.ends = ends
        self.refuse_threads("made")

    def refuse_threads(self, now: str) -> None:
        if self.confined == now and threading.current_thread() is not threading.main_thread():
            raise RuntimeError("signals only work in the main thread")

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.refuse_threads("reset")
        with self.one_at_a_time if self.holds_reset else nullcontext():
            time.sleep(self.reset_s)
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> Any:
        time.sleep(self.wait_s)
        return np.zeros(2, np.float32), 0.0, False, self.ends, {}


WAITS = StepCost(0.02, False, True)
HOLDS = StepCost(0.02, False, False)
COMPUTES = StepCost(0.02, True, False)
COMPUTES_FREELY = StepCost(0.02, True, True)
FAST = StepCost(2e-5, True, False)
LIGHT = StepCost(5e-4, True, False)
RESETS_SLOWLY = StepCost(2e-5, True, True, reset_s=6.0)
RESETS_ALONE = StepCost(2e-5, True, False, reset_s=6.0)
COMPUTES_AND_RESETS_SLOWLY = StepCost(0.02, True, False, reset_s=6.0)


@pytest.mark.parametrize(
    ("cost", "cores", "free", "shape"),
    [
        (FAST, 64, True, Shape(2, 8, "serial")),
        (WAITS, 2, True, Shape(2, 8, "threads")),
        (WAITS, None, False, Shape(2, 8, "threads")),
        (HOLDS, 2, True, Shape(2, 8, "processes")),
        (COMPUTES, 2, True, Shape(2, 8, "serial")),
        (COMPUTES, 4, True, Shape(3, 6, "serial")),
        (COMPUTES, 64, True, Shape(16, 1, "serial")),
        (LIGHT, 64, True, Shape(2, 8, "processes")),
        (COMPUTES, 64, False, Shape(2, 8, "processes")),
        (COMPUTES_FREELY, 4, False, Shape(2, 8, "threads")),
        (COMPUTES_FREELY, 3, False, Shape(2, 8, "serial")),
        (COMPUTES, None, True, Shape(2, 8, "serial")),
        (RESETS_SLOWLY, 2, True, Shape(2, 8, "threads")),
        (RESETS_ALONE, None, False, Shape(2, 8, "processes")),
        (COMPUTES_AND_RESETS_SLOWLY, 4, True, Shape(3, 6, "processes")),
        (COMPUTES_AND_RESETS_SLOWLY, 64, True, Shape(16, 1, "serial")),
    ],
)
def test_the_shape_follows_from_the_step_and_the_cores(
    cost: StepCost, cores: int | None, free: bool, shape: Shape
) -> None:
    assert choose_shape(cost, 2, 8, cores, free=free) == shape


@pytest.mark.parametrize(
    ("cost", "stepping", "steps_per_s"),
    [
        (StepCost(0.0001, computes=False, overlaps=False), "threads", 10_000),  # too short to wait
        (StepCost(0.02, computes=True, overlaps=True), "threads", 50),
        (StepCost(0.02, computes=False, overlaps=True), "threads", 400),
        (StepCost(0.02, computes=False, overlaps=False), "processes", 400),
        (StepCost(0.02, computes=False, overlaps=True), "serial", 50),
    ],
)
def test_only_steps_that_wait_side_by_side_add_up(
    cost: StepCost, stepping: Any, steps_per_s: float
) -> None:
    assert cost.steps_per_s(8, stepping) == pytest.approx(steps_per_s)


def measure_step(env: EnvConfig) -> StepCost | None:
    with EnvironmentProbe() as probe:
        return probe.step_cost(env)


def test_a_step_that_waits_is_told_from_one_that_computes() -> None:
    waits = measure_step(EnvConfig(id=f"{__name__}:Waiting"))
    assert waits is not None
    assert 0.01 <= waits.seconds < 1.0
    assert (waits.computes, waits.overlaps) == (False, True)
    for when in ("made", "reset"):
        alone = measure_step(EnvConfig(id=f"{__name__}:Waiting", kwargs={"confined": when}))
        assert alone is not None
        assert (alone.computes, alone.overlaps) == (False, False)
    quick = measure_step(EnvConfig(id="CartPole-v1"))
    assert quick is not None
    assert quick.computes


@pytest.mark.parametrize("holds", [False, True])
def test_resets_side_by_side_are_measured_where_one_is_slow(
    holds: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step_cost, "SLOW_RESET_S", 0.2)
    kwargs = {"wait_s": 0.0, "reset_s": 0.3, "holds_reset": holds, "ends": False}
    cost = measure_step(EnvConfig(id=f"{__name__}:Waiting", kwargs=kwargs))
    assert cost is not None
    assert 0.3 <= cost.reset_s < 3.0
    assert cost.overlaps is not holds
    assert cost.describe().endswith(f", and a reset {cost.reset_s:.2g} s")


def test_what_one_process_has_found_out_is_known_to_another() -> None:
    env = EnvConfig(id=f"{__name__}:Waiting")
    with EnvironmentProbe() as one:
        facts = one.facts(env)
        known = json.loads(json.dumps(one.known()))
    assert set(facts.packages) > {"gymnasium", "numpy"}
    made = Waiting.made
    with EnvironmentProbe(known=known) as other:
        assert other.facts(env) == facts
        assert other.spaces(env) == facts.spaces
        assert Waiting.made == made
        other.facts(EnvConfig(id=env.id, kwargs={"wait_s": 0.02}))
    assert Waiting.made == made + 1


def test_the_choice_is_in_the_configuration_and_in_one_line() -> None:
    own = f"{__name__}:Waiting"
    settings = ["agent.name=dqn", "env.kwargs.wait_s=0.02"]
    probe = EnvironmentProbe()
    found = load_config(env=own, settings=settings, environment={}, fit="here", probe=probe)
    assert found.config.env.stepping == "threads"
    assert (found.config.actors.count, found.config.actors.envs_per_actor) == (2, 8)
    [line] = [line for line in found.decided if "env.stepping" in line]
    assert line.startswith(f"a step of {own} takes 2")
    assert "2 actors, each with 8 environments, which it steps in parallel, in threads" in line
    before = Waiting.made
    other = [*settings, "seed=5"]
    again = load_config(env=own, settings=other, environment={}, fit="elsewhere", probe=probe)
    probe.close()
    assert again.fitted.endswith(
        "each actor with 8 environments, which it steps in parallel, in threads "
        "(env.stepping=threads)"
    )
    assert Waiting.made == before  # the runs of a sweep have one shape


def test_in_one_process_one_actor_steps_all_environments_that_wait() -> None:
    own = f"{__name__}:Waiting"
    for settings, shape in (([], (1, 16)), (["actors.count=4"], (4, 8))):
        found = load_config(
            env=own, settings=settings, agent="dqn", environment={}, fit="in process"
        )
        actors = found.config.actors
        assert (actors.count, actors.envs_per_actor, found.config.env.stepping) == (
            *shape,
            "threads",
        )
    quick = load_config(env="MountainCar-v0", agent="iqn", environment={}, fit="in process").config
    assert (quick.actors.count, quick.actors.envs_per_actor, quick.env.stepping) == (2, 8, "serial")


def test_in_one_process_one_actor_resets_all_environments_that_are_slow_at_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(step_cost, "SLOW_RESET_S", 0.05)
    settings = ["env.kwargs.wait_s=0.0", "env.kwargs.reset_s=0.1", "env.kwargs.ends=false"]
    found = load_config(
        env=f"{__name__}:Waiting", agent="dqn", settings=settings, environment={}, fit="in process"
    )
    assert (found.config.actors.count, found.config.actors.envs_per_actor) == (1, 16)
    assert "and a reset 0.1" in found.fitted


def test_a_configuration_made_in_python_is_fitted_as_a_file_is() -> None:
    table = {"env": {"id": f"{__name__}:Waiting"}, "agent": {"name": "dqn"}}
    with EnvironmentProbe() as probe:
        made = complete_config(RunConfig.model_validate(table), "here", probe)
        loaded = load_config(table=table, environment={}, fit="here", probe=probe)
    assert made.config.env.stepping == "threads"
    assert made.decided[0] == loaded.decided[0]


@pytest.mark.parametrize(
    "setting", ["env.stepping=serial", "actors={count=1,envs_per_actor=1}", "env.kwargs.no=1"]
)
def test_nothing_is_chosen_where_it_is_said_or_cannot_be(setting: str) -> None:
    found = load_config(
        env=f"{__name__}:Waiting", agent="dqn", settings=[setting], environment={}
    ).config
    with EnvironmentProbe() as probe:
        assert fit_stepping(found, probe, cores=2) == (found, "")


def test_a_run_that_goes_on_keeps_how_it_steps(tmp_path: Path) -> None:
    from vedette_services.config import write_config

    config = load_config(env=f"{__name__}:Waiting", agent="dqn", environment={}).config
    write_config(config, tmp_path / "config.toml")
    saved = tmp_path / "config.toml"
    how: Any = {"saved": saved, "environment": {}, "fit": "here", "allow_import": [__name__]}
    kept = load_config(**how)
    assert (kept.config.env.stepping, kept.fitted) == ("auto", "")
    again = load_config(settings=["env.stepping=auto"], **how)
    assert again.config.env.stepping == "threads"


def warnings_of(obs: Any, space: gym.Space[Any]) -> list[str]:
    """What Gymnasium warns of where `reset()` and `step()` give this."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for method in ("reset", "step"):
            check_obs(obs, space, method)
    return [str(warning.message) for warning in caught]


def test_observations_of_another_dtype_are_one_line() -> None:
    box = gym.spaces.Box(-1, 1, (3,), np.float32)
    both = gym.spaces.Dict({"a": box, "b": box})
    line = "its observations are float64, and its space says float32: they are converted to float32"
    assert len(warnings_of(np.zeros(3), box)) == 4
    assert describe_warnings(warnings_of(np.zeros(3), box)) == [line]
    given = warnings_of({"a": np.zeros(3), "b": np.zeros(3)}, both)
    assert describe_warnings(given) == [line]


def test_observations_outside_of_their_bounds_are_still_said() -> None:
    box = gym.spaces.Box(-1, 1, (3,), np.float64)
    outside = np.full(3, 2.0, np.float32)
    first, *rest = describe_warnings(warnings_of(outside, box))
    assert first.startswith("its observations are float32, and its space says float64")
    assert [text.partition("` method ")[2] for text in rest] == [
        "is not within the observation space."
    ] * 2
