"""What a start does to a run directory before anything learns."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from vedette_services.config.run_config import RunConfig
from vedette_services.config.saving import publish_config
from vedette_services.run.directory import RunDirectory, erase
from vedette_services.run.events import EventFile, RunEvent
from vedette_services.run.outcome import read_summary
from vedette_services.run.replay_layout import make_counted_replay
from vedette_services.run.resume import (
    NEW_BEST,
    NEW_REPLAY,
    begins_new_best,
    complete_decided,
    list_changes,
    replay_elsewhere,
)
from vedette_services.run.sources import place_sources, stage_sources


@dataclass(frozen=True, slots=True)
class PreparedStart:
    """A start in a directory that is ready for it.

    Args:
        run_id: of the run.
        save_settings: saves the configuration, logs what changed, and puts a best model away that
            does not count any more; to be called once the checkpoint has loaded: one that does not
            load leaves all as it was.
    """

    run_id: str
    save_settings: Callable[[], None]


def prepare_start(
    config: RunConfig,
    run: RunDirectory,
    *,
    fresh: bool,
    new_replay: bool,
    note: str = "",
    in_process: bool = False,
) -> PreparedStart:
    """Make a locked directory ready for a start with a checked configuration.

    Args:
        fresh: erase a run that is there.
        new_replay: begin its replay anew.
        note: where the configuration comes from.
        in_process: the run is of one process.
    """
    staged = stage_sources(config, run, new=fresh or new_replay)
    if fresh:
        erase_run(run)
        run.make()
    anew = new_replay and run.exists and not in_process
    events = _change_events(config, run) if run.exists else []

    def save_settings() -> None:
        EventFile(run.events_file).add(*events)
        new_best = NEW_BEST if begins_new_best(config, run.root) else run.config_file.name
        publish_config(config, run.root / (NEW_REPLAY if anew else new_best), note)
        complete_decided(run)

    # A new replay's samples are of the new settings, and check_resume has loaded the checkpoint.
    loads = run.exists and run.newest_checkpoint() is not None and not new_replay
    if not loads:
        save_settings()
    if run.exists and not in_process:
        make_counted_replay(config, run)
    place_sources(config, run, staged)
    run_id = run.ensure_id(in_process=in_process)
    return PreparedStart(run_id, save_settings if loads else _saved_already)


def _saved_already() -> None:
    """Do nothing: a start that has nothing to load has saved its settings."""


def _change_events(config: RunConfig, run: RunDirectory) -> list[RunEvent]:
    """Return an event for each setting that this start changes."""
    epoch = run.identity().epoch + 1
    steps = run.newest_checkpoint() or 0
    at = epoch, steps, read_summary(run.root).env_steps or 0
    changes = list_changes(config, run.root)
    return [RunEvent(time.time(), "changed", c.key, c.values, *at) for c in changes]


def erase_run(run: RunDirectory) -> None:
    """Erase the run in a directory, and its own replay in another directory.

    Raises:
        ServicesError: something of it is still there.
    """
    places = [run.root / NEW_BEST, run.root / NEW_REPLAY]  # first: nothing completes them any more
    places += [run.checkpoints, run.best, run.best_before, run.replay, run.tensorboard, run.live]
    places.append(run.root / "wandb")
    elsewhere = replay_elsewhere(run)
    if elsewhere is not None:
        places.append(elsewhere)
    places += [run.root / "run.json", run.summary_file, run.events_file]
    places += [run.provenance_file, run.report_file]
    recorded = ("records.csv", "records.jsonl", "mlflow.json", "wandb.json")
    for place in (*places, *(run.root / name for name in recorded)):
        erase(place)
