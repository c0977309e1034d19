"""Packages that register environments whose names say which package it is: an id that was typed
without its module is answered with the whole name."""

from __future__ import annotations

import importlib.util
import re
from types import ModuleType

_PACKAGES = {
    r"MiniGrid-|BabyAI-": ("minigrid", "minigrid"),
    r"(Fetch|HandReach|HandManipulate|Adroit|AntMaze_|PointMaze_|FrankaKitchen)": (
        "gymnasium_robotics",
        "gymnasium-robotics",
    ),
    r"Panda(Reach|Push|Slide|PickAndPlace|Stack|Flip)": ("panda_gym", "panda-gym"),
    r"(highway|merge|roundabout|parking|intersection|racetrack)-": (
        "highway_env",
        "highway-env",
    ),
    r"FlappyBird-": ("flappy_bird_gymnasium", "flappy-bird-gymnasium"),
    r"Vizdoom": ("vizdoom.gymnasium_wrapper", "vizdoom"),
    r"MiniWorld-": ("miniworld", "miniworld"),
    r"popgym-": ("popgym", "popgym"),
    r"PyFlyt/": ("PyFlyt.gym_envs", "PyFlyt"),
    r"Meta-World/": ("metaworld", "metaworld"),
    r"dm_control/": ("shimmy", "shimmy[dm-control]"),
    r"gym_pusht/": ("gym_pusht", "gym-pusht"),
    r"gym_aloha/": ("gym_aloha", "gym-aloha"),
    r"tetris_gymnasium/": ("tetris_gymnasium.envs", "tetris-gymnasium"),
}
"""The module that registers, and what pip installs, by how their ids begin."""


def package_hint(name: str) -> str:
    """Say how an id of another package is named here, and how that is installed; "" if its package
    is not known."""
    for beginning, (module, package) in _PACKAGES.items():
        if re.match(beginning, name):
            here = importlib.util.find_spec(module.partition(".")[0]) is not None
            install = "" if here else f", with pip install '{package}'"
            return f"it is named with its module, {module}:{name}{install}"
    return ""


def submodule_hint(module: ModuleType, name: str) -> str:
    """Name the submodule ``envs`` of a package, where many register; "" if it has none."""
    package = module.__name__
    if "." in package or not hasattr(module, "__path__"):
        return ""
    if importlib.util.find_spec(f"{package}.envs") is None:
        return ""
    return f"; its module {package}.envs may: {package}.envs:{name}"
