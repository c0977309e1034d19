"""Peers of the previous release and of this one work together, in both directions."""

from __future__ import annotations

import json
import subprocess
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from counting_run import N_BUFFER, CountingRun
from daemons import Daemons, wait_for
from loop_run import LoopRun
from off_default_settings import LATER_AGENTS, each_agent, each_off_default
from previous_release import MissingCommitError, run_in_previous, unpack_previous
from proof import Proof

from vedette_rl.envs.config import EnvConfig
from vedette_rl.settings.for_peers import is_learner_only
from vedette_rl.settings.part import SettingsPart
from vedette_services.actors.actor_spec import SLOTS
from vedette_services.config.parts import ActorsConfig
from vedette_services.config.peer_settings import read_peer_settings, settings_for_peers
from vedette_services.status.schema import encode
from vedette_services.status.status import SnapshotStatus, Status

pytestmark = pytest.mark.timeout(240)

READ = """
from pydantic import ValidationError
from vedette_rl.agents.registry import BUILT_IN
from vedette_rl.envs.config import EnvConfig
from vedette_services.config.parts import ActorsConfig
kinds = {"ActorsConfig": ActorsConfig, "EnvConfig": EnvConfig}
kinds |= {kind.config.__name__: kind.config for kind in BUILT_IN.values()}

def read(name, told):
    try:
        return kinds[name].model_validate(told).model_dump(mode="json")
    except ValidationError as error:
        assert {each["type"] for each in error.errors()} == {"extra_forbidden"}, error
        return None  # a key of a later release, off its default

answer = [read(name, told) for name, told in given]
"""


@pytest.fixture(scope="module")
def previous(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack_previous(tmp_path_factory.mktemp("previous"))


READ_STATUS = """
from vedette_services.status.schema import decode
from vedette_services.status.status import Status
found = decode(Status, json.dumps(given).encode())
answer = [found.run_id, found.opt_steps, found.waits]
"""


def test_the_previous_release_reads_a_status_with_parts_that_it_does_not_know(
    previous: Path,
) -> None:
    status = Status(run_id="r", opt_steps=5, waits="no snapshot", snapshot=SnapshotStatus("/mnt"))
    said = json.loads(encode(status))
    assert run_in_previous(previous, READ_STATUS, said) == ["r", 5, "no snapshot"]


def steps_of(run: CountingRun, manager: str) -> int:
    """Environment steps that a manager has reported; 0 while it is not there."""
    managers = run.status().get("managers", [])
    of_it = [actor for each in managers if each["id"] == manager for actor in each["actors"]]
    return sum(actor["env_steps"] for actor in of_it)


def both_play(run: CountingRun) -> None:
    """Wait until actors of both releases have played on for this learner."""
    for manager in ("older", "newer"):
        began = wait_for(partial(steps_of, run, manager), f"a report of {manager}")
        more = began + 20 * N_BUFFER  # more than it plays before it has credit again
        wait_for(lambda name=manager, n=more: steps_of(run, name) > n, f"steps of {manager}")
    run.flows()


def test_actors_of_both_releases_play_for_a_learner_of_either(
    daemons: Daemons, previous: Path
) -> None:
    """The learner is of the previous release, and then of this one, on the same run. It is a
    training loop of a user's own: nothing here takes torch's time to load."""
    run = LoopRun(daemons, source=previous)
    run.start_manager("older", source=previous)
    run.start_manager("newer")
    both_play(run)
    run.learner.kill9()
    run.start_learner()
    both_play(run)
    _, accounting = assert_each_step_was_stored_once(run)
    assert accounting["lost"] == 0


@pytest.mark.slow
def test_a_manager_of_the_previous_release_makes_the_keys_of_rows(
    daemons: Daemons, previous: Path
) -> None:
    run = LoopRun(daemons, has_keys=True)
    run.start_manager("older", source=previous)
    run.start_manager("newer")
    both_play(run)
    run.assert_nothing_was_lost()


@pytest.mark.slow
def test_a_fleet_is_upgraded_while_it_plays(daemons: Daemons, previous: Path) -> None:
    run = CountingRun(daemons, source=previous)
    run.start_manager("older", source=previous)
    newer = run.start_manager("newer")
    both_play(run)
    assert run.learner.stop() == 0
    run.start_learner()
    both_play(run)
    assert "the actors go on" in newer.log, "only the release has changed"
    assert_each_step_was_stored_once(run)


def assert_each_step_was_stored_once(run: CountingRun) -> tuple[Proof, dict[str, int]]:
    """Every step, but for those that are counted as lost, and the unfinished batches of actors
    that begin their episodes again: the older one, and one of a custom agent, take another wording
    of the run for other settings."""
    proof, accounting = run.finish()
    assert accounting["produced"] == accounting["inserted"] + accounting["lost"], accounting
    unfinished = sum(proof.missing.values()) - accounting["lost"]
    assert unfinished <= len(proof.missing) * (SLOTS + 1) * N_BUFFER, (proof, accounting)
    return proof, accounting


def acting(part: SettingsPart) -> dict[str, Any]:
    """The settings that actors read."""
    dumped = part.model_dump(mode="json")
    return {name: dumped[name] for name in dumped if not is_learner_only(type(part), name)}


def test_what_is_told_is_understood_by_the_previous_release_and_the_reverse(previous: Path) -> None:
    parts: list[SettingsPart] = [a for a in each_agent() if a.name not in LATER_AGENTS]
    for usual in (ActorsConfig(), EnvConfig(id="CartPole-v1")):
        parts += [usual, *each_off_default(usual)]
    told = [(type(part).__name__, settings_for_peers(part)) for part in parts]
    answers = run_in_previous(previous, READ, told)
    understood = [(p, theirs) for p, theirs in zip(parts, answers, strict=True) if theirs]
    assert len(understood) > 200
    for part, theirs in understood:
        ours = acting(part)
        shared = ours.keys() & theirs.keys()
        assert {name: theirs[name] for name in shared} == {name: ours[name] for name in shared}
        for name in ours.keys() - shared:  # of this release, and at its default it is not told
            assert ours[name] == type(part).model_fields[name].default
        assert acting(read_peer_settings(type(part), theirs)) == ours
    known = {type(part): theirs.keys() for part, theirs in understood}
    for part, theirs in zip(parts, answers, strict=True):
        later = settings_for_peers(part).keys() - known[type(part)]
        assert bool(theirs) == (not later), (part, later)


def test_a_key_of_a_later_release_is_refused_by_the_previous_one(previous: Path) -> None:
    assert run_in_previous(previous, READ, [("ActorsConfig", {"a_later_key": 1})]) == [None]


def test_a_clone_without_the_previous_release_is_an_error_with_the_fix(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    with pytest.raises(MissingCommitError, match=r"lacks commit .*; git fetch --unshallow"):
        unpack_previous(tmp_path, repository=tmp_path)
