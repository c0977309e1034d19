"""Plays the model of the outbox: schedules from seeds, or each rule taken out in turn."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable
from dataclasses import fields, replace
from itertools import islice
from statistics import median

from outbox_rules import ALL, Rules  # beside this file
from outbox_world import World, play

_SEEDS_MAX = 8000  # of a search for a rule that is taken out
_SEARCHES = 3


def rule_names() -> list[str]:
    """Return the names of the rules."""
    return [field.name for field in fields(Rules)]


def without(rule: str) -> Rules:
    """Return the rules without one of them."""
    return replace(ALL, **{rule: False})


def find_broken(seeds: Iterable[int], rules: Rules = ALL) -> tuple[int, str]:
    """Play seeds until a promise is broken. Return how many it took, and what broke; 0 if none."""
    for played, seed in enumerate(seeds, start=1):
        if broken := play(seed, rules):
            return played, broken
    return 0, ""


def _play_seeds(first: int, seeds: int) -> int:
    began = time.process_time()
    steps = rows = failed = 0
    faults: dict[str, int] = {}
    for seed in range(first, first + seeds):
        world = World(seed)
        try:
            world.run()
        except AssertionError as error:
            failed += 1
            print(f"seed {seed}, step {world.now}: {error}")
        steps += world.now
        rows += world.rows_stored
        for kind in world.faults:
            faults[kind] = faults.get(kind, 0) + 1
    print(f"{seeds} schedules, {steps} steps, {rows} rows stored, {failed} failed")
    print(", ".join(f"{count} {kind}" for kind, count in sorted(faults.items())))
    print(f"{time.process_time() - began:.0f} s of processor time")
    return 1 if failed else 0


def _search_all() -> int:
    """Search each rule taken out; exit status 1 if one is not missed."""
    survivors = 0
    for rule in rule_names():
        rules = without(rule)
        needed = []
        broken = ""
        for search in range(_SEARCHES):
            first = 1_000_000 * (search + 1)
            played, found = find_broken(range(first, first + _SEEDS_MAX), rules)
            needed.append(played)
            broken = broken or found
        survivors += 0 in needed
        print(f"{median(needed):6g} ({', '.join(map(str, needed))}) {rule}: {broken}", flush=True)
    return 1 if survivors else 0


def _trace(seed: int, rules: Rules) -> int:
    world = World(seed, rules)
    broken = ""
    try:
        world.run()
    except AssertionError as error:
        broken = f"{world.now}: {error}"
    print("\n".join(islice(world.story, 1000)))
    print(broken or "every promise is kept")
    return 1 if broken else 0


def main() -> int:
    """Command line; exit status 1 if a promise is broken, or a rule is not missed."""
    parser = argparse.ArgumentParser(prog="scripts/simulate --outbox", description=__doc__)
    parser.add_argument("--first", type=int, default=0, metavar="SEED", help="the first of them")
    parser.add_argument("--seeds", type=int, default=1000, metavar="N", help="how many")
    parser.add_argument("--seed", type=int, metavar="SEED", help="this one alone, with its story")
    parser.add_argument("--without", metavar="RULE", help="with --seed: this rule is taken out")
    parser.add_argument("--mutants", action="store_true", help="search each rule taken out")
    options = parser.parse_args()
    if options.mutants:
        return _search_all()
    if options.seed is not None:
        return _trace(options.seed, without(options.without) if options.without else ALL)
    return _play_seeds(options.first, options.seeds)


if __name__ == "__main__":
    sys.exit(main())
