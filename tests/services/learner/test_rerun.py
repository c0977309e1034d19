"""A run's learning is executed again, bit by bit, whatever was killed meanwhile."""

from __future__ import annotations

import os
import random
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from killed_runs import (
    CASES,
    OVERWRITTEN,
    KilledRun,
    checkpoint_steps,
    config_of,
)  # of tests/support
from lost_pages import lose_pages  # of tests/support
from mutation import FunctionMutation  # of tests/support

from vedette_rl.core import Agent
from vedette_rl.envs.stored_spaces import spaces_from_json
from vedette_rl.replay import commits, ring_files
from vedette_rl.replay.checksums import CHECKSUMS
from vedette_rl.replay.commits import COMMITS
from vedette_rl.replay.manifest import read_manifest
from vedette_rl.replay.prioritized import PrioritizedReplay
from vedette_rl.replay.ring import RingReader
from vedette_rl.replay.syncing import SYNCED, find_recovery
from vedette_rl.replay.uniform import DrawnRows
from vedette_rl.storage.state_file import read_state, write_state
from vedette_services.config import RunConfig
from vedette_services.config.saving import config_text
from vedette_services.errors import ImportPermissionError, RunInUseError
from vedette_services.learner.file_checks import FileCheck, RowCheck
from vedette_services.learner.rerun import (
    AGENT,
    OTHERS,
    SCALARS,
    START,
    Difference,
    Rerun,
    Result,
)
from vedette_services.learner.trainer import learner as learner_module
from vedette_services.learner.trainer.journal_writer import JournalWriter
from vedette_services.learner.trainer.learner import build_learning_agent
from vedette_services.learner.trainer.training_loop import TrainingLoop
from vedette_services.run import directory, spans
from vedette_services.run.directory import RunDirectory
from vedette_services.run.journal import (
    End,
    Kind,
    Look,
    Part,
    PartWriter,
    StateHashes,
    draws_block,
    end_block,
    keep_config,
    list_parts,
    make_block,
    read_part,
    saved_block,
)
from vedette_services.run.spans import NotExecutableError


def execute(root: Path, begin: int | None = None, end: int | None = None) -> Result:
    with Rerun.open(root) as again:
        return again.execute(again.span.cut(begin, end))


@pytest.mark.parametrize("config", CASES.values(), ids=CASES)
def test_a_killed_run_is_executed_again_bit_by_bit(config: RunConfig, tmp_path: Path) -> None:
    run = KilledRun(tmp_path, config, random.Random(1))
    run.train(kills=3)
    with Rerun.open(tmp_path) as again:
        assert (again.span.begin, again.span.end) == (0, config.stop.max_opts)
        rings = again.span.segments[-1].part.header.rings
        assert len(rings) == 1 + ("interventions" in config.replay.sources)
        result = again.execute(again.span.cut(None, None))
    assert result.equal, list(result.lines())
    assert not result.changes
    assert result.states > 0
    assert result.scalars == config.stop.max_opts // 10


PRIORITIZED: dict[str, Any] = {"prioritized": True, **OVERWRITTEN}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run by priority, with starts in the middle; later steps see more rows, on any machine."""
    root = tmp_path_factory.mktemp("trained") / "run"
    config = config_of("dqn", **PRIORITIZED)
    KilledRun(root, config, random.Random(4), leads_by=200).train(kills=2)
    return root


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    shutil.copytree(trained, tmp_path / "run")
    return tmp_path / "run"


F = FunctionMutation
FAULTS_OF_A_TRAINER: dict[str, tuple[FunctionMutation, str]] = {
    "a draw sees a newer cursor": (
        F(DrawnRows, "drawn_looks", "(self.live[1],)", "(self.live[1] - 16,)"),
        "",
    ),
    "errors are set a draw late": (
        F(TrainingLoop, "_load", "step - self._draw_delay", "step - self._draw_delay - 1"),
        "",
    ),
    "the generator is not restored": (
        F(PrioritizedReplay, "set_state", 'self.rng.bit_generator.state = state["rng"]'),
        "",
    ),
    "errors under way are lost": (
        F(
            learner_module,
            "restore_replay",
            'return errors if getattr(replay, "goes_on", False) else {}',
            "return {}",
        ),
        "",
    ),
    "priorities of lost steps are kept": (
        F(PrioritizedReplay, "_set_priorities", 'self._head[_SEEN] = state["seen"]', "pass"),
        "",
    ),
    "torch's generators are not restored": (
        F(learner_module, "restore_replay", 'restore_process(state.get("torch", {}), device)'),
        OTHERS,
    ),
}


@pytest.mark.parametrize("fault", FAULTS_OF_A_TRAINER)
def test_a_fault_of_the_trainer_is_found(
    fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is there while the run is trained, and not when it is executed again."""
    mutation, what = FAULTS_OF_A_TRAINER[fault]
    config = config_of("dqn", prioritized=True)
    with monkeypatch.context() as faulty:
        mutation.install(faulty)
        run = KilledRun(tmp_path, config, random.Random(0))
        run.train(kills=0)
        stop = config.stop.model_copy(update={"max_opts": 400})
        run.config = config.model_copy(update={"stop": stop})
        run.train(kills=0)
    result = execute(tmp_path)
    assert result.difference is not None
    assert not result.equal
    assert what in ("", result.difference.what)


