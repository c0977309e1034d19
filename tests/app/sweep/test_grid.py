"""Which runs a sweep is made of, and which of them are over."""

import json
import math
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from run_directories import new_run

from vedette.sweep import (
    Sweep,
    describe_starts,
    exit_status,
    parse_sweep,
    plan_starts,
    plan_trials,
)
from vedette.sweep.jobs import Trial, describe_result
from vedette_services.config import RunConfig, StopConfig, load_config, write_config
from vedette_services.config.loading import LoadedConfig
from vedette_services.errors import ConfigError, SettingError, UsageError
from vedette_services.run.start import RESUME, Start
from vedette_services.run.sweep_files import CONFIGURED
from vedette_services.status.schema import decode
from vedette_services.status.status import Status
from vedette_services.status.stop_conditions import is_over


def configure(changes: Mapping[str, Any], saved: Path | None) -> LoadedConfig:
    settings = [f"{key}={value}" for key, value in changes.items()]
    return load_config(settings=settings, saved=saved, environment={})


def config_of(changes: Mapping[str, Any]) -> RunConfig:
    return configure(changes, None).config


def test_seeds_count_on_from_the_configured_one(tmp_path: Path) -> None:
    trials = plan_trials(lambda c, saved: configure({"seed": 5, **c}, saved), tmp_path, seeds=3)
    assert [(trial.name, trial.config.seed) for trial in trials] == [
        ("seed-5", 5),
        ("seed-6", 6),
        ("seed-7", 7),
    ]
    assert trials[2].out == tmp_path / "seed-7"


def test_every_combination_is_run_and_a_first_seed_of_all_before_a_second(tmp_path: Path) -> None:
    sweep = {"agent.learning_rate": ["1e-3", "3e-4"], "agent.n_step": ["1"]}
    trials = plan_trials(configure, tmp_path, seeds=2, sweep=sweep)
    assert [trial.name for trial in trials] == [
        "agent.learning_rate=1e-3,agent.n_step=1/seed-0",
        "agent.learning_rate=3e-4,agent.n_step=1/seed-0",
        "agent.learning_rate=1e-3,agent.n_step=1/seed-1",
        "agent.learning_rate=3e-4,agent.n_step=1/seed-1",
    ]
    assert [trial.config.agent.learning_rate for trial in trials] == [1e-3, 3e-4] * 2


def test_a_swept_agent_has_its_own_preset(tmp_path: Path) -> None:
    dqn, iqn = plan_trials(configure, tmp_path, sweep={"agent.name": ["dqn", "iqn"]})
    assert (dqn.config.agent.name, iqn.config.agent.name) == ("dqn", "iqn")
    assert type(dqn.config.agent) is not type(iqn.config.agent)


def test_a_trial_that_exists_keeps_its_settings(tmp_path: Path) -> None:
    saved = config_of({"seed": 1, "agent.batch_size": 8})
    new_run(tmp_path / "seed-1", saved)
    first, second = plan_trials(configure, tmp_path, seeds=2)
    assert first.config.agent.batch_size == 64
    assert second.config == saved
    _, again = plan_trials(configure, tmp_path, Start.of(fresh=True), seeds=2)
    assert again.config.agent.batch_size == 64


def folders(out: Path, key: str, *values: str) -> dict[str, str]:
    """The folder of each value that is swept."""

    def configured(changes: Mapping[str, Any], _: Path | None) -> LoadedConfig:
        return configure({"env.kwargs.swept": json.dumps(changes.get(key, ""))}, None)

    trials = plan_trials(configured, out, sweep={key: values})
    return {trial.changes[key]: trial.name.removesuffix("/seed-0") for trial in trials}


def test_names_of_folders_are_safe_and_different(tmp_path: Path) -> None:
    found = folders(tmp_path, "env.id", "CartPole-v1", "../x:E-v0", ".._x:E-v0")
    assert found["CartPole-v1"] == "env.id=CartPole-v1"
    one, other = found["../x:E-v0"], found[".._x:E-v0"]
    assert one != other
    for name in (one, other):
        assert name.startswith("env.id=.._x_E-v0-")
        assert "/" not in name


