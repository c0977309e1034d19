"""The commands as functions; ``import vedette`` gives all of them.

Errors are a `ServicesError` or `RlError`, whose text is the line that the command would print.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Unpack

from vedette.live import View
from vedette.local.daemons import run_locally
from vedette.settings import Settings as Settings
from vedette.settings import settings_table, spell_out
from vedette.sweep import StartOptions, Sweep, jobs_within, plan_trials, report_on
from vedette_rl.agents.config import AgentConfig as AgentConfig
from vedette_rl.agents.dqn.config import DqnConfig
from vedette_rl.agents.exploration import ExplorationConfig as ExplorationConfig
from vedette_rl.agents.iqn.config import IqnConfig
from vedette_rl.agents.sac.config import SacConfig
from vedette_rl.core import Evaluation as Evaluation
from vedette_rl.core import Policy as Policy
from vedette_rl.envs.config import EnvConfig as EnvConfig
from vedette_rl.envs.config import WrapperConfig as WrapperConfig
from vedette_rl.import_by_name import module_being_imported
from vedette_rl.recording.reading import Curve as Curve
from vedette_rl.recording.reading import read_curves
from vedette_rl.replay.config import ReplayConfig as ReplayConfig
from vedette_services.config import ActorsConfig as ActorsConfig
from vedette_services.config import EvaluationConfig as EvaluationConfig
from vedette_services.config import LearnerConfig as LearnerConfig
from vedette_services.config import RunConfig as RunConfig
from vedette_services.config import StopConfig as StopConfig
from vedette_services.config import load_config
from vedette_services.config.loading import LoadedConfig
from vedette_services.config.settings import merge_tables, set_value
from vedette_services.errors import UsageError
from vedette_services.net.addresses import Address
from vedette_services.net.keys import ClientKeys
from vedette_services.run.checks import check_config
from vedette_services.run.directory import default_out
from vedette_services.run.finished import FinishedRun
from vedette_services.run.outcome import describe_already_done, read_summary
from vedette_services.run.resume import saved_config
from vedette_services.run.status import Status as Status
from vedette_services.run.status_text import summary_lines

Place = str | Path

DQN = DqnConfig
IQN = IqnConfig
SAC = SacConfig


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


@dataclass(frozen=True, slots=True, repr=False)
class Result:
    """The result of a training run. Its text is what ``vedette run`` prints at the end.

    Args:
        summary: the last status, with the fields of ``RUN/summary.json``.
        run: the run's directory.
    """

    summary: Status
    run: Path

    def __str__(self) -> str:
        return "\n".join(summary_lines(self.summary, str(self.run)))

    def __repr__(self) -> str:
        best = self.best_return
        return f"Result(run={str(self.run)!r}, {self.exit_reason}, best_return={best})"

    @property
    def exit_reason(self) -> str:
        """Why the run ended, such as ``target_return`` or ``max_env_steps``."""
        return self.summary.exit_reason

    @property
    def best_return(self) -> float | None:
        """Mean return of the best evaluation; None if there was none."""
        return self.summary.eval.best_return_mean

    @property
    def last_return(self) -> float | None:
        """Mean return of the last evaluation; None if there was none."""
        return self.summary.eval.return_mean

    def evaluate(
        self,
        *,
        episodes: int | None = None,
        seed: int | None = None,
        checkpoint: str | None = None,
        video: Place | None = None,
    ) -> Evaluation:
        """Play its policy greedily; arguments as of `vedette.evaluate`."""
        return evaluate(self.run, episodes=episodes, seed=seed, checkpoint=checkpoint, video=video)

    def load_policy(self, *, checkpoint: str | None = None, seed: int = 0) -> Policy:
        """Load its policy, whose actions are the environment's own.

        Args:
            checkpoint: optimization steps of a checkpoint, or ``latest``. None: the best model.
            seed: of exploration, where it is asked to explore.
        """
        from vedette_services.run.export import policy_of

        run = FinishedRun.open(self.run)
        return policy_of(run, run.load_model(checkpoint)).make_environment_policy(seed=seed)

    def curves(self) -> dict[str, Curve]:
        """Read its curves by name, as `vedette.curves` does."""
        return curves(self.run)

    def report(self, out: Place | None = None) -> Path:
        """Write its HTML report, as `vedette.report` does; returns the file."""
        return report(self.run, out=out)


@dataclass(frozen=True, slots=True)
class SweepResult:
    """The results of several training runs.

    Args:
        results: the result of each run by its name, such as ``seed-0`` or
            ``agent.learning_rate=0.001/seed-0``.
        failed: the errors of the runs that failed, by name; they have no result.
        report: the HTML report on all of them; None if none has started.
    """

    results: dict[str, Result]
    failed: dict[str, str]
    report: Path | None


@spell_out
def train(
    config: RunConfig | Place | None = None,
    *,
    out: Place | None = None,
    fresh: bool = False,
    force: bool = False,
    new_replay: bool = False,
    in_process: bool = False,
    progress: bool | View = True,
    **settings: Unpack[Settings],
) -> Result:
    """Train on this machine until the run is over: a learner and one manager of actors.

    ::

        result = vedette.train(
            env="Pendulum-v1",
            agent=vedette.SAC(learning_rate=1e-3),
            actors=4,
            stop=vedette.StopConfig(max_env_steps=50_000),
        )

    The actors are processes, which import a class or function that is given as `env`. In a script
    that defines one, call this under ``if __name__ == "__main__":``.

    Ctrl-C stops the daemons and is raised again. It may be called from a thread other than the
    main one, as long as that thread lives.

    Args:
        config: a configuration file under `settings`, or a complete configuration without any.
        out: the run's directory; one with a checkpoint resumes. None: a new one in ``runs/``.
        fresh: start a new run.
        force: with `fresh`, erase a run that is there.
        new_replay: resume with an empty replay.
        in_process: learn and act in this process, in lock step, so that a debugger sees all of it
            and two runs of one seed are the same.
        progress: show the run while it goes on: in place in a notebook and on a terminal, else a
            line every few seconds; or a `vedette.live.View` that shows it.
        settings: the parts of the configuration: `Settings`.

    Returns:
        The summary and where the run is.

    Raises:
        UsageError: a setting cannot work; nothing was started.
        DaemonFailedError: a daemon failed.
        UnsavedEndError: the run has ended, but its last state could not be written.
    """
    _refuse_import("train")
    note, decided = "", list[str]()
    if isinstance(config, RunConfig):
        if settings:
            names = ", ".join(settings)
            raise TypeError(f"train takes a whole configuration or settings, not both: {names}")
    else:
        saved = saved_config(None if out is None else Path(out), fresh=fresh)
        loaded = _configure(config, settings_table(settings, shared=not in_process), {}, saved)
        config, note, decided = loaded.config, loaded.note, loaded.decided
    run = Path(out) if out is not None else default_out(config)
    erase = {"fresh": fresh, "new_replay": new_replay}
    lines = check_config(config, run, force=force, in_process=in_process, **erase)
    if not fresh and describe_already_done(run, config.stop):
        return Result(read_summary(run), run)
    view = _view(progress, config, in_process=in_process)
    for line in (*decided, *lines):
        view.print_line(line)
    if in_process:
        from vedette.local.in_process import run_in_process

        summary = run_in_process(config, run, note=note, view=view, **erase)
    else:
        summary = run_locally(config, run, note=note, view=view, **erase)
    view.show(summary)
    return Result(summary, run)


train_async = train
"""`train` by the name that it has in border-async-trainer."""


@spell_out
def train_seeds(
    seeds: int = 1,
    *,
    sweep: Mapping[str, Sequence[Any]] | None = None,
    out: Place,
    jobs: int | None = None,
    fresh: bool = False,
    force: bool = False,
    new_replay: bool = False,
    in_process: bool = False,
    progress: bool | Callable[[str], None] = True,
    **settings: Unpack[Settings],
) -> SweepResult:
    """Train several seeds, and values of settings, as ``vedette run --seeds N --sweep ...`` does.

    Ctrl-C stops all of them and is raised again; the same call continues with what is left.

    Args:
        seeds: how many, counted from the configured one.
        sweep: values for dotted keys, such as
            ``{"agent.learning_rate": [1e-3, 3e-4]}``; every combination is run.
        out: the directory of all runs; each gets one below it.
        jobs: how many at a time. None: as many as the cores allow.
        fresh, force, new_replay: as `train` takes them, for each.
        in_process: run each in one process of its own, in lock step.
        progress: print lines of progress, the newest ones in place in a notebook; or a function
            that is called with each line.
        settings: the parts of the configuration: `Settings`.

    Returns:
        The result of each run, and the report on all.

    Raises:
        UsageError: a setting cannot work; nothing was started.
    """
    _refuse_import("train_seeds")
    directory, table = Path(out), settings_table(settings, shared=True)
    options: StartOptions = {
        "fresh": fresh,
        "new_replay": new_replay,
        "in_process": in_process,
    }
    trials = plan_trials(
        lambda changes, saved: _configure(None, table, changes, saved).config,
        directory,
        seeds=seeds,
        sweep=sweep,
        fresh=fresh,
    )
    for trial in trials:
        check_config(trial.config, trial.out, force=force, **options)
    side_by_side = jobs or jobs_within(trials[0].config, in_process=in_process)
    say = _say(progress)
    outcomes = Sweep(trials, directory, jobs=side_by_side, say=say, **options).run()
    good = [outcome.trial for outcome in outcomes if not outcome.status]
    return SweepResult(
        {trial.name: Result(read_summary(trial.out), trial.out) for trial in good},
        {outcome.trial.name: outcome.message for outcome in outcomes if outcome.status},
        report_on(trials, directory),
    )


def _refuse_import(function: str) -> None:
    """Refuse to train in a script that is only imported, for its environment or agent."""
    if module := module_being_imported():
        raise UsageError(
            f"{module} calls vedette.{function} when it is imported: put the call under "
            '`if __name__ == "__main__":`'
        )


def _configure(
    path: Place | None, table: Mapping[str, Any], changes: Mapping[str, Any], saved: Path | None
) -> LoadedConfig:
    """The configuration that a file, settings and changes of dotted keys come to."""
    for key, value in changes.items():
        own: dict[str, Any] = {}
        set_value(own, key.split("."), value)
        table = merge_tables(table, own)
    file = None if path is None else Path(path)
    return load_config(file, table=table, environment={}, saved=saved)


def _view(progress: bool | View, config: RunConfig, *, in_process: bool) -> View:
    """The view of a run. One that draws would disturb the debugger of a run in this process, and
    the views of other threads."""
    from vedette.live import LineView, view_for
    from vedette.live.notebook import NotebookView, find_display

    if isinstance(progress, View):
        return progress
    title = f"{config.agent.name} on {config.env.id}"
    if not progress:
        return View()
    if display := find_display():
        return NotebookView(title, display)
    if in_process or threading.current_thread() is not threading.main_thread():
        return LineView()
    return view_for(title)


def _say(progress: bool | Callable[[str], None]) -> Callable[[str], None]:
    """What takes the lines of several runs."""
    from vedette.live.notebook import NotebookLines, find_display

    if not isinstance(progress, bool):
        return progress
    if not progress:
        return lambda _: None
    display = find_display()
    return NotebookLines(display).add if display else print
