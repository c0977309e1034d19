"""Several runs on one page: seeds taken together, configurations beside one another."""

from pathlib import Path

import pytest
from run_folders import make_run

from vedette.reports import write_report
from vedette.reports.comparison import group_runs
from vedette.reports.record import read_record


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
    assert (first.label, other.label) == ("learning_rate=0.004", "learning_rate=0.5")
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
    labels = [group.label for group in group_runs([read_record(run) for run in runs])]
    assert len(set(labels)) == len(labels) == 6
    assert labels[4:] == ["broken", "6: broken"]


def test_the_page_compares_means_over_seeds(runs: list[Path], tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "config.toml").write_text("seed = 3\n")
    path = write_report([*runs, tmp_path / "empty"], tmp_path / "all.html")
    text = path.read_text("utf-8")
    for words in (
        "<h1>5 runs of 3 configurations</h1>",
        "empty has no curves: It has not begun: nothing was recorded.",
        "95 % of the mean of 3 seeds",
        "learning_rate=0.5",
        "6.7 ± 7.2",  # of 5, 10 and 5
        "What differs",
    ):
        assert words in text, words
    assert text.count('class="faint"') > 0


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
    from vedette_services.errors import SettingError

    with pytest.raises(SettingError, match="name a file in a folder to write to"):
        write_report(runs, tmp_path / "nowhere" / "all.html")
