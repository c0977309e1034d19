"""An event between processes: setting it wakes whoever waits, once, one that starts later too."""

import select
import subprocess
import sys
from pathlib import Path

import pytest

from vedette_services.host.processes import WakeupEvent

RING = """
import sys
from vedette_services.host.processes import WakeupEvent
WakeupEvent(sys.argv[1]).set()
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


def test_a_child_that_sets_it_and_dies_is_noticed() -> None:
    wakeup = WakeupEvent()
    command = [sys.executable, "-c", RING, wakeup.argument]
    child = subprocess.Popen(command, pass_fds=wakeup.descriptors)
    assert rung(wakeup, 30.0)
    assert child.wait(30) == 0
    wakeup.clear()
    assert not rung(wakeup)
    wakeup.close()


ADOPT = """
import os, sys
from vedette_services.host.processes import WakeupEvent
from vedette_services.host.system import adopt_descriptors
wakeup = WakeupEvent(sys.argv[1])
adopt_descriptors(os.getppid(), wakeup.descriptors)
assert wakeup.is_set
wakeup.clear()
assert not wakeup.is_set
wakeup.set()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not show descriptors")
def test_a_child_that_was_handed_no_descriptors_opens_those_of_its_parent() -> None:
    wakeup = WakeupEvent()
    wakeup.set()
    subprocess.run([sys.executable, "-c", ADOPT, wakeup.argument], check=True)
    assert rung(wakeup)
    wakeup.close()


def test_one_that_is_closed_writes_to_no_other_file(tmp_path: Path) -> None:
    wakeup = WakeupEvent()
    wakeup.close()
    others = [(tmp_path / str(k)).open("wb") for k in range(4)]  # of its descriptors' numbers
    with pytest.raises(OSError, match="Bad file descriptor"):
        wakeup.set()
    for file in others:
        file.close()
    assert [path.stat().st_size for path in tmp_path.iterdir()] == [0] * 4
