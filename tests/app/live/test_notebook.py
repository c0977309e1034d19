"""Progress in a notebook: one output, replaced in place."""

import sys
from types import SimpleNamespace
from typing import Any

import pytest
from fleets import fleet, manager  # beside this file

from vedette.live.notebook import LINES, NotebookLines, NotebookView, find_display

STATUS = fleet([manager(number) for number in range(100)])


class Cell:
    """A cell's output: what is displayed, and what replaced it."""

    def __init__(self) -> None:
        self.displayed = 0
        self.updates = 0
        self.shown: dict[str, str] = {}

    def display(self, shown: dict[str, str], *, raw: bool, display_id: bool) -> "Cell":
        assert raw
        assert display_id
        self.displayed += 1
        self.shown = shown
        return self

    def update(self, shown: dict[str, str], *, raw: bool) -> None:
        self.updates += 1
        self.shown = shown


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_run_is_one_output_that_is_replaced_once_a_second() -> None:
    cell, clock = Cell(), Clock()
    with NotebookView("dqn on ALE/Pong-v5", cell.display, now=clock) as view:
        view.show(None)
        for _ in range(100):
            clock.now += 0.1
            view.show(STATUS)
    assert cell.displayed == 1
    assert 9 <= cell.updates <= 12
    assert "dqn on ALE/Pong-v5" in cell.shown["text/plain"]
    assert "more managers" in cell.shown["text/plain"]
    assert cell.shown["text/html"].startswith("<pre")


def test_lines_come_below_it_and_the_oldest_leave() -> None:
    cell = Cell()
    with NotebookView("a <b>", cell.display, now=Clock()) as view:
        for number in range(LINES + 2):
            view.print_line(f"line {number} <i>")
    assert cell.displayed == 1
    text = cell.shown["text/plain"]
    assert "line 1 " not in text
    assert f"line {LINES + 1} <i>" in text
    assert "<i>" not in cell.shown["text/html"]


def test_lines_of_several_runs_are_one_output() -> None:
    cell = Cell()
    lines = NotebookLines(cell.display, count=3)
    for number in range(50):
        lines.add(f"{number}: 3 < 4")
    assert cell.displayed == 1
    assert cell.shown["text/plain"] == "47: 3 < 4\n48: 3 < 4\n49: 3 < 4"
    assert "3 &lt; 4" in cell.shown["text/html"]


def test_a_notebook_is_where_ipython_has_a_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("IPython", "IPython.display"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    assert find_display() is None
    shell: Any = None
    found = SimpleNamespace(get_ipython=lambda: shell, display=SimpleNamespace(display=print))
    monkeypatch.setitem(sys.modules, "IPython", found)
    monkeypatch.setitem(sys.modules, "IPython.display", found.display)
    assert find_display() is None
    shell = SimpleNamespace()  # a terminal's
    assert find_display() is None
    shell = SimpleNamespace(kernel=object())
    assert find_display() is print
