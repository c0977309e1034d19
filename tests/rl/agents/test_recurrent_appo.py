"""APPO with memory: its step beside networks that are run row by row, by hand, and what it acts."""

from __future__ import annotations

import copy
import math
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from blocks import minibatches, random_block  # of tests/support
from hand_made_windows import assert_gradients

from vedette_rl.agents.appo.config import AppoConfig
from vedette_rl.agents.appo.policy import KIND, POLICY_ACTION
from vedette_rl.agents.appo.recurrent import RecurrentAppoAgent
from vedette_rl.agents.recurrent_policy import MEMORY, RecurrentPolicy, memory_column
from vedette_rl.core import ModelInfo
from vedette_rl.core.columns import BEGINS, LEARNED, LOG_PROB
from vedette_rl.envs.spaces import Spaces
from vedette_rl.testing import sampled_obs

VECTOR = gym.spaces.Box(-1, 1, (4,), np.float32)
PIXELS = gym.spaces.Box(0, 255, (2, 12, 12), np.uint8)
RAGGED = gym.spaces.MultiDiscrete([2, 4, 3], start=[0, 1, -1])
BOX = gym.spaces.Box(np.float32([-2, 0]), np.float32([2, 10]))
ACTIONS = [gym.spaces.Discrete(3), RAGGED, BOX]
SIZE, RUNS, STEPS = 6, 6, 8
DEFINED: dict[str, Any] = {
    "normalize_observations": False,
    "normalize_values": False,
    "rho_max": 1.5,
    "c_max": 0.8,
    "lambda_": 0.9,
    "max_grad_norm": 0.0,
    "entropy_coef": 0.1,
}

Block = dict[str, torch.Tensor]


def config_of(**options: Any) -> AppoConfig:
    return AppoConfig(memory="gru", memory_size=SIZE, hidden_sizes=(16,), **options)


def agent_for(
    action: gym.Space[Any], observation: gym.Space[Any] = VECTOR, seed: int = 0, **options: Any
) -> RecurrentAppoAgent:
    spaces = Spaces(observation, action)
    agent = KIND.build_agent(config_of(**options), spaces, device="cpu", seed=seed)
    assert isinstance(agent, RecurrentAppoAgent)
    with torch.no_grad():  # a new network's policy is the same for all that is remembered
        agent.network.get_parameter("policy.1.weight").mul_(50.0)
    return agent


def block_of(action: gym.Space[Any], seed: int = 0, runs: int = RUNS) -> Block:
    return random_block(Spaces(VECTOR, action), runs, STEPS, seed, (memory_column(SIZE),))


def one(block: Block, name: str, run: int, t: int) -> torch.Tensor:
    return block[name][run, t : t + 1]


def outputs_row_by_row(agent: RecurrentAppoAgent, block: Block, run: int) -> list[Any]:
    """The network's output for each row of a run, and for what that came to."""
    network = agent.network
    memory = block[MEMORY][run : run + 1]
    rows = []
    for t in range(STEPS):
        if block[BEGINS][run, t]:
            memory = torch.zeros(1, SIZE)
        memory = network.remember({"obs": one(block, "obs", run, t)}, memory)
        after = network.remember({"obs": one(block, "next_obs", run, t)}, memory)
        rows.append((network.output(memory)[0], network.output(after)[0, -1]))
    return rows


def log_prob_and_entropy(
    output: torch.Tensor, action: gym.Space[Any], row: Block
) -> tuple[Any, Any]:
    """By torch's own distributions, of one row's output."""
    if isinstance(action, gym.spaces.Box):
        mean, log_std = output[:-1].chunk(2)
        normal = torch.distributions.Normal(mean, log_std.exp())
        return normal.log_prob(row[POLICY_ACTION]).sum(), normal.entropy().sum()
    heads = [3] if isinstance(action, gym.spaces.Discrete) else [2, 4, 3]
    starts = [0] if isinstance(action, gym.spaces.Discrete) else [0, 1, -1]
    log_prob, entropy = torch.zeros(()), torch.zeros(())
    taken = row["action"].reshape(-1)
    for logits, start, choice in zip(output[:-1].split(heads), starts, taken, strict=True):
        head = torch.distributions.Categorical(logits=logits)
        log_prob = log_prob + head.log_prob(choice - start)
        entropy = entropy + head.entropy()
    return log_prob, entropy


