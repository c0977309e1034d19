"""The page about a run: complete, safe, and written for every kind of run."""

import base64
import hashlib
import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import pytest
from run_folders import BEGAN_S, make_run, write_summary

from vedette.cli.app import main
from vedette.reports import write_report
from vedette.reports.record import read_record
from vedette.reports.writing import fleet_lanes
from vedette_rl.recording.tensorboard import TensorboardRecorder
from vedette_services.run.events import EventFile, RunEvent
from vedette_services.run.outcome import read_summary
from vedette_services.run.overview import read_overview
from vedette_services.status.text import run_headline, summary_lines

HOSTILE = '</td></svg><script>alert(1)</script><img src="http://evil/x" onerror=alert(1)>\u202e'
VOID = {"meta", "img", "br", "input"}


class Reader(HTMLParser):
    """Checks that every element is closed, and collects what a browser would load or run."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.words: list[str] = []
        self.loads: list[str] = []
        self.elements: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(tag)
        loads = [v or "" for k, v in attrs if k in ("src", "href", "xlink:href", "data")]
        self.loads += [place for place in loads if not place.startswith("#")]
        assert not [k for k, _ in attrs if k.startswith("on")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("style", "script"):
            self.words.append(data)


def read(path: Path) -> Reader:
    reader = Reader()
    text = path.read_text("utf-8")
    style = text.partition("<style>")[2].partition("</style>")[0]
    assert "url(" not in style
    assert "@import" not in style
    reader.feed(text)
    reader.close()
    assert reader.open == []
    return reader


def test_the_page_shows_everything_and_loads_nothing(run: Path) -> None:
    page = read(write_report([run]))
    assert page.loads == []
    said = " ".join(" ".join(page.words).split())
    for words in (
        "dqn on CartPole-v1",
        "It is done: stop.max_opts is reached.",
        "Return of greedy evaluations",
        "5.0 (target 475)",
        "Return of the actors, exploring",
        "loss",
        "Per second",
        "joined alpha on gpu-1, 2 actors",
        "510 produced = 500 inserted + 4 dropped + 6 lost",
        "ValueError: no",
        "1:00 min optimizing, 20 s sampling, 10 s waiting",
        "500 of 50,000",
        "alpha gpu-1 left 1 1 500 9",
        "learning_rate",
        f"vedette report {run}",
    ):
        assert words in said, words


def test_the_policy_allows_the_pages_own_scripts_and_nothing_else(run: Path) -> None:
    text = write_report([run]).read_text("utf-8")
    (policy,) = re.findall('Content-Security-Policy" content="([^"]*)"', text)
    assert policy.startswith("default-src 'none';")
    allowed = policy.partition("script-src ")[2].split()
    scripts = re.findall("<script>(.*?)</script>", text, re.DOTALL)
    sums = [base64.b64encode(hashlib.sha256(code.encode()).digest()).decode() for code in scripts]
    assert allowed == [f"'sha256-{each}'" for each in sums]
    assert len(sums) == 2


def test_the_page_is_at_most_two_megabytes_for_a_hundred_runs(tmp_path: Path) -> None:
    first = make_run(tmp_path / "runs" / "0", points=800)
    for seed in range(1, 100):
        run = tmp_path / "runs" / f"{seed}"
        shutil.copytree(first, run)
        rate = 10.0 ** -(1 + seed // 5)
        config = (run / "config.toml").read_text().replace("seed = 0", f"seed = {seed}")
        (run / "config.toml").write_text(
            re.sub("learning_rate = .*", f"learning_rate = {rate}", config)
        )
    path = write_report([tmp_path / "runs"])
    assert "100 runs of 21 configurations" in path.read_text("utf-8")
    assert path.stat().st_size < 2_000_000


def test_the_page_says_what_the_run_was_made_from(run: Path) -> None:
    start = {"began_s": BEGAN_S, "command": "vedette run --out <x>", "commit": "abc", "dirty": True}
    (run / "provenance.json").write_text(json.dumps([start]))
    text = write_report([run]).read_text("utf-8")
    assert '<th scope="row">command</th><td>vedette run --out &lt;x&gt;</td>' in text
    assert '<th scope="row">commit</th><td>abc and changes</td>' in text


def test_a_success_is_shown_as_one(run: Path) -> None:
    assert '<p class="note good">It is done' in write_report([run]).read_text("utf-8")
    write_summary(run, best=1.0, exit_reason="interrupted")
    assert '<p class="note good">' not in write_report([run]).read_text("utf-8")


def test_the_snapshot_of_a_run_is_shown_and_that_it_is_not_written(run: Path) -> None:
    snapshot = {"directory": "/mnt/nas", "state": "written", "generation": 12, "rows": 480}
    write_summary(run, best=1.0, snapshot={**snapshot, "rows_behind": 20})
    words = read(write_report([run])).words
    said = "snapshot in /mnt/nas, generation 12, up to sample 480, 20 samples not in it"
    assert any(said in text for text in words)
    assert not any("is not written" in text for text in words)
    write_summary(run, best=1.0, snapshot={**snapshot, "failing": "Stale file handle"})
    words = read(write_report([run])).words
    assert "The snapshot is not written: Stale file handle" in words


def test_time_and_rates_of_a_run_are_the_same_on_every_page(run: Path) -> None:
    write_summary(run, best=1.0, epoch=3, seconds=2.0, run_seconds=93.4)
    summary = read_summary(run)
    first, steps, *_ = summary_lines(summary, str(run))
    assert first.startswith("done after 0:01:33 of training")
    assert "500 environment (mean 5.4/s), 50 optimization (mean 0.5/s)" in steps
    assert run_headline(summary).endswith("trained 0:01:33")
    assert read_overview(run).seconds == read_record(run).seconds == 93.4
    words = read(write_report([run])).words
    assert words[words.index("training time") + 1] == "1:33 min"
    assert any(
        "5.4 env steps/s (mean of the training) · 0.5 optimization steps/s (mean of the training)"
        in text
        for text in words
    )


def test_what_came_over_the_network_is_shown_and_is_never_markup(run: Path) -> None:
    actor = {"id": HOSTILE, "restarts": 1, "error": HOSTILE, "return_mean": 1.0}
    write_summary(
        run,
        best=1.0,
        run_id=HOSTILE,
        exit_reason=HOSTILE,
        managers=[{"id": HOSTILE, "host": HOSTILE, "state": HOSTILE, "actors": [actor]}, HOSTILE],
    )
    events = [RunEvent(BEGAN_S + 7, kind, HOSTILE, HOSTILE, 1) for kind in ("joined", "actor")]
    EventFile(run / "events.jsonl").add(*events)
    recorder = TensorboardRecorder(run / "tensorboard")
    recorder.write({HOSTILE: 1.0}, 1)
    recorder.close()
    (run / f"{'x' * 20}<b>.gif").write_bytes(b"GIF89a")
    page = read(write_report([run]))
    assert page.elements.count("script") == 3
    assert [load.partition(",")[0] for load in page.loads] == ["data:image/gif;base64"]
    assert any(HOSTILE.replace("\u202e", "\ufffd") in words for words in page.words)


@pytest.mark.parametrize(
    "left",
    [
        {"config.toml"},
        {"summary.json"},
        {"events.jsonl"},
        {"tensorboard"},
        {"config.toml", "summary.json"},
        {"config.toml", "tensorboard", "events.jsonl"},
    ],
)
def test_a_run_with_only_some_of_its_files_has_a_page(left: set[str], run: Path) -> None:
    for place in list(run.iterdir()):
        if place.name not in left:
            shutil.rmtree(place) if place.is_dir() else place.unlink()
    said = " ".join(read(write_report([run])).words)
    assert "It " in said


def test_a_page_with_absurd_numbers_is_written(run: Path) -> None:
    summary = {
        "samples": {"produced": -1},
        "eval": {"best_return_mean": 1e308},
        "time_s": 1e300,
        "time": {"optimizing_s": "x"},
        "seconds": -5,
        "epoch": 2.5,
        "managers": "none",
    }
    (run / "summary.json").write_text(json.dumps(summary).replace("1e+308", "1e999"))
    read(write_report([run]))


def test_the_lane_of_a_killed_learner_ends_with_its_last_record(run: Path) -> None:
    EventFile(run / "events.jsonl").add(
        RunEvent(BEGAN_S + 1000, "started", "learner"),
        RunEvent(BEGAN_S + 1010, "joined", "learner", "a manager of this name"),
        RunEvent(BEGAN_S + 1015, "unevaluated", "evaluations", "manager a cannot evaluate"),
        RunEvent(BEGAN_S + 1020, "actor", "learner/3", "restart 1"),
        RunEvent(BEGAN_S + 2000, "started", "learner"),
        RunEvent(BEGAN_S + 2100, "failed", "learner", "the trainer ended with signal 9"),
    )
    learner, alpha, namesake = fleet_lanes(read_record(run))
    begins = [span[0] - BEGAN_S for span in learner.spans]
    assert begins == [0.0, 1000.0, 2000.0]
    assert learner.spans[1][1] == BEGAN_S + 1020
    assert learner.spans[2][1] == BEGAN_S + 2100
    assert alpha.spans == [(BEGAN_S + 5, BEGAN_S + 60)]
    assert "unevaluated" in [mark.kind for mark in learner.marks]
    assert namesake.name == "learner"
    assert [mark.kind for mark in namesake.marks] == ["actor"]
    read(write_report([run]))


def test_the_last_lines_of_the_learners_log_are_on_the_page(run: Path) -> None:
    (run / "log").mkdir()
    lines = [f"line {k} <b>" for k in range(500)]
    (run / "log" / "learner.log").write_text("\n".join(lines) + "\n")
    (run / "log" / "actors.log").write_text("others\n")
    text = write_report([run]).read_text("utf-8")
    assert "The last 200 lines of learner.log" in text
    assert "line 300 &lt;b&gt;\nline 301 &lt;b&gt;\n" in text
    assert "line 299 " not in text


def test_a_large_fleet_fits_the_page(run: Path) -> None:
    EventFile(run / "events.jsonl").add(
        *(RunEvent(BEGAN_S + i, "joined", f"m-{i}", "on x, 1 actor", 1) for i in range(600))
    )
    page = read(write_report([run]))
    said = " ".join(page.words)
    assert "and 562 more managers" in said
    assert "The last 500 of 605 events" in said


def test_small_videos_are_part_of_the_page_and_large_ones_are_named(run: Path) -> None:
    (run / "best.gif").write_bytes(b"GIF89a")
    (run / "videos").mkdir()
    (run / "videos" / "last.mp4").write_bytes(b"mp4")
    (run / "videos" / "huge.mp4").write_bytes(bytes(9 << 20))
    page = read(write_report([run]))
    assert page.loads == [
        "data:image/gif;base64," + base64.b64encode(b"GIF89a").decode(),
        "data:video/mp4;base64," + base64.b64encode(b"mp4").decode(),
    ]
    assert "videos/huge.mp4 (9.44 MB) is too large to be part of this page." in page.words


def test_the_command_says_where_the_page_is(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for arguments, path in (
        (["run"], run / "report.html"),
        (["run", "--out", "my page.html"], tmp_path / "my page.html"),
    ):
        with pytest.raises(SystemExit) as left:
            main(["report", *arguments])
        assert left.value.code == 0
        assert path.is_file()
        assert "open it in a browser" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nowhere"], "nowhere: there is no such folder"),
        (["run", "nowhere"], "nowhere: there is no such folder"),
        (["run", "--out", "no/where.html"], "--out no/where.html: name a file in a folder that"),
        (["run", "--out", "run"], "--out run: name a file"),
    ],
)
def test_what_cannot_be_reported_is_one_line(
    arguments: list[str],
    said: str,
    run: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as left:
        main(["report", *arguments])
    assert left.value.code == 2
    errors = capsys.readouterr().err
    assert said in errors
    assert errors.count("\n") == 1


def test_the_tabs_of_runs_have_the_names_of_their_folders(tmp_path: Path) -> None:
    """All tabs of one agent and environment had the same title."""
    runs = [make_run(tmp_path / folder / "seed-0") for folder in ("one", "two")]

    def tab(*runs: Path) -> str:
        page = write_report(runs, tmp_path / "page.html").read_text("utf-8")
        return page.partition("<title>")[2].partition("</title>")[0]

    assert tab(runs[0]) == "seed-0 in one: dqn on CartPole-v1"
    assert tab(*runs) == "seed-0 in one, seed-0 in two: 2 runs of 1 configuration"
    make_run(tmp_path / "one" / "seed-1", seed=1)
    assert tab(tmp_path / "one") == "one: 2 runs of 1 configuration"
