"""The data that the page's script draws, made from constructed runs."""

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from known_runs import crashed_seeds, fifty_runs, five_seeds, known_run, line
from run_folders import BEGAN_S, Clock, make_run

from vedette.reports import export_numbers
from vedette.reports.charts import page_data
from vedette.reports.configurations import group_runs
from vedette.reports.record import read_record
from vedette_rl.recording.tensorboard import TensorboardRecorder
from vedette_services.run.events import EventFile, RunEvent


def charts_of(*runs: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The charts by title, and the whole data."""
    data = page_data(group_runs([read_record(run) for run in runs]))
    return {chart["title"]: chart for chart in data["charts"]}, data


def record(run: Path, *records: tuple[dict[str, float], int], begin_s: float = BEGAN_S) -> None:
    recorder = TensorboardRecorder(run / "tensorboard", clock=Clock(begin_s))
    for values, step in records:
        recorder.write(values, step)
    recorder.close()


def test_the_return_comes_first_and_constants_and_duplicates_are_folded(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    # an episode of CartPole is as long as its return is high
    record(
        run, *(({"eval/mean_ep_length": float(k), "more": k * 2.0}, k * 100) for k in range(1, 6))
    )
    charts, data = charts_of(run)
    assert data["charts"][0]["title"] == "Return of greedy evaluations"
    folded = {title for title, chart in charts.items() if chart["folded"]}
    # the actors' return is the same as the evaluations', samples per second are always 100
    assert {"Length of episodes: evaluations", "Return of the actors, exploring"} <= folded
    assert "Per second: samples" in folded
    assert not {"more", "Loss", "Return of greedy evaluations"} & folded


def test_a_long_curve_keeps_its_peaks_and_its_ends_and_says_what_it_leaves_out(
    tmp_path: Path,
) -> None:
    run = make_run(tmp_path / "run")
    values = {0: 1.5, 5000: 160.0, 5001: -7.0, 7999: 2.5}
    record(run, *(({"peaky": values.get(k, 0.0)}, k) for k in range(8000)))
    charts, data = charts_of(run)
    (line,) = charts["peaky"]["lines"]
    assert len(line["y"]) <= 400
    x = data["xs"][line["x"]]["env"]
    drawn = dict(zip(x, line["y"], strict=True))
    assert {step: drawn[step] for step in values} == values
    assert line["of"] == 8000
    assert charts["peaky"]["thinned"].endswith("of 8,000 points, the extremes of each part.")
    assert charts["Loss"]["thinned"] == ""


def test_every_evaluation_of_fifty_runs_is_drawn(tmp_path: Path) -> None:
    """Their means ended at 420, where the table beside them said 475.6."""
    folder = fifty_runs(tmp_path)
    charts, data = charts_of(*sorted(folder.iterdir()))
    first = charts["Return of greedy evaluations"]
    runs = [line for line in first["lines"] if "y" in line]
    assert {len(line["y"]) for line in runs} == {47}
    assert {line["y"][-1] for line in runs} == {475.6}
    assert {data["xs"][line["x"]]["env"][-1] for line in runs} == {48_144}
    aggregates = [line["aggregate"]["env"] for line in first["lines"] if "aggregate" in line]
    assert {(each["x"][-1], each["y"][-1]) for each in aggregates} == {(48_144, 475.6)}


def test_one_seed_that_is_left_is_said(tmp_path: Path) -> None:
    """Four seeds stopped at the target; their actors' returns are not carried on."""
    charts, _ = charts_of(*sorted(five_seeds(tmp_path).iterdir()))
    evaluated = charts["Return of greedy evaluations"]["lines"][-1]["aggregate"]["env"]
    assert evaluated["x"][-1] == 10_000
    assert (evaluated["live"][-1], evaluated["counted"][-1], evaluated["seeds"]) == (1, 5, 5)
    assert all(side is not None for side in evaluated["low"])
    actors = charts["Return of the actors, exploring"]["lines"][-1]["aggregate"]["env"]
    assert actors["x"][-1] == 4_000  # three of five; only two go on
    assert actors["counted"][-1] == 3


def test_a_seed_that_crashed_is_no_part_of_the_mean_behind_its_end(tmp_path: Path) -> None:
    charts, _ = charts_of(*sorted(crashed_seeds(tmp_path).iterdir()))
    found = charts["Return of greedy evaluations"]["lines"][-1]["aggregate"]["env"]
    by_step = dict(zip(found["x"], zip(found["y"], found["counted"], strict=True), strict=True))
    assert by_step[4_000] == (250.0, 4)
    assert by_step[10_000] == (200.0, 3)


def test_a_resumed_run_is_one_line_and_its_pause_is_no_time(tmp_path: Path) -> None:
    evaluations = line((1_000, 100.0), (9_000, 300.0), 9)
    run = known_run(tmp_path / "run", evaluations=evaluations, resumed_at=5_000)
    charts, data = charts_of(run)
    (drawn,) = charts["Return of greedy evaluations"]["lines"]
    x = data["xs"][drawn["x"]]
    assert x["env"] == [step for step, _ in evaluations]
    assert x["s"][-1] == pytest.approx(90.0, abs=1.0)
    (moment,) = data["moments"]
    assert (moment["env"], moment["opt"]) == (5_000, 2_500)


def test_steps_are_exact(tmp_path: Path) -> None:
    evaluations = [(1_234_567, 1.0), (1_234_568, 2.0)]
    charts, data = charts_of(known_run(tmp_path / "run", evaluations=evaluations))
    (drawn,) = charts["Return of greedy evaluations"]["lines"]
    assert data["xs"][drawn["x"]]["env"] == [1_234_567, 1_234_568]


def test_values_that_are_not_finite_are_left_out(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    values = (1.0, float("nan"), float("inf"), 4.0)
    record(run, *(({"odd": value}, step) for step, value in enumerate(values)))
    record(run, ({"never": float("nan")}, 1))
    charts, _ = charts_of(run)
    assert charts["odd"]["lines"][0]["y"] == [1.0, 4.0]
    assert "never" not in charts


def test_a_curve_stands_at_env_steps_optimization_steps_and_seconds(tmp_path: Path) -> None:
    charts, data = charts_of(make_run(tmp_path / "run"))
    x = data["xs"][charts["Loss"]["lines"][0]["x"]]
    assert (charts["Loss"]["x"], x["opt"]) == ("opt", [10, 20, 30, 40, 50])
    # a loss is recorded half way between the env steps before it and those after it
    assert x["env"] == [100, 150, 250, 350, 450]
    assert x["s"] == [30, 60, 90, 100, 100]  # it ended after 100 s


def test_an_evaluation_stands_at_the_optimization_step_of_its_model(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", points=3)
    record(run, *(({"eval/version": float(7 * k)}, k * 100) for k in range(1, 4)))
    charts, data = charts_of(run)
    x = data["xs"][charts["Return of greedy evaluations"]["lines"][0]["x"]]
    assert (x["opt"], x["env"]) == ([7, 14, 21], [100, 200, 300])


def test_the_time_between_two_starts_is_no_time_of_the_run(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", points=1)
    day = BEGAN_S + 86_400
    EventFile(run / "events.jsonl").add(
        RunEvent(day - 9, "changed", "stop.max_opts", "50 -> 60", 2),
        RunEvent(day, "started", "learner"),
        RunEvent(day + 1, "epoch", "trainer", "epoch 2", 2, 50, 100),
        RunEvent(day + 60, "ended", "learner"),
    )
    record(run, ({"late": 1.0}, 600), ({"late": 2.0}, 700), begin_s=day)
    charts, data = charts_of(run)
    assert data["xs"][charts["late"]["lines"][0]["x"]]["s"] == [130, 140]  # after 100 s
    (moment,) = data["moments"]
    assert moment == {"env": 100, "opt": 50, "s": 101.0}
    # the first start's 100 s; the summary, which is older than the second start, counts 90
    assert read_record(run).seconds == 160.0


def test_of_several_runs_the_seeds_and_their_aggregate_are_drawn(tmp_path: Path) -> None:
    runs = [make_run(tmp_path / f"{k}", seed=k, height=1.0 + k, points=3 + k) for k in range(3)]
    charts, _ = charts_of(*runs)
    *seeds, aggregate = charts["Return of greedy evaluations"]["lines"]
    assert [len(line["y"]) for line in seeds] == [3, 4, 5]
    assert not any("low" in line for line in seeds)
    against = aggregate["aggregate"]["env"]
    assert (against["x"][0], against["x"][-1]) == (100, 400)  # from there on one seed is alone
    assert (against["y"][0], against["y"][-1]) == (2.0, (8 + 12) / 2)
    known = [x for x, low in zip(against["x"], against["low"], strict=True) if low is not None]
    assert max(known) == 300  # where the first seed ends


def test_every_recorded_number_is_written_as_it_is(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    values = [1.0 / (k + 1) for k in range(3000)]
    record(run, *(({"long": value}, k) for k, value in enumerate(values)))
    out = tmp_path / "all.csv"
    count = export_numbers([run], out)
    with out.open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    assert len(rows) == count
    written = [float(row["value"]) for row in rows if row["tag"] == "long"]
    assert written == [float(np.float32(value)) for value in values]  # as TensorBoard has them


def test_a_solved_run_counts_by_what_was_confirmed_and_not_by_what_came_later(
    tmp_path: Path,
) -> None:
    """The training went on while the fresh episodes were played, and its last evaluation was low:
    star, mean and table had that one."""
    fast = known_run(
        tmp_path / "fast",
        evaluations=[(1_000, 100.0), (2_000, 490.0), (3_000, 80.0)],
        exit_reason="target_return",
        confirmed=(2_000, 480.0),
    )
    slow = known_run(tmp_path / "slow", seed=1, evaluations=[(1_000, 100.0), (4_000, 400.0)])
    charts, data = charts_of(fast, slow)
    *lines, aggregate = charts["Return of greedy evaluations"]["lines"]
    assert lines[0]["y"] == [100.0, 490.0, 80.0]  # a run's own line has all
    assert data["runs"][0]["evaluated"] == {"env": 2_000, "opt": 1_000, "s": 20.0, "y": 480.0}
    assert "evaluated" not in data["runs"][1]
    assert [run["result"] for run in data["runs"]] == [480.0, 400.0]
    against = aggregate["aggregate"]["env"]
    mean = dict(zip(against["x"], against["y"], strict=True))
    assert (mean[1_000], mean[2_000], mean[4_000]) == (100.0, 340.0, 440.0)
    live = dict(zip(against["x"], against["live"], strict=True))
    assert (live[2_000], live[4_000]) == (2, 1)
    assert against["counted"][-1] == 2


@pytest.mark.parametrize("confirmed", [True, False])
def test_of_two_runs_of_one_seed_a_confirmed_one_alone_is_carried_on(
    tmp_path: Path, confirmed: bool
) -> None:
    """The line fell, and was solid, where one of them ended."""
    short = known_run(
        tmp_path / "short",
        evaluations=[(1_000, 500.0), (2_000, 500.0)],
        confirmed=(2_000, 500.0) if confirmed else None,
    )
    long = known_run(tmp_path / "long", evaluations=[(1_000, 100.0), (4_000, 100.0)])
    charts, _ = charts_of(short, long)
    against = charts["Return of greedy evaluations"]["lines"][-1]["aggregate"]["env"]
    at = [against["x"].index(step) for step in (2_000, 4_000)]
    assert [against["y"][i] for i in at] == [300.0, 300.0 if confirmed else 100.0]
    assert [against["live_runs"][i] for i in at] == [2, 1]
    assert [against["counted_runs"][i] for i in at] == [2, 2 if confirmed else 1]
    assert (against["seeds"], against["runs"]) == (1, 2)


def test_a_seed_without_a_curve_is_one_that_the_mean_lacks(tmp_path: Path) -> None:
    """The mean of the two that have it was said to be of all."""
    runs = [make_run(tmp_path / f"{seed}", seed=seed) for seed in range(3)]
    for run in runs[:2]:
        record(run, ({"more": 1.0}, 100), ({"more": 2.0}, 200))
    record(runs[2], ({"rare": 1.0}, 100), ({"rare": 2.0}, 200))
    charts, _ = charts_of(*runs)
    found = charts["more"]["lines"][-1]["aggregate"]["env"]
    assert set(found["live"]) == set(found["counted"]) == {2}
    assert found["seeds"] == 3
    assert len(charts["rare"]["lines"]) == 1  # one of three has no mean


def test_all_numbers_of_an_evaluation_stand_at_the_version_that_was_played(tmp_path: Path) -> None:
    """The fresh episodes stood at the optimization step that had been reached meanwhile."""
    run = make_run(tmp_path / "run", points=1)
    versions = [40.0, 70.0, 90.0]
    evaluations = [
        {"eval/mean_reward": 1.0, "Episode return": 1.0, "eval/version": version}
        | ({"eval/fresh_mean_reward": 9.0} if k == 1 else {})
        for k, version in enumerate(versions)
    ]
    record(run, *((values, 500) for values in evaluations), ({"train/loss": 1.0}, 5_000))
    found = read_record(run)
    assert found.positions("eval/fresh_mean_reward")["opt"].tolist() == [70.0]
    assert found.positions("Episode return")["opt"].tolist() == versions
