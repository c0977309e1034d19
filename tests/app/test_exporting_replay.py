"""`vedette export --what replay`: plain rows and whole episodes, however the replay stores them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from configurations import configured

from vedette import exporting
from vedette.cli.app import main
from vedette_protocol.schema import Schema
from vedette_rl.core import Columns, empty_columns
from vedette_rl.envs.config import EnvConfig
from vedette_rl.envs.make import make_env, make_vector_environment, probe_environment
from vedette_rl.envs.spaces import transition_dtype
from vedette_rl.replay.frame_ring import open_writer
from vedette_rl.replay.ring import RingWriter
from vedette_rl.steps import NStep
from vedette_services.actors.batching import TransitionBatcher, make_transition_pipeline
from vedette_services.config import RunConfig, write_config
from vedette_services.run.replay_layout import replay_layout

ENVS = 3
STEPS = 50


class Told(gym.Env[Any, Any]):
    """Shows (its own number, episode, step), as a picture or in parts; episodes have 7 steps."""

    made = 0

    def __init__(self, form: str = "picture") -> None:
        picture = gym.spaces.Box(0, 255, (3, 4), np.uint8)
        self.observation_space = picture
        if form == "parts":
            where = gym.spaces.Tuple([gym.spaces.Discrete(256), picture])
            self.observation_space = gym.spaces.Dict({"where": where, "t": gym.spaces.Discrete(9)})
        if form.startswith("keys "):
            parts = dict.fromkeys(form.split()[1:], picture)
            self.observation_space = gym.spaces.Dict(parts)
        self.action_space = gym.spaces.Discrete(3, start=5)
        self._form = form
        self._number = Told.made
        self._episode = -1
        self._t = 0
        Told.made += 1

    def _obs(self) -> Any:
        seen = np.array([self._number, self._episode, self._t], np.uint8)
        picture = np.repeat(seen[:, None], 4, 1)
        if self._form == "picture":
            return picture
        if self._form != "parts":
            return dict.fromkeys(self._form.split()[1:], picture)
        return {"where": (self._episode, picture), "t": self._t}

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._episode = self._episode + 1
        self._t = 0
        return self._obs(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert 5 <= action < 8
        self._t += 1
        return self._obs(), float(self._t), self._t == 7, False, {}


gym.register("ExportTold-v0", entry_point=Told)


def configuration(*settings: str) -> RunConfig:
    always = ["replay.capacity=100", "learner.warmup_period=50", "actors.n_buffer=10"]
    always += [f"actors.envs_per_actor={ENVS}", "agent.n_step=1"]
    return configured(*always, *settings, env="ExportTold-v0", agent="dqn")


class RingSlot:
    """The slot of a `TransitionBatcher` whose batches go straight into the ring."""

    def __init__(self, ring: RingWriter, schema: Schema) -> None:
        self._ring = ring
        self._sharing = schema.sharing
        self.columns = empty_columns(schema.row_dtype, 10)
        if schema.sharing is not None:
            entries = schema.entries_max(10, 1 << 20)
            for entry in schema.sharing.columns:
                self.columns[entry.name] = np.empty((entries, *entry.shape), entry.numpy_dtype)

    def publish(
        self, rows: int, epoch: int, version: int, entries: int = 0, env_steps: int = 0
    ) -> None:
        shared = self._sharing.names if self._sharing else ()
        batch: dict[str, Any] = {
            name: column[: entries if name in shared else rows]
            for name, column in self.columns.items()
        }
        self._ring.append({**batch, "version": version, "manager": 0, "actor": 4}, rows)
        self._ring.commit()


def played(root: Path, config: RunConfig) -> Columns:
    """A run's directory whose replay an actor filled; the live rows, made without any storage."""
    Told.made = 0
    root.mkdir()
    write_config(config, root / "config.toml")
    layout = replay_layout(config, probe_environment(config.env))
    spaces = probe_environment(config.env)
    ring = open_writer(
        root / "replay",
        layout.stored,
        config.replay.capacity,
        run_id="r",
        guard=layout.guard,
        shared=layout.shared,
    )
    row = make_vector_environment(config.env, ENVS, 0)
    processor, writer = make_transition_pipeline(
        layout.schema,
        spaces,
        None,  # type: ignore[arg-type]  # no policy acts
        config.agent,
        config.actors,
    )
    batching = TransitionBatcher(RingSlot(ring, layout.schema), 10, lambda: True, writer)
    plain = NStep(config.agent.n_step, config.agent.discount, ENVS, transition_dtype(spaces))
    row.reset()
    expected = []
    rng = np.random.default_rng(0)
    for _ in range(STEPS):
        step = row.step(rng.integers(0, 3, ENVS))
        batching.push(processor.process(step), (1, 7))
        expected.append(plain.process(step))
    batching.flush()
    ring.close()
    row.close()
    columns = {name: np.concatenate([part[name] for part in expected]) for name in expected[0]}
    return {name: column[-100:] for name, column in columns.items()}


