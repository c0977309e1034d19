"""What a learner tells its peers of its configuration, and what an actor host understands of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import pytest
from configurations import configured
from off_default_settings import LATER_AGENTS, each_agent, each_off_default

from vedette_rl.agents.dqn.config import DqnConfig
from vedette_rl.agents.registry import BUILT_IN
from vedette_rl.agents.sac.config import SacConfig
from vedette_rl.core.agent_config import AgentConfig
from vedette_rl.envs.config import EnvConfig, SpaceConfig, WrapperConfig
from vedette_rl.settings.for_peers import LEARNER_ONLY, is_learner_only
from vedette_rl.settings.part import SettingsPart
from vedette_services.config.parts import ActorsConfig, EvaluationConfig
from vedette_services.config.peer_settings import (
    check_agent_settings,
    read_peer_settings,
    same_for_peers,
    settings_for_peers,
    unneeded_peer_settings,
)
from vedette_services.errors import REFUSED, RunNotUnderstoodError

PREVIOUS = Path(__file__).with_name("defaults_of_9a998dc2.json")
"""The defaults of the settings that travel, by class, in the release that added them."""


class NextActors(ActorsConfig):
    """The next release's, with a key more."""

    outbox: str = ""
    quota: int = 3


class Pinned(AgentConfig):
    """An agent of a next release."""

    name: str = "pinned"
    clip: Annotated[float, LEARNER_ONLY] = 0.0
    noise: float = 0.1


def test_a_setting_at_its_default_does_not_travel() -> None:
    assert settings_for_peers(ActorsConfig()) == {}
    assert settings_for_peers(ActorsConfig(n_buffer=20)) == {"n_buffer": 20}
    assert settings_for_peers(NextActors()) == {}


def test_clients_in_other_languages_are_told_what_they_read_in_any_case() -> None:
    assert settings_for_peers(DqnConfig()) == {"name": "dqn", "discount": 0.99, "n_step": 3}
    env = settings_for_peers(EnvConfig(id="CartPole-v1"))
    assert env == {"id": "CartPole-v1", "reward_scale": 1.0, "reward_clip": 0.0}


def test_what_only_the_learner_reads_does_not_travel() -> None:
    told = settings_for_peers(Pinned(clip=2.0, noise=0.5, batch_size=7))
    assert told == {"name": "pinned", "discount": 0.99, "n_step": 1, "noise": 0.5}
    sac = settings_for_peers(SacConfig(critic_architecture="mlp", alpha=0.1, log_std_max=1.0))
    assert sac == {"name": "sac", "discount": 0.99, "n_step": 1, "log_std_max": 1.0}


@pytest.mark.parametrize("custom", [{"name": "mine:Agent"}, {"name": "p", "noise": 0.5}])
def test_a_custom_agent_is_told_all_that_is_off_its_default(custom: dict[str, Any]) -> None:
    told = settings_for_peers(Pinned(**custom, clip=2.0))
    assert ("clip" in told) == (":" in custom["name"])


def test_parts_in_lists_and_tables_travel_without_their_defaults() -> None:
    wrappers = (WrapperConfig(name="mine:Wrap", training_only=True), WrapperConfig(name="mine:W"))
    space = SpaceConfig(space="dict", spaces={"x": SpaceConfig(space="discrete", n=3)})
    env = EnvConfig(id="e", wrappers=wrappers, observation=space, action=space)
    told = settings_for_peers(env)
    assert told["wrappers"] == [{"name": "mine:Wrap", "training_only": True}, {"name": "mine:W"}]
    assert told["action"] == {"space": "dict", "spaces": {"x": {"space": "discrete", "n": 3}}}
    assert read_peer_settings(EnvConfig, told) == env


def acting(config: AgentConfig) -> dict[str, Any]:
    """The settings that actors read, as they are."""
    dumped = config.model_dump(mode="json")
    return {name: dumped[name] for name in dumped if not is_learner_only(type(config), name)}


def test_every_agent_acts_by_what_it_is_told_as_by_its_whole_configuration() -> None:
    several = list(each_agent())
    assert len(several) > 150
    for config in several:
        told = json.loads(json.dumps(settings_for_peers(config)))
        check_agent_settings(told)
        assert acting(read_peer_settings(type(config), told)) == acting(config)


@pytest.mark.parametrize("usual", [ActorsConfig(), EnvConfig(id="CartPole-v1"), EvaluationConfig()])
def test_a_part_is_read_back_as_it_was(usual: SettingsPart) -> None:
    several = [usual, *each_off_default(usual)]
    assert len(several) > 5
    for part in several:
        told = json.loads(json.dumps(settings_for_peers(part)))
        assert read_peer_settings(type(part), told) == part


