"""The room on a snapshot's disk, of which a start says where it is little."""

from __future__ import annotations

from pathlib import Path

import pytest
from configurations import configured
from starts import spec_of

from vedette_rl.replay.ring_parts import BLOCK_BYTES, PART_BYTES
from vedette_services.net.addresses import Address
from vedette_services.run import snapshot_room
from vedette_services.run.directory import RunDirectory
from vedette_services.run.replay_layout import replay_layout
from vedette_services.run.replay_room import layout_space
from vedette_services.run.snapshot_room import describe_little_room
from vedette_services.run.start import RESUME, Start
from vedette_services.run.start_planning import plan_start


def describe(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    missing: int,
    snapshot: str = "snapshot",
    start: Start = RESUME,
) -> str:
    """What a start says of a disk that lacks so many bytes, where 100 kB of a snapshot lie."""
    run = RunDirectory(tmp_path / "run")
    run.make()
    (tmp_path / "snapshot").mkdir()
    (tmp_path / "snapshot" / "rows").write_bytes(bytes(100_000))
    root = "none" if snapshot == "none" else tmp_path / snapshot
    config = configured(f"learner.snapshot={root}", "replay.capacity=6000", env="CartPole-v1")
    spec = spec_of(run, "run", config, Address("127.0.0.1", 5555))
    layout = replay_layout(config, spec.spaces)
    need = layout_space(config, layout).rows_bytes + PART_BYTES + BLOCK_BYTES + (64 << 10)
    has = (tmp_path / "snapshot" / "rows").stat().st_blocks * 512
    monkeypatch.setattr(snapshot_room, "free_disk_bytes", lambda _: need - has - missing)
    return describe_little_room(config, layout, start)


def test_a_disk_with_less_than_the_rows_may_take_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = describe(tmp_path, monkeypatch, missing=1)
    assert said.startswith(f"learner.snapshot: {tmp_path / 'snapshot'} has room for ")
    assert "nothing more is safe" in said


def test_a_disk_that_has_enough_with_what_the_snapshot_takes_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert describe(tmp_path, monkeypatch, missing=0) == ""


@pytest.mark.parametrize(
    ("snapshot", "start"), [("none", RESUME), ("snapshot", Start(in_process=True))]
)
def test_a_start_that_writes_no_snapshot_says_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, snapshot: str, start: Start
) -> None:
    assert describe(tmp_path, monkeypatch, missing=1, snapshot=snapshot, start=start) == ""


def test_a_start_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot_room, "free_disk_bytes", lambda _: 1_000_000)
    config = configured(f"learner.snapshot={tmp_path / 'snapshot'}", env="CartPole-v1")
    [said] = [line for line in plan_start(config, tmp_path / "run").lines if "snapshot" in line]
    assert f"{tmp_path / 'snapshot'} has room for 1 MB," in said
