"""The benchmark of pages on many runs."""

import pytest

from bench.lines import page_lines
from bench.pages import PagesBench


@pytest.mark.slow
def test_pages_of_many_runs_are_measured_until_every_run_has_its_small_curve() -> None:
    figures = PagesBench(runs=22, numbers=2_000).run()
    assert figures["small_curves"] == 22  # also of those that are not drawn
    assert 0.0 < figures["first_page_s"] <= figures["whole_page_s"]
    assert figures["report_bytes"] > 1_000_000  # with the library that draws
    assert page_lines(figures)[0].startswith("22 runs of 2,000 numbers")
