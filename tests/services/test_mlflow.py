"""Scalars, parameters and texts reach a tracking server, and training waits for none of it."""

import json
import math
import subprocess
import sys
import time
from pathlib import Path

import pytest
from configurations import configured
from mlflow_server import serving
from starts import train_in_process

from vedette_rl.core import Recorder
from vedette_rl.core.protocols import implements
from vedette_services.config.plugins import MLFLOW
from vedette_services.errors import SettingError
from vedette_services.mlflow import _DEFAULTS, MlflowRecorder, tracking_from
from vedette_services.run.checks import check_import_names


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "mine")
    monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "me")
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "secret")


def recorder_to(uri: str, run: Path) -> MlflowRecorder:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLFLOW_TRACKING_URI", uri)
        return MlflowRecorder(run, again_after_s=0.05)


def test_what_is_recorded_arrives_under_its_name_and_step(tmp_path: Path) -> None:
    with serving() as (server, uri):
        recorder = recorder_to(uri, tmp_path)
        assert implements(recorder, Recorder)
        recorder.write_hparams({"agent.name": "dqn", "seed": 3})
        recorder.write_text("config", "seed = 3")
        recorder.write({"eval/mean_reward": 21.0, "bad": math.nan}, step=1000)
        recorder.store({"train/loss": 1.0})
        recorder.store({"train/loss": 3.0})
        recorder.flush(step=500)
        recorder.close()
    run = server.runs["run0"]
    found = {(m["key"], m["value"], m["step"]) for m in run["metrics"]}
    assert found == {("eval/mean_reward", 21.0, 1000), ("train/loss", 2.0, 500)}
    assert run["params"] == {"agent.name": "dqn", "seed": "3"}
    assert run["tags"] == {"vedette.config": "seed = 3"}
    assert (run["run_name"], run["experiment_id"]) == (tmp_path.name, "7")
    assert run["status"] == "FINISHED"
    assert server.authorizations == {"Basic bWU6c2VjcmV0"}


@pytest.mark.parametrize(
    ("end", "status"),
    [
        ("max_opts", "FINISHED"),
        ("target_return", "FINISHED"),
        ("failed", "FAILED"),
        ("interrupted", "KILLED"),
        ("", "RUNNING"),  # a recorder that is replaced: the run goes on
    ],
)
def test_how_a_run_has_ended_is_its_status(tmp_path: Path, end: str, status: str) -> None:
    with serving() as (server, uri):
        for _ in range(2):  # an MLflow run that goes on is set to RUNNING
            recorder = recorder_to(uri, tmp_path)
            recorder.name_end(lambda: end)
            recorder.write({"x": 1.0}, step=1)
            recorder.close()
        assert server.runs["run0"]["status"] == status


def test_a_run_that_goes_on_goes_on_in_its_own_mlflow_run(tmp_path: Path) -> None:
    with serving() as (server, uri):
        for start, seed in enumerate((3, 4)):  # a changed parameter is refused, and said
            recorder = recorder_to(uri, tmp_path)
            recorder.write_hparams({"seed": seed})
            recorder.write({"x": float(start)}, step=start)
            recorder.close()
    assert [m["value"] for m in server.runs["run0"]["metrics"]] == [0.0, 1.0]
    assert server.runs["run0"]["params"] == {"seed": "3"}
    assert len(server.runs) == 1


def test_scalars_outlast_a_server_that_is_away_and_nobody_waits_for_it(tmp_path: Path) -> None:
    with serving() as (server, uri):
        server.away = True
        recorder = recorder_to(uri, tmp_path)
        began = time.monotonic()
        for step in range(2000):
            recorder.write({"x": 1.0}, step)
        recorder.flush(2000)
        assert time.monotonic() - began < 1.0
        server.away = False
        assert server.logged.wait(10)
        recorder.close()
    assert [m["step"] for m in server.runs["run0"]["metrics"]] == list(range(2000))


def test_a_server_that_never_comes_costs_a_line_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    recorder = recorder_to("http://127.0.0.1:9", tmp_path)
    recorder.write({"x": 1.0}, 0)
    recorder.close()
    assert "1 scalars were not sent" in caplog.text
    assert caplog.text.count("tried again every") == 1


def test_the_login_of_an_address_is_neither_logged_nor_stored(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_USERNAME")
    monkeypatch.delenv("MLFLOW_TRACKING_PASSWORD")
    with serving() as (server, uri):
        for login in ("alice:s3cret@", "alice:s3cret2@"):  # a new password, the same server
            recorder = recorder_to(uri.replace("://", f"://{login}"), tmp_path)
            recorder.write({"x": 1.0}, 0)
            recorder.close()
    assert len(server.runs) == 1
    assert server.authorizations == {"Basic YWxpY2U6czNjcmV0", "Basic YWxpY2U6czNjcmV0Mg=="}
    assert json.loads((tmp_path / "mlflow.json").read_text())["uri"] == uri
    recorder = recorder_to("http://alice:s3cret@127.0.0.1:9", tmp_path / "away")
    recorder.close()
    assert "MLflow at http://127.0.0.1:9: API request to http://127.0.0.1:9/" in caplog.text
    assert "s3cret" not in caplog.text
    for uri, shown in (("htp://alice:s3/t@host", "'htp://host'"), ("alice:s3@host", "'host'")):
        with pytest.raises(SettingError, match=f"and that is {shown}"):
            tracking_from({"MLFLOW_TRACKING_URI": uri})


@pytest.mark.parametrize("uri", ["", "file:///tmp/mlruns", "host:5000"])
def test_an_address_that_is_none_is_refused_before_the_start(
    uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    config = configured('learner.recorders=["csv", "mlflow"]')
    assert config.learner.recorders == ("csv", MLFLOW)
    with pytest.raises(SettingError, match="MLFLOW_TRACKING_URI"):
        check_import_names(config)


def test_an_experiment_has_a_name_that_nobody_chose() -> None:
    tracking = tracking_from({"MLFLOW_TRACKING_URI": "https://tracking.example.org/"})
    assert tracking == ("https://tracking.example.org", "vedette")


def test_without_the_extra_it_is_refused_with_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("vedette_services.mlflow.find_spec", lambda name: None)
    with pytest.raises(SettingError, match=r"mlflow is not installed; pip install 'vedette\[mlf"):
        tracking_from({"MLFLOW_TRACKING_URI": "https://tracking.example.org/"})


def test_mlflow_reports_no_usage_and_is_not_loaded_without_need() -> None:
    code = "import sys, vedette_services.mlflow; sys.exit('mlflow' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
    assert _DEFAULTS["MLFLOW_DISABLE_TELEMETRY"] == "true"


def test_a_run_records_to_mlflow_by_its_short_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving() as (server, uri):
        monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
        settings = ["preset=none", 'learner.recorders=["mlflow"]', "stop.max_opts=40"]
        settings += ["agent.hidden_sizes=[16]", "learner.warmup_period=64", "actors.n_buffer=16"]
        settings += ["learner.eval_interval=20", "evaluation.episodes=2"]
        train_in_process(configured(*settings), tmp_path / "mine")
    run = server.runs["run0"]
    assert {"eval/mean_reward", "samples_total"} <= {m["key"] for m in run["metrics"]}
    assert run["params"]["agent.name"] == "dqn"
    assert 'id = "CartPole-v1"' in run["tags"]["vedette.config"]
