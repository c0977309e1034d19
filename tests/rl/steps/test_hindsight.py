"""Hindsight: each episode as it was, and again with goals that were reached later in it."""

import re
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from vedette_rl.core import Columns, empty_columns
from vedette_rl.envs import EnvConfig, VectorEnvironment, transition_dtype
from vedette_rl.envs.layout import RewardTransform
from vedette_rl.envs.make import make_vector_environment
from vedette_rl.envs.native_vector_env import NativeVectorEnv
from vedette_rl.envs.vector_env import LoopVectorEnv
from vedette_rl.errors import HindsightError
from vedette_rl.steps import prepare_steps
from vedette_rl.steps.hindsight import EPISODE_STEPS_MAX, Hindsight
from vedette_rl.testing import BitFlip, ScriptedEnv
from vedette_rl.testing.inputs import sampled_actions

ENVS = 3
BITS = 5
GOALS = 4
GOAL_COLUMNS = {"obs/desired_goal", "next_obs/desired_goal"}


def envs_of(mode: AutoresetMode | None = None, **how: Any) -> VectorEnvironment:
    if mode is None:
        return LoopVectorEnv([BitFlip(BITS) for _ in range(ENVS)], seed=0, **how)
    made = [lambda: BitFlip(BITS)] * ENVS
    return NativeVectorEnv(SyncVectorEnv(made, autoreset_mode=mode), seed=0, **how)


def hindsight(envs: VectorEnvironment, goals: int = GOALS) -> Hindsight:
    made = Hindsight(1, 0.9, len(envs), transition_dtype(envs.spaces), goals)
    if mode := getattr(envs, "_mode", None):
        assert mode  # a vector of Gymnasium's own shows no method of its environments
        envs.attribute = lambda name: getattr(BitFlip(BITS), name, None)  # type: ignore[method-assign]
    prepare_steps(made, envs, 0)
    return made


def played(envs: VectorEnvironment, steps: int) -> tuple[list[Columns], int]:
    """What comes of some steps and of the flush, and how many of these were transitions."""
    processor = hindsight(envs)
    valid = 0
    found = []
    envs.reset()
    actions = sampled_actions(envs.spaces.action, steps * len(envs), 0).reshape(steps, len(envs))
    for action in actions:
        step = envs.step(action)
        valid += int(step.valid.sum())
        found.append(processor.process(step))
    return [*found, processor.flush(), processor.flush()], valid


def episodes_of(pieces: list[Columns]) -> list[tuple[Columns, Columns]]:
    """The original rows of each episode, and its relabelled ones."""
    rows = {name: np.concatenate([piece[name] for piece in pieces]) for name in pieces[0]}
    found = []
    at = 0
    while at < len(rows["reward"]):
        goal = rows["obs/desired_goal"]
        length = 1
        ended = rows["terminated"] | rows["truncated"]
        while not ended[at + length - 1] and (goal[at + length] == goal[at]).all():
            successor = rows["obs/observation"][at + length]
            if (successor != rows["next_obs/observation"][at + length - 1]).any():
                break
            length += 1
        end = at + length * (1 + GOALS)
        split = at + length
        found.append(
            (
                {name: column[at:split] for name, column in rows.items()},
                {name: column[split:end] for name, column in rows.items()},
            )
        )
        at = end
    return found


