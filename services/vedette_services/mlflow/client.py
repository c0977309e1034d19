"""What of MLflow's REST interface (version 2.0) a recorder needs."""

from __future__ import annotations

import base64
import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vedette_services.errors import SettingError

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
