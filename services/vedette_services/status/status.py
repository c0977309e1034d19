"""The status of a run: every number declared once, with title, unit, TensorBoard tags and chart.

``status --json``, ``summary.json``, the text and live view, Prometheus, the recorders and the
report read it from here. A new number is declared here and set where it is measured. None means not
known: the run has not begun, or a learner of another version does not send it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from vedette_services.status.schema import ChartSpec, Count, Part, counter, declared, gauge

_EVALUATIONS = ChartSpec(
    "Returns",
    "Return of greedy evaluations",
    about="Mean return of the episodes of each evaluation, at the env steps of the model played.",
)
_UNTRUSTED = ChartSpec(
    "Returns",
    "Return of evaluations by managers that are not trusted",
    about="Shown only: they choose no best model and end no run.",
)
_FRESH = ChartSpec(
    "Returns",
    "Return of fresh episodes",
    about="Of models whose evaluation was at the target: the mean of other episodes, which counts.",
)
_ROLLOUTS = ChartSpec(
    "Returns",
    "Return of the actors, exploring",
    about="Mean return of the actors' last episodes; they explore, so it is mostly lower.",
)
_LENGTHS = ChartSpec("Returns", "Length of episodes", unit="steps", about="Mean over episodes.")
_CUT = ChartSpec(
    "Returns",
    "Episodes of an evaluation that were cut",
    nonzero=True,
    unit="episodes",
    about="Ended by evaluation.max_episode_steps, not by the environment.",
)
_PER_SECOND = ChartSpec(
    "Speed", "Per second", unit="1/s", about="Samples inserted, and optimization steps done."
)
_OPT_TIMES = ChartSpec(
    "Speed",
    "Time of an optimization step",
    (("average_opt_time", "optimizing"), ("average_sample_time", "sampling")),
    unit="ms",
    about="Mean time of the gradient step, and of drawing its batch.",
)
_PER_OPT_STEP = ChartSpec(
    "Speed",
    "Samples per optimization step",
    unit="samples",
    about="Samples inserted for each optimization step so far.",
)
_LAG_INSERTED = ChartSpec(
    "Lag and replay",
    "Policy lag of samples that arrive",
    unit="versions",
    about="Optimization steps between the model that made a sample and the newest one.",
)
_LAG_SECONDS = ChartSpec(
    "Lag and replay",
    "Age of the models that made the samples",
    unit="s",
    about="Time between the making of a model and the arrival of samples made with it.",
)
_LAG_DRAWN = ChartSpec(
    "Lag and replay",
    "Policy lag of samples that are drawn",
    unit="versions",
    about="Optimization steps between the model that made a sample and the step that trains on it.",
)
_PER_INSERT = ChartSpec(
    "Lag and replay",
    "Samples drawn per sample inserted",
    levels=((("replay", "samples_per_insert"), "the limiter's"),),
    unit="samples",
    about="The replay ratio since the warm-up.",
)
_WAITS = ChartSpec(  # each is 0 or 1 at a moment
    "Lag and replay",
    "Who waits",
    unit="share of the time",
    about="How often the learner waited for samples, and actors for the learner.",
    points=24,
)
_REPLAY_SIZE = ChartSpec(
    "Lag and replay",
    "Samples in the replay",
    levels=((("replay", "capacity"), "its capacity"),),
    unit="samples",
)
_MANAGERS = ChartSpec("Fleet", "Actor managers present", unit="managers")
_OUTSIDE = ChartSpec(
    "Fleet",
    "Samples in flight, dropped, rejected or lost",
    nonzero=True,
    unit="samples",
    about="Dropped, rejected, in flight or lost, of those that were produced.",
)
_CPU = ChartSpec(
    "Host",
    "Processors of the learner's host",
    unit="share in use",
    about="Of all processors together, and the GPU that learns, also by other programs.",
)
_MEMORY = ChartSpec(
    "Host",
    "Memory of the learner's host",
    unit="bytes",
    about="In use, also by other programs; of the host, and of the GPU that learns.",
)
_DISK_FREE = ChartSpec("Host", "Free on the run's disk", unit="bytes")
_LISTED: dict[str, Any] = {"chart": _OUTSIDE, "row": "samples"}
_REFUSED = ChartSpec("Fleet", "Messages refused", nonzero=True, unit="messages")
_CHARTS = (
    *(_EVALUATIONS, _FRESH, _UNTRUSTED, _ROLLOUTS, _LENGTHS, _CUT),
    *(_PER_SECOND, _OPT_TIMES, _PER_OPT_STEP),
    *(_LAG_INSERTED, _LAG_SECONDS, _LAG_DRAWN, _PER_INSERT, _WAITS, _REPLAY_SIZE, _MANAGERS),
    *(_OUTSIDE, _REFUSED, _CPU, _MEMORY, _DISK_FREE),
)


@dataclass(frozen=True, slots=True)
class StopStatus(Part):
    """The conditions that end the run, as `StopConfig` has them; 0 and None are off."""

    max_opts: Count | None = gauge("optimization steps that end the run")
    max_env_steps: Count | None = gauge("environment steps that end the run")
    max_seconds: float | None = gauge("time that ends the run", "s")
    target_return: float | None = gauge("evaluated return that ends the run")


@dataclass(frozen=True, slots=True)
class Samples(Part):
    """Sample accounting: produced = inserted + dropped + rejected + in flight + lost."""

    produced: Count | None = counter("by the actors", "samples", "wire/produced")
    inserted: Count | None = counter("into the replay", "samples", "samples_total", "wire/inserted")
    dropped: Count | None = counter(
        "by managers with a full window (actors.on_full)", "samples", "wire/dropped", **_LISTED
    )
    rejected: Count | None = counter(
        "by the learner: not as agreed, or beyond stop.max_env_steps",
        "samples",
        "wire/rejected",
        **_LISTED,
    )
    in_flight: Count | None = gauge(
        "sent, or waiting to be", "samples", "wire/in_flight", **_LISTED
    )
    lost: Count | None = gauge("with a process that was killed", "samples", "wire/lost", **_LISTED)
    duplicates: Count | None = counter(
        "came twice, and were kept once", "samples", "wire/duplicates", **_LISTED
    )


@dataclass(frozen=True, slots=True)
class Rates(Part):
    """Samples and optimization steps per second, and their ratio."""

    samples_per_sec: float | None = gauge(
        "samples inserted, of the last 5 s",
        "1/s",
        "samples_per_sec",
        chart=_PER_SECOND,
        label="samples",
    )
    opt_steps_per_sec: float | None = gauge(
        "optimization steps, of the last 10 s",
        "1/s",
        "opt_steps_per_sec",
        chart=_PER_SECOND,
        label="optimization steps",
    )
    opt_steps_per_sec_mean: float | None = gauge("optimization steps, mean of this epoch", "1/s")
    samples_per_opt_step: float | None = gauge(
        "samples inserted per optimization step",
        "",
        "samples_per_opt_steps",
        chart=_PER_OPT_STEP,
        label="samples",
    )


@dataclass(frozen=True, slots=True)
class Time(Part):
    """Seconds of the trainer in this epoch, by what it did."""

    optimizing_s: float | None = gauge("optimizing", "s")
    sampling_s: float | None = gauge("drawing batches", "s")
    waiting_s: float | None = gauge("waiting for samples", "s")
    training_s: float | None = gauge("since the epoch's first optimization step", "s")
    optimizing_share: float | None = gauge("share of the last 10 s, optimizing")
    sampling_share: float | None = gauge("share of the last 10 s, drawing batches")
    waiting_share: float | None = gauge("share of the last 10 s, waiting for samples")


@dataclass(frozen=True, slots=True)
class ReplayStatus(Part):
    """Size of the replay."""

    size: Count | None = gauge(
        "samples in the replay", "samples", "replay/size", chart=_REPLAY_SIZE, label="samples"
    )
    capacity: Count | None = gauge("samples that it has room for", "samples")
    bytes: Count | None = gauge("reserved for its rows", "bytes")
    disk_lag_s: float | None = gauge("since samples wait because the disk is too slow", "s")
    waiting: Count | None = gauge("samples of a queue that wait to be drawn", "samples")
    stale: Count | None = gauge("samples of a queue passed over, as their models were too old")


@dataclass(frozen=True, slots=True)
class SourceStatus(Part):
    """A named source of samples (`replay.sources`)."""

    name: str = ""
    size: Count | None = gauge("samples of the source", "samples")
    share: float | None = gauge("of the samples drawn since the last record")
    episodes: Count | None = gauge("episodes of its data set")
    return_mean: float | None = gauge("mean return of its data set's whole episodes")


@dataclass(frozen=True, slots=True)
class LimiterStatus(Part):
    """State of the rate limiter: `state` is open, sample_waits or insert_waits."""

    samples_per_insert: float | None = gauge(
        "samples drawn per sample inserted since the warm-up",
        "",
        "limiter/samples_per_insert",
        chart=_PER_INSERT,
        label="drawn per insert",
    )
    state: str = ""
    reason: str = ""
    sample_waits: Count | None = gauge(
        "the learner waits", "", "limiter/sample_waits", chart=_WAITS, label="learner"
    )
    insert_waits: Count | None = gauge(
        "the actors wait", "", "limiter/insert_waits", chart=_WAITS, label="actors"
    )


@dataclass(frozen=True, slots=True)
class Lag(Part):
    """Policy lag: age of the models that made the samples."""

    mean: float | None = gauge(
        "of samples inserted, mean", "versions", "lag/mean", chart=_LAG_INSERTED, label="mean"
    )
    p95: float | None = gauge(
        "of samples inserted, 95 %", "versions", "lag/p95", chart=_LAG_INSERTED, label="95 %"
    )
    max: float | None = gauge(
        "of samples inserted, most", "versions", "lag/max", chart=_LAG_INSERTED, label="most"
    )
    seconds_mean: float | None = gauge(
        "of samples inserted, mean", "s", "lag/seconds_mean", chart=_LAG_SECONDS, label="mean"
    )
    sample_mean: float | None = gauge(
        "of samples drawn, mean", "versions", "lag/sample_mean", chart=_LAG_DRAWN, label="mean"
    )
    sample_p95: float | None = gauge(
        "of samples drawn, 95 %", "versions", "lag/sample_p95", chart=_LAG_DRAWN, label="95 %"
    )
    sample_max: float | None = gauge(
        "of samples drawn, most", "versions", "lag/sample_max", chart=_LAG_DRAWN, label="most"
    )


@dataclass(frozen=True, slots=True)
class Rollout(Part):
    """The actors' recent episodes; the extremes are those of actors' own means."""

    return_mean: float | None = gauge("mean return", "", "rollout/ep_rew_mean", chart=_ROLLOUTS)
    return_min: float | None = gauge("return of the least actor", "", "rollout/ep_rew_min")
    return_max: float | None = gauge("return of the best actor", "", "rollout/ep_rew_max")
    length_mean: float | None = gauge(
        "mean length", "steps", "rollout/ep_len_mean", chart=_LENGTHS, label="actors"
    )


RETURNS_OF_ACTORS = "returns of actors"
"""`Eval.played_by` where no evaluation was played."""


@dataclass(frozen=True, slots=True)
class Eval(Part):
    """The last greedy evaluation and the best one. `played_by`: who played it, "" for the learner.
    `reached_return_mean`: at `stop.target_return`, and it ends the run. `confirming`: what is being
    confirmed, or "". `fresh_*`: of the last evaluation, if it was at the target; the best is ranked
    by these. `unconfirmed`: since the evaluator's start.
    `shown_by`: a manager that `evaluation.trusted` does not name; its results decide nothing."""

    return_mean: float | None = gauge(
        "mean return",
        "",
        "eval/mean_reward",
        "Episode return",
        chart=_EVALUATIONS,
    )
    return_std: float | None = gauge("deviation of the returns", "", "eval/std_reward")
    return_min: float | None = gauge("least return", "", "eval/min_reward")
    return_max: float | None = gauge("greatest return", "", "eval/max_reward")
    length_mean: float | None = gauge(
        "mean length", "steps", "eval/mean_ep_length", chart=_LENGTHS, label="evaluations"
    )
    episodes: Count | None = gauge("episodes played", "", "eval/episodes", default=0)
    episodes_cut: Count | None = gauge(
        "episodes that evaluation.max_episode_steps cut",
        "",
        "eval/episodes_cut",
        chart=_CUT,
        row="returns",
        label="episodes of the evaluation cut",
    )
    version: Count | None = gauge("version that was played", "", "eval/version")
    env_steps: Count | None = gauge("environment steps in the replay when that version was made")
    best_return_mean: float | None = gauge("mean return of the best", "", "eval/best_mean_reward")
    best_version: Count | None = gauge("version of the best")
    fresh_return_mean: float | None = gauge(
        "mean return of fresh episodes of that version", "", "eval/fresh_mean_reward", chart=_FRESH
    )
    fresh_return_std: float | None = gauge("deviation of the returns of those fresh episodes")
    fresh_episodes: Count | None = gauge("fresh episodes of that version")
    fresh_episodes_cut: Count | None = gauge("of them cut at evaluation.max_episode_steps")
    unconfirmed: Count = gauge(
        "evaluations at the target that fresh episodes did not confirm", default=0
    )
    reached_return_mean: float | None = gauge("mean return at the target, on fresh episodes")
    reached_version: Count | None = gauge("version that reached the target")
    reached_episodes: Count | None = gauge("fresh episodes that confirmed it; 0: none did")
    confirming: str = ""
    played_by: str = ""
    shown_return_mean: float | None = gauge(
        "mean return that a manager reports which is not trusted",
        "",
        "eval/untrusted_mean_reward",
        chart=_UNTRUSTED,
    )
    shown_version: Count | None = gauge("version that it played")
    shown_by: str = ""


@dataclass(frozen=True, slots=True)
class Checkpoint(Part):
    """The newest checkpoint on the disk. `failing`: why a newer one cannot be written, or ""."""

    opt_steps: Count | None = gauge("optimization steps of the newest checkpoint")
    age_s: float | None = gauge("since the newest checkpoint was written", "s")
    failures: Count = gauge("writes in a row that failed", default=0)
    failing: str = ""


@dataclass(frozen=True, slots=True)
class SnapshotStatus(Part):
    """The snapshot on another disk; all unknown without `learner.snapshot`.

    `state`: ``starting`` until a generation of this start is complete, then ``written``; ``away``:
    the directory cannot be reached or written; ``taken``: it is another learner's. `failing`: why
    no newer generation can be written, or ""."""

    directory: str = ""
    state: str = ""
    generation: Count | None = gauge("number of the newest generation of this start")
    age_s: float | None = gauge("since that generation was completed", "s")
    rows: Count | None = gauge("samples inserted up to that generation", "samples")
    rows_behind: Count | None = gauge("samples inserted since, which it lacks", "samples")
    opt_steps: Count | None = gauge("optimization steps of the checkpoint in it")
    unsafe_batches: Count | None = gauge(
        "stored batches of managers with an outbox that it lacks", "batches"
    )
    failures: Count | None = gauge("tries in a row that failed")
    failing: str = ""


@dataclass(frozen=True, slots=True)
class Disk(Part):
    """The disk of the run's directory. `short`: why records are not written, or ""."""

    free_bytes: Count | None = gauge(
        "free on the run's disk", "bytes", "disk/free_bytes", chart=_DISK_FREE, label="free"
    )
    total_bytes: Count | None = gauge("size of the run's disk", "bytes")
    reserve_bytes: Count | None = gauge("kept free of records for the next checkpoints", "bytes")
    short: str = ""


