"""APPO: what its halves agree on, its optimization step, and that it resumes in a block."""

from __future__ import annotations

import copy
import math
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from blocks import minibatches, random_block  # of tests/support

from vedette_rl.agents.actions import BoxActions, DiscreteActions
from vedette_rl.agents.appo.agent import AppoAgent
from vedette_rl.agents.appo.config import AppoConfig
from vedette_rl.agents.appo.distributions import distribution_of
from vedette_rl.agents.appo.policy import KIND, POLICY_ACTION, SampledPolicy
from vedette_rl.core import Columns, ModelInfo
from vedette_rl.core.columns import LOG_PROB
from vedette_rl.envs.spaces import Spaces
from vedette_rl.testing import sampled_obs

VECTOR = gym.spaces.Box(-1, 1, (4,), np.float32)
RAGGED = gym.spaces.MultiDiscrete([2, 4, 3], start=[0, 1, -1])
BOX = gym.spaces.Box(np.float32([-2, 0]), np.float32([2, 10]))
ACTIONS = [gym.spaces.Discrete(3), RAGGED, BOX]


def agent_for(action: gym.Space[Any], seed: int = 0, **options: Any) -> AppoAgent:
    config = AppoConfig(hidden_sizes=(16,), **options)
    return AppoAgent(config, Spaces(VECTOR, action), device="cpu", seed=seed)


def policy_for(action: gym.Space[Any], model: ModelInfo, **options: Any) -> SampledPolicy:
    config = AppoConfig(hidden_sizes=(16,), **options)
    made = KIND.build_policy(config, Spaces(VECTOR, action), ranks=np.zeros(1), seed=3)
    assert isinstance(made, SampledPolicy)
    made.sync_model(model)
    return made


def steep(model: ModelInfo) -> ModelInfo:
    """A model whose outputs differ: a new one's are almost the same for all actions."""
    rng = np.random.default_rng(0)
    arrays = {name: array + rng.normal(size=array.shape, scale=0.3).astype(np.float32)
              for name, array in model.arrays.items()}  # fmt: skip
    return ModelInfo(1, arrays)


@pytest.mark.parametrize("action", ACTIONS, ids=str)
def test_actor_and_learner_agree_on_how_likely_an_action_was(action: gym.Space[Any]) -> None:
    """The actor's column, in numpy, beside torch's distribution on the same network's output."""
    model = steep(agent_for(action, normalize_observations=False).model_info())
    policy = policy_for(action, model, normalize_observations=False)
    obs = sampled_obs(VECTOR, 200, 0)
    acted = policy.act(obs, explore=True)
    columns: Columns = policy.acted_columns()
    config = AppoConfig(hidden_sizes=(16,))
    kind = BoxActions if isinstance(action, gym.spaces.Box) else DiscreteActions
    distribution = distribution_of(kind.from_space("appo", action), config, "cpu")
    rows = {name: torch.from_numpy(column) for name, column in columns.items()}
    rows["action"] = torch.from_numpy(acted)
    output = torch.from_numpy(policy.network(obs))
    log_prob = distribution.log_prob(output, rows).numpy()
    np.testing.assert_allclose(columns[LOG_PROB], log_prob, atol=1e-5)
    assert np.ptp(log_prob) > 0.1


def test_choices_are_drawn_as_often_as_they_are_likely() -> None:
    model = steep(agent_for(RAGGED, normalize_observations=False).model_info())
    policy = policy_for(RAGGED, model, normalize_observations=False)
    obs = {"obs": np.ones((1, 4), np.float32).repeat(20_000, axis=0)}
    acted = policy.act(obs, explore=True)
    logits = policy.network({"obs": obs["obs"][:1]})[0]
    for head, (first, count, start) in enumerate([(0, 2, 0), (2, 4, 1), (6, 3, -1)]):
        p = np.exp(logits[first : first + count])
        shares = np.bincount(acted[:, head] - start, minlength=count) / len(acted)
        np.testing.assert_allclose(shares, p / p.sum(), atol=0.015)


