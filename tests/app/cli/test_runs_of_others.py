"""The directory of somebody else's run, opened: nothing in it is executed, and it prints no
escapes."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from configurations import configured
from run_directories import write_best_model
from small_runs import config_of, trained

from vedette_rl.replay.ring import RingWriter
from vedette_services.config import import_permission, write_config

Run = Callable[..., tuple[int, str]]

TERMINAL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
ESCAPES = "\x1b]0;PWN\x07\x1b[2J\nFORGED"

MODULE = """
import gymnasium
open({marker!r}, "w").close()
def make(**kwargs) -> gymnasium.Env: return gymnasium.make("CartPole-v1")
"""


@pytest.fixture(scope="module")
def whole_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that has ended, with a best model and checkpoints."""
    out = tmp_path_factory.mktemp("runs") / "base"
    trained(config_of(), out)
    write_config(config_of(), out / "config.toml")
    write_best_model(out, config_of())
    return out


@pytest.fixture
def marker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that what must not be executed makes; nothing is recorded as begun by this user."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(import_permission, "_begun_by_this_process", set())
    monkeypatch.delitem(sys.modules, "guest_env", raising=False)
    return tmp_path / "EXECUTED"


def changed(whole_run: Path, place: Path, env: str, kwargs: str = "") -> Path:
    """A copy of the run with another environment."""
    shutil.copytree(whole_run, place)
    config = place / "config.toml"
    text = config.read_text().replace('id = "CartPole-v1"', f"id = {json.dumps(env)}", 1)
    config.write_text(text.replace("[env.kwargs]", f"[env.kwargs]\n{kwargs}", 1))
    return place


def commands(run: Path) -> list[list[object]]:
    """Every command that opens a run to play, export, record or resume it."""
    out = run.parent / "out"
    return [
        ["eval", run, "--episodes", 1],
        ["eval", run, "--checkpoint", "latest"],
        ["collect", "--policy", run, "--out", out],
        *(["export", run, "--format", name, "--out", out] for name in ("numpy", "safetensors")),
        ["push", run, "me/mine", "--out", out],
        ["run", "--in-process", "--out", run],
        ["run", run / "config.toml", "--in-process", "--out", out],
        ["learner", "--out", run],
    ]


@pytest.mark.parametrize("case", ["module", "call", "agent"])
def test_no_command_executes_what_a_run_names(
    vedette: Run, tmp_path: Path, whole_run: Path, marker: Path, case: str
) -> None:
    kwargs = f"args = {json.dumps(['touch', str(marker)])}"
    run = changed(whole_run, tmp_path / "run", "subprocess:call", kwargs)
    if case == "module":
        shutil.rmtree(run)
        changed(whole_run, run, "guest_env:make")
    if case == "agent":
        shutil.rmtree(run)
        changed(whole_run, run, "CartPole-v1")
        text = (run / "config.toml").read_text()
        (run / "config.toml").write_text(text.replace('"dqn"', '"guest_env:make"'))
    (tmp_path / "guest_env.py").write_text(MODULE.format(marker=str(marker)))
    for asked in commands(run):
        if asked[0] == "push" and case != "call":
            continue  # the three cases differ before that
        status, text = vedette(*asked)
        assert not marker.exists(), asked
        assert (status, text.count("\n")) == (2, 1), text
        assert "--allow-import" in text
        assert "there is no record here that you began such a run" in text


@pytest.mark.parametrize("case", ["discrete", "continuous", "agent"])
def test_the_export_of_a_replay_asks_for_what_it_imports(
    vedette: Run, tmp_path: Path, whole_run: Path, marker: Path, case: str
) -> None:
    """The environment is made for the first of its discrete actions, and for nothing else."""
    run = changed(whole_run, tmp_path / "run", "guest_env:make")
    if case == "agent":
        config = run / "config.toml"
        config.write_text(config.read_text().replace('"dqn"', '"guest_env:make"'))
    (tmp_path / "guest_env.py").write_text(MODULE.format(marker=str(marker)))
    action = "f4" if case == "continuous" else "i8"
    ring = RingWriter.open(run / "replay", np.dtype([("action", action)]), 10, run_id="r")
    ring.append({"action": np.arange(3).astype(action)}, 3)
    ring.commit()
    ring.close()
    asked = ("export", run, "--what", "replay", "--format", "npz", "--out", tmp_path / "out.npz")
    status, text = vedette(*asked)
    assert not marker.exists()
    assert (status, "--allow-import guest_env" in text) == (
        (0, False) if case == "continuous" else (2, True)
    )


def test_with_permission_the_module_of_the_current_folder_is_imported(
    vedette: Run, tmp_path: Path, whole_run: Path, marker: Path
) -> None:
    run = changed(whole_run, tmp_path / "run", "guest_env:make")
    (tmp_path / "guest_env.py").write_text(MODULE.format(marker=str(marker)))
    status, text = vedette("eval", run, "--episodes", 1, "--allow-import", "guest_env")
    assert (status, marker.exists()) == (0, True), text
    assert vedette("eval", run, "--episodes", 1)[0] == 2  # an evaluation is no start


