"""The actor of a program that owns its loop, as its manager holds it.

The manager runs in a thread beside the loop. Batches come from a queue, and a model is handed over
as it is: nothing is shared with another process. Evaluations are greedy episodes among those that
the loop begins.
"""

from __future__ import annotations

import secrets
import socket
import threading
from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from vedette_protocol.messages import Buffer, EvaluationReport, Run
from vedette_protocol.send_window import OnFull
from vedette_rl.agents.registry import agent_kind
from vedette_rl.core import Columns, Evaluation
from vedette_rl.envs.config import EnvConfig
from vedette_rl.envs.layout import RewardTransform
from vedette_rl.envs.make import environment_own_spaces
from vedette_rl.envs.pushed_envs import PushedEnvs
from vedette_rl.errors import RlError
from vedette_rl.rollout import Chooser
from vedette_services.actors.actor import ActorLoop, build_actor
from vedette_services.actors.actor_spec import ActorSpec
from vedette_services.actors.actor_stats import ActorStats
from vedette_services.actors.evaluation_process import with_result
from vedette_services.actors.handover import LocalHandover, slot_layout
from vedette_services.actors.instructions import PlayEvaluation, StartActor
from vedette_services.actors.run_validation import SPACES
from vedette_services.config.parts import ActorsConfig, EvaluationConfig
from vedette_services.config.peer_settings import read_peer_settings
from vedette_services.errors import (
    REFUSED,
    SpacesNotKnownError,
    SpecMismatchError,
    describe_with_notes,
)
from vedette_services.host.stack_request import StackFrame
from vedette_services.run.model_map import MappedModel

_PAUSE_S = 0.05  # between two looks of the manager: each takes Python's lock from the loop
_SHORT_PAUSE_S = 0.015  # while batches wait for credit
_SLOTS = 16  # batches between two looks of the manager, at least
_MOST_SLOTS = 64  # of small batches: as many as `_MOST_BYTES` hold, up to this
_MOST_BYTES = 16 << 20
_KILLED = -9

Space = gym.Space[Any]


class LocalModels:
    """Holds the newest model for an actor of this process, in place of a `ModelMapReader`."""

    def __init__(self) -> None:
        self.has_new = False
        self._newest: MappedModel | None = None

    def store(self, model: MappedModel) -> None:
        """Replace the newest model."""
        self._newest = model
        self.has_new = True

    def read(self) -> MappedModel | None:
        """The newest model; None before the first."""
        self.has_new = False
        return self._newest


