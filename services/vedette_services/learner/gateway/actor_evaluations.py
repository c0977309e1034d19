"""Evaluations on the actors: one manager at a time is asked, and what it reports is checked.

No socket, no clock. Only managers with a trusted key decide about the best model; what others
report is shown. Where no trusted manager plays evaluations, the returns of the actors of trusted
managers take their place.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import NamedTuple

from vedette_protocol.messages import (
    CONFIRM,
    EVALUATE,
    ActorReport,
    Buffer,
    EvaluationReport,
    Report,
)
from vedette_services.config.parts import EvaluationConfig
from vedette_services.config.run_config import RunConfig
from vedette_services.errors import EvaluationReportError
from vedette_services.learner.confirmation import Confirmation, begin_confirmation, mark_reached
from vedette_services.status.status import RETURNS_OF_ACTORS, Eval

EVALUATION_FAILED_REST_S = 30.0
"""A manager whose evaluation failed is not asked again for so long."""

_FAILURES_EACH = 2  # an environment that exists once fails each time that a second one is made

NO_EVALUATOR_S = 10.0
"""Without a trusted manager that plays evaluations for so long, the actors' returns count."""


_MEAN_EPISODES = 100
"""The most episodes that an actor's mean return is over, of a manager that sends no sum."""

_HELD_BYTES = 64 << 20  # of models that the asked manager may have taken
_HELD_LEAST = 2
_U64 = 1 << 64


class PublishedModel(NamedTuple):
    """A model that was sent to the managers.

    Args:
        env_steps: environment steps in the replay when it was made.
        body: packed by `vedette_protocol.model`.
    """

    epoch: int
    version: int
    env_steps: int
    body: Buffer


class Request(NamedTuple):
    """An evaluation that a manager is to play, as an ack says it.

    Args:
        number: 0: there is none.
        version: it plays this version or a newer one.
        fresh: the number of a fresh evaluation of the model that it played last; 0: it is none.
    """

    number: int = 0
    version: int = 0
    fresh: int = 0


@dataclass(frozen=True, slots=True)
class CheckedEvaluation:
    """An evaluation of a published model.

    Args:
        counts: it may make its model the best one, and end the run.
    """

    evaluation: Eval
    model: PublishedModel
    counts: bool


@dataclass(slots=True)
class _Member:
    """A manager as its last report shows it.

    Args:
        plays: it plays evaluations now.
        confirms: it can play the same model again, on fresh episodes.
        counted: each actor's report up to which its returns were counted.
        asked_at, rests_until: the times at which it was asked, and may be asked again.
        failed: why its last evaluation came to nothing; "" if it did not.
    """

    incarnation: int
    key: str
    plays: bool = False
    confirms: bool = False
    counted: dict[int, ActorReport] = field(default_factory=dict)
    asked_at: float = -math.inf
    rests_until: float = -math.inf
    failed: str = ""


@dataclass(slots=True)
class _Asked:
    """The evaluation that a manager was asked for.

    Args:
        model: the one that it plays; None until it has said which.
        played: episodes that have ended.
        fresh: the number of this fresh evaluation of the last model; 0: it is none.
    """

    request: int
    manager: str
    incarnation: int
    version: int
    progressed_at: float
    model: PublishedModel | None = None
    played: int = 0
    fresh: int = 0


