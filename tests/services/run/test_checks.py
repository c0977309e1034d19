"""Whether a run directory can take a run; nothing is started here."""

import errno
import json
import os
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from configurations import configured
from run_directories import new_run, untrained_agent, write_best_model
from starts import lines_of_start, prepared

from vedette_protocol.account import IncarnationAccount, SampleAccounting
from vedette_protocol.ledger import Ledger
from vedette_rl.agents.exploration import Exploration
from vedette_rl.envs.make import probe_environment
from vedette_rl.envs.spaces import describe_spaces, transition_dtype
from vedette_rl.replay.commits import last_commit
from vedette_rl.replay.ring import RingWriter
from vedette_rl.replay.rows import default_guard
from vedette_rl.storage.record_file import RecordFile
from vedette_rl.storage.state_file import STATE_FILE, write_state
from vedette_services.config import RunConfig, load_config, read_config, write_config
from vedette_services.errors import ServicesError, SettingError, UsageError
from vedette_services.run.directory import RunDirectory
from vedette_services.run.finding import is_run
from vedette_services.run.prepare import erase_run
from vedette_services.run.replay_layout import replay_directory, ring_dtype
from vedette_services.run.resume import NEW_REPLAY, describe_too_few_steps
from vedette_services.run.ring_stamp import ActorNumbers, pack_stamp, read_stamp
from vedette_services.run.start import Start

SMALL = ("replay.capacity=2000", "agent.hidden_sizes=[8,8]")


def config_of(*settings: str, env: str = "CartPole-v1", agent: str = "dqn") -> RunConfig:
    return configured(*SMALL, *settings, env=env, agent=agent)


def make_run(out: Path, config: RunConfig) -> RunDirectory:
    """A run as a learner leaves it that was stopped."""
    run = new_run(out, config)
    state = {**untrained_agent(config).get_state(), "opt_steps": 1234}
    write_state(run.checkpoints / "1234", {"agent": state}, {})
    row = ring_dtype(transition_dtype(probe_environment(config.env)))
    capacity = config.replay.capacity
    run_id = run.ensure_id()
    RingWriter.open(replay_directory(config, out), row, capacity, run_id=run_id).close()
    return run


def test_a_start_says_which_wrappers_change_what_evaluations_measure(tmp_path: Path) -> None:
    name = "gymnasium.wrappers:NormalizeReward"

    def said(training_only: str) -> list[str]:
        wrapper = f"[{{name = '{name}', training_only = {training_only}}}]"
        lines = lines_of_start(config_of(f"env.wrappers={wrapper}"), tmp_path / "run")
        return [line for line in lines if "NormalizeReward" in line]

    (line,) = said("false")
    assert line.startswith("the wrapper NormalizeReward scales rewards by statistics")
    assert said("true") == []


def refusal(config: RunConfig, out: Path, **how: bool) -> str:
    with pytest.raises(UsageError) as refused:
        lines_of_start(config, out, **how)
    assert "\n" not in str(refused.value)
    return str(refused.value)


def line_of_start(out: Path) -> str:
    """What a start that goes on says of where."""
    return lines_of_start(config_of(), out)[-1]


class Undecided(Exploration):
    """An exploration of a user's own without an epsilon."""


class Broken(Exploration):
    """An exploration of a user's own that raises."""

    def choose(self, q_EA: Any, version: int) -> Any:
        raise RuntimeError("no choice")


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (Undecided, r"agent\.exploration\.kind is .*Undecided'.*: define epsilon\(self, version\)"),
        (Broken, r"agent\.exploration\.kind: .*Broken fails when it chooses: .*no choice"),
    ],
)
@pytest.mark.parametrize("agent", ["dqn", "iqn"])
def test_an_exploration_that_cannot_choose_is_refused_before_the_start(
    tmp_path: Path, kind: type, said: str, agent: str
) -> None:
    config = config_of(f"agent.exploration.kind={__name__}:{kind.__name__}", agent=agent)
    with pytest.raises(UsageError, match=said):
        lines_of_start(config, tmp_path)


def test_the_same_configuration_goes_on(tmp_path: Path) -> None:
    make_run(tmp_path, config_of())
    lines_of_start(config_of(), tmp_path)
    lines_of_start(config_of("agent.learning_rate=0.5", "stop.max_opts=9", "seed=4"), tmp_path)


