"""The commands as functions; ``import vedette`` gives all of them.

Errors are a `ServicesError` or `RlError`, whose text is the line that the command would print.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vedette.live import View
from vedette.local.daemons import run_locally
from vedette.sweep import StartOptions, Sweep, jobs_within, plan_trials, report_on
from vedette_rl.core import Evaluation, Policy
from vedette_rl.recording.reading import Curve, read_curves
from vedette_services.config import RunConfig, load_config
from vedette_services.config.loading import LoadedConfig
from vedette_services.config.settings import merge_tables, set_value
from vedette_services.net.addresses import Address
from vedette_services.net.keys import ClientKeys
from vedette_services.run.checks import check_config
from vedette_services.run.directory import default_out
from vedette_services.run.finished import FinishedRun
from vedette_services.run.outcome import describe_already_done, read_summary
from vedette_services.run.resume import saved_config
from vedette_services.run.status import Status

Place = str | Path


def evaluate(
    run: Place,
    *,
    episodes: int | None = None,
    seed: int | None = None,
    checkpoint: str | None = None,
    video: Place | None = None,
    allow_import: Collection[str] = (),
) -> Evaluation:
    """Play a policy greedily, as ``vedette eval`` does.

    Args:
        run: the run's directory, where the run may still go on; an exported policy; or
            ``hf://USER/NAME`` of the Hugging Face Hub.
        episodes: how many to play. None: as many as the run's own evaluations.
        seed: seed of the first episode. None: that of the run's own evaluations.
        checkpoint: optimization steps of a checkpoint, or ``latest``. None: the best model.
        video: a ``.gif`` or ``.mp4`` of the first episode to write.
        allow_import: packages from which an exported policy may import.

    Returns:
        Every episode's return and length, and the model's version.

    Raises:
        NotARunError: there is no such run.
        NotInRunError: it has no such model.
        VideoError: no video can be made here.
    """
    from vedette.hub import evaluate_place

    found, _ = evaluate_place(
        run,
        episodes=episodes,
        seed=seed,
        checkpoint=checkpoint,
        video=Path(video) if video is not None else None,
        allow_import=allow_import,
    )
    return found


def load_policy(
    policy: Place, *, seed: int = 0, allow_import: bool | Collection[str] = False
) -> Policy:
    """Load a policy that was exported as ``numpy`` or ``safetensors``, or pushed; without torch.

    Args:
        policy: the file, or ``hf://USER/NAME`` of the Hugging Face Hub, with ``@REVISION`` for
            another one than the newest.
        seed: of exploration, where it is asked to explore.
        allow_import: import what the file names of your own (an agent, a network, an exploration):
            all of it, or that of these packages.

    Returns:
        The policy, whose actions are the environment's own.

    Raises:
        PolicyFileError: it is no such file, it is torn, or it names a module.
        HubError: the Hub has no such policy, or cannot be reached.
    """
    from vedette.hub import local_policy
    from vedette_rl.exported import load_policy as load_file

    return load_file(local_policy(policy), seed=seed, allow_import=allow_import)


def push_policy(
    run: Place,
    repository: str,
    *,
    private: bool = False,
    checkpoint: str | None = None,
    episodes: int | None = None,
) -> str:
    """Push a run's policy to the Hugging Face Hub with a model card, as ``vedette push`` does.

    Args:
        run: the run's directory.
        repository: ``USER/NAME``; made if it does not exist.
        private: make it a private one.
        checkpoint: optimization steps of a checkpoint, or ``latest``. None: the best model.
        episodes: to evaluate for the card. None: as many as the run's own evaluations.

    Returns:
        The address of its page.

    Raises:
        NotARunError: there is no such run.
        NotInRunError: it has no such model.
        HubError: there is no token, or the Hub refuses it.
    """
    from vedette import hub

    return hub.push_policy(
        Path(run), repository, private=private, checkpoint=checkpoint, episodes=episodes
    )


def export_policy(
    run: Place, out: Place, *, format: str = "numpy", checkpoint: str | None = None
) -> int:
    """Export the policy of a run to a file, as ``vedette export`` does.

    Args:
        run: the run's directory.
        out: the file; `load_policy` reads what ``numpy`` and ``safetensors`` write.
        format: ``numpy``, ``safetensors`` or ``onnx``.
        checkpoint: optimization steps of a checkpoint, or ``latest``. None: the best model.

    Returns:
        The version of the model.

    Raises:
        NotARunError: there is no such run.
        NotInRunError: it has no such model.
        UsageError: there is no such format, or it needs an extra that is not installed.
    """
    from vedette_services.run import export as exporting

    exporting.check_export("policy", format, Path(out))
    found = FinishedRun.open(Path(run))
    return exporting.export_policy(found, format, Path(out), checkpoint).model.version


def export_replay(run: Place, out: Place, format: str = "npz") -> int:
    """Write the live rows of a run's replay, oldest first, one array a column.

    Args:
        run: the run's directory.
        out: the file, or the new folder of a ``minari`` dataset.
        format: ``npz``, or ``minari`` for its whole episodes.

    Returns:
        The number of rows, or of episodes.

    Raises:
        NotARunError: there is no such run.
        NotInRunError: it has no replay on disk.
        UsageError: there is no such format, or it needs an extra that is not installed.
    """
    from vedette_services.run import export as exporting

    exporting.check_export("replay", format, Path(out))
    return exporting.export_replay(FinishedRun.open(Path(run)), format, Path(out))


def status(
    learner: str = "127.0.0.1:5555", *, keys: Place | None = None, timeout_s: float = 5.0
) -> Status | None:
    """Return the status of a learner, as ``vedette status --json`` prints it.

    Args:
        learner: ``HOST`` or ``HOST:PORT``.
        keys: folder of the keys that ``vedette keys`` made for this host. None: no keys.
        timeout_s: how long to wait for an answer.

    Returns:
        The status; None if no learner answers.

    Raises:
        AddressError: `learner` is no address.
        KeysError: the keys are missing or damaged.
        RefusedError: the learner refuses this client.
    """
    from vedette_services.run.status_client import ask_status

    shown = ClientKeys.read(Path(keys)) if keys is not None else None
    return ask_status(Address.parse(learner), timeout_s, shown)


def report(*runs: Place, out: Place | None = None) -> Path:
    """Write the HTML report of a run, or of several runs compared, as ``vedette report`` does.

    Args:
        runs: run directories, or folders of them, finished or not.
        out: the file. None: ``report.html`` in the one directory given, else in the current one.

    Returns:
        The file.

    Raises:
        NotARunError: one of them holds no run.
    """
    from vedette.reports import write_report

    return write_report(runs, out)


def curves(run: Place) -> dict[str, Curve]:
    """Read the curves of a run, by name: ``eval/mean_reward``, ``train/loss``, ...

    Args:
        run: the run's directory; the run may still go on.

    Returns:
        Steps, times and values of each curve as arrays; empty if nothing was recorded.
    """
    return read_curves(Path(run)).curves


@dataclass(frozen=True, slots=True)
class TrainResult:
    """The result of a training run.

    Args:
        summary: with the fields of ``RUN/summary.json``.
        run: the run's directory, for `eval`, `export` and resuming.
    """

    summary: Status
    run: Path


@dataclass(frozen=True, slots=True)
class SweepResult:
    """The results of several training runs.

    Args:
        results: the result of each run by its name, such as ``seed-0`` or
            ``agent.learning_rate=0.001/seed-0``.
        failed: the errors of the runs that failed, by name; they have no result.
        report: the HTML report on all of them; None if none has started.
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
    new_replay: bool = False,
    view: View | None = None,
    in_process: bool = False,
    **settings: Any,  # as a configuration file has them
) -> TrainResult:
    """Train on this machine until the run is over: a learner and one manager of actors.

    Ctrl-C stops the daemons and is raised again. It may be called from a thread other than the
    main one, as long as that thread lives.

    Args:
        config: a complete configuration. None: made from `settings`, and those of a run that
            resumes.
        out: the run's directory; one with a checkpoint resumes. None: a new one in ``runs/``.
        fresh: start a new run.
        force: with `fresh`, erase a run that is there.
        new_replay: resume with an empty replay.
        view: shows the run while it goes on. None: nothing does.
        in_process: learn and act in this process, in lock step, so that a debugger sees all of it
            and two runs of one seed are the same.
        settings: the parts of the configuration, such as ``env="CartPole-v1"``, ``agent="dqn"``,
            ``seed=1``, ``learner={"sync_interval": 10}``; presets apply as on the command line.

    Returns:
        The summary and where the run is.

    Raises:
        UsageError: a setting cannot work; nothing was started.
        DaemonFailedError: a daemon failed.
        UnsavedEndError: the run has ended, but its last state could not be written.
    """
    note = ""
    if config is None:
        place = None if out is None else Path(out)
        loaded = _configured(settings, {}, saved_config(place, fresh=fresh))
        config, note = loaded.config, loaded.note
    elif settings:
        raise TypeError(f"train_async takes a config or settings, not both: {', '.join(settings)}")
    run = Path(out) if out is not None else default_out(config)
    erase = {"fresh": fresh, "new_replay": new_replay}
    check_config(config, run, force=force, in_process=in_process, **erase)
    if not fresh and describe_already_done(run, config.stop):
        summary = read_summary(run)
    elif in_process:
        from vedette.local.in_process import run_in_process

        summary = run_in_process(config, run, note=note, view=view, **erase)
    else:
        summary = run_locally(config, run, note=note, view=view, **erase)
    return TrainResult(summary, run)


