"""Environments that are stepped side by side, each in a process of its own.

Observations, actions and rewards are in memory that both sides map; a byte on a pipe says when they
are to be read. Nothing is pickled. A worker closes its environment and ends when it is told to,
when the environment has failed, and when the process that started it is gone.
"""

from __future__ import annotations

import json
import mmap
import os
import subprocess
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from vedette_rl.core import Columns
from vedette_rl.envs.call_places import call_places
from vedette_rl.envs.config import EnvConfig
from vedette_rl.envs.description import EnvDescription, describe_environment
from vedette_rl.envs.layout import (
    ObservationLayout,
    executed_action,
    find_intervention,
    read_flags,
    read_rewards,
)
from vedette_rl.envs.make import make_env
from vedette_rl.envs.slow_calls import SlowCall
from vedette_rl.envs.spaces import INSTANCES_DIFFER, RESET_CHANGED, KnownSpaces
from vedette_rl.envs.vector_env import Env, EnvGroup
from vedette_rl.errors import EnvironmentFaultError, SpaceLayoutError
from vedette_services.errors import FAILED, EnvironmentProcessError, describe_exit, error_message
from vedette_services.host.memory_kills import MemoryKills
from vedette_services.host.process_end import end_if_longer, end_now, run_to_end
from vedette_services.host.processes import (
    ONE_THREAD,
    die_with_parent,
    ignore_stop_signals,
    python_module,
    spawn,
    wait_all,
)
from vedette_services.host.started_programs import end_own_programs, end_programs_of
from vedette_services.host.system import anonymous_file

_CLOSE_S = 8.0  # for `close` of an environment; its worker then ends with all that it has started
_END_S = 12.0  # for the end of a worker, `close` included; it is killed then
_EXIT_S = 1.0  # from the end of its pipe to the end of a worker
_ALIGNED = 64
_MADE = b"made"
_DONE = b"done"
_FAILED = b"failed "
_FAULT = b"fault "  # what it gave is none of its space: it would be so again
_STEP = b"step"
_RESET = b"reset "
_CLOSE = b"close"


