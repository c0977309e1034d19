"""A check that an environment's transitions will be right.

Most wrong replay buffers come from the end of an episode: the first observation of the next one
stored as its last, a reset stored as a step, a time limit reported as termination. What can be seen
of that from outside is checked here::

    report = check_environment(EnvConfig(id="my_pkg.envs:MyEnv-v0"))
    print(report)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode

from vedette_rl.core import Columns
from vedette_rl.envs.config import EnvConfig
from vedette_rl.envs.layout import ObservationLayout, row_of_batch
from vedette_rl.envs.make import make_env
from vedette_rl.envs.native_vector_env import autoreset_mode, final_observations, make_vector
from vedette_rl.envs.registry import AllowImport, find_spec
from vedette_rl.envs.spaces import agent_spaces, first_outside
from vedette_rl.errors import EnvironmentFaultError

_VECTOR_COUNT = 4
_REHEARSED_RESETS = 100
"""Of a twin, to know what an environment that resets itself would give at the ends of episodes."""


@dataclass(frozen=True, slots=True)
class EnvironmentReport:
    """The observations about an environment that broke no rule.

    Args:
        steps: played, with random actions.
        episodes: the number of episodes that ended.
        longest: steps of the longest of them.
        autoreset: mode of its vector form; None where that was not played.
        warnings: possible faults that cannot be known from outside.
    """

    steps: int
    episodes: int
    longest: int
    autoreset: str | None
    warnings: tuple[str, ...]


def check_environment(
    config: EnvConfig | str,
    *,
    steps: int = 2000,
    seed: int = 0,
    allow_import: AllowImport | None = None,
) -> EnvironmentReport:
    """Play an environment with random actions, and its vector form where it has one.

    Args:
        config: the environment, or its id.

    Raises:
        EnvironmentFaultError: it breaks a rule that transitions depend on.
        UnknownEnvironmentError: it cannot be made here.
        SpaceLayoutError: transitions of its spaces have no columns.
    """
    config = EnvConfig(id=config) if isinstance(config, str) else config
    spec = find_spec(config, allow_import)
    env, twin = (make_env(config, allow_import=allow_import) for _ in range(2))
    try:
        agent_spaces(env.observation_space, env.action_space)
        played = _Played(env, config.id, steps, seed)
        if not spec.nondeterministic:
            played.compare(_Played(twin, config.id, min(steps, 300), seed))
        played.rehearse(twin, seed)
    finally:
        env.close()
        twin.close()
    limit = config.max_episode_steps or spec.max_episode_steps
    warnings = [*played.warnings(limit)]
    mode = None
    if spec.vector_entry_point is not None and not config.wrappers:
        mode, ends = _check_vector(config, steps, seed, allow_import)
        warnings += _vector_warnings(mode, ends)
    return EnvironmentReport(
        steps,
        len(played.lengths),
        max(played.lengths, default=0),
        None if mode is None else mode.value,
        tuple(warnings),
    )


class _Played:
    """Some checked steps of one environment."""

    def __init__(self, env: gym.Env[Any, Any], name: str, steps: int, seed: int) -> None:
        self._env = env
        self._name = name
        self._layout = ObservationLayout(env.observation_space)
        self.lengths: list[int] = []
        self.ends: list[tuple[bool, bool]] = []
        self.seen: list[tuple[Columns, float, bool, bool]] = []
        self._episode_ends = EpisodeEnds()
        env.action_space.seed(seed)
        length = 0
        obs, _ = env.reset(seed=seed)
        first = self._check_observation(obs, "reset")
        self.seen.append((first, 0.0, False, False))
        self._episode_ends.add_start(first)
        for _ in range(steps):
            action = env.action_space.sample()
            obs, reward, terminated, truncated, _ = env.step(action)
            length += 1
            columns = self._check_observation(obs, "step")
            self._check_end(reward, terminated, truncated)
            self.seen.append((columns, float(reward), bool(terminated), bool(truncated)))
            if terminated or truncated:
                self.lengths.append(length)
                self.ends.append((bool(terminated), bool(truncated)))
                self._episode_ends.add_end(columns, terminated=bool(terminated))
                length = 0
                obs, _ = env.reset()
                self._episode_ends.add_start(self._check_observation(obs, "reset"))
            else:
                self._episode_ends.add_middle(columns)

    def _check_observation(self, obs: Any, came_from: str) -> Columns:
        if not self._env.observation_space.contains(obs):
            outside = _outside(self._env.observation_space, obs)
            self._fault(f"{came_from}() gave an observation that is not of its space: {outside}")
        columns = self._layout.encode(obs, origin=f"{came_from}()")
        for name, column in columns.items():
            if column.dtype.kind == "f" and not np.isfinite(column).all():
                self._fault(f"{came_from}() gave {name!r} that is not finite as {column.dtype}")
        return columns

    def _check_end(self, reward: Any, terminated: Any, truncated: Any) -> None:
        if np.shape(reward) != () or not np.isfinite(float(reward)):
            self._fault(f"step() gave the reward {reward!r}: one finite number is needed")
        for word, flag in (("terminated", terminated), ("truncated", truncated)):
            if not isinstance(flag, (bool, np.bool_)):
                self._fault(f"step() gave {word} as a {type(flag).__name__}, not a bool")

    def compare(self, twin: _Played) -> None:
        """Refuse that the same seed and actions led elsewhere."""
        for step, (one, other) in enumerate(zip(self.seen, twin.seen, strict=False)):
            same = all(np.array_equal(one[0][name], other[0][name]) for name in one[0])
            if not same or one[1:] != other[1:]:
                self._fault(
                    f"the same seed and actions led elsewhere at step {step}: take randomness "
                    "from self.np_random, or register it with nondeterministic=True"
                )

    def rehearse(self, twin: gym.Env[Any, Any], seed: int) -> None:
        """Note what episodes begin with where resets alone are made, from the same seed: the last
        observations of an environment that resets itself are among them."""
        obs, _ = twin.reset(seed=seed)
        for _ in range(min(2 * len(self.lengths), _REHEARSED_RESETS)):
            obs, _ = twin.reset()
            self._episode_ends.add_start(self._check_observation(obs, "reset"))

    def warnings(self, limit: int | None) -> Iterator[str]:
        """Describe what may be wrong.

        Raises:
            EnvironmentFaultError: the registered limit is not kept, or kept as termination.
        """
        for length, (terminated, truncated) in zip(self.lengths, self.ends, strict=True):
            if limit is not None and length > limit:
                self._fault(f"an episode of {length} steps, beyond its limit of {limit}")
            if limit is not None and length == limit and terminated and not truncated:
                self._fault(f"its limit of {limit} steps is reported as terminated")
        if not self.lengths:
            yield "no episode ended: what happens there was not seen"
        same_length = len(self.lengths) >= 3 and len(set(self.lengths)) == 1
        if same_length and self.lengths[0] > 1 and set(self.ends) == {(True, False)}:
            yield (
                f"all {len(self.lengths)} episodes were terminated after {self.lengths[0]} steps: "
                "a time limit is truncation, beyond which the value still counts"
            )
        for count, way in self._episode_ends.describe_ends_seen_as_starts():
            yield (
                f"all {count} {way} episodes ended on an observation that reset() gives: does it "
                "reset itself? step() should give what came after the last action"
            )

    def _fault(self, fault: str) -> None:
        raise EnvironmentFaultError(self._name, fault)


def _outside(space: gym.Space[Any], obs: Any) -> str:
    """Say which part of an observation is not of its space: the first one, and of a Box the
    first element."""
    if isinstance(space, gym.spaces.Dict) and isinstance(obs, Mapping) and set(obs) == {*space}:
        key = next(key for key, part in space.items() if not part.contains(obs[key]))
        return f"{key!r}: {_outside(space[key], obs[key])}"
    if isinstance(space, gym.spaces.Box) and np.shape(obs) == space.shape:
        values = np.asarray(obs)
        outside = first_outside(values, space.low, space.high)
        return outside or f"a {type(obs).__name__} of {values.dtype}, not of {space.dtype}"
    return f"{obs!r}"


def _check_vector(
    config: EnvConfig, steps: int, seed: int, allow_import: AllowImport | None
) -> tuple[AutoresetMode, EpisodeEnds]:
    envs = make_vector(config, _VECTOR_COUNT, allow_import)
    try:
        mode = autoreset_mode(envs)
        ends = _VectorEnds(envs)
        envs.action_space.seed(seed)
        batch, _ = envs.reset(seed=seed)
        ends.begin(batch, np.ones(_VECTOR_COUNT, np.bool_))
        ended = np.zeros(_VECTOR_COUNT, np.bool_)
        for _ in range(steps // _VECTOR_COUNT):
            batch, reward, terminated, truncated, infos = envs.step(envs.action_space.sample())
            for word, column in (("rewards", reward), ("terminations", terminated)):
                if np.shape(column) != (_VECTOR_COUNT,):
                    _vector_fault(config, f"gave {word} of shape {np.shape(column)}")
            _check_rows(config, envs, batch)
            done = np.asarray(terminated | truncated)
            if mode is AutoresetMode.NEXT_STEP:
                _check_reset_rows(config, ended, reward, done)
                ends.begin(batch, ended)
                ends.end(batch, done, terminated)
                ends.continue_episodes(batch, ~done & ~ended)
            else:
                ends.continue_episodes(batch, ~done)
                if done.any():
                    last = _last_of_ended(config, envs, mode, done, batch, infos)
                    ends.end(last, done, terminated)
                    batch = _after_end(config, envs, mode, done, batch)
                    ends.begin(batch, done)
            ended = done
    finally:
        envs.close()
    return mode, ends.seen


class _VectorEnds:
    """Notes the rows of a vector environment."""

    def __init__(self, envs: Any) -> None:
        self._layout = ObservationLayout(envs.single_observation_space)
        self.seen = EpisodeEnds()

    def begin(self, batch: Any, which: Any) -> None:
        for i in np.flatnonzero(which):
            self.seen.add_start(self._row(batch, i))

    def continue_episodes(self, batch: Any, which: Any) -> None:
        for i in np.flatnonzero(which):
            self.seen.add_middle(self._row(batch, i))

    def end(self, batch: Any, which: Any, terminated: Any) -> None:
        for i in np.flatnonzero(which):
            self.seen.add_end(self._row(batch, i), terminated=bool(terminated[i]))

    def _row(self, batch: Any, i: Any) -> Columns:
        return self._layout.encode(row_of_batch(batch, int(i)))


def _vector_warnings(mode: AutoresetMode, ends: EpisodeEnds) -> Iterator[str]:
    name = "`final_obs`" if mode is AutoresetMode.SAME_STEP else "the last row of each"
    for count, way in ends.describe_ends_seen_as_starts():
        yield (
            f"its vector form: all {count} {way} episodes ended on an observation that begins one: "
            f"is {name} what came after the last action, and not the next episode's first?"
        )


def _check_reset_rows(config: EnvConfig, ended: Any, reward: Any, done: Any) -> None:
    if np.any(np.asarray(reward)[ended] != 0):
        _vector_fault(config, "NEXT_STEP, and the step that resets has a reward")
    if np.any(done[ended]):
        _vector_fault(config, "NEXT_STEP, and the step that resets ends an episode")


def _last_of_ended(
    config: EnvConfig, envs: Any, mode: AutoresetMode, done: Any, batch: Any, infos: Any
) -> Any:
    """A batch that has the last observations of the episodes that ended."""
    if mode is not AutoresetMode.SAME_STEP:
        return batch
    final = final_observations(envs, infos)
    for i in np.flatnonzero(done):
        obs = row_of_batch(final, int(i))
        if not envs.single_observation_space.contains(obs):
            _vector_fault(config, f"final_obs of environment {i} is not of its space: {obs!r}")
    return final


def _after_end(config: EnvConfig, envs: Any, mode: AutoresetMode, done: Any, batch: Any) -> Any:
    """The batch that the next step is taken from."""
    if mode is AutoresetMode.SAME_STEP:
        return batch
    layout = ObservationLayout(envs.single_observation_space)
    before, after = layout.empty(len(done)), layout.empty(len(done))
    layout.write_all(before, batch)
    batch, _ = envs.reset(options={"reset_mask": done.copy()})
    _check_rows(config, envs, batch)
    layout.write_all(after, batch)
    for name, column in before.items():
        if not np.array_equal(column[~done], after[name][~done]):
            _vector_fault(config, "DISABLED, and a reset by mask changes those it leaves out")
    return batch


def _check_rows(config: EnvConfig, envs: Any, batch: Any) -> None:
    for i in range(_VECTOR_COUNT):
        obs = row_of_batch(batch, i)
        if not envs.single_observation_space.contains(obs):
            _vector_fault(config, f"gave environment {i} an observation not of its space: {obs!r}")


def _vector_fault(config: EnvConfig, fault: str) -> None:
    raise EnvironmentFaultError(config.id, f"its vector form: {fault}")


_BY_CHANCE = 0.01
"""The probability below which a coincidence is not taken for one."""


class EpisodeEnds:
    """The observations that began episodes, ended them, and came between.

    Many an honest episode ends where one begins: a bandit's, one of few states. So it is asked how
    likely it would be of all of them, if ends were like what comes between.
    """

    def __init__(self) -> None:
        self._first: set[int] = set()
        self._between: list[int] = []
        self._last: dict[str, list[int]] = {"terminated": [], "truncated": []}

    def add_start(self, obs: Columns) -> None:
        """A reset gave this observation, of one row."""
        self._first.add(_digest(obs))

    def add_middle(self, obs: Columns) -> None:
        """A step within an episode gave it."""
        self._between.append(_digest(obs))

    def add_end(self, obs: Columns, *, terminated: bool) -> None:
        """Add the last observation of an episode."""
        self._last["terminated" if terminated else "truncated"].append(_digest(obs))

    def describe_ends_seen_as_starts(self) -> Iterator[tuple[int, str]]:
        """The number of episodes that ended in a way, if each of them ended on an observation that
        begins an episode, and hardly by chance. A time limit's wrapper ends its own way."""
        alike = sum(digest in self._first for digest in self._between)
        chance = (alike + 1) / (len(self._between) + 1)
        for way, last in self._last.items():
            if last and self._first.issuperset(last) and chance ** len(last) <= _BY_CHANCE:
                yield len(last), way


def _digest(obs: Columns) -> int:
    return hash(tuple(column.tobytes() for column in obs.values()))
