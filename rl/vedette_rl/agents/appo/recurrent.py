"""The half of APPO with memory that learns.

Shapes: K runs of a block, T steps of a run, R = K T rows, C runs and B = C T rows of a minibatch, F
features, H numbers of a memory.
"""

from __future__ import annotations

import torch
from torch import nn

from vedette_rl.agents.appo.agent import AppoAgent, Evaluation
from vedette_rl.agents.appo.config import AppoConfig
from vedette_rl.agents.captured_step import Batch
from vedette_rl.agents.recurrent_policy import MEMORY
from vedette_rl.core.columns import BEGINS
from vedette_rl.envs.spaces import Spaces
from vedette_rl.networks.torch_network import RecurrentNetwork, forward_parts


class RecurrentAppoAgent(AppoAgent):
    """An `AppoAgent` whose minibatches are of whole runs.

    Each run is gone through from the memory that the actor had before its first row, and from none
    where an episode begins within it. Rows are some versions old at most, so there is no burn-in.
    """

    network: RecurrentNetwork

    def __init__(self, config: AppoConfig, spaces: Spaces, *, device: str, seed: int) -> None:
        super().__init__(config, spaces, device=device, seed=seed)
        self.networks: tuple[nn.Module, ...] = forward_parts(self.networks)

    def evaluate(self, batch: Batch, rows: Batch, chosen_B: torch.Tensor) -> Evaluation:
        """See `AppoAgent.evaluate`; `chosen_B` are whole runs."""
        steps = batch["reward"].shape[1]
        run_C = chosen_B[::steps] // steps
        memory_BH = self.network.run(
            self.observations(rows, "obs"),
            batch[MEMORY].index_select(0, run_C).float(),
            batch[BEGINS].index_select(0, run_C),
        ).flatten(0, 1)
        output = self.network.output(memory_BH)
        return Evaluation(output[:, :-1], output[:, -1], memory_BH)

    def successor_values(self, rows: Batch, memory_RH: torch.Tensor | None) -> torch.Tensor:
        """See `AppoAgent.successor_values`: one step further from what is remembered after each
        row, also where its episode ended."""
        assert memory_RH is not None, "of `evaluate`"
        after_RH = self.network.remember(self.observations(rows, "next_obs"), memory_RH)
        return self.network.output(after_RH)[:, -1]
