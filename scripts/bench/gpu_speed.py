"""The speed of the learner on its device, case by case; parts of `scripts/bench_gpu`.

A case is an agent, a full replay on disk in frames or rows, and the trainer's own loop with its
loader, its timers and a copy of the model every `learner.sync_interval` steps. Not part of it: the
processes beside the trainer, the recorder, checkpoints. What is compared (`SIDES`, and a captured
loop in plain torch on one batch that stays on the device) is measured in turn within every round,
between two synchronizations with the device; the first round warms up and is left out.
"""

from __future__ import annotations

import json
import select
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
import torch

from bench.bare_loop import imitate_trainer
from bench.gpu_ingest import Case
from bench.gpu_loops import handwritten_step
from bench.measuring import ratio_of_rounds, summarize_rounds
from vedette_rl.agents.registry import agent_kind
from vedette_rl.core import Agent, State
from vedette_rl.device.host_copy import mark_work
from vedette_rl.device.loader import RingLoader, make_loader
from vedette_rl.replay.frame_ring import open_reader
from vedette_rl.replay.prioritized import PrioritizedReplay
from vedette_rl.replay.uniform import UniformReplay
from vedette_services.learner.trainer.learner import (
    configured_arithmetic,
    gather_capture,
    prepare_steps,
)
from vedette_services.learner.trainer.training_loop import TrainingLoop
from vedette_services.run.replay_layout import make_run_limiter
from vedette_services.status.records import TrainerStatus

FILL_S = 120.0
SECONDS, ROUNDS, PART = 1.0, 5, 0.2
"""Of a window; rounds beside the one that warms up; share of a window that a part is given."""
QUICK_SECONDS = 0.03
QUICK_ROUNDS = 1

SIDES = {
    "eager": (False, False),
    "eager_on_the_copy": (False, True),
    "captured": (True, False),
    "captured_on_the_copy": (True, True),
}
"""Whether steps are captured, and whether batches are gathered in a copy of the replay there."""

DEFAULT = "captured_on_the_copy"
BY_HAND = "by_hand"
_PROFILED = 50  # steps


