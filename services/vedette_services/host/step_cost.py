"""Measures the time of an environment's step, and of its reset, on this host."""

from __future__ import annotations

import logging
import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from vedette_rl.core import Columns
from vedette_rl.envs.vector_env import Env, EnvGroup, SerialEnvs
from vedette_services.host.system import count_waits

log = logging.getLogger("vedette.config")

SLOW_STEP_S = 0.0002
"""Below it threads cost more than they gain, even where a step only waits."""
SLOW_RESET_S = 1.0
"""Environments that are reset one after another take this several times, and nothing is played
meanwhile; what side by side costs in each step is little beside it."""
_OVERLAP = 1.5  # two side by side take less than so many times one
_STEPS = 10
_SECONDS = 0.3
_STEPS_LEAST = 3

Stepping = Literal["serial", "threads", "processes"]


@dataclass(frozen=True, slots=True)
class StepCost:
    """The cost of an environment's step on this host.

    Args:
        seconds: from call to return.
        computes: it keeps a processor busy, and does not wait (for a server, a device).
        overlaps: two threads of a process step two environments side by side; and reset them so,
            where a reset is slow.
        reset_s: of a reset, from call to return.
    """

    seconds: float
    computes: bool
    overlaps: bool
    reset_s: float = 0.0

    @property
    def waits(self) -> bool:
        """Several environments side by side take no longer than one."""
        return not self.computes and self.seconds >= SLOW_STEP_S

    @property
    def resets_slowly(self) -> bool:
        """A reset takes so long that others are not to wait for it."""
        return self.reset_s >= SLOW_RESET_S

    def steps_per_s(self, envs: int, stepping: Stepping) -> float:
        """Return the most steps per second of an actor on one core, without what acting takes.

        Args:
            envs: environments of the actor.
        """
        return (envs if self.waits and stepping != "serial" else 1) / self.seconds

    def describe(self) -> str:
        """Say how long a step takes, and what it does meanwhile and how long a reset takes where
        that matters."""
        does = "" if self.seconds < SLOW_STEP_S else ", computing" if self.computes else ", waiting"
        reset = f", and a reset {self.reset_s:.2g} s" if self.resets_slowly else ""
        return f"takes {1e3 * self.seconds:.2g} ms{does}{reset}"


class _SideBySide(SerialEnvs):
    """An environment that is there, stepped in this thread, beside one in a thread of its own.

    Args:
        env: stays open.
        make: makes the other one, which is made, stepped and closed in one and the same thread.
    """

    def __init__(self, env: Env, make: Callable[[], Env]) -> None:
        self._thread = ThreadPoolExecutor(1, "environment")
        try:
            super().__init__([env, self._thread.submit(make).result()])
        except BaseException:
            self._thread.shutdown()
            raise

    def reset(
        self, which: Sequence[int], seeds: Sequence[int | None], obs: Columns, rows: Sequence[int]
    ) -> None:
        resets = {
            i: partial(self.envs[i].reset, seed=seed) for i, seed in zip(which, seeds, strict=True)
        }
        other = self._thread.submit(resets[1]) if 1 in resets else None
        for i, row in zip(which, rows, strict=True):
            first, _ = other.result() if i and other is not None else resets[i]()
            self.layout.write(obs, row, first, origin="reset()")

    def step(self, actions: NDArray[Any], obs: Columns, which: Sequence[int] | None = None) -> bool:
        other = self._thread.submit(self.envs[1].step, actions[1])
        own = self.envs[0].step(actions[0])
        return self._write([own, other.result()], obs)

    def close(self) -> None:
        with self._thread:
            self._thread.submit(self.envs[1].close).result()


def measure_step(env: Env, make: Callable[[], Env]) -> StepCost:
    """Measure a step of an environment by random actions, and the reset before it.

    Args:
        env: the environment, which stays open.
        make: makes another one. It is called once, and only where a step or a reset is so slow that
            it may be worth its while to have two side by side.
    """
    alone = _time_steps(SerialEnvs([env]))
    if alone.seconds < SLOW_STEP_S and not alone.resets_slowly:
        return alone
    try:
        with closing(_SideBySide(env, make)) as both:
            together = _time_steps(both)
    except Exception as error:  # noqa: BLE001 - it may well not bear threads
        log.debug("%s does not step in threads: %s", env, error)
        return alone
    steps = alone.seconds < SLOW_STEP_S or together.seconds < _OVERLAP * alone.seconds
    resets = not alone.resets_slowly or together.reset_s < _OVERLAP * alone.reset_s
    return replace(alone, overlaps=steps and resets)


def _time_steps(group: EnvGroup) -> StepCost:
    """Return the cost of a step of all of a group, without whether they overlap.

    The step's seconds are the median, of a processor where none waits.
    """
    places = range(len(group))
    space = group.description.action_space
    space.seed(0)
    obs = group.layout.empty(len(group))
    no_seeds = [None] * len(group)
    began = time.perf_counter()
    group.reset(places, [0, *range(1, len(group))], obs, places)
    reset_s = time.perf_counter() - began
    times: list[float] = []
    busy = time.process_time()
    waits = count_waits()
    began = time.perf_counter()
    while len(times) < _STEPS_LEAST or (len(times) < _STEPS and sum(times) < _SECONDS):
        actions = np.array([space.sample() for _ in places], space.dtype)
        started = time.perf_counter()
        if group.step(actions, obs):
            group.reset(places, no_seeds, obs, places)
        times.append(time.perf_counter() - started)
    wall = time.perf_counter() - began
    busy = time.process_time() - busy
    seconds = statistics.median(times)
    # A busy host also makes a computing step last, but such a step never waits by itself.
    waited = count_waits() - waits >= len(times)
    if not waited:
        seconds = min(seconds, busy / len(times))
    computes = busy > 0.5 * wall or not waited
    return StepCost(seconds, computes, overlaps=False, reset_s=reset_s)