def test_a_setting_that_is_not_known_here_is_refused_with_its_name_and_value() -> None:
    told = settings_for_peers(NextActors(outbox="/var/spool", quota=5))
    with pytest.raises(RunNotUnderstoodError) as refused:
        read_peer_settings(ActorsConfig, told)
    said = str(refused.value)
    assert "actors.outbox = '/var/spool', actors.quota = 5: set there, and not known to" in said
    assert refused.value.exit_status == REFUSED


def test_a_value_that_is_not_possible_here_is_refused_with_its_key() -> None:
    with pytest.raises(RunNotUnderstoodError, match=r"actors.on_full: must be 'block' or"):
        read_peer_settings(ActorsConfig, {"on_full": "compress"})
    with pytest.raises(RunNotUnderstoodError, match=r"agent.name = 'rainbow': vedette \S+ here"):
        check_agent_settings({"name": "rainbow"})
    check_agent_settings({"name": "mine:Agent", "whatever": 1})  # its class is not loaded here
    check_agent_settings({})


def test_a_name_from_the_network_is_one_printable_line() -> None:
    with pytest.raises(RunNotUnderstoodError) as refused:
        read_peer_settings(ActorsConfig, {"x\n\x1b[31m": "y" * 500})
    assert "\n" not in str(refused.value)
    assert "\x1b" not in str(refused.value)
    assert len(str(refused.value)) < 400


def test_who_makes_no_environment_ignores_how_it_is_made() -> None:
    told = {"id": "e", "cameras": 2, "wrappers": [{"name": "a:B", "x": 1}]}
    spaces = ("observation", "action")
    assert read_peer_settings(EnvConfig, told, needed=spaces) == EnvConfig(id="e")
    ignored = unneeded_peer_settings(EnvConfig, told, spaces)
    assert ignored == ["env.wrappers.0.x = 1", "env.cameras = 2"]
    box = {"space": "box", "shape": [2], "unit": "m"}
    with pytest.raises(RunNotUnderstoodError, match=r"env.action.unit = 'm'"):
        read_peer_settings(EnvConfig, {**told, "observation": box, "action": box}, needed=spaces)


def test_announcements_of_neighbouring_releases_say_the_same() -> None:
    config = DqnConfig(learning_rate=0.5, hidden_sizes=(8,))
    full = config.model_dump(mode="json")  # as 9a998dc2 tells it
    assert same_for_peers(DqnConfig, full, settings_for_peers(config))
    other = settings_for_peers(DqnConfig(hidden_sizes=(9,)))
    assert not same_for_peers(DqnConfig, full, other)
    assert not same_for_peers(DqnConfig, full, {"name": "iqn"})


def travelling_defaults(part: type[SettingsPart]) -> dict[str, Any]:
    """What a peer takes for each key that does not travel."""
    defaults: dict[str, Any] = {}
    for name, field in part.model_fields.items():
        if field.is_required() or is_learner_only(part, name):
            continue
        value = field.get_default(call_default_factory=True)
        dumped = value.model_dump(mode="json") if isinstance(value, SettingsPart) else value
        defaults[name] = json.loads(json.dumps(dumped))
    return defaults


def test_defaults_that_do_not_travel_are_those_that_older_peers_take() -> None:
    """A learner and an actor of two releases must not take two values for one key, silently.

    So a default that travels by being left out is not changed within a version of the wire: let a
    preset or the fleet's size choose another value, which then travels. The keys of a release are
    added to the file when it is made.
    """
    recorded: dict[str, dict[str, Any]] = json.loads(PREVIOUS.read_text())
    parts = [ActorsConfig, EnvConfig, WrapperConfig, SpaceConfig]
    parts += [kind.config for name, kind in BUILT_IN.items() if name not in LATER_AGENTS]
    now = {part.__name__: travelling_defaults(part) for part in parts}
    assert now.keys() == recorded.keys()
    for name, defaults in recorded.items():
        kept = {key: value for key, value in now[name].items() if key in defaults}
        assert kept == {key: value for key, value in defaults.items() if key in now[name]}, name


def test_peers_are_told_where_exploration_begins_after_steps_on_sources_alone() -> None:
    def told(*settings: str) -> dict[str, Any]:
        sources = {"demos": {"data": "demos.npz"}}
        table = {"replay": {"sources": sources}}
        config = configured("preset=none", *settings, env="CartPole-v1", agent="dqn", table=table)
        return settings_for_peers(config.actors_of_peers)

    assert "explore_from" not in told()
    assert told("learner.pretrain_opts=500")["explore_from"] == 500
    assert told("learner.pretrain_opts=500", "actors.explore_from=20")["explore_from"] == 20
    assert "explore_from" not in told("learner.pretrain_opts=500", "actors.explore_from=0")
