"""The replay of a run for a custom training loop: the gateway, without our trainer.

This process is in the trainer's place: it reads the replay, and writes the trainer's status record
and the models into their maps. A thread supervises the gateway.
"""

from __future__ import annotations

import atexit
import logging
import math
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from vedette_protocol.errors import SchemaError
from vedette_protocol.schema import Schema, spec_difference
from vedette_rl.agents.registry import agent_kind
from vedette_rl.core import ColumnPolicy, ModelInfo, Sample, State
from vedette_rl.core.acting import act_of
from vedette_rl.core.learning import draw_wait_reason, look_at
from vedette_rl.core.nested_arrays import flatten_arrays
from vedette_rl.core.protocols import implements
from vedette_rl.envs.layout import ActionConverter
from vedette_rl.envs.spaces import observation_columns
from vedette_rl.errors import LatestValueFormatError, NestedArraysError
from vedette_rl.replay.limiter import Limiter, LimiterOrigin
from vedette_rl.replay.mixed import MixedReplay
from vedette_rl.replay.ring_files import read_floor
from vedette_rl.storage.latest_value import read_latest_value
from vedette_services.errors import (
    ArgumentError,
    ReplayWaitError,
    ServicesError,
    UnsavedEndError,
    foreign_error_message,
)
from vedette_services.host.processes import StopSignals, WakeupEvent
from vedette_services.learner.disk_room import DiskRoom
from vedette_services.learner.heartbeat import TurnRecord
from vedette_services.learner.supervisor import Supervisor, prepare_run
from vedette_services.learner.trainer.background import BackgroundPublisher
from vedette_services.net.addresses import Address
from vedette_services.run.active_time import training_time_before
from vedette_services.run.directory import LearnerSpec, RunDirectory
from vedette_services.run.learner_location import publish_location
from vedette_services.run.model_map import ModelMapWriter
from vedette_services.run.outcome import describe_loss, read_summary
from vedette_services.run.provenance import record_provenance
from vedette_services.run.replay_layout import make_run_limiter, replay_directory
from vedette_services.run.sources import describe_sources, with_shares
from vedette_services.run.start_plan import StartPlan
from vedette_services.run.status_files import StatusReader
from vedette_services.status.rate_meter import OPT_STEPS_S, RateMeter
from vedette_services.status.records import StatusRecordWriter, TrainerStatus
from vedette_services.status.schema import decode
from vedette_services.status.status import Rates, Status, Time
from vedette_services.status.stop_conditions import find_exit_reason
from vedette_services.status.wait_reason import describe_refused

log = logging.getLogger("vedette.replay")

_TICK_S = 0.02  # from one status of the loop to the next
_WAIT_S = 0.005  # from one look to the next: the maps have no event to wait for
_OPEN_S = 60.0  # for the gateway to listen
_LAST_MODEL_S = 20.0
_END_S = 30.0  # for the gateway to take the last batches and to close the replay
_WARN_WAIT_S = 10.0  # until the first line about a wait; each next one takes twice as long


class _GatewaySupervisor(Supervisor):
    """Runs the gateway beside a training loop of this process, in a thread of its own."""

    processes = ("gateway",)

    def __init__(self, spec: LearnerSpec, on_loaded: Callable[[], None], drawn: int) -> None:
        super().__init__(spec, None, on_loaded=on_loaded)
        self._drawn = drawn  # by earlier starts
        self.error: Exception | None = None
        self._stop = StopSignals(())
        self._thread = threading.Thread(target=self._serve, name="vedette-replay", daemon=True)

    @property
    def wakeup(self) -> WakeupEvent:
        """The event to set when there is a newer model."""
        return self._wakeup

    def start(self, epoch: int, opt_steps: int) -> None:
        """Start the gateway."""
        self._event_log.log_epoch(epoch, opt_steps)
        self._thread.start()

    @property
    def is_serving(self) -> bool:
        """True while the gateway runs, or is started again."""
        return self._thread.is_alive()

    def end(self) -> None:
        """End the gateway once the loop's status says that it is done, or at once."""
        self._stop.request()
        self._thread.join(_END_S)
        if not self._thread.is_alive():  # it waits on them
            self._stop.close()

    def _draws_before(self, inserted: int) -> int:
        return self._drawn if inserted else 0

    def _serve(self) -> None:
        try:
            self.run(self._stop)
        except Exception as error:  # noqa: BLE001 - raised in the loop's thread
            self.error = error

    def _end(self, stop: StopSignals) -> None:
        if self._records.learning.read().phase != "done":
            self._stops["gateway"].set()
        self._wait_for_gateway(self._children["gateway"].process)
        status = self._records.read()
        self._log_end(status.exit_reason)
        self._write_summary(status, ended=True)
        if why := describe_loss(self._spec.run.find_loss()):
            raise UnsavedEndError(why, status)