@pytest.mark.parametrize("mode", [None, *AutoresetMode])
def test_every_step_comes_once_as_it_was_and_k_times_with_a_goal_reached_later(
    mode: AutoresetMode | None,
) -> None:
    pieces, steps = played(envs_of(mode), 40)
    assert sum(len(piece["reward"]) for piece in pieces) == steps * (1 + GOALS)
    assert len(pieces[-1]["reward"]) == 0
    later = 0
    for whole, again in episodes_of(pieces):
        length = len(whole["reward"])
        reached = whole["next_obs/achieved_goal"]
        for row in range(len(again["reward"])):
            t = row // GOALS
            for name in whole.keys() - GOAL_COLUMNS - {"reward", "terminated"}:
                np.testing.assert_array_equal(again[name][row], whole[name][t], err_msg=name)
            goal = again["obs/desired_goal"][row]
            np.testing.assert_array_equal(goal, again["next_obs/desired_goal"][row])
            assert (reached[t:] == goal).all(1).any(), "a goal that no later step reached"
            later += bool((reached[t] != goal).any())
            hit = bool((again["next_obs/achieved_goal"][row] == goal).all())
            assert again["reward"][row] == hit - 1.0
            assert again["terminated"][row] == hit
        assert length <= BITS
    assert later > 0


@pytest.mark.parametrize("n", [2, 3, 7])
def test_transitions_of_n_steps_have_the_return_of_their_own_goal(n: int) -> None:
    class Sparse(BitFlip):  # it does not end at the goal, nor say so
        compute_terminated = None

        def step(self, action: Any) -> Any:
            obs, reward, _, truncated, info = super().step(action)
            return obs, reward, False, truncated, info

    for kind in (BitFlip, Sparse):
        envs = LoopVectorEnv([kind(BITS) for _ in range(ENVS)], seed=0)
        dtype = transition_dtype(envs.spaces)
        ours, single = (Hindsight(steps, 0.5, ENVS, dtype, GOALS) for steps in (n, 1))
        for processor in (ours, single):
            prepare_steps(processor, envs, 0)
        envs.reset()
        for action in sampled_actions(envs.spaces.action, 60 * ENVS, 0).reshape(60, ENVS):
            step = envs.step(action)
            assert_n_steps(ours.process(step), single.process(step), n, kind is BitFlip)


@pytest.mark.parametrize("ends", [False, True])
def test_a_judge_of_single_goals_is_asked_row_by_row(ends: bool) -> None:
    class OneRow(BitFlip):  # as gymnasium-robotics' are: False, or a norm over all that is given
        def compute_terminated(self, achieved_goal: Any, desired_goal: Any, info: Any) -> bool:
            return ends and not np.linalg.norm(achieved_goal - desired_goal)

    envs = LoopVectorEnv([OneRow(BITS) for _ in range(ENVS)], seed=0)
    found, _ = played(envs, 20)
    relabelled = [again for _, again in episodes_of(found)]
    rows = {name: np.concatenate([again[name] for again in relabelled]) for name in relabelled[0]}
    hit = (rows["next_obs/achieved_goal"] == rows["obs/desired_goal"]).all(1)
    assert hit.any()
    np.testing.assert_array_equal(rows["terminated"], hit & ends)


@pytest.mark.parametrize(
    ("given", "said"), [(0.5, r"\[0.5, 0.5\]"), ([True, False], r"\(\d, 2\) for \d rows of goals")]
)
def test_a_judge_that_gives_no_bools_is_refused(given: Any, said: str) -> None:
    class Distance(BitFlip):
        def compute_terminated(self, achieved_goal: Any, desired_goal: Any, info: Any) -> Any:
            return given

    envs = LoopVectorEnv([Distance(BITS) for _ in range(ENVS)], seed=0)
    with pytest.raises(HindsightError, match=rf"compute_terminated gave {said}: set .* bools"):
        played(envs, 1)


