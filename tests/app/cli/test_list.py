"""``vedette list``: every name that a command or a configuration knows."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from vedette_services.config.plugins import GROUPS, OURS
from vedette_services.config.presets import preset_names

Run = Callable[..., tuple[int, str]]

KINDS = {
    f"vedette.{kind.replace('-', '_')}": kind
    for kind in ("agents", "networks", "explorations", "step-processors", "replays", "recorders")
}


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package that declares an agent and a recorder, and would take one of our names."""
    metadata = tmp_path / "site" / "plugged_in-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: plugged-in\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(
        "[vedette.agents]\nmine = plugged_in:Mine\ndqn = plugged_in:Mine\n"
        "[vedette.recorders]\nprinter = plugged_in:Printer\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path / "site"))


def rows(vedette: Run, *arguments: str) -> list[dict[str, str]]:
    status, text = vedette("list", *arguments, "--json")
    assert status == 0, text
    return [json.loads(line) for line in text.splitlines()]


def test_every_kind_has_a_heading_and_what_is_typed(vedette: Run) -> None:
    status, text = vedette("list")
    assert status == 0
    heads = [line for line in text.splitlines() if line and not line.startswith(" ")]
    assert heads[0] == "agents: --agent NAME"
    assert [head.partition(":")[0] for head in heads] == [
        *("agents", "environments", "presets", "networks", "explorations"),
        *("step-processors", "replays", "recorders"),
    ]
    assert "  n_step  transitions over agent.n_step steps" in text


@pytest.mark.parametrize("group", GROUPS)
def test_our_names_are_all_listed_with_a_description(vedette: Run, group: str) -> None:
    found = rows(vedette, KINDS[group])
    assert {row["name"]: row["what"] for row in found} == OURS[group]
    assert all(row["what"] for row in found)
    assert {row["from"] for row in found} == {"vedette"}


@pytest.mark.usefixtures("installed")
def test_names_of_installed_packages_follow_ours_and_take_none_of_them(vedette: Run) -> None:
    assert rows(vedette, "agents")[len(OURS["vedette.agents"]) :] == [
        {"kind": "agents", "name": "mine", "from": "plugged-in", "what": "plugged_in:Mine"}
    ]
    assert "  printer      plugged-in: plugged_in:Printer" in vedette("list", "recorders")[1]


def test_environments_with_a_preset_come_first_and_say_whose(vedette: Run) -> None:
    found = rows(vedette, "environments")
    by_name = {row["name"]: row for row in found}
    assert by_name["CartPole-v1"]["what"] == "preset for appo, dqn, iqn"
    assert by_name["ALE/Pong-v5"]["what"] == "preset for dqn"
    plain = by_name["MountainCar-v0"]
    assert (plain["from"], plain["what"]) == ("gymnasium", "")
    assert "Ant-v5" in by_name
    assert "Ant-v3" not in by_name
    tuned = [bool(row["what"]) for row in found]
    assert tuned == sorted(tuned, reverse=True)


def test_all_environments_are_listed_where_they_are_asked_for(vedette: Run) -> None:
    _, text = vedette("list")
    assert "more: vedette list environments" in text
    assert "MountainCar-v0" in vedette("list", "environments")[1]


def test_every_preset_is_listed(vedette: Run) -> None:
    assert [row["name"] for row in rows(vedette, "presets")] == preset_names()


def test_an_unknown_kind_is_refused_with_those_that_there_are(vedette: Run) -> None:
    status, text = vedette("list", "games")
    assert status == 2
    assert "'agents', 'environments'" in text
