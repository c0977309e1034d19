"""The learning part of a run: agent, replay, training loop, recorder and checkpoints.

The trainer process and the in-process mode each have one `Learner`, with other `Peers` around it.
"""

from __future__ import annotations

import gc
import logging
import math
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from vedette_rl.agents.captured_step import LEFT_OUT, SteppedAgent
from vedette_rl.agents.registry import agent_kind
from vedette_rl.core import Agent, ModelInfo, ReplayBuffer, SequenceAgent, State
from vedette_rl.core.learning import check_first_model_info, check_first_opt
from vedette_rl.core.protocols import implements
from vedette_rl.device import host_copy
from vedette_rl.device.cuda_graphs import CudaCapture
from vedette_rl.device.host_copy import mark_work
from vedette_rl.device.loader import DeviceLoader, RankLoader, RingLoader, make_loader
from vedette_rl.device.ranks import ranks, require_same
from vedette_rl.envs.spaces import Spaces, describe_spaces
from vedette_rl.envs.stored_spaces import spaces_to_json
from vedette_rl.errors import CheckpointError, DivergedError
from vedette_rl.import_by_name import is_import_name
from vedette_rl.networks.seeding import process_state, restore_process, seed_process
from vedette_rl.networks.torch_network import compile_networks, compute_in_bfloat16
from vedette_rl.recording.registry import SurvivingRecorder, note_error
from vedette_rl.replay.config import ReplayConfig
from vedette_rl.replay.drawn_sequences import PrioritizedSequences, UniformSequences
from vedette_rl.replay.limiter import Limiter, LimiterOrigin
from vedette_rl.replay.mixed import MixedReplay, Source
from vedette_rl.replay.mixed_sequences import MixedSequences
from vedette_rl.replay.prioritized import PrioritizedReplay
from vedette_rl.replay.queue import QueueReplay
from vedette_rl.replay.rows import Rows
from vedette_rl.replay.uniform import DrawnRows, UniformReplay, make_custom_replay
from vedette_rl.storage.checkpoints import Checkpoints
from vedette_rl.storage.state_hash import hash_state
from vedette_services.config.parts import LearnerConfig
from vedette_services.config.run_config import RunConfig
from vedette_services.config.saving import config_text
from vedette_services.errors import DeviceMemoryError, UsageError
from vedette_services.host.system import keep_freed_memory
from vedette_services.learner.disk_room import DiskRoom
from vedette_services.learner.host_load import GpuMemory, GpuShare, LoadMeter
from vedette_services.learner.trainer.background import CheckpointWriter
from vedette_services.learner.trainer.computation import describe_machine, describe_software
from vedette_services.learner.trainer.device import device_name, resolve_device, why_no_gpu
from vedette_services.learner.trainer.divergence import (
    LeftOutSteps,
    actor_rows,
    describe_largest,
    explain_divergence,
)
from vedette_services.learner.trainer.journal_writer import JournalWriter
from vedette_services.learner.trainer.record_pace import RecordPace
from vedette_services.learner.trainer.run_recorder import (
    CurveRecorder,
    open_recorder,
    truncate_curves,
)
from vedette_services.learner.trainer.training_loop import (
    DEVICE_ERRORS_DELAY,
    TICK_S,
    TrainingLoop,
    sleep_briefly,
)
from vedette_services.run.directory import RunDirectory
from vedette_services.run.initial_weights import WeightsSource
from vedette_services.run.journal import Header, Ring, StateHashes, keep_config
from vedette_services.run.limiter_record import remaining_draws
from vedette_services.run.replay_layout import first_columns
from vedette_services.run.resume import load_checkpoint
from vedette_services.run.sources import with_shares
from vedette_services.status.records import (
    EndedEvaluations,
    GatewayStatus,
    TrainerStatus,
    TrainingTime,
)
from vedette_services.status.status import Eval, ReplayStatus, Samples, SourceStatus
from vedette_services.status.stop_conditions import (
    FAILED_REASON,
    find_exit_reason,
    is_evaluated,
)

log = logging.getLogger("vedette.trainer")

_LAST_SAVE_S = 60.0
_SYNC_S = 30.0  # for the disk to have rows that a checkpoint knows of