def assert_n_steps(found: Columns, single: Columns, n: int, ends: bool) -> None:
    """Hold rows of n steps against those of one step, of the same goals, episode by episode."""
    at = 0
    for whole, again in episodes_of([single]) if len(single["reward"]) else []:
        length = len(whole["reward"])
        goals = np.concatenate([rows["obs/desired_goal"] for rows in (whole, again)])
        for k, goal in enumerate(goals):
            t = k if k < length else (k - length) // GOALS
            value = 0.0
            steps = 0
            hit = False
            while steps < n and t + steps < length and not (hit and ends):
                hit = bool((whole["next_obs/achieved_goal"][t + steps] == goal).all())
                value += 0.5**steps * (hit - 1.0)
                steps += 1
            row = {name: column[at + k] for name, column in found.items()}
            np.testing.assert_array_equal(row["obs/observation"], whole["obs/observation"][t])
            after = whole["next_obs/observation"][t + steps - 1]
            np.testing.assert_array_equal(row["next_obs/observation"], after)
            np.testing.assert_array_equal(row["next_obs/desired_goal"], goal)
            assert (row["n_steps"], row["terminated"]) == (steps, hit and ends)
            assert row["reward"] == pytest.approx(value)
        at += length * (1 + GOALS)
    assert at == len(found["reward"])


def test_rewards_are_scaled_as_those_of_steps() -> None:
    pieces, _ = played(envs_of(rewards=RewardTransform(2.0, 1.5)), 40)
    rewards = np.concatenate([piece["reward"] for piece in pieces])
    assert set(rewards) == {0.0, -1.5}


def test_the_goals_are_drawn_by_the_seed() -> None:
    one, other = (played(envs_of(), 20)[0] for _ in range(2))
    for piece, same in zip(one, other, strict=True):
        for name, column in piece.items():
            np.testing.assert_array_equal(column, same[name])


def test_its_span_reaches_back_to_the_oldest_step_that_it_holds_or_gave() -> None:
    envs = LoopVectorEnv([BitFlip(2), BitFlip(2)], seed=1)
    processor = hindsight(envs)
    envs.reset()
    spans = []
    for action in ([0, 0], [0, 0], [0, 0]):
        processor.process(envs.step(np.array(action)))
        spans.append(processor.span)
    assert spans[0] == 1
    assert spans[1] == 2  # both episodes end by now
    assert spans[2] == 1


def test_an_episode_without_end_is_given_in_parts() -> None:
    class Endless(BitFlip):
        def step(self, action: Any) -> Any:
            obs, reward, *_ = super().step(action)
            return obs, reward, False, False, {}

    envs = LoopVectorEnv([Endless(BITS)], seed=0)
    processor = hindsight(envs, 1)
    envs.reset()
    counts = [
        len(processor.process(envs.step(np.zeros(1, np.int64)))["reward"])
        for _ in range(2 * EPISODE_STEPS_MAX)
    ]
    assert np.flatnonzero(counts).tolist() == [EPISODE_STEPS_MAX - 1, 2 * EPISODE_STEPS_MAX - 1]
    assert set(counts) == {0, 2 * EPISODE_STEPS_MAX}


def test_what_cannot_be_relabelled_is_refused_with_the_fix() -> None:
    envs = envs_of()
    dtype = transition_dtype(envs.spaces)
    plain = LoopVectorEnv([ScriptedEnv()], seed=0)
    with pytest.raises(HindsightError, match="needs 'achieved_goal' and 'desired_goal'"):
        Hindsight(1, 0.9, 1, transition_dtype(plain.spaces))
    with pytest.raises(HindsightError, match="has no compute_reward"):
        prepare_steps(Hindsight(1, 0.9, ENVS, dtype), plain, 0)
    assert len(empty_columns(dtype, 0)["reward"]) == 0


class SingleRow(BitFlip):
    def compute_reward(self, achieved_goal: Any, desired_goal: Any, info: Any) -> Any:
        return -float(achieved_goal[0] != desired_goal[0])


class NeedsInfo(BitFlip):
    def compute_reward(self, achieved_goal: Any, desired_goal: Any, info: Any) -> Any:
        return info["k"]


class OneNorm(BitFlip):
    def compute_reward(self, achieved_goal: Any, desired_goal: Any, info: Any) -> Any:
        return np.linalg.norm(achieved_goal - desired_goal)


class NeverFinite(BitFlip):
    def compute_reward(self, achieved_goal: Any, desired_goal: Any, info: Any) -> Any:
        return np.full(np.shape(achieved_goal)[:-1], np.nan)


