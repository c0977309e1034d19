"""Devices that this host cannot have, told without torch."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest
import torch
from configurations import configured
from starts import lines_of_start

from vedette_services.errors import DeviceGoneError, SettingError
from vedette_services.host import system
from vedette_services.host.system import missing_device, nvidia_gpus
from vedette_services.learner.trainer.device import is_device_fault, require_same_device
from vedette_services.run import start_planning


@pytest.fixture(autouse=True)
def torch_with_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system, "torch_version", lambda: "2.13.0+cu130")
    monkeypatch.setattr(system, "torch_cuda", lambda: "13.0")
    monkeypatch.setattr(system, "driver_cuda", lambda: (13, 0))


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
    monkeypatch.setattr(system, "torch_cuda", lambda: "")
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
    monkeypatch.setattr(system, "torch_cuda", lambda: "" if torch.endswith("+cpu") else "13.0")
    assert system.describe_device(name) == line


@pytest.mark.parametrize(
    ("driver", "why"),
    [
        ((13, 2), ""),
        ((12, 8), "its driver is for CUDA 12.8, and torch 2.13.0+cu130 needs CUDA 13.0"),
        (None, ""),
    ],
)
def test_a_driver_that_is_too_old_for_torch_is_named(
    monkeypatch: pytest.MonkeyPatch, driver: tuple[int, int] | None, why: str
) -> None:
    monkeypatch.setattr(system, "driver_cuda", lambda: driver)
    monkeypatch.setattr(system, "nvidia_gpus", lambda: 1)
    assert missing_device("cuda", platform="linux").startswith(why)
    said = system.describe_device("auto")
    assert said.startswith("trains on the CPU" if why else "trains on a GPU")
    assert why in said


@pytest.mark.parametrize(
    ("version_file", "cuda"),
    [
        ("cuda: Optional[str] = '13.0'\nhip: Optional[str] = None\n", "13.0"),
        ("cuda: Optional[str] = None\nhip: Optional[str] = None\n", ""),
        ("cuda = None\nhip = '6.4.43482'\n", None),  # AMD's cards, which torch calls cuda, too
        ("something else", None),
    ],
)
def test_for_which_cuda_torch_is_built_stands_in_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version_file: str, cuda: str | None
) -> None:
    monkeypatch.undo()
    package = tmp_path / "torch"
    package.mkdir()
    (package / "__init__.py").write_text("raise AssertionError('it is not imported')")
    (package / "version.py").write_text(version_file)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    importlib.invalidate_caches()
    assert system.torch_cuda() == cuda


def test_a_trainer_that_starts_again_does_not_go_on_on_the_cpu_in_place_of_a_gpu() -> None:
    cpu = torch.device("cpu")
    for before in ("", "cpu", "mps"):
        require_same_device(before, cpu)
    require_same_device("cuda:1", torch.device("cuda:1"))
    with pytest.raises(DeviceGoneError, match="has trained on cuda, and torch finds no GPU now"):
        require_same_device("cuda", cpu)


def test_an_error_of_a_gpu_says_nothing_of_the_data() -> None:
    assert is_device_fault(RuntimeError("CUDA error: an illegal memory access was encountered"))
    assert is_device_fault(torch.OutOfMemoryError("CUDA out of memory"))
    assert not is_device_fault(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))
    assert not is_device_fault(ValueError("CUDA error"))
