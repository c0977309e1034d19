"""Settings of sequences: what is refused, what they change, and what of them is stored."""

from __future__ import annotations

from pathlib import Path

import pytest
from configurations import configured

from vedette_rl.agents.dqn.config import DqnConfig
from vedette_rl.core.agent_config import AgentConfig
from vedette_rl.replay.config import ReplayConfig
from vedette_services.config import load_config
from vedette_services.config.changes import changed_settings
from vedette_services.config.fleet_defaults import FleetSize, choose_for_fleet
from vedette_services.config.parts import ActorsConfig, LearnerConfig
from vedette_services.config.run_config import RunConfig
from vedette_services.errors import ManySettingsError, SettingError
from vedette_services.run.checks import check_settings, describe_sequences
from vedette_services.run.replay_layout import make_run_limiter

SEQUENCES = ReplayConfig(sequence=40, burn_in=20, samples_per_insert=8.0)


class Remembering(AgentConfig):
    """The configuration of an agent that learns from sequences."""

    learns_sequences = True
    name: str = "mine:KIND"


def run_of(
    replay: ReplayConfig = SEQUENCES,
    agent: AgentConfig | None = None,
    actors: ActorsConfig | None = None,
    learner: LearnerConfig | None = None,
) -> RunConfig:
    return RunConfig(
        env=configured(env="CartPole-v1").env,
        agent=agent or Remembering(),
        replay=replay,
        actors=actors or ActorsConfig(),
        learner=learner or LearnerConfig(),
    )


def dqn(*settings: str) -> RunConfig:
    """DQN's own defaults, without a preset's."""
    return configured("preset=none", *settings, env="CartPole-v1", agent="dqn")


def refused(config: RunConfig, *, learns: bool = True) -> list[str]:
    try:
        check_settings(config, learns=learns)
    except SettingError as error:
        return [str(error)]
    except ManySettingsError as error:
        return [str(one) for one in error.errors]
    return []


@pytest.mark.parametrize("agent", ["dqn", "iqn", "sac", "td3"])
def test_an_agent_that_learns_from_single_samples_refuses_sequences(agent: str) -> None:
    env = "CartPole-v1" if agent in ("dqn", "iqn") else "Pendulum-v1"
    config = configured("replay.sequence=8", env=env, agent=agent)
    (line,) = refused(config)
    assert line == (
        f"replay.sequence: agent {agent!r} learns from single samples, and not from sequences; "
        "set 0, or agent.memory=gru"
    )
    assert refused(config, learns=False) == []  # a training loop of the user's draws them


def test_an_agent_that_says_so_learns_from_them() -> None:
    assert refused(run_of()) == []


@pytest.mark.parametrize(
    ("config", "why"),
    [
        (
            run_of(actors=ActorsConfig(step_processor="her")),
            "replay.sequence: sequences are of single steps, and actors.step_processor 'her' may",
        ),
        (
            run_of(learner=LearnerConfig(ranks=2)),
            "learner.ranks: is 2, and sequences (replay.sequence) are drawn by one process alone; "
            "set 1, or replay.sequence=0",
        ),
        (
            run_of(agent=DqnConfig(memory="gru"), learner=LearnerConfig(ranks=2)),
            "learner.ranks: is 2, and sequences (agent.memory) are drawn by one process alone; "
            "set 1, or agent.memory=none",
        ),
    ],
)
def test_what_sequences_do_not_go_together_with_is_refused(config: RunConfig, why: str) -> None:
    (line,) = refused(config)
    assert line.startswith(why)


def test_a_batch_of_sequences_may_have_more_samples_than_the_replay() -> None:
    few = SEQUENCES.model_copy(update={"capacity": 1000})  # of 64 x 40
    learner = LearnerConfig(warmup_period=10)
    assert refused(run_of(few, Remembering(batch_size=64), learner=learner)) == []


def test_a_sequence_counts_as_so_many_samples() -> None:
    config = run_of()
    assert config.samples_per_opt == 32 * 40
    limiter = make_run_limiter(config)
    assert limiter.batch_size == 32 * 40
    assert run_of(ReplayConfig()).samples_per_opt == 32
    assert config.row_steps == 1


