"""The learner's loop, with an agent that only counts."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from vedette_rl.core import Agent, ModelInfo, OptResult, Sample, State
from vedette_rl.device.host_copy import HostCopy, Reached
from vedette_rl.device.loader import CpuLoader, DeviceBatch
from vedette_rl.replay.mixed import MixedReplay
from vedette_rl.replay.prioritized import PrioritizedReplay
from vedette_services.config.parts import LearnerConfig
from vedette_services.errors import ServicesError
from vedette_services.learner.trainer import training_loop
from vedette_services.learner.trainer.training_loop import DEVICE_ERRORS_DELAY, TrainingLoop
from vedette_services.status.records import TrainerStatus
from vedette_services.status.schema import is_against_opt_steps
from vedette_services.status.status import Lag, Time


class CountingAgent:
    def __init__(self) -> None:
        self.opt_steps = 0
        self.tells = False
        self.recorded: list[int] = []

    def opt(
        self,
        batch: Mapping[str, torch.Tensor],
        weights: torch.Tensor | None = None,
        *,
        record: bool = False,
    ) -> OptResult:
        self.opt_steps += 1
        if record:
            self.recorded.append(self.opt_steps)
        td_errors = torch.ones(8) if self.tells else None
        return OptResult(td_errors, {"loss": 1.0} if record else {})

    def model_info(self) -> ModelInfo:
        return ModelInfo(self.opt_steps, {"w": np.zeros(1)})

    def get_state(self) -> State:
        return {}

    def set_state(self, state: State) -> None:
        raise AssertionError("not resumed here")


class Replay:
    inserted = 0

    def __len__(self) -> int:
        return self.inserted

    def sample(self, batch_size: int) -> Sample:
        rows = np.zeros(batch_size, np.int64)
        return Sample({"reward": np.zeros(batch_size, np.float32), "version": rows}, rows)

    def update_priority(self, indices: NDArray[np.int64], td_errors: NDArray[np.float32]) -> None:
        raise AssertionError("a uniform replay is told no priorities")


class Weighted(Replay):
    """A prioritized one."""

    told = 0

    def sample(self, batch_size: int) -> Sample:
        return replace(super().sample(batch_size), weights=np.ones(batch_size, np.float32))

    def update_priority(self, indices: NDArray[np.int64], td_errors: NDArray[np.float32]) -> None:
        self.told += len(td_errors)


class Gate:
    """A limiter that lets sampling begin at 4 rows."""

    def sample_wait_reason(self, inserted: int, sampled: int) -> str:
        return "" if inserted >= 4 else f"{inserted} of 4 warm-up samples"


class Around:
    def __init__(self, replay: Replay, ends_at: int) -> None:
        self.replay = replay
        self.ends_at = ends_at
        self.published: list[int] = []
        self.saved: list[int] = []
        self.flushed: list[int] = []
        self.records: list[dict[str, float]] = []
        self.phases: list[str] = []

    def publish(self, agent: Agent) -> None:
        self.published.append(agent.opt_steps)

    def save(self, agent: Agent, learning: TrainerStatus, errors: State) -> None:
        self.saved.append(agent.opt_steps)

    def record(self, record: dict[str, float], opt_steps: int) -> None:
        self.records.append(record)

    def flush(self, opt_steps: int) -> None:
        self.flushed.append(opt_steps)

    def tick(self, learning: TrainerStatus) -> str:
        self.phases.append(learning.phase)
        self.replay.inserted += 2
        return "interrupted" if learning.opt_steps >= self.ends_at else ""


def loop_of(
    config: LearnerConfig,
    max_opts: int,
    ends_at: int = 10**9,
    replay: Replay | None = None,
    before: int = 0,
) -> tuple[TrainingLoop, Around, CountingAgent]:
    # an empty one is False
    agent = CountingAgent()
    agent.opt_steps = before
    replay = Replay() if replay is None else replay
    around = Around(replay, ends_at)
    ticks = iter(range(10**9))
    loop = TrainingLoop(
        agent,
        replay,
        CpuLoader(replay, 8, torch.device("cpu")),
        Gate(),  # type: ignore[arg-type]  # the limiter's one question asked here
        config,
        around,
        learning=TrainerStatus(epoch=2, opt_steps=before),
        max_opts=max_opts,
        samples_per_opt=8,
        clock=lambda: float(next(ticks)),
    )
    return loop, around, agent


def config(**intervals: int) -> LearnerConfig:
    off = dict.fromkeys(
        (
            "sync_interval",
            "eval_interval",
            "save_interval",
            "record_agent_info_interval",
            "record_compute_cost_interval",
            "flush_record_interval",
        ),
        0,
    )
    return LearnerConfig(**{**off, **intervals})


def test_zero_switches_every_interval_off() -> None:
    loop, around, agent = loop_of(config(), max_opts=20)
    loop.run()
    assert around.published == [0, 20]  # the first model, and the final sync
    assert around.saved == [20]
    assert agent.recorded == []


def test_intervals_count_optimization_steps() -> None:
    loop, around, agent = loop_of(
        config(
            sync_interval=5,
            save_interval=10,
            record_agent_info_interval=8,
            flush_record_interval=10,
        ),
        max_opts=20,
    )
    loop.run()
    assert around.published == [0, 5, 10, 15, 20, 20]
    assert around.saved == [10, 20, 20]
    assert agent.recorded == [8, 16]
    assert around.flushed == [10, 20, 20]


def test_an_evaluation_is_due_on_a_model_that_was_published() -> None:
    loop, around, _ = loop_of(config(sync_interval=0, eval_interval=7), max_opts=15)
    loop.run()
    assert around.published == [0, 7, 14, 15]


def test_it_ends_exactly_at_max_opts() -> None:
    loop, _, agent = loop_of(config(), max_opts=13)
    last = loop.run()
    assert (agent.opt_steps, last.opt_steps, last.exit_reason) == (13, 13, "max_opts")


def test_it_waits_for_the_warm_up_and_says_so() -> None:
    loop, around, _ = loop_of(config(), max_opts=3)
    last = loop.run()
    assert around.phases[:2] == ["starting", "waiting"]
    assert (last.time.waiting_s or 0.0) > 0


def test_it_stops_when_told_while_it_waits_or_trains() -> None:
    loop, _, agent = loop_of(config(), max_opts=0, ends_at=30)
    last = loop.run()
    assert last.exit_reason == "interrupted"
    assert agent.opt_steps >= 30


class Looking(Replay):
    """A replay that goes on growing between a look and a draw."""

    def look(self) -> int:
        self.seen = self.inserted
        self.inserted += 5
        return self.seen


def test_the_limiter_is_asked_about_the_rows_that_the_draw_sees(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    replay = Looking()
    asked = []

    def wait_reason(inserted: int, sampled: int) -> str:
        asked.append(inserted == replay.seen)
        return "" if inserted > 40 else "few"

    loop, _, _ = loop_of(config(), max_opts=5, replay=replay)
    monkeypatch.setattr(loop._limiter, "sample_wait_reason", wait_reason)
    loop.run()
    assert all(asked)
    assert len(asked) > 5


class Broken(Replay):
    """Rows of which none begins anything until there are many."""

    def wait_reason(self) -> str:
        return "" if self.inserted > 20 else "nothing is whole"


def test_the_loop_waits_for_something_to_draw_and_says_that_actors_must_not_wait() -> None:
    replay = Broken()
    loop, around, _ = loop_of(config(), max_opts=2, replay=replay)
    said: list[tuple[str, bool]] = []

    def tick(learning: TrainerStatus) -> str:
        replay.inserted += 2
        said.append((learning.waits, learning.needs_samples))
        return ""

    around.tick = tick  # type: ignore[method-assign]  # in its place
    loop.run()
    assert ("2 of 4 warm-up samples", False) in said
    assert ("nothing is whole", True) in said
    assert all(needs == (waits == "nothing is whole") for waits, needs in said)
    assert replay.inserted > 20


def test_samples_drawn_are_counted_for_the_limiter() -> None:
    loop, _, _ = loop_of(config(), max_opts=5)
    assert loop.run().sampled == 40


def test_the_last_record_is_written_at_the_end() -> None:
    loop, around, _ = loop_of(config(record_compute_cost_interval=100), max_opts=5)
    loop.run()
    assert "average_opt_time" in around.records[-1]
    assert around.flushed[-1] == 5


def test_a_run_that_is_over_does_not_take_one_more_step() -> None:
    loop, _, agent = loop_of(config(), max_opts=13)
    agent.opt_steps = 13
    last = loop.run()
    assert (agent.opt_steps, last.exit_reason) == (13, "max_opts")


def test_a_run_that_may_end_before_it_begins_takes_no_step() -> None:
    loop, _, agent = loop_of(config(), max_opts=0, ends_at=0)
    assert loop.run().exit_reason == "interrupted"
    assert agent.opt_steps == 0


def test_a_prioritized_replay_is_told_every_samples_error() -> None:
    replay = Weighted()
    loop, _, agent = loop_of(config(), max_opts=3, replay=replay)
    agent.tells = True
    loop.run()
    assert replay.told == 3 * 8


def test_an_agent_that_tells_no_errors_cannot_be_drawn_for_by_them() -> None:
    loop, _, _ = loop_of(config(), max_opts=3, replay=Weighted())
    with pytest.raises(ServicesError, match=r"replay\.prioritized=false"):
        loop.run()


class Arriving(Reached):
    """A copy's event, reached `late` optimization steps after it was begun."""

    def __init__(self, agent: CountingAgent, late: int) -> None:
        self._agent = agent
        self._due = agent.opt_steps + late
        self.waited = False

    def query(self) -> bool:
        return self._agent.opt_steps >= self._due

    def synchronize(self) -> None:
        self.waited = self.waited or not self.query()


