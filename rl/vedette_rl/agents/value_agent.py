"""The part that agents on action values share: a network that learns, and a target network."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import torch
from torch import nn

from vedette_rl.agents.captured_step import LEFT_OUT, Due, SteppedAgent, StepResult
from vedette_rl.agents.discounts import Discounts
from vedette_rl.core.learning import ModelInfo, State
from vedette_rl.device.host_copy import PendingArrays, settled
from vedette_rl.networks.adam import VectorAdam
from vedette_rl.networks.encoder import Obs, RandomShift
from vedette_rl.networks.layers import NormalizedColumns
from vedette_rl.networks.observation import NetworkInput, PixelShift
from vedette_rl.networks.parameter_vector import ParameterVector
from vedette_rl.networks.seeding import build_seeded, restore_generator
from vedette_rl.networks.torch_network import ObsNormalizer
from vedette_rl.settings.stored import ScheduleConfig


class OptimizerConfig(Protocol):
    """The keys of an agent's configuration that this part reads."""

    @property
    def discount(self) -> float: ...

    @property
    def learning_rate(self) -> float: ...

    @property
    def schedule(self) -> ScheduleConfig: ...

    @property
    def adam_eps(self) -> float: ...

    @property
    def max_grad_norm(self) -> float: ...

    @property
    def target_update_interval(self) -> int: ...

    @property
    def tau(self) -> float: ...

    @property
    def random_shift(self) -> PixelShift: ...


class ValueAgent(SteppedAgent):
    """An `Agent` without its loss: of two networks, equal at first, `online` descends and `target`
    follows.

    `online` is in the mode that it was built in, which is for training; `target` is in evaluation
    mode: a target is a value, and the maximum over values with dropout's noise is too high.

    ::

        class MyAgent(ValueAgent):
            def step(self, batch, weights, due):
                obs = self.observations(batch, "obs")
                loss = ...      # of self.online(obs), and of self.target(next_obs) without gradient
                self.descend(loss, due)
                return self.result(due, td_errors, loss, prediction, target)

    Args:
        config: step size, clipping, and the interval at which the target follows.
        build: makes such a network.
        seen: names the images that are shifted.
        columns: the columns of the observation that are normalised.
        device: torch's name of the device that both are on.
        seed: the seed of the weights.
    """

    def __init__(
        self,
        config: OptimizerConfig,
        build: Callable[[], nn.Module],
        seen: NetworkInput,
        columns: NormalizedColumns,
        *,
        device: str,
        seed: int,
    ) -> None:
        self.online = build_seeded(build, seed, device)
        self.target = build_seeded(build, seed, device).eval()
        self._normalizer = ObsNormalizer(columns, device)
        self.discounts = Discounts(config.discount, device)
        self._shift = RandomShift(seen, config.random_shift, device=device, seed=seed)
        self.generators = self._shift.generators
        self.networks = (self.online, self.target)
        self._interval = config.target_update_interval
        self._tau = config.tau
        self._online = ParameterVector(self.online, learns=True)
        self._target = ParameterVector(self.target, learns=False)
        self._adam = VectorAdam(
            self._online,
            learning_rate=config.learning_rate,
            eps=config.adam_eps,
            max_grad_norm=config.max_grad_norm,
            schedule=config.schedule,
        )

    def observations(self, batch: Mapping[str, torch.Tensor], part: str) -> Obs:
        """The columns of ``obs`` or ``next_obs``, renamed to ``obs...``, as the networks take them:
        images shifted, numbers normalised; the running statistics count those of ``obs``."""
        return self._shift(self._normalizer.observations(batch, part))

    def window_observations(self, batch: Mapping[str, torch.Tensor]) -> Obs:
        """The columns ``obs...`` of sequences ``(B, L + 1, ...)``, as `observations` has them. The
        images of a sequence are shifted alike."""
        return self._shift(self._normalizer.window_observations(batch))

    def due(self, *, record: bool) -> Due:
        """Return the parts that are due in the next step; see `SteppedAgent`."""
        return Due(target=(self.opt_steps + 1) % self._interval == 0, record=record)

    def optimizers(self, due: Due) -> tuple[VectorAdam, ...]:
        """The one; see `SteppedAgent`."""
        return (self._adam,)

    def descend(self, loss: torch.Tensor, due: Due) -> None:
        """One step of Adam down this loss; where it is due the target follows."""
        self._adam.zero_grad()
        torch.autograd.backward(loss)
        self._adam.move()
        if due.target:
            self._target.soft_update(self._online, self._tau)

    def result(
        self,
        due: Due,
        td_errors: torch.Tensor,
        loss: torch.Tensor,
        prediction: torch.Tensor,
        target: torch.Tensor,
    ) -> StepResult:
        """The result of a step, with scalars if they are to be recorded."""
        if not due.record:
            return StepResult(td_errors, {})
        return StepResult(
            td_errors,
            {
                "loss": loss,
                "q_mean": prediction.mean(),
                "target_mean": target.mean(),
                "td_error_mean": td_errors.mean(),
                "grad_norm": self._adam.grad_norm(),
                LEFT_OUT: self._adam.left_out.clone(),
            },
        )

    def model_info(self) -> ModelInfo:
        """A copy of the online network and the observation's statistics: all that acting needs."""
        online, statistics = self._online.pending_arrays(), self._normalizer.pending_arrays()
        return ModelInfo(
            self.opt_steps, PendingArrays(lambda: {**online.value, **statistics.value})
        )

    def get_state(self) -> State:
        """All that resume needs: both networks, Adam's moments and the counter. Copies."""
        return settled(self.pending_state())

    def pending_state(self) -> State:
        """`get_state`, of copies that are begun."""
        return {
            "opt_steps": self.opt_steps,
            "online": self._online.pending(self._online.data),
            "target": self._target.pending(self._target.data),
            "normalizer": self._normalizer.pending_state(),
            "adam": self._adam.pending_state(),
            "shift": self._shift.generator.get_state(),
        }

    def set_state(self, state: State) -> None:
        """Continue from `state`.

        Raises:
            ModelMismatchError: it is the state of another network.
        """
        self._online.set(self._online.data, state["online"])
        self._target.set(self._target.data, state["target"])
        self._normalizer.set_state(state["normalizer"])
        self._adam.set_state(state["adam"])
        restore_generator(self._shift.generator, state["shift"])
        self.opt_steps = state["opt_steps"]
