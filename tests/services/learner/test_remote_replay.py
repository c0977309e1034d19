"""`RemoteReplay` without processes: its gateway is a ring that the test writes."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from starts import lines_of_start, plan  # of tests/support

import vedette
from vedette_rl.core import Columns, ModelInfo, RowColumn
from vedette_rl.core.columns import TIME
from vedette_rl.envs.make import probe_environment
from vedette_rl.envs.spaces import Spaces
from vedette_rl.replay.config import ReplayConfig
from vedette_rl.replay.frame_ring import open_writer
from vedette_services.config import RunConfig, load_config
from vedette_services.errors import (
    ArgumentError,
    ConfigError,
    ReplayWaitError,
    ServicesError,
    SettingError,
    UsageError,
)
from vedette_services.host.processes import WakeupEvent
from vedette_services.learner import remote_replay
from vedette_services.learner.remote_replay import RemoteReplay
from vedette_services.net.addresses import Address
from vedette_services.run.directory import LearnerSpec
from vedette_services.run.model_map import ModelMapReader
from vedette_services.run.outcome import write_summary
from vedette_services.run.prepare import begin_balance
from vedette_services.run.replay_layout import replay_directory, replay_layout
from vedette_services.run.status_files import StatusReader, clear_status_records
from vedette_services.status.records import (
    GatewayStatus,
    StatusRecordReader,
    StatusRecordWriter,
    TrainerStatus,
)
from vedette_services.status.status import (
    ActorStatus,
    ManagerStatus,
    Refused,
    Samples,
    SourceStatus,
    Status,
)
from vedette_services.status.stop_conditions import exit_sentence, is_over, stop_progress

ARRAYS = {"weights": np.zeros(4, np.float32)}
ADDRESS = Address("127.0.0.1", 28_910)


class Thresholds:
    """A policy of one array."""

    def __init__(self, spaces: Spaces, seed: int) -> None:
        assert spaces.observation.shape == (4,)

    def sync_model(self, model: ModelInfo) -> None:
        self.weights = model.arrays["weights"]

    def act(self, obs: Columns, *, explore: bool) -> Any:
        return (obs["obs"] @ self.weights > 0).astype(np.int64)


class WithColumns(Thresholds):
    """A policy that says what it acted on."""

    def acted_columns(self) -> Columns:
        return {"weight": np.full(1, self.weights[0])}

    @staticmethod
    def columns(spaces: Spaces) -> list[RowColumn]:
        return [RowColumn("weight")]


class Undeclared(WithColumns):
    columns = None  # type: ignore[assignment]  # it declares none


class Unbuildable(Thresholds):
    def __init__(self, spaces: Spaces, seed: int) -> None:
        raise ValueError("no such spaces")


class RingOnly:
    """In place of the gateway and its supervisor."""

    latest: RingOnly

    def __init__(self, spec: LearnerSpec, on_loaded: Callable[[], None], drawn: int) -> None:
        self.spec = spec
        self.drawn = drawn
        self.error = None
        self._on_loaded = on_loaded
        self.wakeup = WakeupEvent()
        self.is_serving = False
        clear_status_records(spec.run)
        RingOnly.latest = self

    def start(self, epoch: int, opt_steps: int) -> None:
        config = self.spec.config
        layout = replay_layout(config, probe_environment(config.env))
        self._row = layout.stored
        directory = replay_directory(config, self.spec.run.root)
        capacity = config.replay.capacity
        run_id = self.spec.run_id
        self._ring = open_writer(directory, layout.stored, capacity, run_id=run_id)
        begin_balance(self.spec.run, config, lambda inserted: self.drawn)
        self._record = StatusRecordWriter(self.spec.run.ingest_map, GatewayStatus)
        self.is_serving = True
        self._on_loaded()
        self.insert(0)

    def insert(self, rows: int) -> None:
        """Insert rows that count themselves in their rewards; each follows the one before."""
        first = self._ring.inserted
        for at in range(0, rows, 100):
            columns = np.zeros(min(100, rows - at), self._row)
            columns["reward"] = first + at + np.arange(len(columns))
            names = self._row.names or ()
            if TIME in names:
                columns[TIME] = columns["reward"]
            self._ring.append({name: columns[name].copy() for name in names}, len(columns))
            self._ring.commit()
        self.report()

    def report(self, **further: Any) -> None:
        """Write the gateway's status."""
        inserted = self._ring.inserted
        samples = Samples(inserted, inserted, 0, 0, 0, 0, 0)
        self._record.write(GatewayStatus(samples=samples, env_steps=inserted, **further))

    def end(self) -> None:
        self.is_serving = False
        self.last = StatusReader(self.spec).read()
        self._record.close()
        self._ring.close()


