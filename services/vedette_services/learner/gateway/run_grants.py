"""Runs that actors may play on the newest model, where a queue is strict (`replay.strict`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

PATIENCE_S = 10.0
"""Who still plays is silent once nothing has come for so long, or for as long as the last block
took."""

ActorId = tuple[str, int]
"""A manager's id, and the index of an actor among its own."""

AliveActors = Mapping[str, Mapping[int, int]]
"""The environment steps of the actors that are alive, by manager and index."""


class RunGrants:
    """Grants further runs on the newest model, while its block lacks some and nobody plays them.

    ::

        grants.on_model(epoch, version, alive, now)
        grants.on_batch(manager, actor, epoch, version, now)
        for manager in grants.raise_runs(lacking, model, alive, now): ...     # its next ack says so
        grants.runs(manager)

    An actor that has handed over as many runs as it may play waits for the next model; so no report
    has to say that it does. One that plays and hands nothing over is not waited for for ever: once
    nothing has come for `PATIENCE_S` it is *silent*, and others play in its place until it is
    heard of. Where nobody is known to have handed over and no steps are reported either, all may
    play a run more: nothing stands still for want of a message.

    Args:
        envs_per_actor: environments of an actor, each of which plays a run.
        block_runs: runs of a block.
        now: seconds, monotonic.
    """

    def __init__(self, envs_per_actor: int, block_runs: int, now: float) -> None:
        self._envs = envs_per_actor
        self._block_runs = block_runs
        self._model = (0, -1)  # epoch, version
        self._base = 1
        self._raised: dict[str, int] = {}  # managers that may play more than the others
        self._handed: Counter[ActorId] = Counter()  # runs of the newest model
        self._silent: set[ActorId] = set()
        self._more: Counter[str] = Counter()  # how often each manager was granted more, for turns
        self._began = self._heard = now  # of this model: its publication, and its last batch
        self._steps = 0  # of all actors that are alive, as reported
        self._moved = now  # when that changed last
        self._patience_s = PATIENCE_S
        self._lost_patience = False
        self._waited_for: list[ActorId] = []
        self._lacking = 0

    def runs(self, manager: str) -> int:
        """Runs that each actor of a manager may play on the newest model; 0 before the first."""
        return self._raised.get(manager, self._base) if self._model[1] >= 0 else 0

    @property
    def wait_reason(self) -> str:
        """The reason why actors wait, as a sentence."""
        version = self._model[1]
        if not self._lacking:
            return (
                f"actors wait for the model behind version {version:,}: the learner learns from "
                "its block (replay.strict)"
            )
        whom = ", ".join(f"{manager}/{actor}" for manager, actor in self._waited_for[:5])
        more = len(self._waited_for) - 5
        whom += f" and {more:,} more" if more > 0 else ""
        return (
            f"actors that have played their runs on version {version:,} wait, as its block lacks "
            f"{self._lacking:,}: those of actors {whom or 'that start'} (replay.strict)"
        )

    def on_model(self, epoch: int, version: int, alive: AliveActors, now: float) -> None:
        """A model was published."""
        if (epoch, version) == self._model:
            return
        if not self._lost_patience:  # else what the last block took says nothing
            self._patience_s = max(PATIENCE_S, self._heard - self._began)
        self._model = (epoch, version)
        environments = self._envs * sum(map(len, alive.values()))
        self._base = max(1, self._block_runs // environments) if environments else 1
        self._raised = {}
        self._handed.clear()
        self._began = self._heard = now
        self._lost_patience = False
        self._lacking = 0
        self._waited_for = []

    def on_batch(self, manager: str, actor: int, epoch: int, version: int, now: float) -> None:
        """A batch has come, one run of each environment of an actor."""
        self._silent.discard((manager, actor))
        if (epoch, version) == self._model:
            self._handed[manager, actor] += 1
            self._heard = now

    def raise_runs(
        self, lacking: int, model: tuple[int, int], alive: AliveActors, now: float
    ) -> list[str]:
        """Grant more runs, if the block lacks some and nobody plays them.

        Args:
            lacking: runs, of those that have come; 0 while the block is learned from.
            model: epoch and version of which they are.

        Returns:
            the managers that may play more.
        """
        steps = sum(sum(actors.values()) for actors in alive.values())
        if steps != self._steps:
            self._steps = steps
            self._moved = now
        if model != self._model:
            return []  # one of the two is not known here yet
        self._lacking = lacking
        self._waited_for, ready = self._who_plays(alive)
        if not lacking:
            return []
        everybody = False
        if self._waited_for or not ready:
            if now - self._heard < self._patience_s:
                return []
            if not ready:
                # This gateway may have started since they handed over, or it was lost on the way.
                if now - self._moved < self._patience_s:
                    return []
                ready = {manager: len(actors) for manager, actors in alive.items() if actors}
                everybody = True  # nobody knows which of them would play
                self._patience_s *= 2.0  # or single steps take so long
            self._silent.update(self._waited_for)
            self._lost_patience = True
        self._heard = now
        return self._raise(lacking, ready, everybody=everybody)

    def _raise(self, lacking: int, ready: Mapping[str, int], *, everybody: bool) -> list[str]:
        """Let managers play what is lacking, in turn: as many runs as that is for each of their
        environments, and at least one.

        Args:
            everybody: each of them may, though fewer would be enough.
        """
        runs = max(1, lacking // (self._envs * sum(ready.values())))
        raised = []
        for manager in sorted(ready, key=lambda manager: self._more[manager]):
            self._raised[manager] = self.runs(manager) + runs
            self._more[manager] += 1
            raised.append(manager)
            lacking -= ready[manager] * self._envs * runs
            if lacking <= 0 and not everybody:
                break
        return raised

    def _who_plays(self, alive: AliveActors) -> tuple[list[ActorId], dict[str, int]]:
        """The actors that have not handed over all their runs, but for silent ones, and how many
        have, of each manager of which none plays."""
        plays: list[ActorId] = []
        ready: dict[str, int] = {}
        for manager, actors in alive.items():
            runs = self.runs(manager)
            behind = [actor for actor in actors if self._handed[manager, actor] < runs]
            heard = [(manager, a) for a in behind if (manager, a) not in self._silent]
            plays += heard
            if not heard and len(behind) < len(actors):
                ready[manager] = len(actors) - len(behind)
        return plays, ready
