from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vedette_rl.envs import probe_environment
from vedette_services.config import RunConfig, load_config, read_config, write_config
from vedette_services.config.contradictions import contradictions
from vedette_services.config.loading import complete_config
from vedette_services.config.presets import preset_names, read_preset
from vedette_services.errors import ConfigError, UsageError


def loaded(*settings: str, env: str | None = None, agent: str | None = None) -> RunConfig:
    return load_config(env=env, agent=agent, settings=settings, environment={}).config


def refusal(*settings: str, env: str | None = None, agent: str | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        loaded(*settings, env=env, agent=agent)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_nothing_at_all_is_dqn_on_cartpole_to_its_solved_return() -> None:
    found = load_config(environment={})
    assert (found.config.env.id, found.config.agent.name) == ("CartPole-v1", "dqn")
    assert found.config.stop.target_return == 475.0
    assert found.preset == "dqn-CartPole-v1"


def test_an_environment_brings_the_agent_of_its_preset() -> None:
    assert loaded(env="Pendulum-v1").agent.name == "sac"


@pytest.mark.parametrize("name", preset_names())
def test_every_preset_is_a_valid_configuration_that_stops(name: str) -> None:
    agent, _, env = name.partition("-")
    stop = loaded(env=env.replace("ALE_", "ALE/"), agent=agent).stop
    assert stop.target_return is not None or stop.max_env_steps


def test_an_atari_game_has_the_preset_of_all_and_its_own_over_it() -> None:
    pong, breakout = loaded(env="ALE/Pong-v5"), loaded(env="ALE/Breakout-v5")
    assert (pong.stop.target_return, breakout.stop.target_return) == (18.0, None)
    for config in (pong, breakout):
        assert config.agent.name == "dqn"
        assert config.env.reward_clip == 1.0
        assert config.env.for_evaluation().reward_clip == 0.0
        names = [wrapper.name.partition(":")[2] for wrapper in config.env.wrappers]
        assert names == ["AtariPreprocessing", "FrameStackObservation"]


def test_a_preset_is_found_however_its_environment_is_spelled() -> None:
    spelled = loaded(env="ale_py:ALE/Pong-v5")
    assert spelled.agent == loaded(env="ALE/Pong-v5").agent
    assert [wrapper.name for wrapper in spelled.env.wrappers]
    assert spelled.env.id == "ale_py:ALE/Pong-v5"
    assert loaded(env="gymnasium:CartPole-v1").agent == loaded(env="CartPole-v1").agent
    of_others = loaded(env="my_pkg:CartPole-v1", agent="dqn")  # perhaps another environment
    assert of_others.agent != loaded(env="CartPole-v1", agent="dqn").agent


def test_an_atari_game_is_played_as_four_small_grey_pictures() -> None:
    pytest.importorskip("ale_py")
    pytest.importorskip("cv2")
    spaces = probe_environment(loaded(env="ALE/Pong-v5").env)
    assert (spaces.observation.shape, spaces.observation.dtype) == ((4, 84, 84), np.uint8)


def test_a_vector_form_does_not_inherit_what_only_a_presets_wrappers_need() -> None:
    bare = ("env.vectorization=vector_entry_point", "env.wrappers=[]")
    said = refusal(*bare, env="ALE/Pong-v5")
    assert said.startswith("env.kwargs.frameskip: is 1 by the preset")
    for skipped in (1, 4):
        found = loaded(*bare, f"env.kwargs.frameskip={skipped}", env="ALE/Pong-v5")
        assert found.env.kwargs == {"frameskip": skipped}
    assert loaded("env.wrappers=[]", env="ALE/Pong-v5").env.kwargs == {"frameskip": 1}


def test_a_preset_can_be_left_out() -> None:
    assert loaded("preset=none").stop.target_return is None


def test_a_text_of_the_variable_that_is_no_setting_is_said_to_be_its() -> None:
    with pytest.raises(UsageError, match=r"^VEDETTE_SET lr: write KEY=VALUE"):
        load_config(environment={"VEDETTE_SET": "seed=1 lr"})


def test_layers_win_in_their_order(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text(
        "seed = 1\n[learner]\nsync_interval = 1\neval_interval = 1\nsave_interval = 1\n"
    )
    variables = {"VEDETTE_SET": "learner.eval_interval=2 learner.save_interval=2"}
    found = load_config(file, settings=["learner.save_interval=3"], environment=variables).config
    learner = found.learner
    assert (found.seed, learner.sync_interval, learner.eval_interval) == (1, 1, 2)
    assert learner.save_interval == 3
    assert found.agent.batch_size == read_preset("dqn", "CartPole-v1")["agent"]["batch_size"]  # type: ignore[index]  # there is one


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        (
            "learner.sync_intervall=3",
            "learner.sync_intervall: unknown key; did you mean learner.sync_interval?",
        ),
        ("sync_interval=3", "sync_interval: unknown key; did you mean learner.sync_interval?"),
        ("agent.lerning_rate=3", "did you mean agent.learning_rate?"),
        ("learner.sync_interval=abc", "learner.sync_interval: must be a whole number, not 'abc'"),
        ("learner.sync_interval=true", "learner.sync_interval: must be a whole number, not True"),
        ("learner.sync_interval=1.5", "must be a whole number, not 1.5"),
        ("learner.sync_interval='3'", "must be a whole number, not '3'"),
        ("learner.sync_interval=-1", "learner.sync_interval: must be at least 0, not -1"),
        ("agent.learning_rate=nan", "agent.learning_rate"),
        ("agent.learning_rate=-1", "agent.learning_rate: must be more than 0, not -1"),
        ("agent.learning_rate=1e300", "agent.learning_rate: must be at most 1000, not 1e+300"),
        ("agent.adam_eps=1e300", "agent.adam_eps: must be at most 1e+09, not 1e+300"),
        ("agent.hidden_sizes=[100000000]", "agent.hidden_sizes.0: must be at most 16384, not 1"),
        ("replay.samples_per_insert=1e-300", "or at least 1e-12, not 1e-300"),
        ("replay.samples_per_insert=1e300", "must be at most 1e+09 or 'none', not 1e+300"),
        ("agent.double=1", "agent.double: must be true or false, not 1"),
        ("agent.hidden_sizes=64", "agent.hidden_sizes: must be a list in brackets"),
        ("agent.hidden_sizes=[64, 0]", "agent.hidden_sizes"),
        ("agent.exploration.kind=spiral", "agent.exploration.kind: must be 'auto'"),
        ("agent.exploration=3", "agent.exploration: must be a table, not 3"),
        ("actors.on_full=explode", "actors.on_full: must be 'block' or 'drop_oldest'"),
        ("learner.device=gpu", "learner.device"),
        ("learner=3", "learner: must be a table, not 3"),
        ("seed=-1", "seed: must be at least 0, not -1"),
        ("seed=x", "seed: must be a whole number, not 'x'"),
        ("agent.name=nope", "agent.name: unknown agent 'nope'"),
        ("agent.name=3", "agent.name: must be a text"),
        ("env.id=3", "env.id: must be a text, not 3"),
        ("preset=best", "preset: must be 'auto' or 'none' or 'applied: NAME', not 'best'"),
        ("replay.beta_0=0.9 ", ""),
    ],
)
def test_a_wrong_setting_is_refused_in_one_line_that_names_the_key(setting: str, said: str) -> None:
    if said:
        assert said in refusal(setting)
    else:
        loaded(setting)


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("agent.n_critics=1000000000", "agent.n_critics: must be at most 1000, not 1000000000"),
        (
            "agent.alpha_learning_rate=1e300",
            "agent.alpha_learning_rate: must be at most 1000, not 1e+300",
        ),
        ("agent.alpha=-1", "agent.alpha: must be 'auto' or at least 0, not -1"),
        ("agent.target_entropy=x", "agent.target_entropy: must be 'auto' or a number, not 'x'"),
        ("stop.target_return=off", "stop.target_return: must be a number or 'none', not 'off'"),
    ],
)
def test_a_value_of_several_kinds_is_refused_with_all_of_them(setting: str, said: str) -> None:
    assert refusal(setting, env="Pendulum-v1") == said


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("replay.capacity=1e6", 1_000_000),
        ("seed=1e3", 1_000),
        ("agent.random_shift=1e1", 10),  # or a word
        ("agent.exploration.epsilon_steps=1e4", 10_000),
        ("agent.schedule.total_opts=1e5", 100_000),
        ("agent.imitation.schedule.total_opts=1e5", 100_000),
        ("agent.hidden_sizes=[1e2, 64]", (100, 64)),
        ("env.kwargs.given=1e6", 1e6),  # what it means is not known
        ("env.kwargs.given=.5", 0.5),
        ("agent.learning_rate=.001", 0.001),
        ("agent.learning_rate=1.e-3", 0.001),
    ],
)
def test_a_count_may_be_written_as_a_power_of_ten(setting: str, value: object) -> None:
    found: Any = loaded(setting)
    for name in setting.partition("=")[0].split("."):
        found = found[name] if isinstance(found, dict) else getattr(found, name)
    assert found == value
    assert type(found) is type(value)


