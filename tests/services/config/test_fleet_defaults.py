from pathlib import Path
from typing import Annotated, ClassVar

import pytest

from vedette_rl.agents.config import EnvSteps
from vedette_rl.core.agent_config import AgentConfig
from vedette_services.config import (
    ActorsConfig,
    LearnerConfig,
    RunConfig,
    load_config,
    write_config,
)
from vedette_services.config.loading import LoadedConfig, complete_config

UNTUNED = "MountainCar-v0"


def loaded(*settings: str, env: str = UNTUNED, agent: str = "dqn") -> LoadedConfig:
    return load_config(env=env, agent=agent, settings=settings, environment={})


def chosen(*settings: str, agent: str = "dqn") -> dict[str, float | str]:
    return {choice.key: choice.value for choice in loaded(*settings, agent=agent).choices}


def fleet(actors: int, envs: int) -> tuple[str, str]:
    return f"actors.count={actors}", f"actors.envs_per_actor={envs}"


def exploration_of(config: RunConfig) -> str:
    return str(config.agent.exploration.kind)  # type: ignore[attr-defined]  # DQN has one


@pytest.mark.parametrize(
    ("actors", "envs", "rows", "sync", "target", "evaluation", "kind"),
    [
        (1, 1, 16, 8, 250, 2500, "linear"),
        (2, 8, 16, 8, 250, 2500, "linear"),
        (16, 1, 4, 8, 250, 2500, "linear"),
        (4, 8, 32, 16, 256, 4000, "linear"),
        (8, 8, 64, 32, 512, 8000, "ladder"),
        (100, 8, 96, 50, 2500, 100_000, "ladder"),
    ],
)
def test_the_fleet_decides_what_nobody_set(
    actors: int, envs: int, rows: int, sync: int, target: int, evaluation: int, kind: str
) -> None:
    config = loaded(*fleet(actors, envs)).config
    assert config.agent.env_steps_per_opt == 2.0  # the numbers above are for it
    assert config.actors.n_buffer == rows
    assert config.learner.sync_interval == sync
    assert config.agent.target_update_interval == target  # type: ignore[attr-defined]  # DQN
    assert config.learner.eval_interval == evaluation
    assert exploration_of(config) == kind


def test_what_nobody_says_is_sixteen_environments_and_the_classes_own_defaults() -> None:
    config = loaded().config
    bare = RunConfig(env=config.env, agent=type(config.agent)())
    for part in ("actors", "learner"):
        assert getattr(config, part) == getattr(bare, part)
    assert config.agent.target_update_interval == bare.agent.target_update_interval  # type: ignore[attr-defined]  # DQN
    assert (exploration_of(config), exploration_of(bare)) == ("linear", "auto")


def test_what_is_set_always_wins() -> None:
    own = {
        "actors.n_buffer": "7",
        "learner.sync_interval": "9",
        "learner.eval_interval": "0",
        "agent.target_update_interval": "11",
        "agent.exploration.kind": "ladder",
        "replay.samples_per_insert": "3.0",
    }
    for key, value in own.items():
        assert key in chosen()
        assert key not in chosen(f"{key}={value}")
    config = loaded(*(f"{key}={value}" for key, value in own.items()))
    assert (config.choices, config.config.actors.n_buffer) == ((), 7)
    assert config.config.learner.eval_interval == 0


def test_clocks_are_in_environment_steps_whatever_the_replay_ratio() -> None:
    for rate, opts in (("128", 1), ("512", 4)):
        found = chosen("agent.batch_size=128", f"replay.samples_per_insert={rate}")
        assert found["agent.exploration.epsilon_steps"] == 10_000 * opts
        assert found["agent.target_update_interval"] == 500 * opts
        assert found["learner.eval_interval"] == 5_000 * opts
    assert chosen("replay.samples_per_insert=0")["learner.eval_interval"] == 2500  # it has no ratio


