"""Makes an environment once to learn about it, in a process that is gone before a player makes its.

What the environment does to its process (threads, directory, signals, prints, programs that it
starts) ends with it. A command is JSON on a pipe, and so is its answer; nothing is pickled.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any, Protocol

import numpy as np

from vedette_rl.envs.config import EnvConfig
from vedette_rl.envs.make import examine_environment, make_env, vector_of_one
from vedette_rl.envs.registry import find_episode_bound, find_spec, step_limit
from vedette_rl.envs.stored_spaces import spaces_to_json
from vedette_rl.envs.vector_env import Env
from vedette_rl.errors import RlError, UnknownEnvironmentError
from vedette_rl.import_by_name import is_import_name
from vedette_rl.steps.registry import make_step_processor, prepare_steps
from vedette_services.errors import (
    ConfigError,
    SettingError,
    UsageError,
    describe_exit,
    foreign_error_message,
)
from vedette_services.host.processes import (
    ONE_THREAD,
    die_with_parent,
    ignore_stop_signals,
    python_module,
    spawn,
    wait_all,
)
from vedette_services.host.step_cost import measure_step
from vedette_services.host.system import anonymous_file

log = logging.getLogger("vedette.config")

TIMEOUT_S = 600.0
"""For one command: some simulators take minutes until they are there."""
SAY_AFTER_S = 3.0
_SAY_EVERY_S = 10.0
_POLL_S = 0.5
_CLOSE_S = 10.0
_OUTPUT_BYTES = 4096  # of what an environment printed before it took its process down

Json = dict[str, Any]
Say = Callable[[str], None]
"""Takes a line for the user."""


class EnvironmentNotFoundError(SettingError):
    """No environment of this name is known where it was to be made."""


class ProbeSession(Protocol):
    """One environment, which is made once."""

    def ask(self, command: Json) -> Json:
        """Carry a command out; return its answer.

        Raises:
            ConfigError: the environment fails.
        """
        ...

    def close(self) -> None:
        """Close the environment; nothing of it is left."""
        ...


class LocalSession:
    """Makes the environment in this process.

    Args:
        on_stage: told what is waited for from now on.
    """

    def __init__(
        self, config: EnvConfig, *, on_stage: Callable[[str], None] = lambda stage: None
    ) -> None:
        self._config = config
        self._on_stage = on_stage
        self._env: Env | None = None

    def ask(self, command: Json) -> Json:
        match command["do"]:
            case "examine":
                return self._examine()
            case "measure":
                return self._measure()
            case "prepare":
                return self._prepare(command)
            case other:
                raise ValueError(f"no command {other!r}")

    def close(self) -> None:
        if self._env is not None:
            self._env.close()
        self._env = None

    def _examine(self) -> Json:
        env_id = self._config.id
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            try:
                self._on_stage("made")
                env = self._env = make_env(self._config, check=True)
                self._on_stage("reset and stepped")
                spaces = examine_environment(env, self._config)
                bound = find_episode_bound(env)
            except UnknownEnvironmentError as e:
                raise EnvironmentNotFoundError("env.id", str(e)) from e
            except RlError as e:
                raise SettingError("env.id", str(e)) from e
            except UsageError:  # of a module that must not be imported: it says what to do
                raise
            except (Exception, SystemExit) as e:
                why = foreign_error_message(e)
                raise SettingError(
                    "env.id",
                    f"{env_id} fails when it is made, reset and stepped: {why}",
                    "fix the environment; VEDETTE_TRACEBACK=1 shows where",
                ) from e
        return {
            "spaces": spaces_to_json(spaces),
            "episode_bound": bound,
            "has_limit": step_limit(env) is not None,
            "warnings": list(dict.fromkeys(str(warning.message) for warning in warned)),
        }

    def _measure(self) -> Json:
        assert self._env is not None, "it was examined before"
        self._on_stage("stepped, to measure a step")
        if find_spec(self._config).entry_point is None:  # it is a vector only
            return {"cost": None}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # they were told already
            try:
                cost = measure_step(self._env, lambda: make_env(self._config))
            except Exception as error:  # noqa: BLE001 - it plays one after another then
                log.debug("the step of %s was not measured: %s", self._config.id, error)
                return {"cost": None}
        return {"cost": [cost.seconds, cost.computes, cost.overlaps]}

    def _prepare(self, command: Json) -> Json:
        """Make a step processor and prepare it with the environment."""
        assert self._env is not None, "it was examined before"
        self._on_stage("prepared for its step processor")
        name, seed = command["processor"], command["seed"]
        try:
            processor = make_step_processor(
                name,
                command["n_step"],
                command["discount"],
                command["envs"],
                dtype_from_json(command["row"]),
                her_goals=command["her_goals"],
            )
            prepare_steps(processor, vector_of_one(self._env, self._config, seed), seed)
        except RlError as e:
            raise ConfigError(str(e)) from e
        except Exception as e:
            if not is_import_name(name):
                raise
            raise SettingError(
                "actors.step_processor",
                f"{name} fails when it is made: {foreign_error_message(e)}",
                "fix it; VEDETTE_TRACEBACK=1 shows where",
            ) from e
        return {}


class ProbeProcess:
    """Makes the environment in a process of its own, which loads from now on.

    Args:
        say: told what is waited for, where that takes more than `SAY_AFTER_S`.
    """

    def __init__(self, say: Say) -> None:
        self._say = say
        self._config: EnvConfig | None = None
        self._output = anonymous_file("environment")
        self._pipe, theirs = Pipe()
        with theirs:
            self._process = spawn(
                python_module(
                    "vedette_services.host.env_probe", str(theirs.fileno()), str(self._output)
                ),
                environment=ONE_THREAD,
                pass_fds=(theirs.fileno(), self._output),
                own_group=True,
            )

    def open(self, config: EnvConfig) -> None:
        """Name the environment that the commands are about."""
        self._config = config
        with suppress(OSError):  # it has ended: the first command says how
            self._pipe.send_bytes(config.model_dump_json().encode())

    def ask(self, command: Json) -> Json:
        assert self._config is not None, "`open` names the environment"
        try:
            self._pipe.send_bytes(json.dumps(command).encode())
            answer = self._wait()
        except (EOFError, OSError) as error:
            raise self._died() from error
        if "error" in answer:
            raise error_from_json(answer["error"])
        return answer

    def _wait(self) -> Json:
        """Return the answer to a command; say what is waited for meanwhile."""
        assert self._config is not None
        began = time.monotonic()
        say_at = began + SAY_AFTER_S
        stage = "made"
        while True:
            if self._pipe.poll(_POLL_S):
                answer: Json = json.loads(self._pipe.recv_bytes())
                if "stage" not in answer:
                    return answer
                stage = answer["stage"]
                continue
            waited_s = time.monotonic() - began
            if waited_s > TIMEOUT_S:
                why = f"{self._config.id} was not {stage} within {TIMEOUT_S:g} s"
                raise SettingError("env.id", why, "see what it waits for")
            if time.monotonic() >= say_at:
                say_at += _SAY_EVERY_S
                self._say(f"waiting for {self._config.id} to be {stage} ({waited_s:.0f} s)")

    def _died(self) -> SettingError:
        assert self._config is not None
        wait_all([self._process], _CLOSE_S)
        status = self._process.poll()
        how = "closed its pipe" if status is None else f"ended with {describe_exit(status)}"
        size = os.fstat(self._output).st_size
        text = os.pread(self._output, _OUTPUT_BYTES, max(0, size - _OUTPUT_BYTES))
        lines = [line.strip() for line in text.decode("utf-8", "replace").splitlines()]
        last = next((line for line in reversed(lines) if line), "")
        said = f"; it said last: {last[:200]}" if last else ""
        why = f"{self._config.id}: its process {how} when it was made, reset and stepped{said}"
        return SettingError("env.id", why, "fix the environment")

    def close(self) -> None:
        """Have it close the environment, and wait until the process is gone."""
        self._pipe.close()
        if self._config is not None:  # else it has nothing to close, and perhaps still loads
            wait_all([self._process], _CLOSE_S)
        self.kill()

    def kill(self) -> None:
        """End it and the programs that the environment has started."""
        self._pipe.close()
        with suppress(ProcessLookupError, PermissionError):  # none is left
            os.killpg(self._process.pid, signal.SIGKILL)
        wait_all([self._process], _CLOSE_S)
        if self._output >= 0:
            os.close(self._output)
            self._output = -1


def dtype_to_json(row: np.dtype[Any]) -> Any:
    """The dtype of a row as JSON."""
    return np.lib.format.dtype_to_descr(row)


def dtype_from_json(text: Any) -> np.dtype[Any]:
    """The dtype that `dtype_to_json` wrote."""
    fields = [(name, kind, *(tuple(shape) for shape in shapes)) for name, kind, *shapes in text]
    return np.lib.format.descr_to_dtype(fields)


def error_to_json(error: BaseException) -> Json:
    """An error of a session, for the process that asked."""
    text = {"traceback": "".join(traceback.format_exception(error)), "text": str(error)}
    match error:
        case SettingError():
            kind = "unknown" if isinstance(error, EnvironmentNotFoundError) else "setting"
            return {**text, "kind": kind, "of": [error.key, error.why, error.fix]}
        case ConfigError():
            return {**text, "kind": "config"}
        case UsageError():
            return {**text, "kind": "usage"}
        case _:
            return {**text, "kind": "setting", "of": ["env.id", foreign_error_message(error), ""]}


def error_from_json(found: Mapping[str, Any]) -> UsageError:
    """The error that `error_to_json` wrote."""
    error: UsageError
    match found["kind"]:
        case "unknown":
            error = EnvironmentNotFoundError(*found["of"])
        case "setting":
            error = SettingError(*found["of"])
        case "config":
            error = ConfigError(found["text"])
        case _:
            error = UsageError(found["text"])
    error.__cause__ = RuntimeError(f"in the environment's own process:\n{found['traceback']}")
    return error


def _serve(pipe: Connection) -> None:
    """Do what the pipe says until it is closed."""
    config = EnvConfig.model_validate_json(pipe.recv_bytes())

    def send(answer: Json) -> None:
        pipe.send_bytes(json.dumps(answer).encode())

    with closing(LocalSession(config, on_stage=lambda stage: send({"stage": stage}))) as session:
        while True:
            command = json.loads(pipe.recv_bytes())
            try:
                answer = session.ask(command)
            except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever it is, it is sent
                answer = {"error": error_to_json(error)}
            send(answer)


def main() -> None:
    """`python -m vedette_services.host.env_probe PIPE OUTPUT`"""
    die_with_parent()
    ignore_stop_signals()
    descriptor, output = map(int, sys.argv[1:])
    for stream in (1, 2):
        os.dup2(output, stream)
    try:
        with Connection(descriptor) as pipe:
            _serve(pipe)
    except (EOFError, OSError):
        os._exit(0)  # whoever asked has heard enough; threads would keep the process
    except Exception:  # noqa: BLE001 - of an environment that is closed; the asker says it
        traceback.print_exc()
    sys.stderr.flush()
    os._exit(1)


if __name__ == "__main__":
    main()