def test_a_grid_that_grows_gives_each_combination_the_folder_of_before(tmp_path: Path) -> None:
    """A name that is cut says too little: it may not be numbered by its place in the grid."""
    same = "x" * 200
    before = folders(tmp_path, "env.kwargs.map", f"{same}1", f"{same}2")
    after = folders(tmp_path, "env.kwargs.map", f"{same}0", f"{same}2", f"{same}1")
    assert before.items() < after.items()
    assert len(set(after.values())) == 3
    assert folders(tmp_path, "env.kwargs.map", f"{same}2").items() < before.items()
    assert all(len(name) == 120 for name in after.values())


def test_a_folder_with_another_value_is_not_taken_as_ones_own(tmp_path: Path) -> None:
    """What no name of a folder has is ``_`` there, and so is what is swept later."""
    sweep = {"learner.snapshot": [str(tmp_path / "a b")]}
    (first,) = plan_trials(configure, tmp_path / "out", sweep=sweep)
    new_run(first.out, first.config)
    plan_starts([first], RESUME)
    (other,) = plan_trials(
        configure, tmp_path / "out", sweep={"learner.snapshot": [str(tmp_path / "a:b")]}
    )
    assert other.out == first.out
    with pytest.raises(
        SettingError, match=r"it holds a run with learner\.snapshot=.*/a b, not .*/a:b"
    ):
        plan_starts([other], RESUME)
    fresh = Start.of(fresh=True, force=True)
    assert [trial.out for trial in plan_starts([other], fresh)] == [first.out]


