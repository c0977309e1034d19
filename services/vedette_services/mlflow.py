"""The recorder ``mlflow``: a thread sends, so that training waits for no network."""

from __future__ import annotations

import base64
import json
import logging
import math
import os
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vedette_rl.core import Record
from vedette_rl.recording.means import Means
from vedette_services.errors import SettingError

log = logging.getLogger("vedette.mlflow")

_SEND_EVERY_S = 2.0
_AGAIN_AFTER_S = 15.0
_CLOSE_S = 15.0
_KEPT_MAX = 100_000
"""Scalars: what is kept while the server is away."""


class MlflowRecorder:
    """Sends scalars, hyperparameters and the configuration to a tracking server.

    The server is that of ``MLFLOW_TRACKING_URI`` (`vedette_services.mlflow.tracking_from`).
    While it is away, scalars are kept, the oldest making room; what was left out is said. A run
    that goes on goes on in its MLflow run, whose id stands in ``RUN/mlflow.json``. Values that are
    not finite are left out.

    Args:
        run: the run's directory; its name is the MLflow run's.
        environ: where the variables are.
        clock: seconds since 1970.

    Raises:
        SettingError: the variables name no server.
    """

    def __init__(
        self,
        run: Path,
        *,
        environ: Mapping[str, str] = os.environ,
        clock: Callable[[], float] = time.time,
        again_after_s: float = _AGAIN_AFTER_S,
    ) -> None:
        tracking = tracking_from(environ)
        self._client, self._uri = MlflowClient(tracking), tracking.uri
        self._run, self._clock, self._again_after_s = run, clock, again_after_s
        self._means = Means()
        self._kept: deque[Metric] = deque(maxlen=_KEPT_MAX)
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
                    self._kept.append(Metric(name, float(value), now_ms, step))

    def store(self, record: Record) -> None:
        """Keep scalars until the next flush, which writes the mean of each name."""
        self._means.store(record)

    def flush(self, step: int) -> None:
        """Hand the means of what was stored to the sender, and wake it; this does not wait."""
        self.write(self._means.pop_means(), step)
        self._wake.set()

    def write_text(self, name: str, text: str) -> None:
        """A tag of the run."""
        with self._lock:
            self._texts[name] = text

    def write_hparams(self, hparams: Mapping[str, bool | float | str]) -> None:
        """The parameters of the run."""
        with self._lock:
            self._parameters.update(hparams)

    def close(self) -> None:
        """Send what is left, for 15 s at most, and let go."""
        self._stop.set()
        self._wake.set()
        self._sender.join(_CLOSE_S)
        left_out = self._left_out + len(self._kept)
        if left_out:
            log.warning("MLflow at %s: %d scalars were not sent", self._uri, left_out)

    # The sender's thread

    def _send(self) -> None:
        while True:
            stopping = self._stop.is_set()
            try:
                self._send_all(ending=stopping)
                self._say_recovered()
            except MlflowError as error:
                if not self._failing:
                    log.warning("%s; tried again every %g s", error, self._again_after_s)
                self._failing = True
            if stopping:
                return
            if self._failing:
                self._stop.wait(self._again_after_s)
            else:
                self._wake.wait(_SEND_EVERY_S)
                self._wake.clear()

    def _say_recovered(self) -> None:
        if self._failing:
            log.warning("recording to MLflow again")
        self._failing = False

    def _send_all(self, *, ending: bool) -> None:
        self._run_id = self._run_id or self._open_run()
        self._send_notes()
        while self._kept:
            with self._lock:
                some = [self._kept[k] for k in range(min(METRICS_AT_ONCE, len(self._kept)))]
            self._client.log_metrics(self._run_id, some)
            with self._lock:  # what made room meanwhile was the oldest: some of these
                while some and self._kept and self._kept[0] is some[0]:
                    self._kept.popleft()
                    some.pop(0)
        if ending:
            self._client.update_run(self._run_id, "FINISHED", round(self._clock() * 1e3))

    def _send_notes(self) -> None:
        with self._lock:
            parameters, texts = dict(self._parameters), dict(self._texts)
        if parameters:
            self._send_parameters(parameters)
        for name, text in texts.items():
            self._client.set_tag(self._run_id, f"vedette.{name}", text)
        with self._lock:
            self._parameters = {k: v for k, v in self._parameters.items() if k not in parameters}
            self._texts = {k: v for k, v in self._texts.items() if texts.get(k) != v}

    def _send_parameters(self, parameters: Mapping[str, object]) -> None:
        try:
            self._client.log_parameters(self._run_id, parameters)
        except MlflowError as error:
            if error.code != "INVALID_PARAMETER_VALUE":
                raise
            # MLflow changes no parameter: a run that goes on with another one keeps its first
            log.warning("%s", error)

    def _open_run(self) -> str:
        """The MLflow run that this run has, or a new one."""
        file = self._run / "mlflow.json"
        try:
            kept = json.loads(file.read_text("utf-8"))
            if kept["uri"] == self._uri and self._client.has_run(str(kept["run_id"])):
                self._client.update_run(str(kept["run_id"]), "RUNNING")
                return str(kept["run_id"])
        except (OSError, ValueError, KeyError, TypeError):
            pass  # there is none yet, or none that can be read
        name = self._run.resolve().name
        run_id = self._client.create_run(
            self._client.experiment_id(), name, round(self._clock() * 1e3)
        )
        try:
            file.write_text(json.dumps({"uri": self._uri, "run_id": run_id}) + "\n", "utf-8")
        except OSError as error:
            log.warning("%s: %s; a resumed run will be another one in MLflow", file, error.strerror)
        return run_id


