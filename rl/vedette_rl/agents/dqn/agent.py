"""The half of DQN that learns. Shapes: B samples, A values of actions."""

from __future__ import annotations

import torch
from torch import nn

from vedette_rl.agents.action_heads import ActionHeads
from vedette_rl.agents.actions import DiscreteActions
from vedette_rl.agents.captured_step import Batch, Due, StepResult
from vedette_rl.agents.dqn.config import DqnConfig
from vedette_rl.agents.dqn.network import QLayers
from vedette_rl.agents.imitation import Imitation, cross_entropy, margin_loss
from vedette_rl.agents.losses import td_loss
from vedette_rl.agents.munchausen import Munchausen
from vedette_rl.agents.value_agent import ValueAgent
from vedette_rl.agents.value_rescaling import rescale, restore
from vedette_rl.core.learning import State
from vedette_rl.envs.spaces import Spaces
from vedette_rl.networks.encoder import Obs
from vedette_rl.networks.layers import normalized_columns
from vedette_rl.networks.observation import choose_input
from vedette_rl.networks.torch_network import build_network


def q_learning_target(
    r_t: torch.Tensor, discount_t: torch.Tensor, v_t: torch.Tensor
) -> torch.Tensor:
    """r + discount v': ``(B,)``, v' by the target network (Mnih et al. 2015, algorithm 1).

    Args:
        v_t: max_a Q'(s', a); with double Q-learning Q'(s', argmax_a Q(s', a)), the action chosen by
            the online network (van Hasselt et al. 2016, equation 4).
    """
    return torch.addcmul(r_t, discount_t, v_t)


class DqnAgent(ValueAgent):
    """An `Agent`: one optimization step is algorithm 1 of Mnih et al. 2015 on one batch."""

    def __init__(self, config: DqnConfig, spaces: Spaces, *, device: str, seed: int) -> None:
        self._config = config
        actions = DiscreteActions.from_space(config.name, spaces.action)
        self._heads = ActionHeads(actions, device)
        self._imitation = Imitation(config.imitation, device)
        self._munchausen = Munchausen(config.munchausen, self._heads)

        def build() -> nn.Module:
            return build_network(config, spaces.observation, QLayers, actions.size)

        seen = choose_input(config, spaces.observation)
        columns = normalized_columns(config, spaces.observation)
        super().__init__(config, build, seen, columns, device=device, seed=seed)

    def step(self, batch: Batch, weights: torch.Tensor | None, due: Due) -> StepResult:
        """One optimization step. See `SteppedAgent.step`."""
        obs = self.observations(batch, "obs")
        target = self._td_target(batch, obs)
        q_tm1_BA = self.online(obs)
        q_tm1 = self._heads.of(q_tm1_BA, self._heads.columns(batch["action"]))
        loss = td_loss(q_tm1, target, self._config.loss, weights)
        if self._imitation.wanted(batch):
            loss = loss + self._imitation.weigh(
                self._imitation_loss(q_tm1_BA, batch), batch, weights
            )
        self.descend(loss, due)
        td_errors = (q_tm1.detach() - target).abs_()
        return self.result(due, td_errors, loss, q_tm1, target)

    def _imitation_loss(self, q_BA: torch.Tensor, batch: Batch) -> torch.Tensor:
        """Return the loss ``(B,)`` of each sample's action against the choice of these values."""
        config = self._config.imitation
        q_BDC = self._heads.by_head(q_BA)
        choice_BD = self._heads.choices(batch["action"])
        if config.loss == "margin":
            return margin_loss(q_BDC, choice_BD, config.margin)
        return cross_entropy(q_BDC, choice_BD)

    def set_state(self, state: State) -> None:
        """Continue from `state`; see `ValueAgent.set_state`."""
        super().set_state(state)
        self._imitation.set_step(self.opt_steps)

    @torch.no_grad()
    def _td_target(self, batch: Batch, obs: Obs) -> torch.Tensor:
        next_obs = self.observations(batch, "next_obs")
        discount_t = self.discounts(batch["n_steps"], batch["terminated"])
        q_t_BA = self.target(next_obs)
        if self._munchausen.wanted:
            r_t = self._munchausen.reward(batch, self.target(obs))
            v_t = self._munchausen.value(q_t_BA, q_t_BA.unsqueeze(1)).squeeze(1)
            return q_learning_target(r_t, discount_t, v_t)
        q_t_selector_BA = self.online(next_obs) if self._config.double else q_t_BA
        v_t = self._heads.of(q_t_BA, self._heads.best(q_t_selector_BA))
        return self.bootstrap(batch["reward"], discount_t, v_t)

    def bootstrap(
        self, r_t: torch.Tensor, discount_t: torch.Tensor, v_t: torch.Tensor
    ) -> torch.Tensor:
        """`q_learning_target`, of rescaled values where the network's are."""
        if not self._config.value_rescaling:
            return q_learning_target(r_t, discount_t, v_t)
        returns = q_learning_target(r_t, discount_t, restore(torch, v_t))
        target: torch.Tensor = rescale(torch, returns)
        return target
