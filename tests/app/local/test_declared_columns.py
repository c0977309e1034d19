"""Columns that an agent or a step processor declares: from the act to the batch, or an error."""

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import remembering  # beside this file
from small_runs import config_of, trained
from starts import lines_of_start  # of tests/support

from vedette_rl.core import Sample
from vedette_rl.replay.rows import MemoryRing
from vedette_rl.replay.uniform import UniformReplay
from vedette_rl.testing import BitFlip
from vedette_services.errors import ConfigError, RefusedError, ServicesError, SettingError


def settings(agent: str = "Memory", steps: str = "TwiceSeen") -> dict[str, Any]:
    return {
        "env": {"id": remembering.ENV},
        "agent": {"name": f"{remembering.__name__}:{agent}"},
        "actors": {"step_processor": f"{remembering.__name__}:{steps}"},
        "learner": {"eval_interval": 0},
    }


def live_rows(ring: MemoryRing) -> dict[str, Any]:
    oldest, inserted = ring.live()
    places = np.arange(oldest, inserted) % len(ring.columns["reward"])
    return {name: column[places] for name, column in ring.columns.items()}


def test_declared_columns_are_stored_and_drawn_as_they_were_made(tmp_path: Path) -> None:
    run, summary = trained(config_of(**settings()), tmp_path)
    assert summary["exit_reason"] == "max_opts"
    rows = live_rows(run.ring)
    remembering.assert_rows_are_right(rows)
    assert set(rows["n_steps"]) == {1, 2, 3}  # the columns are of the step that a row begins with
    remembering.assert_rows_are_right(run.replay.sample(64).columns)


def test_declared_columns_stand_beside_frames_that_are_stored_once(tmp_path: Path) -> None:
    config = config_of(
        **{
            **settings(),
            "env": {"id": remembering.ENV, "frame_stack": 3},
            "actors": {"step_processor": "n_step"},
            "replay": {"frame_storage": "once"},
        }
    )
    run, _ = trained(config, tmp_path)
    assert "since" in run.ring.columns
    columns = run.replay.sample(256).columns
    np.testing.assert_array_equal(columns["since"], columns["obs"][:, -1, remembering.STEP])
    assert len(set(columns["since"])) > 1


@pytest.mark.parametrize(
    ("agent", "steps", "why"),
    [
        ("Undeclared", "TwiceSeen", "column 'since': rows have it and nothing declares it"),
        ("Forgotten", "TwiceSeen", "column 'log_prob': it is declared, and rows come without it"),
        (
            "OneRow",
            "TwiceSeen",
            "column 'since': it comes with 1 rows for 4 environments: return one",
        ),
        ("FewRows", "TwiceSeen", "column 'since': it comes with 3 rows for 4 environments"),
        ("Single", "TwiceSeen", "column 'since': it comes as a single value for 4 environments"),
        ("Memory", "OfOneRow", "column 'twice': it comes with 1 rows for 4 rows of transitions"),
        ("Memory", "OfAnotherShape", r"column 'twice': .* float32\[3\] a row, and comes as .*\[\]"),
    ],
)
def test_a_column_that_is_not_as_declared_ends_the_run_in_one_line(
    tmp_path: Path, agent: str, steps: str, why: str
) -> None:
    with pytest.raises(ServicesError, match=f"the rows that actors make: {why}") as raised:
        trained(config_of(**settings(agent, steps)), tmp_path)
    assert "\n" not in str(raised.value)


def test_a_column_that_flush_leaves_out_is_named_at_the_first_step(tmp_path: Path) -> None:
    why = r"column 'twice': it is declared, and rows come without it \(from the processor's flush\)"
    with pytest.raises(ServicesError, match=f"the rows that actors make: {why}$"):
        trained(config_of(**settings("Memory", "NotFlushed")), tmp_path)
    assert not [*(tmp_path / "checkpoints").glob("*")]  # nothing was learned before


def test_columns_of_the_same_name_are_refused_before_the_start(tmp_path: Path) -> None:
    config = config_of(**{**settings(), "replay": {"prioritized": True}})
    lines_of_start(config, tmp_path, in_process=True)
    both = remembering.columns

    class Declares(remembering.TwiceSeen):
        columns = staticmethod(lambda spaces: both(None, spaces))  # type: ignore[arg-type]

    remembering.Declares = Declares  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match="column 'since': it is declared twice, by agent 'remem"):
        lines_of_start(config_of(**settings(steps="Declares")), tmp_path, in_process=True)


