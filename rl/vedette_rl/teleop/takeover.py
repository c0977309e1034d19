"""A person at a keyboard or gamepad, who acts in place of a policy, and judges episodes."""

from __future__ import annotations

import math
import os
import sys
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium import spaces as gs
from pydantic import JsonValue

from vedette_rl.envs.vector_env import Env
from vedette_rl.errors import TakeoverError

FPS = 30
"""Steps a second where the environment gives no number."""

NO_KEY = "none"

_DRIVER = "SDL_VIDEODRIVER"
_BLIND = ("offscreen", "dummy", "evdev")
"""SDL's drivers that show nothing, which it takes where there is no screen."""

KeyTable = dict[frozenset[int], Any]
"""Actions of the environment by the keys that are held, as pygame numbers them; that of no key is
what a person who does nothing does."""


class PersonInput(NamedTuple):
    """The input of a person in one step.

    Args:
        action: the action that is executed; None: the policy's.
        reward: the reward of the step; None: the environment's.
        ends: the episode ends with this step, as a success where `reward` is above 0.
        dropped: the episode is to be forgotten.
        closed: the person's part is over.
    """

    action: Any = None
    reward: float | None = None
    ends: bool = False
    dropped: bool = False
    closed: bool = False


class Takeover(gym.Wrapper[Any, Any, Any, Any]):
    """Executes a person's actions in place of a policy's, and takes the person's word for rewards
    and ends of episodes: the base of both devices.

    An executed action is in the step's ``info["intervene_action"]``, and so it is what is stored;
    ``info["is_success"]`` has how a person ended an episode.
    """

    def __init__(self, env: Env, fps: int | None) -> None:
        super().__init__(env)
        self._id = env.spec.id if env.spec else str(env)
        self._fps = fps or int(env.metadata.get("render_fps") or FPS)
        self.closed = False
        """The person's part is over."""
        self._dropped = False

    @property
    def idle_action(self) -> Any:
        """The action where the person does nothing and no policy acts."""
        return idle_action_of(self.env.action_space)

    def describe(self) -> str:
        """The person's controls, in a line."""
        raise NotImplementedError

    def pop_dropped(self) -> bool:
        """True if the person has asked since the last call for the episode to be forgotten."""
        dropped = self._dropped
        self._dropped = False
        return dropped

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        person = PersonInput() if self.closed else self._read()
        self._dropped |= person.dropped
        executed = person.action
        obs, reward, terminated, truncated, info = self.env.step(
            action if executed is None else executed
        )
        if executed is not None:
            info = {**info, "intervene_action": executed}
        if person.reward is not None:
            reward = person.reward
        if person.ends:
            terminated = True
            info = {**info, "is_success": float(reward) > 0.0}
        self._show()
        return obs, reward, bool(terminated), bool(truncated), info

    def _read(self) -> PersonInput:
        raise NotImplementedError

    def _show(self) -> None:
        """Wait for the time of the next step, and show the environment."""
        raise NotImplementedError


class KeyboardTakeover(Takeover):
    """Shows the environment in a window; where a person holds a key, its action is executed.

    Escape or closing the window ends the person's part; the policy then acts alone. Backspace
    forgets the episode. The window opens at the first step.

    ::

        env.wrappers = [{ name = "vedette_rl.teleop.takeover:KeyboardTakeover",
                          training_only = true,
                          kwargs = { keys = { left = 0, right = 2 }, ends = { return = 1.0 } } }]
        env.kwargs.render_mode = "rgb_array"

    Args:
        env: made with ``render_mode="rgb_array"``.
        keys: actions by key, as pygame names keys: ``left``, ``a``, ``space``; ``left+up`` for two
            that are held together; ``none`` for no key. None: the environment's own
            (`get_keys_to_action`), else arrows and digits where the space leaves no choice.
        fps: steps a second; None: the environment's `render_fps`.
        ends: keys that end the episode, with the reward of its last step: a success above 0.
        rewards: keys that give a step another reward.

    Raises:
        TakeoverError: it gives no pictures, or a key or an action is none.
    """

    def __init__(
        self,
        env: Env,
        keys: Mapping[str, JsonValue] | None = None,
        fps: int | None = None,
        ends: Mapping[str, float] | None = None,
        rewards: Mapping[str, float] | None = None,
    ) -> None:
        super().__init__(env, fps)
        if env.render_mode != "rgb_array":
            raise TakeoverError(self._id, "it gives no pictures", "make it with rgb_array")
        self.table = key_table(self._id, env, keys)
        acting = {code for codes in self.table for code in codes}
        self._verdicts = verdict_table(self._id, _key_code, acting, ends, rewards)
        self._window: _Window | None = None

    @property
    def idle_action(self) -> Any:
        return self.table[frozenset()]

    def describe(self) -> str:
        return f"keys: {describe_keys(self.table)}"

    def _read(self) -> PersonInput:
        if self._window is None:
            picture = self._picture()
            self._window = _Window(self._id, self.env, self.table)
            self._window.show(picture, self._fps)
        held, pressed, closed = self._window.read()
        if closed:
            self.closed = True
            self._close_window()
            return PersonInput(closed=True)
        action = action_of_keys(self.table, held, self.env.action_space)
        dropped = self._window.backspace in pressed
        return PersonInput(action, *verdict_of(self._verdicts, pressed), dropped)

    def _show(self) -> None:
        if self._window is not None:
            self._window.show(self._picture(), self._fps)

    def _picture(self) -> Any:
        try:
            picture: Any = self.env.render()  # as the environment likes
        except (NotImplementedError, gym.error.Error) as e:
            raise TakeoverError(self._id, f"it cannot render ({e})", "use --policy alone") from e
        if not isinstance(picture, np.ndarray) or picture.ndim != 3:
            fix = "let render() return an array (height, width, 3)"
            raise TakeoverError(self._id, "its render() gave no picture", fix)
        return picture.astype(np.uint8, copy=False)

    def _close_window(self) -> None:
        if self._window is not None:
            self._window.close()
            self._window = None

    def close(self) -> None:
        self._close_window()
        super().close()


