"""A person at the keyboard: keys, what is executed, and what is said of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from vedette.cli.app import main
from vedette_rl.envs import EnvConfig
from vedette_rl.envs.layout import RewardTransform
from vedette_rl.envs.make import make_vector_environment
from vedette_rl.envs.vector_env import LoopVectorEnv, SerialEnvs
from vedette_rl.errors import TakeoverError
from vedette_rl.teleop.gamepad import GamepadTakeover
from vedette_rl.teleop.takeover import KeyboardTakeover, describe_keys, key_table

pygame = pytest.importorskip("pygame")
LEFT = pygame.K_LEFT
RIGHT = pygame.K_RIGHT
UP = pygame.K_UP


class Stand(gym.Env[Any, Any]):
    """Shows the last action; its picture is drawn when a scripted person looks at it.

    Args:
        script: by the number of the picture, keys that the person presses (or releases, with a
            ``-``); ``close`` closes the window.
        box: actions are two numbers.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 1000}  # noqa: RUF012

    def __init__(
        self, script: dict[str, str] | None = None, box: bool = False, render_mode: Any = None
    ) -> None:
        self.observation_space = gym.spaces.Box(-99.0, 99.0, (2,), np.float32)
        self.action_space: gym.Space[Any] = gym.spaces.Discrete(3)
        if box:
            self.action_space = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
        self.render_mode = render_mode
        self._script = script or {}
        self._pictures = self._t = 0

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._t = 0
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._t += 1
        seen = np.broadcast_to(np.asarray(action, np.float32), (2,)).copy()
        return seen, float(seen[0]), self._t == 4, False, {}

    def render(self) -> Any:
        for word in self._script.get(str(self._pictures), "").split():
            if word == "close":
                pygame.event.post(pygame.event.Event(pygame.QUIT))
                continue
            kind = pygame.KEYUP if word.startswith("-") else pygame.KEYDOWN
            key = getattr(pygame, f"K_{word.removeprefix('-')}")
            if pygame.display.get_init():
                pygame.event.post(pygame.event.Event(kind, key=key))
        self._pictures += 1
        return np.zeros((8, 12, 3), np.uint8)


gym.register("TakeoverStand-v0", entry_point=Stand)
HERE = f"{__name__}:TakeoverStand-v0"


@pytest.fixture(autouse=True)
def _no_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")


def stand(**how: Any) -> KeyboardTakeover:
    keys = how.pop("keys", None)
    return KeyboardTakeover(Stand(render_mode="rgb_array", **how), keys)


def test_the_persons_action_is_executed_while_a_key_is_held() -> None:
    # picture 0 is drawn before the window, 1 for its size, then one after each step
    env = stand(script={"1": "RIGHT", "3": "-RIGHT", "4": "LEFT"})
    env.reset()
    steps = [env.step(1) for _ in range(4)]
    env.close()
    assert [int(obs[0]) for obs, *_ in steps] == [2, 2, 1, 0]
    assert [info.get("intervene_action") for *_, info in steps] == [2, 2, None, 0]


def test_a_policy_goes_on_alone_when_the_window_is_closed() -> None:
    env = stand(script={"1": "RIGHT", "2": "close"})
    env.reset()
    found = [int(env.step(1)[0][0]) for _ in range(3)]
    assert (found, env.closed) == ([2, 1, 1], True)
    env.close()


def test_keys_that_are_held_together_are_added_in_a_box() -> None:
    env = stand(script={"1": "RIGHT UP"}, box=True, keys={"right": [0.8, 0.5], "up": [0.0, 0.9]})
    env.reset()
    np.testing.assert_array_equal(env.step(np.zeros(2, np.float32))[0], np.float32([0.8, 1.0]))
    env.close()


def test_of_discrete_actions_that_of_the_most_keys_counts() -> None:
    env = stand(script={"1": "RIGHT UP"}, keys={"right": 0, "up": 1, "right+up": 2})
    env.reset()
    assert env.step(0)[0][0] == 2
    env.close()


def test_backspace_asks_to_forget_the_episode_once() -> None:
    env = stand(script={"1": "BACKSPACE"})
    env.reset()
    env.step(1)
    assert [env.pop_dropped(), env.pop_dropped()] == [True, False]
    env.close()