_API = "/api/2.0/mlflow/"
_TIMEOUT_S = 10.0
_ANSWER_MAX_BYTES = 1 << 20
_VALUE_MAX_CHARS = 500
"""Of a parameter, in the oldest servers."""

METRICS_AT_ONCE = 500
PARAMETERS_AT_ONCE = 100
"""What one request may carry at most: 1000 and 100."""


class MlflowError(Exception):
    """The server cannot be reached, or refuses.

    Args:
        code: MLflow's own, such as ``RESOURCE_DOES_NOT_EXIST``; "" where there was no answer.
    """

    def __init__(self, what: str, why: str, code: str = "") -> None:
        super().__init__(f"MLflow: {what}: {why}")
        self.code = code


@dataclass(frozen=True, slots=True)
class Tracking:
    """Where to record, as MLflow's own variables say it.

    Args:
        uri: ``http://HOST:PORT`` or https.
        experiment: name of the experiment that runs go into.
        authorization: the header's value; "" for none.
    """

    uri: str
    experiment: str
    authorization: str = ""


def tracking_from(environ: Mapping[str, str]) -> Tracking:
    """Read ``MLFLOW_TRACKING_URI``, ``MLFLOW_EXPERIMENT_NAME`` (vedette) and the credentials
    (``MLFLOW_TRACKING_TOKEN``, or ``_USERNAME`` and ``_PASSWORD``).

    Raises:
        SettingError: the first is not set, or is no web address.
    """
    uri = environ.get("MLFLOW_TRACKING_URI", "")
    if urllib.parse.urlsplit(uri).scheme not in ("http", "https"):
        raise SettingError(
            "learner.recorders",
            f"mlflow records to MLFLOW_TRACKING_URI, and that is {uri!r}",
            "set it to http://HOST:PORT of a tracking server",
        )
    token = environ.get("MLFLOW_TRACKING_TOKEN", "")
    user = environ.get("MLFLOW_TRACKING_USERNAME", "")
    authorization = f"Bearer {token}" if token else ""
    if user and not token:
        pair = f"{user}:{environ.get('MLFLOW_TRACKING_PASSWORD', '')}"
        authorization = "Basic " + base64.b64encode(pair.encode()).decode()
    experiment = environ.get("MLFLOW_EXPERIMENT_NAME", "") or "vedette"
    return Tracking(uri.rstrip("/"), experiment, authorization)


