"""What a journal costs: a draw of the training loop, and whole runs beside the same without."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.bare_loop import BareLoop
from bench.measuring import summarize_rounds
from vedette_services.errors import UsageError
from vedette_services.learner.trainer.journal_writer import JournalWriter
from vedette_services.run.journal import Header, Ring, list_parts, read_part

KINDS = ("uniform", "prioritized")
_DRAWS = 20_000
_SAMPLES_PER_INSERT = 1000  # the actors wait for most of the time


@dataclass(frozen=True, slots=True)
class JournalBench:
    """Writes draws down, then runs DQN on CartPole with a journal and without, in turn.

    Few samples are asked of the actors, so that the trainer is the limit and has a core. What a
    step takes is the time of a whole run, its start and end included, by its optimization steps.

    Args:
        opts: optimization steps of a run.
        pairs: of each kind of replay; which side is first changes from pair to pair.
        kinds: of replays.
    """

    opts: int = 6000
    pairs: int = 12
    kinds: Sequence[str] = KINDS

    def run(self) -> dict[str, Any]:
        """Measure; microseconds of a draw, of a step without, and what is added in each pair."""
        figures: dict[str, Any] = {"opts": self.opts, "pairs": self.pairs, "kinds": {}}
        with tempfile.TemporaryDirectory(prefix="vedette-bench-") as place:
            figures["draw"] = _measure_draws(Path(place) / "journal", self.pairs)
            for kind in self.kinds:
                self._run(Path(place), kind, journal=True)  # not counted: it warms the disk's cache
                pairs = [self._pair(Path(place), kind, n) for n in range(self.pairs)]
                figures["kinds"][kind] = {
                    "wall time": _compare([(without[0], written[0]) for without, written in pairs]),
                    "processor time": _compare(
                        [(without[1], written[1]) for without, written in pairs]
                    ),
                }
        return figures

    def _pair(self, place: Path, kind: str, n: int) -> tuple[list[float], list[float]]:
        """Return a step's wall and processor microseconds, without and with a journal."""
        took = {journal: self._run(place, kind, journal) for journal in (n % 2 == 0, n % 2 == 1)}
        return took[False], took[True]

    def _run(self, place: Path, kind: str, journal: bool) -> list[float]:
        with tempfile.TemporaryDirectory(dir=place) as out:
            settings = {
                "stop.max_opts": self.opts,
                "stop.target_return": "none",
                "learner.eval_interval": 0,
                "learner.journal": str(journal).lower(),
                "replay.samples_per_insert": _SAMPLES_PER_INSERT,
                "replay.prioritized": str(kind == "prioritized").lower(),
            }
            command = [sys.executable, "-m", "vedette", "run", "--env", "CartPole-v1"]
            command += ["--out", f"{out}/run"]
            began = time.perf_counter()
            process = subprocess.Popen(
                [*command, *[f"{key}={value}" for key, value in settings.items()]],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            assert process.stdout is not None
            said = process.stdout.read()
            _, status, usage = os.wait4(process.pid, 0)
            wall_s = time.perf_counter() - began
            process.stdout.close()
            process.returncode = os.waitstatus_to_exitcode(status)
            if process.returncode:
                raise UsageError(f"a run failed: {said.strip()}")
            if Path(out, "run", "journal").exists() != journal:
                raise UsageError(f"learner.journal={journal} is not what the run did")
        return [1e6 * s / self.opts for s in (wall_s, usage.ru_utime + usage.ru_stime)]


def _measure_draws(folder: Path, rounds: int) -> dict[str, Any]:
    """Return microseconds of a draw: in the loop, and of processors, the thread's included."""
    replay = BareLoop(256, 8).replay
    rings = (Ring("actors", "bench", "", 0, replay.rows.inserted, replay.rows.capacity),)
    loop, processor = [], []
    for n in range(rounds):
        place = folder / str(n)
        place.mkdir(parents=True)
        processor_s = -time.process_time()
        journal = JournalWriter(place, rings, _header)
        journal.begin(0, None)
        began = time.perf_counter()
        for _ in range(_DRAWS):
            journal.add_draw(replay.drawn_looks())
        loop.append(1e6 * (time.perf_counter() - began) / _DRAWS)
        journal.close()
        processor.append(1e6 * (processor_s + time.process_time()) / _DRAWS)
        (part,) = list_parts(place)
        if read_part(part).last_step != _DRAWS:
            raise UsageError(f"{part}: the disk did not take all draws")
    return {"loop_us": summarize_rounds(loop), "processor_us": summarize_rounds(processor)}


def _header() -> Header:
    return Header(
        run="bench",
        epoch=1,
        step=0,
        written_by=None,
        rings=(),
        config="0" * 32,
        spaces={},
        errors_delay=1,
        loader="CpuLoader",
        captured=False,
        compiled=False,
        machine={},
        versions={},
    )


def _compare(pairs: list[tuple[float, float]]) -> dict[str, Any]:
    more = [written - without for without, written in pairs]
    low, median, high = statistics.quantiles(more, n=4)
    return {
        "without_us": statistics.median([without for without, _ in pairs]),
        "more_us": {"low": low, "median": median, "high": high},
        "each_us": pairs,
    }
