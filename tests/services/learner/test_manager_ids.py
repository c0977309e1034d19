"""Whose a manager's id is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from vedette_services.learner import fleet as module
from vedette_services.learner.fleet import ManagerIds


def test_an_id_belongs_to_the_key_that_used_it_first_also_after_a_restart(tmp_path: Path) -> None:
    manager_ids = ManagerIds(tmp_path / "owners.json")
    assert manager_ids.claim("m", "lab")
    assert not manager_ids.claim("m", "other")
    manager_ids.save()
    again = ManagerIds(tmp_path / "owners.json")
    assert again.claim("m", "lab")
    assert not again.claim("m", "other")


def test_replicas_that_share_a_key_have_an_id_each_and_nobody_else_has_any(tmp_path: Path) -> None:
    manager_ids = ManagerIds(tmp_path / "owners.json")
    assert all(manager_ids.claim(f"pod-{n}", "actors") for n in range(100))
    assert not any(manager_ids.claim(f"pod-{n}", "other") for n in range(100))


def test_the_id_given_up_is_the_one_not_heard_of_for_longest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "IDS_MAX", 3)
    manager_ids = ManagerIds(tmp_path / "owners.json")
    for manager in ("first", "second", "third", "first", "fourth"):
        assert manager_ids.claim(manager, "actors")
    manager_ids.save()
    kept = json.loads((tmp_path / "owners.json").read_text())
    assert kept == dict.fromkeys(("third", "first", "fourth"), "actors")
    assert not manager_ids.claim("first", "other")
