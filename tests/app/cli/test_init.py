"""``vedette init``: the project that it writes trains, and its tests pass."""

import importlib
import subprocess
import sys
from collections.abc import Callable
from importlib import resources
from pathlib import Path

import pytest

from vedette.cli.init import FILES
from vedette_rl.envs import EnvConfig
from vedette_rl.testing import check_environment
from vedette_services.config import load_config

Run = Callable[..., tuple[int, str]]


def test_it_writes_every_file_and_says_how_to_go_on(vedette: Run, tmp_path: Path) -> None:
    status, text = vedette("init", "corridor")
    assert status == 0, text
    assert {path.name for path in (tmp_path / "corridor").iterdir()} == set(FILES)
    assert text.endswith("next: cd corridor && vedette run mine.toml\n")
    assert load_config(tmp_path / "corridor" / "mine.toml", environment={}).config


def test_every_file_of_the_starter_is_written() -> None:
    starter = resources.files("vedette") / "starter"
    assert {path.name for path in starter.iterdir() if path.is_file()} == set(FILES)


def test_files_that_are_there_are_kept_and_named(vedette: Run, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text("mine")
    status, text = vedette("init")
    assert (status, text) == (2, "vedette: .: it has mine.toml already; name another folder\n")
    assert [path.name for path in tmp_path.iterdir()] == ["mine.toml"]
    assert (tmp_path / "mine.toml").read_text() == "mine"


def test_a_folder_that_cannot_be_made_is_one_line(vedette: Run, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    status, text = vedette("init", "file")
    assert status == 2
    assert text == "vedette: file: cannot be written: File exists; name another folder\n"
    assert vedette("init", "file/deeper")[0] == 2


def test_its_environment_keeps_the_rules(
    vedette: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    vedette("init")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "my_env", raising=False)
    importlib.invalidate_caches()
    try:
        assert not check_environment(EnvConfig(id="my_env:Corridor", max_episode_steps=50)).warnings
    finally:
        sys.modules.pop("my_env", None)


def test_its_tests_ask_for_the_spaces_once(
    vedette: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each time starts a process: the tests took minutes on a busy machine."""
    vedette("init")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "test_mine", raising=False)
    importlib.invalidate_caches()
    try:
        tests = importlib.import_module("test_mine")
        asked: list[object] = []
        monkeypatch.setattr(tests, "probe_spaces", asked.append)
        for _ in range(3):
            tests.TestAgentWithMyNetwork().make_spaces()
        assert len(asked) == 1
    finally:
        sys.modules.pop("test_mine", None)


@pytest.mark.slow
@pytest.mark.parametrize("how", [[], ["--in-process"]])
def test_it_trains_until_its_target(tmp_path: Path, how: list[str]) -> None:
    command = [sys.executable, "-m", "vedette.cli"]
    subprocess.run([*command, "init", "."], cwd=tmp_path, check=True)
    ended = subprocess.run(
        [*command, "run", "mine.toml", "--out", "runs/a", *how],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert "solved" in ended.stdout


@pytest.mark.slow
def test_its_tests_pass_and_fail_with_a_faulty_environment(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "vedette.cli", "init", str(tmp_path)], check=True)
    assert run_pytest(tmp_path) == 0
    env = tmp_path / "my_env.py"
    env.write_text(env.read_text().replace("-1.0, terminated", "float('nan'), terminated"))
    assert run_pytest(tmp_path) == 1


def run_pytest(place: Path) -> int:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    return subprocess.run(command, cwd=place, timeout=100, check=False).returncode