def defined(
    agent: RecurrentAppoAgent, config: AppoConfig, action: gym.Space[Any], block: Block
) -> dict[str, torch.Tensor]:
    """Log-probabilities, values, targets and advantages of a block ``(K, T)``, by definition."""
    made = {
        n: torch.zeros(RUNS, STEPS) for n in ("log_pi", "v", "entropy", "targets", "advantages")
    }
    for run in range(RUNS):
        rows = outputs_row_by_row(agent, block, run)
        behind = 0.0
        for t in reversed(range(STEPS)):
            output, v_next = rows[t]
            row = {name: block[name][run, t] for name in ("action", POLICY_ACTION) if name in block}
            log_pi, entropy = log_prob_and_entropy(output, action, row)
            v = output[-1]
            made["log_pi"][run, t], made["v"][run, t], made["entropy"][run, t] = log_pi, v, entropy
            ends = bool(block["terminated"][run, t])
            over = ends or bool(block["truncated"][run, t])
            if over or t == STEPS - 1 or not block[LEARNED][run, t + 1]:
                behind = 0.0
            gamma = 0.0 if ends else config.discount
            r, v_next, value = block["reward"][run, t].item(), v_next.item(), v.item()
            ratio = math.exp(log_pi.item() - block[LOG_PROB][run, t].item())
            advantage = r + gamma * (v_next + config.lambda_ * behind) - value
            delta = min(config.rho_max, ratio) * (r + gamma * v_next - value)
            behind = delta + gamma * config.lambda_ * min(config.c_max, ratio) * behind
            made["advantages"][run, t] = advantage
            made["targets"][run, t] = value + behind
    return made


@pytest.mark.parametrize("action", ACTIONS, ids=str)
@pytest.mark.parametrize("advantages", ["pass", "block"])
def test_a_step_is_that_of_networks_run_row_by_row(action: gym.Space[Any], advantages: Any) -> None:
    """Two passes of three minibatches: everything but Adam, which moves another agent, too."""
    options = {**DEFINED, "advantages": advantages, "learning_rate": 0.02}
    config = config_of(**options)
    agent, other = agent_for(action, **options), agent_for(action, **options)
    block = block_of(action, 3)
    beta = made = defined(other, config, action, block)
    assert (beta["log_pi"] - beta["log_pi"][:, :1]).abs().max() > 0.1, "rows differ"
    for batch in minibatches(block, passes=2, size=2 * STEPS, whole_runs=True):
        other.set_state(copy.deepcopy(agent.get_state()))
        now = defined(other, config, action, block)
        if batch.place.begins_pass and advantages == "pass":
            made = now
        chosen = batch["chosen"][block[LEARNED].flatten()[batch["chosen"]]]
        log_pi, v, entropy = (now[n].flatten()[chosen] for n in ("log_pi", "v", "entropy"))
        log_beta = beta["log_pi"].flatten()[chosen].detach()
        log_mu = block[LOG_PROB].flatten()[chosen]
        advantage = made["advantages"].flatten()[chosen].detach()
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        r = (log_pi - log_beta).exp()
        w = (log_beta - log_mu).exp().clamp(max=config.rho_max)
        surrogate = torch.minimum(r * advantage, r.clamp(0.8, 1.2) * advantage)
        target = made["targets"].flatten()[chosen].detach()
        loss = -(w * surrogate).mean() + 0.5 * (v - target).square().mean() - 0.1 * entropy.mean()
        other.network.zero_grad()
        torch.autograd.backward(loss)
        record = agent.opt(batch, record=True).record
        assert record["loss"] == pytest.approx(float(loss.detach()), rel=1e-4, abs=1e-5)
        assert_gradients(agent.network, other.network)
        learned = block[LEARNED].flatten()
        state = agent.get_state()["block"]
        for name in ("targets", "advantages"):
            expected = made[name].flatten().detach()
            torch.testing.assert_close(
                state[name][learned], expected[learned], rtol=1e-3, atol=1e-4
            )
    assert record["kl"] > 1e-3, "the policy has moved"