class RemoteReplay:
    """A durable replay that actors on any number of hosts feed, for a custom training loop.

    ::

        with RemoteReplay(plan, address) as replay:
            replay.publish(arrays)              # actors play from the first model on
            for batch in replay:                # waits for the warm-up and for the limiter
                learn(batch.columns["obs"], batch.columns["action"], ...)
                replay.publish(arrays)          # now and then

    A batch is stored and acknowledged as by ``vedette learner``: never twice, and none is lost when
    this process is killed. A replay of the same directory continues the run. Leaving the block
    tells the actors that the run is over; after an exception they wait for it to continue.

    One thread draws and publishes.

    Args:
        plan: the plan of this start.
        address: the address to bind.
        keys: folder with our key pair and the keys that we admit; None: everybody.

    Raises:
        RunInUseError: a learner runs on this directory.
        PortInUseError: the address is taken.
        ChildFailedError: the gateway died and would die again.
    """

    def __init__(self, plan: StartPlan, address: Address, *, keys: Path | None = None) -> None:
        # This process does not take the results of evaluations.
        learner = plan.config.learner.model_copy(update={"eval_interval": 0})
        plan = replace(plan, config=plan.config.model_copy(update={"learner": learner}))
        self.config = plan.config
        self.run = plan.out
        self.address = address
        self._spaces = plan.spaces
        self._began = time.monotonic()
        self._opt_rate = RateMeter(OPT_STEPS_S)
        self._opt_rate.update(0, self._began)
        self._room = DiskRoom(RunDirectory(plan.out))
        self._pid = os.getpid()
        self._next_tick = self._wait_s = 0.0
        self._closed = False
        self._ended = ""  # the exit reason, once the end is written
        self._models: BackgroundPublisher | None = None
        self._model_schema: Schema | None = None
        self._limiters: dict[int, Limiter] = {}
        with ExitStack() as opening:
            directory = RunDirectory(plan.out)
            opening.callback(directory.unlock)
            opening.callback(self._empty_live)
            spec, on_loaded = prepare_run(plan, directory, address, keys)
            before = _last_status(directory)
            opening.enter_context(record_provenance(plan.config, directory, plan.packages))
            opening.enter_context(publish_location(directory, address, None))
            self._serve(spec, on_loaded, before, opening)
            self._opened = opening.pop_all()
        atexit.register(self.close, "interrupted")

    def _serve(
        self,
        spec: LearnerSpec,
        on_loaded: Callable[[], None],
        before: TrainerStatus,
        opening: ExitStack,
    ) -> None:
        """Start the gateway and open the replay behind it."""
        epoch = spec.run.begin_epoch().epoch
        self._has_model = spec.run.model_map.exists()  # a start removes another one's
        self._supervisor = _GatewaySupervisor(spec, on_loaded, before.sampled)
        self._status_record = StatusRecordWriter(spec.run.learning_map, TrainerStatus)
        opening.callback(self._status_record.close)
        self._turns = TurnRecord(spec.run.heartbeat_map("trainer"), bounded=False)
        opening.callback(self._turns.close)
        sources = describe_sources(self.config, self.run)
        self._learning = TrainerStatus(
            epoch,
            before.opt_steps,
            before.sampled,
            sources=sources,
            trained=training_time_before(spec.run),
        )
        self._status_record.write(self._learning)
        self._status = StatusReader(spec)
        self._model_maps = spec.run.model_map, spec.run.sent_map(spec.config)
        self._version = before.opt_steps - 1
        self._first_batch = before.opt_steps
        self._supervisor.start(epoch, before.opt_steps)
        opening.callback(self._supervisor.end)
        from vedette_services.learner.trainer.process import (
            open_replay,  # brings torch: while it starts
        )

        self._wait_for_gateway()
        self._buffer = open_replay(spec, epoch, in_files=True)
        # Schedules of beta and shares continue, too. The rest is as it was opened.
        whole = self._buffer.get_state()
        state = {name: part for name, part in whole.items() if name not in ("masses", "sources")}
        counts = {"draws", "mixed_draws"} & state.keys()
        self._buffer.set_state({**state, **dict.fromkeys(counts, before.opt_steps)})
        self._floor = read_floor(replay_directory(self.config, self.run))
        self._origin = spec.run.limiter_origin
        self._learning = replace(
            self._learning,
            sampled=self._draws_that_count(before),
            limiter_origin=None if self._origin is None else self._origin.counts,
        )
        self._tick("waiting", self.wait_reason() or "no batch was drawn yet")

    def _draws_that_count(self, before: TrainerStatus) -> int:
        """Return the rows drawn by earlier starts, as far as the limiter would have let them be
        drawn from the rows that are there now."""
        limiter = make_run_limiter(self.config, self._floor, self._origin)
        begun = self._origin or LimiterOrigin(limiter.min_size, 0)
        center = begun.sampled + limiter.rate * (self._buffer.inserted - begun.inserted)
        drawn = before.sampled if before.epoch else center
        return max(0, round(min(drawn, center + limiter.error_buffer)))

    def _wait_for_gateway(self) -> None:
        deadline = time.monotonic() + _OPEN_S
        while self._status.ingest.read().samples is None:
            self._raise_failure()
            if time.monotonic() > deadline:
                raise ServicesError(f"the gateway does not listen after {_OPEN_S:g} s")
            time.sleep(_WAIT_S)

    # Batches

    def __iter__(self) -> Iterator[Sample]:
        """Draw batches of `agent.batch_size` rows until a stop condition is reached."""
        while not self._exit_reason():
            with suppress(ReplayWaitError):  # the condition may be reached meanwhile
                yield self.sample(timeout_s=1.0)

    def sample(self, batch_size: int | None = None, *, timeout_s: float = math.inf) -> Sample:
        """Draw rows, or sequences of rows (`replay.sequence`); the columns are overwritten by the
        next call.

        It waits for the warm-up (`learner.warmup_period`), and while more was drawn than
        `replay.samples_per_insert` allows; status and log have the reason, and what keeps managers
        from playing. Batches from sources alone wait for nothing.

        Args:
            batch_size: the number of samples, or of sequences, at most `replay.capacity`; None:
                `agent.batch_size`.
            timeout_s: the longest wait; 0: none.

        Raises:
            ArgumentError: `batch_size` is no such number.
            ReplayWaitError: a batch may not be drawn yet; has the reason.
            RlError: `replay.error_buffer` never lets so many be drawn.
            ChildFailedError: the gateway died and would die again.

        Columns of sequences: see `vedette_rl.replay.drawn_sequences`.
        """
        rows = self._rows(batch_size)
        self._wait(rows, timeout_s)
        steps = max(1, self.config.replay.sequence)
        counted = 0 if self._draws_of_sources_only() else rows * steps
        sample = self._buffer.sample(rows)
        learning = self._learning
        self._learning = replace(
            learning, opt_steps=learning.opt_steps + 1, sampled=learning.sampled + counted
        )
        interval = self.config.learner.flush_record_interval
        if interval and self.batches % interval == 0:
            self._record_shares()
        self._tick("training", "")
        return sample

    def _record_shares(self) -> None:
        """Have the status show the shares of the sources in what was drawn since the last call."""
        if isinstance(self._buffer, MixedReplay):
            self._buffer.stats()
            sources = with_shares(self._learning.sources, self._buffer)
            self._learning = replace(self._learning, sources=sources)

    def _draws_of_sources_only(self) -> bool:
        """Have the next batch drawn from the named sources alone, if it is one of
        `learner.pretrain_opts` or nobody plays (`actors.count` 0); returns whether it is."""
        replay = self._buffer
        if not isinstance(replay, MixedReplay):
            return False
        pretrains = self.batches < self.config.learner.pretrain_opts
        return replay.choose_sources(pretrains=pretrains, offline=self.config.actors.count == 0)

    def _rows(self, batch_size: int | None) -> int:
        if batch_size is None:
            return self.config.agent.batch_size
        most = self.config.replay.capacity
        is_whole = isinstance(batch_size, (int, np.integer)) and not isinstance(batch_size, bool)
        if not (is_whole and 1 <= batch_size <= most):
            why = f"no number of rows from 1 to replay.capacity, which is {most:,}"
            raise ArgumentError(f"batch_size={batch_size!r}: {why}")
        return int(batch_size)

    def wait_reason(self, batch_size: int | None = None) -> str:
        """Return why a batch may not be drawn yet; "" if it may. From sources alone it always may:
        `learner.pretrain_opts` batches, and all of them with `actors.count` 0."""
        rows = self._rows(batch_size)
        inserted = look_at(self._buffer)
        reason = ""
        if not self._draws_of_sources_only():
            reason = self._limiter_of(rows).sample_wait_reason(inserted, self._learning.sampled)
        lacking = "" if reason else draw_wait_reason(self._buffer)
        if self._learning.needs_samples != bool(lacking):  # who asks may wait for actors himself
            self._learning = replace(self._learning, needs_samples=bool(lacking))
            self._status_record.write(self._learning)
        reason = reason or lacking
        if not reason:
            return ""
        if not self._has_model:
            return f"{reason}; actors wait for the first model, which nobody has published"
        refused = describe_refused(self._status.ingest.read())
        return f"{reason}; {refused}" if refused else reason

    def _limiter_of(self, rows: int) -> Limiter:
        """Return the limiter of batches of so many rows, or sequences."""
        if rows not in self._limiters:
            whole = make_run_limiter(self.config, self._floor, self._origin)
            samples = rows * max(1, self.config.replay.sequence)
            self._limiters[rows] = replace(whole, batch_size=samples)
        return self._limiters[rows]

    def update_priority(self, indices: NDArray[Any], td_errors: NDArray[Any]) -> None:
        """Set the absolute TD errors ``(B,)`` of rows drawn before, if `replay.prioritized` is set.

        Args:
            indices: `Sample.indices`.
        """
        self._buffer.update_priority(indices, td_errors)

    def __len__(self) -> int:
        """Rows that can be drawn now."""
        return len(self._buffer)

    @property
    def inserted(self) -> int:
        """Rows inserted since the run began, overwritten ones too."""
        return self._buffer.inserted

    @property
    def batches(self) -> int:
        """Batches drawn since the run began: the status calls them optimization steps."""
        return self._learning.opt_steps

    def status(self) -> Status:
        """Return the status of the run: accounting, fleet, returns of the actors' episodes."""
        return self._status.read()

    def get_state(self) -> State:
        """Return what the draws depend on, for a checkpoint; the rows are in the replay's files."""
        return self._buffer.get_state()

    def set_state(self, state: State) -> None:
        """Draw on from a state of `get_state`."""
        self._buffer.set_state(state)

    # Models

    def publish(self, arrays: Mapping[str, Any]) -> int:
        """Send a model to the actors, in the background.

        Args:
            arrays: arrays or tensors by name, as the run's policy takes them, in any order; they
                are copied. Names, shapes and dtypes stay the same. Of nested dictionaries, such as
                JAX's, the policy gets ``{"params/dense/kernel": ...}``, and
                `vedette_rl.core.ModelInfo.nested` has them as they were.

        Returns:
            Its version: the batches drawn so far, and always more than the version before.

        Raises:
            ArgumentError: the policy does not take them or does not act on them, or they differ
                from the previous ones.
        """
        self._raise_failure()
        if not (isinstance(arrays, Mapping) and arrays):
            given = "an empty one" if isinstance(arrays, Mapping) else type(arrays).__name__
            raise ArgumentError(f"publish: it takes a mapping of names to arrays, not {given}")
        before = () if self._model_schema is None else self._model_schema.columns
        version = max(self.batches, self._version + 1)
        try:
            model = ModelInfo(version, _copied(arrays, [column.name for column in before]))
            schema = Schema.from_arrays(model.arrays)
        except (SchemaError, NestedArraysError) as error:
            raise ArgumentError(f"publish: {error}") from error
        if self._models is None:
            self._check_model(model)
            self._model_schema = schema
            path, sent = self._model_maps
            writer = ModelMapWriter(path, schema, sent)
            self._opened.callback(writer.close)
            self._models = BackgroundPublisher(
                writer, self._learning.epoch, self._supervisor.wakeup.set
            )
        elif self._model_schema is not None and schema.hash != self._model_schema.hash:
            difference = spec_difference(self._model_schema, schema).replace("column", "array")
            raise ArgumentError(f"publish: these are not the arrays of before: {difference}")
        self._models.publish(model, self._status.ingest.read().env_steps)
        self._version = model.version
        self._has_model = True
        return model.version

    def _check_model(self, model: ModelInfo) -> None:
        """Check that the policy that actors build takes a model, and acts on it."""
        agent = self.config.agent
        ranks = np.array([0.5])
        spaces = self._spaces
        kind = agent_kind(agent.name)
        policy = kind.build_policy(agent, spaces, ranks=ranks, seed=0)
        try:
            policy.sync_model(model)
        except Exception as error:
            why = foreign_error_message(error)
            raise ArgumentError(
                f"publish: {agent.name} does not take these arrays: {why}"
            ) from error
        obs = {
            leaf.name: np.zeros((1, *leaf.shape), leaf.dtype)
            for leaf in observation_columns(spaces.observation)
        }
        try:
            with np.errstate(all="ignore"):  # of numbers that no environment gives
                chosen = act_of(policy)(obs, explore=True, begins=np.ones(1, np.bool_))
            action = ActionConverter(spaces.action, 1).to_column(chosen)
        except Exception as error:
            why = foreign_error_message(error)
            raise ArgumentError(
                f"publish: {agent.name} cannot act on these arrays: {why}"
            ) from error
        if not np.isfinite(action).all():
            raise ArgumentError(
                f"publish: {agent.name} acts by numbers that are not finite on these arrays"
            )
        given = policy.acted_columns() if implements(policy, ColumnPolicy) else {}
        declared = {column.name for column in kind.columns(agent, spaces)}
        if undeclared := [repr(name) for name in given if name not in declared]:
            raise ArgumentError(
                f"publish: {agent.name}'s acted_columns() has {', '.join(undeclared)}, which it "
                "does not declare: give it a static method columns(spaces) that returns RowColumns"
            )

    # Waiting, and the end

    def _wait(self, rows: int, timeout_s: float) -> None:
        """Wait until a batch may be drawn."""
        self._raise_failure()
        if not (reason := self.wait_reason(rows)):
            return
        began = time.monotonic()
        warn_after_s = _WARN_WAIT_S
        while reason:
            now = time.monotonic()
            if now - began >= timeout_s:
                raise ReplayWaitError(reason, timeout_s)
            if now - began >= warn_after_s:
                log.warning("a draw waits for %.0f s: %s", now - began, reason)
                warn_after_s *= 2.0
            self._tick("waiting", reason)
            time.sleep(_WAIT_S)
            self._wait_s += time.monotonic() - now
            self._raise_failure()
            reason = self.wait_reason(rows)

    def _tick(self, phase: str, waits: str) -> None:
        """Write the loop's status, when that is due."""
        now = time.monotonic()
        if now >= self._next_tick:
            self._next_tick = now + _TICK_S
            self._turns.mark_turn()
            self._learning = self._now(phase=phase, waits=waits)
            self._status_record.write(self._learning)

    def _now(self, **changed: str) -> TrainerStatus:
        now = time.monotonic()
        seconds = now - self._began
        learning = self._learning
        done = learning.opt_steps - self._first_batch
        return replace(
            learning,
            disk=self._room.measure(now),
            trained=replace(learning.trained, start_s=seconds),
            rates=Rates(
                opt_steps_per_sec=self._opt_rate.update(done, now),
                opt_steps_per_sec_mean=done / seconds,
            ),
            time=Time(seconds - self._wait_s, 0.0, self._wait_s, seconds),
            **changed,  # type: ignore[arg-type]  # its text fields
        )

    def _exit_reason(self) -> str:
        """Return the stop condition that is reached; "" while there is none."""
        seconds = time.monotonic() - self._began
        env_steps = self._status.ingest.read().env_steps
        return find_exit_reason(self.config.stop, self.batches, env_steps, seconds, None)

    def _raise_failure(self) -> None:
        if not self._supervisor.is_serving:  # first: a model may have failed by this
            raise self._supervisor.error or ServicesError("the replay is closed")
        if self._models is not None:
            self._models.raise_failure()

    def close(self, exit_reason: str = "") -> None:
        """End the gateway, and tell the actors; does nothing when it is closed.

        Args:
            exit_reason: ``interrupted``: the run continues later, and actors wait for it; "": it is
                over.
        """
        if os.getpid() != self._pid or self._closed:
            return  # a forked child's copy is not the replay
        self._closed = True
        atexit.unregister(self.close)
        with self._opened:
            if not self._supervisor.is_serving:
                return  # the gateway gave up: no process takes a model, or a status
            reason = exit_reason or self._exit_reason() or "loop_ended"
            if self._models is not None:
                self._models.close(_LAST_MODEL_S)
            self._record_shares()
            self._learning = self._now(phase="done", waits="", exit_reason=reason)
            self._status_record.write(self._learning)
            self._ended = reason

    def _empty_live(self) -> None:
        """Remove the maps after the end, but for that of the draws, which the next start counts."""
        if not self._ended:
            return
        run = RunDirectory(self.run)
        models = run.model_maps if self._ended == "interrupted" else ()
        run.empty_live(run.learning_map, *models)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close("interrupted" if kind else "")


