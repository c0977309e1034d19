"""Running several: side by side, to the end, from the middle, and no process is left behind."""

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from configurations import configured

from vedette.cli.app import main
from vedette.sweep import Sweep, Trial, exit_status, jobs_within
from vedette_services.config import read_config
from vedette_services.host.processes import StopSignals
from vedette_services.run.overview import read_overview
from vedette_services.run.queued_runs import is_queued, open_queue
from vedette_services.run.start import Start

FAKE = """
import json, os, pathlib, signal, sys, time
out = pathlib.Path(sys.argv[sys.argv.index("--out") + 1])
out.mkdir(parents=True, exist_ok=True)
pathlib.Path(os.environ["PIDS"], f"{out.name}-{os.getpid()}").touch()
def end(reason):
    (out / "summary.json").write_text(json.dumps({"exit_reason": reason, "opt_steps": 5,
        "env_steps": 7, "eval": {"best_return_mean": 3.0}, "time_s": time.time()}))
    sys.exit(0)
signal.signal(signal.SIGTERM, lambda *_: end("interrupted"))
(out / "run.json").touch()
here, most = os.environ["PIDS"], int(os.environ["MOST"])
exec(os.environ["FAKE"])
end("max_opts")
"""


@pytest.fixture
def fakes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Sweep]]:
    """Sweeps of runs made of a line of Python; afterwards none of them may be left."""
    pids = tmp_path / "pids"
    pids.mkdir()
    monkeypatch.setenv("PIDS", str(pids))
    monkeypatch.setenv("MOST", "0")

    def make(script: str, count: int = 3, **options: Any) -> Sweep:
        monkeypatch.setenv("FAKE", script)
        return Sweep(
            trials(tmp_path, count),
            tmp_path / "out",
            command=lambda *arguments: [sys.executable, "-c", FAKE, *arguments],
            **options,
        )

    yield make
    for file in pids.iterdir():
        with pytest.raises(ProcessLookupError):
            os.kill(int(file.name.rpartition("-")[2]), 0)


def trials(tmp_path: Path, count: int) -> list[Trial]:
    found = []
    for seed in range(count):
        table = {"seed": seed, "stop": {"max_opts": 5}}
        config = configured(table=table)
        found.append(Trial(f"seed-{seed}", config, tmp_path / "out" / f"seed-{seed}"))
    return found


def test_every_run_is_run_with_its_own_configuration(fakes: Any, tmp_path: Path) -> None:
    heard: list[str] = []
    outcomes = fakes("", say=heard.append).run()
    assert [outcome.message for outcome in outcomes] == [
        "done after 7 env steps, best evaluation 3.0"
    ] * 3
    assert exit_status(outcomes) == 0
    given = [read_config(tmp_path / f"out/sweep/seed-{k}.toml").seed for k in range(3)]
    assert given == [0, 1, 2]
    assert heard[0].endswith(f"seed-0: begins, 1 of 3, in {tmp_path / 'out' / 'seed-0'}")


def test_what_is_known_of_environments_is_handed_on(fakes: Any, tmp_path: Path) -> None:
    read = "(out / 'known').write_text(open(sys.argv[sys.argv.index('--known') + 1]).read())"
    known = {"an environment": {"episode_bound": 500}}
    assert exit_status(fakes(read, count=1, known=known).run()) == 0
    assert json.loads((tmp_path / "out/seed-0/known").read_text()) == known


def test_no_more_run_side_by_side_than_they_may(fakes: Any, tmp_path: Path) -> None:
    count = (
        "mark = pathlib.Path(here).parent / ('on-' + out.name); mark.touch(); time.sleep(0.3)\n"
        "(out / 'seen').write_text(str(len(list(mark.parent.glob('on-*')))))\n"
        "mark.unlink()"
    )
    fakes(count, count=4, jobs=2).run()
    seen = [int((tmp_path / f"out/seed-{k}/seen").read_text()) for k in range(4)]
    assert max(seen) == 2


def test_a_run_that_fails_does_not_keep_the_others_from_theirs(fakes: Any) -> None:
    bad = "if out.name == 'seed-1': print('vedette: no good'); sys.exit(3)"
    outcomes = fakes(bad).run()
    assert [outcome.status for outcome in outcomes] == [0, 3, 0]
    assert outcomes[1].message.startswith("failed with exit status 3: no good (its log: ")
    assert exit_status(outcomes) == 3


def test_a_run_that_was_killed_is_a_failure(fakes: Any) -> None:
    outcomes = fakes("os.kill(os.getpid(), 9)", count=1).run()
    assert outcomes[0].message.startswith("failed with signal 9 (its log: ")
    assert exit_status(outcomes) == 1


