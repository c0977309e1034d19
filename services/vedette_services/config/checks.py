"""What must hold before anything starts: settings, environment and this host, held together."""

from __future__ import annotations

import logging
import os
import re
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from vedette_protocol.limits import PAYLOAD_MAX_BYTES
from vedette_rl.agents.registry import agent_type
from vedette_rl.envs.config import EnvConfig
from vedette_rl.envs.make import probe
from vedette_rl.envs.spaces import Spaces, transition_dtype
from vedette_rl.errors import OwnNetworkError, RlError, UnknownNameError
from vedette_rl.named import is_named, load_named
from vedette_rl.replay.budget import check_budget, replay_need
from vedette_services.config.run_config import RunConfig
from vedette_services.errors import ConfigError, SettingError, refuse
from vedette_services.resuming import check_fresh, check_resume
from vedette_services.run_replay import replay_directory, ring_dtype, run_limiter

log = logging.getLogger("vedette.config")


def check_config(
    config: RunConfig, out: Path, *, fresh: bool = False, force: bool = False
) -> Spaces:
    """Refuse what cannot work, cheapest first. Imports no torch.

    Args:
        config: of the run.
        out: the run's directory, which need not exist yet.
        fresh: a run in it is to be erased, not resumed.
        force: that was meant.

    Returns:
        The environment's spaces, since they had to be found out.

    Raises:
        UsageError: one line that names the key and the mend.
    """
    check_settings(config)
    check_out(out)
    check_fresh(out, fresh=fresh, force=force)
    check_named(config)
    spaces = probe_spaces(config.env)
    try:
        agent_type(config.agent.name).check(config.agent, spaces)
    except (OwnNetworkError, UnknownNameError) as e:
        raise ConfigError(str(e)) from e
    except RlError as e:
        raise SettingError("agent.name", str(e), "choose another --agent or --env") from e
    row = transition_dtype(spaces)
    _check_batch(config, row)
    stored = ring_dtype(row)
    check_resume(config, out, stored, fresh=fresh)
    _check_budget(config, stored, out)
    return spaces


def check_settings(config: RunConfig) -> None:
    """Refuse settings that contradict one another.

    Raises:
        ConfigError: names both and the mend.
    """
    refuse(list(_contradictions(config)))
    try:
        run_limiter(config)
    except RlError as e:
        raise ConfigError(str(e)) from e


def _contradictions(config: RunConfig) -> Iterator[SettingError]:
    capacity, warmup = config.replay.capacity, config.learner.warmup_period
    batch, stop = config.agent.batch_size, config.stop
    if capacity < warmup:
        yield SettingError(
            "replay.capacity",
            f"{capacity:,} samples can never hold learner.warmup_period's {warmup:,}",
            f"set at least {warmup} or lower learner.warmup_period",
        )
    elif capacity < batch:
        yield SettingError(
            "replay.capacity",
            f"{capacity:,} samples are fewer than agent.batch_size's {batch:,}",
            f"set at least {batch} or lower agent.batch_size",
        )
    others = stop.max_opts or stop.max_env_steps or stop.max_seconds
    if stop.target_return is not None and not config.learner.eval_interval and not others:
        yield SettingError(
            "stop.target_return",
            "is never reached with learner.eval_interval=0",
            "set an eval_interval or another stop condition",
        )


def check_named(config: RunConfig) -> None:
    """Refuse names of the user's own that import nothing here.

    Raises:
        ConfigError: says which.
    """
    try:
        for name in filter(is_named, config.learner.recorders):
            load_named("learner.recorders", name)
        if is_named(config.actors.step_processor):
            load_named("actors.step_processor", config.actors.step_processor)
        kind = getattr(getattr(config.agent, "exploration", None), "kind", "")
        if is_named(kind):
            load_named("agent.exploration.kind", kind)
    except UnknownNameError as e:
        raise ConfigError(str(e)) from e


def check_out(out: Path) -> None:
    """Refuse a run directory that cannot be made or written.

    Raises:
        SettingError: says why.
    """
    place = out
    while not place.exists() and place != place.parent:
        place = place.parent
    if not place.is_dir():
        raise SettingError(f"--out {out}", f"{place} is a file", "name a folder")
    if not os.access(place, os.W_OK | os.X_OK):
        raise SettingError(f"--out {out}", f"{place} cannot be written", "name another folder")


def probe_spaces(env: EnvConfig) -> Spaces:
    """The spaces of an environment, by making one, resetting it and stepping it once.

    Raises:
        SettingError: it cannot be made here, or fails at once.
    """
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            return probe(env)
        except RlError as e:
            raise SettingError("env.id", str(e)) from e
        except Exception as e:
            said = " ".join(str(e).split()) or "it does not say why"
            raise SettingError(
                "env.id",
                f"{env.id} fails when it is made, reset and stepped: {type(e).__name__}: {said}",
                "mend the environment; VEDETTE_TRACEBACK=1 shows where",
            ) from e
        finally:
            for said in dict.fromkeys(_plain(str(warning.message)) for warning in warned):
                log.warning("environment %s: %s", env.id, said)


def _plain(warning: str) -> str:
    """Gymnasium's warning without its colours."""
    return re.sub(r"\x1b\[\d*m", "", warning).removeprefix("WARN: ").strip()


def _check_batch(config: RunConfig, row: np.dtype[np.void]) -> None:
    rows = config.actors.n_buffer
    batch_bytes = rows * row.itemsize
    if batch_bytes > PAYLOAD_MAX_BYTES:
        raise SettingError(
            "actors.n_buffer",
            f"a batch of {rows:,} transitions is {batch_bytes:,} bytes, over {PAYLOAD_MAX_BYTES:,}",
            f"set at most {max(1, PAYLOAD_MAX_BYTES // row.itemsize)}",
        )
    if batch_bytes > config.actors.window_bytes:
        raise SettingError(
            "actors.window_bytes",
            f"{config.actors.window_bytes:,} bytes hold no batch of {batch_bytes:,}",
            f"set at least {batch_bytes} or lower actors.n_buffer",
        )


def _check_budget(config: RunConfig, stored: np.dtype[np.void], out: Path) -> None:
    replay = config.replay
    need = replay_need(stored, replay.capacity, prioritized=replay.prioritized)
    directory = replay_directory(config, out)
    try:
        check_budget(need, directory, must_fit_memory=replay.directory is None)
    except RlError as e:
        raise SettingError("replay.capacity", str(e)) from e
