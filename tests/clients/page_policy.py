"""Greedy acting by the description `policy` of a run, written from the page of the wire alone.

Where a network has a core, the state is the caller's: `act` changes it in place.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]
Arrays = Mapping[str, NDArray[np.float32]]


def act(
    policy: dict[str, Any],
    arrays: Arrays,
    obs: Mapping[str, NDArray[Any]],
    state: Vector | None = None,
) -> Vector:
    """The action, of columns ``obs...`` and the state before them, which becomes that after."""
    x = _branches(policy, arrays, _features(policy, arrays, obs))
    networks = [layers for _, layers in policy["networks"]]
    match policy["head"]:
        case "dueling":
            h = _apply(networks[0], arrays, x, state)
            advantage = _apply(networks[2], arrays, h)
            output = _apply(networks[1], arrays, h) + advantage - advantage.mean()
        case "quantiles" | "rescaled_quantiles":
            h = _apply(networks[0], arrays, x, state)
            count = policy["fractions"]
            values = []
            for k in range(count):
                cosines = np.cos(np.pi * np.arange(policy["cosines"]) * (k + 0.5) / count)
                x = _apply(networks[2], arrays, h * _apply(networks[1], arrays, cosines))
                values.append(x if policy["head"] == "quantiles" else _restore(x))
            output = np.mean(values, axis=0)
        case _:
            output = _apply(networks[0], arrays, x, state)
    actions = policy["actions"]
    if "counts" in actions:
        heads = np.split(output, np.cumsum(actions["counts"])[:-1])
        return np.array([h.argmax() + s for h, s in zip(heads, actions["starts"], strict=True)])
    unit = output[: len(actions["low"])]
    return to_bounds(policy, unit if policy["head"] == "normal" else np.tanh(unit))


def to_bounds(policy: dict[str, Any], unit: Vector) -> Vector:
    """Actions of a Box."""
    low, high = np.array(policy["actions"]["low"]), np.array(policy["actions"]["high"])
    moved: Vector = (high + low) / 2 + unit * (high - low) / 2
    return moved.clip(low, high)


def log_prob(
    policy: dict[str, Any], arrays: Arrays, output: Vector, action: Vector, drawn: Vector
) -> float:
    """How likely the action was, by the output of the policy's network; of a Box what was drawn."""
    if policy["head"] == "categories":
        actions = policy["actions"]
        heads = np.split(output, np.cumsum(actions["counts"])[:-1])
        found = zip(heads, action - actions["starts"], strict=True)
        return float(sum(h[int(a)] - np.log(np.exp(h).sum()) for h, a in found))
    log_std = arrays[policy["deviations"]].astype(np.float64).clip(*policy["log_std"])
    z = (drawn - output) / np.exp(log_std)
    return float((-0.5 * (z**2 + np.log(2 * np.pi)) - log_std).sum())


def output_of(
    policy: dict[str, Any],
    arrays: Arrays,
    obs: Mapping[str, NDArray[Any]],
    state: Vector | None = None,
) -> Vector:
    """The output of a policy's only network; see `act` for the state."""
    x = _branches(policy, arrays, _features(policy, arrays, obs))
    ((_, layers),) = policy["networks"]
    return _apply(layers, arrays, x, state)


def _features(policy: dict[str, Any], arrays: Arrays, obs: Mapping[str, NDArray[Any]]) -> Vector:
    features = []
    normalized = 0
    for column, width, scale, classes, starts, is_normalized in policy["inputs"]:
        numbers = np.asarray(obs[column], np.float64).ravel()
        if classes:
            hot = [np.eye(n)[int(v - s)] for v, n, s in zip(numbers, classes, starts, strict=True)]
            features.append(np.concatenate(hot))
        else:
            if is_normalized:
                mean, factor, clip = policy["normalize"]
                part = slice(normalized, normalized + width)
                numbers = ((numbers - arrays[mean][part]) * arrays[factor][part]).clip(-clip, clip)
                normalized += width
            features.append(numbers * scale)
        assert len(features[-1]) == width
    return np.concatenate(features)


def _branches(policy: dict[str, Any], arrays: Arrays, x: Vector) -> Vector:
    if "branches" not in policy:
        return x
    widths = [width for width, _ in policy["branches"]]
    parts = np.split(x, np.cumsum(widths)[:-1])
    given = [_apply(b[1], arrays, part) for b, part in zip(policy["branches"], parts, strict=True)]
    return np.concatenate(given)


def memory_size(policy: dict[str, Any]) -> int:
    """Numbers of a state; 0: there is none."""
    first = policy["networks"][0][1]
    return int(first[0][-1]) if first and first[0][0] == "gru" else 0


def _apply(
    layers: list[list[Any]], arrays: Arrays, x: Vector, state: Vector | None = None
) -> Vector:
    kept = x
    for name, *of in layers:
        match name:
            case "linear":
                x = arrays[of[0]] @ x + arrays[of[1]]
            case "relu":
                x = np.maximum(x, 0)
            case "tanh":
                x = np.tanh(x)
            case "normalize":
                x = (x - x.mean()) / np.sqrt(x.var() + of[0])
            case "scale":
                x = arrays[of[0]] * x + arrays[of[1]]
            case "save":
                kept = x
            case "add":
                x = x + kept
            case "channels_first":
                x = np.moveaxis(x.reshape(of), 3, 1).ravel()
            case "gru":
                assert state is not None
                of_x, of_h, b_x, b_h = (arrays[name] for name in of[:4])
                r_x, z_x, n_x = np.split(of_x @ x + b_x, 3)
                r_h, z_h, n_h = np.split(of_h @ state + b_h, 3)
                z = _sigmoid(z_x + z_h)
                state[:] = (1 - z) * np.tanh(n_x + _sigmoid(r_x + r_h) * n_h) + z * state
                x = state.copy()
            case "convolution":
                x = _convolve(x.reshape(of[2:5]), arrays[of[0]], arrays[of[1]], of[7])
            case _:
                raise AssertionError(f"the page has no layer {name}")
    return x


def _restore(y: Vector) -> Vector:
    """The inverse of sign(x) (sqrt(|x| + 1) - 1) + x / 1000, as the papers have it."""
    root: Vector = (np.sqrt(1 + 0.004 * (np.abs(y) + 1.001)) - 1) / 0.002
    return np.sign(y) * (root**2 - 1)


def _sigmoid(x: Vector) -> Vector:
    y: Vector = 1 / (1 + np.exp(-x))
    return y


def _convolve(x: Vector, weight: NDArray[Any], bias: NDArray[Any], stride: int) -> Vector:
    kernel = weight.shape[-1]
    rows, columns = ((size - kernel) // stride + 1 for size in x.shape[1:])
    y = np.empty((len(weight), rows, columns))
    for i in range(rows):
        for j in range(columns):
            patch = x[:, i * stride : i * stride + kernel, j * stride : j * stride + kernel]
            y[:, i, j] = np.tensordot(weight, patch, axes=3) + bias
    return y.ravel()
