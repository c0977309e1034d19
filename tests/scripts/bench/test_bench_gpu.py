"""`scripts/bench_gpu`: every part runs, results are kept, and what fails is told."""

from __future__ import annotations

import copy
import gc
import itertools
import json
import os
import subprocess
import sys
import weakref
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from every_agent import OF_SAMPLES  # of tests/support

from bench import gpu, gpu_checks, gpu_loops, gpu_parts
from bench.gpu_ingest import CASES
from bench.gpu_table import page_table, table
from vedette_rl.agents.dqn.agent import DqnAgent
from vedette_rl.device.gathered import GatheredRows, GatheredWindows

ROOT = Path(__file__).resolve().parents[3]
FAULTS = Path(__file__).parent / "faults"
CPU = torch.device("cpu")


def test_the_hour_begins_with_a_check_of_every_agent_of_samples() -> None:
    first = [*gpu_parts.PARTS][: len(gpu_checks.CHECKS)]
    assert {f"check-{name}" for name in OF_SAMPLES} <= {*first}


def bench(
    out: Path,
    *options: str,
    python: Path | str = sys.executable,
    fault: str = "",
    limit: float = 110,
) -> subprocess.CompletedProcess[str]:
    """A quick call on the CPU that installs nothing."""
    command = [str(ROOT / "scripts/bench_gpu"), "--quick", "--device=cpu", f"--out={out}", *options]
    environment = {**os.environ, "PYTHON": str(python)}
    if fault:
        environment |= {"PYTHONPATH": str(FAULTS), "BENCH_FAULT": fault}
    return subprocess.run(
        command, check=False, capture_output=True, text=True, timeout=limit, env=environment
    )


def run_of(out: Path) -> Any:
    (run,) = json.loads(out.read_text())["runs"]
    return run


def test_missing_packages_are_named_in_one_line(tmp_path: Path) -> None:
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n')  # without site-packages
    bare.chmod(0o755)
    refused = bench(tmp_path / "gpu.json", python=bare)
    assert refused.returncode == 1
    assert len(refused.stderr.splitlines()) == 1
    for name in ("gymnasium", "numpy", "pydantic", "torch"):
        assert name in refused.stderr
    assert "vedette_rl" not in refused.stderr  # the checkout brings it


