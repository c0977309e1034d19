"""What a run's directory tells of its end, and of a start that does not answer yet."""

import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from starts import spec_of  # of tests/support

from vedette_rl.storage.unfinished import unfinished_path
from vedette_services.config import RunConfig, StopConfig
from vedette_services.net.addresses import Address
from vedette_services.run.directory import RunDirectory
from vedette_services.run.outcome import (
    describe_already_done,
    describe_resume_point,
    describe_unsaved,
    last_status,
    read_summary,
    startup_stage,
    write_summary,
)
from vedette_services.status.records import StatusRecordWriter, TrainerStatus
from vedette_services.status.schema import encode
from vedette_services.status.status import Status

HEARD = Status(run_id="a", epoch=3, opt_steps=90, time_s=1_000.0)
ENDED = replace(HEARD, opt_steps=100, exit_reason="max_opts")
CONFIG = RunConfig.model_validate({"env": {"id": "CartPole-v1"}, "agent": {"name": "dqn"}})


def summary(out: Path, status: Status, **changes: Any) -> None:
    (out / "summary.json").write_bytes(encode(replace(status, **changes)))


def checkpoint(out: Path, opt_steps: int) -> None:
    place = out / "checkpoints" / str(opt_steps)
    place.mkdir(parents=True)
    (place / "state.safetensors").touch()


def of(out: Path, *, stopped: bool = False) -> Status:
    return last_status(out, HEARD, since=900.0, stopped=stopped)


def test_the_summary_of_the_epoch_that_ended_is_what_it_came_to(tmp_path: Path) -> None:
    summary(tmp_path, ENDED)
    assert of(tmp_path) == ENDED


@pytest.mark.parametrize(
    "other",
    [
        {"epoch": 4, "exit_reason": ""},  # another start followed at once
        {"epoch": 4},  # and has ended, too
        {"epoch": 2},  # of the start before
        {"run_id": "b"},  # erased and begun anew
        {"exit_reason": ""},  # of the middle: at the end the disk was full
    ],
)
def test_figures_of_another_start_are_not_passed_off(tmp_path: Path, other: dict[str, Any]) -> None:
    summary(tmp_path, ENDED, **{"opt_steps": 7, **other})
    assert of(tmp_path) == HEARD
    assert of(tmp_path, stopped=True) == replace(HEARD, exit_reason="interrupted")


def test_a_summary_of_the_begin_of_a_start_is_not_its_end(tmp_path: Path) -> None:
    """A full disk took no other, but in its place that the start had failed: the end of a run of
    24,884 steps said that it was stopped before the training began."""
    summary(tmp_path, ENDED, exit_reason="failed", phase="starting", opt_steps=0)
    assert of(tmp_path) == HEARD


