"""An agent with memory: Q-learning from sequences with a GRU."""

import numpy as np
import torch

import vedette
from vedette_rl.agents import AgentConfig, AgentKind
from vedette_rl.core import ModelInfo, OptResult, RowColumn
from vedette_rl.networks import ParameterVector, VectorAdam, build_seeded, check_arrays

SIZE = 32  # of the memory


class Network(torch.nn.Module):
    """The values of actions, of what was seen until then."""

    def __init__(self, spaces):
        super().__init__()
        self.core = torch.nn.GRU(spaces.observation.shape[0], SIZE, batch_first=True)
        self.head = torch.nn.Linear(SIZE, int(spaces.action.n))

    def forward(self, obs, memory):  # (B, steps, F), and the memory before the first step (B, SIZE)
        remembered, _ = self.core(obs, memory[None])
        return self.head(remembered)  # (B, steps, actions)


class GruConfig(AgentConfig):
    learns_sequences = True  # so that replay.sequence may be set


class GruAgent:
    """Double Q-learning on sequences of L steps, burn-in and what is learned from."""

    def __init__(self, config, spaces, device, seed):
        self.q, self.q_target = (
            build_seeded(lambda: Network(spaces), seed, device) for _ in range(2)
        )
        self.online = ParameterVector(self.q, learns=True)
        self.target = ParameterVector(self.q_target, learns=False)
        self.adam = VectorAdam(self.online, learning_rate=config.learning_rate)
        self.discount = config.discount
        self.opt_steps = 0

    def opt(self, batch, weights=None, *, record=False):
        obs = batch["obs"]  # (B, L + 1, F): the last one is what the last action led to
        memory = batch["memory"]  # (B, SIZE): as the actor had it before the first of them
        q = self.q(obs, memory)
        with torch.no_grad():
            best = q.argmax(2, keepdim=True)
            value = self.q_target(obs, memory).gather(2, best).squeeze(2)[:, 1:]
            target = batch["reward"] + self.discount * ~batch["terminated"] * value
        taken = q[:, :-1].gather(2, batch["action"][..., None]).squeeze(2)
        # Of burn-in, and of what lies behind an episode's end, nothing is learned.
        error = (target - taken) * batch["learned"]
        each = (error**2).sum(1) / batch["length"]
        loss = (each if weights is None else each * weights).mean()
        self.adam.zero_grad()
        loss.backward()
        self.adam.step()
        self.target.soft_update(self.online, tau=0.02)
        self.opt_steps += 1
        size = error.detach().abs()  # one error for a sequence: R2D2's mixture of largest and mean
        td_errors = 0.9 * size.amax(1) + 0.1 * size.sum(1) / batch["length"]
        return OptResult(td_errors, {"loss": loss.item()} if record else {})

    def model_info(self):
        return ModelInfo(self.opt_steps, self.online.arrays())

    def get_state(self):
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


class GruPolicy:
    """The same in numpy, a step of each environment at a time."""

    def __init__(self, spaces, seed):
        self.actions = int(spaces.action.n)
        self.rng = np.random.default_rng(seed)
        self.memory = np.zeros((0, SIZE), np.float32)
        self.shapes = {
            "core.weight_ih_l0": (3 * SIZE, spaces.observation.shape[0]),
            "core.weight_hh_l0": (3 * SIZE, SIZE),
            "core.bias_ih_l0": (3 * SIZE,),
            "core.bias_hh_l0": (3 * SIZE,),
            "head.weight": (self.actions, SIZE),
            "head.bias": (self.actions,),
        }

    def sync_model(self, model):
        check_arrays(self.shapes, model.arrays)
        self.weights = model.arrays

    def act(self, obs, *, explore, begins=None):
        rows = len(obs["obs"])
        before = np.zeros((rows, SIZE), np.float32)
        known = min(rows, len(self.memory))  # an evaluation leaves out what has ended
        before[:known] = self.memory[:known]
        if begins is not None:
            before[begins] = 0.0
        self.before, self.memory = before, self.remember(obs["obs"], before)
        values = self.memory @ self.weights["head.weight"].T + self.weights["head.bias"]
        random = self.rng.random(rows) < (0.2 if explore else 0.0)
        return np.where(random, self.rng.integers(self.actions, size=rows), values.argmax(1))

    def remember(self, obs, memory):  # the equations of torch.nn.GRU
        w = self.weights
        of_obs = obs @ w["core.weight_ih_l0"].T + w["core.bias_ih_l0"]
        of_memory = memory @ w["core.weight_hh_l0"].T + w["core.bias_hh_l0"]
        r, z, n = np.split(of_obs, 3, axis=1)
        r_of_memory, z_of_memory, n_of_memory = np.split(of_memory, 3, axis=1)
        r, z = (1.0 / (1.0 + np.exp(-gate)) for gate in (r + r_of_memory, z + z_of_memory))
        return (1.0 - z) * np.tanh(n + r * n_of_memory) + z * memory

    def acted_columns(self):  # what `act` acted on last
        return {"memory": self.before}


def build_agent(config, spaces, *, device, seed):
    return GruAgent(config, spaces, device, seed)


def build_policy(config, spaces, *, ranks, seed):
    return GruPolicy(spaces, seed)


def columns(config, spaces):  # of a sequence, the memory before the first step alone is drawn
    return [RowColumn("memory", shape=(SIZE,), first=True)]


Gru = AgentKind("gru_agent:Gru", GruConfig, build_agent, build_policy, columns=columns)


if __name__ == "__main__":
    # In a terminal:
    # vedette run --env vedette_rl.testing:RepeatFirst --agent gru_agent:Gru replay.sequence=3
    result = vedette.train(
        env="vedette_rl.testing:RepeatFirst",
        agent=GruConfig(name="gru_agent:Gru", learning_rate=0.003, discount=0.9),
        replay=vedette.ReplayConfig(sequence=3, burn_in=2, prioritized=True),
        learner=vedette.LearnerConfig(warmup_period=500, eval_interval=200),
        stop=vedette.StopConfig(max_opts=2000, target_return=1.0),
        in_process=True,
    )
    print(result.summary["exit_reason"], result.summary["eval"]["best_return_mean"])
