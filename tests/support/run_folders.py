"""Makes run directories like those of real runs, without running any."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from configurations import configured

from vedette_rl.recording.tensorboard import TensorboardRecorder
from vedette_services.config import write_config
from vedette_services.run.events import EventFile, RunEvent

BEGAN_S = 1_700_000_000.0


class Clock:
    """A clock that advances by ten seconds at every call."""

    def __init__(self, begin_s: float = BEGAN_S) -> None:
        self.now_s = begin_s

    def __call__(self) -> float:
        self.now_s += 10.0
        return self.now_s


def make_run(run: Path, *, height: float = 1.0, points: int = 5, **table: Any) -> Path:
    """Make the directory of a run that has ended well.

    Args:
        run: its directory.
        height: of its curves.
        points: of each curve.
        table: its configuration.
    """
    run.mkdir(parents=True)
    config = configured(table={"env": {"id": "CartPole-v1"}, **table})
    write_config(config, run / "config.toml")
    recorder = TensorboardRecorder(run / "tensorboard", clock=Clock())
    for step in range(1, points + 1):
        value = height * step
        recorder.write({"train/loss": 1 / value}, step * 10)
        recorder.write({"rollout/ep_rew_mean": value, "samples_per_sec": 100.0}, step * 100)
        recorder.write(
            {
                "eval/mean_reward": value,
                "eval/std_reward": 0.5,
                "eval/min_reward": value - 1,
                "eval/max_reward": value + 1,
                "eval/episodes": 20.0,
            },
            step * 100,
        )
    recorder.close()
    write_summary(run, best=height * points)
    log = EventFile(run / "events.jsonl")
    log.add(
        RunEvent(BEGAN_S, "started", "learner", "on gpu-1 at 127.0.0.1:5555"),
        RunEvent(BEGAN_S + 1, "epoch", "trainer", "epoch 1", 1),
        RunEvent(BEGAN_S + 5, "joined", "alpha", "on gpu-1, 2 actors", 1, 0, 10),
        RunEvent(BEGAN_S + 60, "left", "alpha", "normally", 1, 50, 400),
        RunEvent(BEGAN_S + 100, "ended", "learner", "max_opts", 1, 50, 500),
    )
    return run


def write_summary(run: Path, *, best: float, **more: Any) -> None:
    """Write the summary of a run that has ended well."""
    summary: dict[str, Any] = {
        "run_id": "0123456789abcdef",
        "time_s": BEGAN_S + 100,
        "epoch": 1,
        "opt_steps": 50,
        "env_steps": 500,
        "exit_reason": "max_opts",
        "seconds": 90.0,
        "samples": {
            "produced": 510,
            "inserted": 500,
            "dropped": 4,
            "rejected": 0,
            "in_flight": 0,
            "lost": 6,
            "duplicates": 1,
        },
        "rates": {"samples_per_sec": 100.0, "opt_steps_per_sec": 12.0},
        "time": {"optimizing_s": 60.0, "sampling_s": 20.0, "waiting_s": 10.0},
        "lag": {"seconds_mean": 0.25},
        "replay": {"size": 500, "capacity": 50_000, "bytes": 1 << 20},
        "eval": {"best_return_mean": best, "best_version": 50},
        "managers": [
            {
                "id": "alpha",
                "host": "gpu-1",
                "state": "gone",
                "left": True,
                "actors": [
                    {
                        "id": 0,
                        "restarts": 1,
                        "env_steps": 500,
                        "episodes": 9,
                        "return_mean": 7.0,
                        "error": "ValueError: no",
                    }
                ],
            }
        ],
        **more,
    }
    (run / "summary.json").write_text(json.dumps(summary))
