"""A wrong key is answered with the one that is meant."""

import shlex
from collections import Counter
from collections.abc import Iterator

import pytest

from vedette_rl.settings.part import SettingsPart
from vedette_rl.settings.words_of_others import INSTEAD
from vedette_services.config import load_config
from vedette_services.config.run_config import RunConfig, every_key
from vedette_services.errors import ConfigError, ManySettingsError


def refusal(*settings: str, agent: str = "dqn") -> str:
    with pytest.raises(ConfigError) as caught:
        load_config(agent=agent, settings=settings, environment={})
    return str(caught.value)


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("lr", "agent.learning_rate"),
        ("agent.lr", "agent.learning_rate"),
        ("learner.lr", "agent.learning_rate"),
        ("gamma", "agent.discount"),
        ("replay.warmup", "learner.warmup_period"),
        ("learning_starts", "learner.warmup_period"),
        ("replay.buffer_size", "replay.capacity"),
        ("total_timesteps", "stop.max_env_steps"),
        ("num_envs", "actors.envs_per_actor"),
        ("agent.target_network_frequency", "agent.target_update_interval"),
        ("train_freq", "replay.samples_per_insert"),
        ("agent.exploration.end_e", "agent.exploration.epsilon_final"),
        ("env_id", "env.id"),
        ("sync_interval", "learner.sync_interval"),
        ("agent.lerning_rate", "agent.learning_rate"),
        ("agent.gama", "agent.discount"),
        ("replay.sources.demos.path", "replay.sources.demos.data"),
        ("replay.sources.demos.ratio", "replay.sources.demos.share"),
    ],
)
def test_words_of_others_and_slips_are_understood(typed: str, meant: str) -> None:
    assert refusal(f"{typed}=1") == f"{typed}: unknown key; did you mean {meant}?"


def test_an_option_of_a_command_is_said_to_be_one() -> None:
    assert refusal("learner.bind=x") == (
        "learner.bind: unknown key; it is the option --bind of a command"
    )
    assert refusal("in_process=true").endswith("it is the option --in-process of a command")


def test_a_key_of_another_agent_is_said_to_be_one() -> None:
    assert refusal("agent.n_critics=3").endswith("agents that have agent.n_critics: sac, td3")
    assert refusal("agent.ent_coef=3").endswith("agents that have agent.alpha: sac")
    assert refusal("ent_coef=3").endswith("agents that have agent.alpha: sac")


@pytest.mark.parametrize(
    "typed", ["stop.max_episodes", "max_episodes", "n_episodes", "stop.episodes", "stop.n_episodes"]
)
def test_a_number_of_episodes_is_answered_with_what_ends_a_run(typed: str) -> None:
    assert refusal(f"{typed}=3") == (
        f"{typed}: unknown key; a run ends by stop.max_env_steps, stop.max_seconds or "
        "stop.target_return"
    )


def test_words_of_ppo_lead_to_the_keys_of_appo() -> None:
    assert refusal("agent.clip_range=0.2").endswith("agents that have agent.clip: appo")
    assert refusal("clip_range=0.2", agent="appo").endswith("did you mean agent.clip?")
    assert refusal("n_epochs=4", agent="appo").endswith("did you mean replay.passes?")
    assert refusal("agent.target_kl=0.2", agent="appo").endswith(
        "agent appo does without: the clip of its loss bounds how far a step goes"
    )


def test_no_word_has_both_a_key_and_a_sentence() -> None:
    assert not set(INSTEAD) & {*every_key().synonyms, *every_key().keys}


@pytest.mark.parametrize(
    ("typed", "meant"), [("agent.seed", "seed"), ("agent.device", "learner.device")]
)
def test_a_key_in_the_wrong_part_is_answered_with_the_right_one(typed: str, meant: str) -> None:
    assert refusal(f"{typed}=1") == f"{typed}: unknown key; did you mean {meant}?"


@pytest.mark.parametrize(
    ("typed", "hint"),
    [
        ("env.wrappers=[a.b:C]", """'env.wrappers=["a.b:C"]'"""),
        ("learner.recorders=csv", """'learner.recorders=["csv"]'"""),
        ("agent.hidden_sizes=64,64", "'agent.hidden_sizes=[64, 64]'"),
        ("replay.sources=[demos.npz]", "set replay.sources.NAME.data"),
    ],
)
def test_a_list_that_a_shell_has_taken_the_quotes_from_is_shown_quoted(
    typed: str, hint: str
) -> None:
    said = refusal(typed)
    assert said.endswith(hint)
    if hint.startswith("'"):
        [setting] = shlex.split(hint)
        load_config(settings=[setting], environment={})


def test_all_that_is_wrong_is_said_at_once() -> None:
    with pytest.raises(ManySettingsError) as caught:
        load_config(settings=["seed=x", "lr=3", "learner.sync_interval=-1"], environment={})
    assert {error.key for error in caught.value.errors} == {"seed", "lr", "learner.sync_interval"}


def test_an_unknown_agent_hides_no_other_error() -> None:
    said = refusal("agent.learning_rate=x", "seed=x", agent="nope").splitlines()
    assert [line.partition(":")[0] for line in said] == ["agent.name", "seed"]


def parts_of(part: type[SettingsPart]) -> Iterator[type[SettingsPart]]:
    """Yield subclasses of the package's own, too."""
    for kind in part.__subclasses__():
        if kind.__module__.startswith("vedette_"):
            yield kind
            yield from parts_of(kind)


def test_each_word_of_others_stands_once_and_leads_to_a_key() -> None:
    tables = [vars(kind).get("synonyms", {}) for kind in (RunConfig, *set(parts_of(SettingsPart)))]
    words = Counter(word for table in tables for value in table.values() for word in value.split())
    assert [word for word, times in words.items() if times > 1] == []
    assert set(words) == {word.rpartition(".")[2] for word in every_key().synonyms}
    assert set(every_key().synonyms.values()) <= set(every_key().keys)