@dataclass(frozen=True, slots=True)
class HostLoad(Part):
    """The load of the learner's host; what it does not tell is unknown."""

    cpu_share: float | None = gauge(
        "share of the processors in use", "", "host/cpu_share", chart=_CPU, label="in use"
    )
    memory_bytes: Count | None = gauge(
        "memory in use", "bytes", "host/memory_bytes", chart=_MEMORY, label="host"
    )
    memory_total_bytes: Count | None = gauge("size of the memory", "bytes")
    gpu_memory_bytes: Count | None = gauge(
        "memory of the learner's GPU in use",
        "bytes",
        "host/gpu_memory_bytes",
        chart=_MEMORY,
        label="GPU",
    )
    gpu_memory_total_bytes: Count | None = gauge("size of the GPU's memory", "bytes")
    gpu_share: float | None = gauge(
        "share of the time in which the learner's GPU computes",
        "",
        "host/gpu_share",
        chart=_CPU,
        label="GPU",
    )


@dataclass(frozen=True, slots=True)
class Heartbeats(Part):
    """Signs of life of the learner's processes. `processes`: which are hung, or ""; `reason`: what
    holds them."""

    trainer_s: float | None = gauge("since the trainer's loop came round", "s")
    gateway_s: float | None = gauge("since the gateway's loop came round", "s")
    evaluator_s: float | None = gauge("since the evaluator's loop came round", "s")
    supervisor_s: float | None = gauge("since the supervisor's loop came round", "s")
    hung: Count = gauge("processes that stand still longer than they rightly may", default=0)
    processes: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Refused(Part):
    """Refused peers. `ids`: manager ids claimed by a key that they do not belong to. `handshakes`:
    those that have not succeeded, for example of scanners and idle connections. `places`: messages
    of managers without a place. `rivals`: managers whose id another one uses. `frames`: connections
    that were cut because of a frame beyond the limit, or of none. `late`: samples that came after
    the last environment step of the run; they are among the rejected ones."""

    keys: Count | None = counter("keys not let in", row="refused")
    ids: Count | None = counter("ids of others", row="refused", label="ids of others")
    handshakes: Count | None = counter(
        "handshakes that failed", row="refused", label="connections without a handshake"
    )
    credit: Count | None = gauge("batches beyond the credit")
    places: Count | None = counter("no place for a manager", row="refused", label="without a place")
    rivals: Count | None = counter("ids in use", row="refused", label="ids in use")
    frames: Count | None = counter("frames too large", row="refused", label="frames too large")
    late: Count | None = counter(
        "samples after stop.max_env_steps; among those rejected", "samples"
    )


