"""A process that the system killed for want of memory is named with the limit."""

from __future__ import annotations

from pathlib import Path

import pytest

from vedette_services.host.memory_kills import MemoryKills


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    file = tmp_path / "vmstat"
    file.write_text("nr_free_pages 7\noom_kill 3\n")
    return file


def group(place: Path, version: int, kills: int, limit: str) -> Path:
    """A control group of which so many processes were killed."""
    place.mkdir(exist_ok=True, parents=True)
    if version == 2:
        (place / "memory.events").write_text(f"low 0\noom {kills}\noom_kill {kills}\n")
        (place / "memory.max").write_text(f"{limit}\n")
    else:
        (place / "memory.oom_control").write_text(f"under_oom 0\noom_kill {kills}\n")
        (place / "memory.limit_in_bytes").write_text(f"{limit}\n")
    return place


@pytest.mark.parametrize("version", [1, 2])
def test_the_smallest_limit_is_named_with_its_file_and_the_fix(
    tmp_path: Path, machine: Path, version: int
) -> None:
    without = "max" if version == 2 else "9223372036854771712"
    largest = group(tmp_path, version, 1, "2048000000")
    own = group(tmp_path / "a" / "b", version, 1, without)
    above = group(tmp_path / "a", version, 1, "512000000")
    kills = MemoryKills([own, above, largest], machine)
    group(own, version, 2, without)
    why = kills.explain(-9)
    assert "for want of memory: its control group may have 512 MB" in why
    assert str(above) in why
    assert "Slurm's --mem" in why
    assert kills.explain(-9) == ""  # nothing else was killed since


def test_only_a_kill_is_explained_and_only_where_the_system_has_killed(
    tmp_path: Path, machine: Path
) -> None:
    own = group(tmp_path / "own", 2, 4, "512000000")
    kills = MemoryKills([own], machine)
    assert kills.explain(-9) == ""  # somebody else's kill
    group(own, 2, 5, "512000000")
    assert kills.explain(1) == ""
    assert kills.explain(None) == ""
    assert kills.explain(-9) != ""


def test_a_machine_without_memory_is_named_where_no_group_has_a_limit(machine: Path) -> None:
    kills = MemoryKills([], machine)
    machine.write_text("oom_kill 4\n")
    assert kills.explain(-9).startswith("the system kills for want of memory (")


def test_a_system_that_counts_nothing_explains_nothing(tmp_path: Path) -> None:
    assert MemoryKills([], tmp_path / "none").explain(-9) == ""
