"""Executes a run's learning again, offline: from a state, the replay and the journal.

::

    with Rerun.open(run) as rerun:
        span = rerun.span
        result = rerun.execute(span.cut(None, None))
    result.difference            # None: equal at every hash

It does what the trainer did, by the same loop. What the trainer saved then is compared by its hash,
and what it recorded.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch

from vedette_protocol.foreign_text import printable
from vedette_rl.core import Agent, ReplayBuffer, State
from vedette_rl.core.learning import restore_agent
from vedette_rl.core.protocols import implements
from vedette_rl.device.host_copy import mark_work, settled
from vedette_rl.device.loader import (
    DeviceLoader,
    LoaderAhead,
    PinnedLoader,
    RingLoader,
    make_loader,
)
from vedette_rl.envs.spaces import Spaces
from vedette_rl.envs.stored_spaces import spaces_from_json
from vedette_rl.errors import CheckpointError, ReplayFormatError, ReplayTornError, RlError
from vedette_rl.import_by_name import is_import_name
from vedette_rl.replay import ring_files
from vedette_rl.replay.config import ACTORS
from vedette_rl.replay.frame_ring import open_reader
from vedette_rl.replay.limiter import Limiter
from vedette_rl.replay.manifest import read_manifest
from vedette_rl.replay.playback import Playback
from vedette_rl.replay.ring import RingReader
from vedette_rl.replay.syncing import Recovery, find_recovery
from vedette_rl.storage.checkpoints import Checkpoints
from vedette_rl.storage.regular_files import read_bytes
from vedette_rl.storage.state_hash import hash_state
from vedette_services.config.import_permission import check_run_imports
from vedette_services.config.loading import read_config, read_toml
from vedette_services.config.run_config import RunConfig
from vedette_services.errors import RunInUseError, ServicesError
from vedette_services.learner.file_checks import (
    BestModel,
    FileCheck,
    RowCheck,
    check_checkpoints,
    check_rows,
    find_hashes,
    start_hashes,
)
from vedette_services.learner.trainer.computation import describe_machine, describe_software
from vedette_services.learner.trainer.device import is_device_fault, resolve_device
from vedette_services.learner.trainer.learner import (
    build_learning_agent,
    configured_arithmetic,
    gather_capture,
    growing_rings,
    hash_saved,
    journaled_scalars,
    learner_state,
    make_replay,
    restore_replay,
)
from vedette_services.learner.trainer.training_loop import TrainingLoop
from vedette_services.run.certificate import Certificate
from vedette_services.run.directory import RunDirectory
from vedette_services.run.journal import (
    Header,
    Part,
    config_file,
    hash_config,
    hash_scalars,
)
from vedette_services.run.replay_layout import replay_directory
from vedette_services.run.sources import open_sources, source_directory
from vedette_services.run.spans import (
    NotExecutableError,
    Segment,
    Span,
    describe_own_replay,
    describe_ranks,
    find_chain,
    find_span,
    read_parts,
)
from vedette_services.status.records import TrainerStatus

AGENT, OTHERS, SCALARS = "the agent", "draws, priorities or generators", "recorded scalars"
START = "the checkpoint that it begins at is not the state that was saved"
"""What may differ."""

_MALFORMED = (AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError)
"""Errors of reading what somebody has written who is no trainer."""

_IMPORTED = ("agent", "actors", "replay")
"""The tables of which something is imported here: actors' step processor says which columns there
are."""


@dataclass(frozen=True, slots=True)
class Difference:
    """The first hash that is another one, or the step that could not be executed.

    Args:
        step: the optimization step of it.
        after: the last step whose state has an equal hash, or the first state of all. Scalars that
            are equal say nothing of a whole state.
        what: is different: `AGENT`, `OTHERS`, `SCALARS` or `START`.
        failed: why the step could not be executed; "" where it was.
    """

    step: int
    after: int
    what: str
    failed: str = ""

    def describe(self) -> str:
        """Say where it is."""
        if self.failed:
            return f"step {self.step:,} could not be executed: {self.failed}"
        if self.what == START:
            return (
                f"different: the checkpoint of step {self.step:,} is not the state that was saved"
            )
        return f"different: {self.what}, at step {self.step:,}"


@dataclass
class Result:
    """What an execution has found.

    Args:
        begin, end: the state that it began at, and its last step.
        states, scalars: hashes that are equal.
        difference: None: none is another one.
        weights: the hash of the agent's state, by step, of the states that are equal.
        acting: the hash of the weights that act and are exported, of the same states.
        scalars_until: the last step whose recorded scalars are equal; -1: none.
        files: checkpoints of these steps that were looked at.
        rows: that are not as they were written, or have no checksum.
        changes: what results may depend on and is another than then: a line each.
        sound_until: the last step that saw no row of those that are not as they were written; None:
            there is none behind the first state, or it is not known.
        last: the state at the end.
    """

    begin: int
    end: int
    states: int = 0
    scalars: int = 0
    difference: Difference | None = None
    weights: dict[int, str] = field(default_factory=dict)
    acting: dict[int, str] = field(default_factory=dict)
    scalars_until: int = -1
    files: tuple[FileCheck, ...] = ()
    rows: tuple[RowCheck, ...] = ()
    changes: tuple[str, ...] = ()
    sound_until: int | None = None
    last: State = field(default_factory=dict)

    @property
    def equal(self) -> bool:
        """True where something was compared and all of it is equal, files too."""
        return not self.different_files and self.difference is None and self._compared > 0

    @property
    def different_files(self) -> tuple[str, ...]:
        """Checkpoints and rows that are not as they were written, a line each."""
        files = [each.describe() for each in self.files if each.equal is False]
        return (*files, *[each.describe() for each in self.rows if each.columns])

    @property
    def advice(self) -> str:
        """Say what can be done about files that are different."""
        before = ""
        if self.sound_until is not None:
            before = f"; --until {self.sound_until} executes the steps before those rows were drawn"
        return f"copy the run again, or put these files back as they were{before}"

    @property
    def not_compared(self) -> tuple[str, ...]:
        """What of the run's files was not compared, a line each."""
        files = [each.describe() for each in self.files if each.equal is None]
        rows = [each.describe() for each in self.rows if not each.columns]
        return (*files, *rows)

    @property
    def _compared(self) -> int:
        return self.states + self.scalars

    def lines(self) -> Iterator[str]:
        """Say what was found, a line each."""
        compared = f"{self.states:,} states and {self.scalars:,} records of scalars"
        if (found := self.difference) is not None:
            yield found.describe()
            if found.what != START:
                yield from self._describe_before(found, compared)
        elif self._compared and self.different_files:
            yield f"different: files; what was executed is equal: {compared}"
        elif self.equal:
            yield f"equal: {compared}"
        else:
            yield "no state and no record of scalars lies between these steps: nothing was compared"
        yield from self.different_files
        if self.different_files:
            yield self.advice
        yield from self.not_compared
        if self.changes:
            yield "what results may depend on, and is another than then:"
            yield from (f"  {line}" for line in self.changes)
        elif self.difference is not None and not self.different_files:
            yield (
                "machine and versions are those of then: code, a custom network, or a file of the "
                "run has changed, or the computation is not deterministic (on a GPU: "
                "learner.deterministic=false, or additions in any order in a custom network)"
            )

    def _describe_before(self, found: Difference, compared: str) -> Iterator[str]:
        state = "the last equal state is" if found.after > self.begin else "it began at"
        scalars = ""
        if self.scalars_until >= 0:
            scalars = f", and the last equal scalars are those of step {self.scalars_until:,}"
        yield f"{state} that of step {found.after:,}{scalars} (equal: {compared})"

    def to_json(self) -> dict[str, Any]:
        """The same for programs."""
        found = self.difference
        return {
            "equal": self.equal,
            "first": self.begin,
            "last": self.end,
            "states": self.states,
            "scalars": self.scalars,
            "difference": None if found is None else asdict(found),
            "scalars_until": None if self.scalars_until < 0 else self.scalars_until,
            "files": {each.name: each.why or "equal" for each in self.files},
            "different_files": list(self.different_files),
            "not_compared": list(self.not_compared),
            "changes": list(self.changes),
        }


