"""What a power failure of the learner's host costs: its rows since the last sync, counted."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from counting_run import CountingRun
from daemons import Daemons, wait_for

from vedette_rl.replay.commits import last_commit
from vedette_rl.replay.manifest import read_manifest
from vedette_rl.replay.ring_files import PAGE_BYTES, map_columns
from vedette_rl.replay.syncing import SyncedCommit, SyncedFile, read_synced

pytestmark = [pytest.mark.timeout(180), pytest.mark.slow]


def tear(replay: Path, chance: random.Random) -> SyncedCommit:
    """Make a replay what a power failure leaves at worst; what of it is on the disk.

    The slots of all rows that the writer may have written since the last sync hold anything, as do
    the commits, and the machine has started since.
    """
    synced = read_synced(replay)
    assert synced is not None
    assert synced.bound > synced.commit.inserted
    manifest = read_manifest(replay)
    for column in map_columns(replay, manifest, writable=True).columns.values():
        for row in range(synced.commit.inserted, synced.bound):
            column[row % manifest.physical_rows] = chance.randrange(2)
    commits = bytearray((replay / "commits").read_bytes())
    for place in range(64, len(commits), chance.randrange(8, 4096)):
        commits[place] = chance.randrange(256)
    (replay / "commits").write_bytes(commits)
    with (replay / "cursor.bin").open("r+b") as cursor:
        cursor.seek(PAGE_BYTES)
        cursor.write(b"\xff" * 4)
    record = SyncedFile(replay)
    record._boot = b"of another start"
    record.write(*synced[:3])
    record.close()
    return synced


def test_a_power_failure_costs_what_came_since_the_last_sync_and_the_run_goes_on_by_itself(
    daemons: Daemons,
) -> None:
    run = CountingRun(daemons, "replay.sync_interval_s=1")
    run.start_manager("stays")
    goes = run.start_manager("goes")
    run.flows(3000)
    run.learner.kill9()
    goes.kill9()
    replay = run.run / "replay"
    rows = last_commit(replay).inserted
    left = tear(replay, random.Random(0))
    assert left.commit.inserted > 0
    run.start_learner()
    run.flows(1000)
    events = [json.loads(line) for line in (run.run / "events.jsonl").read_text().splitlines()]
    told = [event["text"] for event in events if event["kind"] == "recovered"]
    assert len(told) == 1
    assert f"{left.commit.inserted:,} rows kept" in told[0]
    assert told[0] in run.learner.log_file.read_text()
    lost = rows - left.commit.inserted  # none, where no sample came since the last sync
    wait_for(lambda: run.status()["samples"]["lost"] > 0 or not lost, "the loss to be counted")
    gone = "manager goes has been silent"  # what it held is lost from then on
    wait_for(lambda: gone in run.learner.log_file.read_text(), "the other manager to be gone")
    proof, accounting = run.finish()
    assert accounting["in_flight"] == 0
    assert accounting["lost"] <= sum(proof.missing.values())
    assert accounting["lost"] > 0 or not lost
