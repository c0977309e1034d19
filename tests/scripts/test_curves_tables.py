"""The tables of learning results against values worked out by hand."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from curves_data import PLACE, Finished, Point, write_run
from curves_differences import difference, differences_table
from curves_scores import estimate, pooled, read_results
from curves_studies import Label, Study, Task, read_studies
from curves_tables import leader, normalized_table, overview_table, page, pages, task_table

PLAIN = Label(name="plain")
OTHER = Label(name="other", seeds=(1, 2))


def small(**tasks: float | None) -> Study:
    found = tuple(
        Task(env=env, agent="sac", env_steps=100, target=target) for env, target in tasks.items()
    )
    names = {"name": "small", "title": "", "normalize_by": "plain"}
    return Study(**names, seeds=(1, 2, 3, 4), tasks=found, labels=(PLAIN, OTHER))


def put(data: Path, env: str, label: str, seed: int, *returns: float, cpu_s: float = 60.0) -> None:
    """A run whose evaluations are at equal distances up to 100 steps."""
    steps = [round(100 * (i + 1) / len(returns)) for i in range(len(returns))]
    points = [
        Point(label, seed, step, step, 1.0, value)
        for step, value in zip(steps, returns, strict=True)
    ]
    last = returns[-1]
    best = max(returns)
    run = Finished(f"sac-{env}", label, seed, "f", "c", "p", 100, 100, last, best, 90.0, cpu_s)
    write_run(data / "small", points, run)


def rows(table: list[list[str]]) -> list[dict[str, str]]:
    return [dict(zip(table[0], row, strict=True)) for row in table[1:]]


def test_a_task_has_its_last_best_and_mean_and_says_how_many_seeds_there_are(
    tmp_path: Path,
) -> None:
    put(tmp_path, "A", "plain", 1, 0.0, 30.0, 30.0, 20.0, cpu_s=120.0)
    (row,) = rows(task_table(read_results(small(A=25.0), tmp_path), tmp_path))
    assert row["seeds"] == "1 of 4"
    assert (row["last evaluation"], row["best evaluation"]) == ("20.0", "30.0")
    assert row["mean over the curve"] == "23.3"  # of three thirds: 15, 30, 25
    assert (row["reached it"], row["env steps to it"]) == ("1 of 1", "50")
    assert (row["minutes"], row["CPU minutes"], row["env steps"]) == ("1.5", "2.0", "100")


def test_four_seeds_have_the_mean_of_the_middle_two_and_an_interval(tmp_path: Path) -> None:
    for seed, value in enumerate((0.0, 10.0, 20.0, 300.0), 1):
        put(tmp_path, "A", "plain", seed, value, value)
    (row,) = rows(task_table(read_results(small(A=None), tmp_path), tmp_path))
    assert row["seeds"] == "4"
    middle, _, interval = row["last evaluation"].partition(" ")
    low, high = map(float, interval.strip("[]").split(", "))
    assert middle == "15.0"
    assert 0.0 <= low < 15.0 < high <= 300.0
    assert "target" not in row


def test_scores_are_divided_by_the_mean_of_plain_on_each_task_and_taken_together(
    tmp_path: Path,
) -> None:
    for seed, (a, b) in enumerate([(10.0, 1000.0), (30.0, 3000.0)], 1):
        put(tmp_path, "A", "plain", seed, a, a)
        put(tmp_path, "B", "plain", seed, b, b)
        put(tmp_path, "A", "other", seed, 2 * a, 2 * a)
        put(tmp_path, "B", "other", seed, 4 * b, 4 * b)
    found = small(A=None, B=None)
    plain, other = rows(normalized_table(found, read_results(found, tmp_path)))
    assert other["tasks and seeds"] == "A 2, B 2"
    # plain: 0.5, 1.5, 0.5, 1.5; other: 1, 3, 2, 6, of which the middle two are 2 and 3
    assert plain["last evaluation"] == "1.00"  # two seeds have no interval
    assert other["last evaluation"] == "2.50"


def test_the_interval_of_divided_scores_knows_that_the_divisor_is_of_few_seeds(
    tmp_path: Path,
) -> None:
    for seed, value in enumerate((10.0, 20.0, 30.0), 1):
        put(tmp_path, "A", "plain", seed, value, value)
        put(tmp_path, "B", "plain", seed, 20.0, 20.0)
        put(tmp_path, "A", "other", seed, 60.0, 60.0)
        put(tmp_path, "B", "other", seed, 60.0, 60.0)
    found = small(A=None, B=None)
    _, other = rows(normalized_table(found, read_results(found, tmp_path)))
    # A: 60 / 20, in one of 27 resamples 60 / 30 and in one 60 / 10; B: always 60 / 20. Of the three
    # of each, the middle four are 3, 3 and twice A's.
    assert other["last evaluation"] == "3.00 [2.50, 4.50]"


def test_a_label_without_the_one_that_divides_is_not_normalized(tmp_path: Path) -> None:
    put(tmp_path, "A", "other", 1, 1.0, 2.0)
    found = small(A=None)
    assert normalized_table(found, read_results(found, tmp_path)) == []
    assert "Divided" not in page(found, tmp_path)


def test_the_last_fifth_takes_every_evaluation_of_every_seed(tmp_path: Path) -> None:
    put(tmp_path, "A", "plain", 1, *range(8), 100.0, 0.0)
    put(tmp_path, "A", "plain", 2, *range(8), 6.0, 8.0)
    put(tmp_path, "A", "plain", 3, *range(8), 7.0, 7.0)
    (found,) = read_results(small(A=None), tmp_path)
    assert [late.tolist() for late in found.last_fifth("plain")] == [[100, 0], [6, 8], [7, 7]]
    middle, low, high = estimate(np.array(found.last_fifth("plain")), statistic=pooled)
    assert middle == 7.0  # 6, 7, 7, 8
    # Of seed 1 three times (one of 27 resamples) 0, 0, 100, 100; without it, 7.
    assert (low, high) == (7.0, 50.0)


def test_a_seed_stayed_if_its_own_last_fifth_is_at_the_target(tmp_path: Path) -> None:
    for seed, late in enumerate([(9.0, 9.0), (8.0, 9.0), (-90.0, 99.0), (8.0, 7.0)], 1):
        put(tmp_path, "A", "plain", seed, *[10.0] * 8, *late)
    put(tmp_path, "A", "plain", 5, *[10.0] * 12, 0.0, *[9.0] * 2)  # evaluated more often
    (row,) = rows(task_table(read_results(small(A=8.5), tmp_path), tmp_path))
    assert (row["reached it"], row["stayed"]) == ("5 of 5", "2 of 5")


def test_the_interval_of_pooled_scores_resamples_seeds_not_evaluations() -> None:
    scores = np.array([[1.0] * 4, [2.0] * 4, [3.0] * 4])
    assert estimate(scores, statistic=pooled) == (2.0, 1.0, 3.0)


def test_a_study_without_results_has_no_page(tmp_path: Path) -> None:
    assert page(small(A=None), tmp_path) == ""


@pytest.mark.parametrize("label", ["plain", "other"])
def test_every_seed_is_in_the_page(tmp_path: Path, label: str) -> None:
    put(tmp_path, "A", label, 2, 5.0, 4.0)
    put(tmp_path, "A", label, 1, 1.0, 2.5)
    assert f"| sac-A | {label} | 2.50 (2.50), 4.00 (5.00) |" in page(small(A=None), tmp_path)


def compared(labels: tuple[Label, ...]) -> Study:
    task = Task(env="A", agent="sac", env_steps=100)
    return Study(
        name="small",
        title="",
        seeds=(1, 2, 3),
        tasks=(task,),
        labels=labels,
        whom="numbers seen",
        ours=("plain",),
    )


@pytest.mark.parametrize(
    ("ours", "leads"),
    [
        ((30.0, 31.0, 32.0), "ours"),
        ((9.0, 10.0, 11.0), "theirs"),
        ((19.0, 25.0, 26.0), "not told apart"),
        ((21.5, 25.0, 26.0), "perhaps ours"),
        ((16.0, 17.0, 20.5), "perhaps theirs"),
        ((30.0, 31.0), "too few seeds"),
    ],
)
def test_who_leads_is_said_where_the_intervals_lie_apart(
    ours: tuple[float, ...], leads: str, tmp_path: Path
) -> None:
    peer = Label(name="peer", peer="sac")
    for seed, value in enumerate(ours, 1):
        put(tmp_path, "A", "plain", seed, value, value)
    for seed, value in enumerate((20.0, 21.0, 22.0), 1):
        put(tmp_path, "A", "peer", seed, value, value)
        put(tmp_path, "A", "other", seed, value, value)
    (row,) = rows(overview_table([compared((PLAIN, OTHER, peer))], tmp_path))
    assert (row["you have"], row["beside"]) == ("numbers seen", "peer")
    assert (row["leads"], row["leads over the curve"]) == (leads, leads)


def test_a_difference_is_of_one_task_and_of_all_as_a_ratio(tmp_path: Path) -> None:
    for seed, value in enumerate((10.0, 20.0, 30.0), 1):
        put(tmp_path, "A", "plain", seed, value, value)
        put(tmp_path, "B", "plain", seed, -5.0, 10.0)
        put(tmp_path, "A", "other", seed, 60.0, 60.0)
        put(tmp_path, "B", "other", seed, 7.5, 7.5)
    found = replace(small(A=None, B=None), labels=(PLAIN, replace(OTHER, beside=("plain",))))
    a, b, both = rows(differences_table(found, read_results(found, tmp_path)))
    assert (a["task"], a["run"], a["beside"], a["seeds"]) == ("sac-A", "other", "plain", "3")
    assert a["last evaluation"] == "+40.0 [30.0, 50.0]"
    assert b["last evaluation"] == "-2.50 [-2.50, -2.50]"
    assert b["mean over the curve"] == "+5.00 [5.00, 5.00]"  # 7.5 beside (-5 + 10) / 2
    assert both["task"] == "all 2"
    # Three of 3.0 and three of 0.75, of which the middle four are two of each.
    assert both["last evaluation"].startswith("times 1.88 [")


def test_fewer_than_three_seeds_have_a_difference_and_no_interval() -> None:
    middle, *sides = difference(np.array([3.0, 5.0, 7.0]), np.array([1.0, 2.0]))
    assert middle == 3.5
    assert np.isnan(sides).all()


@pytest.mark.parametrize(("seeds", "covered"), [(3, (0.76, 0.84)), (5, (0.90, 0.96))])
def test_the_interval_of_three_seeds_is_too_narrow_as_the_page_says(
    seeds: int, covered: tuple[float, float]
) -> None:
    pairs = np.random.default_rng(7).standard_normal((1_000, 2, seeds))
    found = [difference(*pair, resamples=1_000) for pair in pairs]
    assert covered[0] < np.mean([low <= 0.0 <= high for _, low, high in found]) < covered[1]


@pytest.mark.parametrize(
    ("seeds", "apart", "perhaps"),
    [(3, (0.08, 0.12), (0.07, 0.15)), (5, (0.01, 0.04), (0.03, 0.07))],
)
def test_a_leader_by_chance_is_as_rare_as_the_page_says(
    seeds: int, apart: tuple[float, float], perhaps: tuple[float, float]
) -> None:
    pairs = np.random.default_rng(7).standard_normal((1_000, 2, seeds))
    found = Counter(leader(*pair, 1_000) for pair in pairs)
    assert apart[0] < (found["ours"] + found["theirs"]) / 1_000 < apart[1]
    assert perhaps[0] < (found["perhaps ours"] + found["perhaps theirs"]) / 1_000 < perhaps[1]


def test_sides_that_evaluate_at_somewhat_different_steps_have_as_many_last_evaluations(
    tmp_path: Path,
) -> None:
    for label, shift in {"plain": 0, "other": 3}.items():
        points = [
            Point(label, 1, step + shift, step, 1.0, float(step)) for step in range(10, 101, 10)
        ]
        run = Finished("sac-A", label, 1, "f", "c", "p", 100, 100, 100.0, 100.0, 90.0, 60.0)
        write_run(tmp_path / "small", points, run)
    (found,) = read_results(small(A=None), tmp_path)
    for label in ("plain", "other"):  # at 80 and at 83 begins what is later
        assert found.last_fifth(label)[0].tolist() == [90.0, 100.0]


def test_a_seed_that_diverged_is_named_and_changes_no_other_label(tmp_path: Path) -> None:
    for seed in (1, 2, 3, 4):
        put(tmp_path, "A", "plain", seed, 0.0, 10.0, 20.0, 30.0)
    put(tmp_path, "A", "other", 1, 5.0, *[float("nan")] * 3)
    put(tmp_path, "A", "other", 2, 5.0, 5.0, 5.0, 5.0)
    plain, other = rows(task_table(read_results(small(A=None), tmp_path), tmp_path))
    assert plain["mean over the curve"] == "15.0 [15.0, 15.0]"
    assert (other["seeds"], other["last evaluation"]) == ("2, of which 1 diverged", "5.00")


def test_a_study_that_is_about_no_choice_of_an_agent_is_not_in_the_overview(
    tmp_path: Path,
) -> None:
    put(tmp_path, "A", "plain", 1, 1.0)
    assert rows(overview_table([small(A=None)], tmp_path)) == []


def test_the_pages_are_of_the_results_that_are_there() -> None:
    """`scripts/curves table` writes them anew."""
    for name, text in pages(read_studies(PLACE / "curves.toml")).items():
        assert (PLACE / name).read_text("utf-8") == text, name
