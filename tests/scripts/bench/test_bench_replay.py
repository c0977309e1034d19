"""`scripts/bench/run replay`, on a replay so small that it is over at once."""

import json
from pathlib import Path

import pytest

from bench import replay
from bench.commands import app
from bench.frames import FramesBench
from bench.lines import frames_lines, replay_lines
from bench.measuring import ratio_of_rounds, summarize_rounds
from bench.replay import ReplayBench
from vedette.cli.app import execute

SMALL = ReplayBench(capacity=1000, rows_in=8, rows_out=16, seconds=0.001, rounds=2)


def test_everything_is_measured_beside_plain_numpy(tmp_path: Path) -> None:
    found = ReplayBench(1000, 8, 16, 0.001, 2, directory=tmp_path).run()
    for group in ("insert", "sample", "prioritized"):
        for name in ("memory", "mapped"):
            assert found[group][f"{name}_rows_per_s"]["min"] > 0
            assert found[group][f"{name}_ratio"]["median"] > 0
        assert found[group]["mapped_to_memory_ratio"]["max"] > 0
    assert not list(tmp_path.iterdir())
    lines = replay_lines(found)
    for group in ("sample", "prioritized"):
        assert found[group]["two_sources_to_one_ratio"]["median"] > 0
    assert len(lines) == 14
    assert all(len(line) <= 160 for line in lines)


def test_json_is_one_object(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay, "ReplayBench", lambda **_: SMALL)
    with pytest.raises(SystemExit) as left:
        execute(app, "scripts/bench/run", ["replay", "--json"])
    assert not left.value.code
    assert json.loads(capsys.readouterr().out)["rows_in"] == 8


def test_frames_stored_once_are_measured_beside_whole_stacks(tmp_path: Path) -> None:
    found = FramesBench(1000, 4, 0.001, 1, tmp_path).run()
    for group in ("insert", "sample"):
        assert found[group]["once_to_plain_ratio"]["median"] > 0
    assert found["sent_bytes_per_row"]["once"] < 0.14 * found["sent_bytes_per_row"]["plain"]
    assert found["million_rows_bytes"]["once"] < 8.5e9 < 56e9 < found["million_rows_bytes"]["plain"]
    assert len(frames_lines(found)) == 9
    assert not list(tmp_path.iterdir())


def test_a_ratio_is_that_of_the_medians_between_those_of_the_rounds() -> None:
    assert ratio_of_rounds([1.0, 2.0, 9.0], [1.0, 1.0, 3.0]) == {
        "median": 2.0,
        "min": 1.0,
        "max": 3.0,
    }
    assert summarize_rounds([3.0, 1.0, 2.0]) == {"median": 2.0, "min": 1.0, "max": 3.0}