@dataclass(frozen=True, slots=True)
class _Shared:
    """The memory of all environments, a row each.

    Args:
        obs: the newest observations, as an actor stores them.
        action: actions in the environments' form.
        reward, terminated, truncated: results of the last step.
        intervened: a person acted in the last step; `action` is then what was executed.
    """

    obs: Columns
    action: NDArray[Any]
    reward: NDArray[Any]
    terminated: NDArray[Any]
    truncated: NDArray[Any]
    intervened: NDArray[Any]

    @classmethod
    def of(cls, env: EnvDescription, count: int, descriptor: int) -> _Shared:
        """Map the file of `descriptor`, which is made as large as it must be."""
        obs = ObservationLayout(env.observation_space).empty(count)
        action = np.empty((count, *(env.action_space.shape or ())), env.action_space.dtype)
        flags = np.empty(count, np.bool_)
        arrays = [*obs.values(), action, np.empty(count, np.float64), flags, flags, flags]
        starts = np.cumsum([0, *(-(-array.nbytes // _ALIGNED) * _ALIGNED for array in arrays)])
        os.ftruncate(descriptor, int(starts[-1]))
        memory = mmap.mmap(descriptor, int(starts[-1]))
        *seen, action, reward, terminated, truncated, intervened = (
            np.ndarray(array.shape, array.dtype, memory, int(start))
            for array, start in zip(arrays, starts, strict=False)
        )
        named = dict(zip(obs, seen, strict=True))
        return cls(named, action, reward, terminated, truncated, intervened)


class ProcessEnvs(EnvGroup):
    """Steps environments side by side, each in a process of its own.

    Its process's main thread must make it (see `spawn`). No environment is made in this process,
    unless an attribute of one is asked for.

    Args:
        config: the environments' configuration.
        count: E.
    """

    def __init__(self, config: EnvConfig, count: int) -> None:
        self._config = config
        self._count = count
        self._example: Env | None = None
        self._pipes: list[Connection] = []
        self._workers: list[subprocess.Popen[bytes]] = []
        self._memory = anonymous_file("environments")
        self.keeps_failures = False
        self.failures = []
        self._memory_kills = MemoryKills()
        try:
            for i in range(count):
                ours, worker = self._start(i)
                self._workers.append(worker)
                self._pipes.append(ours)
            with SlowCall("made"):
                answers = self._collect(range(count), _MADE)
            description = EnvDescription.from_json(json.loads(answers[0]))
            super().__init__(description, count)
            self._known = KnownSpaces(description)
            self._check_alike(answers)
            self._shared = _Shared.of(description, count, self._memory)
        except BaseException:
            self._end()
            raise

    def __len__(self) -> int:
        return self._count

    @property
    def can_replace(self) -> bool:
        return True

    def replace(self, i: int) -> None:
        self._pipes[i].close()
        self._await_end([self._workers[i]])
        self._pipes[i], self._workers[i] = self._start(i)
        keeps = self.keeps_failures
        self.keeps_failures = False
        try:
            with SlowCall("made"):
                self._check_alike(self._collect([i], _MADE))
        finally:
            self.keeps_failures = keeps

    def _check_alike(self, answers: Mapping[int, bytes]) -> None:
        """Check that environments that were made have the spaces of the first.

        Args:
            answers: their descriptions, by their numbers.

        Raises:
            SpaceLayoutError: one has others.
        """
        for i, answer in answers.items():
            try:
                self._known.check(EnvDescription.from_json(json.loads(answer)), INSTANCES_DIFFER)
            except SpaceLayoutError as error:
                self._note(error, i)
                raise

    def _start(self, i: int) -> tuple[Connection, subprocess.Popen[bytes]]:
        """Start the process of an environment, which begins to make it."""
        ours, theirs = Pipe()
        with theirs:
            arguments = map(str, (theirs.fileno(), self._memory, i, self._count))
            worker = spawn(
                python_module("vedette_services.host.env_workers", *arguments),
                name=f"environment {i}",
                environment=ONE_THREAD,
                pass_fds=(theirs.fileno(), self._memory),
            )
        ours.send_bytes(self._config.model_dump_json().encode())
        return ours, worker

    def reset(
        self, which: Sequence[int], seeds: Sequence[int | None], obs: Columns, rows: Sequence[int]
    ) -> None:
        self.failures = []
        for i, seed in zip(which, seeds, strict=True):
            self._send(i, _RESET + json.dumps(seed).encode())
        with SlowCall("reset"):
            begun = self._collect(which, _DONE)
        sound = [(i, row) for i, row in zip(which, rows, strict=True) if i in begun]
        for name, column in obs.items():
            column[[row for _, row in sound]] = self._shared.obs[name][[i for i, _ in sound]]

    def step(self, actions: NDArray[Any], obs: Columns, which: Sequence[int] | None = None) -> bool:
        chosen = list(range(len(self)) if which is None else which)
        shared = self._shared
        count = len(chosen)
        shared.action[chosen] = actions
        self.failures = []
        for i in chosen:
            self._send(i, _STEP)
        self._collect(chosen, _DONE)
        for i, _ in self.failures:  # nothing of that step counts
            shared.reward[i] = 0.0
            shared.terminated[i] = shared.truncated[i] = shared.intervened[i] = False
        for name, column in obs.items():
            column[:] = shared.obs[name][chosen]
        self.reward[:count] = shared.reward[chosen]
        self.terminated[:count] = shared.terminated[chosen]
        self.truncated[:count] = shared.truncated[chosen]
        self.interventions = [
            (row, shared.action[i].copy()) for row, i in enumerate(chosen) if shared.intervened[i]
        ]
        return bool(self.terminated[:count].any() or self.truncated[:count].any())

    def _send(self, i: int, command: bytes) -> None:
        with suppress(OSError):  # its process has ended: reading from it says how
            self._pipes[i].send_bytes(command)

    def _collect(self, which: Sequence[int], expected: bytes) -> dict[int, bytes]:
        """Take the answers of workers as they come; keep errors, or raise the first one.

        An actor that waits here for too long is killed by its manager.

        Returns:
            What follows the expected word, of each that has not failed.
        """
        waiting = {self._pipes[i]: i for i in which}
        answers: dict[int, bytes] = {}
        while waiting:
            for pipe in wait(list(waiting)):
                i = waiting.pop(cast(Connection, pipe))
                try:
                    answer = self._pipes[i].recv_bytes()
                except (EOFError, OSError) as error:
                    self._fail(i, self._died(i), error)
                    continue
                if answer.startswith(_FAULT):
                    raise self._failed(i, answer.removeprefix(_FAULT).decode())
                if answer.startswith(expected):
                    answers[i] = answer.removeprefix(expected)
                else:
                    self._fail(i, self._failed(i, answer.removeprefix(_FAILED).decode()))
        return answers

    def _fail(self, i: int, error: EnvironmentProcessError, cause: Exception | None = None) -> None:
        """Keep the error of an environment.

        Raises:
            EnvironmentProcessError: it is not to be kept.
        """
        if not self.keeps_failures:
            raise error from cause or error.__cause__
        self.failures.append((i, error))

    def _failed(self, i: int, text: str) -> EnvironmentProcessError:
        cause, _, rest = text.partition("\n")
        error = EnvironmentProcessError(cause)
        error.__cause__ = RuntimeError(f"in the environment's own process:\n{rest}")
        self._note(error, i)
        return error

    def _died(self, i: int) -> EnvironmentProcessError:
        wait_all([self._workers[i]], _EXIT_S)
        status = self._workers[i].poll()
        how = "it closed its pipe" if status is None else describe_exit(status)
        if why := self._memory_kills.explain(status):
            how += f", {why}"
        error = EnvironmentProcessError(f"an environment's process ended: {how}")
        error.killed = status is not None and status < 0
        self._note(error, i)
        return error

    def attribute(self, name: str) -> Any:
        """Of an environment that is made here for it: a method cannot be called in a worker."""
        if self._example is None:
            self._example = make_env(self._config)
        return self._example.get_wrapper_attr(name)

    def close(self) -> None:
        for pipe in self._pipes:
            with suppress(OSError):  # its worker is dead
                pipe.send_bytes(_CLOSE)
        self._end()

    def _await_end(self, workers: Sequence[subprocess.Popen[bytes]]) -> None:
        """Wait for workers to close their environments; their pipes say so, or are closed. What
        environments have started ends with them."""
        left = wait_all(workers, _END_S)
        for worker in left:
            worker.kill()
        wait_all(left, _EXIT_S)
        end_programs_of(workers)

    def _end(self) -> None:
        for pipe in self._pipes:
            pipe.close()
        self._await_end(self._workers)
        self._pipes = []
        self._workers = []
        if self._memory >= 0:
            os.close(self._memory)
            self._memory = -1
        if self._example is not None:
            self._example.close()


class _OwnerGoneError(Exception):
    """The process that started this one is gone, or wants no more of it.

    It is no EOFError: an environment may raise that, too.
    """


def _receive(pipe: Connection) -> bytes:
    """Raises: _OwnerGoneError."""
    try:
        return pipe.recv_bytes()
    except (EOFError, OSError) as error:
        raise _OwnerGoneError from error


def _answer(pipe: Connection, text: bytes) -> None:
    """Raises: _OwnerGoneError."""
    try:
        pipe.send_bytes(text)
    except OSError as error:
        raise _OwnerGoneError from error


class _Worker:
    """The process of one environment, number `i` of `count`."""

    def __init__(self, env: Env, pipe: Connection, memory: int, i: int, count: int) -> None:
        self._pipe = pipe
        self._i = i
        self._env = env
        self._about = describe_environment(self._env)
        self._known = KnownSpaces(self._about)
        self._shared = _Shared.of(self._about, count, memory)
        self._layout = ObservationLayout(self._env.observation_space, call_places(env))
        self.checks = False
        """What it gave is looked at, and it does not run."""

    def serve(self) -> None:
        """Do what the pipe says until it says close.

        Raises:
            _OwnerGoneError: nobody is there to say it.
            Exception, SystemExit: whatever the environment raised.
        """
        _answer(self._pipe, _MADE + json.dumps(self._about.to_json()).encode())
        while (command := _receive(self._pipe)) != _CLOSE:
            if command == _STEP:
                self._step()
            else:
                seed = json.loads(command.removeprefix(_RESET))
                obs = self._env.reset(seed=seed)[0]
                self.checks = True
                self._known.check_replaced(self._env, RESET_CHANGED)
                self._layout.write(self._shared.obs, self._i, obs, origin="reset()")
            self.checks = False
            _answer(self._pipe, _DONE)

    def _step(self) -> None:
        shared = self._shared
        i = self._i
        action = shared.action[i].copy()  # the environment may keep it
        result = self._env.step(action)
        self.checks = True
        obs, reward, terminated, truncated, info = result
        (shared.reward[i],) = read_rewards(self._env, (reward,))
        flags = read_flags(self._env, (terminated,), (truncated,))
        (shared.terminated[i],), (shared.truncated[i],) = flags
        executed = find_intervention(info) if info else None
        shared.intervened[i] = executed is not None
        if executed is not None:
            try:
                shared.action[i] = executed_action(executed, action.shape, action.dtype)
            except ValueError as error:
                fault = f"action {executed}: {error}"
                raise EnvironmentFaultError("of interventions", fault) from error
        self._layout.write(shared.obs, i, obs, origin="step()")


def main() -> None:
    """`python -m vedette_services.host.env_workers PIPE MEMORY I COUNT`"""
    die_with_parent(_end_orphaned)
    ignore_stop_signals()
    descriptor, memory, i, count = map(int, sys.argv[1:])
    env = None
    worker = None
    with Connection(descriptor) as pipe, suppress(_OwnerGoneError):
        try:
            env = make_env(EnvConfig.model_validate_json(_receive(pipe)))
            worker = _Worker(env, pipe, memory, i, count)
            worker.serve()
        except _OwnerGoneError:
            raise
        except (Exception, SystemExit) as error:  # noqa: BLE001 - an environment may raise anything; it is sent
            text = f"{error_message(error)}\n{traceback.format_exc()}"
            kind = _FAULT if worker is not None and worker.checks else _FAILED
            _answer(pipe, kind + text.encode(errors="replace"))
    if env is not None:
        _close(env)


def _close(env: Env) -> None:
    """Close an environment, which may have failed: what it has started ends with it."""
    with end_if_longer(_CLOSE_S, "close() of the environment", FAILED, _say):
        try:
            env.close()
        except (Exception, SystemExit) as error:  # noqa: BLE001 - an environment may raise anything
            _say(f"close() of the environment failed: {error_message(error)}")


def _end_orphaned() -> None:
    """Let the main thread come back from its step, find that its owner is gone, and close the
    environment; end this process where it does not."""
    time.sleep(_END_S)
    end_own_programs()
    end_now(FAILED, _say)


def _say(line: str) -> None:
    with suppress(OSError):  # whoever read it is gone, too
        print(line, file=sys.stderr)


if __name__ == "__main__":
    run_to_end(main, _say)