@pytest.mark.parametrize(
    ("settings", "key", "says"),
    [
        (["replay.capacity=3000"], "replay.capacity", "set replay.capacity=2000"),
        (["agent.hidden_sizes=[8]"], "agent.hidden_sizes", "set agent.hidden_sizes=[8,8]"),
        (["agent.dueling=true"], "agent.dueling", "set agent.dueling=false"),
    ],
)
def test_a_configuration_that_does_not_fit_is_refused_by_its_key_and_a_fix(
    tmp_path: Path, settings: list[str], key: str, says: str
) -> None:
    make_run(tmp_path, config_of())
    said = refusal(config_of(*settings), tmp_path)
    assert said.startswith(f"{key}: ")
    assert says in said


def test_another_environment_or_agent_is_refused(tmp_path: Path) -> None:
    make_run(tmp_path, config_of())
    said = refusal(config_of(env="Acrobot-v1"), tmp_path)
    assert said.startswith("env.id: the run in")
    assert "has CartPole-v1, not Acrobot-v1" in said
    assert "choose another --out, or erase it with --fresh --force" in said
    assert refusal(config_of(agent="iqn"), tmp_path).startswith("agent.name: ")


def test_other_columns_are_refused_before_there_is_a_checkpoint_too(tmp_path: Path) -> None:
    run = make_run(tmp_path, config_of())
    for place in (run.checkpoints / "1234").iterdir():
        place.unlink()
    (tmp_path / "config.toml").unlink()  # else the change of env.id is refused before
    said = refusal(config_of(env="Acrobot-v1"), tmp_path)
    assert said.startswith(f"{tmp_path / 'config.toml'}: no such file, and this command does not ")
    assert "(env: " in said
    assert "column 'obs'" in said
    assert "; put it back, or give the command of before again, with all its settings (" in said
    assert "delete" not in said


def test_fresh_refuses_to_erase_a_run_without_force(tmp_path: Path) -> None:
    make_run(tmp_path, config_of())
    said = refusal(config_of(), tmp_path, fresh=True)
    assert "holds a run of 1,234 optimization steps; add --force to erase it" in said
    lines_of_start(config_of(env="Acrobot-v1"), tmp_path, fresh=True, force=True)


def test_fresh_needs_no_force_where_there_is_no_run(tmp_path: Path) -> None:
    lines_of_start(config_of(), tmp_path / "new", fresh=True)


def test_force_alone_is_a_mistake(tmp_path: Path) -> None:
    assert "it needs --fresh" in refusal(config_of(), tmp_path, force=True)


def test_what_is_erased_is_the_run_and_its_own_replay_wherever_it_lies(tmp_path: Path) -> None:
    elsewhere = tmp_path / "fast"
    config = config_of(f"replay.directory={elsewhere}")
    run = make_run(tmp_path / "run", config)
    for file in ("notes.txt", "records.txt"):
        (tmp_path / "run" / file).write_text("mine")
    for file in ("report.html", "records.csv", "records.jsonl", "summary.json"):
        (tmp_path / "run" / file).write_text("of the run that is erased")
    (tmp_path / "run" / "report.html").write_text("<p>Written by vedette 0.2.0")
    (tmp_path / "run" / NEW_REPLAY).write_text("no TOML: a start that does not erase is refused")
    run_id = run.identity().run_id
    lines_of_start(config, run.root, fresh=True, force=True)
    erase_run(run)
    assert not elsewhere.exists()
    assert not run.exists
    assert run.is_ours
    assert run.identity().run_id != run_id
    assert not run.checkpoints.exists()
    left = {place.name for place in run.root.iterdir() if place.is_file()}
    assert left == {"notes.txt", "records.txt", "run.json"}