class Rerun:
    """A run that is executed again; no learner can start on it meanwhile.

    Args:
        parts: of its journal.
        epoch: whose steps; None: the last one's.
        step: that is to be among them, also before a gap in the journal; None: the last one.
        until: the last step that is to be executed; None: the last one.
        allow_import: packages that it may import, whoever has begun the run.
    """

    def __init__(
        self,
        run: RunDirectory,
        parts: list[Part],
        epoch: int | None,
        step: int | None,
        until: int | None,
        allow_import: Collection[str],
        held: ExitStack,
    ) -> None:
        self._run = run
        self._allow_import = allow_import
        self._held = held
        try:
            chain = find_chain(parts, epoch, step)
        except ValueError as error:
            raise NotExecutableError(run.root, str(error)) from error
        self._parts = parts
        self._chain = chain
        config = self._config_of(chain[-1])
        self._recoveries = self._hold_replay(config)
        lost = {name: _describe_lost(place) for name, (place, _) in self._recoveries.items()}
        self.span: Span = find_span(run, chain, self._open_rings(config), parts, until, lost)

    @classmethod
    @contextmanager
    def open(
        cls,
        directory: Path,
        *,
        epoch: int | None = None,
        step: int | None = None,
        until: int | None = None,
        allow_import: Collection[str] = (),
    ) -> Iterator[Self]:
        """Open a run.

        Args:
            epoch: whose steps, also where a later start has gone on from an earlier checkpoint;
                None: the last one's.
            step: that is to be among them, also before a gap in the journal.
            until: the last step that is to be executed, so that rows of later ones may be missing.

        Raises:
            NotARunError: there is none.
            NotExecutableError: a learner runs on it, or nothing of it can be executed again.
        """
        run = RunDirectory(directory)
        run.identity()
        with ExitStack() as held:
            try:
                held.enter_context(run.hold_free())
            except RunInUseError as error:
                why = f"a learner runs here ({error.holder}): stop it, or execute a copy"
                raise NotExecutableError(directory, why) from error
            try:
                again = cls(run, read_parts(run), epoch, step, until, allow_import, held)
            except ReplayTornError as error:
                why = (
                    f"the replay's file {error.path} {error.why}: copy the run again, or put a "
                    "whole file back"
                )
                raise NotExecutableError(directory, why) from error
            except ReplayFormatError as error:
                raise NotExecutableError(directory, str(error)) from error
            yield again

    @property
    def run_id(self) -> str:
        """The run's id."""
        return self._run.identity().run_id

    def execute(
        self,
        segments: tuple[Segment, ...],
        watch: Watch | None = None,
        changed: Callable[[RunConfig], RunConfig] = lambda config: config,
        *,
        compares_files: bool = True,
    ) -> Result:
        """Execute segments of the span, up to the first difference, once the files that they rest
        on were compared with what was written down of them.

        Args:
            watch: sees every step.
            changed: makes the configuration to execute of that of the run; where it is another
                one, no step is compared.
            compares_files: False: they were compared by an execution of the same segments.
        """
        result = Result(segments[0].begin, segments[-1].end)
        if compares_files:
            self._compare_files(segments, result)
        state = self._first_state(segments[0])
        expected = start_hashes(segments[0], self._parts)
        if state and expected is not None and find_hashes(state) != expected:
            result.difference = Difference(result.begin, result.begin, START)
            return result
        best = BestModel.read(self._run)
        watch = watch or Watch()
        for segment in segments:
            state = self._execute(segment, state, result, watch, changed, best)
            if result.difference is not None or watch.ends(segment.end):
                break
        if best is None and self._run.best.exists():
            why = "not compared: it cannot be read, or says no step"
            result.files += (FileCheck("best", equal=None, why=why),)
        elif best is not None and not best.is_compared and best.step <= result.end:
            result.files += (best.uncompared(),)
        result.last = state
        return result

    def _compare_files(self, segments: tuple[Segment, ...], result: Result) -> None:
        epochs = {each.header.epoch for each in self._chain}
        epochs |= {epoch for each in self._chain if (epoch := each.header.written_by) is not None}
        result.files = tuple(check_checkpoints(self._run, self._parts, segments, epochs))
        rings = self._open_rings(self._config_of(segments[-1].part))
        result.rows = tuple(check_rows(rings, self._drawn_rows(segments, rings)))
        spoilt: dict[str, int] = {}
        for each in result.rows:
            if each.columns:
                spoilt[each.source] = min(each.first_row, spoilt.get(each.source, each.first_row))
        until = _last_step_before(segments, spoilt)
        if spoilt and until is not None and until > result.begin:
            result.sound_until = until

    def _drawn_rows(
        self, segments: tuple[Segment, ...], rings: Mapping[str, RingReader]
    ) -> dict[str, tuple[int, int]]:
        """Of each replay that grows, the first row and the end of those that were drawn from."""
        rows: dict[str, tuple[int, int]] = {}
        for segment in segments:
            part = segment.part
            looks = part.looks[part.looks_until(segment.begin) : part.looks_until(segment.end)]
            for ring, seen in zip(part.header.rings, looks.T.tolist(), strict=True):
                if seen:
                    oldest = max(ring.floor, seen[0] - rings[ring.name].capacity)
                    before = rows.get(ring.name, (oldest, 0))
                    rows[ring.name] = min(oldest, before[0]), max(seen[-1], before[1])
        return rows

    def certify(self, segments: tuple[Segment, ...], result: Result) -> Certificate:
        """The certificate of an execution of these segments."""
        rings = self._open_rings(self._config_of(segments[-1].part))
        last = segments[-1].part.header
        device = resolve_device(self._config_of(segments[-1].part).learner.device)
        difference = ""
        if (found := result.difference) is not None:
            difference = f"different at step {found.step:,} ({found.failed or found.what})"
        elif result.different_files:
            difference = f"different: {result.different_files[0]}"
        return Certificate(
            run=self.run_id,
            equal=result.equal,
            first=result.begin,
            last=result.end if result.difference is None else result.difference.step,
            states=result.states,
            scalars=result.scalars,
            weights=result.weights,
            acting=result.acting,
            epochs=tuple(dict.fromkeys(each.part.header.epoch for each in segments)),
            files={each.name: each.why or "equal" for each in result.files},
            not_covered=(*self.span.not_covered, *result.not_compared),
            rows=self._drawn_rows(segments, rings),
            configs=tuple(dict.fromkeys(each.part.header.config for each in segments)),
            then={**last.machine, **last.versions},
            now={**describe_machine(device), **describe_software()},
            changes=result.changes,
            difference=difference,
        )

    def _first_state(self, segment: Segment) -> State:
        """The state of a checkpoint; empty where there is none before the first step."""
        if segment.begin == segment.part.header.step and segment.part.header.written_by is None:
            return {}
        try:
            found = Checkpoints(self._run.checkpoints, keep=1).read(str(segment.begin))
        except CheckpointError as error:
            raise NotExecutableError(self._run.root, str(error)) from error
        if found is None:
            why = f"the checkpoint of step {segment.begin:,} is gone"
            raise NotExecutableError(self._run.root, why)
        return found.state

    def _execute(
        self,
        segment: Segment,
        state: State,
        result: Result,
        watch: Watch,
        changed: Callable[[RunConfig], RunConfig],
        best: BestModel | None,
    ) -> State:
        """Execute a segment from a state; return the last one."""
        part = segment.part
        header = part.header
        saved_config = self._config_of(part)
        config = changed(saved_config)
        device = resolve_device(config.learner.device)
        spaces = self._spaces_of(header)
        agent = build_learning_agent(config, spaces, header.epoch, device)
        first = part.looks_until(segment.begin)
        until = part.looks_until(segment.end)
        opened = np.array([ring.inserted for ring in header.rings], np.int64)
        if segment.begin > header.step:  # opened as a start from this state would have
            opened = part.looks[first - 1]
        assert not part.dropped[first:until].any(), "the rows of a look that was dropped are gone"
        playback = Playback(opened, part.looks[first:until])
        replay = self._open_replay(config, spaces, header, playback)
        errors: State = {}
        if state:
            try:
                restore_agent(config.agent.name, agent, state["agent"], segment.begin)
                errors = restore_replay(state, replay, device)
            except _MALFORMED as error:
                why = (
                    f"the state of step {segment.begin:,} is none of this agent and replay "
                    f"({_describe_error(error)})"
                )
                raise NotExecutableError(self._run.root, why) from error
        loader = make_loader(
            replay,
            config.agent.batch_size,
            device,
            copy_replay=config.learner.copy_replay,
            capture=gather_capture(device, config.learner),
        )
        if isinstance(loader, RingLoader):
            loader.follow_each_look()
        playback.next_draw()  # its first look
        if config == saved_config:
            result.changes += tuple(
                line
                for line in describe_changes(part, device, loader)
                if line not in result.changes
            )
        comparison = _Comparison(
            part,
            replay,
            device,
            result,
            watch,
            best=best,
            compares=config == saved_config,
        )
        watch.begin(agent, replay, loader, config)
        loop = TrainingLoop(
            agent,
            replay,
            loader,
            Limiter(0.0, min_size=1, error_buffer=0.0, batch_size=config.samples_per_opt),
            config.learner,
            comparison,
            learning=TrainerStatus(opt_steps=agent.opt_steps),
            max_opts=segment.end,
            samples_per_opt=config.samples_per_opt,
            offline=config.actors.count == 0,
            mark=partial(mark_work, device),
            errors=errors,
            errors_delay=_errors_delay(header, loader),
            note_draw=playback.next_draw,
            idle=partial(self._refuse_to_wait, agent, playback),
        )
        try:
            with configured_arithmetic(config.learner, device):
                loop.run()
        except (ServicesError, OSError, MemoryError):
            raise  # of this machine, or asked for wrongly
        except Exception as error:  # whatever spoilt rows may do to an agent
            if config != saved_config or is_device_fault(error):
                raise
            comparison.fail(agent.opt_steps + 1, _describe_error(error))
        return comparison.last

    def _spaces_of(self, header: Header) -> Spaces:
        try:
            return spaces_from_json(header.spaces)
        except (*_MALFORMED, RlError) as error:
            why = f"part {header.name} of its journal has spaces that are none ({error})"
            raise NotExecutableError(self._run.root, why) from error

    def _refuse_to_wait(self, agent: Agent, playback: Playback) -> None:
        """No row comes here: where a draw waits, the journal is not of this replay."""
        raise NotExecutableError(
            self._run.root,
            f"step {agent.opt_steps + 1:,} saw {playback.rows_of(0):,} rows, as the journal has "
            "it, which are too few to be drawn: the journal is damaged",
        )

    def _open_replay(
        self, config: RunConfig, spaces: Spaces, header: Header, playback: Playback
    ) -> ReplayBuffer:
        """The replay, whose rings are as large as the looks say."""
        opened = self._open_rings(config)
        for number, ring in enumerate(header.rings):
            reader = opened[ring.name]
            reader.branch = ring.branch
            reader.branch_before = ring.branch_before
            reader.branch_begin = ring.branch_begin
            reader.floor = ring.floor
            playback.take_over(reader, number)
        actors = opened.pop(ACTORS)
        sources = {name: (rows, None) for name, rows in opened.items()}
        replay = make_replay(config, spaces, actors, header.epoch, None, sources)
        if [ring.name for ring in growing_rings(replay)] != [ring.name for ring in header.rings]:
            raise NotExecutableError(self._run.root, "its replay has other sources than then")
        return replay

    def _open_rings(self, config: RunConfig) -> dict[str, RingReader]:
        """All rings, by the names of their sources, with the rows that are whole."""
        directory = replay_directory(config, self._run.root)
        actors = open_reader(directory, batch_rows=config.actors.n_buffer)
        rings = {ACTORS: actors, **open_sources(config, self._run.root)}
        for name, (_, recovery) in self._recoveries.items():
            rings[name].use_cursor((recovery.commit.inserted,))
            rings[name].floor = recovery.floor
        return rings

    def _hold_replay(self, config: RunConfig) -> dict[str, tuple[Path, Recovery]]:
        """Keep writers away; return the replays whose last rows are lost, and what a start would
        recover of them."""
        root = self._run.root
        found = {}
        places = {name: source_directory(config, root, name) for name in config.replay.sources}
        for name, place in {ACTORS: replay_directory(config, root), **places}.items():
            if not place.is_dir():
                why = f"the replay is not there: {place} was removed, or not copied with the run"
                raise NotExecutableError(root, why)
            manifest = read_manifest(place)
            try:
                self._held.callback(os.close, ring_files.lock_directory(place, shared=True))
            except FileNotFoundError:
                pass  # nobody has written to this copy
            except OSError as error:
                raise ReplayFormatError(f"{place} cannot be read: {error.strerror}") from error
            if (recovery := find_recovery(place, manifest)) is not None:
                found[name] = place, recovery
        return found

    def _config_of(self, part: Part) -> RunConfig:
        root = self._run.root
        path = config_file(self._run.journal, part.header.config)
        try:
            text = read_bytes(path)
        except FileNotFoundError as error:
            raise NotExecutableError(root, f"{path} is missing") from error
        except OSError as error:
            raise NotExecutableError(root, f"{path}: {error.strerror or error}") from error
        if hash_config(text) != part.header.config:
            raise NotExecutableError(root, f"{path} has been changed since the run wrote it")
        check_run_imports(root, read_toml(path), self._allow_import, parts=_IMPORTED)
        config = read_config(path, allow_import=self._allow_import)
        if config.learner.ranks > 1:
            raise NotExecutableError(root, describe_ranks(config.learner.ranks))
        if is_import_name(config.replay.name):
            raise NotExecutableError(root, describe_own_replay(config.replay.name))
        return config


