"""The convolutions of image encoders, by name: the same table for torch, numpy and exporters."""

from __future__ import annotations

Convolutions = tuple[tuple[int, int, int], ...]
"""For each layer: channels out, side of the kernel, stride. A ReLU follows each."""


CONVOLUTIONS: dict[str, Convolutions] = {
    "nature": ((32, 8, 4), (64, 4, 2), (64, 3, 1)),
    "drq": ((32, 3, 2), (32, 3, 1), (32, 3, 1), (32, 3, 1)),
    "small": ((32, 3, 2), (64, 3, 2)),
}
"""By name: of Mnih et al. 2015 (methods); of DrQ-v2 (arXiv:2107.09645, section 3.1); and for images
that are too small for both."""