def train_seeds(
    seeds: int = 1,
    *,
    sweep: Mapping[str, Sequence[Any]] | None = None,
    out: str | Path,
    jobs: int | None = None,
    fresh: bool = False,
    force: bool = False,
    new_replay: bool = False,
    in_process: bool = False,
    say: Callable[[str], None] = lambda _: None,
    **settings: Any,  # as a configuration file has them
) -> SweepResult:
    """Train several seeds, and values of settings, as ``vedette run --seeds N --sweep ...`` does.

    Ctrl-C stops all of them and is raised again; the same call continues with what is left.

    Args:
        seeds: how many, counted from the configured one.
        sweep: values for dotted keys, such as
            ``{"agent.learning_rate": [1e-3, 3e-4]}``; every combination is run.
        out: the directory of all runs; each gets one below it.
        jobs: how many at a time. None: as many as the cores allow.
        fresh, force, new_replay: as `train_async` takes them, for each.
        in_process: run each in one process of its own, in lock step.
        say: called with each line of progress, such as `print`.
        settings: as `train_async` takes them.

    Returns:
        The result of each run, and the report on all.

    Raises:
        UsageError: a setting cannot work; nothing was started.
    """
    directory = Path(out)
    options: StartOptions = {
        "fresh": fresh,
        "new_replay": new_replay,
        "in_process": in_process,
    }
    trials = plan_trials(
        lambda changes, saved: _configured(settings, changes, saved).config,
        directory,
        seeds=seeds,
        sweep=sweep,
        fresh=fresh,
    )
    for trial in trials:
        check_config(trial.config, trial.out, force=force, **options)
    side_by_side = jobs or jobs_within(trials[0].config, in_process=in_process)
    outcomes = Sweep(trials, directory, jobs=side_by_side, say=say, **options).run()
    good = [outcome.trial for outcome in outcomes if not outcome.status]
    return SweepResult(
        {trial.name: TrainResult(read_summary(trial.out), trial.out) for trial in good},
        {outcome.trial.name: outcome.message for outcome in outcomes if outcome.status},
        report_on(trials, directory),
    )


def _configured(
    settings: Mapping[str, Any], changes: Mapping[str, Any], saved: Path | None
) -> LoadedConfig:
    """The configuration that settings and changes of dotted keys come to."""
    short = {"env": "id", "agent": "name"}
    table = {
        name: {short[name]: value} if name in short and isinstance(value, str) else value
        for name, value in settings.items()
    }
    for key, value in changes.items():
        own: dict[str, Any] = {}
        set_value(own, key.split("."), value)
        table = merge_tables(table, own)
    return load_config(table=table, environment={}, saved=saved)
