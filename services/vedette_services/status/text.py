"""A status as text: the same rows for the live view, `status` and the summary.

Any part of a status may be unknown, for example before a run begins.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from vedette_rl.number_format import (
    format_bytes,
    format_clock,
    format_number,
    format_rate,
    format_short,
)
from vedette_services.status.schema import numbers
from vedette_services.status.status import Eval, ManagerStatus, SourceStatus, Status
from vedette_services.status.stop_conditions import describe_exit, trained_seconds


def present_managers(status: Status) -> Sequence[ManagerStatus]:
    """Return the managers that are not gone."""
    return [manager for manager in status.managers if manager.is_present]


def wait_reason(status: Status) -> str:
    """Return why the learner or its actors wait; "" if neither waits."""
    return status.waits or status.limiter.reason


def actor_errors(status: Status, *, left: bool = True) -> list[str]:
    """List two managers with one id, then the last errors of actors, the most frequent first.

    Equal errors are one line.

    Args:
        left: include managers that have left.
    """
    first: dict[str, str] = {}
    counts: Counter[str] = Counter()
    for manager in status.managers:
        for actor in manager.actors if left or not manager.left else ():
            if actor.error:
                first.setdefault(actor.error, f"{manager.id or '-'}/{actor.id}")
                counts[actor.error] += 1
    rivals = [status.rivals] if status.rivals else []
    return rivals + [
        f"{first[error]}{f' and {count - 1} more' if count > 1 else ''}: {error}"
        for error, count in counts.most_common()
    ]


def failures_text(status: Status) -> str:
    """Return how often environments and actors have failed; "" if none has."""
    of_envs = sum(manager.failures for manager in status.managers)
    of_actors = sum(actor.restarts for manager in status.managers for actor in manager.actors)
    texts = [
        f"{format_number(of_envs)} of environments, made again" if of_envs else "",
        f"{format_number(of_actors)} of actors, started again" if of_actors else "",
    ]
    return "; ".join(filter(None, texts))


def status_line(status: Status) -> str:
    """Return the status in one line; before the run begins, what it waits for."""
    waits = wait_reason(status)
    stop = status.stop
    if not status.run_id and waits:
        return waits
    target = "" if stop.target_return is None else f" of {stop.target_return:g}"
    parts = [
        f"opts {_of(status.opt_steps, stop.max_opts)}",
        f"env steps {_of(status.env_steps, stop.max_env_steps)}",
        f"return {format_number(status.rollout.return_mean, 1)}",
        f"best eval {format_number(status.eval.best_return_mean, 1)}{target}",
        format_rate(status.rates.samples_per_sec).replace("/s", " samples/s"),
        format_rate(status.rates.opt_steps_per_sec).replace("/s", " opts/s"),
        f"lag {format_number(status.lag.mean)}",
        f"managers {len(present_managers(status))}",
    ]
    errors = actor_errors(status, left=False)
    parts += [waits] if waits else []  # a sentence that says who waits
    parts += [f"error: {errors[0]}"] if errors else []
    return " | ".join(parts)


def _of(now: float | None, goal: float | None) -> str:
    return format_number(now) + (f" of {format_number(goal)}" if goal else "")


def status_rows(status: Status, *, short: bool = False) -> list[tuple[str, str]]:
    """Return the status as labelled lines: a sentence each, then the numbers that are declared for
    the row and are not zero.

    Args:
        short: large numbers in seven characters.
    """
    number = format_short if short else format_number
    rows = {
        "steps": _steps(status, short=short),
        "returns": _returns(status),
        "samples": f"{number(status.samples.produced)} produced, "
        f"{number(status.samples.inserted)} inserted",
        "replay": _replay(status, short=short),
        "lag": _lag(status, short=short),
    }
    if status.sources:
        rows["sources"] = ", ".join(source_text(source) for source in status.sources)
    if failures := failures_text(status):
        rows["failures"] = failures
    if saved := status.checkpoint.opt_steps:
        age_s = None if status.exit_reason else status.checkpoint.age_s
        ago = "" if age_s is None else f", {format_clock(age_s)} ago"
        rows["saved"] = f"{number(saved)} optimization steps{ago}"
    if status.snapshot.directory:
        rows["snapshot"] = snapshot_text(status, number)
    for path, declared, value in numbers(status):
        if declared.row and value:
            before = f"{rows[declared.row]}, " if declared.row in rows else ""
            called = declared.called(path[-1])
            if path == ("samples", "rejected"):
                called += _of_them_late(status, number)
            rows[declared.row] = f"{before}{number(value)} {called}"
    return list(rows.items())


def snapshot_text(status: Status, number: Callable[[float], str] = format_number) -> str:
    """Describe the snapshot: its directory, its newest generation, and what that lacks.

    Args:
        number: writes large numbers.
    """
    snapshot = status.snapshot
    texts = [f"in {snapshot.directory}"]
    if snapshot.generation is None:
        texts.append("no generation of this start yet")
    else:
        age_s = None if status.exit_reason else snapshot.age_s
        ago = "" if age_s is None else f" {format_clock(age_s)} ago"
        steps = snapshot.opt_steps
        saved = "" if steps is None else f" and optimization step {number(steps)}"
        texts.append(f"generation {snapshot.generation}{ago}")
        texts.append(f"up to sample {number(snapshot.rows or 0)}{saved}")
    if snapshot.rows_behind:
        texts.append(f"{number(snapshot.rows_behind)} samples not in it")
    if snapshot.unsafe_batches:
        texts.append(f"{number(snapshot.unsafe_batches)} batches of outboxes wait for it")
    if snapshot.failing:
        texts.append(f"not written: {snapshot.failing}")
    return ", ".join(texts)


def _of_them_late(status: Status, number: Callable[[float], str]) -> str:
    """Say how many of the rejected samples came after the last step of the run."""
    late = status.refused.late
    if not late:
        return ""
    count = "" if late == status.samples.rejected else f"{number(late)} "
    return f" ({count}after stop.max_env_steps)"


@dataclass(frozen=True, slots=True)
class StepRates:
    """Steps per second: of the last seconds, or of a run that has ended the mean over its training.

    Args:
        env, opt: environment steps and optimization steps; None where they are not known.
        is_mean: they are means over the training.
    """

    env: float | None
    opt: float | None
    is_mean: bool


def step_rates(status: Status) -> StepRates:
    """Return the rates that every page shows."""
    seconds = trained_seconds(status)
    if status.exit_reason and seconds:
        means = [
            None if steps is None else steps / seconds
            for steps in (status.env_steps, status.opt_steps)
        ]
        return StepRates(means[0], means[1], is_mean=True)
    inserted = status.samples.inserted
    per_sec = status.rates.samples_per_sec
    if per_sec and inserted and status.env_steps:  # hindsight stores several samples of each step
        per_sec *= status.env_steps / inserted
    return StepRates(per_sec, status.rates.opt_steps_per_sec, is_mean=False)


def _steps(status: Status, *, short: bool) -> str:
    number = format_short if short else format_number
    rates = step_rates(status)
    mean = "mean " if rates.is_mean else ""
    each = f", {format_number(status.rates.samples_per_opt_step, 1)} samples per step"
    return (
        f"{number(status.env_steps)} environment ({mean}{format_rate(rates.env, short=short)}), "
        f"{number(status.opt_steps)} optimization "
        f"({mean}{format_rate(rates.opt, short=short)}){each if status.opt_steps else ''}"
    )


def _returns(status: Status) -> str:
    evaluation = status.eval
    actors = status.rollout.return_mean
    at = (
        ""
        if evaluation.env_steps is None
        else f" at {format_number(evaluation.env_steps)} env steps"
    )
    texts = [] if actors is None else [f"actors {format_number(actors, 1)}"]
    by = f" by {evaluation.played_by}" if evaluation.played_by else ""
    if evaluation.return_mean is not None or not status.unevaluated:
        is_best = evaluation.version == evaluation.best_version  # whose text has them
        fresh = "" if is_best else _fresh(evaluation)
        texts.append(f"{_evaluation(evaluation)}{fresh}{at}{by}")
    texts += [
        *_best(evaluation, status.stop.target_return),
        *_shown(evaluation),
        "" if status.exit_reason else evaluation.confirming,
        status.evaluating,
        status.unevaluated,
    ]
    return ", ".join(filter(None, texts))


def _shown(evaluation: Eval) -> list[str]:
    """Describe the last evaluation by a manager that is not trusted, if there is one."""
    if evaluation.shown_return_mean is None:
        return []
    mean = format_number(evaluation.shown_return_mean, 1)
    return [f"{mean} by {evaluation.shown_by}, which evaluation.trusted does not name"]


def _evaluation(evaluation: Eval) -> str:
    """Describe the last evaluation."""
    if evaluation.return_mean is None:
        known = evaluation.best_return_mean is not None  # of an earlier start
        return "no evaluation since the start" if known else "no evaluation yet"
    mean, std = format_number(evaluation.return_mean, 1), format_number(evaluation.return_std, 1)
    return f"evaluation {mean} ± {std}"


def _fresh(evaluation: Eval) -> str:
    """Say what fresh episodes of the last evaluation's model have brought, if any were played."""
    if not evaluation.fresh_episodes:
        return ""
    mean = format_number(evaluation.fresh_return_mean, 1)
    return f" ({mean} on {format_number(evaluation.fresh_episodes)} fresh episodes)"


