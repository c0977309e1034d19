"""The page's interactions in a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import Browser, open_browser
from known_runs import crashed_seeds, five_seeds, known_run
from run_folders import make_run, write_summary

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
        _HERO + "return Object.fromEntries(hero.lines"
        ".map(({line, drawn}) => [line.label, {x: drawn.x, y: drawn.y}]))"
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


def point_at(browser: Browser, share: float) -> str:
    """Point at a share of the first chart's width; return what is shown."""
    x, y = browser.run(
        _HERO + "const b = hero.querySelector('.nsewdrag').getBoundingClientRect();"
        f"return [b.left + b.width * {share}, b.top + b.height / 2]"
    )
    browser.move(x, y)
    text = browser.run(
        "const box = document.querySelector('#hover');"
        "while (box.hidden) await new Promise(requestAnimationFrame); return box.innerText"
    )
    return " ".join(str(text).split())


def test_the_pointer_shows_the_values_of_all_seeds(browser: Browser, page: Path) -> None:
    browser.open(page)
    text = point_at(browser, 0.5)
    for name in ("learning_rate=0.004", "learning_rate=0.5"):
        for seed in (0, 1):
            assert f"{name}, seed {seed}" in text


def test_the_pointer_shows_values_at_its_place_and_not_those_of_runs_that_have_ended(
    browser: Browser, tmp_path: Path
) -> None:
    """The nearest points were listed, and the last values of runs that had ended."""
    browser.open(write_report([five_seeds(tmp_path)]))
    place = "((8500 - range[0]) / (range[1] - range[0]))"
    share = browser.run(_HERO + f"const range = hero.layout.xaxis.range; return {place}")
    text = point_at(browser, share)
    assert "1 of 5 seeds still runs, 4 stopped at the target" in text
    # between 238 at 8,000 and 321 at 9,000
    value = float(text.partition("seed 4 ")[2].split()[0])
    assert value == pytest.approx(279.5, abs=2)
    assert "seed 0" not in text
    assert text.endswith("4 ended before")


def test_the_arrow_keys_show_values_and_say_them(browser: Browser, page: Path) -> None:
    browser.open(page)
    browser.run(_HERO + "hero.focus()")
    for key in ("Home", "ArrowRight", "End"):
        browser.command("Input.dispatchKeyEvent", {"type": "keyDown", "key": key})
    told = browser.run(
        "const values = document.querySelector('#values');"
        "while (!values.textContent) await new Promise(requestAnimationFrame);"
        "return values.textContent"
    )
    assert "env steps" in told


def test_what_is_chosen_is_in_the_address_and_comes_back(browser: Browser, page: Path) -> None:
    browser.open(page)
    choose(browser, '[data-config="0"]', "checked = false")
    choose(browser, "#smooth", "value = '0.5'")
    browser.run(_HERO + "await Plotly.relayout(hero, {'xaxis.range': [150, 350]})")
    url = browser.run("return location.href")
    browser.open(url.partition("#")[0])
    browser.open(url)  # in the same window only what is behind the # changes
    browser.run(
        "while (document.querySelector('#smooth').value !== '0.5')"
        "await new Promise(requestAnimationFrame)"
    )
    assert {name.partition(",")[0] for name in shown(browser)} == {"learning_rate=0.5"}
    assert browser.run("return document.querySelector('#smooth').value") == "0.5"
    assert browser.run(_HERO + "return hero.layout.xaxis.range") == [150, 350]


def test_results_are_shown_by_setting(browser: Browser, page: Path) -> None:
    browser.open(page)
    script = (
        "const plot = document.querySelector('#scatter');"
        "document.querySelector('#by-setting').open = true;"
        "while (!plot.data) await new Promise(requestAnimationFrame);"
    )
    lines = browser.run(script + "return plot.data.map(line => line.y)")
    assert lines[0] == [0, 0]  # the least setting, the least result
    assert lines[-1] == [1, 1]
    choose(browser, "#setting", "value = 'agent.learning_rate'")
    points = browser.run("return document.querySelector('#scatter').data[0].x")
    assert sorted(points) == [0.004, 0.004, 0.5, 0.5]


def test_the_ends_of_runs_are_marked(browser: Browser, tmp_path: Path) -> None:
    runs = [five_seeds(tmp_path / "five"), crashed_seeds(tmp_path / "others")]
    browser.open(write_report(runs, tmp_path / "report.html"))
    marks = browser.run(_HERO + "return hero.data.find(each => each.name === 'ends').marker.symbol")
    assert sorted(marks) == ["circle"] * 4 + ["star"] * 4 + ["x"]


def test_the_last_number_of_the_managers_is_below_its_head(
    browser: Browser, tmp_path: Path
) -> None:
    run = make_run(tmp_path / "run")
    actor = {"index": 0, "episodes": 31}
    write_summary(
        run, best=5.0, managers=[{"id": "m", "state": "gone", "left": True, "actors": [actor]}]
    )
    browser.open(write_report([run]))
    head, width = browser.run(
        "const cell = document.querySelector('#rest .tall td:last-child');"
        "const heads = cell.closest('table').querySelectorAll('th[scope=col]');"
        "return [heads[heads.length - 1].innerText, cell.getBoundingClientRect().width]"
    )
    assert head == "episodes"
    assert width < 120  # it is as wide as its head


def test_the_page_has_landmarks_headings_and_captions(browser: Browser, page: Path) -> None:
    browser.open(page)
    counts = browser.run(
        "const count = (what) => document.querySelectorAll(what).length;"
        "return [count('main'), count('th:not([scope])'), count('table:not(:has(caption))'),"
        "count('a.skip'), count('.plot:not([tabindex])')]"
    )
    assert counts == [1, 0, 0, 1, 0]


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


