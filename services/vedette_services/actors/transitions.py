"""From an environment's steps to the rows of a run's schema: what every actor puts together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from vedette_protocol.schema import Schema
from vedette_rl.agents.config import AgentConfig
from vedette_rl.core import Columns, Policy, StepProcessor
from vedette_rl.core.acting import TellsTdErrors
from vedette_rl.envs.spaces import Spaces, transition_dtype
from vedette_rl.replay.frames import row_of_places
from vedette_rl.replay.prioritized import TD_ERROR
from vedette_rl.steps.frames import FramePool, FrameSteps
from vedette_rl.steps.registry import make_step_processor
from vedette_rl.steps.td_errors import StepsWithTdErrors
from vedette_services.actors.batching import Batching, Slots, WholeRows
from vedette_services.actors.errors import SpecMismatchError
from vedette_services.actors.frame_writer import FrameWriter
from vedette_services.config.parts import ActorsConfig
from vedette_services.replay_layout import frames_of


@dataclass(frozen=True, slots=True)
class Transitions:
    """A step processor, and the pool that its rows point into, where their stacks are places."""

    processor: StepProcessor
    pool: FramePool | None

    def batching(self, slots: Slots, n_buffer: int, wait_for_slot: Callable[[], bool]) -> Batching:
        """What fills slots with the processor's rows."""
        writer = WholeRows() if self.pool is None else FrameWriter(self.pool)
        return Batching(slots, n_buffer, wait_for_slot, writer)


def make_transitions(
    schema: Schema, spaces: Spaces, policy: Policy, agent: AgentConfig, actors: ActorsConfig
) -> Transitions:
    """What an actor needs to make rows of `schema`.

    Args:
        schema: the run's.
        spaces: of the actor's environments.
        policy: what acts, and tells TD errors where rows have some.
        agent: its n steps and its discount.
        actors: its environments and its step processor.

    Raises:
        SpecMismatchError: rows have TD errors, and the policy tells none.
        UnknownNameError: there is no such step processor.
    """
    envs, n_step = actors.envs_per_actor, agent.n_step
    frames, row = frames_of(schema), transition_dtype(spaces)
    if frames is not None:
        row = row_of_places(row, frames.stack)
    made = make_step_processor(actors.step_processor, n_step, agent.discount, envs, row)
    processor: StepProcessor = made
    whole: Callable[[Columns], Columns] = _as_it_is
    pool = None
    if frames is not None:
        processor = framed = FrameSteps(made, frames, envs, n_step)
        pool, whole = framed.pool, framed.whole
    if any(column.name == TD_ERROR for column in schema.columns):
        if not isinstance(policy, TellsTdErrors):
            raise SpecMismatchError("policy", f"{TD_ERROR!r} is not expected: it tells none")
        processor = StepsWithTdErrors(processor, policy, whole)
    return Transitions(processor, pool)


def _as_it_is(transitions: Columns) -> Columns:
    return transitions