JUDGES = [
    (SingleRow, r"its goals cannot be judged again \((Type|Value)Error: "),
    (NeedsInfo, r"its goals cannot be judged again \(TypeError: list indices"),
    (OneNorm, r"its compute_reward gave \(\) for 2 rows of goals"),
    (NeverFinite, r"its compute_reward gave \[nan, nan\] for two goals"),
]


@pytest.mark.parametrize(("kind", "why"), JUDGES)
def test_a_reward_that_does_not_take_many_rows_is_refused_before_the_first_step(
    kind: type[BitFlip], why: str
) -> None:
    envs = LoopVectorEnv([kind(BITS)], seed=0)
    fix = r".* or have compute_reward take many rows: .* info, a list of B empty dictionaries"
    with pytest.raises(HindsightError, match=why + fix):
        prepare_steps(Hindsight(1, 0.9, 1, transition_dtype(envs.spaces)), envs, 0)


def test_the_reward_is_found_behind_wrappers() -> None:
    config = EnvConfig(
        id="vedette_rl.testing.inputs:BitFlip", kwargs={"bits": 3}, max_episode_steps=2
    )
    envs = make_vector_environment(config, 2, 0)
    prepare_steps(Hindsight(1, 0.9, 2, transition_dtype(envs.spaces)), envs, 0)
    envs.close()


