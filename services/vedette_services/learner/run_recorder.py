"""The recorder of a run: all those configured, told first what the run is."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import tomli_w

from vedette_rl.core import Recorder
from vedette_rl.recording.registry import make_recorders
from vedette_rl.recording.tee import TeeRecorder
from vedette_rl.recording.tensorboard import purge_events
from vedette_services.config.run_config import RunConfig
from vedette_services.config.saving import config_table
from vedette_services.run.status_records import EvaluatorStatus, GatewayStatus, TrainerStatus

log = logging.getLogger("vedette.trainer")

_HYPERPARAMETERS = ("agent", "env", "actors", "replay", "learner")


@runtime_checkable
class HparamsRecorder(Protocol):
    """What a recorder may be besides: one that has a place for hyperparameters."""

    def write_hparams(self, hparams: Mapping[str, bool | float | str]) -> None:
        """Write what the run was configured with."""
        ...


def open_recorder(config: RunConfig, run: Path) -> Recorder:
    """Every recorder of `learner.recorders` behind one, with the configuration as a text and, for
    TensorBoard and MLflow, as hyperparameters.

    Args:
        run: the run's directory.

    Raises:
        UnknownNameError: one is not there, or is no `Recorder`.
        RecordingError: a file cannot be written.
    """
    recorders = make_recorders(config.learner.recorders, run)
    table = config_table(config)
    for recorder in recorders:
        if isinstance(recorder, HparamsRecorder):
            recorder.write_hparams(hyperparameters(table))
    tee = TeeRecorder(recorders)
    tee.write_text("config", tomli_w.dumps(table))
    return tee


def truncate_curves(tensorboard: Path, opt_steps: int) -> int:
    """Forget what was recorded beyond where a run goes on from.

    Returns:
        the last env step recorded; 0 where nothing was.
    """
    try:
        return purge_events(tensorboard, opt_steps, is_against_opt_steps).last_other_step
    except OSError as error:
        log.warning("curves of the last start stay as they are: %s", error)
        return 0


def hyperparameters(table: Mapping[str, Any]) -> dict[str, bool | float | str]:
    """A configuration as flat ``part.key`` values, the seed among them."""
    flat: dict[str, bool | float | str] = {"seed": table["seed"]}
    for part in _HYPERPARAMETERS:
        flat.update(_flat(part, table[part]))
    return flat


def _flat(prefix: str, value: object) -> Iterator[tuple[str, bool | float | str]]:
    match value:
        case Mapping():
            for name, inner in value.items():
                yield from _flat(f"{prefix}.{name}", inner)
        case bool() | int() | float() | str():
            yield prefix, value
        case _:
            yield prefix, str(value)


_EVERY_S = 1.0
_COSTS = frozenset({"average_opt_time", "average_sample_time"})


def is_against_opt_steps(name: str) -> bool:
    """Whether a curve of this name is against optimization steps, and not env steps."""
    return name in _COSTS or name.startswith(("train/", "priority/"))


class CurveRecorder:
    """Writes the boards into a recorder, once a second and at every evaluation.

    Args:
        recorder: where to.
        env_steps: what earlier starts of the run have recorded up to. What the fleet has produced
            is not known to the last step after a kill, and a curve must not run backwards.
    """

    def __init__(self, recorder: Recorder, env_steps: int = 0) -> None:
        self._recorder = recorder
        self._env_steps = env_steps
        self._next = 0.0
        self._evaluated = -1

    def record(
        self, now: float, learning: TrainerStatus, ingest: GatewayStatus, seen: EvaluatorStatus
    ) -> None:
        """Look at the boards; does nothing most of the time."""
        produced = ingest.samples.get("produced", 0)
        env_steps = self._env_steps = max(self._env_steps, produced)
        if seen.version != self._evaluated and seen.count:
            self._evaluated = seen.version
            self._recorder.write(_evaluation(seen), env_steps)
        if now >= self._next and produced:
            self._next = now + _EVERY_S
            self._recorder.write(fleet_record(learning, ingest), env_steps)


def _evaluation(seen: EvaluatorStatus) -> dict[str, float]:
    return {
        "eval/version": float(seen.version),
        "eval/mean_reward": seen.return_mean,
        "eval/std_reward": seen.return_std,
        "eval/min_reward": seen.return_min,
        "eval/max_reward": seen.return_max,
        "eval/episodes": float(seen.episodes),
        "eval/mean_ep_length": seen.length_mean,
        "eval/best_mean_reward": seen.best_return_mean,
        "Episode return": seen.return_mean,
    }


def fleet_record(learning: TrainerStatus, ingest: GatewayStatus) -> dict[str, float]:
    """One moment of the fleet: upstream's words, the ecosystem's, and our groups."""
    samples = ingest.samples
    record = {
        "samples_total": float(samples["inserted"]),
        "samples_per_sec": ingest.samples_per_sec,
        "opt_steps_per_sec": learning.opt_steps_per_sec,
        "replay/size": float(ingest.replay_size),
        "limiter/insert_waits": float(bool(ingest.limiter_reason)),
        "limiter/sample_waits": float(learning.phase == "waiting"),
        "limiter/samples_per_insert": learning.sampled / max(1, samples["inserted"]),
        "lag/sample_mean": learning.lag_mean,
        "lag/sample_p95": learning.lag_p95,
        "lag/sample_max": learning.lag_max,
        **{f"lag/{name}": value for name, value in ingest.lag.items()},
        **{f"wire/{name}": float(value) for name, value in samples.items()},
        "wire/managers": float(sum(m["state"] != "gone" for m in ingest.managers)),
        "wire/garbage": float(ingest.garbage),
        **_rollout(ingest),
    }
    if learning.opt_steps:
        record["samples_per_opt_steps"] = samples["inserted"] / learning.opt_steps
    return record


def _rollout(ingest: GatewayStatus) -> dict[str, float]:
    """The actors' last episodes: mean return and length, and the least and the most successful
    actor's own mean. Nothing before the first episode has ended.
    """
    present = [manager for manager in ingest.managers if manager["state"] != "gone"]
    actors = [actor for manager in present for actor in manager["actors"]]
    played = [a for a in actors if a["return_mean"] is not None]
    if not played:
        return {}
    returns = [a["return_mean"] for a in played]
    return {
        "rollout/ep_rew_mean": sum(returns) / len(returns),
        "rollout/ep_rew_min": min(returns),
        "rollout/ep_rew_max": max(returns),
        "rollout/ep_len_mean": sum(a["length_mean"] for a in played) / len(played),
    }
