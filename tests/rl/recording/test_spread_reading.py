"""Large records are read in part: at even distances, with both ends, and it is said."""

import itertools
from pathlib import Path

import pytest

from vedette_rl.recording import spread_reading
from vedette_rl.recording.file_recorder import CsvRecorder, JsonlRecorder
from vedette_rl.recording.reading import CurveReader, read_curves
from vedette_rl.recording.spread_reading import iterate_lines, shares, spread_spans
from vedette_rl.recording.tensorboard import TensorboardRecorder, find_record

STEPS = 4000
RECORDERS = {
    "tensorboard": lambda run: TensorboardRecorder(run / "tensorboard", clock=lambda: 7.0),
    "records.jsonl": lambda run: JsonlRecorder(run / "records.jsonl", clock=lambda: 7.0),
    "records.csv": lambda run: CsvRecorder(run / "records.csv", clock=lambda: 7.0),
}


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spread_reading, "BLOCK_BYTES", 1000)


def test_a_small_file_is_read_whole_and_a_large_one_in_blocks_with_both_ends(
    small_blocks: None,
) -> None:
    assert spread_spans(0, 5000, None) == [(0, 5000)]
    assert spread_spans(0, 5000, 5000) == [(0, 5000)]
    spans = spread_spans(100, 90_100, 10_000)
    assert len(spans) == 10
    assert spans[0] == (100, 1100)
    assert spans[-1] == (89_100, 90_100)
    gaps = {after[0] - before[0] for before, after in itertools.pairwise(spans)}
    assert len({round(gap, -2) for gap in gaps}) == 1


def test_files_share_the_bytes_by_their_sizes() -> None:
    assert shares([10, 30], 100) == [None, None]
    assert shares([100, 300], 100) == [25, 75]
    assert shares([100, 300], None) == [None, None]


@pytest.mark.parametrize("source", RECORDERS)
@pytest.mark.usefixtures("small_blocks")
def test_large_records_are_read_at_even_distances_and_that_is_said(
    source: str, tmp_path: Path
) -> None:
    recorder = RECORDERS[source](tmp_path)
    for step in range(STEPS):
        recorder.write({"train/loss": float(step), "train/q_mean": 1.0}, step)
    recorder.close()
    whole = read_curves(tmp_path)
    assert whole.damage == ()
    assert whole.curves["train/loss"].steps.size == STEPS
    part = read_curves(tmp_path, bytes_max=20_000)
    steps = part.curves["train/loss"].steps
    assert steps.tolist() == part.curves["train/loss"].values.tolist()
    assert 100 < steps.size < STEPS / 4
    assert (steps[0], steps[-1]) == (0, STEPS - 1)
    assert max(steps[1:] - steps[:-1]) < STEPS / 10
    (said,) = part.damage
    assert "of records: " in said
    assert said.endswith("are read, in parts at even distances; curves have gaps between these")


@pytest.mark.usefixtures("small_blocks")
def test_what_is_added_to_a_large_file_is_read_on(tmp_path: Path) -> None:
    recorder = TensorboardRecorder(tmp_path / "tensorboard")
    for step in range(STEPS):
        recorder.write({"x": float(step)}, step)
    recorder._push()
    reader = CurveReader(tmp_path, bytes_max=20_000)
    before = reader.read().curves["x"].steps.size
    for step in range(STEPS, STEPS + 100):
        recorder.write({"x": float(step)}, step)
    recorder.close()
    steps = reader.read().curves["x"].steps
    assert steps.size == before + 100
    assert steps[-100:].tolist() == list(range(STEPS, STEPS + 100))


def test_a_record_is_found_in_the_middle_of_others_and_none_in_noise(tmp_path: Path) -> None:
    recorder = TensorboardRecorder(tmp_path)
    for step in range(50):
        recorder.write({"x": float(step)}, step)
    recorder.close()
    data = recorder.path.read_bytes()
    lengths = []
    at = 0
    while at < len(data):
        lengths.append(at)
        at += 16 + int.from_bytes(data[at : at + 8], "little")
    for begin in range(0, len(data) - 200, 7):
        assert begin + find_record(data[begin:]) == min(at for at in lengths if at >= begin)
    assert find_record(b"\0" * 1000) in (0, 1000)
    assert find_record(b"\xff" * 1000) == 1000


def test_lines_of_a_part_are_whole_ones(tmp_path: Path) -> None:
    file = tmp_path / "lines"
    file.write_bytes(b"one\ntwo\nthree\nfour\n")
    with file.open("rb") as opened:
        assert [*iterate_lines(opened, [(0, 2), (8, 9)])] == [b"one\n", b"three\n"]
        assert [*iterate_lines(opened, [(9, 15)])] == [b"four\n"]
