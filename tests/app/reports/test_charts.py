"""The data that the page's script draws, made from constructed runs."""

from pathlib import Path
from typing import Any

import pytest
from run_folders import BEGAN_S, Clock, make_run

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
    assert not {"more", "loss", "Return of greedy evaluations"} & folded


def test_a_long_curve_keeps_its_means_and_its_peaks(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    record(run, *(({"peaky": 160.0 if k == 5000 else 0.0}, k) for k in range(8000)))
    (line,) = charts_of(run)[0]["peaky"]["lines"]
    assert len(line["y"]) == 400
    assert max(line["y"]) == pytest.approx(160 / 20)
    assert (max(line["high"]), max(line["low"])) == (160.0, 0.0)


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
    x = data["xs"][charts["loss"]["lines"][0]["x"]]
    assert (charts["loss"]["x"], x["opt"]) == ("opt", [10, 20, 30, 40, 50])
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
    assert (against["x"][0], against["x"][-1]) == (100, 500)
    assert (against["y"][0], against["y"][-1]) == (2.0, pytest.approx((3 + 8 + 15) / 3, rel=1e-4))
    known = [x for x, low in zip(against["x"], against["low"], strict=True) if low is not None]
    assert max(known) == pytest.approx(300, abs=4)  # where the first seed ends
