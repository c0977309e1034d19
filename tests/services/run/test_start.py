"""A start is one value, and its plan is what another process is given."""

from __future__ import annotations

from pathlib import Path

import pytest
from starts import plan  # of tests/support

from vedette_services.config import load_config
from vedette_services.errors import UsageError
from vedette_services.run.directory import RunDirectory
from vedette_services.run.start import Start
from vedette_services.run.start_plan import StartPlan


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"force": True}, "--force: it needs --fresh"),
        ({"force": True, "new_replay": True}, "--force: it needs --fresh"),
        ({"fresh": True, "new_replay": True}, "--new-replay: it keeps the checkpoints"),
        ({"in_process": True, "custom_loop": True}, "a loop of your own has no --in-process"),
    ],
)
def test_options_that_contradict_each_other_are_no_start(asked: dict[str, bool], told: str) -> None:
    with pytest.raises(UsageError) as refused:
        Start.of(**asked)
    assert str(refused.value).startswith(told)


def test_the_options_of_a_start_ask_for_the_same_start() -> None:
    assert Start.of().options == []
    assert Start.of(new_replay=True).options == ["--new-replay"]
    assert Start.of(fresh=True, in_process=True).options == ["--fresh", "--force", "--in-process"]


def test_a_plan_changes_nothing_and_is_the_same_in_another_process(tmp_path: Path) -> None:
    settings = ["replay.capacity=2000", "agent.hidden_sizes=[8]", "seed=3"]
    config = load_config(env="CartPole-v1", agent="dqn", settings=settings, environment={}).config
    planned = plan(config, tmp_path / "run", new_replay=True)
    assert not (tmp_path / "run").exists()
    given = StartPlan.from_json(planned.to_json())
    assert given == planned
    assert given.config.seed == 3
    assert given.layout.stored == planned.layout.stored


def test_a_directory_that_another_start_changes_is_not_planned_for(tmp_path: Path) -> None:
    from vedette_services.run.start_planning import plan_start

    run = RunDirectory(tmp_path)
    run.make()
    run.ensure_id()
    (tmp_path / "config.new-replay.toml").write_text("")
    config = load_config(env="CartPole-v1", agent="dqn", environment={}).config
    with pytest.raises(UsageError, match="another start changes its settings"):
        plan_start(config, tmp_path)
    assert (tmp_path / "config.new-replay.toml").exists()


def test_a_run_stays_where_it_began_when_a_link_to_it_leads_elsewhere(tmp_path: Path) -> None:
    config = load_config(env="CartPole-v1", agent="dqn", environment={}).config
    (tmp_path / "disk").mkdir()
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "disk" / "first")  # which is not there yet
    planned = plan(config, link)
    assert planned.out == tmp_path / "disk" / "first"
    assert f"{link} is a link: the run is in {planned.out}, and stays there" in planned.lines
    assert not planned.out.exists()

    (tmp_path / "folder").symlink_to(tmp_path / "disk")
    below = plan(config, tmp_path / "folder" / "second")
    assert below.out == tmp_path / "disk" / "second"
    assert not any("is a link" in line for line in below.lines)


def test_a_path_without_links_is_left_as_it_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = load_config(env="CartPole-v1", agent="dqn", environment={}).config
    monkeypatch.chdir(tmp_path)
    assert plan(config, Path("runs/a")).out == Path("runs/a")
    assert plan(config, Path("runs/../b")).out == Path("runs/../b")
