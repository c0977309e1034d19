"""Training on sources: offline, before the actors, and beside them."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from configurations import configured
from sequence_agent import OF_SEQUENCES
from starts import lines_of_start, train_in_process

from vedette_rl.recording.reading import CurveReader
from vedette_rl.replay.ring import RingReader
from vedette_services.config import RunConfig, load_config
from vedette_services.errors import ManySettingsError, SettingError
from vedette_services.status.status import Status

ROWS = 400


def demonstrations(path: Path) -> Path:
    rng = np.random.default_rng(0)
    seen = rng.normal(size=(ROWS // 20, 21, 4)).astype(np.float32)  # 20 episodes of 20 steps
    of_rows: dict[str, Any] = {"obs": seen[:, :-1], "next_obs": seen[:, 1:]}
    ends = np.arange(ROWS) % 20 == 19
    np.savez(
        path,
        action=rng.integers(0, 2, ROWS),
        reward=np.ones(ROWS, np.float32),
        terminated=ends,
        truncated=np.zeros(ROWS, bool),
        n_steps=np.ones(ROWS, np.uint8),
        **{name: column.reshape(ROWS, 4) for name, column in of_rows.items()},
    )
    return path


def configuration(place: Path, *settings: str) -> RunConfig:
    data = demonstrations(place / "demos.npz")
    small = ["preset=none", "agent.n_step=1", "agent.hidden_sizes=[8]", "agent.batch_size=16"]
    small += ["learner.warmup_period=50", "learner.eval_interval=0", "replay.capacity=2000"]
    small += ["learner.flush_record_interval=10", "actors.count=1", "actors.envs_per_actor=2"]
    return configured(
        *small,
        *settings,
        env="CartPole-v1",
        agent="dqn",
        table={"replay": {"sources": {"demos": {"data": str(data), "share": 0.25}}}},
    )


def trained(config: RunConfig, out: Path) -> Status:
    lines_of_start(config, out, in_process=True)
    return train_in_process(config, out)


def curve(out: Path, tag: str) -> Any:
    return CurveReader(out).read().curves[tag].values


def test_a_run_without_actors_trains_on_its_sources_alone(tmp_path: Path) -> None:
    status = trained(configuration(tmp_path, "actors.count=0", "stop.max_opts=30"), tmp_path / "a")
    assert (status.opt_steps, status.env_steps, status.samples.produced) == (30, 0, 0)
    assert (curve(tmp_path / "a", "replay/share_demos") == 1.0).all()
    assert curve(tmp_path / "a", "replay/return_demos").tolist() == [20.0]


def test_steps_before_the_actors_need_none_and_do_not_count_for_the_ratio(tmp_path: Path) -> None:
    config = configuration(tmp_path, "learner.pretrain_opts=20", "stop.max_opts=40")
    status = trained(config, tmp_path / "a")
    assert curve(tmp_path / "a", "replay/share_demos")[:4].tolist() == [1.0, 1.0, 0.25, 0.25]
    # the 20 steps that wait for actors: so many samples for each of theirs, as without a source
    plain = config.model_copy(
        update={
            "replay": config.replay.model_copy(update={"sources": {}}),
            "learner": config.learner.model_copy(update={"pretrain_opts": 0}),
            "stop": config.stop.model_copy(update={"max_opts": 20}),
        }
    )
    assert trained(plain, tmp_path / "b").env_steps == status.env_steps
    source = status.sources[0]
    assert (source.name, source.size, source.episodes) == ("demos", ROWS, 20)
    assert (source.share, source.return_mean) == (0.25, 20.0)


def test_a_resumed_run_does_not_begin_with_the_steps_before_the_actors_again(
    tmp_path: Path,
) -> None:
    config = configuration(tmp_path, "learner.pretrain_opts=10", "stop.max_opts=5")
    assert trained(config, tmp_path / "a").env_steps == 0
    longer = config.model_copy(update={"stop": config.stop.model_copy(update={"max_opts": 15})})
    assert trained(longer, tmp_path / "a").env_steps
    assert curve(tmp_path / "a", "replay/share_demos")[-1] == pytest.approx(0.25, abs=0.5)


class Helped(gym.Wrapper[Any, Any, Any, Any]):
    """A person takes every step."""

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, info = super().step(action)
        return obs, reward, terminated, truncated, {**info, "intervene_action": action}


def test_the_last_status_has_the_interventions_up_to_the_last_one(tmp_path: Path) -> None:
    wrapper = "env.wrappers=[{name='test_training_on_sources:Helped'}]"
    settings = "replay.sources.interventions.share=0.5", "stop.max_opts=20", "actors.n_buffer=7"
    status = trained(configuration(tmp_path, wrapper, *settings), tmp_path / "a")
    ring = RingReader(tmp_path / "a/replay/sources/interventions")
    (size,) = (source.size for source in status.sources if source.name == "interventions")
    assert size == ring.size == status.env_steps


def test_sequences_are_drawn_from_a_data_set_and_from_what_a_person_does(tmp_path: Path) -> None:
    """Whose steps are the actors' own, in a ring of theirs."""
    data = demonstrations(tmp_path / "demos.npz")
    with np.load(data) as rows:
        ends = rows["terminated"]
        keys = {
            "env": np.zeros(ROWS, np.uint32),
            "t": np.arange(ROWS) + 2**40,
            "begins": np.concatenate([[True], ends[:-1]]),
        }
        np.savez(data, **rows, **keys)
    config = configured(
        *("preset=none", "agent.batch_size=16", "learner.warmup_period=50", "replay.capacity=2000"),
        *("learner.eval_interval=0", "actors.count=1", "actors.envs_per_actor=2"),
        *("stop.max_opts=30", "replay.sequence=5", "replay.burn_in=2", "actors.n_buffer=7"),
        "env.wrappers=[{name='test_training_on_sources:Helped'}]",
        env="CartPole-v1",
        agent=OF_SEQUENCES,
        table={
            "replay": {
                "sources": {
                    "demos": {"data": str(data), "share": 0.25},
                    "interventions": {"share": 0.25},
                }
            }
        },
    )
    status = trained(config, tmp_path / "a")
    assert status.opt_steps == 30
    shares = [source.share for source in status.sources]
    assert shares == pytest.approx([0.25, 0.25], abs=0.02)


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("actors.count=0", "0 actors play, and replay.sources names no data set"),
        ("learner.pretrain_opts=5", "5 steps need samples before the actors'"),
        ("agent.imitation.loss=margin", "names nobody to imitate"),
    ],
)
def test_what_needs_a_source_is_refused_without_one(
    tmp_path: Path, setting: str, said: str
) -> None:
    config = configured(setting, env="CartPole-v1", agent="dqn")
    with pytest.raises((SettingError, ManySettingsError), match=said):
        lines_of_start(config, tmp_path / "run")


@pytest.mark.parametrize(
    ("sources", "said"),
    [
        ({"demos": {}}, "'demos' has no data"),
        ({"interventions": {"data": "x"}}, "'interventions' are the actors' own rows"),
        ({"actors": {"data": "x"}}, "'actors' are the actors' own rows"),
        ({"a b": {"data": "x"}}, "a source's name is letters, digits and _"),
        ({"a": {"data": "x", "share": 0.6}, "b": {"data": "y", "share": 0.6}}, "are 1.2: lower"),
        ({"a": {"data": "x", "share": math.nan}}, r"a\.share: must be finite, not nan"),
        ({"a": {"dta": "x"}}, r"replay\.sources\.a\.dta: unknown key"),
    ],
)
def test_sources_that_cannot_be_are_refused_by_their_key(sources: Any, said: str) -> None:
    with pytest.raises((SettingError, ManySettingsError), match=said):
        load_config(
            env="CartPole-v1", agent="dqn", table={"replay": {"sources": sources}}, environment={}
        )


def test_a_replay_of_ones_own_takes_no_sources(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="set name=auto, or leave sources out"):
        configuration(tmp_path, "replay.name=my_replay:Mine")
