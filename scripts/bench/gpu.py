"""Measures the learner on its device, case by case; run by `scripts/bench/run gpu`.

A case is an agent, a full replay on disk in frames or rows, and the trainer's own loop with its
loader, its timers and a copy of the model every `learner.sync_interval` steps. Not part of it: the
processes beside the trainer, the recorder, checkpoints. On a GPU steps are captured and the replay
is copied there, as by default; *eager* is the same without either, *resident* our steps on one
batch that stays on the device, *by hand* a captured loop in plain torch on such a batch. What is
compared is measured in turn within every round, between two synchronizations with the device; the
first round warms up and is left out. Before all cases, captured steps are compared with steps as
they are: "checks".

The file: {"format", "runs": [{"identity", "machine", "checks", "cases": {NAME: {...}}}]}. A run is
continued by calls with the same identity: source, commit, device, processor, torch and settings.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec

NEEDED = (
    *("annotated_types", "cloudpickle", "farama_notifications", "gymnasium", "msgpack", "numpy"),
    *("pydantic", "pydantic_core", "safetensors", "tomli_w", "torch", "typing_extensions"),
    *("typing_inspection", "vedette", "vedette_protocol", "vedette_rl", "vedette_services"),
)
"""Modules that the measured part of the project imports."""

try:
    import argparse
    import gc
    import hashlib
    import json
    import os
    import platform
    import select
    import signal
    import subprocess
    import tempfile
    import time
    import warnings
    from collections.abc import Callable, Iterator
    from contextlib import contextmanager
    from pathlib import Path
    from typing import Any, BinaryIO, cast

    import numpy as np
    import torch

    from bench.bare_loop import imitate_trainer
    from bench.gpu_ingest import CASES, Case
    from bench.gpu_loops import CHECKED_STEPS, check_agents, handwritten_step
    from bench.measuring import ratio_of_rounds, summarize_rounds
    from vedette_rl.agents.registry import agent_kind
    from vedette_rl.core import Agent
    from vedette_rl.device.loader import make_loader
    from vedette_rl.replay.frame_ring import open_reader
    from vedette_rl.replay.prioritized import PrioritizedReplay, open_priorities
    from vedette_rl.replay.uniform import UniformReplay
    from vedette_services.learner.trainer.learner import prepare_steps
    from vedette_services.learner.trainer.training_loop import TrainingLoop
    from vedette_services.run.replay_layout import make_run_limiter
    from vedette_services.status.records import TrainerStatus
except ModuleNotFoundError as error:
    names = dict.fromkeys([*NEEDED, error.name or ""])
    missing = ", ".join(name for name in names if name and "." not in name and not find_spec(name))
    sys.exit(
        f"bench_gpu: {sys.executable} lacks {missing or error.name}: install it, or set PYTHON"
    )

ROOT = Path(__file__).resolve().parents[2]
FILL_S = 120.0
SECONDS, ROUNDS, PART = 1.5, 5, 0.2
"""Of a window; rounds beside the one that warms up; share of a window that a part is given."""
QUICK_SECONDS = 0.05
QUICK_ROUNDS = 1
QUICK_CHECKS = 10


class OutOfTimeError(Exception):
    """The minutes of this call are used up; the case is measured by the next one."""


class TimedCallbacks:
    """The `LoopCallbacks` of a training loop that ends after a time."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._end = 0.0

    def publish(self, agent: Agent) -> None:
        agent.model_info()

    def save(self, agent: Agent, learning: TrainerStatus) -> None: ...

    def record(self, record: dict[str, float], opt_steps: int) -> None: ...

    def flush(self, opt_steps: int) -> None: ...

    def tick(self, learning: TrainerStatus) -> str:
        now = time.monotonic()
        if not self._end:
            self._end = now + self._seconds
        return "interrupted" if now >= self._end else ""