class Watch:
    """Sees each step of an execution; this one looks at none."""

    def begin(
        self, agent: Agent, replay: ReplayBuffer, loader: DeviceLoader, config: RunConfig
    ) -> None:
        """A segment begins."""

    def record(self, record: Mapping[str, float], opt_steps: int) -> None:
        """Scalars were recorded."""

    def ends(self, opt_steps: int) -> bool:
        """True where the execution is to end behind a step."""
        return False


class _Comparison:
    """The loop's callbacks: compares what is saved and recorded with the journal."""

    def __init__(
        self,
        part: Part,
        replay: ReplayBuffer,
        device: torch.device,
        result: Result,
        watch: Watch,
        *,
        best: BestModel | None,
        compares: bool,
    ) -> None:
        self._part = part
        self._replay = replay
        self._device = device
        self._result = result
        self._watch = watch
        self._compares = compares
        self._equal = result.begin  # the last state that is
        self._best = best
        self._last_saved = -1
        self._stop = False
        self.last: State = {}

    def publish(self, agent: Agent) -> None:
        """Nobody acts; what has acted best is compared."""
        best = self._best
        if best is None or best.is_compared or self._stop or not self._compares:
            return
        if (best.step, best.epoch) == (agent.opt_steps, self._part.header.epoch):
            self._result.files += (best.compare(agent.model_info()),)

    def save(self, agent: Agent, learning: TrainerStatus, errors: State) -> None:
        self.last = settled(learner_state(agent, self._replay, errors, self._device))
        if self._stop or not self._compares:
            return  # what comes until the loop ends depends on the time
        step = agent.opt_steps
        expected = self._part.saved.get(step)
        if expected is None:
            return
        found = hash_saved(self.last)
        if found.agent != expected.agent:
            self._differ(step, AGENT)
        elif found.others != expected.others:
            self._differ(step, OTHERS)
        elif step != self._last_saved:  # the last step of all may be saved twice
            self._last_saved = step
            self._result.weights[step] = found.agent.hex()
            self._result.acting[step] = hash_state(agent.model_info().arrays).hex()
            self._result.states += 1
            self._equal = step

    def record(self, record: dict[str, float], opt_steps: int) -> None:
        self._watch.record(record, opt_steps)
        scalars = journaled_scalars(record)
        expected = self._part.scalars.get(opt_steps)
        if self._stop or not self._compares or not scalars or expected is None:
            return
        if hash_scalars(scalars) == expected:
            self._result.scalars += 1
            self._result.scalars_until = opt_steps
        else:
            self._differ(opt_steps, SCALARS)

    def fail(self, step: int, why: str) -> None:
        """A step could not be executed."""
        self._differ(step, AGENT, why)

    def flush(self, opt_steps: int) -> None:
        """Nothing is recorded."""

    def tick(self, learning: TrainerStatus) -> str:
        return "interrupted" if self._stop or self._watch.ends(learning.opt_steps) else ""

    def _differ(self, step: int, what: str, failed: str = "") -> None:
        self._stop = True
        if self._result.difference is None:
            self._result.difference = Difference(step, self._equal, what, failed)


