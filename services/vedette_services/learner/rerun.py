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
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch

from vedette_rl.core import Agent, ReplayBuffer, State
from vedette_rl.device import host_copy
from vedette_rl.device.host_copy import mark_work, settled
from vedette_rl.device.loader import DeviceLoader, RingLoader, make_loader
from vedette_rl.envs.spaces import Spaces
from vedette_rl.envs.stored_spaces import spaces_from_json
from vedette_rl.errors import CheckpointError, ReplayFormatError
from vedette_rl.import_by_name import is_import_name
from vedette_rl.replay import ring_files
from vedette_rl.replay.config import ACTORS
from vedette_rl.replay.frame_ring import open_reader
from vedette_rl.replay.limiter import Limiter
from vedette_rl.replay.manifest import read_manifest
from vedette_rl.replay.playback import Playback
from vedette_rl.replay.ring import RingReader
from vedette_rl.replay.syncing import find_recovery
from vedette_rl.storage.checkpoints import Checkpoints
from vedette_services.config.import_permission import check_run_imports
from vedette_services.config.loading import read_config, read_toml
from vedette_services.config.run_config import RunConfig
from vedette_services.errors import RunInUseError
from vedette_services.learner.trainer.computation import describe_machine, describe_software
from vedette_services.learner.trainer.learner import (
    build_learning_agent,
    configured_arithmetic,
    growing_rings,
    hash_saved,
    journaled_scalars,
    learner_state,
    make_replay,
    resolve_device,
    restore_replay,
)
from vedette_services.learner.trainer.training_loop import DEVICE_ERRORS_DELAY, TrainingLoop
from vedette_services.run.certificate import Certificate
from vedette_services.run.directory import RunDirectory
from vedette_services.run.journal import Header, Part, config_file, hash_config, hash_scalars
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
"""What may differ, in the order in which it is compared."""

_IMPORTED = ("agent", "actors", "replay")
"""The tables of which something is imported here: actors' step processor says which columns there
are."""


@dataclass(frozen=True, slots=True)
class Difference:
    """The first hash that is another one.

    Args:
        step: the optimization step of it.
        after: the last step whose hash is equal; the first state of all is taken as it is.
        what: is different: `AGENT`, `OTHERS` or `SCALARS`.
    """

    step: int
    after: int
    what: str


@dataclass
class Result:
    """What an execution has found.

    Args:
        begin, end: the state that it began at, and its last step.
        states, scalars: hashes that are equal.
        difference: None: none is another one.
        weights: the hash of the agent's state, by step, of the states that are equal.
        changes: what results may depend on and is another than then: a line each.
        last: the state at the end.
    """

    begin: int
    end: int
    states: int = 0
    scalars: int = 0
    difference: Difference | None = None
    weights: dict[int, str] = field(default_factory=dict)
    changes: tuple[str, ...] = ()
    last: State = field(default_factory=dict)

    @property
    def equal(self) -> bool:
        """True where something was compared and all of it is equal."""
        return self.difference is None and self.states + self.scalars > 0

    def lines(self) -> Iterator[str]:
        """Say what was found, a line each."""
        compared = f"{self.states:,} states and {self.scalars:,} records of scalars"
        if (found := self.difference) is not None:
            yield (
                f"different: {found.what}, at step {found.step:,}; until step {found.after:,} all "
                f"is equal ({compared})"
            )
        elif self.equal:
            yield f"equal: {compared}"
        else:
            yield "no state and no record of scalars lies between these steps: nothing was compared"
        if self.changes:
            yield "what results may depend on, and is another than then:"
            yield from (f"  {line}" for line in self.changes)
        elif self.difference is not None:
            yield (
                "machine and versions are those of then: code, a custom network, or a file of the "
                "run has changed, or the computation is not deterministic (on a GPU: "
                "learner.deterministic=false, or additions in any order in a custom network)"
            )

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
            "changes": list(self.changes),
        }


