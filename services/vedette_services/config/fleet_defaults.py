"""Chooses settings by the size of the configured fleet, where they are not set.

A fleet is ``actors.count`` x ``actors.envs_per_actor`` environments. Settings that are marked with
`EnvSteps` stand for environment steps and are written in optimization steps, the unit of their
keys. A run saves what was chosen: when it resumes, nothing is chosen again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel

from vedette_rl.agents.config import EnvSteps
from vedette_rl.agents.exploration import LADDER_ABOVE, ExplorationConfig
from vedette_rl.replay.config import ReplayConfig
from vedette_rl.replay.frame_stacks import FrameStack, frame_stack
from vedette_services.config.parts import ActorsConfig, LearnerConfig
from vedette_services.config.run_config import RunConfig

if TYPE_CHECKING:  # it imports gymnasium
    from vedette_rl.envs.spaces import Spaces

EXTRA_FRAMES_SHARE = 0.08
"""Frames that are in two batches, of all, where `actors.n_buffer` is left to us."""

STACKS_ROWS = 100
"""The least rows of a batch of stacked frames that are large."""

STACKS_SYNC = 50
"""Optimization steps between models of networks for stacked frames that are large, as the networks
are."""


@dataclass(frozen=True, slots=True)
class FleetSize:
    """The configured fleet, and the environment steps that it plays for an optimization step."""

    actors: int
    envs_per_actor: int
    env_steps_per_opt: float

    @classmethod
    def of(cls, config: RunConfig) -> FleetSize:
        """The fleet of a configuration."""
        rate = config.usual_samples_per_insert
        if not config.replay.is_queue:
            rate = config.replay.samples_per_insert or rate
        per_opt = config.samples_per_opt / rate if rate else math.inf
        return cls(max(1, config.actors.count), config.actors.envs_per_actor, per_opt)

    @property
    def environments(self) -> int:
        """All of them."""
        return self.actors * self.envs_per_actor

    def __str__(self) -> str:
        said = _environments(self.environments)
        return f"{said} (actors.count {self.actors:,} x envs_per_actor {self.envs_per_actor:,})"

    def batch_rows(self) -> int:
        """Rows of a batch: some steps of an actor's environments, more of them in a large fleet."""
        steps = min(max(2, self.environments // 8), 12)
        return max(steps * self.envs_per_actor, 16 // self.actors, 4)


@dataclass(frozen=True, slots=True)
class Choice:
    """A setting that the fleet decided.

    Args:
        value: its value now, in its key's unit.
        why: the reason in words, and in environment steps where the value stands for some.
    """

    key: str
    value: float | str
    why: str

    def __str__(self) -> str:
        return f"{self.key} = {self.value}: {self.why}"


def depends_on_observation(config: RunConfig) -> bool:
    """True if what is not set depends on the size of an observation, which is a stack of frames."""
    open_rows = "n_buffer" not in config.actors.model_fields_set and not config.replay.is_queue
    open_sync = "sync_interval" not in config.learner.model_fields_set
    return config.env.stack >= 2 and (open_rows or open_sync)


@dataclass(frozen=True, slots=True)
class _StackedFrames:
    """The cost of observations that are stacks of frames.

    Args:
        are_large: one has so many bytes, or is of pictures, that it is worth storing each frame
            once.
        are_stored_once: each frame is.
        known: they were looked at; otherwise they are taken for pictures.
    """

    are_large: bool = False
    are_stored_once: bool = False
    known: bool = True

    @classmethod
    def of(cls, config: RunConfig, spaces: Spaces | None) -> _StackedFrames:
        if config.env.stack < 2:
            return cls()
        if spaces is None:
            return cls(True, config.replay.frame_storage != "plain", known=False)
        return cls(
            _stored_frames(config, spaces, "auto") is not None,
            _stored_frames(config, spaces, config.replay.frame_storage) is not None,
        )


def _stored_frames(config: RunConfig, spaces: Spaces, frame_storage: str) -> FrameStack | None:
    """The frames that a replay would store once by a `replay.frame_storage`."""
    return frame_stack(config.replay.model_copy(update={"frame_storage": frame_storage}), spaces)


def choose_for_fleet(
    config: RunConfig, spaces: Spaces | None = None
) -> tuple[RunConfig, tuple[Choice, ...]]:
    """Set what is not set and the fleet decides; return what was chosen, too.

    Args:
        spaces: of the environment, where `depends_on_observation`; None: they are not known, and
            stacks of frames are taken for pictures.
    """
    size = FleetSize.of(config)
    frames = _StackedFrames.of(config, spaces)
    choices = list[Choice]()
    parts = {
        "agent": _choose(config.agent, "agent", size, choices),
        "actors": _choose_rows(config, size, frames, choices),
        "replay": _choose_ratio(config, size, choices),
        "learner": _choose(_with_rare_models(config, frames, choices), "learner", size, choices),
    }
    return config.model_copy(update=parts), tuple(choices)


def describe_choices(config: RunConfig, choices: Sequence[Choice]) -> str:
    """One line that says what was chosen for this fleet; "" if that is nothing. A new run's saved
    configuration begins with it, a line each."""
    if not choices:
        return ""
    counted = [choice.why for choice in choices if choice.why.endswith((_STEP, _STEPS))]
    others = [choice.why for choice in choices if choice.why not in counted]
    said = ", ".join(counted).replace(_STEPS, "").replace(f"every {_STEP}", "every 1")
    said = f"in environment steps: {said}" if counted else ""
    parts = filter(None, [", ".join(others), said])
    return f"chosen for {_environments(FleetSize.of(config).environments)}: {'; '.join(parts)}"


def _environments(count: int) -> str:
    return "1 environment" if count == 1 else f"{count:,} environments"


_STEP = "environment step"
_STEPS = " environment steps"


def _env_steps_text(steps: float) -> str:
    return _STEP if steps == 1.0 else f"{steps:,.10g}{_STEPS}"


Part = TypeVar("Part", bound=BaseModel)


def _choose(part: Part, prefix: str, size: FleetSize, choices: list[Choice]) -> Part:
    """`part` with its marked settings chosen, and those of the parts in it."""
    update: dict[str, Any] = {}
    for name, field in type(part).model_fields.items():
        value = getattr(part, name)
        if isinstance(value, ExplorationConfig):
            value = _choose_exploration(value, f"{prefix}.{name}", size, choices)
        if isinstance(value, BaseModel):
            update[name] = _choose(value, f"{prefix}.{name}", size, choices)
        marks = [mark for mark in field.metadata if isinstance(mark, EnvSteps)]
        if not marks or name in part.model_fields_set:
            continue
        update[name] = steps = marks[0].opt_steps(size.environments, size.env_steps_per_opt)
        why = marks[0].what.format(_env_steps_text(steps * size.env_steps_per_opt))
        choices.append(Choice(f"{prefix}.{name}", steps, why))
    return part.model_copy(update=update)


def _choose_ratio(config: RunConfig, size: FleetSize, choices: list[Choice]) -> ReplayConfig:
    """`replay` with the ratio of the agent's class."""
    if config.replay.samples_per_insert is not None or config.replay.is_queue:
        return config.replay
    rate = config.agent.usual_samples_per_insert
    why = f"an optimization step every {_env_steps_text(size.env_steps_per_opt)}"
    choices.append(Choice("replay.samples_per_insert", rate, why))
    return config.replay.model_copy(update={"samples_per_insert": rate})


def _choose_exploration(
    config: ExplorationConfig, prefix: str, size: FleetSize, choices: list[Choice]
) -> ExplorationConfig:
    """The exploration that suits the fleet; its clock is left as it is where it has none."""
    kept: dict[str, Any] = {}
    if config.kind == "auto":
        kept["kind"] = kind = "ladder" if size.environments > LADDER_ABOVE else "linear"
        choices.append(Choice(f"{prefix}.kind", kind, f"{kind} exploration"))
    if kept.get("kind", config.kind) != "linear":
        kept.setdefault("epsilon_steps", config.epsilon_steps)
    return config.model_copy(update=kept)


def _with_rare_models(
    config: RunConfig, frames: _StackedFrames, choices: list[Choice]
) -> LearnerConfig:
    """`learner` with models sent rarely where observations are stacks of large frames."""
    learner = config.learner
    if not frames.are_large or "sync_interval" in learner.model_fields_set:
        return learner
    reason = "it is large" if frames.known else "it is large if the stacked frames are pictures"
    why = f"a model every {STACKS_SYNC} optimization steps, because {reason}"
    choices.append(Choice("learner.sync_interval", STACKS_SYNC, why))
    return learner.model_copy(update={"sync_interval": STACKS_SYNC})


def _choose_rows(
    config: RunConfig, size: FleetSize, frames: _StackedFrames, choices: list[Choice]
) -> ActorsConfig:
    """`actors` with `n_buffer` chosen; that of a queue follows its sequences.

    Where stacks travel frame by frame, a batch's extra frames are in two batches, and a long batch
    has few of them for its rows.
    """
    actors = config.actors
    if "n_buffer" in actors.model_fields_set or config.replay.is_queue:
        return actors
    rows = size.batch_rows()
    if frames.are_large or frames.are_stored_once:
        rows = max(rows, STACKS_ROWS)
    if frames.are_stored_once:
        extra_frames = actors.envs_per_actor * (config.env.stack + config.row_steps - 1)
        most = max(rows, config.replay.capacity // 20)
        rows = min(max(rows, math.ceil(extra_frames / EXTRA_FRAMES_SHARE)), most)
    choices.append(Choice("actors.n_buffer", rows, f"batches of {rows:,} transitions"))
    return actors.model_copy(update={"n_buffer": rows})