class ActorEvaluations:
    """Asks for an evaluation of the newest model every `learner.eval_interval`
    optimization steps.

    ::

        evaluations.on_model(model)                       # every model that is published
        evaluations.on_report(report, now, key)           # also one that says "gone"
        evaluations.tick(now, present)                    # several times a second
        request = evaluations.request_for(manager, incarnation)   # for its next ack
        checked = evaluations.pop_finished()

    Args:
        config: the run's configuration; None: nothing is asked.
        first_request: random, so that a request of an earlier gateway is not one of ours.
        log: takes level and text of a line.
        now: seconds, as all times here.
    """

    def __init__(
        self,
        run_id: str,
        config: RunConfig | None,
        *,
        first_request: int,
        log: Callable[[str, str], None],
        now: float,
    ) -> None:
        self._run_id = run_id
        self._log = log
        self._request = first_request
        self._interval = config.learner.eval_interval if config else 0
        self._config = config
        self._confirmation: tuple[Confirmation, PublishedModel] | None = None
        self._fresh = 0  # fresh evaluations that were asked for
        self._is_ending = False  # the run has ended: nothing is confirmed any more
        settings = config.evaluation if config else EvaluationConfig()
        self._episodes = settings.episodes
        self._timeout_s = settings.episode_timeout_s
        self.trusted: Collection[str] | None = frozenset()
        """Names of the keys whose managers count; None: every manager does."""
        self.refused = 0
        """Reports of evaluations that were not as they were asked for."""
        self._members: dict[str, _Member] = {}
        self.missing = ""
        """Why the model whose evaluation is due has none; "" if nothing is wrong. It stays after
        `stop`."""
        self._evaluator_at = now  # a trusted manager that plays evaluations was last here
        self._asked: _Asked | None = None
        self._held: list[PublishedModel] = []  # the newest last
        self._due: int | None = None  # the version from which on the next evaluation is due
        self._shown_due = 0  # the same for evaluations that are only shown
        self._finished: CheckedEvaluation | None = None
        self._failures = 0  # of evaluations, since one has ended well
        self._returns = (0, 0.0)  # episodes of trusted managers' actors, and the sum of returns
        self._logged: set[str] = set()

    # Events

    def on_model(self, model: PublishedModel) -> None:
        """Note that a model was published; one of another epoch ends what was asked before."""
        if not self._interval:
            return
        if self._held and model.epoch != self._held[-1].epoch:
            self._asked = None
            self._due = None
        if self._due is None:  # nothing was learned at version 0
            self._due = self._shown_due = model.version or self._interval
        if self._asked is None or self._asked.model is not None:
            self._held.clear()  # no manager can have taken an earlier one
        self._held.append(model)
        size = len(model.body)
        while len(self._held) > _HELD_LEAST and size * len(self._held) > _HELD_BYTES:
            del self._held[0]

    def on_report(self, report: Report, now: float, key: str) -> bool:
        """Note who can play, and what the asked manager reports.

        Args:
            key: name of the sender's key; "" without keys.

        Returns:
            True if its evaluation is over, which the next ack tells it.
        """
        if not self._interval or report.run_id != self._run_id:
            return False
        member = self._members.get(report.manager)
        if member is None or member.incarnation != report.incarnation:
            member = self._members[report.manager] = _Member(report.incarnation, key)
        member.key = key
        member.plays = report.state == "running" and EVALUATE in report.features
        member.confirms = CONFIRM in report.features
        if self._is_trusted(member):
            self._evaluator_at = now if member.plays else self._evaluator_at
            self._add_returns(member, report)
        asked = self._asked
        evaluation = report.evaluation
        if asked is None or evaluation is None or evaluation.request != asked.request:
            return False  # of an earlier request, or of an earlier gateway
        if (report.manager, report.incarnation) != (asked.manager, asked.incarnation):
            return False
        try:
            self._on_progress(asked, evaluation, member, now)
        except EvaluationReportError as error:
            self.refused += 1
            self._withdraw(f"the report of manager {asked.manager}: {error}", now)
        return self._asked is None

    def finish_with(self, version: int) -> None:
        """Have this version evaluated even if it is not due yet: it is the run's last. It ends no
        run any more, so it is not confirmed."""
        self._is_ending = True
        if self._due is not None:
            self._due = min(self._due, version)
            self._shown_due = min(self._shown_due, version)

    def stop(self) -> None:
        """Ask for nothing any more: the learner ends."""
        self._interval = 0
        self._asked = None  # a confirmation that is cut off stays: the end says it

    def tick(self, now: float, present: Collection[str]) -> str:
        """Give up on a manager that is gone or stands still, and ask the next.

        Args:
            present: the managers that are not gone.

        Returns:
            The manager that was asked now; "" if none was.
        """
        if not self._interval:
            return ""
        for manager in self._members.keys() - set(present):
            del self._members[manager]
        if self._asked is not None:
            self._watch(self._asked, now)
        if self._asked is None and self._confirmation is not None:
            self._end_confirmation(*self._confirmation)  # nobody else has the model
        if self._asked is None and self._finished is None and self._held:
            self._ask_manager(now)
            self._note_missing(now)
            return self._asked.manager if self._asked is not None else ""
        return ""

    def _note_missing(self, now: float) -> None:
        """Note why a model that is due has no evaluation; log once that nobody plays any."""
        nobody = self._describe_nobody(now)
        why = nobody.partition(" (")[0]  # the number of managers changes
        if nobody and why not in self._logged:
            self._logged.add(why)
            self._log("warning", nobody)
        self.missing = nobody or self._describe_failures()

    def _describe_nobody(self, now: float) -> str:
        """Return why no manager whose result counts plays a model that is due; "" if one does."""
        is_due = self._held[-1].version >= (self._due or 0)
        is_late = now - self._evaluator_at > NO_EVALUATOR_S
        is_replaced = RETURNS_OF_ACTORS in self._logged and not self._is_ending
        if not is_due or not is_late or is_replaced or self._playing(trusted=True):
            return ""
        if self._playing():
            return "evaluation.trusted names the key of no manager that plays evaluations"
        if here := len(self._members):
            reasons = "--no-evaluate, an own loop without evaluates=True, or an earlier version"
            return f"no manager plays evaluations ({here} here: {reasons})"
        return "no manager is here that plays evaluations" if self._is_ending else ""

    def _describe_failures(self) -> str:
        """Return the last failure, where the last evaluation of each manager whose result counts
        came to nothing; where no such manager plays, of each that plays."""
        playing = self._playing(trusted=True) or self._playing()
        failed = [(member.asked_at, member.failed) for _, member in playing if member.failed]
        if not failed or len(failed) < len(playing):
            return ""
        others = f" (and {len(failed) - 1} more)" if len(failed) > 1 else ""
        return f"{max(failed)[1]}{others}"

    def _watch(self, asked: _Asked, now: float) -> None:
        """Give up on the manager that was asked, where it is gone, stands still, or a trusted one
        can play instead."""
        member = self._members.get(asked.manager)
        if member is None or member.incarnation != asked.incarnation or not member.plays:
            self._withdraw(f"manager {asked.manager} is gone", now)
        elif now - asked.progressed_at > self._timeout_s:
            why = f"no episode has ended for {self._timeout_s:g} s"
            self._withdraw(f"manager {asked.manager}: {why}", now)
        elif not self._is_trusted(member) and self._playing(trusted=True):
            self._asked = None

    # What the gateway asks

    def request_for(self, manager: str, incarnation: int) -> Request:
        """Return the evaluation that a manager is to play."""
        asked = self._asked
        if asked is None or (manager, incarnation) != (asked.manager, asked.incarnation):
            return Request()
        return Request(asked.request, asked.version, asked.fresh)

    def pop_finished(self) -> CheckedEvaluation | None:
        """Return a new evaluation. Until it is taken no manager is asked for the next."""
        finished = self._finished
        self._finished = None
        return finished

    def is_hopeless(self, now: float) -> bool:
        """Return True if no manager can play: none for `NO_EVALUATOR_S`, or all failed twice."""
        failed = self._failures >= _FAILURES_EACH * max(1, len(self._playing()))
        return self._asked is None and (failed or now - self._evaluator_at > NO_EVALUATOR_S)

    @property
    def confirms(self) -> bool:
        """True while a model at the target is to be confirmed, and after a `stop` that cut that
        off."""
        return self._confirmation is not None

    @property
    def state(self) -> str:
        """The evaluation being played and its manager, as text for the status; "" if none is."""
        if (asked := self._asked) is None:
            return ""
        version = asked.version if asked.model is None else asked.model.version
        fresh = "fresh " if asked.fresh else ""
        played = f"{asked.played} of {self._episodes} {fresh}episodes of version {version:,}"
        return f"manager {asked.manager} has played {played}"

    # Asking

    def _is_trusted(self, member: _Member) -> bool:
        return self.trusted is None or member.key in self.trusted

    def _playing(self, *, trusted: bool = False) -> list[tuple[str, _Member]]:
        """Return the managers that play evaluations, or those that are trusted too."""
        members = sorted(self._members.items())
        return [(m, x) for m, x in members if x.plays and (not trusted or self._is_trusted(x))]

    def _ask_manager(self, now: float) -> None:
        """Ask for what is due: a trusted manager, or else another, whose result is only shown."""
        newest = self._held[-1]
        due = self._due or 0
        if newest.version < min(due, self._shown_due):
            return
        playing = self._playing()
        trusted = self._playing(trusted=True)
        if newest.version >= due and not trusted and now - self._evaluator_at > NO_EVALUATOR_S:
            self._take_returns(newest)
        if self._finished is None and not trusted and playing and newest.version >= self._shown_due:
            self._log_untrusted()
            self._begin(playing, newest.version, now)
        elif newest.version >= due:
            self._begin(trusted, newest.version, now)

    def _begin(self, members: list[tuple[str, _Member]], version: int, now: float) -> None:
        """Ask the member that was not asked for longest, of those that do not rest."""
        ready = [(name, m) for name, m in members if m.rests_until <= now]
        if not ready:
            return
        manager, member = min(ready, key=lambda candidate: candidate[1].asked_at)
        member.asked_at = now
        self._request = (self._request + 1) % _U64 or 1
        self._asked = _Asked(self._request, manager, member.incarnation, version, now)

    def _withdraw(self, why: str, now: float) -> None:
        """Give up on the manager that was asked; another one is asked at the next tick."""
        assert self._asked is not None, "somebody was asked"
        member = self._members.get(self._asked.manager)
        if member is not None and member.incarnation == self._asked.incarnation:
            member.rests_until = now + EVALUATION_FAILED_REST_S
            member.failed = "" if self._asked.fresh else why  # of a model that was evaluated
        self._asked = None
        self.missing = self._describe_failures()
        follows = "its evaluation is given to another manager"
        if self.missing:
            follows = f"no other one plays it: it is asked again in {EVALUATION_FAILED_REST_S:g} s"
        self._log("warning", f"{why}: {follows}")

    # Reports

    def _on_progress(
        self, asked: _Asked, report: EvaluationReport, member: _Member, now: float
    ) -> None:
        """Take a report of the evaluation that was asked for.

        Raises:
            EvaluationReportError: it is not as it was asked for.
        """
        if report.failed:
            self._failures += 1
            self._withdraw(f"manager {asked.manager} cannot evaluate: {report.failed}", now)
            return
        model = asked.model or self._find_held(asked, report)
        if (report.epoch, report.version) != (model.epoch, model.version):
            raise EvaluationReportError(
                f"it plays version {report.version:,} after {model.version:,} in one evaluation"
            )
        if not asked.played <= report.episodes <= self._episodes:
            raise EvaluationReportError(
                f"{report.episodes} episodes, after {asked.played} and of {self._episodes}"
            )
        if asked.model is None or report.episodes > asked.played:
            asked.progressed_at = now
        asked.model = model
        asked.played = report.episodes
        if report.return_mean is not None:
            check_results(report, self._episodes)
            member.failed = self.missing = ""
            self._asked = None
            self._failures = 0
            if self._confirmation is not None:
                self._add_fresh(*self._confirmation, report, asked, now)
            else:
                self._finish(asked, report, model, member, now)

    def _find_held(self, asked: _Asked, report: EvaluationReport) -> PublishedModel:
        """Find the model that a manager took, among those published since it was asked."""
        for model in self._held:
            same = (model.epoch, model.version) == (report.epoch, report.version)
            if same and model.version >= asked.version:
                return model
        raise EvaluationReportError(
            f"version {report.version:,} of epoch {report.epoch} was not sent since version "
            f"{asked.version:,} was asked for, or too long ago"
        )

    def _finish(
        self,
        asked: _Asked,
        report: EvaluationReport,
        model: PublishedModel,
        member: _Member,
        now: float,
    ) -> None:
        counts = self._is_trusted(member)
        self._held = self._held[-1:]
        self._set_due(model.version, counts=counts)
        result = _result(report, asked, model)
        confirmation = None
        if counts and self._config is not None and not self._is_ending:
            confirmation = begin_confirmation(result, self._config)
            if confirmation is not None and not member.confirms:
                why = "is of an earlier version: it plays no fresh episodes that would confirm"
                self._log("warning", f"manager {asked.manager} {why} version {model.version:,}")
                confirmation = None
        if confirmation is None:
            marked = self._mark_reached(result, counts=counts)
            self._finished = CheckedEvaluation(marked, model, counts)
            return
        self._confirmation = confirmation, model
        self._ask_fresh(asked, model, now)

    def _mark_reached(self, result: Eval, *, counts: bool) -> Eval:
        config = self._config if counts and not self._is_ending else None
        return result if config is None else mark_reached(result, config)

    # Confirming

    def _ask_fresh(self, asked: _Asked, model: PublishedModel, now: float) -> None:
        """Ask the same manager, which has the model, for an evaluation on fresh episodes."""
        self._fresh += 1
        self._request = (self._request + 1) % _U64 or 1
        self._asked = _Asked(
            self._request,
            asked.manager,
            asked.incarnation,
            model.version,
            now,
            model=model,
            fresh=self._fresh,
        )

    def _add_fresh(
        self,
        confirmation: Confirmation,
        model: PublishedModel,
        report: EvaluationReport,
        asked: _Asked,
        now: float,
    ) -> None:
        confirmation.add(_result(report, asked, model))
        if not confirmation.is_over:
            self._ask_fresh(asked, model, now)
            return
        self._log("info", confirmation.outcome())
        self._end_confirmation(confirmation, model)

    def _end_confirmation(self, confirmation: Confirmation, model: PublishedModel) -> None:
        self._confirmation = None
        self._finished = CheckedEvaluation(confirmation.result(), model, counts=True)

    def _set_due(self, version: int, *, counts: bool) -> None:
        following = (version // self._interval + 1) * self._interval
        self._shown_due = following
        if counts:
            self._due = following

    # Returns of actors

    def _add_returns(self, member: _Member, report: Report) -> None:
        """Add the episodes that ended since those counted last."""
        episodes, total = self._returns
        counted = {}
        for actor in report.actors:
            before = member.counted.get(actor.id, actor)
            counted[actor.id] = actor
            if actor.return_sum is not None and before.return_sum is not None:
                if actor.returns > before.returns:
                    episodes += actor.returns - before.returns
                    total += actor.return_sum - before.return_sum
            elif actor.restarts != before.restarts:
                continue  # its mean is over fewer episodes
            elif actor.return_mean is None or actor.episodes - before.episodes < _MEAN_EPISODES:
                counted[actor.id] = before  # episodes from before are in its mean
            else:
                episodes += _MEAN_EPISODES
                total += _MEAN_EPISODES * actor.return_mean
        member.counted = counted
        if member.plays:  # there is an evaluator, which counts instead
            episodes = 0
            total = 0.0
        self._returns = (episodes, total) if math.isfinite(total) else (0, 0.0)

    def _take_returns(self, newest: PublishedModel) -> None:
        """Count the returns of actors as an evaluation, once as many episodes have ended."""
        episodes, total = self._returns
        if episodes < self._episodes:
            return
        if RETURNS_OF_ACTORS not in self._logged:
            self._logged.add(RETURNS_OF_ACTORS)
            why = "no manager with a trusted key plays evaluations"
            text = "the returns of the actors of those that there are, which explore"
            self._log("warning", f"{why}: {text}, decide about the best model")
        self._returns = (0, 0.0)
        self._set_due(newest.version, counts=True)
        result = Eval(
            version=newest.version,
            env_steps=newest.env_steps,
            return_mean=total / episodes,
            episodes=episodes,
            played_by=RETURNS_OF_ACTORS,
        )
        marked = self._mark_reached(result, counts=True)
        self._finished = CheckedEvaluation(marked, newest, counts=True)

    def _log_untrusted(self) -> None:
        if "untrusted" not in self._logged:
            self._logged.add("untrusted")
            self._log(
                "warning",
                "no manager that plays evaluations has a key that evaluation.trusted names: "
                "what they report is shown only: it decides nothing",
            )


def _result(report: EvaluationReport, asked: _Asked, model: PublishedModel) -> Eval:
    """Return a manager's evaluation, whose results were checked, as the status has it."""
    return Eval(
        version=model.version,
        env_steps=model.env_steps,
        return_mean=report.return_mean,
        return_std=report.return_std,
        return_min=report.return_min,
        return_max=report.return_max,
        length_mean=report.length_mean,
        episodes=report.episodes,
        episodes_cut=report.cut,
        played_by=f"manager {asked.manager}",
    )


def check_results(report: EvaluationReport, episodes: int) -> None:
    """Check the results that a manager reports.

    Raises:
        EvaluationReportError: they contradict one another, or what was asked.
    """
    numbers = (report.return_mean, report.return_std, report.return_min, report.return_max)
    mean, std, least, most = (math.nan if x is None else x for x in numbers)
    length = report.length_mean
    if report.episodes != episodes:
        raise EvaluationReportError(f"results of {report.episodes} episodes of {episodes}")
    if not all(map(math.isfinite, (mean, std, least, most))) or length is None:
        raise EvaluationReportError("its results are not complete")
    rounding = 1e-6 * max(1.0, abs(least), abs(most))
    if std < 0 or not least - rounding <= mean <= most + rounding:
        raise EvaluationReportError(f"a mean of {mean:g} ± {std:g} within {least:g} and {most:g}")
    if length < 1 or report.cut > episodes:
        raise EvaluationReportError(f"episodes of {length:g} steps, {report.cut} of them cut")