@pytest.fixture(autouse=True)
def _no_gateway(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_replay, "_GatewaySupervisor", RingOnly)


def configured(*settings: str, agent: str = "test_remote_replay:Thresholds") -> RunConfig:
    own = ("learner.warmup_period=100", "agent.batch_size=10", "learner.eval_interval=0")
    return load_config(env="CartPole-v1", agent=agent, settings=[*own, *settings]).config


def opened(run: Path, *settings: str, **options: Any) -> RemoteReplay:
    keys = options.pop("keys", None)
    asked = {**options, "custom_loop": True, "force": bool(options.get("fresh"))}
    return RemoteReplay(plan(configured(*settings), run, **asked), ADDRESS, keys=keys)


def demonstrations(folder: Path) -> Path:
    """The file of an exported replay, of 50 rows."""
    obs = np.zeros((50, 4), np.float32)
    whole = np.zeros(50, np.int64)
    rows = dict.fromkeys(("action", "version", "manager", "actor"), whole)
    np.savez(
        folder / "demos.npz",
        obs=obs,
        next_obs=obs,
        reward=np.zeros(50, np.float32),
        terminated=np.zeros(50, np.bool_),
        truncated=np.zeros(50, np.bool_),
        n_steps=np.ones(50, np.uint8),
        **rows,  # type: ignore[arg-type]  # numpy takes its own options by name, too
    )
    return folder / "demos.npz"


def with_demonstrations(folder: Path, *settings: str) -> RunConfig:
    """A configuration with a source of 50 rows that makes up half of each batch."""
    sources = {"demos": {"data": str(demonstrations(folder)), "share": 0.5}}
    return load_config(
        env="CartPole-v1",
        agent="test_remote_replay:Thresholds",
        settings=["learner.warmup_period=100", "agent.batch_size=10", "agent.n_step=1", *settings],
        table={"replay": {"sources": sources}},
    ).config


def test_a_batch_is_drawn_once_the_warmup_is_over(tmp_path: Path) -> None:
    with opened(tmp_path) as replay:
        replay.publish(ARRAYS)
        RingOnly.latest.insert(99)
        with pytest.raises(ReplayWaitError, match="0 s: learner waits: 99 of 100") as waited:
            replay.sample(timeout_s=0.0)
        assert waited.value.reason == replay.wait_reason()
        assert isinstance(waited.value, TimeoutError)
        RingOnly.latest.insert(1)
        assert replay.wait_reason() == ""
        batch = replay.sample()
        assert batch["reward"].shape == (10,)
        assert set(batch["reward"]) <= set(range(100))
        assert (len(replay), replay.inserted, replay.batches) == (100, 100, 1)
        assert replay.sample(30)["obs"].shape == (30, 4)


@pytest.mark.parametrize("batch_size", [-1, 0, 10**9, "ten", 2.5, True])
def test_a_batch_of_no_number_of_rows_is_refused(tmp_path: Path, batch_size: Any) -> None:
    with opened(tmp_path) as replay:
        replay.publish(ARRAYS)
        RingOnly.latest.insert(100)
        for ask in (replay.sample, replay.wait_reason):
            with pytest.raises(UsageError, match=r"batch_size=.*: no number of rows from 1 to"):
                ask(batch_size)
        assert replay.sample(np.int64(7))["obs"].shape == (7, 4)


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ([1], "a mapping of names to arrays, not list"),
        (None, "a mapping of names to arrays, not NoneType"),
        ({}, "a mapping of names to arrays, not an empty one"),
        ({"weights": np.zeros(5, np.float32)}, "cannot act on these arrays: ValueError: matmul"),
        (
            {"a": {"w": torch.ones(2).bfloat16()}},
            r"'a/w' is .* torch\.bfloat16.*float\(\)",
        ),
        ({"w": torch.eye(2).to_sparse()}, r"'w' is .*torch\.sparse_coo.*to_dense\(\)"),
    ],
)
def test_what_the_policy_cannot_act_on_is_refused(tmp_path: Path, arrays: Any, said: str) -> None:
    with opened(tmp_path) as replay, pytest.raises(UsageError, match=f"publish: .*{said}"):
        replay.publish(arrays)


