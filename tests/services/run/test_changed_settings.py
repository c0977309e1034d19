"""A resume keeps the run's settings, says what changed, and mixes no samples made otherwise."""

import json
import os
import re
import shutil
import sys
from itertools import count
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from configurations import configured
from starts import lines_of_start, plan, prepared
from test_checks import SMALL, config_of, make_run, refusal  # beside this file

from vedette_protocol.account import SampleAccounting
from vedette_protocol.ledger import Ledger
from vedette_rl.envs.make import environment_spaces
from vedette_rl.envs.spaces import transition_dtype
from vedette_rl.replay.commits import COMMITS, last_commit
from vedette_rl.replay.ring import RingWriter
from vedette_rl.storage.state_file import write_state
from vedette_services.config import RunConfig, load_config, read_config
from vedette_services.errors import RunChangedError
from vedette_services.run import replay_layout
from vedette_services.run.directory import RunDirectory
from vedette_services.run.events import read_events
from vedette_services.run.prepare import prepare_start, settings_to_resume
from vedette_services.run.replay_layout import replay_directory, ring_dtype
from vedette_services.run.resume import saved_config
from vedette_services.run.ring_stamp import ActorNumbers, pack_stamp, read_counts, read_stamp
from vedette_services.run.start import RESUME, Start
from vedette_services.run.start_plan import StartPlan
from vedette_services.run.status_files import read_best

STORED = [
    ("env.reward_scale=10.0", "0.05"),
    ("env.reward_clip=1.0", "0.0"),
    ("env.kwargs={sutton_barto_reward=true}", "{}"),
    ("env.wrappers=['gymnasium.wrappers:FlattenObservation']", "[]"),
    ("agent.n_step=5", "10"),
]


def again(out: Path, *settings: str) -> RunConfig:
    """The configuration of a start that names these settings alone."""
    return configured(*settings, saved=settings_to_resume(out, RESUME))


@pytest.mark.parametrize(("setting", "before"), STORED)
def test_a_setting_that_is_in_stored_samples_is_refused_by_name(
    tmp_path: Path, setting: str, before: str
) -> None:
    make_run(tmp_path, config_of())
    key = setting.partition("=")[0]
    said = refusal(config_of(setting), tmp_path)
    assert said.startswith(f"{key}: the run in {tmp_path} has samples made with {before}, not ")
    assert said.endswith("or begin an empty replay with --new-replay")
    lines_of_start(config_of(setting), tmp_path, new_replay=True)


def test_a_discount_is_in_sums_over_several_steps_only(tmp_path: Path) -> None:
    make_run(tmp_path / "one", config_of("agent.n_step=1"))
    lines_of_start(config_of("agent.n_step=1", "agent.discount=0.9"), tmp_path / "one")
    make_run(tmp_path / "three", config_of("agent.n_step=3"))
    said = refusal(config_of("agent.n_step=3", "agent.discount=0.9"), tmp_path / "three")
    assert said.startswith("agent.discount: ")


def test_samples_without_a_checkpoint_are_not_mixed_either(tmp_path: Path) -> None:
    run = make_run(tmp_path, config_of())
    for place in (run.checkpoints / "1234").iterdir():
        place.unlink()
    assert "env.reward_scale" in refusal(config_of("env.reward_scale=2.0"), tmp_path)
    lines_of_start(config_of("agent.hidden_sizes=[9]"), tmp_path)  # there are no weights


def test_a_new_replay_does_not_bring_other_weights(tmp_path: Path) -> None:
    make_run(tmp_path, config_of())
    said = refusal(config_of("agent.hidden_sizes=[9]"), tmp_path, new_replay=True)
    assert said.startswith("agent.hidden_sizes: ")


def test_what_else_changes_is_told_and_kept_in_the_event_log(tmp_path: Path) -> None:
    run = make_run(tmp_path, config_of("agent.learning_rate=3e-4"))
    config = again(tmp_path, "agent.learning_rate=1e-4", "env.max_episode_steps=200")
    said = lines_of_start(config, tmp_path)
    assert said[2:] == (
        "changed env.max_episode_steps: none -> 200",
        "changed agent.learning_rate: 0.0003 -> 0.0001",
    )
    saved = run.config_file.read_text()
    start = prepared(config, run, new_replay=False)
    assert run.config_file.read_text() == saved  # until the checkpoint has loaded
    assert not run.events_file.exists()
    start.save_settings()
    events, broken = read_events(run.events_file)
    assert [(event.kind, event.who, event.text) for event in events] == [
        ("changed", "env.max_episode_steps", "none -> 200"),
        ("changed", "agent.learning_rate", "0.0003 -> 0.0001"),
    ]
    assert not broken
    assert (events[0].epoch, events[0].opt_steps) == (1, 1234)
    assert read_config(run.config_file) == config


