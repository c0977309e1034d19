"""Weights & Biases gets curves, configuration and texts, and no training waits for it or ends."""

import json
import os
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from configurations import configured
from starts import train_in_process

from vedette_rl.core import Recorder
from vedette_services.config.plugins import WANDB
from vedette_services.errors import SettingError
from vedette_services.run.checks import check_import_names
from vedette_services.wandb import WandbRecorder

needs_wandb = pytest.mark.skipif(find_spec("wandb") is None, reason="needs the extra wandb")


@pytest.fixture(autouse=True)
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("WANDB_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")
    monkeypatch.chdir(tmp_path)


# W&B's files are LevelDB logs of protobuf records; the client has no reader of its own in Python.

_BLOCK = 32768


def records(run: Path) -> Iterator[Any]:
    """Every record that was written for a run, start by start."""
    from wandb.proto.wandb_internal_pb2 import Record

    for path in sorted(run.glob("wandb/*run-*/run-*.wandb")):
        # behind the file's own header
        data = path.read_bytes()
        whole = b""
        at = 7
        while at + 7 <= len(data):
            if _BLOCK - at % _BLOCK < 7:
                at += _BLOCK - at % _BLOCK
                continue
            _, length, kind = struct.unpack("<IHB", data[at : at + 7])
            whole += data[at + 7 : at + 7 + length]
            at += 7 + length
            if kind in (1, 4):  # full, or the last part
                yield Record.FromString(whole)
                whole = b""


def history(run: Path) -> list[dict[str, Any]]:
    """The rows that were logged, without W&B's own values."""
    rows = []
    for record in records(run):
        if record.HasField("history"):
            items = [(item.key or item.nested_key[0], item) for item in record.history.item]
            own = {name: json.loads(item.value_json) for name, item in items if name[0] != "_"}
            rows.append(own)
    return rows


def configuration(run: Path) -> dict[str, Any]:
    """The configuration as its last update left it."""
    found: dict[str, Any] = {}
    for record in records(run):
        updates = [*record.config.update, *record.run.config.update]
        found |= {
            update.key or "/".join(update.nested_key): json.loads(update.value_json)
            for update in updates
        }
    return found


def axes(run: Path) -> dict[str, str]:
    """The axis of each curve."""
    metrics = [record.metric for record in records(run) if record.HasField("metric")]
    return {metric.name: metric.step_metric for metric in metrics if metric.step_metric}


