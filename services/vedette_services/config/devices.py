"""Whether this host can have the device that `learner.device` names, asked of the driver.

Torch knows it best, and takes seconds to load: the trainer is its only user. What the driver says
is enough to refuse a wrong name before anything starts; what it says nothing of is left to torch.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

_AMD = Path("/dev/kfd")  # torch for AMD's cards calls them cuda, too
_DRIVER = "libcuda.so.1"


def missing_device(
    name: str,
    *,
    platform: str = sys.platform,
    count_gpus: Callable[[], int | None] | None = None,
) -> str:
    """Why there is no such device here; "" where there is, or where only torch can tell.

    Args:
        name: as `learner.device` says it.
        platform: as `sys.platform` has it.
        count_gpus: how many NVIDIA GPUs the driver shows; None: it cannot be asked.
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
    """Of the torch that is installed; "" where none is."""
    try:
        return metadata.version("torch")
    except metadata.PackageNotFoundError:
        return ""


def nvidia_gpus() -> int | None:
    """How many NVIDIA GPUs the driver shows to this process; None: it cannot be asked."""
    if sys.platform != "linux" or _AMD.exists():
        return None
    try:
        driver = ctypes.CDLL(_DRIVER)
    except OSError:
        return 0
    found = ctypes.c_int()
    if driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(found)):
        return 0  # it is installed, and has nothing to show
    return found.value
