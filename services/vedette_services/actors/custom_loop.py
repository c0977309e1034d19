"""An actor in a program that owns its loop: a simulator, a game, a robot.

The program's thread acts and fills batches with the `ActorLoop` of the actor processes. A thread
beside it is their `Manager`: it takes the batches from a queue, and owns every socket.
"""

from __future__ import annotations

import random
import secrets
import socket
import threading
import time
from collections.abc import Collection
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self, get_args

import numpy as np
from numpy.typing import NDArray

from vedette_protocol.send_window import OnFull
from vedette_protocol.topics import is_id
from vedette_rl.core import Step
from vedette_rl.settings.plain_values import user_path
from vedette_services.actors.connection import Identity
from vedette_services.actors.custom_actor import (
    CustomActor,
    CustomLoop,
    GreedyEpisodes,
    Space,
    StopEvent,
)
from vedette_services.actors.faults import refuses_faults
from vedette_services.actors.manager import Manager, default_manager_id
from vedette_services.actors.manager_state import DRAIN_S, ManagerState
from vedette_services.actors.outbox.settings import OutboxSettings
from vedette_services.actors.outbox.syncing import synced_at_intervals
from vedette_services.config.import_permission import check_allowed
from vedette_services.errors import (
    FAILED,
    REFUSED,
    NoModelError,
    RefusedError,
    RunOverError,
    ServicesError,
)
from vedette_services.net.addresses import Address
from vedette_services.net.keys import ClientKeys
from vedette_services.run.learner_location import find_learner

_WAIT_S = 0.1  # so that Ctrl-C is seen, on Windows too
_CLOSE_S = 5.0  # beyond what the manager takes for its window


