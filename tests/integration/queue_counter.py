"""An agent whose weights are the list of rows that it was given: what survives is the proof."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from vedette_rl.agents.kind import AgentKind
from vedette_rl.core import Columns, ModelInfo, OptResult
from vedette_rl.core.agent_config import AgentConfig, UsualQueue
from vedette_rl.core.learning import State
from vedette_rl.envs.spaces import Spaces

NAME = f"{__name__}:Counter"
KEYS = ("manager", "actor", "env", "t")


class CounterConfig(AgentConfig):
    name: str = NAME
    batch_size: int = 32

    @property
    def usual_queue(self) -> UsualQueue:
        return UsualQueue(steps=8, block=128, passes=2)


class CountingAgent:
    """Learns nothing, and remembers every row of every minibatch, in order, and the models that
    played the rows of its block."""

    def __init__(self) -> None:
        self.opt_steps = 0
        self._rows: list[NDArray[np.int64]] = []
        self._models: list[tuple[int, int, int]] = []  # step; lowest and highest version

    def opt(
        self,
        batch: Mapping[str, torch.Tensor],
        weights: torch.Tensor | None = None,
        *,
        record: bool = False,
    ) -> OptResult:
        chosen = batch["chosen"].numpy()
        chosen = chosen[batch["learned"].numpy().ravel()[chosen]]
        columns = [batch[name].numpy().ravel()[chosen].astype(np.int64) for name in KEYS]
        self._rows.append(np.stack(columns, axis=1))
        versions = batch["version"][batch["learned"]]
        self._models.append((self.opt_steps, int(versions.min()), int(versions.max())))
        self.opt_steps += 1
        return OptResult()

    def model_info(self) -> ModelInfo:
        return ModelInfo(self.opt_steps, {"w": np.zeros(1, np.float32)})

    def get_state(self) -> State:
        given = np.concatenate(self._rows) if self._rows else np.zeros((0, 4), np.int64)
        models = np.array(self._models, np.int64).reshape(-1, 3)
        return {"opt_steps": self.opt_steps, "rows": given, "models": models}

    def set_state(self, state: State) -> None:
        self.opt_steps = int(state["opt_steps"])
        self._rows = [np.asarray(state["rows"])]
        self._models = [(int(s), int(low), int(high)) for s, low, high in state["models"]]


class RandomPolicy:
    def __init__(self, spaces: Spaces, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        self._count = int(spaces.action.n)  # type: ignore[attr-defined]  # of CartPole

    def sync_model(self, model: ModelInfo) -> None: ...

    def act(self, obs: Columns, *, explore: bool) -> NDArray[Any]:
        return self._rng.integers(0, self._count, len(obs["obs"]))


Counter = AgentKind(
    NAME,
    CounterConfig,
    lambda config, spaces, *, device, seed: CountingAgent(),
    lambda config, spaces, *, ranks, seed: RandomPolicy(spaces, seed),
)