class TimedCallbacks:
    """The `LoopCallbacks` of a training loop that ends after a time."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._end = 0.0

    def publish(self, agent: Agent) -> None:
        agent.model_info()

    def save(self, agent: Agent, learning: TrainerStatus, errors: State) -> None: ...

    def record(self, record: dict[str, float], opt_steps: int) -> None: ...

    def flush(self, opt_steps: int) -> None: ...

    def tick(self, learning: TrainerStatus) -> str:
        now = time.monotonic()
        if not self._end:
            self._end = now + self._seconds
        return "interrupted" if now >= self._end else ""


class Side:
    """An agent with the loader of its batches.

    Args:
        case: what to measure.
        directory: of its replay, which is full.
        captured, copied: as `SIDES` has them.
    """

    def __init__(
        self,
        case: Case,
        directory: Path,
        device: torch.device,
        *,
        captured: bool,
        copied: bool,
        quick: bool,
    ) -> None:
        config = self._config = case.config(quick=quick)
        self._device = device
        self.seconds = QUICK_SECONDS if quick else SECONDS
        self.agent: Any = agent_kind(case.agent).build_agent(
            config.agent, case.spaces, device=str(device), seed=0
        )
        learner = config.learner.model_copy(update={"captured_step": captured})
        prepare_steps(self.agent, device, learner)
        ring = open_reader(directory)
        rng = np.random.default_rng(0)
        self.replay: Any = (
            PrioritizedReplay(ring, rng, config.replay)  # its own: other sides' are other ones
            if case.prioritized
            else UniformReplay(ring, rng)
        )
        size = config.agent.batch_size
        capture = gather_capture(device, learner)
        self.loader: Any = make_loader(
            self.replay, size, device, copy_replay=copied, capture=capture
        )

    def train(self) -> tuple[TrainerStatus, float]:
        """The trainer's loop for a window; its last status, and optimization steps a second."""
        begin = self.agent.opt_steps
        loop = TrainingLoop(
            self.agent,
            self.replay,
            self.loader,
            make_run_limiter(self._config),
            self._config.learner,
            TimedCallbacks(self.seconds),
            learning=TrainerStatus(opt_steps=begin),
            max_opts=0,
            samples_per_opt=self._config.samples_per_opt,
            mark=partial(mark_work, self._device),
        )
        synchronize(self._device)
        began = time.perf_counter()
        learning = loop.run()
        synchronize(self._device)
        return learning, (self.agent.opt_steps - begin) / (time.perf_counter() - began)

    def opt(self) -> None:
        """One optimization step on one batch."""
        loaded = self.loader.load()
        self.agent.opt(loaded.batch, loaded.weights)

    def facts(self) -> dict[str, Any]:
        """What is true of all rounds."""
        held = self.agent._captured
        return {
            "loader": type(self.loader).__name__,
            "kinds_captured": held.kinds_captured if held else 0,
            "not_captured_because": held.reason if held else "",
            "gather_captured": isinstance(self.loader, RingLoader) and self.loader.is_captured,
            "waits_in_100_steps": self._waits(100),
            **self._traffic(),
        }

    def _waits(self, steps: int) -> int | None:
        """Operations of so many steps that made the host wait for the device."""
        if self._device.type != "cuda":
            return None
        mode = torch.cuda.get_sync_debug_mode()
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            torch.cuda.set_sync_debug_mode("warn")
            try:
                for _ in range(steps):
                    self.opt()
            finally:
                torch.cuda.set_sync_debug_mode(mode)
        return sum("synchronizing CUDA" in str(warning.message) for warning in heard)

    def _traffic(self) -> dict[str, Any]:
        """Bytes that cross to the device and back for a step, as torch's profiler has them."""
        if self._device.type != "cuda":
            return {"bytes_to_device": None, "bytes_to_host": None}
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
            for _ in range(_PROFILED):
                self.opt()
            synchronize(self._device)
        with tempfile.TemporaryDirectory(prefix="vedette-bench-") as scratch:
            trace = Path(scratch) / "trace.json"
            profiler.export_chrome_trace(str(trace))
            events = json.loads(trace.read_text())["traceEvents"]
        moved = {"HtoD": 0, "DtoH": 0}
        for event in events:
            for way in moved:
                if event.get("cat") == "gpu_memcpy" and way in event.get("name", ""):
                    moved[way] += int(event["args"].get("bytes", 0))
        return {
            "bytes_to_device": moved["HtoD"] / _PROFILED,
            "bytes_to_host": moved["DtoH"] / _PROFILED,
        }


