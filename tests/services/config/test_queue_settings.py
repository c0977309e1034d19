"""Settings of a queue: what an agent that learns from one gets, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from configurations import configured  # of tests/support

from vedette_rl.core import RowColumn
from vedette_rl.core.columns import SEQUENCE_KEYS
from vedette_rl.envs.make import environment_spaces
from vedette_rl.errors import RowColumnError
from vedette_services.config import RunConfig
from vedette_services.config.changes import changed_settings
from vedette_services.config.fleet_defaults import choose_for_fleet
from vedette_services.config.peer_settings import settings_for_peers
from vedette_services.config.without_effect import settings_without_effect
from vedette_services.errors import ConfigError
from vedette_services.run import replay_layout
from vedette_services.run.checks import check_settings, describe_sequences
from vedette_services.run.directory import RunDirectory
from vedette_services.run.replay_layout import make_run_limiter
from vedette_services.run.spans import describe_no_journal


def queue_of(*settings: str, agent: str = "appo") -> RunConfig:
    return configured("preset=none", *settings, env="CartPole-v1", agent=agent)


def test_an_agent_that_learns_from_a_queue_gets_one() -> None:
    replay = queue_of().replay
    assert (replay.kind, replay.sequence, replay.block, replay.passes) == ("queue", 64, 2048, 4)
    config = queue_of()
    assert config.actors.n_buffer == 64 * 8
    assert config.samples_per_opt == 256
    check_settings(config)
    assert describe_sequences(config) == (
        "a block is 2,048 samples, 32 runs of 64 steps; each is learned from 4 times, in batches "
        "of 256"
    )


def test_a_block_has_a_run_of_each_environment_of_a_large_fleet() -> None:
    config = queue_of("actors.count=8", "actors.envs_per_actor=16", "agent.batch_size=96")
    assert config.replay.block == 8256
    assert config.replay.block % 64 == config.replay.block % 96 == 0
    assert config.replay.block >= 8 * 16 * 64
    check_settings(config)


def test_what_is_set_stays() -> None:
    config = queue_of("replay.sequence=32", "replay.block=256", "replay.passes=20")
    assert (config.replay.block, config.replay.passes) == (256, 20)
    assert config.actors.n_buffer == 32 * 8
    check_settings(config)


def test_an_agent_with_memory_learns_from_whole_runs() -> None:
    config = queue_of("agent.memory=gru")
    replay = config.replay
    assert (replay.kind, replay.sequence, replay.burn_in, replay.block) == ("queue", 64, 0, 2048)
    assert config.agent.batch_size == 256, "samples, as without memory"
    check_settings(config)
    assert describe_sequences(config) == (
        "a block is 2,048 samples, 32 runs of 64 steps; each is learned from 4 times, in batches "
        "of 4 whole runs"
    )
    settings_of_memory = (
        "agent.memory",
        "agent.memory_size",
        "replay.sequence",
        "agent.memory_dtype",
    )
    assert not [
        line
        for line in settings_without_effect(config, None)
        if any(key in line for key in settings_of_memory)
    ]


def test_it_is_said_how_many_runs_are_played_on_each_model() -> None:
    strict = queue_of("replay.strict=true", "actors.count=2")
    check_settings(strict)
    assert describe_sequences(strict).endswith(
        "in batches of 256; 16 environments play 2 of these on each model, and wait"
    )
    three = queue_of("replay.strict=true", "actors.count=3")
    assert describe_sequences(three).endswith(
        "24 environments play 2 of these on each model, and wait: 16 of 48 in vain, unless "
        "replay.block is a multiple of 1,536"
    )


def test_strict_is_without_effect_where_it_is() -> None:
    (line,) = settings_without_effect(queue_of("replay.strict=true", agent="dqn"), None)
    assert line == "without effect: replay.strict=true, because replay.kind is random"
    assert list(settings_without_effect(queue_of("replay.strict=true"), None)) == []


def test_parts_of_runs_are_refused_to_an_agent_with_memory() -> None:
    check_settings(queue_of("agent.batch_size=32"))
    with pytest.raises(ConfigError) as refused:
        check_settings(queue_of("agent.memory=gru", "agent.batch_size=32"))
    assert str(refused.value) == (
        "agent.batch_size: is 32, and agent 'appo' with memory learns from whole runs; "
        "set a multiple of replay.sequence=64, such as 64"
    )


def test_other_agents_have_none() -> None:
    replay = queue_of(agent="dqn").replay
    assert (replay.kind, replay.block, replay.sequence) == ("random", 0, 0)


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        (
            ("replay.capacity=2500",),
            "replay.capacity: is 2,500: a block (replay.block=2,048) and a batch "
            "(actors.n_buffer=512) must fit beside each other, or both sides would wait for ever; "
            "set 2559 or more",
        ),
        (
            ("replay.block=1000",),
            "replay.block: is 1,000; set a multiple of replay.sequence=64 and of "
            "agent.batch_size=256, such as 1,024",
        ),
        (
            ("actors.n_buffer=100",),
            "actors.n_buffer: is 100: a queue's batch is one run of each environment; set 512 "
            "(replay.sequence=64 x actors.envs_per_actor=8)",
        ),
        (("learner.save_interval=0",), "learner.save_interval: is 0: rows of a queue are"),
        (("replay.prioritized=true",), "replay.prioritized: a queue draws in the order of rows"),
        (
            ("learner.ranks=2",),
            "learner.ranks: is 2, and a queue (replay.kind) is drawn from in order, by one process",
        ),
        (
            ("learner.ranks=2", "agent.memory=gru"),
            "learner.ranks: is 2, and a queue (replay.kind) is drawn from in order, by one process",
        ),
        (
            ("learner.snapshot=/s",),
            "learner.snapshot: rows of a queue (replay.kind) are overwritten once they were",
        ),
        (("replay.burn_in=3",), "replay.burn_in: runs of a queue have no burn-in; leave it out"),
        (("replay.frame_storage=once",), "replay.frame_storage: a queue stores observations whole"),
        (
            ("replay.strict=true", "replay.max_lag=5"),
            "replay.max_lag: replay.strict is a lag of 0 by itself; leave it out",
        ),
        (
            ("replay.strict=true", "replay.ahead=64"),
            "replay.ahead: with replay.strict no samples wait; leave it out",
        ),
        (
            ("replay.strict=true", "learner.model_dtype=float16"),
            "learner.model_dtype: with replay.strict the model that acts is the one that learns",
        ),
        (("replay.sequence=0",), "replay.sequence: is 0, and a queue has runs of steps; set 64"),
        (("replay.kind=random",), "replay.kind: is random, and agent 'appo' learns from a queue"),
    ],
)
def test_what_does_not_go_together_is_refused(settings: tuple[str, ...], why: str) -> None:
    with pytest.raises(ConfigError) as refused:
        check_settings(queue_of(*settings))
    assert why in str(refused.value)


def test_the_least_capacity_is_taken() -> None:
    check_settings(queue_of("replay.capacity=2559"))


def test_a_queue_is_refused_to_agents_that_draw_samples_and_to_own_loops() -> None:
    with pytest.raises(ConfigError, match=r"replay\.kind: is queue, and agent 'dqn' learns from"):
        check_settings(queue_of("replay.kind=queue", agent="dqn"))
    with pytest.raises(ConfigError, match="a training loop of your own"):
        check_settings(queue_of(), learns=False)


def test_settings_of_the_other_kind_are_without_effect() -> None:
    lines = list(settings_without_effect(queue_of("learner.warmup_period=500"), None))
    assert lines == [
        "without effect: learner.warmup_period=500, because replay.kind is queue: each sample is "
        "drawn replay.passes times"
    ]
    lines = list(settings_without_effect(queue_of("replay.max_lag=5", agent="dqn"), None))
    assert lines == ["without effect: replay.max_lag=5, because replay.kind is random"]


def test_actors_are_told_to_play_in_runs() -> None:
    assert settings_for_peers(queue_of().actors_of_peers)["run_length"] == 64
    assert "run_length" not in settings_for_peers(queue_of(agent="dqn").actors_of_peers)


def test_no_limiter_has_a_part_and_the_fleet_counts_passes() -> None:
    config, _ = choose_for_fleet(queue_of())
    assert make_run_limiter(config).samples_per_insert == 0.0
    assert config.replay.samples_per_insert is None
    assert config.learner.sync_interval == 1, "64 environment steps: 256 samples by 4 passes"


def test_the_kind_is_stored_and_its_numbers_are_not() -> None:
    other = queue_of("replay.sequence=32", "replay.block=512", "replay.passes=1")
    changed = {change.key: change.stored_in for change in changed_settings(queue_of(), other)}
    assert changed["replay.block"] == changed["replay.passes"] == frozenset()
    random = queue_of()
    random = random.model_copy(
        update={"replay": random.replay.model_copy(update={"kind": "random"})}
    )
    changed = {change.key: change.stored_in for change in changed_settings(queue_of(), random)}
    assert changed["replay.kind"] == {"samples"}


def test_why_it_cannot_be_executed_again_is_said(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    run.make()
    run.ensure_id()
    run.config_file.write_text('[replay]\nkind = "queue"\n')
    assert describe_no_journal(run).startswith("replay.kind is queue: which looks took the rows")


@pytest.mark.parametrize("name", ["run", "chosen"])
def test_names_of_a_queues_own_columns_are_taken(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    declared = (*SEQUENCE_KEYS, RowColumn(name))
    monkeypatch.setattr(replay_layout, "configured_columns", lambda config, spaces: declared)
    spaces = environment_spaces(queue_of().env)
    with pytest.raises(RowColumnError, match="rows of a queue have it already: rename it"):
        replay_layout.replay_layout(queue_of(), spaces)
    replay_layout.replay_layout(queue_of("replay.sequence=4", agent="dqn"), spaces)
