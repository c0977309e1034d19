"""A run whose learner has a GPU, of which a strict stand-in is enough to see what goes wrong."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_runs import config_of, trained
from strict_cuda import StrictCuda

from vedette_rl.agents.dqn.agent import DqnAgent
from vedette_rl.device import ring
from vedette_rl.device.loader import PinnedLoader, RingLoader
from vedette_services.errors import DeviceMemoryError

OPTS = 50


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> StrictCuda:
    monkeypatch.setattr(ring, "FOLLOW_S", 0.0)  # draws are then those of a CPU
    return StrictCuda(monkeypatch, in_flight=8)


def trained_on(cuda: StrictCuda, out: Path, **learner: Any) -> Any:
    with cuda:
        run, _ = trained(config_of(learner=learner, stop={"max_opts": OPTS}), out)
        cuda.check()
    return run


def test_a_run_with_a_gpu_is_the_run_on_the_cpu(tmp_path: Path, cuda: StrictCuda) -> None:
    """Steps by graphs, a copy of the replay, models and checkpoints aside, eight steps ahead."""
    run = trained_on(cuda, tmp_path / "gpu")
    assert isinstance(run.learner._loader, RingLoader)
    assert run.agent._captured.reason == ""
    assert run.learner._loader.is_captured
    assert cuda.captured == run.agent._captured.kinds_captured + 1
    assert cuda.replayed > 2 * (OPTS - 20)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("vedette_rl.device.host_copy.is_asynchronous", lambda device: False)
        expected, _ = trained(config_of(stop={"max_opts": OPTS}), tmp_path / "cpu")
    theirs = expected.agent.model_info().arrays
    for name, array in run.agent.model_info().arrays.items():
        np.testing.assert_array_equal(array, theirs[name])


def test_without_captured_steps_nothing_is_captured(tmp_path: Path, cuda: StrictCuda) -> None:
    run = trained_on(cuda, tmp_path / "run", captured_step=False)
    assert isinstance(run.learner._loader, RingLoader)
    assert run.agent._captured is None
    assert cuda.captured == 0


def without_memory(monkeypatch: pytest.MonkeyPatch, *calls: int) -> None:
    """Let the device have no memory in these calls of the step."""
    step, begun = DqnAgent.step, iter(range(1, 10**9))

    def full(self: DqnAgent, *arguments: Any) -> Any:
        if next(begun) in calls:
            said = "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has 8 GiB"
            raise torch.OutOfMemoryError(said)
        return step(self, *arguments)

    monkeypatch.setattr(DqnAgent, "step", full)


@pytest.mark.parametrize("call", [1, 4], ids=["in-a-step", "in-a-capture"])
def test_without_memory_for_a_step_the_copy_of_the_replay_goes_and_the_run_goes_on(
    call: int,
    tmp_path: Path,
    cuda: StrictCuda,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    without_memory(monkeypatch, call)
    with caplog.at_level(logging.WARNING):
        run = trained_on(cuda, tmp_path / "run")
    (line,) = [line for line in caplog.messages if "memory" in line]
    for said in ("Tried to allocate 2.00 GiB", "learner.copy_replay=false", "replay.capacity"):
        assert said in line
    assert isinstance(run.learner._loader, PinnedLoader)
    assert run.agent._captured.reason == ""
    assert run.agent.opt_steps == OPTS
    assert cuda.captured
    assert cuda.empties == 2  # before the copy was made, and when it went


def test_without_memory_again_steps_are_not_captured(
    tmp_path: Path,
    cuda: StrictCuda,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    without_memory(monkeypatch, 1, 5)  # the second while the step is captured
    run = trained_on(cuda, tmp_path / "run")
    assert "Tried to allocate" in run.agent._captured.reason
    assert run.agent.opt_steps == OPTS
    assert "are not captured" in caplog.text


def test_without_memory_for_the_step_alone_the_error_names_the_keys(
    tmp_path: Path, cuda: StrictCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_memory(monkeypatch, *range(1, 10))
    with pytest.raises(DeviceMemoryError, match=r"2\.00 GiB\): lower agent\.batch_size") as ended:
        trained_on(cuda, tmp_path / "run")
    assert str(ended.value).startswith("learner.device: cpu has no memory")