def test_on_paper_charts_are_as_wide_as_it_and_tables_are_whole(
    browser: Browser, page: Path
) -> None:
    browser.open(page, width=1280)
    shown(browser)
    browser.command("Emulation.setEmulatedMedia", {"media": "print"})
    # A4 between its margins; what is printed was laid out in the window before.
    size = {"width": 720, "height": 1000, "deviceScaleFactor": 1, "mobile": False}
    browser.run("dispatchEvent(new Event('beforeprint'))")
    browser.command("Emulation.setDeviceMetricsOverride", size)
    found = browser.run(
        _HERO + "const box = (element) => element.getBoundingClientRect();"
        "return {"
        "charts: [...document.querySelectorAll('.plot .main-svg')]"
        ".every((svg) => box(svg).right <= box(svg.closest('.plot')).right + 1"
        " && box(svg).bottom <= box(svg.closest('.plot')).bottom + 1),"
        "empty: box(hero).height - box(hero.querySelector('.svg-container')).height,"
        "tables: [...document.querySelectorAll('.wide')]"
        ".every((part) => part.scrollHeight <= part.clientHeight + 1),"
        "tools: box(document.querySelector('.tools')).height}"
    )
    assert found["charts"]
    assert found["tables"]
    assert abs(found["empty"]) <= 1
    assert found["tools"] == 0


@pytest.mark.parametrize("width", [390, 700, 1200])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_the_whole_table_is_read_beside_the_names_of_its_rows(
    browser: Browser, page: Path, width: int, dark: bool
) -> None:
    """Its last columns were out of sight at 700 px, and its first ones once it was scrolled."""
    browser.open(page, width=width, dark=dark)
    seen = browser.run(
        "const box = document.querySelector('#head .short'); box.focus(); box.scrollLeft = 1e4;"
        "const name = box.querySelector('th[scope=row]');"
        "const cells = [...box.querySelectorAll('tr')].map(row => row.lastElementChild);"
        "const {left, right} = box.getBoundingClientRect();"
        "const at = name.getBoundingClientRect();"
        "return {focused: document.activeElement === box, page: document.body.scrollWidth,"
        " last: cells.every(cell => cell.getBoundingClientRect().right <= right + 1),"
        " name: at.left >= left - 1 && at.right < right - 100,"
        " covers: getComputedStyle(name).backgroundColor}"
    )
    background = "rgb(22, 24, 27)" if dark else "rgb(255, 255, 255)"
    assert seen.pop("page") <= width
    assert seen == {"focused": True, "last": True, "name": True, "covers": background}


def test_a_solved_run_has_its_star_at_the_confirmed_evaluation(
    browser: Browser, tmp_path: Path
) -> None:
    run = known_run(
        tmp_path / "run",
        evaluations=[(1_000, 100.0), (2_000, 490.0), (3_000, 80.0)],
        exit_reason="target_return",
        confirmed=(2_000, 480.0),
    )
    browser.open(write_report([run]))
    find = _HERO + "const {x, y, marker} = hero.data.find(each => each.name === 'ends');"
    assert browser.run(find + "return [x, y, marker.symbol]") == [[2_000], [480], ["star"]]
    choose(browser, "#x", "value = 'opt'")
    assert browser.run(find + "return x") == [1_000]


def test_a_mean_is_broken_and_dashed_where_a_run_of_a_seed_ended(
    browser: Browser, tmp_path: Path
) -> None:
    for name, end, value in (("a", 2_000, 500.0), ("b", 4_000, 100.0), ("c", 4_000, 100.0)):
        known_run(tmp_path / name, evaluations=[(1_000, value), (end, value)])
    browser.open(write_report([tmp_path]))
    drawn = browser.run(
        _HERO + "return hero.data.filter(({line}) => line?.width > 2)"
        ".map(({x, y, line}) => [x[0], x.at(-1), y[0], y.at(-1), line.dash])"
    )
    (first, second) = drawn
    assert first[:2] == [1_000, 2_000]
    assert first[2:] == [
        pytest.approx(700 / 3, abs=0.01),
        pytest.approx(700 / 3, abs=0.01),
        "solid",
    ]
    assert second[0] > 2_000
    assert second[1:] == [4_000, 100, 100, "dash"]
    place = "((3000 - range[0]) / (range[1] - range[0]))"
    share = browser.run(_HERO + f"const range = hero.layout.xaxis.range; return {place}")
    assert "2 of 3 runs" in point_at(browser, share)


def test_one_evaluation_has_room_around_it_and_the_target_in_sight(
    browser: Browser, tmp_path: Path
) -> None:
    """Its axis went from 2,159 by 2,159.5 to 2,160."""
    run = known_run(tmp_path / "run", evaluations=[(2_000, 400.0)])
    browser.open(write_report([run]))
    (left, right), (low, high) = browser.run(
        _HERO + "return [hero.layout.xaxis.range, hero.layout.yaxis.range]"
    )
    assert left <= 1_800 < 2_200 <= right
    assert low <= 360 < 475 <= high


def test_a_mean_of_fewer_seeds_over_a_few_steps_is_no_dot_behind_the_line(
    browser: Browser, tmp_path: Path
) -> None:
    for seed, end in enumerate((4_000, 4_020, 4_060)):
        known_run(
            tmp_path / f"{seed}",
            seed=seed,
            evaluations=[(1_000, 100.0 * seed), (end, 100.0 * seed)],
        )
    browser.open(write_report([tmp_path]))
    ends = browser.run(
        _HERO + "return hero.data.filter(({line}) => line?.width > 2).map(({x}) => x.at(-1))"
    )
    assert ends == [4_000]
