"""The commands as functions, and `Replay` for custom training loops; ``import vedette`` gives all
of them.

Errors are a `ServicesError` or `RlError`, whose text is the line that the command would print.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack

from vedette.live import View
from vedette.local.daemons import run_locally
from vedette.results import Place
from vedette.results import Result as Result
from vedette.results import SweepResult as SweepResult
from vedette.results import curves as curves
from vedette.results import evaluate as evaluate
from vedette.results import export_policy as export_policy
from vedette.results import export_replay as export_replay
from vedette.results import load_policy as load_policy
from vedette.results import push_policy as push_policy
from vedette.results import report as report
from vedette.results import status as status
from vedette.settings import Settings as Settings
from vedette.settings import Values, configuration_table, spell_out, with_settings
from vedette.sweep import Sweep, describe_starts, jobs_within, plan_starts, plan_trials, report_on
from vedette_rl.agents.appo.config import AppoConfig
from vedette_rl.agents.dqn.config import DqnConfig
from vedette_rl.agents.exploration import ExplorationConfig as ExplorationConfig
from vedette_rl.agents.iqn.config import IqnConfig
from vedette_rl.agents.sac.config import SacConfig
from vedette_rl.agents.td3.config import Td3Config
from vedette_rl.core import Evaluation as Evaluation
from vedette_rl.core import Policy as Policy
from vedette_rl.core.agent_config import AgentConfig as AgentConfig
from vedette_rl.envs.config import EnvConfig as EnvConfig
from vedette_rl.envs.config import WrapperConfig as WrapperConfig
from vedette_rl.errors import PolicyFileError as PolicyFileError
from vedette_rl.errors import RlError as RlError
from vedette_rl.errors import SpaceLayoutError as SpaceLayoutError
from vedette_rl.errors import WrongSettingsError as WrongSettingsError
from vedette_rl.import_by_name import find_import_names, module_being_imported
from vedette_rl.recording.reading import Curve as Curve
from vedette_rl.replay.config import ReplayConfig as ReplayConfig
from vedette_rl.replay.config import SourceConfig as SourceConfig
from vedette_rl.settings.for_peers import is_learner_only
from vedette_rl.settings.plain_values import user_path
from vedette_services.actors.custom_loop import Actor as Actor
from vedette_services.actors.outbox.settings import OutboxSettings as OutboxSettings
from vedette_services.config import ActorsConfig as ActorsConfig
from vedette_services.config import EvaluationConfig as EvaluationConfig
from vedette_services.config import LearnerConfig as LearnerConfig
from vedette_services.config import RunConfig as RunConfig
from vedette_services.config import StopConfig as StopConfig
from vedette_services.config import load_config
from vedette_services.config.loading import ActorPlace, LoadedConfig, complete_config
from vedette_services.config.probing import EnvironmentProbe
from vedette_services.config.settings import merge_tables, set_value
from vedette_services.errors import ArgumentError as ArgumentError
from vedette_services.errors import NoModelError as NoModelError
from vedette_services.errors import NotARunError as NotARunError
from vedette_services.errors import RefusedError as RefusedError
from vedette_services.errors import ReplayWaitError as ReplayWaitError
from vedette_services.errors import RunOverError as RunOverError
from vedette_services.errors import ServicesError as ServicesError
from vedette_services.errors import SettingError as SettingError
from vedette_services.errors import UsageError, raise_errors
from vedette_services.learner.remote_replay import RemoteReplay
from vedette_services.net.addresses import Address
from vedette_services.net.keys import LearnerKeys
from vedette_services.run.directory import out_or_new, without_links
from vedette_services.run.outcome import describe_already_done, describe_not_applied, read_summary
from vedette_services.run.prepare import settings_to_resume
from vedette_services.run.start import Start
from vedette_services.run.start_plan import StartPlan
from vedette_services.run.start_planning import plan_start
from vedette_services.status.status import Status as Status

log = logging.getLogger("vedette.replay")

DQN = DqnConfig
IQN = IqnConfig
SAC = SacConfig
TD3 = Td3Config
APPO = AppoConfig


@spell_out
def train(
    config: RunConfig | Place | Values | None = None,
    *,
    out: Place | None = None,
    fresh: bool = False,
    force: bool = False,
    new_replay: bool = False,
    in_process: bool = False,
    progress: bool | View = True,
    allow_import: Collection[str] = (),
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
        config: a configuration file under `settings`, or a complete configuration without any. A
            dictionary is `settings`, too: ``{"env": "CartPole-v1"}``.
        out: the run's directory; one with a checkpoint resumes. None: a new one in ``runs/``.
        fresh: start a new run.
        force: with `fresh`, erase a run that is there.
        new_replay: resume with an empty replay.
        in_process: learn and act in this process, in lock step, so that a debugger sees all of it
            and two runs of one seed are the same.
        progress: show the run while it runs: in place in a notebook and on a terminal, else a
            line every few seconds; or a `vedette.live.View` that shows it.
        allow_import: packages that the settings of a run in `out` may import where somebody else
            has begun it.
        settings: the parts of the configuration: `Settings`.

    Returns:
        The summary and where the run is.

    Raises:
        UsageError: a setting cannot work; nothing was started.
        DaemonFailedError: a daemon failed.
        UnsavedEndError: the run has ended, but its last state could not be written.
    """
    _refuse_import("train")
    if isinstance(config, Mapping):
        settings = with_settings("train", config, settings)
        config = None
    start = Start.of(
        fresh=fresh,
        force=force,
        new_replay=new_replay,
        in_process=in_process,
        allow_import=allow_import,
    )
    given = None if out is None else user_path(out)
    saved = settings_to_resume(given, start)
    with EnvironmentProbe() as probe:
        loaded = _load(config, settings, saved, start, probe)
        with out_or_new(given, loaded.config) as run:
            plan = plan_start(loaded.config, run, start, note=loaded.comment, probe=probe)
    view = _view(progress, plan)
    done = describe_already_done(plan.out, plan.config.stop, new_best=plan.new_best)
    if done and not start.fresh:
        for line in filter(None, (done, describe_not_applied(plan.changes))):
            view.print_line(line)
        return Result(read_summary(plan.out), plan.out)
    for line in filter(None, (*loaded.decided, loaded.note, *plan.lines)):
        view.print_line(line)
    if start.in_process:
        from vedette.local.in_process import run_in_process

        summary = run_in_process(plan, view=view)
    else:
        summary = run_locally(plan, view=view)
    view.show(summary)
    return Result(summary, plan.out)