def test_the_limiter_counts_rows_of_batches_of_any_size(tmp_path: Path) -> None:
    settings = ("replay.samples_per_insert=2", "replay.error_buffer=50")
    with opened(tmp_path, *settings) as replay:
        replay.publish(ARRAYS)
        RingOnly.latest.insert(100)
        drawn = 0
        while not replay.wait_reason(20):
            drawn += len(replay.sample(20, timeout_s=0.0).indices)
        assert drawn == 40  # as far as 2 x 0 rows since the warm-up + 50 reaches
        RingOnly.latest.insert(10)
        replay.sample(20, timeout_s=0.0)
        with pytest.raises(ReplayWaitError, match="must be inserted"):
            replay.sample(20, timeout_s=0.0)
        with pytest.raises(Exception, match=r"replay\.error_buffer is 50, and batches of 128"):
            replay.sample(128)


def test_sequences_are_drawn_and_count_as_their_steps(tmp_path: Path) -> None:
    settings = ("replay.samples_per_insert=2", "replay.error_buffer=50", "replay.prioritized=true")
    settings += ("replay.sequence=4", "replay.burn_in=2")
    with opened(tmp_path, *settings) as replay:
        replay.publish(ARRAYS)
        RingOnly.latest.insert(100)
        while not replay.wait_reason(5):
            batch = replay.sample(5, timeout_s=0.0)
            replay.update_priority(batch.indices, 1.0 + batch.indices)
        assert replay.batches == 2  # 5 sequences of 4 steps each, of 40 samples
        assert (batch["obs"].shape, batch["reward"].shape) == ((5, 7, 4), (5, 6))
        assert batch.weights is not None
        of_rows = batch["burned"] + batch["length"] - 1
        np.testing.assert_array_equal(
            np.diff(batch["reward"]), (np.arange(5) < of_rows[:, None]).astype(np.float32)
        )
        masses = replay.get_state()["masses"]
        assert np.count_nonzero(masses) == 97
    with opened(tmp_path, *settings) as replay:  # from the file of priorities
        np.testing.assert_array_equal(replay.get_state()["masses"], masses)


def test_a_loop_whose_rows_have_no_whole_sequence_waits_and_says_so(tmp_path: Path) -> None:
    with opened(tmp_path, "replay.sequence=200", "replay.samples_per_insert=0") as replay:
        replay.publish(ARRAYS)
        RingOnly.latest.insert(150)
        with pytest.raises(ReplayWaitError, match="none of 150 samples begins a whole sequence"):
            replay.sample(timeout_s=0.0)
        learning = StatusRecordReader(RingOnly.latest.spec.run.learning_map, TrainerStatus)
        assert learning.read().needs_samples
        RingOnly.latest.insert(50)
        assert replay.wait_reason() == ""
        assert not learning.read().needs_samples
        assert replay.sample(3, timeout_s=0.0)["length"].tolist() == [200] * 3
        replay.close("interrupted")


def test_a_ratio_that_is_changed_counts_from_the_start_that_changes_it(tmp_path: Path) -> None:
    drawn = []
    for ratio in (20, 2, 2):
        settings = (f"replay.samples_per_insert={ratio}", "replay.error_buffer=50")
        with opened(tmp_path, *settings) as replay:
            replay.publish(ARRAYS)
            RingOnly.latest.insert(200 if ratio == 20 else 10)
            before = replay.batches
            while not replay.wait_reason(20):
                replay.sample(20, timeout_s=0.0)
            drawn.append(20 * (replay.batches - before))
            replay.close("interrupted")
    assert drawn == [2040, 60, 20]  # 20 x 100 + 50; 2 x 10 + 50 from the middle; 2 x 10 more


