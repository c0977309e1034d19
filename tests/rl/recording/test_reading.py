"""What recorders write is read back, also where a run was killed, resumed or damaged."""

import math
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vedette_rl.core import Recorder
from vedette_rl.recording import reading
from vedette_rl.recording.file_recorder import CsvRecorder, JsonlRecorder
from vedette_rl.recording.reading import CurveReader, CurveTable, read_curves
from vedette_rl.recording.tensorboard import TensorboardRecorder, iterate_records, purge_events

RECORDERS: dict[str, Callable[[Path], Recorder]] = {
    "tensorboard": lambda run: TensorboardRecorder(run / "tensorboard", clock=lambda: 7.0),
    "records.jsonl": lambda run: JsonlRecorder(run / "records.jsonl", clock=lambda: 7.0),
    "records.csv": lambda run: CsvRecorder(run / "records.csv", clock=lambda: 7.0),
}


@pytest.mark.parametrize("source", RECORDERS)
def test_what_is_recorded_is_read_back(source: str, tmp_path: Path) -> None:
    recorder = RECORDERS[source](tmp_path)
    recorder.write_text("config", "seed = 1")
    recorder.write({"train/loss": 0.5, "a,b": 1.0}, 10)
    recorder.write({"train/loss": math.nan}, 20)
    recorder.close()
    found = read_curves(tmp_path)
    assert found.source == source
    assert found.damage == ()
    assert sorted(found.curves) == ["a,b", "train/loss"]
    loss = found.curves["train/loss"]
    assert loss.steps.tolist() == [10, 20]
    assert loss.times.tolist() == [7.0, 7.0]
    np.testing.assert_array_equal(loss.values, [0.5, math.nan])


@pytest.mark.parametrize("source", RECORDERS)
def test_a_later_start_replaces_what_it_went_back_behind(source: str, tmp_path: Path) -> None:
    for steps in ((10, 20, 30), (20, 40)):
        recorder = RECORDERS[source](tmp_path)
        for step in steps:
            recorder.write({"train/loss": float(step)}, step)
        recorder.close()
    assert read_curves(tmp_path).curves["train/loss"].steps.tolist() == [10, 20, 20, 40]


def test_a_run_without_records_has_no_curves(tmp_path: Path) -> None:
    found = read_curves(tmp_path)
    assert (found.curves, found.source, found.damage) == ({}, "", ())


def test_half_a_record_at_the_end_is_what_a_kill_leaves(tmp_path: Path) -> None:
    recorder = TensorboardRecorder(tmp_path / "tensorboard")
    recorder.write({"x": 1.0}, 1)
    recorder.write({"x": 2.0}, 2)
    recorder.close()
    recorder.path.write_bytes(recorder.path.read_bytes()[:-5])
    found = read_curves(tmp_path)
    assert found.curves["x"].steps.tolist() == [1]
    assert found.damage == ()


def test_damage_is_said_and_the_rest_is_read(tmp_path: Path) -> None:
    recorder = TensorboardRecorder(tmp_path / "tensorboard")
    recorder.write({"x": 1.0}, 1)
    recorder.close()
    noise = (99).to_bytes(8, "little") + b"\xff" * 107
    recorder.path.write_bytes(recorder.path.read_bytes() + noise + b"\xff" * 100_000)
    found = read_curves(tmp_path)
    assert found.curves["x"].values.tolist() == [1.0]
    assert len(found.damage) == 2
    assert "1 records of events.out" in found.damage[0]
    assert "its last 100,000 bytes are left out" in found.damage[1]


def test_lines_that_are_none_are_counted_and_left_out(tmp_path: Path) -> None:
    lines = [
        '{"time_s": 1, "step": 1, "x": 2}',
        '{"time_s": 2, "step": 2}',
        "{",
        '{"step": "a"}',
        "[]",
        '{"time_s": 1, "ste',
    ]
    (tmp_path / "records.jsonl").write_text("\n".join(lines))
    found = read_curves(tmp_path)
    assert found.curves["x"].values.tolist() == [2.0]
    assert found.damage == ("records.jsonl: 4 lines are damaged and left out",)
    (tmp_path / "records.jsonl").unlink()
    (tmp_path / "records.csv").write_text("time_s,step,name,value\n1,1,x,3\n1,2\n1,b,x,3\n\0")
    found = read_curves(tmp_path)
    assert found.curves["x"].values.tolist() == [3.0]
    assert found.damage == ("records.csv: 3 lines are damaged and left out",)