def _load(
    config: RunConfig | Place | None,
    settings: Settings,
    saved: Path | None,
    start: Start,
    probe: EnvironmentProbe,
) -> LoadedConfig:
    """The configuration of a start: a complete one, or that of a file and settings."""
    fit: ActorPlace = "in process" if start.in_process else "here"
    if not isinstance(config, RunConfig):
        table = configuration_table(settings, shared=not start.in_process)
        return _configure(config, table, {}, saved, fit, probe, start.allow_import)
    if settings:
        names = ", ".join(settings)
        raise TypeError(f"train takes a whole configuration or settings, not both: {names}")
    return complete_config(config, fit, probe)


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
    allow_import: Collection[str] = (),
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
        allow_import: as `train` takes it.
        settings: the parts of the configuration: `Settings`.

    Returns:
        The result of each run, and the report on all.

    Raises:
        UsageError: a setting cannot work; nothing was started.
    """
    _refuse_import("train_seeds")
    if jobs is not None and (type(jobs) is not int or jobs < 1):
        raise ArgumentError(f"jobs={jobs!r}: a number of runs at a time, from 1 on, or None")
    directory = without_links(user_path(out))
    table = configuration_table(settings, shared=True)
    fit: ActorPlace = "in process" if in_process else "here"
    start = Start.of(
        fresh=fresh,
        force=force,
        new_replay=new_replay,
        in_process=in_process,
        allow_import=allow_import,
    )
    with EnvironmentProbe() as probe:

        def configure(changes: Mapping[str, Any], saved: Path | None) -> LoadedConfig:
            return _configure(None, table, changes, saved, fit, probe, allow_import)

        trials = plan_trials(
            configure,
            directory,
            start,
            seeds=seeds,
            sweep=sweep,
        )
        trials = plan_starts(trials, start, probe)
    side_by_side = jobs or jobs_within(trials[0].config, in_process=in_process)
    say = _say(progress)
    for line in describe_starts(trials, directory, start):
        say(line)
    known = probe.known()
    outcomes = Sweep(trials, directory, start, jobs=side_by_side, say=say, known=known).run()
    good = [outcome.trial for outcome in outcomes if not outcome.status]
    return SweepResult(
        {trial.name: Result(read_summary(trial.out), trial.out) for trial in good},
        {outcome.trial.name: outcome.message for outcome in outcomes if outcome.status},
        report_on(trials, directory)[0],
    )


def _refuse_import(function: str) -> None:
    """Refuse to train in a script that is only imported, for its environment or agent."""
    if module := module_being_imported():
        raise UsageError(
            f"{module} calls vedette.{function} when it is imported: put the call under "
            '`if __name__ == "__main__":`'
        )


def _configure(
    path: Place | None,
    table: Mapping[str, Any],
    changes: Mapping[str, Any],
    saved: Path | None,
    fit: ActorPlace,
    probe: EnvironmentProbe,
    allow_import: Collection[str],
) -> LoadedConfig:
    """The configuration that a file, settings and changes of dotted keys come to."""
    for key, value in changes.items():
        own: dict[str, Any] = {}
        set_value(own, key.split("."), value)
        table = merge_tables(table, own)
    file = None if path is None else user_path(path)
    if file is not None and file.suffix != ".toml" and not file.exists():
        raise SettingError(str(path), "no such file", f'an environment is env="{path}"')
    return load_config(
        file,
        table=table,
        environment={},
        saved=saved,
        allow_import=allow_import,
        fit=fit,
        probe=probe,
    )


def _view(progress: bool | View, plan: StartPlan) -> View:
    """The view of a run. One that draws would disturb the debugger of a run in this process, and
    the views of other threads."""
    from vedette.live import LineView, view_for
    from vedette.live.notebook import NotebookView, find_display

    if isinstance(progress, View):
        return progress
    title = f"{plan.config.agent.name} on {plan.config.env.id}"
    if not progress:
        return View()
    if display := find_display():
        return NotebookView(title, display)
    if plan.start.in_process or threading.current_thread() is not threading.main_thread():
        return LineView()
    return view_for(title, run=None if plan.start.fresh else plan.out)


def _say(progress: bool | Callable[[str], None]) -> Callable[[str], None]:
    """Return the function that takes the lines of several runs."""
    from vedette.live.notebook import NotebookLines, find_display

    if not isinstance(progress, bool):
        return progress
    if not progress:
        return lambda _: None
    display = find_display()
    return NotebookLines(display).add if display else print


class Replay(RemoteReplay):
    """A durable replay that actors on any number of hosts feed, for a custom training loop.

    ::

        with vedette.Replay("runs/mine", env="Pendulum-v1", agent="my_policy:Actor") as replay:
            replay.publish(actor.state_dict())         # actors play from the first model on
            for batch in replay:                       # until a stop condition, or for ever
                learn(batch["obs"], batch["action"], batch["reward"], batch["next_obs"], ...)
                if replay.batches % 50 == 0:
                    replay.publish(actor.state_dict())

    Actors join as they join a learner: ``vedette actors --learner HOST:5555``, `vedette.Actor`, the
    C client. Their batches are stored and acknowledged as by ``vedette learner``: never twice, and
    none is lost when this process is killed. The same call continues.

    Settings that change nothing, or are others than those of the last start, and a draw that waits
    for long are warnings of the logger ``vedette.replay``; what else a start says is its
    information.

    Leaving the block tells the actors that the run is over; after an exception they wait for it to
    go on. One thread draws and publishes.

    Args:
        run: the run's directory, a new one or that of an earlier start or of ``vedette run``.
        config: a configuration file under `settings`, or a complete configuration without any.
        bind: where samples arrive; control and models are the two ports above.
        keys: folder of our keys and of those that we admit, as ``vedette keys new`` makes it.
        insecure: listen beyond this host without keys.
        fresh, force, new_replay, allow_import: as `train` takes them.
        settings: the parts of the configuration: `Settings`. `agent` is one of Vedette's, whose
            arrays you publish, or ``module:Name`` of a policy class, made as ``Name(spaces,
            seed=...)`` by each actor. Of `learner` only `warmup_period`, `pretrain_opts`,
            `max_managers` and `model_dtype` count, and `flush_record_interval` for the shares of
            `replay.sources` in the status; others, `evaluation`, and what of an agent no actor
            reads, are refused. ``actors=0`` draws from `replay.sources` alone.

    Raises:
        SettingError: a setting counts for nothing here, or cannot work.
        UsageError: a setting cannot work; nothing was started.
        PortInUseError: the address is taken.
    """

    @spell_out
    def __init__(
        self,
        run: Place,
        *,
        config: RunConfig | Place | None = None,
        bind: str = "127.0.0.1:5555",
        keys: Place | None = None,
        insecure: bool = False,
        fresh: bool = False,
        force: bool = False,
        new_replay: bool = False,
        allow_import: Collection[str] = (),
        **settings: Unpack[Settings],
    ) -> None:
        _refuse_import("Replay")
        out = user_path(run)
        folder = None if keys is None else user_path(keys)
        start = Start.of(
            fresh=fresh,
            force=force,
            new_replay=new_replay,
            custom_loop=True,
            allow_import=allow_import,
        )
        saved = settings_to_resume(out, start)
        if folder is not None:
            LearnerKeys.read(folder)
        address = Address.parse(bind).to_bind(keys=folder is not None, insecure=insecure)
        with EnvironmentProbe() as probe:
            loaded = _configure_loop(config, saved, settings, probe, allow_import)
            plan = plan_start(loaded.config, out, start, note=loaded.comment, probe=probe)
        for line in (*loaded.decided, *plan.lines):
            log.log(logging.WARNING if line in plan.notices else logging.INFO, "%s", line)
        super().__init__(plan, address, keys=folder)


_USED_OF_LEARNER = frozenset(
    {"warmup_period", "pretrain_opts", "max_managers", "model_dtype", "flush_record_interval"}
)

_AS_IT_IS = (("eval_interval", 0), ("init_from", None))
"""Settings of `learner` that say what a custom loop does anyway."""

_USED_OF_AGENT = frozenset({"batch_size"})
"""Settings that only a learner reads, and a custom loop's draws, too."""


