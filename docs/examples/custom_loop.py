"""SAC in one file, in the style of CleanRL, fed by actors on other hosts.

The lines marked `# +` are all that it needs for that: in their place a loop of one process makes an
environment, acts in it and adds what it saw to a buffer in its memory.

    python custom_loop.py                                             # terminal 1
    vedette actors --learner 127.0.0.1 --allow-import custom_loop     # terminal 2, or other hosts
"""

import time
from dataclasses import dataclass
from pathlib import Path

import gymnasium as gym
import numpy as np
import torch
from torch import nn

import vedette  # +


@dataclass
class Args:
    env_id: str = "Pendulum-v1"
    total_timesteps: int = 20_000
    buffer_size: int = 100_000
    learning_starts: int = 1_000
    batch_size: int = 256
    gamma: float = 0.99
    tau: float = 0.005
    alpha: float = 0.2
    policy_lr: float = 3e-4
    q_lr: float = 1e-3
    run_dir: str = "runs/custom_loop"  # +
    bind: str = "127.0.0.1:5555"  # +


def mlp(inputs, outputs):
    return nn.Sequential(
        nn.Linear(inputs, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, outputs)
    )


class QNetwork(nn.Module):
    def __init__(self, observation_space, action_space):
        super().__init__()
        self.net = mlp(int(np.prod(observation_space.shape) + np.prod(action_space.shape)), 1)

    def forward(self, obs, action):
        return self.net(torch.cat([obs, action], 1)).squeeze(1)


class Actor(nn.Module):
    def __init__(self, observation_space, action_space):
        super().__init__()
        self.net = mlp(int(np.prod(observation_space.shape)), 2 * int(np.prod(action_space.shape)))
        low, high = torch.tensor(action_space.low), torch.tensor(action_space.high)
        self.register_buffer("scale", (high - low) / 2)
        self.register_buffer("bias", (high + low) / 2)

    def forward(self, obs):
        """An action, its log-probability, and the most likely action."""
        mean, log_std = self.net(obs).chunk(2, 1)
        normal = torch.distributions.Normal(mean, log_std.clamp(-5, 2).exp())
        x = normal.rsample()
        y = x.tanh()
        log_prob = normal.log_prob(x) - torch.log(self.scale * (1 - y.pow(2)) + 1e-6)
        return y * self.scale + self.bias, log_prob.sum(1), mean.tanh() * self.scale + self.bias


class Policy:  # +
    """Acts in each actor: made there, on the arrays that the loop publishes."""  # +

    def __init__(self, spaces, seed):  # +
        torch.manual_seed(seed)  # +
        self.actor = Actor(spaces.observation, spaces.action)  # +

    def sync_model(self, model):  # +
        self.actor.load_state_dict({k: torch.tensor(v) for k, v in model.arrays.items()})  # +

    @torch.no_grad()  # +
    def act(self, obs, *, explore):  # +
        action, _, most_likely = self.actor(torch.as_tensor(obs["obs"]))  # +
        return (action if explore else most_likely).numpy()  # +


def main(args):
    env = gym.make(args.env_id)
    torch.manual_seed(1)
    actor = Actor(env.observation_space, env.action_space)
    q1, q2, q1_target, q2_target = (
        QNetwork(env.observation_space, env.action_space) for _ in range(4)
    )
    q1_target.load_state_dict(q1.state_dict())
    q2_target.load_state_dict(q2.state_dict())
    q_optimizer = torch.optim.Adam([*q1.parameters(), *q2.parameters()], lr=args.q_lr)
    actor_optimizer = torch.optim.Adam(actor.parameters(), lr=args.policy_lr)
    saved = [actor, q1, q2, q1_target, q2_target, q_optimizer, actor_optimizer]
    checkpoint = Path(args.run_dir, "loop.pt")
    first_step = 0
    unfinished = checkpoint.with_suffix(".new")
    if checkpoint.exists():
        first_step, states = torch.load(checkpoint)
        for part, state in zip(saved, states, strict=True):
            part.load_state_dict(state)

    # drawn per row inserted  # +
    size = args.buffer_size
    ratio = args.batch_size
    settings = {  # +
        "env": args.env_id,  # +
        "agent": "custom_loop:Policy",  # +
        "replay": vedette.ReplayConfig(capacity=size, samples_per_insert=ratio),  # +
        "learner": vedette.LearnerConfig(warmup_period=args.learning_starts),  # +
    }  # +
    with vedette.Replay(args.run_dir, bind=args.bind, **settings) as replay:  # +
        replay.publish(actor.state_dict())  # +
        start_time = time.time()
        for global_step in range(first_step, args.total_timesteps):
            data = replay.sample(args.batch_size)  # +
            obs, action, reward, next_obs, terminated = (
                torch.as_tensor(data[name]).float()
                for name in ("obs", "action", "reward", "next_obs", "terminated")
            )
            with torch.no_grad():
                pi, log_prob, _ = actor(next_obs)
                value = torch.min(q1_target(next_obs, pi), q2_target(next_obs, pi))
                value = value - args.alpha * log_prob
                target = reward + (1 - terminated) * args.gamma * value
            mse = nn.functional.mse_loss
            q_loss = mse(q1(obs, action), target) + mse(q2(obs, action), target)
            q_optimizer.zero_grad()
            q_loss.backward()
            q_optimizer.step()

            pi, log_prob, _ = actor(obs)
            actor_loss = (args.alpha * log_prob - torch.min(q1(obs, pi), q2(obs, pi))).mean()
            actor_optimizer.zero_grad()
            actor_loss.backward()
            actor_optimizer.step()

            for q, q_target in ((q1, q1_target), (q2, q2_target)):
                for param, target_param in zip(q.parameters(), q_target.parameters(), strict=True):
                    target_param.data.lerp_(param.data, args.tau)

            if global_step % 50 == 0:  # +
                replay.publish(actor.state_dict())  # +
            if global_step % 1000 == 0:
                torch.save((global_step, [part.state_dict() for part in saved]), unfinished)
                unfinished.replace(checkpoint)
                speed = (global_step - first_step) / (time.time() - start_time)
                returns = replay.status().rollout.return_mean  # +
                print(f"{global_step}: return {returns}, {speed:.0f} steps/s", flush=True)


if __name__ == "__main__":
    main(Args())