class Telling(Weighted):
    """A prioritized replay that notes what it is asked and told, in order."""

    def __init__(self) -> None:
        self.story: list[str] = []

    def look(self) -> int:
        if self.story[-1:] != ["look"]:  # while it waits, again and again
            self.story.append("look")
        return self.inserted

    def sample(self, batch_size: int) -> Sample:
        self.story.append("draw")
        return super().sample(batch_size)

    def update_priority(self, indices: NDArray[np.int64], td_errors: NDArray[np.float32]) -> None:
        self.story.append(f"errors {int(td_errors[0])}")


@pytest.mark.parametrize("delay", [1, DEVICE_ERRORS_DELAY])
@pytest.mark.parametrize(("least", "most"), [(0, 0), (3, 3), (0, 12), (50, 50)])
def test_errors_are_set_a_fixed_number_of_steps_later_whenever_they_arrive(
    monkeypatch: pytest.MonkeyPatch, delay: int, least: int, most: int
) -> None:
    """Between the look and the draw of that step, and at the end all that are left."""
    replay = Telling()
    events = []
    loop, around, agent = loop_of(config(record_agent_info_interval=10), max_opts=30, replay=replay)
    loop._errors_delay = delay
    agent.tells = True
    rng = np.random.default_rng(0)

    def read_later(tensor: torch.Tensor) -> HostCopy:
        events.append(Arriving(agent, int(rng.integers(least, most + 1))))
        return HostCopy(torch.full_like(tensor, agent.opt_steps), events[-1])

    monkeypatch.setattr(training_loop, "read_later", read_later)
    loop.run()
    expected = []
    for step in range(1, 31):
        errors = [f"errors {step - delay}"] if step > delay else []
        expected += ["look", *errors, "draw"]
    assert replay.story == expected + [f"errors {step}" for step in range(31 - delay, 31)]
    waits = sum(event.waited for event in events[:-delay])
    assert waits == (30 - delay) * (least >= delay) or least < most
    assert [record for record in around.records if "train/loss" in record] == 3 * [
        {"train/loss": 1.0}
    ]


