"""Vedette: asynchronous reinforcement learning over ZeroMQ.

::

    import vedette

    result = vedette.train(
        env="CartPole-v1",
        agent=vedette.DQN(learning_rate=1e-3),
        stop=vedette.StopConfig(target_return=475),
    )
    print(result.evaluate(episodes=100).return_mean)
    vedette.export_policy(result.run, "policy.npz")
    vedette.report(result.run)

Importing this package loads nothing else: a name is loaded at its first use, and none of them loads
torch before it needs it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vedette.api import (
        APPO,
        DQN,
        IQN,
        SAC,
        TD3,
        Actor,
        ActorsConfig,
        AgentConfig,
        ArgumentError,
        Curve,
        EnvConfig,
        Evaluation,
        EvaluationConfig,
        ExplorationConfig,
        LearnerConfig,
        NoModelError,
        NotARunError,
        OutboxSettings,
        Policy,
        PolicyFileError,
        RefusedError,
        Replay,
        ReplayConfig,
        ReplayWaitError,
        Result,
        RlError,
        RunConfig,
        RunOverError,
        ServicesError,
        SettingError,
        Settings,
        SourceConfig,
        SpaceLayoutError,
        Status,
        StopConfig,
        SweepResult,
        WrapperConfig,
        WrongSettingsError,
        curves,
        evaluate,
        export_policy,
        export_replay,
        load_policy,
        push_policy,
        report,
        status,
        train,
        train_async,
        train_seeds,
    )

__all__ = [
    "APPO",
    "DQN",
    "IQN",
    "SAC",
    "TD3",
    "Actor",
    "ActorsConfig",
    "AgentConfig",
    "ArgumentError",
    "Curve",
    "EnvConfig",
    "Evaluation",
    "EvaluationConfig",
    "ExplorationConfig",
    "LearnerConfig",
    "NoModelError",
    "NotARunError",
    "OutboxSettings",
    "Policy",
    "PolicyFileError",
    "RefusedError",
    "Replay",
    "ReplayConfig",
    "ReplayWaitError",
    "Result",
    "RlError",
    "RunConfig",
    "RunOverError",
    "ServicesError",
    "SettingError",
    "Settings",
    "SourceConfig",
    "SpaceLayoutError",
    "Status",
    "StopConfig",
    "SweepResult",
    "WrapperConfig",
    "WrongSettingsError",
    "curves",
    "evaluate",
    "export_policy",
    "export_replay",
    "load_policy",
    "push_policy",
    "report",
    "status",
    "train",
    "train_async",
    "train_seeds",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        from vedette.words_of_others import instead_of_name

        instead = "" if name.startswith("_") else instead_of_name(name, __all__)
        hint = f": {instead}" if instead else ""
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}{hint}")
    from vedette import api

    return getattr(api, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
