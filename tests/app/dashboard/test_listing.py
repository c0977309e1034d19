"""The list of runs: what differs, how far each has come, and what the filter looks in."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from known_runs import fifty_runs, known_run, line
from run_folders import write_summary
from served import serving

from vedette.dashboard import server
from vedette.dashboard.listing import (
    differing_settings,
    matching_text,
    read_details,
    sparkline,
)
from vedette.reports.record import EVALUATION, read_record
from vedette_services.run.notes import write_notes
from vedette_services.run.overview import read_overview


def test_settings_that_differ_have_columns_and_others_have_not(tmp_path: Path) -> None:
    folder = fifty_runs(tmp_path, points=3)
    details = [read_details(run, running=False) for run in sorted(folder.iterdir())]
    assert differing_settings(details) == ["agent.learning_rate", "seed"]


def test_progress_and_the_time_left_come_from_the_nearest_stop_condition(tmp_path: Path) -> None:
    run = known_run(tmp_path / "run", evaluations=[(1_000, 1.0), (2_500, 1.0)], exit_reason="")
    stop = {"max_env_steps": 10_000, "max_opts": 2_500}
    write_summary(
        run, best=1.0, env_steps=2_500, opt_steps=1_250, seconds=60.0, exit_reason="", stop=stop
    )
    details = read_details(run, running=True)
    assert (details.done, details.left_s) == (0.5, 60.0)
    assert read_details(run, running=False).left_s is None
    # Of a run that was resumed, the seconds are those of its last start alone.
    more = {"env_steps": 2_500, "opt_steps": 1_250, "seconds": 60.0, "stop": stop, "epoch": 2}
    write_summary(run, best=1.0, exit_reason="", **more)
    details = read_details(run, running=True)
    assert (details.done, details.left_s) == (0.5, None)


def test_the_filter_looks_in_names_states_tags_and_settings(tmp_path: Path) -> None:
    run = known_run(tmp_path / "Lunar", evaluations=[(1_000, 1.0)], seed=7)
    write_notes(run, add=["Baseline"], note="before the new reward")
    text = matching_text(read_overview(run), read_details(run, running=False), ["seed"])
    for word in ("lunar", "done", "baseline", "new reward", "seed=7", "cartpole-v1"):
        assert word in text, word


def test_a_sparkline_goes_from_corner_to_corner(tmp_path: Path) -> None:
    run = known_run(tmp_path / "run", evaluations=line((1_000, 0.0), (9_000, 400.0), 200))
    curves = read_record(run).curves
    points = sparkline(curves).split()
    assert (points[0], points[-1]) == ("0.0,20.0", "80.0,0.0")
    assert len(points) <= 60
    assert sparkline({}) == ""
    broken = replace(curves[EVALUATION], values=np.full(200, np.nan))
    assert sparkline({EVALUATION: broken}) == ""


def test_the_list_has_columns_progress_notes_and_sparklines(tmp_path: Path) -> None:
    folder = fifty_runs(tmp_path / "runs", points=3)
    write_notes(folder / "rate-0-seed-0", add=["<b>paper"], note='a "note"')
    with serving(folder) as served:
        home = served.get()
        again = served.get()
    assert '<button type="button" class="sort">learning_rate</button>' in home.text
    assert "<span>&lt;b&gt;paper</span>a &#34;note&#34;" in home.text
    assert 'class="bar"' in home.text
    # Of the twenty that are drawn, and of those that are not.
    assert home.text.count("<polyline") == again.text.count("<polyline") == 50
    assert 'data-settings="agent.learning_rate=0.0001\nseed=0\n"' in home.text


def test_small_curves_that_take_long_to_read_come_with_later_pages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "SPARKS_S", 1e-9)
    folder = fifty_runs(tmp_path / "runs", points=3)
    with serving(folder) as served:
        assert served.get().text.count("<polyline") == 20  # those that are drawn
        monkeypatch.setattr(server, "SPARKS_S", 60.0)
        home = served.get()
        assert home.text.count("<polyline") == 50
        assert served.get(If_None_Match=home.headers["ETag"]).status == 304


def test_what_is_the_same_of_all_runs_is_said_once_and_has_no_column(tmp_path: Path) -> None:
    folder = fifty_runs(tmp_path / "runs", points=3)
    with serving(folder) as served:
        home = served.get().text
    assert "All of them: agent dqn, environment CartPole-v1</p>" in home
    for name in ("agent", "environment", "commit", "notes"):  # the last: nobody noted anything
        assert f">{name}</button>" not in home
        assert f">{name}</th>" not in home
    known_run(folder / "other", evaluations=[(1_000, 1.0)], agent={"name": "iqn"})
    write_notes(folder / "other", note="another agent")
    with serving(folder) as served:
        home = served.get().text
    assert "All of them: environment CartPole-v1</p>" in home
    assert ">agent</button>" in home
    assert ">notes</th>" in home
