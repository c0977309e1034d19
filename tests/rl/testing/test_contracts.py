"""The contracts pass what keeps to them and fail what does not."""

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from vedette_rl.core import (
    Agent,
    Columns,
    ModelInfo,
    OptResult,
    Policy,
    ReplayBuffer,
    Sample,
    State,
    Step,
    StepProcessor,
)
from vedette_rl.envs import Spaces
from vedette_rl.errors import EmptyReplayError, ModelMismatchError
from vedette_rl.steps import NStep
from vedette_rl.testing import (
    AgentContract,
    PolicyContract,
    ReplayBufferContract,
    StepProcessorContract,
)
from vedette_rl.testing.contracts import Insert

SPACES = Spaces(gym.spaces.Box(-1, 1, (3,), np.float32), gym.spaces.Discrete(2))


class LinearQ:
    """Q-learning on a linear function: the least that is an agent."""

    def __init__(self, seed: int) -> None:
        torch.manual_seed(seed)
        self.q = torch.nn.Linear(3, 2)
        self.optimizer = torch.optim.Adam(self.q.parameters(), 0.01)
        self.opt_steps = 0

    def opt(
        self,
        batch: Mapping[str, torch.Tensor],
        weights: torch.Tensor | None = None,
        *,
        record: bool = False,
    ) -> OptResult:
        q_a = self.q(batch["obs"]).gather(1, batch["action"][:, None]).squeeze(1)
        with torch.no_grad():
            discount = 0.9 ** batch["n_steps"] * ~batch["terminated"]
            target = batch["reward"] + discount * self.q(batch["next_obs"]).amax(1)
        error = target - q_a
        loss = (error.square() * (1.0 if weights is None else weights)).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.opt_steps += 1
        told = {"loss": loss.item()} if record else {}
        return OptResult(error.detach().abs(), told)

    def model_info(self) -> ModelInfo:
        arrays = {k: v.detach().numpy().copy() for k, v in self.q.state_dict().items()}
        return ModelInfo(self.opt_steps, arrays)

    def get_state(self) -> State:
        return {
            "q": {name: tensor.clone() for name, tensor in self.q.state_dict().items()},
            "optimizer": self.optimizer.state_dict(),
            "opt_steps": self.opt_steps,
        }

    def set_state(self, state: State) -> None:
        self.q.load_state_dict(state["q"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.opt_steps = state["opt_steps"]


class LinearPolicy:
    def __init__(self, envs: int, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def sync_model(self, model: ModelInfo) -> None:
        if model.arrays["weight"].shape != (2, 3):
            raise ModelMismatchError("weight", "(2, 3)", str(model.arrays["weight"].shape))
        self.weight = model.arrays["weight"]
        self.bias = model.arrays["bias"]

    def act(self, obs: Columns, *, explore: bool) -> NDArray[Any]:
        greedy = (obs["obs"] @ self.weight.T + self.bias).argmax(1)
        if not explore:
            return greedy
        return np.where(self.rng.random(len(greedy)) < 0.5, self.rng.integers(0, 2), greedy)


class ListReplay:
    def __init__(self, capacity: int) -> None:
        self.rows: list[tuple[int, dict[str, Any]]] = []
        self.capacity = capacity
        self.inserted = 0
        self.rng = np.random.default_rng(0)

    def insert(self, columns: Columns) -> None:
        for i in range(len(columns["number"])):
            self.rows.append((self.inserted, {name: c[i] for name, c in columns.items()}))
            self.inserted += 1
        self.rows = self.rows[-self.capacity :]

    def __len__(self) -> int:
        return len(self.rows)

    def sample(self, batch_size: int) -> Sample:
        if not self.rows:
            raise EmptyReplayError
        drawn = [self.rows[i] for i in self.rng.integers(0, len(self.rows), batch_size)]
        columns = {name: np.stack([row[name] for _, row in drawn]) for name in drawn[0][1]}
        return Sample(columns, np.array([number for number, _ in drawn]))

    def update_priority(self, indices: NDArray[Any], td_errors: NDArray[Any]) -> None:
        """It is uniform."""

    def get_state(self) -> State:
        return {"rng": self.rng.bit_generator.state}

    def set_state(self, state: State) -> None:
        self.rng.bit_generator.state = state["rng"]


class TestLinearQ(AgentContract):
    discount = 0.9

    def make_spaces(self) -> Spaces:
        return SPACES

    def make_agent(self, seed: int) -> Agent:
        return LinearQ(seed)


class TestLinearQThatBeginsWithZeros(TestLinearQ):
    def make_agent(self, seed: int) -> Agent:
        agent = LinearQ(seed)
        torch.nn.init.zeros_(agent.q.weight)
        torch.nn.init.zeros_(agent.q.bias)
        return agent


class TestLinearPolicy(PolicyContract):
    def make_spaces(self) -> Spaces:
        return SPACES

    def make_policy(self, envs: int, seed: int) -> Policy:
        return LinearPolicy(envs, seed)

    def make_model(self, seed: int) -> ModelInfo:
        return LinearQ(seed).model_info()


class TestListReplay(ReplayBufferContract):
    def make_replay(self, capacity: int) -> tuple[ReplayBuffer, Insert]:
        replay = ListReplay(capacity)
        return replay, replay.insert


class TestOneStep(StepProcessorContract):
    n = 1

    def make_processor(self, envs: int, dtype: np.dtype[Any]) -> StepProcessor:
        return NStep(self.n, 0.99, envs, dtype)


class TestThreeSteps(TestOneStep):
    n = 3


def test_an_agent_whose_state_is_a_view_fails() -> None:
    class View(LinearQ):
        def get_state(self) -> State:
            return {**super().get_state(), "q": self.q.state_dict()}

    class Contract(TestLinearQ):
        def make_agent(self, seed: int) -> Agent:
            return View(seed)

    with pytest.raises(AssertionError):
        Contract().test_a_state_is_a_copy()


def test_an_agent_that_takes_truncation_as_an_end_fails() -> None:
    class Ends(LinearQ):
        def opt(self, batch: Any, weights: Any = None, *, record: bool = False) -> OptResult:
            over = batch["terminated"] | batch["truncated"]
            return super().opt({**batch, "terminated": over}, weights, record=record)

    class Contract(TestLinearQ):
        def make_agent(self, seed: int) -> Agent:
            return Ends(seed)

    with pytest.raises(AssertionError):
        Contract().test_only_termination_ends_the_value()


def test_a_processor_that_stores_the_next_episodes_beginning_fails() -> None:
    class Wrong(NStep):
        def process(self, step: Step) -> Columns:
            columns = super().process(step)
            return {**columns, "next_obs": step.init_obs["obs"].copy()}

    class Contract(TestOneStep):
        def make_processor(self, envs: int, dtype: np.dtype[Any]) -> StepProcessor:
            return Wrong(1, 0.99, envs, dtype)

    with pytest.raises(AssertionError):
        Contract().test_no_transition_reaches_into_another_episode()


class Remembering(LinearPolicy):
    """Adds up what it has seen of each row's episode."""

    def act(self, obs: Columns, *, explore: bool, begins: Any = None) -> NDArray[Any]:
        self.seen = self.memory(len(begins)) * ~begins[:, None] + obs["obs"]
        return (self.seen @ self.weight.T + self.bias).argmax(1)

    def memory(self, rows: int) -> NDArray[Any]:
        before = getattr(self, "seen", np.zeros((0, 3), np.float32))
        return np.resize(before, (rows, 3)) if len(before) < rows else before[:rows]


class TestRememberingPolicy(TestLinearPolicy):
    def make_policy(self, envs: int, seed: int) -> Policy:
        return Remembering(envs, seed)


@pytest.mark.parametrize("kind", ["keeps its rows", "forgets its rows"])
def test_a_policy_that_cannot_act_on_fewer_rows_and_then_on_all_fails(kind: str) -> None:
    class Wrong(Remembering):
        def memory(self, rows: int) -> NDArray[Any]:
            before: NDArray[Any] = getattr(self, "seen", np.zeros((rows, 3), np.float32))
            if len(before) == rows:
                return before
            return before[:rows] if kind == "keeps its rows" else np.zeros((rows, 3))

    class Contract(TestLinearPolicy):
        def make_policy(self, envs: int, seed: int) -> Policy:
            return Wrong(envs, seed)

    with pytest.raises((AssertionError, ValueError)):
        Contract().test_rows_that_are_left_out_come_back()


def test_a_contract_takes_one_thread_and_gives_the_others_back() -> None:
    """Two threads of torch on busy cores make a quick test take minutes."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        TestLinearQ.setup_class()
        assert torch.get_num_threads() == 1
        TestLinearQ.teardown_class()
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