class Newest(UniformReplay):
    """Draws what was inserted last, and remembers that it did."""

    def sample(self, batch_size: int) -> Sample:
        numbers = np.arange(self.inserted - batch_size, self.inserted)
        return Sample(self.gather(numbers), numbers)

    def stats(self) -> dict[str, float]:
        return {"newest": float(self.inserted)}


def test_a_run_draws_from_the_replay_that_is_named(tmp_path: Path) -> None:
    config = config_of(
        replay={"name": f"{__name__}:Newest"}, learner={"recorders": ["csv"], "eval_interval": 0}
    )
    lines_of_start(config, tmp_path / "unused", in_process=True)
    run, summary = trained(config, tmp_path / "run")
    assert isinstance(run.replay, Newest)
    assert summary["exit_reason"] == "max_opts"
    assert "sampling/newest" in (tmp_path / "run" / "records.csv").read_text()


def test_a_replay_that_cannot_be_made_is_refused_before_the_start(tmp_path: Path) -> None:
    config = config_of(replay={"name": f"{__name__}:Newest", "kwargs": {"size": 3}})
    with pytest.raises(SettingError, match=r"replay\.name: .*Newest fails when it is made"):
        lines_of_start(config, tmp_path, in_process=True)


class SingleRow(BitFlip):
    """Judges one pair of goals alone."""

    def compute_reward(self, achieved_goal: Any, desired_goal: Any, info: Any) -> float:
        return -float(achieved_goal[0] != desired_goal[0])


def test_hindsight_tries_the_reward_before_the_start(tmp_path: Path) -> None:
    config = config_of(env={"id": f"{__name__}:SingleRow"}, actors={"step_processor": "her"})
    with pytest.raises(ConfigError, match=r"'her': its goals cannot be judged again \(TypeError: "):
        lines_of_start(config, tmp_path, in_process=True)


def tenth(bits: int) -> gym.Env[Any, Any]:
    return gym.wrappers.TransformReward(BitFlip(bits), lambda reward: 0.1 * float(reward))


def test_a_wrapper_that_hindsight_knows_nothing_of_ends_the_run(tmp_path: Path) -> None:
    env = {"id": f"{__name__}:tenth", "kwargs": {"bits": 2}}
    config = config_of(env=env, actors={"step_processor": "her"})
    why = "'her': a step's reward is -0.1 in its transition, and -1 by compute_reward"
    with pytest.raises(RefusedError, match=why):
        trained(config, tmp_path)


@pytest.mark.parametrize("storage", ["plain", "once"])
def test_rows_of_sequences_are_stored_as_they_were_played_and_drawn(
    tmp_path: Path, storage: str
) -> None:
    config = config_of(
        **{
            **settings("OfSequences"),
            "actors": {"step_processor": "n_step"},
            "replay": {"frame_storage": storage, "sequence": 4, "burn_in": 2},
        }
    )
    run, summary = trained(config, tmp_path)
    assert summary["exit_reason"] == "max_opts"
    rows = live_rows(run.ring)
    assert set(rows["n_steps"]) == {1}
    assert (rows["epoch"] == 1).all()
    for actor in set(rows["actor"].tolist()):
        for env in range(4):
            mine = (rows["actor"] == actor) & (rows["env"] == env)
            assert (np.diff(rows["t"][mine]) == 1).all()
            ended = rows["terminated"][mine] | rows["truncated"][mine]
            np.testing.assert_array_equal(rows["begins"][mine][1:], ended[:-1])
            assert rows["begins"][mine][0]
    drawn = run.replay.sample(64)
    assert {"env", "t", "begins", "epoch"} <= drawn.columns.keys()
    step = drawn["obs"][:, :, remembering.STEP]
    np.testing.assert_array_equal(drawn["since"], step[:, 0])  # of the first step alone
    rows_of_each = drawn["burned"] + drawn["length"]
    goes_on = np.arange(6) < rows_of_each[:, None]
    assert (np.diff(step)[goes_on] == 1).all(), "no sequence goes across an episode's end"
    assert set(drawn["burned"].tolist()) == {0, 1, 2}
    assert drawn["length"].max() == 4
