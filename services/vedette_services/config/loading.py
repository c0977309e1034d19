"""Makes a configuration of what was typed, or of a file.

Later layers win: defaults, the preset of (agent, environment), the TOML file, the environment's
``VEDETTE_SET``, the command line. A run that is resumed has its own configuration in place of the
first two.
"""

from __future__ import annotations

import functools
import json
import os
import shlex
import tomllib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from vedette_rl.agents.config import ActorCriticConfig
from vedette_rl.agents.exploration import ExplorationConfig
from vedette_rl.agents.registry import BUILT_IN, agent_kind
from vedette_rl.core.agent_config import AgentConfig
from vedette_rl.envs.config import UNNAMED, EnvConfig
from vedette_rl.errors import UnknownAgentError
from vedette_rl.import_by_name import is_import_name
from vedette_rl.settings.key_suggestions import KnownKeys, unknown_key
from vedette_rl.settings.part import keys_of_alternatives, known_keys
from vedette_rl.settings.plain_values import NotPlainError, plain_value
from vedette_rl.storage.regular_files import check_depth, read_text
from vedette_services.config.contradictions import contradictions
from vedette_services.config.fleet_defaults import (
    Choice,
    FleetSize,
    choose_for_fleet,
    depends_on_observation,
    describe_choices,
)
from vedette_services.config.import_permission import check_run_imports
from vedette_services.config.imported_names import imported_names
from vedette_services.config.plugins import expand_plugin_names
from vedette_services.config.presets import preset_agent, read_preset
from vedette_services.config.release import check_release
from vedette_services.config.run_config import RunConfig
from vedette_services.config.settings import (
    ENVIRONMENT,
    NONE,
    Layer,
    Table,
    add_sources,
    dotted_items,
    environment_table,
    explain_errors,
    merge_tables,
    set_value,
    settings_table,
)
from vedette_services.errors import ManySettingsError, SettingError, UsageError, raise_errors
from vedette_services.host.system import count_cores

if TYPE_CHECKING:
    from vedette_rl.envs.spaces import Spaces
    from vedette_services.config.probing import EnvironmentProbe

DEFAULT_ENV = "CartPole-v1"
_SAVED_PARTS = ("env", "agent", "actors", "replay", "learner")
ActorPlace = Literal["here", "in process", "elsewhere"]
"""The place where actors will play: on this host, in turn in one process of it, or on others."""

