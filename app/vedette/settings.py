"""The settings of a run as typed keywords of Python functions, and as tables of the configuration.

The values are the configuration's own classes; the keywords are those of `RunConfig`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import wraps
from typing import Any, Literal, TypedDict, TypeVar, cast

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec
from pydantic import BaseModel

from vedette_rl.core.agent_config import AgentConfig
from vedette_rl.envs.config import EnvConfig
from vedette_rl.envs.naming import environment_table
from vedette_rl.replay.config import ReplayConfig
from vedette_rl.settings.key_suggestions import KnownKeys, as_argument, instead_of, nearest
from vedette_rl.settings.part import SettingsPart
from vedette_services.config import ActorsConfig, EvaluationConfig, LearnerConfig, StopConfig
from vedette_services.config.run_config import every_key
from vedette_services.errors import SettingError

AgentName = Literal["dqn", "iqn", "sac", "td3"]
"""The agents that come with Vedette."""

Values = Mapping[str, Any]
"""A part of the configuration as a dictionary of its keys."""

Environment = str | Callable[..., gym.Env[Any, Any]] | gym.Env[Any, Any] | EnvSpec | EnvConfig
"""The forms that name an environment in Python."""

_F = TypeVar("_F", bound=Callable[..., Any])


class Settings(TypedDict, total=False):
    """The settings of a run: the tables of the configuration file, each as its class.

    What is not given comes from the resumed run, the preset, or the defaults, in this order.

    Args:
        env: an id, a class, a function that makes one, a `functools.partial` of either, an
            `EnvSpec`, what `gymnasium.make` returned (actors make their own of its `spec`), or an
            `EnvConfig`.
        agent: a name, or `DQN`, `IQN`, `SAC`, `TD3`: the class, or with hyperparameters. None: what
            suits `env`.
        seed: the seed of all random generators.
        preset: ``auto`` begins from the tuned preset of agent and environment, ``none`` does not.
        actors: their number, or their settings.
        replay: the settings of the replay: its place, and how samples are drawn.
        learner: its intervals.
        evaluation: the settings of evaluations.
        stop: when the run is over. Without it that is the preset's, or never.

    Each part is its class, or a dictionary of its keys: ``stop={"max_opts": 500}``.
    """

    env: Environment | Values | None
    agent: AgentName | str | AgentConfig | type[AgentConfig] | Values | None
    seed: int | None
    preset: Literal["auto", "none"] | None
    actors: int | ActorsConfig | Values | None
    replay: ReplayConfig | Values | None
    learner: LearnerConfig | Values | None
    evaluation: EvaluationConfig | Values | None
    stop: StopConfig | Values | None


def spell_out(function: _F) -> _F:
    """Give the signature of a function the settings by name, for `help` and notebooks; have it
    refuse others."""
    signature = inspect.signature(function)
    *own, _ = signature.parameters.values()
    settings = [
        inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind.__forward_arg__
        )
        for name, kind in Settings.__annotations__.items()
    ]
    whole = signature.replace(parameters=[*own, *settings])
    names = [name for name in whole.parameters if name != "self"]

    @wraps(function)
    def checked(*args: Any, **given: Any) -> Any:  # as the function has them
        for name in given:
            if name not in names:
                raise SettingError(name, "unknown argument", _meant(name, names))
        return function(*args, **given)

    checked.__signature__ = whole  # type: ignore[attr-defined]  # inspect and Jupyter read it
    return cast(_F, checked)


def _meant(name: str, names: Sequence[str]) -> str:
    """Return what to write in place of an argument that does not exist."""
    synonyms = every_key().synonyms
    # of the keys those that other libraries have too: all would offer too much that is far off
    if instead := instead_of(name):
        return instead
    if near := nearest(name, KnownKeys((*names, *synonyms.values()), synonyms)):
        return f"did you mean {as_argument(near) if '.' in near else near}?"
    return f"there are {', '.join(names)}"


def with_settings(function: str, given: Values, settings: Settings) -> Settings:
    """Return the settings of a dictionary together with those by keyword.

    Raises:
        SettingError: a name is none of a setting, or is in both.
    """
    for name in given:
        if name not in Settings.__annotations__:
            names = [*Settings.__annotations__]
            raise SettingError(str(name), "unknown setting", _meant(str(name), names))
        if name in settings:
            why = f"it is given to {function} twice, in the dictionary and by keyword"
            raise SettingError(name, why, "leave one out")
    return cast(Settings, {**given, **settings})


def configuration_table(settings: Mapping[str, Any], *, shared: bool) -> dict[str, Any]:
    """Settings as a table of the configuration file.

    Args:
        shared: other processes make the environment.
    """
    return dict(_entries(settings, shared=shared))


def _entries(settings: Mapping[str, Any], *, shared: bool) -> Iterator[tuple[str, Any]]:
    for name, value in settings.items():
        match name, value:
            case _, None:
                continue
            case _, _ if _is_of_another_part(name, value):
                given = value.__name__ if isinstance(value, type) else type(value).__name__
                raise SettingError(name, f"{given} is of another part", f"give {_FORMS[name]}")
            case "agent", type() if issubclass(value, AgentConfig):
                yield name, _agent_of_class(value)
            case _, type() if issubclass(value, SettingsPart):
                yield name, {}
            case _, BaseModel():
                named = {"name": value.name} if isinstance(value, AgentConfig) else {}
                yield name, {**value.model_dump(mode="json", exclude_unset=True), **named}
            case "env", str():
                yield name, {"id": value}
            case "env", _ if not isinstance(value, Mapping):
                yield name, environment_table(value, shared=shared)
            case "agent", str():
                yield name, {"name": value}
            case "actors", int():
                yield name, {"count": value}
            case "agent" | "actors" | "replay" | "learner" | "evaluation" | "stop", _ if (
                not isinstance(value, Mapping)
            ):
                raise SettingError(name, f"{value!r} are no settings", f"give {_FORMS[name]}")
            case _:
                yield name, value


def _is_of_another_part(name: str, value: Any) -> bool:
    """Return True for a class of settings, or settings of one, that are those of another part."""
    kind = value if isinstance(value, type) else type(value)
    return name in _PARTS and issubclass(kind, BaseModel) and not issubclass(kind, _PARTS[name])


_PARTS: Mapping[str, type[BaseModel]] = {
    "env": EnvConfig,
    "agent": AgentConfig,
    "actors": ActorsConfig,
    "replay": ReplayConfig,
    "learner": LearnerConfig,
    "evaluation": EvaluationConfig,
    "stop": StopConfig,
}

_FORMS = {
    "env": "an environment's name, or vedette.EnvConfig(...)",
    "agent": "a name, or vedette.DQN(...) or another agent",
    "actors": "their number, or vedette.ActorsConfig(...)",
    "replay": "vedette.ReplayConfig(...)",
    "learner": "vedette.LearnerConfig(...)",
    "evaluation": "vedette.EvaluationConfig(...)",
    "stop": "vedette.StopConfig(...)",
}


def _agent_of_class(kind: type[AgentConfig]) -> dict[str, Any]:
    """The table of an agent that is named by its class, with the defaults of all its keys."""
    name = kind.model_fields["name"]
    if name.is_required():
        why = f"{kind.__name__} names no agent"
        raise SettingError("agent", why, f"make one: {kind.__name__}(name='module:Name')")
    return {"name": name.default}
