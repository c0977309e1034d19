"""Policies on the Hugging Face Hub: pushes a run's policy with a model card, and pulls it back."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from jinja2 import Environment, StrictUndefined

from vedette.exporting import export_policy
from vedette.reports.statistics import bootstrap_interval, mean
from vedette_rl.core import Evaluation
from vedette_rl.errors import PolicyFileError
from vedette_rl.number_format import format_bytes, format_clock, format_number
from vedette_rl.settings.plain_values import user_path
from vedette_rl.storage.atomic_files import json_text
from vedette_services.config.saving import config_text
from vedette_services.errors import NotARunError, ServicesError, UsageError
from vedette_services.run.directory import RunDirectory
from vedette_services.run.finished import FinishedRun
from vedette_services.run.outcome import read_summary
from vedette_services.run.output_files import check_output
from vedette_services.run.policy_evaluation import evaluate_policy, evaluate_run
from vedette_services.run.provenance import (
    Start,
    public_config,
    public_start,
    read_provenance,
)
from vedette_services.status.stop_conditions import EXIT_REASONS, describe_exit, trained_seconds

SCHEME = "hf://"
POLICY = "policy.safetensors"
_PULL_MAX_BYTES = 2 << 30
_ZIP_MAGIC = b"PK"
_LOG_IN = "run `hf auth login`, or set HF_TOKEN"


class HubError(ServicesError):
    """The Hugging Face Hub refused a push or a pull, or could not be reached.

    Args:
        repo: ``USER/NAME``.
        why: the reason.
        fix: the remedy; "" where `why` says it already.
    """

    def __init__(self, repo: str, why: str, fix: str = "") -> None:
        super().__init__(f"hf://{repo}: {why}" + (f"; {fix}" if fix else ""))
        self.repo = repo


@dataclass(frozen=True, slots=True)
class Repository:
    """A repository of the Hub, ``USER/NAME``, and one of its revisions; None: the newest."""

    name: str
    revision: str | None = None

    @classmethod
    def parse(cls, text: str) -> Repository:
        """Parse ``[hf://]USER/NAME[@REVISION]``.

        Raises:
            UsageError: it is no such name, or huggingface_hub is not installed.
        """
        if find_spec("huggingface_hub") is None:
            fix = "pip install 'vedette[hub]'"
            raise UsageError(f"{text}: huggingface_hub is not installed; {fix}")
        name, _, revision = text.removeprefix(SCHEME).partition("@")
        if not re.fullmatch(r"\w[\w.-]*/\w[\w.-]*", name, re.ASCII):
            raise UsageError(f"{text}: write USER/NAME, of A-Z a-z 0-9 . _ -")
        return cls(name, revision or None)


def push_policy(
    run: Path,
    repository: str,
    *,
    private: bool = False,
    checkpoint: str | None = None,
    episodes: int | None = None,
    allow_import: Collection[str] = (),
) -> str:
    """Push a run's policy with its configuration, summary, provenance and a model card.

    The policy is evaluated first, on other episodes than those by which the best model was chosen.

    Args:
        run: the run's directory.
        repository: ``USER/NAME``; made if it does not exist.
        private: make it a private one, and push to no public one.
        checkpoint: optimization steps of a checkpoint, or ``latest``. None: the best model.
        episodes: number of episodes to evaluate. None: as many as the run's own evaluations.
        allow_import: packages that the run may import, whoever has begun it.

    Returns:
        The address of its page.

    Raises:
        NotARunError, NotInRunError: there is no such run or model.
        HubError: there is no token, the Hub refuses it, or a private push would be a public one.
    """
    target = Repository.parse(repository)
    from huggingface_hub import CommitOperationAdd, HfApi, get_token

    if target.revision is not None:
        raise UsageError(f"{repository}: a push makes a revision; leave @{target.revision} out")
    FinishedRun.open(run, allow_import).check_imports("env", "agent")
    if not get_token():
        raise HubError(target.name, "there is no token to push with", _LOG_IN)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        evaluation = write_folder(run, folder, target.name, checkpoint, episodes, allow_import)
        added = [CommitOperationAdd(path.name, path) for path in sorted(folder.iterdir())]
        message = f"version {evaluation.version:,} of {run.resolve().name}"
        with _hub_errors(target):
            api = HfApi(library_name="vedette")
            url = api.create_repo(target.name, private=private or None, exist_ok=True)
            if private and not api.repo_info(target.name).private:  # it was there before
                why = "it is there already and public, so nothing is pushed"
                raise HubError(target.name, why, "make it private on its page, or name another")
            api.create_commit(target.name, added, commit_message=message)
    return str(url)


def write_folder(
    run: Path,
    folder: Path,
    repository: str,
    checkpoint: str | None = None,
    episodes: int | None = None,
    allow_import: Collection[str] = (),
) -> Evaluation:
    """Write what a push pushes into a folder; the other arguments are those of `push_policy`.

    Returns:
        The evaluation that the card has.
    """
    finished = FinishedRun.open(run, allow_import)
    evaluation, _ = evaluate_run(
        run, episodes=episodes, checkpoint=checkpoint, allow_import=allow_import
    )
    public = public_config(finished.config)
    export_policy(finished, "safetensors", folder / POLICY, checkpoint, public.env)
    starts = read_provenance(RunDirectory(run))
    summary = replace(read_summary(run), managers=(), rivals="", unsaved="")
    texts = {
        "README.md": model_card(finished, repository, evaluation, starts),
        "config.toml": config_text(public, f"of {run.resolve().name}"),
        "summary.json": json_text(summary.as_dict()),
        "provenance.json": json_text([public_start(start) for start in starts]),
    }
    for name, text in texts.items():
        (folder / name).write_text(text, "utf-8")
    return evaluation


def pull_policy(place: str) -> Path:
    """Download a policy from the Hub, or find it in the cache; its contents are not trusted.

    Args:
        place: ``hf://USER/NAME[@REVISION]``.

    Returns:
        The file, in huggingface_hub's cache.

    Raises:
        HubError: there is none, or the Hub cannot be reached.
        PolicyFileError: it is in another form than safetensors.
    """
    source = Repository.parse(place)
    from huggingface_hub import HfApi

    api = HfApi(library_name="vedette")
    with _hub_errors(source):
        asked = (source.name, POLICY)
        size = api.hf_hub_download(*asked, revision=source.revision, dry_run=True).file_size
        if size is not None and size > _PULL_MAX_BYTES:
            limit = format_bytes(_PULL_MAX_BYTES)
            raise HubError(source.name, f"{POLICY} has {format_bytes(size)}, more than {limit}")
        path = Path(api.hf_hub_download(*asked, revision=source.revision))
    with path.open("rb") as file:
        if file.read(len(_ZIP_MAGIC)) == _ZIP_MAGIC:
            raise PolicyFileError(path, "it is no safetensors file")
    return path


def local_policy(place: str | Path) -> Path:
    """Return the file of a policy, which is pulled if it is on the Hub."""
    return pull_policy(str(place)) if _is_remote(place) else user_path(place)


def _is_remote(place: str | Path) -> bool:
    return isinstance(place, str) and place.startswith(SCHEME)


def evaluate_place(
    place: str | Path,
    *,
    episodes: int | None = None,
    seed: int | None = None,
    checkpoint: str | None = None,
    video: Path | None = None,
    allow_import: Collection[str] = (),
) -> tuple[Evaluation, int]:
    """Play the policy of a run's directory, of a file or of the Hub.

    Args:
        place: the directory, the file, or ``hf://USER/NAME[@REVISION]``.
        allow_import: packages that it may import; the others are those of `evaluate_run`.

    Raises:
        NotARunError: there is no such run or file.
        UsageError: `checkpoint` is given for a policy that is no run's, or `video` is a run's file.
    """
    if video is not None:
        check_output("--video", video)
    path = local_policy(place)
    if not path.exists():
        fix = f"name a run's directory, an exported policy or {SCHEME}USER/NAME"
        raise NotARunError(path, "config.toml", fix, wanted="run or file")
    if not _is_remote(place) and not path.is_file():
        return evaluate_run(
            path,
            episodes=episodes,
            seed=seed,
            checkpoint=checkpoint,
            video=video,
            allow_import=allow_import,
        )
    if checkpoint is not None:
        raise UsageError(f"--checkpoint {checkpoint}: {place} is one policy, not a run")
    return evaluate_policy(
        path, episodes=episodes, seed=seed, video=video, allow_import=allow_import
    )


@contextmanager
def _hub_errors(repository: Repository) -> Iterator[None]:
    """Turn errors of huggingface_hub into ours."""
    from huggingface_hub import errors

    transport_error: type[Exception] = errors.HfHubHTTPError.__bases__[0]  # of its HTTP library
    name = repository.name
    revision = repository.revision or "main"
    try:
        yield
    except errors.RevisionNotFoundError as error:
        raise HubError(name, f"has no revision {revision!r}") from error
    except errors.LocalEntryNotFoundError as error:
        raise HubError(name, "the Hub cannot be reached, and nothing is cached") from error
    except errors.EntryNotFoundError as error:
        raise HubError(name, f"has no {POLICY}", "`vedette push` writes it") from error
    except (errors.RepositoryNotFoundError, errors.LocalTokenNotFoundError) as error:
        raise HubError(name, "there is none, or this token may not see it", _LOG_IN) from error
    except errors.HFValidationError as error:
        raise UsageError(f"{name}: {' '.join(str(error).split())}") from error
    except errors.HfHubHTTPError as error:
        why = " ".join(str(error.server_message or error).split()).rstrip(".")
        denied = error.response.status_code in (401, 403)
        raise HubError(name, why, _LOG_IN if denied else "") from error
    except (transport_error, OSError, RuntimeError, ValueError) as error:
        cause = error.__cause__ or error  # of an upload, what went wrong
        why = " ".join(str(cause).split()) or type(cause).__name__
        raise HubError(name, f"the Hub cannot be reached: {why}") from error


# The model card


def model_card(
    run: FinishedRun, repository: str, evaluation: Evaluation, starts: list[Start]
) -> str:
    """Return the model card of a run's policy: metadata as YAML, then Markdown."""
    summary = read_summary(run.directory)
    config = run.config
    low, high = bootstrap_interval(np.array(evaluation.returns), statistic=mean)
    trained = trained_seconds(summary)
    environment = Environment(undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    template = files("vedette").joinpath("model_card.md").read_text("utf-8")
    return environment.from_string(template).render(
        metadata=_metadata(run, repository, evaluation),
        repository=repository,
        agent=config.agent.name,
        env=config.env.id,
        evaluation=evaluation,
        interval=(float(low), float(high)) if np.isfinite(low) else None,
        best=summary.eval.best_return_mean,
        env_steps=format_number(summary.env_steps),
        opt_steps=format_number(summary.opt_steps),
        duration=None if trained is None else format_clock(trained),
        ended=describe_exit(summary) if summary.exit_reason in EXIT_REASONS else "",
        seed=config.seed,
        start=public_start(starts[-1]) if starts else None,
        code=starts[-1].code if starts else "",
    )


def _metadata(run: FinishedRun, repository: str, evaluation: Evaluation) -> str:
    from huggingface_hub import EvalResult, ModelCardData

    agent = run.config.agent.name
    env = run.config.env.id
    result = EvalResult(
        task_type="reinforcement-learning",
        task_name="reinforcement-learning",
        dataset_type=env,
        dataset_name=env,
        metric_type="mean_reward",
        metric_name="mean_reward",
        metric_value=f"{evaluation.return_mean:.2f} +/- {evaluation.return_std:.2f}",
        verified=False,
    )
    data = ModelCardData(
        library_name="vedette",
        pipeline_tag="reinforcement-learning",
        tags=[env, agent, "reinforcement-learning", "deep-reinforcement-learning", "vedette"],
        model_name=repository.partition("/")[2],
        eval_results=[result],
    )
    return str(data.to_yaml())
