"""What `scripts/bench/run gpu` measures and checks our learner against, on the same device.

`handwritten_step`: DQN or SAC in plain torch on one resident batch of random numbers, captured as a
CUDA graph where there is one: the upper bound of a learner that also draws and takes in samples.
`check_agents`: captured steps beside the same agent's steps as they are, from one seed.
"""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch import nn
from torch.nn import functional

from bench.gpu_ingest import Case
from vedette_rl.agents.captured_step import CudaCapture
from vedette_rl.agents.registry import agent_kind
from vedette_rl.envs.spaces import Spaces

_WARM = 5
CHECKED_STEPS = 200


def handwritten_step(case: Case, batch_size: int, device: torch.device) -> Callable[[], object]:
    """A function that does one optimization step of a case's algorithm."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        loop = (Sac if case.agent == "sac" else Dqn)(case, batch_size, device)
    if device.type != "cuda":
        return loop.step
    side = torch.cuda.Stream(device)
    side.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(side):
        for _ in range(_WARM):
            loop.step()
    torch.cuda.current_stream(device).wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loop.step()
    return graph.replay


def mlp(*sizes: int) -> nn.Sequential:
    """Linear layers with ReLU between them."""
    layers: list[nn.Module] = []
    for before, after in itertools.pairwise(sizes):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


class Pixels(nn.Module):
    """The network of Mnih et al. 2015."""

    def __init__(self, actions: int) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(4, 32, 8, 4),
            nn.ReLU(),
            nn.Conv2d(32, 64, 4, 2),
            nn.ReLU(),
            nn.Conv2d(64, 64, 3, 1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(3136, 512),
            nn.ReLU(),
            nn.Linear(512, actions),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.net(x.float() / 255.0)


def adam(modules: list[nn.Module], lr: float, device: torch.device) -> torch.optim.Adam:
    parameters = [p for module in modules for p in module.parameters()]
    return torch.optim.Adam(parameters, lr=lr, fused=True, capturable=device.type == "cuda")


class Dqn:
    """Double DQN with Huber loss and a clipped gradient; the target is left as it is."""

    def __init__(self, case: Case, batch_size: int, device: torch.device) -> None:
        shape = case.spaces.observation.shape or ()
        actions = int(case.spaces.action.n)  # a Discrete's
        self.q = (Pixels(actions) if len(shape) == 3 else mlp(*shape, 256, 256, actions)).to(device)
        self.target = copy.deepcopy(self.q)
        self.adam = adam([self.q], 1e-4, device)
        self.obs, self.next_obs = (
            torch.randint(0, 256, (batch_size, *shape), dtype=torch.uint8, device=device)
            if len(shape) == 3
            else torch.randn(batch_size, *shape, device=device)
            for _ in range(2)
        )
        self.action = torch.randint(actions, (batch_size, 1), device=device)
        self.reward = torch.randn(batch_size, device=device)

    def step(self) -> None:
        """One optimization step."""
        with torch.no_grad():
            best = self.q(self.next_obs).argmax(1, keepdim=True)
            target = self.reward + 0.99 * self.target(self.next_obs).gather(1, best).squeeze(1)
        loss = functional.smooth_l1_loss(self.q(self.obs).gather(1, self.action).squeeze(1), target)
        self.adam.zero_grad(set_to_none=False)
        loss.backward()
        nn.utils.clip_grad_norm_(self.q.parameters(), 10.0)
        self.adam.step()


class Sac:
    """SAC with two critics and a tuned temperature, as in CleanRL."""

    def __init__(self, case: Case, batch_size: int, device: torch.device) -> None:
        (obs_size,) = case.spaces.observation.shape
        (self.size,) = case.spaces.action.shape
        self.pi = mlp(obs_size, 256, 256, 2 * self.size).to(device)
        self.q = nn.ModuleList(mlp(obs_size + self.size, 256, 256, 1) for _ in range(2)).to(device)
        self.target = copy.deepcopy(self.q)
        self.log_alpha = nn.ParameterList([torch.zeros((), device=device)])
        self.adams = [adam([module], 3e-4, device) for module in (self.q, self.pi, self.log_alpha)]
        self.obs, self.next_obs = torch.randn(2, batch_size, obs_size, device=device)
        self.action = torch.rand(batch_size, self.size, device=device) * 2 - 1
        self.reward = torch.randn(batch_size, 1, device=device)

    def act(self, obs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        mean, log_std = self.pi(obs).chunk(2, dim=1)
        log_std = log_std.clamp(-20, 2)
        noise = torch.randn_like(mean)
        u = mean + log_std.exp() * noise
        log_pi = -0.5 * noise.square() - log_std - 0.5 * math.log(2 * math.pi)
        log_pi = log_pi - 2 * (math.log(2) - u - functional.softplus(-2 * u))
        return u.tanh(), log_pi.sum(1, keepdim=True)

    @staticmethod
    def values(critics: nn.ModuleList, obs: torch.Tensor, action: torch.Tensor) -> list[Any]:
        both = torch.cat([obs, action], 1)
        return [critic(both) for critic in critics]

    def descend(self, which: int, loss: torch.Tensor) -> None:
        self.adams[which].zero_grad(set_to_none=False)
        loss.backward()
        self.adams[which].step()

    def step(self) -> None:
        """One optimization step."""
        alpha = self.log_alpha[0].detach().exp()
        with torch.no_grad():
            action, log_pi = self.act(self.next_obs)
            value = torch.min(*self.values(self.target, self.next_obs, action)) - alpha * log_pi
            target = self.reward + 0.99 * value
        values = self.values(self.q, self.obs, self.action)
        self.descend(0, sum(functional.mse_loss(q, target) for q in values))
        action, log_pi = self.act(self.obs)
        value = torch.min(*self.values(self.q, self.obs, action))
        self.descend(1, (alpha * log_pi - value).mean())
        entropy = log_pi.detach() - self.size
        self.descend(2, -(self.log_alpha[0] * entropy).mean())
        with torch.no_grad():
            for module, target_module in zip(self.q, self.target, strict=True):
                ours, theirs = [*module.parameters()], [*target_module.parameters()]
                torch._foreach_lerp_(theirs, ours, 0.005)


_BOX = gym.spaces.Box(-1.0, 1.0, (3,), np.float32)
_CHECKED = {
    "dqn": Spaces(gym.spaces.Box(-1.0, 1.0, (8,), np.float32), gym.spaces.Discrete(4)),
    "iqn": Spaces(gym.spaces.Box(-1.0, 1.0, (8,), np.float32), gym.spaces.Discrete(4)),
    "sac": Spaces(gym.spaces.Box(-1.0, 1.0, (8,), np.float32), _BOX),
    "td3": Spaces(gym.spaces.Box(-1.0, 1.0, (8,), np.float32), _BOX),
}


def check_agents(device: torch.device, steps: int = CHECKED_STEPS) -> dict[str, Any]:
    """The largest difference between captured steps and steps as they are, by agent.

    Of TD errors in all steps and of the model after the last; ``reason`` says why steps are not
    captured, where they are not.
    """
    return {name: _check(name, spaces, device, steps) for name, spaces in _CHECKED.items()}


def _check(name: str, spaces: Spaces, device: torch.device, steps: int) -> dict[str, Any]:
    kind = agent_kind(name)
    config = kind.config(target_update_interval=3)
    plain, captured = (
        kind.build_agent(config, spaces, device=str(device), seed=1) for _ in range(2)
    )
    if device.type == "cuda":
        captured.capture_by(CudaCapture(device, captured.generators))  # type: ignore[attr-defined]
    rng = np.random.default_rng(0)
    apart = 0.0
    for step in range(steps):
        batch = _random_batch(spaces, rng, device)
        errors = [agent.opt(batch, record=step % 10 == 0) for agent in (plain, captured)]
        one, other = (result.td_errors for result in errors)
        assert one is not None and other is not None  # noqa: PT018
        apart = max(apart, float((one - other).abs().max()))
    ours, theirs = captured.model_info().arrays, plain.model_info().arrays
    held = getattr(captured, "_captured", None)
    return {
        "td_errors_apart": apart,
        "model_apart": max(float(np.abs(ours[name] - theirs[name]).max()) for name in ours),
        "kinds_captured": len(held._replays) if held else 0,
        "reason": held.reason if held else "no GPU",
    }


def _random_batch(
    spaces: Spaces, rng: np.random.Generator, device: torch.device
) -> dict[str, torch.Tensor]:
    rows = 64
    (obs_size,) = spaces.observation.shape or ()
    discrete = isinstance(spaces.action, gym.spaces.Discrete)
    arrays = {
        "obs": rng.standard_normal((rows, obs_size), np.float32),
        "next_obs": rng.standard_normal((rows, obs_size), np.float32),
        "action": rng.integers(0, 4, rows) if discrete else rng.random((rows, 3), np.float32),
        "reward": rng.standard_normal(rows, np.float32),
        "terminated": rng.random(rows) < 0.1,
        "truncated": np.zeros(rows, np.bool_),
        "n_steps": np.ones(rows, np.uint8),
    }
    return {name: torch.from_numpy(array).to(device) for name, array in arrays.items()}
