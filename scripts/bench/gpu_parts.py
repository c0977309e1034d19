"""The parts of `scripts/bench_gpu`, each run in a process of its own.

`python -m bench.gpu_parts NAME OUT.json cpu|cuda quick|full RUNS SECONDS STACK_S` writes a part's
result: with "done", or with "error" and "traceback". After STACK_S it writes where it stands.
"""

from __future__ import annotations

import faulthandler
import json
import math
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from bench import gpu_checks, gpu_learning, gpu_speed
from bench.gpu_ingest import CASES


@dataclass(frozen=True, slots=True)
class Order:
    """How a part is to be done.

    Args:
        device: where.
        quick: see that it runs; times mean nothing.
        runs: a directory for what is continued by later calls.
        seconds: that are left of this call.
    """

    device: torch.device
    quick: bool
    runs: Path
    seconds: float


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the hour.

    Args:
        work: does it; its result has "done" unless it is to be continued.
        full_s: the seconds after which it is ended.
        grace_s: seconds of these that it has beyond the end of a call.
    """

    work: Callable[[Order], dict[str, Any]]
    full_s: float
    grace_s: float = 30.0

    def bound_s(self, *, quick: bool) -> float:
        """The seconds after which it is ended."""
        return min(self.full_s, _QUICK_S) if quick else self.full_s


_QUICK_S = 90.0


def _check(name: str) -> Part:
    def work(order: Order) -> dict[str, Any]:
        return gpu_checks.CHECKS[name](order.device, quick=order.quick)

    return Part(work, 120.0)


def _speed(name: str) -> Part:
    def work(order: Order) -> dict[str, Any]:
        return gpu_speed.measure(CASES[name], name, order.device, quick=order.quick)

    return Part(work, 240.0)


def _ingest(name: str) -> Part:
    def work(order: Order) -> dict[str, Any]:
        return gpu_speed.measure_with_ingest(CASES[name], name, order.device, quick=order.quick)

    return Part(work, 180.0)


def _learning(name: str) -> Part:
    def work(order: Order) -> dict[str, Any]:
        study = gpu_learning.STUDIES[name]
        return gpu_learning.learn(
            study, order.runs / name, order.device, quick=order.quick, seconds=order.seconds
        )

    return Part(work, math.inf, grace_s=60.0)


_FIRST = ("sac-hopper-256", "dqn-cartpole-256", "dqn-atari-512")
PARTS: dict[str, Part] = {
    **{f"check-{name}": _check(name) for name in gpu_checks.CHECKS},
    **{name: _speed(name) for name in _FIRST},
    **{f"ingest-{name}": _ingest(name) for name in _FIRST},
    **{name: _speed(name) for name in CASES if name not in _FIRST},
    **{f"learn-{name}": _learning(name) for name in gpu_learning.STUDIES},
}
"""By name, in the order of their value."""


def run(name: str, order: Order) -> dict[str, Any]:
    """Do a part; what it gives, or its error."""
    try:
        result: dict[str, Any] = _finite(PARTS[name].work(order))
    except Exception as error:  # noqa: BLE001 - whatever it is, it is told, and the next part runs
        failed = {
            "error": f"{type(error).__name__}: {error}",
            "traceback": traceback.format_exc(),
        }
        if "CUDA error" in str(error):
            failed["hint"] = "an earlier operation may have caused it: set CUDA_LAUNCH_BLOCKING=1"
        return failed
    return result


def _finite(value: Any) -> Any:
    """Say numbers that JSON has not in words."""
    if isinstance(value, dict):
        return {name: _finite(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def main() -> None:
    """Do one part and write its result."""
    name, out, device, size, runs, seconds, stack_s = sys.argv[1:8]
    if math.isfinite(float(stack_s)):
        faulthandler.dump_traceback_later(float(stack_s))
    where = torch.device("cpu")
    if device == "cuda":
        where = torch.device("cuda", torch.cuda.current_device())
    order = Order(where, size == "quick", Path(runs), float(seconds))
    result = run(name, order)
    aside = Path(f"{out}.part")
    aside.write_text(json.dumps(result, allow_nan=False))
    aside.replace(out)


if __name__ == "__main__":
    main()
