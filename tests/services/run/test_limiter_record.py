"""Where the balance of a limiter begins when a run is resumed with other settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from vedette_rl.replay.limiter import LimiterOrigin
from vedette_services.config.run_config import RunConfig
from vedette_services.config.saving import publish_config
from vedette_services.run.directory import RunDirectory
from vedette_services.run.limiter_record import LimiterRecord, next_record, remaining_draws
from vedette_services.run.prepare import _note_limiter
from vedette_services.run.replay_layout import make_run_limiter
from vedette_services.status.assembly import assemble_known, counted
from vedette_services.status.records import GatewayStatus, TrainerStatus
from vedette_services.status.schema import decode, encode
from vedette_services.status.status import Eval, Samples

WARMUP, BATCH, ROWS = 200, 64, 8


def config_of(samples_per_insert: float, **more: Any) -> RunConfig:
    of_agent = {"name": "sac", "batch_size": BATCH}
    learner = {"warmup_period": more.pop("warmup_period", WARMUP)}
    actors = {"n_buffer": ROWS, "count": 1, "envs_per_actor": 2}
    replay = {"samples_per_insert": samples_per_insert, **more}
    parts = {"env": {"id": "Pendulum-v1"}, "agent": of_agent, "learner": learner}
    return RunConfig.model_validate({**parts, "actors": actors, "replay": replay})


class Run:
    """A run that is started again and again, with a checkpoint at each end."""

    def __init__(self) -> None:
        self.inserted = self.sampled = 0
        self.record: LimiterRecord | None = None

    def start(self, config: RunConfig, opts: int) -> int:
        """Do so many optimization steps, both sides as fast as they may; return what was
        inserted meanwhile."""
        limiter = make_run_limiter(config)
        self.record = next_record(self.record, limiter, self.inserted, lambda _: self.sampled)
        limiter = make_run_limiter(config, 0, self.record.origin)
        before = self.inserted
        done = 0
        while done < opts:
            may_insert = not limiter.insert_wait_reason(self.inserted, self.sampled)
            may_draw = not limiter.sample_wait_reason(self.inserted, self.sampled)
            assert may_insert or may_draw, "both sides wait for each other"
            if may_draw:  # actors are slow
                self.sampled += BATCH
                done += 1
            else:
                self.inserted += ROWS
        return self.inserted - before


@pytest.mark.parametrize(
    ("before", "now", "first", "opts"),
    [
        pytest.param(1280, 16, 600, 60, id="down"),
        pytest.param(1, 640, 60, 900, id="up"),
        pytest.param(0, 16, 600, 60, id="from no limit"),
        pytest.param(64, 64, 200, 200, id="unchanged"),
    ],
)
def test_a_changed_ratio_holds_from_the_start_that_changed_it(
    before: float, now: float, first: int, opts: int
) -> None:
    run = Run()
    run.start(config_of(before), first)
    inserted = run.start(config_of(now), opts)
    right = opts * BATCH / now
    buffer = make_run_limiter(config_of(now)).error_buffer / now
    assert abs(inserted - right) <= buffer + ROWS


def test_a_ratio_that_is_changed_twice_counts_from_the_last_change() -> None:
    run = Run()
    run.start(config_of(1280), 600)
    run.start(config_of(16), 60)
    inserted = run.start(config_of(1280), 600)
    assert (
        abs(inserted - 600 * BATCH / 1280) <= make_run_limiter(config_of(1280)).error_buffer / 1280
    )


def test_a_warm_up_that_was_raised_is_waited_for_and_not_paid_back() -> None:
    run = Run()
    run.start(config_of(64), 300)
    there = run.inserted
    more = config_of(64, warmup_period=2 * there)
    inserted = run.start(more, 1)
    assert run.inserted == pytest.approx(2 * there, abs=ROWS)
    inserted = run.start(more, 200)
    assert abs(inserted - 200) <= make_run_limiter(more).error_buffer / 64 + ROWS


def test_the_samples_that_a_step_processor_makes_are_part_of_the_settings() -> None:
    config = config_of(64)
    her = {"step_processor": "her", "her_goals": 4}
    with_goals = config.model_copy(update={"actors": config.actors.model_copy(update=her)})
    last = LimiterRecord(make_run_limiter(config).settings)
    record = next_record(last, make_run_limiter(with_goals), 5000, lambda _: 320_000)
    assert record.origin == LimiterOrigin(5000, 320_000)


def test_unchanged_settings_keep_the_balance_exactly() -> None:
    config = config_of(16)
    changed = LimiterRecord(make_run_limiter(config).settings, 4000, 60_000)
    after_kill = next_record(changed, make_run_limiter(config), 4800, lambda _: 1 / 0)  # unasked
    assert after_kill is changed
    new = next_record(None, make_run_limiter(config), 4800, lambda _: 1 / 0)
    assert new.origin is None


def test_a_replay_without_rows_begins_a_balance_of_its_own() -> None:
    config = config_of(16)
    changed = LimiterRecord(make_run_limiter(config).settings, 4000, 60_000)
    assert next_record(changed, make_run_limiter(config), 0, lambda _: 0).origin is None
    shrunk = next_record(changed, make_run_limiter(config), 3000, lambda _: 45_000)
    assert shrunk.origin == LimiterOrigin(3000, 45_000)


def test_draws_from_rows_that_are_gone_do_not_count() -> None:
    """Else the learner would wait until as many rows had come again."""
    meta = {"inserted": 1000, "sampled": 64_000}
    assert remaining_draws(meta, 1000) == remaining_draws(meta, 1200) == 64_000
    assert remaining_draws(meta, 500) == 32_000
    assert remaining_draws(meta, 0) == remaining_draws({"inserted": 0, "sampled": 0}, 0) == 0


def test_draws_before_the_balance_began_are_not_shared_out() -> None:
    meta = {"inserted": 1000, "sampled": 64_000}
    origin = LimiterOrigin(800, 63_000)
    assert remaining_draws(meta, 1000, origin) == 64_000
    assert remaining_draws(meta, 900, origin) == 63_500
    assert remaining_draws(meta, 700, origin) == 63_000
    assert remaining_draws(meta, 700, LimiterOrigin(1000, 64_000)) == 64_000


def test_the_record_is_kept_beside_the_identity(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    run.make()
    assert run.limiter_origin is None
    for record in (LimiterRecord((1.0, 2.0)), LimiterRecord((1.0, 2.5), 7, 9)):
        run.keep_limiter(record)
        assert run.identity().limiter == record
    assert run.limiter_origin == LimiterOrigin(7, 9)
    run.begin_new_run()
    assert run.identity().limiter is None


def test_the_status_counts_from_where_the_balance_began() -> None:
    sampled = TrainerStatus(epoch=2, sampled=70_400, limiter_origin=(4000, 64_000))
    learning = decode(TrainerStatus, encode(sampled))
    assert learning == sampled
    ingest = GatewayStatus(samples=Samples(0, 4400, 0, 0, 0, 0, 0))
    status = counted(assemble_known("r", config_of(16), learning, ingest, Eval()))
    assert status.limiter.samples_per_insert == pytest.approx(16)


def test_the_limiter_of_a_run_of_an_earlier_version_is_that_of_its_configuration(
    tmp_path: Path,
) -> None:
    run = RunDirectory(tmp_path)
    run.make()
    publish_config(config_of(64), run.config_file)
    _note_limiter(run)
    assert run.identity().limiter == LimiterRecord(make_run_limiter(config_of(64)).settings)
    publish_config(config_of(16), run.config_file)
    _note_limiter(run)  # it is known
    assert run.identity().limiter == LimiterRecord(make_run_limiter(config_of(64)).settings)