def test_a_gaussians_sample_is_stored_as_it_was_before_it_was_clipped() -> None:
    model = agent_for(BOX, initial_log_std=1.0).model_info()
    policy = policy_for(BOX, model)
    acted = policy.act(sampled_obs(VECTOR, 500, 0), explore=True)
    drawn = policy.acted_columns()[POLICY_ACTION]
    assert (np.abs(drawn) > 1.0).any()
    assert BOX.contains(acted.min(axis=0))
    assert BOX.contains(acted.max(axis=0))
    expected = np.clip(np.float32([0, 5]) + np.float32([2, 5]) * drawn, BOX.low, BOX.high)
    np.testing.assert_allclose(acted, expected, rtol=1e-6)


def test_entropies_are_exact() -> None:
    config = AppoConfig()
    actions = DiscreteActions.from_space("appo", RAGGED)
    categories = distribution_of(actions, config, "cpu")
    assert categories.entropy(torch.zeros(1, 9)).item() == pytest.approx(math.log(2 * 4 * 3))
    normal = distribution_of(BoxActions.from_space("appo", BOX), config, "cpu")
    output = torch.tensor([[0.0, 0.0, 0.5, -1.0]])
    expected = torch.distributions.Normal(torch.zeros(2), torch.tensor([0.5, -1.0]).exp())
    assert normal.entropy(output).item() == pytest.approx(expected.entropy().sum().item())


@pytest.mark.parametrize("action", ACTIONS, ids=str)
def test_the_model_is_what_acts_without_the_value(action: gym.Space[Any]) -> None:
    agent = agent_for(action)
    names = set(agent.model_info().arrays)
    assert not any(name.startswith("value") for name in names)
    assert any(name.startswith("value") for name in agent.get_state()["network"])
    assert ("log_std" in names) == (action is BOX)


@pytest.mark.parametrize("action", ACTIONS, ids=str)
def test_it_resumes_at_every_step_of_a_block(action: gym.Space[Any]) -> None:
    """Two blocks of 3 passes x 2 minibatches: as if nothing had happened, bit by bit."""
    spaces = Spaces(VECTOR, action)
    options: dict[str, Any] = {"clip_schedule": {"kind": "linear", "total_opts": 20}}
    batches = [
        batch
        for seed in (0, 1)
        for batch in minibatches(random_block(spaces, 4, 6, seed), passes=3, size=12)
    ]
    agent = agent_for(action, **options)
    states = [copy.deepcopy(agent.get_state())]
    for batch in batches:
        agent.opt(batch)
        states.append(copy.deepcopy(agent.get_state()))
    for k, state in enumerate(states[:-1]):
        resumed = agent_for(action, seed=9, **options)
        resumed.set_state(copy.deepcopy(state))
        resumed.opt(batches[k])
        torch.testing.assert_close(resumed.get_state(), states[k + 1], rtol=0.0, atol=0.0)


@pytest.mark.parametrize("action", ACTIONS, ids=str)
def test_padding_changes_nothing(action: gym.Space[Any]) -> None:
    spaces = Spaces(VECTOR, action)
    made = []
    for junk in (False, True):
        block = random_block(spaces, 3, 4, 0)
        if junk:
            outside = ~block["learned"]
            for name in ("reward", "log_prob"):
                block[name][outside] = 1e3
            for name in ("terminated", "truncated"):
                block[name][outside] = True
        agent = agent_for(action, normalize_observations=False)
        for batch in minibatches(block, passes=2, size=6):
            agent.opt(batch)
        made.append(agent.get_state()["network"])
    torch.testing.assert_close(made[0], made[1], rtol=0.0, atol=0.0)


