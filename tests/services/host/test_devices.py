"""Devices that this host cannot have, told without torch."""

from __future__ import annotations

from pathlib import Path

import pytest
from configurations import configured
from starts import lines_of_start

from vedette_services.errors import SettingError
from vedette_services.host import system
from vedette_services.host.system import missing_device, nvidia_gpus
from vedette_services.run import start_planning


@pytest.fixture(autouse=True)
def torch_with_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system, "torch_version", lambda: "2.13.0+cu130")


@pytest.mark.parametrize(
    ("name", "gpus", "why"),
    [
        ("cuda", 1, ""),
        ("cuda:1", 2, ""),
        ("cuda:7", None, ""),  # nobody can tell but torch
        ("cuda:7", 2, "this host shows 2 GPUs, counted from cuda:0"),
        ("cuda", 0, "this host shows no GPU"),
        ("cuda:0", 0, "this host shows no GPU"),
        ("cpu", 0, ""),
        ("auto", 0, ""),
    ],
)
def test_a_gpu_must_be_one_that_the_driver_shows(name: str, gpus: int | None, why: str) -> None:
    assert missing_device(name, platform="linux", count_gpus=lambda: gpus) == why


def test_mps_is_only_where_apple_makes_it() -> None:
    assert missing_device("mps", platform="darwin") == ""
    assert missing_device("mps", platform="linux") == "mps exists only on Apple's machines"


def test_a_torch_without_cuda_has_no_gpu_whatever_the_host_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(system, "torch_version", lambda: "2.13.0+cpu")
    said = missing_device("cuda", platform="linux", count_gpus=lambda: 8)
    assert said == "torch 2.13.0+cpu is built without CUDA"


def test_the_driver_is_asked_without_an_error_whether_it_is_there_or_not() -> None:
    found = nvidia_gpus()
    assert found is None or found >= 0


def test_nothing_starts_on_a_device_that_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(start_planning, "missing_device", lambda name: f"{name} is somewhere else")
    config = configured("learner.device=cuda:7")
    with pytest.raises(SettingError) as refused:
        lines_of_start(config, tmp_path / "run")
    said = "learner.device: cuda:7 is somewhere else; set learner.device=auto"
    assert str(refused.value) == said
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("name", "gpus", "torch", "line"),
    [
        ("auto", 0, "2.13.0+cpu", ""),
        ("auto", None, "2.13.0+cpu", ""),
        ("auto", 1, "2.13.0+cu130", "trains on a GPU: this host shows 1 GPU"),
        ("cpu", 1, "2.13.0+cpu", ""),
        (
            "auto",
            2,
            "2.13.0+cpu",
            "trains on the CPU: this host shows 2 GPUs, but torch 2.13.0+cpu is built without CUDA",
        ),
    ],
)
def test_a_start_says_what_auto_comes_to_where_there_are_gpus(
    monkeypatch: pytest.MonkeyPatch, name: str, gpus: int | None, torch: str, line: str
) -> None:
    monkeypatch.setattr(system, "nvidia_gpus", lambda: gpus)
    monkeypatch.setattr(system, "torch_version", lambda: torch)
    assert system.describe_device(name) == line