class Rerun:
    """A run that is executed again; no learner can start on it meanwhile.

    Args:
        parts: of its journal.
        epoch: whose steps; None: the last one's.
        allow_import: packages that it may import, whoever has begun the run.
    """

    def __init__(
        self,
        run: RunDirectory,
        parts: list[Part],
        epoch: int | None,
        allow_import: Collection[str],
        held: ExitStack,
    ) -> None:
        self._run = run
        self._allow_import = allow_import
        self._held = held
        try:
            chain = find_chain(parts, epoch)
        except ValueError as error:
            raise NotExecutableError(run.root, str(error)) from error
        config = self._config_of(chain[-1])
        self._hold_replay(config)
        self.span: Span = find_span(run, chain, self._open_rings(config), parts)

    @classmethod
    @contextmanager
    def open(
        cls, directory: Path, *, epoch: int | None = None, allow_import: Collection[str] = ()
    ) -> Iterator[Self]:
        """Open a run.

        Args:
            epoch: whose steps, also where a later start has gone on from an earlier checkpoint;
                None: the last one's.

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
                again = cls(run, read_parts(run), epoch, allow_import, held)
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
    ) -> Result:
        """Execute segments of the span, up to the first difference.

        Args:
            watch: sees every step.
            changed: makes the configuration to execute of that of the run; where it is another
                one, nothing is compared.
        """
        result = Result(segments[0].begin, segments[-1].end)
        state = self._first_state(segments[0])
        for segment in segments:
            state = self._execute(segment, state, result, watch or Watch(), changed)
            if result.difference is not None:
                break
        result.last = state
        return result

    def certify(self, segments: tuple[Segment, ...], result: Result) -> Certificate:
        """The certificate of an execution of these segments."""
        rows: dict[str, tuple[int, int]] = {}
        rings = self._open_rings(self._config_of(segments[-1].part))
        for segment in segments:
            part = segment.part
            looks = part.looks[part.looks_until(segment.begin) : part.looks_until(segment.end)]
            for ring, seen in zip(part.header.rings, looks.T.tolist(), strict=True):
                if seen:
                    oldest = max(ring.floor, seen[0] - rings[ring.name].capacity)
                    before = rows.get(ring.name, (oldest, 0))
                    rows[ring.name] = min(oldest, before[0]), max(seen[-1], before[1])
        last = segments[-1].part.header
        device = resolve_device(self._config_of(segments[-1].part).learner.device)
        difference = ""
        if (found := result.difference) is not None:
            difference = f"different at step {found.step:,} ({found.what})"
        return Certificate(
            run=self.run_id,
            equal=result.equal,
            first=result.begin,
            last=result.end if result.difference is None else result.difference.step,
            states=result.states,
            scalars=result.scalars,
            weights=result.weights,
            rows=rows,
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
    ) -> State:
        """Execute a segment from a state; return the last one."""
        part = segment.part
        header = part.header
        saved_config = self._config_of(part)
        config = changed(saved_config)
        device = resolve_device(config.learner.device)
        spaces = spaces_from_json(header.spaces)
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
            agent.set_state(state["agent"])
            errors = restore_replay(state, replay, device)
        loader = make_loader(
            replay, config.agent.batch_size, device, copy_replay=config.learner.copy_replay
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
            part, replay, device, result, watch, compares=config == saved_config
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
            errors_delay=DEVICE_ERRORS_DELAY if host_copy.is_asynchronous(device) else 1,
            note_draw=playback.next_draw,
        )
        with configured_arithmetic(config.learner, device):
            loop.run()
        return comparison.last

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
        """All rings, by the names of their sources."""
        directory = replay_directory(config, self._run.root)
        actors = open_reader(directory, batch_rows=config.actors.n_buffer)
        return {ACTORS: actors, **open_sources(config, self._run.root)}

    def _hold_replay(self, config: RunConfig) -> None:
        """Keep writers away, and refuse rows that a power failure has lost."""
        root = self._run.root
        places = [source_directory(config, root, name) for name in config.replay.sources]
        for place in (replay_directory(config, root), *places):
            manifest = read_manifest(place)
            try:
                self._held.callback(os.close, ring_files.lock_directory(place, shared=True))
            except FileNotFoundError:
                pass  # nobody has written to this copy
            except OSError as error:
                raise ReplayFormatError(f"{place} cannot be read: {error.strerror}") from error
            if find_recovery(place, manifest) is not None:
                why = f"the last rows in {place} are lost: start the run once, which recovers them"
                raise NotExecutableError(root, why)

    def _config_of(self, part: Part) -> RunConfig:
        root = self._run.root
        path = config_file(self._run.journal, part.header.config)
        if not path.exists():
            raise NotExecutableError(root, f"{path} is missing")
        if hash_config(path.read_bytes()) != part.header.config:
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
        compares: bool,
    ) -> None:
        self._part = part
        self._replay = replay
        self._device = device
        self._result = result
        self._watch = watch
        self._compares = compares
        self._equal = result.begin
        self._last_saved = -1
        self._stop = False
        self.last: State = {}

    def publish(self, agent: Agent) -> None:
        """Nobody acts."""

    def save(self, agent: Agent, learning: TrainerStatus, errors: State) -> None:
        self.last = settled(learner_state(agent, self._replay, errors, self._device))
        expected = self._part.saved.get(agent.opt_steps)
        if expected is None or not self._compares:
            return
        found = hash_saved(self.last)
        if found.agent != expected.agent:
            self._differ(agent.opt_steps, AGENT)
        elif found.others != expected.others:
            self._differ(agent.opt_steps, OTHERS)
        elif agent.opt_steps != self._last_saved:  # the last step of all may be saved twice
            self._last_saved = agent.opt_steps
            self._result.weights[agent.opt_steps] = found.agent.hex()
            self._result.states += 1
            self._equal = max(self._equal, agent.opt_steps)

    def record(self, record: dict[str, float], opt_steps: int) -> None:
        self._watch.record(record, opt_steps)
        scalars = journaled_scalars(record)
        expected = self._part.scalars.get(opt_steps)
        if not self._compares or not scalars or expected is None:
            return
        if hash_scalars(scalars) == expected:
            self._result.scalars += 1
            self._equal = max(self._equal, opt_steps)
        else:
            self._differ(opt_steps, SCALARS)

    def flush(self, opt_steps: int) -> None:
        """Nothing is recorded."""

    def tick(self, learning: TrainerStatus) -> str:
        return "interrupted" if self._stop or self._watch.ends(learning.opt_steps) else ""

    def _differ(self, step: int, what: str) -> None:
        self._stop = True
        if self._result.difference is None:
            self._result.difference = Difference(step, self._equal, what)


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
