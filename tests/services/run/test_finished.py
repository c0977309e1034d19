import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from run_directories import write_best_model

from vedette.cli.app import main
from vedette_rl.agents.registry import agent_kind
from vedette_rl.envs.make import probe_environment
from vedette_rl.replay.ring import RingWriter
from vedette_rl.storage.checkpoints import Checkpoints
from vedette_services.config import RunConfig, write_config
from vedette_services.errors import (
    ImportPermissionError,
    NotARunError,
    NotInRunError,
    UsageError,
)
from vedette_services.run.finished import FinishedRun

CONFIG = RunConfig.model_validate(
    {"env": {"id": "CartPole-v1"}, "agent": {"name": "dqn", "hidden_sizes": [8]}}
)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run's directory with the best model that its evaluator would have written."""
    write_config(CONFIG, tmp_path / "config.toml")
    write_best_model(tmp_path, CONFIG)
    return tmp_path


def json_of(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    with pytest.raises(SystemExit) as left:
        main(arguments)
    said = capsys.readouterr()
    assert not left.value.code, said.err
    found = json.loads(said.out)
    assert isinstance(found, dict)
    return found


def test_eval_prints_the_contracts_fields_and_the_same_twice(
    run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    first = json_of(["eval", str(run), "--episodes", "3", "--json"], capsys)
    assert list(first) == [
        "return_mean",
        "return_std",
        "length_mean",
        "episodes",
        "version",
        "seed",
        "return_ci95",
        "selected",
        "fresh_seeds",
        "max_episode_steps",
        "episodes_cut",
    ]
    assert (first["episodes"], first["version"]) == (3, 70)
    assert (first["max_episode_steps"], first["episodes_cut"]) == (500, 0)
    assert first["return_mean"] == first["length_mean"] > 0
    assert json_of(["eval", str(run), "--episodes", "3", "--json"], capsys) == first


def test_eval_plays_other_episodes_than_those_by_which_the_best_model_was_selected(
    run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    own = CONFIG.evaluation
    policy = run / "policy.npz"
    with pytest.raises(SystemExit):
        main(["export", str(run), "--format", "numpy", "--out", str(policy)])
    capsys.readouterr()
    for place in (run, policy):
        arguments = ["eval", str(place), "--json", "--episodes", "5"]
        found = json_of(arguments, capsys)
        assert found["seed"] >= own.seed + own.episodes
        assert (found["selected"], found["fresh_seeds"]) == (True, True)
        for seed, fresh in (
            (0, True),
            (own.seed, False),
            (own.seed - 5, True),
            (own.fresh_seed(3) - 4, False),
        ):
            found = json_of([*arguments, "--seed", str(seed)], capsys)
            assert (found["seed"], found["fresh_seeds"]) == (seed, fresh)
    with pytest.raises(SystemExit):
        main(["eval", str(run), "--seed", str(own.seed + 19)])
    said = capsys.readouterr().out
    assert "selected by these episodes" in said
    assert ", 95 % interval of the mean [" in said


def test_eval_says_which_wrappers_it_measures_through(
    run: Path,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    env = {"id": "CartPole-v1", "wrappers": ["gymnasium.wrappers:NormalizeReward"]}
    agent = {"name": "dqn", "hidden_sizes": [8]}
    wrapped = RunConfig.model_validate({"env": env, "agent": agent})
    write_config(wrapped, run / "config.toml")
    with pytest.raises(SystemExit):
        main(["eval", str(run), "--episodes", "1", "--json"])
    assert "the wrapper NormalizeReward scales rewards" in caplog.text
    json.loads(capsys.readouterr().out)


def test_eval_plays_a_checkpoint_and_records_it(
    run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    agent = agent_kind("dqn").build_agent(
        CONFIG.agent, probe_environment(CONFIG.env), device="cpu", seed=2
    )
    checkpoints = Checkpoints(run / "checkpoints", 3)
    for steps in (90, 100):
        state = {"agent": {**agent.get_state(), "opt_steps": steps}}
        checkpoints.save(steps, state, {"run_id": "r", "epoch": 1})
    gif = run / "first.gif"
    arguments = ["eval", str(run), "--episodes", "3", "--json", "--video", str(gif)]
    found = json_of([*arguments, "--checkpoint", "latest"], capsys)
    assert (found["version"], found["selected"]) == (100, False)
    assert found["return_ci95"][0] <= found["return_mean"] <= found["return_ci95"][1]
    first = json_of(["eval", str(run), "--episodes", "1", "--checkpoint", "90", "--json"], capsys)
    assert first["return_ci95"] is None
    with Image.open(gif) as film:
        assert film.n_frames <= first["length_mean"] + 1  # pillow joins pictures that are equal
        assert film.size == (600, 400)
    for wrong, said in (
        (["--checkpoint", "95"], "no checkpoint 95 (it has 90, 100)"),
        (["--video", "x.avi"], "named .gif or .mp4"),
    ):
        with pytest.raises(SystemExit) as left:
            main(["eval", str(run), *wrong])
        assert left.value.code == 2
        assert said in capsys.readouterr().err


def test_the_best_model_is_read_with_its_version(run: Path) -> None:
    best = FinishedRun.open(run).load_model(None)
    assert best.model.version == 70
    assert all(array.dtype == np.float32 for array in best.model.arrays.values())


def test_a_run_without_an_evaluation_says_so(tmp_path: Path) -> None:
    write_config(CONFIG, tmp_path / "config.toml")
    with pytest.raises(NotInRunError, match="no evaluation of it has ended yet"):
        FinishedRun.open(tmp_path).load_model(None)


def test_the_replay_is_where_the_configuration_says(tmp_path: Path) -> None:
    write_config(CONFIG, tmp_path / "config.toml")
    assert FinishedRun.open(tmp_path).replay == tmp_path / "replay"


def test_the_replay_is_exported_a_column_an_array(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_config(CONFIG, tmp_path / "config.toml")
    dtype = np.dtype([("obs/a", "f4", (2,)), ("action", "i8"), ("version", "i8")])
    ring = RingWriter.open(tmp_path / "replay", dtype, 10, run_id="r")
    for first in range(0, 12, 4):
        actions = np.arange(first, first + 4)
        obs = np.stack([actions, -actions], 1).astype("f4")
        ring.append({"obs/a": obs, "action": actions, "version": 7}, 4)
        ring.commit(b"")
    ring.close()
    out = tmp_path / "replay.npz"
    with pytest.raises(SystemExit) as left:
        main(["export", str(tmp_path), "--what", "replay", "--format", "npz", "--out", str(out)])
    assert not left.value.code, capsys.readouterr().err
    with np.load(out) as columns:
        of_rewards = {"reward_scale", "reward_clip"}
        assert set(columns) == {"obs/a", "action", "version", *of_rewards}
        assert columns["action"].tolist() == list(range(2, 12))
        assert columns["obs/a"][0].tolist() == [2.0, -2.0]
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "config.toml",
        "replay",
        "replay.npz",
    ]


def test_a_folder_of_runs_is_no_run_and_one_of_them_is_named(run: Path, tmp_path: Path) -> None:
    folder = tmp_path / "three"
    (folder / "seed-0").mkdir(parents=True)
    (folder / "seed-0" / "run.json").write_text("{}")
    with pytest.raises(NotARunError, match=r"name one of its 1 runs, such as .*three/seed-0$"):
        FinishedRun.open(folder)


@pytest.mark.parametrize("part", ["replay", "learner"])
def test_a_part_that_no_finished_run_imports_needs_no_permission(run: Path, part: str) -> None:
    name = {"replay": 'name = "auto"', "learner": '"tensorboard"'}[part]
    file = run / "config.toml"
    assert file.read_text().count(name) == 1
    other = name.replace("auto", "no_such_module:Mine").replace("tensorboard", "no_such_module:Me")
    file.write_text(file.read_text().replace(name, other))
    finished = FinishedRun.open(run)
    finished.check_imports("env", "agent")
    assert finished.load_model(None).model.version == 70
    with pytest.raises(UsageError, match="no_such_module"):
        finished.check_imports(part)


def test_a_network_of_somebody_else_is_asked_for_where_a_policy_is_built(
    run: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    file = run / "config.toml"
    file.write_text(file.read_text().replace('network = "auto"', 'network = "antigravity:Net"'))
    finished = FinishedRun.open(run)
    finished.load_model(None)  # arrays alone
    for build in (finished.build_greedy_policy, lambda: finished.check_imports("agent")):
        with pytest.raises(ImportPermissionError, match="--allow-import antigravity"):
            build()
    assert "antigravity" not in sys.modules
    FinishedRun.open(run, ["antigravity"]).check_imports("agent")


def test_a_module_that_is_not_found_from_here_is_told_with_where_it_is(run: Path) -> None:
    file, project = run / "config.toml", run / "project"
    file.write_text(file.read_text().replace("CartPole-v1", "my_own_module:MyEnv"))
    (run / "provenance.json").write_text(json.dumps([{"began_s": 1.0, "directory": str(project)}]))
    lacks = "needs module 'my_own_module', which is not found here; run the command in"
    with pytest.raises(UsageError, match=f"{lacks} its folder$"):
        FinishedRun.open(run).check_imports("env")
    project.mkdir()
    (project / "my_own_module.py").touch()
    with pytest.raises(UsageError, match=f"{lacks} {project}$"):
        FinishedRun.open(run).check_imports("env")
