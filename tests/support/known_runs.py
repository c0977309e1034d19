"""Runs whose right picture is known by hand: seeds that stopped, crashed, resumed, or go on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from configurations import configured
from run_folders import BEGAN_S, write_summary

from vedette_rl.recording.tensorboard import TensorboardRecorder
from vedette_services.config import write_config
from vedette_services.run.events import EventFile, RunEvent

TARGET = 475.0
STEPS_PER_S = 100.0
"""Env steps in a second; an optimization step follows every second env step."""

Point = tuple[int, float]
"""Env steps and a return."""


def known_run(
    run: Path,
    *,
    evaluations: Sequence[Point],
    actors: Sequence[Point] = (),
    seed: int = 0,
    exit_reason: str = "max_env_steps",
    resumed_at: int | None = None,
    confirmed: Point | None = None,
    **table: Any,
) -> Path:
    """Make the directory of a run with exactly these curves.

    Args:
        actors: the actors' returns; (): half of the evaluations.
        exit_reason: ``target_return``, another one, or "" for a run that was killed.
        resumed_at: env steps at which a second start, an hour later, went on.
        confirmed: the evaluation at the target, and the mean return of its 100 fresh episodes;
            None: the last one of a run that ended at its target.
        table: its configuration.
    """
    run.mkdir(parents=True)
    stop = {"target_return": TARGET, "max_env_steps": 10_000, **table.pop("stop", {})}
    config = configured(table={"seed": seed, "env": {"id": "CartPole-v1"}, "stop": stop, **table})
    write_config(config, run / "config.toml")
    pause_s = 3600.0

    def time_of(step: int) -> float:
        late = resumed_at is not None and step > resumed_at
        return BEGAN_S + step / STEPS_PER_S + (pause_s if late else 0.0)

    rows: list[tuple[int, dict[str, float]]] = []
    for step, value in actors or [(step, value / 2) for step, value in evaluations]:
        rows.append((step, {"rollout/ep_rew_mean": value, "samples_per_sec": STEPS_PER_S}))
    for step, value in evaluations:
        versions = {"eval/version": step / 2, "eval/episodes": 20.0}
        if confirmed is not None and step == confirmed[0]:
            versions["eval/fresh_mean_reward"] = confirmed[1]
        rows.append((step, {"eval/mean_reward": value, **versions}))
    now_s = BEGAN_S
    recorder = TensorboardRecorder(run / "tensorboard", clock=lambda: now_s)
    for step, values in sorted(rows, key=lambda row: row[0]):
        now_s = time_of(step)
        recorder.write(values, step)
    recorder.close()
    last = evaluations[-1][0]
    events = [RunEvent(BEGAN_S, "started", "learner"), RunEvent(BEGAN_S, "epoch", "trainer", "", 1)]
    if resumed_at is not None:
        again_s = BEGAN_S + resumed_at / STEPS_PER_S + pause_s
        events.append(RunEvent(again_s, "started", "learner"))
        epoch = RunEvent(again_s, "epoch", "trainer", "epoch 2", 2, resumed_at // 2, resumed_at)
        events.append(epoch)
    if exit_reason:
        events.append(RunEvent(time_of(last), "ended", "learner", exit_reason))
    EventFile(run / "events.jsonl").add(*events)
    best = max(value for _, value in evaluations)
    evaluated: dict[str, Any] = {
        "return_mean": evaluations[-1][1],
        "best_return_mean": best,
        "best_version": last // 2,
    }
    if exit_reason == "target_return" or confirmed is not None:
        reached_at, reached = confirmed or evaluations[-1]
        evaluated |= {
            "reached_return_mean": reached,
            "reached_version": reached_at // 2,
            "reached_episodes": 100,
        }
    write_summary(
        run,
        best=best,
        env_steps=last,
        opt_steps=last // 2,
        exit_reason=exit_reason,
        seconds=last / STEPS_PER_S,
        time_s=time_of(last),
        epoch=1 if resumed_at is None else 2,
        eval=evaluated,
        stop=stop,
        managers=[],
    )
    (run / "run.json").write_text('{"run_id": "0123456789abcdef", "epoch": 1}')
    return run


def line(first: Point, last: Point, points: int) -> list[Point]:
    """Return points at even distances on the line between two."""
    (x0, y0), (x1, y1) = first, last
    shares = [k / (points - 1) for k in range(points)]
    return [(round(x0 + share * (x1 - x0)), y0 + share * (y1 - y0)) for share in shares]


def five_seeds(folder: Path) -> Path:
    """Four seeds that stopped at the target, and one that ends at 404 after 10,000 env steps.

    From 6,000 env steps on the fifth is alone: 72 there, and 404 at the end.
    """
    for seed, end in enumerate((2_000, 3_000, 4_000, 5_000)):
        evaluations = line((1_000, 100.0), (end, 480.0), 5)
        known_run(
            folder / f"{seed}", seed=seed, evaluations=evaluations, exit_reason="target_return"
        )
    slow = [*line((1_000, 20.0), (6_000, 72.0), 6), *line((7_000, 155.0), (10_000, 404.0), 4)]
    known_run(folder / "4", seed=4, evaluations=slow)
    return folder


def crashed_seeds(folder: Path) -> Path:
    """Three seeds of 10,000 env steps at 100, 200 and 300, and one killed after 4,000 at 400."""
    for seed, value in enumerate((100.0, 200.0, 300.0)):
        evaluations = line((1_000, value), (10_000, value), 10)
        known_run(folder / f"{seed}", seed=seed, evaluations=evaluations)
    evaluations = line((1_000, 400.0), (4_000, 400.0), 4)
    known_run(folder / "3", seed=3, evaluations=evaluations, exit_reason="")
    return folder


def fifty_runs(folder: Path, points: int = 47) -> Path:
    """Ten learning rates, five seeds each: every curve rises, and only its last point is 475.6."""
    for number in range(50):
        rate, seed = divmod(number, 5)
        last = 48_144
        evaluations = [
            *line((1_000, 20.0 + rate), (last - 1_000, 380.0 + rate), points - 1),
            (last, 475.6),
        ]
        known_run(
            folder / f"rate-{rate}-seed-{seed}",
            seed=seed,
            evaluations=evaluations,
            exit_reason="target_return",
            agent={"name": "dqn", "learning_rate": round(0.0001 * 2**rate, 6)},
            stop={"max_env_steps": 50_000},
        )
    return folder
