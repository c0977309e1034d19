"""The manager's thinking, event by event, without a network: joining a run and sending samples."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from manager_rig import ROWS, RUN, SCHEMA, Rig, a_model, last_report, logged_text, of, sent

from vedette_protocol.column import Column
from vedette_protocol.errors import MalformedError, VersionError
from vedette_protocol.messages import CONFIRM, EVALUATE, Refusal
from vedette_protocol.schema import Schema
from vedette_services.actors.actor_spec import ActorSpec
from vedette_services.actors.handover import AllowedRuns, FinishedBatch
from vedette_services.actors.instructions import (
    AllowRuns,
    Exit,
    KillActor,
    PrepareRun,
    RemakeModels,
    SendBatches,
    StartActor,
    StoreModel,
)
from vedette_services.actors.manager_state import FOLLOW_S
from vedette_services.config.parts import ActorsConfig
from vedette_services.errors import REFUSED
from vedette_services.status.stop_conditions import ENV_STEPS_REACHED

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


def test_an_actor_plays_other_episodes_after_every_start_of_its_host() -> None:
    """A host that came again, or took over a number, repeated what had been played."""
    order = StartActor(0, 10, 0, RUN)
    specs = [ActorSpec.of(order, bits) for bits in (0, 2**64 - 1, 8)]
    assert len({spec.seeds() for spec in specs}) == 3
    assert [ActorSpec.from_json(spec.to_json()).seeds() for spec in specs] == [
        spec.seeds() for spec in specs
    ]


def test_a_manager_told_no_count_takes_the_runs_and_asks_for_numbers_of_its_own() -> None:
    rig = Rig(count=None)
    rig.run = replace(rig.run, actors={"n_buffer": 4, "count": 3})
    rig.state.on_connected(0.0)
    rig.state.on_control(rig.run, 0.0)
    assert of(StartActor, rig.ack(incarnation=100)) == []  # of a report without actors
    assert len(of(StartActor, rig.ack(incarnation=101))) == 3


def test_a_run_that_imports_what_is_not_allowed_is_refused_with_the_fix() -> None:
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


def test_a_manager_for_which_there_is_no_place_may_be_started_again() -> None:
    full = Refusal("m1", 100, "place", "the ledger is full")
    (end,) = of(Exit, Rig().state.on_control(full, 0.0))
    assert (end.code, "the ledger is full" in end.reason) == (1, True)


def test_a_refused_manager_says_how_many_samples_are_lost_with_it() -> None:
    rig = Rig().joined()
    rig.batch()
    (end,) = of(Exit, rig.state.on_control(Refusal("m1", 100, "id", "another m1 is here"), 0.0))
    assert end.reason == f"refused by the learner: another m1 is here; {ROWS} samples are lost"


def test_a_learner_of_another_version_is_no_learner_of_ours() -> None:
    (end,) = of(Exit, Rig().state.on_invalid_message(VersionError(2, 1), 0.0))
    assert end.code == 3
    rig = Rig()
    assert "refused" in logged_text(rig.state.on_invalid_message(MalformedError("what"), 0.0))
    assert rig.state.on_invalid_message(MalformedError("what"), 1.0) == []


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
    assert "nothing answers there yet" in logged_text(rig.tick(4.0))
    rig.state.on_opened()
    rig.state.on_connected(rig.now)
    assert "connected and silent" in logged_text(rig.tick(12.0))
    early = rig.ack(run_id="", incarnation=100, credit=0, reason="the learner is starting")
    assert "announces no run yet: the learner is starting" in logged_text(early)
    assert not logged_text(rig.ack(run_id="", credit=0, reason="the learner is starting"))


# Samples


def test_batches_go_up_within_the_credit() -> None:
    rig = Rig().joined(credit=2)
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
    assert "ignored" in logged_text(rig.state.on_control(replace(rig.run, epoch=2), 1.0))


@pytest.mark.parametrize("settings", [{}, {"env": {"id": "Acrobot-v1"}}])
def test_a_learner_of_a_run_that_was_put_back_is_followed_once_no_other_is_heard_of(
    settings: dict[str, Any],
) -> None:
    rig = Rig().joined()
    rig.state.on_control(replace(rig.run, epoch=9, learner=88), 0.0)
    rig.ack(epoch=9, learner=88)
    assert of(StoreModel, rig.state.on_model(a_model(70, epoch=9), 0.0))
    rig.run = replace(rig.run, epoch=2, learner=99, **settings)
    rig.state.on_control(rig.run, 0.0)
    rig.now = FOLLOW_S - 1.0
    assert logged_text(rig.ack()) == ""
    assert not of(StoreModel, rig.state.on_model(a_model(5, epoch=2), rig.now))
    rig.now = FOLLOW_S
    said = logged_text(rig.ack())
    assert "following epoch 2 of the run, which was at 9; it was put back" in said
    assert of(StoreModel, rig.state.on_model(a_model(5, epoch=2), rig.now))
    assert rig.state.current_run == ("r1", 2)
    assert sent(rig.batch()) == [0]  # of the same incarnation: its numbers go on
    rig.ack(contiguous=1)
    assert rig.state.stats(rig.now)["batches"] == 0  # settled, though its epoch is a lower one


@pytest.mark.parametrize("heard", ["run", "ack"])
def test_a_learner_of_an_older_epoch_is_not_followed_while_the_newer_is_heard_of(
    heard: str,
) -> None:
    rig = Rig().joined()
    newer = replace(rig.run, epoch=9, learner=88)
    older = replace(rig.run, epoch=2, learner=99)
    rig.state.on_control(newer, 0.0)
    for turn in range(1, 10):
        rig.now = turn * FOLLOW_S / 2
        rig.state.on_control(older, rig.now)
        rig.ack(epoch=2, learner=99)
        if heard == "run":
            rig.state.on_control(newer, rig.now)
        else:
            rig.ack(epoch=9, learner=88)
    assert rig.state.current_run == ("r1", 9)


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
    rig = Rig(window_batches=2, on_full="block").joined(credit=0)
    rig.batch()
    assert rig.state.has_room_for(SCHEMA.payload_bytes(ROWS))
    rig.batch()
    assert not rig.state.has_room_for(SCHEMA.payload_bytes(ROWS))

    rig = Rig(window_batches=2, on_full="drop_oldest").joined(credit=0)
    for _ in range(5):
        assert rig.state.has_room_for(SCHEMA.payload_bytes(ROWS))
        rig.batch()
    report = last_report(rig.tick(2.0))
    assert (report.produced, report.dropped, report.window_batches) == (20, 12, 2)


def test_a_delay_of_ten_seconds_is_said_and_one_that_drops_samples_sooner() -> None:
    for window_s, said_at in ((60.0, 10), (8.0, 4)):
        rig = Rig(on_full="drop_oldest", window_s=window_s).joined(credit=0)
        said = []
        for second in range(20):
            said.append("s late" in logged_text(rig.tick(float(second))))
            rig.batch()
            rig.ack(credit=0)
        assert said.index(True) == said_at


def test_samples_that_come_late_are_said_and_reported() -> None:
    rig = Rig(on_full="drop_oldest", window_s=8.0).joined(credit=0)
    said = []
    for second in range(20):
        done = rig.tick(float(second))
        said.append("s late" in logged_text(done))
        rig.batch()
        rig.ack(credit=0)
    assert said.count(True) == 1
    report = last_report(rig.tick(20.0))
    assert (report.delay_s, report.dropped) == (7.5, ROWS * 12)
    assert rig.state.stats(20.0)["delay_s"] == 8.0


def test_where_actors_wait_no_sample_is_dropped_for_its_age() -> None:
    rig = Rig(on_full="block", window_s=1.0).joined(credit=0)
    rig.batch()
    done = rig.tick(30.0)
    assert "s late" not in logged_text(done)
    assert last_report(done).dropped == 0


def test_a_learner_that_is_back_after_half_a_minute_gets_every_sample() -> None:
    """By default: a robot may not wait, and loses nothing meanwhile."""
    rig = Rig(on_full="drop_oldest").joined(credit=0)
    for second in range(30):
        rig.tick(float(second))
        rig.batch()
        rig.ack(credit=0)
    assert sent(rig.ack(credit=99)) == [*range(30)]
    assert last_report(rig.tick(31.0)).dropped == 0


def test_an_ack_of_what_was_never_sent_frees_nothing() -> None:
    rig = Rig().joined()
    rig.batch()
    assert "were ever sent" in logged_text(rig.ack(contiguous=9))
    assert last_report(rig.tick(2.0)).window_batches == 1


def test_why_there_is_no_credit_is_said_once_and_only_if_it_lasts() -> None:
    rig = Rig().joined()
    told = []
    for second in range(30):
        rig.tick(float(second))
        told.append(logged_text(rig.ack(credit=0, reason="warm-up")))
    assert not any(told[:10])
    assert len([text for text in told if "warm-up" in text]) == 1


def test_why_batches_are_rejected_is_said_once() -> None:
    rig = Rig().joined()
    why = "column 'reward' has a value that is not finite"
    assert why in logged_text(rig.ack(rejected_batches=1, rejected_reason=why))
    assert logged_text(rig.ack(rejected_batches=2, rejected_reason=why)) == ""


def test_batches_that_come_after_the_runs_last_step_are_no_fault() -> None:
    told = logged_text(Rig().joined().ack(rejected_batches=1, rejected_reason=ENV_STEPS_REACHED))
    assert told == "the run has all its samples: stop.max_env_steps is reached"


def test_another_start_of_the_learner_in_the_same_epoch_is_not_taken_for_an_older_one() -> None:
    rig = Rig().joined()
    back = replace(rig.run, learner=99)
    told = logged_text(rig.state.on_control(back, 1.0))
    assert "the learner is back (epoch 1); the actors go on" in told
    assert "ignored" not in told
    assert rig.state.on_control(back, 1.0) == []
    other = replace(back, learner=100, agent={**back.agent, "discount": 0.5})
    assert of(PrepareRun, rig.state.on_control(other, 2.0)) == [PrepareRun(other)]
    older = logged_text(rig.state.on_control(replace(other, epoch=0), 3.0))
    assert "announces epoch 0 of a run that is at 1: ignored" in older


def test_a_learner_of_the_same_epoch_gives_its_models_whatever_came_before() -> None:
    """A copy of the run that was behind may have been started as often as the run itself."""
    rig = Rig().joined()
    assert of(StoreModel, rig.state.on_model(a_model(70), 0.0))
    back = rig.state.on_control(replace(rig.run, learner=99), 1.0)
    assert of(RemakeModels, back)  # what is put together there ignores older ones, too
    assert of(StoreModel, rig.state.on_model(a_model(5), 1.0))
    assert not of(StoreModel, rig.state.on_model(a_model(4), 1.0))


def test_a_learner_of_another_release_that_tells_the_same_is_not_taken_for_other_settings() -> None:
    rig = Rig().joined()
    defaults = ActorsConfig(n_buffer=ROWS).model_dump(mode="json")
    back = replace(rig.run, learner=99, actors=defaults, agent={"name": "dqn", "double": False})
    told = logged_text(rig.state.on_control(back, 1.0))
    assert "the actors go on" in told  # `double` is the learner's alone
    deeper = replace(back, learner=100, agent={"name": "dqn", "dueling": True})
    assert "with other settings" in logged_text(rig.state.on_control(deeper, 2.0))


def test_a_run_with_a_setting_of_a_newer_learner_is_refused_with_its_name() -> None:
    rig = Rig()
    run = replace(RUN, actors={**RUN.actors, "outbox": "/var/spool"})
    (left,) = of(Exit, rig.state.on_control(run, 1.0))
    assert left.code == REFUSED
    assert "actors.outbox = '/var/spool': set there, and not known to vedette" in left.reason


def test_evaluations_that_are_not_known_how_to_play_are_left_to_other_hosts() -> None:
    rig = Rig()
    rig.run = replace(RUN, evaluation={"episodes": 3, "lives": 5})
    done = rig.state.on_control(rig.run, 0.0)
    told = logged_text(done)
    assert "evaluations are left to other hosts" in told
    assert "evaluation.lives = 5" in told
    rig.joined()
    assert last_report(rig.tick(2.0)).features == ()
    rig.run = replace(rig.run, run_id="r2", evaluation={"episodes": 3})
    assert last_report(rig.state.on_control(rig.run, 3.0)).features == (EVALUATE, CONFIRM)


# Another run


def test_another_run_begins_with_another_incarnation_and_an_empty_window() -> None:
    rig = Rig().joined()
    rig.batch()
    old = rig.run
    rig.run = replace(RUN, run_id="r2", learner=99)
    done = rig.state.on_control(rig.run, 1.0)
    assert "4 samples of the last are dropped" in logged_text(done)
    assert len(of(KillActor, done)) == 2
    report = last_report(done)
    assert (report.run_id, report.incarnation, report.produced) == ("r2", 101, 0)
    late = FinishedBatch(ROWS, 1, 5, bytes(SCHEMA.payload_bytes(ROWS)))
    assert rig.state.on_batch(0, old, late, 1.0) == []
    assert last_report(rig.tick(3.0)).produced == 0


def test_a_start_with_other_columns_gets_no_batch_that_it_cannot_insert() -> None:
    rig = Rig().joined()
    rig.batch()
    wider = Schema((*SCHEMA.columns, Column("n_steps", "u1")))
    rig.run = replace(rig.run, epoch=2, learner=88, schema=wider)
    done = rig.state.on_control(rig.run, 1.0)
    assert "the run has other columns now: 4 samples of the last are dropped" in logged_text(done)
    report = last_report(done)
    assert (report.run_id, report.incarnation, report.window_batches) == ("r1", 101, 0)
    rig.ack(incarnation=101)
    payload = bytes(wider.payload_bytes(ROWS))
    made = rig.state.on_batch(0, rig.run, FinishedBatch(ROWS, 2, 5, payload), 1.0)
    (batch,) = of(SendBatches, made)[0].batches
    assert (batch.seq, batch.incarnation, batch.schema) == (0, 101, wider.hash)


# Limits of the host


def test_an_actor_that_the_system_does_not_start_is_tried_again_ever_more_rarely() -> None:
    rig = Rig(count=1).joined()
    rig.state.on_actor_exited(0, -9, "", "", 1.0)
    now, waits = 1.0, []
    for _ in range(4):
        while not (started := of(StartActor, rig.state.on_tick(now))):
            now += 0.25
        assert started[0].restarts == 1, "what was not started is no restart"
        rig.state.on_connected(now)
        done = rig.state.on_start_refused(0, "actor 0 cannot be started: the limit of", now)
        waits.append(logged_text(done))
        assert last_report(done).actors[0].error == "actor 0 cannot be started: the limit of"
    assert waits[0].endswith("the limit of (tried again in 1 s)")
    assert waits[2].endswith("(tried again in 4 s)")
    assert not of(Exit, rig.state.on_tick(now))


# Strict runs


def test_how_many_runs_may_be_played_is_passed_on_once() -> None:
    rig = Rig().joined()
    assert of(AllowRuns, rig.ack()) == [], "a run that says nothing"
    first = AllowRuns(AllowedRuns(1, 5, 2))
    assert of(AllowRuns, rig.ack(version=5, runs=2)) == [first]
    assert of(AllowRuns, rig.ack(version=5, runs=2)) == []
    assert of(AllowRuns, rig.ack(version=5, runs=3)) == [AllowRuns(AllowedRuns(1, 5, 3))]
    assert of(AllowRuns, rig.ack(version=5, runs=1)) == [], "a gateway that does not know it"
    assert of(AllowRuns, rig.ack(version=9, runs=2)) == [AllowRuns(AllowedRuns(1, 9, 2))]
    assert of(AllowRuns, rig.ack(version=99, runs=2, learner=7)) == [], "of another learner"


def test_a_model_that_actors_wait_for_is_asked_for_again_until_it_is_here() -> None:
    rig = Rig().joined()
    rig.state.on_model(a_model(5), 0.0)
    rig.ack(version=5, runs=1)
    assert of(RemakeModels, rig.tick(20.0)) == []
    asked: list[RemakeModels] = []
    said = ""
    for version in range(6, 36):  # others make blocks meanwhile
        rig.ack(version=version, runs=1)
        done = rig.tick(rig.now + 1.0)
        asked += of(RemakeModels, done)
        said += logged_text(done)
    assert len(asked) in (2, 3)
    assert "actors wait for the learner's next model" in said
    rig.state.on_model(a_model(35), rig.now)
    assert of(RemakeModels, rig.tick(rig.now + 20.0)) == []
