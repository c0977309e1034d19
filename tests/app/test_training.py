from pathlib import Path
from typing import Any

import pytest
from configurations import configured
from run_directories import new_run

import vedette
from vedette import api as training
from vedette.api import train
from vedette_services.config import RunConfig
from vedette_services.config.loading import complete_config
from vedette_services.errors import ConfigError, UsageError
from vedette_services.run.directory import out_or_new
from vedette_services.run.start_plan import StartPlan
from vedette_services.status.status import Status


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[RunConfig]:
    """Configurations that were asked to run; nothing runs."""
    asked: list[RunConfig] = []

    def pretend(plan: StartPlan, **_: Any) -> Status:
        asked.append(plan.config)
        plan.out.mkdir(parents=True, exist_ok=True)
        return Status(exit_reason="max_opts")

    monkeypatch.setattr(training, "run_locally", pretend)
    return asked


def test_training_is_one_call(ran: list[RunConfig], tmp_path: Path) -> None:
    result = train(
        env="CartPole-v1", agent="dqn", seed=3, stop={"max_opts": 10}, out=tmp_path / "run"
    )
    assert (ran[0].seed, ran[0].stop.max_opts) == (3, 10)
    assert result.summary["exit_reason"] == "max_opts"
    assert result.run == tmp_path / "run"


@pytest.mark.parametrize("is_over", [False, True])
def test_a_result_names_the_folder_and_not_the_link_to_it(
    ran: list[RunConfig], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_over: bool
) -> None:
    """The link may lead elsewhere later; the run stays."""
    monkeypatch.setattr(training, "describe_already_done", lambda *_, **__: "x" * is_over)
    link = tmp_path / "newest"
    link.symlink_to(tmp_path / "run")
    (tmp_path / "run").mkdir()
    result = train(env="CartPole-v1", agent="dqn", stop={"max_opts": 10}, out=link)
    assert len(ran) == (not is_over)
    assert result.run == tmp_path / "run"
    assert result.summary["exit_reason"] == ("" if is_over else "max_opts")


def test_training_takes_a_whole_configuration(ran: list[RunConfig], tmp_path: Path) -> None:
    config = RunConfig.model_validate({"env": {"id": "CartPole-v1"}, "agent": {"name": "dqn"}})
    train(config, out=str(tmp_path / "run"))
    assert ran == [complete_config(config, "here").config]
    with pytest.raises(TypeError, match="not both: seed"):
        train(config, seed=3)


def test_a_configuration_file_goes_below_the_settings(ran: list[RunConfig], tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text('seed = 3\n[agent]\nname = "dqn"\nbatch_size = 8\n')
    train(tmp_path / "mine.toml", seed=4, agent=vedette.DQN(n_step=2), out=tmp_path / "run")
    assert (ran[0].seed, ran[0].agent.batch_size, ran[0].agent.n_step) == (4, 8, 2)


@pytest.mark.parametrize(
    "settings",
    [{"agent": {"name": "dqn", "lerning_rate": 1}}, {"replay": {"capacity": 1}}, {"sed": 3}],
)
def test_a_wrong_setting_starts_nothing(
    ran: list[RunConfig], tmp_path: Path, settings: dict[str, Any]
) -> None:
    with pytest.raises(ConfigError):
        train(out=tmp_path / "run", **settings)
    assert not ran
    assert not list(tmp_path.iterdir())


def test_a_call_on_a_run_that_exists_keeps_its_settings(
    ran: list[RunConfig], tmp_path: Path
) -> None:
    saved = configured("agent.batch_size=8", agent="iqn")
    new_run(tmp_path, saved)
    train(out=tmp_path, seed=5)
    assert ran == [saved.model_copy(update={"seed": 5})]


def test_a_run_nobody_named_gets_a_directory_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    config = RunConfig.model_validate({"env": {"id": "my.envs:A-v0"}, "agent": {"name": "dqn"}})
    with out_or_new(None, config) as first, out_or_new(None, config) as second:
        assert first.name.startswith("dqn-my.envs_A-v0-")
        assert first != second
    assert sorted(Path("runs").iterdir()) == sorted([first, second])


def test_a_run_that_is_refused_leaves_no_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=r"learner\.device: "):
        train(env="CartPole-v1", learner={"device": "cuda:77"})
    assert not any(tmp_path.iterdir())
