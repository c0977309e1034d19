"""A network that learns and its slow copy, which gives the targets: what value agents stand on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

import torch
from torch import nn

from vedette_rl.core.learning import ModelInfo, State
from vedette_rl.networks.adam import VectorAdam
from vedette_rl.networks.parameter_vector import ParameterVector
from vedette_rl.networks.seeding import build_seeded

N = TypeVar("N", bound=nn.Module)


class OptimizerConfig(Protocol):
    """What an agent's configuration says of it."""

    @property
    def learning_rate(self) -> float: ...

    @property
    def adam_eps(self) -> float: ...

    @property
    def max_grad_norm(self) -> float: ...

    @property
    def target_update_interval(self) -> int: ...

    @property
    def tau(self) -> float: ...


class OnlineTarget(Generic[N]):
    """Two networks of the same weights at first, of which `online` descends and `target` follows.

    `online` is in the mode that it was built in, which is for training; `target` is in evaluation
    mode: a target is a value, and the maximum over values with dropout's noise is too high.

    ::

        pair = OnlineTarget(build, config, device=device, seed=seed)
        loss = ...      # of pair.online(obs), and of pair.target(next_obs) without gradient
        pair.descend(loss)

    Args:
        build: makes such a network.
        config: how fast it moves, and when the target follows.
        device: torch's name of where both live.
        seed: of the weights.
    """

    def __init__(
        self, build: Callable[[], N], config: OptimizerConfig, *, device: str, seed: int
    ) -> None:
        self.online = build_seeded(build, seed, device)
        self.target = build_seeded(build, seed, device).eval()
        self._config = config
        self._online = ParameterVector(self.online, learns=True)
        self._target = ParameterVector(self.target, learns=False)
        self._adam = VectorAdam(
            self._online,
            learning_rate=config.learning_rate,
            eps=config.adam_eps,
            max_grad_norm=config.max_grad_norm,
        )
        self.opt_steps = 0
        """Descents done, over all epochs of the run."""

    def descend(self, loss: torch.Tensor) -> None:
        """One step of Adam down this loss; at its interval the target follows."""
        self._adam.zero_grad()
        torch.autograd.backward(loss)
        self._adam.step()
        self.opt_steps += 1
        if self.opt_steps % self._config.target_update_interval == 0:
            self._target.follow(self._online, self._config.tau)

    def grad_norm(self) -> float:
        """The norm of the last descent's gradient, as it was clipped."""
        return self._adam.grad_norm()

    def model_info(self) -> ModelInfo:
        """A copy of the online network: all that acting needs."""
        return ModelInfo(self.opt_steps, self._online.arrays())

    def get_state(self) -> State:
        """Both networks, Adam's moments and the counter. Copies."""
        return {
            "opt_steps": self.opt_steps,
            "online": self._online.get(self._online.data),
            "target": self._target.get(self._target.data),
            "adam": self._adam.get_state(),
        }

    def set_state(self, state: State) -> None:
        """Continue from `state`.

        Raises:
            ModelMismatchError: it is the state of another network.
        """
        self._online.set(self._online.data, state["online"])
        self._target.set(self._target.data, state["target"])
        self._adam.set_state(state["adam"])
        self.opt_steps = state["opt_steps"]
