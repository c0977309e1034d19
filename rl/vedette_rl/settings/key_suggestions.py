"""Suggests the key that a wrong one means ("did you mean"), also by its name in other libraries.

::

    known = known_keys(DqnConfig, "agent")                   # of `vedette_rl.settings.part`
    nearest("agent.lr", known)                               # "agent.learning_rate"
    unknown_key("agent.kappa", known, {"iqn": of_iqn}).fix   # "agents that have agent.kappa: iqn"
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from vedette_rl.errors import WrongSetting
from vedette_rl.settings.words_of_others import INSTEAD


@dataclass(frozen=True)
class KnownKeys:
    """The keys of a configuration, or of a part of it.

    Args:
        keys: each once, as `--set` takes it.
        synonyms: our key by another library's word for it.
    """

    keys: tuple[str, ...]
    synonyms: Mapping[str, str] = field(default_factory=dict)

    def __or__(self, other: KnownKeys) -> KnownKeys:
        """The keys of both."""
        keys = dict.fromkeys((*self.keys, *other.keys))
        return KnownKeys(tuple(keys), {**self.synonyms, **other.synonyms})


UNKNOWN_KEY = "unknown key"
"""What is wrong with a key that does not exist."""

_OPTIONS = ("bind", "keys", "insecure", "out", "fresh", "force", "new_replay", "in_process")
"""Options of commands that are taken for settings."""


def unknown_key(
    key: str,
    known: KnownKeys,
    agents: Mapping[str, KnownKeys] | None = None,
    write: Callable[[str], str] = str,
) -> WrongSetting:
    """The line about a key that does not exist: it names the one that is probably meant.

    Args:
        known: the keys that there are.
        agents: the keys of each agent by its name, where `key` may be one of an agent.
        write: writes a key of ours as the user has to.
    """
    if (name := key.rpartition(".")[2].replace("-", "_")) in _OPTIONS:
        option = f"--{name.replace('_', '-')}"
        return WrongSetting(key, UNKNOWN_KEY, f"it is the option {option} of a command")
    if instead := instead_of(key):
        return WrongSetting(key, UNKNOWN_KEY, instead)
    meant, names = _agents_with(key, agents or {})
    near = nearest(key, known, spelling=not names)
    if near:
        return WrongSetting(key, UNKNOWN_KEY, f"did you mean {write(near)}?")
    if names:
        having = f"agents that have {meant}: {', '.join(names)}"
        return WrongSetting(key, UNKNOWN_KEY, having)
    return WrongSetting(key, UNKNOWN_KEY, "`vedette config --all` lists every key")


def _agents_with(key: str, agents: Mapping[str, KnownKeys]) -> tuple[str, list[str]]:
    """Our key for what may be another library's word, and the agents that have it."""
    word = key.removeprefix("agent.")
    ours = (known.synonyms[word] for known in agents.values() if word in known.synonyms)
    meant = next(ours, f"agent.{word}")
    return meant, sorted(name for name, known in agents.items() if meant in known.keys)


def instead_of(word: str) -> str:
    """What to do instead of setting what other libraries call so and has no key; "" for others."""
    key = word.lower().replace("-", "_")
    return INSTEAD.get(key) or INSTEAD.get(key.rpartition(".")[2], "")


def as_argument(key: str) -> str:
    """A key as an argument of Python: ``replay.capacity`` is ``replay={"capacity": ...}``."""
    name, *inner = key.split(".")
    value = "..."
    for part in reversed(inner):
        value = f'{{"{part}": {value}}}'
    return f"{name}={value}"


def nearest(key: str, known: KnownKeys, *, spelling: bool = True) -> str:
    """The key that `key` probably means; "" for none.

    In this order: one of the same last name in another part, one that others call so, one that is
    spelled alike.

    Args:
        spelling: take one that is only spelled alike.
    """
    keys = sorted(known.keys, key=_depth_and_name)
    last = key.rpartition(".")[2]
    part = key.partition(".")[0]
    namesakes = [candidate for candidate in keys if candidate.rpartition(".")[2] == last]
    if namesakes and part != "agent":
        return namesakes[0]
    if last.lower() in known.synonyms:
        return known.synonyms[last.lower()]
    if there := _synonym_there(key, known):
        return there
    if namesakes:
        return namesakes[0]
    if not spelling:
        return ""
    if alike := _spelled_alike(key, keys):
        return alike
    by_last = {candidate.rpartition(".")[2]: candidate for candidate in keys}
    spelled = {**known.synonyms, **by_last}
    close = difflib.get_close_matches(last, list(spelled), n=1, cutoff=0.75)
    return spelled[close[0]] if close else ""


def _synonym_there(key: str, known: KnownKeys) -> str:
    """Our key for a word that has its meaning only below a name that the user gave: of
    ``replay.sources.demos.path`` ``replay.sources.demos.data``. "" for none."""
    parts = key.split(".")
    for place in range(len(parts) - 1):
        name = parts[place]
        word = ".".join([*parts[:place], "NAME", *parts[place + 1 :]]).lower()
        if ours := known.synonyms.get(word.replace(".name.", ".NAME.")):
            return ours.replace(".NAME.", f".{name}.")
    return ""


def _depth_and_name(key: str) -> tuple[int, str]:
    return key.count("."), key


def _spelled_alike(key: str, keys: Sequence[str]) -> str:
    """The key that is spelled most alike; "" for none. The part's name alone is not enough."""
    close = difflib.get_close_matches(key, keys, n=1, cutoff=0.6)
    if not close:
        return ""
    one, other = key.rpartition(".")[2], close[0].rpartition(".")[2]
    least = 0.6 if "." in key else 0.75
    return close[0] if difflib.SequenceMatcher(None, one, other).ratio() >= least else ""
