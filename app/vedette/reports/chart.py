"""Charts in SVG without a script: lines, bands, and a readout under the pointer."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from vedette.reports.lines import ChartLine, Floats
from vedette.reports.markup import Markup, element, join_markup
from vedette_services.run.number_format import format_axis

WIDTH, HEIGHT = 400.0, 216.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 44.0, 8.0, 8.0, 34.0
_STRIPS = 48
"""The most strips of a chart. Each shows a readout of the lines under the pointer."""
_LETTER = 5.9  # width of a letter of the readout
_ROW = 13.0
_READOUT_LINES = 8


@dataclass(frozen=True, slots=True)
class Chart:
    """The contents of a chart.

    Args:
        title: of the figure.
        x_label: of the x axis, such as ``env steps``.
        lines: each with at least one point.
        levels: values of horizontal lines, with a label each.
        moments: steps of vertical lines, with a label each.
        x_max: the least end of the x axis, so that charts beside one another have the same.
        title_says_it: True if the title names the only line, so that the legend need not.
    """

    title: str
    x_label: str
    lines: tuple[ChartLine, ...]
    levels: tuple[tuple[float, str], ...] = ()
    moments: tuple[tuple[float, str], ...] = ()
    x_max: float = 0.0
    title_says_it: bool = False


def draw_chart(chart: Chart) -> Markup:
    """Draw a chart with its title and legend."""
    return element("figure", element("figcaption", chart.title), _legend(chart), _drawing(chart))


def legend_entry(mark: str, label: str, value: str | None = None) -> Markup:
    """Make an entry of a legend: a mark of a style class, its label, and a value."""
    bold = None if value is None else element("b", value)
    return element("span", element("i", class_=mark), label, bold)


def _legend(chart: Chart) -> Markup:
    """The lines with their last values, then the bands and the levels."""
    named = [line for line in chart.lines if line.label]
    bands = dict.fromkeys((band.label, band.strong) for line in chart.lines for band in line.bands)
    return element(
        "p",
        *(
            legend_entry(
                f"c{line.colour}",
                "last" if chart.title_says_it else line.label,
                format_axis(float(line.y[-1])),
            )
            for line in named
        ),
        *(legend_entry("strong" if strong else "band", label) for label, strong in bands),
        *(legend_entry("level", label) for _, label in chart.levels),
        class_="legend",
    )


def _drawing(chart: Chart) -> Markup:
    bands = [band for line in chart.lines for band in line.bands]
    values = [
        *(line.y for line in chart.lines),
        *(side for band in bands if not band.loose for side in (band.low, band.high)),
        *(np.array([value]) for value, _ in chart.levels),
    ]
    loose = [side for band in bands if band.loose for side in (band.low, band.high)]
    x = step_axis([line.x for line in chart.lines], chart.x_max, _LEFT, WIDTH - _RIGHT)
    y = value_axis(values, loose, HEIGHT - _BOTTOM, _TOP)
    behind = sorted(chart.lines, key=lambda line: not line.faint)
    return element(
        "svg",
        *_axes(x, y, chart.x_label),
        *_levels(chart, x, y),
        *(_bands(line, x, y) for line in behind),
        *(_line(line, x, y) for line in behind),
        *_readouts([line for line in chart.lines if line.label], x, y, chart.x_label),
        viewBox=f"0 0 {WIDTH:g} {HEIGHT:g}",
        role="img",
        aria_label=f"{chart.title}, against {chart.x_label}",
    )


def _axes(x: ChartAxis, y: ChartAxis, label: str) -> Iterator[Markup]:
    for value, message in zip(y.ticks, y.labels(), strict=True):
        at = _unit(y.at(value))
        yield element("path", d=f"M{_LEFT:g} {at}H{WIDTH - _RIGHT:g}", class_="grid")
        yield element("text", message, x=f"{_LEFT - 5:g}", y=at, dy="0.32em", class_="y")
    for value, message in zip(x.ticks, x.labels(), strict=True):
        at = _unit(x.at(value))
        foot = HEIGHT - _BOTTOM
        anchor = "x last" if x.at(value) > WIDTH - _RIGHT - 16 else "x"
        yield element("path", d=f"M{at} {foot:g}v4", class_="tick")
        yield element("text", message, x=at, y=f"{foot + 15:g}", class_=anchor)
    middle = (_LEFT + WIDTH - _RIGHT) / 2
    yield element("text", label, x=f"{middle:g}", y=f"{HEIGHT - 5:g}", class_="x label")


def _levels(chart: Chart, x: ChartAxis, y: ChartAxis) -> Iterator[Markup]:
    for value, _ in chart.levels:
        yield element(
            "path", d=f"M{_LEFT:g} {_unit(y.at(value))}H{WIDTH - _RIGHT:g}", class_="level"
        )
    for step, label in chart.moments:
        if x.low <= step <= x.high:
            path = f"M{_unit(x.at(step))} {_TOP:g}V{HEIGHT - _BOTTOM:g}"
            yield element("path", element("title", label), d=path, class_="moment")


def _bands(line: ChartLine, x: ChartAxis, y: ChartAxis) -> Markup:
    drawn = []
    for band in line.bands:
        whole = np.isfinite(band.low) & np.isfinite(band.high)
        at = x.at(line.x[whole])
        low, high = (y.at(side[whole].clip(y.low, y.high)) for side in (band.low, band.high))
        if at.size > 1:
            path = f"{_path(at, low)}L{_path(at[::-1], high[::-1])[1:]}Z"
            drawn.append(element("path", d=path, class_="strong" if band.strong else "band"))
        elif at.size:
            path = f"M{_unit(at[0])} {_unit(low[0])}V{_unit(high[0])}"
            drawn.append(element("path", d=path, class_="whisker"))
    return element("g", *drawn, class_=f"c{line.colour}")


def _line(line: ChartLine, x: ChartAxis, y: ChartAxis) -> Markup:
    at, height = x.at(line.x), y.at(line.y)
    drawn = [element("path", d=_path(at, height), class_="faint" if line.faint else "line")]
    if at.size <= 12 and not line.faint:
        drawn += [
            element("circle", cx=_unit(a), cy=_unit(h), r="2.4")
            for a, h in zip(at, height, strict=True)
        ]
    return element("g", *drawn, class_=f"c{line.colour}")


def _readouts(
    lines: Sequence[ChartLine], x: ChartAxis, y: ChartAxis, x_label: str
) -> Iterator[Markup]:
    """Strips of the plot; the one under the pointer shows its readout."""
    every = np.unique(np.concatenate([line.x for line in lines])) if lines else np.zeros(0)
    if every.size > _STRIPS:
        every = np.linspace(every[0], every[-1], _STRIPS)
    at = x.at(every)
    edges = np.concatenate([[_LEFT], (at[1:] + at[:-1]) / 2, [WIDTH - _RIGHT]])
    for index, (step, place) in enumerate(zip(every.tolist(), at.tolist(), strict=True)):
        left, right = edges[index], edges[index + 1]
        foot = HEIGHT - _BOTTOM
        yield element(
            "g",
            element(
                "rect",
                x=_unit(left),
                y=f"{_TOP:g}",
                width=_unit(max(0.5, right - left)),
                height=f"{foot - _TOP:g}",
                class_="strip",
            ),
            element(
                "g",
                element("path", d=f"M{_unit(place)} {_TOP:g}V{foot:g}", class_="cross"),
                *(_dot(line, step, place, y) for line in lines),
                _box(_readout(lines, step, x_label), place),
                class_="said",
            ),
            class_="hit",
        )


def _dot(line: ChartLine, step: float, place: float, y: ChartAxis) -> Markup | None:
    if not line.x[0] <= step <= line.x[-1]:
        return None
    height = y.at(np.interp(step, line.x, line.y))
    return element("circle", cx=_unit(place), cy=_unit(height), r="3", class_=f"c{line.colour}")


def _readout(lines: Sequence[ChartLine], step: float, x_label: str) -> list[tuple[str, int | None]]:
    """The texts at a step, each with the colour of its line."""
    message: list[tuple[str, int | None]] = [(f"{format_axis(step)} {x_label}", None)]
    shown = [line for line in lines if line.x[0] <= step <= line.x[-1]]
    for line in shown[:_READOUT_LINES]:
        message.append(
            (f"{line.label[:28]} {format_axis(_value(line, line.y, step))}", line.colour)
        )
        for band in line.bands if len(lines) == 1 else ():
            low, high = _value(line, band.low, step), _value(line, band.high, step)
            if math.isfinite(low) and math.isfinite(high):
                message.append((f"{band.label} {format_axis(low)} to {format_axis(high)}", None))
    if len(shown) > _READOUT_LINES:
        message.append((f"and {len(shown) - _READOUT_LINES} more", None))
    return message


def _value(line: ChartLine, values: Floats, step: float) -> float:
    """The value at the line's point that is nearest to a step."""
    return float(values[int(np.argmin(np.abs(line.x - step)))])