def test_values_and_targets_by_hand() -> None:
    """A core of one number that is halved at each step, and adds half of what is seen."""
    spaces = Spaces(gym.spaces.Box(-1, 1, (1,), np.float32), gym.spaces.Discrete(2))
    config = AppoConfig(
        **{"memory": "gru", "memory_size": 1, "hidden_sizes": (1,), "policy_architecture": "mlp"},
        **{"normalize_observations": False, "normalize_values": False, "correction": "none"},
        **{"discount": 0.5, "lambda_": 1.0},
    )
    agent = KIND.build_agent(config, spaces, device="cpu", seed=0)
    assert isinstance(agent, RecurrentAppoAgent)
    with torch.no_grad():
        for parameter in agent.network.parameters():
            parameter.zero_()  # so that gates are 1/2, and both actions are as likely
        agent.network.core.weight_ih_l0[2] = 1.0
        agent.network.get_parameter("value.0.weight").fill_(1.0)
        agent.network.get_parameter("value.1.weight").fill_(2.0)
    # h' = tanh(x) / 2 + h / 2, and V = 2 h' where h' is positive
    seen = np.arctanh(np.float32([[0.8, 0.4, 0.6, 0.2]]))
    came_to = np.arctanh(np.float32([[0.4, 0.9, 0.2, 0.5]]))
    block = {
        "obs": torch.from_numpy(seen).unsqueeze(2),
        "next_obs": torch.from_numpy(came_to).unsqueeze(2),
        "action": torch.zeros(1, 4, dtype=torch.int64),
        "reward": torch.tensor([[1.0, 2.0, 3.0, 4.0]]),
        "terminated": torch.tensor([[False, False, False, True]]),
        "truncated": torch.tensor([[False, True, False, False]]),
        "begins": torch.tensor([[False, False, True, False]]),
        "learned": torch.ones(1, 4, dtype=torch.bool),
        LOG_PROB: torch.full((1, 4), math.log(0.5)),
        MEMORY: torch.tensor([[0.4]]),
    }
    # h: 0.4 + 0.2 = 0.6; 0.2 + 0.3 = 0.5; 0.3, as an episode begins; 0.1 + 0.15 = 0.25
    # of what they came to: 0.2 + 0.3 = 0.5; 0.45 + 0.25 = 0.7; 0.1 + 0.15 = 0.25
    # V: 1.2, 1.0, 0.6, 0.5; V': 1.0, 1.4, 0.5 (and the last is terminated)
    # targets: 4; 3 + 4 / 2 = 5; 2 + 1.4 / 2 = 2.7, truncated; 1 + 2.7 / 2 = 2.35
    agent.opt(block)
    state = agent.get_state()["block"]
    expected = torch.tensor([2.35, 2.7, 5.0, 4.0])
    torch.testing.assert_close(state["targets"], expected)
    torch.testing.assert_close(state["advantages"], expected - torch.tensor([1.2, 1.0, 0.6, 0.5]))
    torch.testing.assert_close(state["log_beta"], torch.full((4,), math.log(0.5)))


@pytest.mark.parametrize("action", ACTIONS, ids=str)
@pytest.mark.parametrize("observation", [VECTOR, PIXELS], ids=["numpy", "torch"])
def test_actor_and_learner_agree_on_what_is_remembered_and_how_likely_actions_were(
    observation: gym.Space[Any], action: gym.Space[Any]
) -> None:
    """What a policy has played is, to the learner on the same weights, its own: mu is beta."""
    spaces = Spaces(observation, action)
    agent = agent_for(action, observation, normalize_observations=False)
    policy = KIND.build_policy(
        config_of(normalize_observations=False), spaces, ranks=np.zeros(3), seed=3
    )
    assert isinstance(policy, RecurrentPolicy)
    policy.sync_model(agent.model_info())
    rng = np.random.default_rng(0)
    rows: dict[str, list[Any]] = {}
    for t in range(2 * STEPS):
        obs = sampled_obs(observation, 3, t)
        begins = rng.random(3) < (1.0 if t == 0 else 0.2)
        acted = policy.act(obs, explore=True, begins=begins)
        columns = {**obs, "action": acted, BEGINS: begins, **policy.acted_columns()}
        for name, column in columns.items():
            rows.setdefault(name, []).append(column)
    block: Block = {}
    for name, columns in rows.items():
        played = np.stack(columns, axis=1)[:, STEPS:]  # the second run of each environment
        block[name] = torch.from_numpy(np.ascontiguousarray(played))
    assert block[BEGINS][:, 1:].any()
    assert not block[BEGINS][:, 0].all()
    stored = block[MEMORY]
    assert stored[~block[BEGINS]].abs().max() > 0.05
    assert not stored[block[BEGINS]].any()
    block[MEMORY] = stored[:, 0].clone()
    never = torch.zeros_like(block[BEGINS])
    block |= {"reward": torch.ones(3, STEPS), "terminated": never, "truncated": never}
    block["next_obs"] = block["obs"]
    record = agent.opt(block, record=True).record
    log_beta = agent.get_state()["block"]["log_beta"]
    np.testing.assert_allclose(log_beta, block[LOG_PROB].flatten(), atol=1e-4)
    assert np.ptp(log_beta.numpy()) > 0.1
    assert record["weight_mean"] == pytest.approx(1.0, abs=1e-4)


@pytest.mark.parametrize("action", ACTIONS, ids=str)
def test_it_resumes_at_every_step_of_a_block(action: gym.Space[Any]) -> None:
    """Two blocks of 2 passes x 3 minibatches: as if nothing had happened, bit by bit."""
    batches = [
        batch
        for seed in (0, 1)
        for batch in minibatches(block_of(action, seed), 2, 2 * STEPS, whole_runs=True)
    ]
    agent = agent_for(action)
    states = [copy.deepcopy(agent.get_state())]
    for batch in batches:
        agent.opt(batch)
        states.append(copy.deepcopy(agent.get_state()))
    for k, state in enumerate(states[:-1]):
        resumed = agent_for(action, seed=9)
        resumed.set_state(copy.deepcopy(state))
        resumed.opt(batches[k])
        torch.testing.assert_close(resumed.get_state(), states[k + 1], rtol=0.0, atol=0.0)