def _best(evaluation: Eval, target: float | None, *, short: bool = False) -> list[str]:
    """Describe the best evaluation, if there is one, and on which evidence it is that."""
    best = evaluation.best_return_mean
    if best is None:
        return []
    at = "" if short else f" at version {format_number(evaluation.best_version)}"
    if evaluation.reached_episodes and evaluation.reached_version == evaluation.best_version:
        at += f", confirmed on {format_number(evaluation.reached_episodes)} fresh episodes"
    elif evaluation.fresh_episodes and evaluation.version == evaluation.best_version:
        at += f", on {format_number(evaluation.fresh_episodes)} fresh episodes"
    elif _is_unconfirmed(evaluation, target):
        at += ", not confirmed on fresh episodes"
    return [f"best {format_number(best, 1)}{at}"]


def _is_unconfirmed(evaluation: Eval, target: float | None) -> bool:
    """Return True if the best evaluation is at the target, and nothing says that it is no luck."""
    best = evaluation.best_return_mean
    at_target = target is not None and best is not None and best >= target
    return at_target and evaluation.reached_version != evaluation.best_version


def return_texts(status: Status, *, short: bool = False) -> tuple[str, str]:
    """Return the last evaluation, and the best where no target says it; the actors' mean return.

    Args:
        short: without the version of the best.
    """
    evaluation = status.eval
    evaluated = [f"{_evaluation(evaluation)}{'' if short else _fresh(evaluation)}"]
    if status.stop.target_return is None:
        evaluated += _best(evaluation, None, short=short)
    return ", ".join(evaluated), f"actors     {format_number(status.rollout.return_mean, 1)}"


