"""The page of formats has the numbers that the code has."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from vedette_protocol import ledger
from vedette_protocol.limits import PROTOCOL_VERSION
from vedette_rl.exported import policy_file
from vedette_rl.replay import manifest, ring_files
from vedette_rl.storage import latest_value, state_file
from vedette_services.actors.outbox import records

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "formats.md"


@pytest.mark.parametrize(
    ("row", "number"),
    [
        ("`checkpoints/N/state.safetensors`", f"| {state_file.FORMAT} ("),
        ("`replay/ring.json`", f"| {manifest.FORMAT_VERSION} ("),
        ("`replay/*.bin`", f"| `{ring_files._MAGIC.decode()}` ("),
        ("`replay/commits`", f"| `{latest_value.MAGIC.decode()}` ("),
        ("`replay/commits`", f"the ledger in it has {ledger._FORMAT}, or {ledger._OUTBOX_FORMAT} "),
        ("an outbox's `*.outbox`", f"| `{records.MAGIC.decode()}` and {records.FORMAT[0]} ("),
        ("policy, `numpy` and", f"| {policy_file.FORMAT_VERSION} ("),
        ("format |", f"| {PROTOCOL_VERSION} ("),
    ],
)
def test_a_number_of_the_page_is_that_of_the_code(row: str, number: str) -> None:
    (line,) = re.findall(rf"^\| {re.escape(row)}.*$", PAGE.read_text("utf-8"), re.M)
    assert number in line
