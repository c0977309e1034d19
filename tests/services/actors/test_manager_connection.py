"""When a manager makes its sockets anew, and what it asks for again."""

from __future__ import annotations

import dataclasses

import numpy as np
from manager_rig import Rig, a_model, logged_text, of, sent

from vedette_services.actors.connection import ANNOUNCE_WAIT_S, STUCK_S
from vedette_services.actors.instructions import (
    Exit,
    RemakeModels,
    RemakeSockets,
    SendReport,
    StoreModel,
)

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


def test_who_missed_the_announcement_of_a_new_start_asks_anew() -> None:
    rig = Rig().joined()
    remade: list[RemakeSockets] = []
    for second in range(1, int(ANNOUNCE_WAIT_S) + 5):
        remade += of(RemakeSockets, rig.tick(float(second)))
        rig.ack(epoch=2)
    assert len(remade) == 1


def reports_of(rig: Rig, seconds: int, acks_per_s: int) -> int:
    reports = 0
    for turn in range(1, seconds * acks_per_s + 1):
        reports += len(of(SendReport, rig.tick(turn / acks_per_s, every=0.1)))
        rig.ack()
    return reports


def test_a_learner_that_is_behind_with_its_acks_gets_fewer_reports() -> None:
    rig = Rig().joined()
    rig.ack()
    assert 8 <= reports_of(rig, 10, acks_per_s=1) <= 11
    late = Rig().joined()
    late.ack()
    assert len(of(SendReport, late.tick(2.9, every=0.1))) == 1


def test_a_report_goes_up_twice_a_second_while_connected() -> None:
    rig = Rig().joined()
    reports = reports_of(rig, 10, acks_per_s=5)
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
    rig = Rig().joined(credit=0)
    rig.batch()
    for second in range(1, 2 * int(STUCK_S)):
        assert of(RemakeSockets, rig.tick(float(second))) == []
        rig.ack(credit=0)


def test_a_learner_that_announces_its_run_and_acknowledges_nothing_is_named() -> None:
    rig = Rig()
    said = ""
    for _ in range(4):  # a tunnel leads the samples' port to another learner
        rig.state.on_connected(rig.now)
        rig.state.on_control(rig.run, rig.now)
        said += logged_text(rig.tick(rig.now + 3.5))
    assert said.count("announces its run, and acknowledges nothing that is sent to it") == 1
    assert "`vedette doctor` tests that" in said


def test_a_learner_that_goes_away_is_not_said_to_acknowledge_nothing() -> None:
    rig = Rig().joined()
    said = logged_text(rig.tick(rig.now + 7.0))
    for _ in range(3):
        rig.state.on_opened()  # not connected
        said += logged_text(rig.tick(rig.now + 3.5))
    assert "no word from" in said
    assert "acknowledges nothing" not in said


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
    assert "not acted on" in logged_text(refused)


def test_a_model_with_a_value_that_is_not_finite_is_never_stored() -> None:
    rig = Rig().joined()
    model = a_model(9)
    model.body[8:12] = np.float32(np.nan).tobytes()
    assert of(StoreModel, rig.state.on_model(model, 0.0)) == []


def test_models_of_another_run_are_named_while_those_of_the_run_do_not_come() -> None:
    rig = Rig().joined()
    rig.state.on_model(a_model(9, run_id="r2"), 0.0)
    said = ""
    for second in range(1, 15):
        said += logged_text(rig.tick(float(second)))
        rig.ack()
    assert "those of run r2 come: perhaps a tunnel leads the three ports to two learners" in said


def test_time_in_which_the_manager_was_stopped_is_no_silence_of_the_learner() -> None:
    """The end of the run, for example, may wait in its sockets: they are read before it judges."""
    rig = Rig(wait_s=20.0).joined()
    rig.batch()
    rig.tick(1.0)
    rig.ack()
    rig.now = 100.0  # SIGSTOP, SIGCONT
    went_on = rig.state.on_tick(100.0)
    assert of(RemakeSockets, went_on) == of(Exit, went_on) == []
    later = rig.tick(104.0)
    assert len(of(RemakeSockets, later)) == 1, "it is silent by now"
    assert of(Exit, rig.tick(118.0)) == []
    assert len(of(Exit, rig.tick(122.0))) == 1


def test_what_is_heard_after_a_stop_is_not_heard_later_than_it_was() -> None:
    rig = Rig().joined()
    rig.tick(1.0)
    rig.now = 100.0
    rig.ack()
    rig.state.on_tick(100.0)
    assert len(of(RemakeSockets, rig.tick(104.0))) == 1


def test_batches_are_drained_for_as_long_after_a_stop() -> None:
    rig = Rig().joined()
    rig.batch()
    rig.tick(1.0)
    rig.state.leave("asked to stop", rig.now)
    rig.now = 100.0
    assert of(Exit, rig.state.on_tick(100.0)) == []
    assert of(Exit, rig.tick(109.5)) == []
    assert len(of(Exit, rig.tick(110.5))) == 1


def test_a_wait_for_the_first_model_is_said_though_the_learner_comes_back_meanwhile() -> None:
    rig = Rig().joined()
    for second in range(1, 10):
        back = dataclasses.replace(rig.run, learner=100 + second // 3)  # every 3 s
        assert "first model" not in logged_text(rig.state.on_control(back, float(second)))
        assert "first model" not in logged_text(rig.tick(float(second)))
        rig.ack()
    said = rig.tick(10.5)
    assert "actors wait for the learner's first model" in logged_text(said)
    assert of(RemakeModels, said) == [], "they were subscribed to a moment ago"


def test_a_model_that_does_not_come_is_asked_for_again() -> None:
    rig = Rig().joined()
    asked: list[RemakeModels] = []
    for second in range(1, 25):
        asked += of(RemakeModels, rig.tick(float(second)))
        rig.ack()
    assert len(asked) == 2