def test_counts_of_a_named_source_and_of_declared_spaces_are_counts() -> None:
    box = {"space": "box", "shape": [4.0], "low": 0, "high": 1}
    spaces = {"space": "dict", "spaces": {"near": box}}
    table = {"env": {"observation": spaces, "action": {"space": "discrete", "n": 2e0}}}
    config = load_config(table=table, agent="dqn", environment={}).config
    assert config.env.action is not None
    assert config.env.observation is not None
    assert config.env.action.n == 2
    assert (config.env.observation.spaces or {})["near"].shape == (4,)


@pytest.mark.parametrize(
    ("key", "count"),
    [
        ("stop.max_env_steps", "1e30"),
        ("replay.capacity", str(2**63)),
        ("agent.exploration.epsilon_steps", "1e19"),
    ],
)
def test_a_count_beyond_64_bits_is_refused(key: str, count: str) -> None:
    assert refusal(f"{key}={count}") == f"{key}: must be below 2**63, not {float(count):g}"
    assert loaded(f"stop.max_opts={2**63 - 1}").stop.max_opts == 2**63 - 1
    assert loaded("stop.max_seconds=1e30").stop.max_seconds == 1e30


def test_none_takes_a_target_away() -> None:
    assert loaded("stop.target_return=none").stop.target_return is None


