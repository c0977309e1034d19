"""Recorders: what was written is what a reader finds."""

import csv
import json
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorboard.compat.proto.event_pb2 as events  # type: ignore[import-untyped]  # no types
import tensorboard.compat.proto.summary_pb2 as summaries  # type: ignore[import-untyped]  # likewise
from hypothesis import given
from hypothesis import strategies as st

from vedette_rl.core import Record, Recorder, Total
from vedette_rl.core.protocols import implements
from vedette_rl.errors import RecordingError, UnknownNameError
from vedette_rl.recording import (
    CsvRecorder,
    JsonlRecorder,
    TeeRecorder,
    TensorboardRecorder,
)
from vedette_rl.recording.file_recorder import Means
from vedette_rl.recording.registry import BUILT_IN, SurvivingRecorder, make_recorders
from vedette_rl.recording.tensorboard import ScalarParser


def reader_of(directory: Path):  # type: ignore[no-untyped-def]  # tensorboard ships no types
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    accumulator = EventAccumulator(str(directory))
    accumulator.Reload()
    return accumulator


def exercise(recorder: Recorder) -> None:
    recorder.write({"rollout/ep_rew_mean": 21.0, "rollout/ep_len_mean": 20.0}, step=2**40)
    recorder.store({"train/loss": 1.0})
    recorder.store({"train/loss": 2.0, "train/q_mean": 5.0})
    recorder.flush(step=10)
    recorder.store({"train/loss": 7.0})
    recorder.flush(step=20)
    recorder.flush(step=30)
    recorder.write({"eval/mean_reward": math.nan}, step=3)
    recorder.write_text("config", "[env]\nid = 'CartPole-v1'")
    recorder.close()


def test_tensorboards_own_reader_finds_everything(tmp_path: Path) -> None:
    exercise(TensorboardRecorder(tmp_path, clock=lambda: 1234.5))
    found = reader_of(tmp_path)
    assert set(found.Tags()["scalars"]) == {
        *("rollout/ep_rew_mean", "rollout/ep_len_mean", "train/loss", "train/q_mean"),
        "eval/mean_reward",
    }
    [event] = found.Scalars("rollout/ep_rew_mean")
    assert (event.wall_time, event.step, event.value) == (1234.5, 2**40, 21.0)
    assert [(e.step, e.value) for e in found.Scalars("train/loss")] == [(10, 1.5), (20, 7.0)]
    assert math.isnan(found.Scalars("eval/mean_reward")[0].value)
    [text] = found.Tensors("config")
    assert text.tensor_proto.string_val[0] == b"    [env]\n    id = 'CartPole-v1'"


def test_a_second_recorder_of_a_directory_adds_to_the_first(tmp_path: Path) -> None:
    for step in (100, 50):
        recorder = TensorboardRecorder(tmp_path)
        recorder.write({"train/loss": 0.5}, step=step)
        recorder.close()
    assert {event.step for event in reader_of(tmp_path).Scalars("train/loss")} == {50, 100}


def test_hyperparameters_are_found_by_their_plugin(tmp_path: Path) -> None:
    from tensorboard.plugins.hparams import plugin_data_pb2

    recorder = TensorboardRecorder(tmp_path)
    recorder.write_hparams({"agent.learning_rate": 0.1, "agent.double": True, "env.id": "X-v0"})
    recorder.close()
    content = reader_of(tmp_path).SummaryMetadata("_hparams_/session_start_info").plugin_data
    data = plugin_data_pb2.HParamsPluginData.FromString(content.content)
    values = data.session_start_info.hparams
    assert values["agent.learning_rate"].number_value == 0.1
    assert values["agent.double"].bool_value
    assert values["env.id"].string_value == "X-v0"


def test_what_is_flushed_can_be_read_while_the_run_goes_on(tmp_path: Path) -> None:
    recorder = TensorboardRecorder(tmp_path)
    recorder.write({"train/loss": 0.5}, step=1)
    recorder.flush(step=1)
    assert reader_of(tmp_path).Scalars("train/loss")[0].step == 1
    recorder.close()


def test_of_what_adds_up_a_flush_writes_the_last_value_and_no_mean() -> None:
    means = Means()
    for steps in range(101):
        means.store({"train/steps_left_out": Total(steps), "train/loss": float(steps)})
    assert means.pop_means() == {"train/steps_left_out": 100.0, "train/loss": 50.0}
    means.store({"train/loss": 2.0})
    assert means.pop_means() == {"train/loss": 2.0}


