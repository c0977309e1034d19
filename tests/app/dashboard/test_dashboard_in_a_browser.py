"""The dashboard in a real browser, while runs go on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import Browser, open_browser
from known_runs import known_run
from run_folders import BEGAN_S, Clock, write_summary
from served import FakeClient, fleet_status, make_started_run, serving

from vedette.dashboard import Dashboard, DirectorySource, LearnerSource, server, sources
from vedette_rl.recording.tensorboard import TensorboardRecorder
from vedette_services.run.notes import write_notes

pytestmark = pytest.mark.slow

WAIT = """
    const until = async (found) => {
      for (let i = 0; i < 600; i++) {
        const value = found(); if (value) return value;
        await new Promise((done) => setTimeout(done, 50));
      }
      throw new Error('waited for 30 s: ' + found);
    };
"""
WIDTHS_AND_THEMES = [(1280, False), (1280, True), (390, False), (390, True)]


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with open_browser(tmp_path_factory.mktemp("downloads")) as found:
        yield found


@pytest.fixture
def browser(window: Browser) -> Browser:
    """A window without the page of the last test, whose server has ended."""
    window.open("about:blank")
    window.errors()
    return window


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "POLL_S", 0.2)
    monkeypatch.setattr(sources, "ASK_EVERY_S", 0.2)


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    for seed in (0, 1):
        make_started_run(tmp_path / "runs" / f"seed-{seed}", seed=seed, height=1.0 + seed)
    return tmp_path / "runs"


def until(browser: Browser, condition: str) -> Any:
    """Wait for a condition in the page to hold; return its value."""
    return browser.run(WAIT + f"return await until(() => {condition})")


def hero(browser: Browser) -> str:
    until(browser, "document.querySelector('.hero')?.data")
    return "document.querySelector('.hero')"


@pytest.mark.parametrize(("width", "dark"), WIDTHS_AND_THEMES)
def test_pages_fit_any_width_and_theme(
    browser: Browser, runs: Path, width: int, dark: bool
) -> None:
    with serving(runs) as served:
        home = f"http://127.0.0.1:{served.port}/"
        for url in (home, f"{home.rstrip('/')}{served.get().runs['seed-0']}"):
            browser.open(url, width=width, dark=dark)
            paper = browser.run(f"return {hero(browser)}.layout.paper_bgcolor")
            assert paper == ("#1f2226" if dark else "#f7f7f5")
            assert browser.run("return document.documentElement.scrollWidth") <= width
            assert browser.errors() == []


@pytest.mark.parametrize(("width", "dark"), WIDTHS_AND_THEMES)
def test_a_hundred_managers_fit_any_width_and_theme(
    browser: Browser, width: int, dark: bool
) -> None:
    source = LearnerSource(FakeClient.of(*(fleet_status(100, step) for step in range(1, 4))))
    with serving(Dashboard(source)) as served:
        browser.open(f"http://127.0.0.1:{served.port}/", width=width, dark=dark)
        hero(browser)
        assert browser.run("return document.querySelectorAll('#rest .tall tr').length") == 101
        assert browser.run("return document.documentElement.scrollWidth") <= width
        assert browser.errors() == []
    source.close()


def test_a_curve_grows_and_what_the_user_has_chosen_stays(browser: Browser, runs: Path) -> None:
    recorder = TensorboardRecorder(runs / "seed-1" / "tensorboard", clock=Clock(BEGAN_S + 500))
    with serving(runs) as served:
        browser.open(f"http://127.0.0.1:{served.port}/")
        plot = hero(browser)
        browser.run(
            "window.loaded = 'once'; document.querySelector('[data-run=\"0\"]').click();"
            "document.querySelector('#rest details').open = true;"
            "const box = document.querySelector('#table input'); box.click(); box.focus();"
            "const smooth = document.querySelector('#smooth'); smooth.value = '0.5';"
            "smooth.dispatchEvent(new Event('input', {bubbles: true}))"
        )
        recorder.write({"eval/mean_reward": 99.0}, 600)
        recorder.close()
        write_summary(runs / "seed-1", best=99.0)
        until(browser, f"{plot}.data.some((line) => line.x.at(-1) === 600)")
        until(browser, "document.querySelector('#runs').textContent.includes('99.0')")
        state = browser.run(
            "const box = document.querySelector('#table input');"
            "return [window.loaded, document.querySelector('[data-run=\"0\"]').checked,"
            "document.querySelector('#rest details').open, document.querySelector('#smooth').value,"
            "box.checked, box === document.activeElement]"
        )
        assert state == ["once", False, True, "0.5", False, True]
        assert browser.errors() == []


def test_a_zoom_stays_while_the_curve_grows(browser: Browser, runs: Path) -> None:
    recorder = TensorboardRecorder(runs / "seed-1" / "tensorboard", clock=Clock(BEGAN_S + 500))
    with serving(runs / "seed-1") as served:
        browser.open(f"http://127.0.0.1:{served.port}/")
        plot = hero(browser)
        browser.run(f"await Plotly.relayout({plot}, {{'xaxis.range': [150, 350]}})")
        recorder.write({"eval/mean_reward": 99.0}, 600)
        recorder.close()
        until(browser, f"{plot}.data.some((line) => line.x.at(-1) === 600)")
        assert browser.run(f"return {plot}.layout.xaxis.range") == [150, 350]


def test_a_selected_text_stays_until_it_is_let_go(browser: Browser, runs: Path) -> None:
    recorder = TensorboardRecorder(runs / "seed-1" / "tensorboard", clock=Clock(BEGAN_S + 500))
    with serving(runs / "seed-1") as served:
        browser.open(f"http://127.0.0.1:{served.port}/")
        plot = hero(browser)
        browser.run("getSelection().selectAllChildren(document.querySelector('#head h1'))")
        write_summary(runs / "seed-1", best=77.0)
        recorder.write({"eval/mean_reward": 99.0}, 600)
        recorder.close()
        until(browser, f"{plot}.data.some((line) => line.x.at(-1) === 600)")
        assert browser.run("return getSelection().toString()") == "dqn on CartPole-v1"
        assert "77.0" not in browser.run("return document.querySelector('#head').textContent")
        browser.run("getSelection().removeAllRanges()")
        until(browser, "document.querySelector('#head').textContent.includes('77.0')")


def test_a_run_that_begins_is_drawn_without_a_reload(browser: Browser, tmp_path: Path) -> None:
    with serving(tmp_path) as served:
        browser.open(f"http://127.0.0.1:{served.port}/")
        assert "There is no run yet." in browser.run("return document.body.innerText")
        make_started_run(tmp_path / "late")
        assert len(browser.run(f"return {hero(browser)}.data")) > 0
        until(browser, "document.querySelector('#runs a')?.textContent === 'late'")
        assert browser.errors() == []


def test_the_marked_runs_are_drawn(browser: Browser, runs: Path) -> None:
    with serving(runs) as served:
        browser.open(f"http://127.0.0.1:{served.port}/")
        hero(browser)
        browser.run("document.querySelector('#table input').click();")
        browser.run("document.querySelector('#runs form > p button').click();")
        until(browser, "location.search.startsWith('?run=')")
        hero(browser)
        assert browser.run("return document.querySelectorAll('#table input:checked').length") == 1


def test_a_dashboard_that_ends_is_said_and_one_that_returns_goes_on(
    browser: Browser, runs: Path
) -> None:
    with serving(runs) as served:
        browser.open(f"http://127.0.0.1:{served.port}/")
        hero(browser)
    until(browser, "live.textContent.includes('the dashboard does not answer')")
    write_summary(runs / "seed-1", best=77.0)
    with serving(runs, served.port):
        until(browser, "live.className === 'soft'")
        until(browser, "document.querySelector('#runs').textContent.includes('77.0')")
    refused = [text for text in browser.errors() if "ERR_CONNECTION_REFUSED" not in text]
    assert refused == []


def test_the_url_with_the_token_opens_every_page_and_is_not_kept(
    browser: Browser, runs: Path
) -> None:
    token = "t" * 32
    with serving(Dashboard(DirectorySource(runs), token)) as served:
        home = f"http://127.0.0.1:{served.port}/"
        browser.open(home)
        assert "it has the token" in browser.run("return document.body.innerText")
        browser.errors()
        browser.open(f"{home}?token={token}")
        hero(browser)
        assert browser.run("return location.href") == home
        browser.run("document.querySelector('#runs a').click()")
        until(browser, "location.pathname.startsWith('/run/') && document.querySelector('.hero')")
        hero(browser)
        assert browser.errors() == []


def rows(browser: Browser) -> list[str]:
    """The names in the list, as they are shown."""
    names: list[str] = browser.run(
        "return [...document.querySelectorAll('#table tbody tr:not([hidden]) th')]"
        ".map(head => head.innerText.trim())"
    )
    return names


@pytest.fixture
def rates(tmp_path: Path) -> Path:
    """Three learning rates, of which the middle one is best; the greatest was killed."""
    for rate, value, ended in (
        (0.01, 50.0, ""),
        (0.001, 300.0, "max_opts"),
        (0.0001, 99.0, "max_opts"),
    ):
        agent = {"name": "dqn", "learning_rate": rate}
        points = [(1_000, 1.0), (2_000, value)]
        known_run(tmp_path / f"rate-{rate}", evaluations=points, exit_reason=ended, agent=agent)
    write_notes(tmp_path / "rate-0.001", add=["paper"])
    return tmp_path


def test_the_list_is_filtered_sorted_and_grouped_and_the_address_keeps_it(
    browser: Browser, rates: Path
) -> None:
    with serving(rates) as served:
        browser.open(f"http://127.0.0.1:{served.port}/")
        hero(browser)
        type_in = (
            "const box = document.querySelector('#filter'); box.value = '{}';"
            "box.dispatchEvent(new Event('input', {{bubbles: true}}))"
        )
        browser.run(type_in.format("killed learning_rate=0.01"))
        assert rows(browser) == ["rate-0.01"]
        browser.run(type_in.format("paper"))
        assert rows(browser) == ["rate-0.001"]
        browser.run(type_in.format(""))
        click = "[...document.querySelectorAll('.sort')].find(b => b.innerText === '{}').click()"
        browser.run(click.format("last evaluation"))
        assert rows(browser) == ["rate-0.001", "rate-0.0001", "rate-0.01"]
        browser.run(click.format("learning_rate"))
        assert rows(browser) == ["rate-0.0001", "rate-0.001", "rate-0.01"]
        browser.run(
            "const box = document.querySelector('#group'); box.value = 'state';"
            "box.dispatchEvent(new Event('input', {bubbles: true}))"
        )
        grouped = ["state = done: 2 runs, last evaluation 199.5 on average", "rate-0.0001"]
        assert rows(browser)[:2] == grouped
        url = browser.run("return location.href")
        browser.open("about:blank")
        browser.open(url)
        hero(browser)
        assert rows(browser)[:2] == grouped
        assert browser.errors() == []


def test_what_was_chosen_of_the_list_stays_while_runs_go_on(browser: Browser, rates: Path) -> None:
    with serving(rates) as served:
        browser.open(f"http://127.0.0.1:{served.port}/")
        hero(browser)
        browser.run(
            "const box = document.querySelector('#filter'); box.value = 'rate-0.01'; box.focus();"
            "box.dispatchEvent(new Event('input', {bubbles: true}))"
        )
        write_notes(rates / "rate-0.01", add=["late"])
        until(browser, "document.querySelector('#table').innerText.includes('late')")
        assert rows(browser) == ["rate-0.01"]
        assert browser.run("return document.activeElement.id") == "filter"


def test_those_shown_are_marked(browser: Browser, rates: Path) -> None:
    with serving(rates) as served:
        browser.open(f"http://127.0.0.1:{served.port}/#filter=killed")
        hero(browser)
        browser.run("document.querySelector('[data-mark=\"\"]').click()")
        browser.run("document.querySelector('[data-mark=shown]').click()")
        marked = browser.run(
            "return [...document.querySelectorAll('#table input:checked')].map(b => b.ariaLabel)"
        )
        assert marked == ["draw rate-0.01"]