def test_in_training_the_executed_action_is_the_one_that_is_stored() -> None:
    config = EnvConfig.model_validate(
        {
            "id": HERE,
            "kwargs": {"render_mode": "rgb_array", "script": {"1": "RIGHT"}},
            "wrappers": [{"name": "vedette_rl.teleop.takeover:KeyboardTakeover"}],
        }
    )
    envs = make_vector_environment(config, 1, 0)
    envs.marks_interventions = True
    envs.reset()
    step = envs.step(np.array([1]))
    envs.close()
    assert (step.action.tolist(), step.extra["intervened"].tolist()) == ([2], [True])


@pytest.mark.parametrize(
    ("space", "said"),
    [
        (gym.spaces.Discrete(2, start=3), "none=3, left=3, right=4, 0=3, 1=4"),
        (gym.spaces.Discrete(3), "none=1, left=0, right=2, 0=0, 1=1, 2=2"),
        (gym.spaces.Discrete(4), "none=0, 0=0, 1=1, 2=2, 3=3"),
        (gym.spaces.Box(-2.0, 2.0, (1,)), "none=[0.0], left=[-2.0], right=[2.0]"),
        (
            gym.spaces.Box(np.float32([0.0, -np.inf]), np.float32([4.0, np.inf])),
            "none=[0.0, 0.0], left=[0.0, 0.0], right=[4.0, 0.0], down=[0.0, -1.0], up=[0.0, 1.0]",
        ),
    ],
)
def test_keys_that_nobody_names_are_arrows_and_digits(space: gym.Space[Any], said: str) -> None:
    env = Stand()
    env.action_space = space
    assert describe_keys(key_table("x", env, None)) == said


def test_an_environments_own_keys_are_taken_if_pygame_knows_them() -> None:
    env: Any = Stand()
    env.get_keys_to_action = lambda: {("w",): 1, (ord("w"), ord("d")): 2}
    assert describe_keys(key_table("x", env, None)) == "none=0, w=1, d+w=2"
    env.get_keys_to_action = lambda: {(): 1, (275,): 2}  # of pygame 1
    assert "left=0" in describe_keys(key_table("x", env, None))


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"keys": {"lefty": 0}}, "there is no key 'lefty'"),
        ({"keys": {"left": 3}}, "key left is 3, which is no action"),
        ({"keys": {"left": 0.5}}, "key left is 0.5, which is no action"),
        ({"keys": {"left": None}}, "key left is None, which is no action"),
        ({"keys": {"left": [2.0, 0.0]}, "box": True}, "which is no action"),
        ({"keys": {"left": [0.5]}, "box": True}, "which is no action"),
    ],
)
def test_wrong_keys_are_refused(how: dict[str, Any], said: str) -> None:
    with pytest.raises(TakeoverError, match="by a person") as refused:
        stand(**how)
    assert said in str(refused.value)


def test_an_environment_without_pictures_is_refused() -> None:
    with pytest.raises(TakeoverError, match="it gives no pictures; make it with"):
        KeyboardTakeover(Stand())


def test_a_host_without_a_screen_is_refused(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for name in ("SDL_VIDEODRIVER", "DISPLAY", "WAYLAND_DISPLAY", "XDG_RUNTIME_DIR"):
        monkeypatch.delenv(name, raising=False)
    env = stand()
    env.reset()
    with pytest.raises(TakeoverError, match="no window can be opened"):
        env.step(0)
    env.close()
    assert capfd.readouterr().err == ""  # SDL's own lines are not printed before ours


# A person's word


def test_a_key_ends_the_episode_with_the_persons_reward() -> None:
    script = {"1": "p", "2": "-p RIGHT", "3": "RETURN"}
    env = KeyboardTakeover(
        Stand(render_mode="rgb_array", script=script), ends={"return": 1.0}, rewards={"p": -0.5}
    )
    env.reset()
    (_, first, over, _, _), (_, second, _, _, _), last = (env.step(0) for _ in range(3))
    assert (first, over, second) == (-0.5, False, 2.0)
    _, reward, terminated, _, info = last
    assert (reward, terminated, info["is_success"], info["intervene_action"]) == (
        1.0,
        True,
        True,
        2,
    )
    env.close()


def test_a_failure_ends_the_episode_too_and_is_none() -> None:
    env = KeyboardTakeover(
        Stand(render_mode="rgb_array", script={"1": "DELETE"}), ends={"delete": 0.0}
    )
    env.reset()
    _, reward, terminated, _, info = env.step(2)
    assert (reward, terminated, info["is_success"]) == (0.0, True, False)
    env.close()


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"ends": {"left": 1.0}}, "'left' has two meanings"),
        ({"ends": {"p": 1.0}, "rewards": {"p": 1.0}}, "'p' has two meanings"),
        ({"ends": {"retrun": 1.0}}, "there is no key 'retrun'"),
        ({"rewards": {"p": "much"}}, "'p' is 'much', which is no reward"),
        ({"rewards": {"p": float("nan")}}, "which is no reward"),
    ],
)
def test_a_word_that_cannot_be_is_refused(how: dict[str, Any], said: str) -> None:
    with pytest.raises(TakeoverError) as refused:
        KeyboardTakeover(Stand(render_mode="rgb_array"), **how)
    assert said in str(refused.value)


