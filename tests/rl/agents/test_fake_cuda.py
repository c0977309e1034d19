"""Every agent's step on fake CUDA tensors: nothing in it stops a GPU from replaying it."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import fake_cuda_steps
import pytest
import torch

SUPPORT = Path(fake_cuda_steps.__file__).parent
GUARD = SUPPORT / "noop_guard.cpp"


def build_guard(folder: Path) -> Path:
    """The compiled guard, of this Python and this torch."""
    compiler = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        pytest.skip("no C++ compiler: steps are not run on fake CUDA tensors")
    include = sysconfig.get_paths()["include"]
    if not Path(include, "Python.h").exists():
        pytest.skip("no headers of Python: steps are not run on fake CUDA tensors")
    of = f"{GUARD.read_text()} {sys.version} {torch.__version__}"
    built = folder / f"noop_guard-{hashlib.sha256(of.encode()).hexdigest()[:16]}.so"
    if not built.exists():
        there = Path(torch.__file__).parent
        shared = "-bundle" if sys.platform == "darwin" else "-shared"
        aside = built.with_suffix(".part")
        command = [compiler, "-std=c++20", "-O0", shared, "-fPIC", f"-I{include}"]
        command += [f"-I{there / 'include'}", str(GUARD), "-o", str(aside)]
        command += [f"-L{there / 'lib'}", "-lc10", f"-Wl,-rpath,{there / 'lib'}"]
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=100)
        if done.returncode:
            pytest.skip(f"the guard is not compiled here: {done.stderr.strip().splitlines()[-1:]}")
        aside.rename(built)
    return built


@pytest.fixture(scope="module")
def guard(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    cache = getattr(request.config, "cache", None)  # none with -p no:cacheprovider
    folder = cache.mkdir("noop_guard") if cache else tmp_path_factory.mktemp("noop_guard")
    return build_guard(folder)


def run_steps(guard: Path, which: str) -> dict[str, Any]:
    """What the program prints, in a process of its own: the guard stays where it is loaded."""
    command = [sys.executable, fake_cuda_steps.__file__, str(guard), which]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, timeout=110)
    report: dict[str, Any] = json.loads(done.stdout)
    return report


@pytest.fixture(scope="module")
def report(guard: Path) -> dict[str, Any]:
    return run_steps(guard, "quick")


@pytest.mark.parametrize("case", fake_cuda_steps.CASES)
def test_a_step_does_nothing_that_a_graph_cannot_hold(case: str, report: dict[str, Any]) -> None:
    result = report["cases"][case]
    assert result["found"] == []
    assert result["steps"] == 2
    assert result["operations"] > 50


@pytest.mark.parametrize(
    ("mistake", "word"),
    [
        ("item", "the host reads"),
        ("mask", "the host reads"),
        ("nonzero", "the host reads"),
        ("devices", "devices"),
        ("cpu", "the CPU's"),
        ("to the host", "two devices"),
        ("not pinned", "not pinned"),
        ("blocking", "not pinned"),
        ("fine: pinned", ""),
        ("fine: where", ""),
        ("fine: clamp", ""),
    ],
)
def test_what_a_graph_cannot_hold_is_found(mistake: str, word: str, report: dict[str, Any]) -> None:
    found = report["mistakes"][mistake]
    if word:
        assert word in " ".join(found)
    else:
        assert found == []


@pytest.mark.slow
def test_a_step_does_nothing_that_a_graph_cannot_hold_in_any_combination(guard: Path) -> None:
    cases = run_steps(guard, "all")["cases"]
    assert {name: case["found"] for name, case in cases.items() if case["found"]} == {}
    assert {case["steps"] for case in cases.values()} == {16}