def test_statistics_of_the_observation_count_a_block_once_and_behind_it() -> None:
    spaces = Spaces(VECTOR, ACTIONS[0])
    agent = agent_for(ACTIONS[0])
    counted = []
    for batch in minibatches(random_block(spaces, 4, 4, 0), passes=2, size=8):
        agent.opt(batch)
        counted.append(float(agent.get_state()["observed"]["batches"]))
    assert counted == [0.0, 0.0, 0.0, 1.0]


def test_at_the_first_step_of_a_block_the_policy_is_beta() -> None:
    spaces = Spaces(VECTOR, ACTIONS[0])
    agent = agent_for(ACTIONS[0])
    records = [
        dict(agent.opt(batch, record=True).record)
        for seed in (0, 1)
        for batch in minibatches(random_block(spaces, 4, 4, seed), passes=2, size=8)
    ]
    assert records[0]["kl"] == pytest.approx(0.0, abs=1e-6)
    assert records[4]["kl"] == pytest.approx(0.0, abs=1e-6)
    assert records[3]["kl"] > 1e-8
    assert records[0]["weight_mean"] <= 1.0


def test_values_are_learned_in_deviations_of_their_targets() -> None:
    spaces = Spaces(VECTOR, ACTIONS[0])
    block = random_block(spaces, 8, 8, 0)
    block["reward"] = 1000.0 + 100.0 * block["reward"]
    block["terminated"][:] = True  # targets are the rewards
    agent = agent_for(ACTIONS[0], learning_rate=1e-2, max_grad_norm=0.0)
    for _ in range(100):
        for batch in minibatches(block, passes=1, size=64):
            last = agent.opt(batch, record=True)
    assert 50.0 < last.record["value_scale"] < 200.0
    assert last.record["value_loss"] < 2.0


def values_of(agent: AppoAgent, block: dict[str, torch.Tensor]) -> torch.Tensor:
    """The values of a block's observations, in the unit of rewards."""
    rows = {"obs": block["obs"].flatten(0, 1)}
    with torch.no_grad():
        v_R = agent.network(agent.observations(rows, "obs"))[:, -1]
    scale = agent.get_state()["value_scale"]
    values: torch.Tensor = scale["deviation"] * v_R + scale["mean"]
    return values


@pytest.mark.parametrize("were_normalised", [True, False])
def test_values_are_hardly_stretched_as_their_scale_jumps(were_normalised: bool) -> None:
    """Also where values were learned without a scale before, which begins at a resume."""
    spaces = Spaces(VECTOR, ACTIONS[0])
    options = {"normalize_observations": False, "max_grad_norm": 0.0}
    first = agent_for(ACTIONS[0], normalize_values=were_normalised, **options)
    low = random_block(spaces, 8, 8, 0)
    for batch in minibatches(low, passes=4, size=16):
        first.opt(batch)
    agent = agent_for(ACTIONS[0], learning_rate=1e-12, **options)
    agent.set_state(first.get_state())
    high = random_block(spaces, 8, 8, 1)
    high["reward"] = 1000.0 + 100.0 * high["reward"]
    before, mean = values_of(agent, low), agent.get_state()["value_scale"]["mean"]
    (batch,) = minibatches(high, passes=1, size=64)
    scale = agent.opt(batch, record=True).record["value_scale"]
    assert scale > 100.0 * first.get_state()["value_scale"]["deviation"]
    stretched = mean + 1.2 * (before - mean)
    torch.testing.assert_close(values_of(agent, low), stretched, rtol=1e-3, atol=1e-2)


def test_values_grow_as_their_scale_does_where_it_grows_slowly() -> None:
    spaces = Spaces(VECTOR, ACTIONS[0])
    agent = agent_for(ACTIONS[0], learning_rate=1e-12, normalize_observations=False)
    for number in range(4):
        block = random_block(spaces, 8, 8, number)
        before, scale = values_of(agent, block), agent.get_state()["value_scale"]
        learned, mean = (before - scale["mean"]) / scale["deviation"], scale["mean"]
        (batch,) = minibatches(block, passes=1, size=64)
        agent.opt(batch)
        scale = agent.get_state()["value_scale"]
        expected = scale["deviation"] * learned + scale["mean"]
        torch.testing.assert_close(values_of(agent, block), expected, rtol=1e-3, atol=1e-4)
    assert scale["mean"] != mean


