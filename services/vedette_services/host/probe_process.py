"""The process that makes an environment once to learn about it, as the one that asks holds it.

What the environment does to its process (threads, directory, signals, prints, programs that it
starts) ends with it. A command is JSON on a pipe, and so is its answer; nothing is pickled.

This file imports neither numpy nor Gymnasium: a command starts the process first, and then both
load side by side.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Mapping
from contextlib import suppress
from multiprocessing import Pipe
from typing import TYPE_CHECKING, Any

from vedette_services.errors import ConfigError, SettingError, UsageError, describe_exit
from vedette_services.host.memory_kills import MemoryKills
from vedette_services.host.output import Say
from vedette_services.host.processes import ONE_THREAD, python_module, spawn, wait_all
from vedette_services.host.slow_calls import WaitLines
from vedette_services.host.system import anonymous_file

if TYPE_CHECKING:
    from vedette_rl.envs.config import EnvConfig

TIMEOUT_S = 600.0
"""For one command: some simulators take minutes until they are there."""
_POLL_S = 0.5
_CLOSE_S = 10.0
_OUTPUT_BYTES = 4096  # of what an environment printed before it took its process down

Json = dict[str, Any]


class EnvironmentNotFoundError(SettingError):
    """No environment of this name is known where it was to be made."""


class ProbeProcess:
    """Makes the environment in a process of its own, which loads from now on.

    Args:
        say: told what is waited for, where that takes more than a few seconds.
    """

    def __init__(self, say: Say) -> None:
        self._say = say
        self.warnings: list[str] = []
        self._config: EnvConfig | None = None
        self._memory_kills = MemoryKills()
        self._output = anonymous_file("environment")
        self._pipe, theirs = Pipe()
        with theirs:
            self._process = spawn(
                python_module(
                    "vedette_services.host.env_probe", str(theirs.fileno()), str(self._output)
                ),
                name="the environment's probe",
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
        self.warnings += answer.pop("warnings")
        if "error" in answer:
            raise error_from_json(answer["error"])
        return answer

    def _wait(self) -> Json:
        """Return the answer to a command; say what is waited for meanwhile."""
        assert self._config is not None
        began = time.monotonic()
        lines = WaitLines(self._config.id, began)
        stage = "made"
        while True:
            if self._pipe.poll(_POLL_S):
                answer: Json = json.loads(self._pipe.recv_bytes())
                if "stage" not in answer:
                    return answer
                stage = answer["stage"]
                continue
            now = time.monotonic()
            if now - began > TIMEOUT_S:
                why = f"{self._config.id} was not {stage} within {TIMEOUT_S:g} s"
                raise SettingError("env.id", why, "see what it waits for")
            if line := lines.due_line(stage, now):
                self._say(line)

    def _died(self) -> SettingError:
        assert self._config is not None
        wait_all([self._process], _CLOSE_S)
        status = self._process.poll()
        how = "closed its pipe" if status is None else f"ended with {describe_exit(status)}"
        if why := self._memory_kills.explain(status):
            how += f" ({why})"
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


def error_from_json(described: Mapping[str, Any]) -> UsageError:
    """The error that `error_to_json` wrote."""
    error: UsageError
    match described["kind"]:
        case "unknown":
            error = EnvironmentNotFoundError(*described["of"])
        case "setting":
            error = SettingError(*described["of"])
        case "config":
            error = ConfigError(described["text"])
        case _:
            error = UsageError(described["text"])
    error.__cause__ = RuntimeError(f"in the environment's own process:\n{described['traceback']}")
    return error
