"""A fleet of the daemons' states on a faulty network, whose actors make rows with numbers."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection
from functools import partial

import numpy as np

from vedette_protocol.account import SampleAccounting
from vedette_protocol.messages import Run
from vedette_protocol.model import pack_model
from vedette_protocol.schema import Column, Schema
from vedette_rl.envs.config import EnvConfig
from vedette_rl.replay.limiter import Limiter
from vedette_rl.replay.rows import MemoryRing
from vedette_services.actors.handover import FinishedBatch
from vedette_services.actors.instructions import StartActor, StoreModel
from vedette_services.config.parts import ActorsConfig
from vedette_services.learner.gateway_state import GatewayState
from vedette_services.run.replay_layout import ring_dtype
from vedette_services.simulation.hosts import GatewayHost, ManagerHost
from vedette_services.simulation.network import (
    GATEWAY,
    FaultPlan,
    MemoryNetwork,
    TimedFault,
    VirtualClock,
)

SCHEMA = Schema((Column("number", "i8", ()),))
MODEL = Schema((Column("w", "f4", (3,)),))
ACTORS = ActorsConfig(count=2, n_buffer=4, window_batches=8)
FREE = Limiter(0.0, min_size=1, error_buffer=0.0, batch_size=1)
RUN_ID = "0123456789abcdef"


class NumberingActor:
    """Makes batches of rows that are numbered through over the whole fleet."""

    def __init__(self, fleet: SimulatedFleet, host: Host, order: StartActor) -> None:
        self._fleet, self._host, self._order = fleet, host, order
        self._plays, self._there = False, True
        self._batch: FinishedBatch | None = None

    def store(self, model: StoreModel) -> None:
        if not self._plays:
            self._plays = True
            self._play()

    def _play(self) -> None:
        """Hand the last batch over, or the next one; what has to wait is tried again."""
        if not self._there:
            return
        fleet, host = self._fleet, self._host
        self._batch = self._batch or fleet.next_batch()
        if host.offer(self._order.index, self._order.run, self._batch):
            self._batch = None
        host.clock.call_at(host.clock.now + fleet.rng.uniform(0.01, 0.3), self._play)

    def stop(self) -> None:
        if self._batch is not None:
            self._fleet.never_offered(self._batch)
        self.kill()
        self._host.clock.call_at(
            self._host.clock.now, partial(self._host.on_exited, self._order.index)
        )

    def kill(self) -> None:
        self._there = False


Host = ManagerHost[NumberingActor]


class SimulatedFleet:
    """Managers and one gateway, and the faults that a plan has for them.

    Args:
        managers: how many.
        plan: the faults.
        kill: the hosts that the plan's kills are for.
    """

    def __init__(self, managers: int, plan: FaultPlan, *, kill: Collection[str] = ()) -> None:
        self.clock, self.rng = VirtualClock(), random.Random(plan.seed)
        self._network = MemoryNetwork(self.clock, plan)
        self.ring = MemoryRing(ring_dtype(SCHEMA.row_dtype), 50_000)
        self.made: set[int] = set()
        """Rows that were handed over, or that a killed actor was about to."""
        self.kills = 0
        self._next_row = 0
        self._learners = 0
        self._seeds = 0
        names = [f"m{number}" for number in range(managers)]
        self.gateway = self._start_gateway()
        self.hosts = {name: self._start_manager(name) for name in names}
        for fault in plan.timed([*names, GATEWAY]):
            if fault.kind != "kill" or fault.host in kill:
                self.clock.call_at(fault.at, partial(self._happen, fault))

    def next_batch(self) -> FinishedBatch:
        """A batch that nobody has made."""
        rows = self.rng.randint(1, ACTORS.n_buffer)
        numbers = np.arange(self._next_row, self._next_row + rows)
        self._next_row += rows
        self.made.update(numbers.tolist())
        return FinishedBatch(rows, 1, 0, bytes(SCHEMA.pack({"number": numbers}, rows)))

    def never_offered(self, batch: FinishedBatch) -> None:
        """An actor ended with this one."""
        self.made.difference_update(SCHEMA.views(batch.payload, batch.rows)["number"].tolist())

    def play(self, seconds: float) -> None:
        """Let this time pass."""
        self.clock.advance(seconds)

    def end(self, within_s: float) -> None:
        """Have everything handed in."""
        for host in self.hosts.values():
            host.leave("the test is over")
        by = self.clock.now + within_s
        while any(host.exit is None for host in self.hosts.values()) and self.clock.now < by:
            self.clock.advance(0.1)
        self.clock.advance(1.0)  # for last reports

    # What came of it

    @property
    def rows_held_max(self) -> int:
        """Of a manager and its actors."""
        return (ACTORS.window_batches + ACTORS.count) * ACTORS.n_buffer

    def arrived(self) -> Counter[int]:
        """How often each row is in the ring."""
        oldest, newest = self.ring.live()
        assert oldest == 0, "the ring keeps all"
        return Counter(self.ring.columns["number"][:newest].tolist())

    def accounting(self) -> SampleAccounting:
        """The gateway's account of all managers."""
        return self.gateway.state.ledger.accounting()

    # Who takes part

    def _start_gateway(self) -> GatewayHost:
        self._learners += 1
        state = GatewayState(
            RUN_ID,
            self._learners,
            SCHEMA,
            stamp=self.ring.stamp,
            now=self.clock.now,
            limiter=FREE,
            rows_per_batch=ACTORS.n_buffer,
        )
        gateway = GatewayHost(state, self.ring, self._network, ACTORS.n_buffer)
        env = EnvConfig(id="CartPole-v1").model_dump(mode="json")
        actors = ACTORS.model_dump(mode="json")
        run = Run(RUN_ID, 1, self._learners, SCHEMA, MODEL, env, {"name": "dqn"}, actors, 0)
        gateway.publish(run, 0, pack_model(0, {"w": np.zeros(3, np.float32)}, MODEL))
        return gateway

    def _start_manager(self, name: str) -> Host:
        self._seeds += 1
        return ManagerHost(
            name, self._network, partial(NumberingActor, self), seed=self._seeds, count=ACTORS.count
        )

    def _happen(self, fault: TimedFault) -> None:
        later = self.clock.now + fault.seconds
        self.kills += fault.kind == "kill"
        if fault.kind != "kill":
            self._network.cut(fault.host, fault.seconds, silent=fault.kind == "silent cut")
        elif fault.host == GATEWAY:
            self.gateway.kill()
            self.clock.call_at(later, self._gateway_again)
        else:
            self.hosts[fault.host].kill()
            self.clock.call_at(later, partial(self._manager_again, fault.host))

    def _gateway_again(self) -> None:
        if self.gateway.ended:
            self.gateway = self._start_gateway()

    def _manager_again(self, name: str) -> None:
        if self.hosts[name].exit is not None:
            self.hosts[name] = self._start_manager(name)
