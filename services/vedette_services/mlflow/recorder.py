"""The recorder ``mlflow``: a thread sends, so that training waits for no network."""

from __future__ import annotations

import json
import logging
import math
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path

from vedette_rl.core import Record
from vedette_rl.recording.means import Means
from vedette_services.mlflow.client import (
    METRICS_AT_ONCE,
    Metric,
    MlflowClient,
    MlflowError,
    tracking_from,
)

log = logging.getLogger("vedette.mlflow")

_SEND_EVERY_S = 2.0
_AGAIN_AFTER_S = 15.0
_CLOSE_S = 15.0
_KEPT_MAX = 100_000
"""Scalars: what is kept while the server is away."""


class MlflowRecorder:
    """Sends scalars, hyperparameters and the configuration to a tracking server.

    The server is that of ``MLFLOW_TRACKING_URI`` (`vedette_services.mlflow.client.tracking_from`).
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
        self.write(self._means.take(), step)
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
