"""What an object has by `__getattr__` is its own, on every Python."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vedette_rl.core as core
from vedette_rl.core import ColumnPolicy, Policy, ReplayBuffer, StepProcessor, implements
from vedette_rl.core.protocols import missing_members
from vedette_rl.replay.config import ReplayConfig
from vedette_rl.replay.rows import MemoryRing
from vedette_rl.replay.uniform import UniformReplay
from vedette_rl.testing.contracts import NUMBERED

ROOT = Path(__file__).parents[3]
PACKAGES = [ROOT / name for name in ("app", "protocol", "rl", "services")]


class Remembering:
    """A policy with columns."""

    def sync_model(self, model: core.ModelInfo) -> None: ...

    def act(self, obs: core.Columns, *, explore: bool) -> Any: ...

    def acted_columns(self) -> core.Columns:
        return {}


class Wrapped:
    """Passes everything on."""

    def __init__(self, inside: object) -> None:
        self._inside = inside

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inside, name)


class AnswersNone:
    """Has every name, and nothing behind it."""

    def __getattr__(self, name: str) -> None:
        return None


def test_a_wrapper_is_what_it_passes_on() -> None:
    assert implements(Wrapped(Remembering()), Policy)
    assert implements(Wrapped(Remembering()), ColumnPolicy)
    assert implements(Wrapped(Wrapped(Remembering())), ColumnPolicy)
    assert not implements(Wrapped(Remembering()), StepProcessor)


def test_a_method_has_to_be_callable() -> None:
    assert not implements(AnswersNone(), ColumnPolicy)
    assert missing_members(AnswersNone(), Policy) == ["act", "sync_model"]


def test_a_method_of_the_object_alone_counts() -> None:
    policy: Any = Wrapped(object())
    policy.acted_columns = dict
    assert implements(policy, ColumnPolicy)


def test_special_methods_are_looked_up_in_the_class() -> None:
    """As Python does: `len` of a wrapper fails, whatever it passes on."""
    replay = UniformReplay(MemoryRing(NUMBERED, 8), np.random.default_rng(0), ReplayConfig())
    assert implements(replay, ReplayBuffer)
    assert missing_members(Wrapped(replay), ReplayBuffer) == ["__len__"]


def test_members_of_bases_count() -> None:
    assert missing_members(Wrapped(object()), core.LoadedPolicy) == ["act", "reset", "sync_model"]


def test_a_property_that_fails_says_why() -> None:
    class Broken(Wrapped):
        @property
        def opt_steps(self) -> int:
            raise RuntimeError("no counter")

    with pytest.raises(RuntimeError, match="no counter"):
        implements(Broken(object()), core.Agent)


def names_in(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr


def test_no_interface_is_for_isinstance() -> None:
    """From Python 3.12 on `isinstance` does not see what an object has by `__getattr__`."""
    files = [path for package in PACKAGES for path in package.rglob("*.py")]
    assert len(files) > 100
    found = [str(path) for path in files if "runtime_checkable" in names_in(path)]
    assert found == [], "use vedette_rl.core.implements"