def test_the_start_says_what_a_batch_is() -> None:
    said = "a batch is 32 sequences of 40 steps"
    assert describe_sequences(run_of()) == f"{said} behind up to 20 of burn-in: 1,280 samples"
    alone = SEQUENCES.model_copy(update={"burn_in": 0})
    assert describe_sequences(run_of(alone)) == f"{said}: 1,280 samples"
    assert describe_sequences(run_of(ReplayConfig())) == ""


def test_the_ratio_that_is_not_set_is_the_agents_own_and_steps_are_as_many_times_rarer() -> None:
    replay = ReplayConfig(sequence=40, burn_in=20)
    chosen, choices = choose_for_fleet(run_of(replay))
    assert chosen.replay.samples_per_insert == 32 / 4
    (ratio,) = [choice for choice in choices if choice.key == "replay.samples_per_insert"]
    assert ratio.why == "an optimization step every 160 environment steps"


def test_their_length_may_change_and_whether_there_are_any_is_stored() -> None:
    def stored(before: RunConfig, now: RunConfig) -> dict[str, frozenset[str]]:
        return {change.key: change.stored_in for change in changed_settings(before, now)}

    longer = run_of(SEQUENCES.model_copy(update={"sequence": 80, "burn_in": 0}))
    assert stored(run_of(), longer) == {"replay.sequence": frozenset(), "replay.burn_in": set()}
    none = run_of(SEQUENCES.model_copy(update={"sequence": 0}))
    for before, now in ((run_of(), none), (none, run_of())):
        assert stored(before, now) == {"replay.sequence": {"samples"}}
    (change,) = changed_settings(none, run_of())
    assert str(change.refusal(Path("runs/a"), {"samples"})) == (
        "replay.sequence: the run in runs/a has samples made with 0, not 40; set "
        "replay.sequence=0, choose another --out, or begin an empty replay with --new-replay"
    )


def test_steps_of_a_return_are_in_no_sample_of_sequences() -> None:
    def stored(replay: ReplayConfig) -> frozenset[str]:
        before, now = (run_of(replay, Remembering(n_step=n)) for n in (1, 3))
        (change,) = changed_settings(before, now)
        return change.stored_in

    assert stored(SEQUENCES) == frozenset()
    assert stored(ReplayConfig()) == {"samples"}


def test_an_agent_with_memory_draws_sequences_where_none_are_set() -> None:
    config = dqn("agent.memory=gru")
    assert (config.replay.sequence, config.replay.burn_in) == (40, 20)
    assert config.agent.batch_size == 32
    assert refused(config) == []
    given = dqn("agent.memory=gru", "replay.sequence=8")
    assert (given.replay.sequence, given.replay.burn_in) == (8, 20)
    without = dqn()
    assert (without.replay.sequence, without.replay.burn_in) == (0, 0)
    assert without.agent.batch_size == 128


def test_an_agent_with_memory_draws_as_many_rows_for_each_as_one_without() -> None:
    """32 sequences of 40 rows every 20 environment steps: 64 for each, DQN's own."""
    config, without = dqn("agent.memory=gru"), dqn()
    assert config.replay.samples_per_insert == without.replay.samples_per_insert == 64.0
    assert FleetSize.of(config).env_steps_per_opt == 20.0


@pytest.mark.parametrize(("agent", "env"), [("iqn", "CartPole-v1"), ("sac", "Pendulum-v1")])
def test_every_agent_has_a_memory_that_draws_sequences(agent: str, env: str) -> None:
    config = configured("agent.memory=gru", "preset=none", env=env, agent=agent)
    assert (config.replay.sequence, config.replay.burn_in) == (40, 20)
    assert config.agent.batch_size == 32
    assert refused(config) == []


