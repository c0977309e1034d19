"""`train_async`: the one call of the upstream library, for users who script.

::

    from vedette_services.training import train_async

    result = train_async(env="CartPole-v1", agent="dqn", stop={"max_opts": 5000})
    print(result.summary["eval"]["best_return_mean"], result.run)
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vedette_services.config import RunConfig, load_config
from vedette_services.config.checks import check_config
from vedette_services.live import View
from vedette_services.local_run import run_here, summary_of
from vedette_services.run_names import default_out


@dataclass(frozen=True, slots=True)
class TrainResult:
    """What came out of a training.

    Args:
        summary: as ``RUN/summary.json`` has it.
        run: the run's directory, for `eval`, `export` and resuming.
    """

    summary: dict[str, Any]
    run: Path


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
    """
    note = ""
    if config is None:
        short = {"env": "id", "agent": "name"}
        table = {
            name: {short[name]: value} if name in short and isinstance(value, str) else value
            for name, value in settings.items()
        }
        loaded = load_config(table=table, environment={})
        config, note = loaded.config, loaded.note
    elif settings:
        raise TypeError(f"train_async takes a config or settings, not both: {', '.join(settings)}")
    run = Path(out) if out is not None else default_out(config)
    check_config(config, run, fresh=fresh, force=force)
    if in_process:
        from vedette_services.in_process.run import run_in_process

        run_in_process(config, run, fresh=fresh, note=note, view=view)
    else:
        run_here(config, run, fresh=fresh, note=note, view=view)
    return TrainResult(summary_of(run), run)
