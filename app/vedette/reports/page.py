"""The frame of a page, which loads no file and runs no script."""

from __future__ import annotations

import time
from collections.abc import Iterable

from vedette.reports.chart import Chart, draw_chart
from vedette.reports.markup import Markup, element, join_markup
from vedette_services.host.versions import vedette_version
from vedette_services.run.number_format import format_time

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; media-src data:"


def html_page(title: str, *sections: str | None, command: str) -> str:
    """Make an HTML document.

    Args:
        title: of the window.
        sections: its parts.
        command: the command that writes it again.
    """
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        element("title", title),
        element("style", Markup(STYLE)),
    )
    version = f"vedette {vedette_version()}".rstrip()
    footer = element(
        "footer",
        f"Written by {version}, {format_time(time.time())}. Again: ",
        element("code", command),
    )
    body = element("body", *sections, footer)
    return f"<!DOCTYPE html>\n{element('html', head, body, lang='en')}\n"


def html_section(title: str, *parts: str | None) -> Markup | None:
    """Make a section with a heading; None if it has no parts."""
    shown = [part for part in parts if part]
    return element("section", element("h2", title), *shown) if shown else None


def figure_cards(figures: Iterable[tuple[str, str]]) -> Markup:
    """Make a card for each figure, given as (label, value)."""
    cards = [
        element("div", element("span", label), element("b", value), class_="card")
        for label, value in figures
    ]
    return element("div", *cards, class_="cards")


def chart_groups(charts: Iterable[tuple[str, Chart]]) -> Markup:
    """Draw charts, given as (group, chart), under the headings of their groups."""
    groups: dict[str, list[Markup]] = {}
    for group, chart in charts:
        groups.setdefault(group, []).append(draw_chart(chart))
    return join_markup(
        join_markup([element("h3", group), element("div", *figures, class_="charts")])
        for group, figures in groups.items()
    )


def html_notes(lines: Iterable[str]) -> Markup | None:
    """Make the notes at the head of a page; None if there are none."""
    notes = [element("p", line) for line in lines]
    return element("div", *notes, class_="notes") if notes else None


