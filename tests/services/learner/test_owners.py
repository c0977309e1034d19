"""Whose a manager's id is."""

from __future__ import annotations

from pathlib import Path

import pytest

from vedette_services.learner import fleet as module
from vedette_services.learner.fleet import Owners


def test_an_id_belongs_to_the_key_that_used_it_first_also_after_a_restart(tmp_path: Path) -> None:
    owners = Owners(tmp_path / "owners.json")
    assert owners.claim("m", "lab")
    assert not owners.claim("m", "other")
    owners.save()
    again = Owners(tmp_path / "owners.json")
    assert again.claim("m", "lab")
    assert not again.claim("m", "other")


def test_replicas_that_share_a_key_have_an_id_each_and_nobody_else_has_any(tmp_path: Path) -> None:
    owners = Owners(tmp_path / "owners.json")
    assert all(owners.claim(f"pod-{n}", "actors") for n in range(100))
    assert not any(owners.claim(f"pod-{n}", "other") for n in range(100))


def test_the_id_given_up_is_the_one_not_heard_of_for_longest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "IDS_MAX", 3)
    owners = Owners(tmp_path / "owners.json")
    for manager in ("first", "second", "third", "first", "fourth"):
        assert owners.claim(manager, "actors")
    assert sorted(owners.of("actors")) == ["first", "fourth", "third"]
    assert not owners.claim("first", "other")
