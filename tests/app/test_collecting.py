"""`vedette collect`: what is recorded of policies and people, and what is read of it again."""

from __future__ import annotations

import errno
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from configurations import configured
from starts import prepared, train_in_process

import vedette
from vedette import collecting
from vedette.cli.app import main
from vedette.collecting import (
    LOW_RETURN_EPISODES_MAX,
    Collected,
    EpisodeSelection,
    collect,
    open_demonstrator,
)
from vedette_rl.agents.registry import agent_kind
from vedette_rl.core import Columns
from vedette_rl.datasets import minari as minari_dataset
from vedette_rl.envs.make import (
    environment_spaces,
    make_vector_environment,
    probe_environment,
)
from vedette_rl.envs.spaces import transition_dtype
from vedette_rl.errors import DataSetError, EnvironmentFaultError
from vedette_rl.steps import NStep
from vedette_rl.storage import atomic_files, system
from vedette_rl.storage.atomic_files import replacing
from vedette_rl.storage.process_identity import machine_number
from vedette_services.config import RunConfig
from vedette_services.errors import ServicesError, UsageError
from vedette_services.run.directory import RunDirectory
from vedette_services.run.finished import FinishedRun
from vedette_services.run.sources import check_sources, open_sources

minari = pytest.importorskip("minari")
pytestmark = pytest.mark.filterwarnings("ignore:.*share an object")
EPISODES = 6
STEPS = 5
HERE = __name__


