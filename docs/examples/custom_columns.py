"""A custom column: how likely a policy took its actions, for a loss that corrects by it."""

import numpy as np
from custom_agent import LinearAgent, LinearPolicy

import vedette
from vedette_rl.agents import AgentConfig, AgentKind
from vedette_rl.core import RowColumn, select_part

TEMPERATURE = 0.2


class SamplingPolicy(LinearPolicy):
    """Draws actions by their values, and keeps the logarithm of each one's probability."""

    def act(self, obs, *, explore, begins=None):
        scaled = self.values(obs) / TEMPERATURE
        log_p = scaled - np.logaddexp.reduce(scaled, axis=1, keepdims=True)
        noise = self.rng.gumbel(size=log_p.shape) if explore else 0.0
        action = (log_p + noise).argmax(1)
        self.log_prob = np.take_along_axis(log_p, action[:, None], axis=1)[:, 0]
        return action

    def acted_columns(self):  # of the actions that `act` returned last
        return {"log_prob": self.log_prob}


class CorrectedAgent(LinearAgent):
    """Weighs each sample by how likely its action is by now, against then, up to 1."""

    def opt(self, batch, weights=None, *, record=False):
        values = self.q(select_part(batch, "obs")).detach() / TEMPERATURE
        log_prob = values.log_softmax(1).gather(1, batch["action"][:, None]).squeeze(1)
        ratio = (log_prob - batch["log_prob"]).exp().clamp(max=1.0)
        return super().opt(batch, ratio if weights is None else ratio * weights, record=record)


def build_agent(config, spaces, *, device, seed):
    return CorrectedAgent(config, spaces, device, seed)


def build_policy(config, spaces, *, ranks, seed):
    return SamplingPolicy(config, spaces, seed)


def columns(config, spaces):
    return [RowColumn("log_prob")]  # float32, a number a row


Sampling = AgentKind(
    "custom_columns:Sampling", AgentConfig, build_agent, build_policy, columns=columns
)


if __name__ == "__main__":
    result = vedette.train(
        env="CartPole-v1",
        agent=AgentConfig(name="custom_columns:Sampling", learning_rate=0.01),
        stop=vedette.StopConfig(max_opts=100),
        in_process=True,
    )
    print(result.summary["exit_reason"], result.summary["samples"]["inserted"])
