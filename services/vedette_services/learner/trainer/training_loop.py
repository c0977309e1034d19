"""The learner's loop of the upstream crate: sample, optimize, and the intervals around it.

All intervals count optimization steps; 0 switches one off. The loop never waits for network, disk,
evaluation or serialization: its callbacks hand these to other threads and processes.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from vedette_rl.core import Agent, OptResult, ReplayBuffer
from vedette_rl.core.learning import State, draw_wait_reason, look_at
from vedette_rl.core.protocols import implements
from vedette_rl.device.host_copy import Event, HostCopy, Pending, Reached, read_later
from vedette_rl.device.loader import DeviceBatch, DeviceLoader, LoaderAhead
from vedette_rl.replay.history import UNREACHED, History
from vedette_rl.replay.limiter import Limiter
from vedette_rl.replay.mixed import MixedReplay
from vedette_rl.replay.prioritized import PrioritizedReplay
from vedette_rl.replay.queue import QueueReplay
from vedette_services.config.parts import LearnerConfig
from vedette_services.errors import ServicesError
from vedette_services.status.rate_meter import RecentValues
from vedette_services.status.records import TrainerStatus
from vedette_services.status.status import Lag, Rates, Time

TICK_S = 0.02
"""From one tick to the next: 50 a second."""

RECENT_S = 10.0
"""Seconds of training over which the rate of optimization steps, of which a slow one may take a
second, and the shares of the time are measured. The shares are known after half of them."""

_LATE_OPTS = 8
"""Optimization steps that the device may be behind. Then the loop waits for it: what it counts,
publishes and times would else be work that is still to be done."""

DEVICE_ERRORS_DELAY = _LATE_OPTS + 1
"""From an optimization step on a device to the one before whose draw its TD errors are set: no step
waits longer for them than for the device."""

_FIRST_SAVE_OPTS = 256
"""The first checkpoint of a run, where `learner.save_interval` is longer."""

_WAIT_S = 0.005  # from one check to the next while the loop waits for samples


class LoopCallbacks(Protocol):
    """Called by the loop to publish, save and record, and to learn when to end."""

    def publish(self, agent: Agent) -> None:
        """Send the model to actors and to the evaluator."""
        ...

    def save(self, agent: Agent, learning: TrainerStatus, errors: State) -> None:
        """Write a checkpoint without delaying the loop.

        Args:
            agent: its state is saved.
            learning: the status.
            errors: TD errors that are not set yet, for the loop that goes on from here.
        """
        ...

    def record(self, record: dict[str, float], opt_steps: int) -> None:
        """Keep scalars for the recorder."""
        ...

    def flush(self, opt_steps: int) -> None:
        """Have the recorder write the scalars that it keeps."""
        ...

    def tick(self, learning: TrainerStatus) -> str:
        """Publish the status; returns the exit reason, "" to continue."""
        ...


def sleep_briefly() -> None:
    """Sleep while others insert: the maps have no event to wait for."""
    time.sleep(_WAIT_S)


@dataclass(slots=True)
class _Times:
    """Seconds spent, and optimization steps done."""

    opt_s: float = 0.0
    sample_s: float = 0.0
    wait_s: float = 0.0
    opts: int = 0


class _UnreadErrors(NamedTuple):
    """TD errors of an optimization step that are not set yet."""

    opt_steps: int
    indices: NDArray[Any]
    td_errors: HostCopy


class _UnreadRecord(NamedTuple):
    """Scalars of an optimization step that are on their way from the device."""

    opt_steps: int
    record: Mapping[str, float]

    @property
    def done(self) -> bool:
        """Return True where reading them waits for nothing."""
        return getattr(self.record, "done", True)


class TrainingLoop:
    """Optimizes until its callbacks return an exit reason.

    Args:
        learning: the status that it continues from.
        samples_per_opt: samples that an optimization step draws, as the limiter counts them.
        offline: no actors are waited for where the replay has other sources.
        idle: called again and again while the loop waits for samples.
        mark: returns the event of the end of all work that the device was given until now.
        errors: TD errors that the loop before had not set yet.
        errors_delay: optimization steps from one to that before whose draw its TD errors are set,
            whenever they arrive: `DEVICE_ERRORS_DELAY` on a device. With a batch ahead one more.
        note_draw: called when a batch was drawn.
        make_room: returns the loader to go on with where the device has no memory for a step;
            called with the device's words. None: the error goes on.
    """

    def __init__(
        self,
        agent: Agent,
        replay: ReplayBuffer,
        loader: DeviceLoader,
        limiter: Limiter,
        config: LearnerConfig,
        callbacks: LoopCallbacks,
        *,
        learning: TrainerStatus,
        max_opts: int,
        samples_per_opt: int,
        offline: bool = False,
        idle: Callable[[], None] = sleep_briefly,
        mark: Callable[[], Event] = Reached,
        errors: Mapping[str, Any] = MappingProxyType({}),
        errors_delay: int = 1,
        note_draw: Callable[[], None] = lambda: None,
        make_room: Callable[[str], DeviceLoader] | None = None,
        tick_s: float = TICK_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._agent = agent
        self._replay = replay
        self._queue = replay if isinstance(replay, QueueReplay) else None
        self._publishes = False  # a model is due at the end of the block
        self._use_loader(loader)
        self._limiter = limiter
        self._config = config
        self._callbacks = callbacks
        self._max_opts = max_opts
        self._samples_per_opt = samples_per_opt
        self._clock = clock
        self._idle = idle
        self._mark = mark
        self._errors_delay = errors_delay
        self._note_draw = note_draw
        self._make_room = make_room
        self._tick_s = tick_s
        self._offline = offline
        self._learning = learning
        self._sampled = learning.sampled
        self._times = _Times()
        self._cost = _Times()
        self._next_tick = 0.0
        self._needs_samples = False
        self._began: float | None = None
        self._recent = RecentValues[_Times](RECENT_S, every_s=1.0)
        self._history = History().begun(learning.epoch, agent.opt_steps)
        self._rows_before = replay.inserted  # those of earlier starts have lower numbers
        self._lag = Lag()  # of the rows drawn for the last record
        self._record: dict[str, float] = dict(learning.record)
        self._given: deque[Event] = deque()  # the ends of the newest steps
        self._unset = deque(
            _UnreadErrors(int(step), part["indices"], read_later(torch.from_numpy(part["errors"])))
            for step, part in errors.items()
        )
        self._unread: deque[_UnreadRecord] = deque()
        self._flushes: deque[int] = deque()  # those that wait for results of their steps
        self._sampling_recorded = -1  # the step of the last flush with the replay's statistics

    def run(self) -> TrainerStatus:
        """Train to the end; returns the last status, with its `exit_reason`."""
        self._callbacks.publish(self._agent)
        reason = "max_opts" if self._is_last() else self._tick("starting", "")
        while not reason:
            waits = "" if self._is_ahead else self._wait_reason(self._agent.opt_steps + 1)
            if waits:
                reason = self._wait(waits)
                continue
            if not self._opt(may_draw_ahead=True):
                continue
            if self._is_last():
                reason = "max_opts"
            elif self._clock() >= self._next_tick:
                reason = self._tick("training", "")
        while self._is_ahead:  # no state has a batch ahead: the next start would never train on it
            self._opt(may_draw_ahead=False)
        return self._finish(reason)

    def _is_last(self) -> bool:
        return 0 < self._max_opts <= self._agent.opt_steps

    def _use_loader(self, loader: DeviceLoader) -> None:
        self._loader = loader
        self._loader_ahead = loader if implements(loader, LoaderAhead) else None

    @property
    def _is_ahead(self) -> bool:
        """True if the batch of the next step is drawn already."""
        return self._loader_ahead is not None and self._loader_ahead.is_ahead

    def _wait_reason(self, step: int, in_hand: int = 0) -> str:
        """The reason why the draw of a step waits; "" where it need not. On sources alone none
        does.

        It asks what the draw is to see: the draw sees no row that has come since.

        Args:
            step: the step that the batch is for.
            in_hand: samples that are drawn for the step before, which is not done yet.
        """
        replay = self._replay
        inserted = look_at(replay)
        limited = ""
        if self._queue is None and not self._chooses_sources_only(step):
            limited = self._limiter.sample_wait_reason(inserted, self._sampled + in_hand)
        lacking = "" if limited else draw_wait_reason(replay)
        # Credit of a queue lets in the next block whatever happens.
        self._needs_samples = bool(lacking) and self._queue is None
        return limited or lacking

    def _chooses_sources_only(self, step: int) -> bool:
        """Decide whether a step is on the named sources alone."""
        replay = self._replay
        if not isinstance(replay, MixedReplay):
            return False
        pretrains = step <= self._config.pretrain_opts
        return replay.choose_sources(pretrains=pretrains, offline=self._offline)

    def _wait(self, waits: str) -> str:
        self._read_records(_LATE_OPTS)
        if self._queue is not None and (self._queue.save_is_urgent or self._queue.save_is_due):
            self._save()
        before = self._clock()
        self._idle()
        now = self._clock()
        self._times.wait_s += now - before
        return self._tick("waiting", waits) if now >= self._next_tick else ""

    def _opt(self, *, may_draw_ahead: bool) -> bool:
        """Do one optimization step, what is due behind it, and time it; False where the device had
        no memory for it."""
        began = self._clock()
        if self._began is None:
            self._began = began
            self._recent.add(replace(self._times), began)
        step = self._agent.opt_steps + 1
        full = ""
        try:
            loaded = self._load(step)
            if may_draw_ahead:
                self._draw_ahead(step, loaded)
            sampled = self._clock()
            self._wait_for_device()
            record = is_recorded(self._config, step)
            result = self._agent.opt(loaded.batch, loaded.weights, record=record)
        except torch.OutOfMemoryError as error:
            if self._make_room is None:
                raise
            full = str(error)
        if full:  # out here: an error that is handled holds the step's tensors
            assert self._make_room is not None
            self._use_loader(self._make_room(full))
            return False
        self._given.append(self._mark())
        self._learn_from(loaded, result)
        done = self._clock()
        self._sampled += self._counted(loaded) if self._queue is None else self._queue.done()
        self._times.sample_s += sampled - began
        self._times.opt_s += done - sampled
        self._times.opts += 1
        self._at_intervals(self._agent.opt_steps)
        return True

    def _load(self, step: int) -> DeviceBatch:
        """Bring the batch of a step, which is drawn unless it was drawn ahead."""
        is_ahead = self._is_ahead
        if not is_ahead:
            self._set_errors(step - self._draw_delay)
        loaded = self._loader.load()
        if not is_ahead:
            self._note_draw()
        return loaded

    def _draw_ahead(self, step: int, loaded: DeviceBatch) -> None:
        """Draw the batch behind that of a step, where the loader can and the draw need not wait.

        Never in a step that saves, or that is the last: no state has a batch ahead.
        """
        loader = self._loader_ahead
        if loader is None:
            return
        if step == self._max_opts or _is_saved(self._config.save_interval, step):
            return
        if self._wait_reason(step + 1, self._counted(loaded)):
            return
        self._set_errors(step + 1 - self._draw_delay)
        loader.draw_ahead()
        self._note_draw()

    def _counted(self, loaded: DeviceBatch) -> int:
        """The samples of a batch that count for the limiter, which has no part in others' rows."""
        return 0 if loaded.sources_only else self._samples_per_opt

    @property
    def _draw_delay(self) -> int:
        """Steps from a draw to the one whose TD errors are the newest that it sees. One more with a
        loader that draws ahead, also where it does not: a draw is the same then."""
        return self._errors_delay + (self._loader_ahead is not None)

    def _wait_for_device(self) -> None:
        """Wait until one more step may be given; those of a CPU are done."""
        while len(self._given) >= _LATE_OPTS:
            self._given.popleft().synchronize()

    def _learn_from(self, loaded: DeviceBatch, result: OptResult) -> None:
        """Begin to read the results; of a CPU they are there."""
        opt_steps = self._agent.opt_steps
        if loaded.weights is not None:
            if result.td_errors is None:
                raise ServicesError(
                    "replay.prioritized: the agent returns no TD errors to draw by: return them in "
                    "its OptResult or set replay.prioritized=false"
                )
            td_errors = read_later(result.td_errors)
            self._unset.append(_UnreadErrors(opt_steps, loaded.indices, td_errors))
        if result.record:
            self._lag = _summarize_lags(self._lags(loaded))
            self._unread.append(_UnreadRecord(opt_steps, result.record))
        self._read_records(_LATE_OPTS)

    def _lags(self, loaded: DeviceBatch) -> NDArray[Any]:
        """Optimization steps between the weights and the models behind the rows ``(N,)``, of which
        rows of data sets have none.

        Rows that are drawn at random say no epoch. Those of earlier starts are told by their
        numbers, or by a version that this start has not reached.
        """
        if loaded.lags is not None:
            return loaded.lags
        versions = loaded.versions
        if versions is None:
            return np.zeros(0)
        opt_steps = self._agent.opt_steps
        is_earlier = versions > opt_steps
        if versions.shape == loaded.indices.shape:  # of sequences it is not
            is_earlier |= loaded.indices < self._rows_before
        epoch = self._learning.epoch
        made = versions >= 0
        return np.concatenate(
            [
                self._history.lags(epoch - 1, versions[made & is_earlier], opt_steps),
                self._history.lags(epoch, versions[made & ~is_earlier], opt_steps),
            ]
        )

    def _set_errors(self, until: int) -> None:
        """Set the TD errors of the steps up to this one, in their order; waits for them.

        Never when they arrive: what is drawn would depend on that.
        """
        while self._unset and self._unset[0].opt_steps <= until:
            unset = self._unset.popleft()
            self._replay.update_priority(unset.indices, unset.td_errors.array())

    def _unset_errors(self) -> State:
        """The TD errors that are not set yet, by step; waits for none of them."""
        return {
            f"{unset.opt_steps:016}": {  # in their order also where names are sorted
                "indices": unset.indices,
                "errors": Pending(unset.td_errors.array),
            }
            for unset in self._unset
        }

    def _read_records(self, keep: int = 0) -> None:
        """Take over the scalars that have arrived, and wait for all but those of the newest `keep`
        steps."""
        last = self._agent.opt_steps - keep
        while self._unread and (self._unread[0].opt_steps <= last or self._unread[0].done):
            unread = self._unread.popleft()
            self._flush_before(unread.opt_steps)
            self._record = dict(unread.record)
            record = {f"train/{name}": value for name, value in self._record.items()}
            self._callbacks.record(record, unread.opt_steps)
        self._flush_before(self._unread[0].opt_steps if self._unread else math.inf)

    def _at_intervals(self, opt_steps: int) -> None:
        config = self._config
        if _due(config.record_compute_cost_interval, opt_steps):
            self._record_cost(opt_steps)
        if _due(config.flush_record_interval, opt_steps):
            self._flush(opt_steps)
        queue = self._queue
        if _is_saved(config.save_interval, opt_steps) or (queue is not None and queue.save_is_due):
            self._save()
        if _due(config.sync_interval, opt_steps) or _due(config.eval_interval, opt_steps):
            self._publishes = True
        if queue is not None and queue.config.strict:
            self._publishes = True  # actors wait for each
        # Models of half a block are no better, and cost a copy.
        if self._publishes and (queue is None or queue.is_between_blocks):
            self._publishes = False
            self._callbacks.publish(self._agent)

    def _save(self) -> None:
        self._callbacks.save(self._agent, self._now(), self._unset_errors())

    def _flush(self, opt_steps: int) -> None:
        """Write what was recorded, once the results of all steps until now have arrived."""
        self._flushes.append(opt_steps)
        self._read_records(_LATE_OPTS)

    def _flush_before(self, opt_steps: float) -> None:
        """Do the flushes that waited for results of earlier steps than this one."""
        while self._flushes and self._flushes[0] < opt_steps:
            flushed = self._flushes.popleft()
            is_first = flushed != self._sampling_recorded  # the last flush may come again
            if is_first and (record := _sampling_record(self._replay)):
                self._callbacks.record(record, flushed)
            self._sampling_recorded = flushed
            self._callbacks.flush(flushed)

    def _record_cost(self, opt_steps: int) -> None:
        """Record upstream's two timers: mean milliseconds since the last call."""
        now = self._times
        cost = self._cost
        opts = now.opts - cost.opts
        if opts:
            self._callbacks.record(
                {
                    "average_opt_time": 1e3 * (now.opt_s - cost.opt_s) / opts,
                    "average_sample_time": 1e3 * (now.sample_s - cost.sample_s) / opts,
                },
                opt_steps,
            )
        self._cost = replace(now)

    def _now(self, **changed: Any) -> TrainerStatus:  # its text fields
        """Return the status now."""
        times = self._times
        now = self._clock()
        spent = Time(times.opt_s, times.sample_s, times.wait_s, 0.0)
        rates = Rates(opt_steps_per_sec=0.0, opt_steps_per_sec_mean=0.0)
        if self._began is not None and now > self._began:
            seconds = now - self._began
            span, recent = self._measure_recent(now)
            rates = Rates(
                opt_steps_per_sec=recent.opts / span,
                opt_steps_per_sec_mean=times.opts / seconds,
            )
            spent = replace(spent, training_s=seconds)
            if span >= RECENT_S / 2:
                spent = replace(
                    spent,
                    optimizing_share=round(recent.opt_s / span, 4),
                    sampling_share=round(recent.sample_s / span, 4),
                    waiting_share=round(recent.wait_s / span, 4),
                )
        return replace(
            self._learning,
            opt_steps=self._agent.opt_steps,
            sampled=self._sampled,
            rates=rates,
            time=spent,
            lag=self._lag,
            record=self._record,
            needs_samples=self._needs_samples,
            **changed,
        )

    def _measure_recent(self, now: float) -> tuple[float, _Times]:
        """Return how long the last seconds of training are, and the times spent in them."""
        times = self._times
        span, before = self._recent.add(replace(times), now)
        return span, _Times(
            times.opt_s - before.opt_s,
            times.sample_s - before.sample_s,
            times.wait_s - before.wait_s,
            times.opts - before.opts,
        )

    def _tick(self, phase: str, waits: str) -> str:
        self._next_tick = self._clock() + self._tick_s
        self._learning = self._now(phase=phase, waits=waits)
        return self._callbacks.tick(self._learning)

    def _finish(self, reason: str) -> TrainerStatus:
        """Publish, record and save for the last time."""
        if not isinstance(self._replay, (PrioritizedReplay, MixedReplay)):
            self._set_errors(self._agent.opt_steps)  # whose rows the next start may not have
        self._read_records()
        self._callbacks.publish(self._agent)
        self._record_cost(self._agent.opt_steps)
        self._flush(self._agent.opt_steps)
        self._learning = self._now(phase="done", waits="", exit_reason=reason)
        self._callbacks.save(self._agent, self._learning, self._unset_errors())
        return self._learning


