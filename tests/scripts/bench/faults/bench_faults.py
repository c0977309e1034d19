"""Faults in parts of `scripts/bench_gpu`; BENCH_FAULT says in which and what: ``check-dqn:nan``."""

from __future__ import annotations

import os
import signal
import sys
import threading
from typing import Any


def put_fault(fault: str) -> None:
    """Have DQN's second agent, which is the captured one on a GPU, do something else."""
    from vedette_rl.agents.dqn.agent import DqnAgent

    build, step = DqnAgent.__init__, DqnAgent.step
    built: list[Any] = []

    def counted(self: Any, *arguments: Any, **keywords: Any) -> None:
        build(self, *arguments, **keywords)
        built.append(self)

    def faulty(self: Any, *arguments: Any) -> Any:
        result = step(self, *arguments)
        if len(built) < 2 or self is not built[1] or self.opt_steps < 5:
            return result
        match fault:
            case "nan":
                return result._replace(td_errors=result.td_errors * float("nan"))
            case "other":
                return result._replace(td_errors=result.td_errors + 0.5)
            case "model":
                self._online.data.add_(float("nan"))
                return result
            case "api":
                raise AttributeError("'CUDAGraph' object has no attribute 'replay'")
            case "illegal":
                raise RuntimeError("CUDA error: an illegal memory access was encountered")
            case "hang":
                threading.Event().wait()
            case "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            case "exit":
                os._exit(3)
        raise AssertionError(fault)

    DqnAgent.__init__, DqnAgent.step = counted, faulty  # type: ignore[method-assign]


def put_fault_in_part() -> None:
    """Put it into the process of its part alone."""
    part, _, fault = os.environ.get("BENCH_FAULT", "").partition(":")
    if part and part in sys.orig_argv and "bench.gpu_parts" in sys.orig_argv:
        put_fault(fault)
