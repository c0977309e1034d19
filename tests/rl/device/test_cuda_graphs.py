"""Captured work is done each time that it is called, whatever becomes of its capture."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from strict_cuda import StrictCuda

from vedette_rl.device.cuda_graphs import CapturedWork, CudaCapture, NotCapturableError

CPU = torch.device("cpu")


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> StrictCuda:
    return StrictCuda(monkeypatch)


class Count:
    """Work that adds a value to a total, and something else in Python at one of its runs."""

    def __init__(self, at: int = 0, does: Callable[[torch.Tensor], object] = id) -> None:
        self.total = torch.zeros(())
        self.value = torch.ones(())
        self.runs = 0
        self._at = at
        self._does = does

    def __call__(self) -> None:
        self.runs += 1
        if self.runs == self._at:
            self._does(self.value)
        self.total += self.value


def test_it_is_recorded_at_its_fourth_time_and_reads_its_tensors_again(cuda: StrictCuda) -> None:
    count = Count()
    with cuda:
        work = CapturedWork(count, CudaCapture(CPU))
        for time in range(1, 8):
            count.value.fill_(float(time))
            work()
            assert work.is_captured == (time >= 4)
        cuda.check()
    assert count.total == sum(range(1, 8))
    assert count.runs == 4
    assert (cuda.captured, cuda.replayed) == (1, 4)


@pytest.mark.parametrize("at", [3, 4], ids=["the last warm-up", "the capture"])
def test_what_cannot_be_recorded_is_done_once_and_then_said(at: int, cuda: StrictCuda) -> None:
    count = Count(at, torch.Tensor.item)
    with cuda:
        work = CapturedWork(count, CudaCapture(CPU))
        for _ in range(at - 1):
            work()
        with pytest.raises(NotCapturableError):
            work()
        cuda.check()
    assert count.total == at
    assert not work.is_captured


def test_without_memory_for_its_graph_it_is_not_done(cuda: StrictCuda) -> None:
    def full(value: torch.Tensor) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    count = Count(4, full)
    with cuda:
        work = CapturedWork(count, CudaCapture(CPU))
        for _ in range(3):
            work()
        with pytest.raises(torch.OutOfMemoryError):
            work()
        assert count.total == 3
        work()  # there is room again
        cuda.check()
    assert count.total == 4
    assert work.is_captured
