"""A bell between processes: a ring is heard, once, also by a listener that starts later."""

import select
import subprocess
import sys

from vedette_services.host.processes import Bell

RING = """
import sys
from vedette_services.host.processes import Bell
Bell(int(sys.argv[1])).ring()
"""


def rung(bell: Bell, wait_s: float = 0.0) -> bool:
    return bool(select.select([bell.fileno()], [], [], wait_s)[0])


def test_rings_that_nobody_has_heard_are_one() -> None:
    bell = Bell()
    assert not rung(bell)
    bell.hush()
    for _ in range(3):
        bell.ring()
    assert rung(bell)
    bell.hush()
    assert not rung(bell)
    bell.close()


def test_a_child_that_rings_and_dies_is_heard() -> None:
    bell = Bell()
    descriptor = bell.fileno()
    command = [sys.executable, "-c", RING, str(descriptor)]
    child = subprocess.Popen(command, pass_fds=[descriptor])
    assert rung(bell, 30.0)
    assert child.wait(30) == 0
    bell.hush()
    assert not rung(bell)
    bell.close()