class Measurement:
    """A case with its agent on the device, measured round by round.

    Args:
        case: what to measure.
        directory: of its replay, which is full.
        ingest: the input of the process that inserts.
        quick: as `Case.config` has it; windows are short too.
    """

    def __init__(
        self, case: Case, directory: Path, ingest: BinaryIO, device: torch.device, *, quick: bool
    ) -> None:
        config = self.config = case.config(quick=quick)
        self._case = case
        self._directory = directory
        self._ingest = ingest
        self._device = device
        self._seconds = QUICK_SECONDS if quick else SECONDS
        self.agent, self._eager_agent = (
            agent_kind(case.agent).build_agent(
                config.agent, case.spaces, device=str(device), seed=0
            )
            for _ in range(2)
        )
        prepare_steps(self.agent, device, config.learner)
        self._replay, self._loader = self._replay_and_loader(copy_replay=True)
        self._eager = self._replay_and_loader(copy_replay=False)
        loaded = self._loader.load()
        self._batch = loaded.batch
        self._weights = loaded.weights
        self._host = {name: column.cpu() for name, column in self._batch.items()}
        if device.type == "cuda":
            self._host = {name: column.pin_memory() for name, column in self._host.items()}
        self._handwritten_step = handwritten_step(case, config.agent.batch_size, device)

    def _replay_and_loader(self, *, copy_replay: bool) -> tuple[Any, Any]:
        ring = open_reader(self._directory)
        rng = np.random.default_rng(0)
        replay = (
            PrioritizedReplay(ring, rng, self.config.replay, memory=open_priorities(ring))
            if self._case.prioritized
            else UniformReplay(ring, rng)
        )
        batch_size = self.config.agent.batch_size
        return replay, make_loader(replay, batch_size, self._device, copy_replay=copy_replay)

    def facts(self) -> dict[str, Any]:
        """What is true of all rounds."""
        captured = getattr(self.agent, "_captured", None)
        return {
            "batch_bytes": self.batch_bytes,
            "loader": type(self._loader).__name__,
            "kinds_captured": len(captured._replays) if captured else 0,
            "not_captured_because": captured.reason if captured else "no GPU",
            "waits_in_100_steps": self._waits(100),
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
                    loaded = self._loader.load()
                    self.agent.opt(loaded.batch, loaded.weights)
            finally:
                torch.cuda.set_sync_debug_mode(mode)
        return sum("synchronizing CUDA" in str(warning.message) for warning in heard)

    @property
    def batch_bytes(self) -> int:
        """What is copied to the device for a batch."""
        return sum(column.nbytes for column in self._batch.values())

    def round(self, check_time: Callable[[], None]) -> dict[str, float]:
        """Measure everything once."""
        figures: dict[str, float] = {}
        for part in (
            self._handwritten,
            self._resident,
            self._without_capture,
            self._alone,
            self._beside_ingest,
            self._parts,
        ):
            check_time()
            figures |= part()
        return figures

    def _handwritten(self) -> dict[str, float]:
        opt_s = self._call_s(self._handwritten_step, self._seconds)
        return {"handwritten_opt_steps_per_s": 1 / opt_s}

    def _without_capture(self) -> dict[str, float]:
        _, rate = self._train(self._eager_agent, *self._eager)
        return {"eager_opt_steps_per_s": rate}

    def _resident(self) -> dict[str, float]:
        opt_s = self._call_s(lambda: self.agent.opt(self._batch, self._weights), self._seconds)
        return {"resident_opt_steps_per_s": 1 / opt_s, "opt_ms": 1e3 * opt_s}

    def _alone(self) -> dict[str, float]:
        begin = self.agent.opt_steps
        learning, rate = self._train(self.agent, self._replay, self._loader)
        ms_per_opt = 1e3 / (learning.opt_steps - begin)
        return {
            "opt_steps_per_s": rate,
            "loop_opt_host_ms": ms_per_opt * (learning.time.optimizing_s or 0.0),
            "loop_load_host_ms": ms_per_opt * (learning.time.sampling_s or 0.0),
        }

    def _beside_ingest(self) -> dict[str, float]:
        self._ingest.write(b"i")
        before = self._replay.inserted
        began = time.perf_counter()
        _, rate = self._train(self.agent, self._replay, self._loader)
        rows = self._replay.inserted - before
        took = time.perf_counter() - began
        self._ingest.write(b"h")
        return {"opt_steps_per_s_with_ingest": rate, "ingest_rows_per_s": rows / took}

    def _parts(self) -> dict[str, float]:
        """Milliseconds of what a step is made of, each by itself, one call after the other."""
        rows = self.config.agent.batch_size
        seconds = PART * self._seconds
        works: dict[str, Callable[[], object]] = {
            "sample_ms": lambda: self._replay.sample(rows),
            "load_ms": self._loader.load,
            "model_copy_ms": self.agent.model_info,
        }
        if self._device.type == "cuda":  # elsewhere the tensors are the replay's own arrays
            works["host_to_device_ms"] = lambda: [
                column.to(self._device, non_blocking=True) for column in self._host.values()
            ]
        return {name: 1e3 * self._call_s(work, seconds) for name, work in works.items()}

    def _train(self, agent: Agent, replay: Any, loader: Any) -> tuple[TrainerStatus, float]:
        """The trainer's loop for a window; optimization steps a second."""
        begin = agent.opt_steps
        loop = TrainingLoop(
            agent,
            replay,
            loader,
            make_run_limiter(self.config),
            self.config.learner,
            TimedCallbacks(self._seconds),
            learning=TrainerStatus(opt_steps=begin),
            max_opts=0,
            batch_size=self.config.agent.batch_size,
        )
        self._synchronize()
        began = time.perf_counter()
        learning = loop.run()
        self._synchronize()
        return learning, (agent.opt_steps - begin) / (time.perf_counter() - began)

    def _call_s(self, work: Callable[[], object], seconds: float) -> float:
        self._synchronize()
        calls = 0
        began = time.perf_counter()
        while time.perf_counter() - began < seconds:
            work()
            calls += 1
        self._synchronize()
        return (time.perf_counter() - began) / calls

    def _synchronize(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)


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
                assert process.stdin is not None and process.stdout is not None  # noqa: PT018
                ready, _, _ = select.select([process.stdout], [], [], FILL_S)
                if not ready or process.stdout.read(1) != b"f":
                    raise RuntimeError(f"the replay was not filled within {FILL_S:.0f} s")
                yield directory, cast(BinaryIO, process.stdin)
            finally:
                process.kill()


def measure(
    name: str, device: torch.device, check_time: Callable[[], None], *, quick: bool
) -> dict[str, Any]:
    """One case: each figure as median, least and most of its rounds; ratios within a round."""
    rounds = QUICK_ROUNDS if quick else ROUNDS
    began = time.perf_counter()
    on_gpu = device.type == "cuda"
    case = CASES[name]
    gc.collect()
    if on_gpu:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
    with imitate_trainer(), ingest_process(name, quick=quick) as (directory, ingest):
        measurement = Measurement(case, directory, ingest, device, quick=quick)
        measurements = [measurement.round(check_time) for _ in range(1 + rounds)][1:]
        facts = measurement.facts()
    figures = {key: [one[key] for one in measurements] for key in measurements[0]}
    ours, resident = figures["opt_steps_per_s"], figures["resident_opt_steps_per_s"]
    return {
        "agent": case.agent,
        "batch_size": measurement.config.agent.batch_size,
        "prioritized": case.prioritized,
        "capacity": measurement.config.replay.capacity,
        **facts,
        **{key: summarize_rounds(values) for key, values in figures.items()},
        "ratio_to_resident": ratio_of_rounds(ours, resident),
        "ratio_to_handwritten": ratio_of_rounds(ours, figures["handwritten_opt_steps_per_s"]),
        "ratio_to_eager": ratio_of_rounds(ours, figures["eager_opt_steps_per_s"]),
        "ratio_with_ingest": ratio_of_rounds(figures["opt_steps_per_s_with_ingest"], ours),
        "peak_device_bytes": torch.cuda.max_memory_allocated(device) if on_gpu else None,
        "peak_device_reserved_bytes": torch.cuda.max_memory_reserved(device) if on_gpu else None,
        "took_s": time.perf_counter() - began,
    }


def identity_of(device: torch.device, commit: str, *, quick: bool) -> dict[str, Any]:
    """What the results of one run have in common."""
    source = hashlib.sha256()
    files = [*ROOT.glob("*/vedette*/**/*.py"), *ROOT.glob("scripts/bench/*.py")]
    for path in sorted(files):
        source.update(path.read_bytes())
    described = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=12"]
    if not commit and (ROOT / ".git").exists():
        commit = subprocess.run(described, check=False, capture_output=True, text=True).stdout
    on_gpu = device.type == "cuda"
    return {
        "commit": commit.strip() or "unknown",
        "source": source.hexdigest()[:16],
        "device": torch.cuda.get_device_name(device) if on_gpu else "cpu",
        "cpu": _cpu_name(),
        "torch": torch.__version__,
        "quick": quick,
    }


def _cpu_name() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def machine() -> dict[str, Any]:
    """What else is worth knowing of it."""
    return {
        "cores": os.cpu_count(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "cuda": torch.version.cuda,
    }


class Results:
    """The file of results, written whole after each case."""

    def __init__(self, path: Path, identity: dict[str, Any]) -> None:
        self._path = path
        self._all: dict[str, Any] = {"format": 1, "runs": []}
        if path.exists():
            self._all = json.loads(path.read_text())
            if not isinstance(self._all, dict) or self._all.get("format") != 1:
                sys.exit(
                    f"bench_gpu: {path} is no file of this benchmark: name another one by --out"
                )
        runs = [run for run in self._all["runs"] if run["identity"] == identity]
        self.run = runs[0] if runs else {"identity": identity, "machine": machine(), "cases": {}}
        if not runs:
            self._all["runs"].append(self.run)

    def measure(
        self, name: str, device: torch.device, check_time: Callable[[], None], *, quick: bool
    ) -> None:
        """Measure a case and keep what is found; one that fails is missing."""
        try:
            self.run["cases"][name] = measure(name, device, check_time, quick=quick)
        except RuntimeError as error:  # of torch too: out of memory, no kernel for this device
            print(f"{name} failed: {type(error).__name__}: {error}", file=sys.stderr)
            return
        self.write()

    def check(self, device: torch.device, *, quick: bool) -> None:
        """Compare captured steps with steps as they are, once."""
        if "checks" not in self.run:
            try:
                self.run["checks"] = check_agents(device, QUICK_CHECKS if quick else CHECKED_STEPS)
            except RuntimeError as error:
                self.run["checks"] = {"failed": f"{type(error).__name__}: {error}"}
            self.write()

    def write(self) -> None:
        """Write the file whole."""
        aside = self._path.with_name(self._path.name + ".part")
        aside.write_text(json.dumps(self._all, indent=1) + "\n")
        aside.replace(self._path)


COLUMNS = (
    *("opt_steps_per_s", "eager_opt_steps_per_s", "handwritten_opt_steps_per_s"),
    *("ratio_to_eager", "ratio_to_handwritten", "ratio_to_resident", "ratio_with_ingest"),
    *("opt_ms", "sample_ms", "model_copy_ms", "peak_device_bytes"),
)
HEADS = (
    *("opt/s", "eager", "by hand", "/ eager", "/ by hand", "/ resident", "+ ingest", "opt ms"),
    *("sample ms", "model ms", "MiB"),
)


def table(cases: dict[str, Any]) -> str:
    """Medians of the cases that are done, a line each."""
    rows = [f"{'':26}" + "".join(f"{head:>11}" for head in HEADS)]
    for name, case in cases.items():
        cells = []
        for column in COLUMNS:
            value = case.get(column)
            value = value["median"] if isinstance(value, dict) else value
            if column.endswith("bytes") and value is not None:
                value /= 1 << 20
            cells.append(f"{'-' if value is None else format(value, '.4g'):>11}")
        rows.append(f"{name:26}" + "".join(cells))
    return "\n".join(rows)


def parse() -> argparse.Namespace:
    """The command line; `cases` are the names of those to measure."""
    parser = argparse.ArgumentParser(
        prog="scripts/bench/run gpu", description=__doc__.split("\n")[0]
    )
    parser.add_argument("--minutes", type=float, default=9.0, help="of this call, setup included")
    parser.add_argument("--out", type=Path, default=Path("bench_gpu.json"))
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--only", default=",".join(CASES), help="cases, separated by commas")
    parser.add_argument("--quick", action="store_true", help="see that it runs; times mean nothing")
    parser.add_argument("--commit", default="", help="what to note where there is no git")
    options = parser.parse_args()
    options.cases = options.only.split(",")
    if unknown := set(options.cases) - set(CASES):
        parser.error(f"no case {', '.join(sorted(unknown))}; there are {', '.join(CASES)}")
    if options.device == "cuda" and not torch.cuda.is_available():
        parser.error(f"torch {torch.__version__} sees no CUDA device: --device cpu")
    return options


def main() -> int:
    """Measure the cases that are missing, as long as there is time."""
    options = parse()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # leave no replay behind
    deadline = float(os.environ.get("BENCH_BEGAN", time.time())) + 60 * options.minutes

    def check_time() -> None:
        if time.time() >= deadline:
            raise OutOfTimeError

    on_gpu = options.device != "cpu" and torch.cuda.is_available()
    device = torch.device("cuda", torch.cuda.current_device()) if on_gpu else torch.device("cpu")
    results = Results(options.out, identity_of(device, options.commit, quick=options.quick))
    cases = results.run["cases"]
    print(json.dumps(results.run["identity"]), file=sys.stderr)
    try:
        check_time()
        results.check(device, quick=options.quick)
        for name in options.cases:
            if name not in cases:
                check_time()
                print(f"measuring {name} ...", file=sys.stderr, flush=True)
                results.measure(name, device, check_time, quick=options.quick)
    except OutOfTimeError:
        print(f"the {options.minutes:g} minutes are used up", file=sys.stderr)
    print(table(cases))
    missing = [name for name in options.cases if name not in cases]
    if missing:
        print(f"not measured yet: {', '.join(missing)}; call it again", file=sys.stderr)
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