def test_where_no_summary_could_be_written_the_boards_tell(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    run.make()
    spec_of(run, "a", CONFIG, Address("127.0.0.1", 5555)).write()
    board = StatusRecordWriter(run.learning_map, TrainerStatus)
    board.write(TrainerStatus(epoch=3, opt_steps=100, exit_reason="interrupted", unsaved="full"))
    summary(tmp_path, HEARD)
    last = of(tmp_path)
    assert (last.opt_steps, last.exit_reason) == (100, "interrupted")
    checkpoint(tmp_path, 40)
    assert describe_unsaved(tmp_path, last) == (
        "the final checkpoint is not written (full); a resume begins at optimization step "
        "40, not 100; summary.json is outdated or missing"
    )


def test_a_start_that_never_answered_has_begun_only_if_it_left_a_summary(tmp_path: Path) -> None:
    summary(tmp_path, ENDED)
    assert last_status(tmp_path, None, since=2_000.0, stopped=False) == Status()  # an older start's
    assert last_status(tmp_path, None, since=900.0, stopped=False) == ENDED
    assert last_status(tmp_path, None, since=900.0, stopped=True) == Status()


def test_an_end_is_saved_where_checkpoint_and_summary_are_its_own(tmp_path: Path) -> None:
    summary(tmp_path, ENDED)
    assert describe_unsaved(tmp_path, replace(ENDED, opt_steps=0)) == ""  # nothing was learned
    assert "resume begins at optimization step 0, not 100" in describe_unsaved(tmp_path, ENDED)
    checkpoint(tmp_path, 99)
    assert describe_unsaved(tmp_path, ENDED).startswith(
        "the final checkpoint is not written; a resume begins"
    )
    checkpoint(tmp_path, 100)
    assert describe_unsaved(tmp_path, ENDED) == ""
    assert describe_resume_point(tmp_path) == "a resume begins at optimization step 100"
    summary(tmp_path, HEARD)
    assert describe_unsaved(tmp_path, ENDED) == "summary.json is outdated or missing"


@pytest.mark.parametrize(
    ("stop", "said"),
    [
        ({"max_opts": 100}, "it has 100 of 100 optimization steps; raise stop.max_opts to go on"),
        ({"max_opts": 101}, ""),
        (
            {"max_env_steps": 50},  # another condition than the one that it ended by
            "it has 50 of 50 environment steps; raise stop.max_env_steps to go on",
        ),
    ],
)
def test_a_run_is_already_done_where_its_last_checkpoint_meets_what_ended_it(
    tmp_path: Path, stop: dict[str, Any], said: str
) -> None:
    summary(tmp_path, ENDED, env_steps=50)
    conditions = StopConfig.model_validate(stop)
    assert describe_already_done(tmp_path, conditions) == ""  # its checkpoint is gone
    checkpoint(tmp_path, 100)
    assert describe_already_done(tmp_path, conditions) == (f"already done: {said}" if said else "")


@pytest.mark.parametrize("reason", ["max_seconds", "interrupted"])
def test_seconds_and_an_interruption_leave_more_to_do_until_another_condition_is_met(
    tmp_path: Path, reason: str
) -> None:
    checkpoint(tmp_path, 100)
    summary(tmp_path, ENDED, exit_reason=reason, seconds=20.0)
    stop = StopConfig.model_validate({"max_seconds": 10.0, "max_opts": 101})
    assert describe_already_done(tmp_path, stop) == ""
    met = stop.model_copy(update={"max_opts": 90})
    assert describe_already_done(tmp_path, met) == (
        "already done: it has 100 of 90 optimization steps; raise stop.max_opts to go on"
    )


def test_a_target_that_other_evaluations_reached_does_not_end_the_run(tmp_path: Path) -> None:
    checkpoint(tmp_path, 100)
    stop = StopConfig(target_return=-50.0)
    summary(tmp_path, ENDED, eval={"best_return_mean": -40.3})
    assert describe_already_done(tmp_path, stop) == ""  # one evaluation, which nothing confirmed
    found = {"best_return_mean": -40.3, "reached_return_mean": -40.3}
    summary(tmp_path, ENDED, eval=found)
    assert describe_already_done(tmp_path, stop).startswith("already done: its evaluations")
    assert describe_already_done(tmp_path, stop, new_best=True) == ""


def test_a_run_that_was_killed_may_have_less_than_its_status_counts(tmp_path: Path) -> None:
    checkpoint(tmp_path, 100)
    summary(tmp_path, ENDED, exit_reason="")
    stop = StopConfig.model_validate({"max_opts": 100})
    assert describe_already_done(tmp_path, stop) == ""


@pytest.mark.parametrize("ended", [False, True])
def test_the_summary_of_an_end_is_on_the_disk_with_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ended: bool
) -> None:
    synced: list[Path] = []
    monkeypatch.setattr(
        os, "fsync", lambda file: synced.append(Path(f"/proc/self/fd/{file}").readlink())
    )
    assert write_summary(tmp_path / "summary.json", ENDED, ended=ended) == ""
    assert read_summary(tmp_path) == ENDED
    aside = unfinished_path(tmp_path / "summary.json")
    assert synced == ([aside, tmp_path] if ended else [])


def test_the_stage_is_told_by_what_the_learner_has_made_since_it_started(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    began = time.time() - 10.0
    assert "its process loads" in startup_stage(run, began)
    run.make()
    run.learning_map.touch()
    assert "opens the replay" in startup_stage(run, began)
    run.ingest_map.touch()
    assert "opens its ports" in startup_stage(run, began)
    later = time.time() + 10.0  # a start of its own: what is there is an earlier one's
    assert "its process loads" in startup_stage(run, later)
