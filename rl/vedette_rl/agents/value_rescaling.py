"""Rescaled values, which make returns of all sizes alike: h of R2D2. For numpy and torch.

h(x) = sign(x) (sqrt(|x| + 1) - 1) + eps x is near x where x is small, and grows as the square root
where it is large (Pohlen et al. 2018, arXiv:1805.11593; Kapturowski et al. 2019, section 2.3). A
network of rescaled values learns ``h(G + discount h^-1(v'))``. h is monotone: which action is best
is as before.

As they are written there both lose their digits near 0 in float32: h^-1(h(1e-6)) is -2.6e-5. Here
they are without the differences that lose them.
"""

from __future__ import annotations

from typing import Any

from vedette_rl.networks.layers import Array

EPS = 1e-3
"""How much of x is in h(x), so that h has an inverse with a bounded slope (1e-3: both papers)."""


def rescale(xp: Any, x: Array) -> Array:
    """h(x), with numpy or torch as `xp`."""
    return x / (xp.sqrt(abs(x) + 1.0) + 1.0) + EPS * x


def restore(xp: Any, y: Array) -> Array:
    """h^-1(y), with numpy or torch as `xp`."""
    size = abs(y)
    slope = 1.0 + 2.0 * EPS
    # sqrt(|x| + 1) - 1, the positive root of eps s^2 + (1 + 2 eps) s = |y|
    root = 2.0 * size / (slope + xp.sqrt(slope**2 + 4.0 * EPS * size))
    return xp.sign(y) * root * (root + 2.0)
