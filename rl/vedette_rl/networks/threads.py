"""The threads of torch in a process that acts."""

from __future__ import annotations

import sys


def load_torch_single_threaded() -> None:
    """Load torch with one thread, in a process that has not loaded it yet.

    Many actors share a machine: two threads each on busy cores act ten times slower than one. A
    process that already uses torch (a learner that also acts) keeps the threads it chose.
    """
    if "torch" not in sys.modules:
        import torch

        torch.set_num_threads(1)
