"""The device that trains: which one `learner.device` is here, and whether it is still there."""

from __future__ import annotations

import torch

from vedette_rl.device.ranks import ranks
from vedette_services.errors import DeviceGoneError
from vedette_services.host.system import nvidia_gpus


def resolve_device(name: str) -> torch.device:
    """Return the device of `learner.device`."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and ranks().count > 1:
        name = f"cuda:{ranks().number}"
    return torch.device(name)


def device_name(device: torch.device) -> str:
    """Return a GPU's own name, or the kind of another device."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def why_no_gpu() -> str:
    """Return torch's reason for not using the GPU that the driver shows; "" where it uses it, and
    where there is none."""
    if torch.cuda.is_available() or not torch.version.cuda or not nvidia_gpus():
        return ""
    try:
        torch.cuda.init()  # type: ignore[no-untyped-call]  # untyped in torch
    except (RuntimeError, AssertionError) as error:
        return str(error).partition("\n")[0]
    return "torch.cuda.is_available() is false"


def require_same_device(before: str, device: torch.device) -> None:
    """Refuse to go on on the CPU where this learner has trained on a GPU.

    Args:
        before: of the trainer before this one; "" if this is the learner's first.

    Raises:
        DeviceGoneError: see above.
    """
    if before.startswith("cuda") and device.type == "cpu":
        raise DeviceGoneError(before, why_no_gpu())


_FAULTS = ("CUDA error", "CUDA driver error", "CUBLAS_STATUS", "cuDNN error")


def is_device_fault(error: Exception) -> bool:
    """Return True of an error of a GPU or of its libraries, which says nothing of the data."""
    if isinstance(error, (torch.OutOfMemoryError, getattr(torch, "AcceleratorError", ()))):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error) for words in _FAULTS)
