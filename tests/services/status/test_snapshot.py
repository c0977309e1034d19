"""The snapshot in the status: what it has, what it lacks, and that it fails."""

from __future__ import annotations

import json

import pytest
from configurations import configured

from vedette_services.prometheus import metrics
from vedette_services.status.assembly import assemble_known, counted
from vedette_services.status.records import GatewayStatus, SnapshotProgress, TrainerStatus
from vedette_services.status.schema import decode, encode
from vedette_services.status.snapshot import snapshot_status
from vedette_services.status.status import Eval, SnapshotStatus, Status
from vedette_services.status.text import status_line, status_rows

CONFIG = configured("learner.snapshot=/mnt/nas/cart", env="CartPole-v1")
WRITTEN = SnapshotProgress("written", 12, 900, 1001, opt_steps=60, completed_s=100.0)
INGEST = GatewayStatus(rows=1000, unsafe_batches=3)


def snapshot_at(now: float, progress: SnapshotProgress = WRITTEN) -> SnapshotStatus:
    return snapshot_status(CONFIG.learner, progress, INGEST, now)


def status_of(progress: SnapshotProgress | None) -> Status:
    return counted(
        assemble_known(
            "r", CONFIG, TrainerStatus(phase="training"), INGEST, Eval(), progress=progress
        )
    )


def test_it_says_what_the_newest_generation_has_and_lacks() -> None:
    found = snapshot_at(107.5)
    assert (found.directory, found.state, found.generation) == ("/mnt/nas/cart", "written", 12)
    assert (found.age_s, found.rows, found.opt_steps) == (7.5, 900, 60)
    assert (found.rows_behind, found.unsafe_batches) == (100, 3)
    assert (found.failures, found.failing) == (0, "")


def test_a_start_without_a_generation_lacks_all_rows() -> None:
    found = snapshot_at(107.5, SnapshotProgress())
    assert (found.state, found.generation, found.age_s, found.rows) == (
        "starting",
        None,
        None,
        None,
    )
    assert found.rows_behind == 1000


def test_a_disk_that_does_not_answer_shows_by_the_age() -> None:
    began = SnapshotProgress("written", 12, 900, completed_s=100.0, began_s=130.0)
    interval_s = CONFIG.learner.snapshot_interval_s
    assert snapshot_at(100.0 + 3.9 * interval_s, began).failing == ""
    assert snapshot_at(330.0, began).failing == (
        "the newest generation is 230 s old, and one has been written for 200 s"
    )
    first = SnapshotProgress(began_s=130.0)
    assert snapshot_at(130.0 + 3.9 * interval_s, first).failing == ""
    assert snapshot_at(330.0, first).failing == (
        "no generation of this start is complete, and one has been written for 200 s"
    )


def test_text_line_json_and_metrics_have_the_snapshot() -> None:
    failing = SnapshotProgress("away", 12, 900, why="No space left on device (/mnt)", failures=2)
    status = status_of(failing)
    row = dict(status_rows(status))["snapshot"]
    assert row.startswith("in /mnt/nas/cart, generation 12 ")
    assert row.endswith(
        "up to sample 900, 100 samples not in it, 3 batches of outboxes wait for it, "
        "not written: No space left on device (/mnt)"
    )
    assert (
        "no snapshot can be written (No space left on device (/mnt)), and the last is "
        "generation 12, which lacks 100 samples"
    ) in status_line(status)
    found = {metric.name: metric.value for metric in metrics(status)}
    assert found["snapshot_failures"] == 2
    assert found["snapshot_rows_behind"] == 100
    assert json.loads(encode(status))["snapshot"]["failing"] == "No space left on device (/mnt)"


@pytest.mark.parametrize("progress", [None, SnapshotProgress()])
def test_a_run_without_one_has_no_row_and_no_number(progress: SnapshotProgress | None) -> None:
    config = CONFIG if progress is None else configured(env="CartPole-v1")
    status = counted(
        assemble_known("r", config, TrainerStatus(), INGEST, Eval(), progress=progress)
    )
    assert status.snapshot == SnapshotStatus()
    assert "snapshot" not in dict(status_rows(status))
    assert not [metric for metric in metrics(status) if metric.name.startswith("snapshot")]


def test_a_status_of_a_release_without_it_is_read() -> None:
    said = json.loads(encode(status_of(WRITTEN)))
    del said["snapshot"]
    found = decode(Status, json.dumps(said).encode())
    assert found is not None
    assert (found.run_id, found.snapshot) == ("r", SnapshotStatus())
