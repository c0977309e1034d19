"""The frame of a page: complete in itself, forbidden to load or to run anything."""

from __future__ import annotations

import time
from collections.abc import Iterable

from vedette_services.report.chart import Chart, figure
from vedette_services.report.figures import moment
from vedette_services.report.markup import Markup, element, joined
from vedette_services.report.style import STYLE
from vedette_services.versions import vedette_version

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; media-src data:"


def page(title: str, *sections: str | None, command: str) -> str:
    """An HTML document.

    Args:
        title: of the window.
        sections: its parts.
        command: what writes it again.
    """
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        element("title", title),
        element("style", Markup(STYLE)),
    )
    said = f"vedette {vedette_version()}".rstrip()
    footer = element(
        "footer", f"Written by {said}, {moment(time.time())}. Again: ", element("code", command)
    )
    body = element("body", *sections, footer)
    return f"<!DOCTYPE html>\n{element('html', head, body, lang='en')}\n"


def section(title: str, *parts: str | None) -> Markup | None:
    """A heading and what is under it; None where there is nothing."""
    there = [part for part in parts if part]
    return element("section", element("h2", title), *there) if there else None


def cards(figures: Iterable[tuple[str, str]]) -> Markup:
    """Figures at a glance: what, and how much."""
    return element(
        "div",
        *(
            element("div", element("span", what), element("b", how_much), class_="card")
            for what, how_much in figures
        ),
        class_="cards",
    )


def chart_groups(charts: Iterable[tuple[str, Chart]]) -> Markup:
    """Charts under the headings of their groups."""
    groups: dict[str, list[Markup]] = {}
    for group, chart in charts:
        groups.setdefault(group, []).append(figure(chart))
    return joined(
        joined([element("h3", group), element("div", *figures, class_="charts")])
        for group, figures in groups.items()
    )


def notes(lines: Iterable[str]) -> Markup | None:
    """What a reader should know first."""
    said = [element("p", line) for line in lines]
    return element("div", *said, class_="notes") if said else None
