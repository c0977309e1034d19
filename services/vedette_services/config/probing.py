"""What a start has to know of an environment, found out once: its spaces, or why it fails here."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import gymnasium as gym
import numpy as np

from vedette_rl.agents.registry import agent_kind
from vedette_rl.envs.altering_wrappers import AlteringWrapper
from vedette_rl.envs.config import EnvConfig
from vedette_rl.envs.spaces import Spaces, declared_spaces
from vedette_rl.envs.stored_spaces import spaces_from_json, spaces_to_json
from vedette_services.config.run_config import RunConfig
from vedette_services.errors import SettingError, UsageError, config_errors
from vedette_services.host.env_probe import LocalSession, ProbeSession
from vedette_services.host.output import Say
from vedette_services.host.probe_process import EnvironmentNotFoundError, ProbeProcess
from vedette_services.host.step_cost import StepCost

log = logging.getLogger("vedette.config")


@dataclass(frozen=True, slots=True)
class EnvironmentFacts:
    """What a probe has found out about an environment.

    Args:
        spaces: as agents see them.
        episode_bound: steps at which evaluations cut an episode, unless they are told otherwise.
        has_limit: the environment ends episodes by itself after so many steps.
        altering: wrappers around it that change what evaluations measure.
        packages: the versions of the distributions that it is made of, by their names.
    """

    spaces: Spaces
    episode_bound: int
    has_limit: bool
    altering: tuple[AlteringWrapper, ...] = ()
    packages: Mapping[str, str] = field(default_factory=dict)


def _log_line(text: str) -> None:
    log.info("%s", text)


class EnvironmentProbe:
    """Makes environments to learn about them: each once, in a process that is gone at the end.

    ::

        with EnvironmentProbe() as probe:
            facts = probe.facts(env)                # made, reset, stepped once; it stays open
            cost = probe.step_cost(env)
            probe.prepare(env, command)
        ...                                         # it is closed: players may make theirs

    An environment whose name only this process knows (of a notebook, or registered by a script) is
    made in this process.

    Args:
        say: told what is waited for.
        process: that makes the first environment, and loads already; None: started when it is
            needed.
        start: starts such a process.
        known: what another process has found out (`known`); none of these is made for it.
    """

    def __init__(
        self,
        say: Say = _log_line,
        *,
        process: ProbeProcess | None = None,
        start: Callable[[Say], ProbeProcess] | None = None,
        known: Mapping[str, Any] | None = None,
    ) -> None:
        self._say = say
        self._start = start or start_process
        self._process = process
        self._session: ProbeSession | None = None
        self._open: EnvConfig | None = None  # the environment of the session
        self._facts: dict[str, EnvironmentFacts | UsageError] = {
            key: _facts_from_json(answer) for key, answer in (known or {}).items()
        }
        self._costs: dict[str, StepCost | None] = {}

    def facts(self, env: EnvConfig) -> EnvironmentFacts:
        """Make, reset and step an environment once; declared spaces count for nothing here.

        Raises:
            SettingError: it cannot be made here, or fails at once.
            UsageError: its module must not be imported: it says what to do.
        """
        made = _as_made(env)
        key = made.model_dump_json()
        if key not in self._facts:
            try:
                self._facts[key] = self._examine(made)
            except UsageError as error:
                self._facts[key] = error
        facts = self._facts[key]
        if isinstance(facts, UsageError):
            raise facts
        return facts

    def check_names(self, env: EnvConfig) -> None:
        """Import what the configuration of an environment names, and make nothing.

        Raises: as `facts`, of what cannot be imported.
        """
        made = _as_made(env)
        if made.model_dump_json() in self._facts:
            self.facts(env)
        elif made.wrappers or not _is_known_here(made):
            self._open_session(made).ask({"do": "find"})

    def known(self) -> dict[str, Any]:
        """What was found out about environments, as JSON, for the probe of another process."""
        return {
            key: {
                "spaces": spaces_to_json(facts.spaces),
                "episode_bound": facts.episode_bound,
                "has_limit": facts.has_limit,
                "altering": [list(wrapper) for wrapper in facts.altering],
                "packages": dict(facts.packages),
            }
            for key, facts in self._facts.items()
            if isinstance(facts, EnvironmentFacts)
        }

    def spaces(self, env: EnvConfig) -> Spaces:
        """The spaces of an environment: those declared, or by making one.

        Raises: as `facts`.
        """
        with config_errors("env.observation"):
            declared = declared_spaces(env)
        return self.facts(env).spaces if declared is None else declared

    def step_cost(self, env: EnvConfig) -> StepCost | None:
        """Measure a step; None where it fails, or is a vector's only."""
        made = _as_made(env)
        key = made.model_dump_json()
        if key not in self._costs:
            try:
                answer = self._ask(made, {"do": "measure"})["cost"]
            except UsageError as error:  # `facts` raises it again
                log.debug("the step of %s was not measured: %s", env.id, error)
                answer = None
            self._costs[key] = None if answer is None else StepCost(*answer)
        return self._costs[key]

    def prepare(self, env: EnvConfig, command: dict[str, Any]) -> None:
        """Prepare a step processor with an environment.

        Raises:
            ConfigError: it fails.
        """
        self._ask(_as_made(env), {"do": "prepare", **command})

    def _ask(self, made: EnvConfig, command: dict[str, Any]) -> dict[str, Any]:
        """Ask about an environment that is open, or is made once more."""
        self.facts(made)
        if self._open != made:
            self._examine(made)
        assert self._session is not None, "an environment that was examined is open"
        return self._session.ask(command)

    def _examine(self, made: EnvConfig) -> EnvironmentFacts:
        """Make an environment, and keep it open; the one that was open is gone before."""
        session = self._open_session(made)
        try:
            answer = _examined(session, made)
        except EnvironmentNotFoundError:
            if not _is_known_here(made):
                raise
            self.close()
            self._session = LocalSession(made)
            self._open = made
            answer = _examined(self._session, made)
        return _facts_from_json(answer)

    def _open_session(self, made: EnvConfig) -> ProbeSession:
        """Name the environment that a process is asked about; the one before is gone."""
        if self._open is not None:
            self.close()
        if self._process is None:
            self._process = self._start(self._say)
        self._process.open(made)
        self._session = self._process
        self._open = made
        return self._process

    def close(self) -> None:
        """Close the environment that is open; its process is gone."""
        session = self._session
        process = self._process
        self._session = self._process = self._open = None
        if session is not None:
            session.close()
        if process is not None and process is not session:
            process.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None and not issubclass(kind, Exception) and self._process is not None:
            self._process.kill()  # Ctrl-C does not wait for it
        self.close()


