"""The manager's thinking, event by event, without a network."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import pytest

from vedette_protocol.errors import MalformedError, VersionError
from vedette_protocol.messages import Ack, Batch, Refusal, Report, Run, Stop
from vedette_protocol.model import CompleteModel
from vedette_protocol.schema import Column, Schema
from vedette_services.actors.handover import FinishedBatch
from vedette_services.actors.instructions import (
    Exit,
    Instruction,
    KillActor,
    PrepareRun,
    RemakeModels,
    RemakeSockets,
    Say,
    SendBatches,
    SendReport,
    StartActor,
    StopActors,
    StoreModel,
)
from vedette_services.actors.link import ANNOUNCE_WAIT_S, STUCK_S
from vedette_services.actors.manager_state import Identity, ManagerState
from vedette_services.actors.stats import ActorStats

SCHEMA = Schema((Column("reward", "f4"),))
MODEL = Schema((Column("w", "f4", (3,)),))
ROWS = 4
RUN = Run("r1", 1, 77, SCHEMA, MODEL, {"id": "CartPole-v1"}, {"name": "dqn"}, {"n_buffer": 4}, 0)
T = TypeVar("T")


def of(kind: type[T], instructions: Iterable[Instruction]) -> list[T]:
    return [instruction for instruction in instructions if isinstance(instruction, kind)]


def said(instructions: Iterable[Instruction]) -> str:
    return "\n".join(say.text for say in of(Say, instructions))


class Rig:
    """A state, and shorthand for what happens to it."""

    def __init__(self, count: int | None = 2, **actors: Any) -> None:
        self.incarnations = iter(range(100, 200))
        self.state = ManagerState(
            Identity("m1", "host", "far:5555"),
            count=count,
            allow_import=("my_pkg",),
            incarnation=lambda: next(self.incarnations),
            jitter=lambda: 0.5,
            now=0.0,
        )
        self.run = replace(RUN, actors={**RUN.actors, **actors})
        self.now = 0.0

    def joined(self) -> Rig:
        """Connected, with the run announced, acknowledged once and its actors started."""
        self.state.on_connected(self.now)
        self.state.on_control(self.run, self.now)
        self.ack()
        return self

    def ack(self, contiguous: int = 0, credit: int = 8, **fields: Any) -> list[Instruction]:
        ack = Ack(
            self.run.run_id,
            self.run.epoch,
            self.run.learner,
            "m1",
            100,
            contiguous,
            0,
            0,
            0,
            credit,
            1 << 20 if credit else 0,
            0,
            10,
        )
        return self.state.on_control(replace(ack, **fields), self.now)

    def batch(self, index: int = 0) -> list[Instruction]:
        payload = bytes(SCHEMA.payload_bytes(ROWS))
        return self.state.on_batch(index, self.run, FinishedBatch(ROWS, 1, 5, payload), self.now)

    def tick(self, to: float, every: float = 0.5) -> list[Instruction]:
        done: list[Instruction] = []
        while self.now < to:
            self.now = min(to, self.now + every)
            done += self.state.on_tick(self.now)
        return done

    def exited(self, index: int, code: int = 0, cause: str = "", trace: str = "") -> list[Any]:
        return self.state.on_actor_exited(index, code, cause, trace, self.now)


def sent(instructions: Iterable[Instruction]) -> list[int]:
    """Sequence numbers of the batches sent."""
    return [batch.seq for send in of(SendBatches, instructions) for batch in send.batches]


def last_report(instructions: Iterable[Instruction]) -> Report:
    return of(SendReport, instructions)[-1].report


def a_model(version: int, *, epoch: int = 1, run_id: str = "r1", spec: str = "") -> CompleteModel:
    body = version.to_bytes(8, "little") + MODEL.pack({"w": np.ones((1, 3), np.float32)}, 1)
    return CompleteModel(run_id, epoch, version, spec or MODEL.hash, bytearray(body))


# Joining


def test_actors_start_once_the_run_and_their_numbers_are_known() -> None:
    rig = Rig()
    assert last_report(rig.state.on_connected(0.0)).run_id == ""
    joined = rig.state.on_control(rig.run, 0.0)
    assert of(PrepareRun, joined) == [PrepareRun(rig.run)]
    assert of(StartActor, joined) == []
    assert of(StartActor, rig.ack()) == [
        StartActor(0, 10, 0, rig.run),
        StartActor(1, 11, 0, rig.run),
    ]
    assert of(StartActor, rig.ack()) == []


def test_a_manager_told_no_count_takes_the_runs_and_asks_for_numbers_of_its_own() -> None:
    rig = Rig(count=None)
    rig.run = replace(rig.run, actors={"n_buffer": 4, "count": 3})
    rig.state.on_connected(0.0)
    rig.state.on_control(rig.run, 0.0)
    assert of(StartActor, rig.ack(incarnation=100)) == []  # of a report without actors
    assert len(of(StartActor, rig.ack(incarnation=101))) == 3


def test_a_run_that_imports_what_is_not_allowed_is_refused_with_the_mend() -> None:
    rig = Rig()
    run = replace(RUN, env={"id": "evil:Env-v0"})
    (end,) = of(Exit, rig.state.on_control(run, 0.0))
    assert end.code == 3
    assert "--allow-import evil" in end.reason
    allowed = replace(RUN, env={"id": "my_pkg.sub:Env-v0"})
    assert of(Exit, Rig().state.on_control(allowed, 0.0)) == []


@pytest.mark.parametrize(
    ("actors", "told"),
    [
        ({"n_buffer": 0}, "n_buffer"),
        ({"unknown": 1}, "unknown"),
        ({"n_buffer": 60_000, "window_bytes": 1 << 16}, "smaller"),
    ],
)
def test_settings_that_cannot_be_played_are_refused(actors: dict[str, Any], told: str) -> None:
    (end,) = of(Exit, Rig().state.on_control(replace(RUN, actors=actors), 0.0))
    assert end.code == 3
    assert told in end.reason or "bytes" in end.reason


def test_a_refusal_ends_the_manager_it_names_and_no_other() -> None:
    rig = Rig()
    mine = Refusal("m1", 100, "id", "another m1 is here")
    assert of(Exit, rig.state.on_control(replace(mine, manager="m2"), 0.0)) == []
    assert of(Exit, rig.state.on_control(replace(mine, incarnation=5), 0.0)) == []
    (end,) = of(Exit, rig.state.on_control(mine, 0.0))
    assert (end.code, "another m1 is here" in end.reason) == (3, True)


def test_a_learner_of_another_version_is_no_learner_of_ours() -> None:
    (end,) = of(Exit, Rig().state.on_garbage(VersionError(2, 1), 0.0))
    assert end.code == 3
    rig = Rig()
    assert "refused" in said(rig.state.on_garbage(MalformedError("what"), 0.0))
    assert rig.state.on_garbage(MalformedError("what"), 1.0) == []


def test_a_manager_that_gives_up_tells_the_learner_why_before_it_leaves() -> None:
    rig = Rig()
    rig.state.on_opened()
    refused = rig.state.on_control(replace(RUN, env={"id": "evil.envs:Env-v0"}), 0.0)
    assert isinstance(refused[-1], Exit)
    report = last_report(refused)
    assert report.state == "gone"
    assert ["--allow-import evil" in actor.error for actor in report.actors] == [True, True]

    rig = Rig(count=None).joined()  # how many would play is not known yet
    other = replace(RUN, epoch=2, learner=88, env={"id": "evil.envs:Env-v0"})
    rig.batch()
    report = last_report(rig.state.on_control(other, 1.0))
    assert (report.state, report.produced, report.run_id) == ("gone", ROWS, "r1")
    assert not any(actor.alive for actor in report.actors)


def test_what_a_manager_waits_for_is_said() -> None:
    rig = Rig()
    rig.state.on_opened()
    assert "nothing answers there yet" in said(rig.tick(4.0))
    rig.state.on_opened()
    rig.state.on_connected(rig.now)
    assert "connected and silent" in said(rig.tick(12.0))
    early = rig.ack(run_id="", incarnation=100, credit=0, reason="the learner is starting")
    assert "announces no run yet: the learner is starting" in said(early)
    assert not said(rig.ack(run_id="", credit=0, reason="the learner is starting"))


# Samples


def test_batches_go_up_within_the_credit() -> None:
    rig = Rig().joined()
    rig.ack(credit=2)
    assert [sent(rig.batch()) for _ in range(3)] == [[0], [1], []]
    assert sent(rig.ack(contiguous=1, credit=2)) == [2]


def test_nothing_is_sent_before_an_ack_on_a_fresh_connection_then_all_of_it_again() -> None:
    rig = Rig().joined()
    rig.batch()
    rig.batch()
    rig.state.on_disconnected()
    assert sent(rig.batch()) == []
    rig.state.on_connected(1.0)
    assert sent(rig.tick(2.0)) == []
    assert sent(rig.ack(contiguous=1)) == [1, 2]


def test_a_new_learner_on_the_run_gets_what_is_unsettled_and_actors_go_on() -> None:
    rig = Rig().joined()
    rig.batch()
    rig.run = replace(rig.run, epoch=2, learner=88)
    back = rig.state.on_control(rig.run, 1.0)
    assert of(KillActor, back) == of(PrepareRun, back) == []
    assert sent(rig.ack()) == [0]


def test_a_learner_back_with_other_settings_gets_other_actors() -> None:
    rig = Rig().joined()
    rig.run = replace(rig.run, epoch=2, learner=88, env={"id": "Acrobot-v1"})
    back = rig.state.on_control(rig.run, 1.0)
    assert [kill.index for kill in of(KillActor, back)] == [0, 1]
    assert of(PrepareRun, back) == [PrepareRun(rig.run)]
    rig.ack()
    assert of(StartActor, rig.exited(0, -9)) == [StartActor(0, 10, 1, rig.run)]


def test_an_older_epoch_of_the_run_is_ignored() -> None:
    rig = Rig().joined()
    rig.state.on_control(replace(rig.run, epoch=3, learner=88), 1.0)
    assert "ignored" in said(rig.state.on_control(replace(rig.run, epoch=2), 1.0))


def test_what_the_socket_did_not_take_is_sent_at_the_next_turn() -> None:
    rig = Rig().joined()
    (send,) = of(SendBatches, rig.batch())
    rig.state.on_unsent(send.batches)
    assert sent(rig.tick(0.5)) == [0]


def test_a_batch_that_stays_unsettled_is_sent_again_after_a_while() -> None:
    rig = Rig().joined()
    rig.batch()
    for second in range(1, 5):
        assert sent([*rig.tick(float(second)), *rig.ack()]) == []
    rig.tick(5.5)
    rig.ack()
    assert sent(rig.tick(6.0)) == [0]


def test_a_full_window_makes_actors_wait_or_drops_the_oldest() -> None:
    rig = Rig(window_batches=2, on_full="block").joined()
    rig.ack(credit=0)
    rig.batch()
    assert rig.state.takes(SCHEMA.payload_bytes(ROWS))
    rig.batch()
    assert not rig.state.takes(SCHEMA.payload_bytes(ROWS))

    rig = Rig(window_batches=2, on_full="drop_oldest").joined()
    rig.ack(credit=0)
    for _ in range(5):
        assert rig.state.takes(SCHEMA.payload_bytes(ROWS))
        rig.batch()
    report = last_report(rig.tick(1.0))
    assert (report.produced, report.dropped, report.window_batches) == (20, 12, 2)


def test_an_ack_of_what_was_never_sent_frees_nothing() -> None:
    rig = Rig().joined()
    rig.batch()
    assert "were ever sent" in said(rig.ack(contiguous=9))
    assert last_report(rig.tick(1.0)).window_batches == 1


def test_why_there_is_no_credit_is_said_once_and_only_if_it_lasts() -> None:
    rig = Rig().joined()
    told = []
    for second in range(30):
        rig.tick(float(second))
        told.append(said(rig.ack(credit=0, reason="warm-up")))
    assert not any(told[:10])
    assert len([text for text in told if "warm-up" in text]) == 1


# Silence


def test_silence_remakes_the_sockets_again_and_again() -> None:
    rig = Rig().joined()
    remade = of(RemakeSockets, rig.tick(20.0))
    assert len(remade) == 5
    assert remade[0].delay_s == 0.25


def test_acks_keep_the_sockets() -> None:
    rig = Rig().joined()
    for second in range(1, 30):
        assert of(RemakeSockets, rig.tick(float(second))) == []
        rig.ack()


def test_a_learner_that_never_announces_its_run_is_asked_anew() -> None:
    rig = Rig()
    remade: list[RemakeSockets] = []
    for second in range(1, int(ANNOUNCE_WAIT_S) + 5):
        remade += of(RemakeSockets, rig.tick(float(second)))
        rig.ack(run_id="")
    assert len(remade) == 1


def test_a_report_goes_up_twice_a_second_while_connected() -> None:
    rig = Rig().joined()
    reports = 0
    for second in range(1, 11):
        reports += len(of(SendReport, rig.tick(float(second), every=0.1)))
        rig.ack()
    assert 15 <= reports <= 22
    rig.state.on_disconnected()
    assert of(SendReport, rig.tick(12.0)) == []


def test_new_sockets_carry_samples_though_nobody_saw_their_connection_being_made() -> None:
    rig = Rig().joined()
    rig.batch()
    assert of(RemakeSockets, rig.tick(4.0))
    assert sent([*rig.ack(), *rig.tick(4.5)]) == []  # none is open
    rig.state.on_opened()
    assert sent(rig.ack()) == [0]
    assert of(SendReport, rig.tick(5.5))


def test_sockets_that_carry_acks_but_no_samples_are_made_anew() -> None:
    rig = Rig().joined()
    rig.batch()
    remade: list[RemakeSockets] = []
    for second in range(1, int(STUCK_S) + 5):
        remade += of(RemakeSockets, rig.tick(float(second)))
        rig.ack()
    assert len(remade) == 1


def test_without_credit_nothing_is_stuck() -> None:
    rig = Rig().joined()
    rig.batch()
    for second in range(1, 2 * int(STUCK_S)):
        assert of(RemakeSockets, rig.tick(float(second))) == []
        rig.ack(credit=0)


# Models


def test_newer_models_are_stored_and_older_ones_are_not() -> None:
    rig = Rig().joined()
    assert of(StoreModel, rig.state.on_model(a_model(5), 0.0))
    assert rig.state.on_model(a_model(5), 0.0) == []
    assert rig.state.on_model(a_model(4), 0.0) == []
    (stored,) = of(StoreModel, rig.state.on_model(a_model(2, epoch=2), 0.0))
    assert (stored.epoch, stored.version) == (2, 2)


def test_a_model_that_comes_before_its_run_waits_for_it() -> None:
    rig = Rig()
    assert rig.state.on_model(a_model(3), 0.0) == []
    assert of(StoreModel, rig.state.on_control(rig.run, 0.0))[0].version == 3


def test_a_model_of_another_run_or_spec_is_never_stored() -> None:
    rig = Rig().joined()
    assert of(StoreModel, rig.state.on_model(a_model(9, run_id="r2"), 0.0)) == []
    refused = rig.state.on_model(a_model(9, spec="0" * 16), 0.0)
    assert of(StoreModel, refused) == []
    assert "not acted on" in said(refused)


def test_a_model_with_a_value_that_is_not_finite_is_never_stored() -> None:
    rig = Rig().joined()
    model = a_model(9)
    model.body[8:12] = np.float32(np.nan).tobytes()
    assert of(StoreModel, rig.state.on_model(model, 0.0)) == []


def test_a_model_that_does_not_come_is_asked_for_again() -> None:
    rig = Rig().joined()
    asked: list[RemakeModels] = []
    for second in range(1, 25):
        asked += of(RemakeModels, rig.tick(float(second)))
        rig.ack()
    assert len(asked) == 2


# Actors


def test_a_death_is_told_with_its_traceback_once_and_reported() -> None:
    rig = Rig().joined()
    rig.state.on_stats(0, ActorStats(state="playing", env_steps=9), 0.0)
    done = rig.exited(0, 1, "ValueError: no", "Traceback ...")
    assert "actor 0 died: ValueError: no\nTraceback ..." in said(done)
    assert last_report(done).actors[0].error == "ValueError: no"
    assert of(StartActor, rig.tick(1.0)) == [StartActor(0, 10, 1, rig.run)]
    assert "Traceback" not in said(rig.exited(0, 1, "ValueError: no", "Traceback ..."))


def test_a_host_where_every_actor_dies_before_a_step_gives_up() -> None:
    rig = Rig(count=1).joined()
    for _ in range(4):
        assert of(Exit, rig.exited(0, 1, "E: e", "Traceback X")) == []
        for _ in range(40):
            rig.tick(rig.now + 1)
            rig.ack()
    (end,) = of(Exit, rig.exited(0, 1, "E: e", "Traceback X"))
    assert end.code == 1
    assert "Traceback X" in end.reason


def test_an_actor_that_refuses_the_spec_ends_the_manager_with_3() -> None:
    rig = Rig().joined()
    (end,) = of(Exit, rig.exited(0, 3, "SpecMismatchError: 'obs' is f4[3], expected f4[4]"))
    assert end.code == 3
    assert "'obs'" in end.reason


def test_a_hanging_actor_is_killed() -> None:
    rig = Rig(count=1, step_timeout_s=5.0).joined()
    rig.state.on_stats(0, ActorStats(state="playing", env_steps=4), 0.0)
    for second in range(1, 5):
        assert of(KillActor, rig.tick(float(second))) == []
        rig.ack()
    done = rig.tick(6.0)
    assert of(KillActor, done) == [KillActor(0)]
    assert "made no step within 5 s" in said(done)


# Another run


def test_another_run_begins_with_another_incarnation_and_an_empty_window() -> None:
    rig = Rig().joined()
    rig.batch()
    old = rig.run
    rig.run = replace(RUN, run_id="r2", learner=99)
    done = rig.state.on_control(rig.run, 1.0)
    assert "4 samples of the last are dropped" in said(done)
    assert len(of(KillActor, done)) == 2
    report = last_report(done)
    assert (report.run_id, report.incarnation, report.produced) == ("r2", 101, 0)
    late = FinishedBatch(ROWS, 1, 5, bytes(SCHEMA.payload_bytes(ROWS)))
    assert rig.state.on_batch(0, old, late, 1.0) == []
    assert last_report(rig.tick(2.0)).produced == 0


# Leaving


def stop(*, final: bool) -> Stop:
    return Stop("r1", 1, "test", final)


def test_the_end_of_the_run_drains_and_leaves() -> None:
    rig = Rig().joined()
    rig.batch()
    done = rig.state.on_control(stop(final=True), 0.0)
    assert of(StopActors, done) == [StopActors()]
    assert last_report(done).state == "draining"
    rig.exited(0)
    rig.batch(1)
    assert of(Exit, rig.exited(1)) == []
    done = rig.ack(contiguous=2)
    assert last_report(done).state == "gone"
    assert of(Exit, done)[0].code == 0


def test_a_stopped_learner_that_will_come_back_is_waited_for() -> None:
    rig = Rig().joined()
    done = rig.state.on_control(stop(final=False), 0.0)
    assert of(StopActors, done) == []
    assert "waiting for it to come back" in said(done)


def test_the_end_of_another_run_is_not_ours() -> None:
    rig = Rig().joined()
    assert rig.state.on_control(replace(stop(final=True), run_id="r9"), 0.0) == []


def test_a_drain_is_bounded_and_says_what_is_lost() -> None:
    rig = Rig().joined()
    rig.ack(credit=0)
    rig.batch()
    rig.state.leave("told to stop", rig.now)
    rig.exited(0)
    assert of(Exit, rig.tick(9.5)) == []
    done = rig.tick(10.5)
    assert "4 samples are lost" in said(done)
    assert of(KillActor, done) == [KillActor(1)]
    assert of(Exit, done)[0].code == 0


def test_a_manager_without_a_run_leaves_at_once() -> None:
    rig = Rig()
    assert of(Exit, rig.state.leave("told to stop", 0.0))[0].code == 0
    assert of(Exit, rig.tick(1.0)) == []


def test_nobody_is_started_again_while_leaving() -> None:
    rig = Rig().joined()
    rig.state.leave("told to stop", 0.0)
    assert of(StartActor, [*rig.exited(0, 1, "E: e"), *rig.tick(5.0)]) == []


def test_sent_batches_name_run_manager_and_incarnation() -> None:
    rig = Rig().joined()
    (send,) = of(SendBatches, rig.batch(1))
    (batch,) = send.batches
    assert isinstance(batch, Batch)
    assert (batch.run_id, batch.manager, batch.incarnation) == ("r1", "m1", 100)
    assert (batch.actor, batch.epoch, batch.version, batch.rows) == (1, 1, 5, ROWS)