@pytest.mark.parametrize("cut", range(1, 40))
@pytest.mark.parametrize("source", ["records.jsonl", "records.csv"])
def test_a_record_that_a_kill_has_cut_costs_that_record_only(
    source: str, cut: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / source
    torn = False
    for number, values in enumerate(((1.25, 2.25), (3.25, 4.25))):
        recorder = RECORDERS[source](tmp_path)
        for place, value in enumerate(values):
            recorder.write({"a,b": value}, 10 * number + place)
        recorder.close()
        if not number:
            file.write_bytes(file.read_bytes()[:-cut])
            torn = not file.read_bytes().endswith(b"\n")
            half = read_curves(tmp_path).curves.get("a,b")
            kept = [] if half is None else half.values.tolist()
            assert kept in ([1.25], []) or (source, cut, kept) == ("records.jsonl", 1, [1.25, 2.25])
    found = read_curves(tmp_path)
    assert found.damage == ()
    assert found.curves["a,b"].values.tolist() in ([1.25, 3.25, 4.25], [3.25, 4.25])
    assert found.curves["a,b"].times.tolist()[-2:] == [7.0, 7.0]
    assert all(line.endswith("\n") for line in file.read_text().splitlines(keepends=True))
    assert ("half written, and is removed" in caplog.text) == torn


def test_an_open_quote_takes_no_other_line_with_it(tmp_path: Path) -> None:
    lines = 'time_s,step,name,value\n1,1,"a,\n1,2,"a,b",3\n1,3,"a,b",4\n'
    (tmp_path / "records.csv").write_text(lines)
    assert read_curves(tmp_path).curves["a,b"].values.tolist() == [3.0, 4.0]


def test_a_file_that_cannot_be_read_is_a_line_and_those_before_it_are_read(tmp_path: Path) -> None:
    recorder = TensorboardRecorder(tmp_path / "tensorboard", clock=lambda: 7.0)
    recorder.write({"x": 1.0}, 1)
    recorder.close()
    (tmp_path / "tensorboard" / "events.out.tfevents.9.folder").mkdir(parents=True)
    found = read_curves(tmp_path)
    assert found.curves["x"].steps.tolist() == [1]
    assert found.damage == ("tensorboard: cannot be read: Is a directory",)


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of what is parsed, a number for each time that bytes are read."""
    sizes: list[int] = []

    def counted(data: bytes) -> Iterator[bytes]:
        sizes.append(len(data))
        return iterate_records(data)

    monkeypatch.setattr(reading, "iterate_records", counted)
    return sizes


def test_a_reader_reads_what_was_added_and_no_more(tmp_path: Path, parsed: list[int]) -> None:
    recorder = TensorboardRecorder(tmp_path / "tensorboard")
    for step in range(100):
        recorder.write({"x": float(step)}, step)
    recorder.close()
    whole = recorder.path.read_bytes()
    cuts = [len(whole) // 2, len(whole) - 3, len(whole)]  # two of them within a record
    reader = CurveReader(tmp_path)
    for cut in cuts:
        with recorder.path.open("r+b") as file:  # the same file, as a writer has it
            file.truncate()
            file.write(whole[:cut])
        assert reader.read().curves.keys() == {"x"}
    found = reader.read()
    assert found.curves["x"].values.tolist() == list(range(100))
    assert found.damage == ()
    assert parsed[0] == cuts[0]
    assert sum(parsed[1:]) < len(whole) - cuts[0] + 200
    assert len(parsed) == 3


def test_a_reader_goes_on_with_a_later_file_and_its_earlier_steps(
    tmp_path: Path, parsed: list[int]
) -> None:
    reader = CurveReader(tmp_path)
    assert reader.read().curves == {}
    for begin, steps in ((1, (10, 20, 30)), (2, (20, 40))):
        recorder = TensorboardRecorder(tmp_path / "tensorboard", clock=lambda at=begin: float(at))
        recorder.write({"x": 0.0, "y": 0.0}, steps[0])
        for step in steps[1:]:
            recorder.write({"x": float(step)}, step)
        recorder.close()
        found = reader.read()
    assert found.curves["x"].steps.tolist() == [10, 20, 20, 40]
    assert found.curves["y"].steps.tolist() == [10, 20]
    assert len(parsed) == 2


def test_a_file_stands_behind_the_others_also_by_a_clock_that_was_set_back(tmp_path: Path) -> None:
    for hour, steps in ((5.0, range(0, 1000, 100)), (4.0, range(1000, 2000, 100))):
        recorder = TensorboardRecorder(tmp_path / "tensorboard", clock=lambda at=hour: 3600.0 * at)
        for step in steps:
            recorder.write({"x": float(step)}, step)
        recorder.close()
    assert CurveReader(tmp_path).read().curves["x"].steps.tolist() == [*range(0, 2000, 100)]


def test_a_reader_begins_anew_where_a_file_was_replaced(tmp_path: Path) -> None:
    recorder = TensorboardRecorder(tmp_path / "tensorboard")
    for step in (1, 2, 3):
        recorder.write({"x": float(step)}, step)
    recorder.close()
    reader = CurveReader(tmp_path)
    assert reader.read().curves["x"].steps.tolist() == [1, 2, 3]
    purge_events(tmp_path / "tensorboard", 1, lambda _: True)
    assert reader.read().curves["x"].steps.tolist() == [1]
    recorder.path.unlink()
    assert reader.read().curves == {}


def test_curves_that_are_recorded_together_share_their_steps(tmp_path: Path) -> None:
    recorder = TensorboardRecorder(tmp_path / "tensorboard")
    recorder.write({"x": 1.0, "y": 2.0}, 1)
    recorder.close()
    curves = read_curves(tmp_path).curves
    assert curves["x"].steps is curves["y"].steps


def test_a_reader_with_a_limit_keeps_every_second_of_many_values(tmp_path: Path) -> None:
    recorder = TensorboardRecorder(tmp_path / "tensorboard")
    for step in range(1, 10):
        recorder.write({"x": float(step), "y": -float(step)}, step)
        if step in (2, 7):
            recorder.write({"rare": float(step)}, step)
    recorder.close()
    curves = CurveReader(tmp_path, 4).read().curves
    assert curves["x"].steps.tolist() == curves["x"].values.tolist() == [1, 5, 9]
    assert curves["y"].values.tolist() == [-1, -5, -9]
    assert curves["rare"].values.tolist() == [2, 7]


def test_rows_that_are_read_as_they_come_are_thinned_as_those_read_at_once(
    tmp_path: Path,
) -> None:
    reader = CurveReader(tmp_path, 8)
    recorder = TensorboardRecorder(tmp_path / "tensorboard")
    for step in range(201):
        recorder.write({"x": float(step), "y": -float(step)}, step)
        if step % 3 == 0:
            recorder.flush(step)
            reader.read()
    recorder.close()
    grown, at_once = (each.read().curves for each in (reader, CurveReader(tmp_path, 8)))
    assert grown["x"].steps.tolist() == [0, 32, 64, 96, 128, 160, 192, 200]
    assert grown["y"].values.tolist() == [-0.0, -32, -64, -96, -128, -160, -192, -200]
    for name, curve in grown.items():
        assert curve.steps.tolist() == at_once[name].steps.tolist()
        assert curve.values.tolist() == at_once[name].values.tolist()


@given(st.lists(st.tuples(st.integers(0, 9), st.sampled_from([("x",), ("x", "y"), ("y",)]))))
def test_a_value_stays_until_a_lower_step_is_recorded(
    rows: list[tuple[int, tuple[str, ...]]],
) -> None:
    table = CurveTable()
    kept: dict[str, list[tuple[int, int]]] = {"x": [], "y": []}
    for place, (step, names) in enumerate(rows):
        table.add(names, step, 0.0, [place] * len(names))
        for name in names:
            while kept[name] and kept[name][-1][0] > step:
                kept[name].pop()
            kept[name].append((step, place))
    found = {name: [*zip(c.steps, c.values, strict=True)] for name, c in table.curves().items()}
    assert found == {name: column for name, column in kept.items() if column}
