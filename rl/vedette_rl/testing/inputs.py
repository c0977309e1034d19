"""Inputs of tests: an environment whose observations show if a transition is right, and random
transitions."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Literal

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from vedette_rl.core import Columns, RowColumn, empty_columns
from vedette_rl.core.columns import BEGINS, BURNED, LEARNED, LENGTH
from vedette_rl.envs.layout import ObservationLayout
from vedette_rl.envs.spaces import Spaces, transition_dtype

End = Literal["terminated", "truncated", "both"]
Kind = Literal["box", "dict", "tuple", "discrete"]
Obs = Any


class ScriptedEnv(gym.Env[Obs, Any]):
    """Plays episodes of given lengths and ends, over and over; the last repeats.

    What is seen is (own number, episode, step within it), so a transition is right when its two
    observations are of one episode and one step apart. The reward of a step is
    ``1 + step + 100 * episode``.

    Args:
        number: the environment's number, seen in every observation.
        episodes: length and end of each episode.
        kind: how that is shown: ``box`` (float64), ``dict`` (nested: ``{"where": {"episode"},
            "step", "number"}``), ``tuple`` ((number, episode), image uint8), or ``discrete``
            (the step alone).
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 - Gymnasium declares it so

    def __init__(
        self,
        number: int = 0,
        episodes: Sequence[tuple[int, End]] = ((3, "terminated"), (4, "truncated"), (1, "both")),
        kind: Kind = "box",
    ) -> None:
        self.number = number
        self.episodes = tuple(episodes)
        self.kind = kind
        self.episode = -1
        self.t = 0
        self.actions: list[Any] = []  # as they are given
        self.seeds: list[int | None] = []
        self.action_space = gym.spaces.Discrete(3, start=2)
        self.observation_space = _observation_space(kind)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Obs, dict[str, Any]]:
        super().reset(seed=seed)
        self.seeds.append(seed)
        self.episode = self.episode + 1
        self.t = 0
        return self._obs(), {}

    def step(self, action: Any) -> tuple[Obs, float, bool, bool, dict[str, Any]]:
        length, end = self.episodes[min(self.episode, len(self.episodes) - 1)]
        if self.t >= length:
            raise RuntimeError("stepped beyond the end of an episode")
        self.actions.append(action)
        reward = 1.0 + self.t + 100.0 * self.episode
        self.t += 1
        over = self.t >= length
        terminated, truncated = over and end != "truncated", over and end != "terminated"
        return self._obs(), reward, terminated, truncated, {}

    def _obs(self) -> Obs:
        plain = np.array([self.number, self.episode, self.t], np.float64)
        match self.kind:
            case "box":
                return plain
            case "dict":
                where = {"episode": plain[1:2]}
                return {"number": plain[0:1], "step": self.t, "where": where}
            case "tuple":
                image = np.full((2, 2), self.t, np.uint8)
                return (plain[:2], image)
            case "discrete":
                return self.t


