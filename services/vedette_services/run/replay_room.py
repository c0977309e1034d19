"""The room that a run's replay takes, and the settings by which it takes less."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vedette_protocol.limits import PAYLOAD_MAX_BYTES
from vedette_rl.envs.spaces import Spaces
from vedette_rl.number_format import format_bytes
from vedette_rl.replay.budget import ReplaySpace, replay_space
from vedette_services.config.loading import read_toml
from vedette_services.config.run_config import RunConfig
from vedette_services.errors import ConfigError
from vedette_services.run.directory import RunDirectory
from vedette_services.run.replay_layout import (
    REPEATS_SAID,
    ReplayLayout,
    extra_frames_per_batch,
    frame_stack_of_schema,
    replay_layout,
)
from vedette_services.run.start import Start

_FILLS = 0.95
"""Of the room that is there: what a capacity that is named leaves is for everything else."""

_SAVES = 0.95
"""Of the room that is taken: a setting that takes more than this is not worth a word."""


def layout_space(config: RunConfig, layout: ReplayLayout) -> ReplaySpace:
    """The room of a replay of this layout."""
    return replay_space(
        layout.stored,
        config.replay.capacity,
        prioritized=config.replay.prioritized,
        sequences=bool(config.replay.sequence) and not config.replay.is_queue,
        guard=layout.guard,
        keep=layout.keep,
        shared=layout.shared,
    )


@dataclass(frozen=True, slots=True)
class _Choice:
    """Settings of a run, and what its replay takes by them.

    Args:
        text: the settings, as a command takes them.
        config: the run's, with them.
    """

    text: str
    config: RunConfig
    bytes: int

    @classmethod
    def of(cls, config: RunConfig, spaces: Spaces, **settings: Any) -> _Choice:
        """The run with these settings, ``PART_KEY=VALUE``."""
        text = []
        for name, value in settings.items():
            part, _, key = name.partition("_")
            text.append(f"{part}.{key}={value}")
            changed = getattr(config, part).model_copy(update={key: value})
            config = config.model_copy(update={part: changed})
        total = layout_space(config, replay_layout(config, spaces)).total_bytes
        return cls(" ".join(text), config, total)


def choose_frame_storage(
    config: RunConfig, spaces: Spaces, out: Path, start: Start
) -> tuple[RunConfig, str]:
    """Store observations whole in a new replay, where storing them once would take more room.

    A replay that is there keeps its form.

    Returns:
        the configuration, and a line that says so; "" where nothing was to choose.
    """
    if config.replay.frame_storage != "auto":
        return config, ""
    if RunDirectory(out).exists and not start.empty_replay:
        kept = _saved_frame_storage(out)
        replay = config.replay.model_copy(update={"frame_storage": kept})
        return config.model_copy(update={"replay": replay}) if kept == "plain" else config, ""
    layout = replay_layout(config, spaces)
    if layout.shared is None:
        return config, ""
    once = layout_space(config, layout).total_bytes
    plain = _Choice.of(config, spaces, replay_frame_storage="plain")
    if once <= plain.bytes:
        return config, ""
    line = (
        f"observations are stored whole, in {format_bytes(plain.bytes)}: stored once they would "
        f"take {format_bytes(once)}, as batches of {config.actors.n_buffer:,} transitions are short"
    )
    if longer := _longer_batches(config, spaces, plain.bytes):
        line += f"; {longer.text} takes {format_bytes(longer.bytes)}"
    return plain.config, line


def _saved_frame_storage(out: Path) -> str:
    """`replay.frame_storage` of the run in a directory; ``auto`` where that is not known."""
    try:
        replay = read_toml(RunDirectory(out).config_file).get("replay")
    except ConfigError:  # whoever resumes by it says what is wrong there
        return "auto"
    return str(replay.get("frame_storage", "auto")) if isinstance(replay, dict) else "auto"


def describe_smaller(config: RunConfig, spaces: Spaces, room_bytes: int) -> str:
    """Say how the replay of a run fits into a room, for a refusal: the capacity that does, and the
    setting that saves most without it."""
    now = _Choice.of(config, spaces)
    said = []
    if capacity := _fitting_capacity(config, spaces, room_bytes):
        said.append(f"set replay.capacity={capacity}, which fits")
    if saving := _best_saving(config, spaces, now.bytes):
        takes = f"takes {format_bytes(saving.bytes)} for {config.replay.capacity:,} samples"
        said.append(f"set {saving.text}, which {takes}")
    return ", or ".join(said) or "lower replay.capacity"


def _best_saving(config: RunConfig, spaces: Spaces, now_bytes: int) -> _Choice | None:
    if config.actors.step_processor != "n_step":  # it needs whole observations
        return None
    other = "plain" if replay_layout(config, spaces).shared else "once"
    choices = [_Choice.of(config, spaces, replay_frame_storage=other)]
    if longer := _longer_batches(config, spaces, now_bytes):
        choices.append(longer)
    best = min(choices, key=lambda choice: choice.bytes)
    return best if best.bytes < _SAVES * now_bytes else None


def _longer_batches(config: RunConfig, spaces: Spaces, now_bytes: int) -> _Choice | None:
    """Observations stored once, in batches so long that few are in two of them; None: that takes
    no less than `now_bytes`, or such batches are too large for a message."""
    keys: dict[str, Any] = {}
    if not replay_layout(config, spaces).shared:
        keys = {"replay_frame_storage": "once"}
    rows = _rows_of_few_repeats(_Choice.of(config, spaces, **keys).config, spaces)
    if rows <= config.actors.n_buffer:
        return None
    longer = _Choice.of(config, spaces, actors_n_buffer=rows, **keys)
    return longer if longer.bytes < _SAVES * now_bytes else None


def _rows_of_few_repeats(config: RunConfig, spaces: Spaces) -> int:
    """Rows of a batch of which few observations are in the next one, too, as far as a message and
    the replay have room; at least those that are set."""
    layout = replay_layout(config, spaces)
    frames = frame_stack_of_schema(layout.schema)
    if frames is None:
        return config.actors.n_buffer
    most = min(PAYLOAD_MAX_BYTES, config.actors.window_bytes)
    extra = extra_frames_per_batch(config, frames.stack)
    wanted = math.ceil(extra / REPEATS_SAID)
    bytes_per_row = layout.schema.payload_bytes(1, 1)
    fitting = min(most // bytes_per_row - extra, config.replay.capacity // 20)
    return max(config.actors.n_buffer, min(wanted, fitting))


def describe_repeats(config: RunConfig, spaces: Spaces, layout: ReplayLayout) -> str:
    """Return a line for batches so short that many observations are in two of them; else ""."""
    frames = frame_stack_of_schema(layout.schema)
    if frames is None:
        return ""
    extra = extra_frames_per_batch(config, frames.stack)
    rows = config.actors.n_buffer
    enough = _rows_of_few_repeats(config, spaces)
    if extra <= REPEATS_SAID * rows or enough <= rows:
        return ""
    now, then = (f"{100 * extra / (extra + batch):.0f} %" for batch in (rows, enough))
    return (
        f"{now} of the observations in the replay are copies, as batches are short: "
        f"actors.n_buffer={enough} makes that {then}"
    )


def _fitting_capacity(config: RunConfig, spaces: Spaces, room_bytes: int) -> int:
    """The largest capacity of two digits that fits and from which can be learned; 0: none."""
    low = 0
    high = config.replay.capacity
    while high - low > max(1, high // 1000):
        middle = (low + high) // 2
        if _Choice.of(config, spaces, replay_capacity=middle).bytes <= _FILLS * room_bytes:
            low = middle
        else:
            high = middle
    digits = max(0, len(str(low)) - 2)
    capacity = low // 10**digits * 10**digits
    drawn = config.replay.burn_in + config.replay.sequence or config.agent.batch_size
    least = max(config.learner.warmup_period, drawn, config.actors.n_buffer)
    return capacity if capacity >= least else 0