def test_csv_holds_a_line_a_value(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "record.csv"
    exercise(CsvRecorder(path, clock=lambda: 1.0))
    exercise(CsvRecorder(path, clock=lambda: 2.0))
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 12
    losses = [(r["step"], float(r["value"])) for r in rows if r["name"] == "train/loss"]
    assert losses == [("10", 1.5), ("20", 7.0)] * 2


def test_jsonl_holds_an_object_a_line_and_only_json(tmp_path: Path) -> None:
    path = tmp_path / "record.jsonl"
    exercise(JsonlRecorder(path, clock=lambda: 1.0))

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    objects = [json.loads(line, parse_constant=refuse) for line in path.read_text().splitlines()]
    assert objects[1] == {"time_s": 1.0, "step": 10, "train/loss": 1.5, "train/q_mean": 5.0}
    assert objects[3]["eval/mean_reward"] is None
    assert objects[4]["text"].startswith("[env]")
    assert len(objects) == 5


def test_a_tee_gives_everything_to_each(tmp_path: Path) -> None:
    paths = [tmp_path / "a.jsonl", tmp_path / "b.jsonl"]
    exercise(TeeRecorder([*(JsonlRecorder(path, clock=lambda: 1.0) for path in paths)]))
    assert paths[0].read_text() == paths[1].read_text() != ""


class Failing(TeeRecorder):
    """Fails in every call, by its name."""

    def __init__(self, name: str, *, closes: bool = False) -> None:
        super().__init__()
        self.name = name
        self.closes = closes
        self.closed = False

    def write(self, record: Record, step: int) -> None:
        raise RecordingError(Path(self.name), "No space left on device")

    def close(self) -> None:
        self.closed = True
        if not self.closes:
            raise OSError(f"{self.name} cannot be closed")


def test_a_recorder_that_fails_keeps_nothing_from_the_others(tmp_path: Path) -> None:
    last = JsonlRecorder(tmp_path / "last.jsonl", clock=lambda: 1.0)
    tee = TeeRecorder([Failing("one"), Failing("two"), last])
    with pytest.raises(RecordingError, match="cannot record to one") as failed:
        tee.write({"a": 1.0}, step=1)
    assert [note for note in failed.value.__notes__ if "RecordingError" in note and "two" in note]
    with pytest.raises(OSError, match="one cannot be closed") as failed_close:
        tee.close()
    assert failed_close.value.__notes__ == [
        "another recorder failed, too: OSError: two cannot be closed"
    ]
    assert "a" in json.loads((tmp_path / "last.jsonl").read_text())
    with pytest.raises(ValueError, match="closed file"):
        last.write({"a": 2.0}, step=2)


def test_an_error_of_closing_does_not_hide_that_of_writing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    recorder = SurvivingRecorder(lambda: Failing("disk"))
    recorder.write({"a": 1.0}, step=1)
    (said,) = [record.message for record in caplog.records]
    assert said.startswith("cannot record to disk: No space left on device; when it was closed, ")
    assert "OSError: disk cannot be closed; training goes on" in said


def test_recorders_that_were_made_are_closed_where_a_later_one_cannot_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = Failing("first", closes=True)
    monkeypatch.setitem(BUILT_IN, "first", lambda run: first)
    with pytest.raises(UnknownNameError):
        make_recorders(["first", "nothing"], tmp_path)
    assert first.closed


def test_every_recorder_keeps_the_contract(tmp_path: Path) -> None:
    recorders = [TeeRecorder(), CsvRecorder(tmp_path / "c"), JsonlRecorder(tmp_path / "j")]
    for recorder in [*recorders, TensorboardRecorder(tmp_path), TeeRecorder(recorders)]:
        assert implements(recorder, Recorder)
        exercise(recorder) if not isinstance(recorder, TeeRecorder) else None


@pytest.mark.parametrize("kind", [TensorboardRecorder, CsvRecorder, JsonlRecorder])
def test_a_path_that_cannot_be_written_is_said_in_one_line(tmp_path: Path, kind: type) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RecordingError, match=r"cannot record to .*(Not a directory|File exists)"):
        kind(tmp_path / "file" / "inside")


def test_a_full_disk_is_said_at_the_flush() -> None:
    recorder = JsonlRecorder("/dev/full")
    recorder.write({"a": 1.0}, step=1)
    with pytest.raises(RecordingError, match="No space left on device"):
        recorder.flush(step=1)
    with pytest.raises(RecordingError):
        recorder.close()


def test_recording_loads_no_torch() -> None:
    code = (
        "import sys, tempfile; from vedette_rl.recording import TensorboardRecorder as T;"
        "r = T(tempfile.mkdtemp()); r.write({'a': 1.0}, 1); r.write_hparams({'a': 1}); r.close();"
        "print('torch' in sys.modules, 'tensorflow' in sys.modules)"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "False False"


NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=200)


@given(
    st.lists(st.dictionaries(NAMES, st.floats(width=32), max_size=4), min_size=1, max_size=4),
    st.integers(0, 2**63 - 1),
)
def test_scalars_are_parsed_as_protobuf_parses_them(
    written: list[dict[str, float]], step: int
) -> None:
    """Each record comes twice, the second time with the names of one before."""
    parser = ScalarParser()
    for record in [*written, *written]:
        summary = summaries.Summary()
        for name, value in record.items():
            summary.value.add(tag=name, simple_value=value)
        event = events.Event(wall_time=1.5, step=step, summary=summary)
        found = parser.parse(b"\0" * 12 + event.SerializeToString() + b"\0" * 4)
        assert found is not None
        values = np.array(found.values, np.float32)
        assert (found.names, found.step, found.time_s) == (tuple(record), step, 1.5)
        np.testing.assert_array_equal(values, np.array([*record.values()], np.float32))


def test_a_record_that_holds_no_event_or_no_scalar_is_told_apart() -> None:
    parser = ScalarParser()
    assert parser.parse(b"\0" * 12 + b"\x09" + b"\xff" * 40) is None
    version = events.Event(wall_time=1.5, file_version="brain.Event:2").SerializeToString()
    found = parser.parse(b"\0" * 12 + version + b"\0" * 4)
    assert found is not None
    assert found.names == ()


def test_names_of_the_same_length_are_told_apart() -> None:
    parser = ScalarParser()
    for name in ("train/number_1", "train/number_2", "train/number_1"):
        summary = summaries.Summary()
        summary.value.add(tag=name, simple_value=1.0)
        event = events.Event(wall_time=1.5, step=7, summary=summary).SerializeToString()
        found = parser.parse(b"\0" * 12 + event + b"\0" * 4)
        assert found is not None
        assert found.names == (name,)
