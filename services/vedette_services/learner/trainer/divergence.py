"""What is said where learning has diverged: the values that may have done it, and what helps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from vedette_protocol.errors import StampError
from vedette_rl.core import ReplayBuffer
from vedette_rl.errors import DivergedError
from vedette_rl.replay.commits import last_commit
from vedette_rl.replay.largest_values import LargestValue, find_largest_values
from vedette_rl.replay.mixed import MixedReplay
from vedette_rl.replay.ring import RingReader
from vedette_rl.replay.rows import MemoryRing, Rows
from vedette_rl.replay.uniform import DrawnRows
from vedette_services.config.run_config import RunConfig
from vedette_services.run.ring_stamp import read_stamp

LEFT_OUT_MAX = 50
"""Optimization steps one after another that move nothing, until learning counts as diverged."""

_NAMED = 3


class LeftOutSteps:
    """Watches how many optimization steps moved nothing.

    ::

        # with each record; true for the first, the 2nd, 4th, 8th ...
        if left_out_steps.count(opt_steps, total):
            log.warning(...)
    """

    def __init__(self, opt_steps: int) -> None:
        self._last = opt_steps, 0  # the last step that moved something is not before it
        self._said = 0

    def count(self, opt_steps: int, total: int) -> bool:
        """Take the number of steps left out until now; return True if it is to be said.

        Raises:
            DivergedError: none of the last `LEFT_OUT_MAX` moved anything.
        """
        steps, before = self._last
        if total - before < opt_steps - steps:
            self._last = opt_steps, total
        elif opt_steps - steps >= LEFT_OUT_MAX:
            what = f"no gradient of the last {opt_steps - steps} steps is a number that counts"
            raise DivergedError(what, opt_steps)
        if total < max(1, 2 * self._said):
            return False
        self._said = total
        return True


def actor_rows(replay: ReplayBuffer) -> Rows | None:
    """The rows of actors that a replay draws from, in the host's memory; None of a custom one."""
    drawn = replay.actors if isinstance(replay, MixedReplay) else replay
    return drawn.rows if isinstance(drawn, DrawnRows) else None


def describe_largest(rows: Rows | None, run_id: str, opt_steps: int) -> str:
    """Name the largest values that can be drawn, each with its column, manager and age; "" where
    they are not known."""
    found = [] if rows is None else find_largest_values(rows)[:_NAMED]
    names = manager_names(rows, run_id) if found else {}
    return ", ".join(_describe(one, names, opt_steps) for one in found)


def explain_divergence(
    error: DivergedError, config: RunConfig, rows: Rows | None, run_id: str
) -> DivergedError:
    """The same error with the values that may have caused it, and remedies that are not in use."""
    largest = describe_largest(rows, run_id, error.opt_steps)
    values = f"The largest values that can be drawn: {largest}. " if largest else ""
    remedies = ", ".join(_remedies(config))
    advice = (
        f"Nothing of it is saved. {values}If such a value is wrong, --new-replay goes on without "
        f"these samples; if it is right, {remedies} keep numbers finite"
    )
    return DivergedError(error.what, error.opt_steps, advice)


def _remedies(config: RunConfig) -> Iterator[str]:
    agent: Any = config.agent  # of its own class
    if not getattr(agent, "max_grad_norm", 1.0):
        yield "agent.max_grad_norm=10"
    if rate := getattr(agent, "learning_rate", None):
        yield f"a smaller agent.learning_rate than {rate:g}"
    if not config.env.reward_clip:
        yield "env.reward_clip (with --new-replay)"
    elif config.env.reward_scale >= 1.0:
        yield f"a smaller env.reward_scale than {config.env.reward_scale:g} (with --new-replay)"


def _describe(one: LargestValue, names: dict[int, str], opt_steps: int) -> str:
    sender = names.get(one.manager, f"number {one.manager}" if one.manager >= 0 else "")
    made = [f"sent by manager {sender}"] if sender else []
    if one.version >= 0:
        made.append(f"{max(0, opt_steps - one.version):,} optimization steps old")
    return f"{one.column} {one.value:.4g}" + (f" ({', '.join(made)})" if made else "")


def manager_names(rows: Rows | None, run_id: str) -> dict[int, str]:
    """The managers' ids by their numbers in the replay; of those that are forgotten, none."""
    stamp = b""
    if isinstance(rows, RingReader):
        stamp = last_commit(rows.directory).stamp
    elif isinstance(rows, MemoryRing):
        stamp = rows.stamp
    try:
        ledger, _ = read_stamp(run_id, stamp, now=0.0)
    except StampError:
        return {}
    return {ledger.manager_number(name): name for name in ledger.manager_ids()}