def everything_in(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("there", [False, True])
@pytest.mark.parametrize(
    "asked", [{}, {"new_replay": True}, {"fresh": True, "force": True}, {"in_process": True}]
)
def test_a_plan_is_not_carried_out_once_another_start_has_changed_the_run(
    tmp_path: Path, there: bool, asked: dict[str, bool]
) -> None:
    """Neither are its samples mixed with the other's, nor is a run erased that nobody has seen."""
    if there:
        make_run(tmp_path, config_of())
    asked = {} if there and asked.get("in_process") else asked
    planned = plan(config_of("agent.learning_rate=1e-5"), tmp_path, **asked)
    make_run(tmp_path, config_of("agent.learning_rate=1e-4"))
    before = everything_in(tmp_path)
    with pytest.raises(RunChangedError, match=r"begun or changed this run .*; give the command"):
        prepare_start(StartPlan.from_json(planned.to_json()), RunDirectory(tmp_path))
    assert everything_in(tmp_path) == before


def test_a_plan_is_carried_out_though_the_run_has_learned_meanwhile(tmp_path: Path) -> None:
    run = make_run(tmp_path, config_of())
    planned = plan(config_of("agent.learning_rate=1e-5"), tmp_path)
    run.begin_epoch()
    run.summary_file.write_text("{}")
    prepare_start(planned, run).save_settings()
    assert read_config(run.config_file) == planned.config


@pytest.mark.parametrize("folder", ["replay", "checkpoints"])
def test_files_of_others_are_no_start_of_another_run(tmp_path: Path, folder: str) -> None:
    planned = plan(config_of(), tmp_path)
    run = RunDirectory(tmp_path)
    run.make()
    (tmp_path / folder).mkdir(exist_ok=True)
    assert not run.exists
    (tmp_path / folder / "thesis.tex").write_text("since the plan")
    assert not run.exists
    prepare_start(planned, run)  # the replay's writer refuses the file, by name
    assert (tmp_path / folder / "thesis.tex").read_text() == "since the plan"


def test_a_run_is_known_by_its_replay_behind_a_link(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "run")
    run.make()
    (tmp_path / "disk").mkdir()
    run.replay.symlink_to(tmp_path / "disk")
    assert not run.exists
    (tmp_path / "disk" / COMMITS).touch()
    assert run.exists


EVALUATION = [
    "env.max_episode_steps=10",
    "evaluation.max_episode_steps=10",
    "evaluation.seed=3",
    "evaluation.episodes=1",
]


@pytest.mark.parametrize("setting", EVALUATION)
def test_the_best_of_other_evaluations_does_not_count_any_more(
    tmp_path: Path, setting: str
) -> None:
    run = make_run(tmp_path, config_of())
    write_state(run.best, {"model": {}}, {"return_mean": -133.42, "version": 1200})
    assert not any("does not count" in line for line in lines_of_start(config_of(), tmp_path))
    prepared(config_of(), run, new_replay=False)
    assert run.best.exists()
    (said,) = (x for x in lines_of_start(config_of(setting), tmp_path) if "does not count" in x)
    assert said == (
        f"evaluations are others than before ({setting.partition('=')[0]}): the best until now, "
        f"-133.4 at version 1,200, does not count any more, and its model is moved to "
        f"{tmp_path / 'best-before'}"
    )
    start = prepared(config_of(setting), run, new_replay=False)
    assert read_best(run.best).best_return_mean == -133.42  # until the checkpoint has loaded
    start.save_settings()
    assert read_best(run.best).best_return_mean is None
    assert read_best(run.best_before).best_return_mean == -133.42


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ([], ""),
        (["agent.schedule.total_opts=1200"], "0 of their size .*, and this start begins at 1,234;"),
        (["agent.schedule.total_opts=1200", "agent.schedule.final=0.1"], "at 0.1 of .* at 1,234;"),
        (["agent.schedule.total_opts=5000", "stop.max_opts=9000"], "run goes on to about 9,000;"),
        (["agent.schedule.total_opts=5000", "stop.max_opts=5100"], ""),
        (["agent.schedule.total_opts=5000", "stop.max_env_steps=80000"], "to about 40,000;"),
    ],
)
def test_learning_rates_that_end_before_the_run_are_said(
    tmp_path: Path, settings: list[str], said: str
) -> None:
    make_run(tmp_path, config_of())
    kind = ["agent.schedule.kind=linear"] if settings else []
    config = config_of("replay.samples_per_insert=32", *kind, *settings)
    found = [x for x in lines_of_start(config, tmp_path) if x.startswith("learning rates")]
    assert len(found) == bool(said)
    assert re.search(said, "".join(found))