def test_who_waits_before_a_model_was_published_is_told(tmp_path: Path) -> None:
    with opened(tmp_path) as replay:
        assert "the first model, which nobody has published" in replay.wait_reason()
        replay.publish(ARRAYS)
        assert "published" not in replay.wait_reason()


def test_a_model_that_the_policy_does_not_take_is_refused(tmp_path: Path) -> None:
    with opened(tmp_path) as replay:
        with pytest.raises(UsageError, match="does not take these arrays: KeyError: 'weights'"):
            replay.publish({"weight": np.zeros(4, np.float32)})
        assert replay.publish(ARRAYS) == 0
        with pytest.raises(UsageError, match=r"publish: .*weights"):
            replay.publish({"weights": np.zeros(5, np.float32)})
        with pytest.raises(UsageError, match="publish: "):
            replay.publish({"weights": np.array(["four"])})


def test_arrays_are_published_in_any_order_and_nested(tmp_path: Path) -> None:
    weights = np.zeros(4, np.float32)
    bias = np.ones(2, np.float32)
    with opened(tmp_path) as replay:
        replay.publish({"weights": weights, "head": {"bias": bias, "scale": bias}})
        replay.publish({"head": {"scale": 2 * bias, "bias": 3 * bias}, "weights": weights})
        with pytest.raises(ValueError, match=r"arrays of before: 'head/scale' is missing"):
            replay.publish({"weights": weights, "head": {"bias": bias}})
        with pytest.raises(ArgumentError, match="two arrays are called 'head/bias'"):
            replay.publish({"head": {"bias": bias}, "head/bias": bias})
        replay.close("interrupted")
    found = ModelMapReader(tmp_path / "live" / "model.map").read()
    assert found is not None
    arrays = found.info().arrays
    assert [*arrays] == ["weights", "head/bias", "head/scale"]
    nested = found.info().nested()
    assert (nested["head"]["scale"] == 2.0).all()
    assert (nested["head"]["bias"] == 3.0).all()


def test_a_policy_class_declares_the_columns_that_it_fills(tmp_path: Path) -> None:
    config = configured(agent="test_remote_replay:WithColumns")
    with RemoteReplay(plan(config, tmp_path / "run", custom_loop=True), ADDRESS) as replay:
        replay.publish(ARRAYS)
        RingOnly.latest.insert(100)
        assert replay.sample()["weight"].shape == (10,)
    config = configured(agent="test_remote_replay:Undeclared")
    with (
        RemoteReplay(plan(config, tmp_path / "other", custom_loop=True), ADDRESS) as replay,
        pytest.raises(ArgumentError, match=r"has 'weight', which it does not declare: give it a"),
    ):
        replay.publish(ARRAYS)


def gone(error: str) -> ManagerStatus:
    return ManagerStatus("there-1", state="gone", left=True, actors=(ActorStatus(error=error),))


def test_who_waits_is_told_why_managers_that_have_come_do_not_play(tmp_path: Path) -> None:
    with opened(tmp_path) as replay:
        replay.publish(ARRAYS)
        RingOnly.latest.report(managers=(gone("column 'x': nothing declares it"),))
        with pytest.raises(ReplayWaitError) as waited:
            replay.sample(timeout_s=0.0)
        assert str(waited.value).endswith(
            "0 of 100 warm-up samples; manager there-1 gave up: column 'x': nothing declares it"
        )
        RingOnly.latest.report(managers=(gone("x"), ManagerStatus("there-2", state="running")))
        assert replay.wait_reason() == "learner waits: 0 of 100 warm-up samples"
        RingOnly.latest.report(refused=Refused(keys=3))
        assert replay.wait_reason().endswith(
            "3 connections were refused, whose keys are not let in here"
        )


def test_batches_are_drawn_from_sources_alone_where_nobody_plays(tmp_path: Path) -> None:
    config = with_demonstrations(tmp_path, "actors.count=0", "learner.pretrain_opts=2")
    with RemoteReplay(plan(config, tmp_path / "run", custom_loop=True), ADDRESS) as replay:
        for _ in range(20):
            assert replay.sample(timeout_s=0.0)["source"].tolist() == [1] * 10
        assert (replay.batches, replay.inserted) == (20, 0)
        replay.publish(ARRAYS)  # for an evaluation elsewhere
        RingOnly.latest.insert(100)  # somebody plays after all
        assert sorted(replay.sample(timeout_s=0.0)["source"].tolist()) == [0] * 5 + [1] * 5