def _box(message: list[tuple[str, int | None]], place: float) -> Markup:
    """Draws the readout beside the pointer, on the side with room for it."""
    width = max(len(text) for text, _ in message) * _LETTER + 12
    width = min(width, WIDTH - _RIGHT - _LEFT)
    left = place + 8 if place + 8 + width <= WIDTH - _RIGHT else max(_LEFT, place - 8 - width)
    rows = [
        element(
            "text",
            text,
            x=f"{left + 6:.1f}",
            y=f"{_TOP + 14 + _ROW * row:.1f}",
            class_=None if colour is None else f"t c{colour}",
        )
        for row, (text, colour) in enumerate(message)
    ]
    height = _ROW * len(message) + 8
    box = element("rect", x=f"{left:.1f}", y=f"{_TOP + 2:g}", width=f"{width:.1f}",
                  height=f"{height:.1f}", rx="3", class_="box")  # fmt: skip
    return join_markup([box, *rows])


def _path(x: Floats, y: Floats) -> str:
    return "M" + "L".join(f"{_unit(a)} {_unit(b)}" for a, b in zip(x, y, strict=True))


def _unit(value: Floats | float) -> str:
    return f"{float(value):.1f}"


@dataclass(frozen=True, slots=True)
class ChartAxis:
    """An axis: converts values to the drawing's units.

    Args:
        low, high: the range of values.
        begin, end: the places of `low` and `high` in the drawing.
        ticks: the values that are written at the axis.
    """

    low: float
    high: float
    begin: float
    end: float
    ticks: tuple[float, ...]

    def at(self, value: Floats | float) -> Floats:
        """Convert values to places in the drawing."""
        share = (np.asarray(value, np.float64) - self.low) / (self.high - self.low)
        return self.begin + share * (self.end - self.begin)

    def labels(self) -> list[str]:
        """Format the ticks."""
        return [format_axis(tick) for tick in self.ticks]


