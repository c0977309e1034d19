"""The results of a run, as functions: play its policy, export it, read its curves, report.

`vedette.api` has them all, and training.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from vedette.words_of_others import instead_of_result
from vedette_rl.core import Evaluation, LoadedPolicy
from vedette_rl.recording.reading import Curve, read_curves
from vedette_rl.settings.plain_values import user_path
from vedette_services.config.import_permission import check_allowed
from vedette_services.errors import ArgumentError, NotARunError
from vedette_services.net.addresses import Address
from vedette_services.net.keys import ClientKeys
from vedette_services.run.finding import is_run
from vedette_services.run.finished import FinishedRun
from vedette_services.status.status import Status
from vedette_services.status.text import summary_lines

Place = str | Path

Checkpoint = Literal["latest"] | int | str
"""A checkpoint: the last one, or one by its optimization steps, as a number or as text."""


def evaluate(
    run: Place,
    *,
    episodes: int | None = None,
    seed: int | None = None,
    checkpoint: Checkpoint | None = None,
    video: Place | None = None,
    allow_import: Collection[str] = (),
) -> Evaluation:
    """Play a policy greedily, as ``vedette eval`` does.

    Args:
        run: the run's directory, where the run may still go on; an exported policy; or
            ``hf://USER/NAME`` of the Hugging Face Hub.
        episodes: number of episodes to play. None: as many as the run's own evaluations.
        seed: seed of the first episode. None: of other episodes than the run's own evaluations, by
            which the best model was selected.
        checkpoint: optimization steps of a checkpoint, or ``latest``. None: the best model.
        video: a ``.gif`` or ``.mp4`` of the first episode to write.
        allow_import: packages from which an exported policy, or a run that somebody else has begun,
            may import.

    Returns:
        Every episode's return and length, and the model's version.

    Raises:
        ArgumentError: `episodes`, `seed` or `allow_import` is none that can be taken.
        NotARunError: there is no such run.
        ImportPermissionError: it imports what nobody has allowed.
        NotInRunError: it has no such model.
        VideoError: no video can be made here.
    """
    from vedette.hub import evaluate_place

    check_allowed(allow_import)
    _check_episodes(episodes)
    if seed is not None and (type(seed) is not int or seed < 0):
        raise ArgumentError(f"seed={seed!r}: a whole number from 0 on, or None")
    evaluation, _ = evaluate_place(
        run,
        episodes=episodes,
        seed=seed,
        checkpoint=_checkpoint_text(checkpoint),
        video=user_path(video) if video is not None else None,
        allow_import=allow_import,
    )
    return evaluation


def load_policy(
    policy: Place, *, seed: int = 0, allow_import: bool | Collection[str] = False
) -> LoadedPolicy:
    """Load a policy that was exported as ``numpy`` or ``safetensors``, or pushed; without torch.

    Args:
        policy: the file, or ``hf://USER/NAME`` of the Hugging Face Hub, with ``@REVISION`` for
            another one than the newest.
        seed: the seed of exploration, where the policy is asked to explore.
        allow_import: import the custom parts that the file names (an agent, a network, an
            exploration): all of them, or that of these packages.

    Returns:
        The policy, whose actions are the environment's own.

    Raises:
        ArgumentError: `allow_import` names what is no package.
        PolicyFileError: it is no such file, it is torn, or it names a module.
        HubError: the Hub has no such policy, or cannot be reached.
    """
    from vedette.hub import local_policy
    from vedette_rl.exported import load_policy as load_file

    if not isinstance(allow_import, bool):
        check_allowed(allow_import)
    return load_file(local_policy(policy), seed=seed, allow_import=allow_import)


def push_policy(
    run: Place,
    repository: str,
    *,
    private: bool = False,
    checkpoint: Checkpoint | None = None,
    episodes: int | None = None,
    allow_import: Collection[str] = (),
) -> str:
    """Push a run's policy to the Hugging Face Hub with a model card, as ``vedette push`` does.

    Args:
        run: the run's directory.
        repository: ``USER/NAME``; made if it does not exist.
        private: make it a private one.
        checkpoint: optimization steps of a checkpoint, or ``latest``. None: the best model.
        episodes: number of episodes to evaluate for the card. None: as many as the run's own
            evaluations.
        allow_import: packages from which a run that somebody else has begun may import.

    Returns:
        The address of its page.

    Raises:
        ArgumentError: `episodes` or `allow_import` is none that can be taken.
        NotARunError: there is no such run.
        NotInRunError: it has no such model.
        HubError: there is no token, or the Hub refuses it.
    """
    from vedette import hub

    check_allowed(allow_import)
    _check_episodes(episodes)
    return hub.push_policy(
        user_path(run),
        repository,
        private=private,
        checkpoint=_checkpoint_text(checkpoint),
        episodes=episodes,
        allow_import=allow_import,
    )


def export_policy(
    run: Place,
    out: Place,
    *,
    format: Literal["numpy", "safetensors", "onnx"] = "numpy",
    checkpoint: Checkpoint | None = None,
    allow_import: Collection[str] = (),
) -> int:
    """Export the policy of a run to a file, as ``vedette export`` does.

    Args:
        run: the run's directory.
        out: the file; `load_policy` reads what ``numpy`` and ``safetensors`` write.
        format: ``numpy``, ``safetensors`` or ``onnx``.
        checkpoint: optimization steps of a checkpoint, or ``latest``. None: the best model.
        allow_import: packages from which a run that somebody else has begun may import.

    Returns:
        The version of the model.

    Raises:
        NotARunError: there is no such run.
        NotInRunError: it has no such model.
        UsageError: there is no such format, or it needs an extra that is not installed.
    """
    from vedette import exporting

    check_allowed(allow_import)
    path = user_path(out)
    exporting.check_export("policy", format, path)
    finished = FinishedRun.open(user_path(run), allow_import)
    name = _checkpoint_text(checkpoint)
    return exporting.export_policy(finished, format, path, name).model.version


def export_replay(
    run: Place,
    out: Place,
    format: Literal["npz", "minari"] = "npz",
    *,
    allow_import: Collection[str] = (),
) -> int:
    """Write the live rows of a run's replay, oldest first, one array a column.

    Args:
        run: the run's directory.
        out: the file, or the new folder of a ``minari`` dataset.
        format: ``npz``, or ``minari`` for its whole episodes.
        allow_import: packages from which a run that somebody else has begun may import.

    Returns:
        The number of rows, or of episodes.

    Raises:
        NotARunError: there is no such run.
        NotInRunError: it has no replay on disk.
        UsageError: there is no such format, or it needs an extra that is not installed.
    """
    from vedette import exporting

    check_allowed(allow_import)
    path = user_path(out)
    exporting.check_export("replay", format, path)
    finished = FinishedRun.open(user_path(run), allow_import)
    return exporting.export_replay(finished, format, path)


def status(
    learner: str = "127.0.0.1:5555", *, keys: Place | None = None, timeout_s: float = 5.0
) -> Status | None:
    """Return the status of a learner, as ``vedette status --json`` prints it.

    Args:
        learner: ``HOST`` or ``HOST:PORT``.
        keys: folder of the keys that ``vedette keys`` made for this host. None: no keys.
        timeout_s: longest wait for an answer.

    Returns:
        The status; None if no learner answers.

    Raises:
        AddressError: `learner` is no address.
        KeysError: the keys are missing or damaged.
        RefusedError: the learner refuses this client.
    """
    from vedette_services.status.client import ask_status

    shown = ClientKeys.read(user_path(keys)) if keys is not None else None
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

    Raises:
        NotARunError: there is no such run.
    """
    path = user_path(run)
    if not is_run(path):
        raise NotARunError(path, "run.json", "name the run's directory")
    return read_curves(path).curves


