"""Several runs on one page: seeds taken together, configurations beside one another."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from known_runs import crashed_seeds, known_run
from run_folders import make_run, write_summary

from vedette.cli.app import main
from vedette.live import print_table
from vedette.reports import (
    OUTCOME_HEADS,
    outcome_of,
    report_statistics,
    write_comparison,
    write_report,
)
from vedette.reports.configurations import Configuration, describe_middle, group_runs
from vedette.reports.record import BASELINE_COLUMNS, read_record
from vedette_services.errors import SettingError
from vedette_services.run.overview import read_overview


@pytest.fixture
def runs(tmp_path: Path) -> list[Path]:
    """Two seeds of one learning rate, one of another, and a longer one of the first."""
    two = [make_run(tmp_path / f"seed-{k}", seed=k, height=1.0 + k) for k in (0, 1)]
    other = make_run(tmp_path / "other", agent={"name": "dqn", "learning_rate": 0.5})
    longer = make_run(tmp_path / "longer", seed=7, stop={"max_opts": 7})
    return [*two, other, longer]


def test_runs_that_differ_in_seed_and_length_only_are_one_group(runs: list[Path]) -> None:
    first, other = group_runs([read_record(run) for run in runs])
    assert [run.name for run in first.runs] == ["seed-0", "seed-1", "longer"]
    assert (first.name, other.name) == ("learning_rate=0.004", "learning_rate=0.5")
    assert other.differs == {"agent.learning_rate": "0.5"}


def test_groups_have_different_names_whatever_differs(tmp_path: Path) -> None:
    many = {"learning_rate": 0.1, "batch_size": 8, "discount": 0.5, "n_step": 2}
    runs = [
        make_run(tmp_path / "a"),
        make_run(tmp_path / "b", agent={"name": "dqn", **many}),
        make_run(tmp_path / "c" / "same", agent={"name": "iqn"}),
        make_run(tmp_path / "d" / "same", env={"id": "Acrobot-v1"}),
        make_run(tmp_path / "e" / "broken"),
        make_run(tmp_path / "f" / "broken"),
    ]
    for run in runs[-2:]:
        (run / "config.toml").write_text("=")
    labels = [group.name for group in group_runs([read_record(run) for run in runs])]
    assert len(set(labels)) == len(labels) == 6
    assert labels[4:] == ["broken", "6: broken"]


def test_the_statistics_of_seeds_are_those_computed_by_hand(tmp_path: Path) -> None:
    for seed, height in enumerate((1.0, 2.0, 3.0)):
        run = make_run(tmp_path / f"seed-{seed}", seed=seed, height=height)
        if seed:
            found = {"best_return_mean": 9.0 * seed, "reached_episodes": 100}
            steps = 100 * seed
            write_summary(run, best=0.0, exit_reason="target_return", env_steps=steps, eval=found)
    (found,) = report_statistics([tmp_path])
    assert found["name"] == "dqn on CartPole-v1"
    assert (found["runs"], found["seeds"], found["solved"]) == (3, 3, 2)
    # last evaluations 5, 10, 15: one resample of 27 has 5 only, which is more than 2.5 %
    assert found["eval_last"] == {"iqm": 10.0, "low": 5.0, "high": 15.0, "seeds": 3}
    assert found["eval_best"]["iqm"] == pytest.approx((5.0 + 9.0 + 18.0) / 3)
    # each rises evenly from its first evaluation to its last
    assert found["eval_area"]["iqm"] == pytest.approx((3.0 + 6.0 + 9.0) / 3)
    assert found["env_steps"] == pytest.approx((500 + 100 + 200) / 3)
    assert found["env_steps_to_target"]["iqm"] == 150.0
    assert found["ended"] == {"max_opts": 1, "target_return": 2}


def test_the_page_and_vedette_runs_have_one_word_for_an_end(tmp_path: Path) -> None:
    """The page said "target_return" in the column beside "solved", and "interrupted"."""
    ends = {
        "a": {"exit_reason": "target_return", "eval": {"reached_episodes": 100}},
        "b": {"exit_reason": "target_return", "eval": {}},  # by luck, before 0.3
        "c": {"exit_reason": "max_env_steps"},
        "d": {"exit_reason": "interrupted"},
        "e": {"exit_reason": "failed"},
        "f": {"exit_reason": ""},
    }
    for seed, (name, end) in enumerate(ends.items()):
        write_summary(make_run(tmp_path / name, seed=seed), best=0.0, **end)
    (found,) = group_runs([read_record(tmp_path / name) for name in ends])
    words = [read_overview(tmp_path / name).state for name in ends]
    assert [run.state for run in found.runs] == words
    assert words == ["solved", "done", "done", "stopped", "failed", "killed"]
    assert outcome_of([found]).rows[0][-1] == "1 solved, 2 done, 1 stopped, 1 failed, 1 killed"


def test_one_seed_that_ran_twice_is_one_seed_without_an_interval(tmp_path: Path) -> None:
    for name in ("once", "again"):
        make_run(tmp_path / name, seed=4)
    (found,) = report_statistics([tmp_path])
    assert (found["runs"], found["seeds"]) == (2, 1)
    assert found["eval_last"] == {"iqm": 5.0, "low": None, "high": None, "seeds": 1}
    text = write_report([tmp_path]).read_text("utf-8")
    assert "some runs have the same seed; they count as one" in text


def test_the_area_is_over_the_same_env_steps_for_all_configurations(tmp_path: Path) -> None:
    """A run that stopped at its target keeps its last evaluation to where the long one ends."""
    short = make_run(tmp_path / "short", points=1, agent={"name": "dqn", "learning_rate": 0.5})
    write_summary(short, best=1.0, exit_reason="target_return")
    make_run(tmp_path / "long", points=3)
    long, stopped = report_statistics([tmp_path])
    assert long["eval_area"]["iqm"] == pytest.approx(2.0)
    assert stopped["eval_area"]["iqm"] == pytest.approx(1.0)


def test_the_area_is_over_what_all_runs_have_but_for_those_that_were_killed(tmp_path: Path) -> None:
    crashed_seeds(tmp_path)  # three of 100, 200 and 300 to the end, one of 400 that was killed
    (found,) = report_statistics([tmp_path])
    assert found["eval_area"]["iqm"] == pytest.approx(200.0)
    assert (found["seeds"], found["solved"]) == (4, 0)


def test_a_run_whose_target_no_fresh_episodes_confirmed_is_not_solved(tmp_path: Path) -> None:
    """As those of releases before 0.3."""
    run = make_run(tmp_path / "run")
    write_summary(run, best=480.0, exit_reason="target_return")
    (found,) = report_statistics([run])
    assert found["solved"] == 0
    assert "which no fresh episodes confirmed" in write_report([run]).read_text("utf-8")


def test_configurations_are_in_the_order_of_their_values(tmp_path: Path) -> None:
    for rate in (0.001, 0.0001, 0.003, 0.02):
        make_run(tmp_path / f"{rate}", agent={"name": "dqn", "learning_rate": rate})
    found = group_runs([read_record(run) for run in tmp_path.iterdir()])
    values = [each.differs["agent.learning_rate"] for each in found]
    assert values == ["0.0001", "0.001", "0.003", "0.02"]


def test_the_page_has_the_statistics_and_says_what_differs(
    runs: list[Path], tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "config.toml").write_text("seed = 3\n")
    text = write_report([*runs, tmp_path / "empty"], tmp_path / "all.html").read_text("utf-8")
    for words in (
        "<h1>5 runs of 3 configurations</h1>",
        "empty has no curves: It has not begun: nothing was recorded.",
        "learning_rate=0.004: its runs have different stop conditions.",
        '<td class="n">6.7 [5.0, 10.0]</td>',  # of 5, 10 and 5
        '<td class="n">0 of 3</td>',
        "What differs",
    ):
        assert words in text, words


def test_a_baseline_stands_beside_the_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_run(tmp_path / "run")
    table = tmp_path / "other.csv"
    lines = [
        f"other,{seed},{at},{at // 10},{at / 50},{seed * at}"
        for seed in (1, 2, 3)
        for at in (100, 500)
    ]
    head = "label,seed,env_steps,opt_steps,wall_s,return_mean"
    table.write_text("\n".join([head, *lines]))
    ours, other = report_statistics([tmp_path / "run", table])
    assert (ours["name"], other["name"], other["seeds"]) == ("dqn on CartPole-v1", "other", 3)
    assert other["eval_last"] == {"iqm": 1000.0, "low": 500.0, "high": 1500.0, "seeds": 3}
    assert other["eval_area"]["iqm"] == pytest.approx(600.0)  # from 200 to 1,000
    assert (
        "<td>other</td>" in write_report([tmp_path / "run", table], tmp_path / "x.html").read_text()
    )
    monkeypatch.chdir(tmp_path)
    assert write_report([table]) == Path("report.html")  # a table alone is no folder to write to


def test_seeds_reach_the_target_at_their_first_evaluation_there_and_may_fall_again(
    tmp_path: Path,
) -> None:
    make_run(tmp_path / "run", stop={"target_return": 10.0})
    table = tmp_path / "other.csv"
    returns = {1: (5, 12, 8), 2: (9, 9, 11), 3: (2, 9, 3)}
    lines = [
        f"other,{seed},{at},{at},{at},{value}"
        for seed, values in returns.items()
        for at, value in zip((100, 200, 300), values, strict=True)
    ]
    head = "label,seed,env_steps,opt_steps,wall_s,return_mean"
    table.write_text("\n".join([head, *lines]))
    ours, other = report_statistics([tmp_path / "run", table])
    assert (ours["reached"], ours["env_steps_to_target"]["iqm"]) == (0, None)
    assert (other["reached"], other["solved"], other["seeds"]) == (2, 0, 3)
    assert other["env_steps_to_target"]["iqm"] == 250.0  # of 200 and 300
    assert other["eval_last"]["iqm"] == pytest.approx((8 + 11 + 3) / 3)
    assert other["eval_best"]["iqm"] == pytest.approx((12 + 11 + 9) / 3)


def test_rows_of_a_baseline_may_have_any_order(tmp_path: Path) -> None:
    table = tmp_path / "other.csv"
    points = {300: "6", 100: "2", 200: "4"}
    lines = [f"other,0,{at},{at},{at},{value}" for at, value in points.items()]
    table.write_text("\n".join([",".join(BASELINE_COLUMNS), *lines]))
    (found,) = report_statistics([table])
    assert found["eval_last"]["iqm"] == found["eval_best"]["iqm"] == 6.0
    assert found["eval_area"]["iqm"] == pytest.approx(4.0)
    assert found["eval_area"]["span"] == (100.0, 300.0)
    assert found["env_steps"] == 300.0


HEAD = f"{','.join(BASELINE_COLUMNS)}\n"


def test_a_table_that_is_no_baseline_is_refused_in_a_line(tmp_path: Path) -> None:
    make_run(tmp_path / "run")
    table = tmp_path / "other.csv"
    for text in ("a,b\n1,2\n", "", HEAD.replace(",", ";")):
        table.write_text(text)
        with pytest.raises(
            SettingError, match="not a table of evaluations; needs label, seed, env_steps"
        ):
            report_statistics([tmp_path / "run", table])
    with pytest.raises(SettingError, match=r"nowhere\.csv: no such file$"):
        report_statistics([tmp_path / "nowhere.csv"])
    table.write_bytes(f"{HEAD}a,1,1,2,3,4\n".encode("utf-16"))
    with pytest.raises(SettingError, match=r"other\.csv: it is no text in UTF-8; save it as such"):
        report_statistics([table])
    table.write_text(HEAD)
    for given in ([table], [tmp_path / "run", table]):
        with pytest.raises(SettingError, match=r"other\.csv: no evaluation in it; name a run"):
            write_report(given, tmp_path / "x.html")


_STEPS = "a whole number from 0 to 9,007,199,254,740,992"


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (
            "a,1,300,2,3,5,7",  # 5,7 as German has it
            "7 values under 6 names: a,1,300,2,3,5,7; write numbers with a decimal point, and a "
            "text with commas in quotes",
        ),
        (
            "a,1,300,2,3",
            "5 values under 6 names, without return_mean: a,1,300,2,3; write a value for each name",
        ),
        ('a,1,300,2,3,"5,7"', "return_mean is '5,7'; write a number, with a decimal point"),
        ("a,1,x,2,3,4", f"env_steps is 'x'; write {_STEPS}"),
        ("a,1,nan,2,3,4", f"env_steps is 'nan'; write {_STEPS}"),
        ("a,1,1e23,2,3,4", f"env_steps is '1e23'; write {_STEPS}"),
        ("a,1,2,-1,3,4", f"opt_steps is '-1'; write {_STEPS}"),
        ("a,1,2,0.5,3,4", f"opt_steps is '0.5'; write {_STEPS}"),
        (
            "a,1,2,3,inf,4",
            "wall_s is 'inf'; write a number from 0 on, with a decimal point; 0 where it is not "
            "known",
        ),
        (
            "a,1,2,3,-1,4",
            "wall_s is '-1'; write a number from 0 on, with a decimal point; 0 where it is not "
            "known",
        ),
    ],
)
def test_a_value_that_a_baseline_cannot_have_is_named_with_its_line(
    tmp_path: Path, row: str, said: str
) -> None:
    table = tmp_path / "other.csv"
    table.write_text(f"{HEAD}a,1,100,1,1,5.0\n{row}\n")
    with pytest.raises(SettingError) as refused:
        report_statistics([table])
    assert str(refused.value) == f"{table}, line 3: {said}"


@pytest.mark.parametrize(
    ("head", "row"),
    [
        ("{},host", "{},gpu-1"),
        ("{},host", "{}"),  # left out at the end
        ("{},", "{},x"),
        (",{},", ",{},"),
        ("x,{},x", "1,{},2"),
        ("x,{},,", "1,{},,3"),
        ("{}", "{},"),
        ("{}", "{}, ,"),
        ("\n{}", "\n{}\n"),
    ],
)
def test_a_baseline_may_have_columns_of_its_own(tmp_path: Path, head: str, row: str) -> None:
    table = tmp_path / "other.csv"
    rows = [row.format(f"a,1,{at},1,1,{at / 2}") for at in (100, 200)]
    table.write_text("\n".join([head.format(HEAD.strip()), *rows]))
    (found,) = report_statistics([table])
    assert (found["env_steps"], found["eval_last"]["iqm"]) == (200.0, 100.0)


@pytest.mark.parametrize(
    ("head", "row", "said"),
    [
        ("{},host", "a,1,300,2,3,5,7,x", "8 values under 7 names: a,1,300,2,3,5,7,x; write"),
        ("{},", "a,1,300,2,3,5,,7", "8 values under 7 names: a,1,300,2,3,5,,7; write"),
        ("x,{},x", "1,a,1,300,2,3", "6 values under 8 names, without return_mean: 1,a,1,300,2,3;"),
    ],
)
def test_the_values_of_a_row_are_counted_with_columns_of_its_own(
    tmp_path: Path, head: str, row: str, said: str
) -> None:
    table = tmp_path / "other.csv"
    table.write_text(f"{head.format(HEAD.strip())}\n{row}\n")
    with pytest.raises(SettingError) as refused:
        report_statistics([table])
    assert str(refused.value).startswith(f"{table}, line 2: {said}")


def test_a_column_of_a_baseline_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    table = tmp_path / "other.csv"
    table.write_text(f"{HEAD.strip()},wall_s\na,1,300,2,3,5,7\n")
    with pytest.raises(SettingError, match=r"other\.csv: 2 columns are named wall_s; leave one"):
        report_statistics([table])


def test_a_table_of_another_program_may_begin_with_a_mark(tmp_path: Path) -> None:
    table = tmp_path / "OTHER.CSV"
    table.write_text(f"{HEAD}a,1,1e2,1,1,5.5\n", encoding="utf-8-sig")
    (found,) = report_statistics([table])
    assert (found["name"], found["eval_last"]["iqm"]) == ("a", 5.5)


def test_a_folder_of_runs_may_be_named_like_a_table(tmp_path: Path) -> None:
    make_run(tmp_path / "runs.csv" / "seed-0")
    (found,) = report_statistics([tmp_path / "runs.csv"])
    assert found["runs"] == 1


def test_the_command_prints_the_statistics_as_json(
    runs: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        main(["report", "--json", *map(str, runs)])
    assert left.value.code == 0
    found = json.loads(capsys.readouterr().out)
    assert [each["seeds"] for each in found] == [3, 1]
    with pytest.raises(SystemExit) as left:
        main(["report", "--json", "--out", "x.html", str(runs[0])])
    assert left.value.code == 2


def test_a_folder_of_runs_is_compared_as_a_whole(runs: list[Path], tmp_path: Path) -> None:
    path = write_report([tmp_path])
    assert path == tmp_path / "report.html"
    assert "<h1>4 runs of 2 configurations</h1>" in path.read_text("utf-8")


def test_a_run_that_is_named_twice_is_one_run(
    runs: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = write_report([runs[0], runs[0], Path("seed-0")])
    assert path == Path("report.html")
    assert "<h1>dqn on CartPole-v1</h1>" in path.read_text("utf-8")


def test_a_page_that_cannot_be_written_leaves_nothing_behind(
    runs: list[Path], tmp_path: Path
) -> None:
    with pytest.raises(SettingError, match="name a file in a folder to write to"):
        write_report(runs, tmp_path / "nowhere" / "all.html")


def test_the_comparison_is_printed_with_the_statistics_of_the_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for seed in (0, 1):
        make_run(tmp_path / f"seed-{seed}", seed=seed)
    page, found = write_comparison([tmp_path])
    print_table(OUTCOME_HEADS, outcome_of(found).rows)
    heads, row = capsys.readouterr().out.splitlines()
    assert heads.split("  ")[0] == "configuration"
    for cell in outcome_of(found).rows[0]:
        assert cell in row
        assert f">{cell}</t" in page.read_text("utf-8")


def test_a_baseline_alone_is_named_and_has_no_target_to_reach(tmp_path: Path) -> None:
    table = tmp_path / "other.csv"
    table.write_text(f"{','.join(BASELINE_COLUMNS)}\nother,0,100,90,3.0,7\nother,1,100,90,3.0,9\n")
    page, found = write_comparison([table], tmp_path / "x.html")
    text = page.read_text("utf-8")
    assert "an agent" not in text
    assert '<p class="soft">other</p>' in text
    assert "Configuration of the first run" not in text
    assert outcome_of(found).rows[0][5:7] == ["–", "–"]


def test_a_solved_run_is_compared_by_its_confirmed_evaluation(tmp_path: Path) -> None:
    run = known_run(
        tmp_path / "run",
        evaluations=[(1_000, 100.0), (2_000, 490.0), (3_000, 80.0)],
        exit_reason="target_return",
        confirmed=(2_000, 480.0),
    )
    (found,) = report_statistics([run])
    assert found["eval_last"]["iqm"] == 480.0
    assert found["eval_area"]["iqm"] == pytest.approx((100.0 + 480.0) / 2)
    overview = read_overview(run)
    assert (overview.state, overview.last_return) == ("solved", 480.0)


def test_a_confirmed_run_that_a_limit_ended_is_solved_and_says_so(tmp_path: Path) -> None:
    """It was "done" beside the words "confirmed on 100 fresh episodes"."""
    evaluations = [(1_000, 100.0), (2_000, 490.0)]
    run = known_run(tmp_path / "run", evaluations=evaluations, confirmed=(2_000, 480.0))
    record = read_record(run)
    assert record.exit_reason == "max_env_steps"
    assert (record.state, record.solved, read_overview(run).state) == ("solved", True, "solved")
    assert record.notes[0] == (
        "It is solved: the target return is reached, confirmed on 100 fresh episodes; it ended as "
        "stop.max_env_steps is reached."
    )
    higher = replace(record.summary, stop=replace(record.summary.stop, target_return=485.0))
    assert not replace(record, summary=higher).solved


def test_runs_of_one_seed_are_counted_as_runs_in_every_column(tmp_path: Path) -> None:
    """It said "solved 1 of 1" beside "1 done, 1 solved"."""
    evaluations = [(1_000, 100.0), (2_000, 490.0)]
    known_run(tmp_path / "a", evaluations=evaluations, exit_reason="target_return")
    known_run(tmp_path / "b", evaluations=[(1_000, 100.0), (2_000, 100.0)])
    found = group_runs([read_record(tmp_path / name) for name in ("a", "b")])
    cells = dict(zip(OUTCOME_HEADS, outcome_of(found).rows[0], strict=True))
    counts = [cells[name] for name in ("seeds", "reached the target", "solved", "ended")]
    assert counts == ["1 of 2 runs", "1 of 2 runs", "1 of 2 runs", "1 solved, 1 done"]
    (statistics,) = report_statistics([tmp_path])
    assert (statistics["solved"], statistics["solved_runs"], statistics["reached_runs"]) == (
        1,
        1,
        1,
    )


@pytest.mark.parametrize(
    ("counts", "said"),
    [
        ((3,), "mean of 3 seeds"),
        ((1,), "mean of 1 seed"),
        ((2, 3), "mean of 2 to 3 seeds"),
        ((5, 4), "interquartile mean of the seeds"),
        ((3, 5), "interquartile mean of the seeds (of fewer than four their mean)"),
    ],
)
def test_what_is_the_mean_of_few_seeds_is_called_so(
    tmp_path: Path, counts: tuple[int, ...], said: str
) -> None:
    config = read_record(make_run(tmp_path / "run"))
    configurations = [
        Configuration(
            f"{count}",
            tuple(replace(config, config={**config.config, "seed": k}) for k in range(count)),
            {},
        )
        for count in counts
    ]
    assert describe_middle(configurations) == said
    assert outcome_of(configurations).note.lower().startswith(f"{said}, in brackets")
