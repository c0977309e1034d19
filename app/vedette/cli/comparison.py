"""Prints a comparison of configurations, as the page of a report shows it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from vedette.cli.output import say

if TYPE_CHECKING:  # it brings the charts
    from vedette.reports.configurations import Configuration


def print_comparison(configurations: Sequence[Configuration]) -> None:
    """Print the table, what its numbers are, and what a reader has to know of the runs."""
    from vedette.live import print_table
    from vedette.reports import OUTCOME_HEADS, outcome_of, remarks

    outcome = outcome_of(configurations)
    print_table(OUTCOME_HEADS, outcome.rows)
    say(outcome.note)
    for remark in remarks(configurations):
        say(remark)