class BitFlip(gym.Env[Any, Any]):
    """Flips one of N bits a step until they are as wanted: a task of goals without any hint.

    Every step costs 1 and one that reaches the goal nothing; an episode is N steps long, or ends at
    the goal. (Andrychowicz et al. 2017, https://arxiv.org/abs/1707.01495, section 3.1.)

    Args:
        bits: N.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 - Gymnasium declares it so

    def __init__(self, bits: int = 8) -> None:
        self.bits = bits
        self.t = 0
        self.action_space = gym.spaces.Discrete(bits)
        line = gym.spaces.Box(0.0, 1.0, (bits,), np.float32)
        names = ("observation", "achieved_goal", "desired_goal")
        self.observation_space = gym.spaces.Dict(dict.fromkeys(names, line))

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Obs, dict[str, Any]]:
        super().reset(seed=seed)
        self.state, self.goal = self.np_random.integers(0, 2, (2, self.bits)).astype(np.float32)
        self.t = 0
        return self._obs(), {}

    def step(self, action: Any) -> tuple[Obs, float, bool, bool, dict[str, Any]]:
        self.state[action] = 1.0 - self.state[action]
        self.t += 1
        reward = float(self.compute_reward(self.state, self.goal, {}))
        return self._obs(), reward, reward == 0.0, self.t >= self.bits, {}

    def compute_reward(self, achieved_goal: Any, desired_goal: Any, info: Any) -> Any:
        """0 where the goal is reached, else -1: of one pair ``(N,)`` or of many ``(rows, N)``."""
        return np.all(achieved_goal == desired_goal, axis=-1).astype(np.float64) - 1.0

    def compute_terminated(self, achieved_goal: Any, desired_goal: Any, info: Any) -> Any:
        """True where the goal is reached."""
        return np.all(achieved_goal == desired_goal, axis=-1)

    def _obs(self) -> Obs:
        state = self.state.copy()
        return {"observation": state, "achieved_goal": state, "desired_goal": self.goal.copy()}


def _observation_space(kind: Kind) -> gym.Space[Any]:
    def line(size: int) -> gym.Space[NDArray[Any]]:
        return gym.spaces.Box(-1.0, 1e6, (size,), np.float64)

    match kind:
        case "box":
            return line(3)
        case "dict":
            where = gym.spaces.Dict({"episode": line(1)})
            step = gym.spaces.Discrete(1000)
            return gym.spaces.Dict({"number": line(1), "step": step, "where": where})
        case "tuple":
            return gym.spaces.Tuple((line(2), gym.spaces.Box(0, 255, (2, 2), np.uint8)))
        case "discrete":
            return gym.spaces.Discrete(1000)


REACH_PIXELS = 48
REACH_STEPS = 40
REACH_SPEED = 0.15


class Synthetic(gym.Env[NDArray[Any], np.int64]):
    """Takes hardly any time: returns the same observation for ever; episodes have 100 steps.

    Args:
        shape: the shape of an observation.
        dtype: ``float32`` or ``uint8``.
        sleep_s: seconds that a step sleeps, to imitate a slow simulator.
    """

    def __init__(
        self, shape: Sequence[int] = (4,), dtype: str = "float32", sleep_s: float = 0.0
    ) -> None:
        high = 255 if dtype == "uint8" else 1
        self.observation_space = gym.spaces.Box(0, high, tuple(shape), np.dtype(dtype).type)
        self.action_space = gym.spaces.Discrete(2)
        self._obs = np.ones(tuple(shape), dtype)
        self._steps = 0
        self._sleep_s = sleep_s

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[Any], dict[str, Any]]:
        super().reset(seed=seed)
        self._steps = 0
        return self._obs.copy(), {}

    def step(self, action: np.int64) -> tuple[NDArray[Any], float, bool, bool, dict[str, Any]]:
        if self._sleep_s:
            time.sleep(self._sleep_s)
        self._steps += 1
        return self._obs.copy(), 1.0, self._steps % 100 == 0, False, {}


class VisualReach(gym.Env[Obs, NDArray[np.float32]]):
    """Moves a point to a target that only a camera of 48 x 48 pixels shows: a task for pixels.

    The reward of each of an episode's 40 steps is minus the distance to the target, in a square of
    2 x 2. An action is a velocity. Greedy movement gives about -2.1, uniform actions about -37, and
    the best that can be done without seeing the target, to wait in the middle, about -24.

    Args:
        see: ``both``: ``{"camera", "state"}``, where the camera shows the target alone and the
            state is the point's place: neither suffices; ``camera``: an image of target and point;
            ``state``: the point's place alone.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 - Gymnasium declares it so

    def __init__(self, see: Literal["both", "camera", "state"] = "both") -> None:
        camera = gym.spaces.Box(0, 255, (REACH_PIXELS, REACH_PIXELS, 3), np.uint8)
        state = gym.spaces.Box(-1, 1, (2,), np.float32)
        self.observation_space: gym.Space[Any] = {
            "both": gym.spaces.Dict({"camera": camera, "state": state}),
            "camera": camera,
            "state": state,
        }[see]
        self.action_space = gym.spaces.Box(-1, 1, (2,), np.float32)
        self._see = see
        self._t = 0
        self._at = self._target = np.zeros(2)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Obs, dict[str, Any]]:
        super().reset(seed=seed)
        self._at, self._target = self.np_random.uniform(-0.8, 0.8, (2, 2))
        self._t = 0
        return self._obs(), {}

    def step(self, action: NDArray[np.float32]) -> tuple[Obs, float, bool, bool, dict[str, Any]]:
        self._at = np.clip(self._at + REACH_SPEED * np.clip(action, -1, 1), -1, 1)
        self._t += 1
        distance = float(np.linalg.norm(self._at - self._target))
        return self._obs(), -distance, False, self._t >= REACH_STEPS, {}

    def _obs(self) -> Obs:
        state = self._at.astype(np.float32)
        if self._see == "state":
            return state
        camera = np.zeros((REACH_PIXELS, REACH_PIXELS, 3), np.uint8)
        _draw(camera[..., 0], self._target)
        if self._see == "camera":
            _draw(camera[..., 1], self._at)
            return camera
        return {"camera": camera, "state": state}


def _draw(picture: NDArray[np.uint8], at: NDArray[np.float64]) -> None:
    """A spot of light in a picture of [-1, 1] x [-1, 1], finer than its pixels."""
    pixels = np.linspace(-1, 1, REACH_PIXELS)
    column, row = (np.exp(-(((pixels - at[k]) / 0.08) ** 2)) for k in (0, 1))
    picture[...] = 255 * np.outer(row, column)


def sampled_obs(space: gym.Space[Any], rows: int, seed: int) -> Columns:
    """Observations drawn from `space` as columns of `rows` rows."""
    space.seed(seed)
    layout = ObservationLayout(space)
    columns = layout.empty(rows)
    for row in range(rows):
        layout.write(columns, row, space.sample())
    return columns


