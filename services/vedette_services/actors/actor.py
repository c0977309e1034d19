"""The actor: a process that plays a vector of environments and hands over its transitions.

Started by a manager as ``python -m vedette_services.actors.actor SPECFILE``. It ends when it is
told to (handing over even an unfinished batch), when its manager is gone, or by an exception,
whose traceback it leaves in a file. Signals meant for the whole group are the manager's business.
"""

from __future__ import annotations

import logging
import math
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, ParamSpec, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from vedette_protocol.schema import Schema, spec_difference
from vedette_rl.agents.exploration import exploration_ranks
from vedette_rl.agents.registry import agent_kind
from vedette_rl.core import Columns, RowColumn, Step
from vedette_rl.core.columns import INTERVENED, LOG_PROB
from vedette_rl.core.step_keys import StepKeys, first_time
from vedette_rl.envs.config import EnvConfig
from vedette_rl.envs.failures import EnvironmentFailure
from vedette_rl.envs.make import make_vector_environment
from vedette_rl.envs.spaces import Spaces, check_declared, column_bounds, transition_dtype
from vedette_rl.envs.vector_env import VectorEnvironment
from vedette_rl.errors import DeclaredSpaceError, RowColumnError
from vedette_rl.import_by_name import is_import_name
from vedette_rl.replay.frame_stacks import FrameStack
from vedette_rl.rollout import ModelSource, RolloutLoop
from vedette_rl.steps import prepare_steps
from vedette_rl.storage.latest_value import LatestValueWriter
from vedette_services.actors.actor_spec import ActorSpec
from vedette_services.actors.actor_stats import (
    STATS_MAX_BYTES,
    ActorState,
    ActorStats,
    RecentEpisodes,
)
from vedette_services.actors.batching import (
    FrameWriter,
    Slots,
    TransitionBatcher,
    WholeRows,
    make_transition_pipeline,
)
from vedette_services.actors.faults import refuses_faults
from vedette_services.actors.handover import AllowedRuns, HandoverWriter, slot_layout
from vedette_services.actors.run_validation import SPACES
from vedette_services.config.parts import ActorsConfig
from vedette_services.config.peer_settings import read_peer_settings
from vedette_services.errors import (
    FAILED,
    REFUSED,
    RefusedError,
    SpecMismatchError,
    describe_with_notes,
)
from vedette_services.host.env_workers import ProcessEnvs
from vedette_services.host.logs import set_log_context, set_up_logging
from vedette_services.host.process_end import run_to_end
from vedette_services.host.processes import die_with_parent, ignore_stop_signals
from vedette_services.host.rate_limited_log import RateLimitedLog
from vedette_services.host.slow_calls import say_slow_calls
from vedette_services.host.stack_request import answer_stack_requests
from vedette_services.run.model_map import ModelMapReader
from vedette_services.run.replay_layout import (
    batch_schema,
    frame_stack_of_schema,
    has_sequence_keys,
    schema_columns,
)

log = logging.getLogger("vedette.actors")

P = ParamSpec("P")
T = TypeVar("T")

ORDERS_EVERY_S = 0.02
STATS_EVERY_S = 0.2
PATIENCE_S = 0.1
"""A shorter wait for room is not reported."""

WAIT_S = 1.0
"""A longer wait is reported again after each such time."""

NEXT_MODEL_S = 0.01
"""From one look for the next model to another, where an actor waits for it."""


class ActorEnd(Slots, Protocol):
    """An actor's end of a handover."""

    @property
    def has_slot(self) -> bool: ...
    @property
    def stopped(self) -> bool: ...
    @property
    def gone(self) -> bool: ...
    @property
    def allowed_runs(self) -> AllowedRuns: ...
    def poll(self, wait_s: float) -> None: ...


