"""A custom agent: the half that learns, the half that acts, and the kind that builds both."""

import numpy as np
import torch

import vedette
from vedette_rl.agents import AgentConfig, AgentKind
from vedette_rl.core import ModelInfo, OptResult, select_part
from vedette_rl.networks import (
    FlatEncoder,
    ParameterVector,
    VectorAdam,
    build_seeded,
    check_arrays,
    count_features,
    flat_parts,
    flatten_observation,
)


class LinearAgent:
    """Q-learning on a linear function of any observation, with a target network."""

    def __init__(self, config, spaces, device, seed):
        parts = flat_parts(config.name, spaces.observation)  # of a dictionary, too

        def build():
            layer = torch.nn.Linear(count_features(parts), int(spaces.action.n))
            return torch.nn.Sequential(FlatEncoder(parts), layer)

        # the same weights for the same seed, whatever else draws random numbers
        self.q, self.q_target = (build_seeded(build, seed, device) for _ in range(2))
        self.online = ParameterVector(self.q, learns=True)  # all weights, as one vector
        self.target = ParameterVector(self.q_target, learns=False)
        self.adam = VectorAdam(self.online, learning_rate=config.learning_rate)
        self.discount = config.discount
        self.opt_steps = 0

    def opt(self, batch, weights=None, *, record=False):
        obs, next_obs = select_part(batch, "obs"), select_part(batch, "next_obs")
        q = self.q(obs).gather(1, batch["action"][:, None]).squeeze(1)
        with torch.no_grad():  # a truncated episode has not ended: its value beyond still counts
            discount = self.discount ** batch["n_steps"] * ~batch["terminated"]
            target = batch["reward"] + discount * self.q_target(next_obs).amax(1)
        error = target - q
        loss = (error**2 * (1 if weights is None else weights)).mean()
        self.adam.zero_grad()
        loss.backward()
        self.adam.step()
        self.target.soft_update(self.online, tau=0.05)
        self.opt_steps += 1
        return OptResult(error.detach().abs(), {"loss": loss.item()} if record else {})

    def model_info(self):  # what travels to the actors: copies
        return ModelInfo(self.opt_steps, self.online.arrays())

    def get_state(self):  # what a resumed run continues from, and --init-from begins with: copies
        return {
            "online": self.online.get(self.online.data),
            "target": self.target.get(self.target.data),
            "adam": self.adam.get_state(),
            "opt_steps": self.opt_steps,
        }

    def set_state(self, state):
        self.online.set(self.online.data, state["online"])
        self.target.set(self.target.data, state["target"])
        self.adam.set_state(state["adam"])
        self.opt_steps = state["opt_steps"]


class LinearPolicy:
    """Acts in numpy: actors need no torch for it."""

    def __init__(self, config, spaces, seed):
        self.parts = flat_parts(config.name, spaces.observation)
        self.actions = int(spaces.action.n)
        self.rng = np.random.default_rng(seed)

    def sync_model(self, model):
        shape = self.actions, count_features(self.parts)
        check_arrays({"1.weight": shape, "1.bias": shape[:1]}, model.arrays)
        self.weight = model.arrays["1.weight"]
        self.bias = model.arrays["1.bias"]

    def values(self, obs):
        return flatten_observation(self.parts, obs) @ self.weight.T + self.bias

    def act(self, obs, *, explore, begins=None):
        action = self.values(obs).argmax(1)
        random = self.rng.random(len(action)) < (0.1 if explore else 0.0)
        return np.where(random, self.rng.integers(self.actions, size=len(action)), action)


def build_agent(config, spaces, *, device, seed):
    return LinearAgent(config, spaces, device, seed)


def build_policy(config, spaces, *, ranks, seed):
    return LinearPolicy(config, spaces, seed)


# what `agent.name` names; check=... is a function that refuses spaces it cannot take
Linear = AgentKind("custom_agent:Linear", AgentConfig, build_agent, build_policy)


if __name__ == "__main__":
    # In a terminal: vedette run --env CartPole-v1 --agent custom_agent:Linear
    result = vedette.train(
        env="CartPole-v1",
        agent=AgentConfig(name="custom_agent:Linear", learning_rate=0.01, n_step=3),
        learner=vedette.LearnerConfig(eval_interval=100),
        stop=vedette.StopConfig(max_opts=200),
        in_process=True,
    )
    print(result.summary["exit_reason"], result.summary["eval"]["best_return_mean"])
