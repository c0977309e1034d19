"""An agent of your own: the half that learns, the half that acts, and the kind that builds both."""

import numpy as np
import torch

import vedette
from vedette_rl.agents.config import AgentConfig
from vedette_rl.agents.kind import AgentKind
from vedette_rl.core import ModelInfo, OptResult


class LinearAgent:
    """Q-learning on a linear function."""

    def __init__(self, config, features, actions, seed):
        torch.manual_seed(seed)
        self.q = torch.nn.Linear(features, actions)
        self.adam = torch.optim.Adam(self.q.parameters(), config.learning_rate)
        self.discount, self.opt_steps = config.discount, 0

    def opt(self, batch, weights=None, *, record=False):
        q = self.q(batch["obs"]).gather(1, batch["action"][:, None]).squeeze(1)
        with torch.no_grad():  # a truncated episode has not ended: its value beyond still counts
            discount = self.discount ** batch["n_steps"] * ~batch["terminated"]
            target = batch["reward"] + discount * self.q(batch["next_obs"]).amax(1)
        error = target - q
        loss = (error**2 * (1 if weights is None else weights)).mean()
        self.adam.zero_grad()
        loss.backward()
        self.adam.step()
        self.opt_steps += 1
        return OptResult(error.detach().abs(), {"loss": loss.item()} if record else {})

    def model_info(self):  # what travels to the actors: copies
        arrays = {name: p.detach().numpy().copy() for name, p in self.q.named_parameters()}
        return ModelInfo(self.opt_steps, arrays)

    def get_state(self):
        weights = {name: p.detach().clone() for name, p in self.q.named_parameters()}
        return {"q": weights, "adam": self.adam.state_dict(), "opt_steps": self.opt_steps}

    def set_state(self, state):
        self.q.load_state_dict(state["q"])
        self.adam.load_state_dict(state["adam"])
        self.opt_steps = state["opt_steps"]


class LinearPolicy:
    def __init__(self, actions, seed):
        self.actions, self.rng = actions, np.random.default_rng(seed)

    def sync_model(self, model):
        self.weight, self.bias = model.arrays["weight"], model.arrays["bias"]

    def act(self, obs, *, explore):
        action = (obs["obs"] @ self.weight.T + self.bias).argmax(1)
        random = self.rng.random(len(action)) < (0.1 if explore else 0.0)
        return np.where(random, self.rng.integers(self.actions, size=len(action)), action)


def build_agent(config, spaces, *, device, seed):
    return LinearAgent(config, spaces.observation.shape[0], int(spaces.action.n), seed)


def build_policy(config, spaces, *, ranks, seed):
    return LinearPolicy(int(spaces.action.n), seed)


# what `agent.name` names; check=... is a function that refuses spaces it cannot take
Linear = AgentKind("own_agent:Linear", AgentConfig, build_agent, build_policy)


if __name__ == "__main__":
    # In a terminal: vedette run --env CartPole-v1 --agent own_agent:Linear
    result = vedette.train(
        env="CartPole-v1",
        agent=AgentConfig(name="own_agent:Linear", learning_rate=0.01, n_step=3),
        learner=vedette.LearnerConfig(eval_interval=250),
        stop=vedette.StopConfig(max_opts=500),
        in_process=True,
    )
    print(result.summary["exit_reason"], result.summary["eval"]["best_return_mean"])