VerdictTable = dict[int, tuple[float, bool]]
"""Rewards by key or button, and whether the episode ends with it."""


def verdict_table(
    env_id: str,
    code: Callable[[str, str], int],
    acting: Collection[int],
    ends: Mapping[str, float] | None,
    rewards: Mapping[str, float] | None,
) -> VerdictTable:
    """Return the verdicts that a person may give on a step, by key or button.

    Raises:
        TakeoverError: there is no such key, it acts, or the reward is none.
    """
    table: VerdictTable = {}
    for named, is_end in ((rewards, False), (ends, True)):
        for name, reward in (named or {}).items():
            number = code(env_id, name)
            if number in acting or number in table:
                raise TakeoverError(env_id, f"{name!r} has two meanings", "choose another")
            if not (isinstance(reward, (int, float)) and math.isfinite(reward)):
                raise TakeoverError(
                    env_id, f"{name!r} is {reward!r}, which is no reward", "say 1.0"
                )
            table[number] = float(reward), is_end
    return table


def verdict_of(verdicts: VerdictTable, pressed: Collection[int]) -> tuple[float | None, bool]:
    """The reward that a person has given, and whether the episode ends; an end counts first."""
    given = [verdicts[code] for code in sorted(pressed) if code in verdicts]
    if not given:
        return None, False
    return max(given, key=lambda verdict: verdict[1])


class _Window:
    """Gymnasium's window of a game, and the keys that are held in it."""

    def __init__(self, env_id: str, env: Env, table: KeyTable) -> None:
        import pygame

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of matplotlib, whose plots are not used
            from gymnasium.utils import play
        self._pygame = pygame
        self._draw = play.display_arr
        self.backspace: int = pygame.K_BACKSPACE
        codes = {tuple(keys): 0 for keys in table}
        try:
            with quiet_sdl():
                pygame.display.init()
            if (driver := pygame.display.get_driver()) in _BLIND and _DRIVER not in os.environ:
                raise pygame.error(f"there is only SDL's driver {driver!r}")
            self._game = play.PlayableGame(env, codes)
        except pygame.error as e:
            pygame.display.quit()
            fix = "use a host with a screen, or let a policy play"
            raise TakeoverError(env_id, f"no window can be opened ({e})", fix) from e
        pygame.display.set_caption(f"{env_id}: Esc ends, backspace forgets the episode")
        self._clock = pygame.time.Clock()

    def read(self) -> tuple[frozenset[int], frozenset[int], bool]:
        """(keys held, keys pressed since the last call, the person has ended it)."""
        pressed = set()
        for event in self._pygame.event.get():
            if event.type == self._pygame.KEYDOWN:
                pressed.add(event.key)
            self._game.process_event(event)
        return frozenset(self._game.pressed_keys), frozenset(pressed), not self._game.running

    def show(self, picture: Any, fps: int) -> None:
        """Draw a picture ``(height, width, 3)``, and wait for its time."""
        self._draw(self._game.screen, picture, self._game.video_size, True)
        self._pygame.display.flip()
        self._clock.tick(fps)

    def close(self) -> None:
        self._pygame.display.quit()


@contextmanager
def quiet_sdl() -> Iterator[None]:
    """Keep what SDL writes to the standard error of the process: its errors are raised, too."""
    sys.stderr.flush()
    kept = os.dup(2)
    nothing = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nothing, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nothing)


def action_of_keys(table: KeyTable, pressed: Iterable[int], space: gym.Space[Any]) -> Any:
    """The action of the keys that are held; None where no action belongs to them.

    Of actions of a Box those of several keys are added, of others the one of the most keys counts.
    """
    held = frozenset(pressed)
    fitting = [keys for keys in table if keys and keys <= held]
    fitting = [keys for keys in fitting if not any(keys < other for other in fitting)]
    if not fitting:
        return None
    if isinstance(space, gs.Box):
        total = np.sum([table[keys] for keys in fitting], 0)
        return np.clip(total, space.low, space.high).astype(space.dtype)
    return table[max(fitting, key=len)]