def in_a_process(run: Path, code: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Record in a process of its own, as the trainer is one, until that has ended."""
    head = (
        "import logging, pathlib, sys, time\n"
        "from vedette_services.wandb import WandbRecorder\n"
        "logging.basicConfig(level=logging.WARNING, format='%(message)s')\n"
        "recorder = WandbRecorder(pathlib.Path(sys.argv[1]))\n"
    )
    return subprocess.run(
        [sys.executable, "-c", head + code, str(run)],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


@needs_wandb
@pytest.mark.slow
def test_what_is_recorded_is_in_its_files_under_its_name_and_axis(tmp_path: Path) -> None:
    code = """
recorder.write_hparams({"agent.name": "dqn", "seed": 3})
recorder.write_text("config", "seed = 3")
recorder.write({"eval/mean_reward": 21.0, "eval/std_reward": 0.5, "bad": float("nan")}, step=1000)
recorder.store({"train/loss": 1.0})
recorder.store({"train/loss": 3.0})
recorder.flush(step=500)
recorder.close()
"""
    done = in_a_process(tmp_path, code)
    assert (done.returncode, done.stderr) == (0, "")
    assert history(tmp_path) == [
        {"eval/mean_reward": 21.0, "eval/std_reward": 0.5, "env_steps": 1000},
        {"train/loss": 2.0, "opt_steps": 500},
    ]
    assert axes(tmp_path)["eval/mean_reward"] == "env_steps"
    assert axes(tmp_path)["train/loss"] == "opt_steps"
    found = configuration(tmp_path)
    assert (found["agent.name"], found["seed"]) == ("dqn", 3)
    assert found["vedette.config"] == "seed = 3"


@needs_wandb
@pytest.mark.slow
def test_a_run_that_resumes_continues_its_wandb_run(tmp_path: Path) -> None:
    for step in (1, 2):
        code = f"recorder.write({{'x': {step}.0}}, step={step}); recorder.close()"
        assert in_a_process(tmp_path, code).returncode == 0
    assert [row["env_steps"] for row in history(tmp_path)] == [1, 2]
    opened = {record.run.run_id for record in records(tmp_path) if record.HasField("run")}
    assert opened == {json.loads((tmp_path / "wandb.json").read_text())["id"]}


@needs_wandb
@pytest.mark.slow
def test_a_server_that_refuses_costs_a_line_and_the_run_is_on_the_disk(tmp_path: Path) -> None:
    code = """
began = time.monotonic()
for step in range(2000):
    recorder.write({"x": 1.0}, step)
recorder.flush(2000)
assert time.monotonic() - began < 2.0
recorder.close()
assert time.monotonic() - began < 45.0
"""
    away = {"WANDB_MODE": "online", "WANDB_API_KEY": "0" * 40}
    began = time.monotonic()
    done = in_a_process(tmp_path, code, WANDB_BASE_URL="http://127.0.0.1:9", **away)
    assert done.returncode == 0, done.stderr
    assert time.monotonic() - began < 75
    run_id = json.loads((tmp_path / "wandb.json").read_text())["id"]
    assert f"`wandb sync --id {run_id} {tmp_path}/wandb/offline-run-" in done.stderr
    assert done.stderr.count("Weights & Biases:") == 1
    assert len(history(tmp_path)) == 2000


@needs_wandb
@pytest.mark.slow
def test_a_server_that_never_answers_does_not_keep_a_process_from_ending(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        away = {"WANDB_MODE": "online", "WANDB_API_KEY": "0" * 40, "WANDB_BASE_URL": address}
        began = time.monotonic()
        done = in_a_process(tmp_path, "recorder.write({'x': 1.0}, 3); recorder.close()", **away)
    assert done.returncode == 0, done.stderr
    assert time.monotonic() - began < 75
    assert "Weights & Biases: " in done.stderr
    assert "Traceback" not in done.stderr


@needs_wandb
@pytest.mark.slow
def test_a_run_records_to_wandb_by_its_short_name(tmp_path: Path) -> None:
    settings = ["preset=none", 'learner.recorders=["wandb"]', "stop.max_opts=40"]
    settings += ["agent.hidden_sizes=[16]", "learner.warmup_period=64", "actors.n_buffer=16"]
    settings += ["learner.eval_interval=20", "evaluation.episodes=2"]
    settings += ["learner.record_agent_info_interval=10"]
    config = configured(*settings)
    assert config.learner.recorders == (WANDB,)
    train_in_process(config, tmp_path / "mine")
    names = {name for row in history(tmp_path / "mine") for name in row}
    assert {"eval/mean_reward", "samples_total", "train/loss", "env_steps", "opt_steps"} <= names
    found = configuration(tmp_path / "mine")
    assert found["agent.name"] == "dqn"
    assert 'id = "CartPole-v1"' in found["vedette.config"]
    assert "seeds: run 0" in found["vedette.provenance"]


class Opened:
    """A W&B run."""

    exit_code: int | None = None

    def finish(self, exit_code: int | None = None) -> None:
        self.exit_code = exit_code


@pytest.mark.parametrize(("end", "code"), [("max_opts", 0), ("failed", 1), ("interrupted", 255)])
def test_how_a_run_has_ended_is_its_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str, code: int
) -> None:
    opened = Opened()
    monkeypatch.setattr(WandbRecorder, "check_environment", staticmethod(lambda _: None))
    monkeypatch.setattr(WandbRecorder, "open", lambda recorder: None)
    recorder = WandbRecorder(tmp_path)
    recorder._wandb = opened  # type: ignore[assignment]  # what of it is used here
    recorder.name_end(lambda: end)
    recorder.close()
    assert opened.exit_code == code


@needs_wandb
def test_a_recorder_is_made_without_loading_wandb() -> None:
    code = "import sys, vedette_services.wandb; sys.exit('wandb' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
    assert issubclass(WandbRecorder, Recorder)


def test_without_the_extra_it_is_refused_with_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("vedette_services.wandb.find_spec", lambda name: None)
    config = configured('learner.recorders=["wandb"]')
    with pytest.raises(SettingError, match=r"wandb is not installed; pip install 'vedette\[wandb"):
        check_import_names(config)


@pytest.mark.parametrize(
    ("variables", "works"),
    [
        ({}, False),
        ({"WANDB_MODE": "online"}, False),
        ({"WANDB_MODE": "offline"}, True),
        ({"WANDB_API_KEY": "0" * 40}, True),
        ({"NETRC": "netrc"}, True),
        ({"NETRC": "netrc", "WANDB_BASE_URL": "https://wandb.example.org"}, False),
        ({"NETRC": "torn"}, False),
        ({"WANDB_CONFIG_DIR": "mine"}, True),
    ],
)
def test_without_a_key_it_is_refused_before_the_start(
    variables: dict[str, str], works: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vedette_services.wandb.find_spec", lambda name: name)
    (tmp_path / "netrc").write_text("machine api.wandb.ai login user password 0\n")
    (tmp_path / "torn").write_text("machine")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/settings").touch()
    if works:
        WandbRecorder.check_environment(variables)
        return
    with pytest.raises(SettingError, match="run `wandb login`, set WANDB_API_KEY"):
        WandbRecorder.check_environment(variables)
