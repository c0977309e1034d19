"""The page's interactions in a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import Browser, open_browser
from run_folders import make_run

from vedette.reports import write_report

pytestmark = pytest.mark.slow

_HERO = (
    "const hero = document.querySelector('.hero');"
    "while (!hero.data) await new Promise(requestAnimationFrame); "
)


@pytest.fixture(scope="module")
def downloads(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("downloads")


@pytest.fixture(scope="module")
def browser(downloads: Path) -> Iterator[Browser]:
    with open_browser(downloads) as found:
        yield found


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two seeds of one learning rate, which end apart, and two of another."""
    runs = tmp_path_factory.mktemp("runs")
    for rate, height in ((0.004, 1.0), (0.5, 10.0)):
        for seed in (0, 1):
            agent = {"name": "dqn", "learning_rate": rate}
            make_run(
                runs / f"{rate}-{seed}",
                seed=seed,
                height=height * (1 + seed),
                points=4 + seed,
                agent=agent,
            )
    return write_report([runs])


def shown(browser: Browser) -> Any:
    """The lines of the first chart by name."""
    return browser.run(
        _HERO + "return Object.fromEntries(hero.data.filter(t => t.hoverinfo !== 'skip')"
        ".map(t => [t.name, {x: [...t.x], y: [...t.y], text: t.text}]))"
    )


def choose(browser: Browser, element: str, change: str) -> None:
    browser.run(
        f"const e = document.querySelector('{element}'); e.{change};"
        "e.dispatchEvent(new Event('input', {bubbles: true}));"
    )


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (1280, True), (390, False)])
def test_the_page_loads_without_a_fault_at_any_width_and_theme(
    browser: Browser, page: Path, width: int, dark: bool
) -> None:
    browser.open(page, width=width, dark=dark)
    assert len(shown(browser)) == 6
    assert browser.errors() == []
    assert browser.run("return document.documentElement.scrollWidth") <= width
    paper = browser.run(_HERO + "return hero.layout.paper_bgcolor")
    assert paper == ("#1f2226" if dark else "#f7f7f5")


def test_the_pointer_shows_the_values_of_all_seeds(browser: Browser, page: Path) -> None:
    browser.open(page)
    x, y = browser.run(
        _HERO + "const b = hero.querySelector('.nsewdrag').getBoundingClientRect();"
        "return [b.left + b.width * 0.6, b.top + b.height / 2]"
    )
    browser.move(x, y)
    text = browser.run(
        "let found; do { await new Promise(requestAnimationFrame);"
        "found = document.querySelector('.hoverlayer')?.textContent } while (!found); return found"
    )
    for name in ("learning_rate=0.004", "learning_rate=0.5"):
        for seed in (0, 1):
            assert f"{name}, seed {seed}" in text


def test_of_many_seeds_the_aggregate_shows_all_values(browser: Browser, tmp_path: Path) -> None:
    for seed in range(30):
        make_run(tmp_path / f"{seed}", seed=seed, height=1.0 + seed, points=2 + seed // 29)
    browser.open(write_report([tmp_path]))
    text = shown(browser)["dqn on CartPole-v1"]["text"]
    # an interquartile mean of 1 to 30, and all of them
    assert text[0].endswith(f"<br>its runs: {', '.join(str(1 + seed) for seed in range(30))}")
    assert text[-1].endswith(f"<br>its runs: {'–, ' * 29}90")  # only the last went on


def test_a_configuration_and_a_run_are_hidden_by_their_boxes(browser: Browser, page: Path) -> None:
    browser.open(page)
    choose(browser, '[data-config="0"]', "checked = false")
    assert {name.partition(",")[0] for name in shown(browser)} == {"learning_rate=0.5"}
    choose(browser, '[data-config="0"]', "checked = true")
    choose(browser, '[data-run="1"]', "checked = false")
    assert len(shown(browser)) == 5


def test_the_x_axis_changes_for_all_charts(browser: Browser, page: Path) -> None:
    browser.open(page)
    name = "learning_rate=0.004, seed 0"
    assert shown(browser)[name]["x"] == [100, 200, 300, 400]
    choose(browser, "#x", "value = 'opt'")
    assert shown(browser)[name]["x"][-1] == 40
    choose(browser, "#x", "value = 's'")
    seconds = shown(browser)[name]["x"]
    assert seconds == sorted(seconds)
    assert browser.run(_HERO + "return hero.layout.xaxis.title.text") == "wall time, seconds"


def test_smoothing_and_log_axes(browser: Browser, page: Path) -> None:
    browser.open(page)
    name = "learning_rate=0.004, seed 0"
    choose(browser, "#smooth", "value = '0.5'")
    # moving averages of 1, 2, 3, 4 with weights 1, 1/2, 1/4, ...
    assert shown(browser)[name]["y"] == pytest.approx([1, 5 / 3, 17 / 7, 49 / 15])
    choose(browser, "#logy", "checked = true")
    choose(browser, "#logx", "checked = true")
    axes = browser.run(_HERO + "return [hero.layout.xaxis.type, hero.layout.yaxis.type]")
    assert axes == ["log", "log"]


def test_a_drag_zooms_in(browser: Browser, page: Path) -> None:
    browser.open(page)
    box = browser.run(
        _HERO + "const b = hero.querySelector('.nsewdrag').getBoundingClientRect();"
        "return [b.left, b.top, b.width, b.height]"
    )
    left, top, width, height = box
    places = [(left + width * share, top + height * share) for share in (0.4, 0.5, 0.6)]
    kinds = ("mousePressed", "mouseMoved", "mouseReleased")
    for kind, (x, y) in zip(kinds, places, strict=True):
        pointer = {"type": kind, "x": x, "y": y, "button": "left", "clickCount": 1, "buttons": 1}
        browser.command("Input.dispatchMouseEvent", pointer)
    low, high = browser.run(
        _HERO + "while (hero.layout.xaxis.autorange) await new Promise(requestAnimationFrame);"
        "return hero.layout.xaxis.range"
    )
    assert high - low < 200


@pytest.mark.parametrize("kind", ["csv", "png"])
def test_a_panel_is_saved(browser: Browser, page: Path, kind: str) -> None:
    browser.open(page)
    href, name = browser.run(
        _HERO + "const saved = new Promise(done => { HTMLAnchorElement.prototype.click ="
        "function () { done([this.href, this.download]) } });"
        f"document.querySelector('[data-save={kind}]').click(); return await saved"
    )
    assert name == f"return-of-greedy-evaluations.{kind}"
    assert browser.errors() == []
    if kind == "png":
        assert href.startswith("data:image/png;base64,iVBOR")
    else:
        text = browser.run(
            "let text; const real = URL.createObjectURL; URL.createObjectURL = (b) => "
            "{ text = b.text(); return real(b) };"
            "document.querySelector('[data-save=csv]').click(); return await text"
        )
        lines = text.splitlines()
        assert lines[0] == "line,env steps,value,low,high"
        assert '"learning_rate=0.004, seed 0",100,1,,' in lines
