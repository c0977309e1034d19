"""What one seed draws: the fleet, its rates, its faults and its hostile peers."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from faulty_network import Cut, NetworkFaults, Seconds  # beside this file

from vedette_rl.replay.limiter import Limiter
from vedette_services.config.parts import ActorsConfig

ROW_BYTES = 16

GATEWAY = ""
"""The name of the learner's machine in a list of faults."""

FaultKind = Literal["cut", "pause", "kill", "restart", "power", "trainer", "stall"]
"""Of a manager: a cut connection, a stopped process, a kill. Of the learner: a pause, a kill of
the gateway, a restart of everything, a loss of power, a kill of the trainer, and a trainer that
stands still."""

COPY_MARK = "+"
"""`m0+2` is another machine with the id `m0`."""

HostileKind = Literal[
    "garbage", "foreign", "replay", "claims", "greedy", "reports", "mutants", "copy", "liar"
]
HOSTILE_KINDS: tuple[HostileKind, ...] = (
    *("garbage", "foreign", "replay", "claims", "greedy", "reports", "mutants"),
)
"""Those that are drawn often: the others are drawn by `_add_rare`."""

_GAP_MOST_S = 20.0  # an actor that finds no room tries again only after its gap

_CUTS: tuple[Cut, ...] = ("seen", "silent", "up", "down")


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that befalls one machine at some time, for some time."""

    at: float
    kind: FaultKind
    machine: str
    seconds: float
    cut: Cut = "seen"


@dataclass(frozen=True, slots=True)
class QueueFleet:
    """A replay that is a queue.

    Args:
        block: rows of a block.
        capacity: rows of the ring.
        ahead: rows that may wait beyond the next block.
        write_s: the time that a checkpoint takes to be on the disk.
    """

    block: int
    capacity: int
    ahead: int
    write_s: Seconds


@dataclass(frozen=True, slots=True)
class Scenario:
    """All that a seed draws.

    Args:
        managers: their number.
        fault_s: faults happen from 0 to this time.
        actors: the run's settings.
        batch_gap_s: from one batch of an actor to its next.
        messages: faults of single messages.
        faults: faults of machines, in order; all are over by `healed_s`.
        slow_disk: share of the commits that take time, and how long.
        sync_s: from one sync of the replay to the next.
        skew: most that a clock runs too fast or too slow, as a share.
        tick_s, turn_s: of managers, and of the gateway.
        model_s: from one model to the next.
        hostile: what each hostile peer does, and how long it waits between two acts.
        copies: further machines with an honest manager's id and key, and when they start.
        unsound: share of the batches that are invalid.
        evaluates: share of the evaluations that stand still, while there are faults; None: none
            is played.
        queue: the learner draws each row once, in order; None: it draws as the limiter says.
        keyed: connections have keys, and ids are bound to them.
        max_managers: places of the ledger; with keys, perhaps just those that each is promised.
        hostile_stays: hostile peers go on when the faults are over.
        ends: the managers leave by themselves, or the learner ends the run.
    """

    seed: int
    managers: int
    fault_s: float
    actors: ActorsConfig
    batch_gap_s: Seconds
    messages: NetworkFaults
    faults: tuple[Fault, ...]
    slow_disk: tuple[float, Seconds]
    sync_s: float
    skew: float
    tick_s: float
    turn_s: float
    model_s: float
    limiter: Limiter
    hostile: tuple[tuple[HostileKind, float], ...]
    keyed: bool
    max_managers: int
    hostile_stays: bool
    ends: Literal["leave", "stop"]
    copies: tuple[tuple[str, float], ...] = ()
    unsound: float = 0.0
    evaluates: float | None = None
    queue: QueueFleet | None = None

    @property
    def trusted(self) -> frozenset[str] | None:
        """The keys whose managers' evaluations count; None: all do, as there are no strangers."""
        if self.keyed:
            return frozenset(key_of(name) for name in self.names)
        return frozenset() if self.hostile else None

    @property
    def healed_s(self) -> float:
        """When the last fault is over."""
        late_s = self.fault_s + self.messages.late_s[1] * bool(self.messages.reorder)
        starts_s = [at for _, at in self.copies]
        return max([late_s, *starts_s, *(fault.at + fault.seconds for fault in self.faults)])

    @property
    def keys(self) -> frozenset[str]:
        """The names of the admitted keys, one for each peer."""
        peers = [*self.names, *(f"h{number}" for number in range(len(self.hostile)))]
        return frozenset(key_of(name) for name in peers)

    @property
    def names(self) -> list[str]:
        """The honest managers' ids."""
        return [f"m{number}" for number in range(self.managers)]

    @property
    def is_full(self) -> bool:
        """True if a manager may come when all places are taken, by those that start again, too."""
        return self.max_managers < 1.1 * self.managers

    @property
    def shared_ids(self) -> frozenset[str]:
        """The ids that two machines use."""
        copied = {"m0" for kind, _ in self.hostile if kind == "copy"}
        return frozenset({id_of(name) for name, _ in self.copies} | copied)


