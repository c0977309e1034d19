"""The actors of an in-process run: those of the daemons, without a process of their own."""

from __future__ import annotations

from vedette_protocol.messages import ActorReport
from vedette_rl.acting_loop import ActingLoop
from vedette_rl.agents.registry import agent_type
from vedette_rl.core import Columns
from vedette_rl.envs.row import make_row
from vedette_rl.exploration import ladder_positions
from vedette_services.actors.actor_spec import actor_seeds
from vedette_services.actors.batching import Batching
from vedette_services.actors.stats import EpisodeTally
from vedette_services.actors.transitions import make_transitions
from vedette_services.config.run_config import RunConfig
from vedette_services.in_process.inserting import Inserting, ReplaySlot
from vedette_services.in_process.models import NewestModelReader


class InProcessActor:
    """One actor. Seeds and place on the ladder are those that its process would have."""

    def __init__(self, loop: ActingLoop, batching: Batching, number: int) -> None:
        self._loop, self._number, self._batching = loop, number, batching
        self._tally = EpisodeTally()
        self.produced = 0
        """Rows made so far."""

    def begin(self) -> None:
        """Take the first model, and begin new episodes."""
        self._loop.sync()
        self._loop.begin()

    def play(self) -> None:
        """Step every environment once; a batch that becomes full is inserted."""
        self._push(self._loop.step())

    def finish(self) -> None:
        """Insert even what is unfinished, and close the environments."""
        self._push(self._loop.flush())
        self._batching.flush()
        self._loop.close()

    def _push(self, transitions: Columns) -> None:
        rows = len(transitions["reward"])
        if rows:
            self.produced += rows
            self._batching.push(transitions, self._loop.made_by)

    def report(self) -> ActorReport:
        """How it does, as a manager would tell."""
        self._tally.add(self._loop.finished())
        return ActorReport(
            id=self._number,
            alive=True,
            restarts=0,
            env_steps=self._loop.env_steps,
            episodes=self._tally.episodes,
            version=max(0, self._loop.acting_on[1]),
            return_mean=self._tally.return_mean,
            length_mean=self._tally.length_mean,
        )


def build_actor(
    config: RunConfig, epoch: int, number: int, inserting: Inserting, models: NewestModelReader
) -> InProcessActor:
    """The actor of this number, from 0, with its environments.

    Raises:
        UnknownEnvironmentError, UnsupportedSpaceError: as they say.
    """
    agent, envs = config.agent, config.actors.envs_per_actor
    env_seed, exploration_seed = actor_seeds(config.seed, number, epoch)
    row = make_row(config.env, envs, env_seed)
    policy = agent_type(agent.name).build_policy(
        agent,
        row.spaces,
        positions=ladder_positions(number * envs, envs),
        seed=exploration_seed,
    )
    made = make_transitions(inserting.schema, row.spaces, policy, agent, config.actors)
    n_buffer = config.actors.n_buffer
    return InProcessActor(
        ActingLoop(row, policy, made.processor, models, agent.n_step),
        made.batching(ReplaySlot(inserting, n_buffer, number), n_buffer, lambda: True),
        number,
    )
