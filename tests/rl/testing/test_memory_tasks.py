"""Tasks that need a memory: what they show, what they reward, and what they refuse."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest

from vedette_rl.testing import PartOfObservation, RepeatFirst


@pytest.mark.parametrize("steps", [1, 30])
def test_the_sign_is_seen_at_the_first_step_alone_and_rewarded_at_the_last(steps: int) -> None:
    env = RepeatFirst(steps)
    signs = set()
    for seed in range(20):
        obs, _ = env.reset(seed=seed)
        assert env.observation_space.contains(obs)
        sign = int(obs.argmax())
        assert sign in (0, 1)
        signs.add(sign)
        right = bool(seed % 2)
        for t in range(steps):
            action = np.int64(sign if right else 1 - sign)
            obs, reward, terminated, truncated, _ = env.step(action)
            assert obs.tolist() == [0.0, 0.0, 1.0]
            assert terminated == (t == steps - 1)
            assert not truncated
            assert reward == float(terminated and right)
    assert signs == {0, 1}


def test_only_the_named_numbers_of_an_observation_are_seen() -> None:
    whole, part = gym.make("CartPole-v1"), PartOfObservation(gym.make("CartPole-v1"), [0, 2])
    seen, _ = part.reset(seed=3)
    obs, _ = whole.reset(seed=3)
    assert seen.tolist() == obs[[0, 2]].tolist()
    assert part.observation_space.contains(seen)
    space = whole.observation_space
    assert isinstance(space, gym.spaces.Box)
    assert part.observation_space == gym.spaces.Box(space.low[[0, 2]], space.high[[0, 2]])
    assert part.step(1)[0].tolist() == whole.step(1)[0][[0, 2]].tolist()


@pytest.mark.parametrize("indices", [[], [4], [-1]])
def test_numbers_that_are_not_there_are_refused(indices: list[int]) -> None:
    with pytest.raises(ValueError, match="name numbers from 0 to 3"):
        PartOfObservation(gym.make("CartPole-v1"), indices)


def test_an_observation_that_is_no_vector_is_refused() -> None:
    with pytest.raises(ValueError, match="not a vector"):
        PartOfObservation(gym.make("FrozenLake-v1"), [0])