STYLE = """
:root { color-scheme: light dark; --paper: #fff; --card: #f7f7f5; --ink: #1d1f21; --soft: #61666b;
  --rule: #dcdcd8; --good: #1a7f4b; --bad: #b3261e; --c0: #1f6fb4; --c1: #c4560a; --c2: #1a8a66;
  --c3: #a63d8a; --c4: #8a6d00; --c5: #5b4fc4; --c6: #b3261e; --c7: #55606a; }
@media (prefers-color-scheme: dark) { :root { --paper: #16181b; --card: #1f2226; --ink: #e6e6e3;
  --soft: #9aa0a6; --rule: #363a40; --good: #5fce97; --bad: #ff8a80; --c0: #6db3f2; --c1: #ff9d57;
  --c2: #4fd1a5; --c3: #e58cd0; --c4: #d9bb4a; --c5: #a79bff; --c6: #ff8a80; --c7: #a8b3bd; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1280px; padding: 20px clamp(12px, 3vw, 32px) 48px;
  background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
h1 { font-size: 1.6rem; line-height: 1.2; margin: 0 0 4px; overflow-wrap: anywhere; }
h2 { font-size: 1.15rem; margin: 36px 0 10px; padding-bottom: 4px;
  border-bottom: 1px solid var(--rule); }
h3 { font-size: .95rem; margin: 20px 0 8px; color: var(--soft); font-weight: 600; }
p { margin: 6px 0; }
.soft, .note, footer { color: var(--soft); }
.soft { overflow-wrap: anywhere; }
.good { color: var(--good); } .bad { color: var(--bad); }
.cards, .charts { display: grid; gap: 12px; }
.cards { grid-template-columns: repeat(auto-fill, minmax(136px, 1fr)); margin: 16px 0; }
.card { background: var(--card); border: 1px solid var(--rule); border-radius: 8px;
  padding: 8px 12px; }
.card b { display: block; font-size: 1.2rem; font-variant-numeric: tabular-nums;
  overflow-wrap: anywhere; }
.card span { color: var(--soft); font-size: .82rem; }
.notes { margin: 14px 0; padding: 8px 14px; border-left: 4px solid var(--c1);
  background: var(--card); border-radius: 0 6px 6px 0; overflow-wrap: anywhere; }
.charts { grid-template-columns: repeat(auto-fill, minmax(min(100%, 350px), 1fr)); }
figure { margin: 0; background: var(--card); border: 1px solid var(--rule); border-radius: 8px;
  padding: 10px 10px 4px; min-width: 0; }
figcaption { font-weight: 600; font-size: .92rem; overflow-wrap: anywhere; }
.legend { display: flex; flex-wrap: wrap; gap: 0 14px; margin: 2px 0 4px; font-size: .8rem;
  color: var(--soft); }
.legend b { color: var(--ink); margin-left: 5px; font-weight: 600;
  font-variant-numeric: tabular-nums; }
.legend span { overflow-wrap: anywhere; }
.legend i { display: inline-block; width: 14px; height: 3px; margin-right: 5px;
  vertical-align: middle; background: var(--c, var(--soft)); border-radius: 2px; }
.legend i.band, .legend i.strong { height: 10px; opacity: .22; background: var(--c0); }
.legend i.strong { opacity: .45; }
.legend i.level { height: 0; border-top: 2px dashed var(--soft); background: none; }
.c0 { --c: var(--c0); } .c1 { --c: var(--c1); } .c2 { --c: var(--c2); } .c3 { --c: var(--c3); }
.c4 { --c: var(--c4); } .c5 { --c: var(--c5); } .c6 { --c: var(--c6); } .c7 { --c: var(--c7); }
svg { display: block; width: 100%; height: auto; overflow: visible; }
svg text { font-size: 11px; fill: var(--soft); font-variant-numeric: tabular-nums; }
svg .y { text-anchor: end; } svg .x { text-anchor: middle; } svg .last { text-anchor: end; }
svg .grid { stroke: var(--rule); stroke-width: 1; } svg .tick { stroke: var(--soft); }
svg .line { fill: none; stroke: var(--c); stroke-width: 1.8; stroke-linejoin: round; }
svg .faint { fill: none; stroke: var(--c); stroke-width: .8; opacity: .45; }
svg .band { fill: var(--c); opacity: .15; } svg .strong { fill: var(--c); opacity: .3; }
svg .whisker { stroke: var(--c); stroke-width: 3; opacity: .4; }
svg circle { fill: var(--c); }
svg .level { stroke: var(--soft); stroke-dasharray: 5 4; }
svg .moment { stroke: var(--c1); stroke-dasharray: 1 3; stroke-width: 2; }
svg .strip { fill: transparent; } svg .said { display: none; pointer-events: none; }
svg .hit:hover .said { display: block; }
svg .cross { stroke: var(--soft); }
svg .box { fill: var(--paper); stroke: var(--rule); opacity: .94; }
svg .said text { fill: var(--ink); font-size: 10.5px; } svg .said text.t { fill: var(--c); }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .87rem; }
th, td { text-align: left; padding: 3px 14px 3px 0; border-bottom: 1px solid var(--rule);
  vertical-align: top; font-weight: 400; }
thead th { color: var(--soft); white-space: nowrap; }
tbody th, .time { white-space: nowrap; } tbody th { font-weight: 600; }
.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.keys .number { text-align: left; white-space: normal; overflow-wrap: anywhere; }
td.note { min-width: 14em; }
details { margin: 6px 0; } summary { cursor: pointer; font-weight: 600; }
.lane { display: grid; grid-template-columns: minmax(70px, 150px) 1fr; gap: 10px;
  align-items: center; padding: 2px 0; }
.who { overflow: hidden; text-overflow: ellipsis; white-space: nowrap; font-size: .85rem; }
.track { position: relative; height: 16px; background: var(--card); border-radius: 3px;
  overflow: hidden; }
.span, .mark { position: absolute; top: 0; height: 100%; }
.span { background: var(--c0); opacity: .55; min-width: 2px; border-radius: 3px; }
.mark { width: 3px; margin-left: -1px; background: var(--ink); }
.mark.bad { background: var(--bad); }
.scale { display: flex; justify-content: space-between; font-size: .75rem; color: var(--soft); }
.share { display: flex; height: 16px; border-radius: 4px; overflow: hidden; max-width: 640px; }
.share i { background: var(--c); }
.film img, .film video { max-width: 100%; border-radius: 4px; display: block; margin: 6px 0; }
.films { display: grid; gap: 12px;
  grid-template-columns: repeat(auto-fill, minmax(min(100%, 350px), 1fr)); }
footer { margin-top: 40px; font-size: .82rem; overflow-wrap: anywhere; }
code { font-size: .92em; }
@media print { body { max-width: none; } details > * { display: block; } }
"""
