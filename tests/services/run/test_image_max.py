"""A new run divides images by their own range, and what was learned before keeps its 255."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from vedette_rl.agents.dqn.config import DqnConfig
from vedette_rl.core.agent_config import AgentConfig
from vedette_rl.envs.spaces import Spaces
from vedette_services.config import RunConfig
from vedette_services.config.peer_settings import settings_for_peers
from vedette_services.config.saving import publish_config
from vedette_services.run.directory import RunDirectory
from vedette_services.run.image_max import choose_image_max
from vedette_services.run.start import Start

PLANES = gym.spaces.Box(0, 1, (10, 10, 4), np.uint8)
PICTURE = gym.spaces.Box(0, 255, (10, 10, 4), np.uint8)


def chosen(
    out: Path,
    agent: AgentConfig | None = None,
    observation: gym.Space[Any] = PLANES,
    start: Start | None = None,
    **learner: Any,
) -> Any:
    """What the agent's images are divided by in a start in `out`."""
    table = {"env": {"id": "Planes-v0"}, "agent": agent or DqnConfig(), "learner": learner}
    config = RunConfig.model_validate(table)
    spaces = Spaces(observation, gym.spaces.Discrete(4))
    decided = choose_image_max(config, spaces, out, start or Start.of())
    return decided.agent.model_dump()["image_max"]


def run_of_before(out: Path, image_max: dict[str, int] | None = None) -> Path:
    """A run's directory; without `image_max` it is of a release that has no such key."""
    run = RunDirectory(out)
    run.make()
    run.ensure_id()
    agent = DqnConfig(image_max=image_max or {})
    publish_config(
        RunConfig.model_validate({"env": {"id": "Planes-v0"}, "agent": agent}), run.config_file
    )
    if image_max is None:
        kept = run.config_file.read_text().replace("[agent.image_max]\n", "")
        assert "image_max" not in kept
        run.config_file.write_text(kept)
    return out


def test_a_new_run_takes_the_range_of_its_images(tmp_path: Path) -> None:
    assert chosen(tmp_path) == {"obs": 1}
    parts = gym.spaces.Dict(board=PLANES, camera=PICTURE)
    assert chosen(tmp_path, observation=parts) == {"obs/board": 1}
    told = settings_for_peers(DqnConfig(image_max={"obs": 1}))
    assert told["image_max"] == {"obs": 1}  # a host that does not know it refuses it by name


def test_pictures_that_end_at_255_leave_the_setting_at_its_default(tmp_path: Path) -> None:
    assert chosen(tmp_path, observation=PICTURE) == {}
    assert chosen(tmp_path, observation=gym.spaces.Box(0, 1, (4,))) == {}
    assert chosen(tmp_path, DqnConfig(network="mlp")) == {}


def test_what_is_set_stays(tmp_path: Path) -> None:
    assert chosen(tmp_path, DqnConfig(image_max={"obs": 255})) == {"obs": 255}


def test_a_custom_loop_divides_by_what_its_author_wrote(tmp_path: Path) -> None:
    assert chosen(tmp_path, start=Start.of(custom_loop=True)) == {}


def test_a_run_that_goes_on_keeps_what_its_weights_were_learned_with(tmp_path: Path) -> None:
    run_of_before(tmp_path)
    assert chosen(tmp_path) == {}
    assert chosen(tmp_path, start=Start.of(new_replay=True)) == {}
    assert chosen(tmp_path, start=Start.of(fresh=True, force=True)) == {"obs": 1}


@pytest.mark.parametrize("image_max", [None, {}, {"obs": 1}])
def test_weights_of_another_run_bring_their_range(
    tmp_path: Path, image_max: dict[str, int] | None
) -> None:
    before = run_of_before(tmp_path / "before", image_max)
    assert chosen(tmp_path / "new", init_from=str(before)) == (image_max or {})
