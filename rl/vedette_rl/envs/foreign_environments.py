"""Classes of environments that are no `gymnasium.Env`, and what makes them one."""

from __future__ import annotations

import re
import sys
from typing import Any

from vedette_rl.envs.current_api import takes_seed

_GYM = (
    "it is one of the package gym, which Gymnasium has replaced: name a function that returns "
    "shimmy.GymV26CompatibilityV0(env=...) of it, or GymV21CompatibilityV0 where reset() returns "
    "the observation alone (pip install 'shimmy[gym-v26]' or '[gym-v21]')"
)
GYM_ID = (
    "it is registered with the package gym, which Gymnasium has replaced: name a function that "
    "returns shimmy.GymV26CompatibilityV0(env_id=...) of it, or GymV21CompatibilityV0 where "
    "reset() returns the observation alone (pip install 'shimmy[gym-v26]' or '[gym-v21]')"
)
"""The way out where an id is found there only."""

_TURNS = (
    "it is one of PettingZoo's for several agents that act in turn (AEC): name a function that "
    "returns a gymnasium.Env of one of them, whose step() plays the others' turns"
)
_PARALLEL = (
    "it is one of PettingZoo's for several agents: name a function that returns a gymnasium.Env "
    "of one of them, whose step() has the others act"
)
_PLAIN = "it has reset() and step(): have it inherit from gymnasium.Env"
_OLD = (
    "its reset() takes no seed, as in gym's old API: name a function that returns "
    "shimmy.GymV21CompatibilityV0(env=...) of it (pip install 'shimmy[gym-v21]'), or a "
    "gymnasium.Env whose reset() gives (obs, info) and whose step() gives five values"
)


def explain_foreign(kind: type[Any]) -> str:
    """Say what a class is that plays like an environment, and the way out; "" for any other."""
    packages = {each.__module__.partition(".")[0] for each in kind.__mro__}
    if not all(callable(getattr(kind, name, None)) for name in ("reset", "step")):
        return ""
    if "gym" in packages:
        why = _GYM
    elif callable(getattr(kind, "agent_iter", None)):
        why = _TURNS
    elif "pettingzoo" in packages:
        why = _PARALLEL
    else:
        why = _PLAIN if takes_seed(kind) else _OLD
    return f"; {why}"


def is_registered_with_gym(name: str) -> bool:
    """True if a module that was imported has registered this id with the package gym."""
    registration = sys.modules.get("gym.envs.registration")
    registry = getattr(registration, "registry", None)
    return name in getattr(registry, "env_specs", registry or ())  # before 0.26, and since


def explain_made(error: str) -> str:
    """The same of what a function made, by the words with which Gymnasium refused it."""
    if "Gym is incompatible" in error:
        return f"; {_GYM}"
    named = re.search(r"<class '([\w.]+)\.(\w+)'>", error)
    kind = getattr(sys.modules.get(named[1]), named[2], None) if named else None
    return explain_foreign(kind) if isinstance(kind, type) else ""