def test_the_first_batches_are_of_sources_alone_and_the_limiter_does_not_count_them(
    tmp_path: Path,
) -> None:
    limits = ("replay.samples_per_insert=1", "replay.error_buffer=10")
    config = with_demonstrations(tmp_path, "learner.pretrain_opts=7", *limits)
    with RemoteReplay(plan(config, tmp_path / "run", custom_loop=True), ADDRESS) as replay:
        replay.publish(ARRAYS)
        for _ in range(7):
            assert replay.sample(timeout_s=0.0)["source"].all()
        with pytest.raises(ReplayWaitError, match="0 of 100 warm-up samples"):
            replay.sample(timeout_s=0.0)
        RingOnly.latest.insert(100)
        replay.sample(timeout_s=0.0)
        with pytest.raises(ReplayWaitError, match="must be inserted"):
            replay.sample(timeout_s=0.0)
        assert replay.batches == 8


def test_settings_that_a_loop_of_ones_own_ignores_are_refused(tmp_path: Path) -> None:
    learner = vedette.LearnerConfig(save_interval=100, warmup_period=50, eval_interval=0)
    evaluation = vedette.EvaluationConfig(episodes=3)
    with pytest.raises(ValueError, match=r"^learner\.save_interval: counts for nothing") as refused:
        vedette.Replay(tmp_path / "run", env="CartPole-v1", learner=learner, evaluation=evaluation)
    assert str(refused.value).splitlines() == [
        f"{key}: counts for nothing here: your own loop trains, saves and evaluates; leave it out"
        for key in ("learner.save_interval", "evaluation.episodes")
    ]
    assert not (tmp_path / "run").exists()


def test_settings_of_an_agent_that_no_actor_reads_are_refused(tmp_path: Path) -> None:
    agent = vedette.SAC(learning_rate=1e-2, batch_size=64, hidden_sizes=(32,), n_critics=3)
    with pytest.raises(ValueError, match=r"^agent\.learning_rate: counts for nothing") as refused:
        vedette.Replay(tmp_path / "run", env="Pendulum-v1", agent=agent)
    assert str(refused.value).splitlines() == [
        f"agent.{key}: counts for nothing here: your own loop learns, and no actor reads it; "
        "leave it out"
        for key in ("learning_rate", "n_critics")
    ]
    assert not (tmp_path / "run").exists()


def test_only_the_count_of_draws_stays_of_the_maps_after_the_end(tmp_path: Path) -> None:
    with opened(tmp_path) as replay:
        RingOnly.latest.insert(100)
        replay.publish(ARRAYS)
        replay.sample()
    assert [path.name for path in (tmp_path / "live").iterdir()] == ["learning.map"]


def test_versions_are_the_batches_drawn_and_always_rise(tmp_path: Path) -> None:
    import torch

    with opened(tmp_path, "learner.model_dtype=float16") as replay:
        RingOnly.latest.insert(100)
        assert [replay.publish(ARRAYS) for _ in range(2)] == [0, 1]
        for _ in range(5):
            replay.sample()
        weights = torch.full((4,), 7.0, requires_grad=True)
        assert replay.publish({"weights": weights}) == 5
        weights.data.zero_()  # the model is a copy
        replay.close("interrupted")  # a run that is over keeps none
    for name in ("model.map", "float16.map"):
        found = ModelMapReader(tmp_path / "live" / name).read()
        assert found is not None
        assert (found.version, found.info().arrays["weights"].tolist()) == (5, [7.0] * 4)


def test_a_start_goes_on_where_the_last_one_was(tmp_path: Path) -> None:
    settings = ("replay.prioritized=true", "replay.samples_per_insert=1")
    with opened(tmp_path, *settings) as replay:
        replay.publish(ARRAYS)
        RingOnly.latest.insert(300)
        for _ in range(20):
            batch = replay.sample()
            replay.update_priority(batch.indices, np.ones(10))
        state = replay.get_state()
    assert RingOnly.latest.last.exit_reason == "loop_ended"
    with opened(tmp_path, *settings) as replay:
        assert (replay.batches, replay.inserted) == (20, 300)
        assert replay.get_state()["draws"] == 20  # beta's schedule
        assert replay.publish(ARRAYS) == 20
        assert replay.sample().weights is not None
        replay.set_state(state)
        assert replay.status().epoch == 2
    with opened(tmp_path, *settings, new_replay=True) as replay:
        assert (len(replay), replay.batches) == (0, 21)
        replay.publish(ARRAYS)
        RingOnly.latest.insert(200)
        assert replay.sample(timeout_s=0.0).indices.max() < 200  # no debt of rows that are gone


