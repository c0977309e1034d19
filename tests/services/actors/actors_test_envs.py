"""`ActorsCount-v0` of the tests: an environment that numbers its steps, and may die or hang."""

from __future__ import annotations

import secrets
import subprocess
import time
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np


class Count(gym.Env[np.ndarray, int]):
    """obs = (this environment's own number, steps so far): what arrives proves itself.

    Args:
        sleep_s: of a step.
        once: a file; the first of all environments that reaches step `at` makes it and misbehaves.
        at: the step.
        how: ``die`` raises there, ``hang`` never returns, ``exit`` raises SystemExit(3).
        open_in: a folder with a file for each environment that is not closed.
        starts_in: a folder with a file for each program that was started, named by its number.
    """

    observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float64)
    action_space = gym.spaces.Discrete(2)

    def __init__(
        self,
        sleep_s: float = 0.0,
        once: str = "",
        at: int = 0,
        how: str = "die",
        open_in: str = "",
        starts_in: str = "",
    ) -> None:
        self._number = float(secrets.randbits(20))
        self._step = 0
        self._sleep_s = sleep_s
        self._once = once
        self._at = at
        self._how = how
        self._open = Path(open_in, str(self._number)) if open_in else None
        if self._open:
            self._open.touch()
        self._program: subprocess.Popen[bytes] | None = None
        if starts_in:
            self._program = subprocess.Popen(["sleep", "600"], start_new_session=True)
            Path(starts_in, str(self._program.pid)).touch()

    def close(self) -> None:
        if self._open:
            self._open.unlink()
        if self._program:
            self._program.kill()
            self._program.wait()

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        return self._seen(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        if self._sleep_s:
            time.sleep(self._sleep_s)
        self._step += 1
        if self._once and self._step == self._at:
            self._misbehave()
        return self._seen(), 1.0, self._step % 7 == 0, self._step % 11 == 0, {}

    def _misbehave(self) -> None:
        if self._once != "always":
            try:
                Path(self._once).touch(exist_ok=False)
            except FileExistsError:
                return
        if self._how == "hang":
            time.sleep(1e6)
        if self._how == "exit":
            raise SystemExit(3)
        raise RuntimeError("the environment broke")

    def _seen(self) -> np.ndarray:
        return np.array([self._number, self._step], np.float64)


class NeverMade(Count):
    """Fails at its making."""

    def __init__(self) -> None:
        raise RuntimeError("no such hardware")


gym.register("ActorsCount-v0", entry_point="actors_test_envs:Count")
gym.register("NeverMade-v0", entry_point="actors_test_envs:NeverMade")