# By gamepad


class Pad:
    """A gamepad that does what is scripted: (axes, buttons) of each step; then it is gone."""

    def __init__(self, *steps: tuple[tuple[float, ...], set[int]]) -> None:
        self._steps = list(steps)

    def read(self) -> tuple[tuple[float, ...], frozenset[int]]:
        if not self._steps:
            raise ConnectionError("it is gone")
        axes, held = self._steps.pop(0)
        return axes, frozenset(held)


def test_a_stick_acts_while_it_is_out_of_the_middle() -> None:
    pad = Pad(((0.1, 0.0), set()), ((0.5, 0.0), set()), ((0.0, 1.0), set()))
    env = GamepadTakeover(Stand(box=True), device=pad)
    env.reset()
    policy = np.float32([0.3, 0.3])
    found = [env.step(policy) for _ in range(4)]
    # SDL's axes go down for more, and the default turns them; the pad is gone at the fourth step
    np.testing.assert_allclose([obs for obs, *_ in found], [policy, [0.5, 0], [0, -1], policy])
    acted = ["intervene_action" in info for *_, info in found]
    assert (acted, env.closed) == ([False, True, True, False], True)
    assert env.describe() == "gamepad: number 0 on axis 0, number 1 on axis -1"


def test_a_person_acts_while_the_button_is_held_even_with_still_hands() -> None:
    pad = Pad(((0.9, 0.0), set()), ((0.0, 0.0), {5}), ((0.0, 0.0), {5, 1}))
    env = GamepadTakeover(
        Stand(box=True), axes=["", "0"], buttons={"1": [1.0, 0.0]}, hold=5, device=pad
    )
    env.reset()
    policy = np.float32([0.3, 0.3])
    found = [env.step(policy)[0] for _ in range(3)]
    np.testing.assert_allclose(found, [policy, [0, 0], [1, 0]])


def test_buttons_are_discrete_actions_and_judge_once_when_they_are_pressed() -> None:
    pad = Pad(((), {2}), ((), {7}), ((), {7}), ((), {8}), ((), {6}))
    env = GamepadTakeover(
        Stand(), ends={"8": 1.0}, rewards={"7": 0.25}, forget=6, device=pad, fps=1000
    )
    env.reset()
    found = [env.step(1) for _ in range(4)]
    assert [int(obs[0]) for obs, *_ in found] == [2, 1, 1, 1]
    assert [reward for _, reward, *_ in found] == [2.0, 0.25, 1.0, 1.0]
    assert [info.get("is_success") for *_, info in found] == [None, None, None, True]
    assert not env.pop_dropped()
    env.step(1)
    assert env.pop_dropped()


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"axes": ["0"]}, "its actions are Discrete(3)"),
        ({"buttons": {"a": 0}}, "there is no button 'a'"),
        ({"buttons": {"1": 7}}, "button 1 is 7, which is no action"),
        ({"ends": {"1": 1.0}}, "'1' has two meanings"),
        ({"buttons": {}}, "no button has one"),
    ],
)
def test_a_gamepad_that_cannot_act_is_refused(how: dict[str, Any], said: str) -> None:
    with pytest.raises(TakeoverError) as refused:
        GamepadTakeover(Stand(), device=Pad(), **how)
    assert said in str(refused.value)


