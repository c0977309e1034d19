"""`train_async`: the one call of the upstream library, for users who script.

::

    from vedette_services.training import train_async

    result = train_async(env="CartPole-v1", agent="dqn", stop={"max_opts": 5000})
    print(result.summary["eval"]["best_return_mean"], result.run)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vedette_services.config import RunConfig, load_config
from vedette_services.config.checks import check_config
from vedette_services.config.loading import Loaded
from vedette_services.config.settings import merged, put
from vedette_services.endings import already_done, summary_of
from vedette_services.live import View
from vedette_services.local_run import run_here
from vedette_services.run_names import default_out
from vedette_services.sweep.runner import Sweep, jobs_within, report_on
from vedette_services.sweep.trials import plan


@dataclass(frozen=True, slots=True)
class TrainResult:
    """What came out of a training.

    Args:
        summary: as ``RUN/summary.json`` has it.
        run: the run's directory, for `eval`, `export` and resuming.
    """

    summary: dict[str, Any]
    run: Path


@dataclass(frozen=True, slots=True)
class SweepResult:
    """What came out of several trainings.

    Args:
        results: of each run, by its name: ``seed-0``, ``agent.learning_rate=0.001/seed-0``.
        failed: what went wrong, by name; these have no result to go by.
        report: the page about all of them; None where none has begun.
    """

    results: dict[str, TrainResult]
    failed: dict[str, str]
    report: Path | None


def train_async(
    config: RunConfig | None = None,
    *,
    out: str | Path | None = None,
    fresh: bool = False,
    force: bool = False,
    view: View | None = None,
    in_process: bool = False,
    **settings: Any,  # as a configuration file has them
) -> TrainResult:
    """Train on this machine until the run is over: a learner and one manager of actors.

    Ctrl-C ends the daemons and is raised again. From another thread than the main one it works
    as well, as long as that thread lives.

    Args:
        config: a whole configuration; none: made of `settings`.
        out: the run's directory; one with a checkpoint resumes. None: a new one in ``runs/``.
        fresh: begin a new run.
        force: with `fresh`, erase a run that is there.
        view: what shows it; none: nothing does.
        in_process: learn and act in this process, in lock step, so that a debugger sees all of it
            and two runs of one seed are the same.
        settings: the configuration's parts, such as ``env="CartPole-v1"``, ``agent="dqn"``,
            ``seed=1``, ``learner={"sync_interval": 10}``; presets apply as on the command line.

    Returns:
        The summary and where the run is.

    Raises:
        UsageError: something in it cannot work; nothing was started.
        DaemonFailedError: a daemon ended badly.
        UnsavedEndError: the run has ended, and its end could not be written.
    """
    note = ""
    if config is None:
        loaded = _configured(settings, {})
        config, note = loaded.config, loaded.note
    elif settings:
        raise TypeError(f"train_async takes a config or settings, not both: {', '.join(settings)}")
    run = Path(out) if out is not None else default_out(config)
    check_config(config, run, fresh=fresh, force=force, in_process=in_process)
    if not fresh and already_done(run, config.stop):
        summary = summary_of(run)
    elif in_process:
        from vedette_services.in_process.run import run_in_process

        summary = run_in_process(config, run, fresh=fresh, note=note, view=view)
    else:
        summary = run_here(config, run, fresh=fresh, note=note, view=view)
    return TrainResult(summary, run)


def train_seeds(
    seeds: int = 1,
    *,
    sweep: Mapping[str, Sequence[Any]] | None = None,
    out: str | Path,
    jobs: int | None = None,
    fresh: bool = False,
    force: bool = False,
    in_process: bool = False,
    say: Callable[[str], None] = lambda _: None,
    **settings: Any,  # as a configuration file has them
) -> SweepResult:
    """Train several seeds, and values of settings, as ``vedette run --seeds N --sweep ...`` does.

    Ctrl-C ends all of them and is raised again; the same call goes on with what is left.

    Args:
        seeds: how many, counted on from the configured one.
        sweep: the values that a dotted key is to have, such as
            ``{"agent.learning_rate": [1e-3, 3e-4]}``; every combination is run.
        out: the directory with all of them, each in one of its own.
        jobs: that many at a time; as the cores allow, where None.
        fresh, force: as `train_async` takes them, for each.
        in_process: each in one process of its own, in lock step.
        say: takes lines for people, such as `print`.
        settings: as `train_async` takes them.

    Returns:
        What came of each, and where the report on all is.

    Raises:
        UsageError: something in it cannot work; nothing was started.
    """
    directory = Path(out)
    trials = plan(
        lambda changes: _configured(settings, changes).config, directory, seeds=seeds, sweep=sweep
    )
    for trial in trials:
        check_config(trial.config, trial.out, fresh=fresh, force=force, in_process=in_process)
    side_by_side = jobs or jobs_within(trials[0].config, in_process=in_process)
    outcomes = Sweep(
        trials, directory, jobs=side_by_side, fresh=fresh, in_process=in_process, say=say
    ).run()
    good = [outcome.trial for outcome in outcomes if not outcome.status]
    return SweepResult(
        {trial.name: TrainResult(summary_of(trial.out), trial.out) for trial in good},
        {outcome.trial.name: outcome.said for outcome in outcomes if outcome.status},
        report_on(trials, directory),
    )


def _configured(settings: Mapping[str, Any], changes: Mapping[str, Any]) -> Loaded:
    """The configuration that settings and changes of dotted keys come to."""
    short = {"env": "id", "agent": "name"}
    table = {
        name: {short[name]: value} if name in short and isinstance(value, str) else value
        for name, value in settings.items()
    }
    for key, value in changes.items():
        own: dict[str, Any] = {}
        put(own, key.split("."), value)
        table = merged(table, own)
    return load_config(table=table, environment={})