def test_the_schedule_of_beta_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = KilledRun(tmp_path, config_of("dqn", prioritized=True), random.Random(0))
    run.train(kills=0)
    beta = PrioritizedReplay.beta.fget
    assert beta is not None

    def beta_of_the_next(replay: PrioritizedReplay) -> float:
        replay.draws += 1
        try:
            return float(beta(replay))
        finally:
            replay.draws -= 1

    monkeypatch.setattr(PrioritizedReplay, "beta", property(beta_of_the_next))
    result = execute(tmp_path)
    assert result.difference is not None
    assert result.difference.what in (AGENT, SCALARS)
    assert result.difference.after == 0


# Files that are not what was written


def edit_checkpoint(run: Path, step: int) -> None:
    """Change one weight by one bit, as whole a file as before."""
    place = run / "checkpoints" / str(step)
    state, meta = read_state(place)
    weights = next(iter(state["agent"]["online"].values())).view(-1)
    weights[0] = float(np.nextafter(np.float32(weights[0]), np.float32(9)))
    write_state(place, state, meta)


def flip(run: Path, column: str, row: int) -> None:
    """Flip the highest bits of a row's first byte in a column."""
    (path,) = (run / "replay").glob(f"*-{column}.bin")
    array = RingReader(run / "replay").columns[column]
    size = array.nbytes // len(array)
    with path.open("r+b") as file:
        file.seek(ring_files.PAGE_BYTES + row % len(array) * size)
        (byte,) = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 0x70]))


def test_a_begin_that_is_not_the_state_that_was_saved_is_a_difference(run: Path) -> None:
    state = min(checkpoint_steps(run))
    edit_checkpoint(run, state)
    result = execute(run, state)
    assert result.difference == Difference(state, state, START)
    assert not result.equal
    lines = [*result.lines()]
    assert lines[0] == f"different: the checkpoint of step {state} is not the state that was saved"
    assert result.states == result.scalars == 0, "nothing was executed"


def test_a_checkpoint_that_an_execution_comes_by_is_compared_with_its_hash(run: Path) -> None:
    assert {each.name: each.equal for each in execute(run).files} == {
        f"checkpoints/{step}": True for step in checkpoint_steps(run)
    }
    edit_checkpoint(run, 300)
    result = execute(run)
    assert not result.equal
    assert result.difference is None, "the steps are what they were"
    lines = [*result.lines()]
    assert lines[0].startswith("different: files; what was executed is equal: ")
    assert "checkpoints/300: it is not the state that was saved" in lines
    (run / "checkpoints" / "300" / "state.safetensors").write_bytes(b"torn")
    lines = [*execute(run).lines()]
    assert any(line.startswith("checkpoints/300: it cannot be read") for line in lines)


def test_a_checkpoint_that_no_run_removes_and_is_missing_is_named(run: Path) -> None:
    assert execute(run).not_compared == (), "a run removes the oldest itself"
    oldest, newest = checkpoint_steps(run)
    assert oldest < 299
    with list_parts(run / "journal")[-1].open("ab") as part:
        part.write(saved_block(299, StateHashes(bytes(16), bytes(16))))
    why = "not compared: it is not there, and the journal has a hash of it"
    missing = [f"checkpoints/299: {why}", f"checkpoints/{newest}: {why}"]
    result = execute(run)
    assert result.equal
    assert list(result.not_compared) == missing[:1]
    shutil.rmtree(run / "checkpoints" / str(newest))
    assert list(execute(run).not_compared) == missing
    assert execute(run, 0, 298).not_compared == ()
    shutil.rmtree(run / "checkpoints" / str(oldest))
    assert list(execute(run).not_compared) == missing[1:]
    assert execute(run, 0, 299).not_compared == ()


def test_a_checkpoint_of_another_start_is_named_as_not_compared(run: Path) -> None:
    place = run / "checkpoints" / "300"
    state, meta = read_state(place)
    write_state(place, state, {**meta, "epoch": 77})
    result = execute(run)
    assert result.equal
    why = "checkpoints/300: not compared: it is of start 77, which these steps are not of"
    assert result.not_compared == (why,)
    assert why in result.lines()


