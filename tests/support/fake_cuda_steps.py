"""Runs optimization steps of all agents on fake CUDA tensors, on a machine without a GPU.

``python fake_cuda_steps.py GUARD quick|all [CASE ...]`` prints a JSON object: of each case what no
step that is captured may do, with the place. Found are operations with tensors of two devices, or
of the CPU alone, results that the host reads (``.item()``), shapes that depend on data, and copies
from memory that is not pinned. Fake tensors have shapes and devices, and no numbers.

Not run here, for it needs a GPU: backward passes (a no-op), fused Adam's kernel (a no-op), cuDNN's
recurrent kernels (two products stand for one), the numbers of generators, autocast to bfloat16,
streams and graphs.
"""

from __future__ import annotations

import collections
import importlib.machinery
import importlib.util
import itertools
import json
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from vedette_rl.agents.captured_step import Due, _Outputs
from vedette_rl.agents.registry import agent_kind
from vedette_rl.envs.spaces import Spaces, observation_columns
from vedette_rl.networks.adam import AdamTensors

ROOT = Path(__file__).resolve().parents[2]
GPU = torch.device("cuda", 0)
BATCH = 8

VECTOR = gym.spaces.Box(-1, 1, (4,), np.float32)
PIXELS = gym.spaces.Box(0, 255, (4, 84, 84), np.uint8)
PARTS = gym.spaces.Dict(
    {
        "camera": gym.spaces.Box(0, 255, (64, 64, 3), np.uint8),
        "mode": gym.spaces.Discrete(5),
        "modes": gym.spaces.MultiDiscrete([3, 4]),
        "vector": VECTOR,
    }
)
BOX = gym.spaces.Box(np.float32([-2, 0]), np.float32([2, 10]))
THREE = gym.spaces.Discrete(3)
HEADS = gym.spaces.MultiDiscrete([2, 3])
SCHEDULE = {"kind": "cosine", "warmup_opts": 10, "total_opts": 40, "final": 0.1}
MUNCHAUSEN = {"alpha": 0.9}
MEMORY = {"memory": "gru", "memory_size": 16}
BURN_IN, STEPS = 3, 5

CASES: dict[str, tuple[str, gym.Space[Any], gym.Space[Any], dict[str, Any]]] = {
    "dqn": ("dqn", VECTOR, THREE, {}),
    "dqn, dueling": (
        "dqn",
        VECTOR,
        THREE,
        {"schedule": SCHEDULE, "dueling": True, "normalize_observations": True},
    ),
    "dqn, munchausen": ("dqn", VECTOR, HEADS, {"munchausen": MUNCHAUSEN}),
    "dqn, pixels": ("dqn", PIXELS, THREE, {"random_shift": 4}),
    "dqn, parts": ("dqn", PARTS, THREE, {"normalize_observations": True}),
    "dqn, imitation": (
        "dqn",
        VECTOR,
        THREE,
        {"imitation": {"loss": "margin", "schedule": SCHEDULE}},
    ),
    "iqn": ("iqn", VECTOR, THREE, {}),
    "iqn, munchausen": ("iqn", VECTOR, HEADS, {"munchausen": MUNCHAUSEN}),
    "iqn, pixels": ("iqn", PIXELS, THREE, {}),
    "sac": ("sac", VECTOR, BOX, {}),
    "sac, renormalized": ("sac", VECTOR, BOX, {"critic_architecture": "batch_renorm"}),
    "sac, normalized policy": ("sac", VECTOR, BOX, {"policy_batch_norm": True}),
    "sac, paper": (
        "sac",
        VECTOR,
        BOX,
        {"critic_architecture": "mlp", "normalize_observations": False},
    ),
    "sac, redq": (
        "sac",
        VECTOR,
        BOX,
        {
            "critic_architecture": "layer_norm",
            "n_critics": 5,
            "critics_in_target": 2,
            "weight_decay": 0.01,
            "schedule": SCHEDULE,
            "max_grad_norm": 1.0,
        },
    ),
    "sac, tqc": (
        "sac",
        VECTOR,
        BOX,
        {"critic_architecture": "residual", "n_quantiles": 25, "dropped_quantiles": 2},
    ),
    "sac, pixels": ("sac", PIXELS, BOX, {}),
    "sac, parts": ("sac", PARTS, BOX, {}),
    "sac, imitation": ("sac", VECTOR, BOX, {"imitation": {"loss": "cross_entropy"}}),
    "td3": ("td3", VECTOR, BOX, {}),
    "dqn, memory": ("dqn", VECTOR, THREE, {**MEMORY, "normalize_observations": True}),
    "dqn, memory, pixels": ("dqn", PIXELS, THREE, {**MEMORY, "value_rescaling": True}),
    "iqn, memory": ("iqn", VECTOR, HEADS, MEMORY),
    "sac, memory": ("sac", VECTOR, BOX, MEMORY),
    "sac, memory, parts": ("sac", PARTS, BOX, {**MEMORY, "n_quantiles": 5, "n_critics": 3}),
    "sac, memory of its own": (
        "sac",
        VECTOR,
        BOX,
        {**MEMORY, "shared_encoder": False, "critics_in_target": 1, "n_step": 3},
    ),
    "td3, memory": ("td3", VECTOR, BOX, MEMORY),
    "appo": ("appo", VECTOR, THREE, {"schedule": SCHEDULE, "clip_schedule": SCHEDULE}),
    "appo, box, parts": ("appo", PARTS, BOX, {"advantages": "block"}),
    "appo, memory": ("appo", VECTOR, HEADS, MEMORY),
    "appo, memory, pixels": ("appo", PIXELS, BOX, {**MEMORY, "memory_dtype": "float16"}),
    "td3, memory of its own": ("td3", VECTOR, BOX, {**MEMORY, "shared_encoder": False}),
    "td3, pixels, tqc": (
        "td3",
        PIXELS,
        BOX,
        {"n_quantiles": 5, "dropped_quantiles": 1, "normalize_observations": True},
    ),
}

