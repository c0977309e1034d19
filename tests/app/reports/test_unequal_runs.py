"""Runs that are not like the others are not averaged with them in silence."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from run_folders import BEGAN_S, make_run, write_summary

from vedette.cli.app import main
from vedette.reports import (
    export_numbers,
    outcome_of,
    remarks,
    report_statistics,
    write_comparison,
)
from vedette.reports.configurations import group_runs
from vedette.reports.record import BASELINE_COLUMNS, EVALUATION, read_record
from vedette_rl.recording.tensorboard import TensorboardRecorder
from vedette_services.errors import SettingError
from vedette_services.run.events import EventFile, RunEvent

NAN = float("nan")


def write_table(file: Path, label: str, seeds: dict[int, tuple[float, ...]]) -> Path:
    """A baseline, evaluated at 100, 200 and so on."""
    lines = [
        f"{label},{seed},{100 * k},{10 * k},{k},{value}"
        for seed, values in seeds.items()
        for k, value in enumerate(values, 1)
    ]
    file.write_text("\n".join([",".join(BASELINE_COLUMNS), *lines]))
    return file


def evaluate(run: Path, *returns: float, at: int = 100) -> Path:
    """Make these all the evaluations of a run."""
    for file in (run / "tensorboard").iterdir():
        file.unlink()
    recorder = TensorboardRecorder(run / "tensorboard", clock=lambda: BEGAN_S + 1)
    for k, value in enumerate(returns, 1):
        recorder.write({EVALUATION: value}, k * at)
    recorder.close()
    write_summary(run, best=0.0, eval={})
    return run


def test_a_seed_that_diverged_is_counted_and_ends_no_other(tmp_path: Path) -> None:
    good = dict.fromkeys((1, 2, 3), (0.0, 10.0, 20.0, 30.0))
    diverged = {4: (50.0, NAN, NAN, NAN), 5: (NAN, NAN, NAN, NAN)}
    table = write_table(tmp_path / "other.csv", "other", {**good, **diverged})
    path, found = write_comparison([table], tmp_path / "x.html")
    (cells,) = outcome_of(found).rows
    assert cells[1] == "5"
    assert cells[2] == "30.0 [30.0, 30.0] (3 of 5 seeds)"  # the last
    assert cells[3].endswith("(4 of 5 seeds)")  # the best
    assert cells[4] == "15.0 [15.0, 15.0] (3 of 5 seeds)"  # over the whole curve, not its begin
    assert list(remarks(found)) == [
        f"other.csv: other, seed {seed} has evaluations that are not finite: it has no mean over "
        "the curve, and no last one."
        for seed in (4, 5)
    ]
    text = path.read_text("utf-8")
    assert "other, seed 4 has evaluations that are not finite" in text
    assert "over env steps 100 to 400" in text


def test_a_run_that_diverged_for_a_while_has_a_last_evaluation_and_no_mean(tmp_path: Path) -> None:
    for seed in (1, 2, 3):
        evaluate(make_run(tmp_path / f"{seed}", seed=seed), 10.0, 20.0, 30.0)
    evaluate(make_run(tmp_path / "4", seed=4), 10.0, NAN, 50.0)
    (found,) = report_statistics([tmp_path])
    assert (found["eval_last"]["iqm"], found["eval_last"]["seeds"]) == (30.0, 4)
    assert (found["eval_area"]["iqm"], found["eval_area"]["seeds"]) == (20.0, 3)
    assert found["eval_area"]["span"] == (100.0, 300.0)


def test_every_recorded_number_is_exported_also_one_that_is_not_finite(tmp_path: Path) -> None:
    run = evaluate(make_run(tmp_path / "run"), 10.0, NAN, 50.0)
    table = write_table(tmp_path / "other.csv", "other", {1: (1.0, NAN)})
    assert export_numbers([run], tmp_path / "run.csv") == 3
    assert ",nan\n" in (tmp_path / "run.csv").read_text()
    assert export_numbers([table], tmp_path / "all.csv") == 4  # and the optimization steps


@pytest.mark.parametrize("end", ["interrupted", "failed", ""])
def test_a_run_that_would_go_on_by_the_same_command_shortens_no_span(
    tmp_path: Path, end: str
) -> None:
    for seed in (1, 2, 3):
        evaluate(make_run(tmp_path / f"{seed}", seed=seed), 10.0, 20.0, 30.0)
    stopped = evaluate(make_run(tmp_path / "4", seed=4), 10.0)
    write_summary(stopped, best=10.0, exit_reason=end)
    other = make_run(tmp_path / "5", agent={"name": "dqn", "learning_rate": 0.5})
    write_summary(evaluate(other, 10.0), best=10.0, exit_reason=end)
    found, unfinished = report_statistics([tmp_path])
    assert (found["eval_area"]["iqm"], found["eval_area"]["seeds"]) == (20.0, 3)
    assert (unfinished["eval_area"]["iqm"], unfinished["eval_area"]["seeds"]) == (None, 0)


def test_runs_in_one_process_and_in_daemons_are_two_configurations(tmp_path: Path) -> None:
    for name, mode in {"a": True, "b": False, "c": True}.items():
        run = make_run(tmp_path / name)
        (run / "run.json").write_text(
            json.dumps({"run_id": "0" * 16, "epoch": 1, "in_process": mode})
        )
    first, second = group_runs([read_record(tmp_path / name) for name in "abc"])
    assert [first.name, second.name] == ["mode=daemons", "mode=in process"]
    assert [run.name for run in second.runs] == ["a", "c"]


def test_a_setting_that_was_changed_while_it_learned_makes_another_configuration(
    tmp_path: Path,
) -> None:
    changes = {
        "as it was": (),
        "before it learned": (("agent.learning_rate", 0),),
        "longer": (("stop.max_opts", 40),),
        "changed": (("agent.learning_rate", 40),),
    }
    for name, events in changes.items():
        log = EventFile(make_run(tmp_path / name) / "events.jsonl")
        for key, steps in events:
            log.add(RunEvent(BEGAN_S + 200, "changed", key, "0.5 -> 0.004", 2, steps, 400))
    found = group_runs([read_record(tmp_path / name) for name in changes])
    assert sorted(len(each.runs) for each in found) == [1, 3]
    (changed,) = (each for each in found if len(each.runs) == 1)
    assert changed.differs == {"changed later": "agent.learning_rate 0.5 -> 0.004"}


def test_an_offline_run_has_no_mean_over_env_steps_and_takes_none_from_others(
    tmp_path: Path,
) -> None:
    online = evaluate(make_run(tmp_path / "online", seed=1), 10.0, 20.0, 30.0)
    stop = {"target_return": 25.0}
    offline = make_run(tmp_path / "offline", agent={"name": "dqn", "learning_rate": 0.5}, stop=stop)
    evaluate(offline, 10.0, 20.0, 100.0, at=0)
    _, found = write_comparison([online, offline], tmp_path / "x.html")
    first, second = report_statistics([online, offline])
    assert first["eval_area"]["iqm"] == 20.0
    assert second["eval_area"]["iqm"] is None
    assert (second["reached"], second["env_steps_to_target"]["iqm"]) == (1, None)
    assert "offline made no env steps: it has no mean over the curve." in remarks(found)


def test_tables_that_have_the_same_seed_are_refused(tmp_path: Path) -> None:
    one = write_table(tmp_path / "one.csv", "other", {1: (1.0, 2.0)})
    two = write_table(tmp_path / "two.csv", "other", {1: (1.0, 2.0)})
    with pytest.raises(SettingError, match=r"two\.csv: other, seed 1 is in .*one\.csv, too; give"):
        report_statistics([one, two])
    write_table(two, "other", {2: (1.0, 2.0)})
    (found,) = report_statistics([one, two, one])
    assert found["seeds"] == 2


def test_a_table_with_one_seed_twice_is_refused(tmp_path: Path) -> None:
    table = write_table(tmp_path / "one.csv", "other", {1: (1.0, 2.0)})
    again = write_table(tmp_path / "two.csv", "other", {1: (8.0, 9.0)})
    table.write_text("\n".join([table.read_text(), *again.read_text().splitlines()[1:]]))
    with pytest.raises(SettingError, match="other, seed 1 is evaluated twice at env step 100"):
        report_statistics([table])


def test_a_table_is_not_put_beside_runs_of_two_environments(tmp_path: Path) -> None:
    table = write_table(tmp_path / "one.csv", "other", {1: (1.0, 2.0)})
    runs = [make_run(tmp_path / "a"), make_run(tmp_path / "b", env={"id": "Acrobot-v1"})]
    with pytest.raises(SettingError, match="beside runs of CartPole-v1 and Acrobot-v1; compare"):
        report_statistics([*runs, table])
    assert len(report_statistics(runs)) == 2


def test_the_terminal_has_the_remarks_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = write_table(tmp_path / "other.csv", "other", {1: (1.0, NAN), 2: (1.0, 2.0)})
    with pytest.raises(SystemExit) as left:
        main(["report", str(table), "--out", str(tmp_path / "x.html")])
    assert left.value.code == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "other, seed 1 has evaluations that are not finite" in said


def test_each_environment_has_a_span_of_its_own(tmp_path: Path) -> None:
    evaluate(make_run(tmp_path / "a"), 10.0, 20.0)
    evaluate(make_run(tmp_path / "b", env={"id": "Acrobot-v1"}), 10.0, 20.0, 30.0)
    found = group_runs([read_record(tmp_path / name) for name in "ab"])
    assert (
        "over env steps 100 to 300 of Acrobot-v1, 100 to 200 of CartPole-v1."
        in outcome_of(found).note
    )
