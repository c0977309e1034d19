"""Runs the queue of learning runs, or writes the tables and pictures of their results.

`scripts/curves` starts it. Environment steps and returns are comparable under any load;
seconds only where nothing else runs.
"""

import argparse
import signal
import sys
from collections.abc import Callable
from dataclasses import replace

import tomli_w
from curves_data import DATA, PLACE, drop_runs
from curves_queue import Queue, only_queue, run_queue
from curves_studies import Run, Study, StudyError, read_studies, resolve

LIST = PLACE / "curves.toml"


def chosen(names: list[str]) -> list[Study]:
    """The studies of these names, `STUDY` or `STUDY:LABEL`; all for none.

    Raises:
        StudyError: one is not listed.
    """
    studies = read_studies(LIST)
    listed = {f"{study.name}:{label.name}" for study in studies for label in study.labels}
    if unknown := set(names) - listed - {study.name for study in studies}:
        known = ", ".join(study.name for study in studies)
        raise StudyError(f"no study {', '.join(sorted(unknown))} in {LIST.name}; there are {known}")
    return [only for study in studies if (only := _only(study, names)).labels or not names]


def _only(study: Study, names: list[str]) -> Study:
    """The study with the labels that were named."""
    if not names or study.name in names:
        return study
    named = (label for label in study.labels if f"{study.name}:{label.name}" in names)
    return replace(study, labels=tuple(named))


def make_queue(names: list[str]) -> Queue:
    return Queue(chosen(names))


def find_run(study: str, task: str, label: str, seed: int | None = None) -> Run:
    """A run of a label on a task, of its first seed for None.

    Raises:
        StudyError: there is none.
    """
    runs = [
        run for run in chosen([study])[0].runs() if (run.task.name, run.label.name) == (task, label)
    ]
    if not runs:
        raise StudyError(f"{study} has no run of {label} on {task}")
    for run in runs:
        if seed in (None, run.seed):
            return run
    seeds = ", ".join(str(run.seed) for run in runs)
    raise StudyError(f"{study}: {label} on {task} has no seed {seed}; it has {seeds}")


def show_settings(run: Run) -> None:
    """Print a run's settings one below the other, so that two versions can be compared."""
    from vedette.reports.configurations import flatten

    for name, value in sorted(flatten(run.settings)):
        print(f"{name} = {value}")
    print(f"fingerprint {run.fingerprint}")


def run(args: argparse.Namespace) -> int:
    queue = make_queue(args.studies)
    # SIGTERM leaves as Ctrl-C does: the run under way is killed, and begun again next time.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with only_queue():
            run_queue(queue, commit=args.commit, hours=args.hours, most=args.most)
    except KeyboardInterrupt:
        print("stopped; the run under way will begin again", file=sys.stderr)
    print(*queue.summary(), sep="\n")
    return 1 if queue.failed else 0


def draw(args: argparse.Namespace) -> int:
    from curves_tables import write_page

    studies = chosen([])
    print(write_page(studies))
    if args.verb == "draw":
        import curves_draw

        curves_draw.draw_all(studies)
    return 0


def left(args: argparse.Namespace) -> int:
    print(*make_queue(args.studies).summary(), sep="\n")
    return 0


def settings(args: argparse.Namespace) -> int:
    show_settings(find_run(args.study, args.task, args.label))
    return 0


def config(args: argparse.Namespace) -> int:
    run = find_run(args.study, args.task, args.label, args.seed)
    if run.peer:
        raise StudyError(
            f"{run} is another program's: `scripts/curves settings` prints its settings"
        )
    mode = "" if run.label.networked else " --in-process"
    print(f"# {run}: vedette run THIS-FILE{mode}, in this checkout")
    print(tomli_w.dumps(resolve(run)), end="")
    return 0


def drop(args: argparse.Namespace) -> int:
    count = drop_runs(DATA / args.study, args.task, args.label)
    print(f"{args.study} {args.task} {args.label}: {count} seeds removed")
    return 0 if count else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    for verb, function in {"run": run, "left": left, "table": draw, "draw": draw}.items():
        added = verbs.add_parser(verb)
        added.set_defaults(function=function)
        if verb in ("run", "left"):
            added.add_argument("studies", nargs="*", metavar="STUDY[:LABEL]", help="default: all")
        if verb == "run":
            added.add_argument("--commit", action="store_true", help="commit each result")
            added.add_argument("--hours", type=float, default=0.0, help="begin none after so many")
            added.add_argument("--most", type=int, default=0, help="so many runs and no more")
    for verb, function in {"settings": settings, "config": config, "drop": drop}.items():
        added = verbs.add_parser(verb)
        added.set_defaults(function=function)
        for name in ("study", "task", "label"):
            added.add_argument(name)
        if verb == "config":
            added.add_argument("--seed", type=int, help="default: the label's first")
    args = parser.parse_args()
    try:
        chosen: Callable[[argparse.Namespace], int] = args.function
        return chosen(args)
    except StudyError as error:
        print(f"curves: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
