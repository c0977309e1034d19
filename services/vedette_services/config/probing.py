"""Tries an environment: its spaces, or the reason why it fails here, and the time of a step, by
which actors step theirs."""

from __future__ import annotations

import functools
import logging
import math
import re
import statistics
import time
import warnings
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np

from vedette_rl.agents.registry import agent_kind
from vedette_rl.envs.config import EnvConfig
from vedette_rl.envs.make import make_env, probe_environment
from vedette_rl.envs.registry import find_spec
from vedette_rl.envs.spaces import Spaces, declared_spaces
from vedette_rl.envs.vector_env import EnvGroup, SerialEnvs, ThreadedEnvs
from vedette_rl.errors import RlError
from vedette_services.config.run_config import RunConfig
from vedette_services.errors import (
    SettingError,
    UsageError,
    config_errors,
    foreign_error_message,
)
from vedette_services.host.system import count_waits

log = logging.getLogger("vedette.config")


def probe_spaces(env: EnvConfig) -> Spaces:
    """The spaces of an environment: those declared, or by making one, resetting it and stepping it
    once.

    Raises:
        SettingError: it cannot be made here, or fails at once.
    """
    with config_errors("env.observation"):
        declared = declared_spaces(env)
    if declared is not None:
        return declared
    with config_errors("env.id"), warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            return probe_environment(env)
        except (RlError, UsageError):  # the latter of a module that must not be imported
            raise
        except Exception as e:
            raise SettingError(
                "env.id",
                f"{env.id} fails when it is made, reset and stepped: {foreign_error_message(e)}",
                "fix the environment; VEDETTE_TRACEBACK=1 shows where",
            ) from e
        finally:
            for text in dict.fromkeys(_plain(str(warning.message)) for warning in warned):
                log.warning("environment %s: %s", env.id, text)


def _plain(warning: str) -> str:
    """Gymnasium's warning without its colours."""
    return re.sub(r"\x1b\[\d*m", "", warning).removeprefix("WARN: ").strip()


def check_agent(config: RunConfig, spaces: Spaces, *, learns: bool) -> None:
    """Check that the agent takes these spaces, and learns where that is wanted of it.

    Raises:
        ConfigError: it does not.
    """
    with config_errors():
        kind = agent_kind(config.agent.name)
        if learns:
            kind.check_learns()
        kind.check(config.agent, spaces)


def environment_errors(config: RunConfig) -> tuple[SettingError, ...]:
    """Why the environment cannot be made here, or the agent does not take it; nothing if it can."""
    try:
        check_agent(config, probe_spaces(config.env), learns=False)
    except SettingError as error:
        return error.errors
    except UsageError:  # of no key: the next start says it
        return ()
    return ()


# The time of a step, and what follows from it

SLOW_STEP_S = 0.0002
"""Below it threads cost more than they gain, even where a step only waits."""
_HEAVY_STEP_S = 0.001  # computing for so long, a step is worth a process of its own
_OVERLAP = 1.5  # two steps side by side take less than so many times one
_STEPS = 10
_SECONDS = 0.3
_STEPS_LEAST = 3
_DEFAULT_ENVIRONMENTS = 16
_ACTORS_MOST = 16

Stepping = Literal["serial", "threads", "processes"]


@dataclass(frozen=True, slots=True)
class StepCost:
    """The cost of an environment's step on this host.

    Args:
        seconds: from call to return.
        computes: it keeps a processor busy, and does not wait (for a server, a device).
        overlaps: two threads of a process step two environments side by side.
    """

    seconds: float
    computes: bool
    overlaps: bool

    @property
    def waits(self) -> bool:
        """Several environments side by side take no longer than one."""
        return not self.computes and self.seconds >= SLOW_STEP_S

    def steps_per_s(self, envs: int, stepping: Stepping) -> float:
        """Return the most steps per second of an actor on one core, without what acting takes.

        Args:
            envs: environments of the actor.
        """
        return (envs if self.waits and stepping != "serial" else 1) / self.seconds

    def describe(self) -> str:
        """Say how long a step takes, and what it does meanwhile where that matters."""
        does = "" if self.seconds < SLOW_STEP_S else ", computing" if self.computes else ", waiting"
        return f"takes {1e3 * self.seconds:.2g} ms{does}"


@dataclass(frozen=True, slots=True)
class Shape:
    """Actors on a host, environments of each, and how each steps them."""

    count: int
    envs_per_actor: int
    stepping: Stepping


