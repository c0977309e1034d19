"""The half of IQN that learns."""

from __future__ import annotations

import torch
from torch import nn

from vedette_rl.agents.action_heads import ActionHeads
from vedette_rl.agents.actions import DiscreteActions
from vedette_rl.agents.captured_step import Batch, Due, StepResult
from vedette_rl.agents.iqn.config import IqnConfig
from vedette_rl.agents.iqn.network import QuantileLayers
from vedette_rl.agents.losses import quantile_huber_loss
from vedette_rl.agents.munchausen import Munchausen
from vedette_rl.agents.value_agent import ValueAgent
from vedette_rl.agents.value_rescaling import rescale, restore
from vedette_rl.core.learning import State
from vedette_rl.device.ranks import draw_rows
from vedette_rl.envs.spaces import Spaces
from vedette_rl.networks.encoder import Obs
from vedette_rl.networks.layers import normalized_columns
from vedette_rl.networks.observation import choose_input
from vedette_rl.networks.seeding import restore_generator
from vedette_rl.networks.torch_network import build_network


class IqnAgent(ValueAgent):
    """An `Agent`: one optimization step descends equation 3 on one batch.

    Shapes: B samples, N, M (the paper's N') and K quantile fractions, A values of actions.
    """

    def __init__(self, config: IqnConfig, spaces: Spaces, *, device: str, seed: int) -> None:
        self._config = config
        actions = DiscreteActions.from_space(config.name, spaces.action)
        self._heads = ActionHeads(actions, device)
        self._munchausen = Munchausen(config.munchausen, self._heads)

        def build() -> nn.Module:
            return build_network(config, spaces.observation, QuantileLayers, actions.size)

        seen = choose_input(config, spaces.observation)
        columns = normalized_columns(config, spaces.observation)
        super().__init__(config, build, seen, columns, device=device, seed=seed)
        self._taus = torch.Generator(device).manual_seed(seed)
        self.generators += (self._taus,)

    def step(self, batch: Batch, weights: torch.Tensor | None, due: Due) -> StepResult:
        """One optimization step. See `SteppedAgent.step`.

        The TD error of a sample is that of the distributions' means.
        """
        obs = self.observations(batch, "obs")
        target_BM = self._target_samples(batch, obs)
        taus_BN = self._draw_taus(batch["reward"], self._config.n_quantiles)
        z_tm1_BNA = self.online(obs, taus_BN)
        z_tm1_BN = self._heads.of(z_tm1_BNA, self._heads.columns(batch["action"]))
        loss_B = quantile_huber_loss(z_tm1_BN, taus_BN, target_BM, self._config.kappa)
        loss = (loss_B if weights is None else weights * loss_B).mean()
        self.descend(loss, due)
        td_errors = (target_BM.mean(dim=1) - z_tm1_BN.detach().mean(dim=1)).abs_()
        return self.result(due, td_errors, loss, z_tm1_BN, target_BM)

    @torch.no_grad()
    def _target_samples(self, batch: Batch, obs: Obs) -> torch.Tensor:
        """r + discount Z'_tau'(s', argmax_a mean_K Z(s', a)): ``(B, M)``; or Munchausen's."""
        next_obs = self.observations(batch, "next_obs")
        r_t = batch["reward"]
        taus_BK = self._draw_taus(r_t, self._config.n_action_quantiles)
        taus_BM = self._draw_taus(r_t, self._config.n_target_quantiles)
        munchausen = self._munchausen.wanted
        if self._config.double and not munchausen:
            q_t_BA = self.means(self.online(next_obs, taus_BK))
            z_t_BMA = self.target(next_obs, taus_BM)
        else:
            z_t = self.target(next_obs, torch.cat([taus_BK, taus_BM], dim=1))
            q_t_BA = self.means(z_t[:, : self._config.n_action_quantiles])
            z_t_BMA = z_t[:, self._config.n_action_quantiles :]
        if munchausen:
            taus_BK = self._draw_taus(r_t, self._config.n_action_quantiles)
            r_t = self._munchausen.reward(batch, self.target(obs, taus_BK).mean(dim=1))
            z_t_BM = self._munchausen.value(q_t_BA, z_t_BMA)
        else:
            z_t_BM = self._heads.of(z_t_BMA, self._heads.best(q_t_BA))
        discount_t = self.discounts(batch["n_steps"], batch["terminated"])
        return self.bootstrap(r_t.unsqueeze(1), discount_t.unsqueeze(1), z_t_BM)

    def means(self, z_BNA: torch.Tensor) -> torch.Tensor:
        """The actions' values ``(B, A)``: means of the returns, not of what is learned of them."""
        if self._config.value_rescaling:
            z_BNA = restore(torch, z_BNA)
        return z_BNA.mean(dim=1)

    def bootstrap(
        self, r_t: torch.Tensor, discount_t: torch.Tensor, z_t: torch.Tensor
    ) -> torch.Tensor:
        """Samples r + discount z' of the target, rescaled where the network's are."""
        if not self._config.value_rescaling:
            return torch.addcmul(r_t, discount_t, z_t)
        target: torch.Tensor = rescale(torch, torch.addcmul(r_t, discount_t, restore(torch, z_t)))
        return target

    def _draw_taus(self, like_B: torch.Tensor, count: int) -> torch.Tensor:
        return draw_rows(torch.rand, (len(like_B), count), self._taus)

    def pending_state(self) -> State:
        """All that resume needs; see `ValueAgent.pending_state`."""
        return {**super().pending_state(), "taus": self._taus.get_state()}

    def set_state(self, state: State) -> None:
        """Continue from `state`; see `ValueAgent.set_state`."""
        super().set_state(state)
        restore_generator(self._taus, state["taus"])