def test_a_start_without_the_maps_of_the_last_one_counts_on_from_the_summary(
    tmp_path: Path,
) -> None:
    with opened(tmp_path) as replay:
        replay.publish(ARRAYS)
        RingOnly.latest.insert(300)
        for _ in range(20):
            replay.sample()
    assert write_summary(tmp_path / "summary.json", RingOnly.latest.last, ended=True) == ""
    shutil.rmtree(tmp_path / "live")
    with opened(tmp_path) as replay:
        assert (replay.batches, replay.inserted) == (20, 300)
        assert replay.publish(ARRAYS) == 20


def test_the_schedules_of_sources_go_on_at_the_next_start(tmp_path: Path) -> None:
    config = with_demonstrations(tmp_path, "replay.prioritized=true")
    for start in range(2):
        with RemoteReplay(plan(config, tmp_path / "run", custom_loop=True), ADDRESS) as replay:
            replay.publish(ARRAYS)
            RingOnly.latest.insert(200)
            for drawn in range(1, 16):
                replay.sample(timeout_s=0.0)
                state = replay.get_state()
                assert state["mixed_draws"] == 15 * start + drawn
                assert state["draws"] == 15 * start + drawn


def test_sources_are_in_the_status_with_what_was_drawn_of_them(tmp_path: Path) -> None:
    config = with_demonstrations(tmp_path, "learner.flush_record_interval=4")
    with RemoteReplay(plan(config, tmp_path / "run", custom_loop=True), ADDRESS) as replay:
        assert replay.status().sources == (SourceStatus("demos", 50, episodes=1),)
        replay.publish(ARRAYS)
        RingOnly.latest.insert(100)
        for _ in range(2):
            replay.sample(timeout_s=0.0)
        assert replay.status().sources[0].share is None
        batch = replay.sample()
        assert "source" in batch
        assert "intervened" not in batch
        assert list(batch) == list(batch.keys()) == list(batch.columns)
        assert dict(batch)["reward"] is batch["reward"]
        shares = (replay.sample() and replay.status().sources[0].share for _ in range(10_000))
        assert next(filter(None, shares)) == 0.5
        config = with_demonstrations(tmp_path, "learner.flush_record_interval=0")
    with RemoteReplay(plan(config, tmp_path / "run", custom_loop=True), ADDRESS) as replay:
        replay.sample()
    assert RingOnly.latest.last.sources[0].share == 0.5