class Actor:
    """Plays for a learner in a custom loop, in which you step the environment.

    ::

        with vedette.Actor("gpu.example.org", keys="keys") as actor:
            actor.begin(sim.reset())
            while actor.running:
                obs, reward, terminated, truncated = sim.step(actor.act())
                actor.observe(reward, obs, terminated, truncated)
                if terminated or truncated:
                    actor.begin(sim.reset())

    The first `begin` waits for the learner and its first model. After that `act` waits for nothing:
    it takes the newest model that has come, also while the learner is away. n-step transitions,
    batches, their delivery, exactly once, and new connections are made beside the loop, as by
    ``vedette actors``. It is for one thread at a time.

    When batches cannot be handed over, because the learner takes none or is away, `on_full` says
    what happens. ``"block"``: `observe` waits for room. A learner that is away is waited for only
    when the window (`actors.window_batches`, 1024, and `actors.window_bytes`), or the outbox, is
    full.
    ``"drop_oldest"``: nothing ever waits; once the window is full, or a batch has waited for
    `actors.window_s` (60 s) to be sent, the oldest that was not sent is dropped, and counted. Use
    it where the loop must keep its time. An outbox drops nothing for its age, and what is kept is
    sent oldest first: it drops its oldest file once it is full.

    At the end of the run `running` is False; `act` raises `RunOverError`. If the learner refuses
    this actor, both raise `RefusedError`.

    Args:
        learner: its address, ``HOST`` or ``HOST:PORT``; ``@FILE``: as that file says; ``@RUN``: of
            the run in that directory.
        keys: the folder of this host's keys; None: without keys.
        envs: environments that are stepped together: observations, rewards, flags and actions then
            have an axis of this length in front. None: one, and no such axis.
        on_full: see above; None: the run's `actors.on_full`, ``"block"`` by default.
        wait_s: the longest time that the first `begin` waits; None: no limit.
        observation_space, action_space: the spaces of one environment, in Gymnasium's terms. None:
            those that the run declares, or those of its environment, which is made here to read
            them.
        id: name of this actor among all managers; None: the host's name and a number.
        allow_import: top packages from which the run's agent, and its environment if it is made
            here, may import.
        evaluates: play evaluations where the learner asks for them (`evaluation.where`): some of
            the next episodes are then greedy, by one model, and send no samples.
        outbox: a folder of this host for batches until they are safe at the learner, or
            `OutboxSettings` with its bounds. Another process on the same folder sends what a killed
            one has left. With it a window bounds nothing: the folder's bytes do. None: batches are
            kept in memory until the learner has stored them.

    Raises:
        AddressError, KeysError: what was given is wrong.
        OutboxInUseError: another process uses the outbox.
    """

    def __init__(
        self,
        learner: str = "127.0.0.1",
        *,
        keys: str | Path | None = None,
        envs: int | None = None,
        on_full: OnFull | None = None,
        wait_s: float | None = 60.0,
        observation_space: Space | None = None,
        action_space: Space | None = None,
        id: str | None = None,
        allow_import: Collection[str] = (),
        evaluates: bool = False,
        outbox: str | Path | OutboxSettings | None = None,
    ) -> None:
        given = _given_spaces(observation_space, action_space)
        if envs is not None and (type(envs) is not int or envs < 1):
            raise ValueError(f"envs={envs!r}: a number of environments from 1 on, or None")
        if on_full is not None and on_full not in get_args(OnFull):
            raise ValueError(f"on_full={on_full!r}: it is one of {', '.join(get_args(OnFull))}")
        if id is not None and not is_id(id):
            raise ValueError(f"id={id!r}: an id is 1 to 64 of A-Z a-z 0-9 . _ -")
        check_allowed(allow_import)
        if outbox is None or isinstance(outbox, OutboxSettings):
            kept = outbox
        else:
            kept = OutboxSettings(outbox)
        if not learner.startswith("@"):
            Address.parse(learner)
        shown = None if keys is None else ClientKeys.read(user_path(keys))
        self._learner = learner
        self._wait_s = wait_s
        self._host = CustomLoop(envs, given, on_full, allow_import)
        self._playing: CustomActor | None = None
        self._action: NDArray[Any] | None = None
        self._unprocessed: Step | None = None  # ended episodes, which new ones may follow
        self._greedy: GreedyEpisodes | None = None
        self._ended = self._closed = False
        self._stop = StopEvent()
        self._done = threading.Event()
        host = socket.gethostname()
        files = None if kept is None else kept.open()
        manager = default_manager_id(host, files) if id is None else id
        self._state = ManagerState(
            Identity(manager, host, learner),
            count=1,
            allow_import=frozenset(allow_import),
            incarnation=lambda: secrets.randbits(64),
            jitter=random.random,
            now=time.monotonic(),
            custom_loop=True,
            on_full=on_full,
            evaluates=evaluates,
            outbox=files,
        )
        self._synced: AbstractContextManager[None] = nullcontext()
        if kept is not None and files is not None:
            self._synced = synced_at_intervals(files, kept.sync_s)
        self._manager = Manager(
            partial(find_learner, learner), manager, self._state, self._host, shown
        )
        self._thread = threading.Thread(target=self._manage, name="vedette", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def running(self) -> bool:
        """True until the run is over, or the actor was closed.

        Raises:
            RefusedError: the learner refused it, or it cannot play this run.
        """
        self._notice_end()
        if self._ended and self._host.error is not None:
            raise self._host.error
        return not (self._ended or self._closed)

    def begin(self, obs: Any, which: Any = None) -> None:
        """Begin an episode with its first observation.

        The first call waits for the learner's first model. After an episode's end this may be left
        out: then the next one begins with the observation that came last. Called before an end, it
        cuts the episode: nothing is learned of what lies between.

        Args:
            obs: the observation; of several environments, an array (or a nesting of arrays) for all
                of them.
            which: bool for each of several environments: only where it is true an episode begins,
                and only there `obs` is read. None: everywhere.

        Raises:
            NoModelError: neither within `wait_s`.
            RunOverError, RefusedError: there is no run to play.
            SpacesNotKnownError, SpecMismatchError: of the spaces.
            SpaceLayoutError: an observation has another shape than its space, or no finite value.
            ValueError: `which` is not one flag for each environment.
        """
        if self._closed:
            raise RunOverError(self._learner, self._state.run_over or "closed")
        playing = self._playing or self._join()
        envs = playing.envs
        begun = envs.flags(which)
        first = not envs.is_begun
        if first:
            envs.begin(obs, begun)
            if envs.is_begun:
                playing.loop.begin()
                self._begin_greedy(playing, np.ones(len(envs), np.bool_))
            return
        step = self._unprocessed
        cuts = bool(np.count_nonzero(begun > envs.done))
        if step is None or (cuts and np.count_nonzero(begun & ~step.begins)):
            self._process()
            playing.loop.cut()
        envs.begin(obs, begun, cuts=cuts)
        playing.loop.mark_begun(begun)
        self._begin_greedy(playing, begun)
        self._process()
        self._notice_end()

    def act(self) -> Any:  # an array, or a number
        """Choose an action by the newest model, exploring as the run says.

        Called again before `observe` it chooses again: the previous action was not executed.

        Returns:
            What the environment's action space holds; of several environments an array of them.

        Raises:
            RunOverError, RefusedError: the run is over, or this actor was refused.
            SpecMismatchError: a model is not of the network that this host builds.
        """
        if self._ended or self._closed:
            raise self._host.error or RunOverError(self._learner, self._state.run_over or "closed")
        if self._playing is not self._host.current:
            self._change_run()
        playing = self._playing
        if playing is None or not playing.envs.is_begun:
            raise RuntimeError("act before begin: an environment has no first observation")
        chosen = playing.loop.act()
        if self._greedy is not None:
            chosen = self._choose_greedily(self._greedy, playing, chosen)
        self._action = chosen
        return playing.envs.action_to_environment(self._action)

    def observe(
        self,
        reward: Any,
        obs: Any,
        terminated: Any = None,
        truncated: Any = None,
        *,
        action: Any = None,
    ) -> None:
        """Take what came of the action that `act` gave last.

        Args:
            reward: the environment's own; the run's scaling and clipping happen here.
            obs: the observation after the step; where an episode ended its last one, not the first
                of the next. It is copied.
            terminated: the task ended the episode; None: it did not.
            truncated: something else ended it, for example a time limit; None: nothing did.
            action: the executed action, if it differs from that of `act`: a person did it, or a
                safety filter changed it. The run stores it, as an intervention if it marks these;
                if its rows have the column ``log_prob`` (APPO), it refuses it.

        Raises:
            SpaceLayoutError: an observation has another shape than its space, or no finite value.
            ValueError: rewards, flags or actions are not one for each environment, a reward or
                action is not finite, an action is none of its space (of a Box it may be outside by
                ten times its width), or a flag is neither true nor false. None of these steps is
                sent; give another, or `begin` again.
            RefusedError: a step processor makes columns that are not declared.
        """
        playing = self._playing
        chosen = self._action
        if playing is None or chosen is None:
            raise RuntimeError("observe before act: there is no action that this came of")
        envs = playing.envs
        taken_over = envs.executed(action)
        self._process()
        ended = envs.never if terminated is None else terminated
        cut = envs.never if truncated is None else truncated
        greedy = self._greedy
        left_out = greedy.playing if greedy is not None and greedy.playing.any() else None
        pushed = envs.push(chosen, reward, obs, ended, cut, taken_over, left_out)
        step = playing.loop.on_step(pushed)
        if greedy is not None:
            greedy.count(envs.true_reward, envs.done)
        if envs.ended:
            self._begin_greedy(playing, envs.done)
        self._unprocessed = step
        self._action = None
        if not envs.ended:
            self._process()
        self._notice_end()

    def stats(self) -> dict[str, float]:
        """Counts: environment steps and episodes; the mean return of the last 100; epoch and
        version of the model that acts; and of the window, rows (produced, dropped, settled,
        rejected), batches, and `delay_s`, the age of the oldest that the learner does not have.
        With an outbox also `outbox_bytes` of its files; `memory_rows`, those that these could not
        take and that are in memory alone; and `from_before`, the rows that processes before this
        one have left and that the learner does not have."""
        of_window = self._state.stats(time.monotonic())
        return of_window if self._playing is None else {**self._playing.loop.stats(), **of_window}

    def close(self) -> bool:
        """Hand over what is unfinished, wait until the learner has it, 15 s at most, and leave.

        Returns:
            True if every row was settled.

        Raises:
            Exception: what ended the manager's thread meanwhile, so that it handed no more over.
        """
        if not self._closed:
            self._closed = True
            known = self._host.error
            self._finish()
            if (unplayed := self._host.current) is not None:
                unplayed.end(0)  # of another run, which has just begun
            self._stop.request()
            self._thread.join(DRAIN_S + _CLOSE_S)
            if not self._thread.is_alive():
                self._stop.close()
            if self._host.error is not None and known is None:
                raise self._host.error
        return not self._state.stats(time.monotonic()).get("rows")

    # Inside

    def _manage(self) -> None:
        """The manager's thread."""
        try:
            with self._synced:
                self._manager.run(self._stop)
        except Exception as error:  # noqa: BLE001 - raised where the loop is
            self._host.error = self._host.error or error
        finally:
            if self._host.error is None and not (self._closed or self._state.run_over):
                self._host.error = ServicesError("its manager has ended")
            self._done.set()
            self._host.notify()

    def _join(self) -> CustomActor:
        """Wait for a run and its first model."""
        began = time.monotonic()
        host = self._host
        while host.current is None or not host.current.models.has_new:
            waited_s = time.monotonic() - began
            if self._done.is_set():
                self._ended = True
                raise host.error or RunOverError(self._learner, self._state.run_over)
            if self._wait_s is not None and waited_s >= self._wait_s:
                run, _ = self._state.current_run
                raise NoModelError(self._learner, self._wait_s, run)
            with host.changed:
                host.changed.wait(_WAIT_S)
        self._playing = host.current
        self._playing.loop.sync()
        return self._playing

    def _change_run(self) -> None:
        """Play another run, if there is a model of it: an episode continues where it is."""
        old, new = self._playing, self._host.current
        if old is None or new is None or not new.models.has_new:
            return
        new.envs.begin_like(old.envs)
        new.loop.sync()
        new.loop.begin()
        self._playing = new
        self._unprocessed = None
        self._greedy = None

    @refuses_faults
    def _begin_greedy(self, playing: CustomActor, begun: NDArray[np.bool_]) -> None:
        """Some of the episodes that begin here are of an evaluation, if one is asked for."""
        evaluation = self._host.evaluation
        order = None if evaluation is None else evaluation.order
        if self._greedy is not None and self._greedy.order is not order:
            self._greedy = None
        if evaluation is None or order is None or order.run.run_id != playing.run.run_id:
            return
        if self._greedy is None:
            self._greedy = GreedyEpisodes(evaluation, order, playing.envs)
        self._greedy.begin(begun)

    @refuses_faults
    def _choose_greedily(
        self, greedy: GreedyEpisodes, playing: CustomActor, action: NDArray[Any]
    ) -> NDArray[Any]:
        """Return the actions, greedy ones where an episode is of the evaluation."""
        if greedy.is_asked_for:
            return greedy.choose(playing.envs.reset(), action)
        self._greedy = None
        return action

    def _process(self) -> None:
        step = self._unprocessed
        self._unprocessed = None
        if step is not None and self._playing is not None:
            self._playing.loop.process(step)

    def _notice_end(self) -> None:
        """Once the run is over: hand over what is unfinished."""
        playing = self._playing
        if self._ended or self._closed:
            return
        if playing is not None and playing.handover.stopped and not playing.handover.gone:
            self._finish()
        self._ended = bool(self._state.run_over) or self._done.is_set()

    def _finish(self) -> None:
        playing = self._playing
        if playing is None:
            return
        playing.handover.stop_waiting()
        try:
            self._process()
            playing.loop.finish()
            playing.loop.publish_stats("ended")
        except Exception as error:
            playing.end(REFUSED if isinstance(error, RefusedError) else FAILED, str(error))
            raise
        playing.end(0)


def _given_spaces(observation: Space | None, action: Space | None) -> tuple[Space, Space] | None:
    if (observation is None) != (action is None):
        raise TypeError("observation_space and action_space are given together")
    return None if observation is None or action is None else (observation, action)
