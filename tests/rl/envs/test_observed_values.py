"""Observations and rewards that are not what their spaces say: stored as they were seen, or
refused by name, wherever an environment is stepped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

from vedette_rl.envs import EnvConfig, make_vector_environment, probe_environment
from vedette_rl.envs.layout import (
    ObservationLayout,
    outside_bounds,
    read_flags,
    read_rewards,
    rounded_away,
)
from vedette_rl.envs.make import make_env
from vedette_rl.envs.native_vector_env import NativeVectorEnv
from vedette_rl.envs.pushed_envs import PushedEnvs
from vedette_rl.envs.vector_env import LoopVectorEnv, VectorEnvironment
from vedette_rl.errors import EnvironmentFaultError, SpaceLayoutError
from vedette_rl.evaluation.evaluator import EnvironmentPolicy, GreedyEvaluator
from vedette_services.errors import EnvironmentProcessError
from vedette_services.host.env_workers import ProcessEnvs

PIXELS = gym.spaces.Box(0, 255, (4,), np.uint8)
RIGHT = np.array([0, 3, 200, 255], np.uint8)
DIVIDED = np.array([0.37, 0.9, 1.0, 0.2])
LARGE = gym.spaces.Box(0, 255, (80, 80), np.uint8)  # written row by row
REWARDS: dict[str, Any] = {
    "array": np.array([1.0]),
    "list": [1.0],
    "scalar": np.array(1.0, np.float32),
    "two": np.array([1.0, 1.0]),
    "text": "1.0",
    "none": None,
    "dictionary": {"a": 1.0},
}
ONE = ("array", "scalar")
NO_NUMBER = ("list", "two", "text", "none", "dictionary")


class Odd(gym.Env[Any, Any]):
    """Right until `late` observations were given, then DIVIDED; or each step pays `reward`."""

    action_space = gym.spaces.Discrete(2)
    observation_space = PIXELS

    def __init__(self, late: int = 1000, reward: str = "") -> None:
        self.late = late
        self.seen = 0
        self.reward = REWARDS.get(reward, 1.0)

    def observe(self) -> Any:
        self.seen += 1
        return RIGHT if self.seen <= self.late else DIVIDED

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.t = 0
        return self.observe(), {}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        self.t += 1
        return self.observe(), self.reward, False, self.t == 4, {}


gym.register("OddValues-v0", entry_point=Odd)
HERE = f"{__name__}:OddValues-v0"
NAMED = r"'obs' has 0\.37 \(float64\) at \[0\], which uint8 cannot hold"
GYMNASIUM_WARNS = pytest.mark.filterwarnings("ignore:.*WARN")
STEPPINGS = ["serial", "threads", pytest.param("processes", marks=pytest.mark.slow)]


def vector(stepping: str, **kwargs: Any) -> VectorEnvironment:
    config = EnvConfig(id=HERE, kwargs=kwargs, stepping=stepping)
    return make_vector_environment(config, 2, 0, make_processes=ProcessEnvs)


def play(envs: VectorEnvironment, steps: int = 4) -> list[tuple[float, int]]:
    try:
        envs.reset()
        for _ in range(steps):
            envs.step(np.zeros(2, np.int64))
        return envs.pop_finished_episodes()
    finally:
        envs.close()


@pytest.mark.parametrize("late", [0, 3])
@pytest.mark.parametrize("stepping", STEPPINGS)
def test_a_value_that_its_space_cannot_hold_is_refused_at_once_and_later(
    stepping: str, late: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    with pytest.raises((SpaceLayoutError, EnvironmentProcessError), match=NAMED):
        play(vector(stepping, late=late))


@GYMNASIUM_WARNS
@pytest.mark.parametrize("late", [0, 1])
def test_the_probe_refuses_it(late: int) -> None:
    with pytest.raises(SpaceLayoutError, match=NAMED):
        probe_environment(EnvConfig(id=HERE, kwargs={"late": late}))


class Still:
    """Does nothing."""

    def act(self, obs: Any, *, explore: bool, begins: Any = None) -> Any:
        return np.zeros(len(obs["obs"]), np.int64)

    def sync_model(self, model: Any) -> None:
        """There is none."""


def test_evaluations_refuse_it() -> None:
    evaluation = GreedyEvaluator(EnvConfig(id=HERE, kwargs={"late": 3}), 2, 0)
    with pytest.raises(SpaceLayoutError, match=NAMED):
        evaluation.evaluate(Still(), 0)
    evaluation.close()
    policy = EnvironmentPolicy(Still(), make_env(EnvConfig(id=HERE)))
    assert policy(RIGHT, begins=True) == 0
    with pytest.raises(SpaceLayoutError, match=NAMED):
        policy(DIVIDED, begins=False)


@pytest.mark.parametrize("count", [None, 2])
def test_a_loop_of_ones_own_refuses_it_with_one_environment_and_with_several(
    count: int | None,
) -> None:
    envs = PushedEnvs(PIXELS, gym.spaces.Discrete(2), count)
    shape = (4,) if count is None else (count, 4)
    with pytest.raises(SpaceLayoutError, match=NAMED):
        envs.begin(np.broadcast_to(DIVIDED, shape))
    envs.begin(np.broadcast_to(RIGHT, shape).astype(np.int32))  # the same numbers
    np.testing.assert_array_equal(envs.reset()["obs"][-1], RIGHT)


@pytest.mark.parametrize(
    ("space", "value", "named"),
    [
        (PIXELS, [0, -5, 1, 2], r"-5 \(int64\) at \[1\], which uint8"),
        (PIXELS, np.array([0, 3, 700, 1], np.int32), r"700 \(int32\) at \[2\], which uint8"),
        (PIXELS, np.full(4, np.nan), r"nan \(float64\) at \[0\], which uint8"),
        (PIXELS, np.full(4, 1e300), r"1e\+300 \(float64\) at \[0\], which uint8"),
        (PIXELS, ["1", "2", "3", "4"], r"'1', '2', .* of <U1: numbers are needed"),
        (PIXELS, [None, 1, 2, 3], r"of object: numbers are needed"),
        (gym.spaces.Discrete(10), 8.9, r"8\.9 \(float64\), which int64"),
        (gym.spaces.Discrete(10), "8", r"'8'.* of <U1: numbers are needed"),
        (gym.spaces.MultiBinary(2), [0.5, 1], r"0\.5 \(float64\) at \[0\], which int8"),
        (LARGE, np.full((80, 80), 0.5), r"0\.5 \(float64\) at \[0, 0\], which uint8"),
        (gym.spaces.Box(-9, 9, (2,), np.int64), [1.0, 2.5], r"2\.5 \(float64\) at \[1\]"),
    ],
    ids=str,
)
def test_every_way_of_writing_names_column_value_and_dtype(
    space: gym.Space[Any], value: Any, named: str
) -> None:
    layout = ObservationLayout(space)
    columns = layout.empty(2)
    right = space.sample()
    for write in (
        lambda: layout.write(columns, 0, value),
        lambda: layout.write_rows(columns, [right, value]),
        lambda: layout.write_all(columns, [value, value]),
    ):
        with pytest.raises(SpaceLayoutError, match=named):
            write()


@pytest.mark.parametrize(
    ("space", "value"),
    [
        (PIXELS, [0.0, 3.0, 200.0, 255.0]),  # whole
        (PIXELS, np.array([0, 3, 200, 255], np.int64)),
        (PIXELS, np.array([0, 3, 200, 255], object)),
        (gym.spaces.Discrete(10), 7.0),
        (gym.spaces.Discrete(10), np.uint8(7)),
        (gym.spaces.MultiBinary(2), np.array([True, False])),
        (gym.spaces.Box(-1, 1, (2,), np.float32), np.array([0.1, 0.2])),  # rounded
        (gym.spaces.Box(-9, 9, (2,), np.float32), [1, 2]),
    ],
    ids=str,
)
def test_the_same_numbers_in_another_dtype_are_stored(space: gym.Space[Any], value: Any) -> None:
    layout = ObservationLayout(space)
    columns = layout.empty(2)
    layout.write_rows(columns, [value, value])
    layout.write(columns, 0, value)
    dtype = columns["obs"].dtype
    for stored in columns["obs"]:
        np.testing.assert_array_equal(stored, np.asarray(value).astype(dtype))
    columns["obs"][:] = 0
    layout.write_all(columns, [value, value])
    np.testing.assert_array_equal(columns["obs"][1], np.asarray(value).astype(dtype))


def test_a_part_of_a_dictionary_is_named() -> None:
    layout = ObservationLayout(gym.spaces.Dict(camera=LARGE, state=gym.spaces.Discrete(3)))
    wrong = {"camera": np.zeros((80, 80), np.uint8), "state": 0.5}
    with pytest.raises(SpaceLayoutError, match=r"'obs/state' has 0\.5"):
        layout.write_rows(layout.empty(1), [wrong])


class Clock(Odd):
    """Its observation is a time in seconds since 1970, from the step on by a second more."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float64)

    def observe(self) -> Any:
        self.seen += 1
        return np.array([1.7e9 + self.seen, 0.001 * self.seen])


