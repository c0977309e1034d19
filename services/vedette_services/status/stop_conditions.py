"""Exit reasons: the stop conditions that end a run, when each is reached, and their words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from vedette_rl.number_format import format_number
from vedette_services.status.status import Status

if TYPE_CHECKING:  # `vedette status` needs no configuration
    from vedette_services.config.parts import StopConfig


@dataclass(frozen=True, slots=True)
class ExitReason:
    """A reason to end a run.

    Args:
        outcome: solved or done.
        why: the condition that was reached.
        unit: the unit of `now`; "" for a return.
        now: the value that the condition compares; None where there is no condition.
    """

    outcome: str
    why: str
    unit: str
    now: Callable[[Status], float | None]


ENV_STEPS_REACHED = "stop.max_env_steps is reached"

EXIT_REASONS = {
    "max_opts": ExitReason(
        "done", "stop.max_opts is reached", "optimization steps", lambda s: s.opt_steps
    ),
    "max_env_steps": ExitReason(
        "done", ENV_STEPS_REACHED, "environment steps", lambda s: s.env_steps
    ),
    "max_seconds": ExitReason(
        "done", "stop.max_seconds is reached", "seconds", lambda s: elapsed_seconds(s)
    ),
    "target_return": ExitReason(
        "solved", "the target return is reached", "", lambda s: s.eval.reached_return_mean
    ),
    "loop_ended": ExitReason("done", "its training loop has ended", "", lambda s: None),
}
"""Those that end a run for good. ``loop_ended`` is that of `vedette.Replay`, without condition."""
FAILED_REASON = "failed"
"""The `exit_reason` of a start that gave up."""
_UNCONFIRMED = "an evaluation reached the target return, which no fresh episodes confirmed"
_STOPPED = "stopped on request{after}; the same command with this --out resumes it"


def exit_sentence(reason: str, after: str = "") -> str:
    """Return a sentence that says why a run ended; "" for an unknown reason.

    Args:
        after: the time, for example `` after 0:01:05``.
    """
    if reason == "interrupted":
        return _STOPPED.format(after=after)
    if reason == FAILED_REASON:
        return f"failed{after}"
    known = EXIT_REASONS.get(reason)
    return f"{known.outcome}{after}: {known.why}" if known else ""


def is_solved(status: Status) -> bool:
    """Return True if a run has ended, and fresh episodes confirmed that it reached its target.

    It need not have ended by it: a limit may be reached while the fresh episodes are played.
    Releases before 0.3 took one evaluation for it.
    """
    evaluation = status.eval
    if status.exit_reason not in EXIT_REASONS or not evaluation.reached_episodes:
        return False
    if status.exit_reason == "target_return":
        return True
    # what an earlier start reached may be below the target of a later one
    target, reached = status.stop.target_return, evaluation.reached_return_mean
    return target is not None and reached is not None and reached >= target


def return_in_comparisons(status: Status) -> float | None:
    """Return the mean return that stands for a run: of the last evaluation, or of the fresh
    episodes by which it is solved. What was evaluated after these decided nothing."""
    evaluation = status.eval
    reached = evaluation.reached_return_mean if is_solved(status) else None
    return evaluation.return_mean if reached is None else reached


def describe_outcome(status: Status) -> str:
    """Return solved, done, stopped or failed; "" for a run that has no end."""
    if status.exit_reason == FAILED_REASON:
        return FAILED_REASON
    known = EXIT_REASONS.get(status.exit_reason)
    if known is None:
        return "stopped" if status.exit_reason else ""
    return "solved" if is_solved(status) else "done"


def describe_exit(status: Status, after: str = "") -> str:
    """Return why a run ended, as `exit_sentence` does, and on what evidence it is solved, or is not
    though an evaluation was at its target."""
    confirmed = ""
    if is_solved(status):
        confirmed = f"confirmed on {status.eval.reached_episodes:,} fresh episodes"
    if status.exit_reason != "target_return":
        if confirmed:
            why = EXIT_REASONS[status.exit_reason].why
            return f"{exit_sentence('target_return', after)}, {confirmed}; it ended as {why}"
        sentence = exit_sentence(status.exit_reason, after)
        missed = describe_missed_target(status)
        return f"{sentence}; {missed}" if sentence and missed else sentence
    if not confirmed:
        return f"done{after}: {_UNCONFIRMED}"
    return f"{exit_sentence(status.exit_reason, after)}, {confirmed}"


def describe_missed_target(status: Status) -> str:
    """Return why a run with an evaluation at its target has not reached it; "" for any other."""
    target = status.stop.target_return
    evaluation = status.eval
    if target is None or evaluation.reached_return_mean is not None:
        return ""
    count = evaluation.unconfirmed
    if not count:
        # one whose confirmation was cut off is not ranked: it is not the best
        last = None if evaluation.fresh_episodes else evaluation.return_mean
        returns = (evaluation.best_return_mean, last)
        hit = next((mean for mean in returns if mean is not None and mean >= target), None)
        if hit is None:
            return ""
        return (
            f"not solved: an evaluation of {format_number(hit, 1)} is at the target return of "
            f"{target:g}, and was not confirmed on fresh episodes"
        )
    which = "an evaluation was" if count == 1 else f"{count:,} evaluations were"
    models = "model" if count == 1 else "models"
    detail = ""
    if evaluation.fresh_episodes:
        played = format_number(evaluation.return_mean, 1)
        fresh = format_number(evaluation.fresh_return_mean, 1)
        detail = f" ({'' if count == 1 else 'the last: '}{played}, then {fresh})"
    return (
        f"not solved: {which} at the target return of {target:g}, but fresh episodes of the same "
        f"{models} were below it{detail}"
    )


def ended_status(status: Status, reason: str, unevaluated: str) -> Status:
    """Return the status of a run that has ended: nothing is being confirmed any more.

    Args:
        unevaluated: why its last model has no evaluation; "": as the status says.
    """
    evaluation = replace(status.eval, confirming="")
    why = unevaluated or status.unevaluated
    return replace(status, exit_reason=reason, unevaluated=why, eval=evaluation)


def unfinished_evaluation(how: str, *, confirming: bool) -> str:
    """Return the sentence about what the end of a run did not wait for.

    Args:
        how: `STOPPED`, or what `late_end` and `given_up_at` return.
        confirming: it is the fresh episodes of an evaluation at the target.
    """
    of = "confirmation of an evaluation at the target" if confirming else "last evaluation"
    return f"the {of} {how}: {_PLAY_LAST}"


STOPPED = "was stopped"
"""How an evaluation ended that the user did not wait for."""


def late_end(timeout_s: float) -> str:
    """Return how an evaluation ended that the end of the run no longer waits for."""
    return f"did not end within evaluation.end_timeout_s = {timeout_s:g} s"


def given_up_at(max_seconds: float) -> str:
    """Return how an evaluation ended when the time of the run was over."""
    return f"was given up at stop.max_seconds = {max_seconds:g} s"


def missing_evaluation(*, by_managers: bool = False, cause: str = "") -> str:
    """Return the sentence about a last model that no evaluator whose result counts has played.

    Args:
        cause: the error of the learner's own evaluator, or what managers say; "": none is known.
    """
    if by_managers:
        why = f" ({cause})" if cause else ""
        return (
            f"no manager that counts has evaluated the last model{why}: {_PLAY_LAST}. Managers "
            "evaluate in environments beside those of their actors: where there is no second one, "
            "learner.eval_interval=0 leaves evaluations out"
        )
    if cause:
        return f"the last evaluation failed ({cause}): {_PLAY_LAST}"
    return f"the last evaluation failed, or does not count: {_PLAY_LAST}"


_PLAY_LAST = "`vedette eval RUN --checkpoint latest` plays the last model"


def is_evaluated(reason: str) -> bool:
    """Return True if the last model of a run that ended so is evaluated."""
    return reason not in ("interrupted", "target_return")


def find_exit_reason(
    stop: StopConfig, opt_steps: int, env_steps: int, seconds: float, reached_return: float | None
) -> str:
    """Return the `exit_reason` of the status, "" while the run continues.

    Args:
        stop: the conditions; 0 switches one off.
        seconds: since the learner's start.
        reached_return: mean return that counts for the target; None before there is one.
    """
    target = stop.target_return
    if target is not None and reached_return is not None and reached_return >= target:
        return "target_return"
    if stop.max_opts and opt_steps >= stop.max_opts:
        return "max_opts"
    if stop.max_env_steps and env_steps >= stop.max_env_steps:
        return "max_env_steps"
    if stop.max_seconds and seconds >= stop.max_seconds:
        return "max_seconds"
    return ""


def is_over(summary: Status, stop: StopConfig) -> bool:
    """Return True if a run has nothing more to do under these stop conditions.

    One that ended at its target before there were confirmations has not.
    """
    if summary.exit_reason not in EXIT_REASONS:
        return False
    return _is_met(with_reached_return(summary), stop)


def with_reached_return(summary: Status) -> Status:
    """Return the status with the return that ended it at its target: releases before 0.3 took the
    best evaluation."""
    if summary.exit_reason != "target_return" or summary.eval.reached_return_mean is not None:
        return summary
    best = replace(summary.eval, reached_return_mean=summary.eval.best_return_mean)
    return replace(summary, eval=best)


def _is_met(summary: Status, stop: StopConfig) -> bool:
    """Return True if the condition of its exit reason is met."""
    reason = EXIT_REASONS[summary.exit_reason]
    limit = getattr(stop, summary.exit_reason, None)
    now = reason.now(summary)
    if limit is None or now is None or (reason.unit and limit <= 0):
        return False
    return bool(now >= limit)


def reached_condition(summary: Status, stop: StopConfig) -> str:
    """Return the stop condition at which a start on this status would end at once; "" for none.

    `stop.max_seconds` counts from each start.
    """
    names = [name for name in EXIT_REASONS if name != "max_seconds"]
    summary = with_reached_return(summary)
    reached = (name for name in names if _is_met(replace(summary, exit_reason=name), stop))
    return next(reached, "")


def stop_progress(status: Status) -> list[tuple[str, float, float]]:
    """List ``(unit, now, goal)`` of every stop condition that counts and is on."""
    rows = []
    for name, reason in EXIT_REASONS.items():
        now = reason.now(status)
        goal = getattr(status.stop, name, None)
        if reason.unit and goal and now is not None:
            rows.append((reason.unit, float(now), float(goal)))
    return rows


def elapsed_seconds(status: Status) -> float | None:
    """Return the seconds since the learner's start, or of its training; None if unknown."""
    return status.time.training_s if status.seconds is None else status.seconds


def trained_seconds(status: Status) -> float | None:
    """Return the seconds of training of all starts together; None if unknown.

    A release before 0.4 knows those of the last start alone.
    """
    return elapsed_seconds(status) if status.run_seconds is None else status.run_seconds
