"""A greedy policy as an ONNX model: observations in, actions and action values out.

Inputs are the observation's columns (``obs``, or ``obs/KEY``), each ``(batch, *shape)`` in the
dtype of its space, float32 for float64. Outputs: ``action`` ``(batch, *shape)``, the environment's
own (a Box's in float32), and ``q`` ``(batch, actions)`` where the agent has values. A policy with
memory has an input ``memory`` float32 ``(batch, H)``, zeros where an episode begins, and an output
``next_memory``, which is the next call's.
"""

from __future__ import annotations

import logging
import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch

from vedette_rl.agents.policy_graph import PolicyGraph
from vedette_rl.agents.registry import agent_kind
from vedette_rl.errors import ExportError
from vedette_rl.exported.policy_file import PolicyFile

PACKAGES = ("onnx", "onnxscript")  # torch's exporter imports them
_EXAMPLE_ROWS = 2  # one row would be taken for a fixed batch of one


def write_onnx(path: Path, policy: PolicyFile) -> None:
    """Write a policy as one ONNX file; its metadata has the header of `PolicyFile`.

    Raises:
        ExportError: a package is missing, or the agent has no such form.
    """
    if missing := [name for name in PACKAGES if find_spec(name) is None]:
        why = f"the onnx extra is needed ({missing[0]} is not installed)"
        raise ExportError("onnx", f"{why}: pip install 'vedette[onnx]'")
    kind = agent_kind(policy.config.name)
    if kind.build_graph is None:
        why = f"agent {policy.config.name!r} has no build_graph, which onnx needs"
        raise ExportError("onnx", why)
    network = kind.build_graph(policy.config, policy.agent_spaces, policy.model).eval()
    program = _traced(network, getattr(policy.spaces.action, "start", 0))
    program.model.metadata_props["vedette"] = policy.header()
    program.save(str(path))


class _ActionOffsetNetwork(torch.nn.Module):
    """A network whose discrete actions count from the environment's `start`."""

    start: torch.Tensor

    def __init__(self, network: PolicyGraph, start: Any) -> None:  # a number, or an array
        super().__init__()
        self.network = network
        self._place = network.outputs.index("action")
        self.register_buffer("start", torch.as_tensor(np.asarray(start, np.int64)))

    def forward(self, *columns: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """The network's outputs, the action moved."""
        outputs = list(self.network(*columns))
        outputs[self._place] = outputs[self._place] + self.start
        return tuple(outputs)


def _traced(network: PolicyGraph, start: Any) -> Any:  # ONNXProgram, private in torch's stubs
    batch = torch.export.Dim("batch")
    examples = network.example_inputs(_EXAMPLE_ROWS)
    chatter = logging.getLogger("torch.onnx")
    level = chatter.level
    chatter.setLevel(logging.ERROR)  # it reports packages that it would have used
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program = torch.onnx.export(
                _ActionOffsetNetwork(network, start) if np.any(start) else network,
                tuple(examples.values()),
                input_names=list(examples),
                output_names=list(network.outputs),
                dynamic_shapes={"columns": tuple({0: batch} for _ in examples)},
                dynamo=True,
                verbose=False,
            )
    finally:
        chatter.setLevel(level)
    assert program is not None, "without a path the program is returned"
    return program