def test_only_a_falling_epsilon_has_a_clock() -> None:
    for kind in ("ladder", "softmax", "constant"):
        assert "agent.exploration.epsilon_steps" not in chosen(f"agent.exploration.kind={kind}")
    assert chosen("agent.exploration.kind=linear")["agent.exploration.epsilon_steps"] == 5000
    assert chosen("agent.exploration.kind=auto")["agent.exploration.kind"] == "linear"


def test_agents_without_such_settings_have_the_others_chosen() -> None:
    found = chosen(*fleet(1, 4), agent="sac")
    assert found == {
        "actors.n_buffer": 16,
        "replay.samples_per_insert": 256.0,
        "learner.sync_interval": 16,
        "learner.eval_interval": 5000,
    }


def test_a_preset_names_all_that_the_fleet_would_decide() -> None:
    assert load_config(env="CartPole-v1", environment={}).choices == ()


def test_what_was_chosen_is_said_in_a_line_and_shown_with_its_keys() -> None:
    found = loaded()
    (line,) = [line for line in found.decided if line.startswith("chosen for")]
    assert line == (
        "chosen for 16 environments: linear exploration, batches of 16 transitions; in "
        "environment steps: a target network every 500, epsilon falls over 10,000, an optimization "
        "step every 2, a model every 16, an evaluation every 5,000"
    )
    assert "  actors.n_buffer = 16: batches of 16 transitions" in found.comment
    assert "  learner.sync_interval = 8: a model every 16 environment steps" in found.comment
    assert loaded(*fleet(1, 1)).decided[0].startswith("chosen for 1 environment: linear ")
    (line,) = [line for line in loaded(*fleet(8, 8)).decided if line.startswith("chosen for")]
    assert line.startswith("chosen for 64 environments: ladder exploration, batches of 64 ")
    by_hand = loaded("agent.exploration.kind=linear", "actors.n_buffer=16").decided
    assert any("16 environments: in environment steps" in line for line in by_hand)


def test_a_configuration_made_in_python_has_the_rest_chosen() -> None:
    made = loaded().config
    mine = RunConfig(
        env=made.env,
        agent=type(made.agent)(n_step=1),
        actors=ActorsConfig(count=100, envs_per_actor=8),
        learner=LearnerConfig(sync_interval=3),
    )
    found = complete_config(mine).config
    assert (found.actors.n_buffer, exploration_of(found)) == (96, "ladder")
    assert (found.learner.sync_interval, found.learner.eval_interval) == (3, 100_000)
    assert found.agent.n_step == 1


def test_a_run_that_goes_on_keeps_what_was_chosen_for_it(tmp_path: Path) -> None:
    saved = tmp_path / "config.toml"
    write_config(loaded().config, saved)
    again = load_config(saved=saved, settings=["actors.count=100"], environment={})
    assert again.choices == ()
    assert again.config.learner == loaded().config.learner
    assert exploration_of(again.config) == "linear"


def test_a_marked_count_is_at_least_one_and_keeps_its_bound() -> None:
    mark = EnvSteps("a model every {}", 16, 1, most=50)
    assert [mark.opt_steps(n, 4.0) for n in (1, 16, 100, 1000)] == [4, 4, 25, 50]
    assert mark.opt_steps(1, 1000.0) == 1


class OwnConfig(AgentConfig):
    env_steps_per_opt: ClassVar[float] = 5.0
    name: str = "mine:KIND"
    reset_interval: Annotated[int, EnvSteps("a reset every {}", 20_000, 1_000)] = 7


def test_an_agent_of_ones_own_marks_its_counts() -> None:
    actors = ActorsConfig(count=4, envs_per_actor=10)
    mine = RunConfig(env=loaded().config.env, agent=OwnConfig(), actors=actors)
    found = complete_config(mine)
    assert found.config.agent == OwnConfig(reset_interval=8_000)
    assert "agent.reset_interval = 8000: a reset every 40,000 environment steps" in found.comment
    set_by_hand = mine.model_copy(update={"agent": OwnConfig(reset_interval=7)})
    assert complete_config(set_by_hand).config.agent == OwnConfig(reset_interval=7)
