"""Noise on the actions of actors that explore in a Box: white, or correlated over time. No torch.

Shapes: E environments, D action dimensions, T steps of a sequence.
"""

from __future__ import annotations

from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from vedette_rl.agents.config import ActorCriticConfig, NoiseColor

USUAL_STEPS: Final = 1000
"""T where neither a setting nor the environment's time limit says it."""

_EXPONENTS: Final = {"white": 0.0, "pink": 1.0, "red": 2.0}


class ActionNoise(Protocol):
    """Standard normal numbers for each action dimension of a vector of environments::

    noise.renew(begins)         # where episodes begin
    z_ED = noise.draw(rows)     # for the next step
    """

    def renew(self, which: NDArray[np.bool_]) -> None:
        """The next number of these environments ``(E,)`` is the first of another sequence."""
        ...

    def draw(self, rows: int) -> NDArray[np.float32]:
        """The next numbers ``(E, D)`` of the first `rows` environments."""
        ...


class WhiteNoise:
    """`ActionNoise` of which each number is drawn by itself."""

    def __init__(self, rng: np.random.Generator, dimensions: int) -> None:
        self._rng = rng
        self._dimensions = dimensions

    def renew(self, which: NDArray[np.bool_]) -> None:
        """There is nothing to begin."""

    def draw(self, rows: int) -> NDArray[np.float32]:
        """See `ActionNoise`."""
        return self._rng.standard_normal((rows, self._dimensions), np.float32)


class ColoredNoise:
    """`ActionNoise` that is correlated over time (Eberhard et al. 2023, "Pink Noise Is All You
    Need"): each environment and action dimension has a sequence of its own.

    A sequence is left for another one where an episode begins, where it is used up, and of an
    environment that the draw before left out.

    Args:
        rng: draws the sequences.
        dimensions: D.
        exponent: see `colored_sequences`.
        steps: T, the length of a sequence.
    """

    def __init__(
        self, rng: np.random.Generator, dimensions: int, exponent: float, steps: int
    ) -> None:
        self._rng = rng
        self._exponent = exponent
        self._steps = steps
        self._sequences = np.empty((0, steps, dimensions), np.float32)  # (E, T, D)
        self._at = np.empty(0, np.int64)  # (E,): the step of the sequence that is next; T: none

    def renew(self, which: NDArray[np.bool_]) -> None:
        """See `ActionNoise`."""
        self._make_room(len(which))
        self._at[: len(which)][which] = self._steps

    def draw(self, rows: int) -> NDArray[np.float32]:
        """See `ActionNoise`."""
        self._make_room(rows)
        self._at[rows:] = self._steps
        due = np.flatnonzero(self._at[:rows] == self._steps)
        if due.size:
            count = due.size, self._sequences.shape[2]
            drawn = colored_sequences(self._rng, self._exponent, self._steps, count)
            self._sequences[due] = drawn.swapaxes(1, 2)
            self._at[due] = 0
        noise: NDArray[np.float32] = self._sequences[np.arange(rows), self._at[:rows]]
        self._at[:rows] += 1
        return noise

    def _make_room(self, rows: int) -> None:
        more = rows - len(self._at)
        if more > 0:
            shape = more, *self._sequences.shape[1:]
            self._sequences = np.concatenate([self._sequences, np.empty(shape, np.float32)])
            self._at = np.concatenate([self._at, np.full(more, self._steps)])


def colored_sequences(
    rng: np.random.Generator, exponent: float, steps: int, count: tuple[int, ...]
) -> NDArray[np.float32]:
    """Draw independent sequences ``(*count, T)`` whose power at frequency f is 1 / f^exponent.

    The method of Timmer and Koenig 1995: normal Fourier coefficients of that power. So each number
    is standard normal by itself, at every step. The mean of a sequence is drawn, too, with the
    power of the lowest frequency, 1 / T.

    Args:
        exponent: 0: white; 1: pink; 2: red, or brown.
        steps: T, at least 1.
    """
    waves = np.arange(steps // 2 + 1)  # in a sequence
    deviation = np.maximum(waves, 1.0) ** (-exponent / 2)
    is_real = (waves == 0) | (2 * waves == steps)  # the mean, and the fastest wave, have no phase
    deviation[is_real] *= np.sqrt(2.0)  # all the power is in the real part
    coefficients = rng.standard_normal((*count, len(waves), 2)).view(np.complex128)[..., 0]
    coefficients.imag[..., is_real] = 0.0
    coefficients *= deviation
    # irfft adds each coefficient of the others and its conjugate, and divides by T
    variance = np.sum((np.where(is_real, 1.0, 2.0) * deviation / steps) ** 2)
    sequences: NDArray[np.float64] = np.fft.irfft(coefficients, steps) / np.sqrt(variance)
    return sequences.astype(np.float32)


def color_exponent(color: NoiseColor) -> float:
    """The exponent of a color; see `colored_sequences`."""
    return _EXPONENTS[color] if isinstance(color, str) else color


def make_action_noise(
    config: ActorCriticConfig, rng: np.random.Generator, dimensions: int
) -> ActionNoise:
    """The noise that a configuration asks for."""
    exponent = color_exponent(config.noise_color)
    if not exponent:
        return WhiteNoise(rng, dimensions)
    return ColoredNoise(rng, dimensions, exponent, config.noise_steps or USUAL_STEPS)


def describe_color(config: ActorCriticConfig) -> dict[str, Any]:
    """Describe coloured noise as the wire's page does, under "Acting"; nothing of white noise."""
    exponent = color_exponent(config.noise_color)
    if not exponent:
        return {}
    return {"noise_exponent": exponent, "noise_steps": config.noise_steps or USUAL_STEPS}
