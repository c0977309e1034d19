"""Loops by hand that `scripts/bench_gpu` measures our learner against, on the same device.

DQN, SAC or SAC with CrossQ's critics in plain torch, on one resident batch of random numbers,
captured as CUDA graphs where there is a GPU: the upper bound of a learner that also draws and takes
in samples.
"""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from bench.gpu_ingest import Case
from vedette_rl.networks.torch_network import compute_in_bfloat16

_WARM = 5


def handwritten_step(case: Case, batch_size: int, device: torch.device) -> Callable[[], object]:
    """A function that does one optimization step of a case's algorithm."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        kind = {"dqn": Dqn, "sac": Sac if case.paper else CrossQ}[case.agent]
        loop = kind(case, batch_size, device)
    if case.precision == "bfloat16":
        for network in loop.networks:
            compute_in_bfloat16(network)
    steps = [partial(loop.step, learns=n == 0) for n in range(loop.delay)]  # of the policy, too
    if device.type != "cuda":
        return _in_turn(steps)
    side = torch.cuda.Stream(device)
    side.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(side):
        for step in steps * _WARM:
            step()
    torch.cuda.current_stream(device).wait_stream(side)
    replays = []
    for step in steps[:2]:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step()
        replays.append(partial(_replay, graph, loop))
    return _in_turn([replays[min(n, 1)] for n in range(loop.delay)])


def _replay(graph: torch.cuda.CUDAGraph, loop: object) -> None:
    """Replay a graph of a loop, which has to live as long: a graph does not keep the memory that it
    reads."""
    del loop
    graph.replay()


def _in_turn(steps: list[Callable[[], object]]) -> Callable[[], object]:
    following = itertools.cycle(steps)
    return lambda: next(following)()


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

    delay = 1

    def __init__(self, case: Case, batch_size: int, device: torch.device) -> None:
        shape = case.spaces.observation.shape or ()
        actions = int(case.spaces.action.n)  # a Discrete's
        self.q = (Pixels(actions) if len(shape) == 3 else mlp(*shape, 256, 256, actions)).to(device)
        self.target = copy.deepcopy(self.q)
        self.networks = (self.q, self.target)
        self.adam = adam([self.q], 1e-4, device)
        self.obs, self.next_obs = (
            torch.randint(0, 256, (batch_size, *shape), dtype=torch.uint8, device=device)
            if len(shape) == 3
            else torch.randn(batch_size, *shape, device=device)
            for _ in range(2)
        )
        self.action = torch.randint(actions, (batch_size, 1), device=device)
        self.reward = torch.randn(batch_size, device=device)

    def step(self, *, learns: bool) -> None:
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

    delay = 1

    def __init__(self, case: Case, batch_size: int, device: torch.device) -> None:
        (obs_size,) = case.spaces.observation.shape
        (self.size,) = case.spaces.action.shape
        self.pi = mlp(obs_size, 256, 256, 2 * self.size).to(device)
        critics = [self.critic(obs_size + self.size) for _ in range(2)]
        self.q = nn.ModuleList(critics).to(device)
        self.target = copy.deepcopy(self.q)
        self.networks = (self.pi, *self.q, *self.target)
        self.log_alpha = nn.ParameterList([torch.zeros((), device=device)])
        self.adams = [adam([module], 3e-4, device) for module in (self.q, self.pi, self.log_alpha)]
        self.obs, self.next_obs = torch.randn(2, batch_size, obs_size, device=device)
        self.action = torch.rand(batch_size, self.size, device=device) * 2 - 1
        self.reward = torch.randn(batch_size, 1, device=device)

    @staticmethod
    def critic(size: int) -> nn.Module:
        """A critic of inputs of this size."""
        return mlp(size, 256, 256, 1)

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

    def step(self, *, learns: bool) -> None:
        """One optimization step; `learns`: of the policy, too."""
        alpha = self.log_alpha[0].detach().exp()
        self.fit_critics(alpha)
        if learns:
            self.improve_policy(alpha)

    def fit_critics(self, alpha: torch.Tensor) -> None:
        """A step of the critics, and of their targets."""
        with torch.no_grad():
            action, log_pi = self.act(self.next_obs)
            value = torch.min(*self.values(self.target, self.next_obs, action)) - alpha * log_pi
            target = self.reward + 0.99 * value
        values = self.values(self.q, self.obs, self.action)
        self.descend(0, sum(functional.mse_loss(q, target) for q in values))
        with torch.no_grad():
            for module, target_module in zip(self.q, self.target, strict=True):
                ours, theirs = [*module.parameters()], [*target_module.parameters()]
                torch._foreach_lerp_(theirs, ours, 0.005)

    def improve_policy(self, alpha: torch.Tensor) -> None:
        """A step of the policy and of the temperature."""
        action, log_pi = self.act(self.obs)
        value = torch.min(*self.values(self.q, self.obs, action))
        self.descend(1, (alpha * log_pi - value).mean())
        entropy = log_pi.detach() - self.size
        self.descend(2, -(self.log_alpha[0] * entropy).mean())


class CrossQ(Sac):
    """SAC whose critics have batch normalization and no targets (Bhatt et al. 2024)."""

    delay = 3

    @staticmethod
    def critic(size: int) -> nn.Module:
        """A critic of inputs of this size."""
        layers: list[nn.Module] = []
        for before, after in itertools.pairwise((size, 256, 256, 1)):
            layers += [nn.BatchNorm1d(before, 1e-3, 0.01), nn.Linear(before, after), nn.ReLU()]
        return nn.Sequential(*layers[:-1])

    def fit_critics(self, alpha: torch.Tensor) -> None:
        """A step of the critics, on the batch and its successors as one batch."""
        with torch.no_grad():
            action, log_pi = self.act(self.next_obs)
        obs = torch.cat([self.obs, self.next_obs])
        both = self.values(self.q.train(), obs, torch.cat([self.action, action]))
        values, following = zip(*(q.chunk(2) for q in both), strict=True)
        target = self.reward + 0.99 * (torch.min(*following).detach() - alpha * log_pi)
        self.descend(0, sum(functional.mse_loss(q, target) for q in values))

    def improve_policy(self, alpha: torch.Tensor) -> None:
        """A step of the policy, by the running statistics."""
        self.q.eval()
        super().improve_policy(alpha)
