"""The budget: what a replay needs, and what is counted as free."""

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from counting_rows import DTYPE

from vedette_rl.errors import ReplayBudgetError
from vedette_rl.number_format import format_bytes
from vedette_rl.replay.budget import (
    ReplaySpace,
    available_memory,
    check_budget,
    file_system,
    replay_space,
)
from vedette_rl.replay.prioritized import open_priorities
from vedette_rl.replay.ring import RingReader, RingWriter

GB = 10**9


def write(root: Path, files: dict[str, str]) -> Path:
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)
    return root


def machine(root: Path, *, free_kb: int = 64_000_000, kind: str = "ext4", **files: str) -> Path:
    return write(
        root,
        {
            "proc/meminfo": f"MemTotal:       99 kB\nMemAvailable:   {free_kb} kB\n",
            "proc/self/mountinfo": f"1 0 8:1 / / rw - {kind} /dev/x rw\n",
            **files,
        },
    )


def test_the_need_foretold_is_what_the_files_take(tmp_path: Path) -> None:
    RingWriter.open(tmp_path, DTYPE, 50_000, run_id="run").close()
    uniform = sum(path.stat().st_size for path in tmp_path.iterdir())
    assert replay_space(DTYPE, 50_000, prioritized=False).total_bytes == pytest.approx(
        uniform, rel=0.01
    )
    open_priorities(RingReader(tmp_path))
    both = sum(path.stat().st_size for path in tmp_path.iterdir())
    assert replay_space(DTYPE, 50_000, prioritized=True).total_bytes == pytest.approx(
        both, rel=0.01
    )


def test_a_million_atari_transitions_are_foretold_without_making_them() -> None:
    dtype = np.dtype([("obs", "u1", (4, 84, 84)), ("next_obs", "u1", (4, 84, 84))])
    need = replay_space(dtype, 1_000_000, prioritized=True)
    assert str(need) == "replay: 1,000,000 samples need 56.7 GB"


def test_a_need_that_fits_gets_its_line(tmp_path: Path) -> None:
    line = check_budget(
        ReplaySpace(1000, 24, 10), tmp_path / "not" / "made", root=machine(tmp_path)
    )
    assert line.startswith("replay: 10 samples need 1.02 kB; free: 65.5 GB of memory, ")


def test_too_little_memory_is_refused_with_need_have_and_fix(tmp_path: Path) -> None:
    root = machine(tmp_path, free_kb=1_000_000)
    need = ReplaySpace(2 * GB, 0, 1000)
    with pytest.raises(ReplayBudgetError) as caught:
        check_budget(need, tmp_path, root=root)
    assert str(caught.value) == (
        "the replay needs 2 GB of memory, but 1.02 GB is free: "
        "lower replay.capacity, or name a directory on a disk as replay.directory"
    )
    check_budget(need, tmp_path, must_fit_memory=False, root=root)


def test_a_tmpfs_is_memory_whoever_chose_it(tmp_path: Path) -> None:
    root = machine(tmp_path, free_kb=1_000_000, kind="tmpfs")
    with pytest.raises(ReplayBudgetError, match="of memory"):
        check_budget(ReplaySpace(2 * GB, 0, 1000), tmp_path, must_fit_memory=False, root=root)


def test_too_little_disk_is_refused_with_need_have_and_fix(tmp_path: Path) -> None:
    with pytest.raises(ReplayBudgetError, match=r"needs 1e\+03 PB of disk .* lower replay"):
        check_budget(ReplaySpace(10**18, 0, 10), tmp_path, root=machine(tmp_path))


def disk(*, total: int, free: int) -> Any:
    return SimpleNamespace(total=total, used=total - free, free=free)


