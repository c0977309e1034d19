"""Environments stepped in threads: the same as one after another, each in a thread of its own."""

import signal
import threading
import time
from contextlib import closing
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from vedette_rl.envs import EnvConfig, make_vector_environment
from vedette_rl.envs.vector_env import LoopVectorEnv, SerialEnvs, ThreadedEnvs
from vedette_rl.errors import UnknownEnvironmentError


class Confined(gym.Env[Any, Any]):
    """Refuses every thread but the one that made it; waits for its neighbours in a step."""

    observation_space = gym.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)
    together: threading.Barrier | None = None

    def __init__(self) -> None:
        self.home = threading.get_ident()
        self.closed = False

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        assert threading.get_ident() == self.home
        super().reset(seed=seed)
        return self.np_random.uniform(-1, 1, 2).astype(np.float32), {}

    def step(self, action: Any) -> Any:
        assert threading.get_ident() == self.home
        if self.together is not None:
            self.together.wait(10)
        obs = self.np_random.uniform(-1, 1, 2).astype(np.float32)
        return obs, float(obs[0]), bool(obs[1] > 0.7), bool(obs[1] < -0.9), {}

    def close(self) -> None:
        assert threading.get_ident() == self.home
        self.closed = True


def trajectory(group: Any) -> list[Any]:
    row = LoopVectorEnv(group, seed=11)
    seen = [row.reset()["obs"].copy()]
    for _ in range(30):
        step = row.step(np.zeros(4, np.int64))
        seen += [step.next_obs["obs"].copy(), step.init_obs["obs"].copy(), step.reward.copy()]
    seen.append(np.array(row.pop_finished_episodes()))
    row.close()
    return seen


def test_threads_play_the_same_trajectories_each_environment_in_its_own() -> None:
    serial = trajectory(SerialEnvs([Confined() for _ in range(4)]))
    threads = ThreadedEnvs(Confined, 4)
    envs = list(threads.envs)
    assert len({env.home for env in envs}) == 4  # type: ignore[attr-defined]  # Confined's
    for one, other in zip(serial, trajectory(threads), strict=True):
        np.testing.assert_array_equal(one, other)
    assert all(env.closed for env in envs)  # type: ignore[attr-defined]  # Confined's


def test_steps_in_threads_run_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Confined, "together", threading.Barrier(3))
    row = LoopVectorEnv(ThreadedEnvs(Confined, 3), seed=0)
    row.reset()
    for _ in range(3):
        row.step(np.zeros(3, np.int64))  # one after another, the first would wait for ever
    row.close()


def test_an_exception_in_a_thread_comes_out_as_it_is() -> None:
    class Broken(Confined):
        def step(self, action: Any) -> Any:
            if action:
                raise ZeroDivisionError("my own fault")
            return super().step(action)

    row = LoopVectorEnv(ThreadedEnvs(Broken, 3), seed=0)
    row.reset()
    with pytest.raises(ZeroDivisionError, match="my own fault") as caught:
        row.step(np.array([0, 1, 0]))
    assert "in environment 1 of 3" in caught.value.__notes__[0]
    row.close()
    before = threading.active_count()

    def failing() -> Any:
        raise OSError("no simulator here")

    with pytest.raises(OSError, match="no simulator here"):
        ThreadedEnvs(failing, 2)
    deadline = time.monotonic() + 10
    while threading.active_count() > before:  # its threads end with it
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_an_error_at_the_end_of_an_environment_is_raised_once_all_are_closed() -> None:
    class Stuck(Confined):
        def close(self) -> None:
            super().close()
            raise OSError("the port is gone")

    threads = ThreadedEnvs(Stuck, 3)
    envs = list(threads.envs)
    with pytest.raises(OSError, match="the port is gone") as caught:
        threads.close()
    assert caught.value.__notes__ == ["in environment 0 of 3, when it was closed"]
    assert all(env.closed for env in envs)  # type: ignore[attr-defined]  # Confined's
    made: list[Stuck] = []

    def make_two() -> Any:
        if len(made) == 2:
            raise ZeroDivisionError("no third one")
        made.append(Stuck())
        return made[-1]

    with pytest.raises(ZeroDivisionError, match="no third one") as failed:
        ThreadedEnvs(make_two, 3)
    assert sum("the port is gone" in note for note in failed.value.__notes__) == 2


def test_an_environment_that_does_not_close_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    let_go = threading.Event()

    class Endless(Confined):
        def close(self) -> None:
            let_go.wait(10)

    monkeypatch.setattr("vedette_rl.envs.vector_env._CLOSE_S", 0.05)
    threads = ThreadedEnvs(Endless, 2)
    with pytest.raises(TimeoutError, match="environment 0 has not closed within"):
        threads.close()
    let_go.set()


def test_an_environment_that_does_not_close_does_not_replace_why_it_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    let_go = threading.Event()

    class Hanging(Confined):
        def close(self) -> None:
            let_go.wait(10)

    monkeypatch.setattr("vedette_rl.envs.vector_env._CLOSE_S", 0.05)
    with pytest.raises(KeyboardInterrupt) as caught, closing(ThreadedEnvs(Hanging, 2)):
        raise KeyboardInterrupt
    assert "environment 0 has not closed within" in caught.value.__notes__[0]
    let_go.set()


def test_the_key_says_how_an_actors_environments_are_stepped() -> None:
    own: Any = f"{__name__}:Confined"
    for stepping, kind in (
        ("auto", SerialEnvs),
        ("serial", SerialEnvs),
        ("threads", ThreadedEnvs),
        ("processes", SerialEnvs),  # nothing may start them here
    ):
        row = make_vector_environment(
            EnvConfig.model_validate({"id": own, "stepping": stepping}), 2, 0
        )
        assert isinstance(row, LoopVectorEnv)
        assert type(row.group) is kind
        row.close()


def same() -> Any:
    return SAME


SAME = Confined()


def test_threads_want_environments_of_their_own_too() -> None:
    config = EnvConfig(id=f"{__name__}:same", stepping="threads")
    with pytest.raises(UnknownEnvironmentError, match="the same environment at every call"):
        make_vector_environment(config, 2, 0)


class WantsMainThread(Confined):
    """Sets a handler of a signal, which Python allows in the main thread only.

    Args:
        when: "made" or "reset".
    """

    def __init__(self, when: str) -> None:
        super().__init__()
        self.when = when
        self.set_handler("made")

    def set_handler(self, now: str) -> None:
        if now == self.when:
            signal.signal(signal.SIGUSR1, signal.getsignal(signal.SIGUSR1))

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.set_handler("reset")
        return super().reset(seed=seed)


@pytest.mark.parametrize("when", ["made", "reset"])
def test_an_environment_that_wants_the_main_thread_is_told_which_setting_helps(when: str) -> None:
    env = EnvConfig(id=f"{__name__}:WantsMainThread", kwargs={"when": when}, stepping="threads")
    with pytest.raises(ValueError, match="main thread") as caught:
        make_vector_environment(env, 2, seed=0).reset()
    notes = " ".join(caught.value.__notes__)
    assert "env.stepping=threads" in notes
    assert "set env.stepping=processes" in notes
