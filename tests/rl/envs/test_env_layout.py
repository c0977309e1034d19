"""Actions and rewards between an environment and its transitions."""

import gymnasium as gym
import numpy as np
import pytest

from vedette_rl.agents.actions import BoxActions, to_bounds
from vedette_rl.envs.layout import ActionConverter, RewardTransform

TENTH = gym.spaces.Box(-0.1, 0.1, (2,), np.float64)  # float32(0.1) > 0.1
POINT = gym.spaces.Box(0.3, 0.3, (2,), np.float64)
HALF = gym.spaces.Box(-0.1, 0.1, (2,), np.float16)
ONE_SIDE = gym.spaces.Box(np.array([-0.1, -1.0]), np.array([5.0, 0.7]), dtype=np.float64)


@pytest.mark.parametrize("space", [TENTH, POINT, HALF, ONE_SIDE], ids=str)
def test_what_an_agent_says_at_the_bounds_is_in_the_box(space: gym.spaces.Box) -> None:
    form = ActionConverter(space, 2)
    actions = BoxActions.from_space("sac", space)
    said = to_bounds(np.array([[1, -1], [-1, 1]], np.float32), *actions.scaling)
    for action in form.to_environment(form.to_column(said)):
        assert action.dtype == space.dtype
        assert space.contains(action)


@pytest.mark.parametrize("space", [TENTH, POINT, HALF, ONE_SIDE], ids=str)
def test_a_bound_itself_is_in_the_box_though_it_is_stored_in_float32(
    space: gym.spaces.Box,
) -> None:
    form = ActionConverter(space, 2)
    for action in form.to_environment(form.to_column(np.stack([space.low, space.high]))):
        assert space.contains(action)


@pytest.mark.parametrize("space", [TENTH, ONE_SIDE], ids=str)
def test_sacs_own_bounds_are_within_the_boxs(space: gym.spaces.Box) -> None:
    actions = BoxActions.from_space("sac", space)
    assert actions.low.dtype == actions.high.dtype == np.float32
    assert (actions.low >= space.low).all()
    assert (actions.high <= space.high).all()
    np.testing.assert_allclose(actions.low, space.low, rtol=1e-6)
    np.testing.assert_allclose(actions.high, space.high, rtol=1e-6)


def test_bounds_that_float32_has_stay_as_they_are() -> None:
    space = gym.spaces.Box(-0.1, 0.1, (2,), np.float32)
    actions = BoxActions.from_space("sac", space)
    np.testing.assert_array_equal(actions.high, space.high)
    beyond = np.array([[9.0, -9.0]], np.float32)  # an agent's own fault is the environment's to see
    np.testing.assert_array_equal(ActionConverter(space, 1).to_environment(beyond), beyond)


@pytest.mark.parametrize(
    ("space", "own"),
    [
        (gym.spaces.Discrete(3), True),
        (gym.spaces.Discrete(3, start=2), False),
        (gym.spaces.MultiDiscrete([2, 3], start=[0, 4]), False),
        (gym.spaces.Box(-1, 1, (2,), np.float32), True),
        (TENTH, False),
    ],
    ids=str,
)
def test_a_form_says_whether_it_changes_anything(space: gym.Space[object], own: bool) -> None:
    assert ActionConverter(space, 1).is_identity == own


@pytest.mark.parametrize(
    ("scale", "clip", "expected"),
    [
        (1.0, 0.0, [-8.0, 0.5, 3.0]),
        (0.5, 0.0, [-4.0, 0.25, 1.5]),
        (1.0, 1.0, [-1.0, 0.5, 1.0]),
        (0.5, 1.0, [-1.0, 0.25, 1.0]),  # scaled first
    ],
)
def test_rewards_are_scaled_and_then_clipped(
    scale: float, clip: float, expected: list[float]
) -> None:
    true = np.array([-8.0, 0.5, 3.0])
    out = np.zeros(3, np.float32)
    RewardTransform(scale, clip).write(true, out)
    assert out.tolist() == expected
    assert true.tolist() == [-8.0, 0.5, 3.0]