def id_of(name: str) -> str:
    """Return the manager id that a machine uses."""
    return name.partition(COPY_MARK)[0]


def key_of(name: str) -> str:
    """Return the name of a peer's key; a copy has a copied key."""
    return f"key of {id_of(name)}"


def draw_scenario(seed: int, managers: int | None = None, fault_s: float | None = None) -> Scenario:
    """Draw a scenario.

    Args:
        managers: how many; None: drawn, mostly a few.
        fault_s: how long faults happen; None: drawn.
    """
    rng = random.Random(seed)
    count = _draw_size(rng) if managers is None else managers
    lasts_s = rng.uniform(4.0, 20.0) if fault_s is None else fault_s
    has = _Families(rng)
    slow = max(1.0, count / 10)  # large fleets make fewer batches each
    gap_s = min(_GAP_MOST_S, slow * math.exp(rng.uniform(math.log(0.04), math.log(0.8))))
    names = [f"m{number}" for number in range(count)]
    hostile = tuple(_draw_hostile(rng)) if has("hostile peers") else ()
    keyed = rng.random() < 0.6
    tight = keyed and count < 100 and has("few places")
    drawn = Scenario(
        seed=seed,
        managers=count,
        fault_s=lasts_s,
        actors=_draw_actors(rng, count),
        batch_gap_s=(gap_s / 4, gap_s),
        messages=_draw_messages(rng, has, lasts_s),
        faults=tuple(_draw_faults(rng, has, names, lasts_s)),
        slow_disk=(0.1, (0.005, rng.choice((0.05, 0.5)))) if has("slow disk") else (0.0, (0, 0)),
        sync_s=rng.uniform(0.2, 3.0),
        skew=rng.choice((0.0, 1e-4, 0.05)),
        tick_s=rng.choice((0.05, 0.2, 0.5)) if count < 100 else 0.5,
        turn_s=rng.choice((0.01, 0.02, 0.08)) if count < 100 else 0.02,
        model_s=rng.uniform(0.5, 5.0) if count < 100 else 20.0,
        limiter=_draw_limiter(rng, has, count),
        hostile=hostile,
        keyed=keyed,
        max_managers=2 * (count + len(hostile)) if tight else 2048,
        hostile_stays=rng.random() < 0.3,
        ends=rng.choice(("leave", "stop")),
    )
    drawn = _add_rare(drawn, random.Random(f"rare {seed}"))
    drawn = _add_evaluations(drawn, random.Random(f"evaluations {seed}"))
    return _add_queue(drawn, random.Random(f"queue {seed}"))


