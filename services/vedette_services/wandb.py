"""The recorder ``wandb``: Weights & Biases."""

from __future__ import annotations

import json
import logging
import netrc
import os
import secrets
import time
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vedette_rl.recording.sending_recorder import Scalar, SendingRecorder
from vedette_rl.storage.atomic_files import replace_file
from vedette_services.errors import SettingError
from vedette_services.status.schema import is_against_opt_steps

if TYPE_CHECKING:
    import wandb

log = logging.getLogger("vedette.wandb")

_HOST = "https://api.wandb.ai"
_INIT_S = 20.0
_FINISH_S = 15.0
_CLOSE_S = _INIT_S + _FINISH_S + 5.0
_OFFLINE = ("offline", "dryrun", "disabled")
_TEXT_MAX_CHARS = 20_000
_EXIT_CODES = {"failed": 1, "interrupted": 255}
"""By which W&B shows a run as failed, or as killed: 255 is its own after Ctrl-C."""


class WandbRecorder(SendingRecorder):
    """Records scalars, hyperparameters and the configuration to Weights & Biases.

    W&B's own variables apply (``WANDB_PROJECT``, ``WANDB_ENTITY``, ``WANDB_MODE``, ...). Curves of
    returns are against ``env_steps``, losses against ``opt_steps``. A run that resumes continues
    its W&B run, whose id is in ``RUN/wandb.json``. W&B's files are in ``RUN/wandb``: where its
    server does not answer, the start is recorded there, and ``wandb sync`` sends it later.

    Args:
        run: the run's directory; its name is the W&B run's.
        clock: seconds since 1970.

    Raises:
        SettingError: wandb is not installed, or has no API key.
    """

    def __init__(self, run: Path, *, clock: Callable[[], float] = time.time) -> None:
        self.check_environment(os.environ)
        self._run = run
        self._defined = set[str]()
        self._wandb: wandb.Run | None = None
        super().__init__("Weights & Biases", clock=clock, close_s=_CLOSE_S)

    @staticmethod
    def check_environment(environ: Mapping[str, str]) -> None:
        """Raise `SettingError` if recording cannot work with these variables."""
        if find_spec("wandb") is None:
            raise SettingError(
                "learner.recorders", "wandb is not installed", "pip install 'vedette[wandb]'"
            )
        if environ.get("WANDB_MODE") in _OFFLINE or _has_credentials(environ):
            return
        raise SettingError(
            "learner.recorders",
            "wandb has no API key",
            "run `wandb login`, set WANDB_API_KEY, or record on this disk with WANDB_MODE=offline",
        )

    def open(self) -> None:
        """Open the W&B run; in its files alone if the server does not answer."""
        import wandb

        if self._wandb is not None:
            return
        run_id = self._run_id()
        try:
            self._wandb = self._init(run_id)
        except (wandb.errors.Error, OSError) as error:
            why = " ".join(str(error).split())
            # W&B's service keeps the id of the attempt that failed
            self._wandb = self._init(f"{run_id}-{secrets.token_hex(2)}", mode="offline")
            fix = f"`wandb sync --id {run_id} {self._place}` sends it later"
            log.warning("Weights & Biases: %s; %s", why, fix)
        else:
            place = self._place if self._wandb.offline else self._wandb.url
            log.info("recording to Weights & Biases: %s", place)

    def send_notes(
        self, hparams: Mapping[str, bool | float | str], texts: Mapping[str, str]
    ) -> None:
        """Set keys of the W&B run's configuration; those of an earlier start are replaced."""
        notes = {f"vedette.{name}": text[:_TEXT_MAX_CHARS] for name, text in texts.items()}
        self._opened.config.update({**hparams, **notes}, allow_val_change=True)

    def send_scalars(self, scalars: Sequence[Scalar]) -> None:
        """Log a row for each record, with the steps that it counts as its axis."""
        for (axis, step, _), row in groupby(scalars, _row_of):
            values = {scalar.name: scalar.value for scalar in row}
            for name in values.keys() - self._defined:
                self._opened.define_metric(name, step_metric=axis)
                self._defined.add(name)
            self._opened.log({**values, axis: step})

    def finish(self, end: str) -> None:
        self._opened.finish(exit_code=_EXIT_CODES.get(end, 0))

    @property
    def _opened(self) -> wandb.Run:
        assert self._wandb is not None  # `open` comes first
        return self._wandb

    @property
    def _place(self) -> Path:
        """W&B's files of this start."""
        return Path(self._opened.settings.sync_dir)

    def _init(self, run_id: str, **more: Any) -> wandb.Run:  # arguments of wandb.init
        import wandb

        settings = wandb.Settings(
            console="off",
            disable_git=True,  # the provenance has the commit, and no address of a remote
            finish_timeout=_FINISH_S,
            init_timeout=_INIT_S,
            silent=True,
        )
        return wandb.init(
            dir=self._run,
            id=run_id,
            name=os.environ.get("WANDB_NAME") or self._run.resolve().name,
            project=os.environ.get("WANDB_PROJECT") or "vedette",
            reinit="create_new",  # a W&B run of the user's own program stays as it is
            resume="allow",
            settings=settings,
            **more,
        )

    def _run_id(self) -> str:
        """Return the id of the W&B run of earlier starts, or a new one."""
        file = self._run / "wandb.json"
        try:
            return str(json.loads(file.read_text("utf-8"))["id"])
        except (OSError, ValueError, KeyError, TypeError):
            run_id = secrets.token_hex(8)  # there is none yet, or none that can be read
        try:
            replace_file(file, json.dumps({"id": run_id}) + "\n")
        except OSError as error:
            log.warning("%s: %s; a resumed run will be another one in W&B", file, error.strerror)
        return run_id


def _row_of(scalar: Scalar) -> tuple[str, int, float]:
    axis = "opt_steps" if is_against_opt_steps(scalar.name) else "env_steps"
    return axis, scalar.step, scalar.time_s


def _has_credentials(environ: Mapping[str, str]) -> bool:
    """Return True if W&B will find a key, or settings of its own that may name one."""
    if environ.get("WANDB_API_KEY") or environ.get("WANDB_IDENTITY_TOKEN_FILE"):
        return True
    config = Path(environ.get("WANDB_CONFIG_DIR") or "~/.config/wandb").expanduser()
    if (config / "settings").is_file() or Path("wandb/settings").is_file():
        return True
    host = urllib.parse.urlsplit(environ.get("WANDB_BASE_URL") or _HOST).hostname or ""
    try:
        file = Path(environ.get("NETRC") or "~/.netrc").expanduser()
        return netrc.netrc(file).authenticators(host) is not None
    except (OSError, netrc.NetrcParseError):
        return False