@pytest.mark.parametrize(
    ("text", "said"),
    [("[learner\nx = 1", "not TOML"), ("learner = 3", "must be a table"), ("\xff", "not TOML")],
)
def test_a_broken_file_is_refused(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "broken.toml"
    file.write_text(text, "latin-1")
    with pytest.raises(ConfigError, match=said):
        load_config(file, environment={})


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such file"):
        load_config(tmp_path / "missing.toml", environment={})
    with pytest.raises(ConfigError, match="a folder"):
        load_config(tmp_path, environment={})


@pytest.mark.parametrize(
    "settings",
    [
        (),
        ("env.id=Pendulum-v1", "agent.name=sac", "replay.prioritized=true"),
        ("stop.target_return=none", "replay.directory=/fast", "env.kwargs.a=[1, 2]"),
    ],
)
def test_what_is_written_reads_back_the_same(tmp_path: Path, settings: tuple[str, ...]) -> None:
    config = loaded(*settings)
    file = tmp_path / "config.toml"
    write_config(config, file, "made\nby a test")
    again = read_config(file)
    assert again.model_copy(update={"preset": config.preset}) == config
    assert load_config(file, environment={}).config == again


def test_a_configuration_can_be_made_in_python() -> None:
    config = RunConfig.model_validate(
        {"env": {"id": "CartPole-v1"}, "agent": {"name": "dqn", "learning_rate": 1e-3}}
    )
    assert type(config.agent).__name__ == "DqnConfig"
    assert RunConfig.model_validate(config.model_dump(mode="json")) == config


@pytest.mark.parametrize("name", preset_names())
@pytest.mark.parametrize("given", [{}, {"replay": {"capacity": 12_345}, "actors": {"count": 3}}])
def test_one_made_in_python_begins_from_its_preset_as_a_file_does(
    name: str, given: dict[str, Any]
) -> None:
    agent, _, env = name.partition("-")
    env = "ALE/Pong-v5" if env == "ALE" else env
    given = {**given, "agent": {"name": agent, "discount": 0.75}, "env": {"id": env}}
    made = complete_config(RunConfig.model_validate({**given, "preset": "auto"}))
    loaded = load_config(table=given, environment={})
    assert made.config == loaded.config
    assert (made.preset, made.config.agent.discount) == (loaded.preset, 0.75)
    assert {*made.given} == {"preset", *loaded.given}
    assert complete_config(RunConfig.model_validate(given)).preset == ""  # none, by default


def test_several_ranks_share_a_batch_evenly_and_draw_from_actors_alone() -> None:
    def refused(*settings: str) -> list[str]:
        config = loaded("agent.batch_size=64", *settings)
        return [str(error) for error in contradictions(config) if error.key == "learner.ranks"]

    assert refused("learner.ranks=4") == []
    (uneven,) = refused("learner.ranks=3")
    assert "3 ranks cannot share agent.batch_size's 64 samples evenly" in uneven
    (own,) = refused("learner.ranks=2", "replay.name=my_module:Mine")
    assert "no replay of your own" in own
    (sources,) = refused("learner.ranks=2", "replay.sources.old.data=old.npz")
    assert "several ranks share no replay.sources" in sources


def test_ranks_have_a_gpu_each() -> None:
    config = loaded("learner.device=cuda:0", "learner.ranks=2", "agent.batch_size=64")
    (one,) = (str(error) for error in contradictions(config) if error.key == "learner.device")
    assert "is cuda:0, and each of learner.ranks=2 trains on a GPU of its own" in one
    assert not list(contradictions(loaded("learner.device=cuda:0")))
