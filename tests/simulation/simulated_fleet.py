"""A fleet of the daemons' own states on faulty machines, all drawn from one seed.

::

    fleet = SimulatedFleet(draw_scenario(seed))
    fleet.run()                  # raises InvariantError
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from counting_ring import CountingRing, Disk  # beside this file
from faulty_network import FaultyNetwork
from honest import EPISODES, SCHEMA, HonestHost, pack_rows
from hostile import RUN_ID, HostilePeer
from invariants import Invariants
from machine import Machine, skewed_clock
from scenario import GATEWAY, Fault, HostileKind, QueueFleet, Scenario, id_of, key_of

from vedette_protocol.column import Column
from vedette_protocol.messages import Run
from vedette_protocol.model import pack_model
from vedette_protocol.schema import Schema
from vedette_protocol.sent_batches import STALL_S
from vedette_rl.envs.config import EnvConfig
from vedette_services.actors.handover import FinishedBatch
from vedette_services.config import RunConfig
from vedette_services.learner.gateway.flow_control import (
    FlightLimits,
    InsertLimiter,
    QueueLimiter,
)
from vedette_services.learner.gateway.state import GatewayState, QueuePlace
from vedette_services.simulation.hosts import GatewayHost
from vedette_services.simulation.network import Frames, VirtualClock
from vedette_services.status.records import GONE_AFTER_S

MODEL = Schema((Column("w", "f4", (3,)),))
GUARD_ROWS = 4096
EVALUATED = RunConfig.model_validate(
    {
        "env": {"id": "CartPole-v1"},
        "agent": {"name": "dqn"},
        "learner": {"eval_interval": 3},
        "evaluation": {"episodes": EPISODES, "episode_timeout_s": 10.0},
    }
)
PROGRESS_S = 60.0
"""Within this time after the last fault, every manager has delivered something."""
END_S = 30.0
"""Within this time everybody has left."""


@dataclass(slots=True)
class Trainer:
    """The trainer's progress, which survives as far as the learner's maps do."""

    epoch: int = 0
    version: int = 0
    sampled: int = 0
    stalled_until: float = 0.0
    taken: int = 0
    """Of a queue: the first row that was not drawn."""
    kept: int = 0
    """Of a queue: the place in the newest checkpoint on the disk."""
    writes: bool = False
    """A checkpoint is being written."""


class SimulatedFleet:
    """Managers, one learner and hostile peers, and what befalls them.

    Args:
        trace: takes a line for everything that happens.
    """

    def __init__(self, scenario: Scenario, trace: Callable[[str], None] | None = None) -> None:
        self.scenario = scenario
        self.clock = VirtualClock()
        self.trace = trace and (lambda text: trace(f"{self.clock.now:9.3f} {text}"))
        self._rng = random.Random(f"fleet {scenario.seed}")
        self._rare = random.Random(f"unsound {scenario.seed}")
        messages = random.Random(f"messages {scenario.seed}")
        self.network = FaultyNetwork(self.clock, scenario.messages, messages, id_of)
        self.disk = Disk()
        self.trainer = Trainer()
        self.overheard: deque[tuple[float, Frames]] = deque(maxlen=300)
        self.ending = False
        self.manager_seconds = 0.0
        self.invariants = Invariants(self)
        self._learners = 0
        self.gateway: SimulatedGateway | None = None
        self._gateway_machine = self._start_learner(restart=True)
        self.hosts = {name: self._start_manager(name) for name in scenario.names}
        for name, at in scenario.copies:
            self.clock.call_at(at, partial(self._restart_manager, name))
        for fault in scenario.faults:
            self.clock.call_at(fault.at, partial(self._happen, fault))
        self._peers = [
            HostilePeer(self, self._machine(f"h{n}", _stolen_key(kind)), kind, every_s)
            for n, (kind, every_s) in enumerate(scenario.hostile)
        ]
        self._train()
        self._sync()

    # The course of a simulation

    def run(self) -> None:
        """Play everything; raises `InvariantError` where one does not hold."""
        self._play_until(self.scenario.healed_s + 0.1, lambda: False)
        for host in self.hosts.values():
            host.settled_at_heal = host.window.settled if host.window else 0
        self.invariants.version_at_heal = self.trainer.epoch, self.trainer.version
        self._play_until(self.clock.now + self._progress_s, self.invariants.all_progressed)
        self.invariants.check_progress()
        self.ending = True
        self._end()
        self._play_until(self.clock.now + END_S, lambda: all(h.exit for h in self.hosts.values()))
        late = self.scenario.messages.reorder or self.scenario.hostile or self.scenario.copies
        self.clock.advance(1.0 + (GONE_AFTER_S if late else 0.0))  # late ones look alive
        self.invariants.check_end()

    @property
    def _progress_s(self) -> float:
        """`PROGRESS_S`; longer where many wait for room in a queue: there each batch takes the
        place of one that was drawn as it is sent again."""
        waiting = len(self.hosts) + len(self._peers) if self.scenario.queue is not None else 0
        return max(PROGRESS_S, STALL_S * waiting)

    def _play_until(self, until: float, over: Callable[[], bool]) -> None:
        while self.clock.now < until and not over():
            before = self.clock.now
            self.clock.advance(min(1.0, until - before))
            self.manager_seconds += (self.clock.now - before) * len(self.hosts)
            self.invariants.check()

    def _end(self) -> None:
        if self.scenario.ends == "leave":
            for host in self.hosts.values():
                if host.exit is None:
                    host.machine.run(partial(host.leave, "the test is over"))
            return
        if any(host.exit is None for host in self.hosts.values()):
            assert self.gateway is not None
            for frames in self.gateway.state.announce_stop("max_opts", final=True):
                self.network.publish("control", frames)
            self.clock.call_at(self.clock.now + 0.5, self._end)

    # Rows

    def make_batch(self) -> tuple[int, FinishedBatch]:
        """Make a batch of rows that nobody has; return its first row, too."""
        rows = self._rng.randint(1, self.scenario.actors.n_buffer)
        first = self.disk.number_rows(rows)
        made = FinishedBatch(rows, self.trainer.epoch, self.trainer.version, pack_rows(first, rows))
        if self._rare.random() < self.scenario.unsound:
            self.disk.unsound.add(first)
            if self._rare.random() < 0.5:  # found when it is validated
                return first, replace(made, env_steps=self.scenario.actors.n_buffer + 1)
            return first, replace(made, rows=0)  # found in its header
        return first, made

    # Machines

    def _machine(self, name: str, key: str = "") -> Machine:
        skew = skewed_clock(self._rng, self.scenario.skew)
        return Machine(name, self.network, key=key or key_of(name), **skew)

    def _start_manager(self, name: str) -> HonestHost:
        machine = self._machine(name)
        machine.overheard = self.overheard
        return HonestHost(self, machine, self._rng.getrandbits(32))

    def _start_learner(self, *, restart: bool) -> Machine:
        """Start a gateway; `restart`: and a trainer, which is a new epoch."""
        if restart:
            self._end_trainer()
        self._learners += 1
        machine = self._gateway_machine = self._machine(GATEWAY)
        machine.run(partial(self._boot, machine, self._learners))
        return machine

    def _boot(self, machine: Machine, learner: int) -> None:
        scenario = self.scenario
        actors = scenario.actors
        queue = scenario.queue
        capacity = 1 << 60 if queue is None else queue.capacity
        ring = CountingRing(
            self.disk, GUARD_ROWS, partial(self._commit, machine), capacity=capacity
        )
        state = GatewayState(
            RUN_ID,
            learner,
            SCHEMA,
            stamp=ring.stamp,
            now=machine.now,
            limiter=self._make_limiter(),
            rows_per_batch=actors.n_buffer,
            elements=None,
            window=FlightLimits(actors.window_batches, actors.window_bytes),
            max_managers=scenario.max_managers,
            evaluated=None if scenario.evaluates is None else EVALUATED,
        )
        state.evaluations.trusted = scenario.trusted
        if scenario.keyed:
            state.admit_keys(scenario.keys)
        self.invariants.watch(state)
        self.gateway = SimulatedGateway(
            state,
            ring,  # type: ignore[arg-type]  # it takes blocks as the replay does
            machine,  # type: ignore[arg-type]  # it stands between the gateway and the network
            actors.n_buffer,
            turn_s=scenario.turn_s,
            is_queue=queue is not None,
        )
        if queue is not None:
            self.gateway.follow_queue(QueuePlace(self.trainer.taken, self.trainer.kept))
        ready_s = self._rng.choice((0.0, self._rng.uniform(0.0, 3.0)))
        machine.call_at(machine.now + ready_s, self._publish_regularly)

    def _make_limiter(self) -> InsertLimiter:
        queue = self.scenario.queue
        if queue is None:
            return self.scenario.limiter
        rows = self.scenario.actors.n_buffer
        return QueueLimiter(queue.capacity, queue.block, rows, queue.ahead)

    def _commit(self, machine: Machine, commit: Callable[[], None]) -> None:
        """Commit, at the beginning or at the end of the time that the disk takes."""
        share, seconds = self.scenario.slow_disk
        if share and self.clock.now < self.scenario.fault_s and self._rng.random() < share:
            early = self._rng.random() < 0.5
            takes_s = self._rng.uniform(*seconds)
            if early:
                commit()
            machine.block(takes_s)
            if early:
                return
        commit()

    def _publish_regularly(self) -> None:
        self.publish()
        machine = self._gateway_machine
        machine.call_at(machine.now + self.scenario.model_s, self._publish_regularly)

    def publish(self) -> None:
        """Publish a newer model, and the run if its epoch is new."""
        gateway = self.gateway
        trainer = self.trainer
        assert gateway is not None
        trainer.version += 1
        env = EnvConfig(id="CartPole-v1").model_dump(mode="json")
        actors = self.scenario.actors.model_dump(mode="json")
        agent = {"name": "dqn"}
        rows = self.scenario.actors.n_buffer
        head = (RUN_ID, trainer.epoch, gateway.state.learner, SCHEMA, MODEL, env, agent)
        run = Run(*head, actors, seed=0, batch_rows=rows, batch_env_steps=rows)
        body = pack_model(trainer.version, {"w": np.full(3, trainer.version, np.float32)}, MODEL)
        gateway.publish(run, trainer.version, body)

    def _train(self) -> None:
        """Draw samples as fast as the limiter allows, and report the progress."""
        trainer = self.trainer
        limiter = self.scenario.limiter
        gateway = self.gateway
        self.clock.call_at(self.clock.now + 0.1, self._train)
        if self.clock.now < trainer.stalled_until or gateway is None or gateway.ended:
            return
        inserted = self.disk.inserted
        if self.scenario.queue is not None:
            self._train_on_queue(self.scenario.queue, gateway)
        while limiter.samples_per_insert and not limiter.sample_wait_reason(
            inserted, trainer.sampled
        ):
            trainer.sampled += limiter.batch_size
        gateway.state.on_progress(trainer.version, trainer.sampled)

    def _train_on_queue(self, queue: QueueFleet, gateway: SimulatedGateway) -> None:
        """Draw whole blocks, and write a checkpoint where none has the place; it is named once the
        disk has the rows that it knows of."""
        trainer = self.trainer
        while trainer.taken + queue.block <= self.disk.inserted:
            trainer.taken += queue.block
        if trainer.kept < trainer.taken and not trainer.writes:
            trainer.writes = True
            seconds = self._rng.uniform(*queue.write_s)
            written = partial(self._write, trainer.taken, trainer.epoch)
            self.clock.call_at(self.clock.now + seconds, written)
        gateway.follow_queue(QueuePlace(trainer.taken, trainer.kept))

    def _write(self, taken: int, epoch: int) -> None:
        """A checkpoint is on the disk, unless its trainer has ended meanwhile."""
        trainer = self.trainer
        trainer.writes = False
        if trainer.epoch == epoch and taken <= self.disk.inserted:
            self.disk.sync()
            trainer.kept = max(trainer.kept, taken)

    def _end_trainer(self) -> None:
        """The next trainer goes on from the newest checkpoint."""
        self.trainer.epoch += 1
        self.trainer.taken = self.trainer.kept

    def _sync(self) -> None:
        self.disk.sync()
        self.clock.call_at(self.clock.now + self.scenario.sync_s, self._sync)

    # Faults

    def _happen(self, fault: Fault) -> None:
        if self.trace:
            self.trace(f"{fault.machine or 'learner':6} {fault.kind} for {fault.seconds:.2f} s")
        if fault.machine == GATEWAY:
            self._befall_learner(fault)
            return
        host = self.hosts[fault.machine]
        if fault.kind == "cut":
            self.network.cut(fault.machine, fault.seconds, fault.cut)
        elif fault.kind == "pause":
            host.machine.pause(fault.seconds)
        elif not host.machine.killed:
            host.kill()
            self.start_again(host, fault.seconds)

    def start_again(self, host: HonestHost, after_s: float = 5.0) -> None:
        """Let a manager's process end now, and another one begin later."""
        host.machine.kill()
        self.invariants.on_killed(host)
        again = partial(self._restart_manager, host.machine.name)
        self.clock.call_at(self.clock.now + after_s, again)

    def _restart_manager(self, name: str) -> None:
        self.hosts[name] = self._start_manager(name)

    def _befall_learner(self, fault: Fault) -> None:
        if fault.kind == "pause":
            self._gateway_machine.pause(fault.seconds)
        elif fault.kind == "stall":
            self.trainer.stalled_until = self.clock.now + fault.seconds
        elif self._gateway_machine.killed:
            return  # it lies already
        elif fault.kind == "trainer":
            self._end_trainer()
            self._gateway_machine.run(self.publish)
        else:
            self._gateway_machine.kill()
            self.network.detach()
            if self.gateway is not None:
                self.gateway.kill()
            if fault.kind == "power":
                self.invariants.on_power_lost(self.disk.lose_power())
            restart = fault.kind != "kill"
            self.clock.call_at(
                self.clock.now + fault.seconds, partial(self._start_learner, restart=restart)
            )


def _stolen_key(kind: HostileKind) -> str:
    return key_of("m0") if kind == "copy" else ""


class SimulatedGateway(GatewayHost):
    """A gateway as shipped, that takes what has come at its turns, as the daemon does."""

    @property
    def machine(self) -> Machine:
        """The machine that it runs on."""
        return self.network  # type: ignore[return-value]  # it stands between it and the network

    def _schedule_turn(self) -> None:
        """The next regular turn is soon enough."""