QUICK = ((True, False, True, False), (False, True, False, True))
"""Of (policy, target, record, weights): each of them on and off. With a block (begins and values,
ends, record, weights)."""

HOST_READS = ("_local_scalar_dense", "nonzero", "masked_select", "_unique2", "aten.equal")


class Watch(TorchDispatchMode):
    """Notes the operations that a captured step may not do, with the place in the project."""

    def __init__(self) -> None:
        super().__init__()
        self.found: collections.Counter[str] = collections.Counter()
        self.operations = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> object:
        kwargs = kwargs or {}
        self.operations += 1
        name = str(func)
        given = _tensors((args, kwargs))
        if any(word in name for word in HOST_READS) or _has_mask(name, args):
            self._note(name, "the host reads its result")
        out = func(*args, **kwargs)
        devices = {tensor.device.type for tensor in [*given, *_tensors(out)]}
        if len(devices) > 1 and not _is_pinned_copy(name, args, kwargs):
            self._note(
                name, "its tensors are of two devices, or it copies memory that is not pinned"
            )
        elif devices == {"cpu"}:
            self._note(name, "its tensors are the CPU's")
        return out

    def _note(self, operation: str, why: str) -> None:
        frames = traceback.extract_stack()
        ours = [f for f in frames if f.filename.startswith(str(ROOT)) and f.filename != __file__]
        at = ours[-1] if ours else frames[-3]
        path = Path(at.filename)
        place = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path.name
        self.found[f"{place}:{at.lineno}: {operation}: {why}"] += 1


def _tensors(tree: object) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def _has_mask(name: str, args: Any) -> bool:
    if not name.startswith("aten.index"):
        return False
    return any(tensor.dtype == torch.bool for tensor in _tensors(args[1:2]))


PINNED: set[int] = set()  # fake tensors that stand for pinned memory, by their identity


def _is_pinned_copy(name: str, args: Any, kwargs: Any) -> bool:
    if "copy_" not in name and "_to_copy" not in name:
        return False
    of_host = [tensor for tensor in _tensors(args) if tensor.device.type == "cpu"]
    waits_not = kwargs.get("non_blocking", args[2] if len(args) > 2 else False)
    return bool(waits_not) and all(id(tensor) in PINNED for tensor in of_host)


class NoGenerator:
    """Stands for a generator of a GPU, which a build without CUDA has not."""

    def __init__(self, device: object = "cpu") -> None:
        self.device = torch.device(str(device))

    def manual_seed(self, seed: int) -> NoGenerator:
        return self

    def get_state(self) -> torch.Tensor:
        return torch.zeros(16, dtype=torch.uint8)