def test_what_no_run_wrote_is_neither_erased_nor_overwritten(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", config_of())
    write_best_model(run.root, config_of())
    mine = [
        run.root / name
        for name in (
            *("checkpoints/mine.pt", "checkpoints/1234/mine.pt", "best/notes/a.txt"),
            *("best-before/b.txt", "tensorboard/events.txt", "live/mine.pt", "log/mine.pt"),
            *("wandb/notes.txt", "report.html", "replay.txt"),
        )
    ]
    for file in mine:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("mine")
    lines = lines_of_start(config_of(), run.root, fresh=True, force=True)
    assert f"--fresh: what no run wrote stays: {mine[0]} and 6 more" in lines
    prepared(config_of(), run, fresh=True)
    assert [file.read_text() for file in mine] == ["mine"] * len(mine)
    assert not (run.best / STATE_FILE).exists()
    assert run.newest_checkpoint() is None


@pytest.mark.parametrize("asked", [{"fresh": True, "force": True}, {"new_replay": True}])
def test_a_replay_in_which_others_have_files_is_not_erased(
    tmp_path: Path, asked: dict[str, bool]
) -> None:
    run = make_run(tmp_path, config_of())
    mine = run.replay / "sources" / "demos" / "notes.txt"
    mine.parent.mkdir(parents=True)
    mine.write_text("mine")
    said = refusal(config_of(), tmp_path, **asked)
    assert said == f"--out {tmp_path}: no run wrote {mine}; put it elsewhere"


MINE = "# of another program\n[agent]\nlearning_rate = 1e-4\n"


@pytest.mark.parametrize(
    "names",
    [
        *(["config.toml"], ["summary.json"], ["report.html"], ["lock"], ["src/a.py", "notes.txt"]),
        [f"{folder}/mine.pt" for folder in ("checkpoints", "best", "replay", "live", "log")],
    ],
)
@pytest.mark.parametrize("asked", [{}, {"fresh": True, "force": True}, {"new_replay": True}])
def test_a_folder_of_somebody_else_takes_no_run(
    tmp_path: Path, names: list[str], asked: dict[str, bool]
) -> None:
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(MINE)
    before = sorted(tmp_path.rglob("*"))
    said = refusal(config_of(), tmp_path, **asked)
    assert said.startswith(f"--out {tmp_path}: it holds '")
    assert said.endswith("by which a run of ours is known; name a new or an empty folder")
    assert sorted(tmp_path.rglob("*")) == before
    assert all((tmp_path / name).read_text() == MINE for name in names)


def test_an_empty_folder_of_a_disk_or_a_repository_takes_a_run(tmp_path: Path) -> None:
    (tmp_path / "lost+found").mkdir()
    for name in (".gitkeep", ".gitignore", ".DS_Store"):
        (tmp_path / name).touch()
    lines_of_start(config_of(), tmp_path)


def test_a_start_that_is_killed_at_once_leaves_a_folder_that_takes_a_run(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "run")
    run.make()
    run_id = run.identity().run_id
    run.lock()
    run.unlock()
    assert not run.exists
    assert not is_run(run.root)
    lines_of_start(config_of(), run.root)
    lines_of_start(config_of(), run.root, fresh=True)
    assert run.ensure_id(in_process=True) == run_id
    assert run.identity().in_process


def test_the_root_of_the_file_system_takes_no_run() -> None:
    assert refusal(config_of(), Path("/")).startswith("--out /: it ")


def test_a_folder_of_seeds_is_no_run_and_the_fix_is_named(tmp_path: Path) -> None:
    for number in (1, 2, 3):
        make_run(tmp_path / f"seed-{number}", config_of())
    (tmp_path / "report.html").touch()
    said = refusal(config_of(), tmp_path)
    assert said == (
        f"--out {tmp_path}: it is a folder of 3 runs, such as {tmp_path}/seed-1, and no run "
        "itself; add --seeds 3, name one of them, or name another folder"
    )
    (tmp_path / "seed-3").rename(tmp_path / "other")
    assert "give the sweep's command, name one" in refusal(config_of(), tmp_path)


def test_counts_go_on_where_somebody_has_deleted_the_replay(tmp_path: Path) -> None:
    run = make_run(tmp_path, config_of())
    run.begin_epoch()
    before = run.identity().run_id
    samples = {"produced": 520, "inserted": 500, "in_flight": 8, "lost": 12}
    run.summary_file.write_text(json.dumps({"env_steps": 510, "samples": samples}))
    prepared(config_of(), run)
    assert run.identity().run_id == before  # it has its replay
    shutil.rmtree(run.replay)
    prepared(config_of(), run)
    again = run.identity()
    assert again.run_id != before  # nothing that was sent before is inserted
    assert again.counted == SampleAccounting(520, 500, lost=20, env_steps=510)
    stamp = last_commit(run.replay).stamp
    assert read_stamp(again.run_id, stamp, now=0.0)[0].accounting() == again.counted
    prepared(config_of(), run)
    assert run.identity() == again
    commits = run.replay / "commits"
    torn = bytearray(commits.read_bytes())
    torn[64] ^= 0xFF  # the number of the newest one, as a power failure may leave it
    commits.write_bytes(torn)
    prepared(config_of(), run)  # the replay is recovered later in a start
    assert run.identity() == again


def test_what_cannot_be_erased_is_named_and_no_run_begins_on_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run(tmp_path, config_of())
    unlink = os.unlink
    kept = run.checkpoints / "1234" / STATE_FILE

    def refuse(path: Any, *args: Any, **how: Any) -> None:
        if Path(path).name == kept.name:  # as of an immutable file, which the superuser has, too
            raise PermissionError(errno.EPERM, "Operation not permitted", str(path))
        unlink(path, *args, **how)

    monkeypatch.setattr(os, "unlink", refuse)
    with pytest.raises(ServicesError) as refused:
        prepared(config_of(), run, fresh=True)
    assert str(refused.value) == (
        f"{kept} cannot be erased: Operation not permitted; let this user delete it, or choose "
        "another --out"
    )
    assert refused.value.exit_status == 1
    monkeypatch.undo()
    prepared(config_of(), run, fresh=True)
    assert run.newest_checkpoint() is None


def test_links_in_a_run_are_erased_and_not_what_they_lead_to(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", config_of())
    run.checkpoints.rename(tmp_path / "large")
    run.checkpoints.symlink_to(tmp_path / "large")
    erase_run(run)
    assert not os.path.lexists(run.checkpoints)
    assert (tmp_path / "large" / "1234" / STATE_FILE).exists()


def test_another_runs_replay_is_neither_taken_nor_erased(tmp_path: Path) -> None:
    elsewhere = tmp_path / "fast"
    taken: Any = config_of(f"replay.directory={elsewhere}")
    make_run(tmp_path / "one", taken)
    other = make_run(tmp_path / "other", config_of())
    for how in ({}, {"fresh": True, "force": True}):
        said = refusal(taken, tmp_path / "third", **how)
        assert "holds the replay of another run" in said
    write_config(taken, other.config_file)
    erase_run(other)
    assert (elsewhere / "ring.json").exists()


@pytest.mark.parametrize(
    ("file", "bytes_left", "says"),
    [
        ("000-obs.bin", 5000, "is torn: 5000 bytes, where"),
        ("001-action.bin", None, "is missing"),
        ("cursor.bin", None, "is missing"),
        ("cursor.bin", 0, "is torn: 0 bytes, where"),
        ("ring.json", 1, "is damaged"),
    ],
)
def test_a_damaged_replay_is_refused_by_its_file_and_the_fix(
    tmp_path: Path, file: str, bytes_left: int | None, says: str
) -> None:
    damaged = make_run(tmp_path, config_of()).replay / file
    if bytes_left is None:
        damaged.unlink()
    else:
        os.truncate(damaged, bytes_left)
    said = refusal(config_of(), tmp_path)
    assert said.startswith(f"the replay's file {damaged} {says}")
    assert said.endswith(": put a whole one back, or begin an empty replay with --new-replay")
    lines_of_start(config_of(), tmp_path, new_replay=True)


def test_a_start_goes_on_from_the_newest_checkpoint_that_is_whole(tmp_path: Path) -> None:
    run = make_run(tmp_path, config_of())
    newest = run.checkpoints / "2000"
    write_state(newest, {"x": np.zeros(1)}, {})
    assert "at optimization step 2,000" in line_of_start(tmp_path)
    os.truncate(newest / STATE_FILE, 100)
    *_, line, skipped = lines_of_start(config_of(), tmp_path)
    assert line.startswith(f"resuming {tmp_path} at optimization step 1,234")
    assert skipped.startswith("checkpoint 2,000 is skipped: it is torn or foreign (")


def test_a_start_says_that_it_takes_the_newest_weights_and_not_the_best(tmp_path: Path) -> None:
    run = make_run(tmp_path, config_of())
    write_state(run.best, {"model": {}}, {"return_mean": 480.0, "version": 900})
    said = line_of_start(tmp_path)
    assert said.startswith(f"resuming {tmp_path} at optimization step 1,234")
    assert said.endswith(", the newest weights (the best model, version 900, stays in best/)")


def test_a_start_says_that_its_replay_is_empty(tmp_path: Path) -> None:
    run = make_run(tmp_path, config_of())
    shutil.rmtree(run.replay)
    said = line_of_start(tmp_path)
    assert said.endswith("at optimization step 1,234, with an empty replay")


@pytest.mark.parametrize(
    ("begun", "has_replay", "left"),
    [(None, False, 900), (1000, False, 400), (1000, True, None), (None, False, None)],
)
def test_a_start_whose_steps_end_before_its_warm_up_says_so(
    tmp_path: Path, begun: int | None, has_replay: bool, left: int | None
) -> None:
    """A run in one process keeps no replay: it warms up at each start."""
    steps = (begun or 0) + (left or 1500 * (begun is None) + 400 * has_replay)
    config = config_of(f"stop.max_env_steps={steps}", "learner.warmup_period=1000")
    if begun is not None:
        run = make_run(tmp_path, config_of())
        run.summary_file.write_text(json.dumps({"env_steps": begun}))
        if not has_replay:
            shutil.rmtree(run.replay)
    said = [line for line in lines_of_start(config, tmp_path) if "nothing will be learned" in line]
    assert len(said) == (left is not None)
    assert all(f" leaves {left} environment steps" in line for line in said)


@pytest.mark.parametrize(
    ("setting", "start", "is_said"),
    [
        ("seed=0", Start(), False),  # its replay has samples
        ("seed=0", Start.of(new_replay=True), True),
        ("seed=0", Start.of(fresh=True), True),
        ("stop.max_env_steps=0", Start.of(new_replay=True), False),  # it goes on
        ('replay.sources.demo.data="demo.npz"', Start.of(new_replay=True), False),
        ("actors.step_processor=her", Start.of(new_replay=True), False),  # rows are not steps
    ],
)
def test_a_warm_up_is_judged_where_its_samples_are_steps_of_actors_alone(
    tmp_path: Path, setting: str, start: Start, is_said: bool
) -> None:
    make_run(tmp_path, config_of())
    config = config_of("stop.max_env_steps=400", "learner.warmup_period=1000", setting)
    said = describe_too_few_steps(config, tmp_path, start)
    assert said.startswith("nothing will be learned: ") == is_said
    assert bool(said) == is_said


@pytest.mark.parametrize(
    ("left", "warm_up", "said"),
    [
        (1199, 1000, "next to nothing will be learned: stop.max_env_steps = 1,199 leaves 1,199"),
        (1199, 1200, "nothing will be learned: "),
        (1200, 1000, ""),
    ],
)
def test_a_start_that_ends_with_the_first_batches_of_its_actors_says_so(
    tmp_path: Path, left: int, warm_up: int, said: str
) -> None:
    config = config_of(
        *("actors.count=2", "actors.n_buffer=600"),
        *(f"stop.max_env_steps={left}", f"learner.warmup_period={warm_up}"),
    )
    text = describe_too_few_steps(config, tmp_path, Start())
    assert text.startswith(said)
    assert bool(text) == bool(said)


def test_a_queue_warms_up_by_a_block(tmp_path: Path) -> None:
    table = ["agent.name=appo", "replay.kind=queue", "replay.sequence=64", "replay.block=2048"]
    enough = config_of(*table, "stop.max_env_steps=3000", "learner.warmup_period=50000")
    assert describe_too_few_steps(enough, tmp_path, Start()) == ""
    config = config_of(*table, "stop.max_env_steps=1500")
    said = describe_too_few_steps(config, tmp_path, Start())
    assert "needs 2,048 samples first (replay.block)" in said


@pytest.mark.parametrize("part", ["checkpoints", "replay", "live", "log"])
def test_a_file_in_a_folders_place_is_refused_by_its_name(tmp_path: Path, part: str) -> None:
    place = make_run(tmp_path, config_of()).root / part
    shutil.rmtree(place)
    for put in (place.touch, lambda: place.symlink_to(tmp_path / "nowhere")):
        put()
        assert f"{place} is no folder; put it away" in refusal(config_of(), tmp_path)
        place.unlink()


def test_a_folder_in_a_files_place_is_refused_by_its_name(tmp_path: Path) -> None:
    run = make_run(tmp_path, config_of())
    for place in (tmp_path / "lock", run.summary_file):
        place.unlink(missing_ok=True)
        place.mkdir()
        assert f"{place} is no file; put it away" in refusal(config_of(), run.root)
        place.rmdir()


def test_a_replay_without_its_runs_identity_is_refused_by_what_is_missing(tmp_path: Path) -> None:
    make_run(tmp_path, config_of())
    (tmp_path / "run.json").unlink()
    said = refusal(config_of(), tmp_path)
    assert said.startswith(f"--out {tmp_path}: it holds 'checkpoints' and ")
    assert "; of a run, put a whole one back, or name another --out" in said


@pytest.mark.parametrize("epoch", ["-5", str(2**70), "[]", '"x"'])
def test_an_identity_that_is_none_is_refused_by_its_file(tmp_path: Path, epoch: str) -> None:
    make_run(tmp_path, config_of())
    (tmp_path / "run.json").write_text(f'{{"run_id": "00", "epoch": {epoch}}}')
    assert refusal(config_of(), tmp_path).startswith(f"{tmp_path / 'run.json'}: cannot be read")


def test_checkpoints_of_which_none_is_whole_are_refused_by_the_newest(tmp_path: Path) -> None:
    run = make_run(tmp_path, config_of())
    damaged = run.checkpoints / "1234" / STATE_FILE
    whole = damaged.read_bytes()
    damaged.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    said = refusal(config_of(), tmp_path)
    assert said.startswith(f"cannot read checkpoint {damaged}: it is damaged")
    assert said.endswith(
        f"move {run.checkpoints} aside to learn again from the samples that are there"
    )
    lines_of_start(config_of(), tmp_path, fresh=True, force=True)
    damaged.write_bytes(whole)
    lines_of_start(config_of(), tmp_path)


def test_the_commits_of_another_run_are_no_part_of_a_replay(tmp_path: Path) -> None:
    mine, other = (make_run(tmp_path / name, config_of()) for name in ("mine", "other"))
    row = ring_dtype(transition_dtype(probe_environment(config_of().env)))
    run_id = other.identity().run_id
    ring = RingWriter.open(other.replay, row, 2000, run_id=run_id)
    ring.commit(pack_stamp(Ledger(run_id), ActorNumbers()))
    ring.close()
    lines_of_start(config_of(), other.root)
    shutil.copy(other.replay / "commits", mine.replay)
    assert "commits is no part of this replay: put a " in refusal(config_of(), mine.root)


def test_a_replay_whose_archive_is_shorter_than_its_ledger_says_is_refused(tmp_path: Path) -> None:
    """The sessions in it would be taken for new ones, and their rows stored twice."""
    run = make_run(tmp_path, config_of())
    run_id = run.identity().run_id
    row = ring_dtype(transition_dtype(probe_environment(config_of().env)))
    shutil.rmtree(run.replay)
    ring = RingWriter.open(run.replay, row, 2000, run_id=run_id)
    ledger = Ledger(run_id)
    archive = RecordFile(run.replay / "archive", 0)
    ledger.use_archive(archive)
    ledger._kept.add("m", IncarnationAccount(5, contiguous=1))
    deadline = time.monotonic() + 30.0
    while not ledger.archive_end:
        assert time.monotonic() < deadline
        ledger.archive_closed()
        time.sleep(0.005)
    archive.close()
    ring.commit(pack_stamp(ledger, ActorNumbers()))
    ring.close()
    lines_of_start(config_of(), tmp_path)
    os.truncate(run.replay / "archive", ledger.archive_end - 1)
    said = refusal(config_of(), tmp_path)
    assert f"archive has {ledger.archive_end - 1} bytes, and {ledger.archive_end} belong to" in said
    assert said.endswith(": put a whole one back, or begin an empty replay with --new-replay")
    lines_of_start(config_of(), tmp_path, new_replay=True)


def times(run: Path) -> dict[Path, int]:
    """When each file of a run was written, but for the record that moves while a learner lives."""
    files = (path for path in run.rglob("*") if path.name != "claim")
    return {path: path.stat().st_mtime_ns for path in files}


@pytest.mark.parametrize(("written", "age"), [(1, "older"), (4, "newer")])
def test_a_replay_of_another_release_is_refused_as_that_and_not_to_be_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: int, age: str
) -> None:
    run = make_run(tmp_path, config_of())
    run_id = run.identity().run_id
    row = ring_dtype(transition_dtype(probe_environment(config_of().env)))
    shutil.rmtree(run.replay)
    ring = RingWriter.open(run.replay, row, 2000, run_id=run_id)
    with monkeypatch.context() as other_release:
        other_release.setattr("vedette_protocol.ledger._FORMAT", written)
        ring.commit(pack_stamp(Ledger(run_id), ActorNumbers()))
    ring.close()
    said = refusal(config_of(), run.root)
    assert f"commits: made by an {age} version" in said.replace("a newer", "an newer")
    assert "delete" not in said


def test_a_run_that_goes_on_is_neither_taken_nor_erased(tmp_path: Path) -> None:
    run = make_run(tmp_path, config_of())
    (run.root / "lock").write_text("")
    (run.root / "lock").chmod(0o644)  # as of an earlier version
    run.lock()
    assert (run.root / "lock").stat().st_mode & 0o777 == 0o600  # nobody else can hold it
    before = times(tmp_path)
    for how in ({}, {"fresh": True}, {"fresh": True, "force": True}):
        said = refusal(config_of(), tmp_path, **how)
        assert f"in use by another learner (process {os.getpid()}); end it or choose" in said
    assert times(tmp_path) == before
    run.unlock()
    lines_of_start(config_of(), tmp_path)


def test_a_batch_larger_than_a_replays_guard_is_refused_by_its_key(tmp_path: Path) -> None:
    row = ring_dtype(transition_dtype(probe_environment(config_of().env)))
    guard = default_guard(2000, row.itemsize)
    make_run(tmp_path, config_of())
    said = refusal(config_of(f"actors.n_buffer={guard + 1}"), tmp_path)
    assert said.startswith("actors.n_buffer: the replay in ")
    assert said.endswith("; or lower actors.n_buffer")


def test_a_place_for_the_replay_that_holds_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    said = refusal(config_of(f"replay.directory={tmp_path}"), tmp_path / "run")
    assert said.startswith("replay.directory: ")
    assert "'thesis.tex', which is no part of a replay" in said


def test_maps_that_do_not_fit_beside_the_replay_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def free(count: int) -> None:
        usage = type("Usage", (), {"free": count, "total": 1 << 40, "used": (1 << 40) - count})
        monkeypatch.setattr("shutil.disk_usage", lambda _: usage())

    config = config_of("replay.capacity=2000")
    free(22_000_000)  # the replay takes 21 MB, the maps 13
    said = refusal(config, tmp_path)
    assert f", and {tmp_path / 'live'} 13.7 MB more, of disk in {tmp_path}/replay" in said
    free(36_000_000)
    lines_of_start(config, tmp_path)
    shm = config_of("replay.capacity=2000", "replay.directory=/dev/shm/vedette-none")
    monkeypatch.setattr("vedette_services.run.checks.same_disk", lambda *_: False)
    monkeypatch.setattr("vedette_rl.replay.budget.same_disk", lambda *_: False)
    free(13_200_000)
    said = refusal(shm, tmp_path)
    assert said.startswith(f"--out {tmp_path}: {tmp_path / 'live'} needs 13.7 MB of disk, but 13.2")


def test_a_replay_of_the_other_storage_is_refused_with_what_goes_on_with_it(
    tmp_path: Path,
) -> None:
    box = gym.spaces.Box(0, 255, (4, 3), np.uint8)
    plain = ("env.frame_stack=3", "replay.frame_storage=plain")
    gym.register(
        "ResumeStill-v0",
        entry_point=lambda: gym.wrappers.TransformObservation(
            gym.make("CartPole-v1"), lambda _: np.zeros((4, 3), np.uint8), box
        ),
    )
    make_run(tmp_path, config_of(*plain, env="ResumeStill-v0"))
    once = ("env.frame_stack=3", "replay.frame_storage=once")
    said = refusal(config_of(*once, env="ResumeStill-v0"), tmp_path)
    assert said.startswith("replay.frame_storage: the replay in ")
    assert "has no 'frames' apart from its rows: begin an empty " in said
    assert said.endswith("; or go on with it by replay.frame_storage=plain")
    for settings in (plain, plain[:1]):  # `auto` is what is there
        lines_of_start(config_of(*settings, env="ResumeStill-v0"), tmp_path)


def test_a_start_says_first_that_nothing_ends_the_episodes_of_training(tmp_path: Path) -> None:
    gym.register("ResumeEndless-v0", entry_point="gymnasium.envs.classic_control:PendulumEnv")
    *_, line = lines_of_start(config_of(env="ResumeEndless-v0", agent="sac"), tmp_path)
    assert line.startswith(
        "ResumeEndless-v0 has no time limit: episodes of evaluations are cut at 1,000 steps, those "
        "of training are not; env.max_episode_steps limits both, "
    )


def test_a_run_of_daemons_does_not_go_on_in_one_process(tmp_path: Path) -> None:
    make_run(tmp_path, config_of())
    said = refusal(config_of(), tmp_path, in_process=True)
    assert said.startswith(
        f"--in-process: the run in {tmp_path} was started in daemons; leave --in-"
    )
    lines_of_start(config_of(), tmp_path, in_process=True, fresh=True, force=True)


def test_a_run_in_one_process_does_not_go_on_in_daemons(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    run.make()
    run.ensure_id(in_process=True)
    run.begin_epoch()
    assert "was started in one process; add it, choose another" in refusal(config_of(), tmp_path)
    lines_of_start(config_of(), tmp_path, in_process=True)


def test_a_start_says_where_it_goes_on(tmp_path: Path) -> None:
    config = config_of()
    assert len(lines_of_start(config, tmp_path)) == 1  # what the replay needs
    run = make_run(tmp_path, config)
    assert lines_of_start(config, tmp_path)[1:] == (
        f"resuming {tmp_path} at optimization step 1,234",
    )
    assert len(lines_of_start(config, tmp_path, fresh=True, force=True)) == 1
    shutil.rmtree(run.checkpoints)
    assert lines_of_start(config, tmp_path)[1:] == (
        f"no checkpoint in {tmp_path}: learning starts from the beginning, on the samples that are "
        "there",
    )


@pytest.mark.parametrize(
    ("damage", "place"),
    [
        (lambda whole: whole[:200] + bytes(4096), "line"),
        (lambda whole: whole.replace(b"[env]", b"[env", 1), "line"),
        (lambda whole: whole[:50] + b"\xff" + whole[51:], "position 50"),
        (lambda whole: whole[: whole.index(b"[replay]")], "it has no [replay]"),
        (lambda whole: b"", "it has no [env], [agent]"),
    ],
)
def test_a_damaged_configuration_of_a_run_is_refused_with_its_place_and_the_fix(
    tmp_path: Path, damage: Callable[[bytes], bytes], place: str
) -> None:
    file = make_run(tmp_path, config_of()).config_file
    file.write_bytes(damage(file.read_bytes()))
    for read in (lambda: load_config(saved=file, environment={}), lambda: read_config(file)):
        with pytest.raises(SettingError) as refused:
            read()
        said = str(refused.value)
        assert said.startswith(f"{file}: ")
        assert place in said
        assert "put a whole one back, or rename it and give the command of before again" in said
        assert "checkpoints and replay stay" in said
        assert "\n" not in said
        assert not re.search("delete|erase|--fresh", said)
    file.rename(tmp_path / "damaged.toml")
    *_, goes_on, alone = lines_of_start(config_of(), tmp_path)
    assert "at optimization step 1,234" in goes_on
    assert alone == f"{file}: no such file; resuming with the settings of this command alone"


def test_a_checkpoint_of_other_spaces_is_refused_with_what_changed(tmp_path: Path) -> None:
    run = make_run(tmp_path, config_of())
    spaces = describe_spaces(probe_environment(config_of().env))
    write_state(run.checkpoints / "2000", {"x": np.zeros(1)}, {"spaces": spaces})
    assert line_of_start(tmp_path).endswith("at optimization step 2,000")
    write_state(
        run.checkpoints / "3000",
        {"x": np.zeros(1)},
        {"spaces": {**spaces, "actions": "Discrete(3)"}},
    )
    assert refusal(config_of(), tmp_path) == (
        f"env.id: its actions are Discrete(2) now, and those of the checkpoint in {tmp_path} are "
        "Discrete(3); choose another --out, or erase the run with --fresh --force"
    )


def test_a_run_whose_configuration_is_missing_is_not_taken_for_a_run_of_defaults(
    tmp_path: Path,
) -> None:
    run = make_run(tmp_path, config_of(env="Pendulum-v1", agent="sac"))
    spaces = describe_spaces(probe_environment(config_of(env="Pendulum-v1", agent="sac").env))
    write_state(run.checkpoints / "2000", {"x": np.zeros(1)}, {"spaces": spaces})
    run.config_file.unlink()
    said = refusal(config_of(), tmp_path)
    assert said.startswith(f"{run.config_file}: no such file, and this command does not fit the ")
    assert "put it back, or give the command of before again, with all its settings (" in said
    assert not re.search("delete|erase|--fresh", said)
