"""Two learners on one directory whose file system keeps no locks."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from counting_run import CountingRun
from daemons import Daemons, free_address

NO_LOCKS = """
#include <errno.h>
int flock(int file, int how) { (void)file; (void)how; errno = ENOSYS; return -1; }
"""


@pytest.fixture
def no_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the system refuse every lock of the daemons, as on a mount of Lustre without them."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler here")
    source = tmp_path / "no_locks.c"
    source.write_text(NO_LOCKS)
    library = source.with_suffix(".so")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source], check=True)
    monkeypatch.setenv("LD_PRELOAD", str(library))


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_second_learner_takes_the_run_over_and_no_sample_is_lost(
    no_locks: None, daemons: Daemons
) -> None:
    run = CountingRun(daemons)
    run.start_manager("follows", to=f"@{run.run}")
    run.flows(2000)
    older = run.learner
    run.address = free_address()
    newer = run.start_learner()
    assert older.wait(300.0) == 3
    assert f"process {newer.pid} has taken the run over; this learner stops" in older.log
    assert run.flows(1000) > 3000
    events = (run.run / "events.jsonl").read_text()
    assert f"in place of process {older.pid}, which still ran" in events
    run.assert_nothing_was_lost()


@pytest.mark.slow
def test_a_learner_that_was_killed_here_is_followed_without_a_wait(
    no_locks: None, daemons: Daemons
) -> None:
    run = CountingRun(daemons)
    run.start_manager("follows", to=f"@{run.run}")
    run.flows(1000)
    run.learner.kill9()
    run.start_learner()
    run.flows(1000)
    assert "may still run here" not in run.learner.log
    run.assert_nothing_was_lost()
