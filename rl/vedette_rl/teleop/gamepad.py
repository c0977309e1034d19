"""A person with a gamepad, who acts in place of a policy, and judges episodes."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import gymnasium as gym
import numpy as np
from gymnasium import spaces as gs
from pydantic import JsonValue

from vedette_rl.envs.vector_env import Env
from vedette_rl.errors import TakeoverError
from vedette_rl.teleop.takeover import (
    KeyTable,
    PersonInput,
    Takeover,
    action_of_keys,
    load_pygame,
    parse_action,
    quiet_sdl,
    verdict_of,
    verdict_table,
)


class Gamepad(Protocol):
    """A device with sticks and buttons."""

    def read(self) -> tuple[Sequence[float], frozenset[int]]:
        """Its axes from -1 to 1, and the buttons that are held.

        Raises:
            ConnectionError: it is gone.
        """
        ...


class GamepadTakeover(Takeover):
    """Executes what a person does with the sticks and buttons of a gamepad.

    It shows nothing: a person sees the robot, or a simulator made with ``render_mode="human"``.

    Args:
        env: an environment with actions of a Box of one dimension, or discrete ones.
        axes: the axis for each number of a Box: ``"1"``, ``"-1"`` upside down, ``""`` for none. An
            axis goes from the lowest to the highest action. None: the sticks in order, up and right
            for more.
        buttons: actions by button: ``{"4": [0, 0, 1]}``. Of a Box they are added; discrete actions
            have the first buttons where nothing is said.
        hold: the person acts while this button is held; None: while a stick is out of the dead
            zone or a button with an action is held.
        ends, rewards: as of `KeyboardTakeover`, by button.
        forget: the button that forgets the episode; None: none does.
        fps: steps a second; None: the environment's `render_fps`.
        dead_zone: the part of a stick's way around its middle that counts as 0.
        device: the number of the gamepad as pygame counts them, or a custom one.

    Raises:
        TakeoverError: a number, a button or an action is none, or there is no such gamepad.
    """

    def __init__(
        self,
        env: Env,
        axes: Sequence[str] | None = None,
        buttons: Mapping[str, JsonValue] | None = None,
        hold: int | None = None,
        ends: Mapping[str, float] | None = None,
        rewards: Mapping[str, float] | None = None,
        forget: int | None = None,
        fps: int | None = None,
        dead_zone: float = 0.15,
        device: int | Gamepad = 0,
    ) -> None:
        super().__init__(env, fps)
        space = env.action_space
        self._axes = _axes(self._id, space, axes)
        if buttons is None and isinstance(space, gs.Discrete):
            buttons = {str(i): int(space.start) + i for i in range(min(int(space.n), 10))}
        self.table: KeyTable = {
            frozenset([_button(self._id, name)]): parse_action(
                self._id, f"button {name}", value, space
            )
            for name, value in (buttons or {}).items()
        }
        if not (self._axes or self.table):
            fix = 'name them: buttons={"0": ACTION}'
            raise TakeoverError(self._id, f"its actions are {space}, and no button has one", fix)
        acting = {code for codes in self.table for code in codes} | (
            {hold} if hold is not None else set()
        )
        self._verdicts = verdict_table(self._id, _button, acting, ends, rewards)
        self._hold = hold
        self._forget = forget
        self._dead_zone = dead_zone
        self._held: frozenset[int] = frozenset()
        self._pad = _Joystick(self._id, device) if isinstance(device, int) else device
        self._next = 0.0

    def describe(self) -> str:
        sticks = ", ".join(
            f"number {i} on axis {'-' * (sign < 0)}{axis}"
            for i, (axis, sign) in enumerate(self._axes)
            if axis is not None
        )
        acting = ", ".join(f"{code}={np.asarray(a).tolist()}" for (code,), a in self.table.items())
        return "gamepad: " + "; ".join(filter(None, (sticks, acting and f"buttons {acting}")))

    def _read(self) -> PersonInput:
        try:
            axes, held = self._pad.read()
        except ConnectionError:
            self.closed = True
            return PersonInput(closed=True)
        pressed = held - self._held
        self._held = held
        action = self._action(axes, held)
        return PersonInput(action, *verdict_of(self._verdicts, pressed), self._forget in pressed)

    def _action(self, axes: Sequence[float], held: frozenset[int]) -> Any:
        """The person's action; None where the person leaves it to the policy."""
        space = self.env.action_space
        moved = False
        chosen = action_of_keys(self.table, held, space)
        if self._hold is not None and self._hold not in held:
            return None
        if not isinstance(space, gs.Box):
            return self.idle_action if chosen is None and self._hold is not None else chosen
        low = np.where(np.isfinite(space.low), space.low, -1.0).astype(np.float64)
        high = np.where(np.isfinite(space.high), space.high, 1.0).astype(np.float64)
        action = np.array(self.idle_action, np.float64)
        for i, (axis, sign) in enumerate(self._axes):
            value = 0.0 if axis is None or axis >= len(axes) else sign * float(axes[axis])
            if abs(value) > self._dead_zone:
                middle = (low[i] + high[i]) / 2.0
                moved = True
                action[i] = middle + value * (high[i] - low[i]) / 2.0
        if chosen is not None:
            action = action + chosen
        if not moved and chosen is None and self._hold is None:
            return None
        return np.clip(action, space.low, space.high).astype(space.dtype)

    def _show(self) -> None:
        now = time.monotonic()
        if now < self._next:
            time.sleep(self._next - now)
        self._next = max(self._next, now) + 1.0 / self._fps