def test_a_new_run_saves_before_its_first_interval_ends() -> None:
    loop, around, _ = loop_of(config(save_interval=3000), max_opts=6500)
    loop.run()
    assert around.saved == [256, 512, 1024, 2048, 3000, 6000, 6500]
    loop, around, _ = loop_of(config(save_interval=200), max_opts=600)
    loop.run()
    assert around.saved == [200, 400, 600, 600]


@pytest.mark.parametrize("late", [0, 3, 50])
def test_a_record_is_flushed_at_its_own_step_however_late_it_arrives(
    monkeypatch: pytest.MonkeyPatch, late: int
) -> None:
    intervals = config(record_agent_info_interval=10, flush_record_interval=10)
    loop, around, agent = loop_of(intervals, max_opts=30, replay=Telling())
    agent.tells = True
    monkeypatch.setattr(
        training_loop,
        "read_later",
        lambda tensor: HostCopy(torch.full_like(tensor, agent.opt_steps), Arriving(agent, late)),
    )
    written: list[tuple[int, int]] = []
    monkeypatch.setattr(
        around, "flush", lambda opt_steps: written.append((opt_steps, len(around.records)))
    )
    loop.run()
    assert written[:3] == [(10, 1), (20, 2), (30, 3)]


class OfNoModel(Replay):
    """Rows of a data set alone."""

    def sample(self, batch_size: int) -> Sample:
        drawn = super().sample(batch_size)
        return replace(drawn, columns={**drawn.columns, "version": np.full(batch_size, -1)})


def test_rows_that_no_model_has_made_have_no_lag() -> None:
    loop, _, _ = loop_of(config(record_agent_info_interval=2), max_opts=6, replay=OfNoModel())
    lag = loop.run().lag
    assert lag == Lag()