class CustomActor:
    """The actor of a custom loop on one run: a `ManagedActor` of the manager's thread.

    Args:
        order: starts it.
        envs: receive what the program's simulator does.
        on_full: what the manager's window does when it is full.
    """

    def __init__(self, order: StartActor, envs: PushedEnvs, on_full: OnFull) -> None:
        self.index = order.index
        self.run = order.run
        self.envs = envs
        config = read_peer_settings(ActorsConfig, order.run.actors)
        layout = slot_layout(order.run.schema, config)
        slots = max(_SLOTS, min(_MOST_SLOTS, _MOST_BYTES // layout.bytes))
        self.handover = LocalHandover(layout, slots, waits=on_full == "block")
        self.models = LocalModels()
        self._told: ActorStats | None = None
        self._exit: tuple[int, str] | None = None
        try:
            self.loop: ActorLoop = build_actor(
                ActorSpec.of(order, secrets.randbits(64)),
                self.handover,
                self.models,
                self._publish_stats,
                vector_env=envs,
            )
        except BaseException:
            self.handover.close()
            raise

    def _publish_stats(self, stats: ActorStats) -> None:
        self._told = stats

    def end(self, code: int, cause: str = "") -> None:
        """It has handed everything over, or failed."""
        self._exit = self._exit or (code, cause)
        self.handover.wake_manager()

    # What the manager asks

    def poll(self) -> None:
        self.handover.clear_wakeups()

    def stats(self) -> ActorStats | None:
        told = self._told
        self._told = None
        return told

    def inspect(self) -> list[StackFrame]:
        return []  # a loop of a program is never killed for standing still

    def kill(self) -> None:
        self.handover.discard()
        self.end(_KILLED)

    def exit_code(self) -> int | None:
        if self._exit is None or (self._exit[0] == 0 and not self.handover.stopped):
            return None  # it ends well once it is asked to
        return self._exit[0]

    def wait(self, timeout_s: float) -> None:
        """There is nothing to wait for."""

    def read_exit_report(self) -> tuple[str, str]:
        return ("", "") if self._exit is None else (self._exit[1], "")

    def close(self) -> None:
        self.handover.discard()
        self.handover.close()


class CustomEvaluation:
    """The evaluation that a custom loop is to play, as its manager's thread holds it."""

    def __init__(self) -> None:
        self.order: PlayEvaluation | None = None
        """The evaluation to play; None: nothing any more."""
        self._reported: EvaluationReport | None = None
        self._last_read: EvaluationReport | None = None

    def play(self, order: PlayEvaluation) -> None:
        self.order = order

    def progress(self) -> EvaluationReport | None:
        if (reported := self._reported) is self._last_read:
            return None
        self._last_read = reported
        return reported

    def kill(self, wait_s: float) -> None:
        self.order = None

    def report(self, report: EvaluationReport) -> None:
        """Report from the loop's thread."""
        self._reported = report


class GreedyEpisodes:
    """The episodes of an evaluation among those of a loop: greedy, and no samples.

    ::

        greedy.begin(which)                     # where the loop begins episodes
        action = greedy.choose(obs, action)
        greedy.count(reward, done)

    An episode that lasts longer than the run says is cut: its environment plays on as before.

    Args:
        evaluation: is told what comes of it.
        order: the evaluation to play.
        envs: the loop's.
    """

    def __init__(
        self, evaluation: CustomEvaluation, order: PlayEvaluation, envs: PushedEnvs
    ) -> None:
        self._evaluation = evaluation
        self.order = order
        run = order.run
        model = order.model
        settings = read_peer_settings(EvaluationConfig, run.evaluation)
        self._settings = settings
        self._longest = settings.max_episode_steps
        kind = agent_kind(str(run.agent["name"]))
        agent = read_peer_settings(kind.config, run.agent)
        ranks = np.zeros(len(envs))
        policy = kind.build_policy(agent, envs.spaces, ranks=ranks, seed=run.seed)
        policy.sync_model(
            MappedModel(model.epoch, model.version, run.model, model.body, None).info()
        )
        self._chooser = Chooser(policy)
        self._report = EvaluationReport(order.request, model.epoch, model.version)
        self.playing = np.zeros(len(envs), np.bool_)
        """``(E,)``, where one is played."""
        self._returns = np.zeros(len(envs), np.float64)
        self._lengths = np.zeros(len(envs), np.int64)
        self._ended: list[tuple[float, int]] = []
        self._cut = 0

    @property
    def is_asked_for(self) -> bool:
        """True until the manager takes the order back."""
        return self._evaluation.order is self.order

    def begin(self, which: NDArray[np.bool_]) -> None:
        """Begin episodes where `which` is true, as long as some are to be played."""
        self._returns[which] = 0.0
        self._lengths[which] = 0
        left = self._settings.episodes - len(self._ended) - np.count_nonzero(self.playing)
        self.playing[np.flatnonzero(which & ~self.playing)[:left]] = True

    def choose(self, obs: Columns, action: NDArray[Any]) -> NDArray[Any]:
        """Return `action` ``(E, *shape)`` with greedy ones where episodes are played."""
        if not self.playing.any():
            return action
        chosen = np.array(action)
        best = self._chooser.choose(obs, explore=False, begins=self._lengths == 0)
        chosen[self.playing] = best[self.playing]
        return chosen

    def count(self, reward: NDArray[Any], done: NDArray[np.bool_]) -> None:
        """Count a step: rewards ``(E,)`` as the environments gave them, and where they ended."""
        self._chooser.on_executed()
        self._returns += reward
        self._lengths += 1
        cut = self.playing & ~done & (self._lengths >= (self._longest or np.inf))
        ended = self.playing & (done | cut)
        if not ended.any():
            return
        self._cut += int(np.count_nonzero(cut))
        self._ended += zip(
            self._returns[ended].tolist(), self._lengths[ended].tolist(), strict=True
        )
        self.playing = self.playing & ~ended
        self._report_progress()

    def _report_progress(self) -> None:
        report = replace(self._report, episodes=len(self._ended))
        returns, lengths = zip(*self._ended, strict=True)
        if not np.isfinite(returns).all():
            report = replace(report, failed="the rewards of an episode add up to no finite number")
        elif len(self._ended) == self._settings.episodes:
            seed = self._settings.seed  # of no episode: the loop resets as it likes
            evaluation = Evaluation(report.version, returns, lengths, seed, cut=self._cut)
            report = with_result(report, evaluation)
        self._evaluation.report(report)


class CustomLoop:
    """Makes the actor of a custom loop, in the manager's thread: its `Actors`.

    Args:
        envs: environments of the loop; None: one, without an axis of its own.
        spaces: the spaces of one environment: observation and action; None: the run's.
        on_full: what the manager's window does when it is full; None: the run's setting.
        allow_import: top packages.
    """

    poll_ms = 25
    """A queue that is not half full waits so long at most, and `_PAUSE_S`."""

    def __init__(
        self,
        envs: int | None,
        spaces: tuple[Space, Space] | None,
        on_full: OnFull | None,
        allow_import: Collection[str],
    ) -> None:
        self._envs = envs
        self._given = spaces
        self._on_full = on_full
        self._allow_import = allow_import
        self._model: MappedModel | None = None
        self._run: Run | None = None
        self._spaces: tuple[Space, Space] | None = None
        self.current: CustomActor | None = None
        """The actor that plays, or is to."""
        self.evaluation: CustomEvaluation | None = None
        """What was asked for last."""
        self.error: Exception | None = None
        """The reason why there is none."""
        self.changed = threading.Condition()

    def pause(self) -> None:
        """Leave the loop Python's lock: what comes meanwhile is handled together."""
        if self.current is not None:
            self.current.handover.wait_for_wakeup(_PAUSE_S, _SHORT_PAUSE_S)

    def prepare(self, run: Run) -> None:
        """Another run begins, or has other settings: no model of it is there."""
        self._run = run
        self._model = None

    def store_model(
        self, epoch: int, version: int, body: Buffer, actors: Iterable[CustomActor]
    ) -> None:
        """Give a model to the actor of its run."""
        assert self._run is not None, "a run is prepared before its models are stored"
        self._model = MappedModel(epoch, version, self._run.model, body, None)
        for actor in actors:
            if not actor.handover.gone:  # else it played a run before
                actor.models.store(self._model)
        self.notify()

    def start(self, order: StartActor) -> CustomActor:
        """Make the actor; one that cannot be made has ended."""
        run = order.run
        env = read_peer_settings(EnvConfig, run.env, needed=SPACES)
        config = read_peer_settings(ActorsConfig, run.actors)
        try:
            observation, action = self._find_spaces(env)
            rewards = RewardTransform(env.reward_scale, env.reward_clip)
            envs = PushedEnvs(observation, action, self._envs, rewards)
            actor = CustomActor(order, envs, self._on_full or config.on_full)
        except Exception as error:  # noqa: BLE001 - told where the loop is
            if self._given is not None and isinstance(error, SpecMismatchError):
                fix = "give observation_space= and action_space= as the run has them"
                error = SpecMismatchError("simulator", error.difference, fix)
            self.error = error
            return FailedActor(order, error)
        if self._model is not None:
            actor.models.store(self._model)
        self.current = actor
        self.notify()
        return actor

    def start_evaluation(self, run: Run) -> CustomEvaluation:
        """An evaluation is to be played between the episodes of the loop."""
        self.evaluation = CustomEvaluation()
        return self.evaluation

    def _find_spaces(self, env: EnvConfig) -> tuple[Space, Space]:
        """The spaces of one environment.

        Raises:
            SpacesNotKnownError: they were not given, and the run's environment is not here.
            SpecMismatchError: another run has others.
        """
        spaces_here = self._given
        if spaces_here is None:
            try:
                spaces = environment_own_spaces(env, allow_import=self._may_import)
            except RlError as error:
                raise SpacesNotKnownError(env.id, str(error)) from error
            spaces_here = spaces.observation, spaces.action
        if self._spaces is not None and spaces_here != self._spaces:
            raise SpecMismatchError(
                "simulator", f"the run has {spaces_here}, and it has {self._spaces}"
            )
        self._spaces = spaces_here
        return spaces_here

    def _may_import(self, module: str) -> bool:
        return module.partition(".")[0] in self._allow_import

    def notify(self) -> None:
        """Wake who waits for a model, or for the end."""
        with self.changed:
            self.changed.notify_all()


class FailedActor(CustomActor):
    """An actor that could not be made: it has ended."""

    def __init__(self, order: StartActor, error: Exception) -> None:
        self.index = order.index
        self.run = order.run
        self._told = None
        config = read_peer_settings(ActorsConfig, order.run.actors)
        self.handover = LocalHandover(slot_layout(order.run.schema, config), 1)
        self._exit = REFUSED, describe_with_notes(error)


class StopEvent:
    """Asks the manager's thread to stop."""

    def __init__(self) -> None:
        self._asked = False
        self._read, self._write = socket.socketpair()

    def request(self) -> None:
        self._asked = True
        self._write.send(b"s")

    def __bool__(self) -> bool:
        return self._asked

    def fileno(self) -> int:
        return self._read.fileno()

    def close(self) -> None:
        self._read.close()
        self._write.close()