def key_table(env_id: str, env: Env, keys: Mapping[str, JsonValue] | None) -> KeyTable:
    """The actions by keys of an environment.

    Raises:
        TakeoverError: there are none, or pygame is not installed.
    """
    pygame = load_pygame(env_id)
    space = env.action_space
    if not keys and (known_keys := _table_of(env, _known_codes(pygame))):
        return {frozenset(): idle_action_of(space), **known_keys}
    named = dict(keys or _default_keys(space))
    if not named:
        fix = "name the keys: --key left=ACTION --key right=ACTION"
        raise TakeoverError(env_id, f"its actions are {space}", fix)
    table: KeyTable = {frozenset(): idle_action_of(space)}
    for name, value in named.items():
        codes = () if name == NO_KEY else (_code(pygame, env_id, one) for one in name.split("+"))
        table[frozenset(codes)] = parse_action(env_id, f"key {name}", value, space)
    return table


def load_pygame(env_id: str) -> Any:  # the module
    try:
        import pygame
    except ImportError as e:
        fix = "pip install 'vedette[video]'"
        raise TakeoverError(env_id, "pygame is not installed", fix) from e
    return pygame


def _key_code(env_id: str, name: str) -> int:
    return _code(load_pygame(env_id), env_id, name)


def describe_keys(table: KeyTable) -> str:
    """The keys and their actions, for the person."""
    import pygame

    codes = {getattr(pygame, name): name for name in dir(pygame) if name.startswith("K_")}
    return ", ".join(
        f"{'+'.join(codes[code].removeprefix('K_').lower() for code in keys) or NO_KEY}="
        f"{np.asarray(action).tolist()}"
        for keys, action in table.items()
    )


def _known_codes(pygame: Any) -> frozenset[int]:  # the module
    return frozenset(getattr(pygame, name) for name in dir(pygame) if name.startswith("K_"))


def _table_of(env: Env, known: frozenset[int]) -> KeyTable:
    """The environment's own actions by keys; none where pygame does not know a key, as with
    MountainCar's numbers of an older pygame."""
    if not env.has_wrapper_attr("get_keys_to_action"):
        return {}
    keys_to_action = env.get_wrapper_attr("get_keys_to_action")()
    table = {
        frozenset(ord(key) if isinstance(key, str) else key for key in keys): action
        for keys, action in keys_to_action.items()
    }
    return table if all(keys <= known for keys in table) else {}


def _code(pygame: Any, env_id: str, name: str) -> int:  # the module
    for form in (name, name.lower(), name.upper()):
        if (code := getattr(pygame, f"K_{form}", None)) is not None:
            return int(code)
    fix = "pygame names keys left, right, up, down, space, return, a to z, 0 to 9"
    raise TakeoverError(env_id, f"there is no key {name!r}", fix)


def idle_action_of(space: gym.Space[Any]) -> Any:
    """Return the action while the person does nothing: 0, or the first action."""
    match space:
        case gs.Box():
            return np.clip(np.zeros(space.shape), space.low, space.high).astype(space.dtype)
        case gs.Discrete():
            return int(space.start)
        case _:
            return np.zeros(space.shape or (), space.dtype) + getattr(space, "start", 0)


def parse_action(env_id: str, key: str, value: JsonValue, space: gym.Space[Any]) -> Any:
    """Convert the action that a configuration gives a key.

    Raises:
        TakeoverError: it is not in the space.
    """
    try:
        action: Any = np.asarray(value, space.dtype)
    except (TypeError, ValueError):
        action = np.empty(0)
    is_whole = action.dtype.kind == "f" or np.array_equal(action, np.asarray(value))
    converted = int(action) if isinstance(space, gs.Discrete) and action.shape == () else action
    if is_whole and space.contains(converted):
        return converted
    why = f"{key} is {value}, which is no action"
    raise TakeoverError(env_id, why, f"its actions are {space}")


def _default_keys(space: gym.Space[Any]) -> dict[str, JsonValue]:
    """Digits for discrete actions, with arrows where two or three go from left to right; arrows for
    the first two numbers of a Box."""
    match space:
        case gs.Discrete():
            first, count = int(space.start), int(space.n)
            digits: dict[str, JsonValue] = {str(i): first + i for i in range(min(count, 10))}
            if count not in (2, 3):
                return digits
            middle: dict[str, JsonValue] = {NO_KEY: first + 1} if count == 3 else {}
            return {"left": first, "right": first + count - 1, **middle, **digits}
        case gs.Box() if len(space.shape) == 1:
            keys: dict[str, JsonValue] = {}
            low = np.where(np.isfinite(space.low), space.low, -1.0)
            high = np.where(np.isfinite(space.high), space.high, 1.0)
            for axis, (back, forward) in enumerate((("left", "right"), ("down", "up"))):
                for name, ends in ((back, low), (forward, high)):
                    if axis < len(ends):
                        value = np.zeros(len(ends))
                        value[axis] = ends[axis]
                        keys[name] = np.clip(value, space.low, space.high).tolist()
            return keys
        case _:
            return {}