def test_a_start_without_settings_keeps_the_runs_own(tmp_path: Path) -> None:
    first = config_of("env.reward_scale=10.0", "agent.n_step=3", "stop.max_opts=60", agent="iqn")
    make_run(tmp_path, first)
    assert again(tmp_path) == first
    more = again(tmp_path, "stop.max_opts=90")
    assert (more.stop.max_opts, more.env, more.agent) == (90, first.env, first.agent)


def test_a_file_overrides_what_it_names_alone(tmp_path: Path) -> None:
    make_run(tmp_path / "run", config_of("agent.batch_size=16"))
    file = tmp_path / "mine.toml"
    file.write_text("[agent]\nlearning_rate = 0.5\n")
    saved = saved_config(tmp_path / "run")
    agent = load_config(file, environment={}, saved=saved).config.agent
    assert (agent.learning_rate, agent.batch_size) == (0.5, 16)


def test_a_value_can_be_unset(tmp_path: Path) -> None:
    make_run(tmp_path, config_of("env.max_episode_steps=100"))
    config = again(tmp_path, "env.max_episode_steps=none")
    assert config.env.max_episode_steps is None


def test_another_environment_takes_nothing_from_the_run_and_is_refused(tmp_path: Path) -> None:
    make_run(tmp_path, config_of("env.kwargs={sutton_barto_reward=true}"))
    other = load_config(
        env="Acrobot-v1", settings=SMALL, environment={}, saved=saved_config(tmp_path)
    )
    assert other.config.env.kwargs == {}
    assert refusal(other.config, tmp_path).startswith("env.id: ")


def test_another_agent_is_tried_on_the_environment_of_the_run_and_refused(tmp_path: Path) -> None:
    make_run(tmp_path, config_of(env="Pendulum-v1", agent="sac"))
    other = configured(*SMALL, agent="td3", saved=saved_config(tmp_path))
    assert other.env.id == "Pendulum-v1"
    said = refusal(other, tmp_path)
    assert said.startswith(f"agent.name: the run in {tmp_path} has sac, not td3; ")


def test_weights_of_another_run_are_for_a_run_without_a_checkpoint(tmp_path: Path) -> None:
    before = make_run(tmp_path / "source", config_of()).root
    given = f"learner.init_from={before}"
    run = make_run(tmp_path / "run", config_of())
    said = refusal(again(run.root, given), run.root)
    assert said == (
        f"learner.init_from (--init-from): {run.root} has a checkpoint, and resumes with its own "
        "weights; choose another --out, or start over with --fresh --force"
    )
    lines_of_start(again(run.root, given), run.root, fresh=True, force=True)
    begun = make_run(tmp_path / "begun", config_of(given)).root
    for same in (again(begun), again(begun, given)):
        lines_of_start(same, begun)
    assert "has a checkpoint" in refusal(again(begun, "learner.init_checkpoint=best"), begun)
    shutil.rmtree(run.checkpoints)
    lines_of_start(again(run.root, given), run.root)  # nothing is learned yet


def test_nothing_is_kept_of_a_run_that_is_erased(tmp_path: Path) -> None:
    make_run(tmp_path, config_of())
    assert settings_to_resume(tmp_path, Start.of(fresh=True)) is None
    assert settings_to_resume(tmp_path, RESUME) == tmp_path / "config.toml"
    assert settings_to_resume(tmp_path / "none", RESUME) is None


def test_a_saved_configuration_that_is_damaged_is_named(tmp_path: Path) -> None:
    run = make_run(tmp_path, config_of())
    saved = run.config_file.read_text()
    run.config_file.write_text(saved.replace("learning_rate", "lerning_rate"))
    said = r"does not know agent.lerning_rate, .* take out what you wrote"
    with pytest.raises(Exception, match=said):
        again(tmp_path)


