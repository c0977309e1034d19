"""Coloured noise has its spectrum and its size, and each environment and episode its own."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from numpy.typing import NDArray

from vedette_rl.agents.action_noise import (
    USUAL_STEPS,
    ColoredNoise,
    WhiteNoise,
    color_exponent,
    colored_sequences,
)
from vedette_rl.agents.config import ActorCriticConfig
from vedette_rl.agents.registry import agent_kind
from vedette_rl.agents.sac.config import SacConfig
from vedette_rl.agents.td3.config import Td3Config
from vedette_rl.core.acting import Policy, act_of
from vedette_rl.core.learning import ModelInfo
from vedette_rl.envs.spaces import Spaces, transition_dtype
from vedette_rl.envs.vector_env import LoopVectorEnv
from vedette_rl.errors import WrongSettingsError
from vedette_rl.rollout import RolloutLoop
from vedette_rl.steps import NStep

EXPONENTS = [0.0, 0.5, 1.0, 2.0]
SPACES = Spaces(gym.spaces.Box(-1, 1, (3,), np.float32), gym.spaces.Box(-2, 2, (2,), np.float32))
NONE = np.zeros(2, np.bool_)
OBS = {"obs": np.zeros((2, 3), np.float32)}


def sequences(exponent: float, steps: int, count: int, seed: int = 0) -> NDArray[np.float64]:
    drawn = colored_sequences(np.random.default_rng(seed), exponent, steps, (count,))
    assert drawn.dtype == np.float32
    assert drawn.shape == (count, steps)
    return drawn.astype(np.float64)


def slope(numbers: NDArray[np.float64]) -> float:
    """By what power of the frequency the mean power of sequences ``(N, T)`` grows."""
    power = (np.abs(np.fft.rfft(numbers)) ** 2).mean(0)
    waves = np.arange(1, numbers.shape[1] // 2)
    return float(np.polyfit(np.log(waves), np.log(power[waves]), 1)[0])


@pytest.mark.parametrize("steps", [500, 501])
@pytest.mark.parametrize("exponent", EXPONENTS)
def test_the_power_falls_with_the_frequency_by_the_exponent(exponent: float, steps: int) -> None:
    assert slope(sequences(exponent, steps, 1000)) == pytest.approx(-exponent, abs=0.02)


@pytest.mark.parametrize("steps", [1, 2, 7, 64])
@pytest.mark.parametrize("exponent", EXPONENTS)
def test_every_step_is_standard_normal(exponent: float, steps: int) -> None:
    numbers = sequences(exponent, steps, 40_000)
    # five standard errors of the moments of 40,000 normal numbers
    np.testing.assert_allclose(numbers.mean(0), 0.0, atol=5 / 40_000**0.5)
    np.testing.assert_allclose((numbers**2).mean(0), 1.0, atol=5 * (2 / 40_000) ** 0.5)
    np.testing.assert_allclose((numbers**4).mean(0), 3.0, atol=5 * (96 / 40_000) ** 0.5)


@pytest.mark.parametrize("steps", [8, 9])
def test_an_exponent_of_0_is_white(steps: int) -> None:
    numbers = sequences(0.0, steps, 40_000)
    np.testing.assert_allclose(np.cov(numbers.T), np.eye(steps), atol=5 * (2 / 40_000) ** 0.5)


def drawn(noise: ColoredNoise, steps: int, rows: int = 2) -> NDArray[np.float32]:
    """Its numbers of some steps, ``(T, E, D)``."""
    return np.stack([noise.draw(rows) for _ in range(steps)])


def noise_of(seed: int = 0, *, exponent: float = 1.0, steps: int = 16) -> ColoredNoise:
    return ColoredNoise(np.random.default_rng(seed), 3, exponent, steps)


def test_environments_dimensions_and_sequences_are_independent() -> None:
    noise = noise_of(exponent=2.0, steps=8)
    numbers = drawn(noise, 8 * 4000).reshape(4000, 8, 6)  # of each sequence, by step
    following = np.concatenate([numbers[:-1], numbers[1:]], axis=2)  # and the one behind it
    for t in range(8):
        np.testing.assert_allclose(np.corrcoef(following[:, t].T), np.eye(12), atol=5 / 4000**0.5)
    steps = np.corrcoef(numbers[:, :, 0].T)
    assert steps[3, 4] > 0.5, "of one sequence they are not"


def test_what_is_drawn_step_by_step_has_the_spectrum() -> None:
    numbers = drawn(noise_of(steps=500), 100_000, rows=4).reshape(200, 500, 12)
    flat = numbers.astype(np.float64).swapaxes(1, 2).reshape(-1, 500)
    assert slope(flat) == pytest.approx(-1.0, abs=0.02)


def test_where_an_episode_begins_there_is_another_sequence_and_elsewhere_it_goes_on() -> None:
    whole = drawn(noise_of(), 32)
    renewed = noise_of()
    first = drawn(renewed, 10)
    renewed.renew(np.array([False, True]))
    second = drawn(renewed, 6)
    np.testing.assert_array_equal(first, whole[:10])
    np.testing.assert_array_equal(second[:, 0], whole[10:16, 0])
    assert (second[:, 1] != whole[10:16, 1]).all()
    after = drawn(renewed, 16)  # each at the end of its own
    assert (after[:, 0] != whole[:16, 0]).all()
    assert (after[:, 1] != whole[:16, 1]).all()


def test_a_sequence_that_is_used_up_is_followed_by_another() -> None:
    numbers = drawn(noise_of(exponent=2.0, steps=50), 150)
    assert (numbers[:50] != numbers[50:100]).all()
    assert (numbers[50:100] != numbers[100:]).all()
    assert len(np.unique(numbers)) == numbers.size, "no number is drawn twice"


def test_environments_that_a_draw_leaves_out_or_that_are_new_begin_a_sequence() -> None:
    noise = noise_of(exponent=2.0, steps=400)
    before = drawn(noise, 5, rows=3)
    alone = drawn(noise, 5, rows=1)
    again = drawn(noise, 5, rows=4)
    assert np.abs(alone[0, 0] - before[-1, 0]).max() < 0.5, "the first goes on"
    assert np.abs(again[0, 0] - alone[-1, 0]).max() < 0.5
    assert np.abs(again[0, 1:3] - before[-1, 1:3]).min() > 0.01
    assert len(np.unique(again)) == again.size


def test_the_same_seed_draws_the_same() -> None:
    np.testing.assert_array_equal(drawn(noise_of(3), 40), drawn(noise_of(3), 40))
    assert (drawn(noise_of(3), 40) != drawn(noise_of(4), 40)).all()


def test_what_was_drawn_is_not_changed_by_what_follows() -> None:
    noise = noise_of(steps=2)
    first = noise.draw(2)
    kept = first.copy()
    drawn(noise, 5)
    np.testing.assert_array_equal(first, kept)


# In policies


def policy_of(config: ActorCriticConfig, seed: int = 0) -> Policy:
    """A trained policy of mean 0, and of SAC with deviation 1, for two environments."""
    build: Any = agent_kind(config.name).build_policy
    policy = build(config, SPACES, ranks=np.array([0.5, 0.25]), seed=seed)
    policy.sync_model(model_for(policy, version=1))
    return policy


def model_for(policy: Any, version: int) -> ModelInfo:
    """A model of zeros."""
    network = getattr(policy, "_network", None) or policy.network
    shapes = network.shapes.items()
    return ModelInfo(version, {name: np.zeros(shape, np.float32) for name, shape in shapes})


def configs(**settings: Any) -> list[ActorCriticConfig]:
    small = {"hidden_sizes": (4,), **settings}
    core = {"memory": "gru", "memory_size": 4}
    return [
        SacConfig(**small),
        SacConfig(**small, **core, critic_architecture="mlp"),
        Td3Config(**small, exploration_noise=0.2),
        Td3Config(**small, **core, exploration_noise=0.2),
    ]


def name_of(config: ActorCriticConfig) -> str:
    return f"{config.name}, {config.memory}"


def noise_in(config: ActorCriticConfig, action: NDArray[Any]) -> NDArray[np.float64]:
    """The noise in the actions of `policy_of`, which are scaled to [-2, 2]."""
    unit = np.asarray(action, np.float64) / 2.0
    return unit / 0.2 if isinstance(config, Td3Config) else np.arctanh(unit)


def explored(
    config: ActorCriticConfig, policy: Policy, begins: list[NDArray[np.bool_] | None]
) -> NDArray[np.float64]:
    """The noise ``(T, E, D)`` of exploring steps."""
    act = act_of(policy)
    return np.stack([noise_in(config, act(OBS, explore=True, begins=b)) for b in begins])


@pytest.mark.parametrize("config", configs(), ids=name_of)
def test_white_noise_has_the_random_numbers_of_before_there_was_another(
    config: ActorCriticConfig,
) -> None:
    policy = policy_of(config, seed=5)
    numbers = np.random.default_rng(5)
    for begins in (~NONE, NONE, np.array([True, False]), None):
        got = act_of(policy)(OBS, explore=True, begins=begins)
        z = numbers.standard_normal((2, 2), np.float32)
        unit = np.float32(0.2) * z if isinstance(config, Td3Config) else np.tanh(z)
        np.testing.assert_array_equal(got, np.float32(2.0) * unit)


@pytest.mark.parametrize("config", configs(noise_color="pink", noise_steps=64), ids=name_of)
def test_a_policy_explores_by_the_sequences(config: ActorCriticConfig) -> None:
    found = explored(config, policy_of(config, seed=5), [~NONE] + [NONE] * 100)
    noise = ColoredNoise(np.random.default_rng(5), 2, 1.0, 64)
    np.testing.assert_allclose(found, drawn(noise, 101), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("config", configs(noise_color="red", noise_steps=1000), ids=name_of)
def test_a_policys_noise_begins_anew_in_the_environments_whose_episode_begins(
    config: ActorCriticConfig,
) -> None:
    some = [np.array([k % 20 == 0, k % 20 == 7]) for k in range(200)]
    found = explored(config, policy_of(config), list(some))
    jumps = np.abs(np.diff(found, axis=0))  # (T - 1, E, D)
    begins = np.stack(some)[1:]
    assert jumps[~begins].max() < 0.5
    assert jumps[begins].mean() > 0.5
    assert (jumps[begins] > 0.5).mean() > 0.5


@pytest.mark.parametrize("config", configs(noise_color="pink"), ids=name_of)
def test_evaluation_is_as_without_noise_and_leaves_the_noise_as_it_is(
    config: ActorCriticConfig,
) -> None:
    undisturbed = explored(config, policy_of(config), [~NONE, NONE, NONE, NONE])
    policy = policy_of(config)
    act = act_of(policy)
    first = explored(config, policy, [~NONE, NONE])
    assert not act(OBS, explore=False, begins=~NONE).any()
    assert not act({"obs": OBS["obs"][:1]}, explore=False, begins=NONE[:1]).any()
    second = explored(config, policy, [NONE, NONE])
    np.testing.assert_array_equal(np.concatenate([first, second]), undisturbed)


@pytest.mark.parametrize("config", configs(noise_color="pink"), ids=name_of)
def test_an_untrained_model_acts_uniformly_and_then_a_sequence_begins(
    config: ActorCriticConfig,
) -> None:
    policy = policy_of(config, seed=9)
    policy.sync_model(model_for(policy, version=0))
    numbers = np.random.default_rng(9)
    for _ in range(3):
        got = act_of(policy)(OBS, explore=True, begins=NONE)
        np.testing.assert_array_equal(got, np.float32(2.0 * numbers.uniform(-1, 1, (2, 2))))
    policy.sync_model(model_for(policy, version=1))
    expected = drawn(ColoredNoise(numbers, 2, 1.0, USUAL_STEPS), 5)
    np.testing.assert_allclose(explored(config, policy, [NONE] * 5), expected, rtol=1e-3, atol=1e-4)


class Still(gym.Env[NDArray[np.float32], NDArray[np.float32]]):
    """Episodes of a length; the observation is the step within it."""

    observation_space = SPACES.observation
    action_space = SPACES.action

    def __init__(self, length: int) -> None:
        self._length = length
        self._t = 0

    def reset(self, **_: Any) -> tuple[NDArray[np.float32], dict[str, Any]]:  # type: ignore[override]  # of this test
        self._t = 0
        return np.zeros(3, np.float32), {}

    def step(self, action: Any) -> Any:
        self._t += 1
        return np.zeros(3, np.float32), 0.0, self._t == self._length, False, {}


class Given:
    """A model source with one model."""

    epoch = 0

    def __init__(self, model: ModelInfo) -> None:
        self.has_new = True
        self._model = model

    def read(self) -> Given:
        self.has_new = False
        return self

    def info(self) -> ModelInfo:
        return self._model


@pytest.mark.parametrize("config", configs(noise_color="red"), ids=name_of)
def test_in_an_actors_loop_each_environments_episode_has_its_own_noise(
    config: ActorCriticConfig,
) -> None:
    envs = LoopVectorEnv([Still(20), Still(13)], seed=0)
    policy = policy_of(config)
    models: Any = Given(model_for(policy, version=1))
    loop = RolloutLoop(envs, policy, NStep(1, 0.99, 2, transition_dtype(SPACES, [])), models, 1)
    loop.begin()
    numbers = np.stack([noise_in(config, loop.play().action) for _ in range(200)])
    jumps = np.abs(np.diff(numbers, axis=0)).max(2)
    ends = np.arange(1, 200)
    for env, length in enumerate((20, 13)):
        begins = ends % length == 0
        assert jumps[~begins, env].max() < 0.5
        assert jumps[begins, env].mean() > 0.5


# Configurations and descriptions


def test_colors_are_names_or_exponents() -> None:
    named = {"white": 0.0, "pink": 1.0, "red": 2.0}
    for name, exponent in named.items():
        assert color_exponent(SacConfig(noise_color=name).noise_color) == exponent  # type: ignore[arg-type]  # a name of these
    assert color_exponent(Td3Config(noise_color=1).noise_color) == 1.0
    for wrong in ("blue", -0.5, 2.5, float("nan")):
        with pytest.raises(WrongSettingsError, match=r"^noise_color: "):
            SacConfig(noise_color=wrong)  # type: ignore[arg-type]  # it is refused


@pytest.mark.parametrize("color", ["white", 0.0])
def test_white_noise_is_drawn_step_by_step(color: Any) -> None:
    policy: Any = policy_of(SacConfig(hidden_sizes=(4,), noise_color=color))
    assert isinstance(policy._noise, WhiteNoise)


def test_clients_in_other_languages_are_told_of_coloured_noise_alone() -> None:
    for white in configs()[0], configs()[2], SacConfig(noise_steps=7):
        described = _described(white)
        assert not {key for key in described if key in ("noise_exponent", "noise_steps")}
    for color, steps, exponent in (("pink", None, 1.0), ("red", 999, 2.0), (0.5, 3, 0.5)):
        for kind in SacConfig, Td3Config:
            described = _described(kind(noise_color=color, noise_steps=steps))  # type: ignore[arg-type]  # of each type
            assert described["noise_exponent"] == exponent
            assert described["noise_steps"] == (steps or USUAL_STEPS)


def _described(config: ActorCriticConfig) -> dict[str, Any]:
    describe: Any = agent_kind(config.name).describe
    described: dict[str, Any] = describe(config, SPACES)
    return described


def test_noise_needs_no_torch() -> None:
    code = (
        "import sys, vedette_rl.agents.action_noise, vedette_rl.agents.sac.policy; "
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