def test_what_a_start_finds_of_sources_is_logged_as_of_a_learner(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    config = with_demonstrations(tmp_path)
    run = tmp_path / "run"
    without = config.model_copy(update={"replay": ReplayConfig(capacity=config.replay.capacity)})
    for settings, said in (
        (config, "demos.npz, which is read once, at this start"),
        (config, "demos.npz, read before"),
        (without, f"its rows remain in {run / 'replay/sources/demos'}"),
    ):
        caplog.clear()
        vedette.Replay(run, config=settings).close()
        lines = [one.getMessage() for one in caplog.records if one.name == "vedette.replay"]
        assert [line.endswith(said) for line in lines if line.startswith("source demos: ")] == [
            True
        ]
        assert not any("checkpoint" in line for line in lines)


def test_a_start_warns_of_settings_that_have_changed_or_change_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A program that sets up no logging is shown warnings alone."""

    def warnings(learning_rate: float) -> list[str]:
        caplog.clear()
        settings = [f"agent.learning_rate={learning_rate}", "replay.alpha=0.5"]
        config = configured(*settings)
        vedette.Replay(tmp_path / "run", config=config).close()
        found = [one for one in caplog.records if one.name == "vedette.replay"]
        return [one.getMessage() for one in found if one.levelname == "WARNING"]

    unused = "without effect: replay.alpha=0.5, because replay.prioritized is false"
    assert warnings(0.5) == [unused]
    assert warnings(0.25) == ["changed agent.learning_rate: 0.5 -> 0.25", unused]


def test_a_draw_that_waits_for_long_warns_and_each_time_later(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_replay, "_WARN_WAIT_S", 0.01)
    with opened(tmp_path) as replay, pytest.raises(ReplayWaitError):
        replay.sample(timeout_s=1.0)
    lines = [one for one in caplog.records if "a draw waits for" in one.getMessage()]
    assert 2 <= len(lines) <= 7  # after 0.01, 0.02, 0.04, ... s
    assert {line.levelname for line in lines} == {"WARNING"}
    assert "learner waits: " in lines[0].getMessage()


def test_nobody_is_asked_for_evaluations_that_nobody_takes(tmp_path: Path) -> None:
    with opened(tmp_path, "learner.eval_interval=100", "evaluation.where=actors") as replay:
        assert replay.config.learner.eval_interval == 0
        assert LearnerSpec.read(tmp_path).config.learner.eval_interval == 0


def test_iteration_ends_at_a_stop_condition(tmp_path: Path) -> None:
    with opened(tmp_path, "stop.max_opts=12", "stop.max_env_steps=1000") as replay:
        replay.publish(ARRAYS)
        RingOnly.latest.insert(150)
        assert sum(1 for _ in replay) == 12
    assert RingOnly.latest.last.exit_reason == "max_opts"
    with opened(tmp_path, "stop.max_env_steps=160") as replay:
        replay.publish(ARRAYS)
        for number, _ in enumerate(replay):
            RingOnly.latest.insert(10 if number == 3 else 0)
    assert RingOnly.latest.last.exit_reason == "max_env_steps"


def test_an_exception_leaves_the_run_to_go_on(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), opened(tmp_path):
        _ = 1 / 0
    assert RingOnly.latest.last.exit_reason == "interrupted"
    replay = opened(tmp_path)
    replay.close("interrupted")
    replay.close()  # twice is once
    assert RingOnly.latest.last.exit_reason == "interrupted"
    with pytest.raises(ServicesError, match="the replay is closed"):
        replay.sample()


def test_a_gateway_that_gave_up_is_raised_in_the_loop(tmp_path: Path) -> None:
    with opened(tmp_path) as replay:
        RingOnly.latest.error = ServicesError("the gateway died")  # type: ignore[assignment]  # as a supervisor's
        RingOnly.latest.is_serving = False
        with pytest.raises(ServicesError, match="the gateway died"):
            replay.sample()
    opened(tmp_path).close()  # the directory is free again


def test_a_policy_class_learns_nothing_by_itself(tmp_path: Path) -> None:
    config = configured()
    assert math.isclose(config.agent.usual_samples_per_insert, 0.0)
    lines_of_start(config, tmp_path, custom_loop=True)
    with pytest.raises(ConfigError, match="Thresholds is a policy, which acts and learns nothing"):
        lines_of_start(config, tmp_path)
    broken = configured(agent="test_remote_replay:Unbuildable")
    with pytest.raises(ConfigError, match="fails when it is made: ValueError: no such spaces"):
        lines_of_start(broken, tmp_path, custom_loop=True)


@pytest.mark.parametrize("agent", ["dqn", "test_remote_replay:Thresholds"])
def test_a_loop_of_ones_own_loads_initial_weights_itself(tmp_path: Path, agent: str) -> None:
    config = configured("preset=none", "learner.init_from=runs/one", agent=agent)
    with pytest.raises(SettingError) as refused:
        lines_of_start(config, tmp_path, custom_loop=True)
    assert str(refused.value) == (
        "learner.init_from: your own loop has the weights; set it to none, and load them in the "
        "loop"
    )


def test_a_loop_that_has_ended_has_no_condition_to_raise() -> None:
    ended = Status(exit_reason="loop_ended", opt_steps=10)
    assert exit_sentence("loop_ended", " after 0:01") == (
        "done after 0:01: its training loop has ended"
    )
    assert not is_over(ended, configured("stop.max_opts=5").stop)
    assert stop_progress(ended) == []