def test_a_new_replay_is_empty_keeps_the_counts_and_is_of_another_run(tmp_path: Path) -> None:
    run = make_run(tmp_path, config_of())
    before = run.identity()
    samples = {"produced": 120, "inserted": 100, "rejected": 10, "in_flight": 7, "lost": 3}
    run.summary_file.write_text(json.dumps({"samples": samples, "env_steps": 95}))
    config = config_of("env.reward_scale=10.0", "replay.capacity=3000")
    lines_of_start(config, tmp_path, new_replay=True)
    run_id = prepared(config, run, new_replay=True).run_id
    after = run.identity()
    assert after.run_id == run_id != before.run_id
    assert after.epoch == before.epoch
    commit = last_commit(run.replay)
    assert commit.inserted == 0
    counted = read_stamp(run_id, commit.stamp, 0.0)[0].accounting()
    assert (counted.produced, counted.inserted, counted.rejected) == (120, 100, 10)
    assert (counted.in_flight, counted.lost, counted.env_steps) == (0, 10, 95)
    lines_of_start(config, tmp_path)
    assert run.newest_checkpoint() == 1234


COUNTED = SampleAccounting(produced=130, inserted=110, rejected=15, lost=5, env_steps=108)
CHANGES = ("os.rename", "os.remove", "os.rmdir", "os.mkdir")
"""Audit events of what makes and removes files: all are written aside, and renamed."""


def killed_at(step: int, run: RunDirectory, planned: StartPlan) -> bool:
    """Start in a process that dies before its change of files number `step`; False if it has no so
    many."""

    def die(event: str, _: Any) -> None:
        nonlocal step
        if event in CHANGES:
            step -= 1
            if step < 0:
                os._exit(9)

    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    try:
        sys.addaudithook(die)
        prepare_start(planned, run)
        os._exit(0)
    finally:
        os._exit(1)


@pytest.mark.parametrize(
    ("place", "stride"),
    [
        ("", 4),
        pytest.param("", 1, marks=pytest.mark.slow),
        pytest.param("elsewhere", 1, marks=pytest.mark.slow),
    ],
)
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_kill_anywhere_in_the_start_of_a_new_replay_leaves_the_old_run_or_the_new_one(
    tmp_path: Path, place: str, stride: int
) -> None:
    """Samples of two settings are never mixed, and no count is lost.

    A kill before every change of files, or before every so many.
    """
    settings = [f"replay.directory={tmp_path / 'used' / place}"] * bool(place)
    found = set()
    before = config_of(*settings)
    after = config_of(*settings, "env.reward_scale=10.0", "evaluation.seed=3")
    kept, used = tmp_path / "kept", tmp_path / "used"
    run = make_counted_run(used / "run", before)
    run_id = run.identity().run_id
    shutil.copytree(used, kept)
    planned = plan(after, run.root, new_replay=True)
    for step in count(0, stride):
        shutil.rmtree(used)
        shutil.copytree(kept, used)
        if not killed_at(step, run, planned):
            break
        saved = again(run.root)
        assert saved in (before, after), step
        prepared(saved, run)
        old = saved == before
        now = run.identity().run_id
        assert (run_id == now, run.best.exists(), not run.best_before.exists()) == (old,) * 3, step
        replay = replay_directory(saved, run.root)
        assert read_counts(now, replay) == COUNTED, step
        assert last_commit(replay).inserted == (100 if old else 0), step
        found.add(old)
    assert found == {True, False}
    assert step > 30


def test_a_new_replay_that_cannot_be_made_costs_no_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_counted_run(tmp_path, config_of())
    monkeypatch.setattr(replay_layout, "open_writer", Mock(side_effect=OSError("full")))
    for new_replay in (True, False, True):
        with pytest.raises(OSError, match="full"):
            prepared(config_of(), run, new_replay=new_replay)
        assert not run.replay.exists()
    monkeypatch.undo()
    prepared(config_of(), run, new_replay=False)
    assert read_counts(run.identity().run_id, run.replay) == COUNTED


def make_counted_run(out: Path, config: RunConfig) -> RunDirectory:
    """A run that was killed: the newest counts are those of its replay."""
    run = make_run(out, config)
    spaces = environment_spaces(config.env)
    run_id = run.identity().run_id
    row = ring_dtype(transition_dtype(spaces))
    ring = RingWriter.open(replay_directory(config, out), row, 2000, run_id=run_id)
    ring.append({name: np.zeros(100, row)[name] for name in row.names or ()}, 100)
    ring.commit(pack_stamp(Ledger(run_id, COUNTED), ActorNumbers()))
    ring.close()
    run.summary_file.write_text(json.dumps({"samples": {"produced": 50}, "env_steps": 48}))
    write_state(run.best, {"model": {}}, {"return_mean": 1.0, "version": 1200})
    return run