class _Joystick:
    """A gamepad that pygame knows."""

    def __init__(self, env_id: str, number: int) -> None:
        self._pygame = pygame = load_pygame(env_id)
        os.environ.setdefault("SDL_JOYSTICK_ALLOW_BACKGROUND_EVENTS", "1")  # without a window
        try:
            with quiet_sdl():
                pygame.display.init()  # events need it
                pygame.joystick.init()
                self._device = pygame.joystick.Joystick(number)
        except pygame.error as e:
            fix = "connect it, or name another by device"
            raise TakeoverError(env_id, f"there is no gamepad {number} ({e})", fix) from e

    def read(self) -> tuple[Sequence[float], frozenset[int]]:
        pad = self._device
        try:
            for event in self._pygame.event.get():
                if event.type == self._pygame.JOYDEVICEREMOVED:
                    raise ConnectionError("the gamepad is gone")
            axes = [pad.get_axis(i) for i in range(pad.get_numaxes())]
            return axes, frozenset(i for i in range(pad.get_numbuttons()) if pad.get_button(i))
        except self._pygame.error as e:
            raise ConnectionError(str(e)) from e


def _axes(
    env_id: str, space: gym.Space[Any], named: Sequence[str] | None
) -> list[tuple[int | None, float]]:
    """The axis of each number of an action, None for none, and its sign."""
    if not isinstance(space, gs.Box):
        if named:
            raise TakeoverError(env_id, f"axes={list(named)}: its actions are {space}", "leave out")
        return []
    if len(space.shape) != 1:
        raise TakeoverError(env_id, f"its actions are {space}", "use actions of one dimension")
    texts = [str(text) for text in (("0", "-1", "2", "-3") if named is None else named)]
    fits = all(re.fullmatch(r"(-?\d+)?", text) for text in texts)
    if not fits or (named is not None and len(texts) > space.shape[0]):
        fix = 'such as axes=["0", "-1"]'
        raise TakeoverError(env_id, f"axes={texts}: an axis for each number of {space}", fix)
    texts = [*texts, *[""] * space.shape[0]][: space.shape[0]]
    return [
        (abs(int(text)) if text else None, -1.0 if text.startswith("-") else 1.0) for text in texts
    ]


def _button(env_id: str, name: str) -> int:
    if not str(name).isdecimal():
        raise TakeoverError(env_id, f"there is no button {name!r}", "buttons are 0, 1, 2, ...")
    return int(name)
