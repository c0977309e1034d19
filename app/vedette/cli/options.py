"""Options that several commands share, and the functions that read them."""

from __future__ import annotations

import os
import socket
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from vedette.cli.grouped_help import LOGS, NETWORK, RESUME, SEVERAL
from vedette_services.errors import SettingError, UsageError

if TYPE_CHECKING:  # pydantic and numpy are not needed to say --help
    from vedette_services.config.loading import ActorPlace, LoadedConfig
    from vedette_services.config.probing import EnvironmentProbe
    from vedette_services.net.keys import ClientKeys
    from vedette_services.run.start import Start


def complete_environments(incomplete: str) -> list[str]:
    """List the environments whose names begin so, those with a preset first."""
    import gymnasium

    from vedette_services.config.presets import preset_names

    tuned = [name.partition("-")[2].replace("ALE_", "ALE/") for name in preset_names()]
    known = dict.fromkeys([*tuned, *sorted(gymnasium.registry)])
    return [name for name in known if name.startswith(incomplete) and name != "ALE"]


def complete_agents(incomplete: str) -> list[str]:
    """List the agents whose names begin so."""
    from vedette_rl.agents.registry import BUILT_IN

    return [name for name in BUILT_IN if name.startswith(incomplete)]


def complete_settings(incomplete: str) -> list[str]:
    """List the keys of the configuration that begin so, each with the ``=`` that follows."""
    from vedette_services.config.run_config import every_key

    return [f"{key}=" for key in every_key().keys if key.startswith(incomplete)]


def suggest_setting(option: str, *, spelling: bool = True) -> str:
    """Return the key of the configuration that was written as an option; "" for none.

    Args:
        spelling: return one that is only spelled alike, too.
    """
    from vedette_rl.settings.key_suggestions import nearest
    from vedette_services.config.run_config import every_key

    name = option.lstrip("-").replace("-", "_")
    known = every_key()
    if len(name) < 2 or name in known.keys:
        return name if name in known.keys else ""
    return nearest(name, known, spelling=spelling)


def complete_arguments(incomplete: str) -> list[str]:
    """List the TOML files, folders and settings that begin so."""
    files = sorted(str(path) for path in Path().glob(f"{incomplete}*.toml"))
    folders = sorted(f"{path}/" for path in Path().glob(f"{incomplete}*") if path.is_dir())
    return [*files, *folders, *complete_settings(incomplete)]


KEYS_VARIABLE = "VEDETTE_KEYS"

Arguments = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[CONFIG] [KEY=VALUE]...",
        help="A TOML file, and settings, as with --set.",
        autocompletion=complete_arguments,
    ),
]
RunArgument = Annotated[Path, typer.Argument(metavar="RUN", help="A run's directory.")]
Checkpoint = Annotated[
    str | None,
    typer.Option(
        metavar="STEPS",
        help="Optimization steps of a checkpoint, or latest. [the best model]",
    ),
]
Env = Annotated[
    str | None,
    typer.Option(
        envvar="VEDETTE_ENV",
        metavar="ID",
        help="Environment as Gymnasium names it, or my_pkg.envs:MyEnv. [CartPole-v1]",
        autocompletion=complete_environments,
    ),
]
Agent = Annotated[
    str | None,
    typer.Option(
        envvar="VEDETTE_AGENT",
        metavar="NAME",
        help="dqn, iqn, sac, td3, appo or my_pkg.agents:MyAgent. [what suits the environment]",
        autocompletion=complete_agents,
    ),
]
Out = Annotated[
    Path | None,
    typer.Option(
        envvar="VEDETTE_OUT",
        metavar="DIR",
        help="Run directory; one with a checkpoint resumes. [a new one in runs/]",
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Set one key of the configuration, as often as needed.",
        autocompletion=complete_settings,
    ),
]
InitFrom = Annotated[
    Path | None,
    typer.Option(
        metavar="RUN",
        help="Start a new run with the weights of another one, those of the same shape.",
        rich_help_panel=RESUME,
    ),
]
Fresh = Annotated[
    bool,
    typer.Option(
        "--fresh",
        help="Start a new run. If the directory has one, add --force to delete it.",
        rich_help_panel=RESUME,
    ),
]
Force = Annotated[
    bool,
    typer.Option(
        "--force",
        help="With --fresh: delete the run that is in the directory.",
        rich_help_panel=RESUME,
    ),
]
Jobs = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=256,
        metavar="N",
        help="Number of runs in parallel. [as the cores allow]",
        rich_help_panel=SEVERAL,
    ),
]
NewReplay = Annotated[
    bool,
    typer.Option(
        "--new-replay",
        help="Resume with an empty replay: after a change of what stored samples depend on.",
        rich_help_panel=RESUME,
    ),
]
Complete = Annotated[bool, typer.Option("--complete", hidden=True)]
"""The file has every key: what a run's own configuration says beside it was unset on purpose."""

Known = Annotated[Path | None, typer.Option("--known", hidden=True)]
"""A file in which a sweep says what it knows of environments, so that no trial makes one for it."""

Learner = Annotated[
    str,
    typer.Option(
        envvar="VEDETTE_LEARNER",
        metavar="HOST[:PORT]",
        help="The learner's address; @FILE: read it from a file; @RUN: the learner of that run.",
    ),
]


def _check_allowed(packages: list[str] | None) -> list[str] | None:
    """Refuse names that no package has, and say which packages are not here."""
    if packages:
        from vedette.cli.output import say
        from vedette_services.config.import_permission import check_allowed, is_importable

        check_allowed(packages, "--allow-import")
        for package in packages:
            if not is_importable(package):
                say(f"vedette: --allow-import {package}: there is no such package here", err=True)
    return packages


