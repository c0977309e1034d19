"""How much the gateway may hold, and how much it does."""

import mmap
import os
from pathlib import Path

import pytest

from vedette_services.host.system import private_bytes
from vedette_services.learner.gateway.flow_control import FlightLimits, gateway_memory_limit


def test_the_limit_leaves_room_for_what_is_in_flight_and_for_models() -> None:
    small = gateway_memory_limit(0)
    assert small > 2 * FlightLimits().payload_bytes
    assert gateway_memory_limit(3 << 30) >= small + (8 << 30)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="only Linux says it")
def test_what_a_process_holds_grows_with_its_own_memory_alone() -> None:
    before = private_bytes(os.getpid())
    # Not from the allocator, which may hand out memory that was freed, and keep what is freed.
    with mmap.mmap(-1, 64 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as held:
        for page in range(0, len(held), mmap.PAGESIZE):
            held[page] = 1
        grown = private_bytes(os.getpid()) - before
    assert 60 << 20 < grown < 80 << 20
    assert private_bytes(2**22 + 1) == 0