def _add_queue(drawn: Scenario, rng: random.Random) -> Scenario:
    """Have a fifth of the fleets without a limiter play for a queue, often of the least size."""
    if drawn.limiter.samples_per_insert or rng.random() > 0.2:
        return drawn
    rows = drawn.actors.n_buffer
    block = rng.choice((1, 3, 10)) * rows + rng.choice((0, rows // 2))
    least = block + rows - 1
    fleet = QueueFleet(
        block=block,
        capacity=least * rng.choice((1, 1, 3)),
        ahead=rng.choice((0, 0, block)),
        write_s=(0.01, rng.choice((0.05, 1.0))),
    )
    return replace(drawn, queue=fleet)


def _add_evaluations(drawn: Scenario, rng: random.Random) -> Scenario:
    """Have a third of the fleets play evaluations, and peers lie about them."""
    if rng.random() > 0.35:
        return drawn
    hostile = drawn.hostile
    if drawn.max_managers == 2048 and rng.random() < 0.4:
        hostile = (*hostile, ("liar", rng.uniform(0.1, 1.0)))
    return replace(drawn, evaluates=rng.choice((0.0, 0.0, 0.3)), hostile=hostile)


def _add_rare(drawn: Scenario, rng: random.Random) -> Scenario:
    """Add what is in few scenarios. Its draws are its own, so that those of others do not move."""
    lasts_s = drawn.fault_s
    faults = list(drawn.faults)
    copies = drawn.copies
    hostile = drawn.hostile
    places = drawn.max_managers
    if drawn.limiter.samples_per_insert and rng.random() < 0.2:  # longer than waits go unlogged
        faults.append(Fault(rng.uniform(0.0, lasts_s), "stall", GATEWAY, rng.uniform(13.0, 16.0)))
    if rng.random() < 0.06:  # the same for the first model
        cut = Fault(0.0, "cut", rng.choice(drawn.names), rng.uniform(20.0, 30.0), "models")
        faults.append(cut)
    if rng.random() < 0.1:
        copies = ((f"{rng.choice(drawn.names)}{COPY_MARK}2", rng.uniform(0.0, lasts_s)),)
    if rng.random() < 0.05:
        hostile = (*hostile, ("copy", rng.uniform(0.1, 1.0)))
    if not (drawn.keyed or hostile or copies) and rng.random() < 0.5:
        places = drawn.managers
        for _ in range(3):  # starts again before anybody else has been heard
            at = rng.uniform(0.0, lasts_s)
            name = rng.choice(drawn.names)
            faults.append(Fault(at, "kill", name, 0.05))
    return replace(
        drawn,
        faults=tuple(sorted(faults, key=_order)),
        copies=copies,
        hostile=hostile,
        max_managers=places,
        unsound=rng.choice((0.01, 0.2)) if rng.random() < 0.15 else 0.0,
    )


class _Families:
    """Each family of faults is in about half the scenarios, so that each is seen alone too."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def __call__(self, family: str) -> bool:
        return self._rng.random() < 0.45


def _draw_size(rng: random.Random) -> int:
    most = rng.choices((6, 40, 200), (95, 4.8, 0.2))[0]
    return int(math.exp(rng.uniform(0.0, math.log(most + 1))))


def _draw_actors(rng: random.Random, count: int) -> ActorsConfig:
    rows = rng.choice((1, 4, 16))
    return ActorsConfig(
        count=rng.randint(1, 3) if count < 100 else 1,
        n_buffer=rows,
        window_batches=rng.choice((1, 3, 8, 64, 2000)),
        window_bytes=ROW_BYTES * rows * rng.choice((1, 10, 1000)),
        on_full=rng.choices(("block", "drop_oldest"), (3, 1))[0],
    )


def _draw_messages(rng: random.Random, has: _Families, lasts_s: float) -> NetworkFaults:
    slow = rng.choice((0.001, 0.02, 0.2))
    return NetworkFaults(
        drop=rng.choice((0.01, 0.1)) if has("drops") else 0.0,
        repeat=rng.choice((0.01, 0.2)) if has("repeats") else 0.0,
        reorder=rng.choice((0.01, 0.2)) if has("reordering") else 0.0,
        delay_s=(slow / 10, slow),
        late_s=(0.0, rng.choice((0.1, 2.0, 8.0))),
        until_s=lasts_s,
    )


def _draw_limiter(rng: random.Random, has: _Families, count: int) -> Limiter:
    if not has("limiter"):
        return Limiter(0.0, min_size=1, error_buffer=0.0, batch_size=1)
    rate = rng.choice((0.5, 4.0))
    batch = 32
    return Limiter(rate, min_size=64, error_buffer=2.0 * batch + rate * 32, batch_size=batch)


def _draw_hostile(rng: random.Random) -> Iterator[tuple[HostileKind, float]]:
    for _ in range(rng.randint(1, 3)):
        yield rng.choice(HOSTILE_KINDS), math.exp(rng.uniform(math.log(0.03), 0.0))


def _draw_faults(
    rng: random.Random, has: _Families, names: list[str], lasts_s: float
) -> list[Fault]:
    found: list[Fault] = []

    def add(machine: str, kind: FaultKind, every_s: float, most_s: float) -> None:
        at = rng.expovariate(1 / every_s)
        while at < lasts_s:
            seconds = math.exp(rng.uniform(math.log(0.05), math.log(most_s)))
            found.append(Fault(at, kind, machine, seconds, rng.choice(_CUTS)))
            at += rng.expovariate(1 / every_s)

    of_managers: tuple[FaultKind, ...] = ("cut", "pause", "kill")
    of_learner: tuple[FaultKind, ...] = ("pause", "kill", "restart", "power", "trainer", "stall")
    for kind in of_managers:
        if has(kind):
            every_s = rng.choice((8.0, 40.0))
            for name in names:
                add(name, kind, every_s, 10.0)
    for kind in of_learner:
        if has(kind):
            add(GATEWAY, kind, rng.choice((4.0, 12.0)), 5.0)
    return sorted(found, key=_order)


def _order(fault: Fault) -> tuple[float, str, str]:
    return fault.at, fault.machine, fault.kind
