"""The recorder ``mlflow``. A thread of its own sends, so that training waits for no network."""

from __future__ import annotations

import json
import logging
import math
import os
import threading
import time
import urllib.parse
from collections import deque
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from vedette_rl.core import Record
from vedette_rl.recording.file_recorder import Means
from vedette_rl.storage.atomic_files import replace_file
from vedette_services.errors import SettingError

if TYPE_CHECKING:
    from mlflow.tracking import MlflowClient

log = logging.getLogger("vedette.mlflow")

_SEND_EVERY_S = 2.0
_AGAIN_AFTER_S = 15.0
_CLOSE_S = 15.0
_KEPT_MAX = 100_000  # scalars, while the server does not answer
_METRICS_PER_REQUEST = 500  # a server takes at most 1000
_PARAMETERS_PER_REQUEST = 100  # a server takes no more
_PARAMETER_MAX_CHARS = 500  # in the oldest servers
_TAG_MAX_CHARS = 5000
_DEFAULTS = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
}
"""MLflow's own variables, where the user has not set them."""


class _Scalar(NamedTuple):
    """One value of a curve; the time in milliseconds since 1970."""

    key: str
    value: float
    timestamp_ms: int
    step: int


class MlflowRecorder:
    """Sends scalars, hyperparameters and the configuration to a tracking server.

    The server is that of ``MLFLOW_TRACKING_URI``; MLflow's other variables apply too. While it
    does not answer, the latest `_KEPT_MAX` scalars are kept, and the number of those dropped is
    logged. A run that resumes continues its MLflow run, whose id is in ``RUN/mlflow.json``. Values
    that are not finite are dropped.

    Args:
        run: the run's directory; its name is the MLflow run's.
        clock: seconds since 1970.

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
        self._run, self._clock, self._again_after_s = run, clock, again_after_s
        self._means = Means()
        self._kept: deque[_Scalar] = deque(maxlen=_KEPT_MAX)
        self._parameters: dict[str, object] = {}
        self._texts: dict[str, str] = {}
        self._left_out = 0
        self._failing = False
        self._run_id = ""
        self._lock = threading.Lock()
        self._stop, self._wake = threading.Event(), threading.Event()
        self._sender = threading.Thread(target=self._send, name="mlflow", daemon=True)
        self._sender.start()

    def write(self, record: Record, step: int) -> None:
        """Hand scalars to the sender."""
        now_ms = round(self._clock() * 1e3)
        with self._lock:
            for name, value in record.items():
                if math.isfinite(value):
                    self._left_out += len(self._kept) == _KEPT_MAX
                    self._kept.append(_Scalar(name, float(value), now_ms, step))

    def store(self, record: Record) -> None:
        """Keep scalars until the next flush, which writes the mean of each name."""
        self._means.store(record)

    def flush(self, step: int) -> None:
        """Hand the means of the stored scalars to the sender and wake it; this does not wait."""
        self.write(self._means.pop_means(), step)
        self._wake.set()

    def write_text(self, name: str, text: str) -> None:
        """Set a tag of the run."""
        with self._lock:
            self._texts[name] = text

    def write_hparams(self, hparams: Mapping[str, bool | float | str]) -> None:
        """Set parameters of the run."""
        with self._lock:
            self._parameters.update(hparams)

    def close(self) -> None:
        """Send what is left, for 15 s at most, and end the sender."""
        self._stop.set()
        self._wake.set()
        self._sender.join(_CLOSE_S)
        left_out = self._left_out + len(self._kept)
        if left_out:
            log.warning("MLflow at %s: %d scalars were not sent", self._uri, left_out)

    # The sender's thread

    def _send(self) -> None:
        from mlflow.exceptions import MlflowException

        while True:
            stopping = self._stop.is_set()
            try:
                self._send_all(ending=stopping)
                self._log_recovery()
            except MlflowException as error:
                if not self._failing:
                    text = "MLflow at %s: %s; tried again every %g s"
                    log.warning(text, self._uri, error, self._again_after_s)
                self._failing = True
            if stopping:
                return
            if self._failing:
                self._stop.wait(self._again_after_s)
            else:
                self._wake.wait(_SEND_EVERY_S)
                self._wake.clear()

    def _log_recovery(self) -> None:
        if self._failing:
            log.warning("recording to MLflow again")
        self._failing = False

    def _send_all(self, *, ending: bool) -> None:
        from mlflow.entities import Metric

        self._run_id = self._run_id or self._open_run()
        self._send_notes()
        while self._kept:
            with self._lock:
                some = [self._kept[k] for k in range(min(_METRICS_PER_REQUEST, len(self._kept)))]
            self._client.log_batch(self._run_id, metrics=[Metric(*scalar) for scalar in some])
            with self._lock:  # some of these may have been dropped meanwhile, as the oldest
                while some and self._kept and self._kept[0] is some[0]:
                    self._kept.popleft()
                    some.pop(0)
        if ending:
            self._client.set_terminated(self._run_id, "FINISHED", round(self._clock() * 1e3))

    def _send_notes(self) -> None:
        with self._lock:
            parameters, texts = dict(self._parameters), dict(self._texts)
        if parameters:
            self._send_parameters(parameters)
        for name, text in texts.items():
            self._client.set_tag(self._run_id, f"vedette.{name}", text[:_TAG_MAX_CHARS])
        with self._lock:
            self._parameters = {k: v for k, v in self._parameters.items() if k not in parameters}
            self._texts = {k: v for k, v in self._texts.items() if texts.get(k) != v}

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
            log.warning("MLflow: %s", error)

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
            replace_file(file, json.dumps({"uri": self._uri, "run_id": run_id}) + "\n")
        except OSError as error:
            log.warning("%s: %s; a resumed run will be another one in MLflow", file, error.strerror)
        return run_id

    def _earlier_run(self, file: Path) -> str:
        """Return the MLflow run of an earlier start; "" if there is none on this server."""
        from mlflow.exceptions import MlflowException

        try:
            kept = json.loads(file.read_text("utf-8"))
            if kept["uri"] != self._uri:
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
            f"mlflow records to MLFLOW_TRACKING_URI, and that is {uri!r}",
            "set it to http://HOST:PORT of a tracking server",
        )
    return uri.rstrip("/"), environ.get("MLFLOW_EXPERIMENT_NAME", "") or "vedette"


def _client(uri: str) -> MlflowClient:
    """Make MLflow's client, without telemetry, retries and output on stdout."""
    for name, value in _DEFAULTS.items():
        os.environ.setdefault(name, value)
    from mlflow.tracking import MlflowClient  # 2 s and 60 MB, for those who record to it

    return MlflowClient(tracking_uri=uri)