def _check_episodes(episodes: object) -> None:
    """Check a number of episodes.

    Raises:
        ArgumentError: it is none from 1 on.
    """
    if episodes is not None and (type(episodes) is not int or episodes < 1):
        why = "a number of episodes from 1 on, or None for as many as the run's own evaluations"
        raise ArgumentError(f"episodes={episodes!r}: {why}")


def _checkpoint_text(checkpoint: Checkpoint | None) -> str | None:
    return None if checkpoint is None else str(checkpoint)


@dataclass(frozen=True, slots=True, repr=False)
class Result:
    """The result of a training run. Its text is what ``vedette run`` prints at the end.

    Args:
        summary: the last status, with the fields of ``RUN/summary.json``.
        run: the run's directory.
    """

    summary: Status
    run: Path

    if not TYPE_CHECKING:  # type checkers know what there is

        def __getattr__(self, name: str) -> Any:
            """Explain the names that models and results of other libraries have."""
            instead = instead_of_result(name)
            hint = f": {instead}" if instead else ""
            raise AttributeError(f"a result has no {name!r}{hint}")

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
        checkpoint: Checkpoint | None = None,
        video: Place | None = None,
        allow_import: Collection[str] = (),
    ) -> Evaluation:
        """Play its policy greedily; arguments as of `vedette.evaluate`."""
        return evaluate(
            self.run,
            episodes=episodes,
            seed=seed,
            checkpoint=checkpoint,
            video=video,
            allow_import=allow_import,
        )

    def load_policy(
        self,
        *,
        checkpoint: Checkpoint | None = None,
        seed: int = 0,
        allow_import: Collection[str] = (),
    ) -> LoadedPolicy:
        """Load its policy, whose actions are the environment's own.

        Args:
            checkpoint: optimization steps of a checkpoint, or ``latest``. None: the best model.
            seed: the seed of exploration, where the policy is asked to explore.
            allow_import: packages from which a run that somebody else has begun may import.
        """
        from vedette.exporting import policy_of

        run = FinishedRun.open(self.run, allow_import)
        found = run.load_model(_checkpoint_text(checkpoint))
        return policy_of(run, found).make_environment_policy(seed=seed)

    def curves(self) -> dict[str, Curve]:
        """Read its curves by name, as `vedette.curves` does."""
        return curves(self.run)

    def report(self, out: Place | None = None) -> Path:
        """Write its HTML report, as `vedette.report` does; returns the file."""
        return report(self.run, out=out)


@dataclass(frozen=True, slots=True, repr=False)
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

    def __repr__(self) -> str:
        return f"SweepResult({len(self.results)} runs, {len(self.failed)} failed: {self.report})"