def test_a_block_without_a_finite_scale_leaves_the_scale_as_it_was() -> None:
    spaces = Spaces(VECTOR, ACTIONS[0])
    agent = agent_for(ACTIONS[0])
    for number in range(3):
        block = random_block(spaces, 8, 8, number)
        if number == 1:
            before = agent.get_state()["value_scale"]
            block["reward"][2, 3] = 1e20  # its square is beyond float32
        for batch in minibatches(block, passes=1, size=64):
            agent.opt(batch)
        scale = agent.get_state()["value_scale"]
        if number == 1:
            assert scale["deviation"] <= before["deviation"]
            assert scale["mean"] == before["mean"]
    assert 0.0 < scale["deviation"] < 10.0


def test_no_target_is_beyond_what_rewards_can_add_up_to_where_they_begin_late() -> None:
    """A reward of 1 from block 10 on, behind blocks without any: no value exceeds 100."""
    spaces = Spaces(VECTOR, ACTIONS[0])
    agent = agent_for(ACTIONS[0], learning_rate=3e-3)
    highest = 0.0
    for number in range(40):
        block = random_block(spaces, 16, 32, number)
        block["reward"] = torch.full((16, 32), float(number >= 10))
        for ends in ("terminated", "truncated"):
            block[ends] = torch.zeros(16, 32, dtype=torch.bool)
        for batch in minibatches(block, passes=4, size=64):
            agent.opt(batch)
        highest = max(highest, float(agent.get_state()["block"]["targets"].max()))
    assert 30.0 < highest < 105.0