def synchronize(device: torch.device) -> None:
    """Wait for the device."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def call_s(work: Callable[[], object], seconds: float, device: torch.device) -> float:
    """Seconds of a call, one after the other."""
    synchronize(device)
    calls = 0
    began = time.perf_counter()
    while time.perf_counter() - began < seconds:
        work()
        calls += 1
    synchronize(device)
    return (time.perf_counter() - began) / calls


def parts_ms(side: Side, device: torch.device) -> dict[str, float]:
    """Milliseconds of what a step is made of, each by itself."""
    loaded = side.loader.load()
    works: dict[str, Callable[[], object]] = {
        "opt_ms": lambda: side.agent.opt(loaded.batch, loaded.weights),
        "load_ms": side.loader.load,
        "model_copy_ms": side.agent.model_info,
    }
    return {name: 1e3 * call_s(work, PART * side.seconds, device) for name, work in works.items()}


def measure(case: Case, name: str, device: torch.device, *, quick: bool) -> dict[str, Any]:
    """One case: each figure as median, least and most of its rounds; ratios within a round."""
    on_gpu = device.type == "cuda"
    config = case.config(quick=quick)
    with (
        imitate_trainer(),
        ingest_process(name, quick=quick) as (directory, _),
        configured_arithmetic(config.learner, device),
    ):
        sides = {
            side: Side(case, directory, device, captured=captured, copied=copied, quick=quick)
            for side, (captured, copied) in SIDES.items()
        }
        by_hand = handwritten_step(case, config.agent.batch_size, device)
        rounds: list[dict[str, float]] = []
        for _ in range(1 + (QUICK_ROUNDS if quick else ROUNDS)):
            rates = {side: of.train()[1] for side, of in sides.items()}
            rates[BY_HAND] = 1 / call_s(by_hand, sides[DEFAULT].seconds, device)
            rounds.append({**rates, **parts_ms(sides[DEFAULT], device)})
        facts = {side: of.facts() for side, of in sides.items()}
        memory = _peak_memory(sides[DEFAULT], device) if on_gpu else {}
    figures = {key: [one[key] for one in rounds[1:]] for key in rounds[0]}
    ours = figures[DEFAULT]
    return {
        "done": True,
        "agent": case.agent,
        "batch_size": config.agent.batch_size,
        "prioritized": case.prioritized,
        "capacity": config.replay.capacity,
        "opt_steps_per_s": {side: summarize_rounds(figures[side]) for side in (*SIDES, BY_HAND)},
        "ratio_to": {side: ratio_of_rounds(ours, figures[side]) for side in ("eager", BY_HAND)},
        "ms": {part: summarize_rounds(figures[part]) for part in figures if part.endswith("_ms")},
        "sides": facts,
        "peak_device_bytes": memory.get("allocated"),
        "peak_device_reserved_bytes": memory.get("reserved"),
    }


def _peak_memory(side: Side, device: torch.device) -> dict[str, int]:
    """Of the process while one side trains; all sides are in it."""
    torch.cuda.reset_peak_memory_stats(device)
    side.train()
    return {
        "allocated": torch.cuda.max_memory_allocated(device),
        "reserved": torch.cuda.max_memory_reserved(device),
    }


def measure_with_ingest(
    case: Case, name: str, device: torch.device, *, quick: bool
) -> dict[str, Any]:
    """The default side with and without samples that come in, in turn."""
    config = case.config(quick=quick)
    with (
        imitate_trainer(),
        ingest_process(name, quick=quick) as (directory, ingest),
        configured_arithmetic(config.learner, device),
    ):
        side = Side(case, directory, device, captured=True, copied=True, quick=quick)
        rounds = []
        for _ in range(1 + (QUICK_ROUNDS if quick else ROUNDS)):
            _, alone = side.train()
            ingest.write(b"i")
            before = side.replay.inserted
            began = time.perf_counter()
            _, beside = side.train()
            rows = side.replay.inserted - before
            took_s = time.perf_counter() - began
            ingest.write(b"h")
            rounds.append((alone, beside, rows / took_s))
    alone_rates, beside_rates, rows_per_s = (list(x) for x in zip(*rounds[1:], strict=True))
    return {
        "done": True,
        "opt_steps_per_s": summarize_rounds(alone_rates),
        "opt_steps_per_s_with_ingest": summarize_rounds(beside_rates),
        "ratio_with_ingest": ratio_of_rounds(beside_rates, alone_rates),
        "ingest_rows_per_s": summarize_rounds(rows_per_s),
        "wanted_rows_per_s": case.ingest_rows_per_s,
    }


@contextmanager
def ingest_process(name: str, *, quick: bool) -> Iterator[tuple[Path, BinaryIO]]:
    """A case's full replay, and the input of the process that inserts; both are gone afterwards.

    Raises:
        RuntimeError: it was not filled in time, or the process has ended.
    """
    with tempfile.TemporaryDirectory(prefix="vedette-bench-") as scratch:
        directory = Path(scratch) / "replay"
        size = "quick" if quick else "full"
        command = [sys.executable, "-m", "bench.gpu_ingest", name, str(directory), size]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, stdin=pipe, stdout=pipe, bufsize=0) as process:
            try:
                assert process.stdin is not None
                assert process.stdout is not None
                ready, _, _ = select.select([process.stdout], [], [], FILL_S)
                if not ready or process.stdout.read(1) != b"f":
                    raise RuntimeError(f"the replay was not filled within {FILL_S:.0f} s")
                yield directory, cast(BinaryIO, process.stdin)
            finally:
                process.kill()
