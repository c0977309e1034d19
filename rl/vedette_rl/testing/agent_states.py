"""How far apart two agents are, by what they say of themselves."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from vedette_rl.core import Agent


def same_arrays(one: object, other: object) -> bool:
    """Whether two models' arrays are the same."""
    assert isinstance(one, dict)
    assert isinstance(other, dict)
    return all(np.array_equal(array, other[name]) for name, array in one.items())


def same_model(one: Agent, other: Agent) -> bool:
    """Whether actors would get the same."""
    return same_arrays(dict(one.model_info().arrays), dict(other.model_info().arrays))


def same_state(one: Agent, other: Agent) -> bool:
    """Whether both would go on the same way."""
    return _flat(one.get_state()) == _flat(other.get_state())


def state_numbers(agent: Agent) -> NDArray[np.float64]:
    """Every number of an agent's state in a row: weights, the optimizer's moments, counters."""
    return np.concatenate([*_numbers(agent.get_state())])


def _numbers(node: object) -> Iterator[NDArray[np.float64]]:
    if isinstance(node, dict):
        for inner in node.values():
            yield from _numbers(inner)
    elif isinstance(node, (list, tuple)):
        for inner in node:
            yield from _numbers(inner)
    elif node is not None and not isinstance(node, (str, bytes)):
        detach = getattr(node, "detach", None)  # a tensor's: torch need not be imported to ask
        yield np.asarray(node if detach is None else detach(), np.float64).ravel()


def _flat(node: object) -> object:
    if isinstance(node, dict):
        return [(key, _flat(inner)) for key, inner in node.items()]
    if isinstance(node, (list, tuple)):
        return [_flat(inner) for inner in node]
    tolist = getattr(node, "tolist", None)
    return node if tolist is None else tolist()