def exported(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str]:
    with pytest.raises(SystemExit) as left:
        main(["export", *map(str, arguments)])
    said = capsys.readouterr()
    return int(left.value.code or 0), said.out + said.err


@pytest.mark.parametrize(
    "settings",
    [
        (),
        ("env.kwargs.form=parts",),
        ("env.frame_stack=3",),
        ("env.frame_stack=4", "agent.n_step=3"),
        ("env.frame_stack=3", "replay.frame_storage=plain"),
    ],
)
def test_an_export_has_plain_rows_whatever_the_storage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], settings: tuple[str, ...]
) -> None:
    config = configuration(*settings)
    out = tmp_path / "replay.npz"
    expected = played(tmp_path / "run", config)
    by_frames = bool(config.env.frame_stack) and config.replay.frame_storage == "auto"
    assert bool(list((tmp_path / "run" / "replay").glob("*-frames.bin"))) == by_frames
    status, said = exported(
        capsys, tmp_path / "run", "--what", "replay", "--format", "npz", "--out", out
    )
    assert (status, said) == (0, f"100 rows in {out}\n")
    with np.load(out) as file:
        found = dict(file)
    expected["action"] = expected["action"] + 5  # as the environment names them
    said_of_rewards = {"reward_scale": 1.0, "reward_clip": 0.0}
    assert list(found) == [*expected, "version", "manager", "actor", *said_of_rewards]
    for name, value in said_of_rewards.items():
        np.testing.assert_array_equal(found[name], np.full(100, value))
    for name, column in expected.items():
        assert found[name].dtype == column.dtype
        np.testing.assert_array_equal(found[name], column, err_msg=name)
    assert set(found["version"]) == {7}
    assert set(found["actor"]) == {4}


def test_a_minari_dataset_of_declared_spaces_needs_no_environment(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """So what `vedette.Actor` plays on a robot is recorded: by the replay that it feeds."""
    import minari

    config = configuration()
    played(tmp_path / "run", config)
    box = make_env(config.env).observation_space
    assert isinstance(box, gym.spaces.Box)
    env = {
        "id": "no_such_module:Robot",
        "observation": {"space": "box", "shape": box.shape, "dtype": str(box.dtype)},
        "action": {"space": "discrete", "n": 3, "start": 5},
    }
    declared = config.model_copy(update={"env": EnvConfig.model_validate(env)})
    write_config(declared, tmp_path / "run" / "config.toml")
    how = (tmp_path / "run", "--what", "replay", "--format", "minari", "--out", tmp_path / "told")
    status, said = exported(capsys, *how)
    assert status == 0, said
    dataset = minari.MinariDataset(tmp_path / "told")
    assert dataset.total_steps == 100
    assert {int(a) for episode in dataset for a in episode.actions} <= {5, 6, 7}


@pytest.mark.parametrize("settings", [(), ("env.frame_stack=3",), ("env.kwargs.form=parts",)])
def test_a_minari_dataset_has_the_episodes(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    settings: tuple[str, ...],
) -> None:
    import minari

    monkeypatch.chdir(tmp_path)
    out = Path("told")  # as a user types it
    played(tmp_path / "run", configuration(*settings))
    how = (tmp_path / "run", "--what", "replay", "--format", "minari", "--out", out)
    status, said = exported(capsys, *how)
    assert status == 0, said
    dataset = minari.MinariDataset(out.absolute())
    assert dataset.total_steps == 100
    assert said == f"{dataset.total_episodes} episodes in {out}\n"
    parts = "env.kwargs.form=parts" in settings
    whole = 0
    for episode in dataset:
        pictures = episode.observations["where"][1] if parts else episode.observations
        if "env.frame_stack=3" in settings:
            assert (pictures[1:, :-1] == pictures[:-1, 1:]).all()
            pictures = pictures[:, -1]
        number, index, t = pictures[:, :, 0].T.astype(int)
        assert len(pictures) == len(episode.actions) + 1 == len(episode.rewards) + 1
        assert (np.diff(t) == 1).all()
        assert len(set(number)) == len(set(index)) == 1
        np.testing.assert_array_equal(episode.rewards, t[1:])
        np.testing.assert_array_equal(episode.terminations, t[1:] == 7)
        assert not episode.truncations[:-1].any()
        assert episode.truncations[-1] != episode.terminations[-1]
        assert set(episode.actions) <= {5, 6, 7}
        if parts:
            np.testing.assert_array_equal(episode.observations["t"], t)
        whole += len(episode.actions) == 7
    assert whole >= 9
    metadata = dataset.storage.metadata
    assert (metadata["dataset_id"], metadata["algorithm_name"]) == ("told-v0", "dqn")
    about = metadata["vedette"]
    assert (about["agent"], about["model_versions"], about["seed"]) == ("dqn", [7, 7], 0)
    assert about["config"]["env"]["id"] == "ExportTold-v0"
    assert exported(capsys, *how) == (
        2,
        f"vedette: --out {out}: it is there already; a Minari dataset is a new folder\n",
    )


@pytest.mark.parametrize("clip", [0, 2])
def test_rewards_of_a_minari_dataset_are_the_environments_as_far_as_they_are_known(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], clip: int
) -> None:
    import minari

    played(tmp_path / "run", configuration("env.reward_scale=0.5", f"env.reward_clip={clip}"))
    out = tmp_path / "told"
    how = (tmp_path / "run", "--what", "replay", "--format", "minari", "--out", out)
    status, said = exported(capsys, *how)
    assert status == 0, said
    dataset = minari.MinariDataset(out)
    clipped = 0
    for episode in dataset:
        t = episode.observations[1:, 2, 0].astype(float)
        np.testing.assert_array_equal(episode.rewards, np.minimum(t, 4.0) if clip else t)
        clipped += int((t >= 4.0).sum())
    known = dataset.storage.metadata["vedette"].get("rewards_clipped")
    assert known == ({"to": 4.0, "rows": clipped} if clip else None)
    line = f"the environment's up to ±4, to which env.reward_clip has clipped {clipped} of 100\n"
    assert (line in said) == bool(clip)