class Trail(gym.Env[Any, Any]):
    """Shows (episode, step); an episode ends with its fifth step, every third one truncated.

    ``reused``: the same array holds all observations, as some simulators do it.
    """

    def __init__(self, form: str = "vector", fails_at: int = -1, render_mode: Any = None) -> None:
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float64)
        if form == "parts":
            self.observation_space = gym.spaces.Dict(
                {"where": self.observation_space, "t": gym.spaces.Discrete(9)}
            )
        self.action_space = gym.spaces.Discrete(3, start=5)
        self._form = form
        self._fails_at = fails_at
        self._where = np.array([-1.0, 0.0])

    def _obs(self) -> Any:
        where = self._where if self._form == "reused" else self._where.copy()
        return {"where": where, "t": int(where[1])} if self._form == "parts" else where

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._where += 1.0
        self._where[1] = 0.0
        return self._obs(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert 5 <= action < 8
        self._where[1] += 1.0
        episode, t = self._where.astype(int)
        if episode == self._fails_at:
            raise RuntimeError("the simulator has crashed")
        ends = t == STEPS
        cut = episode % 3 == 0
        reward = float(t + 100 * (episode % 2))
        return self._obs(), reward, bool(ends and not cut), bool(ends and cut), {}


class Helped(gym.Wrapper[Any, Any, Any, Any]):
    """A person acts at each second step."""

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        is_helped = self.get_wrapper_attr("_where")[1] % 2 == 1
        obs, reward, terminated, truncated, info = self.env.step(7 if is_helped else action)
        return obs, reward, terminated, truncated, {"intervene_action": 7} if is_helped else info


class HalfHelped(gym.Wrapper[Any, Any, Any, Any]):
    """A person acts by half a number."""

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, _ = self.env.step(action)
        return obs, reward, terminated, truncated, {"intervene_action": 5.5}


class Half(gym.ObservationWrapper[Any, Any, Any]):
    """Observes by half of a whole number, from the third step on."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.observation_space = gym.spaces.Box(-9, 9, (2,), np.int64)

    def observation(self, observation: Any) -> Any:
        return observation / 2.0 if observation[1] > 2 else np.zeros(2, np.int64)


class Slashed(gym.Wrapper[Any, Any, Any, Any]):
    """Has a key that is no name in HDF5, and may not be played."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        inner = gym.spaces.Dict({"fine": gym.spaces.Discrete(2), "a/b": env.observation_space})
        self.observation_space = gym.spaces.Dict({"parts": inner})

    def reset(self, **how: Any) -> Any:
        raise AssertionError("it is refused before it is played")


class Endless(gym.Wrapper[Any, Any, Any, Any]):
    """Gives an infinite reward where nobody probes it."""

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        obs, reward, *rest = self.env.step(action)
        return obs, np.inf if obs[1] == STEPS else reward, *rest  # type: ignore[return-value]


class Reach(gym.Env[Any, Any]):
    """One step; the reward is the action."""

    def __init__(self) -> None:
        self.observation_space = gym.spaces.Box(0.0, 1.0, (1,), np.float32)
        self.action_space = gym.spaces.Box(-0.1, 0.1, (2,), np.float64)

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return np.zeros(1, np.float32), float(action.sum()), True, False, {}


gym.register("CollectTrail-v0", entry_point=f"{__name__}:Trail")
gym.register("CollectReach-v0", entry_point=f"{__name__}:Reach")


def square(obs: Any) -> int:
    """The action by the number of the step over all episodes."""
    episode, t = (obs["where"] if isinstance(obs, dict) else obs.reshape(-1, 2)[-1]).astype(int)
    return int(5 + (episode * STEPS + t) ** 2 % 3)


class Counting:
    """Acts by the number of its calls in an episode."""

    def __init__(self) -> None:
        self._calls = 0

    def __call__(self, obs: Any) -> int:
        self._calls += 1
        return 5 + self._calls % 3


def far(obs: Any) -> list[float]:
    return [0.05, 3.0]


def wrong(obs: Any) -> int:
    return 0


def interrupted(obs: Any) -> int:
    """Ctrl-C, in the midst of the third episode."""
    if obs[0] == 2 and obs[1] == 1:
        os.kill(os.getpid(), signal.SIGINT)
    return 5


def configuration(*settings: str, env: str = "CollectTrail-v0", data: object = None) -> RunConfig:
    base = ["replay.capacity=1000", "learner.warmup_period=10", "actors.n_buffer=10"]
    table = {"replay": {"sources": {"demos": {"data": str(data)}}}} if data else {}
    base += [] if any("n_step" in text for text in settings) else ["agent.n_step=1"]
    return configured(*base, *settings, env=env, agent="dqn", table=table)


def recorded(
    out: Path,
    *settings: str,
    by: str = "square",
    wanted: EpisodeSelection = EpisodeSelection(EPISODES),  # noqa: B008 - frozen
    env: str = "CollectTrail-v0",
    say: Callable[[str], None] = lambda line: None,
) -> Collected:
    agent = "sac" if env == "CollectReach-v0" else "dqn"
    config = configured(*settings, env=env, agent=agent)
    return collect(str(out), config.env, open_demonstrator(f"{HERE}:{by}"), wanted, say=say)


def played(config: RunConfig) -> Columns:
    """What an actor would have sent of these episodes."""
    spaces = probe_environment(config.env)
    processor = NStep(config.agent.n_step, config.agent.discount, 1, transition_dtype(spaces))
    envs = make_vector_environment(config.env, 1, 0)
    envs.reset()
    parts = [processor.process(envs.step(np.array([(t * t) % 3]))) for t in range(EPISODES * STEPS)]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


@pytest.mark.parametrize(
    "settings",
    [
        (),
        ("agent.n_step=3", "env.kwargs.form=reused"),
        ("env.kwargs.form=parts", "env.reward_scale=0.5"),
        ("env.frame_stack=3",),
    ],
)
def test_what_is_collected_is_read_as_the_transitions_of_an_actor(
    tmp_path: Path, settings: tuple[str, ...]
) -> None:
    out = tmp_path / "demos"
    found = recorded(out, *(text for text in settings if text.startswith("env.")))
    assert found.lengths == [STEPS] * EPISODES
    config = configuration(*settings, data=out)
    run = RunDirectory(tmp_path / "run")
    run.make()
    prepared(config, run, new_replay=False)
    ring = open_sources(config, run.root)["demos"]
    read = {n: c[: ring.inserted] for n, c in ring.columns.items()}
    expected = played(config)
    order, other = (
        np.lexsort(columns["obs/where" if "obs/where" in columns else "obs"].reshape(rows, -1).T)
        for columns, rows in ((read, ring.inserted), (expected, len(expected["reward"])))
    )
    for name, column in expected.items():
        np.testing.assert_array_equal(read[name][order], column[other], err_msg=name)


CLIPS = (
    "env.wrappers=[{name='gymnasium.wrappers:ClipReward',kwargs={max_reward=2},training_only=%s}]"
)


@pytest.mark.parametrize("only", ["true", "false"])
def test_rewards_that_a_wrapper_for_training_only_did_not_change_are_said(
    tmp_path: Path, only: str
) -> None:
    settings = CLIPS % only
    lines: list[str] = []
    found = recorded(tmp_path / "demos", settings, say=lines.append)
    assert max(found.returns) == (515.0 if only == "true" else 10.0)
    config = configuration(settings, data=found.out)
    spaces = environment_spaces(config.env)
    lines += check_sources(config, tmp_path / "run", spaces, new=False).lines
    told = [line for line in lines if "ClipReward" in line]
    if only == "false":
        assert not told
        return
    recording, start = told
    assert recording.startswith("without ClipReward (training_only): rewards")
    assert "source demos: its rewards and ends are taken as they were recorded: actors" in start


def test_a_data_set_says_how_it_was_made(tmp_path: Path) -> None:
    found = recorded(tmp_path / "my demos", wanted=EpisodeSelection(2, min_return=100.0, seed=7))
    data = minari.MinariDataset(found.out)
    assert (data.total_episodes, data.total_steps, data.spec.dataset_id) == (2, 10, "my-demos-v0")
    assert data.env_spec.id == "CollectTrail-v0"
    assert data.env_spec.additional_wrappers == ()
    about = data.storage.metadata["vedette"]
    assert about["by"] == [f"{HERE}:square"] == [data.storage.metadata["algorithm_name"]]
    assert (about["first_seed"], about["min_return"], about["played"]) == (7, 100.0, 4)
    assert [each["seed"] for each in data.storage.get_episode_metadata([0, 1])] == [8, 10]
    assert found.returns == [515.0, 515.0]
    assert "2 episodes of 4 that were played, 10 steps, return 515 to 515" in str(found)


def test_a_person_in_an_environment_of_the_users_own_is_recorded_as_acting(tmp_path: Path) -> None:
    found = recorded(
        tmp_path / "demos", f"env.wrappers=['{HERE}:Helped']", wanted=EpisodeSelection(1)
    )
    assert minari.MinariDataset(found.out)[0].actions.tolist() == [5, 7, 6, 7, 6]


def test_a_class_is_made_anew_for_each_episode(tmp_path: Path) -> None:
    found = recorded(tmp_path / "demos", by="Counting", wanted=EpisodeSelection(2))
    assert [episode.actions.tolist() for episode in minari.MinariDataset(found.out)] == [
        [6, 7, 5, 6, 7]
    ] * 2


def test_actions_beyond_a_box_are_recorded_as_its_bounds(tmp_path: Path) -> None:
    found = recorded(
        tmp_path / "demos", by="far", wanted=EpisodeSelection(1), env="CollectReach-v0"
    )
    actions = minari.MinariDataset(found.out)[0].actions
    assert actions.dtype == np.float64
    np.testing.assert_array_equal(actions, [[0.05, 0.1]])
    assert found.returns == [pytest.approx(0.15)]


def test_a_policy_that_never_reaches_the_least_return_is_given_up(tmp_path: Path) -> None:
    said: list[str] = []
    with pytest.raises(ServicesError, match="none of the last 100 episodes"):
        recorded(tmp_path / "demos", wanted=EpisodeSelection(1, min_return=1000.0), say=said.append)
    assert len(said) == LOW_RETURN_EPISODES_MAX
    assert not list(tmp_path.iterdir())


def test_of_many_episodes_of_a_policy_some_are_said(tmp_path: Path) -> None:
    said: list[str] = []
    found = recorded(tmp_path / "demos", wanted=EpisodeSelection(250), say=said.append)
    assert (len(found.returns), len(said)) == (250, 125)
    assert said[-1].endswith("kept, 250 of 250")


def test_ctrl_c_keeps_the_episodes_that_are_whole(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGINT)
    found = recorded(tmp_path / "demos", by="interrupted")
    assert (len(found.returns), found.ended) == (2, "stopped on request")
    assert minari.MinariDataset(found.out).total_steps == 2 * STEPS
    assert signal.getsignal(signal.SIGINT) is before


def test_a_signal_while_an_episode_is_written_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = minari_dataset.MinariWriter.write

    def slowly(*given: Any) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        write(*given)

    monkeypatch.setattr(minari_dataset.MinariWriter, "write", slowly)
    found = recorded(tmp_path / "demos")
    assert (len(found.returns), found.ended) == (1, "stopped on request")
    assert minari.MinariDataset(found.out).total_episodes == 1


def test_an_environment_that_fails_loses_no_whole_episode(tmp_path: Path) -> None:
    said: list[str] = []
    with pytest.raises(RuntimeError, match="has crashed"):
        recorded(tmp_path / "demos", "env.kwargs.fails_at=2", say=said.append)
    assert minari.MinariDataset(tmp_path / "demos").total_episodes == 2
    assert said[-1].startswith("it has failed; kept are 2 episodes")


def test_an_episode_that_the_disk_has_no_room_for_loses_none_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reserve = system.reserve_space
    asked = [0]

    def full(file: int, size: int) -> None:
        asked.append(size)
        if len(asked) > 3:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        reserve(file, size)

    monkeypatch.setattr(atomic_files, "reserve_space", full)
    with pytest.raises(DataSetError, match=r"no room for another .*: No space left"):
        recorded(tmp_path / "demos")
    assert minari.MinariDataset(tmp_path / "demos").total_episodes == 2
    assert not list((tmp_path / "demos").glob(".*"))
    with pytest.raises(DataSetError, match="no room for another"):
        recorded(tmp_path / "none")
    assert [path.name for path in tmp_path.iterdir()] == ["demos"]


def test_episodes_of_a_recording_that_was_killed_are_not_written_over(tmp_path: Path) -> None:
    left = tmp_path / f".demos.{os.getpid()}.1.{machine_number()}.new"  # its number is ours now
    left.mkdir()
    (tmp_path / ".demos.old.7.new").mkdir()  # another data set's
    with pytest.raises(UsageError, match=rf"{left} has the episodes .* rename this data set"):
        recorded(tmp_path / "demos")
    left.rename(tmp_path / "kept")
    elsewhere = tmp_path / ".demos.7.1.12.new"
    elsewhere.mkdir()
    with pytest.raises(UsageError, match=r"was killed, or writes it now on another host"):
        recorded(tmp_path / "demos")
    elsewhere.rmdir()
    with replacing(tmp_path / "demos") as aside:
        aside.mkdir()
        with pytest.raises(UsageError, match=rf"process {os.getpid()} writes it now"):
            recorded(tmp_path / "demos")
    (tmp_path / "demos").rmdir()
    assert recorded(tmp_path / "demos").returns


@pytest.mark.slow
def test_a_policy_of_a_run_plays_as_its_evaluations_do(tmp_path: Path) -> None:
    run = tmp_path / "run"
    small = ["preset=none", "stop.max_opts=40", "agent.hidden_sizes=[16]", "actors.n_buffer=16"]
    small += ["learner.warmup_period=64", "learner.eval_interval=20", "evaluation.episodes=2"]
    train_in_process(configuration(*small, env="CartPole-v1"), run)
    vedette.export_policy(run, tmp_path / "policy.npz")
    expected = vedette.evaluate(run, episodes=3, seed=5)
    for place in (run, tmp_path / "policy.npz"):
        player = open_demonstrator(str(place))
        assert player.env is not None
        out = tmp_path / f"{place.name}-demos"
        found = collect(str(out), player.env, player, EpisodeSelection(3, seed=5))
        assert tuple(found.returns) == expected.returns
        about = minari.MinariDataset(out).storage.metadata["vedette"]
        assert (about["agent"], about["model_version"]) == ("dqn", expected.version)
    with pytest.raises(UsageError, match="it takes actions of"):
        collect(str(tmp_path / "x"), configuration().env, player, EpisodeSelection(1))


def test_a_policy_of_declared_spaces_plays_where_observations_have_other_bounds(
    tmp_path: Path,
) -> None:
    small = ["preset=none", "stop.max_opts=5", "agent.hidden_sizes=[4]", "actors.n_buffer=16"]
    small += ["learner.warmup_period=64", "learner.eval_interval=5", "evaluation.episodes=1"]
    declared = {
        "id": "CartPole-v1",
        "observation": {"space": "box", "shape": [4]},
        "action": {"space": "discrete", "n": 2},
    }
    config = configured(*small, table={"env": declared})
    train_in_process(config, tmp_path / "run")
    vedette.export_policy(tmp_path / "run", tmp_path / "policy.npz")
    expected = vedette.evaluate(tmp_path / "run", episodes=2).returns
    assert vedette.evaluate(tmp_path / "policy.npz", episodes=2).returns == expected
    for place in (tmp_path / "run", tmp_path / "policy.npz"):
        player = open_demonstrator(str(place))
        assert collect(
            f"{place}-demos", player.env or config.env, player, EpisodeSelection(1)
        ).lengths


def test_the_environment_of_a_run_with_declared_spaces_is_not_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    declared = {
        "observation": {"space": "box", "shape": [2], "dtype": "float64", "low": -5.0},
        "action": {"space": "discrete", "n": 3, "start": 5},
    }
    table = {"env": declared, "agent": {"name": "dqn", "hidden_sizes": [4]}}
    config = configured(table=table)  # of a robot: it names none
    spaces = environment_spaces(config.env)
    agent = agent_kind("dqn").build_agent(config.agent, spaces, device="cpu", seed=0)
    saved = SimpleNamespace(model=agent.model_info())
    run = FinishedRun(tmp_path, config)
    monkeypatch.setattr(FinishedRun, "load_model", lambda self, checkpoint: saved)
    monkeypatch.setattr(collecting.FinishedRun, "open", lambda directory, allow_import: run)
    env = configuration().env
    found = collect(
        str(tmp_path / "demos"), env, open_demonstrator(str(tmp_path)), EpisodeSelection(1)
    )
    assert found.lengths == [STEPS]  # though its observations have other bounds
    trained = open_demonstrator(str(tmp_path))
    with pytest.raises(UsageError, match="it takes observations of"):
        collect(
            str(tmp_path / "x"),
            configuration("env.kwargs.form=parts").env,
            trained,
            EpisodeSelection(1),
        )


def collected(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *arguments: str
) -> tuple[int, str]:
    monkeypatch.setattr(sys, "path", [*sys.path])
    with pytest.raises(SystemExit) as left:
        main(["collect", *arguments])
    said = capsys.readouterr()
    return int(left.value.code or 0), said.out + said.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("--policy {here}:square --out new", "--env ID: name the environment"),
        ("--policy {here}:none --env CollectTrail-v0 --out new", "has no 'none'"),
        ("--policy nowhere --env CollectTrail-v0 --out new", "there is no such run or file"),
        ("--policy {here}:EPISODES --env CollectTrail-v0 --out new", "it is no function"),
        (
            "--policy math:sin --env CollectTrail-v0 --out new",
            "vedette: --policy math:sin: it takes no observation of this environment: TypeError: ",
        ),
        ("--policy {here}:wrong --env CollectTrail-v0 --out new", "no action of Discrete(3"),
        ("--policy {here}:square --env CollectTrail-v0 --out there", "it is there already"),
        ("--policy {here}:square --env CollectTrail-v0 --out no/where", "name a new folder"),
        ("--policy {here}:square --env CollectTrail-v0 --out minari:a/b/c", "an ID is such as"),
        ("--policy {here}:square --env CollectTrail-v0 --out new agent.n_step=3", "env.KEY=VALUE"),
        ("--policy {here}:square --env CollectTrail-v0 --out new --key left=5", "--takeover"),
        ("--policy {here}:square --env CollectTrail-v0 --out new --checkpoint 3", "not a run"),
        ("--env CollectTrail-v0 --out new --key left", "write KEY=ACTION"),
        ("--env CollectTrail-v0 --out new --takeover", "name a policy by --policy"),
        ("--env CollectTrail-v0 --out new", "it gives no pictures"),
    ],
)
def test_bad_input_is_one_line(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: str,
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    Path("there").mkdir()
    status, line = collected(capsys, monkeypatch, *arguments.format(here=HERE).split())
    assert (status, line.count("\n")) == (2, 1), line
    assert said in line
    assert not Path("new").exists()


def test_minaris_own_folder_takes_it_by_its_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    how = ("--policy", f"{HERE}:square", "--env", "CollectTrail-v0", "--episodes", "2")
    status, said = collected(capsys, monkeypatch, *how, "--out", "minari:trail/square-v0")
    assert status == 0, said
    assert "2 episodes, 10 steps, return 15 to 515, in " in said
    assert minari.load_dataset("trail/square-v0").total_episodes == 2
    status, said = collected(capsys, monkeypatch, *how, "--out", "minari:trail/square-v0")
    assert (status, "count up its version" in said) == (2, True)


def test_values_that_are_not_finite_are_no_demonstrations(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFaultError, match="episode 1 has a value that is not finite"):
        recorded(tmp_path / "demos", f"env.wrappers=['{HERE}:Endless']", wanted=EpisodeSelection(1))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("wrapper", "why"),
    [
        ("HalfHelped", r"an executed action of Discrete\(3, start=5\) has 5.5, which is no int64"),
        ("Half", "an observation of Box.* has 1.5, which is no int64"),
    ],
)
def test_what_its_space_cannot_hold_is_not_recorded_as_something_else(
    tmp_path: Path, wrapper: str, why: str
) -> None:
    with pytest.raises(EnvironmentFaultError, match=why):
        recorded(
            tmp_path / "demos", f"env.wrappers=['{HERE}:{wrapper}']", wanted=EpisodeSelection(1)
        )


@pytest.mark.parametrize("key", ["a/b", "/", "a/", ".", "", "a\0b", "\ud800"])
def test_a_key_that_is_no_name_in_hdf5_is_refused(tmp_path: Path, key: str) -> None:
    spaces = gym.spaces.Tuple([gym.spaces.Dict({key: gym.spaces.Discrete(2)})])
    discrete = gym.spaces.Discrete(2)
    for part in ("observation", "action"):
        both = (spaces, discrete) if part == "observation" else (discrete, spaces)
        with pytest.raises(DataSetError, match=f"key .* of its {part}s cannot be written to HDF5"):
            minari_dataset.MinariWriter(tmp_path, *both, None, "x-v0", {})
    assert not list(tmp_path.iterdir())


def test_a_key_that_is_no_name_is_refused_before_anything_is_played(tmp_path: Path) -> None:
    with pytest.raises(DataSetError, match="the key 'a/b'"):
        recorded(tmp_path / "demos", f"env.wrappers=['{HERE}:Slashed']", wanted=EpisodeSelection(1))
    assert not list(tmp_path.iterdir())