def value_axis(
    parts: Iterable[Floats], others: Iterable[Floats], begin: float, end: float
) -> ChartAxis:
    """Make an axis that begins and ends at a tick, and at 0 if the values are near 0.

    Args:
        parts: values that the axis must hold.
        others: values that may extend it by at most a quarter of its length at each end.
        begin, end: its ends in the drawing.
    """
    low, high = _range(parts)
    room = _range([*others, np.array([low, high])])
    quarter = (high - low) / 4
    least = max(room[0], low - quarter)
    low, high = least if low < 0 else max(0.0, least), min(room[1], high + quarter)
    if 0 < low < 0.35 * high:
        low = 0.0
    elif 0.35 * low < high < 0:
        high = 0.0
    step = _step(high - low, 5)
    low, high = math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step
    count = round((high - low) / step)
    ticks = tuple(_round(low + i * step, step) for i in range(count + 1))
    return ChartAxis(low, high, begin, end, ticks)


def step_axis(parts: Iterable[Floats], least_end: float, begin: float, end: float) -> ChartAxis:
    """Make an axis of steps, from the first to the last, or from 0 if the first is near 0.

    Args:
        least_end: the least value of its end; 0 for none.
        begin, end: its ends in the drawing.
    """
    low, high = _range([*parts, np.array([least_end])] if least_end else parts)
    if 0 < low < 0.5 * high:
        low = 0.0
    step = _step(high - low, 4)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    ticks = tuple(_round(i * step, step) for i in range(first, last + 1))
    return ChartAxis(low, high, begin, end, ticks)


def _range(parts: Iterable[Floats]) -> tuple[float, float]:
    """The least and the greatest value, widened if they are equal."""
    finite = [part[np.isfinite(part)] for part in parts]
    values = np.concatenate(finite) if finite else np.zeros(0)
    if not values.size:
        return 0.0, 1.0
    low, high = float(values.min()), float(values.max())
    if high - low > 1e-9 * max(abs(low), abs(high)):
        return low, high
    if low > 0:
        return 0.0, 1.25 * low  # for example a count that never changes
    room = abs(low) / 10 or 1.0
    return low - room, high + room


def _step(width: float, count: int) -> float:
    """1, 2 or 5 times a power of ten, such that about `count` steps make the width."""
    rough = width / count
    power = 10.0 ** math.floor(math.log10(rough))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= 0.999 * rough)


def _round(value: float, step: float) -> float:
    """Rounds the error of the addition away."""
    return round(value, max(0, 2 - math.floor(math.log10(step))))