@pytest.mark.parametrize(
    ("processor", "status", "line"),
    [
        ("her", 2, "are no steps of an episode; export it as npz, or train with n_step\n"),
        ("own_steps:Signed", 0, "told as actors.step_processor=own_steps:Signed made them\n"),
    ],
)
def test_rows_that_are_no_steps_are_not_called_episodes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], processor: str, status: int, line: str
) -> None:
    config = configuration()
    played(tmp_path / "run", config)
    actors = config.actors.model_copy(update={"step_processor": processor})
    write_config(config.model_copy(update={"actors": actors}), tmp_path / "run" / "config.toml")
    how = (tmp_path / "run", "--what", "replay", "--format", "minari", "--out", tmp_path / "told")
    found, said = exported(capsys, *how)
    assert found == status
    assert line in said


def test_a_missing_extra_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exporting, "missing_packages", lambda: ["h5py"])
    played(tmp_path / "run", configuration())
    status, said = exported(
        capsys, tmp_path / "run", "--what", "replay", "--format", "minari", "--out", tmp_path / "m"
    )
    assert status == 2
    assert said == (
        "vedette: --format minari needs the minari extra (h5py is not installed): "
        "pip install 'vedette[minari]'\n"
    )


def test_transitions_of_several_steps_are_no_episodes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    played(tmp_path / "run", configuration("agent.n_step=3"))
    status, said = exported(
        capsys, tmp_path / "run", "--what", "replay", "--format", "minari", "--out", tmp_path / "m"
    )
    assert status == 2
    assert "span several steps; train with agent.n_step=1" in said
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run"]


@pytest.mark.parametrize(
    ("keys", "format", "why"),
    [
        ("x a/b", "minari", "the key 'a/b' of its observations cannot be written to HDF5"),
        ("x .", "minari", "the key '.' of its observations cannot be written"),
        ("x x.npy", "npz", "numpy does not tell the columns 'obs/x' and 'obs/x.npy' apart"),
    ],
)
def test_a_key_that_the_format_does_not_hold_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], keys: str, format: str, why: str
) -> None:
    """It wrote a file that nobody could read, or whose arrays had each other's names."""
    played(tmp_path / "run", configuration(f"env.kwargs.form=keys {keys}"))
    out = tmp_path / "out"
    how = (tmp_path / "run", "--what", "replay", "--format", format, "--out", out)
    status, said = exported(capsys, *how)
    assert (status, said.count("\n"), out.exists()) == (2 if format == "npz" else 1, 1, False)
    assert why in said
