"""How long a manager waits, and for whom: a silent learner, a name, a run that is over."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_learner import FakeLearner, a_run, free_address
from manager_rig import Rig, logged_text, of
from test_manager import CODE, ManagerProcess

from vedette_protocol.messages import Stop
from vedette_services.actors.instructions import Exit
from vedette_services.actors.learner_lookup import LearnerLookup
from vedette_services.net.addresses import Address
from vedette_services.run.directory import RunDirectory
from vedette_services.run.learner_location import publish_location

# The state


def test_a_learner_that_does_not_answer_is_waited_for_as_long_as_was_said() -> None:
    rig = Rig(wait_s=60.0)
    assert of(Exit, rig.tick(59.0)) == []
    (left,) = of(Exit, rig.tick(61.0))
    assert (left.code, left.reason) == (1, "no learner answers at far:5555 (waited 60 s)")


def test_every_word_of_the_learner_begins_the_waiting_anew() -> None:
    rig = Rig(wait_s=60.0).joined()
    rig.batch()
    rig.tick(50.0)
    rig.ack(credit=0)
    assert of(Exit, rig.tick(100.0)) == []
    (left,) = of(Exit, rig.tick(111.0))
    assert "; 4 samples are lost" in left.reason


def test_a_manager_waits_for_ever_by_itself() -> None:
    assert of(Exit, Rig().tick(5000.0)) == []


def test_the_end_of_another_run_ends_a_manager_whose_own_learner_is_silent() -> None:
    over = Stop("another", 1, "max_opts", final=True)
    rig = Rig().joined()
    assert rig.state.on_control(over, rig.now) == []  # its own run goes on
    rig.tick(4.0)
    waiting = rig.state.on_control(dataclasses.replace(over, final=False), rig.now)
    assert "ending" not in logged_text(waiting)
    assert "the run is over (max_opts)" in logged_text(rig.state.on_control(over, rig.now))


# The address


def test_an_address_that_cannot_be_found_out_is_the_reason_why_nobody_answers() -> None:
    rig = Rig()
    rig.state.on_unknown_address("host 'far' does not resolve")
    assert "waiting for the learner at far:5555: host 'far' does not resolve" in logged_text(
        rig.tick(5.0)
    )
    rig.state.on_opened()
    assert "nothing answers there yet" in logged_text(rig.tick(60.0))


def test_who_gives_up_on_a_name_that_does_not_resolve_says_so() -> None:
    rig = Rig(wait_s=60.0)
    rig.state.on_unknown_address("host 'far' does not resolve")
    (left,) = of(Exit, rig.tick(61.0))
    assert left.reason.endswith("(waited 60 s); host 'far' does not resolve")


def test_of_several_addresses_the_next_is_tried_until_one_answers() -> None:
    found = [Address("10.0.0.1", 1), Address("::1", 1), Address("10.0.0.3", 1)]
    lookup = LearnerLookup(lambda: Several(found))  # type: ignore[arg-type, return-value]  # a test's

    def next_one() -> Address:
        while (address := lookup.poll()) is None:
            pass
        return address

    assert [next_one() for _ in range(4)] == [*found, found[0]]
    assert next_one() == found[1]
    lookup.on_answer()
    assert next_one() == found[1]
    del found[1]  # its host has moved
    assert next_one() == found[0]


class Several(list[Address]):
    """An address whose name has several."""

    def resolved(self) -> list[Address]:
        return self


# The daemon


@pytest.fixture
def managers() -> Iterator[list[ManagerProcess]]:
    started: list[ManagerProcess] = []
    yield started
    for manager in started:
        manager.end()


def test_a_manager_leaves_when_its_time_to_wait_is_up(
    tmp_path: Path, managers: list[ManagerProcess]
) -> None:
    managers.append(ManagerProcess("no-such-host.invalid", 1, tmp_path / "log", wait_s=0.5))
    assert managers[0].wait() == 1
    assert "host 'no-such-host.invalid' does not resolve" in managers[0].log
    assert "no learner answers at no-such-host.invalid (waited 0.5 s)" in managers[0].log


def test_a_manager_that_starts_after_the_end_leaves_by_what_the_run_directory_says(
    tmp_path: Path, managers: list[ManagerProcess]
) -> None:
    run = RunDirectory(tmp_path / "run")
    run.make()
    run.summary_file.write_text('{"exit_reason": "target_return", "time_s": 100.0}')
    managers.append(ManagerProcess(f"@{run.root}", 1, tmp_path / "log"))
    assert managers[0].wait() == 0
    assert "the run is over (target_return)" in managers[0].log


@pytest.mark.slow
def test_a_manager_finds_the_learner_by_the_run_directory(
    tmp_path: Path, managers: list[ManagerProcess]
) -> None:
    run = RunDirectory(tmp_path / "run")
    managers.append(ManagerProcess(f"@{run.root}", 1, tmp_path / "log"))
    learner = FakeLearner(free_address(), a_run())
    learner.until(lambda: "waiting for the learner's address" in managers[0].log)
    run.make()
    with publish_location(run, learner.address, None):
        learner.until(lambda: learner.rows() > 0)
    learner.stop(final=True)
    learner.until(lambda: "gone" in learner.states)
    assert managers[0].wait() == 0
    learner.close()


TWO = """
import socket
ask = socket.getaddrinfo
def both(host, *more, **options):
    found = [ask(each, *more, **options) for each in ("127.0.0.2", "127.0.0.1")]
    return found[0] + found[1] if host == "two.test" else ask(host, *more, **options)
socket.getaddrinfo = both
"""


@pytest.mark.slow
def test_a_name_whose_first_address_is_dead_is_tried_on_the_second(
    tmp_path: Path, managers: list[ManagerProcess]
) -> None:
    learner = FakeLearner(free_address(), a_run())
    place = Address("two.test", learner.address.port)
    began = time.monotonic()
    managers.append(ManagerProcess(place, 1, tmp_path / "log", code=TWO + CODE))
    learner.until(lambda: learner.rows() > 0)
    assert time.monotonic() - began < 30.0
    learner.stop(final=True)
    learner.until(lambda: "gone" in learner.states)
    assert managers[0].wait() == 0
    learner.close()
