"""A bell between processes: a ring is heard, once, also by a listener that starts later."""

import select
import subprocess
import sys

from vedette_services.host.processes import WakeupEvent

RING = """
import sys
from vedette_services.host.processes import WakeupEvent
WakeupEvent(int(sys.argv[1])).set()
"""


def rung(wakeup: WakeupEvent, wait_s: float = 0.0) -> bool:
    return bool(select.select([wakeup.fileno()], [], [], wait_s)[0])


def test_rings_that_nobody_has_heard_are_one() -> None:
    wakeup = WakeupEvent()
    assert not rung(wakeup)
    wakeup.clear()
    for _ in range(3):
        wakeup.set()
    assert rung(wakeup)
    wakeup.clear()
    assert not rung(wakeup)
    wakeup.close()


def test_a_child_that_rings_and_dies_is_heard() -> None:
    wakeup = WakeupEvent()
    descriptor = wakeup.fileno()
    command = [sys.executable, "-c", RING, str(descriptor)]
    child = subprocess.Popen(command, pass_fds=[descriptor])
    assert rung(wakeup, 30.0)
    assert child.wait(30) == 0
    wakeup.clear()
    assert not rung(wakeup)
    wakeup.close()
