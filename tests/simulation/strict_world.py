"""A strict queue between real states of managers, actors and gateway, on a virtual clock.

The trainer is a `QueueReplay` that learns nothing, and takes time. Actors are those of a run in one
process, each with a pace of its own.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
from configurations import configured  # of tests/support

from vedette.local.in_process import InProcessActor, _memory_ring
from vedette_protocol.ledger import Ledger
from vedette_protocol.model import pack_model
from vedette_protocol.schema import Schema
from vedette_rl.agents.registry import agent_kind
from vedette_rl.envs.make import environment_spaces
from vedette_rl.envs.spaces import ElementBounds
from vedette_rl.replay.queue import QueueReplay
from vedette_services.actors.instructions import StartActor
from vedette_services.learner.gateway.flow_control import make_insert_limiter, make_run_grants
from vedette_services.learner.gateway.state import GatewayState, QueuePlace
from vedette_services.run.replay_layout import replay_layout
from vedette_services.run.ring_stamp import ActorNumbers, pack_stamp
from vedette_services.simulation.hosts import GatewayHost, ManagerHost
from vedette_services.simulation.network import Channel, Frames, MemoryNetwork, VirtualClock
from vedette_services.status.records import TrainerStatus

STEPS, ENVS = 4, 2
TURN_S = 0.01
Host = ManagerHost[InProcessActor]


class LossyNetwork(MemoryNetwork):
    """Loses some of the models while faults are on."""

    def __init__(self, clock: VirtualClock, lost: Callable[[], bool]) -> None:
        super().__init__(clock)
        self._lost = lost

    def publish(self, channel: Channel, frames: Frames) -> None:
        if channel == "control" or not self._lost():
            super().publish(channel, frames)


class StrictWorld:
    """The parties, and what befalls them.

    Args:
        runs: of a block.
        managers: actors of each.
        seed: draws paces and faults.
        loses: share of models that is lost.
    """

    def __init__(
        self, *, runs: int, managers: dict[str, int], seed: int, loses: float = 0.0, **more: Any
    ) -> None:
        self.rng = random.Random(seed)
        self.config = configured(
            "preset=none",
            f"replay.sequence={STEPS}",
            f"replay.block={runs * STEPS}",
            f"agent.batch_size={runs * STEPS}",
            "agent.hidden_sizes=[8]",
            "replay.passes=2",
            "replay.strict=true",
            "replay.capacity=400",
            f"actors.envs_per_actor={ENVS}",
            env="CartPole-v1",
            agent="appo",
        )
        self.runs = runs
        self.spaces = environment_spaces(self.config.env)
        layout = replay_layout(self.config, self.spaces)
        self.schema = layout.schema
        self.ring = _memory_ring(self.config, layout)
        self.ring.branch = self.ring.branch_before = "u" * 32  # it outlives the trainer
        self.ring.stamp = pack_stamp(Ledger("run"), ActorNumbers())
        kind = agent_kind("appo")
        agent = kind.build_agent(self.config.agent, self.spaces, device="cpu", seed=0)
        self.arrays = agent.model_info().arrays
        self.models = Schema.from_arrays(self.arrays)
        self.clock = VirtualClock()
        self.faults = True
        self.network = LossyNetwork(self.clock, lambda: self.faults and self.rng.random() < loses)
        self.hosts: dict[str, Host] = {}
        self.paces: dict[tuple[str, int], float] = {}
        self.due: dict[InProcessActor, float] = {}
        self.frozen: set[str] = set()
        self.actors_of = managers
        self.blocks = 0
        self.block_ended = 0.0
        self.longest = 0.0  # from one block's end to the next, since `calm`
        self.epoch = 0
        self.learner = 0
        self.saved: tuple[int, int, dict[str, Any]] | None = None
        self.start_trainer()
        self.start_gateway()
        for name in managers:
            self.start_manager(name)
        self.train()

    # The trainer

    def start_trainer(self) -> None:
        """From the newest checkpoint."""
        self.epoch += 1
        # with the version of the model that the block in progress begins with
        self.step, self.version, state = self.saved or (0, 0, None)
        replay = self.config.replay
        self.replay = QueueReplay(
            self.ring,
            np.random.default_rng(self.epoch),
            replay,
            batch_size=self.config.agent.batch_size,
            batch_rows=self.config.actors.n_buffer,
        )
        if state is not None:
            self.replay.set_state(state)
        self.replay.begin(self.epoch, self.step)
        self.save()
        self.published = False
        self.ends_at = 0.0

    def save(self) -> None:
        self.saved = self.step, self.version, self.replay.get_state()
        self.replay.note_handed()
        self.kept = self.replay.place

    def train(self) -> None:
        """A turn: a look, or an optimization step, which takes some turns."""
        self.clock.call_at(self.clock.now + TURN_S, self.train)
        if self.clock.now < self.ends_at or self.gateway.ended:
            return
        if not self.published:
            self.publish()
        replay = self.replay
        replay.look()
        if replay.save_is_urgent or replay.save_is_due or self.rng.random() < 0.05:
            self.save()
        if not replay.wait_reason():
            self.learn()
        status = TrainerStatus(
            self.epoch,
            self.step,
            taken=replay.taken,
            lacking=replay.lacking_runs,
            kept=self.kept,
        )
        self.gateway.follow_queue(QueuePlace.of(status))
        self.gateway.state.on_progress(self.step, 0)

    def learn(self) -> None:
        if self.replay.minibatch.begins_block:
            self.version = self.step
        sample = self.replay.sample(self.config.agent.batch_size)
        versions = set(sample.columns["version"][sample.columns["learned"]].tolist())
        assert versions == {self.version}, "a block is of the model that it begins with"
        self.replay.done()
        self.step += 1
        self.ends_at = self.clock.now + self.rng.choice((0.0, 0.03, 0.3))
        if self.replay.is_between_blocks:
            self.blocks += 1
            self.longest = max(self.longest, self.clock.now - self.block_ended)
            self.block_ended = self.clock.now
            self.publish()

    def publish(self) -> None:
        self.published = True
        run = self.gateway.state.run_message(self.config, self.epoch, self.models)
        body = pack_model(self.step, self.arrays, self.models)
        self.gateway.publish(run, self.step, body)

    # The gateway

    def start_gateway(self) -> None:
        """With the ledger of the ring's last commit, and the newest model of the trainer."""
        config = self.config
        self.learner += 1
        state = GatewayState(
            "run",
            self.learner,
            self.schema,
            stamp=self.ring.stamp,
            now=self.clock.now,
            limiter=make_insert_limiter(config),
            rows_per_batch=config.actors.n_buffer,
            elements=ElementBounds(self.spaces),
            run_length=STEPS,
            run_grants=make_run_grants(config, self.clock.now),
        )
        self.gateway = GatewayHost(
            state, self.ring, self.network, config.actors.n_buffer, is_queue=True
        )
        self.published = False

    def kill_gateway(self) -> None:
        self.gateway.kill()
        self.clock.call_at(self.clock.now + self.rng.uniform(0.0, 2.0), self.start_gateway)

    # Managers

    def start_manager(self, name: str) -> None:
        number = self.rng.getrandbits(32)
        self.hosts[name] = ManagerHost(
            name, self.network, self.start_actor, seed=number, count=self.actors_of[name]
        )

    def start_actor(self, host: Host, order: StartActor) -> InProcessActor:
        actor = InProcessActor(host, order, self.config)
        pace = self.paces.setdefault((host.name, order.index), self.rng.choice((0.01, 0.02, 0.2)))
        self.due[actor] = self.clock.now + pace
        return actor

    def kill_manager(self, name: str, back_s: float | None) -> None:
        host = self.hosts.pop(name, None)
        if host is None:
            return
        for actor in host.actors.values():
            self.due.pop(actor, None)
        host.kill()
        if back_s is not None:
            self.clock.call_at(self.clock.now + back_s, lambda: self.start_manager(name))

    def kill_actor(self, name: str) -> None:
        host = self.hosts.get(name)
        if host is None or not host.actors:
            return
        index = self.rng.choice(list(host.actors))
        actor = host.actors[index]
        self.due.pop(actor, None)
        actor.kill()
        host.on_exited(index, -9, "killed")

    # Time

    def play(self, seconds: float) -> None:
        """Let actors play, each at its pace, and all else happen."""
        until = self.clock.now + seconds
        while self.clock.now < until:
            for name, host in list(self.hosts.items()):
                for index, actor in list(host.actors.items()):
                    if name in self.frozen or self.clock.now < self.due.get(actor, 0.0):
                        continue
                    self.due[actor] = self.clock.now + self.paces[name, index]
                    if actor._models.has_new or actor._begun:
                        actor.step()
                        actor.publish_stats()
            self.clock.advance(TURN_S)

    def __enter__(self) -> StrictWorld:
        return self

    def __exit__(self, *raised: object) -> None:
        for name in list(self.hosts):
            self.kill_manager(name, back_s=None)

    def calm(self) -> None:
        """No faults from now on."""
        self.faults = False
        self.block_ended = self.clock.now
        self.longest = 0.0
