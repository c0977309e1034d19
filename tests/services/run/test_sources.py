"""Sources: what of data sets gets into their rings, and what is refused before a run starts."""

from __future__ import annotations

import json
import os
import shutil
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from configurations import configured
from numpy.typing import NDArray
from run_directories import new_run
from sequence_agent import OF_SEQUENCES
from starts import prepared

from vedette_rl.core import Columns
from vedette_rl.envs.make import (
    environment_spaces,
    make_vector_environment,
    probe_environment,
)
from vedette_rl.envs.spaces import transition_dtype
from vedette_rl.errors import ReplayFormatError
from vedette_rl.replay.ring import RingReader, RingWriter
from vedette_rl.steps import NStep
from vedette_services.config import RunConfig
from vedette_services.errors import SettingError
from vedette_services.run.directory import RunDirectory
from vedette_services.run.replay_layout import ring_dtype
from vedette_services.run.sources import (
    check_sources,
    read_record,
    source_directory,
    stage_sources,
)

WRITERS = {"cursor.bin", "checksums.bin", "commits", "synced", "lock"}
"""The files of a source that its own writer changes as it closes."""
EPISODES = 40
STEPS = 5


class Walk(gym.Env[Any, Any]):
    """Shows (episode, step); an episode ends with its fifth step, every third one truncated."""

    def __init__(self, form: str = "vector") -> None:
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float64)
        if form == "parts":
            self.observation_space = gym.spaces.Dict(
                {"where": self.observation_space, "t": gym.spaces.Discrete(9)}
            )
        self.action_space = gym.spaces.Discrete(3, start=5)
        self._form = form
        self._episode = -1
        self._t = 0

    def _obs(self) -> Any:
        where = np.array([self._episode, self._t], np.float64)
        return where if self._form == "vector" else {"where": where, "t": self._t}

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._episode = self._episode + 1
        self._t = 0
        return self._obs(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert 5 <= action < 8
        self._t += 1
        ends = self._t == STEPS
        cut = self._episode % 3 == 0
        return self._obs(), float(self._t), ends and not cut, ends and cut, {}


gym.register("SourcesWalk-v0", entry_point=Walk)


DRAWN = "replay.sequence=4"


def configuration(
    *settings: str, data: object = None, env: dict[str, Any] | None = None, **more: object
) -> RunConfig:
    """A configuration with the source `demos`, if it has `data`; of declared spaces, if given."""
    base = ["replay.capacity=1000", "learner.warmup_period=10", "actors.n_buffer=10"]
    given = {"agent.n_step": 1, "env.reward_scale": 1.0, **more}
    base += [f"{key}={value}" for key, value in given.items()]
    table: dict[str, Any] = {} if env is None else {"env": env}
    if data is not None:
        table["replay"] = {"sources": {"demos": {"data": str(data)}}}
    agent = OF_SEQUENCES if DRAWN in settings else "dqn"
    walks = None if env else "SourcesWalk-v0"
    return configured(*base, *settings, env=walks, agent=agent, table=table)


def played(n_step: int = 1, form: str = "vector", settings: Sequence[str] = ()) -> Columns:
    """What an actor would have sent of `EPISODES` episodes, played one after another."""
    of_form = [] if form == "vector" else ["env.kwargs={form='parts'}"]
    config = configuration(*of_form, *settings)
    spaces = probe_environment(config.env)
    processor = NStep(n_step, config.agent.discount, 1, transition_dtype(spaces))
    envs = make_vector_environment(config.env, 1, 0)
    envs.reset()
    parts = [processor.process(envs.step(np.array([(t * t) % 3]))) for t in range(EPISODES * STEPS)]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def write_npz(path: Path, columns: Columns, **instead: NDArray[Any] | None) -> Path:
    """The file that `vedette export` writes, with its discrete actions from the first one on."""
    rows = len(columns["reward"])
    made_by = {name: np.zeros(rows, np.int64) for name in ("version", "manager", "actor")}
    whole = {**columns, "action": columns["action"] + 5, **made_by, **instead}
    np.savez(path, **{name: column for name, column in whole.items() if column is not None})
    return path


def write_minari(
    folder: Path, change: Callable[[dict[str, Any]], object] = id, form: str = "vector"
) -> Path:
    """A Minari data set of the same episodes."""
    pytest.importorskip("minari")
    from minari.data_collector import EpisodeBuffer
    from minari.dataset.minari_storage import MinariStorage

    env = Walk(form)
    folder.mkdir()
    storage = MinariStorage.new(
        folder, observation_space=env.observation_space, action_space=env.action_space
    )
    storage.update_metadata({"dataset_id": "walk-v0", "minari_version": "0.5.0"})
    buffers = []
    for number in range(EPISODES):
        steps = np.arange(STEPS)
        where = np.stack([np.full(STEPS + 1, float(number)), np.arange(STEPS + 1.0)], 1)
        last = steps == STEPS - 1
        episode: dict[str, Any] = {
            "observations": where
            if form == "vector"
            else {"where": where, "t": np.arange(STEPS + 1)},
            "actions": 5 + (steps + number * STEPS) ** 2 % 3,
            "rewards": steps + 1.0,
            "terminations": last & (number % 3 != 0),
            "truncations": last & (number % 3 == 0),
        }
        if number == 2:
            change(episode)
        buffers.append(EpisodeBuffer(id=number, **episode))
    storage.update_episodes(buffers)
    return folder


def start(config: RunConfig, out: Path, **options: bool) -> RunDirectory:
    """Do what a start does before its processes."""
    check_sources(config, out, environment_spaces(config.env), new=False)
    run = RunDirectory(out)
    run.make()
    prepared(config, run, **{"fresh": False, "new_replay": False, **options})
    return run


def rows_read(config: RunConfig, out: Path) -> Columns:
    ring = RingReader(source_directory(config, out, "demos"))
    return {name: column[: ring.inserted] for name, column in ring.columns.items()}


def assert_same_rows(found: Columns, expected: Columns) -> None:
    """The same rows, in whichever order."""

    def key(columns: Columns) -> NDArray[Any]:
        obs = columns["obs" if "obs" in columns else "obs/where"]
        flat = obs.reshape(len(obs), -1)
        return np.lexsort(flat.T)

    order, other = key(found), key(expected)
    for name, column in expected.items():
        np.testing.assert_allclose(found[name][order], column[other], err_msg=name)
    for name in ("version", "manager", "actor"):
        assert (found[name] == -1).all()


@pytest.mark.parametrize("n_step", [1, 3])
@pytest.mark.parametrize("kind", ["npz", "compressed", "minari"])
def test_rows_are_those_that_an_actor_would_have_sent(
    tmp_path: Path, kind: str, n_step: int
) -> None:
    if kind == "minari":
        data = write_minari(tmp_path / "set")
    else:
        data = write_npz(tmp_path / "set.npz", played())
    if kind == "compressed":
        with np.load(data) as whole:
            np.savez_compressed(data, **whole)
    config = configuration(data=data, **{"agent.n_step": n_step})
    run = start(config, tmp_path / "run")
    assert_same_rows(rows_read(config, run.root), played(n_step))
    record = read_record(source_directory(config, run.root, "demos"))
    assert record is not None
    assert (record.rows, record.episodes, record.return_mean) == (200, EPISODES, 15.0)


def test_rows_that_nobody_says_the_makers_of_are_read_too(tmp_path: Path) -> None:
    unknown: dict[str, Any] = dict.fromkeys(("version", "manager", "actor"))
    data = write_npz(tmp_path / "set.npz", played(), **unknown)
    config = configuration(data=data, **{"agent.n_step": 3})
    run = start(config, tmp_path / "run")
    assert_same_rows(rows_read(config, run.root), played(3))


def test_parts_of_an_observation_and_rewards_are_as_an_actor_would_have_sent_them(
    tmp_path: Path,
) -> None:
    data = write_minari(tmp_path / "set", form="parts")
    settings = "env.kwargs={form='parts'}", "env.reward_clip=2"
    config = configuration(*settings, data=data, **{"env.reward_scale": 0.5})
    run = start(config, tmp_path / "run")
    expected = played(form="parts")
    expected["reward"] = np.minimum(expected["reward"] * 0.5, 2.0)
    assert_same_rows(rows_read(config, run.root), expected)


NO_MAKERS: dict[str, Any] = dict.fromkeys(("version", "manager", "actor"))


def done(scale: float, clip: float = 0.0) -> dict[str, Any]:
    rows = EPISODES * STEPS
    return {"reward_scale": np.full(rows, scale), "reward_clip": np.full(rows, clip)}


@pytest.mark.parametrize("n_step", [1, 3])
@pytest.mark.parametrize(
    ("of_file", "stored", "said"),
    [
        (NO_MAKERS, 1.0, "taken for the environment's own: env.reward_scale=0.25 and env.reward_"),
        ({}, 0.25, "an earlier release has exported it: its rewards are taken as they are"),
        ({**NO_MAKERS, **done(0.25, 1.0)}, 0.25, ""),
        (done(0.25, 1.0), 0.25, ""),
        (done(10.0), 10.0, ""),
        ({**NO_MAKERS, "reward_scale": np.full(EPISODES * STEPS, 3, np.int64)}, 3.0, ""),
    ],
)
def test_rewards_of_a_file_become_those_that_an_actor_would_have_sent(
    tmp_path: Path, of_file: dict[str, Any], stored: float, said: str, n_step: int
) -> None:
    rows = played()
    rows["reward"] = rows["reward"] * stored
    if stored == 0.25:
        rows["reward"] = np.minimum(rows["reward"], 1.0)
    data = write_npz(tmp_path / "set.npz", rows, **of_file)
    given: dict[str, Any] = {"agent.n_step": n_step, "env.reward_scale": 0.25}
    config = configuration("env.reward_clip=1", data=data, **given)
    checked = check_sources(config, tmp_path, environment_spaces(config.env), new=False)
    assert len(checked.lines) == 1 + bool(said)
    assert said in checked.lines[-1]
    run = start(config, tmp_path / "run")
    expected = played(n_step, settings=["env.reward_scale=0.25", "env.reward_clip=1"])
    assert_same_rows(rows_read(config, run.root), expected)
    record = read_record(source_directory(config, run.root, "demos"))
    assert record is not None
    assert record.return_mean == (None if stored == 0.25 else 15.0)


@pytest.mark.parametrize(
    ("of_file", "said"),
    [
        (done(0.5, 1.0), "env.reward_scale=0.5 env.reward_clip=1, and what was clipped is lost"),
        (done(0.0), "'reward_scale' has a 0, or 'reward_clip' a number below 0"),
        (done(1.0, -1.0), "'reward_scale' has a 0, or 'reward_clip' a number below 0"),
        (done(np.nan), "its column 'reward_scale' is float64 (200,), or not finite"),
        ({"reward_scale": np.ones((200, 1))}, "its column 'reward_scale' is float64 (200, 1)"),
    ],
)
def test_rewards_that_cannot_become_an_actors_are_refused(
    tmp_path: Path, of_file: dict[str, Any], said: str
) -> None:
    data = write_npz(tmp_path / "set.npz", played(), **of_file)
    assert said in refusal(configuration(data=data), tmp_path / "run")


@pytest.mark.parametrize("n_step", [1, 3])
def test_steps_in_which_a_person_acted_are_read_as_such(tmp_path: Path, n_step: int) -> None:
    def mark(episode: dict[str, Any]) -> None:  # its steps 1 and 4; the first is the reset's
        episode["infos"] = {"intervened": np.array([False, False, True, False, False, True])}

    data = write_minari(tmp_path / "set", mark)
    settings = "replay.sources.interventions.share=0.1", "replay.sources.interventions.capacity=9"
    config = configuration(*settings, data=data, **{"agent.n_step": n_step})
    start(config, tmp_path / "run")
    found = rows_read(config, tmp_path / "run")
    marked = found["obs"][found["intervened"]]
    assert sorted(marked.tolist()) == [[2.0, 1.0], [2.0, 4.0]]


def test_rows_of_recorded_episodes_say_which_of_them_follow_one_another(tmp_path: Path) -> None:
    data = write_minari(tmp_path / "set")
    config = configuration(DRAWN, data=data, **{"agent.n_step": 3})
    start(config, tmp_path / "run")
    found = rows_read(config, tmp_path / "run")
    assert_same_rows(found, played())
    assert_rows_follow(found)
    assert (found["epoch"] == -1).all()


def assert_rows_follow(rows: Columns) -> None:
    """Rows of `Walk` that say that they follow one another do, and the others do not."""
    places = {
        (env, t): row for row, (env, t) in enumerate(zip(rows["env"], rows["t"], strict=True))
    }
    assert len(places) == len(rows["t"])
    np.testing.assert_array_equal(rows["begins"], rows["obs"][:, 1] == 0)
    for (env, t), row in places.items():
        after = places.get((env, t + 1))
        ends = bool(rows["terminated"][row] or rows["truncated"][row])
        assert ends or after is not None
        assert after is None or bool(rows["begins"][after]) == ends
        if after is not None and not ends:
            np.testing.assert_array_equal(rows["obs"][after], rows["next_obs"][row])


def test_rows_that_say_what_follows_are_read_as_they_are_and_others_refused(
    tmp_path: Path,
) -> None:
    one = played()
    ended = one["terminated"] | one["truncated"]
    keys = {
        "env": np.full(len(ended), 3, np.uint32),
        "t": np.arange(len(ended)) + 2**61,
        "begins": np.concatenate([[True], ended[:-1]]),
    }
    config = configuration(DRAWN, data=write_npz(tmp_path / "set.npz", {**one, **keys}))
    start(config, tmp_path / "run")
    found = rows_read(config, tmp_path / "run")
    assert_rows_follow(found)
    np.testing.assert_array_equal(found["t"], keys["t"])
    for missing in ({"t": None}, dict.fromkeys(keys)):
        data = write_npz(tmp_path / "without.npz", {**one, **keys}, **missing)
        why = refusal(configuration(DRAWN, data=data), tmp_path / "other")
        assert "it does not say which of its rows follow one another; name a run" in why
    start(configuration(data=tmp_path / "set.npz"), tmp_path / "plain")
    plain = rows_read(configuration(data=tmp_path / "set.npz"), tmp_path / "plain")
    assert not {"env", "t", "begins", "epoch"} & plain.keys()


def test_frames_are_stacked_as_the_environments_wrapper_does(tmp_path: Path) -> None:
    config = configuration("env.frame_stack=3", data=write_minari(tmp_path / "set"))
    run = start(config, tmp_path / "run")
    found = rows_read(config, run.root)
    envs = make_vector_environment(config.env, 1, 0)
    obs = envs.reset()["obs"].copy()
    for _ in range(EPISODES * STEPS):
        row = np.flatnonzero((found["obs"] == obs[0]).all(axis=(1, 2)))
        assert len(row) == 1
        step = envs.step(np.array([0]))
        np.testing.assert_array_equal(found["next_obs"][row[0]], step.next_obs["obs"][0])
        obs = step.init_obs["obs"].copy()


DECLARED = {
    "id": "no_such_module:Env",
    "observation": {"space": "box", "shape": [2], "dtype": "float64"},
    "action": {"space": "discrete", "n": 3, "start": 5},
}


@pytest.mark.parametrize("stack", [0, 3])
@pytest.mark.parametrize("kind", ["npz", "minari"])
def test_a_source_is_read_by_declared_spaces_without_the_environment(
    tmp_path: Path, kind: str, stack: int
) -> None:
    settings = [f"env.frame_stack={stack}"]
    if kind == "npz":
        data = write_npz(tmp_path / "set.npz", played(settings=settings))
    else:
        data = write_minari(tmp_path / "set")
    shape = [stack, 2] if stack else [2]
    env = {**DECLARED, "observation": {**DECLARED["observation"], "shape": shape}}
    config = configuration(*settings, data=data, env=env)
    start(config, tmp_path / "run")
    assert_same_rows(rows_read(config, tmp_path / "run"), played(settings=settings))


def test_declared_spaces_that_a_data_set_has_not_are_refused(tmp_path: Path) -> None:
    env = {**DECLARED, "observation": {**DECLARED["observation"], "shape": [3]}}
    for data, forms in (
        (
            write_minari(tmp_path / "set"),
            "float32 (2,), and the environment's are obs float32 (3,)",
        ),
        (
            write_npz(tmp_path / "set.npz", played()),
            "float32 (N, 2), and the environment's is float32 (N, 3)",
        ),
    ):
        assert forms in refusal(configuration(data=data, env=env), tmp_path / "run")


def other_run(root: Path, config: RunConfig, columns: Columns) -> Path:
    """Another run's directory with these rows."""
    run = new_run(root, config)
    row = ring_dtype(transition_dtype(probe_environment(config.env)))
    ring = RingWriter.open(run.replay, row, 1000, run_id=run.ensure_id())
    ring.append({**columns, "version": 3, "manager": 1, "actor": 2}, len(columns["reward"]))
    ring.commit()
    ring.close()
    return root


@pytest.mark.parametrize(("theirs", "ours"), [(1, 1), (3, 3), (1, 3)])
def test_another_runs_rows_are_read_whether_it_runs_or_not(
    tmp_path: Path, theirs: int, ours: int
) -> None:
    settings = {"agent.n_step": theirs}
    other = other_run(tmp_path / "other", configuration(**settings), played(theirs))
    config = configuration(data=other, **{"agent.n_step": ours})
    before = {path: path.stat().st_mtime_ns for path in sorted(other.rglob("*"))}
    row = RingReader(other / "replay").manifest
    with_writer = RingWriter.open(  # it runs: nobody keeps its writer away
        other / "replay", row.row_dtype, 1000, run_id=row.run_id
    )
    run = start(config, tmp_path / "run")
    with_writer.close()
    assert_same_rows(rows_read(config, run.root), played(ours))
    changed = [p for p, at in before.items() if p.stat().st_mtime_ns != at and p.is_file()]
    assert {p.name for p in changed} <= WRITERS


def test_a_run_with_other_settings_is_refused(tmp_path: Path) -> None:
    other = other_run(tmp_path / "other", configuration(), played())
    for data in (other, other / "replay"):
        config = configuration(data=data, **{"env.reward_scale": 0.5})
        with pytest.raises(SettingError, match=r"made with env.reward_scale=1.0, not 0.5"):
            start(config, tmp_path / "run")
    other = other_run(tmp_path / "n3", configuration(**{"agent.n_step": 3}), played(3))
    with pytest.raises(SettingError, match="its transitions span several steps"):
        start(configuration(data=other), tmp_path / "run")


# Broken in each way


def refusal(config: RunConfig, out: Path) -> str:
    with pytest.raises(SettingError) as found:
        start(config, out)
    message = str(found.value)
    assert message.startswith("replay.sources.demos.data: "), message
    assert "\n" not in message
    assert found.value.fix
    assert not (out / "run.json").exists()
    assert not (out / "sources.new").exists()
    assert not (out / "replay").exists()
    return message


def truncated(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2)


def garbage(path: Path) -> None:
    path.write_bytes(os.urandom(5000))


@pytest.mark.parametrize("harm", [truncated, garbage, Path.unlink])
@pytest.mark.parametrize("kind", ["npz", "minari"])
def test_a_torn_data_set_is_refused(
    tmp_path: Path, kind: str, harm: Callable[[Path], None]
) -> None:
    if kind == "npz":
        data = file = write_npz(tmp_path / "set.npz", played())
    else:
        data = write_minari(tmp_path / "set")
        file = data / "main_data.hdf5"
    harm(file)
    refusal(configuration(data=data), tmp_path / "run")


@pytest.mark.parametrize("size", [0, 5, 200])
def test_a_file_that_is_no_npz_or_only_its_beginning_is_refused_by_that(
    tmp_path: Path, size: int
) -> None:
    data = write_npz(tmp_path / "set.npz", played())
    data.write_bytes(data.read_bytes()[:size])
    said = refusal(configuration(data=data), tmp_path / "run")
    assert "it is neither npz nor HDF5, or its end is missing" in said


@pytest.mark.parametrize("without", ["", "n_steps"])
def test_an_empty_data_set_is_refused_before_anything_is_made(tmp_path: Path, without: str) -> None:
    columns = {name: c[:0] for name, c in played().items() if name != without}
    data = write_npz(tmp_path / "set.npz", columns)
    assert "it holds no samples" in refusal(configuration(data=data), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_damaged_member_of_an_npz_is_refused(tmp_path: Path) -> None:
    data = write_npz(tmp_path / "set.npz", played())
    with zipfile.ZipFile(data, "w") as file:
        file.writestr("reward.npy", b"no array")
    refusal(configuration(data=data), tmp_path / "run")


def test_nothing_is_unpickled(tmp_path: Path) -> None:
    data = tmp_path / "set.npz"
    np.savez(data, reward=np.array([{"a": 1}], dtype=object))
    assert "Python objects" in refusal(configuration(data=data), tmp_path / "run")


ROWS = EPISODES * STEPS


@pytest.mark.parametrize(
    ("instead", "said"),
    [
        ({"obs": None}, "no column 'obs'"),
        (
            {"obs": None, "truncated": None, "reward": np.zeros((ROWS, 1), np.float32)},
            "it has no columns 'obs', 'truncated' (it has 'action', 'reward', 'next_obs', 't",
        ),
        (
            {"obs": None, "truncated": None, "reward": np.zeros((ROWS, 1), np.float32)},
            ", its column 'reward' is float32 (N, 1), and it must be float32 (N,); docs/how",
        ),
        (
            {"obs": np.zeros((ROWS, 3))},
            "its column 'obs' is float64 (N, 3), and the environment's is float32 (N, 2)",
        ),
        ({"obs": np.zeros((ROWS, 2), "S4")}, "column 'obs'"),
        ({"action": np.full(ROWS, "5")}, "is <U1 (N,), and the environment's is int64"),
        (
            {"action": np.full(ROWS, 5.5)},
            "sample 0: column 'action' has 5.5, which is no int64; repair it",
        ),
        ({"terminated": np.full(ROWS, 2)}, "sample 0: column 'terminated' has 2, which is no bool"),
        ({"n_steps": np.full(ROWS, 257)}, "column 'n_steps' has 257, which is no uint8; repair it"),
        (
            {"reward": np.zeros((ROWS, 1), np.float32)},
            "its column 'reward' is float32 (N, 1), and it must be float32 (N,); store it so (docs",
        ),
        (
            {"notes": np.zeros(3)},
            "its column 'notes' has 3 rows, and 'reward' has 200; leave 'notes' out of the file",
        ),
        (
            {"notes": np.array([{}] * ROWS, dtype=object)},
            "its column 'notes' holds Python objects, which are never read; leave 'notes' out",
        ),
        ({"action": np.full(ROWS, 9)}, "column 'action': 4 is above 2"),
        ({"action": np.full(ROWS, 0)}, "column 'action': -5 is below 0"),
        ({"reward": np.full(ROWS, np.nan, np.float32)}, "'reward' has a value that is not finite"),
        ({"obs": np.full((ROWS, 2), np.inf, np.float32)}, "'obs' has a value that is not finite"),
        ({"reward": np.zeros(3)}, "its column 'obs' has 200 rows, and 'reward' has 3"),
        ({"reward": None}, "it has no column 'reward' (it has "),
        (
            {"reward": np.where(np.arange(ROWS) == 137, np.nan, 0.0).astype(np.float32)},
            "sample 137: column 'reward' has a value that is not finite",
        ),
        ({"n_steps": np.zeros(ROWS, np.uint8)}, "column 'n_steps': 0 is below 1"),
    ],
)
def test_rows_of_another_form_or_with_values_that_no_learner_takes_are_refused(
    tmp_path: Path, instead: dict[str, Any], said: str
) -> None:
    data = write_npz(tmp_path / "set.npz", played(), **instead)
    assert said in refusal(configuration(data=data), tmp_path / "run")


@pytest.mark.parametrize("n_step", [1, 3])
def test_casts_that_change_no_number_are_taken(tmp_path: Path, n_step: int) -> None:
    columns = played()
    data = write_npz(
        tmp_path / "set.npz",
        columns,
        n_steps=None,  # rows of one step each
        obs=columns["obs"].astype(np.float64),
        action=(columns["action"] + 5).astype(np.float32),
        terminated=columns["terminated"].astype(np.float32),
        truncated=columns["truncated"].astype(np.int64),
    )
    config = configuration(data=data, **{"agent.n_step": n_step})
    run = start(config, tmp_path / "run")
    assert_same_rows(rows_read(config, run.root), played(n_step))


def test_columns_of_other_names_are_read_by_rename(tmp_path: Path) -> None:
    columns = {
        {"obs": "states", "reward": "r"}.get(name, name): column
        for name, column in played().items()
    }
    np.savez(tmp_path / "set.npz", **{**columns, "action": columns["action"] + 5})
    rename = 'replay.sources.demos.rename={"states"="obs", "r"="reward"}'
    config = configuration(rename, data=tmp_path / "set.npz")
    run = start(config, tmp_path / "run")
    assert_same_rows(rows_read(config, run.root), played())
    with pytest.raises(
        SettingError, match=r"has read it with rename=\{.*'r': 'reward'.*, not \{\}"
    ):
        start(configuration(data=tmp_path / "set.npz"), run.root)


@pytest.mark.parametrize(
    ("rename", "said"),
    [
        ({"states": "obs"}, "rename names 'states', which it does not have; it has action, "),
        ({"obs": "what"}, "rename makes 'obs' 'what', and a sample has no such column; the col"),
        ({"obs": "reward", "action": "reward"}, "makes both 'obs' and 'action' 'reward'; rename"),
    ],
)
def test_a_rename_that_cannot_be_is_refused(
    tmp_path: Path, rename: dict[str, str], said: str
) -> None:
    data = write_npz(tmp_path / "set.npz", played())
    sources = {"demos": {"data": str(data), "rename": rename}}
    config = configured(
        *("replay.capacity=1000", "learner.warmup_period=10", "agent.n_step=1"),
        env="SourcesWalk-v0",
        agent="dqn",
        table={"replay": {"sources": sources}},
    )
    assert said in refusal(config, tmp_path / "run")


def test_parts_of_a_minari_data_set_and_of_a_run_are_renamed(tmp_path: Path) -> None:
    env = {
        "id": "no_such_module:Env",
        "observation": {
            "space": "dict",
            "spaces": {
                "place": {"space": "box", "shape": [2], "dtype": "float64"},
                "t": {"space": "discrete", "n": 9},
            },
        },
        "action": DECLARED["action"],
    }
    rename = 'replay.sources.demos.rename={"where"="place"}'
    config = configuration(rename, data=write_minari(tmp_path / "set", form="parts"), env=env)
    start(config, tmp_path / "run")
    expected = played(form="parts")
    found = rows_read(config, tmp_path / "run")
    assert sorted(found["obs/place"].tolist()) == sorted(expected["obs/where"].tolist())


def test_actions_outside_the_bounds_and_steps_that_are_left_out_are_said(tmp_path: Path) -> None:
    steps = np.arange(8)
    np.savez(
        tmp_path / "set.npz",
        observations=np.zeros((8, 2), np.float32),
        actions=np.where(steps < 2, -3.0, 1.0)[:, None],
        rewards=np.ones(8),
        terminals=steps == 3,
        timeouts=steps == 7,
    )
    env = {**DECLARED, "action": {"space": "box", "shape": [1], "low": -1.0, "high": 1.0}}
    sources = {"demos": {"data": str(tmp_path / "set.npz")}}
    table = {"env": env, "replay": {"sources": sources}}
    config = configured("agent.n_step=1", "replay.capacity=1000", table=table, agent="sac")
    checked = check_sources(config, tmp_path, environment_spaces(config.env), new=False)
    assert checked.lines[1:] == (
        "source demos: 28.6 % of its actions are outside the action space's bounds, one as far as "
        "-3: they are learned from as they are",
        "source demos: steps left out, behind an episode's end or without a recorded successor: 1",
    )


def test_a_changed_byte_in_an_npz_is_refused(tmp_path: Path) -> None:
    data = write_npz(tmp_path / "set.npz", played())
    with zipfile.ZipFile(data) as file:
        begin = file.getinfo("reward.npy").header_offset
        place = begin + file.getinfo("reward.npy").file_size
    content = bytearray(data.read_bytes())
    content[place] ^= 1
    data.write_bytes(content)
    assert "CRC" in refusal(configuration(data=data), tmp_path / "run")


def without_some_ends(out: Path) -> Path:
    """A file of the user's own, of whose episodes three have no end."""
    rows = played()
    unsaid: dict[str, Any] = {name: rows[name].copy() for name in ("terminated", "truncated")}
    for flags in unsaid.values():
        flags[4:15] = False
    return write_npz(out / "set.npz", rows, **NO_MAKERS, **unsaid)


def in_another_order(out: Path) -> Path:
    """A file of the user's own, whose rows were shuffled."""
    order = np.random.default_rng(0).permutation(EPISODES * STEPS)
    mixed = {name: column[order] for name, column in played().items()}
    return write_npz(out / "mixed.npz", mixed, **NO_MAKERS)


def test_borders_that_a_file_of_ones_own_does_not_say_are_refused(tmp_path: Path) -> None:
    several = {"agent.n_step": 3}
    data = without_some_ends(tmp_path)
    why = refusal(configuration(data=data, **several), tmp_path / "run")
    assert "row 4 is neither terminated nor truncated, and the following one did not" in why
    assert "(so in 3 rows); set truncated where an episode is cut" in why
    data = in_another_order(tmp_path)
    assert "store its rows one after the other" in refusal(
        configuration(data=data, **several), tmp_path / "run"
    )


@pytest.mark.parametrize("write", [without_some_ends, in_another_order])
def test_single_steps_are_taken_in_any_order(tmp_path: Path, write: Callable[[Path], Path]) -> None:
    config = configuration(data=write(tmp_path))
    found = check_sources(config, tmp_path / "run", environment_spaces(config.env), new=False)
    (said,) = (line for line in found.lines if "end no episode" in line)
    assert said.endswith("each is taken as a step by itself, and no return is known")
    run = start(config, tmp_path / "run")
    assert len(rows_read(config, run.root)["reward"]) == EPISODES * STEPS
    record = read_record(source_directory(config, run.root, "demos"))
    assert record is not None
    assert (record.episodes, record.return_mean) == (None, None)


@pytest.mark.parametrize("n_step", [1, 3])
def test_a_file_may_end_within_an_episode(tmp_path: Path, n_step: int) -> None:
    rows = {name: column[:-2] for name, column in played().items()}
    data = write_npz(tmp_path / "set.npz", rows, **NO_MAKERS)
    run = start(config := configuration(data=data, **{"agent.n_step": n_step}), tmp_path / "run")
    assert len(rows_read(config, run.root)["reward"]) == EPISODES * STEPS - 2
    record = read_record(source_directory(config, run.root, "demos"))
    assert record is not None
    assert (record.episodes, record.return_mean) == (EPISODES, 15.0)


@pytest.mark.parametrize("n_step", [1, 3])
def test_an_npz_of_several_steps_is_refused(tmp_path: Path, n_step: int) -> None:
    data = write_npz(tmp_path / "set.npz", played(3))
    config = configuration(data=data, **{"agent.n_step": n_step})
    assert "span several steps" in refusal(config, tmp_path / "run")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda e: e.update(rewards=e["rewards"] * np.nan), "'reward' has a value that is not"),
        (
            lambda e: e["terminations"].__setitem__(1, True),
            "step 1 of 5 is terminated, and it goes",
        ),
        (lambda e: e["truncations"].__setitem__(0, True), "step 0 of 5 is truncated, and it goes"),
        (lambda e: e.update(observations=e["observations"][:-1]), "'obs' has shape (5, 2)"),
        (lambda e: e.update(actions=e["actions"] * 100), "column 'action'"),
        (lambda e: e.update(actions=e["actions"][:-1]), "'action' has shape (4,)"),
    ],
)
def test_a_broken_episode_is_refused_by_its_number(
    tmp_path: Path, change: Callable[[dict[str, Any]], object], said: str
) -> None:
    data = write_minari(tmp_path / "set", change)
    assert said in refusal(configuration(data=data), tmp_path / "run")