@dataclass(frozen=True, slots=True)
class Metric:
    """A scalar.

    Args:
        timestamp_ms: since 1970.
    """

    key: str
    value: float
    timestamp_ms: int
    step: int


class MlflowClient:
    """One tracking server. Every call waits for its answer, 10 s at most.

    All raise `MlflowError`.
    """

    def __init__(self, tracking: Tracking) -> None:
        self._tracking = tracking

    def experiment_id(self) -> str:
        """The experiment's, which is made where it is not there."""
        name = self._tracking.experiment
        try:
            query = urllib.parse.urlencode({"experiment_name": name})
            return str(self._get(f"experiments/get-by-name?{query}")["experiment"]["experiment_id"])
        except MlflowError as error:
            if error.code != "RESOURCE_DOES_NOT_EXIST":
                raise
        return str(self._post("experiments/create", {"name": name})["experiment_id"])

    def create_run(self, experiment_id: str, name: str, start_ms: int) -> str:
        """A run's id."""
        asked = {"experiment_id": experiment_id, "run_name": name, "start_time": start_ms}
        return str(self._post("runs/create", asked)["run"]["info"]["run_id"])

    def has_run(self, run_id: str) -> bool:
        """Whether a run is there, and can be added to."""
        try:
            self._get("runs/get?" + urllib.parse.urlencode({"run_id": run_id}))
        except MlflowError as error:
            if error.code != "RESOURCE_DOES_NOT_EXIST":
                raise
            return False
        return True

    def log_metrics(self, run_id: str, metrics: Sequence[Metric]) -> None:
        """Add scalars, `METRICS_AT_ONCE` at most."""
        listed = [
            {"key": m.key, "value": m.value, "timestamp": m.timestamp_ms, "step": m.step}
            for m in metrics
        ]
        self._post("runs/log-batch", {"run_id": run_id, "metrics": listed})

    def log_parameters(self, run_id: str, parameters: Mapping[str, object]) -> None:
        """Add hyperparameters, however many."""
        listed = [{"key": k, "value": str(v)[:_VALUE_MAX_CHARS]} for k, v in parameters.items()]
        for first in range(0, len(listed), PARAMETERS_AT_ONCE):
            some = listed[first : first + PARAMETERS_AT_ONCE]
            self._post("runs/log-batch", {"run_id": run_id, "params": some})

    def set_tag(self, run_id: str, key: str, value: str) -> None:
        """Note a text, cut to 5,000 characters."""
        self._post("runs/set-tag", {"run_id": run_id, "key": key, "value": value[:5000]})

    def update_run(self, run_id: str, status: str, end_ms: int | None = None) -> None:
        """Say ``RUNNING`` or ``FINISHED``."""
        ended = {} if end_ms is None else {"end_time": end_ms}
        self._post("runs/update", {"run_id": run_id, "status": status, **ended})

    def _get(self, path: str) -> dict[str, Any]:
        return self._call(path, None)

    def _post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        return self._call(path, json.dumps(body).encode())

    def _call(self, path: str, body: bytes | None) -> dict[str, Any]:
        what = f"{self._tracking.uri}{_API}{path}"
        request = urllib.request.Request(what, body, {"Content-Type": "application/json"})
        if self._tracking.authorization:
            request.add_header("Authorization", self._tracking.authorization)
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:
                found = json.loads(answer.read(_ANSWER_MAX_BYTES) or b"{}")
        except urllib.error.HTTPError as error:
            raise _refusal(path, error) from error
        except (OSError, ValueError) as error:
            raise MlflowError(path, str(error)) from error
        if not isinstance(found, dict):
            raise MlflowError(path, "the answer is no object")
        return found


def _refusal(path: str, error: urllib.error.HTTPError) -> MlflowError:
    """MLflow's own words, where the answer has them."""
    with error:
        text = error.read(_ANSWER_MAX_BYTES)
    try:
        said = json.loads(text)
        return MlflowError(path, str(said["message"]), str(said["error_code"]))
    except (ValueError, KeyError, TypeError):
        return MlflowError(path, f"status {error.code}")