def _last_step_before(segments: Sequence[Segment], rows: Mapping[str, int]) -> int | None:
    """The last step that saw none of the rows from these numbers on.

    Args:
        rows: a number, by the name of the replay.

    Returns:
        None where one of the replays does not grow.
    """
    until = segments[0].begin
    for segment in segments:
        part = segment.part
        names = [ring.name for ring in part.header.rings]
        if not rows.keys() <= set(names):
            return None
        counts = [
            int(np.searchsorted(part.looks[:, names.index(name)], number, side="right"))
            for name, number in rows.items()
        ]
        count = min(counts, default=len(part.looks))
        last = part.header.step + int(np.count_nonzero(~part.dropped[:count]))
        if last < segment.end:
            return max(until, last)
        until = segment.end
    return until


def _describe_lost(place: Path) -> str:
    """Say why rows of a replay are not there, and what can be done."""
    return (
        f"the last rows in {place} are lost: this copy is not whole, or the power was lost; copy "
        "the run again, or start it once, which recovers the rows before them"
    )


def _errors_delay(header: Header, loader: DeviceLoader) -> int:
    """What `TrainingLoop` takes so that each draw sees the TD errors that it saw then, also where
    another loader draws one step ahead, or does not."""
    ahead_then = header.loader == PinnedLoader.__name__
    return header.errors_delay + ahead_then - implements(loader, LoaderAhead)


def _describe_error(error: Exception) -> str:
    return printable(f"{type(error).__name__}: {error}")


def describe_changes(part: Part, device: torch.device, loader: object) -> Iterator[str]:
    """Say what results may depend on and is not as it was then, a line each."""
    header = part.header
    pairs = [
        (header.machine, describe_machine(device)),
        (header.versions, describe_software()),
        ({"loader": header.loader}, {"loader": type(loader).__name__}),
    ]
    for then, now in pairs:
        for name in sorted({*then, *now}):
            if then.get(name) != now.get(name):
                yield f"{name}: {then.get(name, 'none')} then, {now.get(name, 'none')} now"