class ActorLoop:
    """Plays with a `RolloutLoop`, and hands its transitions over to the manager in batches."""

    def __init__(
        self,
        *,
        loop: RolloutLoop,
        writer: WholeRows | FrameWriter,
        n_buffer: int,
        env_steps_max: int,
        handover: ActorEnd,
        publish_stats: Callable[[ActorStats], None],
        clock: Callable[[], float] = time.monotonic,
        tries_flush: bool = False,
        in_runs: bool = False,
    ) -> None:
        self._in_runs = in_runs
        self._loop = loop
        self._handover = handover
        self._tries_flush = tries_flush
        self._batching = TransitionBatcher(
            handover,
            n_buffer,
            self._wait_for_slot,
            writer,
            env_steps_max,
            by_environment=in_runs,
        )
        self._publish_stats = publish_stats
        self._clock = clock
        self._tally = RecentEpisodes()
        self._failures = 0  # of environments
        self._last_failure = ""
        self._failure_log = RateLimitedLog()
        self._orders_at = self._stats_at = 0.0
        self._ran_on = (0, -1)  # the model of the last run
        self._runs = 0  # that were played on it
        loop.envs.on_failure = self._on_failure

    @property
    def acting_on(self) -> tuple[int, int]:
        """(epoch, version) of the model that it acts on."""
        return self._loop.acting_on

    def run(self) -> None:
        """Play until told to stop, then hand over everything that is finished or not.

        Raises:
            SpecMismatchError: a model is not of the network that this host builds.
        """
        if self._wait_for_model():
            self.begin()
            while not self._handover.stopped:
                if self.may_play():
                    self.step()
                else:
                    self._wait_for_next_model()
            self.finish()
        self.publish_stats("ended")

    def begin(self) -> None:
        """Begin new episodes; there is a model to act on."""
        self.publish_stats("playing")
        self._loop.begin()

    @refuses_faults
    def step(self) -> None:
        """Step every environment once."""
        step = self._loop.play()
        if self._loop.envs.lost:
            self._flush()  # what follows does not follow what was before
        self._push(self._loop.process(step))
        self._hand_over_runs()
        self._try_flush()
        self._poll_and_publish()

    def may_play(self) -> bool:
        """Return whether the next step may be played: within a run always, and where one begins as
        far as `AllowedRuns` says. The newest model is taken first."""
        if not (self._in_runs and self._loop.is_between_runs):
            return True
        allowed = self._handover.allowed_runs
        if not allowed.runs:
            return True
        self.sync()
        model = self._loop.acting_on
        played = self._runs if self._ran_on == model else 0
        newest = (allowed.epoch, allowed.version)
        # The manager has not said it yet of a newer model: one run.
        return played < (1 if model > newest else allowed.runs if model == newest else 0)

    @refuses_faults
    def sync(self) -> bool:
        """Act on the newest model from now on; True if there was a new one."""
        return self._loop.sync()

    @refuses_faults
    def cut(self) -> None:
        """Hand over unfinished transitions, with fewer steps: what comes does not follow them."""
        self._flush()

    def mark_begun(self, which: NDArray[np.bool_]) -> None:
        """Episodes of these environments ``(E,)`` begin with what is seen now."""
        self._loop.mark_begun(which)

    @refuses_faults
    def act(self) -> NDArray[Any]:
        """Choose actions ``(E, *shape)``, for environments that are stepped by others."""
        return self._loop.act()

    @refuses_faults
    def on_step(self, step: Step) -> Step:
        """Go on from the outcome of the last actions; returns what is to be processed."""
        return self._loop.on_step(step)

    @refuses_faults
    def process(self, step: Step) -> None:
        """Hand over what a step completes, before the next one is taken."""
        self._push(self._loop.process(step))
        self._hand_over_runs()
        self._try_flush()
        self._poll_and_publish()

    @refuses_faults
    def finish(self) -> None:
        """Hand over all transitions, finished or not."""
        self._flush()
        self._batching.flush()

    def close(self) -> None:
        """Close the environments."""
        self._loop.close()

    def _try_flush(self) -> None:
        """Have the rows of a processor's `flush` looked at after the first step, and not only when
        the run is over."""
        if self._tries_flush:
            self._tries_flush = False
            self._flush()

    def _flush(self) -> None:
        try:
            self._push(self._loop.flush())
        except RowColumnError as error:
            raise RowColumnError(error.name, f"{error.why} (from the processor's flush)") from error

    def _hand_over_runs(self) -> None:
        """Hand over one run of each environment, once they are played; fewer rows where a step only
        reset an environment."""
        if self._in_runs and self._loop.is_between_runs:
            self._batching.flush()
            model = self._loop.acting_on
            self._runs = self._runs + 1 if self._ran_on == model else 1
            self._ran_on = model

    def _push(self, transitions: Columns) -> None:
        self._batching.env_steps = self._loop.env_steps
        if len(transitions["reward"]):
            self._batching.push(transitions, self._loop.made_by)

    def _poll_and_publish(self) -> None:
        """Read orders and publish statistics when they are due: not at every step."""
        now = self._clock()
        if now - self._orders_at >= ORDERS_EVERY_S:
            self._orders_at = now
            self._handover.poll(0.0)
        if now - self._stats_at >= STATS_EVERY_S:
            self.publish_stats("playing")

    def _wait_for_model(self) -> bool:
        """Wait for a model to act on; False if the actor was told to stop before."""
        while not self._handover.stopped:
            if self.sync():
                return True
            self.publish_stats("waiting for a model")
            self._handover.poll(WAIT_S)
        return False

    def _wait_for_next_model(self) -> None:
        """Wait until there may be another, or an order."""
        self._handover.poll(NEXT_MODEL_S)
        if self._clock() - self._stats_at >= STATS_EVERY_S:
            self.publish_stats("waiting for the next model")

    def _wait_for_slot(self) -> bool:
        """Wait for a free slot; False if the manager is gone."""
        self._handover.poll(0.0)
        patience = PATIENCE_S
        while not self._handover.has_slot and not self._handover.gone:
            self._handover.poll(patience)
            if not self._handover.has_slot:
                self.publish_stats("waiting for room")
                patience = WAIT_S
        if patience == WAIT_S:
            self.publish_stats("playing")
        return not self._handover.gone

    def _on_failure(self, failure: EnvironmentFailure) -> None:
        """Tell that an environment has failed and is made again, which may take long."""
        self._failures = failure.count
        why = describe_with_notes(failure.error)
        times = f"{failure.count:,} times" if failure.count > 1 else "once"
        self._last_failure = f"failed {times}, made again: {why}"
        text = f"{why}: made again, the rest of its episode is lost"
        self._failure_log.add("environments", text)
        for line in self._failure_log.due_lines(self._clock()):
            log.warning("%s", line)
        self.publish_stats("making an environment again")

    def stats(self) -> dict[str, float]:
        """Return counts of what was played."""
        self._tally.add(self._loop.pop_finished_episodes())
        epoch, version = self._loop.acting_on
        return {
            "env_steps": self._loop.env_steps,
            "episodes": self._tally.episodes,
            "return_mean": math.nan if self._tally.return_mean is None else self._tally.return_mean,
            "epoch": epoch,
            "version": version,
        }

    def publish_stats(self, state: ActorState) -> None:
        """Publish the actor's statistics for the manager."""
        self._tally.add(self._loop.pop_finished_episodes())
        self._stats_at = self._clock()
        self._publish_stats(
            ActorStats(
                state=state,
                env_steps=self._loop.env_steps,
                episodes=self._tally.episodes,
                return_mean=self._tally.return_mean,
                length_mean=self._tally.length_mean,
                version=self._loop.acting_on[1],
                error=self._last_failure,
                failures=self._failures,
                returns=self._tally.returns,
                return_sum=self._tally.return_sum,
            )
        )


