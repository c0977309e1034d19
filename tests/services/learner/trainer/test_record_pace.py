"""Long runs record seldom, and a month is pleasant to look at."""

from __future__ import annotations

import itertools
import logging
import math
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from configurations import configured

from vedette.dashboard.sources import DirectorySource
from vedette.live.progress import ProgressTracker
from vedette.reports.record import read_record
from vedette_rl.core import Record
from vedette_rl.recording.file_recorder import Means
from vedette_rl.recording.registry import TeeRecorder, make_recorders
from vedette_services.learner.trainer.record_pace import RESOLUTION, RecordPace
from vedette_services.learner.trainer.run_recorder import CurveRecorder
from vedette_services.run.directory import RunDirectory
from vedette_services.status.records import EndedEvaluations, GatewayStatus, TrainerStatus
from vedette_services.status.status import Eval, Lag, ManagerStatus, ReplayStatus, Samples

DAY = 86_400.0
MONTH = 30 * DAY
OPTS_PER_S = 354
CONFIG = configured(table={"env": {"id": "CartPole-v1"}, "agent": {"name": "dqn"}})


def test_a_run_of_a_minute_records_everything() -> None:
    pace = RecordPace(0.0, 100.0)
    assert all(pace.is_due("losses", 100.0 + 0.001 * k) for k in range(1000))


def test_records_of_a_long_run_are_a_part_of_its_time_apart(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    pace = RecordPace(DAY, 0.0)
    due = [now for now in range(600) if pace.is_due("status", now)]
    apart = [after - before for before, after in itertools.pairwise(due)]
    assert set(apart) == {math.ceil(DAY / RESOLUTION)}
    assert pace.is_due("losses", 600.0)  # each curve by itself
    assert pace.is_due("status", math.inf)
    (line,) = caplog.messages
    assert line.startswith("the run is 24:00:00 old: from now on its records are 1/5,000 of its")


class Counter(TeeRecorder):
    """Counts what is written, and keeps the evaluations."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0
        self.evaluated: list[float] = []

    def write(self, record: Record, step: int) -> None:
        self.count += 1
        if "eval/mean_reward" in record:
            self.evaluated.append(record["eval/mean_reward"])


def evaluation(number: int, mean: float, best: tuple[float, int]) -> Eval:
    return Eval(
        return_mean=mean,
        version=number,
        env_steps=number,
        best_return_mean=best[0],
        best_version=best[1],
    )


def test_every_best_evaluation_is_recorded_and_the_last_one() -> None:
    recorder = Counter()
    curves = CurveRecorder(recorder, "r", CONFIG, pace=RecordPace(MONTH, 0.0))
    returns = [1.0, 5.0, 3.0, 7.0, 2.0, 4.0]
    best = (-math.inf, 0)
    ended = EndedEvaluations()
    for number, mean in enumerate(returns, 1):
        best = max(best, (mean, number))
        seen = evaluation(number, mean, best)
        is_last = number == len(returns)
        ended = ended.with_added(seen)
        curves.record(float(number), TrainerStatus(), GatewayStatus(), seen, ended, is_last=is_last)
    assert recorder.evaluated == [1.0, 5.0, 7.0, 4.0]


class Month:
    """A learner of 354 optimization steps a second, whose time passes in steps of `tick_s`."""

    def __init__(self, recorder: TeeRecorder, pace: RecordPace) -> None:
        self.now = 0.0
        self._recorder = recorder
        self._pace = pace
        self._means = Means()
        self._curves = CurveRecorder(recorder, "r", CONFIG, pace=pace)
        self._best = (-math.inf, 0)
        self._ended = EndedEvaluations()

    def play(self, until: float, tick_s: float) -> None:
        while self.now < until:
            self.now += tick_s
            opts = int(self.now * OPTS_PER_S)
            loss = {f"train/{name}": math.cos(self.now / 5e4) for name in LOSSES}
            if self._pace.is_due("losses", self.now):
                self._recorder.store(loss)
                self._recorder.flush(opts)
            learning, gateway, seen = self._status(opts)
            self._ended = self._ended.with_added(seen)
            self._curves.record(self.now, learning, gateway, seen, self._ended)

    def _status(self, opts: int) -> tuple[TrainerStatus, GatewayStatus, Eval]:
        mean = 500.0 * (1.0 - math.exp(-self.now / DAY)) + 10.0 * math.sin(self.now)
        if mean > self._best[0] + 1.0:
            self._best = mean, opts
        part = evaluation(opts, mean, self._best)
        lag = Lag(1.0, 2.0, 3.0, 0.5)
        managers = (ManagerStatus("m", state="running"),)
        steps = opts * 4
        return (
            TrainerStatus(epoch=1, opt_steps=opts, sampled=opts * 64, phase="training", lag=lag),
            GatewayStatus(
                samples=Samples(steps, steps, 0, 0, 0, 0, 0),
                managers=managers,
                replay=ReplayStatus(size=1000, bytes=1),
                lag=lag,
                env_steps=steps,
            ),
            part,
        )


LOSSES = ("loss", "q_mean", "target_mean", "td_error_mean", "grad_norm")


def test_a_month_has_a_bounded_number_of_records() -> None:
    recorder = Counter()
    Month(recorder, RecordPace(0.0, 0.0)).play(MONTH, tick_s=20.0)
    most = 3 * RESOLUTION * (1.0 + math.log(MONTH / 60.0))  # losses, status, evaluations
    assert 10_000 < recorder.count < most


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_month_is_small_on_the_disk_and_quick_to_look_at(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = RunDirectory(tmp_path / "run")
    run.make()
    run.ensure_id()
    run.config_file.write_text("seed = 0\n")  # by which it is known as a run
    clock = {"now": 0.0}
    recorders = make_recorders(("tensorboard", "csv", "jsonl"), run.root)
    for recorder in recorders:
        recorder._clock = lambda: 1.7e9 + clock["now"]  # type: ignore[attr-defined]  # its wall clock
    month = Month(TeeRecorder(recorders), RecordPace(0.0, 0.0))
    hour = 3600.0
    for until, tick_s in ((2 * hour, 1.0), (DAY, 10.0), (MONTH, 60.0)):
        while month.now < until:
            clock["now"] = month.now
            month.play(month.now + tick_s, tick_s)
    for recorder in recorders:
        recorder.close()
    sizes = {
        name: sum(f.stat().st_size for f in run.root.glob(pattern)) / 2**20
        for name, pattern in (
            ("tensorboard", "tensorboard/*"),
            ("csv", "records.csv"),
            ("jsonl", "records.jsonl"),
        )
    }
    dashboard = DirectorySource(run.root)
    took = {
        "report": seconds(lambda: read_record(run.root)),
        "status": seconds(lambda: ProgressTracker(run.root)),
        "dashboard": seconds(lambda: dashboard.record(dashboard.only)),
    }
    with capsys.disabled():
        print("MiB", sizes, "s", took)
    assert sum(sizes.values()) < 400.0
    assert took["status"] < 10.0
    assert took["report"] < 60.0
    evaluated = read_record(run.root).curves["eval/mean_reward"]
    assert evaluated.times[-1] - evaluated.times[0] > 0.99 * MONTH
    assert not any("are read, in parts" in note for note in read_record(run.root).notes)


def seconds(what: Callable[[], object]) -> float:
    began = time.perf_counter()
    what()
    return time.perf_counter() - began