def stand_in(mode: FakeTensorMode) -> None:
    """Put something that does nothing in the place of what a build without CUDA has not."""

    def without_generator(draw: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        def drawn(*arguments: Any, generator: Any = None, **keywords: Any) -> torch.Tensor:
            return draw(*arguments, **keywords)

        return drawn

    def moved(module: torch.nn.Module, device: Any) -> torch.nn.Module:
        for part in module.modules():
            for name, parameter in part._parameters.items():
                if parameter is not None:
                    there = parameter.detach().to(device)
                    needs = parameter.requires_grad
                    moved_one = torch.nn.Parameter(there, requires_grad=needs)
                    setattr(part, name, moved_one)  # a recurrent layer keeps a list of them
            for name, buffer in part._buffers.items():
                part._buffers[name] = None if buffer is None else buffer.to(device)
        return module

    def core(gru: torch.nn.GRU, x: torch.Tensor, h: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Something of a core's inputs, in the shape of its outputs."""
        of_x = torch.nn.functional.linear(x, gru.weight_ih_l0, gru.bias_ih_l0)
        of_h = torch.nn.functional.linear(h, gru.weight_hh_l0, gru.bias_hh_l0)
        y = (of_x + of_h.transpose(0, 1))[..., : gru.hidden_size]
        return y, y[:, -1]

    def cell(
        x: torch.Tensor, h: torch.Tensor, of_x: torch.Tensor, of_h: torch.Tensor, *biases: Any
    ) -> torch.Tensor:
        """The same of a core's single step."""
        linear = torch.nn.functional.linear
        return (linear(x, of_x, biases[0]) + linear(h, of_h, biases[1]))[:, : h.shape[1]]

    from_numpy = torch.from_numpy
    torch.gru_cell = cell  # type: ignore[assignment]
    torch.nn.GRU.forward = core  # type: ignore[assignment]
    torch.Generator = NoGenerator  # type: ignore[assignment,misc]
    for name in ("rand", "randn", "randint"):
        setattr(torch, name, without_generator(getattr(torch, name)))
    torch.nn.Module.to = moved  # type: ignore[assignment]
    AdamTensors.update = lambda adam: adam._fused_step  # type: ignore[method-assign]
    torch._fused_adam_ = torch._fused_adamw_ = lambda *_, **__: None
    torch.autograd.backward = lambda *_, **__: None
    torch.from_numpy = lambda array: mode.from_tensor(from_numpy(array))


def fake_batch(spaces: Spaces, *, sources: bool) -> dict[str, torch.Tensor]:
    """A batch on the GPU."""

    def column(dtype: np.dtype[Any], *shape: int) -> torch.Tensor:
        of = torch.from_numpy(np.empty(0, dtype)).dtype
        return torch.zeros(BATCH, *shape, dtype=of, device=GPU)

    batch = {
        part + leaf.name.removeprefix("obs"): column(leaf.dtype, *leaf.shape)
        for part in ("obs", "next_obs")
        for leaf in observation_columns(spaces.observation)
    }
    action = spaces.action
    return {
        **batch,
        "action": column(np.dtype(action.dtype), *(action.shape or ())),
        "reward": column(np.dtype(np.float32)),
        "terminated": column(np.dtype(np.bool_)),
        "truncated": column(np.dtype(np.bool_)),
        "n_steps": column(np.dtype(np.uint8)),
        **({"source": column(np.dtype(np.uint8))} if sources else {}),
    }


def fake_sequences(spaces: Spaces, memory: int) -> dict[str, torch.Tensor]:
    """A batch of sequences on the GPU."""
    longest = BURN_IN + STEPS
    batch = {}
    for name, column in fake_batch(spaces, sources=False).items():
        if not name.startswith("next_obs"):
            positions = longest + name.startswith("obs")
            batch[name] = column.unsqueeze(1).repeat(1, positions, *[1] * (column.dim() - 1))
    for name in ("burned", "length"):
        batch[name] = torch.zeros(BATCH, dtype=torch.int64, device=GPU)
    batch["learned"] = torch.zeros(BATCH, longest, dtype=torch.bool, device=GPU)
    batch["memory"] = torch.zeros(BATCH, memory, device=GPU)
    return batch


def fake_block(spaces: Spaces, config: Any) -> dict[str, torch.Tensor]:
    """A block of BATCH runs on the GPU, and a minibatch of half of them."""
    rows = fake_batch(spaces, sources=False)
    for column in agent_kind(config.name).columns(config, spaces):
        of = torch.from_numpy(np.empty(0, column.dtype)).dtype
        rows[column.name] = torch.zeros(BATCH, *column.shape, dtype=of, device=GPU)
    for key in ("begins", "learned"):
        rows[key] = torch.zeros(BATCH, dtype=torch.bool, device=GPU)
    block = {
        name: column.unsqueeze(1).repeat(1, STEPS, *[1] * (column.dim() - 1))
        for name, column in rows.items()
    }
    block["chosen"] = torch.zeros(BATCH // 2 * STEPS, dtype=torch.int64, device=GPU)
    return {**block, **({"memory": rows["memory"]} if config.core_size else {})}


def run_case(name: str, combinations: Iterator[tuple[bool, ...]]) -> dict[str, Any]:
    """Run the steps of a case; what was found, and how much was run."""
    agent_name, observation, action, options = CASES[name]
    spaces = Spaces(observation, action)
    kind = agent_kind(agent_name)
    config = kind.config(batch_size=BATCH, **options)
    agent: Any = kind.build_agent(config, spaces, device=str(GPU), seed=0)
    of_blocks = config.usual_queue is not None
    if of_blocks:
        batch = fake_block(spaces, config)
        agent._log_beta, agent._advantages, agent._targets = torch.zeros(
            3, BATCH * STEPS, device=GPU
        ).unbind()
    elif config.core_size:
        agent.expect_burn_in(BURN_IN)
        batch = fake_sequences(spaces, config.core_size)
    else:
        batch = fake_batch(spaces, sources="imitation" in name)
    watch = Watch()
    steps = 0
    for first, second, record, weighted in combinations:
        due = Due(policy=first, target=second, record=record)
        rows = BATCH
        if of_blocks:
            due = Due(record=record, begins=first, values=first, ends=second)
            rows = len(batch["chosen"])
        weights = torch.ones(rows, device=GPU) if weighted else None
        try:
            with watch:
                _Outputs.of(agent.step(batch, weights, due))
        except Exception as error:  # noqa: BLE001 - told with the others
            frame = traceback.extract_tb(error.__traceback__)[-1]
            watch.found[f"{frame.filename}:{frame.lineno}: {type(error).__name__}: {error}"] += 1
        steps += 1
    return {"steps": steps, "operations": watch.operations, "found": [*watch.found]}


def mistakes() -> dict[str, Callable[[torch.Tensor], object]]:
    """What a step may not do, each by itself; the last three it may."""
    host = torch.ones(4)
    pinned = torch.ones(4)
    PINNED.add(id(pinned))
    return {
        "item": lambda x: x.sum().item(),
        "mask": lambda x: x[x > 0],
        "nonzero": lambda x: x.nonzero(),
        "devices": lambda x: x + host,
        "cpu": lambda x: host + 1.0,
        "to the host": lambda x: x.cpu(),
        "not pinned": lambda x: x.copy_(host, non_blocking=True),
        "blocking": lambda x: x.copy_(pinned),
        "fine: pinned": lambda x: x.copy_(pinned, non_blocking=True),
        "fine: where": lambda x: torch.where(x > 0, 1.0, x),
        "fine: clamp": lambda x: x.clamp(0.0),
    }


def run_mistakes() -> dict[str, list[str]]:
    """What is found of each mistake."""
    x = torch.zeros(4, device=GPU)
    found = {}
    for name, mistake in mistakes().items():
        watch = Watch()
        try:
            with watch:
                mistake(x)
        except Exception as error:  # noqa: BLE001 - fake tensors refuse some by themselves
            watch.found[f"{type(error).__name__}: {error}"] += 1
        found[name] = [*watch.found]
    return found


def main() -> None:
    """Print what was found."""
    loader = importlib.machinery.ExtensionFileLoader("noop_guard", sys.argv[1])
    spec = importlib.util.spec_from_loader("noop_guard", loader)
    assert spec is not None
    importlib.util.module_from_spec(spec)
    torch.set_num_threads(1)
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    stand_in(mode)
    report: dict[str, Any] = {"cases": {}}
    with mode:
        report["mistakes"] = run_mistakes()
        for name in sys.argv[3:] or CASES:
            every = itertools.product((False, True), repeat=4)
            chosen = iter(QUICK) if sys.argv[2] == "quick" else every
            report["cases"][name] = run_case(name, chosen)
    print(json.dumps(report))


if __name__ == "__main__":
    main()