def test_the_best_model_is_compared_where_its_step_is_executed(run: Path) -> None:
    saved, meta = read_state(run / "checkpoints" / "300")
    part = read_part(list_parts(run / "journal")[-1])
    learner = make_agent(part)
    learner.set_state(saved["agent"])
    model = dict(learner.model_info().arrays)
    best = {"epoch": meta["epoch"], "version": 300}
    write_state(run / "best", {"model": model}, best)
    assert FileCheck("best", equal=True) in execute(run).files
    name = next(iter(model))
    model[name] = model[name] + np.float32(1)
    write_state(run / "best", {"model": model}, best)
    result = execute(run)
    assert not result.equal
    assert f"best: it is not the model of step 300 of start {meta['epoch']}" in result.lines()
    write_state(run / "best", {"model": {name: torch.zeros(2)}}, best)
    assert not execute(run).equal
    write_state(run / "best", {"model": model}, {**best, "version": 299})
    assert execute(run).not_compared == (
        f"best: not compared: it is of step 299 of start {meta['epoch']}",
    )


def make_agent(part: Part) -> Agent:
    config = config_of("dqn", prioritized=True)
    return build_learning_agent(
        config, spaces_from_json(part.header.spaces), 1, torch.device("cpu")
    )


def test_equal_scalars_do_not_move_the_last_equal_state(run: Path) -> None:
    """A state may differ for long before the scalars do."""
    part = list_parts(run / "journal")[-1]
    of = read_part(part)
    changed = max(step for step in of.saved if step < 300)
    with Rerun.open(run) as again:
        segments = again.span.segments
    compared = {  # of a part that a kill ended, some states were done again
        step for each in segments for step in each.part.saved if each.begin < step <= each.end
    }
    before = max(step for step in {0, *compared} if step < changed)
    with part.open("ab") as file:
        file.write(saved_block(changed, StateHashes(of.saved[changed].agent, bytes(16))))
    result = execute(run)
    assert result.difference == Difference(changed, before, OTHERS)
    assert result.scalars_until > before
    (line,) = [line for line in result.lines() if "last equal" in line]
    assert f"that of step {before}, and the last equal scalars are those of step" in line