class Peers(Protocol):
    """The other parts of a run, as seen by its learner.

    ::

        peers.publish_status(status)          # some fifty times a second
        gateway, evaluator = peers.read_status()
        peers.publish_model(model)            # every few optimization steps
        peers.end_production()                # after the last one
        peers.publish_status(status)          # all is written but the last evaluation
        peers.end_evaluation(exit_reason)
        peers.read_ended_evaluations()        # all that have ended are recorded
    """

    def publish_status(self, status: TrainerStatus) -> None:
        """Show how far learning is."""
        ...

    def read_status(self, *, fresh: bool = False) -> tuple[GatewayStatus, Eval]:
        """Return the latest status of the gateway and of the evaluator.

        Args:
            fresh: ask the gateway for a new one, where that is possible.
        """
        ...

    def read_ended_evaluations(self) -> EndedEvaluations:
        """Return the evaluations that have ended, which are recorded."""
        ...

    def publish_model(self, model: ModelInfo) -> None:
        """Send a model to the actors and to the evaluator."""
        ...

    def synced_rows(self) -> int:
        """Return the rows of the replay that the disk has; asked for by `TrainerStatus.sync_until`.
        Another thread may call it."""
        ...

    def end_production(self) -> None:
        """Collect what actors have begun, so that the last checkpoint counts it."""
        ...

    def end_evaluation(self, exit_reason: str) -> None:
        """Return when the last model was evaluated, or will not be."""
        ...

    def is_stopped(self) -> bool:
        """Return True once the run was asked to end."""
        ...

    def mark_turn(self) -> None:
        """Note that this process works, while it waits for a disk."""
        ...


class EarlierStarts(NamedTuple):
    """Rows of earlier starts of a run whose replay was in memory."""

    produced: int = 0
    inserted: int = 0
    rejected: int = 0
    sampled: int = 0
    env_steps: int = 0


