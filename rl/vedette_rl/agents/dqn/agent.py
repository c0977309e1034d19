"""The half of DQN that learns."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn

from vedette_rl.agents.actions import DiscreteActions
from vedette_rl.agents.dqn.config import DqnConfig
from vedette_rl.agents.dqn.loss import double_q_learning_target, q_learning_target
from vedette_rl.agents.dqn.own_network import build_q_network
from vedette_rl.agents.temporal_difference import Discounts, td_loss
from vedette_rl.core.columns import select_part
from vedette_rl.core.learning import ModelInfo, OptResult, State
from vedette_rl.envs.spaces import Spaces
from vedette_rl.networks.online_target import OnlineTarget


class DqnAgent:
    """An `Agent`: one optimization step is algorithm 1 of Mnih et al. 2015 on one batch."""

    def __init__(self, config: DqnConfig, spaces: Spaces, *, device: str, seed: int) -> None:
        self._config = config
        self._actions = DiscreteActions.from_space(config.name, spaces.action)

        def build() -> nn.Module:
            return build_q_network(config, spaces)

        self._q = OnlineTarget(build, config, device=device, seed=seed)
        self._discounts = Discounts(config.discount, device)

    @property
    def opt_steps(self) -> int:
        """Optimization steps done, over all epochs of the run."""
        return self._q.opt_steps

    def opt(
        self,
        batch: Mapping[str, torch.Tensor],
        weights: torch.Tensor | None = None,
        *,
        record: bool = False,
    ) -> OptResult:
        """One optimization step. See `vedette_rl.core.learning.Agent.opt`."""
        target = self._td_target(batch)
        q_tm1_BA = self._q.online(select_part(batch, "obs"))
        a_tm1 = (batch["action"] - self._actions.start).unsqueeze(1)
        q_tm1 = q_tm1_BA.gather(1, a_tm1).squeeze(1)
        loss = td_loss(q_tm1, target, self._config.loss, weights)
        self._q.descend(loss)
        td_errors = (q_tm1.detach() - target).abs_()
        if not record:
            return OptResult(td_errors)
        return OptResult(
            td_errors,
            {
                "loss": loss.item(),
                "q_mean": q_tm1.mean().item(),
                "target_mean": target.mean().item(),
                "td_error_mean": td_errors.mean().item(),
                "grad_norm": self._q.grad_norm(),
            },
        )

    @torch.no_grad()
    def _td_target(self, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
        next_obs = select_part(batch, "next_obs")
        discount_t = self._discounts(batch["n_steps"], batch["terminated"])
        q_t_BA = self._q.target(next_obs)
        if self._config.double:
            q_t_selector_BA = self._q.online(next_obs)
            return double_q_learning_target(batch["reward"], discount_t, q_t_BA, q_t_selector_BA)
        return q_learning_target(batch["reward"], discount_t, q_t_BA)

    def model_info(self) -> ModelInfo:
        """The Q-network: all that acting needs."""
        return self._q.model_info()

    def get_state(self) -> State:
        """All that resume needs."""
        return self._q.get_state()

    def set_state(self, state: State) -> None:
        """Continue from `state`.

        Raises:
            ModelMismatchError: it is the state of another network.
        """
        self._q.set_state(state)
