"""The wrapper of studies that ends the first episode of each environment early."""

import gymnasium as gym
from first_episodes import CutFirstEpisode


def length(env: CutFirstEpisode) -> int:
    """Steps of an episode, from its reset on."""
    for steps in range(1, 1_000):
        *_, terminated, truncated, _ = env.step(env.action_space.sample())
        if terminated or truncated:
            return steps
    raise AssertionError("no end")


def test_the_first_episode_alone_ends_at_a_random_step() -> None:
    firsts = []
    for seed in range(40):
        env = CutFirstEpisode(gym.make("Pendulum-v1"), steps=100)
        env.reset(seed=seed)
        firsts.append(length(env))
        env.reset()
        assert length(env) == 200
    assert 1 <= min(firsts) < 20
    assert 80 < max(firsts) <= 100
    assert len(set(firsts)) > 20


def test_an_episode_that_ends_by_itself_is_the_first() -> None:
    env = CutFirstEpisode(gym.make("Pendulum-v1", max_episode_steps=5), steps=10**6)
    env.reset(seed=0)
    assert length(env) == 5
    env.reset()
    assert length(env) == 5