@pytest.mark.parametrize("action", [ACTIONS[0], BOX], ids=str)
def test_it_learns_a_bandit_from_actions_of_older_models(action: gym.Space[Any]) -> None:
    """One choice, or a small first number, is rewarded; a model acts for four blocks."""
    agent = agent_for(action, learning_rate=1e-2)
    policy = policy_for(action, agent.model_info())
    obs = {"obs": np.ones((64, 4), np.float32)}
    ended = np.ones((64, 1), bool)
    for k in range(60):
        if k % 4 == 0:
            policy.sync_model(agent.model_info())
        acted = policy.act(obs, explore=True)
        hit = np.abs(acted[:, 0] - 1.0) if action is BOX else (acted != 1)
        rows = {
            **{name: column[:, None] for name, column in policy.acted_columns().items()},
            **{"obs": obs["obs"][:, None], "next_obs": obs["obs"][:, None]},
            **{"action": acted[:, None], "reward": -hit.astype(np.float32)[:, None]},
            **{"terminated": ended, "truncated": ~ended, "learned": ended},
        }
        block = {name: torch.from_numpy(np.ascontiguousarray(c)) for name, c in rows.items()}
        for batch in minibatches(block, passes=2, size=32, seed=k):
            agent.opt(batch)
    policy.sync_model(agent.model_info())
    greedy = policy.act({"obs": obs["obs"][:1]}, explore=False)
    if action is BOX:
        assert abs(greedy[0, 0] - 1.0) < 0.3
    else:
        assert greedy[0] == 1


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"n_step": 3}, "leave it out"),
        ({"rho_max": 0.5}, "rho_max is 0.5, below c_max 1"),
        ({"random_shift": 4}, "set 0"),
        ({"log_std_min": 3.0}, "must be below"),
    ],
)
def test_settings_that_do_not_fit_are_refused(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(Exception, match=says):
        AppoConfig(**wrong)


def plain_block(
    agent: AppoAgent, block: dict[str, torch.Tensor], config: AppoConfig
) -> dict[str, torch.Tensor]:
    """Log-probabilities, targets and advantages of a block, row by row from the definitions."""
    with torch.no_grad():
        logits = agent.network({"obs": block["obs"].flatten(0, 1)})
        behind = agent.network({"obs": block["next_obs"].flatten(0, 1)})
    shape = block["reward"].shape
    log_beta = logits[:, :-1].log_softmax(1).gather(1, block["action"].flatten()[:, None])
    log_beta = log_beta.view(shape)
    v, v_next = logits[:, -1].view(shape), behind[:, -1].view(shape)
    ratio = (log_beta - block[LOG_PROB]).exp()
    targets, advantages = v.clone(), v.clone()
    for k in range(shape[0]):
        behind_a = 0.0
        for t in reversed(range(shape[1])):
            ends = bool(block["terminated"][k, t])
            cut = ends or bool(block["truncated"][k, t])
            last = t == shape[1] - 1 or not bool(block["learned"][k, t + 1])
            if cut or last or bool(block["begins"][k, t + 1]):
                behind_a = 0.0
            gamma = 0.0 if ends else config.discount
            future = v_next[k, t] + config.lambda_ * behind_a
            advantages[k, t] = block["reward"][k, t] + gamma * future - v[k, t]
            rho = min(config.rho_max, float(ratio[k, t]))
            c = min(config.c_max, float(ratio[k, t]))
            delta = rho * (block["reward"][k, t] + gamma * v_next[k, t] - v[k, t])
            behind_a = float(delta + gamma * config.lambda_ * c * behind_a)
            targets[k, t] = v[k, t] + behind_a
    w = ratio.clamp(max=config.rho_max)
    return {"log_beta": log_beta, "targets": targets, "advantages": advantages, "w": w}


def test_a_blocks_targets_and_weights_are_those_of_the_definitions() -> None:
    options: dict[str, Any] = {
        "normalize_observations": False,
        "normalize_values": False,
        "rho_max": 1.5,
        "c_max": 0.8,
        "lambda_": 0.9,
        "advantages": "block",
        "learning_rate": 0.05,
    }
    spaces = Spaces(VECTOR, ACTIONS[0])
    block = random_block(spaces, 6, 8, 3)
    block["begins"][2, 4] = True  # a program's own loop left an episode
    agent = agent_for(ACTIONS[0], **options)
    expected = plain_block(agent, block, AppoConfig(hidden_sizes=(16,), **options))
    learned = block["learned"].flatten()
    for batch in minibatches(block, passes=2, size=16):
        record = agent.opt(batch, record=True).record
        made = agent.get_state()["block"]
        for name in ("log_beta", "targets", "advantages"):
            torch.testing.assert_close(
                made[name][learned], expected[name].flatten()[learned], rtol=1e-4, atol=1e-5
            )
        chosen = batch["chosen"][learned[batch["chosen"]]]
        weight = expected["w"].flatten()[chosen].mean().item()
        assert record["weight_mean"] == pytest.approx(weight, rel=1e-4)
    assert record["kl"] > 1e-3, "the policy has moved"


def test_advantages_are_computed_again_at_each_pass_if_that_is_asked() -> None:
    spaces = Spaces(VECTOR, ACTIONS[0])
    for wanted, changes in (("pass", True), ("block", False)):
        agent = agent_for(ACTIONS[0], advantages=wanted, learning_rate=0.05)
        made = []
        for batch in minibatches(random_block(spaces, 4, 4, 0), passes=2, size=8):
            agent.opt(batch)
            made.append(agent.get_state()["block"])
        assert torch.equal(made[0]["advantages"], made[1]["advantages"])
        assert torch.equal(made[1]["advantages"], made[2]["advantages"]) != changes
        assert torch.equal(made[0]["log_beta"], made[3]["log_beta"])


def test_without_correction_old_actions_count_as_if_they_were_new() -> None:
    spaces = Spaces(VECTOR, ACTIONS[0])
    states = []
    for shift in (0.0, 1.0):
        block = random_block(spaces, 4, 4, 0)
        block[LOG_PROB] += shift
        agent = agent_for(ACTIONS[0], correction="none")
        for batch in minibatches(block, passes=2, size=8):
            agent.opt(batch)
        states.append(agent.get_state()["network"])
    torch.testing.assert_close(states[0], states[1], rtol=0.0, atol=0.0)


@pytest.mark.parametrize("action", ACTIONS, ids=str)
def test_on_its_own_steps_the_loss_is_ppos(action: gym.Space[Any]) -> None:
    """What a strict queue gives (`replay.strict`): the model that acted is the one that learns.

    Equation 7 of Schulman et al. 2017, of what the actor has stored, with the advantages of GAE
    (Schulman et al. 2016), as Stable-Baselines3 has them: once for each block, normalised in each
    minibatch.
    """
    options: dict[str, Any] = {
        "advantages": "block",
        "correction": "none",
        "normalize_observations": False,
        "normalize_values": False,
        "learning_rate": 0.02,
        "initial_log_std": -0.5,
    }
    spaces = Spaces(VECTOR, action)
    agent = agent_for(action, **options)
    agent.set_state({**agent.get_state(), "network": steep_state(agent)})
    policy = policy_for(action, agent.model_info(), **options)
    block = random_block(spaces, 6, 8, 1)
    acted = policy.act({"obs": block["obs"].flatten(0, 1).numpy()}, explore=True)
    played = {"action": acted, **policy.acted_columns()}
    block |= {
        name: torch.from_numpy(column).unflatten(0, (6, 8)) for name, column in played.items()
    }
    distribution = agent._distribution
    expected = plain_gae(agent, block, 0.99, 0.95)
    for batch in minibatches(block, passes=3, size=16):
        rows = {name: block[name].flatten(0, 1)[batch["chosen"]] for name in (*played, "obs")}
        learned = block["learned"].flatten()[batch["chosen"]]
        with torch.no_grad():
            output = agent.network({"obs": rows["obs"]})
            log_pi = distribution.log_prob(output[:, :-1], rows)[learned]
            ratio = (log_pi - rows[LOG_PROB][learned]).exp()  # pi / mu: there is no beta in PPO
        advantage = expected.flatten()[batch["chosen"]][learned]
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        clipped = ratio.clamp(0.8, 1.2)
        loss = -torch.minimum(ratio * advantage, clipped * advantage).mean()
        record = agent.opt(batch, record=True).record
        assert record["policy_loss"] == pytest.approx(loss.item(), rel=1e-3, abs=1e-5)
    assert record["clipped"] > 0.0, "the clip has a part"


def steep_state(agent: AppoAgent) -> dict[str, Any]:
    """A network whose policy is not the same for all that it sees."""
    state: dict[str, Any] = dict(agent.get_state()["network"])
    return {name: t * 30.0 if name == "policy.1.weight" else t for name, t in state.items()}


def plain_gae(
    agent: AppoAgent, block: dict[str, torch.Tensor], gamma: float, lambda_: float
) -> torch.Tensor:
    """GAE(lambda), step by step from the back (equation 16 of Schulman et al. 2016)."""
    with torch.no_grad():
        v, v_next = (
            agent.network({"obs": block[part].flatten(0, 1)})[:, -1].view(6, 8)
            for part in ("obs", "next_obs")
        )
    advantages = torch.zeros(6, 8)
    for run in range(6):
        behind = 0.0
        for t in reversed(range(8)):
            ends = bool(block["terminated"][run, t])
            over = ends or bool(block["truncated"][run, t])
            if over or t == 7 or not block["learned"][run, t + 1]:
                behind = 0.0
            successor = 0.0 if ends else gamma * v_next[run, t].item()
            delta = block["reward"][run, t].item() + successor - v[run, t].item()
            behind = delta + gamma * lambda_ * behind
            advantages[run, t] = behind
    return advantages