@pytest.mark.parametrize(("need", "is_of_others"), [(GB, True), (11 * GB, False)])
def test_a_disk_that_others_fill_is_to_be_emptied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, need: int, is_of_others: bool
) -> None:
    """The capacity alone was blamed."""
    monkeypatch.setattr("shutil.disk_usage", lambda _: disk(total=10 * GB, free=GB // 2))
    with pytest.raises(ReplayBudgetError, match=r"500 MB is free") as raised:
        check_budget(ReplaySpace(need, 0, 10), tmp_path, root=machine(tmp_path))
    said = "lower replay.capacity, make room there (other files hold 9.5 GB of its 10 GB), or name"
    assert (said in str(raised.value)) is is_of_others


def test_what_its_own_files_take_is_not_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    RingWriter.open(tmp_path / "replay", DTYPE, 1000, run_id="run").close()
    monkeypatch.setattr("shutil.disk_usage", lambda _: disk(total=1_000_000, free=1_000_000))
    need = replay_space(DTYPE, 1000, prioritized=False)
    check_budget(need, tmp_path / "replay", root=machine(tmp_path))
    with pytest.raises(ReplayBudgetError, match="of disk"):
        check_budget(need, tmp_path / "elsewhere", root=machine(tmp_path))


def test_a_version_2_control_group_limits_memory(tmp_path: Path) -> None:
    root = machine(tmp_path)
    write(
        root,
        {
            "proc/self/cgroup": "0::/jobs/mine\n",
            "sys/fs/cgroup/jobs/memory.max": "4000000\n",
            "sys/fs/cgroup/jobs/memory.current": "3000000\n",
            "sys/fs/cgroup/jobs/memory.stat": "anon 1\ninactive_file 500000\nactive_file 250000\n",
            "sys/fs/cgroup/jobs/mine/memory.max": "max\n",
            "sys/fs/cgroup/jobs/mine/memory.current": "3000000\n",
        },
    )
    assert available_memory(root) == 1_750_000


def test_a_container_sees_its_own_group_as_the_root(tmp_path: Path) -> None:
    root = machine(tmp_path)
    write(
        root,
        {
            "proc/self/cgroup": "0::/../../somewhere/outside\n",
            "sys/fs/cgroup/memory.max": "512000\n",
            "sys/fs/cgroup/memory.current": "12000\n",
        },
    )
    assert available_memory(root) == 500_000


def test_a_version_1_control_group_limits_memory(tmp_path: Path) -> None:
    root = machine(tmp_path)
    write(
        root,
        {
            "proc/self/cgroup": "5:cpu,cpuacct:/a\n4:memory:/a\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
            "sys/fs/cgroup/memory/memory.usage_in_bytes": "1\n",
            "sys/fs/cgroup/memory/a/memory.limit_in_bytes": "700\n",
            "sys/fs/cgroup/memory/a/memory.usage_in_bytes": "300\n",
        },
    )
    assert available_memory(root) == 400


def test_the_file_system_is_the_one_of_the_deepest_mount(tmp_path: Path) -> None:
    root = write(
        tmp_path,
        {
            "proc/self/mountinfo": "1 0 8:1 / / rw - ext4 /dev/x rw\n"
            f"2 1 0:9 / {tmp_path}/with\\040space rw,nosuid shared:4 - tmpfs none rw\n"
        },
    )
    (tmp_path / "with space").mkdir()
    assert file_system(tmp_path / "with space" / "run" / "replay", root) == "tmpfs"
    assert file_system(tmp_path / "run", root) == "ext4"


def test_this_machine_has_some_memory() -> None:
    assert 1 << 20 < available_memory() < 1 << 50


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1 kB"), (10_240_000_000, "10.2 GB"), (10**16, "10 PB")],
)
def test_sizes_have_three_digits_and_a_unit(count: int, text: str) -> None:
    assert format_bytes(count) == text


def test_mounts_are_found_whatever_bytes_their_names_have(tmp_path: Path) -> None:
    place = tmp_path / "proc/self/mountinfo"
    place.parent.mkdir(parents=True)
    named = tmp_path / "größe und mehr"
    named.mkdir()
    point = os.fsencode(named).replace(b" ", b"\\040")
    place.write_bytes(
        b"1 0 8:1 / / rw - ext4 /dev/x rw\n"
        b"2 0 8:2 / /srv/M\xfcll rw - xfs /dev/y rw\n"
        b"3 0 8:3 / " + point + b" rw - tmpfs none rw\n"
    )
    assert file_system(tmp_path, tmp_path) == "ext4"
    assert file_system(named / "replay", tmp_path) == "tmpfs"