AllowImport = Annotated[
    list[str] | None,
    typer.Option(
        envvar="VEDETTE_ALLOW_IMPORT",
        metavar="PKG",
        callback=_check_allowed,
        help="A package that the learner's run may import here; your own run's, too.",
        rich_help_panel=NETWORK,
    ),
]
Insecure = Annotated[
    bool,
    typer.Option(
        "--insecure",
        help="Do not encrypt or authenticate; for a network that you trust.",
        rich_help_panel=NETWORK,
    ),
]
Keys = Annotated[
    Path | None,
    typer.Option(
        envvar=KEYS_VARIABLE,
        metavar="DIR",
        help="Folder of keys from `vedette keys`: encrypt, and admit only listed keys.",
        rich_help_panel=NETWORK,
    ),
]
Format = Annotated[
    Literal["text", "json"],
    typer.Option(
        envvar="VEDETTE_LOG_FORMAT",
        help="json: one object per line, with run, epoch, host, manager and actor.",
        rich_help_panel=LOGS,
    ),
]
MetricsPort = Annotated[
    str | None,
    typer.Option(
        envvar="VEDETTE_METRICS_PORT",
        metavar="[HOST:]PORT",
        help="Serve the numbers of `status` to Prometheus there. [off]",
        rich_help_panel=LOGS,
    ),
]


def client_keys(keys: Path | None, insecure: bool) -> ClientKeys | None:
    """Read the keys of a command that connects; None: it connects without keys.

    Raises:
        UsageError: the command line has `--keys` and `--insecure`, or this is Windows.
        KeysError: the keys are missing or damaged.
    """
    from vedette_services.host.system import require_daemons
    from vedette_services.net.keys import ClientKeys

    keys = chosen_keys(keys, insecure)
    if keys is None:
        return None
    require_daemons("--keys")  # a secret is protected by its file's mode
    return ClientKeys.read(keys)


def chosen_keys(keys: Path | None, insecure: bool) -> Path | None:
    """Return the folder of keys; `--insecure` overrides one from `VEDETTE_KEYS`.

    Raises:
        UsageError: the command line has both.
    """
    if keys is None or not insecure:
        return keys
    if os.environ.get(KEYS_VARIABLE) == str(keys):
        return None
    raise UsageError("--keys and --insecure contradict each other: give one of them")


def chosen_id(manager: str | None) -> str | None:
    """Return a manager's id with this host's name in place of ``{host}``.

    Raises:
        SettingError: it is not an id.
    """
    if manager is None:
        return None
    from vedette_protocol.topics import is_id
    from vedette_services.run.directory import host_for_manager_id

    manager_id = manager.replace("{host}", host_for_manager_id(socket.gethostname()))
    if not is_id(manager_id):
        raise SettingError("--id", f"{manager_id!r} has other than 1 to 64 of A-Z a-z 0-9 . _ -")
    return manager_id


def load_from_arguments(
    arguments: list[str] | None,
    env: str | None,
    agent: str | None,
    settings: list[str] | None,
    saved: Path | None = None,
    fit: ActorPlace | None = None,
    probe: EnvironmentProbe | None = None,
    allow_import: Collection[str] = (),
) -> LoadedConfig:
    """Load the configuration that a command line describes.

    Args:
        saved: the configuration of the run that is resumed; None: no run is.
        allow_import: see `vedette_services.config.load_config`.
        fit, probe: see `vedette_services.config.load_config`.

    Raises:
        ConfigError: a key is wrong.
        UsageError: there are two files, or an argument is neither a file nor a setting.
    """
    from vedette_services.config import load_config

    path, more = split_arguments(arguments or [])
    more = [*(settings or []), *more]
    return load_config(
        path,
        env=env,
        agent=agent,
        settings=more,
        saved=saved,
        allow_import=allow_import,
        fit=fit,
        probe=probe,
    )


def load_for_start(
    arguments: list[str] | None,
    env: str | None,
    agent: str | None,
    settings: list[str] | None,
    init_from: Path | None,
    resumed: Path | None,
    start: Start,
    *,
    fit: ActorPlace,
    probe: EnvironmentProbe,
) -> LoadedConfig:
    """Load the configuration of a start.

    Args:
        init_from: the value of `--init-from`.
        resumed: the directory whose run is resumed; None: no run is.
        start: the kind of start.
        fit: the place where its actors will play.
        probe: makes the environment where it has to be known.

    Raises:
        UsageError: the cases of `load_from_arguments`.
    """
    from vedette_services.run.prepare import settings_to_resume

    saved = settings_to_resume(resumed, start)
    more = with_initial_weights(settings, init_from)
    allowed = start.allow_import
    return load_from_arguments(arguments, env, agent, more, saved, fit, probe, allowed)


def with_initial_weights(settings: list[str] | None, init_from: Path | None) -> list[str]:
    """Return the settings, with what `--init-from` sets."""
    more = [] if init_from is None else [f"learner.init_from={init_from.absolute()}"]
    return [*(settings or []), *more]


def split_arguments(arguments: list[str]) -> tuple[Path | None, list[str]]:
    """Separate the TOML file from the settings among bare arguments.

    Raises:
        SettingError: an argument is neither.
        UsageError: there are two files.
    """
    settings = [text for text in arguments if "=" in text and not Path(text).is_file()]
    paths = [text for text in arguments if text not in settings]
    for text in paths:
        if not text.endswith(".toml") and not Path(text).exists():
            fix = "pass an environment as --env ID and a setting as KEY=VALUE"
            raise SettingError(text, "no such file", fix)
    if len(paths) > 1:
        raise UsageError(
            f"{paths[1]}: only one configuration file is allowed, and {paths[0]} is given already"
        )
    return (Path(paths[0]) if paths else None), settings