class OfALostStart(Replay):
    """Rows 0 to 7 are of a start that was killed."""

    def __init__(self, versions: list[int]) -> None:
        self.versions = np.array(versions)

    def sample(self, batch_size: int) -> Sample:
        drawn = super().sample(batch_size)
        return replace(
            drawn, columns={**drawn.columns, "version": self.versions}, indices=np.arange(8)
        )


@pytest.mark.parametrize(
    ("version", "inserted", "lag"),
    [
        pytest.param(108, 0, 4 + 8, id="they come while this start runs"),
        pytest.param(102, 8, 4 + 2, id="of a step that this start has done anew"),
        pytest.param(90, 8, 14, id="of a step before both"),
    ],
)
def test_rows_of_steps_that_a_kill_has_cost_are_far_from_the_weights(
    version: int, inserted: int, lag: int
) -> None:
    """It goes on from step 100: the way to a lost model leads back there, and on to it."""
    replay = OfALostStart([version] * 8)
    replay.inserted = inserted
    settings = config(record_agent_info_interval=1)
    loop, _, _ = loop_of(settings, max_opts=104, replay=replay, before=100)
    found = loop.run().lag
    assert (found.sample_mean, found.sample_p95, found.sample_max) == (lag, lag, lag)


class Sources(MixedReplay):
    """A replay of actors and sources that draws nothing but zeros."""

    sources_only = False  # type: ignore[assignment]  # a property there
    inserted = 100  # type: ignore[assignment]  # a property there
    actors_are_ready = True  # type: ignore[assignment]  # too

    def look(self) -> int:
        return self.inserted

    def __init__(self) -> None:
        self.actors = Replay()  # type: ignore[assignment]  # of this file

    def sample(self, batch_size: int) -> Sample:
        return self.actors.sample(batch_size)

    def stats(self) -> dict[str, float]:
        return {}


class Reporting(Replay):
    """A custom replay with statistics of its draws."""

    def stats(self) -> dict[str, float]:
        return {"coverage": 0.5}


class ReportingPriorities(Weighted, PrioritizedReplay):  # type: ignore[misc]  # draws nothing but zeros
    inserted = 0  # type: ignore[assignment]  # a property there

    def __init__(self) -> None: ...

    def __len__(self) -> int:
        return self.inserted

    def look(self) -> int:
        return self.inserted

    def stats(self) -> dict[str, float]:
        return {"beta": 0.4, "max_priority": 1.0}


class ReportingSources(Sources):
    def __init__(self) -> None:
        self.actors = ReportingPriorities()

    def stats(self) -> dict[str, float]:
        return {"share_demo": 0.25}

    def update_priority(self, indices: NDArray[np.int64], td_errors: NDArray[np.float32]) -> None:
        self.actors.update_priority(indices, td_errors)


LOSSES = {"train/loss", "average_opt_time", "average_sample_time"}
PRIORITIES = {"priority/beta", "priority/max_priority"}


@pytest.mark.parametrize(
    ("kind", "own"),
    [
        (Replay, set()),
        (Reporting, {"sampling/coverage"}),
        (ReportingPriorities, PRIORITIES),
        (ReportingSources, {"replay/share_demo", *PRIORITIES}),
    ],
)
def test_every_tag_of_a_flush_is_against_optimization_steps(
    kind: Callable[[], Replay], own: set[str]
) -> None:
    """The queue's are in test_queue_loop.py."""
    intervals = config(record_agent_info_interval=1, flush_record_interval=2)
    loop, around, agent = loop_of(intervals, max_opts=4, replay=kind())
    agent.tells = True
    loop.run()
    tags = [tag for record in around.records for tag in record]
    assert set(tags) == LOSSES | own
    assert [tag for tag in tags if not is_against_opt_steps(tag)] == []
    assert around.flushed == [2, 4, 4], "the last one has the costs"
    assert all(tags.count(tag) == 2 for tag in own), "once at a step"


class OneAhead:
    """Draws each batch while the agent works on the one before, as on a GPU."""

    def __init__(self, loader: CpuLoader) -> None:
        self._loader = loader
        self._ahead: DeviceBatch | None = None

    def load(self) -> DeviceBatch:
        loaded = self._ahead or self._loader.load()
        self._ahead = self._loader.load()
        return loaded


@pytest.mark.parametrize(("ahead", "counted"), [(False, 7), (True, 6)])
def test_a_batch_counts_as_what_it_was_drawn_for(ahead: bool, counted: int) -> None:
    replay = Sources()
    loop, _, _ = loop_of(config(pretrain_opts=3), max_opts=10, replay=replay)  # type: ignore[arg-type]  # none of this file's
    if ahead:
        loop._loader = OneAhead(CpuLoader(replay, 8, torch.device("cpu")))
    assert loop.run().sampled == counted * 8


