"""One of the three ports alone fails, bits turn, a line is slow, a peer vanishes: real sockets."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
from counting_run import CountingRun
from daemons import Daemons, free_address, status, wait_for
from namespaces import Cable, why_not
from proxy import Proxy

from vedette_services.net.addresses import Address
from vedette_services.net.keys import make_keys

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

SAMPLES, CONTROL, MODELS = range(3)
BACK_S = 8.0


def test_each_of_the_three_ports_may_be_cut_alone(daemons: Daemons) -> None:
    run = CountingRun(daemons)
    with Proxy(free_address(), run.address) as proxy:
        manager = run.start_manager("a", to=proxy.listen)
        run.flows()
        for port in (SAMPLES, CONTROL, MODELS):
            proxy.hold(True, port)
            time.sleep(5.0)
            if port == MODELS:  # nobody needs a newer model to play on
                run.flows(100, BACK_S)
                run.start_manager("late", to=proxy.listen).child("actor")  # waits for its model
            proxy.hold(False, port)
            began = time.monotonic()
            run.flows(100)
            took = time.monotonic() - began
            print(f"port {port}: flow again after {took:.1f} s")
            assert took < BACK_S
        assert "connecting again" in manager.log  # of control: silence makes every socket anew
        wait_for(lambda: steps_of(run, "late") > 0, "steps of the late manager")
        run.assert_nothing_was_lost()


def steps_of(run: CountingRun, manager: str) -> int:
    found = [m for m in status(run.address).get("managers", []) if m["id"] == manager]
    return sum(actor["env_steps"] for m in found for actor in m["actors"])


def test_bits_that_turn_on_the_way_end_the_connection_where_there_are_keys(
    daemons: Daemons, tmp_path: Path
) -> None:
    keys = tmp_path / "keys"
    make_keys(keys, [])
    run = CountingRun(daemons, keys=keys)
    with Proxy(free_address(), run.address) as proxy:
        run.start_manager("a", to=proxy.listen)
        run.flows()
        proxy.flips_per_byte = 2e-5  # some once a second
        wait_for(lambda: proxy.flips >= 5, "bits that turned")
        proxy.flips_per_byte = 0.0
        run.flows()
        found = run.status()
        print(f"{proxy.flips} bits turned, {proxy.connections} connections; {found['samples']}")
        assert found["samples"]["rejected"] == found["garbage"] == 0  # nothing of it came through
        run.assert_nothing_was_lost()


def test_a_peer_that_vanishes_without_a_word_is_let_go(daemons: Daemons) -> None:
    if reason := why_not():
        pytest.skip(reason)
    with Cable() as cable:
        port = free_address().port
        run = CountingRun(daemons, bind=Address("0.0.0.0", port))
        run.address = Address("127.0.0.1", port)
        far = run.start_manager("far", to=Address(cable.here, port), run_in=cable.inside)
        run.flows()
        assert connections_from(cable.there) == 3
        cable.cut("both")  # its last report is not received, as of a host without power
        began = time.monotonic()
        for pid in (far.pid, *far.children()):
            os.kill(pid, signal.SIGKILL)
        wait_for(lambda: run.state_of("far") == "gone", "word that it is gone")
        gone_s = time.monotonic() - began
        wait_for(lambda: connections_from(cable.there) == 0, "end of its connections", 45.0)
        print(f"gone after {gone_s:.1f} s, let go after {time.monotonic() - began:.1f} s")
        assert run.learner.stop() == 0


def connections_from(host: str) -> int:
    """TCP connections of this machine with that peer that are established, as the kernel has it."""
    peer = bytes(map(int, host.split(".")))[::-1].hex().upper()
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    return sum(line.split()[2].startswith(peer) and line.split()[3] == "01" for line in lines)
