import pytest

from vedette_rl.envs import EnvConfig
from vedette_services.config import load_config
from vedette_services.config.parts import LearnerConfig
from vedette_services.config.settings import (
    environment_settings,
    merge_tables,
    parse_value,
    settings_table,
)
from vedette_services.errors import SettingError, UsageError


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3),
        ("1e-3", 1e-3),
        ("true", True),
        ("True", True),
        ("None", "none"),
        ("[64, 64]", [64, 64]),
        ('"3"', "3"),
        ("abc", "abc"),
        ("2026-11-21", "2026-11-21"),
        (".001", 0.001),
        ("-.5E2", -50.0),
        ("1.e-3", 0.001),
        ("+2.", 2.0),
        (".", "."),
        ("1.2.", "1.2."),
        ("\u0663.", "\u0663."),
        ("1\nb = 2", "1\nb = 2"),
        ("", ""),
    ],
)
def test_a_value_is_what_toml_says_or_else_the_text_itself(text: str, value: object) -> None:
    parsed = parse_value(text)
    assert parsed == value
    assert type(parsed) is type(value)


def test_settings_make_one_nested_table_in_which_the_last_wins() -> None:
    table = settings_table(["env.kwargs.size=3", "seed=1", "env.id=A-v0", "seed=2"])
    assert table == {"env": {"kwargs": {"size": 3}, "id": "A-v0"}, "seed": 2}


@pytest.mark.parametrize("text", ["nonsense", "=3", ".a=3", "a..b=1"])
def test_what_is_no_setting_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(UsageError, match="write KEY=VALUE"):
        settings_table([text])


def test_a_key_through_a_number_is_refused() -> None:
    with pytest.raises(SettingError, match=r"seed\.x: seed is no table"):
        settings_table(["seed=1", "seed.x=2"])


@pytest.mark.parametrize("word", ["None", "null"])
def test_none_for_code_of_the_user_is_refused_and_no_text(word: str) -> None:
    with pytest.raises(SettingError, match=rf"env\.kwargs\.opponent: {word} is no value"):
        settings_table([f"env.kwargs.opponent={word}"])
    assert settings_table([f"env.max_episode_steps={word}"]) == {
        "env": {"max_episode_steps": "none"}
    }


@pytest.mark.parametrize(
    ("written", "fix"),
    [
        ("[a,b]", """in a shell, in quotes: 'env.kwargs.names=["a", "b"]'"""),
        ("[True, False]", "in a shell, in quotes: 'env.kwargs.names=[true, false]'"),
        ("[true, a]", """in a shell, in quotes: 'env.kwargs.names=[true, "a"]'"""),
        ('["True", "64", a]', """'env.kwargs.names=["True", "64", "a"]'"""),
        ("[.5, a,]", """'env.kwargs.names=[0.5, "a"]'"""),
        (r"[\d, a]", r"""'env.kwargs.names=["\\d", "a"]'"""),
        ("[None, 1]", """TOML has no None: leave it out, or write it as a text, '"None"'"""),
        ("[1, null]", "TOML has no null: leave it out"),
        ("[01,2]", "'[1, \"a\"]' is a list"),
        ("[Infinity, 1]", "'[1, \"a\"]' is a list"),
        ("[1,,2]", "'[1, \"a\"]' is a list"),
        ("[it's, a]", "'[1, \"a\"]' is a list"),
        ("[[a],[b]]", "in a shell, '"),
        ("{a: 1}", "'{a = 1}' a table"),
        ("[a-z]+", "quotes within quotes: '\"a\"'"),
        ("(3, 4)", "'[1, \"a\"]' is a list"),
        (r'"\d+"', "quotes within quotes"),
    ],
)
def test_a_list_whose_quotes_a_shell_took_is_no_text_for_code_of_the_user(
    written: str, fix: str
) -> None:
    with pytest.raises(SettingError) as refused:
        settings_table([f"env.kwargs.names={written}"])
    said = f"env.kwargs.names: {written} is no TOML, and would be given as a text; "
    assert str(refused.value).startswith(said)
    assert fix in str(refused.value)


