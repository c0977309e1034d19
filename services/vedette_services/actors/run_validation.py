"""Checks whether this host can and may play a run."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from vedette_protocol.foreign_text import printable
from vedette_protocol.limits import PAYLOAD_MAX_BYTES
from vedette_protocol.messages import Ack, Run
from vedette_rl.envs.config import UNNAMED, EnvConfig
from vedette_services.config.imported_names import imported_names, package_of
from vedette_services.config.parts import ActorsConfig
from vedette_services.config.peer_settings import (
    built_in_config,
    check_agent_settings,
    read_peer_settings,
    same_for_peers,
    unneeded_peer_settings,
)
from vedette_services.errors import (
    RefusedError,
    RunImportRefusedError,
    RunNotUnderstoodError,
)

SPACES = ("observation", "action")
"""Of the environment's settings, those that a host needs which makes no environment."""


def validate_run(
    run: Run, allow_import: Collection[str], *, makes_envs: bool = True
) -> ActorsConfig:
    """The run's settings of actors, if this host can and may play it.

    Args:
        makes_envs: the run's environments are made here.

    Raises:
        RefusedError: it names no environment: only simulators with custom loops can play it.
        RunImportRefusedError: it imports what the operator has not allowed.
        RunNotUnderstoodError: its settings are not those of this version, or its batches do not
            travel.
    """
    config = read_peer_settings(ActorsConfig, run.actors)
    env = read_peer_settings(EnvConfig, run.env, needed=None if makes_envs else SPACES)
    check_agent_settings(run.agent)
    if makes_envs and _is_unnamed(env):
        raise RefusedError(
            "the learner's run names no environment: set env.id there, or play it from a simulator "
            "with vedette.Actor or a client in another language"
        )
    check_imports(env if makes_envs else None, run.agent, allow_import, run.actors)
    sharing = run.schema.sharing  # a batch has at least what one row points to
    least = sharing.places_per_row if sharing else 0
    batch_bytes = run.schema.payload_bytes(config.n_buffer, least)
    largest = min(PAYLOAD_MAX_BYTES, config.window_bytes)
    if batch_bytes > largest:
        raise RunNotUnderstoodError(
            f"a batch of actors.n_buffer = {config.n_buffer} has {batch_bytes} bytes, and at most "
            f"{largest} travel or fit into a window"
        )
    return config


def names_no_environment(run: Run) -> bool:
    """Return True if a run only declares its spaces: loops of simulators play it."""
    return _is_unnamed(read_peer_settings(EnvConfig, run.env, needed=SPACES))


def _is_unnamed(env: EnvConfig) -> bool:
    return env.is_declared and env.id == UNNAMED


def ignored_settings(run: Run) -> list[str]:
    """Settings that are not known here, nor needed where no environment is made."""
    return unneeded_peer_settings(EnvConfig, run.env, SPACES)


def can_continue(run: Run, other: Run) -> bool:
    """Return whether actors of one run may continue for the other: only the learner's start
    differs, its evaluations, or what its release tells of settings at their default."""
    same = replace(
        run,
        epoch=other.epoch,
        learner=other.learner,
        features=other.features,
        evaluation=other.evaluation,
        env=other.env,
        agent=other.agent,
        actors=other.actors,
    )
    return same == other and _same_settings(run, other)


def takes_batches_of(run: Run, other: Run) -> bool:
    """Return whether the learner of one run can insert what was made for the other: a start with a
    new replay keeps the run, and may change its columns."""
    return run.run_id == other.run_id and run.schema.hash == other.schema.hash


def _same_settings(run: Run, other: Run) -> bool:
    """Return whether actors make and do the same by the settings of both."""
    agent = built_in_config(run.agent)
    if agent is None and run.agent != other.agent:
        return False
    return (
        same_for_peers(EnvConfig, run.env, other.env)
        and same_for_peers(ActorsConfig, run.actors, other.actors)
        and (agent is None or same_for_peers(agent, run.agent, other.agent))
    )


def is_newer(ack: Ack, run: Run) -> bool:
    """Return whether an ack is of a later start of the learner than the run's announcement."""
    if ack.epoch == run.epoch:
        return ack.learner != run.learner
    return ack.epoch > run.epoch


def describe_run(run: Run) -> str:
    """The run in a few words, for the log."""
    agent, env = run.agent.get("name", "an agent"), run.env.get("id", "an environment")
    return printable(f"{agent} on {env}")


def check_imports(
    env: EnvConfig | None,
    agent: Mapping[str, Any],
    allow_import: Collection[str],
    actors: Mapping[str, Any] | None = None,
) -> None:
    """Refuse a run that imports what is not allowed here.

    Args:
        env, agent, actors: the run's settings, as they travel; no `env`: none is made here.
        allow_import: top packages.

    Raises:
        RunImportRefusedError: names the package and the fix.
    """
    made = env.model_dump(mode="json") if env is not None else {}
    for name in imported_names({"env": made, "agent": agent, "actors": actors or {}}):
        if package_of(name) not in allow_import:
            raise RunImportRefusedError(name, package_of(name))