def sampled_transitions(
    spaces: Spaces, rows: int, seed: int, declared: Sequence[RowColumn] = ()
) -> Columns:
    """Transitions of one step whose observations and actions are drawn from `spaces`, and whose
    declared columns are random numbers; a tenth ends an episode each way."""
    rng = np.random.default_rng(seed)
    columns = empty_columns(transition_dtype(spaces, declared), rows)
    for declared_column in declared:
        columns[declared_column.name][:] = sampled_values(declared_column, rows, rng)
    before = sampled_obs(spaces.observation, rows, seed)
    after = sampled_obs(spaces.observation, rows, seed + 1)
    for name, column in before.items():
        columns[name][:] = column
        columns[f"next_{name}"][:] = after[name]
    columns["action"][:] = sampled_actions(spaces.action, rows, seed)
    columns["reward"][:] = rng.normal(size=rows)
    columns["terminated"][:] = rng.random(rows) < 0.1
    columns["truncated"][:] = rng.random(rows) < 0.1
    columns["n_steps"][:] = 1
    return columns


def sampled_sequences(
    spaces: Spaces,
    sequences: int,
    steps: int,
    burn_in: int,
    seed: int,
    declared: Sequence[RowColumn] = (),
) -> Columns:
    """Sequences as a replay draws them (`vedette_rl.replay.drawn_sequences`), of random values.

    Each has 0 to `burn_in` rows of burn-in and 1 to `steps` to learn from; one with fewer than
    `steps` ends its episode, one way or the other. Behind its end its last row is repeated.
    """
    rng = np.random.default_rng([seed, 1])
    longest = burn_in + steps
    burned = rng.integers(0, burn_in, sequences, endpoint=True)
    length = rng.integers(1, steps, sequences, endpoint=True)
    length[::2] = steps
    end = (burned + length)[:, np.newaxis]
    rows = np.arange(sequences)[:, np.newaxis]
    places = np.arange(longest + 1)
    single = sampled_transitions(spaces, sequences * (longest + 1), seed, declared)
    firsts = {column.name for column in declared if column.first}
    columns: Columns = {}
    for name, column in single.items():
        each = column.reshape(sequences, longest + 1, *column.shape[1:])
        if name in firsts:
            columns[name] = each[:, 0].copy()
        elif name == "obs" or name.startswith("obs/"):
            columns[name] = each[rows, np.minimum(places, end)]
        elif not name.startswith("next_"):
            columns[name] = each[rows, np.minimum(places[:-1], end - 1)]
    ended = (places[:-1] >= end - 1) & (length < steps)[:, np.newaxis]
    by_termination = rng.random((sequences, 1)) < 0.5
    columns["terminated"] = ended & by_termination
    columns["truncated"] = ended & ~by_termination
    columns[BURNED] = burned
    columns[LENGTH] = length
    columns[LEARNED] = (places[:-1] >= burned[:, np.newaxis]) & (places[:-1] < end)
    return columns


def sampled_block(
    spaces: Spaces, runs: int, steps: int, seed: int, declared: Sequence[RowColumn] = ()
) -> Columns:
    """A block of runs as a queue gives it (`vedette_rl.replay.queue`), of random values.

    Episodes end and begin within runs. The last run is half as long as the others; behind its end
    its last row is repeated.
    """
    single = sampled_transitions(spaces, runs * steps, seed, declared)
    block = {
        name: column.reshape(runs, steps, *column.shape[1:]) for name, column in single.items()
    }
    over = block["terminated"] | block["truncated"]
    block[BEGINS] = np.zeros((runs, steps), np.bool_)
    block[BEGINS][:, 1:] = over[:, :-1]
    for name in [name for name in block if name.startswith("next_")]:
        behind = block[name.removeprefix("next_")][:, 1:]
        block[name][:, :-1][~over[:, :-1]] = behind[~over[:, :-1]]
    length = max(1, steps // 2)
    block[LEARNED] = np.ones((runs, steps), np.bool_)
    block[LEARNED][-1, length:] = False
    for name in block.keys() - {LEARNED}:
        block[name][-1, length:] = block[name][-1, length - 1]
    firsts = {column.name: block[column.name][:, 0].copy() for column in declared if column.first}
    return {**block, **firsts}


def sampled_values(column: RowColumn, rows: int, rng: np.random.Generator) -> NDArray[Any]:
    """Random values of a declared column ``(rows, *shape)``, within its bounds."""
    shape = (rows, *column.shape)
    if column.numpy_dtype.kind == "f":
        return rng.normal(size=shape).astype(column.dtype)
    low, high = column.bounds or (0, 1)
    return rng.integers(low, high, size=shape, endpoint=True).astype(column.dtype)


def sampled_actions(space: gym.Space[Any], rows: int, seed: int) -> NDArray[Any]:
    """Actions drawn from `space` ``(rows, *shape)``."""
    space.seed(seed)
    return np.stack([np.asarray(space.sample()) for _ in range(rows)])
