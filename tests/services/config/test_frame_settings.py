"""Settings of stacks, frames and initial priorities: what follows from them, what is refused."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from starts import lines_of_start  # of tests/support

from vedette.cli.app import main
from vedette_rl.envs.make import probe_environment
from vedette_rl.steps import NStep
from vedette_services.config import RunConfig, load_config, read_config, write_config
from vedette_services.config.probing import EnvironmentProbe
from vedette_services.errors import ConfigError
from vedette_services.run.replay_layout import replay_layout

STACKED = {"name": "gymnasium.wrappers:FrameStackObservation", "kwargs": {"stack_size": 4}}


class Still(gym.Env[Any, Any]):
    """A small picture for ever, for discrete or continuous actions."""

    observation_space = gym.spaces.Box(0, 255, (6, 6), np.uint8)

    def __init__(self, continuous: bool = False) -> None:
        box = gym.spaces.Box(-1, 1, (2,), np.float32)
        self.action_space = box if continuous else gym.spaces.Discrete(2)

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return np.zeros((6, 6), np.uint8), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return np.zeros((6, 6), np.uint8), 0.0, False, False, {}


class OwnSteps(NStep):
    """A step processor of the user's own."""


gym.register("FrameStill-v0", entry_point=Still)
gym.register(
    "FrameStillInside-v0",
    entry_point=lambda: gym.wrappers.FrameStackObservation(Still(), 3),
)


def configuration(*settings: str, env: str = "FrameStill-v0", agent: str = "dqn") -> RunConfig:
    return load_config(env=env, agent=agent, settings=list(settings), environment={}).config


def stored_once(config: RunConfig) -> bool:
    return replay_layout(config, probe_environment(config.env)).shared is not None


def test_batches_of_frames_are_as_long_as_it_takes_for_their_edges_to_be_few() -> None:
    assert configuration().actors.n_buffer == 16
    assert configuration("env.frame_stack=4", "agent.n_step=1").actors.n_buffer == 400
    assert configuration("env.frame_stack=4", "agent.n_step=3").actors.n_buffer == 600
    wrapped = load_config(
        table={"env": {"id": "FrameStill-v0", "wrappers": [STACKED]}, "agent": {"name": "dqn"}},
        environment={},
    )
    assert wrapped.config.actors.n_buffer == 600
    assert configuration("env.frame_stack=4", "actors.n_buffer=64").actors.n_buffer == 64
    assert configuration("env.frame_stack=4", "replay.capacity=2000").actors.n_buffer == 100
    plain = configuration("env.frame_stack=4", "replay.frame_storage=plain")
    assert plain.actors.n_buffer == 100


@pytest.mark.parametrize(
    ("env", "settings", "rows", "sync"),
    [
        ("CartPole-v1", (), 16, 8),  # 4 x 4 numbers
        ("CartPole-v1", ("replay.frame_storage=once",), 600, 8),
        ("CartPole-v1", ("env.frame_stack=255",), 16, 8),  # 4,080 bytes
        ("FrameStill-v0", (), 600, 50),
        ("FrameStill-v0", ("replay.frame_storage=plain",), 100, 50),
    ],
)
def test_what_stacked_frames_cost_decides_and_not_that_they_are_stacked(
    env: str, settings: tuple[str, ...], rows: int, sync: int
) -> None:
    given = ["preset=none", "agent.n_step=3", "env.frame_stack=4", *settings]
    with EnvironmentProbe() as probe:
        found = load_config(
            env=env, agent="dqn", settings=given, environment={}, probe=probe
        ).config
    assert (found.actors.n_buffer, found.learner.sync_interval) == (rows, sync)


@pytest.mark.parametrize(("numbers", "rows", "sync"), [(3, 16, 8), (300, 600, 50)])
def test_declared_stacks_are_looked_at(numbers: int, rows: int, sync: int) -> None:
    obs = {"space": "box", "shape": [4, numbers], "low": -1.0, "high": 1.0, "dtype": "float32"}
    declared = {"id": "robot", "observation": obs, "action": {"space": "discrete", "n": 2}}
    table = {"env": {**declared, "frame_stack": 4}, "agent": {"name": "dqn"}}
    found = load_config(table=table, environment={}).config
    assert (found.actors.n_buffer, found.learner.sync_interval) == (rows, sync)


def test_stacks_of_which_nothing_is_known_are_taken_for_pictures_and_that_is_said() -> None:
    found = load_config(
        env="Elsewhere-v0", agent="dqn", settings=["env.frame_stack=4"], environment={}
    )
    assert (found.config.actors.n_buffer, found.config.learner.sync_interval) == (600, 50)
    assert "because it is large if the stacked frames are pictures" in found.comment


def test_the_atari_preset_stores_a_million_transitions_in_less_than_8_5_gigabytes() -> None:
    from vedette_rl.envs.spaces import Spaces
    from vedette_rl.replay.budget import replay_space

    config = configuration("replay.capacity=1e6", env="ALE/Pong-v5")
    assert config.env.stack == 4
    box = gym.spaces.Box(0, 255, (4, 84, 84), np.uint8)
    layout = replay_layout(config, Spaces(box, gym.spaces.Discrete(6), config.env.stack))
    need = replay_space(
        layout.stored, 10**6, prioritized=True, guard=layout.guard, shared=layout.shared
    )
    assert need.total_bytes < 8.5e9