def _last_status(run: RunDirectory) -> TrainerStatus:
    """Return the last status of earlier starts; without its map, the batches of the summary."""
    last = TrainerStatus()
    with suppress(OSError, LatestValueFormatError):
        if value := read_latest_value(run.learning_map):
            last = decode(TrainerStatus, value[1]) or last
    return replace(last, opt_steps=max(last.opt_steps, read_summary(run.root).opt_steps or 0))


def _on_host(name: str, value: Any) -> Any:  # of any array library
    """An array as it is, or a tensor's."""
    if not hasattr(value, "detach"):
        return value
    tensor = value.detach().cpu()
    try:
        return tensor.numpy()
    except (TypeError, RuntimeError) as error:
        raise ArgumentError(
            f"publish: {name!r} is a tensor of {tensor.dtype}, {tensor.layout}, which numpy does "
            "not have: publish a dense one of float32, by .to_dense() or .float()"
        ) from error


def _copied(arrays: Mapping[str, Any], order: Sequence[str] = ()) -> dict[str, NDArray[Any]]:
    """Copy arrays, and tensors of any device.

    Args:
        order: the names in the order that is wanted; names that are not there come last.

    Raises:
        ArgumentError: numpy has no such array: of bfloat16, quantized or sparse ones, e.g.
        NestedArraysError: as `flatten_arrays`.
    """
    host = {name: _on_host(name, value) for name, value in flatten_arrays(arrays).items()}
    wanted = {name: host[name] for name in order if name in host}
    return {name: np.array(value, order="C") for name, value in {**wanted, **host}.items()}
