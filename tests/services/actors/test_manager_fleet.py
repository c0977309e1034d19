"""A manager's actors: deaths, restarts, and how it leaves."""

from __future__ import annotations

from dataclasses import replace

from manager_rig import ROWS, Rig, last_report, logged_text, of

from vedette_protocol.messages import Batch, Stop
from vedette_services.actors.actor_stats import ActorStats
from vedette_services.actors.instructions import (
    Exit,
    InspectActor,
    KillActor,
    SendBatches,
    StartActor,
    StopActors,
)

# Actors


def test_a_death_is_told_with_its_traceback_once_and_reported() -> None:
    rig = Rig().joined()
    rig.state.on_stats(0, ActorStats(state="playing", env_steps=9), 0.0)
    done = rig.exited(0, 1, "ValueError: no", "Traceback ...")
    assert "actor 0 died: ValueError: no\nTraceback ..." in logged_text(done)
    assert last_report(done).actors[0].error == "ValueError: no"
    assert of(StartActor, rig.tick(1.0)) == [StartActor(0, 10, 1, rig.run)]
    assert "Traceback" not in logged_text(rig.exited(0, 1, "ValueError: no", "Traceback ..."))


def test_a_host_where_every_actor_dies_before_a_step_gives_up() -> None:
    rig = Rig(count=1).joined()
    for _ in range(4):
        assert of(Exit, rig.exited(0, 1, "E: e (env.py:3, in step)", "Traceback X")) == []
        for _ in range(40):
            rig.tick(rig.now + 1)
            rig.ack()
    done = rig.exited(0, 1, "E: e (env.py:3, in step)", "Traceback X")
    (end,) = of(Exit, done)
    assert (end.code, end.reason) == (1, "no actor can play here: E: e (env.py:3, in step)")
    assert last_report(done).actors[0].error == end.reason


def test_an_actor_that_refuses_the_spec_ends_the_manager_with_3() -> None:
    rig = Rig().joined()
    (end,) = of(Exit, rig.exited(0, 3, "SpecMismatchError: 'obs' is f4[3], expected f4[4]"))
    assert end.code == 3
    assert "'obs'" in end.reason


def test_an_environment_that_ends_its_process_with_status_3_refuses_nothing() -> None:
    rig = Rig(count=1).joined()
    done = rig.exited(0, 3)
    assert of(Exit, done) == []
    assert "status 3 and no error: its environment's code ended the process" in logged_text(done)
    assert of(StartActor, rig.tick(2.0))


def test_a_hanging_actor_is_killed() -> None:
    rig = Rig(count=1, step_timeout_s=5.0).joined()
    rig.state.on_stats(0, ActorStats(state="playing", env_steps=4), 0.0)
    for second in range(1, 5):
        assert of(KillActor, rig.tick(float(second))) == []
        rig.ack()
    assert of(InspectActor, rig.tick(6.0)) == [InspectActor(0)]
    done = rig.state.on_inspected(0, [])
    assert of(KillActor, done) == [KillActor(0)]
    assert "made no step within 5 s" in logged_text(done)


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
    assert "waiting for it to come back" in logged_text(done)


def test_the_end_of_another_run_is_not_ours() -> None:
    rig = Rig().joined()
    assert rig.state.on_control(replace(stop(final=True), run_id="r9"), 0.0) == []


def test_the_end_of_an_earlier_start_is_not_ours_while_our_learner_answers() -> None:
    rig = Rig().joined()
    rig.run = replace(rig.run, epoch=2, learner=88)
    rig.state.on_control(rig.run, 0.0)
    rig.ack()
    assert rig.state.on_control(stop(final=True), 0.0) == []
    assert rig.state.on_control(stop(final=False), 0.0) == []
    done = rig.state.on_control(stop(final=True), 3.5)  # without an ack for 3 s
    assert of(StopActors, done) == [StopActors()]


def test_a_drain_is_bounded_and_says_what_is_lost() -> None:
    rig = Rig().joined(credit=0)
    rig.batch()
    rig.state.leave("asked to stop", rig.now)
    rig.exited(0)
    assert of(Exit, rig.tick(9.5)) == []
    done = rig.tick(10.5)
    assert "4 samples are lost" in logged_text(done)
    assert of(KillActor, done) == [KillActor(1)]
    assert of(Exit, done)[0].code == 0


def test_a_manager_without_a_run_leaves_at_once() -> None:
    rig = Rig()
    assert of(Exit, rig.state.leave("asked to stop", 0.0))[0].code == 0
    assert of(Exit, rig.tick(1.0)) == []


def test_nobody_is_started_again_while_leaving() -> None:
    rig = Rig().joined()
    rig.state.leave("asked to stop", 0.0)
    assert of(StartActor, [*rig.exited(0, 1, "E: e"), *rig.tick(5.0)]) == []


def test_sent_batches_name_run_manager_and_incarnation() -> None:
    rig = Rig().joined()
    (send,) = of(SendBatches, rig.batch(1))
    (batch,) = send.batches
    assert isinstance(batch, Batch)
    assert (batch.run_id, batch.manager, batch.incarnation) == ("r1", "m1", 100)
    assert (batch.actor, batch.epoch, batch.version, batch.rows) == (1, 1, 5, ROWS)


def test_a_dead_actor_waits_as_long_as_the_run_says() -> None:
    rig = Rig(count=1, restart_min_s=3.0, restart_max_s=3.0).joined()
    rig.exited(0, 1, "ValueError: no", "")
    assert of(StartActor, rig.tick(2.5)) == []
    assert len(of(StartActor, rig.tick(3.5))) == 1