def target_text(status: Status, *, short: bool = False) -> str:
    """Describe how far the best evaluation is from the target; "" without either."""
    target = status.stop.target_return
    best = status.eval.best_return_mean
    if target is None or best is None:
        return ""
    away = f", {format_number(target - best, 1)} to go" if best < target else ""
    if _is_unconfirmed(status.eval, target):
        away = ", not confirmed yet"
    return f"best{'' if short else ' evaluation'} {format_number(best, 1)} of {target:g}{away}"


def evaluation_line(status: Status) -> str:
    """Return the last evaluation in one line."""
    evaluation = status.eval
    best = ", best so far" if evaluation.version == evaluation.best_version else ""
    if evaluation.confirming:
        best = ", at the target: fresh episodes are played"
    cut = (
        f", {format_number(evaluation.episodes_cut)} of them cut" if evaluation.episodes_cut else ""
    )
    episodes, version = format_number(evaluation.episodes), format_number(evaluation.version)
    if evaluation.fresh_episodes:
        mean = format_number(evaluation.fresh_return_mean, 1)
        best = f", {mean} on {format_number(evaluation.fresh_episodes)} fresh episodes{best}"
    return f"{_evaluation(evaluation)} ({episodes} episodes{cut}), version {version}{best}"


def best_line(status: Status) -> str:
    """Return the best evaluation in one line, where it is not the last, or was confirmed since."""
    evaluation = status.eval
    mean = format_number(evaluation.best_return_mean, 1)
    if evaluation.fresh_episodes and evaluation.version == evaluation.best_version:
        mean += f" on {format_number(evaluation.fresh_episodes)} fresh episodes"
    return f"evaluation {mean}, version {format_number(evaluation.best_version)}, best so far"