def build_actor(
    spec: ActorSpec,
    handover: ActorEnd,
    models: ModelSource,
    publish_stats: Callable[[ActorStats], None],
    clock: Callable[[], float] = time.monotonic,
    vector_env: VectorEnvironment | None = None,
) -> ActorLoop:
    """An actor, ready to run, with its environments.

    Args:
        spec: the actor's specification.
        handover: takes its batches.
        models: gives it the models to act on.
        publish_stats: takes its statistics.
        clock: the clock of reading orders and publishing statistics.
        vector_env: its environments; None: those of the run are made.

    Raises:
        SpecMismatchError: what this host builds is not what the run says.
        UnknownEnvironmentError, UnknownAgentError, UnsupportedSpaceError: as they say.
    """
    schema = Schema.from_wire(spec.schema)
    of_run = read_peer_settings(ActorsConfig, spec.actors)
    env_seed, exploration_seed, steps_seed, count_seed = spec.seeds()
    env = read_peer_settings(EnvConfig, spec.env, needed=None if vector_env is None else SPACES)
    kind = agent_kind(spec.agent["name"])
    agent = read_peer_settings(kind.config, spec.agent)

    def fits(spaces: Spaces) -> bool:
        try:
            check_env(env, spaces)
            check_schema(spaces, schema, schema_columns(schema, agent, of_run, spaces))
        except (DeclaredSpaceError, SpecMismatchError):
            return False
        return True

    if vector_env is None:
        count = of_run.envs_per_actor
        vector_env = make_vector_environment(
            env, count, env_seed, make_processes=ProcessEnvs, fits=fits
        )
    check_env(env, vector_env.spaces)
    envs = len(vector_env)
    actors = of_run.model_copy(update={"envs_per_actor": envs})
    check_schema(
        vector_env.spaces, schema, schema_columns(schema, agent, actors, vector_env.spaces)
    )
    columns = {column.name for column in schema.columns}
    vector_env.marks_interventions = INTERVENED in columns
    vector_env.refuses_interventions = LOG_PROB in columns
    policy = kind.build_policy(
        agent,
        vector_env.spaces,
        ranks=exploration_ranks(spec.number * envs, envs),
        seed=exploration_seed,
    )
    processor, writer = make_transition_pipeline(schema, vector_env.spaces, policy, agent, actors)
    prepare_steps(processor, vector_env, steps_seed)
    has_keys = has_sequence_keys(schema)
    row_steps = 1 if has_keys else agent.n_step
    return ActorLoop(
        loop=RolloutLoop(
            vector_env,
            policy,
            processor,
            models,
            row_steps,
            agent.name,
            explore_from=actors.explore_from or 0,
            keys=StepKeys(envs, first_time(count_seed)) if has_keys else None,
            run_length=of_run.run_length,
        ),
        writer=writer,
        n_buffer=actors.n_buffer,
        env_steps_max=of_run.env_steps_max(row_steps),
        handover=handover,
        publish_stats=publish_stats,
        clock=clock,
        tries_flush=is_import_name(of_run.step_processor),
        in_runs=of_run.run_length > 0,
    )


