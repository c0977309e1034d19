"""The recorder ``mlflow``."""

from __future__ import annotations

import json
import logging
import os
import re
import time
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from vedette_rl.recording.sending_recorder import Scalar, SendingRecorder
from vedette_rl.storage.atomic_files import replace_file
from vedette_services.errors import SettingError

if TYPE_CHECKING:
    from mlflow.tracking import MlflowClient

log = logging.getLogger("vedette.mlflow")

_AGAIN_AFTER_S = 15.0
_PARAMETERS_PER_REQUEST = 100  # a server takes no more
_PARAMETER_MAX_CHARS = 500  # in the oldest servers
_TAG_MAX_CHARS = 5000
_STATUS = {"failed": "FAILED", "interrupted": "KILLED"}
_DEFAULTS = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
}
"""MLflow's own variables, where the user has not set them."""


class MlflowRecorder(SendingRecorder):
    """Sends scalars, hyperparameters and the configuration to a tracking server.

    The server is that of ``MLFLOW_TRACKING_URI``; MLflow's other variables apply too. A run that
    resumes continues its MLflow run, whose id is in ``RUN/mlflow.json``.

    Args:
        run: the run's directory; its name is the MLflow run's.
        clock, again_after_s: as of `SendingRecorder`.

    Raises:
        SettingError: the variables name no server, or mlflow is not installed.
    """

    def __init__(
        self,
        run: Path,
        *,
        clock: Callable[[], float] = time.time,
        again_after_s: float = _AGAIN_AFTER_S,
    ) -> None:
        self._uri, self._experiment = tracking_from(os.environ)
        self._client = _client(self._uri)
        self._address = _without_login(self._uri)
        self._run = run
        self._run_id = ""
        super().__init__(f"MLflow at {self._address}", clock=clock, again_after_s=again_after_s)

    @staticmethod
    def check_environment(environ: Mapping[str, str]) -> None:
        """Raise `SettingError` if recording cannot work with these variables."""
        tracking_from(environ)

    def open(self) -> None:
        self._run_id = self._run_id or self._open_run()

    def send_notes(
        self, hparams: Mapping[str, bool | float | str], texts: Mapping[str, str]
    ) -> None:
        """Set parameters and tags of the run."""
        if hparams:
            self._send_parameters(hparams)
        for name, text in texts.items():
            self._client.set_tag(self._run_id, f"vedette.{name}", text[:_TAG_MAX_CHARS])

    def send_scalars(self, scalars: Sequence[Scalar]) -> None:
        from mlflow.entities import Metric

        metrics = [Metric(s.name, s.value, round(s.time_s * 1e3), s.step) for s in scalars]
        self._client.log_batch(self._run_id, metrics=metrics)

    def finish(self, end: str) -> None:
        if end:
            status = _STATUS.get(end, "FINISHED")
            self._client.set_terminated(self._run_id, status, round(self._clock() * 1e3))

    def describe(self, error: Exception) -> str:
        """Describe a failure without the login of the address, which MLflow's errors quote."""
        text = super().describe(error).replace(self._uri, self._address)
        return re.sub(r"://[^/?#\s]*@", "://", text)

    def _send_parameters(self, parameters: Mapping[str, object]) -> None:
        from mlflow.entities import Param
        from mlflow.exceptions import MlflowException

        listed = [Param(k, str(v)[:_PARAMETER_MAX_CHARS]) for k, v in parameters.items()]
        try:
            for first in range(0, len(listed), _PARAMETERS_PER_REQUEST):
                some = listed[first : first + _PARAMETERS_PER_REQUEST]
                self._client.log_batch(self._run_id, params=some)
        except MlflowException as error:
            if error.error_code != "INVALID_PARAMETER_VALUE":
                raise
            # MLflow never changes a parameter: a run that resumes keeps its first value
            log.warning("MLflow: %s", self.describe(error))

    def _open_run(self) -> str:
        """Continue the MLflow run of an earlier start, or create one; returns its id."""
        file = self._run / "mlflow.json"
        if run_id := self._earlier_run(file):
            self._client.update_run(run_id, "RUNNING")
            return run_id
        found = self._client.get_experiment_by_name(self._experiment)
        experiment_id = found.experiment_id if found else None
        made = self._client.create_run(
            experiment_id or self._client.create_experiment(self._experiment),
            start_time=round(self._clock() * 1e3),
            run_name=self._run.resolve().name,
        )
        run_id = str(made.info.run_id)
        try:
            replace_file(file, json.dumps({"uri": self._address, "run_id": run_id}) + "\n")
        except OSError as error:
            log.warning("%s: %s; a resumed run will be another one in MLflow", file, error.strerror)
        return run_id

    def _earlier_run(self, file: Path) -> str:
        """Return the MLflow run of an earlier start; "" if there is none on this server."""
        from mlflow.exceptions import MlflowException

        try:
            kept = json.loads(file.read_text("utf-8"))
            if _without_login(kept["uri"]) != self._address:
                return ""
            self._client.get_run(str(kept["run_id"]))
        except (OSError, ValueError, KeyError, TypeError):
            return ""  # there is none yet, or none that can be read
        except MlflowException as error:
            if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                raise
            return ""
        return str(kept["run_id"])


def tracking_from(environ: Mapping[str, str]) -> tuple[str, str]:
    """Read ``MLFLOW_TRACKING_URI`` and ``MLFLOW_EXPERIMENT_NAME`` (default: vedette).

    Raises:
        SettingError: the first is not set, or is no web address; or mlflow is not installed.
    """
    if find_spec("mlflow") is None:
        raise SettingError(
            "learner.recorders", "mlflow is not installed", "pip install 'vedette[mlflow]'"
        )
    uri = environ.get("MLFLOW_TRACKING_URI", "")
    if urllib.parse.urlsplit(uri).scheme not in ("http", "https"):
        raise SettingError(
            "learner.recorders",
            f"mlflow records to MLFLOW_TRACKING_URI, and that is {_without_login(uri)!r}",
            "set it to http://HOST:PORT of a tracking server",
        )
    return uri.rstrip("/"), environ.get("MLFLOW_EXPERIMENT_NAME", "") or "vedette"


def _without_login(uri: str) -> str:
    """Remove the user's name and password, also with characters that no address can have."""
    return re.sub(r"^(\w+://)?.*@", r"\1", uri, flags=re.DOTALL)


def _client(uri: str) -> MlflowClient:
    """Make MLflow's client, without telemetry, retries and output on stdout."""
    for name, value in _DEFAULTS.items():
        os.environ.setdefault(name, value)
    from mlflow.tracking import MlflowClient  # 2 s and 60 MB, for those who record to it

    return MlflowClient(tracking_uri=uri)
