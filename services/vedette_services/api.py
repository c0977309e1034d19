"""The command line as functions: what each command does, in a line of Python.

::

    from vedette_services import api

    result = api.train_async(env="CartPole-v1")
    print(api.evaluate(result.run, episodes=100).return_mean)
    api.export_policy(result.run, "policy.npz")
    api.report(result.run)

What cannot be done raises a `ServicesError` or `RlError`, whose text is the line that the command
would print.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from vedette_rl.core import Evaluation
from vedette_rl.exported import load_policy
from vedette_rl.recording.reading import Curve
from vedette_rl.recording.reading import read_curves as _read_curves
from vedette_services.addresses import Address
from vedette_services.finished_run import FinishedRun
from vedette_services.keys import ClientKeys
from vedette_services.training import SweepResult, TrainResult, train_async, train_seeds

__all__ = [
    "SweepResult",
    "TrainResult",
    "curves",
    "evaluate",
    "export_policy",
    "export_replay",
    "load_policy",
    "report",
    "status",
    "train_async",
    "train_seeds",
]

Place = str | Path


def evaluate(
    run: Place,
    *,
    episodes: int | None = None,
    seed: int | None = None,
    checkpoint: str | None = None,
    video: Place | None = None,
) -> Evaluation:
    """Play the policy of a run greedily, as ``vedette eval`` does.

    Args:
        run: its directory; it may still be going on.
        episodes: as many as the run's own evaluations play, where None.
        seed: of the first episode; that of the run's own evaluations, where None.
        checkpoint: its optimization steps, or ``latest``; the best model, where None.
        video: a ``.gif`` or ``.mp4`` of the first episode to write.

    Returns:
        Every episode's return and length, and the model's version.

    Raises:
        NotARunError: there is no such run.
        NotInRunError: it has no such model.
        FilmError: the film cannot be made here.
    """
    from vedette_services.evaluating import evaluate_run

    found, _ = evaluate_run(
        Path(run),
        episodes=episodes,
        seed=seed,
        checkpoint=checkpoint,
        video=Path(video) if video is not None else None,
    )
    return found


def export_policy(
    run: Place, out: Place, *, format: str = "numpy", checkpoint: str | None = None
) -> int:
    """Write the policy of a run as a file of its own, as ``vedette export`` does.

    Args:
        run: its directory.
        out: the file; `load_policy` reads what ``numpy`` and ``safetensors`` write.
        format: ``numpy``, ``safetensors`` or ``onnx``.
        checkpoint: its optimization steps, or ``latest``; the best model, where None.

    Returns:
        The version of the model.

    Raises:
        NotARunError: there is no such run.
        NotInRunError: it has no such model.
        UsageError: there is no such format, or it needs an extra that is not installed.
    """
    from vedette_services import exporting

    exporting.check_export("policy", format, Path(out))
    found = FinishedRun.open(Path(run))
    return exporting.export_policy(found, format, Path(out), checkpoint).model.version


def export_replay(run: Place, out: Place, format: str = "npz") -> int:
    """Write the live rows of a run's replay, oldest first, one array a column.

    Args:
        run: its directory.
        out: the file, or the new folder of a ``minari`` dataset.
        format: ``npz``, or ``minari`` for its whole episodes.

    Returns:
        How many rows, or episodes.

    Raises:
        NotARunError: there is no such run.
        NotInRunError: it has no replay on disk.
        UsageError: there is no such format, or it needs an extra that is not installed.
    """
    from vedette_services import exporting

    exporting.check_export("replay", format, Path(out))
    return exporting.export_replay(FinishedRun.open(Path(run)), format, Path(out))


def status(
    learner: str = "127.0.0.1:5555", *, keys: Place | None = None, timeout_s: float = 5.0
) -> dict[str, Any] | None:
    """How the run of a learner is doing, as ``vedette status --json`` says it.

    Args:
        learner: ``HOST`` or ``HOST:PORT``.
        keys: folder of the keys that ``vedette keys`` made for this host; None: none.
        timeout_s: wait no longer.

    Returns:
        The status; None where nobody answers.

    Raises:
        AddressError: `learner` is no address.
        KeysError: there are no sound keys.
        RefusedError: the learner does not let us in.
    """
    from vedette_services.status import ask_status

    shown = ClientKeys.read(Path(keys)) if keys is not None else None
    return ask_status(Address.parse(learner), timeout_s, shown)


def report(*runs: Place, out: Place | None = None) -> Path:
    """Write the HTML page about a run, or about how several compare, as ``vedette report`` does.

    Args:
        runs: run directories, or folders of them, finished or not.
        out: the file. None: ``report.html`` in the one directory given, or else here.

    Returns:
        The file.

    Raises:
        NotARunError: one of them holds no run.
    """
    from vedette_services.report import write_report

    return write_report(runs, out)


def curves(run: Place) -> dict[str, Curve]:
    """What a run has recorded, by name: ``eval/mean_reward``, ``train/loss``, ...

    Args:
        run: its directory; it may still be going on.

    Returns:
        Steps, times and values of each as arrays; nothing where nothing was recorded.
    """
    return _read_curves(Path(run)).curves