def test_axes_that_do_not_fit_are_refused() -> None:
    for axes in (["x"], ["0", "1", "2"]):
        with pytest.raises(TakeoverError, match="an axis for each number of Box"):
            GamepadTakeover(Stand(box=True), axes=axes, device=Pad())


def test_a_gamepad_that_is_not_there_is_refused() -> None:
    with pytest.raises(TakeoverError, match="there is no gamepad 7"):
        GamepadTakeover(Stand(), device=7)


def test_an_actor_stores_what_the_gamepad_did_and_that_a_person_did_it() -> None:
    pad = Pad(((0.8, 0.0), set()), ((0.0, 0.0), set()))
    envs = LoopVectorEnv(
        SerialEnvs([GamepadTakeover(Stand(box=True), device=pad)]),
        seed=0,
        rewards=RewardTransform(),
    )
    envs.marks_interventions = True
    envs.reset()
    policy = np.float32([[0.3, 0.3]])
    steps = [
        (step.action.copy(), step.extra["intervened"].copy())
        for step in (envs.step(policy) for _ in range(2))
    ]
    np.testing.assert_allclose(steps[0][0], [[0.8, 0.0]])
    np.testing.assert_allclose(steps[1][0], policy)
    assert [bool(marks[0]) for _, marks in steps] == [True, False]


def recorded(
    capsys: pytest.CaptureFixture[str], script: dict[str, str], *arguments: object
) -> tuple[int, str]:
    kwargs = f"env.kwargs.script={json.dumps(script).replace(':', '=')}"
    with pytest.raises(SystemExit) as left:
        main(["collect", "--env", HERE, kwargs, *map(str, arguments)])
    said = capsys.readouterr()
    return int(left.value.code or 0), said.out + said.err


def test_a_person_records_episodes_until_the_window_is_closed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    minari = pytest.importorskip("minari")
    script = {"1": "RIGHT", "4": "-RIGHT LEFT", "6": "BACKSPACE", "8": "-LEFT", "12": "close"}
    status, said = recorded(capsys, script, "--out", tmp_path / "demos")
    assert status == 0, said
    assert "keys: none=1, left=0, right=2" in said
    assert "the window was closed" in said
    data = minari.MinariDataset(tmp_path / "demos")
    assert all(episode.infos["intervened"][1:].any() for episode in data)
    assert [episode.actions.tolist() for episode in data] == [[2, 2, 2, 0], [0, 1, 1, 1]]
    assert data.storage.metadata["vedette"]["by"] == ["person"]


def act_one(obs: Any) -> int:
    return 1


def test_a_person_takes_over_from_a_policy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    minari = pytest.importorskip("minari")
    how = ("--policy", f"{__name__}:act_one", "--takeover", "--key", "up=2", "--episodes", 1)
    status, said = recorded(capsys, {"2": "UP", "3": "-UP"}, *how, "--out", tmp_path / "demos")
    assert status == 0, said
    data = minari.MinariDataset(tmp_path / "demos")
    assert data[0].actions.tolist() == [1, 2, 1, 1]
    # Minari's infos begin with that of the reset
    assert data[0].infos["intervened"].tolist() == [False, False, True, False, False]
    assert data.storage.metadata["vedette"]["by"] == [f"{__name__}:act_one", "person"]


def test_a_persons_success_ends_the_recorded_episode(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    minari = pytest.importorskip("minari")
    script = {"1": "RIGHT", "2": "RETURN", "4": "close"}
    status, said = recorded(capsys, script, "--end", "return=5", "--out", tmp_path / "demos")
    assert status == 0, said
    data = minari.MinariDataset(tmp_path / "demos")
    assert [(e.rewards.tolist(), e.terminations.tolist()) for e in data] == [
        ([2.0, 5.0], [False, True])
    ]


def test_a_gamepad_that_is_not_connected_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, said = recorded(capsys, {}, "--gamepad", 7, "--out", tmp_path / "demos")
    assert (status, said.count("\n")) == (2, 1), said
    assert "there is no gamepad 7" in said
    assert not (tmp_path / "demos").exists()
