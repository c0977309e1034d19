"""`vedette export` of a run's best policy, and what it refuses."""

import os
import resource
from pathlib import Path
from unittest.mock import Mock

import gymnasium as gym
import numpy as np
import pytest
from run_directories import write_best_model

from vedette import exporting
from vedette.cli.app import main
from vedette_rl.agents.registry import agent_kind
from vedette_rl.core import Policy
from vedette_rl.envs import make
from vedette_rl.envs.make import probe_environment
from vedette_rl.exported import load_policy, onnx_file, read_policy
from vedette_rl.storage.checkpoints import Checkpoints
from vedette_rl.testing.inputs import ScriptedEnv
from vedette_services.config import RunConfig, read_config, write_config
from vedette_services.run.directory import RunDirectory
from vedette_services.run.finished import FinishedRun
from vedette_services.run.policy_evaluation import evaluate_policy, evaluate_run

gym.register("ExportFromTwo-v0", entry_point=ScriptedEnv)  # Discrete(3, start=2)
ENVS = {"dqn": "CartPole-v1", "iqn": "CartPole-v1", "sac": "Pendulum-v1"}


def make_run(root: Path, agent: str, env: str = "") -> Policy:
    """A run's directory with a best model; the policy that `vedette eval` would play."""
    config = RunConfig.model_validate(
        {"env": {"id": env or ENVS[agent]}, "agent": {"name": agent, "hidden_sizes": [8, 8]}}
    )
    root.mkdir()
    write_config(config, root / "config.toml")
    spaces = probe_environment(config.env)
    policy = agent_kind(agent).build_policy(config.agent, spaces, ranks=np.zeros(1), seed=0)
    policy.sync_model(write_best_model(root, config))
    return policy


def exported(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str]:
    with pytest.raises(SystemExit) as left:
        main(["export", *map(str, arguments)])
    said = capsys.readouterr()
    return int(left.value.code or 0), said.out + said.err