def test_a_foreign_data_set_is_refused(tmp_path: Path) -> None:
    data = write_minari(tmp_path / "set", form="parts")
    said = refusal(configuration(data=data), tmp_path / "run")
    assert "its observations are obs/t int64 (), obs/where float32 (2,)" in said
    other = configuration("env.kwargs={form='parts'}", data=write_minari(tmp_path / "other"))
    assert "its observations are obs float32 (2,)" in refusal(other, tmp_path / "run")


def test_a_name_that_is_nothing_is_refused(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    for data, said in (
        (tmp_path / "none.npz", "there is no such file or folder; name one that is there"),
        (tmp_path, "is no data set of a kind that is read; name a Minari data set's folder, a"),
        ("minari:no/such-v0", "no such data set here; name one that `minari list local` has"),
    ):
        assert said in refusal(configuration(data=data), tmp_path / "run")


# Later starts


def test_a_restart_does_not_read_the_data_again(tmp_path: Path) -> None:
    data = write_npz(tmp_path / "set.npz", played())
    config = configuration(data=data)
    run = start(config, tmp_path / "run")
    ring = source_directory(config, run.root, "demos") / "ring.json"
    before = ring.read_text()
    data.unlink()  # it is not even there any more
    start(config, run.root)
    assert ring.read_text() == before


def test_data_that_were_only_touched_or_moved_are_the_same(tmp_path: Path) -> None:
    data = write_npz(tmp_path / "set.npz", played())
    run = start(configuration(data=data), tmp_path / "run")
    os.utime(data, (1, 1))
    start(configuration(data=data), run.root)
    moved = Path(shutil.move(data, tmp_path / "moved.npz"))
    start(configuration(data=moved), run.root)


def test_a_changed_data_set_is_refused_with_the_fix(tmp_path: Path) -> None:
    data = write_npz(tmp_path / "set.npz", played())
    config = configuration(data=data)
    run = start(config, tmp_path / "run")
    columns = played()
    columns["reward"] += 1.0
    write_npz(data, columns)
    with pytest.raises(SettingError, match=r"is not what the run in .* has read") as found:
        start(config, run.root)
    assert "--new-replay" in found.value.fix
    check_sources(config, run.root, probe_environment(config.env), new=True)
    prepared(config, run, new_replay=True)
    assert_same_rows(rows_read(config, run.root), columns)


def test_a_source_that_is_added_later_is_read_then(tmp_path: Path) -> None:
    run = start(configuration(), tmp_path / "run")
    config = configuration(data=write_npz(tmp_path / "set.npz", played()))
    start(config, run.root)
    assert len(rows_read(config, run.root)["reward"]) == ROWS


def test_a_source_that_is_left_out_later_is_said_to_remain_on_the_disk(tmp_path: Path) -> None:
    config = configuration(data=write_npz(tmp_path / "set.npz", played()))
    run = start(config, tmp_path / "run")
    spaces = environment_spaces(config.env)
    place = source_directory(config, run.root, "demos")
    (line,) = check_sources(configuration(), run.root, spaces, new=False).lines
    assert line.startswith("source demos: no longer drawn from, as replay.sources does not name it")
    assert line.endswith(f"its rows remain in {place}")
    start(configuration(), run.root)
    assert len(rows_read(config, run.root)["reward"]) == ROWS
    assert check_sources(configuration(), run.root, spaces, new=True).lines == ()


def test_a_bad_data_set_leaves_a_run_that_was_to_be_erased(tmp_path: Path) -> None:
    run = start(configuration(), tmp_path / "run")
    before = run.identity().run_id
    data = write_npz(tmp_path / "set.npz", played(), reward=np.full(ROWS, np.nan, np.float32))
    with pytest.raises(SettingError):
        prepared(configuration(data=data), run, fresh=True)
    assert run.identity().run_id == before


def test_a_killed_reading_leaves_nothing_that_the_next_start_takes(tmp_path: Path) -> None:
    config = configuration(data=write_npz(tmp_path / "set.npz", played()))
    run = RunDirectory(tmp_path / "run")
    run.make()
    spaces = environment_spaces(config.env)
    stage_sources(config, run, spaces, ["demos"])  # and killed before they were in their place
    start(config, run.root)
    assert len(rows_read(config, run.root)["reward"]) == ROWS
    assert not (run.root / "sources.new").exists()


@pytest.mark.parametrize("lost", ["001-action.bin", "source.json"])
def test_a_torn_source_is_named_with_the_fix(tmp_path: Path, lost: str) -> None:
    config = configuration(data=write_npz(tmp_path / "set.npz", played()))
    run = start(config, tmp_path / "run")
    path = source_directory(config, run.root, "demos") / lost
    path.write_text("{")
    with pytest.raises(SettingError, match=r"delete .*demos, and its data set is read again"):
        start(config, run.root)


def test_a_damaged_record_is_an_error_of_the_replay(tmp_path: Path) -> None:
    (tmp_path / "source.json").write_text(json.dumps({"unknown": 1}))
    with pytest.raises(ReplayFormatError, match="is damaged"):
        read_record(tmp_path)
