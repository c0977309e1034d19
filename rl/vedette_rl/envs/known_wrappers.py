"""Wrappers that may be named without permission: they compute, and reach nothing outside.

Not all of Gymnasium's are: `RecordVideo` writes files to any folder, `HumanRendering` opens a
window. Ours are in the list where a learner may rightly ask a host for them.
"""

from __future__ import annotations

_GYMNASIUM = "gymnasium.wrappers"

_OF_GYMNASIUM = frozenset(
    {
        "AddRenderObservation",
        "AddWhiteNoise",
        "AtariPreprocessing",
        "Autoreset",
        "ClipAction",
        "ClipReward",
        "DelayObservation",
        "DiscretizeAction",
        "DiscretizeObservation",
        "DtypeObservation",
        "FilterObservation",
        "FlattenObservation",
        "FrameStackObservation",
        "GrayscaleObservation",
        "JaxToNumpy",
        "MaxAndSkipObservation",
        "NormalizeObservation",
        "NormalizeReward",
        "ObstructView",
        "OrderEnforcing",
        "PassiveEnvChecker",
        "RecordEpisodeStatistics",
        "RepeatAction",
        "RescaleAction",
        "RescaleObservation",
        "ReshapeObservation",
        "ResizeObservation",
        "StickyAction",
        "TimeAwareObservation",
        "TimeLimit",
    }
)

_OURS = frozenset(
    {
        # What its `network` names is asked for like any other import.
        "vedette_rl.networks.frozen_encoder:FrozenEncoder",
        "vedette_rl.teleop.gamepad:GamepadTakeover",
        "vedette_rl.teleop.takeover:KeyboardTakeover",
        # where they were in earlier versions
        "vedette_rl.envs.gamepad:GamepadTakeover",
        "vedette_rl.envs.takeover:KeyboardTakeover",
    }
)


def is_known_wrapper(name: str) -> bool:
    """True for a ``module:Name`` that needs no permission."""
    module, _, wrapper = name.partition(":")
    of_gymnasium = module == _GYMNASIUM or module.startswith(f"{_GYMNASIUM}.")
    return name in _OURS or (of_gymnasium and wrapper in _OF_GYMNASIUM)
