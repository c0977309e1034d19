"""The learner's loop on a queue, with an agent that only counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict

import numpy as np
import torch
from queue_model import BATCH, STEPS, QueueWorld  # of tests/support

from vedette_rl.core import Agent, ModelInfo, OptResult, State, Total
from vedette_rl.core.learning import BlockBatch, MinibatchPlace
from vedette_rl.device.loader import make_loader
from vedette_rl.replay.limiter import Limiter
from vedette_services.config.parts import LearnerConfig
from vedette_services.learner.trainer.training_loop import TrainingLoop
from vedette_services.status.records import TrainerStatus
from vedette_services.status.schema import is_against_opt_steps

CONFIG = LearnerConfig(sync_interval=1, eval_interval=0, save_interval=10**6)


class Agents:
    """One that notes which minibatches it was given."""

    opt_steps = 0

    def __init__(self) -> None:
        self.places: list[MinibatchPlace] = []
        self.given: list[list[int]] = []
        self.no_memory_at = -1

    def opt(
        self,
        batch: Mapping[str, torch.Tensor],
        weights: torch.Tensor | None = None,
        *,
        record: bool = False,
    ) -> OptResult:
        assert isinstance(batch, BlockBatch)
        if self.no_memory_at == len(self.given):
            self.no_memory_at = -1
            raise torch.OutOfMemoryError("no memory")
        self.opt_steps += 1
        self.places.append(batch.place)
        self.given.append(batch["id"].flatten()[batch["chosen"]].tolist())
        return OptResult()

    def model_info(self) -> ModelInfo:
        return ModelInfo(self.opt_steps, {"w": np.zeros(1)})

    def get_state(self) -> State:
        return {}

    def set_state(self, state: State) -> None:
        raise AssertionError("not resumed here")


class Around:
    """The callbacks; rows come while the loop waits."""

    def __init__(self, world: QueueWorld, batches: int) -> None:
        self.world = world
        self.batches = batches
        self.published: list[int] = []
        self.saved: list[tuple[int, int]] = []
        self.records: list[dict[str, float]] = []
        self.flushed: list[int] = []

    def publish(self, agent: Agent) -> None:
        self.published.append(agent.opt_steps)
        self.world.step = agent.opt_steps
        self.world.publish()

    def save(self, agent: Agent, learning: TrainerStatus, errors: State) -> None:
        self.saved.append((agent.opt_steps, self.world.replay.place))
        self.world.replay.note_handed()
        self.world.say(self.world.replay.place)

    def record(self, record: dict[str, float], opt_steps: int) -> None:
        self.records.append(record)

    def flush(self, opt_steps: int) -> None:
        self.flushed.append(opt_steps)

    def tick(self, learning: TrainerStatus) -> str:
        if learning.phase == "waiting":
            assert learning.needs_samples is False, "credit lets in what a block needs"
            if not self.batches:
                return "interrupted"
            self.batches -= self.world.insert(2, STEPS)
        return ""


def run_loop(
    batches: int,
    *,
    config: LearnerConfig = CONFIG,
    no_memory_at: int = -1,
    strict: bool = False,
) -> tuple[Around, Agents, TrainerStatus]:
    world = QueueWorld(strict=strict)
    agent = Agents()
    agent.no_memory_at = no_memory_at
    around = Around(world, batches)
    loader = make_loader(world.replay, BATCH, torch.device("cpu"))
    loop = TrainingLoop(
        agent,
        world.replay,
        loader,
        Limiter(0.0, 0, 0.0, BATCH),
        config,
        around,
        learning=TrainerStatus(),
        max_opts=0,
        samples_per_opt=BATCH,
        idle=lambda: None,
        make_room=lambda words: loader,
        tick_s=0.0,
    )
    return around, agent, loop.run()


def test_each_row_is_learned_from_in_each_pass_and_counted() -> None:
    around, agent, last = run_loop(batches=7)
    assert agent.opt_steps == 3 * 4
    first = agent.given[:4]
    assert sorted(first[0] + first[1]) == sorted(first[2] + first[3]) == list(range(16))
    assert [place.ends_block for place in agent.places[:4]] == [False, False, False, True]
    assert last.sampled == 3 * 16 * 2
    assert around.world.replay.counts.trained == 48
    assert around.world.replay.rows_in_block == 8, "of the next block"


def test_models_are_published_at_ends_of_blocks() -> None:
    around, _, _ = run_loop(batches=6)
    assert around.published == [0, 4, 8, 12, 12]


def test_a_model_that_is_not_due_is_not_published() -> None:
    around, _, _ = run_loop(batches=6, config=CONFIG.model_copy(update={"sync_interval": 6}))
    assert around.published == [0, 8, 12, 12]


def test_a_strict_block_is_of_a_model_that_is_published_whatever_the_interval_is() -> None:
    """Actors play the newest model: without it the second block would never become whole."""
    rarely = CONFIG.model_copy(update={"sync_interval": 10**6})
    around, agent, _ = run_loop(batches=6, config=rarely, strict=True)
    assert around.published == [0, 4, 8, 12, 12]
    assert agent.opt_steps == 12
    assert around.world.replay.counts.stale == 0


def test_a_checkpoint_is_written_as_soon_as_rows_wait_for_one() -> None:
    """The ring has room for five batches."""
    around, _, _ = run_loop(batches=12)
    assert around.batches == 0, "the actors were never stopped for good"
    places = [place for _, place in around.saved]
    assert places == sorted(places)
    assert max(b - a for a, b in zip([0, *places], places, strict=False)) <= 16


def test_a_step_without_memory_is_done_again_on_the_same_minibatch() -> None:
    _, agent, last = run_loop(batches=2, no_memory_at=1)
    _, undisturbed, _ = run_loop(batches=2)
    assert agent.given == undisturbed.given
    assert last.sampled == 32


def test_the_tags_of_a_queue_are_against_optimization_steps() -> None:
    around, _, _ = run_loop(
        batches=6, config=CONFIG.model_copy(update={"flush_record_interval": 4})
    )
    tags = [tag for record in around.records for tag in record]
    counts = {f"queue/{name}" for name in asdict(around.world.replay.counts)}
    own = {*counts, "queue/waiting", "queue/lag_mean"}
    assert own <= set(tags)
    assert [tag for tag in tags if not is_against_opt_steps(tag)] == []
    assert around.flushed == [4, 8, 12, 12]
    totals = {tag for record in around.records for tag in record if type(record[tag]) is Total}
    assert totals == counts, "of a flush that is put off the last counts, and means of the others"
    assert all(tags.count(tag) == 3 for tag in own), "once at a step"