def test_what_is_not_chosen_changes_nothing_but_the_scale_of_values() -> None:
    """Of a minibatch of some runs the others' observations are not learned from."""
    action = ACTIONS[0]
    networks = []
    for other in (0, 1):
        block, junk = block_of(action), block_of(action, 1)
        batch = next(minibatches(block, 1, 2 * STEPS, whole_runs=True))
        untouched = torch.ones(RUNS, dtype=torch.bool)
        untouched[batch["chosen"] // STEPS] = False
        if other:
            for name in ("obs", MEMORY):
                batch[name] = batch[name].clone()
                batch[name][untouched] = junk[name][untouched]
        agent = agent_for(action, normalize_values=False, normalize_observations=False)
        agent.opt(batch)
        networks.append(agent.get_state()["network"])
    torch.testing.assert_close(networks[0], networks[1], rtol=0.0, atol=0.0)


def test_the_model_is_what_acts_with_the_core_and_without_the_value() -> None:
    names = set(agent_for(ACTIONS[0]).model_info().arrays)
    assert "core.weight_ih_l0" in names
    assert not any(name.startswith("value") for name in names)


def test_columns_are_declared_for_what_is_remembered() -> None:
    spaces = Spaces(VECTOR, ACTIONS[0])
    names = [column.name for column in KIND.columns(config_of(), spaces)]
    assert names == [LOG_PROB, MEMORY]
    assert KIND.columns(config_of(memory_dtype="float16"), spaces)[1].dtype == "float16"
    assert [column.name for column in KIND.columns(AppoConfig(), spaces)] == [LOG_PROB]


def test_clients_of_other_languages_are_told_of_the_core_and_how_to_draw() -> None:
    assert KIND.describe is not None
    box = gym.spaces.Box(-2, 2, (3,), np.float32)
    for action, head in ((ACTIONS[0], "categories"), (box, "normal")):
        described = KIND.describe(config_of(), Spaces(VECTOR, action))
        assert described is not None
        ((name, layers),) = described["networks"]
        assert (described["head"], name, layers[0][0]) == (head, "policy", "gru")


def test_it_learns_to_name_what_it_saw_first() -> None:
    """A sign is shown first; the last of four actions is to name it, a block of own play each."""
    steps, envs = 4, 64
    spaces = Spaces(gym.spaces.Box(-1, 1, (1,), np.float32), gym.spaces.Discrete(2))
    config = AppoConfig(
        **{"memory": "gru", "memory_size": 16, "hidden_sizes": (32,), "learning_rate": 5e-3},
        **{"discount": 0.9, "normalize_observations": False},
    )
    agent = KIND.build_agent(config, spaces, device="cpu", seed=0)
    policy = KIND.build_policy(config, spaces, ranks=np.zeros(envs), seed=0)
    assert isinstance(policy, RecurrentPolicy)
    rng = np.random.default_rng(0)
    ends = np.tile(np.arange(steps) == steps - 1, (envs, 1))
    for k in range(60):
        policy.sync_model(agent.model_info())
        sign = rng.choice([-1.0, 1.0], envs).astype(np.float32)
        obs = np.zeros((envs, steps + 1, 1), np.float32)
        obs[:, 0, 0] = sign
        played: dict[str, list[Any]] = {}
        for t in range(steps):
            begins = np.full(envs, t == 0)
            acted = policy.act({"obs": obs[:, t]}, explore=True, begins=begins)
            for name, column in {"action": acted, **policy.acted_columns()}.items():
                played.setdefault(name, []).append(column)
        columns = {name: np.stack(column, axis=1) for name, column in played.items()}
        named = 2.0 * columns["action"] - 1.0 == sign[:, None]
        columns |= {
            **{"obs": obs[:, :-1], "next_obs": obs[:, 1:], MEMORY: columns[MEMORY][:, 0]},
            **{"reward": (named & ends).astype(np.float32), "terminated": ends},
            **{"truncated": np.zeros_like(ends), LEARNED: np.ones_like(ends)},
            BEGINS: np.tile(np.arange(steps) == 0, (envs, 1)),
        }
        block = {name: torch.from_numpy(np.ascontiguousarray(c)) for name, c in columns.items()}
        for batch in minibatches(block, passes=2, size=32 * steps, seed=k, whole_runs=True):
            agent.opt(batch)
    policy.sync_model(ModelInfo(1, agent.model_info().arrays))
    seen = np.array([[-1.0], [1.0]], np.float32)
    for t in range(steps):
        acted = policy.act({"obs": seen}, explore=False, begins=np.full(2, t == 0))
        seen = np.zeros((2, 1), np.float32)
    assert acted.tolist() == [0, 1]
