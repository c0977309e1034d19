"""The load of the learner's host, from files as Linux has them."""

from __future__ import annotations

from pathlib import Path

import pytest

from vedette_services.learner.host_load import LoadMeter
from vedette_services.status.status import HostLoad

MEMORY = "MemTotal:  1000 kB\nMemFree:  100 kB\nMemAvailable:  400 kB\n"


def write_stat(proc: Path, busy: int, idle: int, waits: int = 0) -> None:
    (proc / "stat").write_text(f"cpu  {busy} 0 0 {idle} {waits} 0 0 0 0 0\ncpu0 1 2\n")


def test_the_processors_share_is_of_the_time_since_the_last_measurement(tmp_path: Path) -> None:
    (tmp_path / "meminfo").write_text(MEMORY)
    write_stat(tmp_path, 1000, 1000)
    meter = LoadMeter(proc=tmp_path)
    assert meter.measure(0.0) == HostLoad(None, 600 << 10, 1000 << 10, None, None)
    write_stat(tmp_path, 1030, 1050, 20)  # 30 of 100 ticks were busy
    assert meter.measure(1.0).cpu_share is None  # it was measured a moment ago
    assert meter.measure(2.0).cpu_share == pytest.approx(0.3)


def test_a_gpus_memory_is_what_is_not_free(tmp_path: Path) -> None:
    found = LoadMeter(lambda: (30, 100), proc=tmp_path).measure(0.0)
    assert found == HostLoad(None, None, None, 70, 100)


def test_a_gpus_share_is_unknown_where_nothing_tells_it_and_is_asked_for_once(
    tmp_path: Path,
) -> None:
    assert LoadMeter(gpu_share=lambda: 0.25, proc=tmp_path).measure(0.0).gpu_share == 0.25
    asked = []

    def raise_error() -> float:
        asked.append(True)
        raise ModuleNotFoundError("pynvml")

    meter = LoadMeter(gpu_share=raise_error, proc=tmp_path)
    assert [meter.measure(now).gpu_share for now in (0.0, 9.0, 18.0)] == [None] * 3
    assert len(asked) == 1


@pytest.mark.parametrize("text", ["", "cpu", "cpu a b c d e", "MemTotal"])
def test_a_host_that_tells_nothing_has_no_load(tmp_path: Path, text: str) -> None:
    for name in ("stat", "meminfo"):
        (tmp_path / name).write_text(text)
    meter = LoadMeter(proc=tmp_path)
    assert meter.measure(0.0) == meter.measure(9.0) == HostLoad()
