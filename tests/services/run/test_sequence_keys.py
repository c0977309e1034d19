"""The layout of rows that say which of them follow one another."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from configurations import configured

from vedette_protocol.column import Column
from vedette_protocol.schema import Schema
from vedette_rl.core.columns import ENV, EPOCH, SEQUENCE_KEYS, TIME, RowColumn
from vedette_rl.envs.make import probe_environment
from vedette_rl.envs.spaces import Spaces
from vedette_rl.errors import RowColumnError
from vedette_rl.steps import NStep
from vedette_services.run.replay_layout import (
    ReplayLayout,
    first_columns,
    has_sequence_keys,
    replay_layout,
    schema_columns,
)

WITHOUT_KEYS = {"box": "25af79bf1270fb80", "frames": "2e32a7abd3038878"}
"""Hashes of schemas, as the release before had them."""


class Counting(NStep):
    """A step processor with columns of its own, of such names."""

    declared: Sequence[RowColumn] = ()

    @classmethod
    def columns(cls, spaces: Spaces) -> Sequence[RowColumn]:
        return cls.declared


KEYS = "replay.sequence=8"


def layout_of(*settings: str) -> tuple[ReplayLayout, Spaces]:
    config = configured(*settings, env="CartPole-v1")
    spaces = probe_environment(config.env)
    return replay_layout(config, spaces), spaces


@pytest.mark.parametrize("kind", ["box", "frames"])
def test_a_run_without_sequences_has_the_rows_that_it_had(kind: str) -> None:
    settings = () if kind == "box" else ("replay.frame_storage=once",)
    layout, _ = layout_of(*settings)
    assert layout.schema.hash == WITHOUT_KEYS[kind]
    assert not has_sequence_keys(layout.schema)
    assert EPOCH not in (layout.stored.names or ())


@pytest.mark.parametrize("settings", [(), ("replay.frame_storage=once",)])
def test_rows_of_sequences_have_the_keys_behind_the_others(settings: tuple[str, ...]) -> None:
    layout, spaces = layout_of(KEYS, "agent.n_step=3", *settings)
    columns = [column for column in layout.schema.columns if column.role != "shared"]
    assert columns[-3:] == [
        Column("env", "u4", (), 0, 65_535),
        Column("t", "i8", (), 0, 2**62 - 1),
        Column("begins", "?"),
    ]
    assert has_sequence_keys(Schema.from_wire(layout.schema.to_wire()))
    assert EPOCH in (layout.stored.names or ())
    config = configured(KEYS, "agent.n_step=3", env="CartPole-v1")
    assert config.row_steps == 1
    assert schema_columns(layout.schema, config.agent, config.actors, spaces) == SEQUENCE_KEYS


def counting(monkeypatch: pytest.MonkeyPatch, *declared: RowColumn) -> str:
    monkeypatch.setattr(Counting, "declared", declared)
    return f"actors.step_processor={Path(__file__).stem}:Counting"


def test_columns_of_such_names_are_the_users_own_in_other_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    declared = (RowColumn(ENV, "int64"), RowColumn(TIME, "int64"), RowColumn(EPOCH, "bool"))
    steps = counting(monkeypatch, *declared)
    layout, spaces = layout_of(steps)
    config = configured(steps, env="CartPole-v1")
    assert not has_sequence_keys(layout.schema)
    assert schema_columns(layout.schema, config.agent, config.actors, spaces) == declared


@pytest.mark.parametrize("name", ["env", "t", "begins", "epoch", "burned", "length", "learned"])
def test_columns_of_such_names_are_refused_where_rows_have_keys(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    steps = counting(monkeypatch, RowColumn(name))
    with pytest.raises(RowColumnError, match=f"{name}.*rename it"):
        layout_of(KEYS, steps)


def test_the_columns_of_which_a_sequence_has_the_first_value_are_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    steps = counting(monkeypatch, RowColumn("memory", shape=(3,), first=True), RowColumn("mark"))
    config = configured(steps, env="CartPole-v1")
    assert first_columns(config, probe_environment(config.env)) == {"memory"}