def test_the_probe_warns_of_what_float32_rounds_away() -> None:
    with pytest.warns(UserWarning, match="'obs' has 1700000001 and then 1700000002, which are the"):
        probe_environment(EnvConfig(id=f"{__name__}:Clock"))


@GYMNASIUM_WARNS
@pytest.mark.parametrize("kind", ONE)
@pytest.mark.parametrize("stepping", STEPPINGS)
def test_an_array_of_one_number_is_a_reward(
    stepping: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    assert play(vector(stepping, reward=kind)) == [(4.0, 4), (4.0, 4)]
    probe_environment(EnvConfig(id=HERE, kwargs={"reward": kind}))


@GYMNASIUM_WARNS
@pytest.mark.parametrize("kind", NO_NUMBER)
@pytest.mark.parametrize("stepping", STEPPINGS)
def test_what_is_not_one_number_is_no_reward(
    stepping: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    named = (
        r"step\(\) gave reward=.*(1\.|None).*, which is not one number: give (float|one,).* "
        r"\(Odd\.step, test_observed_values\.py:\d+\)"
    )
    with pytest.raises((EnvironmentFaultError, EnvironmentProcessError), match=named):
        play(vector(stepping, reward=kind))
    config = EnvConfig(id=HERE, kwargs={"reward": kind})
    with pytest.raises(EnvironmentFaultError, match=named):
        probe_environment(config)
    evaluation = GreedyEvaluator(config, 1, 0)
    with pytest.raises(EnvironmentFaultError, match=named):
        evaluation.evaluate(Still(), 0)
    evaluation.close()


def test_a_loop_of_ones_own_takes_one_number_and_no_text() -> None:
    envs = PushedEnvs(PIXELS, gym.spaces.Discrete(2), None)
    envs.begin(RIGHT)
    for kind in ONE:
        step = envs.push(np.zeros(1, np.int64), REWARDS[kind], RIGHT, False, False)
        assert step.reward.tolist() == [1.0]
    for kind in NO_NUMBER:
        with pytest.raises(ValueError, match=r"rewards.*(shape|not a number)"):
            envs.push(np.zeros(1, np.int64), REWARDS[kind], RIGHT, False, False)


class OddVector(gym.vector.VectorEnv[Any, Any, Any]):
    """Two environments whose step pays `reward`."""

    metadata = {"autoreset_mode": gym.vector.AutoresetMode.NEXT_STEP}  # noqa: RUF012 - Gymnasium's
    num_envs = 2
    single_observation_space = PIXELS
    single_action_space = gym.spaces.Discrete(2)

    def __init__(self, reward: Any) -> None:
        self.reward = reward

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        return np.stack([RIGHT, RIGHT]), {}

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        never = np.zeros(2, np.bool_)
        return np.stack([RIGHT, RIGHT]), self.reward, never, never, {}


def test_a_vector_gives_a_number_for_each_environment() -> None:
    def rewards(given: Any) -> list[float]:
        envs = NativeVectorEnv(OddVector(given), seed=0)
        envs.reset()
        return list(envs.step(np.zeros(2, np.int64)).reward)

    assert rewards(np.array([[1.0], [2.0]])) == rewards([1, 2]) == [1.0, 2.0]
    for wrong in (np.array(["1", "2"]), [1.0, None], np.ones(3)):
        with pytest.raises(EnvironmentFaultError, match="not one number for each of 2"):
            rewards(wrong)


COUNTED = gym.spaces.Discrete(4)


class Counter(Odd):
    """Counts within Discrete(4) until `late` observations were given, then on to 4."""

    observation_space = COUNTED

    def observe(self) -> Any:
        self.seen += 1
        return 3 if self.seen <= self.late else 4


OUTSIDE = r"'obs' has 4, outside of its space: give 0 to 3"
PLACE = r" \(Odd\.\w+, test_observed_values\.py:\d+\)"
gym.register("CounterValues-v0", entry_point=Counter)
COUNTER = f"{__name__}:CounterValues-v0"


@pytest.mark.parametrize(("late", "call"), [(0, "reset"), (3, "step")])
@pytest.mark.parametrize("stepping", STEPPINGS)
def test_a_category_that_its_space_does_not_have_is_refused_at_once_and_later(
    stepping: str, late: int, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    config = EnvConfig(id=COUNTER, kwargs={"late": late}, stepping=stepping)
    named = rf"{call}\(\) gave an observation whose {OUTSIDE}{PLACE}"
    with pytest.raises((SpaceLayoutError, EnvironmentProcessError), match=named):
        play(make_vector_environment(config, 2, 0, make_processes=ProcessEnvs))


@GYMNASIUM_WARNS
@pytest.mark.parametrize(("late", "call"), [(0, "reset"), (1, "step")])
def test_the_probe_refuses_such_a_category(late: int, call: str) -> None:
    with pytest.raises(
        SpaceLayoutError, match=rf"{call}\(\) gave an observation whose {OUTSIDE}{PLACE}"
    ):
        probe_environment(EnvConfig(id=COUNTER, kwargs={"late": late}))


def test_evaluations_refuse_such_a_category() -> None:
    evaluation = GreedyEvaluator(EnvConfig(id=COUNTER, kwargs={"late": 3}), 2, 0)
    with pytest.raises(SpaceLayoutError, match=OUTSIDE + PLACE):
        evaluation.evaluate(Still(), 0)
    evaluation.close()


@pytest.mark.parametrize("count", [None, 2])
def test_a_loop_of_ones_own_refuses_such_a_category(count: int | None) -> None:
    envs = PushedEnvs(COUNTED, gym.spaces.Discrete(2), count)
    envs.begin(np.full(() if count is None else (count,), 3))
    with pytest.raises(SpaceLayoutError, match=OUTSIDE):
        envs.begin(np.full(() if count is None else (count,), 4))


def test_rows_in_which_no_episode_begins_may_hold_anything() -> None:
    envs = PushedEnvs(gym.spaces.Discrete(4, start=1), gym.spaces.Discrete(2), 2)
    envs.begin(np.array([1, 4]))
    envs.begin(np.array([2, 0]), np.array([True, False]))
    assert envs.reset()["obs"].tolist() == [2, 4]
    with pytest.raises(SpaceLayoutError, match="has 0, outside of"):
        envs.begin(np.array([2, 0]), np.array([False, True]))


@pytest.mark.parametrize(
    ("space", "inside", "outside", "named"),
    [
        (COUNTED, [0, 3], -1, r"-1, outside of its space: give 0 to 3"),
        (gym.spaces.Discrete(4, start=-2), [-2, 1], 2, r"2, outside of its space: give -2 to 1"),
        (gym.spaces.Discrete(4, start=5), [5, 8], 4, r"4, outside of its space: give 5 to 8"),
        (gym.spaces.Discrete(4), [0.0, 3.0], 4.0, r"4, outside of"),
        (
            gym.spaces.MultiDiscrete([2, 9]),
            [[0, 8], [1, 0]],
            [2, 8],
            r"2 at \[0\], outside of its space: give 0 to 1",
        ),
        (
            gym.spaces.MultiDiscrete([2, 9], np.int8, start=[0, 3]),
            [[0, 11], [1, 3]],
            [1, 12],
            r"12 at \[1\], outside of its space: give 3 to 11",
        ),
        (
            gym.spaces.MultiDiscrete([255], np.uint8),
            [[0], [254]],
            [256],
            r"256 \(int64\) at \[0\], which uint8 cannot hold",
        ),
    ],
    ids=str,
)
def test_every_way_of_writing_names_a_category_and_those_that_there_are(
    space: gym.Space[Any], inside: Any, outside: Any, named: str
) -> None:
    layout = ObservationLayout(space)
    columns = layout.empty(2)
    layout.write_rows(columns, inside)
    layout.write_all(columns, np.array(inside))
    layout.write(columns, 1, inside[0])
    for write in (
        lambda: layout.write(columns, 0, outside),
        lambda: layout.write_rows(columns, [inside[0], outside]),
        lambda: layout.write_all(columns, [inside[0], outside]),
    ):
        with pytest.raises(SpaceLayoutError, match=named):
            write()


class Outside(Odd):
    """Its observation has a 5 in [-1, 1] from the second on."""

    observation_space = gym.spaces.Dict(
        a=gym.spaces.Discrete(3), b=gym.spaces.Box(-1, 1, (2,), np.float32)
    )

    def observe(self) -> Any:
        self.seen += 1
        return {"a": 2, "b": np.array([1.0, 5.0 if self.seen > self.late else 1.0], np.float32)}


@pytest.mark.filterwarnings("ignore:.*(WARN|not within)")
@pytest.mark.parametrize(("late", "call"), [(0, "reset"), (1, "step")])
def test_the_probe_warns_once_of_numbers_outside_of_a_box(late: int, call: str) -> None:
    config = EnvConfig(id=f"{__name__}:Outside", kwargs={"late": late})
    with pytest.warns(UserWarning, match="outside of") as warned:
        probe_environment(config)
    [text] = [t for each in warned if "outside of" in (t := str(each.message))]
    assert text.startswith(
        f"{call}() gave an observation whose 'obs/b' has 5.0 at [1], outside of its space's "
        "-1.0 to 1.0"
    )


def test_rounding_to_float32_is_not_outside_of_a_box() -> None:
    layout = ObservationLayout(gym.spaces.Box(-0.1, 0.1, (1,), np.float32))
    assert outside_bounds(layout, np.array([0.1])) == ""
    assert "'obs' has" in outside_bounds(layout, np.array([0.11]))


@pytest.mark.parametrize("value", [2, -1])
def test_a_number_that_is_no_bit_is_refused_where_it_comes_from(value: int) -> None:
    """The learner would reject the rows with such a number, and learn from the others."""
    layout = ObservationLayout(gym.spaces.MultiBinary((2, 2)))
    assert layout.encode([[0, 1], [1, 0]])["obs"].tolist() == [[[0, 1], [1, 0]]]
    with pytest.raises(
        SpaceLayoutError,
        match=rf"step.* gave .*'obs' has {value} at \[1, 0\], outside of its space: give 0 to 1",
    ):
        layout.encode([[0, 1], [value, 0]], origin="step()")


@pytest.mark.parametrize(
    ("dtype", "large", "kept"),
    [(np.int64, 2**33, 2**20), (np.int32, 500_000_000, 70), (np.float64, 1.7e9, 1.5)],
)
def test_a_large_number_whose_change_float32_loses_is_warned_of(
    dtype: Any, large: float, kept: float
) -> None:
    layout = ObservationLayout(gym.spaces.Box(0, 2**31 - 1, (2,), dtype))
    text = rounded_away(layout, np.array([1, large], dtype), np.array([1, large + 1], dtype))
    assert "which are the same in float32" in text
    assert rounded_away(layout, np.array([1, kept], dtype), np.array([1, kept + 1], dtype)) == ""


def test_a_category_is_no_large_number() -> None:
    layout = ObservationLayout(gym.spaces.Discrete(2**40))
    assert rounded_away(layout, 2**33, 2**33 + 1) == ""


@pytest.mark.parametrize(
    ("value", "named"),
    [
        (PIXELS, r"'obs' is Box\(0, 255, \(4,\), uint8\), of object: numbers are needed"),
        (None, r"'obs' is None, a NoneType: an array of \(4,\) is needed"),
        ([[1, 2], [3]], r"'obs' is \[\[1, 2\], \[3\]\], whose rows differ in length: an array of"),
        (np.zeros(3, np.uint8), r"'obs' has shape \(3,\), expected \(4,\)"),
        (np.zeros(1, np.uint8), r"'obs' has shape \(1,\), expected \(4,\)"),
        (
            torch.zeros(4, requires_grad=True),
            r"'obs' is a Tensor that numpy cannot read: .*detach\(\)\.numpy\(\)",
        ),
    ],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.parametrize("call", ["reset", "step"])
def test_what_is_no_observation_is_named_with_the_call_that_gave_it(
    call: str, value: Any, named: str
) -> None:
    env = Odd()
    env.observe = lambda: value if (env.t > 0) == (call == "step") else RIGHT  # type: ignore[method-assign]
    named = rf"{call}\(\) gave an observation whose {named}"
    with pytest.raises(SpaceLayoutError, match=named):
        play(LoopVectorEnv([env, Odd()], seed=0), 2)


def test_a_reward_or_flag_that_numpy_cannot_read_is_named() -> None:
    tensor = torch.ones((), requires_grad=True)
    with pytest.raises(EnvironmentFaultError, match=r"gave reward, which is a Tensor .*detach"):
        read_rewards(Odd(), (tensor,))
    with pytest.raises(EnvironmentFaultError, match=r"gave truncated, which is a Tensor .*detach"):
        read_flags(Odd(), (False,), (tensor,))