def _sampling_record(replay: ReplayBuffer) -> dict[str, float]:
    """Return a replay's statistics of its draws, by tag."""
    stats: dict[str, float] = getattr(replay, "stats", dict)()  # uniform has none
    part = "sampling"
    more = dict[str, float]()
    if isinstance(replay, PrioritizedReplay):
        part = "priority"
    elif isinstance(replay, QueueReplay):
        part = "queue"
    elif isinstance(replay, MixedReplay):
        part = "replay"
        more = _sampling_record(replay.actors)
    return {**more, **{f"{part}/{name}": stats[name] for name in stats}}


def is_recorded(config: LearnerConfig, opt_steps: int) -> bool:
    """Return True if this optimization step computes the agent's scalars."""
    return _due(config.record_agent_info_interval, opt_steps)


def _is_saved(interval: int, opt_steps: int) -> bool:
    """Before the first interval ends, at powers of two: who kills the learner then loses at most
    half of its steps, for which actors wait until they are done again."""
    early = _FIRST_SAVE_OPTS <= opt_steps < interval and opt_steps & (opt_steps - 1) == 0
    return early or _due(interval, opt_steps)


def _due(interval: int, opt_steps: int) -> bool:
    return interval > 0 and opt_steps % interval == 0


def _summarize_lags(lags: NDArray[Any]) -> Lag:
    """Return mean, 95th percentile and maximum of the drawn rows' lags; None: of no row."""
    known = lags[lags < UNREACHED]
    if not len(known):
        return Lag()
    return Lag(
        sample_mean=float(known.mean()),
        sample_p95=float(np.percentile(known, 95)),
        sample_max=float(known.max()),
    )
