"""`scripts/bench_gpu`: every case runs, results are kept, and what is missing is named."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from vedette_rl.agents.registry import BUILT_IN

ROOT = Path(__file__).resolve().parents[3]


def bench(
    out: Path, *options: str, python: Path | str = sys.executable
) -> subprocess.CompletedProcess[str]:
    """A quick call on the CPU that installs nothing."""
    command = [str(ROOT / "scripts/bench_gpu"), "--quick", "--device=cpu", f"--out={out}", *options]
    environment = {**os.environ, "PYTHON": str(python)}
    return subprocess.run(
        command, check=False, capture_output=True, text=True, timeout=110, env=environment
    )


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


@pytest.mark.slow
def test_every_case_is_measured_once_and_a_second_call_does_what_is_missing(tmp_path: Path) -> None:
    out = tmp_path / "gpu.json"
    late = bench(out, "--minutes=0")
    assert (late.returncode, out.exists()) == (1, False)
    assert "sac-hopper-256" in late.stderr
    assert bench(out, "--only=sac-hopper-256,dqn-atari-32").returncode == 0
    (first,) = json.loads(out.read_text())["runs"]
    assert list(first["cases"]) == ["sac-hopper-256", "dqn-atari-32"]
    done = bench(out)
    assert done.returncode == 0, done.stderr
    (run,) = json.loads(out.read_text())["runs"]
    assert len(run["cases"]) == 5
    assert first["cases"].items() <= run["cases"].items()
    assert run["identity"]["device"] == "cpu"
    assert run["checks"].keys() == BUILT_IN.keys()
    assert all(check["td_errors_apart"] == 0.0 for check in run["checks"].values())
    for name, case in run["cases"].items():
        assert name in done.stdout
        assert case["ingest_rows_per_s"]["min"] > 0
        assert case["sample_ms"]["median"] > 0
        rates = [case[key]["median"] for key in ("opt_steps_per_s", "resident_opt_steps_per_s")]
        assert case["ratio_to_resident"]["median"] == pytest.approx(rates[0] / rates[1])
        assert case["handwritten_opt_steps_per_s"]["min"] > 0
        assert case["not_captured_because"] == "no GPU"
        assert case["peak_device_bytes"] is None


@pytest.mark.slow
def test_results_of_another_commit_are_kept_apart(tmp_path: Path) -> None:
    out = tmp_path / "gpu.json"
    for commit in ("one", "other"):
        assert bench(out, "--only=dqn-cartpole-256", f"--commit={commit}").returncode == 0
    runs = json.loads(out.read_text())["runs"]
    assert [run["identity"]["commit"] for run in runs] == ["one", "other"]
