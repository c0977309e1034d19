"""What a start changes in a run's directory before anything learns.

::

    saved = settings_to_resume(out, start)      # first: before the settings are loaded
    plan = plan_start(config, out, start)       # changes nothing
    prepared = prepare_start(plan, run)         # `run` is locked
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from vedette_rl.errors import RlError
from vedette_rl.replay.commits import COMMITS, last_commit
from vedette_rl.replay.manifest import MANIFEST
from vedette_rl.replay.ring_files import read_floor
from vedette_rl.storage.atomic_files import sync_directory
from vedette_services.config.import_permission import check_run_imports
from vedette_services.config.loading import read_config, read_toml
from vedette_services.config.run_config import RunConfig
from vedette_services.config.saving import publish_config
from vedette_services.errors import RunChangedError, UsageError
from vedette_services.run.directory import REPORT_FILE, RunDirectory
from vedette_services.run.events import EventFile, RunEvent
from vedette_services.run.limiter_record import LimiterRecord, next_record
from vedette_services.run.outcome import read_summary, summary_counts
from vedette_services.run.replay_layout import (
    make_counted_replay,
    make_run_limiter,
    replay_directory,
)
from vedette_services.run.resume import (
    NEW_BEST,
    NEW_REPLAY,
    begins_new_best,
    has_decided,
    replay_elsewhere,
    saved_config,
    state_of_run,
)
from vedette_services.run.ring_stamp import read_counts
from vedette_services.run.run_files import FILES, FOLDERS, erase_file, erase_written, is_report
from vedette_services.run.sources import place_sources, stage_sources
from vedette_services.run.start import Start
from vedette_services.run.start_plan import StartPlan


def settings_to_resume(out: Path | None, start: Start) -> Path | None:
    """Return the configuration that a start in this directory goes on with; None if a run begins.

    A change of settings in which an earlier start was killed is completed before: it may erase the
    run's replay, as that start had decided.

    Args:
        out: the run's directory; None: a new one.

    Raises:
        RunInUseError: a change is to be completed, and a learner runs here.
    """
    if out is None or start.fresh:
        return None
    complete_change(out, start)
    return saved_config(out)


def complete_change(out: Path, start: Start) -> None:
    """Complete the change of settings that a start had decided on when it was killed.

    Raises:
        RunInUseError: a learner runs here.
        ImportPermissionError: the settings import an agent that nobody has allowed.
    """
    run = RunDirectory(out)
    if run.is_ours and has_decided(run):
        for settings in filter(Path.exists, (*_decided(run), run.config_file)):
            agent = {"agent": read_toml(settings).get("agent")}
            check_run_imports(out, agent, start.allow_import)
        run.lock()
        try:
            complete_decided(run)
        finally:
            run.unlock()


def complete_decided(run: RunDirectory) -> None:
    """Change what changes with the settings that are decided on, and then these.

    A kill at any point leaves what another call completes.
    """
    for decided in filter(Path.exists, _decided(run)):
        if run.best.exists() and begins_new_best(read_config(decided), run.root):
            erase_written(run.best_before)
            run.best.rename(run.best_before)
        if decided.name == NEW_REPLAY:
            _erase_replay(run)
        decided.replace(run.config_file)
        sync_directory(run.root)


def _decided(run: RunDirectory) -> tuple[Path, Path]:
    """Return the files of settings that a start has decided on, which may not be there."""
    return run.root / NEW_BEST, run.root / NEW_REPLAY


def _erase_replay(run: RunDirectory) -> None:
    """Erase a run's replay; counts of samples go on, as of its last commit.

    The manifest goes last: by it a replay elsewhere is known to be the run's own.
    """
    places = [place for place in (run.replay, replay_elsewhere(run)) if place is not None]
    _keep_counts(run, places)
    for place in places:
        erase_written(place, "replay", last=MANIFEST)
    run.renew_id()


def _keep_counts(run: RunDirectory, places: Iterable[Path] = ()) -> None:
    """Note the newest counts that are known of a run whose replay goes, or is gone.

    The run has another id once its replay is gone, so that no batch that was sent before is
    inserted: the ledger that knew it is gone, too.
    """
    identity = run.identity()
    found = [read_counts(identity.run_id, place) for place in places]
    found += [identity.counted, summary_counts(run.root)]
    last = max(found, key=lambda counts: counts.env_steps)
    run.keep_counts(replace(last, in_flight=0, lost=last.lost + last.in_flight))


def _continue_without_replay(plan: StartPlan, run: RunDirectory) -> None:
    """Let the counts of a run go on whose replay somebody has deleted."""
    if (replay_directory(plan.config, run.root) / COMMITS).exists() or run.identity().epoch == 0:
        return
    _keep_counts(run)
    if any(run.identity().counted.counts()):
        run.renew_id()


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


def prepare_start(plan: StartPlan, run: RunDirectory) -> PreparedStart:
    """Make a locked directory ready for a start, as it was planned.

    Raises:
        RunChangedError: another start has been here since the plan; nothing has changed then.
        SettingError: a data set is torn or does not fit; nothing has changed then.
    """
    if state_of_run(run.root) != plan.seen:
        raise RunChangedError(run.root)
    config, start = plan.config, plan.start
    staged = stage_sources(config, run, plan.spaces, plan.sources)
    if start.fresh:
        erase_run(run)
        run.make()
    if run.exists and not start.in_process:
        _note_limiter(run)
    begins_replay = start.new_replay and run.exists and not start.in_process
    events = list(_change_events(plan, run)) if run.exists else []

    def save_settings() -> None:
        EventFile(run.events_file).add(*events)
        new_best = NEW_BEST if plan.new_best else run.config_file.name
        publish_config(config, run.root / (NEW_REPLAY if begins_replay else new_best), plan.note)
        complete_decided(run)

    # A new replay's samples are of the new settings, and the plan has loaded the checkpoint.
    loads = run.exists and run.newest_checkpoint() is not None and not start.new_replay
    if not loads:
        save_settings()
    if run.exists and not start.in_process:
        _continue_without_replay(plan, run)
        make_counted_replay(config, run, plan.layout)
    place_sources(config, run, staged)
    run_id = run.ensure_id(in_process=start.in_process)
    return PreparedStart(run_id, save_settings if loads else _saved_already)


def _note_limiter(run: RunDirectory) -> None:
    """Note of what the limiter was made in a run of an earlier version: by its configuration, which
    this start replaces."""
    saved = saved_config(run.root)
    if saved is None or run.identity().limiter is not None:
        return
    try:
        settings = make_run_limiter(read_config(saved)).settings
    except (RlError, UsageError):  # a step processor of before is not here any more
        settings = ()
    run.keep_limiter(LimiterRecord(settings))


def begin_balance(run: RunDirectory, config: RunConfig, count_draws: Callable[[int], int]) -> None:
    """Begin the balance of the limiter again where this start has made it of other settings.

    Args:
        run: whose replay is recovered already.
        count_draws: as `next_record` has it.
    """
    replay = replay_directory(config, run.root)
    inserted = last_commit(replay).inserted if (replay / COMMITS).exists() else 0
    limiter = make_run_limiter(config, read_floor(replay) if inserted else 0)
    run.keep_limiter(next_record(run.identity().limiter, limiter, inserted, count_draws))


def _saved_already() -> None:
    """Do nothing: a start that has nothing to load has saved its settings."""


def _change_events(plan: StartPlan, run: RunDirectory) -> Iterator[RunEvent]:
    """Yield an event for each setting that this start changes."""
    epoch = run.identity().epoch + 1
    opt_steps = run.newest_checkpoint() or 0
    env_steps = read_summary(run.root).env_steps or 0
    for change in plan.changes:
        yield RunEvent(
            time.time(), "changed", change.key, change.values, epoch, opt_steps, env_steps
        )


def erase_run(run: RunDirectory) -> None:
    """Erase the run in a directory, and its replay in another one: what a run writes, no more.

    Another run begins: the folder is known as a run's all the time.

    Raises:
        ServicesError: something of it is still there.
    """
    for name in (NEW_BEST, NEW_REPLAY):  # first: nothing completes them any more
        erase_file(run.root / name)
    if elsewhere := replay_elsewhere(run):
        erase_written(elsewhere, "replay")
    for name in FOLDERS:
        erase_written(run.root / name)
    for name in FILES:
        if name != REPORT_FILE or is_report(run.root / name):
            erase_file(run.root / name)
    run.begin_new_run()
    erase_file(run.config_file)  # last: by it a replay elsewhere is found
