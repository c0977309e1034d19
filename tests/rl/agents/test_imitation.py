"""Behaviour cloning beside the agents' own losses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from vedette_rl.agents.action_heads import ActionHeads
from vedette_rl.agents.actions import DiscreteActions
from vedette_rl.agents.config import ImitationConfig
from vedette_rl.agents.dqn.agent import DqnAgent
from vedette_rl.agents.dqn.config import DqnConfig
from vedette_rl.agents.imitation import Imitation, cross_entropy, margin_loss
from vedette_rl.agents.sac.agent import SacAgent
from vedette_rl.agents.sac.config import SacConfig
from vedette_rl.envs.spaces import Spaces
from vedette_rl.settings.stored import ScheduleConfig

MakeBatch = Callable[..., dict[str, torch.Tensor]]
Q_BDC = torch.tensor([[[1.0, 3.0, 2.5]], [[4.0, 0.0, 3.9]]])
HALF = torch.tensor([0] * 16 + [1] * 16, dtype=torch.uint8)


def test_the_margin_loss_by_hand() -> None:
    # of action 2: max(1.8, 3.8, 2.5) - 2.5; of action 0, the best by less than the margin: 4.7 - 4
    loss = margin_loss(Q_BDC, torch.tensor([[2], [0]]), 0.8)
    torch.testing.assert_close(loss, torch.tensor([1.3, 0.7]))


def test_the_margin_loss_is_0_where_the_action_is_the_best_by_the_margin() -> None:
    assert margin_loss(Q_BDC, torch.tensor([[1], [0]]), 0.05).tolist() == [0.0, 0.0]


def test_cross_entropy_beside_numpy() -> None:
    q = Q_BDC.numpy()[:, 0]
    expected = np.log(np.exp(q).sum(1)) - q[[0, 1], [1, 2]]
    found = cross_entropy(Q_BDC, torch.tensor([[1], [2]]))
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-6)


def test_heads_of_several_dimensions_are_imitated_on_average() -> None:
    heads = ActionHeads(DiscreteActions((2, 3), (0, 4), (2,)), "cpu")
    q_BA = torch.tensor([[1.0, 3.0, -2.0, -6.0, -4.0]], requires_grad=True)
    q_BDC = heads.by_head(q_BA)
    choice = heads.choices(torch.tensor([[0, 5]]))
    assert choice.tolist() == [[0, 1]]
    loss = margin_loss(q_BDC, choice, 0.5)  # (3.5 - 1 + -1.5 - -6) / 2
    assert loss.tolist() == [3.5]
    entropy = cross_entropy(q_BDC, choice)
    first, second = np.log(np.exp([1.0, 3.0]).sum()) - 1, np.log(np.exp([-2.0, -6, -4]).sum()) + 6
    assert entropy.item() == pytest.approx((first + second) / 2)
    entropy.backward()  # type: ignore[no-untyped-call]  # untyped in torch
    assert q_BA.grad is not None
    assert torch.isfinite(q_BA.grad).all()


def test_samples_of_actors_count_0_in_the_mean_of_the_batch() -> None:
    imitation = Imitation(ImitationConfig(loss="margin", weight=2.0), "cpu")
    batch = {"source": torch.tensor([0, 1, 0, 2], dtype=torch.uint8)}
    losses = torch.tensor([100.0, 1.0, 100.0, 3.0])
    assert imitation.weigh(losses, batch).item() == 2.0 * (1.0 + 3.0) / 4
    importance = torch.tensor([1.0, 0.5, 1.0, 1.0])
    assert imitation.weigh(losses, batch, importance).item() == 2.0 * (0.5 + 3.0) / 4


@pytest.mark.parametrize("interval", [1, 2])
def test_the_weight_follows_its_schedule_and_goes_on_where_it_was(interval: int) -> None:
    schedule = ScheduleConfig(kind="linear", total_opts=8, final=0.5)
    config = ImitationConfig(loss="margin", schedule=schedule)
    batch = {"source": torch.ones(1, dtype=torch.uint8)}
    one = torch.ones(1)
    imitation = Imitation(config, "cpu", interval)
    found = [imitation.weigh(one, batch).item() for _ in range(6)]
    assert found == pytest.approx([schedule.factor((k + 1) * interval) for k in range(6)])
    again = Imitation(config, "cpu", interval)
    again.set_step(3 * interval + interval // 2)
    assert [again.weigh(one, batch).item() for _ in range(3)] == found[3:]


def test_the_weight_counts_beyond_the_whole_numbers_of_float32() -> None:
    schedule = ScheduleConfig(kind="linear", total_opts=40_000_000)
    imitation = Imitation(ImitationConfig(loss="margin", schedule=schedule), "cpu")
    imitation.set_step(2**24 - 3)
    batch = {"source": torch.ones(4, dtype=torch.uint8)}
    for _ in range(100):
        found = imitation.weigh(torch.ones(4), batch)
    assert float(found) == pytest.approx(schedule.factor(2**24 + 97), abs=1e-6)
    assert int(imitation._step) == 2**24 + 97


@pytest.mark.parametrize("step", [0.5, 1.0, 3.0, 7.0, 20.0])
@pytest.mark.parametrize("kind", ["constant", "linear", "cosine"])
def test_a_schedule_is_the_same_in_tensors_and_in_numbers(kind: Any, step: float) -> None:
    from vedette_rl.networks.adam import schedule_factor

    schedule = ScheduleConfig(kind=kind, warmup_opts=2, total_opts=10, final=0.25)
    assert schedule.factor(step) == pytest.approx(
        schedule_factor(schedule, torch.tensor(step)).item(), abs=1e-6
    )


def dqn(spaces: Spaces, **imitation: Any) -> DqnAgent:
    config = DqnConfig(hidden_sizes=(16,), imitation=ImitationConfig(**imitation))
    return DqnAgent(config, spaces, device="cpu", seed=0)


def sac(spaces: Spaces, **imitation: Any) -> SacAgent:
    config = SacConfig(
        hidden_sizes=(16,), learning_rate=3e-3, imitation=ImitationConfig(**imitation)
    )
    return SacAgent(config, spaces, device="cpu", seed=0)


@pytest.mark.parametrize("loss", ["margin", "cross_entropy"])
def test_a_batch_of_actors_alone_teaches_as_without_imitation(
    vector_discrete: Spaces, make_batch: MakeBatch, loss: str
) -> None:
    batch = make_batch(vector_discrete, 32)
    plain = dqn(vector_discrete)
    imitating = dqn(vector_discrete, loss=loss)
    for _ in range(3):
        plain.opt(batch)
        imitating.opt({**batch, "source": torch.zeros(32, dtype=torch.uint8)})
    for name, array in plain.model_info().arrays.items():
        np.testing.assert_allclose(imitating.model_info().arrays[name], array, atol=1e-6)


@pytest.mark.parametrize("loss", ["margin", "cross_entropy"])
def test_dqn_takes_the_demonstrated_actions(
    vector_discrete: Spaces, make_batch: MakeBatch, loss: str
) -> None:
    batch = {**make_batch(vector_discrete, 32), "source": HALF}
    batch["action"] = torch.where(HALF.bool(), 1, batch["action"])
    agent = dqn(vector_discrete, loss=loss, weight=20.0)
    for _ in range(150):
        agent.opt(batch)
    with torch.no_grad():
        best = agent.online(agent.observations(batch, "obs")).argmax(1)
    assert (best[16:] == 1).all()


def test_sac_takes_the_demonstrated_actions(vector_box: Spaces, make_batch: MakeBatch) -> None:
    batch = {**make_batch(vector_box, 32), "source": HALF}
    batch["action"][16:] = 0.0
    agents = sac(vector_box), sac(vector_box, loss="cross_entropy", weight=5.0)
    for _ in range(300):
        for agent in agents:
            agent.opt(batch)
    centered = agents[0].actions_of(batch)[16:]
    plain, imitating = (
        (agent._gaussian(agent.pi(agent.observations(batch, "obs")))[0][16:].tanh() - centered)
        .abs()
        .mean()
        for agent in agents
    )
    assert imitating < 0.15
    assert imitating < plain


def test_an_agent_goes_on_with_the_weight_that_it_had(
    vector_discrete: Spaces, make_batch: MakeBatch
) -> None:
    batch = {**make_batch(vector_discrete, 32), "source": HALF}
    schedule = {"kind": "linear", "total_opts": 10}
    one, other = (dqn(vector_discrete, loss="margin", schedule=schedule) for _ in range(2))
    for _ in range(4):
        one.opt(batch)
    other.set_state(one.get_state())
    for agent in (one, other):
        agent.opt(batch)
    for name, array in one.model_info().arrays.items():
        np.testing.assert_array_equal(other.model_info().arrays[name], array)


def test_a_margin_is_of_action_values() -> None:
    with pytest.raises(ValueError, match="set cross_entropy"):
        SacConfig.model_validate({"imitation": {"loss": "margin"}})
