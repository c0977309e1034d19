"""Scalars, parameters and texts reach a tracking server, and training waits for none of it."""

import math
import time
from pathlib import Path

import pytest
from mlflow_server import serving

from vedette.local.in_process import run_in_process
from vedette_rl.core import Recorder
from vedette_services.config import load_config
from vedette_services.config.plugins import MLFLOW
from vedette_services.errors import SettingError
from vedette_services.mlflow import MlflowRecorder, tracking_from
from vedette_services.run.checks import check_import_names


def recorder_to(uri: str, run: Path, **more: str) -> MlflowRecorder:
    environ = {"MLFLOW_TRACKING_URI": uri, "MLFLOW_EXPERIMENT_NAME": "mine", **more}
    return MlflowRecorder(run, environ=environ, again_after_s=0.05)


def test_what_is_recorded_arrives_under_its_name_and_step(tmp_path: Path) -> None:
    with serving() as (server, uri):
        recorder = recorder_to(uri, tmp_path, MLFLOW_TRACKING_USERNAME="me")
        assert isinstance(recorder, Recorder)
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
    assert server.authorizations == {"Basic bWU6"}


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


@pytest.mark.parametrize("uri", ["", "file:///tmp/mlruns", "host:5000"])
def test_an_address_that_is_none_is_refused_before_the_start(
    uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    config = load_config(settings=['learner.recorders=["csv", "mlflow"]'], environment={}).config
    assert config.learner.recorders == ("csv", MLFLOW)
    with pytest.raises(SettingError, match="MLFLOW_TRACKING_URI"):
        check_import_names(config)


def test_a_token_comes_before_a_password() -> None:
    environ = {
        "MLFLOW_TRACKING_URI": "https://tracking.example.org/",
        "MLFLOW_TRACKING_TOKEN": "t",
        "MLFLOW_TRACKING_USERNAME": "me",
    }
    tracking = tracking_from(environ)
    assert (tracking.authorization, tracking.experiment) == ("Bearer t", "vedette")
    assert tracking.uri == "https://tracking.example.org"


def test_a_run_records_to_mlflow_by_its_short_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving() as (server, uri):
        monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
        settings = ["preset=none", 'learner.recorders=["mlflow"]', "stop.max_opts=40"]
        settings += ["agent.hidden_sizes=[16]", "learner.warmup_period=64", "actors.n_buffer=16"]
        settings += ["learner.eval_interval=20", "evaluation.episodes=2"]
        run_in_process(load_config(settings=settings, environment={}).config, tmp_path / "mine")
    run = server.runs["run0"]
    assert {"eval/mean_reward", "samples_total"} <= {m["key"] for m in run["metrics"]}
    assert run["params"]["agent.name"] == "dqn"
    assert 'id = "CartPole-v1"' in run["tags"]["vedette.config"]
