"""Times `vedette run` and Stable-Baselines3 in turn, seed by seed.

Both are timed from the start of their process to its end; Stable-Baselines3's evaluations are
taken off its time, ours run beside the training.
"""

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.environments import PEER_PROGRAMS, ROOT

TIMEOUT_S = 900
ZOO = {
    # its defaults but for the step size
    "Pendulum-v1": ("sac", -180.0, 500, 20_000, {"learning_rate": 1e-3}),
    "CartPole-v1": (
        *("dqn", 475.0, 2048, 150_000),
        {
            "learning_rate": 2.3e-3,
            "batch_size": 64,
            "buffer_size": 100_000,
            "learning_starts": 1000,
            "gamma": 0.99,
            "target_update_interval": 10,
            "train_freq": 256,
            "gradient_steps": 128,
            "exploration_steps": 8000,
            "exploration_final_eps": 0.04,
            "policy_kwargs": {"net_arch": [256, 256]},
        },
    ),
}
"""rl-baselines3-zoo, hyperparams/{dqn,sac}.yml: the algorithm, the return that counts as solved,
env steps between two evaluations, env steps after which it gives up, the algorithm's arguments."""


def ours(seed: int, env: str) -> dict[str, Any]:
    """One `vedette run` of the environment's preset."""
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch) / "run"
        command = [str(ROOT / ".venv/bin/vedette"), "run", "--out", str(out)]
        command += ["--env", env, "--set", f"seed={seed}"]
        began = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True, timeout=TIMEOUT_S)
        wall_s = time.perf_counter() - began
        summary = json.loads((out / "summary.json").read_text())
    return {
        "what": "vedette",
        "seed": seed,
        "solved": summary["exit_reason"] == "target_return",
        "wall_s": round(wall_s, 1),
        "env_steps": summary["env_steps"],
        "opt_steps": summary["opt_steps"],
        "opt_steps_per_sec": round(summary["rates"]["opt_steps_per_sec"]),
    }


def run_peer(seed: int, env: str) -> dict[str, Any]:
    """Run Stable-Baselines3 once, and return what it printed."""
    algorithm, target, every, steps, kwargs = ZOO[env]
    python = ROOT / ".venv-stable-baselines3/bin/python"
    command = [str(python), str(PEER_PROGRAMS / "train_sb3.py")]
    command += [f"--seed={seed}", f"--env={env}", f"--algorithm={algorithm}"]
    command += [f"--target={target}", f"--every={every}", f"--steps={steps}"]
    command += [f"--kwargs={json.dumps(kwargs)}"]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, timeout=TIMEOUT_S)
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def theirs(seed: int, env: str) -> dict[str, Any]:
    """One run of Stable-Baselines3; its wall time is without evaluations, but with its imports."""
    began = time.perf_counter()
    result = run_peer(seed, env)
    wall_s = time.perf_counter() - began
    del result["evaluations"]
    evaluating_s = result["wall_s"] - result["wall_without_evaluation_s"]
    return {**result, "wall_s": round(wall_s - evaluating_s, 1)}


def measure(seeds: int, env: str) -> dict[str, Any]:
    """Time both on each seed; a run that is done is a line on stderr."""
    subprocess.run([ROOT / "scripts/setup_peer"], check=True)
    runs: list[dict[str, Any]] = []
    for seed in range(seeds):
        for run in (ours, theirs):
            runs.append({"env": env, **run(seed, env)})
            print(json.dumps(runs[-1]), file=sys.stderr, flush=True)
    return {"runs": runs, "medians": {name: _medians(runs, name) for name in _COMPARED}}


_COMPARED = ("wall_s", "env_steps")


def _medians(runs: list[dict[str, Any]], figure: str) -> dict[str, float]:
    medians = {
        name: statistics.median(run[figure] for run in runs if run["what"] == name)
        for name in ("vedette", "stable-baselines3")
    }
    ratio = medians["stable-baselines3"] / medians["vedette"]
    return {**medians, "theirs_by_ours": round(ratio, 2)}