@pytest.mark.parametrize(
    ("written", "names"),
    [
        ("[True, False]", [True, False]),
        ("[true, a]", [True, "a"]),
        ("[.5, a,]", [0.5, "a"]),
        (r"[\d, a]", [r"\d", "a"]),
    ],
)
def test_the_list_that_is_suggested_is_taken(written: str, names: list[object]) -> None:
    with pytest.raises(SettingError) as refused:
        settings_table([f"env.kwargs.names={written}"])
    suggested = refused.value.fix.removeprefix("in a shell, in quotes: ").strip("'")
    assert settings_table([suggested]) == {"env": {"kwargs": {"names": names}}}


def test_values_that_toml_reads_reach_code_of_the_user_whatever_they_begin_with() -> None:
    given = ['names=["a", "b"]', "size={w = 1}", "pattern='[a-z]+'", "text=a[0]"]
    table = settings_table([f"env.kwargs.{each}" for each in given])
    assert table["env"]["kwargs"] == {
        "names": ["a", "b"],
        "size": {"w": 1},
        "pattern": "[a-z]+",
        "text": "a[0]",
    }


@pytest.mark.parametrize("key", ["env.kwargs.kind", "env.reset_options.kind"])
def test_the_word_nan_for_code_of_the_user_is_refused_as_the_number_that_it_is(key: str) -> None:
    given = {"env": "CartPole-v1", "agent": "dqn", "environment": {}}
    with pytest.raises(SettingError, match=r"'kind' is read as the number nan; write '\"nan\"'"):
        load_config(settings=[f"{key}=nan"], **given)
    named = load_config(settings=[f'{key}="nan"', "env.kwargs.most=inf"], **given)
    assert named.config.env.kwargs["most"] == float("inf")


def test_an_infinite_argument_reaches_the_process_of_an_environment() -> None:
    config = EnvConfig(id="A-v0", kwargs={"most": float("inf"), "list": [float("-inf"), 1.0]})
    assert EnvConfig.model_validate_json(config.model_dump_json()) == config


def test_a_table_is_laid_over_another_and_neither_changes() -> None:
    below = {"a": {"x": 1, "y": 2}, "b": 3}
    above = {"a": {"x": 9}, "b": {"z": 1}}
    assert merge_tables(below, above) == {"a": {"x": 9, "y": 2}, "b": {"z": 1}}
    assert below == {"a": {"x": 1, "y": 2}, "b": 3}


def test_a_container_sets_many_keys_in_one_variable() -> None:
    found = environment_settings({"VEDETTE_SET": "seed=3 env.kwargs.name='a b'"})
    assert settings_table(found) == {"seed": 3, "env": {"kwargs": {"name": "a b"}}}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nonsense", "VEDETTE_SET nonsense: write KEY=VALUE"),
        ("seed=1 seed.x=2", "VEDETTE_SET: seed.x: seed is no table"),
        ("env.kwargs.a=None", "VEDETTE_SET: env.kwargs.a: None is no value"),
    ],
)
def test_what_is_wrong_in_the_variable_is_said_to_be_there(text: str, said: str) -> None:
    with pytest.raises(UsageError) as refused:
        load_config(env="CartPole-v1", environment={"VEDETTE_SET": text})
    assert str(refused.value).startswith(said)


def test_an_unclosed_quote_in_the_variable_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="VEDETTE_SET"):
        environment_settings({"VEDETTE_SET": "a='b"})


@pytest.mark.parametrize("number", ["5500", "5.5e3", "'5500'"])
def test_a_checkpoint_is_named_by_its_number(number: str) -> None:
    settings = [f"learner.init_checkpoint={number}", "learner.init_from=runs/one"]
    found = load_config(settings=settings, environment={}).config.learner
    assert found.init_checkpoint == "5500"
    assert LearnerConfig(init_checkpoint=found.init_checkpoint) == LearnerConfig(
        init_checkpoint=5500  # type: ignore[arg-type]  # as TOML and Python have it
    )


def test_a_word_that_names_no_model_is_refused_with_those_that_do() -> None:
    said = "must be latest, best or the optimization steps of a checkpoint, not 'newest'"
    with pytest.raises(SettingError, match=said):
        load_config(settings=["learner.init_checkpoint=newest"], environment={})