def test_the_rate_of_optimization_steps_is_of_the_last_seconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop, _, agent = loop_of(config(), max_opts=120)
    now = 0.0

    def advance(seconds: float = 1.0) -> None:
        nonlocal now
        now += seconds

    def opt(*args: Any, **named: Any) -> OptResult:
        advance(0.1 if agent.opt_steps < 100 else 1.0)
        return CountingAgent.opt(agent, *args, **named)

    monkeypatch.setattr(loop, "_clock", lambda: now)
    monkeypatch.setattr(loop, "_idle", advance)
    monkeypatch.setattr(agent, "opt", opt)
    rates = loop.run().rates
    assert rates.opt_steps_per_sec == pytest.approx(1.0, rel=0.01)
    assert rates.opt_steps_per_sec_mean == pytest.approx(120 / 30.0)


def test_the_shares_of_the_time_are_of_the_last_seconds_of_training(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop, around, agent = loop_of(config(), max_opts=60)
    now = 0.0
    waits = 30  # before the first step
    seen: list[tuple[int, Time]] = []

    def idle() -> None:
        nonlocal now, waits
        now += 1.0
        waits -= 1

    def opt(*args: Any, **named: Any) -> OptResult:
        nonlocal now, waits
        now += 1.0
        waits = 1 if 20 <= agent.opt_steps < 40 else 0
        return CountingAgent.opt(agent, *args, **named)

    def tick(learning: TrainerStatus) -> str:
        seen.append((agent.opt_steps, learning.time))
        return ""

    monkeypatch.setattr(loop, "_clock", lambda: now)
    monkeypatch.setattr(loop, "_idle", idle)
    monkeypatch.setattr(loop, "_wait_reason", lambda *_: "samples" if waits > 0 else "")
    monkeypatch.setattr(agent, "opt", opt)
    monkeypatch.setattr(around, "tick", tick)
    loop.run()
    shares = {opts: (time.optimizing_share, time.waiting_share) for opts, time in seen}
    assert (shares[0], shares[4]) == ((None, None), (None, None))
    assert shares[5] == (1.0, 0.0)  # what was before training is no part of it
    assert shares[39] == pytest.approx((0.5, 0.5), abs=0.05)
    assert shares[59] == (1.0, 0.0)


class Slow(Reached):
    """The end of a step that is not reached before somebody waits for it."""

    def __init__(self, waited: list[int], step: int) -> None:
        self._waited = waited
        self._step = step

    def query(self) -> bool:
        return False

    def synchronize(self) -> None:
        self._waited.append(self._step)


@pytest.mark.parametrize("replay", [Replay, Weighted])
def test_the_host_is_at_most_eight_steps_ahead_of_the_device(replay: type[Replay]) -> None:
    waited: list[int] = []
    ahead: list[int] = []
    loop, around, agent = loop_of(config(), max_opts=40, replay=replay())
    agent.tells = True
    loop._mark = lambda: Slow(waited, agent.opt_steps)

    def at_intervals(opt_steps: int) -> None:
        ahead.append(opt_steps - max(waited, default=0))

    loop._at_intervals = at_intervals  # type: ignore[method-assign]
    around.replay.inserted = 4
    loop.run()
    assert max(ahead) == 8
    assert waited == [*range(1, 33)]


class Full(CountingAgent):
    """An agent for whose first steps the device has no memory."""

    def __init__(self, fails: int) -> None:
        super().__init__()
        self.fails = fails

    def opt(self, *arguments: object, **keywords: object) -> OptResult:
        if self.fails:
            self.fails -= 1
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0")
        return super().opt(*arguments, **keywords)  # type: ignore[arg-type]


def test_a_step_without_memory_is_done_again_with_another_loader() -> None:
    loop, _, _ = loop_of(config(), max_opts=5)
    agent = loop._agent = Full(2)
    said: list[str] = []
    loaders: list[CpuLoader] = []

    def make_room(error: str) -> CpuLoader:
        said.append(error)
        loaders.append(CpuLoader(Replay(), 8, torch.device("cpu")))
        return loaders[-1]

    loop._make_room = make_room
    last = loop.run()
    assert (last.opt_steps, agent.opt_steps, last.sampled) == (5, 5, 40)
    assert ["2.00 GiB" in error for error in said] == [True, True]
    assert loop._loader is loaders[-1]


def test_without_a_way_out_a_step_without_memory_is_an_error() -> None:
    loop, _, _ = loop_of(config(), max_opts=5)
    loop._agent = Full(1)
    with pytest.raises(torch.OutOfMemoryError):
        loop.run()