def _refuse_ignored(settings: Settings) -> None:
    """Refuse settings that a custom loop is given by name and that count for nothing in it.

    Raises:
        SettingError: there is one.
        ManySettingsError: there are more.
    """
    why = "counts for nothing here: your own loop trains, saves and evaluates"
    parts = {"learner": settings.get("learner"), "evaluation": settings.get("evaluation")}
    raise_errors(
        [
            SettingError(f"{part}.{name}", why, "leave it out")
            for part, given in configuration_table(parts, shared=True).items()
            for name, value in given.items()
            if (part == "evaluation" or name not in _USED_OF_LEARNER)
            and (name, value) not in _AS_IT_IS
        ]
    )


def _refuse_ignored_of_agent(given: Collection[str], agent: AgentConfig) -> None:
    """Refuse settings of an agent that no actor reads. A custom agent, or part of one, may read
    any.

    Args:
        given: their names.

    Raises:
        SettingError: there is one.
        ManySettingsError: there are more.
    """
    kind = type(agent)
    if any(find_import_names(agent.model_dump(mode="json"))):
        return
    why = "counts for nothing here: your own loop learns, and no actor reads it"
    raise_errors(
        [
            SettingError(f"agent.{name}", why, "leave it out")
            for name in given
            if is_learner_only(kind, name) and name not in _USED_OF_AGENT
        ]
    )


def _configure_loop(
    config: RunConfig | Place | None,
    saved: Path | None,
    settings: Settings,
    probe: EnvironmentProbe,
    allow_import: Collection[str],
) -> LoadedConfig:
    """Return the configuration of a custom loop, which has no preset of ours."""
    _refuse_ignored(settings)
    if isinstance(config, RunConfig):
        if settings:
            names = ", ".join(settings)
            raise TypeError(f"Replay takes a whole configuration or settings, not both: {names}")
        own_preset = config.model_copy(update={"preset": "none"})
        loaded = complete_config(own_preset, "elsewhere", probe)
    else:
        own = {} if saved else {"preset": "none", "learner": {"eval_interval": 0}}
        table = merge_tables(own, configuration_table(settings, shared=True))
        loaded = _configure(config, table, {}, saved, "elsewhere", probe, allow_import)
        _refuse_ignored_of_agent(table.get("agent", {}), loaded.config.agent)
    if loaded.config.stop.target_return is not None:
        why = "is never reached: nobody evaluates the models of your own loop"
        raise SettingError("stop.target_return", why, "leave it out, and leave the loop yourself")
    return loaded