def start_process(say: Say) -> ProbeProcess:
    """Start a process that makes an environment."""
    return ProbeProcess(say)


def _facts_from_json(answer: Mapping[str, Any]) -> EnvironmentFacts:
    spaces = spaces_from_json(answer["spaces"])
    altering = tuple(AlteringWrapper(*wrapper) for wrapper in answer["altering"])
    bound, has_limit = answer["episode_bound"], answer["has_limit"]
    return EnvironmentFacts(spaces, bound, has_limit, altering, answer["packages"])


def _examined(session: ProbeSession, made: EnvConfig) -> dict[str, Any]:
    """Examine the environment of a session; log what was warned of, also where that fails."""
    try:
        return session.ask({"do": "examine"})
    finally:
        for text in describe_warnings(session.warnings):
            log.warning("environment %s: %s", made.id, text)
        session.warnings = []


def _is_known_here(env: EnvConfig) -> bool:
    """Return True if a name means something in this process, without importing anything."""
    return env.name in gym.registry if env.module is None else env.module in sys.modules


def _as_made(env: EnvConfig) -> EnvConfig:
    """The environment by what it is made of: without how it is stepped, and what is declared."""
    plain = {"observation": None, "action": None, "stepping": "serial"}
    return env.model_copy(update=plain)


_DTYPE = re.compile(
    r"(The obs returned by the `\w+\(\)` method) was expecting numpy array dtype to be (\w+), "
    r"actual type: (\w+)"
)
_OUTSIDE = " is not within the observation space."


def describe_warnings(warnings: Sequence[str]) -> list[str]:
    """Return Gymnasium's warnings of an environment, each once.

    Of observations whose dtype is not that of their space it gives four, two of them on bounds: a
    dtype that the space's cannot hold is outside of any. They become one sentence for each dtype.
    """
    texts = dict.fromkeys(map(_plain, warnings))
    found = [match for match in map(_DTYPE.fullmatch, texts) if match]
    dtypes = dict.fromkeys((match[3], match[2]) for match in found)
    explained = {match[0] for match in found}
    explained |= {f"{match[1]}{_OUTSIDE}" for match in found if not np.can_cast(match[3], match[2])}
    return [
        *(
            f"its observations are {given}, and its space says {declared}: they are converted to "
            f"{declared}"
            for given, declared in dtypes
        ),
        *(text for text in texts if text not in explained),
    ]


def _plain(warning: str) -> str:
    """Gymnasium's warning without its colours."""
    return re.sub(r"\x1b\[\d*m", "", warning).removeprefix("WARN: ").strip()


def probe_spaces(env: EnvConfig) -> Spaces:
    """The spaces of an environment: those declared, or by making one in a process of its own.

    Raises:
        SettingError: it cannot be made here, or fails at once.
    """
    with EnvironmentProbe() as probe:
        return probe.spaces(env)


def check_agent(config: RunConfig, spaces: Spaces, *, learns: bool) -> None:
    """Check that the agent takes these spaces, and learns where that is wanted of it.

    Raises:
        ConfigError: it does not.
    """
    with config_errors():
        kind = agent_kind(config.agent.name)
        if learns:
            kind.check_learns()
        kind.check(config.agent, spaces)


def environment_errors(config: RunConfig, probe: EnvironmentProbe) -> tuple[SettingError, ...]:
    """Why the environment cannot be made here, or the agent does not take it; nothing if it can."""
    try:
        check_agent(config, probe.spaces(config.env), learns=False)
    except SettingError as error:
        return error.errors
    except UsageError:  # of no key: the next start says it
        return ()
    return ()
