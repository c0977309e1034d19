import json
import sys
from pathlib import Path

import numpy as np
import pytest

from vedette_rl.agents.registry import agent_type
from vedette_rl.checkpoint import write_state
from vedette_rl.envs.make import probe
from vedette_services.cli.app import main
from vedette_services.config import RunConfig, write_config
from vedette_services.errors import NotARunError
from vedette_services.finished_run import FinishedRun

CONFIG = RunConfig.model_validate(
    {"env": {"id": "CartPole-v1"}, "agent": {"name": "dqn", "hidden_sizes": [8]}}
)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run's directory with the best model that its evaluator would have written."""
    write_config(CONFIG, tmp_path / "config.toml")
    agent = agent_type("dqn").build_agent(CONFIG.agent, probe(CONFIG.env), device="cpu", seed=1)
    arrays = dict(agent.model_info().arrays)
    write_state(tmp_path / "best", {"model": arrays}, {"version": 70, "return_mean": 9.0})
    return tmp_path


def json_of(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, float]:
    with pytest.raises(SystemExit) as left:
        main(arguments)
    said = capsys.readouterr()
    assert not left.value.code, said.err
    found = json.loads(said.out)
    assert isinstance(found, dict)
    return found


def test_eval_prints_the_contracts_fields_and_the_same_twice(
    run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    first = json_of(["eval", str(run), "--episodes", "3", "--json"], capsys)
    assert list(first) == [
        "return_mean", "return_std", "length_mean", "episodes", "version", "seed"
    ]  # fmt: skip
    assert (first["episodes"], first["version"]) == (3, 70)
    assert first["seed"] == CONFIG.evaluation.seed
    assert first["return_mean"] == first["length_mean"] > 0
    assert json_of(["eval", str(run), "--episodes", "3", "--json"], capsys) == first


def test_the_best_model_is_read_with_its_version(run: Path) -> None:
    best = FinishedRun.open(run).best()
    assert best.model.version == 70
    assert all(array.dtype == np.float32 for array in best.model.arrays.values())


def test_a_run_without_an_evaluation_says_so(tmp_path: Path) -> None:
    write_config(CONFIG, tmp_path / "config.toml")
    with pytest.raises(NotARunError, match="no evaluation of it has ended yet"):
        FinishedRun.open(tmp_path).best()


def test_the_replay_is_where_the_configuration_says(tmp_path: Path) -> None:
    write_config(CONFIG, tmp_path / "config.toml")
    assert FinishedRun.open(tmp_path).replay == tmp_path / "replay"
