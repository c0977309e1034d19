"""Networks that fail: cuts that nobody is told of, cables, resets. Nothing is lost by any."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from counting_run import CountingRun
from daemons import Daemons, free_address, status, wait_for
from namespaces import Cable, LossyCable, Way, why_not
from proxy import Proxy

from vedette_services.net.addresses import Address

pytestmark = pytest.mark.timeout(150)

BACK_S = 6.0
"""After the network is back, samples flow again within this; silence is noticed after 3 s."""


@pytest.fixture
def cable() -> Iterator[Cable]:
    if reason := why_not():
        pytest.skip(reason)
    with Cable() as cable:
        yield cable


@pytest.fixture
def run(daemons: Daemons, cable: Cable) -> CountingRun:
    """A learner here, a manager at the other end of the cable."""
    return run_over(daemons, cable)


def run_over(daemons: Daemons, cable: Cable) -> CountingRun:
    port = free_address().port
    run = CountingRun(daemons, bind=Address("0.0.0.0", port))
    run.address = Address("127.0.0.1", port)
    run.start_manager("far", to=Address(cable.here, port), run_in=cable.inside)
    run.flows()
    return run


def assert_it_goes_on(run: CountingRun) -> None:
    began = time.monotonic()
    run.flows(100)
    took = time.monotonic() - began
    print(f"flow again after {took:.1f} s")
    assert took < BACK_S


@pytest.mark.slow
def test_silent_cuts_and_a_pulled_cable_cost_no_sample(run: CountingRun, cable: Cable) -> None:
    ways: tuple[Way, ...] = ("both", "up", "down")
    for way in ways:
        cable.cut(way)
        time.sleep(8.0 if way == "both" else 4.0)
        cable.fix()
        assert_it_goes_on(run)
    cable.pull(out=True)
    time.sleep(4.0)
    cable.pull(out=False)
    assert_it_goes_on(run)
    cable.renumber()
    assert_it_goes_on(run)
    run.assert_nothing_was_lost()


@pytest.mark.slow
@pytest.mark.parametrize("minutes", [1, pytest.param(10, marks=pytest.mark.timeout(800))])
def test_minutes_without_a_network_cost_no_sample(
    run: CountingRun, cable: Cable, minutes: int
) -> None:
    if minutes > 1 and not os.environ.get("VEDETTE_LONG"):
        pytest.skip("ten minutes of waiting: set VEDETTE_LONG=1")
    cable.cut("both")
    began = time.monotonic()
    wait_for(lambda: run.state_of("far") == "gone", "word that the manager is gone")
    assert status(run.address)["samples"]["lost"] >= 0  # what it held counts as lost until ...
    time.sleep(60.0 * minutes - (time.monotonic() - began))
    cable.fix()
    assert_it_goes_on(run)
    assert run.state_of("far") == "running"  # ... it is there again
    run.assert_nothing_was_lost()


@pytest.mark.slow
def test_a_network_that_loses_a_third_of_its_packets_costs_no_sample(daemons: Daemons) -> None:
    if reason := why_not():
        pytest.skip(reason)
    if not Path("/dev/net/tun").exists():
        pytest.skip("no /dev/net/tun to lose packets with")
    with LossyCable(random.Random(1)) as cable:
        run = run_over(daemons, cable)
        cable.loss = 0.3
        time.sleep(20.0)
        run.flows(200, 60.0)
        cable.loss = 0.0
        print(f"{cable.lost} packets lost, {cable.carried} carried")
        assert cable.lost > 50
        assert_it_goes_on(run)
        run.assert_nothing_was_lost()


@pytest.mark.slow
def test_connections_that_are_reset_every_second_cost_no_sample(daemons: Daemons) -> None:
    run = CountingRun(daemons)
    with Proxy(free_address(), run.address) as proxy:
        run.start_manager("a", to=proxy.listen)
        run.flows()
        for _ in range(10):
            time.sleep(1.0)
            proxy.reset()
        assert_it_goes_on(run)
        assert proxy.resets >= 30
        run.assert_nothing_was_lost()
