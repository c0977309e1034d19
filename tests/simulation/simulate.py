"""Simulates fleets under faults, a seed each, until all seeds or hours are done or one fails."""

from __future__ import annotations

import argparse
import gc
import logging
import os
import sys
import time
import traceback
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import count, islice

from scenario import draw_scenario  # beside this file
from simulated_fleet import SimulatedFleet

STATES_LOG = logging.getLogger("vedette.in_memory")
_BUNCH = 8  # seeds that a process is given at once


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one seed.

    Args:
        error: what went wrong, with its last lines of traceback; "" if nothing.
        manager_s: manager-seconds simulated.
        cpu_s: processor time.
    """

    seed: int
    error: str
    manager_s: float
    cpu_s: float


def simulate(
    seed: int, managers: int | None = None, fault_s: float | None = None, *, trace: bool = False
) -> Outcome:
    """Simulate one seed, without the states' log lines."""
    began = time.process_time()
    fleet = None
    error = ""
    STATES_LOG.disabled = True
    try:
        fleet = SimulatedFleet(draw_scenario(seed, managers, fault_s), print if trace else None)
        fleet.run()
    except Exception as found:  # noqa: BLE001  # whatever it is, the daemon would have fallen
        at = f"{fleet.clock.now:.3f} s: " if fleet else ""
        lines = "".join(traceback.format_exception(found)[-3:]) if trace else ""
        error = f"{at}{type(found).__name__}: {found}\n{lines}".rstrip()
    finally:
        STATES_LOG.disabled = False
    seconds = fleet.manager_seconds if fleet else 0.0
    return Outcome(seed, error, seconds, time.process_time() - began)


def simulate_many(
    seeds: Iterator[int], options: argparse.Namespace, until_manager_s: float
) -> list[Outcome]:
    """Simulate seeds in parallel until there are no more, or so much was simulated."""
    outcomes: list[Outcome] = []
    done_s = 0.0
    began = time.monotonic()
    with ProcessPoolExecutor(options.jobs, initializer=_collect_garbage_seldom) as pool:
        while bunch := list(islice(seeds, _BUNCH * options.jobs)):
            futures = [
                pool.submit(simulate, seed, options.managers, options.seconds) for seed in bunch
            ]
            for future in futures:
                outcome = future.result()
                outcomes.append(outcome)
                done_s += outcome.manager_s
                if outcome.error:
                    print(f"seed {outcome.seed}: {outcome.error}", flush=True)
            failed = any(outcome.error for outcome in outcomes)
            late = options.minutes and time.monotonic() - began > 60 * options.minutes
            if done_s >= until_manager_s or late or (failed and not options.keep_going):
                break
    return outcomes


def _collect_garbage_seldom() -> None:
    """Save about a tenth of the time of large fleets, which are full of living objects."""
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)


def main() -> int:
    """Command line; exit status 1 if a seed failed."""
    parser = argparse.ArgumentParser(prog="scripts/simulate", description=__doc__)
    parser.add_argument("--seeds", type=int, metavar="N", help="how many (default 100)")
    parser.add_argument("--first", type=int, default=0, metavar="SEED", help="the first of them")
    parser.add_argument("--hours", type=float, metavar="H", help="manager-hours in all")
    parser.add_argument("--minutes", type=float, metavar="T", help="no new seeds after so long")
    parser.add_argument("--managers", type=int, metavar="M", help="of each fleet; else drawn")
    parser.add_argument("--seconds", type=float, metavar="S", help="of faults; else drawn")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes")
    parser.add_argument("--keep-going", action="store_true", help="also after a failure")
    parser.add_argument("--seed", type=int, metavar="SEED", help="this one alone")
    parser.add_argument("--trace", action="store_true", help="print what happens to it")
    options = parser.parse_args()
    if options.seed is not None:
        outcome = simulate(options.seed, options.managers, options.seconds, trace=options.trace)
        print(outcome.error or f"seed {outcome.seed}: every invariant holds")
        return 1 if outcome.error else 0
    seeds = count(options.first)
    if options.seeds is not None or (options.hours is None and options.minutes is None):
        seeds = islice(seeds, options.seeds or 100)
    until_s = float("inf") if options.hours is None else 3600 * options.hours
    outcomes = simulate_many(seeds, options, until_s)
    return _report(outcomes, options)


def _report(outcomes: list[Outcome], options: argparse.Namespace) -> int:
    failed = [outcome.seed for outcome in outcomes if outcome.error]
    hours = sum(outcome.manager_s for outcome in outcomes) / 3600
    cpu_s = sum(outcome.cpu_s for outcome in outcomes)
    print(
        f"{len(outcomes)} seeds, {hours:.1f} manager-hours, {cpu_s:.0f} s of processor time "
        f"({cpu_s / max(hours, 1e-9):.1f} s per manager-hour), {len(failed)} failed"
    )
    if failed:
        sizes = "".join(
            f" --{name} {value}"
            for name in ("managers", "seconds")
            if (value := getattr(options, name)) is not None
        )
        print(f"replay: scripts/simulate --seed {failed[0]}{sizes} --trace")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