class Learner:
    """Trains one agent, from the last checkpoint on; the `LoopCallbacks` of its training loop.

    ::

        learner = Learner(config, run, run_id, epoch, spaces=spaces, open_replay=..., lasting=True)
        last = learner.train(peers, limiter)
        last = learner.close(last)

    Args:
        run_id, epoch: the run, and the epoch of this start.
        spaces: the environment's spaces.
        open_replay: returns the replay to draw from.
        lasting: the replay outlives this start; otherwise the next start has an empty one.
        sources: the named ones that it draws from.
        origin: where the limiter's balance begins, as the limiter of `train` has it.
        trained: until now: by trainers of this start before this one, and in earlier starts.
        clock: seconds, monotonic, for `stop.max_seconds` and all rates.
    """

    def __init__(
        self,
        config: RunConfig,
        run: RunDirectory,
        run_id: str,
        epoch: int,
        *,
        spaces: Spaces,
        open_replay: Callable[[], ReplayBuffer],
        lasting: bool,
        sources: tuple[SourceStatus, ...] = (),
        origin: LimiterOrigin | None = None,
        trained: TrainingTime = TrainingTime(),  # noqa: B008 - it is not changed
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.config = config
        self.run_id = run_id
        self._epoch = epoch
        self._spaces = describe_spaces(spaces)
        self._lasting = lasting
        self._origin = origin
        self._clock = clock
        self._began = clock() - trained.start_s
        self._device = device = resolve_device(config.learner.device)
        log.info("trains on %s, by torch %s", device_name(device), torch.__version__)
        if device.type == "cpu" and config.learner.device == "auto" and (why := why_no_gpu()):
            log.warning("the GPU of this host is not used: torch refuses it (%s)", why)
        self.agent = build_learning_agent(config, spaces, epoch, device)
        self.replay = open_replay()
        self._rows = actor_rows(self.replay)  # before a device has a copy
        self._rings = growing_rings(self.replay)
        self.earlier = EarlierStarts()
        self._checkpoints = Checkpoints(run.checkpoints, keep=config.learner.keep_checkpoints)
        self._checkpoints.remove_leftovers()
        self._init: dict[str, Any] = {}
        self._errors: State = {}  # TD errors that the last loop had not set
        self._kept: int | None = 0
        self._sync_until = 0
        self.has_saved_priorities = False
        """The checkpoint that it goes on from has the priorities of these rows."""
        self._resumed: tuple[int, int] | None = (
            None  # the checkpoint's step, the epoch that wrote it
        )
        sampled = self._resume()
        self._queue = self.replay if isinstance(self.replay, QueueReplay) else None
        if self._queue is not None:
            self._queue.needs_saves = lasting
            self._queue.begin(epoch, self.agent.opt_steps)
            if self._kept is not None:  # a ring that has lost rows, or another, has less
                self._kept = min(self._kept, self._queue.place)
            self._say_missed(self._queue)
        require_same(self.agent.opt_steps)
        self._left_out = LeftOutSteps(self.agent.opt_steps)
        self.status = TrainerStatus(
            epoch=epoch,
            opt_steps=self.agent.opt_steps,
            sampled=sampled,
            sources=sources,
            limiter_origin=None if origin is None else origin.counts,
            trained=trained,
            device=str(device),
        )
        self.status = self._with_place(self.status)
        copy = config.learner.copy_replay
        self._loader = make_loader(
            self.replay,
            config.agent.batch_size,
            device,
            copy_replay=copy,
            capture=gather_capture(device, config.learner),
        )
        self._room = DiskRoom(run)
        self._load = LoadMeter(_gpu_memory(device), _gpu_share(device))
        self._end = ""  # the `exit_reason`, once it is known
        self._recorder = SurvivingRecorder(
            lambda: open_recorder(
                config, run.root, is_paused=lambda: self._room.is_short, end=lambda: self._end
            )
        )
        recorded = truncate_curves(run.tensorboard, self.agent.opt_steps)
        self._pace = RecordPace(trained.run_s, clock())
        self._curves = CurveRecorder(self._recorder, run_id, config, recorded, pace=self._pace)
        self._unflushed: int | None = None  # the step of a flush that was not due yet
        if returns := {
            f"replay/return_{source.name}": source.return_mean
            for source in sources
            if source.return_mean is not None
        }:
            self._recorder.write(returns, self.agent.opt_steps)
        self._journal = self._open_journal(run, spaces)
        self._checkpoint_writer = CheckpointWriter(
            self._checkpoints,
            check=run.check_held,
            note=self._note_saved,
            on_written=self._note_written,
        )
        self._peers: Peers

    def _resume(self) -> int:
        """Load the last checkpoint, if any; returns the rows drawn from this replay before."""
        checkpoint = load_checkpoint(self._checkpoints, self.agent, self.config.agent.name)
        if checkpoint is None:
            if self.config.learner.init_from:
                self._init = load_initial_weights(self.config.learner, self.agent)
            if rows := self.replay.inserted:
                log.warning(
                    "no checkpoint in %s: it learns from the beginning, on the %s samples of the "
                    "replay",
                    self._checkpoints.root,
                    f"{rows:,}",
                )
            return 0
        for warning in checkpoint.skipped:
            log.warning("%s", warning)
        self._checkpoints.put_aside_after(int(checkpoint.path.name))
        self._errors = restore_replay(checkpoint.state, self.replay, self._device)
        self.has_saved_priorities = getattr(self.replay, "goes_on", False)
        log.info("resuming run %s at optimization step %d", self.run_id, self.agent.opt_steps)
        meta = checkpoint.meta
        self._resumed = self.agent.opt_steps, int(meta["epoch"])
        self._init = meta.get("init", {})
        self._kept = meta["queue"]["place"] if "queue" in meta else None
        if self._lasting:
            return remaining_draws(meta, self.replay.inserted, self._origin)
        # Runs before version 0.3 saved it as "books".
        self.earlier = EarlierStarts(
            **(meta["accounting"] if "accounting" in meta else meta["books"])
        )
        return 0

    @staticmethod
    def _say_missed(queue: QueueReplay) -> None:
        """Say which rows no weights have learned from, or will learn from twice, from now on."""
        counts = queue.counts
        if counts.missed or counts.cut_short or counts.forgotten:
            log.warning(
                "of the queue's rows so far %s were overwritten before they were drawn, %s were "
                "not drawn as often as the others, and the numbers of %s are used again",
                f"{counts.missed:,}",
                f"{counts.cut_short:,}",
                f"{counts.forgotten:,}",
            )

    def _with_place(self, status: TrainerStatus) -> TrainerStatus:
        """A status with the place in the queue, if there is one."""
        queue = self._queue
        if queue is None:
            return status
        kept = queue.place
        if self._lasting:  # what a start would find
            kept = self._kept or 0
        measured = ReplayStatus(waiting=queue.waiting, stale=queue.counts.stale)
        return replace(
            status,
            taken=queue.taken,
            lacking=queue.lacking_runs,
            kept=kept,
            sync_until=self._sync_until,
            replay=measured,
        )

    def _open_journal(self, run: RunDirectory, spaces: Spaces) -> JournalWriter | None:
        """Begin the journal of this start; None where nothing could be executed again by it."""
        config = self.config
        if not (config.learner.journal and self._lasting and ranks().count == 1 and self._rings):
            return None
        journal = JournalWriter(
            run.journal,
            self._rings,
            partial(self._describe_part, run, spaces),
            is_short=lambda: self._room.is_short,
            is_gone=self._are_rows_gone,
        )
        if self._resumed is not None:
            journal.begin(*self._resumed)
        elif not config.learner.init_from:  # else the first part begins at the first checkpoint
            journal.begin(0, None)
        return journal

    def _are_rows_gone(self, seen: Sequence[int]) -> bool:
        """True where rows of a draw that saw so many of each ring are no longer in the replay."""
        assert isinstance(self.replay, (DrawnRows, MixedReplay)), "as it has rings"
        rings = [rows.original for rows in self.replay.growing.values()]
        return any(
            max(ring.floor, rows - ring.capacity) < ring.doubtful_below(ring.inserted)
            for ring, rows in zip(rings, seen, strict=True)
        )

    def _describe_part(self, run: RunDirectory, spaces: Spaces) -> Header:
        """The header of this start's parts but for where one begins."""
        config = self.config
        return Header(
            run=self.run_id,
            epoch=self._epoch,
            step=0,
            written_by=None,
            rings=(),
            config=keep_config(run.journal, config_text(config)),
            spaces=spaces_to_json(spaces),
            errors_delay=self._errors_delay,
            loader=type(self._loader).__name__,
            captured=config.learner.captured_step and host_copy.is_asynchronous(self._device),
            compiled=config.learner.compile,
            machine=describe_machine(self._device),
            versions=describe_software(),
        )

    @property
    def _errors_delay(self) -> int:
        return DEVICE_ERRORS_DELAY if host_copy.is_asynchronous(self._device) else 1

    def _note_draw(self) -> None:
        if self._journal is not None:
            assert isinstance(self.replay, (DrawnRows, MixedReplay)), "as it has rings"
            self._journal.add_draw(self.replay.drawn_looks())

    def _note_saved(self, opt_steps: int, state: State) -> None:
        """Have the journal be on the disk before a checkpoint has its name, and of a queue the rows
        that it knows of: else weights could have learned from rows that are sent again.

        Raises:
            CheckpointError: the disk does not take the rows.
        """
        if self._queue is not None and self._lasting and self.config.replay.sync_interval_s:
            self._wait_for_rows(opt_steps, int(state["replay"]["taken"]))
        if self._journal is not None:
            self._journal.save(opt_steps, hash_saved(state))

    def _wait_for_rows(self, opt_steps: int, rows: int) -> None:
        """Wait until the disk has so many rows of the replay."""
        deadline = time.monotonic() + _SYNC_S
        while self._peers.synced_rows() < rows:
            if time.monotonic() > deadline:
                path = self._checkpoints.root / str(opt_steps)
                why = f"the disk does not have the replay's rows up to {rows:,} yet"
                raise CheckpointError(path, "write", why)
            sleep_briefly()

    def _note_written(self, meta: Mapping[str, Any]) -> None:
        """Let the rows be overwritten that the newest checkpoint on the disk has behind it."""
        if self._queue is not None:
            self._kept = meta["queue"]["place"]

    def train(
        self,
        peers: Peers,
        limiter: Limiter,
        *,
        idle: Callable[[], None] = sleep_briefly,
        tick_s: float = TICK_S,
    ) -> TrainerStatus:
        """Train to the end of the run; returns the last status, for `close`."""
        self._peers = peers
        loop = TrainingLoop(
            self.agent,
            self.replay,
            self._loader,
            limiter,
            self.config.learner,
            self,
            learning=self.status,
            max_opts=self.config.stop.max_opts,
            samples_per_opt=self.config.samples_per_opt,
            offline=self.config.actors.count == 0,
            idle=idle,
            mark=partial(mark_work, self._device),
            errors=self._errors,
            errors_delay=self._errors_delay,
            note_draw=self._note_draw,
            make_room=self._make_room,
            tick_s=tick_s,
            clock=self._clock,
        )
        with self._ended_by_errors():
            with configured_arithmetic(self.config.learner, self._device), self._explained():
                last = loop.run()
            if isinstance(self._loader, RankLoader):
                self._loader.end()
            return last

    @contextmanager
    def _ended_by_errors(self) -> Iterator[None]:
        """Close recorder and journal at an error: what was recorded until then stays."""
        try:
            yield
        except BaseException as error:
            interrupted = isinstance(error, KeyboardInterrupt)
            self._end = "interrupted" if interrupted else FAILED_REASON
            ends = (self._flush_now, self._recorder.close, partial(self._end_journal, "an error"))
            for end in ends:  # what one raises hides neither the error nor keeps the others away
                try:
                    end()
                except Exception as other:  # noqa: BLE001 - of a recorder of the user, too
                    note_error(error, other, "when recorder and journal were closed")
            raise

    def _make_room(self, error: str) -> DeviceLoader:
        """Give up what the GPU's memory holds besides the networks, one thing after the other: the
        copy of the replay, then captured steps. The step that failed is done again.

        Raises:
            DeviceMemoryError: there is nothing left to give up.
        """
        what = ". ".join(error.split(". ")[:2])  # how much it was asked for, too
        if self._journal is not None and self._journal.is_writing:
            self._journal.end(self.agent.opt_steps, f"no memory on {self._device}: {what}")
        if isinstance(self._loader, RingLoader):
            log.warning(
                "%s: %s: the copy of the replay in its memory is given up, and every batch is "
                "copied from the host's; a smaller replay.capacity leaves more room, "
                "learner.copy_replay=false begins without a copy",
                self._device,
                what,
            )
            self._loader.give_up_copy()
            size = self.config.agent.batch_size
            self._loader = make_loader(self.replay, size, self._device, copy_replay=False)
            prepare_capture(self.agent, self._device, self.config.learner)
        elif ranks().count > 1 or not (
            isinstance(self.agent, SteppedAgent) and self.agent.stop_capturing(what)
        ):  # a step that one of several ranks did again would be one that the others did not do
            block = self.config.replay.is_queue
            copied = _has_copy(self._loader)
            raise DeviceMemoryError(str(self._device), what, copied=copied, block=block)
        gc.collect()  # graphs and steps refer to one another
        if host_copy.is_asynchronous(self._device):
            torch.cuda.empty_cache()
        return self._loader

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Say of learning that has diverged what may have caused it."""
        try:
            yield
        except DivergedError as error:
            raise explain_divergence(error, self.config, self._rows, self.run_id) from error

    def close(self, last: TrainerStatus) -> TrainerStatus:
        """Finish the last checkpoint, publish the last status and record the last evaluation."""
        with self._ended_by_errors(), self._explained():
            # On a slow disk this takes long, and rightly.
            if self._queue is not None:  # a sync may be waited for
                self._peers.publish_status(self._with_place(self.status))
            unsaved = self._checkpoint_writer.close(_LAST_SAVE_S, self._peers.mark_turn)
        self._end_journal(last.exit_reason)
        last = replace(self._over_all_starts(last), unsaved=unsaved)
        if last.unsaved:
            log.warning("the last checkpoint is not written: %s", last.unsaved)
        evaluates = self.config.learner.eval_interval > 0 and is_evaluated(last.exit_reason)
        self._peers.publish_status(replace(last, evaluates=evaluates))
        self._peers.end_evaluation(last.exit_reason)
        self._peers.publish_status(last)
        self._flush_now()
        self._record_curves(self._clock(), last, *self._peers.read_status(), is_last=True)
        self._end = last.exit_reason
        self._recorder.close()
        return last

    def _end_journal(self, reason: str) -> None:
        if self._journal is None:
            return
        if self._journal.is_writing:
            self._journal.end(self.agent.opt_steps, reason)
        self._journal.close()

    # The training loop's callbacks

    def publish(self, agent: Agent) -> None:
        self._peers.publish_model(agent.model_info())

    def save(self, agent: Agent, learning: TrainerStatus, errors: State) -> None:
        gateway, evaluator = self._peers.read_status(fresh=True)
        if learning.phase == "done":
            self._record_curves(math.inf, self._over_all_starts(learning), gateway, evaluator)
            self._peers.end_production()
            gateway, evaluator = self._peers.read_status(fresh=True)
        state = learner_state(agent, self.replay, errors, self._device)
        if self._journal is not None and self._journal.is_due and learning.phase != "done":
            self._journal.begin(agent.opt_steps, self._epoch)
        meta: dict[str, Any] = {
            "run_id": self.run_id,
            "epoch": self._epoch,
            "spaces": self._spaces,
            "sampled": learning.sampled,
            "inserted": self.replay.inserted,
            "env_steps": gateway.env_steps,
            "best_return_mean": evaluator.best_return_mean,
            "best_version": evaluator.best_version,
        }
        urgent = False
        if self._queue is not None:
            urgent = self._queue.save_is_urgent
            meta["queue"] = {"place": self._queue.place, "branch": state["replay"]["branch"]}
            self._queue.note_handed()
            self._sync_until = self._queue.taken
        if self._init:
            meta["init"] = self._init
        if not self._lasting:
            samples = gateway.samples or Samples()
            accounting = {name: getattr(samples, name) for name in EarlierStarts._fields[:3]}
            accounting["sampled"] = self.earlier.sampled + learning.sampled
            accounting["env_steps"] = gateway.env_steps
            meta |= {"sampled": 0, "inserted": 0, "accounting": accounting}
        self._checkpoint_writer.save(agent.opt_steps, state, meta, urgent=urgent)

    def record(self, record: dict[str, float], opt_steps: int) -> None:
        self._recorder.store(record)
        if self._journal is not None and (scalars := journaled_scalars(record)):
            self._journal.add_scalars(opt_steps, scalars)
        left_out = int(record.get(f"train/{LEFT_OUT}", 0.0))
        if self._left_out.count(opt_steps, left_out):
            largest = describe_largest(self._rows, self.run_id, opt_steps)
            log.warning(
                "%s optimization steps moved nothing, as their gradients were not finite%s",
                f"{left_out:,}",
                f"; the largest values that can be drawn: {largest}" if largest else "",
            )

    def flush(self, opt_steps: int) -> None:
        self._unflushed = opt_steps
        if self._pace.is_due("losses", self._clock()):
            self._flush_now()

    def _flush_now(self) -> None:
        """Write the means of what was recorded since the last flush, if one was put off."""
        if self._unflushed is not None:
            self._recorder.flush(self._unflushed)
        self._unflushed = None

    def tick(self, learning: TrainerStatus) -> str:
        status = self._over_all_starts(learning)
        self._peers.publish_status(status)
        gateway, evaluator = self._peers.read_status()
        if gateway.samples:
            self._record_curves(self._clock(), status, gateway, evaluator)
        if self._peers.is_stopped():
            return "interrupted"
        stop = self.config.stop
        are_played = 0 < stop.max_env_steps <= gateway.env_steps
        if self._queue is not None and are_played and not self._queue.is_drained():
            stop = stop.model_copy(update={"max_env_steps": 0})  # it learns from all blocks
        return find_exit_reason(
            stop,
            status.opt_steps,
            gateway.env_steps,
            status.trained.start_s,
            evaluator.reached_return_mean,
        )

    def _record_curves(
        self,
        now: float,
        learning: TrainerStatus,
        gateway: GatewayStatus,
        evaluator: Eval,
        *,
        is_last: bool = False,
    ) -> None:
        ended = self._peers.read_ended_evaluations()
        self._curves.record(now, learning, gateway, evaluator, ended, is_last=is_last)

    def _over_all_starts(self, learning: TrainerStatus) -> TrainerStatus:
        """Add the rows that earlier starts drew, the seconds of this one, checkpoint and disk."""
        sampled = learning.sampled + self.earlier.sampled
        return replace(
            self._with_place(learning),
            sources=with_shares(learning.sources, self.replay),
            trained=replace(self.status.trained, start_s=self._clock() - self._began),
            sampled=sampled,
            checkpoint=self._checkpoint_writer.status(),
            disk=self._room.measure(self._clock()),
            host=self._load.measure(self._clock()),
        )


def learner_state(agent: Agent, replay: ReplayBuffer, errors: State, device: torch.device) -> State:
    """All that a start goes on with; copies of a device are begun.

    Args:
        errors: TD errors that the loop has not set.
    """
    pending: Callable[[], State] = getattr(agent, "pending_state", agent.get_state)
    return {
        "agent": pending(),
        "replay": replay.get_state(),
        "errors": errors,
        "torch": process_state(device),
    }


def restore_replay(state: State, replay: ReplayBuffer, device: torch.device) -> State:
    """Have a replay and the process's generators go on from a state; return the TD errors that the
    loop before had not set: none where the replay has other rows."""
    replay.set_state(state["replay"])
    # None of these before version 0.3.
    restore_process(state.get("torch", {}), device)
    errors: State = state.get("errors", {})
    return errors if getattr(replay, "goes_on", False) else {}


def journaled_scalars(record: Mapping[str, float]) -> dict[str, float]:
    """Of a record, what follows from the state: the agent's own scalars, without the one that
    counts since the start."""
    own = {name: value for name, value in record.items() if name.startswith(_OWN)}
    own.pop(f"{_OWN}{LEFT_OUT}", None)
    return own


_OWN = "train/"


_LOOKING = (
    UniformReplay,
    PrioritizedReplay,
    MixedReplay,
    UniformSequences,
    PrioritizedSequences,
    MixedSequences,
)
"""Replays whose draws see the rows of a look and no others."""


def growing_rings(replay: ReplayBuffer) -> tuple[Ring, ...]:
    """The rings of a replay that a look asks, as they are now; none where draws see other rows than
    the look's, as those of a replay of one's own may, or rows that no other process can read."""
    if type(replay) not in _LOOKING:
        return ()
    assert isinstance(replay, (DrawnRows, MixedReplay))
    rings = [
        Ring(
            name,
            branch=rows.branch,
            branch_before=rows.branch_before,
            branch_begin=rows.branch_begin,
            floor=rows.floor,
            inserted=rows.inserted,
        )
        for name, rows in replay.growing.items()
    ]
    return tuple(rings) if all(ring.branch for ring in rings) else ()


def hash_saved(state: State) -> StateHashes:
    """The hashes of a learner's state: of its agent, and of all else."""
    others = {name: part for name, part in state.items() if name != "agent"}
    return StateHashes(hash_state(state["agent"]), hash_state(others))


def _gpu_memory(device: torch.device) -> GpuMemory | None:
    """Return what measures the memory of the GPU that learns; None if none does."""
    return partial(torch.cuda.mem_get_info, device) if device.type == "cuda" else None


def _gpu_share(device: torch.device) -> GpuShare | None:
    """Return what measures how busy the GPU that learns is; None if none does. It needs the package
    nvidia-ml-py, which torch does not bring."""
    return (lambda: torch.cuda.utilization(device) / 100) if device.type == "cuda" else None


def build_learning_agent(
    config: RunConfig, spaces: Spaces, epoch: int, device: torch.device
) -> Agent:
    """Build the agent of a process that trains, and set the process up for it."""
    keep_freed_memory()
    if device.type == "cuda" and device.index is not None:
        torch.cuda.set_device(device)  # else a graph's generators, and a context, are on cuda:0
    torch.set_num_threads(config.learner.torch_threads)
    seed_process(config.seed, epoch)
    agent = agent_kind(config.agent.name).build_agent(
        config.agent, spaces, device=str(device), seed=config.seed
    )
    if config.replay.sequence and implements(agent, SequenceAgent):
        agent.expect_burn_in(config.replay.burn_in)
    prepare_steps(agent, device, config.learner)
    if is_import_name(config.agent.name):
        check_first_model_info(config.agent.name, agent)
        check_first_opt(config.agent.name, agent)
    return agent


def load_initial_weights(config: LearnerConfig, agent: Agent) -> dict[str, Any]:
    """Give a new agent the weights of `learner.init_from`; returns what is saved of that."""
    source = WeightsSource.open(config)
    weights = source.weights_for(agent)
    agent.set_state(weights.state)
    for line in weights.describe(source.name):
        log.info("%s", line)
    return {
        "from": source.name,
        "run_id": source.meta.get("run_id"),
        "taken": list(weights.taken),
        "left": list(weights.left),
    }


def make_replay(
    config: RunConfig,
    spaces: Spaces,
    rows: Rows,
    epoch: int,
    priorities: NDArray[np.float64] | None = None,
    sources: Mapping[str, tuple[Rows, NDArray[np.float64] | None]] = MappingProxyType({}),
) -> ReplayBuffer:
    """Make the replay that a learner draws from.

    Args:
        spaces: of the run's environment.
        rows: the rows that hold its samples.
        epoch: gives every start other draws, where no checkpoint says how to continue.
        priorities: the memory of prioritized sampling; None: new memory.
        sources: the rows of the named sources, and the memory of their priorities.

    Raises:
        UnknownNameError: `replay.name` names nothing that draws.
    """
    rng = np.random.default_rng([config.seed, epoch])
    if is_import_name(config.replay.name):
        return make_custom_replay(config.replay, rows, rng)
    first = first_columns(config, spaces)
    if config.replay.is_queue:
        return QueueReplay(
            rows,
            rng,
            config.replay,
            batch_size=config.agent.batch_size,
            batch_rows=config.actors.n_buffer,
            first=first,
            whole_runs=config.agent.learns_sequences,
        )
    actors = _drawn(config.replay, rows, rng, priorities, first)
    if not sources:
        return actors
    # TD errors of rows that no actor made are not computed
    of_sources = config.replay.model_copy(update={"initial_priorities": "max"})
    named = [
        Source(
            name,
            _drawn(of_sources, source_rows, rng, memory, first),
            (source := config.replay.sources[name]).share,
            source.schedule if source.schedule.changes else None,
            grows=not source.data,
        )
        for name, (source_rows, memory) in sources.items()
    ]
    mixed = MixedSequences if config.replay.sequence else MixedReplay
    return mixed(actors, named, warmup=config.learner.warmup_period)


def _drawn(
    config: ReplayConfig,
    rows: Rows,
    rng: np.random.Generator,
    priorities: NDArray[np.float64] | None,
    first: Collection[str],
) -> UniformReplay | PrioritizedReplay:
    if config.sequence and config.prioritized:
        return PrioritizedSequences(rows, rng, config, first=first, memory=priorities)
    if config.sequence:
        return UniformSequences(rows, rng, config, first=first)
    if config.prioritized:
        return PrioritizedReplay(rows, rng, config, memory=priorities)
    return UniformReplay(rows, rng)


def prepare_steps(agent: Agent, device: torch.device, config: LearnerConfig) -> None:
    """Have an agent's optimization steps run as configured: in which precision, compiled, captured.

    What cannot be is said once, and left out.
    """
    captured = config.captured_step and host_copy.is_asynchronous(device)
    rounded = config.precision == "bfloat16"
    if not isinstance(agent, SteppedAgent):
        if config.ranks > 1:
            raise UsageError(
                f"learner.ranks: {type(agent).__name__} has an `opt` of its own: several ranks "
                "need a subclass of SteppedAgent with a `step`"
            )
        if captured or rounded or config.compile:
            log.info(
                "%s: its optimization steps run one operation after the other, in float32: it has "
                "an `opt` of its own; a subclass of SteppedAgent with a `step` is captured",
                type(agent).__name__,
            )
        return
    if rounded:
        for network in agent.networks:
            compute_in_bfloat16(network)
    if config.compile and (reason := compile_networks(agent.networks, device)):
        log.warning("learner.compile: the networks run as they are, uncompiled: %s", reason)
    prepare_capture(agent, device, config)


def prepare_capture(agent: Agent, device: torch.device, config: LearnerConfig) -> None:
    """Have the steps of an agent captured, where that is possible and asked for; those that were
    captured before are forgotten."""
    captured = config.captured_step and host_copy.is_asynchronous(device)
    if captured and isinstance(agent, SteppedAgent):
        agent.capture_by(CudaCapture(device, agent.generators))


def gather_capture(device: torch.device, config: LearnerConfig) -> CudaCapture | None:
    """Make what captures the gathering of batches, beside the steps; None where neither is."""
    captured = config.captured_step and host_copy.is_asynchronous(device)
    return CudaCapture(device) if captured else None


def _has_copy(loader: DeviceLoader) -> bool:
    return isinstance(loader, RankLoader) and loader.has_copy


@contextmanager
def configured_arithmetic(config: LearnerConfig, device: torch.device) -> Iterator[None]:
    """Multiply matrices of float32, and convolve, as configured meanwhile: torch's settings are the
    process's. By default it rounds what convolutions take to TF32, under the name of float32, and
    takes the fastest of them, whose bits may differ from one time to the next."""
    cudnn = torch.backends.cudnn
    matrices = torch.get_float32_matmul_precision()
    convolutions = cudnn.allow_tf32
    deterministic = cudnn.deterministic
    if device.type == "cuda":
        rounds = config.precision == "tf32"
        torch.set_float32_matmul_precision("high" if rounds else "highest")
        cudnn.allow_tf32 = rounds
        cudnn.deterministic = config.deterministic
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(matrices)
        cudnn.allow_tf32 = convolutions
        cudnn.deterministic = deterministic
