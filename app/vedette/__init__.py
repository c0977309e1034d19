"""Vedette: asynchronous reinforcement learning over ZeroMQ.

::

    import vedette

    result = vedette.train_async(env="CartPole-v1")
    print(vedette.evaluate(result.run, episodes=100).return_mean)
    vedette.export_policy(result.run, "policy.npz")
    vedette.report(result.run)

Importing this package loads nothing else: a name is loaded at its first use, and none of them loads
torch before it needs it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vedette.api import (
        SweepResult,
        TrainResult,
        curves,
        evaluate,
        export_policy,
        export_replay,
        load_policy,
        push_policy,
        report,
        status,
        train_async,
        train_seeds,
    )

__all__ = [
    "SweepResult",
    "TrainResult",
    "curves",
    "evaluate",
    "export_policy",
    "export_replay",
    "load_policy",
    "push_policy",
    "report",
    "status",
    "train_async",
    "train_seeds",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from vedette import api

    return getattr(api, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