@dataclass(frozen=True, slots=True)
class WindowStatus(Part):
    """Unacknowledged batches that a manager holds, or may hold."""

    batches: Count | None = gauge("unacknowledged batches", "batches")
    bytes: Count | None = gauge("unacknowledged batches", "bytes")
    delay_s: float | None = gauge("age of the oldest unacknowledged batch", "s")


@dataclass(frozen=True, slots=True)
class ActorStatus(Part):
    """An actor as its manager reports it."""

    id: Count = 0
    alive: bool = gauge("it is up", default=False)
    restarts: Count = counter("restarts", default=0)
    env_steps: Count = counter("steps of all its environments", default=0)
    episodes: Count = counter("episodes ended", default=0)
    version: Count = gauge("version that it acts with", default=-1)
    return_mean: float | None = gauge("mean return of its last episodes")
    length_mean: float | None = gauge("mean length of its last episodes", "steps")
    error: str = ""


@dataclass(frozen=True, slots=True)
class ManagerStatus(Part):
    """An actor manager as the learner sees it. `left`: it reported its end."""

    id: str = ""
    incarnation: Count = gauge("its start", default=0)
    host: str = ""
    state: str = ""
    left: bool = gauge("it said that it leaves", default=False)
    samples_per_sec: float | None = gauge("its samples inserted", "1/s")
    actors: tuple[ActorStatus, ...] = ()
    actors_hidden: Count = gauge("actors that there was no room for", default=0)
    window: WindowStatus = WindowStatus()
    outbox: bool = gauge("it keeps batches in files, and no window bounds them", default=False)
    memory_rows: Count = gauge(
        "those that its outbox could not write, and that are in memory alone", "samples", default=0
    )
    failures: Count = counter("failures of single environments, which were made again", default=0)
    last_seen_s: float | None = gauge("since it was last heard", "s")

    @property
    def is_present(self) -> bool:
        """True while it has neither left nor fallen silent."""
        return self.state != "gone"


