"""A study's file says what to search, and what it says wrong is a line with the key and the fix."""

import json
from pathlib import Path

import pytest
from configurations import configured

from vedette.cli.app import main
from vedette.sweep.study import Study, check_budget
from vedette_services.errors import ManySettingsError, SettingError, UsageError
from vedette_services.run.checks import check_settings

pytest.importorskip("optuna")
GOOD = """
trials = 4
[settings]
env.id = "CartPole-v1"
stop = {max_env_steps = 2000, target_return = "none"}
[space.agent]
learning_rate = {low = 1e-4, high = 1e-2, log = true}
batch_size = {low = 32, high = 64, step = 32}
hidden_sizes = {choices = [[16], [32, 32]]}
[space]
"learner.sync_interval" = {choices = [5, 10]}
"""
PARAMS = {
    "agent.learning_rate": 0.001,
    "agent.batch_size": 64,
    "agent.hidden_sizes": "[32, 32]",
    "learner.sync_interval": 5,
}


def study(tmp_path: Path, text: str = GOOD, *settings: str) -> Study:
    path = tmp_path / "study.toml"
    path.write_text(text)
    return Study(path, settings)


def test_a_space_is_given_by_nested_and_by_dotted_keys(tmp_path: Path) -> None:
    space = study(tmp_path).space
    assert list(space) == list(PARAMS)
    assert str(space["agent.learning_rate"]).startswith("FloatDistribution(high=0.01, log=True")
    assert str(space["agent.batch_size"]).startswith("IntDistribution(high=64, log=False, low=32")


def test_a_trial_is_configured_by_the_file_and_its_parameters(tmp_path: Path) -> None:
    found = study(tmp_path, GOOD, "seed=7").configure(PARAMS)
    assert (found.env.id, found.seed, found.stop.max_env_steps) == ("CartPole-v1", 7, 2000)
    agent = json.loads(found.agent.model_dump_json())
    assert (agent["learning_rate"], agent["batch_size"]) == (0.001, 64)
    assert (agent["hidden_sizes"], found.learner.sync_interval) == ([32, 32], 5)
    assert study(tmp_path).configure(PARAMS, seed=3).seed == 3


def test_its_settings_lie_over_those_of_a_file_beside_it(tmp_path: Path) -> None:
    (tmp_path / "base.toml").write_text("seed = 5\n[stop]\nmax_env_steps = 9\nmax_opts = 8\n")
    found = study(tmp_path, f'config = "base.toml"\n{GOOD}').configure(PARAMS)
    assert (found.seed, found.stop.max_env_steps, found.stop.max_opts) == (5, 2000, 8)