class Reach(gym.Env[Any, Any]):
    """Goals on a grid of tenths: whether one is near enough depends on rounding."""

    def __init__(self, near: float = 0.1, cost: float = 0.0) -> None:
        self.near = near
        self.cost = cost
        self.action_space = gym.spaces.Discrete(2)
        line = gym.spaces.Box(-9.0, 9.0, (1,), np.float64)
        names = ("observation", "achieved_goal", "desired_goal")
        self.observation_space = gym.spaces.Dict(dict.fromkeys(names, line))

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.t = 0
        self.place = np.zeros(1)
        self.goal = np.array([0.1 * self.np_random.integers(1, 5)])
        return self._obs(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.place = self.place + (0.1 if action else -0.1)
        self.t += 1
        reward = float(self.compute_reward(self.place, self.goal, {})) - self.cost * (self.t == 3)
        return self._obs(), reward, False, self.t == 8, {}

    def compute_reward(self, achieved_goal: Any, desired_goal: Any, info: Any) -> Any:
        distance = np.linalg.norm(achieved_goal - desired_goal, axis=-1)
        return (distance <= self.near).astype(np.float64)

    def _obs(self) -> dict[str, Any]:
        return {
            "observation": self.place,
            "achieved_goal": self.place,
            "desired_goal": self.goal,
        }


class MovingGoal(Reach):
    """Its goal moves once it is reached, before it is seen."""

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        obs, reward, *ends = super().step(action)
        if reward:
            self.goal = self.goal + 0.5
            obs["desired_goal"] = self.goal
        return obs, reward, *ends  # type: ignore[return-value]


class Dense(Reach):
    """Rewards nearness, far from the origin, where float32 has few digits."""

    def compute_reward(self, achieved_goal: Any, desired_goal: Any, info: Any) -> Any:
        return -np.linalg.norm(achieved_goal - desired_goal, axis=-1)

    def _obs(self) -> dict[str, Any]:
        return {name: value + 8.0 for name, value in super()._obs().items()}


class Endures(gym.Wrapper[Any, Any, Any, Any]):
    """Goes on where the environment ends."""

    def step(self, action: Any) -> Any:
        obs, reward, _, truncated, info = self.env.step(action)
        return obs, reward, False, truncated, info


class EndsByTime(gym.Wrapper[Any, Any, Any, Any]):
    """Does not say that a goal was reached with the last step."""

    def step(self, action: Any) -> Any:
        obs, reward, terminated, truncated, info = self.env.step(action)
        return obs, reward, terminated and not truncated, truncated, info


class HalvesGoals(gym.ObservationWrapper[Any, Any, Any]):
    def observation(self, obs: Any) -> Any:
        return {name: 0.5 * value for name, value in obs.items()}


class ScalesBoth(gym.RewardWrapper[Any, Any]):
    def reward(self, reward: Any) -> Any:
        return 0.1 * reward

    def compute_reward(self, *args: Any) -> Any:
        compute = self.env.get_wrapper_attr("compute_reward")
        return 0.1 * compute(*args)


def scaled(env: gym.Env[Any, Any]) -> gym.Env[Any, Any]:
    return gym.wrappers.TransformReward(env, lambda reward: 0.1 * float(reward))


def play(env: gym.Env[Any, Any], steps: int = 200, **how: Any) -> None:
    """Play with hindsight."""
    envs = LoopVectorEnv([env], seed=0, **how)
    processor = Hindsight(1, 0.9, 1, transition_dtype(envs.spaces))
    prepare_steps(processor, envs, 0)
    envs.reset()
    for action in sampled_actions(envs.spaces.action, steps, 0):
        processor.process(envs.step(np.array([action])))


@pytest.mark.parametrize(
    ("env", "why"),
    [
        (scaled(Reach()), "a step's reward is 0.1 in its transition, and 1 by compute_reward"),
        (scaled(BitFlip(2)), "a step's reward is -0.1 in its transition, and -1 by compute_reward"),
        (HalvesGoals(Dense()), r"a step's reward is -0\.\d+ in its transition, and -0\.\d+ by"),
        (Endures(BitFlip(2)), "a step's end is false in its transition, and true by compute_term"),
    ],
)
def test_steps_that_contradict_the_judge_of_their_goals_are_refused(
    env: gym.Env[Any, Any], why: str
) -> None:
    fix = "set actors.step_processor=n_step, .* a compute_(reward|terminated) that does the same"
    with pytest.raises(HindsightError, match=f"{why}.* of .* steps.*: {fix}"):
        play(env)


@pytest.mark.parametrize(
    "env",
    [
        ScalesBoth(Reach()),
        ScalesBoth(BitFlip(2)),
        EndsByTime(BitFlip(2)),
        Reach(),
        MovingGoal(0.01),
        Dense(),
    ],
)
def test_steps_that_agree_with_the_judge_but_for_rounding_are_taken(
    env: gym.Env[Any, Any],
) -> None:
    play(env, 1000)
    play(env, 1000, rewards=RewardTransform(0.05, 0.04))


class CostsActions(gym.Wrapper[Any, Any, Any, Any]):
    """Takes a little of each reward."""

    def step(self, action: Any) -> Any:
        obs, reward, *ends = self.env.step(action)
        return obs, float(reward) - 0.01, *ends


@pytest.mark.parametrize(
    ("env", "rows"), [(Dense(cost=1.0), r"3 of \d+"), (CostsActions(BitFlip(BITS)), r"\d+ of \d+")]
)
def test_costs_beside_the_goal_are_taken_and_said_once(
    env: gym.Env[Any, Any], rows: str, caplog: pytest.LogCaptureFixture
) -> None:
    play(env)
    (line,) = caplog.messages
    assert re.search(
        r"^a step's reward is -\d\.\d+ in its transition, and -\d(\.\d+)? by compute_reward of the "
        rf"same goals \(so or similarly in {rows} steps\): relabelled transitions have the latter$",
        line,
    )


def test_a_few_steps_of_many_that_differ_are_taken(caplog: pytest.LogCaptureFixture) -> None:
    class Seldom(BitFlip):
        flips = 0

        def step(self, action: Any) -> Any:
            obs, reward, *ends = super().step(action)
            self.flips += reward < 0.0
            return obs, 1.0 if reward < 0.0 and self.flips % 1500 == 0 else reward, *ends

    play(Seldom(BITS), 8000)
    assert not caplog.messages