@dataclass(frozen=True, slots=True, repr=False)
class Status(Part):
    """The status of a run. Without a `run_id` none has begun."""

    vedette: str = ""
    protocol: Count | None = gauge("version of the wire's protocol")
    time_s: float | None = gauge("when this was said, since 1970", "s")
    run_id: str = ""
    env: str = ""
    agent: str = ""
    epoch: Count | None = gauge("starts of the trainer")
    version: Count | None = gauge("newest version of the model")
    opt_steps: Count | None = gauge("optimization steps; fewer once an older checkpoint is resumed")
    env_steps: Count | None = counter("environment steps")
    exit_reason: str = ""
    phase: str = ""
    seconds: float | None = gauge("since the learner's start", "s")
    run_seconds: float | None = gauge("of training, all starts together", "s")
    waits: str = ""
    stop: StopStatus = StopStatus()
    samples: Samples = Samples()
    rejected_reason: str = ""
    rates: Rates = Rates()
    time: Time = Time()
    replay: ReplayStatus = ReplayStatus()
    sources: tuple[SourceStatus, ...] = ()
    limiter: LimiterStatus = LimiterStatus()
    lag: Lag = Lag()
    rollout: Rollout = Rollout()
    eval: Eval = Eval()
    evaluating: str = ""
    garbage: Count | None = counter(
        "messages refused",
        "",
        "wire/garbage",
        chart=_REFUSED,
        row="refused",
        label="invalid messages",
    )
    refused: Refused = Refused()
    record: dict[str, float] = field(default_factory=dict)
    checkpoint: Checkpoint = Checkpoint()
    snapshot: SnapshotStatus = SnapshotStatus()
    heartbeat: Heartbeats = Heartbeats()
    disk: Disk = Disk()
    host: HostLoad = HostLoad()
    unsaved: str = ""
    unevaluated: str = ""
    rivals: str = ""
    window_limits: WindowStatus = WindowStatus()
    managers_present: Count | None = gauge(
        "actor managers present", "", "wire/managers", chart=_MANAGERS, label="managers"
    )
    managers: tuple[ManagerStatus, ...] = ()

    def __repr__(self) -> str:
        how = self.exit_reason or self.phase or "not begun"
        steps = f"opt_steps={self.opt_steps}, env_steps={self.env_steps}"
        return f"Status({self.run_id!r}, {how}, {steps})"


def rollout_of(managers: Sequence[ManagerStatus], *, left: bool = False) -> Rollout:
    """Summarize the recent episodes of present actors; all unknown before the first has ended.

    Args:
        left: of those that have left, too: at the end of a run all have.
    """
    counted = [manager for manager in managers if manager.is_present or (left and manager.left)]
    actors = [actor for manager in counted for actor in manager.actors]
    returns = [actor.return_mean for actor in actors if actor.return_mean is not None]
    lengths = [actor.length_mean for actor in actors if actor.length_mean is not None]
    if not returns or not lengths:
        return Rollout()
    return Rollout(
        sum(returns) / len(returns), min(returns), max(returns), sum(lengths) / len(lengths)
    )


def charts() -> list[ChartSpec]:
    """Return the charts of the report, each with the curves of the numbers that name it."""
    curves: dict[ChartSpec, list[tuple[str, str]]] = {spec: [*spec.curves] for spec in _CHARTS}
    for name, number in declared(Status):
        if number.chart is not None:
            curves[number.chart].append((number.tags[0], number.called(name)))
    return [replace(spec, curves=tuple(of_chart)) for spec, of_chart in curves.items()]
