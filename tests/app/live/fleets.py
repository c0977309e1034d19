"""Statuses of fleets of any size, as a learner sends them."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from vedette_services.status.schema import decode
from vedette_services.status.status import Status, rollout_of

VERSION = 12_000
ERROR = "ValueError: the simulator lost its license and will not step any further today"


def manager(number: int, actors: int = 8) -> dict[str, Any]:
    """Make a manager that is well."""
    return {
        "id": f"host-{number:03d}",
        "host": f"host-{number:03d}.rack{number % 4}.example.org",
        "state": "running",
        "left": False,
        "actors": [actor(index) for index in range(actors)],
        "actors_hidden": 0,
        "samples_per_sec": 2000.0 + number,
        "window": {"batches": 20, "bytes": 400_000},
        "last_seen_s": 0.4,
    }


def actor(index: int) -> dict[str, Any]:
    """Make an actor that plays."""
    return {
        "id": index,
        "alive": True,
        "restarts": 0,
        "env_steps": 10_000,
        "episodes": 100,
        "version": VERSION - 10 - index,
        "return_mean": 200.0 + index,
        "length_mean": 200.0,
        "error": "",
    }


def gone(made: dict[str, Any], *, left: bool = False) -> dict[str, Any]:
    """Copy a manager, which has been silent for two minutes or has left."""
    actors = [{**one, "alive": False} for one in made["actors"]]
    rate = {"samples_per_sec": 0.0, "last_seen_s": 125.0}
    return {**made, **rate, "state": "gone", "left": left, "actors": actors}


def broken(made: dict[str, Any], error: str = ERROR) -> dict[str, Any]:
    """Copy a manager, with an actor that is down."""
    first = {**made["actors"][0], "alive": False, "restarts": 4, "error": error}
    return {**made, "actors": [first, *made["actors"][1:]]}


def full(made: dict[str, Any]) -> dict[str, Any]:
    """Copy a manager, with a full window."""
    return {**made, "window": {"batches": 1020, "bytes": 400_000}}


def made(said: dict[str, Any]) -> Status:
    """Decode a status like a learner's answer."""
    found = decode(Status, json.dumps(said).encode())
    assert found is not None
    return found


def fleet(managers: list[dict[str, Any]], **more: Any) -> Status:
    """Make a status with these managers."""
    said = {
        "run_id": "0123456789abcdef",
        "env": "ALE/Pong-v5",
        "agent": "dqn",
        "epoch": 2,
        "version": VERSION,
        "opt_steps": VERSION,
        "env_steps": 4_123_456,
        "phase": "training",
        "seconds": 3725.0,
        "waits": "",
        "stop": {"max_opts": 100_000, "target_return": 18.0},
        "samples": {
            "produced": 4_123_456,
            "inserted": 4_120_000,
            "duplicates": 12,
            "rejected": 3,
            "dropped": 0,
            "lost": 400,
            "in_flight": 3053,
        },
        "rates": {
            "samples_per_sec": 203_400.4,
            "opt_steps_per_sec": 19.25,
            "samples_per_opt_step": 343.3,
        },
        "time": {"optimizing_s": 2000.0, "sampling_s": 400.0, "waiting_s": 1200.0},
        "replay": {"size": 1_000_000, "capacity": 1_000_000, "bytes": 7_520_000_000},
        "limiter": {"samples_per_insert": 1.49, "state": "open", "reason": ""},
        "lag": {"mean": 12.4, "p95": 20, "max": 31, "seconds_mean": 0.64},
        "eval": {
            "return_mean": 10.25,
            "return_std": 2.0,
            "version": 11_000,
            "best_return_mean": 12.5,
            "best_version": 10_000,
        },
        "window_limits": {"batches": 1024, "bytes": 64 << 20},
        "managers": managers,
        **more,
    }
    status = made(said)
    return replace(status, rollout=rollout_of(status.managers))  # as a learner does
