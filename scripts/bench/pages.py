"""Many runs with large records: how long a report and the dashboard's pages take, and how much
memory.

Every run has the same event file, in records of twenty numbers as a learner writes them; each
process that is measured is a new one. `python -m bench.pages DIR` measures a dashboard.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from wsgiref.util import setup_testing_defaults

from vedette.dashboard import Dashboard, DirectorySource
from vedette_rl.recording.tensorboard import TensorboardRecorder
from vedette_services.config.loading import load_config
from vedette_services.config.saving import write_config
from vedette_services.run.directory import RunDirectory
from vedette_services.run.outcome import write_summary
from vedette_services.status.status import Eval, Status

_NUMBERS = 20  # of a record
_EVALUATED = 20  # every so many records one is an evaluation
_PAGES_MAX = 200


@dataclass(frozen=True, slots=True)
class PagesBench:
    """Measures a report on runs, and the dashboard's list of them.

    Args:
        runs: how many.
        numbers: that each has recorded.
        directory: where they are made; None: in the place for temporary files.
    """

    runs: int = 50
    numbers: int = 1_000_000
    directory: Path | None = None

    def run(self) -> dict[str, Any]:
        """Measure; seconds, and the largest resident memory of each process."""
        with tempfile.TemporaryDirectory(dir=self.directory, prefix="vedette-bench-") as place:
            root = Path(place) / "runs"
            self._make(root)
            size = sum(path.stat().st_size for path in root.rglob("events.out.tfevents.*"))
            out = Path(place) / "report.html"
            report = ("-m", "vedette.cli", "report", str(root), "--out", str(out))
            report_s, report_bytes, _ = _measure(*report)
            _, dashboard_bytes, text = _measure("-m", "bench.pages", str(root))
            return {
                "runs": self.runs,
                "numbers": self.numbers,
                "records_bytes": size,
                "report_s": report_s,
                "report_memory_bytes": report_bytes,
                "report_bytes": out.stat().st_size,
                **json.loads(text),
                "dashboard_memory_bytes": dashboard_bytes,
            }

    def _make(self, root: Path) -> None:
        first = root / "run-0"
        for number in range(self.runs):
            run = RunDirectory(root / f"run-{number}")
            run.make()
            run.ensure_id()
            settings = [f"seed={number % 5}", f"agent.learning_rate={1e-4 * (1 + number // 5)}"]
            config = load_config(env="CartPole-v1", agent="dqn", settings=settings).config
            write_config(config, run.config_file)
            steps = self.numbers // _NUMBERS * 10
            evaluation = Eval(return_mean=400.0, best_return_mean=500.0)
            ended = Status(
                run_id=f"{number}",
                epoch=1,
                agent="dqn",
                env="CartPole-v1",
                exit_reason="max_opts",
                opt_steps=steps,
                env_steps=steps,
                seconds=3600.0,
                eval=evaluation,
            )
            write_summary(run.summary_file, ended, ended=False)
            if number:
                shutil.copytree(first / "tensorboard", run.tensorboard, dirs_exist_ok=True)
            else:
                self._record(run.tensorboard)

    def _record(self, directory: Path) -> None:
        now_s = 1.7e9
        recorder = TensorboardRecorder(directory, clock=lambda: now_s)
        names = [f"train/number_{k}" for k in range(_NUMBERS)]
        for record in range(self.numbers // _NUMBERS):
            now_s += 0.1
            step = 10 * (record + 1)
            value = 500.0 * record * _NUMBERS / self.numbers + record % 7
            if record % _EVALUATED == 0:
                recorder.write({"eval/mean_reward": value, "eval/version": step}, step)
            recorder.write({name: value + k for k, name in enumerate(names)}, step)
        recorder.close()


def _measure(*arguments: str) -> tuple[float, int, str]:
    """Run Python in a process; its seconds, its largest resident memory, and what it printed."""
    began = time.perf_counter()
    found = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=found) as run:
        assert run.stdout is not None
        text = run.stdout.read()
        _, status, usage = os.wait4(run.pid, 0)
        run.returncode = os.waitstatus_to_exitcode(status)
    if run.returncode:
        raise SystemExit(f"{' '.join(arguments)} ended with {run.returncode}")
    return time.perf_counter() - began, usage.ru_maxrss << 10, text


# The dashboard, in a process of its own


def measure_dashboard(root: Path) -> dict[str, Any]:
    """Ask for the page of all runs until it is whole, and once more."""
    dashboard = Dashboard(DirectorySource(root))
    seconds: list[float] = []
    etag = ""
    for _ in range(_PAGES_MAX):
        with _timed(seconds):
            status, etag, page = _ask(dashboard, etag)
        if status.startswith("304"):
            break
        last = page
    return {
        "first_page_s": seconds[0],
        "whole_page_s": sum(seconds[:-1]),
        "longest_page_s": max(seconds),
        "poll_s": seconds[-1],
        "page_bytes": len(last),
        "small_curves": last.count(b"<polyline"),
    }


@contextmanager
def _timed(seconds: list[float]) -> Iterator[None]:
    began = time.perf_counter()
    yield
    seconds.append(time.perf_counter() - began)


def _ask(dashboard: Dashboard, etag: str) -> tuple[str, str, bytes]:
    environ = dict[str, Any]()
    setup_testing_defaults(environ)
    environ |= {"HTTP_IF_NONE_MATCH": etag, "QUERY_STRING": "", "HTTP_HOST": "127.0.0.1"}
    answered = list[Any]()

    def start(status: str, headers: list[tuple[str, str]], _: object = None) -> Any:
        answered.extend((status, dict(headers)["ETag"]))

    page = b"".join(dashboard(environ, start))
    return answered[0], answered[1], page


if __name__ == "__main__":
    print(json.dumps(measure_dashboard(Path(sys.argv[1]))))