def test_a_replay_without_room_for_a_sequence_of_each_environment_is_refused() -> None:
    """Such a run played to its end and learned nothing."""
    fleet = ["agent.memory=gru", "actors.count=2", "actors.envs_per_actor=16"]
    small = ["replay.capacity=1000", "learner.warmup_period=500", "preset=none"]
    (line,) = refused(dqn(*fleet, *small))
    assert line == (
        "replay.capacity: 1,000 samples are 31 steps of each of 32 environments (actors.count 2 x "
        "envs_per_actor 16), and a sequence has 40 (replay.sequence); set at least 1920 to have "
        "burn-in, too, or lower replay.sequence or the fleet"
    )
    assert refused(dqn(*fleet, *small, "replay.sequence=30")) == []
    assert refused(dqn(*small, "actors.count=2", "actors.envs_per_actor=600")) == []


def test_a_preset_for_single_samples_does_not_count_sequences() -> None:
    """Its batch of 256 would be of 256 sequences of 40."""
    loaded = load_config(
        env="Pendulum-v1", agent="sac", settings=["agent.memory=gru"], environment={}
    )
    config = loaded.config
    assert config.agent.batch_size == 32
    assert config.replay.samples_per_insert == 256.0
    assert config.agent.learning_rate == 1e-3, "the rest is the preset's"
    (line,) = [line for line in loaded.decided if "preset" in line]
    assert line == (
        "the preset sac-Pendulum-v1 is for an agent without memory: its agent.batch_size and "
        "replay.samples_per_insert are left out"
    )
    own = load_config(
        env="Pendulum-v1",
        agent="sac",
        settings=["agent.memory=gru", "agent.batch_size=8"],
        environment={},
    )
    assert own.config.agent.batch_size == 8
    without = load_config(env="Pendulum-v1", agent="sac", environment={})
    assert without.config.agent.batch_size == 256
    assert not without.left_out


def test_an_agent_with_memory_refuses_single_samples() -> None:
    single = dqn("agent.memory=gru", "replay.sequence=0")
    (line,) = refused(single)
    assert line == (
        "replay.sequence: is 0, and agent 'dqn' with memory learns from sequences; "
        "set 40, or agent.memory=none"
    )


@pytest.mark.parametrize(
    ("setting", "why"),
    [
        ("replay.capacity=50", "sequences have up to 60 steps"),
        ("replay.initial_priorities=actor", "actors know no priorities of sequences"),
    ],
)
def test_sequences_that_nobody_set_are_refused_as_others_are(setting: str, why: str) -> None:
    of_run = ["agent.memory=gru", "replay.prioritized=true", setting]
    with pytest.raises((SettingError, ManySettingsError), match=why):
        dqn(*of_run)


def test_the_kind_of_numbers_of_a_memory_is_stored_in_samples_alone() -> None:
    before, now = dqn("agent.memory=gru"), dqn("agent.memory=gru", "agent.memory_dtype=float16")
    (change,) = changed_settings(before, now)
    assert (change.key, set(change.stored_in)) == ("agent.memory_dtype", {"samples"})


def test_r2d2s_settings_lie_over_the_preset_of_an_atari_game() -> None:
    path = Path(__file__).parents[3] / "docs" / "examples" / "r2d2.toml"
    loaded = load_config(path, env="ALE/MsPacman-v5", environment={})
    config = loaded.config
    assert loaded.preset == "dqn-ALE/MsPacman-v5"
    agent = config.agent
    assert isinstance(agent, DqnConfig)
    assert (agent.core_size, agent.n_step, agent.batch_size) == (512, 5, 64)
    assert agent.value_rescaling
    assert agent.dueling
    assert loaded.left_out == ("replay.samples_per_insert",)
    assert (config.replay.sequence, config.replay.burn_in) == (80, 40)
    assert (config.replay.prioritized, config.replay.alpha) == (True, 0.9)
    assert config.env.reward_clip == 0
    assert len(config.env.wrappers) == 2, "the preset's"
    assert refused(config) == []


def test_memory_is_stored_in_weights_and_samples() -> None:
    plain = dqn()
    memory = dqn("agent.memory=gru", "agent.memory_size=64")
    stored = {change.key: change.stored_in for change in changed_settings(plain, memory)}
    assert set(stored["agent.memory"]) == set(stored["agent.memory_size"]) == {"weights", "samples"}
    assert set(stored["replay.sequence"]) == {"samples"}
