"""Runs presets over seeds, keeps their evaluations as CSV, and draws return against env steps.

Run by `scripts/curves`. A run that is in the data already is not run again (`--again` does). A run
goes to its number of environment steps whether or not it reaches the target, so that all seeds can
be averaged. Environment steps are comparable under any load; seconds are only where nothing else
runs.
"""

import argparse
import csv
import os
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import bench_sb3
import curves_draw
from curves_data import DATA, PLACE, Point, read_points, write_points

SEEDS = [1, 2, 3, 4, 5]
PEER = "stable-baselines3"
PEERS = {"dqn-CartPole-v1", "sac-Pendulum-v1", "sac-Hopper-v5"}
"""What scripts/bench_sb3_peer.py knows."""
SCRIPTS = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Curve:
    """A pair of the list: how far its runs go."""

    agent: str
    env: str
    env_steps: int

    @property
    def name(self) -> str:
        return f"{self.agent}-{self.env.replace('/', '_')}"


def study() -> list[Curve]:
    """All pairs, in the order of the list."""
    table = tomllib.loads((PLACE / "curves.toml").read_text("utf-8"))
    return [Curve(**curve) for curve in table["curve"]]


def run(curve: Curve, seed: int, args: argparse.Namespace) -> list[Point]:
    """One run, in a process of its own; its evaluations."""
    env_steps = args.env_steps or curve.env_steps
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch) / "run"
        settings = [
            f"seed={seed}",
            f"stop.max_env_steps={env_steps}",
            f"stop.max_seconds={args.max_seconds}",
            "stop.target_return=none",
            "evaluation.episodes=20",
            'learner.recorders=["csv"]',
            *args.set,
        ]
        command = [sys.executable, "-m", "vedette.cli", "run", "--out", str(out)]
        command += ["--env", curve.env, "--agent", curve.agent]
        command += [] if args.networked else ["--in-process"]
        for setting in settings:
            command += ["--set", setting]
        began = time.time()
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            timeout=args.max_seconds + 120,
        )
        if done.returncode:
            raise SystemExit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
        return list(evaluations(out / "records.csv", args.label, seed, began))


def run_peer(curve: Curve, seed: int, args: argparse.Namespace) -> list[Point]:
    """One run of Stable-Baselines3 on the same environment; its evaluations."""
    if curve.name not in PEERS:
        raise SystemExit(f"{curve.name}: {PEER} is set up for {', '.join(sorted(PEERS))}")
    subprocess.run([SCRIPTS / "setup_sb3"], check=True)
    steps = args.env_steps or curve.env_steps
    found = bench_sb3.run_peer(
        *(seed, curve.env, "--target=inf", f"--max-steps={steps}"),
        timeout_s=args.max_seconds + 120,
    )
    return [Point(label=args.label, seed=seed, **each) for each in found["evaluations"]]


def evaluations(records: Path, label: str, seed: int, began: float) -> Iterator[Point]:
    """What a run's own recorder wrote of its evaluations."""
    version = 0
    with records.open(newline="") as file:
        for row in csv.DictReader(file):
            if row["name"] == "eval/version":
                version = int(float(row["value"]))
            elif row["name"] == "eval/mean_reward":
                seconds = float(row["time_s"]) - began
                yield Point(label, seed, int(row["step"]), version, seconds, float(row["value"]))


def run_all(args: argparse.Namespace) -> None:
    curves = [curve for curve in study() if not args.pairs or curve.name in args.pairs]
    unknown = set(args.pairs) - {curve.name for curve in curves}
    if unknown:
        raise SystemExit(f"{', '.join(unknown)}: not in {PLACE / 'curves.toml'}")
    for curve in curves:
        for seed in args.seeds:
            file = DATA / f"{curve.name}.csv"
            is_there = any(p.label == args.label and p.seed == seed for p in read_points(file))
            if is_there and not args.again:
                continue
            points = (run_peer if args.peer else run)(curve, seed, args)
            if not points:
                raise SystemExit(f"{curve.name} seed {seed}: too short for an evaluation")
            write_points(file, points)
            best = max((point.return_mean for point in points), default=float("nan"))
            print(
                f"{curve.name} {args.label} seed {seed}: best {best:.1f}, "
                f"last {points[-1].return_mean:.1f} after {points[-1].env_steps:,} steps, "
                f"{points[-1].wall_s:.0f} s",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    running = verbs.add_parser("run")
    running.add_argument("pairs", nargs="*", metavar="AGENT-ENV", help="all of the list")
    running.add_argument("--seeds", nargs="+", type=int, default=SEEDS)
    running.add_argument("--networked", action="store_true", help="daemons, not --in-process")
    running.add_argument("--peer", action="store_true", help="Stable-Baselines3 in our place")
    running.add_argument("--label", help="the curve's name; default: how it ran")
    running.add_argument("--env-steps", type=int, default=0, help="in the list's place")
    running.add_argument("--max-seconds", type=float, default=3600.0, help="of one run")
    running.add_argument("--set", nargs="+", action="extend", default=[], metavar="KEY=VALUE")
    running.add_argument("--again", action="store_true", help="replace what is in the data")
    verbs.add_parser("draw")
    args = parser.parse_args()
    if args.verb == "draw":
        curves_draw.draw_all()
        return
    own = "networked" if args.networked else "in-process"
    args.label = args.label or (PEER if args.peer else own)
    run_all(args)


if __name__ == "__main__":
    main()