def test_what_is_not_swept_may_differ_as_at_any_resume(tmp_path: Path) -> None:
    sweep = {"agent.learning_rate": ["1e-3"]}
    (first,) = plan_trials(configure, tmp_path, sweep=sweep)
    new_run(first.out, first.config)
    (again,) = plan_trials(
        lambda c, saved: configure({**c, "agent.adam_eps": 0.5}, saved), tmp_path, sweep=sweep
    )
    (planned,) = plan_starts([again], RESUME)
    assert planned.plan is not None
    assert [change.key for change in planned.plan.changes] == ["agent.adam_eps"]


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("a.b=1,2", ["1", "2"]),
        ("a.b=[64, 64],[128,128]", ["[64, 64]", "[128,128]"]),
        ("a.b='x,y',z", ["'x,y'", "z"]),
        ("a.b=1,", ["1"]),
    ],
)
def test_commas_part_values(text: str, values: list[str]) -> None:
    assert parse_sweep([text]) == {"a.b": values}


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (["nonsense"], "--sweep nonsense: write KEY=VALUE,VALUE"),
        (["=3"], "write KEY=VALUE,VALUE"),
        (["a.b="], "--sweep a.b=: write KEY=VALUE,VALUE"),
        (["a=1", "a=2"], "a is swept twice"),
    ],
)
def test_what_is_no_sweep_is_refused(texts: list[str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        parse_sweep(texts)


def test_a_sweep_that_cannot_work_is_refused_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="sweep: seed has no values: give some"):
        plan_trials(configure, tmp_path, sweep={"seed": []})
    with pytest.raises(UsageError, match="2,000 runs are more than 1,000"):
        plan_trials(configure, tmp_path, seeds=1000, sweep={"agent.n_step": ["1", "2"]})
    with pytest.raises(ConfigError, match="did you mean"):
        plan_trials(configure, tmp_path, sweep={"agent.lerning_rate": ["1"]})
    (tmp_path / "run.json").touch()
    with pytest.raises(UsageError, match="already contains a single run"):
        plan_trials(configure, tmp_path)
    new_run(tmp_path / "seed-0", config_of({}))
    assert len(plan_trials(configure, tmp_path, seeds=2)) == 2


@pytest.mark.parametrize(
    ("seeds", "sweep", "said"),
    [
        (
            1,
            {"agent.learning_rate": ["1e-3", "1e-3"]},
            "with seed 0, agent.learning_rate=1e-3 is there twice; leave one out",
        ),
        (
            1,
            {"agent.n_step": ["1", "2"], "agent.learning_rate": ["1e-3", "0.001"]},
            "with seed 0, agent.n_step=1,agent.learning_rate=1e-3 and "
            "agent.n_step=1,agent.learning_rate=0.001 are the same; leave one out",
        ),
        (
            2,
            {"seed": ["1", "2"]},
            "seed=2 and a further seed of seed=1 are both seed 2; sweep seed or give a number of "
            "seeds, not both",
        ),
        (2, {"seed": ["1", "0x1"]}, "with seed 1, seed=1 and seed=0x1 are the same; leave one out"),
    ],
)
def test_trials_that_would_train_the_same_are_refused(
    tmp_path: Path, seeds: int, sweep: dict[str, list[str]], said: str
) -> None:
    with pytest.raises(UsageError) as error:
        plan_trials(configure, tmp_path / "out", seeds=seeds, sweep=sweep)
    assert str(error.value) == f"sweep: {said}"
    assert not (tmp_path / "out").exists()


def test_values_that_json_does_not_have_are_different_trials(tmp_path: Path) -> None:
    sweep = {"env.kwargs.limit": ["inf", "-inf", "[inf]", "[-inf]"]}
    trials = plan_trials(configure, tmp_path, sweep=sweep)
    limits = [trial.config.env.kwargs["limit"] for trial in trials]
    assert limits == [math.inf, -math.inf, [math.inf], [-math.inf]]


def test_swept_seeds_that_lie_apart_may_be_counted(tmp_path: Path) -> None:
    trials = plan_trials(configure, tmp_path, seeds=2, sweep={"seed": ["1", "10"]})
    assert sorted(trial.config.seed for trial in trials) == [1, 2, 10, 11]


def test_the_failure_of_one_of_two_trials_with_one_name_is_kept(tmp_path: Path) -> None:
    config = config_of({})
    trials = [Trial("seed-0", config, tmp_path / place) for place in ("a", "b")]

    def command(*arguments: str) -> list[str]:
        fails = arguments[arguments.index("--out") + 1] == str(tmp_path / "a")
        return [sys.executable, "-c", f"raise SystemExit({3 if fails else 0})"]

    outcomes = Sweep(trials, tmp_path, command=command).run()
    assert [outcome.status for outcome in outcomes] == [3, 0]
    assert exit_status(outcomes) == 3


def test_a_folder_of_somebody_else_takes_no_sweep(tmp_path: Path) -> None:
    notes = tmp_path / "notes.txt"
    notes.write_text("mine")
    with pytest.raises(
        SettingError, match=r"it holds 'notes\.txt', and no run of ours; name a new"
    ):
        plan_trials(configure, tmp_path)
    new_run(tmp_path / "seed-0")
    plan_trials(configure, tmp_path)  # notes beside runs
    page = tmp_path / "report.html"
    page.write_text("mine")
    with pytest.raises(SettingError, match="did not write this file; name another file with"):
        plan_trials(configure, tmp_path)
    page.write_text("<footer>Written by vedette 0.2.0")
    plan_trials(configure, tmp_path)


def test_a_sweep_that_was_killed_before_its_first_run_goes_on(tmp_path: Path) -> None:
    (tmp_path / "sweep").mkdir()
    write_config(config_of({}), tmp_path / "sweep" / "seed-0.toml", f"{CONFIGURED} seed-0")
    plan_trials(configure, tmp_path)
    (tmp_path / "sweep" / "seed-0.toml").write_text("# mine")
    with pytest.raises(SettingError, match="it holds 'sweep', and no run of ours"):
        plan_trials(configure, tmp_path)


def test_what_the_starts_of_a_sweep_say_is_said_once(tmp_path: Path) -> None:
    """As `vedette run` says it of one: what was decided, has changed, or changes nothing."""
    given = {"replay.alpha": 0.5, "agent.adam_eps": 0.5}
    sweep = {"agent.double": ["true", "false"], "agent.munchausen.alpha": [0.9]}

    def said(start: Start = RESUME) -> list[str]:
        trials = plan_trials(
            lambda changes, saved: configure({**given, **changes}, saved), tmp_path, sweep=sweep
        )
        return [*describe_starts(plan_starts(trials, start), tmp_path, start)]

    lines = said()
    unused = "without effect: replay.alpha=0.5, because replay.prioritized is false"
    assert lines.count(unused) == 1
    assert "from the preset dqn-CartPole-v1" in lines
    one = "agent.double=false,agent.munchausen.alpha=0.9/seed-0"
    (of_one,) = [line for line in lines if "agent.double=false" in line]
    assert of_one.startswith(f"{one}: without effect: agent.double=false, because")
    assert any(line.endswith(f"{tmp_path}/*/replay") for line in lines)

    changes = {"agent.double": "false", "agent.munchausen.alpha": 0.9}
    new_run(tmp_path / one, config_of({**given, **changes, "agent.adam_eps": 0.25}))
    assert any(line.startswith(f"{one}: changed agent.adam_eps: 0.25 -> 0.5") for line in said())
    assert not any("changed" in line for line in said(Start.of(fresh=True, force=True)))


def test_what_a_finished_trial_does_not_take_is_said(tmp_path: Path) -> None:
    config = config_of({"stop.max_opts": 5})
    run = new_run(tmp_path / "seed-0", config)
    summary = {"exit_reason": "max_opts", "opt_steps": 5, "env_steps": 9}
    (run.root / "summary.json").write_text(json.dumps(summary))

    def outcome_with(**changed: Any) -> str:
        trials = plan_trials(
            lambda _, saved: configure({"stop.max_opts": 5, **changed}, saved), tmp_path
        )
        heard: list[str] = []
        idle = [sys.executable, "-c", ""]
        Sweep(
            plan_starts(trials, RESUME), tmp_path, say=heard.append, command=lambda *_: idle
        ).run()
        return heard[0]

    assert outcome_with().endswith(
        "seed-0: over already: done after 9 env steps, best evaluation -"
    )
    assert outcome_with(**{"agent.learning_rate": 0.5}).endswith(
        "best evaluation -; not applied, because the run is over: agent.learning_rate: 0.004 -> 0.5"
    )
    assert "seed-0: begins" in outcome_with(**{"evaluation.episodes": 7})  # a new best begins


def test_the_end_of_a_seed_says_that_an_evaluation_was_not_confirmed(tmp_path: Path) -> None:
    evaluation = {"return_mean": 495.5, "best_return_mean": 319.5}
    ended = {"exit_reason": "max_env_steps", "env_steps": 50, "eval": evaluation}
    summary = json.dumps({**ended, "stop": {"target_return": 475.0}})
    (tmp_path / "summary.json").write_text(summary)
    assert describe_result(Trial("seed-0", config_of({}), tmp_path)) == (
        "done after 50 env steps, best evaluation 319.5; not solved: an evaluation of "
        "495.5 is at the target return of 475, and was not confirmed on fresh episodes"
    )


@pytest.mark.parametrize(
    ("summary", "stop", "over"),
    [
        ({}, {"max_opts": 5}, False),
        ({"exit_reason": "interrupted", "opt_steps": 9}, {"max_opts": 5}, False),
        ({"exit_reason": "", "opt_steps": 9}, {"max_opts": 5}, False),
        ({"exit_reason": "max_opts", "opt_steps": 5}, {"max_opts": 5}, True),
        ({"exit_reason": "max_opts", "opt_steps": 5}, {"max_opts": 6}, False),
        ({"exit_reason": "max_opts", "opt_steps": 5}, {}, False),
        ({"exit_reason": "max_env_steps", "env_steps": 8}, {"max_env_steps": 7}, True),
        ({"exit_reason": "max_seconds", "seconds": 10.1}, {"max_seconds": 10.0}, True),
        (
            {"exit_reason": "target_return", "eval": {"best_return_mean": 5.0}},
            {"target_return": 5.0},
            True,
        ),
        (
            {"exit_reason": "target_return", "eval": {"best_return_mean": 5.0}},
            {"target_return": 6.0},
            False,
        ),
        ({"exit_reason": "target_return", "eval": None}, {"target_return": 6.0}, False),
    ],
)
def test_a_run_is_over_where_it_has_done_what_is_asked_for_now(
    summary: dict[str, Any], stop: dict[str, Any], over: bool
) -> None:
    found = decode(Status, json.dumps(summary).encode()) or Status()
    assert is_over(found, StopConfig.model_validate(stop)) is over
