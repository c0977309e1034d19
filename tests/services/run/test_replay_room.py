"""Observations are stored in the form that takes less room, and a replay that has none is refused
with what fits."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from vedette_protocol.limits import PAYLOAD_MAX_BYTES
from vedette_rl.envs.spaces import Spaces
from vedette_rl.errors import ReplayBudgetError
from vedette_rl.replay import budget
from vedette_services.config import RunConfig
from vedette_services.config.saving import publish_config
from vedette_services.run.checks import check_space
from vedette_services.run.directory import RunDirectory
from vedette_services.run.replay_layout import replay_layout
from vedette_services.run.replay_room import (
    choose_frame_storage,
    describe_repeats,
    describe_smaller,
    layout_space,
)
from vedette_services.run.start import Start

PICTURE = gym.spaces.Box(0, 255, (240, 320, 3), np.uint8)  # VizDoom's
GB = 10**9


def spaces_of(observation: gym.Space[Any] = PICTURE, stack: int = 0) -> Spaces:
    return Spaces(observation, gym.spaces.Discrete(4), stack)


def config_of(n_buffer: int = 16, agent: str = "dqn", **replay: Any) -> RunConfig:
    return RunConfig.model_validate(
        {
            "env": {"id": "Picture-v0"},
            "agent": {"name": agent},
            "actors": {"n_buffer": n_buffer, "envs_per_actor": 8},
            "replay": replay,
        }
    )


def bytes_of(config: RunConfig, spaces: Spaces) -> int:
    return layout_space(config, replay_layout(config, spaces)).total_bytes


def stored(config: RunConfig, out: Path, start: Start, spaces: Spaces) -> tuple[str, str]:
    chosen, line = choose_frame_storage(config, spaces, out, start)
    return chosen.replay.frame_storage, line


def test_by_default_images_never_take_more_room_than_whole_ones(tmp_path: Path) -> None:
    start = Start.of()
    stack = gym.spaces.Box(0, 255, (4, 84, 84), np.uint8)
    for spaces in (spaces_of(), spaces_of(stack, 4), spaces_of(gym.spaces.Box(-1, 1, (4096,)))):
        for n_buffer in (4, 16, 50, 100, 300):
            for agent in ("dqn", "sac"):
                spaces_ = (
                    spaces if agent == "dqn" else Spaces(spaces.observation, BOX, spaces.stack)
                )
                config = config_of(n_buffer, agent)
                chosen, line = choose_frame_storage(config, spaces_, tmp_path, start)
                plain = config_of(n_buffer, agent, frame_storage="plain")
                taken, whole = bytes_of(chosen, spaces_), bytes_of(plain, spaces_)
                assert taken <= whole, (spaces, n_buffer, agent)
                assert bool(line) == (chosen != config)
                assert not line or bytes_of(config, spaces_) > whole


BOX = gym.spaces.Box(-1.0, 1.0, (2,))


def test_short_batches_are_stored_whole_and_the_line_says_what_would_take_less(
    tmp_path: Path,
) -> None:
    storage, line = stored(config_of(), tmp_path, Start.of(), spaces_of())
    assert storage == "plain"
    assert line.startswith("observations are stored whole, in 48 GB: stored once they would take")
    longer = re.search(r"actors\.n_buffer=(\d+) takes (2\d\.\d) GB$", line)
    assert longer
    config = config_of(int(longer[1]))
    assert stored(config, tmp_path, Start.of(), spaces_of()) == ("auto", "")
    assert f"{bytes_of(config, spaces_of()) / GB:.1f}" == longer[2]
    assert replay_layout(config, spaces_of()).batch_bytes <= PAYLOAD_MAX_BYTES


def test_what_is_set_and_what_is_there_stay_as_they_are(tmp_path: Path) -> None:
    explicit = config_of(frame_storage="once")
    assert stored(explicit, tmp_path, Start.of(), spaces_of()) == ("once", "")
    run = RunDirectory(tmp_path)
    run.make()
    run.ensure_id()
    for storage in ("auto", "plain", "once"):  # of the replay that is there
        publish_config(config_of(frame_storage=storage), run.config_file)
        kept, line = stored(config_of(), tmp_path, Start.of(), spaces_of())
        assert (kept, line) == ("plain" if storage == "plain" else "auto", "")
    new = Start.of(new_replay=True)
    assert stored(config_of(), tmp_path, new, spaces_of())[0] == "plain"


def test_a_refusal_names_the_capacity_that_fits_and_the_setting_that_saves_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(budget, "free_disk_bytes", lambda directory: 20 * GB)
    config = config_of(frame_storage="plain", directory=str(tmp_path / "replay"))
    spaces = spaces_of()
    with pytest.raises(ReplayBudgetError) as refused:
        check_space(config, spaces, replay_layout(config, spaces), tmp_path, 0)
    said = str(refused.value)
    fits = re.search(r"needs 48 GB of disk .*: set replay\.capacity=(\d+), which fits, or", said)
    assert fits
    capacity = int(fits[1])
    smaller = config.replay.model_copy(update={"capacity": capacity})
    check_space(
        config.model_copy(update={"replay": smaller}),
        spaces,
        replay_layout(config.model_copy(update={"replay": smaller}), spaces),
        tmp_path,
        0,
    )
    assert 0.85 * 20 < 48 * capacity / 100_000 <= 20
    saves = (
        r"set actors\.n_buffer=\d+ replay\.frame_storage=once, which takes 2\d\.\d GB for 100,000"
    )
    assert re.search(saves, said)
    assert said.endswith("or name a larger disk as replay.directory")


def test_a_refusal_of_numbers_names_the_capacity_alone() -> None:
    spaces = spaces_of(gym.spaces.Box(-1, 1, (4,)))
    config = config_of(capacity=10**9)
    assert re.fullmatch(
        r"set replay\.capacity=\d+, which fits", describe_smaller(config, spaces, GB)
    )
    assert describe_smaller(config, spaces, 1000) == "lower replay.capacity"


@pytest.mark.parametrize(("warmup_period", "named"), [(500, True), (501, False)])
def test_a_capacity_from_which_nothing_can_be_learned_is_not_named(
    warmup_period: int, *, named: bool
) -> None:
    """The warm-up would never end."""
    spaces = spaces_of(gym.spaces.Box(-1, 1, (4,)))
    config = config_of(capacity=100_000)
    learner = config.learner.model_copy(update={"warmup_period": warmup_period})
    config = config.model_copy(update={"learner": learner})
    room = int(bytes_of(config_of(capacity=505), spaces) / 0.95) + 1
    fits = "set replay.capacity=500, which fits"
    assert (fits in describe_smaller(config, spaces, room)) is named
    assert named or describe_smaller(config, spaces, room) == "lower replay.capacity"


def test_the_batches_that_are_named_fit_into_a_message() -> None:
    config = config_of(50)
    said = describe_repeats(config, spaces_of(), replay_layout(config, spaces_of()))
    rows = re.search(r"actors\.n_buffer=(\d+) makes", said)
    assert rows
    longer = config_of(int(rows[1]))
    assert replay_layout(longer, spaces_of()).batch_bytes <= PAYLOAD_MAX_BYTES