def test_a_graphed_loop_by_hand_lives_as_long_as_its_graphs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A graph reads the memory of its loop, and does not keep it."""
    made: list[weakref.ref[Loop]] = []

    class Loop:
        delay = 1

        def __init__(self, *_: object) -> None:
            made.append(weakref.ref(self))

        def step(self, *, learns: bool) -> None: ...

    for name in ("Stream", "CUDAGraph", "current_stream"):
        monkeypatch.setattr(torch.cuda, name, Mock())
    for name in ("stream", "graph"):
        monkeypatch.setattr(torch.cuda, name, nullcontext)
    monkeypatch.setattr(gpu_loops, "Dqn", Loop)
    replay = gpu_loops.handwritten_step(CASES["dqn-cartpole-256"], 8, torch.device("cuda"))
    gc.collect()
    assert made[0]() is not None
    replay()
    del replay
    gc.collect()
    assert made[0]() is None


def test_the_hour_is_in_the_order_of_its_value() -> None:
    kinds = [
        "check" if name.startswith("check-") else name.partition("-")[0] for name in gpu_parts.PARTS
    ]
    firsts = [*dict.fromkeys(kinds)]
    assert firsts == ["check", "sac", "dqn", "ingest", "learn"]
    assert {"check-sac", "check-copies", "check-gather", "check-failure", "check-bfloat16"} <= {
        *gpu_parts.PARTS
    }


@pytest.mark.parametrize("broken", ["nan", "infinite", "late nan"])
def test_a_number_that_is_none_is_never_agreement(broken: str) -> None:
    distance = gpu_checks.Distance()
    distance.add(torch.ones(3), torch.ones(3))
    assert distance.value == 0.0
    wrong = torch.ones(3)
    wrong[2] = torch.inf if broken == "infinite" else torch.nan
    distance.add(wrong, torch.ones(3))
    if broken == "late nan":
        distance.add(torch.ones(3), torch.ones(3))
    assert distance.value == np.inf


@pytest.mark.parametrize(
    ("fault", "where"),
    [("nan", "td_errors_apart"), ("model", "model_apart"), ("other", "td_errors_apart_early")],
)
def test_a_captured_step_that_does_something_else_fails_its_check(
    fault: str, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(FAULTS))
    from bench_faults import put_fault

    for name in ("__init__", "step"):
        monkeypatch.setattr(DqnAgent, name, getattr(DqnAgent, name))  # put back afterwards
    put_fault(fault)
    order = gpu_parts.Order(CPU, True, Path(), 10.0)
    result = gpu_parts.run("check-dqn", order)
    assert result["ok"] is False
    assert result[where] == "inf" or result[where] > result["tolerance"]
    json.dumps(result, allow_nan=False)


@pytest.mark.parametrize("name", ["rows", "sequences"])
def test_a_batch_that_is_gathered_otherwise_fails_its_check(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fine = gpu_checks.check_gather(CPU, quick=True)
    assert (fine["ok"], fine["wrong"]) == (True, {"rows": 0, "sequences": 0})
    kind = {"rows": GatheredRows, "sequences": GatheredWindows}[name]
    fill: Any = kind.fill
    begun = itertools.count()

    def stale(self: Any, *arguments: Any) -> None:
        if next(begun) != 5:
            fill(self, *arguments)

    monkeypatch.setattr(kind, "fill", stale)
    found = gpu_checks.check_gather(CPU, quick=True)
    assert found["ok"] is False
    assert [key for key, wrong in found["wrong"].items() if wrong] == [name]


def test_a_part_that_raises_anything_leaves_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def illegal(order: gpu_parts.Order) -> dict[str, Any]:
        raise AttributeError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setitem(gpu_parts.PARTS, "check-dqn", gpu_parts.Part(illegal, 1.0))
    failed = gpu_parts.run("check-dqn", gpu_parts.Order(CPU, True, Path(), 10.0))
    assert failed["error"].startswith("AttributeError: CUDA error")
    assert "in illegal" in failed["traceback"]
    assert "CUDA_LAUNCH_BLOCKING=1" in failed["hint"]


IDENTITY = {"commit": "c", "source": "s", "device": "cpu", "cpu": "x", "torch": "2", "quick": False}


def test_parts_that_failed_are_tried_again_behind_the_others(tmp_path: Path) -> None:
    out = tmp_path / "gpu.json"
    results = gpu.Results(out, IDENTITY)
    names = ["check-dqn", "sac-hopper-256", "learn-pong"]
    results.keep("check-dqn", {"error": "no end after 9 s", "traceback": ""})
    results.keep("sac-hopper-256", {"done": True})
    results.keep("learn-pong", {"done": False, "env_steps": 5})
    again = gpu.Results(out, IDENTITY)
    assert again.missing(names) == ["learn-pong", "check-dqn"]
    again.keep("check-dqn", {"done": True, "ok": True})
    assert again.failed == {}
    other = gpu.Results(out, {**IDENTITY, "commit": "d"})
    assert other.missing(names) == names


def test_a_file_of_something_else_is_refused(tmp_path: Path) -> None:
    out = tmp_path / "gpu.json"
    for content in ("", "[]", '{"format": 1, "runs": []}'):
        out.write_text(content)
        with pytest.raises(SystemExit, match="is no file of this benchmark"):
            gpu.Results(out, IDENTITY)
        assert out.read_text() == content


RATE = {"median": 1234.5, "min": 1000.0, "max": 1500.0}
RUN: dict[str, Any] = {
    "identity": {**IDENTITY, "device": "NVIDIA H100"},
    "machine": {"cores": 16, "cuda": "13.0"},
    "parts": {
        "check-sac": {
            "done": True,
            "ok": False,
            "reason": "",
            "td_errors_apart": "inf",
            "model_apart": 0.001,
            "kinds_captured": 4,
        },
        "sac-hopper-256": {
            "done": True,
            "opt_steps_per_s": dict.fromkeys(
                ("eager", "eager_on_the_copy", "captured", "captured_on_the_copy", "by_hand"), RATE
            ),
            "ratio_to": {"eager": RATE, "by_hand": RATE},
            "ms": {"opt_ms": RATE, "load_ms": RATE},
            "peak_device_bytes": 3 << 30,
            "sides": {
                "captured_on_the_copy": {"bytes_to_device": 2048.0},
                "captured": {"bytes_to_device": 90_000.0},
            },
        },
        "ingest-sac-hopper-256": {
            "done": True,
            "ratio_with_ingest": RATE,
            "ingest_rows_per_s": RATE,
            "wanted_rows_per_s": 200_000,
        },
        "learn-hopper": {
            "done": False,
            "exit_reason": "interrupted",
            "env_steps": 30_000,
            "eval": {"best_return_mean": 2900.5},
        },
    },
    "failed": {"check-iqn": {"error": "no end after 120 s", "traceback": "..."}},
}


def test_the_table_for_the_page_is_written_from_the_file() -> None:
    page = page_table(RUN)
    for said in (
        "NVIDIA H100, x (16 cores); torch 2, CUDA 13.0, commit c.",
        "| sac | **fails** | inf | 0.001 | 4 |",
        "1,234 (1,000 to 1,500)",
        "3,072",
        "2,048 | 90,000",
        "| hopper | best return 2,900 after 30,000 steps (goes on) |",
        "| check-iqn | no end after 120 s |",
    ):
        assert said in page, page
    quick = copy.deepcopy(RUN)
    quick["identity"]["quick"] = True
    assert "its times mean nothing" in page_table(quick)
    assert "check-sac                   FAILS" in table(RUN)


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_every_part_is_done_once_and_a_second_call_does_what_is_missing(tmp_path: Path) -> None:
    out = tmp_path / "gpu.json"
    late = bench(out, "--minutes=0")
    assert (late.returncode, out.exists()) == (1, False)
    assert "sac-hopper-256" in late.stderr
    assert bench(out, "--only=check-sac,dqn-cartpole-256").returncode == 0
    first = run_of(out)
    assert [*first["parts"]] == ["check-sac", "dqn-cartpole-256"]
    done = bench(out, limit=350)
    assert done.returncode == 0, done.stderr
    run = run_of(out)
    assert {*run["parts"]} == {*gpu_parts.PARTS}
    assert run["failed"] == {}
    assert first["parts"].items() <= run["parts"].items()
    assert run["identity"]["device"] == "cpu"
    for name, part in run["parts"].items():
        assert name in done.stdout
        if name.startswith("check-"):
            assert part["ok"]
            assert part.get("td_errors_apart", 0.0) == 0.0
        if "ratio_to" in part:
            assert all(rate["min"] > 0 for rate in part["opt_steps_per_s"].values())
        if name.startswith("ingest-"):
            assert part["ingest_rows_per_s"]["min"] > 0
    page = bench(out, "--page")
    assert page.stdout.strip() == page_table(run)


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("fault", "status", "said"),
    [
        ("nan", 2, "checks that fail: check-dqn"),
        ("api", 1, "AttributeError: 'CUDAGraph' object has no attribute"),
        ("illegal", 1, "CUDA error: an illegal memory access"),
        ("hang", 1, "no end after"),
        ("kill", 1, "ended by SIGKILL"),
        ("exit", 1, "exit status 3 without a result"),
    ],
)
def test_a_part_that_fails_is_told_and_the_next_one_is_done(
    fault: str, status: int, said: str, tmp_path: Path
) -> None:
    out = tmp_path / "gpu.json"
    minutes = ["--minutes=0.2"] if fault == "hang" else []
    names = "--only=check-dqn,check-iqn" if fault != "hang" else "--only=check-dqn"
    done = bench(out, names, *minutes, fault=f"check-dqn:{fault}")
    assert done.returncode == status, done.stderr
    assert said in done.stderr
    run = run_of(out)
    if fault != "hang":
        assert run["parts"]["check-iqn"]["ok"]
    if status == 1:
        assert said in run["failed"]["check-dqn"]["error"]
    if fault in ("api", "illegal", "hang"):
        assert "faulty" in run["failed"]["check-dqn"]["traceback"]


@pytest.mark.slow
def test_results_of_another_commit_are_kept_apart(tmp_path: Path) -> None:
    out = tmp_path / "gpu.json"
    for commit in ("one", "other"):
        assert bench(out, "--only=check-dqn", f"--commit={commit}").returncode == 0
    runs = json.loads(out.read_text())["runs"]
    assert [run["identity"]["commit"] for run in runs] == ["one", "other"]