def test_what_is_over_is_not_run_again_unless_begun_anew(fakes: Any, tmp_path: Path) -> None:
    done = tmp_path / "out" / "seed-1"
    done.mkdir(parents=True)
    summary = {"exit_reason": "max_opts", "opt_steps": 5, "env_steps": 9}
    (done / "summary.json").write_text(json.dumps(summary))
    outcomes = fakes("").run()
    assert outcomes[1].message == "over already: done after 9 env steps, best evaluation -"
    assert not list((tmp_path / "pids").glob("seed-1-*"))
    fakes("(out / 'given').write_text(' '.join(sys.argv[1:]))", start=Start.of(fresh=True)).run()
    assert (done / "given").read_text().endswith("--fresh --force")


def test_a_run_that_waits_to_be_resumed_is_seen_as_queued(fakes: Any, tmp_path: Path) -> None:
    places = [tmp_path / "out" / f"seed-{k}" for k in range(3)]
    for place in places:
        place.mkdir(parents=True)
        summary = {"exit_reason": "interrupted", "opt_steps": 3, "env_steps": 4}
        (place / "summary.json").write_text(json.dumps(summary))
    see = (
        "from vedette_services.run.overview import describe_end, read_overview\n"
        "seen = [read_overview(out.parent / f'seed-{k}').state for k in range(3)]\n"
        "(out / 'seen').write_text(json.dumps([seen, describe_end(out.parent / 'seed-2')]))"
    )
    fakes(see).run()
    states, ends = zip(*(json.loads((place / "seen").read_text()) for place in places), strict=True)
    assert states == (
        ["stopped", "queued", "queued"],
        ["done", "stopped", "queued"],
        ["done", "done", "stopped"],
    )
    assert ends[1].startswith("no learner runs yet: a sweep has it queued; there is no checkpoint")
    assert ends[2].startswith("the run has ended: ")
    assert [read_overview(place).state for place in places] == ["done"] * 3


def test_a_sweep_that_was_killed_has_no_queue(tmp_path: Path) -> None:
    (tmp_path / "a" / "seed-1").mkdir(parents=True)
    with open_queue(tmp_path) as queue:
        queue.write(["a/seed-1"])
        assert is_queued(tmp_path / "a" / "seed-1")
        assert not is_queued(tmp_path / "a")
        with open_queue(tmp_path) as second:  # of another process
            second.write([])
        assert is_queued(tmp_path / "a" / "seed-1")
    assert not is_queued(tmp_path / "a" / "seed-1")


def test_what_a_stop_left_queued_is_said_with_what_it_was(fakes: Any, tmp_path: Path) -> None:
    resumed = tmp_path / "out" / "seed-2"
    resumed.mkdir(parents=True)
    (resumed / "summary.json").write_text('{"exit_reason": "interrupted", "env_steps": 4}')
    outcomes = fakes("time.sleep(60)", jobs=1).run(_After(0.5))
    assert [outcome.message for outcome in outcomes[1:]] == [
        "has not begun",
        "has not begun again: stopped after 4 env steps, best evaluation -",
    ]


def test_a_request_to_stop_ends_all_within_seconds(fakes: Any) -> None:
    heard: list[str] = []
    began = time.monotonic()
    outcomes = fakes("time.sleep(60)", jobs=2, say=heard.append).run(_After(1.5))
    assert time.monotonic() - began < 15
    assert [outcome.status for outcome in outcomes] == [0, 0, 0]
    assert "stopped after 7 env steps" in outcomes[0].message
    assert outcomes[2].message == "has not begun"
    assert sum("stopping: 2 running" in line for line in heard) == 1


class _After(StopSignals):
    """Becomes true after a while, as a signal would make it."""

    def __init__(self, seconds: float) -> None:
        super().__init__(signals=())
        self._timer = threading.Timer(seconds, self.request)
        self._timer.start()


def test_ctrl_c_in_a_script_ends_all_and_is_raised_again(fakes: Any) -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a command may have had it
    main_thread = threading.main_thread().ident
    assert main_thread is not None
    timer = threading.Timer(1.5, signal.pthread_kill, (main_thread, signal.SIGINT))
    timer.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            fakes("time.sleep(60)", jobs=3).run()
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_learner_and_its_actors_take_a_core_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vedette.sweep.jobs.count_cores", lambda: 8)
    config = configured("actors.count=3")
    assert jobs_within(config, in_process=False) == 2
    assert jobs_within(config, in_process=True) == 8


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--seeds", "0"], "--seeds"),
        (["--sweep", "nonsense"], "--sweep nonsense: write KEY=VALUE,VALUE"),
        (["--sweep", "agent.learning_rate="], "write KEY=VALUE,VALUE"),
        (["--sweep", "agent.lerning_rate=1,2"], "did you mean agent.learning_rate?"),
        (["--sweep", "replay.capacity=10,50000"], "replay.capacity: 10 samples can never hold"),
        (["--jobs", "2"], "--jobs: it needs --seeds or --sweep"),
        (["--seeds", "2", "--force"], "--force: it needs --fresh"),
    ],
)
def test_a_sweep_that_makes_no_sense_is_refused_in_a_line(
    arguments: list[str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as left:
        main(["run", *arguments, "--out", "out"])
    assert left.value.code == 2
    assert said in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "out").exists()
