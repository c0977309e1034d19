"""What control groups allow, of both versions."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from vedette_rl.storage.control_groups import cores_allowed


@pytest.mark.parametrize(
    ("groups", "files", "cores"),
    [
        (
            "0::/jobs/mine\n",
            {"jobs/mine/cpu.max": "max 100000", "jobs/cpu.max": "250000 100000"},
            2.5,
        ),
        ("0::/\n", {"cpu.max": "50000 100000"}, 0.5),
        ("0::/../../outside\n", {"cpu.max": "400000 100000"}, 4.0),
        (
            "5:cpu,cpuacct:/a\n4:memory:/a\n",
            {"cpu/a/cpu.cfs_quota_us": "200000", "cpu/a/cpu.cfs_period_us": "100000"},
            2.0,
        ),
        (
            "5:cpu,cpuacct:/a\n",
            {"cpu/a/cpu.cfs_quota_us": "-1", "cpu/a/cpu.cfs_period_us": "100000"},
            math.inf,
        ),
        ("0::/\n", {"cpu.max": "max"}, math.inf),
        ("0::/\n", {}, math.inf),
        ("", {}, math.inf),
    ],
)
def test_the_smallest_quota_counts(
    tmp_path: Path, groups: str, files: dict[str, str], cores: float
) -> None:
    known = {"proc/self/cgroup": groups, **{f"sys/fs/cgroup/{k}": v for k, v in files.items()}}
    for name, text in known.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert cores_allowed(tmp_path) == cores