def test_what_is_counted_does_not_depend_on_when_the_execution_ends(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It goes on until a tick, which is some steps behind the difference."""
    part = list_parts(run / "journal")[-1]
    changed = min(step for step in read_part(part).saved if step > read_part(part).header.step)
    with part.open("ab") as file:
        file.write(saved_block(changed, StateHashes(bytes(16), bytes(16))))
    counts = set()
    for tick_s in (0.0, 3600.0):
        late = partial(TrainingLoop, tick_s=tick_s)
        monkeypatch.setattr("vedette_services.learner.rerun.TrainingLoop", late)
        result = execute(run)
        counts.add((result.states, result.scalars, result.difference))
    assert len(counts) == 1


def test_a_checkpoint_without_a_hash_is_said(run: Path) -> None:
    step = max(step for step in checkpoint_steps(run) if step < 300)
    for part in list_parts(run / "journal"):
        if hashes := read_part(part).saved.get(step):
            part.write_bytes(part.read_bytes().replace(saved_block(step, hashes), b""))
    result = execute(run)
    assert result.equal
    why = f"checkpoints/{step}: not compared: the journal has no hash of it"
    assert why in result.lines()


def first_row(run: Path) -> int:
    """The oldest row that its first step can have drawn."""
    with Rerun.open(run) as again:
        return max(0, int(again.span.segments[0].part.looks[0, 0]) - 200)


@pytest.fixture
def closed(run: Path) -> Path:
    """The copy, whose writer of rows has ended: the disk has them."""
    KilledRun(run, config_of("dqn", **PRIORITIZED), random.Random(4)).close_ring()
    return run


@pytest.mark.parametrize("column", ["action", "manager", "actor", "version", "reward"])
def test_a_flipped_bit_of_a_row_is_named(column: str, closed: Path) -> None:
    row = first_row(closed) + 7
    flip(closed, column, row)
    result = execute(closed)
    assert not result.equal
    (found,) = result.rows
    assert found.begin <= row < found.end
    assert (found.source, found.columns) == ("actors", (column,))
    assert any(
        line.endswith(
            f"of replay actors are not as they were written: one or more has another {column}"
        )
        for line in result.lines()
    )


def test_what_can_be_done_about_spoilt_rows_is_said(closed: Path) -> None:
    with Rerun.open(closed) as again:
        (last, *_) = again.span.segments[-1].part.looks[-1].tolist()
    flip(closed, "manager", last - 1)
    result = execute(closed)
    until = result.sound_until
    assert until is not None
    assert 0 < until < 300
    said = "copy the run again, or put these files back as they were"
    line = f"{said}; --until {until} executes the steps before those rows were drawn"
    assert line in result.lines()
    assert not execute(closed, 0, until).different_files
    assert execute(closed, 0, until + 1).different_files
    flip(closed, "manager", first_row(closed))
    result = execute(closed)
    assert result.sound_until is None
    assert said in result.lines()


def test_what_can_be_done_about_spoilt_frames_is_said(
    closed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Frames have numbers of their own; the first row with one of them says which steps saw it."""
    with Rerun.open(closed) as again:
        (last, *_) = again.span.segments[-1].part.looks[-1].tolist()
    row = RowCheck("actors", last - 1, last, ("reward",))
    frames = RowCheck("actors", 3, 9, ("frames",), row_with_frames=last - 1)
    found = []
    for checks in ([row], [frames], [row, frames._replace(row_with_frames=last - 99)]):
        monkeypatch.setattr("vedette_services.learner.rerun.check_rows", lambda *_, c=checks: c)
        found.append(execute(closed).sound_until)
    assert found[0] == found[1]
    assert found[0] is not None
    assert found[2] is not None
    assert 0 < found[2] < found[0]


def test_a_step_that_spoilt_rows_end_is_a_difference(closed: Path) -> None:
    begin = first_row(closed)
    for row in range(begin, begin + 200):  # its capacity
        flip(closed, "action", row)
    result = execute(closed)
    assert result.difference is not None
    assert result.difference.failed
    assert result.difference.step == 1
    assert next(result.lines()).startswith("step 1 could not be executed: RuntimeError: index")


def test_rows_without_checksums_are_named(closed: Path) -> None:
    (closed / "replay" / CHECKSUMS).unlink()
    result = execute(closed)
    assert result.equal
    (line,) = result.not_compared
    assert line.startswith("rows ")
    assert line.endswith("of replay actors have no checksum: not compared")


def test_looks_that_saw_no_rows_are_refused_and_not_waited_for(run: Path) -> None:
    first, *others = list_parts(run / "journal")
    for path in others:
        path.unlink()
    header = read_part(first).header
    first.unlink()
    part = PartWriter.create(first.parent, header)
    part.write(draws_block(1, [Look((0,))] * 3, (0,)))
    part.close()
    with pytest.raises(NotExecutableError, match=r"step 1 saw 0 rows, .* the journal is damaged"):
        execute(run, 0, 3)


def test_a_journal_whose_first_draws_are_damaged_says_so(run: Path) -> None:
    first, *others = list_parts(run / "journal")
    for path in others:
        path.unlink()
    header = read_part(first).header
    first.unlink()
    part = PartWriter.create(first.parent, header)
    part.write(draws_block(1, [Look((99,))], (0,))[:-1])
    part.close()
    with pytest.raises(NotExecutableError, match="part 1-0 has no whole draw: its file was cut"):
        execute(run)


def test_a_journal_of_another_run_is_refused(run: Path) -> None:
    for part in list_parts(run / "journal"):
        with_header(part, run="77")
    with pytest.raises(NotExecutableError, match="its journal is of run 77: another one, or"):
        execute(run)


def test_a_newer_start_whose_journal_cannot_be_read_is_said(tmp_path: Path) -> None:
    """Else its steps would seem to be those of the run."""
    config = config_of("dqn", steps=60)
    run = KilledRun(tmp_path, config, random.Random(0))
    run.train(kills=0)
    stop = config.stop.model_copy(update={"max_opts": 80})
    run.config = config.model_copy(update={"stop": stop})
    run.train(kills=0)
    (tmp_path / "journal" / "2-60").write_bytes(b"torn")
    with Rerun.open(tmp_path) as again:
        assert again.span.end == 60
        why = "the checkpoint of step 80 is of start 2, and these steps are of start 1"
        assert again.span.why_not_later == why
        assert again.span.not_covered == (f"steps behind 60 are not covered: {why}",)
        assert again.execute(again.span.cut(None, None)).equal


def test_a_journal_that_would_fill_the_memory_is_refused(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spans, "_NUMBERS_MAX", 20)
    with pytest.raises(NotExecutableError, match="its journal has more than 20 looks"):
        execute(run)


def test_a_state_that_is_none_of_its_agent_is_refused_in_a_line(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the journal has no hash that says so."""
    monkeypatch.setattr("vedette_services.learner.rerun.start_hashes", lambda *given: None)
    step = min(checkpoint_steps(run))
    place = run / "checkpoints" / str(step)
    state, meta = read_state(place)
    for wrong in ({**state, "agent": {}}, {**state, "agent": 5}, {"other": 1}):
        write_state(place, wrong, meta)
        with pytest.raises(NotExecutableError, match=f"the state of step {step} is none of this"):
            execute(run, step)


def test_pipes_in_a_journal_are_not_waited_for(run: Path) -> None:
    (config,) = (run / "journal").glob("*.toml")
    config.unlink()
    os.mkfifo(config)
    os.mkfifo(run / "journal" / "9-9")
    with pytest.raises(NotExecutableError, match="it is no regular file"):
        execute(run)


# What cannot be executed


def with_header(path: Path, **changed: Any) -> None:
    """Change the header of a part."""
    header = read_part(path).header
    old = make_block(Kind.HEADER, header.to_json())
    data = path.read_bytes()
    assert data.startswith(old)
    new = make_block(Kind.HEADER, replace(header, **changed).to_json())
    path.write_bytes(new + data[len(old) :])


def of_another_contract(run: Path) -> None:
    with_header(list_parts(run / "journal")[-1], contract=2, versions={"vedette": "0.5.0"})


def with_config(run: Path, old: str, new: str) -> None:
    """Change the configuration, and the parts so that they name it."""
    (config,) = (run / "journal").glob("*.toml")
    text = config.read_text()
    assert old in text
    name = keep_config(run / "journal", text.replace(old, new))
    for part in list_parts(run / "journal"):
        with_header(part, config=name)


def with_ranks(run: Path) -> None:
    with_config(run, "ranks = 1\n", "ranks = 4\n")


def with_a_changed_configuration(run: Path) -> None:
    (config,) = (run / "journal").glob("*.toml")
    with config.open("a") as file:
        file.write("# no change of a value\n")


def without_journal(run: Path) -> None:
    shutil.rmtree(run / "journal")


def rows_seen_in_the_middle(run: Path) -> int:
    """Rows that a draw in the middle of the newest start saw: how many there were is by chance."""
    looks = read_part(list_parts(run / "journal")[-1]).looks
    return int(looks[len(looks) // 2, 0])


def with_a_new_branch(run: Path) -> None:
    rows = rows_seen_in_the_middle(run)
    ring_files.write_cursor(run / "replay", rows, 0, new_branch=True)


def without_states(run: Path) -> None:
    for part in list_parts(run / "journal")[:-1]:
        part.unlink()
    with_header(list_parts(run / "journal")[-1], step=1)
    shutil.rmtree(run / "checkpoints")


def without_its_configuration(run: Path) -> None:
    (config,) = (run / "journal").glob("*.toml")
    config.unlink()


def with_fewer_rows(run: Path) -> None:
    """As where the replay was copied first, and the learner went on."""
    rows = rows_seen_in_the_middle(run)
    ring_files.write_cursor(run / "replay", rows, 0, new_branch=False)


def without_a_column(run: Path) -> None:
    next((run / "replay").glob("*-reward.bin")).unlink()


def without_replay(run: Path) -> None:
    shutil.rmtree(run / "replay")


def without_commits(run: Path) -> None:
    for name in (COMMITS, SYNCED):
        (run / "replay" / name).unlink(missing_ok=True)


REFUSED: dict[str, tuple[Callable[[Path], None], str]] = {
    "no journal": (without_journal, "it has no journal: it was run by a loop of your own, or by"),
    "another contract": (
        of_another_contract,
        "its journal is of contract 2, and this release executes 1: use Vedette 0.5.0",
    ),
    "ranks": (with_ranks, "learner.ranks is 4: ranks other than 0 choose rows by their own view"),
    "another branch": (
        with_a_new_branch,
        r"replay actors has used its row numbers again since \(lost power, or --new-replay\): "
        r"rows that step 300 saw are gone \(--until \d+ executes what is before\)",
    ),
    "a changed configuration": (
        with_a_changed_configuration,
        r"\.toml has been changed since the run wrote it",
    ),
    "a copy of different times": (
        with_fewer_rows,
        r"replay actors has [\d,]+ rows, and step 300 saw [\d,]+: this copy of the run is",
    ),
    "no rewards": (
        without_a_column,
        r"reward\.bin is missing: copy the run again, or put a whole file back$",
    ),
    "no replay": (without_replay, "the replay is not there: .*/replay was removed, or not copied"),
    "lost rows": (
        without_commits,
        r"the last rows in .* are lost: .*; copy the run again, or start it once, .* them$",
    ),
    "no configuration": (without_its_configuration, r"\.toml is missing"),
}


@pytest.mark.parametrize("why", REFUSED)
def test_what_is_not_covered_is_refused_with_the_reason(why: str, run: Path) -> None:
    change, said = REFUSED[why]
    change(run)
    with pytest.raises(NotExecutableError, match=said) as refused, Rerun.open(run):
        raise AssertionError("it is not opened")
    assert refused.value.exit_status == 2
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('name = "dqn"', 'name = "stranger:Thing"'),
        ('network = "auto"', 'network = "stranger:Thing"'),
        ('step_processor = "n_step"', 'step_processor = "stranger:Thing"'),
        ('name = "auto"', 'name = "stranger:Thing"'),
    ],
    ids=["agent", "network", "step processor", "replay"],
)
def test_nothing_that_a_strangers_run_names_is_imported(
    old: str, new: str, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "stranger.py").write_text("raise SystemExit('it is executed')\n")
    monkeypatch.syspath_prepend(tmp_path)
    with_config(run, old, new)
    with pytest.raises(ImportPermissionError, match="--allow-import stranger"):
        execute(run)


def test_a_replay_of_the_users_own_is_refused_where_there_is_a_journal(run: Path) -> None:
    with_config(run, 'name = "auto"', 'name = "mine:Replay"')
    with pytest.raises(NotExecutableError, match=r"replay\.name mine:Replay: a replay of your own"):
        Rerun.open(run, allow_import=["mine"]).__enter__()


def test_a_run_whose_learner_runs_is_refused(run: Path) -> None:
    learner = RunDirectory(run)
    learner.lock()
    try:
        with pytest.raises(NotExecutableError, match=r"a learner runs here .*: stop it, or"):
            Rerun.open(run).__enter__()
    finally:
        learner.unlock()


def test_no_learner_starts_meanwhile_and_nothing_changes(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (run / "lock").touch()
    before = {file: file.read_bytes() for file in run.rglob("*") if file.is_file()}
    with Rerun.open(run) as again:
        monkeypatch.setattr(directory, "_LOCK_WAIT_S", 0.0)
        with pytest.raises(RunInUseError, match="in use by vedette rerun or vedette verify; end"):
            RunDirectory(run).lock()
        again.execute(again.span.cut(None, None))
    assert {file: file.read_bytes() for file in run.rglob("*") if file.is_file()} == before


@pytest.mark.parametrize("change", [with_fewer_rows, with_a_new_branch])
def test_what_saw_rows_that_are_there_is_executed_up_to_a_step(
    change: Callable[[Path], None], run: Path
) -> None:
    change(run)
    with pytest.raises(NotExecutableError) as refused:
        Rerun.open(run).__enter__()
    found = re.search(r"--until (\d+) executes what is before", str(refused.value))
    assert found
    until = int(found[1])
    with Rerun.open(run, until=until) as again:
        assert (again.span.begin, again.span.end) == (0, until)
        assert again.execute(again.span.cut(None, until)).equal
    with pytest.raises(NotExecutableError):
        Rerun.open(run, until=until + 1).__enter__()


@pytest.fixture(scope="module")
def synced_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose writer was killed; the disk got its rows in the middle."""
    root = tmp_path_factory.mktemp("synced") / "run"
    run = KilledRun(root, config_of("dqn"), random.Random(0), leads_by=200, syncs_at=150)
    run.train(kills=0)
    return root


def test_what_saw_no_lost_row_is_executed_up_to_a_step(synced_once: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(synced_once, run)
    lose_pages(run / "replay")
    lost = r"the last rows in .*/replay are lost: .* or start it once, which recovers the rows"
    said = f"{lost} before them " + r"\(--until (\d+) executes what is before\)$"
    with pytest.raises(NotExecutableError, match=said) as refused:
        Rerun.open(run).__enter__()
    found = re.search(said, str(refused.value))
    assert found
    until = int(found[1])
    assert 100 < until < 300
    with Rerun.open(run, until=until) as again:
        result = again.execute(again.span.cut(None, until))
    assert result.equal, list(result.lines())
    assert result.states > 0
    with pytest.raises(NotExecutableError, match=lost):
        Rerun.open(run, until=until + 1).__enter__()


def test_rows_that_are_whole_are_executed_whatever_machine_has_stopped(
    synced_once: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a copy of a run that was killed on another machine."""
    run = tmp_path / "run"
    shutil.copytree(synced_once, run)
    monkeypatch.setattr(commits, "boot_id", lambda: b"another start   ")
    assert find_recovery(run / "replay", read_manifest(run / "replay")) is not None
    result = execute(run)
    assert result.equal, list(result.lines())
    assert result.end == 300


def test_each_reason_why_no_step_before_is_executed_is_named(tmp_path: Path) -> None:
    config = config_of("dqn", steps=120)
    run = KilledRun(tmp_path, config, random.Random(0))
    run.train(kills=0)
    stop = config.stop.model_copy(update={"max_opts": 300})
    run.config = config.model_copy(update={"stop": stop})
    run.train(kills=0)
    first, _ = list_parts(tmp_path / "journal")
    ring = read_part(first).header.rings[0]
    with_header(first, run="77", rings=(replace(ring, branch="another"),))
    for step in checkpoint_steps(tmp_path):
        if step <= 120:
            shutil.rmtree(tmp_path / "checkpoints" / str(step))
    with Rerun.open(tmp_path) as again:
        assert again.span.begin > 120
        whys = again.span.why_not_earlier.split("; and ")
    begins = [
        "its journal is of run 77: another one, or before --new-replay",
        "replay actors has used its row numbers again since (lost power, or --new-replay): rows ",
        "its journal begins at step 0, and of the states since there are the checkpoints ",
    ]
    assert len(whys) == len(begins)
    assert all(why.startswith(begin) for why, begin in zip(whys, begins, strict=True))


def test_rows_that_are_gone_are_named_with_what_keeps_them(tmp_path: Path) -> None:
    config = config_of("dqn", prioritized=True, **OVERWRITTEN)
    learner = config.learner.model_copy(update={"save_interval": 100})
    config = config.model_copy(update={"learner": learner})
    run = KilledRun(tmp_path, config, random.Random(4), leads_by=200)
    run.train(kills=0)
    state = min(step for step in checkpoint_steps(tmp_path) if step < 300)
    (part,) = [read_part(path) for path in list_parts(tmp_path / "journal")]
    wanted = int(part.looks[state - 1, 0]) - 200  # the oldest row, from then on
    assert part.looks[0, 0] < wanted, "the first step draws only rows that are gone"
    run.insert_until_oldest(wanted)
    with Rerun.open(tmp_path) as again:
        span = again.span
        assert span.begin == state
        found = re.search(
            r"step ([\d,]+) needs row ([\d,]+) of replay actors, and the oldest there is ([\d,]+); "
            "a larger replay.keep keeps more",
            span.why_not_earlier,
        )
        assert found
        step, needs, oldest = (int(number.replace(",", "")) for number in found.groups())
        assert needs < oldest == wanted
        assert step <= span.begin
        with pytest.raises(ValueError, match=r"steps 0 to 300 are not within the span.*needs row"):
            span.cut(0, None)
        assert again.execute(span.cut(None, None)).equal
    run.insert_until_oldest(int(part.looks[-1, 0]))
    with pytest.raises(NotExecutableError, match=r"a larger replay\.keep keeps more"):
        Rerun.open(tmp_path).__enter__()


def test_steps_that_a_later_start_has_done_again_are_executed_by_their_epoch(
    tmp_path: Path,
) -> None:
    run = KilledRun(tmp_path, config_of("dqn"), random.Random(0))
    run.train(kills=0)
    for path in (tmp_path / "checkpoints").iterdir():
        shutil.rmtree(path)
    run.train(kills=0)
    with Rerun.open(tmp_path) as last:
        assert [each.part.header.name for each in last.span.segments] == ["2-0"]
        assert last.execute(last.span.cut(None, None)).equal
    with Rerun.open(tmp_path, epoch=1) as first:
        assert [each.part.header.name for each in first.span.segments] == ["1-0"]
        assert first.execute(first.span.cut(None, None)).equal
    with pytest.raises(NotExecutableError, match=r"epoch 3 has no part .* those of 1, 2"):
        Rerun.open(tmp_path, epoch=3).__enter__()


def test_a_start_of_a_run_that_is_over_changes_nothing(tmp_path: Path) -> None:
    run = KilledRun(tmp_path, config_of("dqn"), random.Random(0))
    for _ in range(3):
        run.train(kills=0)
    assert [path.name for path in list_parts(tmp_path / "journal")] == ["1-0", "2-300", "3-300"]
    with Rerun.open(tmp_path) as again:
        assert (again.span.begin, again.span.end) == (0, 300)
        assert again.execute(again.span.cut(None, None)).equal


def test_a_state_that_is_damaged_is_refused(run: Path) -> None:
    with Rerun.open(run) as again:
        state = max(again.span.starts)
        assert state > 0
        (run / "checkpoints" / str(state) / "state.safetensors").write_bytes(b"torn")
        with pytest.raises(NotExecutableError, match=f"checkpoints/{state}"):
            again.execute(again.span.cut(state, None))


def test_any_state_that_is_there_is_a_begin(run: Path) -> None:
    with Rerun.open(run) as again:
        assert len(again.span.starts) >= 2
        for start in again.span.starts:
            result = again.execute(again.span.cut(start, None))
            assert (result.begin, result.end) == (start, 300)
            assert result.equal


def test_another_machine_is_named_in_the_answer(run: Path) -> None:
    for part in list_parts(run / "journal"):
        machine = {**read_part(part).header.machine, "processor": "a Z80"}
        with_header(part, machine=machine)
    lines = [*execute(run).lines()]
    assert lines[0].startswith("equal: ")
    assert any(line.startswith("  processor: a Z80 then, ") for line in lines)


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ("[learner]\njournal = false\n", "it was run with learner.journal=false"),
        (
            "[learner]\njournal = true\n",
            "the journal is not there: .*/journal was removed, or not copied .* disk was short",
        ),
        ("[learner]\nranks = 2\n", "learner.ranks is 2: ranks other than 0"),
        ('[replay]\nname = "my:Replay"\n', "replay.name my:Replay: a replay of your own may read"),
    ],
)
def test_a_run_without_a_journal_is_refused_with_its_setting(
    table: str, said: str, run: Path
) -> None:
    without_journal(run)
    (run / "config.toml").write_text(table)
    with pytest.raises(NotExecutableError, match=said):
        Rerun.open(run).__enter__()


def test_a_journal_without_a_part_is_refused(run: Path) -> None:
    without_journal(run)
    (run / "journal").mkdir()
    (run / "config.toml").write_text("[learner]\njournal = true\n")
    with pytest.raises(NotExecutableError, match="/journal has no part of it: the disk was short"):
        Rerun.open(run).__enter__()


def test_a_run_in_one_process_is_refused(tmp_path: Path) -> None:
    in_process = RunDirectory(tmp_path / "run")
    in_process.make()
    in_process.ensure_id(in_process=True)
    with pytest.raises(NotExecutableError, match="--in-process was in memory and is gone"):
        Rerun.open(tmp_path / "run").__enter__()


def test_a_part_that_ended_early_is_named_with_its_reason(tmp_path: Path) -> None:
    """As after a step for which a device had no memory: the next part begins at a checkpoint."""
    KilledRun(tmp_path, config_of("dqn"), random.Random(0)).train(kills=0)
    (whole,) = list_parts(tmp_path / "journal")
    part = read_part(whole)
    state = min(step for step in checkpoint_steps(tmp_path) if step < 300)
    rows = int(part.looks[state - 1, 0])
    whole.unlink()
    ended = PartWriter.create(whole.parent, part.header)
    looks = [Look((rows,)) for (rows,) in part.looks[:9].tolist()]
    ended.write(draws_block(1, looks, (0,)) + end_block(End(8, "no memory on cuda:0")))
    ended.close()
    rings = (replace(part.header.rings[0], inserted=rows),)
    header = replace(part.header, step=state, written_by=1, rings=rings)
    goes_on = PartWriter.create(whole.parent, header)
    looks = [Look((rows,)) for (rows,) in part.looks[state:].tolist()]
    goes_on.write(draws_block(state + 1, looks, (rows,)))
    goes_on.write(b"".join(saved_block(*item) for item in part.saved.items()))
    goes_on.close()
    with Rerun.open(tmp_path) as again:
        assert (again.span.begin, again.span.end) == (state, 300)
        assert again.span.why_not_earlier == (
            "the part before ends at step 8: no memory on cuda:0; the journal goes on at the "
            f"checkpoint of step {state} (--until 8 executes what is before)"
        )
        assert again.execute(again.span.cut(None, None)).equal
        assert again.span.not_covered[0].startswith(f"steps before {state} are not covered: the ")
    for step in (3, 8):
        with Rerun.open(tmp_path, step=step) as before:
            assert (before.span.begin, before.span.end) == (0, 8)
            assert before.execute(before.span.cut(None, step)).end == step
    for step in (9, state + 1):
        with Rerun.open(tmp_path, step=step) as again:
            assert again.span.begin == state


def test_a_journal_of_several_parts_of_one_start_is_executed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as short_parts:
        short = partial(JournalWriter, long_bytes=1200, every_s=0.001)
        short_parts.setattr(learner_module, "JournalWriter", short)
        run = KilledRun(tmp_path, config_of("dqn", prioritized=True), random.Random(0))
        run.train(kills=1)
    assert len(list_parts(tmp_path / "journal")) > 3
    with Rerun.open(tmp_path) as again:
        assert len(again.span.segments) > 3
        assert (again.span.begin, again.span.end) == (0, 300)
        result = again.execute(again.span.cut(None, None))
    assert result.equal, list(result.lines())


def test_a_run_that_began_with_other_weights_is_executed_from_its_first_checkpoint(
    trained: Path, tmp_path: Path
) -> None:
    """Before it there is no state of its own."""
    config = config_of("dqn", prioritized=True)
    learner = config.learner.model_copy(update={"init_from": str(trained)})
    (trained / "config.toml").write_text(config_text(config))
    run = KilledRun(tmp_path, config.model_copy(update={"learner": learner}), random.Random(0))
    run.train(kills=0)
    (path,) = list_parts(tmp_path / "journal")
    assert read_part(path).header.written_by == 1
    with Rerun.open(tmp_path) as again:
        assert again.span.begin > 0
        assert again.execute(again.span.cut(None, None)).equal
