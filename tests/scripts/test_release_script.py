"""`scripts/release`: what it writes, and what it refuses."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
VERSIONED = ("pyproject.toml", "clients/rust/Cargo.toml", "clients/c/vedette.h")
CHANGELOG = "# Changelog\n\n## [Unreleased]\n\n### Added\n\n- A thing.\n\n## [0.2.0] - 2026-11-22\n"

PYTHON = """#!/bin/sh
[ "$1" = -m ] || exit 0
mkdir -p "$3/bin"
echo 'exit 0' >"$3/bin/pip"
echo 'echo "$@" >>"$LOG"; exit ${WHEEL:-0}' >"$3/bin/vedette"
chmod +x "$3/bin/pip" "$3/bin/vedette"
"""
"""Stands for an interpreter that makes an environment with a wheel in it."""


class Checkout:
    """A small repository with what a release writes; checks, wheel and Pythons are stand-ins."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.log = root.parent / "vedette.log"
        for name in (*VERSIONED, "scripts/release"):
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, root / name)
        (root / "CHANGELOG.md").write_text(CHANGELOG)
        self._program(root / "scripts" / "check", "#!/bin/sh\n")
        self._program(
            root / "scripts" / "package", "#!/bin/sh\nmkdir -p dist\n: >dist/vedette-0.whl\n"
        )
        (root / ".gitignore").write_text("dist\n")
        self._bin = root.parent / "bin"
        self._bin.mkdir()
        self.pyenv = root.parent / "pyenv"
        for minor in range(11, 15):
            self._program(self._bin / f"python3.{minor}", PYTHON)
        self.git("init", "-q")
        self.git("add", "-A")
        self.commit("all")

    def hide_python(self, minor: int) -> None:
        """Have pyenv's stand-in for a Python that is not chosen, and that Python in its place."""
        self._program(self._bin / f"python3.{minor}", "#!/bin/sh\nexit 127\n")
        place = self.pyenv / "versions" / f"3.{minor}.1" / "bin" / "python"
        place.parent.mkdir(parents=True)
        self._program(place, PYTHON)

    def _program(self, path: Path, text: str) -> None:
        path.write_text(text)
        path.chmod(0o755)

    def git(self, *words: str) -> str:
        who = ("-c", "user.name=N", "-c", "user.email=e@example.org")
        done = subprocess.run(
            ["git", "-C", str(self.root), *who, *words], capture_output=True, text=True, check=True
        )
        return done.stdout

    def commit(self, message: str) -> None:
        self.git("commit", "-qam", message)

    def release(self, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        names = dict.fromkeys(("GIT_AUTHOR_NAME", "GIT_COMMITTER_NAME"), "N")
        addresses = dict.fromkeys(("GIT_AUTHOR_EMAIL", "GIT_COMMITTER_EMAIL"), "e@example.org")
        path = f"{self._bin}:{os.environ['PATH']}"
        variables = {**os.environ, **names, **addresses, "PATH": path, "LOG": str(self.log)}
        variables["PYENV_ROOT"] = str(self.pyenv)
        return subprocess.run(
            [self.root / "scripts" / "release", *words],
            env=variables | environment,
            capture_output=True,
            text=True,
        )


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    root = tmp_path / "checkout"
    root.mkdir()
    return Checkout(root)


def test_a_release_has_its_version_everywhere_its_changelog_and_its_tag(checkout: Checkout) -> None:
    done = checkout.release("7.8.9")
    assert done.returncode == 0, done.stderr
    assert checkout.git("tag").split() == ["v7.8.9"]
    assert checkout.git("log", "-1", "--format=%s", "v7.8.9").strip() == "Release 7.8.9"
    assert checkout.git("status", "--porcelain") == ""
    for name in VERSIONED[:2]:
        assert '\nversion = "7.8.9"' in (checkout.root / name).read_text()
    header = (checkout.root / VERSIONED[2]).read_text()
    for part, number in (("MAJOR", 7), ("MINOR", 8), ("PATCH", 9)):
        assert f"#define VEDETTE_VERSION_{part} {number}\n" in header
    changelog = (checkout.root / "CHANGELOG.md").read_text()
    head, _, cut = changelog.partition("## [7.8.9] - ")
    assert head == "# Changelog\n\n## [Unreleased]\n\n"
    assert cut.splitlines()[1:5] == ["", "### Added", "", "- A thing."]
    played = [line.split()[0] for line in checkout.log.read_text().splitlines()]
    assert played == ["--version", "run", "eval"] * 4  # on each Python


def test_the_wheel_is_tried_on_a_python_that_pyenv_has_and_has_not_chosen(
    checkout: Checkout,
) -> None:
    checkout.hide_python(12)
    done = checkout.release("--wheel")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert len(checkout.log.read_text().splitlines()) == 3 * 4


def test_a_wheel_that_fails_is_not_released(checkout: Checkout) -> None:
    done = checkout.release("7.8.9", WHEEL="1")
    assert done.returncode == 1
    assert "git restore ." in done.stderr
    assert checkout.git("tag") == ""
    assert checkout.git("log", "-1", "--format=%s").strip() == "all"


def test_a_checkout_with_changes_is_not_released(checkout: Checkout) -> None:
    (checkout.root / "new.txt").write_text("")
    done = checkout.release("7.8.9")
    assert (done.returncode, checkout.git("tag")) == (2, "")
    assert "changes that are not committed" in done.stderr


@pytest.mark.parametrize(
    ("version", "why"),
    [("0.1.0", "does not come after"), ("v7.8.9", "is no version"), ("7.8", "is no version")],
)
def test_another_version_is_refused(checkout: Checkout, version: str, why: str) -> None:
    done = checkout.release(version)
    assert done.returncode == 2
    assert why in done.stderr
    assert checkout.git("status", "--porcelain") == ""
