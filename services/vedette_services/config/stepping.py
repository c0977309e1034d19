"""How actors step their environments, by the time that a step and a reset take."""

from __future__ import annotations

import math
from dataclasses import dataclass

from vedette_services.config.probing import EnvironmentProbe
from vedette_services.config.run_config import RunConfig
from vedette_services.host.step_cost import SLOW_STEP_S, StepCost, Stepping

_HEAVY_STEP_S = 0.001  # computing for so long, a step is worth a process of its own
_DEFAULT_ENVIRONMENTS = 16
_ACTORS_MOST = 16


@dataclass(frozen=True, slots=True)
class Shape:
    """Actors on a host, environments of each, and how each steps them."""

    count: int
    envs_per_actor: int
    stepping: Stepping


def fit_stepping(
    config: RunConfig,
    probe: EnvironmentProbe,
    *,
    cores: int | None = None,
    in_process: bool = False,
) -> tuple[RunConfig, str]:
    """Choose `env.stepping` where it is ``auto``, and how many actors play where nobody said.

    Args:
        probe: measures the step.
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
    cost = probe.step_cost(env)
    if cost is None:
        return config, ""
    given = actors.model_fields_set & {"count", "envs_per_actor"}
    count = actors.count
    envs = actors.envs_per_actor
    is_slow = cost.seconds >= SLOW_STEP_S or cost.resets_slowly
    if in_process and not given and is_slow:
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
    if cost.seconds < SLOW_STEP_S and not cost.resets_slowly:
        return Shape(count, envs, "serial")
    if not cost.computes:
        return Shape(count, envs, side_by_side)
    if free and cores and cost.seconds >= _HEAVY_STEP_S:
        # One actor for each core but the learner's: cores are all that gains time here.
        count = max(count, min(cores - 1, _ACTORS_MOST))
        envs = math.ceil(_DEFAULT_ENVIRONMENTS / count)
    idle_cores = (cores or 0) >= 2 * count
    gains = envs > 1 and (idle_cores or cost.resets_slowly)
    return Shape(count, envs, side_by_side if gains else "serial")


_HOW = {
    "serial": "one at a time",
    "threads": "in parallel, in threads",
    "processes": "in parallel, in processes",
}


def _describe(env_id: str, cost: StepCost, shape: Shape, *, here: bool) -> str:
    actors = f"{shape.count} actor{'s, each' * (shape.count > 1)}" if here else "each actor"
    envs = f"{shape.envs_per_actor} environment{'s' * (shape.envs_per_actor > 1)}"
    how = f", which it steps {_HOW[shape.stepping]}" if shape.envs_per_actor > 1 else ""
    stepping = f"env.stepping={shape.stepping}"
    return f"a step of {env_id} {cost.describe()}: {actors} with {envs}{how} ({stepping})"