def _replay(status: Status, *, short: bool) -> str:
    number = format_short if short else format_number
    replay = status.replay
    size = "-" if replay.bytes is None else format_bytes(replay.bytes)
    drawn = status.limiter.samples_per_insert
    drawing = f", replay ratio {format_number(drawn, 1)}" if drawn is not None else ""
    return f"{number(replay.size)} of {number(replay.capacity)} samples ({size} reserved){drawing}"


def source_text(source: SourceStatus) -> str:
    """Describe a named source: its samples, and its share of those drawn."""
    share = "" if source.share is None else f" ({100 * source.share:.0f} % of those drawn)"
    return f"{source.name} {format_number(source.size)} samples{share}"


def _lag(status: Status, *, short: bool) -> str:
    number = format_short if short else format_number
    lag = status.lag
    return (
        f"samples {number(lag.mean)} optimization steps old (95 % below {number(lag.p95)}, "
        f"max {number(lag.max)}), models {format_number(lag.seconds_mean, 2)} s"
    )


def run_title(status: Status) -> str:
    """Return agent and environment."""
    return f"{status.agent or 'a run'} on {status.env or 'an environment'}"


def run_headline(status: Status, width: int = 100) -> str:
    """Return id and epoch of the run, and how long it was trained.

    Args:
        width: of the screen, in columns.
    """
    since = trained_seconds(status)
    digits = 16 if width >= 100 else 6
    word = "trained " if width >= 80 else ""
    lasted = f", {word}{format_clock(since)}" if since is not None else ""
    return f"run {status.run_id[:digits] or '-'}, epoch {status.epoch or '-'}{lasted}"


def path_argument(path: str) -> str:
    """Return a path as it is typed in a shell, also one that looks like an option."""
    return shlex.quote(f"./{path}" if path.startswith("-") else path)


def summary_lines(summary: Status, run: str) -> list[str]:
    """Return the lines at the end of a run: why it ended, its status, and what to do next."""
    if summary == Status() or summary.phase == "starting":
        why = "stopped before the training began: there is nothing new to save"
        return [why, f"  run      {run}"]
    since = trained_seconds(summary)
    after = f" after {format_clock(since)} of training" if since is not None else ""
    best = summary.eval.best_version is not None
    named = path_argument(run)
    evaluate = f"vedette eval {named}   or   " if best else ""
    return [
        describe_exit(summary, after) or f"ended{after}",
        *(f"  {label:<8} {text}" for label, text in status_rows(summary)),
        *(f"  {'error':<8} {error}" for error in actor_errors(summary)[:4]),
        *([f"  rejected {summary.rejected_reason}"] if summary.rejected_reason else []),
        f"  run      {run}",
        *([f"  next     {evaluate}vedette report {named}"] if summary.opt_steps else []),
    ]


def final_report_lines(status: Status) -> list[str]:
    """Return the lines for the log at the end of a run: its averages over all starts, and the steps
    of each actor since its manager's start, comma-separated."""
    rates = step_rates(status)
    lasted = trained_seconds(status)
    actors = [
        f"{manager.id}/{actor.id}, {actor.env_steps}"
        for manager in status.managers
        for actor in manager.actors
    ]
    return [
        f"run {status.run_id} ended: {status.exit_reason}",
        "env_steps/sec, opt_steps/sec, duration",
        f"{_plain(rates.env)}, {_plain(rates.opt)}, {_plain(lasted)} s",
        *(["actor_id, env_steps", *actors] if actors else []),
    ]


def _plain(number: float | None) -> str:
    """Return a number without commas, for a line that they separate."""
    return "-" if number is None else f"{number:.1f}"
