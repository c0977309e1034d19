"""Where a run directory says that its learner listens."""

from __future__ import annotations

import json
import socket
import time
from pathlib import Path

import pytest

from vedette_services.errors import AddressError, RunOverError
from vedette_services.net.addresses import Address
from vedette_services.run.directory import RunDirectory
from vedette_services.run.learner_location import find_learner, publish_location


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    run = RunDirectory(tmp_path / "run")
    run.make()
    return run


def elsewhere(run: RunDirectory) -> None:
    """Make the file as another host sees it, of a newer release, which says more."""
    content = json.loads(run.location_file.read_text())
    run.location_file.write_text(
        json.dumps({**content, "host": "another", "network": "its own", "zone": "b"})
    )


def end(run: RunDirectory, reason: str, at_s: float) -> None:
    run.summary_file.write_text(json.dumps({"exit_reason": reason, "time_s": at_s}))


def test_it_is_there_while_the_learner_listens(run: RunDirectory) -> None:
    with pytest.raises(AddressError, match="no learner runs there"):
        find_learner(f"@{run.root}")
    with publish_location(run, Address("0.0.0.0", 6000), None):
        assert find_learner(f"@{run.root}") == Address("127.0.0.1", 6000)
        elsewhere(run)
        assert find_learner(f"@{run.root}") == Address(socket.getfqdn(), 6000)
    assert not run.location_file.exists()


def test_the_operator_may_name_the_host(run: RunDirectory) -> None:
    with publish_location(run, Address("::", 6000), "gpu-1.example.org"):
        assert find_learner(f"@{run.root}") == Address("::1", 6000)
        elsewhere(run)
        assert find_learner(f"@{run.root}") == Address("gpu-1.example.org", 6000)


def test_a_learner_that_others_cannot_reach_is_said_to_be_so(run: RunDirectory) -> None:
    with publish_location(run, Address("127.0.0.1", 6000), None):
        elsewhere(run)
        with pytest.raises(AddressError, match="listens to another alone"):
            find_learner(f"@{run.root}")


def test_a_run_that_is_over_is_told_from_one_that_was_interrupted(run: RunDirectory) -> None:
    end(run, "interrupted", time.time())
    with pytest.raises(AddressError, match="no learner runs there"):
        find_learner(f"@{run.root}")
    end(run, "max_opts", time.time())
    with pytest.raises(RunOverError, match="the run is over"):
        find_learner(f"@{run.root}")


def test_an_end_counts_only_if_no_learner_has_begun_since(run: RunDirectory) -> None:
    end(run, "max_opts", time.time() - 60)
    with publish_location(run, Address("127.0.0.1", 6000), None):
        assert find_learner(f"@{run.root}") == Address("127.0.0.1", 6000)
        end(run, "max_opts", time.time() + 1)  # and was killed before it could remove its file
        with pytest.raises(RunOverError):
            find_learner(f"@{run.root}")


def test_a_host_that_has_another_name_now_knows_its_own_learner(run: RunDirectory) -> None:
    with publish_location(run, Address("127.0.0.1", 6000), None):
        content = json.loads(run.location_file.read_text())
        run.location_file.write_text(json.dumps({**content, "host": "laptop-at-home"}))
        assert find_learner(f"@{run.root}") == Address("127.0.0.1", 6000)


def test_an_end_of_an_earlier_start_is_told_whatever_the_clock_said(run: RunDirectory) -> None:
    end(run, "max_opts", time.time() + 3600)  # by a clock that was set back since
    with publish_location(run, Address("127.0.0.1", 6000), None):
        assert find_learner(f"@{run.root}") == Address("127.0.0.1", 6000)
        end(run, "max_opts", time.time())
        with pytest.raises(RunOverError):
            find_learner(f"@{run.root}")


def test_the_file_of_an_earlier_release_is_read(run: RunDirectory) -> None:
    with publish_location(run, Address("127.0.0.1", 6000), None):
        content = json.loads(run.location_file.read_text())
        del content["network"], content["ended_s"]
        run.location_file.write_text(json.dumps(content))
        assert find_learner(f"@{run.root}") == Address("127.0.0.1", 6000)
        end(run, "max_opts", time.time() + 1)
        with pytest.raises(RunOverError):
            find_learner(f"@{run.root}")


@pytest.mark.parametrize("content", ["", "{", "[]", "null", '{"address": "x"}'])
def test_a_file_that_is_no_location_counts_for_none(run: RunDirectory, content: str) -> None:
    run.location_file.write_text(content)
    with pytest.raises(AddressError, match="no learner runs there"):
        find_learner(f"@{run.root}")
