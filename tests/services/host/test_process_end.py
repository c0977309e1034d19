"""A process ends soon after its work, whatever code of others has left running in it."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import time

from vedette_services.host.process_end import CHILDREN_S, HANDLERS_S, THREADS_S

FAST = """
import atexit, subprocess, sys, threading, time
from vedette_services.host import process_end
process_end.THREADS_S = process_end.CHILDREN_S = process_end.HANDLERS_S = 0.2

def say(line):
    print("said:", line, file=sys.stderr)
"""


def ended(program: str, limit_s: float = 20.0) -> tuple[subprocess.CompletedProcess[str], float]:
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", FAST + textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=limit_s,
    )
    return done, time.monotonic() - began


def test_a_thread_that_stays_is_named_and_left() -> None:
    done, _ = ended("""
        threading.Thread(target=time.sleep, args=(60,), name="driver").start()
        print("the result", end="")
        process_end.run_to_end(lambda: sys.exit(3), say)
    """)
    assert done.returncode == 3
    assert done.stdout == "the result"
    assert "said: thread 'driver', of the environment or a library, was left: ended" in done.stderr


def test_a_thread_that_ends_by_itself_is_waited_for_and_exit_handlers_run() -> None:
    done, _ = ended("""
        atexit.register(lambda: print("handled"))
        def work():
            time.sleep(0.05)
            print("worked", flush=True)
        threading.Thread(target=work).start()
        process_end.run_to_end(lambda: None, say)
    """)
    assert (done.returncode, done.stdout, done.stderr) == (0, "worked\nhandled\n", "")


def test_an_exit_handler_that_waits_is_left() -> None:
    done, _ = ended("""
        atexit.register(time.sleep, 60)
        process_end.run_to_end(lambda: None, say)
    """)
    assert done.returncode == 0
    assert "said: exit handlers took more than 0.2 s: left" in done.stderr


def test_a_child_that_was_left_does_not_hold_the_reader_of_the_output() -> None:
    done, _ = ended("""
        subprocess.Popen(["sleep", "60"])
        process_end.run_to_end(lambda: None, say)
    """)
    assert done.returncode == 0  # its output's end was seen
    assert "(sleep), of the environment or a library, was left: ended" in done.stderr


def test_a_forked_child_runs_on_in_no_copy_of_the_end() -> None:
    done, _ = ended("""
        import os
        if not os.fork():
            time.sleep(60)
        process_end.run_to_end(lambda: None, say)
    """)
    assert done.returncode == 0


def test_an_error_ends_it_as_python_does() -> None:
    done, _ = ended("""
        def main():
            raise ZeroDivisionError("by zero")
        process_end.run_to_end(main, say)
    """)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "ZeroDivisionError: by zero"


def test_the_bounds_are_within_what_people_wait_for() -> None:
    assert THREADS_S + HANDLERS_S + 2 * CHILDREN_S < 12


def test_what_a_parent_ignores_or_blocks_is_undone() -> None:
    done, _ = ended("""
        import os, signal
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        stops = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2}
        signal.pthread_sigmask(signal.SIG_BLOCK, stops)
        def main():
            killed = subprocess.Popen(["sleep", "60"])
            killed.kill()
            print(killed.wait(), stops & signal.pthread_sigmask(signal.SIG_BLOCK, ()))
        process_end.run_to_end(main, say)
    """)
    assert done.stdout == "-9 set()\n", done.stderr