def actor_of_a_process(spec: ActorSpec) -> ActorLoop:
    """Build the actor of this process, with the ends that it shares with its manager.

    Raises: as `build_actor`.
    """
    schema = Schema.from_wire(spec.schema)
    layout = slot_layout(schema, read_peer_settings(ActorsConfig, spec.actors))
    handover = HandoverWriter(spec.memory_fd, spec.socket_fd, layout, spec.slots)
    latest_stats = LatestValueWriter(spec.stats_map, STATS_MAX_BYTES)
    latest_stats.write(ActorStats().to_bytes())

    def publish_stats(stats: ActorStats) -> None:
        latest_stats.write(stats.to_bytes())
        set_log_context(
            epoch=max(0, actor.acting_on[0]) or None
        )  # the learner may have started again

    actor = build_actor(spec, handover, ModelMapReader(Path(spec.model_map)), publish_stats)
    limit_torch_threads()
    return actor


@refuses_faults
def check_env(env: EnvConfig, spaces: Spaces) -> None:
    """Check that the environment made here has the spaces that the run declares, if it does.

    Raises:
        SpecMismatchError: it has others.
    """
    check_declared(env, spaces)


def check_schema(spaces: Spaces, schema: Schema, declared: Sequence[RowColumn] = ()) -> None:
    """Check that what is here gives the rows that the run describes.

    Args:
        spaces: the environment's spaces.
        schema: the run's.
        declared: columns that the agent and the step processor add.

    Raises:
        SpecMismatchError: names the first column that differs.
    """
    bounds = {column.name: (column.low, column.high) for column in schema.columns}
    same = {
        name: (low, high)
        for name, (low, high) in column_bounds(spaces, declared).items()
        if bounds.get(name) != (None, None)  # where the run names none, none are compared
    }
    row = transition_dtype(spaces, declared)
    run_frames = frame_stack_of_schema(schema)
    frames = None
    if run_frames is not None:
        frames = FrameStack.of_space(spaces.observation, run_frames.stack)
    here = batch_schema(row, same, frames)
    if difference := spec_difference(schema, here):
        name = difference.partition("'")[2].partition("'")[0]
        added = name.isidentifier() and name not in (transition_dtype(spaces).names or ())
        raise SpecMismatchError("agent or step processor" if added else "environment", difference)


def limit_torch_threads() -> None:
    """Actors share the processors among them: a policy that uses torch gets one thread."""
    if "torch" in sys.modules:
        import torch

        torch.set_num_threads(1)


def main() -> None:
    """The process: its one argument is the file of its `ActorSpec`."""
    die_with_parent()
    ignore_stop_signals()
    spec = ActorSpec.from_json(Path(sys.argv[1]).read_bytes())
    set_up_logging()
    set_log_context(actor=spec.index, epoch=spec.epoch)
    answer_stack_requests(Path(spec.stack_file))
    say_slow_calls(log.info)
    with ExitStack() as at_end:
        try:
            actor = actor_of_a_process(spec)
            # Or the programs that an environment has started would stay. A `close` that fails or
            # hangs comes after the cause is written.
            at_end.callback(actor.close)
            actor.run()
        except (Exception, SystemExit) as error:  # noqa: BLE001 - of an environment; it is reported
            text = f"{describe_with_notes(error)}\n{traceback.format_exc()}"
            Path(spec.traceback_file).write_text(text)
            sys.exit(REFUSED if isinstance(error, RefusedError) else FAILED)


if __name__ == "__main__":
    run_to_end(main, log.warning)
