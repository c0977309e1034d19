"""Makes an environment once to learn about it: the program of a `ProbeProcess`."""

from __future__ import annotations

import json
import logging
import os
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from multiprocessing.connection import Connection
from typing import Any, Protocol

import numpy as np

from vedette_rl.envs.altering_wrappers import altering_wrappers
from vedette_rl.envs.config import EnvConfig
from vedette_rl.envs.environment_packages import environment_packages
from vedette_rl.envs.make import (
    examine_environment,
    find_environment,
    make_env,
    vector_of_one,
)
from vedette_rl.envs.registry import find_episode_bound, find_spec, step_limit
from vedette_rl.envs.stored_spaces import spaces_to_json
from vedette_rl.envs.vector_env import Env
from vedette_rl.errors import UnknownEnvironmentError
from vedette_rl.steps.registry import make_step_processor, prepare_steps
from vedette_services.errors import (
    ConfigError,
    SettingError,
    UsageError,
    config_errors,
    custom_part_errors,
    environment_fix,
    foreign_error_message,
)
from vedette_services.host.probe_process import EnvironmentNotFoundError, Json
from vedette_services.host.processes import (
    die_with_parent,
    ignore_stop_signals,
)
from vedette_services.host.step_cost import measure_step
from vedette_services.host.system import reset_inherited_signals

log = logging.getLogger("vedette.config")


class ProbeSession(Protocol):
    """One environment, which is made once.

    Args:
        warnings: what Python and Gymnasium warned of while it was made, also where that failed.
    """

    warnings: list[str]

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
        self.warnings: list[str] = []
        self._env: Env | None = None

    def ask(self, command: Json) -> Json:
        match command["do"]:
            case "find":
                return self._find()
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

    def _find(self) -> Json:
        """Import what the configuration names; nothing is made."""
        self._on_stage("imported")
        with _environment_errors(self._config.id):
            find_environment(self._config)
        return {}

    def _examine(self) -> Json:
        with (
            _environment_errors(self._config.id),
            warnings.catch_warnings(record=True) as warned,
        ):
            warnings.simplefilter("always")
            try:
                self._on_stage("made")
                env = self._env = make_env(self._config, check=True)
                self._on_stage("reset and stepped")
                spaces = examine_environment(env, self._config)
                bound = find_episode_bound(env)
            finally:
                # Of a line of code: importing C libraries warns of what SWIG has made of them.
                texts = (str(w.message) for w in warned if not w.filename.startswith("<frozen"))
                self.warnings += dict.fromkeys(texts)
        return {
            "spaces": spaces_to_json(spaces),
            "episode_bound": bound,
            "has_limit": step_limit(env) is not None,
            "altering": altering_wrappers(env),
            "packages": environment_packages(env),
        }

    def _measure(self) -> Json:
        assert self._env is not None, "it was examined before"
        self._on_stage("reset and stepped, to measure both")
        if find_spec(self._config).entry_point is None:  # it is a vector only
            return {"cost": None}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # they were told already
            try:
                cost = measure_step(self._env, lambda: make_env(self._config))
            except Exception as error:  # noqa: BLE001 - it plays one after another then
                log.debug("the step of %s was not measured: %s", self._config.id, error)
                return {"cost": None}
        return {"cost": [cost.seconds, cost.computes, cost.overlaps, cost.reset_s]}

    def _prepare(self, command: Json) -> Json:
        """Make a step processor and prepare it with the environment."""
        assert self._env is not None, "it was examined before"
        self._on_stage("prepared for its step processor")
        name, seed = command["processor"], command["seed"]
        with config_errors(), custom_part_errors("actors.step_processor", name):
            processor = make_step_processor(
                name,
                command["n_step"],
                command["discount"],
                command["envs"],
                dtype_from_json(command["row"]),
                her_goals=command["her_goals"],
            )
            prepare_steps(processor, vector_of_one(self._env, self._config, seed), seed)
        return {}


@contextmanager
def _environment_errors(env_id: str) -> Iterator[None]:
    """Raise what an environment raises as an error of the key that names it.

    Raises:
        EnvironmentNotFoundError: nothing of that name is known here.
        SettingError: it fails.
    """
    try:
        with config_errors("env.id"):
            try:
                yield
            except UnknownEnvironmentError as e:
                raise EnvironmentNotFoundError(e.key or "env.id", str(e)) from e
    except UsageError:  # of ours, one of a module that must not be imported too
        raise
    except (Exception, SystemExit) as e:
        why = foreign_error_message(e)
        fix = environment_fix(e) or "fix the environment; VEDETTE_TRACEBACK=1 shows where"
        if _lacks_options(e):
            fix = "its reset() needs options: set env.reset_options.KEY=VALUE"
        raise SettingError(
            "env.id", f"{env_id} fails when it is made, reset and stepped: {why}", fix
        ) from e


def _lacks_options(error: BaseException) -> bool:
    """True for an error of a `reset` that was given no options and reads them."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None or not isinstance(error, TypeError | AttributeError):
        return False
    frame = trace.tb_frame
    asked = frame.f_code.co_name == "reset" and "options" in frame.f_locals
    return asked and frame.f_locals["options"] is None and "NoneType" in str(error)


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
            send({**answer, "warnings": session.warnings})
            session.warnings = []


def main() -> None:
    """`python -m vedette_services.host.env_probe PIPE OUTPUT`"""
    reset_inherited_signals()
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
