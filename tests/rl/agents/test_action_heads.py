"""The values of actions in one dimension or several."""

from __future__ import annotations

import torch

from vedette_rl.agents.action_heads import ActionHeads
from vedette_rl.agents.actions import DiscreteActions


def test_the_online_network_chooses_the_action_that_double_q_learning_values() -> None:
    q_t = torch.tensor([[1.0, 4.0], [3.0, 2.0]])
    selector = torch.tensor([[9.0, 8.0], [7.0, 8.0]])
    heads = ActionHeads(DiscreteActions((2,), (5,)), "cpu")
    assert heads.of(q_t, heads.best(selector)).tolist() == [1.0, 2.0]
    assert heads.of(q_t, heads.best(q_t)).tolist() == [4.0, 3.0]


def test_the_heads_of_several_dimensions_by_hand() -> None:
    """Two dimensions of 2 and 3 actions, the second from 4 on: ragged, and not from 0."""
    heads = ActionHeads(DiscreteActions((2, 3), (0, 4), (2,)), "cpu")
    q = torch.tensor([[1.0, 3.0, -2.0, -6.0, -4.0], [5.0, 2.0, 0.0, 7.0, 9.0]])
    assert heads.best(q).tolist() == [[1, 2], [0, 4]]
    assert heads.of(q, heads.best(q)).tolist() == [0.5, 7.0]  # (3 - 2) / 2, (5 + 9) / 2
    columns = heads.columns(torch.tensor([[0, 5], [1, 6]]))
    assert columns.tolist() == [[0, 3], [1, 4]]
    assert heads.of(q, columns).tolist() == [-2.5, 5.5]
    of_quantiles = heads.of(torch.stack([q, 2 * q], dim=1), columns)
    assert of_quantiles.tolist() == [[-2.5, -5.0], [5.5, 11.0]]
