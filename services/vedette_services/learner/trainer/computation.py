"""What the results of a computation may depend on, besides its inputs: the machine and software."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import numpy as np
import torch

from vedette_services.host.system import cpu_model
from vedette_services.learner.trainer.device import device_name
from vedette_services.run.provenance import git_state, package_versions

_VARIABLES = ("OMP_", "MKL_", "OPENBLAS_", "CUBLAS_", "KMP_")


def describe_machine(device: torch.device) -> dict[str, str]:
    """The device, the processor with the instructions that torch and numpy use of it, threads, and
    the variables of the libraries of linear algebra."""
    found = {
        "device": device_name(device),
        "processor": cpu_model(),
        "architecture": platform.machine(),
        "torch_instructions": torch.backends.cpu.get_cpu_capability(),
        "numpy_instructions": " ".join(_numpy_instructions()),
        "threads": str(torch.get_num_threads()),
    }
    if device.type == "cuda":
        found["capability"] = str(torch.cuda.get_device_capability(device))
    variables = {name: os.environ[name] for name in os.environ if name.startswith(_VARIABLES)}
    return {**found, **variables}


def describe_software() -> dict[str, str]:
    """Versions; of a checkout of Vedette, its commit."""
    here = Path(__file__).parent
    commit, dirty = ("", False) if "site-packages" in here.parts else git_state(here)
    found = package_versions()
    if commit:
        found["vedette_commit"] = commit + "+" * dirty
    cudnn = torch.backends.cudnn.version()  # type: ignore[no-untyped-call]  # untyped in torch
    if cudnn is not None:
        found["cudnn"] = str(cudnn)
    return found


def _numpy_instructions() -> list[str]:
    """The instructions of this processor that numpy has code for."""
    extensions = np.show_config(mode="dicts")["SIMD Extensions"]
    return [*extensions.get("baseline", ()), *extensions.get("found", ())]
