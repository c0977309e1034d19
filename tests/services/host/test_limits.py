"""A process that the system does not start is named with the limit that was met."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from vedette_rl.storage import control_groups
from vedette_services.errors import FAILED, StartRefusedError, error_message
from vedette_services.host.limits import describe_limit, start_refused
from vedette_services.host.processes import spawn

WITHOUT_DESCRIPTORS = """
import os, resource
from vedette_services.errors import StartRefusedError
from vedette_services.host.processes import spawn
resource.setrlimit(resource.RLIMIT_NOFILE, (32, 32))
held = []
try:
    while True:
        held.append(os.dup(0))
except OSError:
    pass
try:
    spawn(["true"], name="actor 3")
except StartRefusedError as error:
    print(error)
"""


def test_a_start_without_a_descriptor_left_names_the_limit() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_DESCRIPTORS], capture_output=True, text=True, timeout=60
    )
    said = "actor 3 cannot be started: the limit of open files is reached (ulimit -n 32); raise it"
    assert done.stdout.startswith(said), done.stderr


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (errno.EAGAIN, "the gateway cannot be started: the limit of processes is reached (ulimit"),
        (errno.ENOMEM, "the gateway cannot be started: there is no memory for it; give it more"),
    ],
)
def test_a_refused_fork_is_an_error_of_its_own(
    number: int, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(subprocess, "Popen", refuse)
    with pytest.raises(StartRefusedError) as refused:
        spawn(["true"], name="the gateway")
    assert str(refused.value).startswith(said)
    assert refused.value.exit_status == FAILED


def test_another_cause_stays_what_it_is() -> None:
    assert start_refused("an actor", FileNotFoundError(errno.ENOENT, "no such file")) is None
    with pytest.raises(FileNotFoundError):
        spawn(["/no/such/program"])


@pytest.mark.parametrize("line", ["0::/a/b", "7:pids:/a/b"])
def test_the_control_groups_limit_is_named_wherever_it_is_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    groups = tmp_path / "proc/self/cgroup"
    groups.parent.mkdir(parents=True)
    groups.write_text(f"3:cpu:/x\n{line}\n")
    above = tmp_path / "sys/fs/cgroup/a"
    (above / "b").mkdir(parents=True)
    for place, limit in ((above / "b", "max"), (above, "6")):
        (place / "pids.max").write_text(f"{limit}\n")
        (place / "pids.current").write_text("6\n")
    monkeypatch.setattr(control_groups, "ROOT", tmp_path)
    assert f"pids.max 6 of {above}, 6 used)" in describe_limit(errno.EAGAIN)
    groups.unlink()
    assert "pids.max" not in describe_limit(errno.EAGAIN)


def test_a_file_that_meets_the_limit_names_it_too() -> None:
    said = error_message(OSError(errno.EMFILE, "Too many open files"))
    assert said.startswith("Too many open files; raise the limit of open files (ulimit -n")
