"""A learner's start after its host has lost power: the replay is recovered, and all sides know."""

import json
import logging
from pathlib import Path

import numpy as np
import pytest
from configurations import configured
from lost_pages import lose_pages
from starts import lines_of_start, spec_of

from vedette_protocol.account import SampleAccounting
from vedette_protocol.ledger import Ledger
from vedette_rl.core.columns import empty_columns
from vedette_rl.envs.make import probe_environment
from vedette_rl.replay.frame_ring import open_writer
from vedette_rl.replay.limiter import Limiter
from vedette_rl.replay.ring import RingWriter
from vedette_services.learner.supervisor import Supervisor
from vedette_services.net.addresses import Address
from vedette_services.run.directory import LearnerSpec, RunDirectory
from vedette_services.run.events import read_events
from vedette_services.run.replay_layout import make_run_limiter, replay_layout
from vedette_services.run.ring_stamp import ActorNumbers, pack_stamp, read_stamp


@pytest.fixture
def spec(tmp_path: Path) -> LearnerSpec:
    """A learner's run of CartPole."""
    config = configured("replay.capacity=6000", env="CartPole-v1")
    run = RunDirectory(tmp_path / "run")
    run.make()
    return spec_of(run, run.ensure_id(), config, Address("127.0.0.1", 5555))


def open_replay(spec: LearnerSpec) -> RingWriter:
    layout = replay_layout(spec.config, probe_environment(spec.config.env))
    return open_writer(
        spec.run.replay,
        layout.stored,
        spec.config.replay.capacity,
        run_id=spec.run_id,
        guard=layout.guard,
        sync_interval_s=3600.0,
    )


def insert(ring: RingWriter, rows: int, ledger: Ledger) -> None:
    ring.append(empty_columns(ring.manifest.row_dtype, rows), rows)
    ledger.mark_alive("m", 7, 0.0)
    ledger.account("m", 7).inserted += rows
    ledger._entries["m"].packed = None
    ring.commit(pack_stamp(ledger, ActorNumbers()))


def test_a_start_after_a_power_failure_is_not_refused_and_tells_what_was_lost(
    spec: LearnerSpec, caplog: pytest.LogCaptureFixture
) -> None:
    ring = open_replay(spec)
    ledger = Ledger(spec.run_id)
    insert(ring, 100, ledger)
    ring._syncer.sync()
    insert(ring, 23, ledger)
    ring._held.close()
    spec.run.model_map.write_bytes(b"torn")
    lose_pages(spec.run.replay)
    assert any("100 rows kept, 23 lost" in x for x in lines_of_start(spec.config, spec.run.root))
    supervisor = Supervisor(spec, None, on_loaded=lambda: None)
    with caplog.at_level(logging.WARNING):
        supervisor._begin()
        supervisor._begin()  # there is nothing more to do
    (said,) = caplog.messages
    assert said.endswith("recovered to its last sync: 100 rows kept, 23 lost")
    events, _ = read_events(spec.run.events_file)
    assert [event.kind for event in events] == ["started", "recovered", "started"]
    assert not spec.run.model_map.exists()
    found = open_replay(spec)
    assert found.live() == (0, 100)
    samples = read_stamp(spec.run_id, found.stamp, 0.0)[0].accounting()
    assert samples == SampleAccounting(produced=123, inserted=100, lost=23)


def test_neither_side_waits_for_the_other_where_a_power_failure_took_all_rows(
    spec: LearnerSpec,
) -> None:
    # the learner is far behind
    inserted = 50_000
    sampled = 0
    assert make_run_limiter(spec.config).insert_wait_reason(inserted, sampled)
    limiter = make_run_limiter(spec.config, floor=inserted)
    assert not limiter.insert_wait_reason(inserted, sampled)
    assert limiter.insertable_samples(inserted, sampled) == limiter.min_size
    assert limiter.sample_wait_reason(inserted, sampled).startswith("learner waits: 0 of")
    warm = inserted + limiter.min_size
    assert not limiter.sample_wait_reason(warm, sampled)


def test_a_floor_below_the_live_rows_changes_nothing() -> None:
    with_floor, without = (Limiter(4.0, 100, 200.0, 32, floor) for floor in (300, 0))
    for inserted in (400, 1000):
        for sampled in np.arange(0, 4000, 100):
            for ask in (Limiter.insert_wait_reason, Limiter.sample_wait_reason):
                assert ask(with_floor, inserted, sampled) == ask(without, inserted, sampled)


def test_a_damaged_identity_is_told_with_its_mend_and_never_with_erasing(
    spec: LearnerSpec,
) -> None:
    run = spec.run
    (run.root / "run.json").write_text("")
    with pytest.raises(Exception, match="or name another --out; what is in this one stays"):
        run.identity()
    checkpoint = run.checkpoints / "100"
    checkpoint.mkdir()
    (checkpoint / "state.safetensors").write_bytes(b"")
    (checkpoint / "meta.json").write_text(json.dumps({"run_id": spec.run_id, "epoch": 3}))
    with pytest.raises(Exception, match="the run goes on") as refused:
        run.identity()
    assert "fresh" not in str(refused.value)
    content = str(refused.value).partition("or write ")[2].partition(" into it")[0]
    (run.root / "run.json").write_text(content)
    assert (run.identity().run_id, run.identity().epoch) == (spec.run_id, 1003)