Part = TypeVar("Part", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class LoadedConfig:
    """A configuration, and what was decided while it was loaded.

    Args:
        preset: name of the preset it began from; "" for none.
        chosen: why the agent is the one it is, where none is named; "" otherwise.
        fitted: the time of a step and what was chosen by it; "" otherwise.
        begins: a line on how actors begin on the weights of another run; "" otherwise.
        choices: the settings that the size of the fleet decided.
        given: the keys that the file, the variable or the command set, as dotted names.
        left_out: keys of the preset that do not fit what was given.
    """

    config: RunConfig
    preset: str
    chosen: str
    choices: tuple[Choice, ...]
    fitted: str = ""
    begins: str = ""
    given: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()

    @property
    def decided(self) -> list[str]:
        """The decisions that the user left open, a line each."""
        endless = (
            "no stop condition is set: it goes on until Ctrl-C; stop.max_env_steps=1e6 ends it"
        )
        for_fleet = describe_choices(self.config, self.choices)
        without = ""
        if self.left_out:
            keys = " and ".join(self.left_out)
            why = f"the preset {self.preset} is for an agent without memory"
            without = f"{why}: its {keys} are left out"
        known = filter(None, [self.chosen, self.fitted, without, for_fleet, self.begins])
        return [*known, *[endless] * self.config.stop.never]

    @property
    def note(self) -> str:
        """The preset that it comes from."""
        return f"from the preset {self.preset}" if self.preset else ""

    @property
    def comment(self) -> str:
        """The origin of its values, for the head of its file."""
        size = f"chosen for {FleetSize.of(self.config)}:"
        lines = [size, *(f"  {choice}" for choice in self.choices)] if self.choices else []
        return "\n".join(filter(None, [self.note, *lines]))


def load_config(
    path: Path | None = None,
    *,
    env: str | None = None,
    agent: str | None = None,
    settings: Iterable[str] = (),
    table: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
    saved: Path | None = None,
    allow_import: Collection[str] = (),
    fit: ActorPlace | None = None,
    probe: EnvironmentProbe | None = None,
) -> LoadedConfig:
    """Lay all layers over one another.

    Args:
        path: a TOML file.
        env: the value of ``--env``, short for `env.id`.
        agent: the value of ``--agent``, short for `agent.name`.
        settings: ``KEY=VALUE`` texts.
        table: settings as a nested table, under `settings`.
        environment: the variables in which `VEDETTE_SET` is looked up; None: this process's.
        saved: the configuration of the run that is resumed; None: no run is.
        allow_import: packages that the configuration of a run, `saved` or `path`, may import,
            whoever has begun it.
        fit: choose what is left open by the time of a step, which is measured; None: leave it open.
        probe: of the start that follows, which is to make the environment once; None: one of its
            own, where an environment has to be made. Without it and `fit` stacked frames are taken
            for pictures, which decides `actors.n_buffer` and `learner.sync_interval`.

    Raises:
        SettingError: a key is wrong.
        UsageError: a setting is no ``KEY=VALUE``.
        ImportPermissionError: the configuration of a run imports what nobody has allowed.
    """
    variables = os.environ if environment is None else environment
    typed: Table = {}
    if env is not None:
        set_value(typed, ["env", "id"], env)
    if agent is not None:
        set_value(typed, ["agent", "name"], agent)
    layers = [
        Layer(str(path), read_given(path, allow_import) if path is not None else {}),
        Layer(ENVIRONMENT, environment_table(variables)),
        Layer("", dict(table or {})),
        Layer("", typed),
        Layer("", settings_table(settings)),
    ]
    given = functools.reduce(merge_tables, (layer.table for layer in layers))
    try:
        if saved is None:
            return replace(_with_preset(given, fit, probe), given=_keys(given))
        layers.insert(0, Layer(str(saved), _read_saved(saved)))
        given = expand_plugin_names(given)
        merged = merge_tables(layers[0].table, given)
        check_run_imports(saved.parent, merged, allow_import, frozenset(imported_names(given)))
        return _with_saved(layers[0].table, given, fit, probe)
    except (SettingError, ManySettingsError) as e:
        errors = add_sources(e, layers)
        if saved is not None:
            check_release(saved, errors)
        raise_errors(errors)
        raise


def _keys(given: Table) -> tuple[str, ...]:
    """The keys that are set in a table, as dotted names."""
    return tuple(key for key, _ in dotted_items(given))


def read_config(path: Path, *, allow_import: Collection[str] | None = None) -> RunConfig:
    """Read a saved configuration: whole, and touched by no preset and no variable.

    Reading imports the agent that it names, and nothing else.

    Args:
        allow_import: the packages from which that agent may be, whoever has begun the run; None:
            the caller has asked for permission before.

    Raises:
        SettingError: it is not readable, or not ours.
        ImportPermissionError: its agent is one that nobody has allowed.
    """
    table = _read_saved(path)
    named = _table(table, "agent").get("name")
    if allow_import is not None and isinstance(named, str) and is_import_name(named):
        check_run_imports(path.parent, table, allow_import, parts=("agent",))
    try:
        return config_from_table(table)
    except (SettingError, ManySettingsError) as e:
        errors = add_sources(e, [Layer(str(path), table)])
        check_release(path, errors)
        raise_errors(errors)
        raise


def _read_saved(path: Path) -> Table:
    """Read a run's own configuration, of which no part may be missing."""
    fix = f"put a whole one back, or rename it and {command_again(path.parent)}"
    try:
        table = read_toml(path)
    except SettingError as error:
        raise SettingError(error.key, error.why, fix) from error
    missing = [f"[{part}]" for part in _SAVED_PARTS if part not in table]
    if missing:
        raise SettingError(str(path), f"it is damaged: it has no {', '.join(missing)}", fix)
    return table


def command_again(run: Path) -> str:
    """The fix for a run whose own configuration is damaged or missing."""
    return (
        f"give the command of before again, with all its settings ({run / 'provenance.json'} has "
        "it): checkpoints and replay stay"
    )


def read_given(path: Path, allow_import: Collection[str] = ()) -> Table:
    """Read the TOML file that a user names.

    Args:
        allow_import: packages that it may import if it is a run's own.

    Raises:
        SettingError: it does not exist, cannot be read or is not TOML.
        ImportPermissionError: it is a run's own, and imports what nobody has allowed.
    """
    if not path.exists():
        write = f"`vedette config > {shlex.quote(str(path))}` writes one"
        raise SettingError(str(path), "no such file", write)
    table = read_toml(path, pipe=True)
    if path.name == "config.toml" and (path.parent / "run.json").exists():
        check_run_imports(path.parent, table, allow_import)
    return table


def read_toml(path: Path, *, pipe: bool = False) -> Table:
    """Parse a TOML file.

    Args:
        pipe: it may be one, such as a shell's ``<(...)``.

    Raises:
        SettingError: it does not exist, cannot be read or is not TOML.
    """
    try:
        text = path.read_text("utf-8") if pipe else read_text(path)
        table = tomllib.loads(text.removeprefix("\ufeff"))  # which some editors begin with
        check_depth(table)
        return table
    except FileNotFoundError as e:
        raise SettingError(str(path), "no such file") from e
    except IsADirectoryError as e:
        raise SettingError(str(path), "a folder, not a TOML file", "a run goes to --out") from e
    except OSError as e:
        raise SettingError(str(path), f"cannot be read: {e.strerror}") from e
    except (ValueError, RecursionError) as e:  # of the parser, the decoding, the depth
        raise SettingError(str(path), f"not TOML: {e}") from e


def config_from_table(
    table: Mapping[str, Any], *, tries: bool = False, probe: EnvironmentProbe | None = None
) -> RunConfig:
    """Validate a whole table, part by part, each with the class that it names.

    Args:
        tries: if keys are wrong, try the environment, too, and the agent on it.
        probe: as `load_config` takes it.

    Raises:
        SettingError: a key is wrong.
        ManySettingsError: several are.
    """
    given = dict(table)
    wrong = list[SettingError]()
    classes = _classes(_agent_class(given, wrong))
    known = known_keys(RunConfig) | known_keys(classes["agent"], "agent")
    unknown = [name for name in given if name not in RunConfig.model_fields]
    agents = keys_of_alternatives(classes["agent"])
    wrong += [SettingError(*unknown_key(name, known, agents)) for name in unknown]
    parts: Table = {}
    for name, cls in classes.items():
        try:
            parts[name] = _part(cls, _table(given, name), name, known)
        except (SettingError, ManySettingsError) as e:
            wrong += e.errors
    alone: Table = {}
    for name in RunConfig.model_fields:
        if name in given and name not in classes:
            try:
                alone[name] = _coerce(
                    RunConfig.model_fields[name].annotation, _plain(given[name], name)
                )
            except SettingError as e:
                wrong.append(e)
    try:
        config = RunConfig.model_validate({**alone, **parts}, strict=True)
    except ValidationError as e:
        explained = explain_errors(e, RunConfig, "", known)
        refused = classes.keys() - parts.keys()  # what is wrong with these is known
        wrong += [error for error in explained if error.key.partition(".")[0] not in refused]
    raise_errors([*wrong, *_errors_beside(wrong, table, tries, probe)] if wrong else [])
    return config


def _errors_beside(
    wrong: Sequence[SettingError],
    table: Mapping[str, Any],
    tries: bool,
    probe: EnvironmentProbe | None,
) -> Iterator[SettingError]:
    """Yield what the other settings of a table, in which some are wrong, contradict."""
    rest: Table = merge_tables({}, table)
    for error in wrong:
        _remove(rest, error.key.split("."))
    if rest == table or "name" not in _table(rest, "agent"):  # the keys of no agent are known
        return
    try:
        config = config_from_table(rest)
    except (SettingError, ManySettingsError):
        return
    for contradiction in contradictions(config):
        if not any(error.key in str(contradiction) for error in wrong):
            yield contradiction
    if tries and not any(error.key.startswith("env") for error in wrong):
        from vedette_services.config.probing import environment_errors

        with _opened(probe) as opened:
            yield from environment_errors(config, opened)


def _remove(table: Table, path: Sequence[str]) -> None:
    """Remove what is at a path, or the list or text on the way to it."""
    name, *further = path
    below = table.get(name)
    if further and isinstance(below, dict):
        table[name] = dict(below)
        _remove(table[name], further)
    else:
        table.pop(name, None)


def _agent_class(given: Table, wrong: list[SettingError]) -> type[AgentConfig]:
    """The class of the agent that is named; the class of all agents where that is no agent."""
    try:
        name = _table(given, "agent").get("name")
    except SettingError:
        return AgentConfig  # it is told when the parts are read
    if not isinstance(name, str):
        wrong.append(SettingError("agent.name", "must be a text", "name an agent, such as dqn"))
    else:
        try:
            config_class: type[AgentConfig] = agent_kind(name).config
            return config_class
        except UnknownAgentError as e:
            wrong.append(SettingError("agent.name", str(e)))
    given["agent"] = {"name": "unknown"}  # the keys of no agent are known
    return AgentConfig


def _classes(agent_class: type[AgentConfig]) -> dict[str, type[BaseModel]]:
    """The class of each part."""
    classes: dict[str, type[BaseModel]] = {}
    for name, field in RunConfig.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            classes[name] = field.annotation
    return {**classes, "agent": agent_class}


def _with_preset(
    given: Table, fit: ActorPlace | None, probe: EnvironmentProbe | None
) -> LoadedConfig:
    """Put the preset, or the agent that suits the environment, under what was given."""
    given = expand_plugin_names(given)
    declared = "observation" in _table(given, "env")
    env_id = _table(given, "env").get("id", UNNAMED if declared else DEFAULT_ENV)
    name = _table(given, "agent").get("name")
    chosen = ""
    if name is None:
        name = preset_agent(str(env_id))
        if name is None:
            name, chosen = _choose_agent(given, probe)
    base: Table = {"env": {"id": env_id}, "agent": {"name": name}}
    wanted = given.get("preset", "auto")
    tuned = read_preset(str(name), str(env_id)) if wanted == "auto" else None
    tuned, left_out = _without_samples(tuned or {}, given)
    table = merge_tables(merge_tables(tuned, base), given)
    config = config_from_table(table, tries=fit is not None, probe=probe)
    raise_errors(list(_orphaned_wrapper_settings(config.env, tuned, given)))
    config, fitted = _fitted(
        config, fit, probe
    )  # first: the defaults are for the fleet of this shape
    config, choices = choose_for_fleet(config, _spaces_of_stacks(config, fit, probe))
    config, begins = _begun_by_weights(config, _table(given, "agent"))
    preset = f"{name}-{env_id}" if tuned else ""
    if tuned:
        config = config.model_copy(update={"preset": f"applied: {preset}"})
    return LoadedConfig(config, preset, chosen, choices, fitted, begins, left_out=left_out)


_OF_SAMPLES = ("agent.batch_size", "replay.samples_per_insert")


def _without_samples(tuned: Table, given: Table) -> tuple[Table, tuple[str, ...]]:
    """Leave the numbers that count single samples out of a preset for an agent without memory,
    where memory is given: its batches are of sequences; returns their keys, too."""
    memory = _table(given, "agent").get("memory", NONE)
    if memory == NONE or "memory" in _table(tuned, "agent"):
        return tuned, ()
    own = {key for key, _ in dotted_items(given)}
    left_out = [key for key, _ in dotted_items(tuned) if key in _OF_SAMPLES and key not in own]
    parts = {
        part: {
            name: value
            for name, value in _table(tuned, part).items()
            if f"{part}.{name}" not in left_out
        }
        for part in {key.partition(".")[0] for key in left_out}
    }
    return {**tuned, **parts}, tuple(left_out)


def _with_saved(
    saved: Table, given: Table, fit: ActorPlace | None, probe: EnvironmentProbe | None
) -> LoadedConfig:
    """Put a run's own configuration under what was given; another run's part is left out."""
    for part, key in (("env", "id"), ("agent", "name")):
        own = _table(saved, part).get(key)
        if _table(given, part).get(key, own) != own:
            env = saved["env"] if part == "agent" else {}  # it is the one to try the agent on
            return _with_preset(merge_tables({"env": env}, given), fit, probe)
    table = {**merge_tables(saved, given), "preset": saved.get("preset", NONE)}
    config = config_from_table(table, tries=fit is not None, probe=probe)
    wanted = _table(given, "env").get("stepping") == "auto"
    config, fitted = _fitted(config, fit if wanted else None, probe)
    return replace(_completed(config), fitted=fitted)


def _fitted(
    config: RunConfig, fit: ActorPlace | None, probe: EnvironmentProbe | None
) -> tuple[RunConfig, str]:
    """Choose how environments are stepped, and say it."""
    if fit is None:
        return config, ""
    from vedette_services.config.stepping import fit_stepping

    cores = None if fit == "elsewhere" else count_cores()
    with _opened(probe) as opened:
        return fit_stepping(config, opened, cores=cores, in_process=fit == "in process")


def _spaces_of_stacks(
    config: RunConfig, fit: ActorPlace | None, probe: EnvironmentProbe | None
) -> Spaces | None:
    """The spaces of an environment whose observations are stacks of frames, if something is chosen
    by their size; None where they are not known, which is an error of a start that follows."""
    if not depends_on_observation(config):
        return None
    if fit is None and probe is None and not config.env.is_declared:
        return None  # nobody has asked for an environment to be made
    try:
        with _opened(probe) as opened:
            return opened.spaces(config.env)
    except UsageError:
        return None


def complete_config(
    config: RunConfig, fit: ActorPlace | None = None, probe: EnvironmentProbe | None = None
) -> LoadedConfig:
    """A configuration made in Python, with what is not set in it chosen by the time of a step, as
    `load_config` does it, and for its fleet; with the preset ``auto`` it is the preset's first.

    Raises:
        SettingError: the preset does not go with what is set.
    """
    if config.preset == "auto":
        given = config.model_dump(mode="json", exclude_unset=True)
        given["agent"] = {**given["agent"], "name": config.agent.name}
        return replace(_with_preset(given, fit, probe), given=_keys(given))
    return _completed(config, fit, probe)


def _completed(
    config: RunConfig, fit: ActorPlace | None = None, probe: EnvironmentProbe | None = None
) -> LoadedConfig:
    """A configuration that has its preset's values, with what is left open chosen."""
    config, fitted = _fitted(config, fit, probe)
    config, choices = choose_for_fleet(config, _spaces_of_stacks(config, fit, probe))
    config, begins = _begun_by_weights(config, config.agent.model_dump(exclude_unset=True))
    return LoadedConfig(config, "", "", choices, fitted, begins)


@contextmanager
def _opened(probe: EnvironmentProbe | None) -> Iterator[EnvironmentProbe]:
    """The probe of a start, or one that is closed at the end."""
    from vedette_services.config.probing import EnvironmentProbe  # brings the environments

    if probe is not None:
        yield probe
        return
    with EnvironmentProbe() as opened:
        yield opened


def _begun_by_weights(config: RunConfig, given: Table) -> tuple[RunConfig, str]:
    """Have actors act from the first step on by the weights that a run begins with.

    Args:
        given: the agent's settings that somebody gave; they stay.
    """
    agent = config.agent
    update = dict[str, Any]()
    if config.learner.init_from is None:
        return config, ""
    exploration = getattr(agent, "exploration", None)
    if isinstance(agent, ActorCriticConfig) and "uniform_warmup" not in given:
        update = {"uniform_warmup": False}
        said = "agent.uniform_warmup=false"
    elif isinstance(exploration, ExplorationConfig) and exploration.kind == "linear":
        if "epsilon_start" in _table(given, "exploration"):
            return config, ""
        first = {"epsilon_start": exploration.epsilon_final}
        update["exploration"] = exploration.model_copy(update=first)
        said = f"agent.exploration.epsilon_start={exploration.epsilon_final:g}"
    if not update:
        return config, ""
    config = config.model_copy(update={"agent": agent.model_copy(update=update)})
    return config, f"actors act by the weights of the other run from the first step on ({said})"


def _orphaned_wrapper_settings(
    env: EnvConfig, tuned: Table, given: Table
) -> Iterator[SettingError]:
    """Yield the constructor's arguments that a preset gives for its own wrappers.

    Only where the vector form is asked for, which takes none: ALE's would play every frame.
    """
    preset_env = _table(tuned, "env")
    if env.wrappers or not env.is_vector_form or "wrappers" not in preset_env:
        return
    typed = _table(_table(given, "env"), "kwargs")
    for name, value in _table(preset_env, "kwargs").items():
        if name not in typed:
            yield SettingError(
                f"env.kwargs.{name}",
                f"is {value} by the preset, for wrappers that a vector form does not take",
                f"set env.kwargs.{name} yourself (ALE's frameskip is 4)",
            )


def _choose_agent(given: Table, probe: EnvironmentProbe | None) -> tuple[str, str]:
    """The agent for an environment that has no preset, and why.

    Raises:
        SettingError: the environment cannot be made; with what is wrong whatever the agent is.
    """
    try:
        return _suiting_agent(_table(given, "env"), probe)
    except (SettingError, ManySettingsError) as error:
        others: Sequence[SettingError] = ()
        try:
            known = {key for kind in BUILT_IN.values() for key in kind.config.model_fields}
            agent = {key: v for key, v in _table(given, "agent").items() if key not in known}
            any_agent = {"env": {"id": DEFAULT_ENV}, "agent": {**agent, "name": "dqn"}}
            config_from_table({**given, **any_agent})
        except (SettingError, ManySettingsError) as beside:
            others = beside.errors
        raise_errors([*error.errors, *others])
        raise


def _suiting_agent(env: Table, probe: EnvironmentProbe | None) -> tuple[str, str]:
    """The agent for an environment that has no preset, by its actions, and why."""
    import gymnasium

    config = _part(EnvConfig, {"id": UNNAMED, **env}, "env", known_keys(EnvConfig, "env"))
    with _opened(probe) as opened:
        action = opened.spaces(config).action
    name = "sac" if isinstance(action, gymnasium.spaces.Box) else "dqn"
    return name, f"agent {name}, because the actions of {config.id} are {action}"


def _table(given: Mapping[str, Any], name: str) -> Table:
    value = given.get(name, {})
    if not isinstance(value, dict):
        raise SettingError(name, f"must be a table, not {value!r}", f"set {name}.KEY")
    return value


def _part(cls: type[Part], table: Table, name: str, known: KnownKeys) -> Part:
    """One part, validated strictly: no text is a number, no number a truth."""
    conformed = json.dumps(_conform(cls, _plain(table, name)))
    try:
        # JSON's strictness takes a list for a tuple, Python's does not.
        return cls.model_validate_json(conformed, strict=True)
    except ValidationError as e:
        raise_errors(explain_errors(e, cls, name, known))
        raise


def _plain(value: Any, key: str) -> Any:  # any value of a user's program
    """The value of a key as a configuration file has it.

    Raises:
        SettingError: no file can say it.
    """
    try:
        return plain_value(value)
    except NotPlainError as e:
        raise SettingError(".".join((key, *e.path)), e.why, e.fix) from e


def _conform(cls: type[BaseModel], table: Table) -> Table:
    """The values of a class's keys, each converted as its type asks."""
    fields = cls.model_fields
    return {
        key: _coerce(fields[key].annotation, value) if key in fields else value
        for key, value in table.items()
    }


def _coerce(annotation: Any, value: Any) -> Any:  # annotations have no common type
    """Convert what TOML cannot say: ``none`` where None is allowed, 1e6 where a count is meant;
    also within lists and tables."""
    members = [*_members(annotation)]
    if value == NONE and type(None) in members:
        return None
    if isinstance(value, float) and value.is_integer() and int in members and float not in members:
        return int(value)
    for member in members:
        inner = get_args(member)
        if isinstance(value, dict) and isinstance(member, type) and issubclass(member, BaseModel):
            return _conform(member, value)
        if isinstance(value, dict) and get_origin(member) is dict:
            return {key: _coerce(inner[1], each) for key, each in value.items()}
        if isinstance(value, list) and get_origin(member) is tuple and inner[-1] is Ellipsis:
            return [_coerce(inner[0], each) for each in value]
    return value


def _members(annotation: Any) -> Iterator[Any]:  # annotations have no common type
    """Yield the types that a value may have, without what is noted beside them."""
    if get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    if get_origin(annotation) in (Union, UnionType):
        for member in get_args(annotation):
            yield from _members(member)
    else:
        yield annotation
