"""The JSON schema that editors complete TOML by, and the reference written from it."""

import json
import runpy
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fastjsonschema
import pytest
from pydantic import BaseModel

import vedette
from vedette_rl.agents.registry import BUILT_IN
from vedette_services.config import RunConfig, load_config, publish_config, read_config
from vedette_services.config.presets import preset_names
from vedette_services.config.saving import config_table
from vedette_services.config.schema import config_schema

ROOT = Path(__file__).parents[3]
VALID = fastjsonschema.compile(config_schema())


@pytest.mark.parametrize("name", preset_names())
def test_a_configuration_fits_the_schema_whole_and_in_part(name: str) -> None:
    agent, _, env = name.partition("-")
    config = load_config(env=env.replace("ALE_", "ALE/"), agent=agent, environment={}).config
    VALID(config_table(config))
    VALID({})
    VALID({"learner": {"sync_interval": 5}, "stop": {"target_return": "none"}})


@pytest.mark.parametrize(
    "table",
    [
        {"lr": 1},
        {"learner": {"sync_intervall": 5}},
        {"learner": {"sync_interval": -5}},
        {"seed": "x"},
        {"agent": {"name": "dqn", "kappa": 1.0}},
        {"agent": {"name": "dqn", "exploration": {"kind": "spiral"}}},
        {"env": {"wrappers": ["no_module"]}},
    ],
)
def test_what_is_wrong_does_not_fit_the_schema(table: dict[str, Any]) -> None:
    with pytest.raises(fastjsonschema.JsonSchemaValueException):
        VALID(table)


def test_names_of_the_users_own_fit_the_schema() -> None:
    VALID({"agent": {"name": "my_pkg.agents:Mine", "anything": 3}})
    VALID({"agent": {"name": "dqn", "network": "nets:Net"}})
    VALID({"env": {"wrappers": ["pkg:W", {"name": "pkg:V", "kwargs": {"a": [1]}}]}})


def test_every_key_has_a_docstring() -> None:
    parts = [RunConfig, *(kind.config for kind in BUILT_IN.values())]
    parts += [field.annotation for field in RunConfig.model_fields.values()]
    for part in parts:
        if hasattr(part, "model_fields"):
            assert all(field.description for field in part.model_fields.values()), part


def descriptions(schema: Any) -> Iterator[str]:
    """Yield every description in a schema."""
    for name, value in schema.items() if isinstance(schema, dict) else enumerate(schema):
        if name == "description" and isinstance(value, str):
            yield value
        elif isinstance(value, dict | list):
            yield from descriptions(value)


def test_a_description_names_the_thing_and_not_only_what_it_is_of() -> None:
    fragments = ("of ", "between ", "its ", "the same ", "likewise", "which one")
    assert [text for text in descriptions(config_schema()) if text.startswith(fragments)] == []


PAGES = runpy.run_path(str(ROOT / "scripts" / "configuration_page.py"))


@pytest.mark.parametrize("name", ["configuration", "settings"])
def test_the_reference_is_what_the_classes_say(name: str) -> None:
    page = PAGES["reference_page" if name == "configuration" else "python_page"]()
    written = (ROOT / "docs" / "reference" / f"{name}.md").read_text("utf-8")
    assert written == page, "run scripts/docs"


def test_every_class_of_settings_is_on_the_page_of_python() -> None:
    kinds = {name for name in vedette.__all__ if issubclass(_kind(name), BaseModel)}
    assert set(PAGES["_CLASSES"]) == kinds - {"RunConfig", "AgentConfig"}


def _kind(name: str) -> type:
    found = getattr(vedette, name)
    return found if isinstance(found, type) else object


def test_a_published_configuration_names_its_schema_and_its_preset(tmp_path: Path) -> None:
    found = load_config(environment={})
    publish_config(found.config, tmp_path / "config.toml", found.note)
    head = (tmp_path / "config.toml").read_text("utf-8").splitlines()[:2]
    assert head == ["#:schema ./config.schema.json", "# from the preset dqn-CartPole-v1"]
    schema = json.loads((tmp_path / "config.schema.json").read_text("utf-8"))
    fastjsonschema.compile(schema)(tomllib.loads((tmp_path / "config.toml").read_text("utf-8")))
    assert read_config(tmp_path / "config.toml").agent == found.config.agent