def test_a_configuration_of_frames_reads_back_the_same(tmp_path: Path) -> None:
    config = configuration(
        "env.frame_stack=4", "replay.prioritized=true", "replay.initial_priorities=actor"
    )
    write_config(config, tmp_path / "config.toml")
    assert read_config(tmp_path / "config.toml") == config


@pytest.mark.parametrize(
    ("env", "settings", "stack", "once"),
    [
        ("FrameStill-v0", (), 0, False),
        ("FrameStill-v0", ("env.frame_stack=5",), 5, True),
        ("FrameStill-v0", ("env.frame_stack=1",), 0, False),
        ("FrameStill-v0", ("env.frame_stack=5", "replay.frame_storage=plain"), 5, False),
        ("FrameStillInside-v0", (), 3, True),
        ("FrameStill-v0", ("replay.frame_storage=once",), 0, True),
        ("CartPole-v1", ("env.frame_stack=2",), 2, False),
        ("CartPole-v1", ("env.frame_stack=2", "replay.frame_storage=once"), 2, True),
        (
            "FrameStill-v0",
            ("env.frame_stack=5", f"actors.step_processor={__name__}:OwnSteps"),
            5,
            False,
        ),
    ],
)
def test_stacked_images_are_found_wherever_they_are_stacked(
    env: str, settings: tuple[str, ...], stack: int, once: bool
) -> None:
    config = configuration(*settings, env=env)
    assert probe_environment(config.env).stack == stack
    assert stored_once(config) == once


def test_the_start_says_where_short_batches_repeat_observations(tmp_path: Path) -> None:
    reach = "vedette_rl.testing:VisualReach"
    rows = {16: "^33 % of the .* are copies, .*: actors.n_buffer=100 makes that 7 %$", 100: ""}
    for n_buffer, said in rows.items():
        config = configuration(f"actors.n_buffer={n_buffer}", env=reach, agent="sac")
        assert stored_once(config)
        lines = [line for line in lines_of_start(config, tmp_path / "run") if "copies" in line]
        assert len(lines) == bool(said)
        assert not said or re.search(said, lines[0])
    plain = configuration("replay.frame_storage=plain", env=reach, agent="sac")
    assert not any("copies" in line for line in lines_of_start(plain, tmp_path / "run"))
    assert not stored_once(configuration("env.kwargs.see='state'", env=reach, agent="sac"))


def test_ales_own_vector_form_stacks() -> None:
    pytest.importorskip("ale_py", reason="the atari extra is not installed")
    config = load_config(
        table={
            "preset": "none",
            "env": {"id": "ALE/Pong-v5", "vectorization": "vector_entry_point"},
            "agent": {"name": "dqn"},
        },
        environment={},
    ).config
    assert (config.env.stack, probe_environment(config.env).stack) == (4, 4)
    assert stored_once(config)


@pytest.mark.parametrize(
    ("settings", "agent", "says"),
    [
        (
            (
                "env.frame_stack=2",
                "replay.frame_storage=once",
                f"actors.step_processor={__name__}:OwnSteps",
            ),
            "dqn",
            "OwnSteps' may look at whole observations: set actors.step_processor=n_step, or",
        ),
        (
            (
                "env.kwargs.continuous=true",
                "replay.prioritized=true",
                "replay.initial_priorities=actor",
            ),
            "sac",
            r"replay\.initial_priorities: the policy of agent 'sac' sends no TD errors of its own; "
            r"set replay\.initial_priorities=max",
        ),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(
    tmp_path: Path, settings: tuple[str, ...], agent: str, says: str
) -> None:
    with pytest.raises(ConfigError, match=says) as refused:
        lines_of_start(configuration(*settings, agent=agent), tmp_path / "run")
    assert "\n" not in str(refused.value)


def test_actors_priorities_are_refused_where_nothing_is_drawn_by_priority() -> None:
    with pytest.raises(ConfigError, match=r"replay.*set prioritized=true") as refused:
        configuration("replay.initial_priorities=actor")
    assert "\n" not in str(refused.value)


def test_policies_that_tell_td_errors_are_let_through(tmp_path: Path) -> None:
    settings = ("replay.prioritized=true", "replay.initial_priorities=actor", "env.frame_stack=3")
    for agent in ("dqn", "iqn"):
        config = configuration(*settings, agent=agent)
        lines_of_start(config, tmp_path / "run")
        names = [
            column.name
            for column in replay_layout(config, probe_environment(config.env)).schema.columns
        ]
        assert names[-2:] == ["td_error", "frames"]


BUDGET = re.compile(r"^replay: 3,000 samples need [\d.]+ MB; free: .* of memory, .* in .*$", re.M)
SMALL = ("replay.capacity=3000", "learner.warmup_period=64", "agent.hidden_sizes=[8]")


def said_by(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    with pytest.raises(SystemExit) as left:
        main([*map(str, arguments)])
    said = capsys.readouterr()
    assert not left.value.code, said
    return said.out


def test_a_run_says_what_its_replay_needs_before_it_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = said_by(
        capsys,
        "run",
        "--in-process",
        "--env",
        "FrameStill-v0",
        "--out",
        tmp_path / "run",
        *SMALL,
        "stop.max_opts=3",
        "learner.eval_interval=0",
    )
    assert BUDGET.search(said), said


def test_a_learner_says_what_its_replay_needs_before_it_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vedette_services.learner.supervisor.run_learner", lambda *_, **__: 0)
    said = said_by(capsys, "learner", "--env", "FrameStill-v0", "--out", tmp_path / "run", *SMALL)
    assert BUDGET.search(said), said
