"""GPUs of this host, and the refusal of a `learner.device` that it does not have."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

# Only the trainer loads torch, which takes seconds. The driver's answer is enough to refuse a wrong
# name before anything starts; the rest is left to torch.

_AMD = Path("/dev/kfd")  # torch for AMD's cards also calls them cuda
_DRIVER = "libcuda.so.1"


def missing_device(
    name: str,
    *,
    platform: str = sys.platform,
    count_gpus: Callable[[], int | None] | None = None,
) -> str:
    """Return why there is no such device here; "" if there is, or if only torch knows.

    Args:
        name: of `learner.device`.
        platform: of `sys.platform`.
        count_gpus: returns the number of NVIDIA GPUs, as `nvidia_gpus` does.
    """
    kind, _, index = name.partition(":")
    if kind == "mps" and platform != "darwin":
        return "mps is of Apple's machines only"
    if kind != "cuda":
        return ""
    if torch_version().endswith("+cpu"):
        return f"torch {torch_version()} is built without CUDA"
    gpus = (count_gpus or nvidia_gpus)()
    if gpus is None or int(index or 0) < gpus:
        return ""
    return f"this host shows {gpus} GPUs, counted from cuda:0" if gpus else "this host shows no GPU"


def torch_version() -> str:
    """Return the version of the installed torch; "" if there is none."""
    try:
        return metadata.version("torch")
    except metadata.PackageNotFoundError:
        return ""


def nvidia_gpus() -> int | None:
    """Return the number of NVIDIA GPUs that the driver shows here; None: it cannot be asked."""
    if sys.platform != "linux" or _AMD.exists():
        return None
    try:
        driver = ctypes.CDLL(_DRIVER)
    except OSError:
        return 0
    found = ctypes.c_int()
    if driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(found)):
        return 0  # it is installed and shows no GPU
    return found.value