def test_the_variables_settings_are_read_once_and_are_part_of_the_study(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over those of the file, under those of the command, as at any start."""
    plain = study(tmp_path)
    variables = {"VEDETTE_SET": "agent.n_step=2 stop.max_env_steps=77 seed=5"}
    found = Study(tmp_path / "study.toml", ["seed=7"], environment=variables)
    config = found.configure(PARAMS)
    assert (config.agent.n_step, config.stop.max_env_steps, config.seed) == (2, 77, 7)
    monkeypatch.setenv("VEDETTE_SET", "agent.n_step=1")  # of another host, or a later start
    assert found.configure(PARAMS) == config
    assert plain.configure(PARAMS).agent.n_step != 1
    assert found.described() != plain.described()
    assert configured(table=found.table(PARAMS), fit="here") == config  # what best.toml has


def test_a_wrong_setting_of_the_variable_is_said_to_be_its(tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text(GOOD)
    found = Study(tmp_path / "study.toml", environment={"VEDETTE_SET": "seed=x agent.n_step=0"})
    with pytest.raises(ManySettingsError) as refused:
        found.configure({**PARAMS, "agent.batch_size": 0})
    texts = [str(error) for error in refused.value.errors]
    assert sorted(text.partition(": ")[0] for text in texts) == sorted(
        ["VEDETTE_SET", "VEDETTE_SET", str(tmp_path / "study.toml")]
    )


def test_every_choice_and_both_ends_of_ranges_are_checked(tmp_path: Path) -> None:
    ends = list(study(tmp_path).ends())
    assert {end["agent.batch_size"] for end in ends} == {32, 64}
    assert {end["agent.hidden_sizes"] for end in ends} == {"[16]", "[32, 32]"}
    assert len(ends) == 5


@pytest.mark.parametrize("batch", ["low = 32, high = 64", "low = 32.0, high = 96.0, step = 32.0"])
def test_ranges_of_numbers_that_their_keys_take_pass(tmp_path: Path, batch: str) -> None:
    study(tmp_path, GOOD.replace("low = 32, high = 64, step = 32", batch)).check_ranges()


def test_the_table_of_a_trial_is_a_configuration_file(tmp_path: Path) -> None:
    opened = study(tmp_path)
    found = configured(table=opened.table(PARAMS), fit="here")
    assert found == opened.configure(PARAMS)


def test_the_study_of_the_documentation_can_be_run(tmp_path: Path) -> None:
    page = Path(__file__).parents[3] / "docs/how-to/seeds-and-sweeps.md"
    text = page.read_text("utf-8").partition("```toml\n")[2].partition("```")[0]
    found = study(tmp_path, text)
    for params in found.ends():
        config = found.configure(params)
        check_settings(config)
        for objective in ("last", "best", "area"):
            check_budget(config, objective)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("trials = 4", "trails = 4"), "trails: unknown key; did you mean trials?"),
        (("trials = 4", "trials = 0"), "trials: must be at least 1, not 0"),
        (("trials = 4", 'pruner = "mean"'), "pruner: must be 'median', 'hyperband' or 'none'"),
        (("high = 64, step = 32", "high = 8"), "space.agent.batch_size: "),
        (("low = 1e-4, ", ""), "space.agent.learning_rate.low: is missing"),
        (("low = 1e-4", 'low = "a"'), "space.agent.learning_rate.low: must be a whole number or "),
        (("log = true", "logarithmic = true"), "space.agent.learning_rate.logarithmic: unknown"),
        (("step = 32", "step = 0"), "space.agent.batch_size: `step > 0` must hold"),
        (
            ("high = 1e-2", "high = inf"),
            "learning_rate: 0.0001 to inf has no end; give finite",
        ),
        (("{choices = [5, 10]}", "5"), "space.learner.sync_interval: must be a table, not 5"),
        (("[5, 10]", "[5, 10, 5]"), "sync_interval: 5 and 5 are the same choice; leave one out"),
    ],
)
def test_what_is_wrong_in_it_is_named(tmp_path: Path, change: tuple[str, str], said: str) -> None:
    with pytest.raises((SettingError, ManySettingsError)) as refused:
        study(tmp_path, GOOD.replace(*change))
    assert said in str(refused.value)
    assert str(refused.value).startswith(str(tmp_path / "study.toml"))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (["stop.max_env_steps=0"], "would never end; set stop.max_env_steps"),
        (["learner.eval_interval=0"], "trials are judged by evaluations"),
    ],
)
def test_trials_that_cannot_be_compared_are_refused(
    tmp_path: Path, settings: list[str], said: str
) -> None:
    with pytest.raises(SettingError, match=said):
        check_budget(study(tmp_path, GOOD, *settings).configure(PARAMS), "last")


def test_without_the_extra_it_is_refused_with_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vedette.sweep.study.find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"pip install 'vedette\[optuna\]'"):
        study(tmp_path)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (GOOD.replace("learning_rate", "lerning_rate"), "did you mean agent.learning_rate?"),
        (GOOD.replace("low = 1e-4", "low = 0.0").replace(", log = true", ""), "must be more than"),
        (GOOD.replace("max_env_steps = 2000, ", ""), "set stop.max_env_steps"),
        (
            GOOD.replace("high = 64, step = 32", "high = 64.0"),
            "study.toml: space.agent.batch_size: it has 48.5 between its ends, and "
            "agent.batch_size must be a whole number, not 48.5; write low, high and step as whole "
            "numbers, without a point",
        ),
        (
            GOOD.replace("high = 64, step = 32", "high = 64, step = 0.5"),
            "it has 32.5 between its ends",
        ),
    ],
)
def test_the_command_refuses_it_before_anything_starts(
    tmp_path: Path, text: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "study.toml").write_text(text)
    with pytest.raises(SystemExit) as left:
        main(["sweep", str(tmp_path / "study.toml"), "--out", str(tmp_path / "out")])
    assert left.value.code == 2
    assert said in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "out").exists()
