"""What a run collected, published as a Minari data set, and trained on offline by another run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from configurations import configured
from starts import lines_of_start, train_in_process

import vedette
from vedette.cli.app import main
from vedette_rl.recording.reading import CurveReader
from vedette_services.config import RunConfig
from vedette_services.run.outcome import read_summary

minari = pytest.importorskip("minari")
ID = "cart/replay-v0"


def configuration(*settings: str) -> RunConfig:
    small = ["preset=none", "agent.n_step=1", "agent.hidden_sizes=[16]", "agent.batch_size=16"]
    small += ["learner.warmup_period=100", "learner.eval_interval=0", "replay.capacity=2000"]
    small += ["learner.record_agent_info_interval=10", "actors.envs_per_actor=2", "seed=5"]
    return configured(*small, *settings, env="CartPole-v1", agent="dqn")


@pytest.mark.slow
def test_a_run_is_published_and_trained_on_offline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    online, offline = tmp_path / "online", tmp_path / "offline"
    made = configuration("actors.count=1", "stop.max_opts=200")
    vedette.train(made, out=online, progress=False)
    status = read_summary(online)
    how = ["--what", "replay", "--format", "minari"]
    with pytest.raises(SystemExit) as left:
        main(
            ["export", str(online), *how, "--out", f"minari:{ID}"],
        )
    status_of_export = left.value.code
    said = capsys.readouterr()
    assert not status_of_export, said.err
    data = minari.load_dataset(ID)
    assert data.total_steps == status.replay.size
    about = data.storage.metadata["vedette"]
    assert (about["agent"], about["seed"], about["run_id"]) == ("dqn", 5, status.run_id)
    assert about["config"]["agent"]["hidden_sizes"] == [16]
    low, high = about["model_versions"]
    assert -1 <= low <= high <= 200
    assert str(tmp_path) not in str(data.storage.metadata)

    config = configuration(
        "actors.count=0", "stop.max_opts=100", f"replay.sources.online.data=minari:{ID}"
    )
    lines_of_start(config, offline, in_process=True)
    trained = train_in_process(config, offline)
    assert (trained.opt_steps, trained.env_steps) == (100, 0)
    assert (trained.sources[0].size, trained.sources[0].episodes) == (
        data.total_steps,
        data.total_episodes,
    )
    for run in (online, offline):
        losses = CurveReader(run).read().curves["train/loss"].values
        assert len(losses)
        assert np.isfinite(losses).all()