def test_a_library_that_is_not_installed_is_not_found_beside_a_run(
    vedette: Run, tmp_path: Path, whole_run: Path, marker: Path
) -> None:
    run = changed(whole_run, tmp_path / "run", "CartPole-v1")
    text = (run / "config.toml").read_text()
    assert 'vectorization = "auto"' in text
    (run / "config.toml").write_text(
        text.replace('vectorization = "auto"', 'vectorization = "envpool"')
    )
    (tmp_path / "envpool.py").write_text(MODULE.format(marker=str(marker)))
    status, text = vedette("eval", run, "--episodes", 1)
    assert (status, marker.exists()) == (2, False)
    assert "EnvPool is not here" in text


def test_a_process_of_a_command_does_not_import_from_the_current_folder_first(
    tmp_path: Path, marker: Path
) -> None:
    (tmp_path / "json.py").write_text(f"open({str(marker)!r}, 'w').close()\n")
    command = Path(sys.executable).with_name("vedette")
    sets = ("stop.max_opts=2", "agent.hidden_sizes=[4]", "learner.warmup_period=16")
    sets += ("learner.eval_interval=0",)
    argv = [command, "run", "--in-process", "--env", "CartPole-v1", "--out", "run", *sets]
    ended = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert (ended.returncode, marker.exists()) == (0, False), ended.stderr


def poisoned(whole_run: Path, place: Path) -> Path:
    """A copy of the run whose every text has escapes and a line break."""
    shutil.copytree(whole_run, place)

    def poison(node: Any, name: str = "") -> Any:
        if isinstance(node, dict):
            return {key: poison(value, key) for key, value in node.items()}
        if isinstance(node, list):
            return [poison(value) for value in node]
        kept = ("exit_reason", "phase", "kind")
        return node + ESCAPES if isinstance(node, str) and name not in kept else node

    for name in ("summary.json", "provenance.json"):
        if (file := place / name).exists():
            file.write_text(json.dumps(poison(json.loads(file.read_text()))))
    config = place / "config.toml"
    escaped = json.dumps("CartPole-v1" + ESCAPES)
    config.write_text(config.read_text().replace('"CartPole-v1"', escaped))
    return place


@pytest.mark.parametrize("named", [False, True])
def test_texts_of_a_run_and_its_name_are_printed_as_clean_lines(
    vedette: Run, tmp_path: Path, whole_run: Path, named: bool
) -> None:
    run = tmp_path / (f"name{ESCAPES}" if named else "run")
    if named:
        shutil.copytree(whole_run, run)
    else:
        poisoned(whole_run, run)
    asked: list[list[object]] = [
        ["runs", tmp_path],
        ["status", run],
        ["stop", run],
        ["report", run],
        ["report", run, whole_run, "--out", tmp_path / "both.html"],
        ["eval", run, "--episodes", 1],
        ["export", run, "--format", "numpy", "--out", tmp_path / f"policy{ESCAPES}.npz"],
    ]
    for command in asked:
        _, text = vedette(*command)
        assert text
        assert not TERMINAL.search(text), (command, text)
        assert not re.search(r"^\s*FORGED", text, re.MULTILINE), (command, text)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with a name")
@pytest.mark.parametrize(
    "name",
    ["summary.json", "run.json", "config.toml", "provenance.json", "events.jsonl", "lock"],
)
def test_a_pipe_in_a_run_does_not_stop_a_command(
    vedette: Run, tmp_path: Path, whole_run: Path, name: str
) -> None:
    run = tmp_path / "runs" / "one"
    shutil.copytree(whole_run, run)
    (run / name).unlink(missing_ok=True)
    os.mkfifo(run / name)
    status, _ = vedette("runs")
    assert status == 0
    vedette("status", run)
    vedette("report", run)
    vedette("eval", run, "--episodes", 1)
    if name in ("run.json", "config.toml", "lock"):
        assert vedette("run", "--in-process", "--out", run)[0] == 2


def test_a_run_that_this_user_begins_asks_nothing_again(
    vedette: Run, tmp_path: Path, marker: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "guest_env.py").write_text(MODULE.format(marker=str(marker)))
    config = tmp_path / "mine.toml"
    small = config_of(env={"id": "CartPole-v1"})
    write_config(configured(table=small.model_dump(mode="json")), config)
    begun = ["run", config, "env.id=guest_env:make", "--in-process", "--out", "one"]
    status, text = vedette(*begun, "stop.max_opts=50")
    assert status == 0, text
    monkeypatch.setattr(import_permission, "_begun_by_this_process", set())
    Path("one").rename("two")
    for asked in (["eval", "two", "--episodes", 1], ["run", "--in-process", "--out", "two"]):
        status, text = vedette(*asked)
        assert status == 0, text