def fit_stepping(
    config: RunConfig, *, cores: int | None = None, in_process: bool = False
) -> tuple[RunConfig, str]:
    """Choose `env.stepping` where it is ``auto``, and how many actors play where nobody said.

    Args:
        cores: of the host of the actors; None: they play elsewhere, on hosts that are not known.
        in_process: all actors play in one process, one after another.

    Returns:
        The configuration, and a line that says what was measured and chosen; "" where there was
        nothing to choose, or no environment can be made here.
    """
    env = config.env
    actors = config.actors
    if env.stepping != "auto" or env.is_vector_form or env.is_declared:
        return config, ""
    if actors.count * actors.envs_per_actor <= 1:  # it may be a robot, which nobody tries out
        return config, ""
    cost = _measure_cached(env.model_dump_json())
    if cost is None:
        return config, ""
    given = actors.model_fields_set & {"count", "envs_per_actor"}
    count = actors.count
    envs = actors.envs_per_actor
    if in_process and not given and cost.seconds >= SLOW_STEP_S:
        envs = count * envs
        count = 1  # an actor that waits has the others wait
    shape = choose_shape(cost, count, envs, cores, free=not given and not in_process)
    chosen = {"count": shape.count, "envs_per_actor": shape.envs_per_actor}
    fitted = config.model_copy(
        update={
            "env": env.model_copy(update={"stepping": shape.stepping}),
            "actors": actors if given or not cores else actors.model_copy(update=chosen),
        }
    )
    return fitted, _describe(env.id, cost, shape, here=cores is not None)


def choose_shape(cost: StepCost, count: int, envs: int, cores: int | None, *, free: bool) -> Shape:
    """Choose how many actors step how many environments, and how.

    Args:
        count, envs: actors, and environments of each, as configured.
        cores: see `fit_stepping`.
        free: nobody configured them.
    """
    side_by_side: Stepping = "threads" if cost.overlaps else "processes"
    if cost.seconds < SLOW_STEP_S:
        return Shape(count, envs, "serial")
    if not cost.computes:
        return Shape(count, envs, side_by_side)
    if free and cores and cost.seconds >= _HEAVY_STEP_S:
        # One actor for each core but the learner's: cores are all that gains time here.
        count = max(count, min(cores - 1, _ACTORS_MOST))
        envs = math.ceil(_DEFAULT_ENVIRONMENTS / count)
    idle_cores = (cores or 0) >= 2 * count and envs > 1
    return Shape(count, envs, side_by_side if idle_cores else "serial")


_HOW = {
    "serial": "one after another",
    "threads": "side by side in threads",
    "processes": "side by side in processes",
}


def _describe(env_id: str, cost: StepCost, shape: Shape, *, here: bool) -> str:
    actors = f"{shape.count} actor{'s' * (shape.count > 1)} of" if here else "each actor of"
    return (
        f"a step of {env_id} {cost.describe()}: {actors} "
        f"{shape.envs_per_actor} environments, stepped {_HOW[shape.stepping]} (env.stepping)"
    )


@functools.lru_cache
def _measure_cached(env: str) -> StepCost | None:
    """Measure once in a process: every run of a sweep has the same shape."""
    config = EnvConfig.model_validate_json(env)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the check that follows logs them
        try:
            return measure_step(config)
        except Exception as error:  # noqa: BLE001 - whatever it is, the check that follows says it
            log.debug("the step of %s was not measured: %s", config.id, error)
            return None


def measure_step(env: EnvConfig) -> StepCost | None:
    """Measure a step of an environment by random actions; None where it is a vector only."""
    if find_spec(env).entry_point is None:
        return None
    make = partial(make_env, env)
    with closing(SerialEnvs([make()])) as alone:
        seconds, computes = _time_steps(alone)
    if seconds < SLOW_STEP_S:
        return StepCost(seconds, computes, overlaps=False)
    try:
        with closing(ThreadedEnvs(make, 2)) as both:
            together, _ = _time_steps(both)
    except Exception as error:  # noqa: BLE001 - it may well not bear threads
        log.debug("%s does not step in threads: %s", env.id, error)
        return StepCost(seconds, computes, overlaps=False)
    return StepCost(seconds, computes, overlaps=together < _OVERLAP * seconds)


def _time_steps(group: EnvGroup) -> tuple[float, bool]:
    """Return the median seconds of a step of all of a group, of a processor where none waits; and
    whether they were computing.
    """
    places = range(len(group))
    space = group.action_space
    space.seed(0)
    obs = group.layout.empty(len(group))
    no_seeds = [None] * len(group)
    group.reset(places, [0, *range(1, len(group))], obs, places)
    times: list[float] = []
    busy = time.process_time()
    waits = count_waits()
    began = time.perf_counter()
    while len(times) < _STEPS_LEAST or (len(times) < _STEPS and sum(times) < _SECONDS):
        actions = np.array([space.sample() for _ in places], space.dtype)
        started = time.perf_counter()
        if group.step(actions, obs):
            group.reset(places, no_seeds, obs, places)
        times.append(time.perf_counter() - started)
    wall = time.perf_counter() - began
    busy = time.process_time() - busy
    seconds = statistics.median(times)
    # A busy host also makes a computing step last, but such a step never waits by itself.
    waited = count_waits() - waits >= len(times)
    if not waited:
        seconds = min(seconds, busy / len(times))
    return seconds, busy > 0.5 * wall or not waited