@pytest.mark.parametrize("form", ["numpy", "safetensors"])
@pytest.mark.parametrize("agent", ENVS)
def test_an_exported_policy_acts_as_the_runs_best(
    agent: str, form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    best = make_run(tmp_path / "run", agent)
    out = tmp_path / "policy"
    status, said = exported(capsys, tmp_path / "run", "--format", form, "--out", out)
    assert (status, said) == (0, f"the policy of version 70 in {out}\n")
    width = 3 if agent == "sac" else 4
    obs = {"obs": np.random.default_rng(2).normal(size=(500, width)).astype(np.float32)}
    np.testing.assert_array_equal(
        load_policy(out).act(obs, explore=False), best.act(obs, explore=False)
    )
    meta = read_policy(out).meta
    assert (meta["env"], meta["return_mean"]) == (ENVS[agent], 9.0)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["policy", "run"]


@pytest.mark.parametrize("form", ["numpy", "safetensors"])
def test_an_exported_policy_gives_the_environments_own_actions(form: str, tmp_path: Path) -> None:
    best = make_run(tmp_path / "run", "dqn", "ExportFromTwo-v0")
    out = tmp_path / "policy"
    exporting.export_policy(FinishedRun.open(tmp_path / "run"), form, out)
    obs = {"obs": np.random.default_rng(2).normal(size=(500, 3)).astype(np.float32)}
    within = best.act(obs, explore=False)
    assert len(set(within)) > 1
    assert within.min() == 0
    np.testing.assert_array_equal(load_policy(out).act(obs, explore=False), within + 2)
    np.testing.assert_array_equal(read_policy(out).make_policy().act(obs, explore=False), within)
    assert set(load_policy(out).act(obs, explore=True)) <= {2, 3, 4}


def test_an_export_makes_one_environment_and_an_evaluation_those_that_it_plays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_run(tmp_path / "run", "dqn")
    made = Mock(side_effect=make._make_env)
    monkeypatch.setattr(make, "_make_env", made)
    exporting.export_policy(FinishedRun.open(tmp_path / "run"), "numpy", tmp_path / "policy")
    assert made.call_count == 1
    evaluate_run(tmp_path / "run", episodes=2)
    assert made.call_count == 3
    evaluate_policy(tmp_path / "policy", episodes=2)
    assert made.call_count == 5


@pytest.mark.timeout(240)
@pytest.mark.filterwarnings("ignore")
def test_an_onnx_model_gives_the_environments_own_actions(tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    best = make_run(tmp_path / "run", "dqn", "ExportFromTwo-v0")
    out = tmp_path / "policy.onnx"
    exporting.export_policy(FinishedRun.open(tmp_path / "run"), "onnx", out)
    session = onnxruntime.InferenceSession(str(out), providers=["CPUExecutionProvider"])
    assert [output.name for output in session.get_outputs()] == ["action", "q"]
    obs = {"obs": np.random.default_rng(2).normal(size=(500, 3)).astype(np.float32)}
    action, q = session.run(None, obs)
    np.testing.assert_array_equal(action, best.act(obs, explore=False) + 2)
    np.testing.assert_array_equal(action, q.argmax(1) + 2)


def test_an_export_that_cannot_be_written_names_its_file_and_leaves_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_run(tmp_path / "run", "dqn")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    try:
        status, said = exported(
            capsys, tmp_path / "run", "--format", "numpy", "--out", tmp_path / "policy"
        )
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert status == 1
    why = "File too large: a file may have 100 B here (ulimit -f)"
    assert said.startswith(f"vedette: {tmp_path / 'policy'}: {why}")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--format", "pickle"], "--format pickle: a policy is exported as onnx, safetensors, n"),
        (["--format", "npz"], "--format npz: a policy is exported as"),
        (["--format", "numpy", "--what", "replay"], "--format numpy: a replay is exported as npz"),
        (["--format", "numpy", "--what", "agent"], "--what agent: not known"),
        (["--format", "npz", "--what", "replay"], "it has no replay/"),
    ],
)
def test_what_cannot_be_exported_is_refused_in_one_line(
    arguments: list[str], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_run(tmp_path / "run", "dqn")
    status, said = exported(capsys, tmp_path / "run", *arguments, "--out", tmp_path / "x")
    assert status == 2
    assert says in said
    assert len(said.splitlines()) == 1
    assert not (tmp_path / "x").exists()


def test_a_folder_that_cannot_be_written_is_bad_usage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    make_run(tmp_path / "run", "dqn")
    access = os.access
    monkeypatch.setattr(os, "access", lambda place, mode: place != tmp_path and access(place, mode))
    status, said = exported(capsys, tmp_path / "run", "--format", "numpy", "--out", tmp_path / "x")
    assert status == 2
    assert said.endswith(f"/x: {tmp_path} cannot be written; name another folder\n")


def test_a_run_in_one_process_says_why_it_has_no_replay(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_run(tmp_path / "run", "dqn")
    RunDirectory(tmp_path / "run").ensure_id(in_process=True)
    how = ["--format", "npz", "--what", "replay", "--out", tmp_path / "x"]
    status, said = exported(capsys, tmp_path / "run", *how)
    assert status == 2
    assert "it has no replay/: a run in one process keeps its samples in memory" in said
    assert "; train without --in-process" in said


def test_a_run_without_a_best_model_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_run(tmp_path / "run", "dqn")
    (tmp_path / "run" / "best").rename(tmp_path / "elsewhere")
    status, said = exported(capsys, tmp_path / "run", "--format", "numpy", "--out", tmp_path / "x")
    assert status == 2
    assert "no evaluation of it has ended yet" in said


def test_a_checkpoint_is_exported_where_it_is_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_run(tmp_path / "run", "dqn")
    (tmp_path / "run" / "best").rename(tmp_path / "elsewhere")
    config = read_config(tmp_path / "run" / "config.toml")
    agent = agent_kind("dqn").build_agent(
        config.agent, probe_environment(config.env), device="cpu", seed=5
    )
    saved = Checkpoints(tmp_path / "run" / "checkpoints", keep=1)
    state = {"agent": {**agent.get_state(), "opt_steps": 90}}
    saved.save(90, state, {"run_id": "abc", "epoch": 2, "sampled": 0})
    out = tmp_path / "last.npz"
    asked = (tmp_path / "run", "--format", "numpy", "--out", out)
    assert exported(capsys, *asked, "--checkpoint", "latest") == (
        0,
        f"the policy of version 90 in {out}\n",
    )
    read = read_policy(out)
    assert read.meta["run_id"] == "abc"
    assert "sampled" not in read.meta
    weights = agent.model_info().arrays
    assert all(np.array_equal(weights[name], read.model.arrays[name]) for name in weights)
    status, said = exported(capsys, *asked, "--checkpoint", "95")
    assert (status, "no checkpoint 95 (it has 90)" in said) == (2, True)
    replay = (tmp_path / "run", "--what", "replay", "--format", "npz", "--out", tmp_path / "x")
    status, said = exported(capsys, *replay, "--checkpoint", "latest")
    assert (status, "a replay is no part of a checkpoint" in said) == (2, True)


def test_a_format_whose_package_is_not_installed_says_what_to_install(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onnx_file, "PACKAGES", ("onnx_that_is_not_here",))
    make_run(tmp_path / "run", "dqn")
    status, said = exported(capsys, tmp_path / "run", "--format", "onnx", "--out", tmp_path / "x")
    assert status == 2
    assert "onnx_that_is_not_here is not installed): pip install 'vedette[onnx]'" in said
    assert not (tmp_path / "x").exists()


def test_an_export_that_fails_leaves_an_older_file_as_it_was(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    make_run(tmp_path / "run", "dqn")
    out = tmp_path / "policy.npz"
    out.write_text("older")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(exporting, "write_numpy", full)
    status, said = exported(capsys, tmp_path / "run", "--format", "numpy", "--out", out)
    assert status == 1
    assert "No space left on device" in said
    assert out.read_text() == "older"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["policy.npz", "run"]
