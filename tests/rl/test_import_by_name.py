"""What a user names as module:Name."""

import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import nn

from vedette_rl.agents.exploration import Exploration, ExplorationConfig, make_exploration
from vedette_rl.agents.registry import agent_kind
from vedette_rl.core import Columns, ModelInfo, Step
from vedette_rl.envs.spaces import Spaces, transition_dtype
from vedette_rl.errors import CustomNetworkError, UnknownNameError
from vedette_rl.import_by_name import MOVED_MODULES, import_by_name
from vedette_rl.networks.encoder import CustomQNetwork
from vedette_rl.recording import CsvRecorder, JsonlRecorder, TeeRecorder, TensorboardRecorder
from vedette_rl.recording.registry import make_recorders
from vedette_rl.steps.registry import make_step_processor
from vedette_rl.testing import sampled_obs, sampled_transitions

SPACES = Spaces(gym.spaces.Box(-1, 1, (3,), np.float32), gym.spaces.Discrete(2))
NESTED = gym.spaces.Dict({"a": SPACES.observation, "b": gym.spaces.Box(0, 255, (4, 4), np.uint8)})


class Net(nn.Module):
    def __init__(self, observation: gym.Space[Any], actions: int) -> None:
        super().__init__()
        self.q = nn.Linear(3, actions)

    def forward(self, obs: Any) -> Any:
        return self.q(obs["obs/a"] + obs["obs/b"].float().mean() if isinstance(obs, dict) else obs)


class Wide(Net):
    def __init__(self, observation: gym.Space[Any], actions: int) -> None:
        super().__init__(observation, actions + 1)


class Normalised(Net):
    def __init__(self, observation: gym.Space[Any], actions: int) -> None:
        super().__init__(observation, actions)
        self.norm = nn.BatchNorm1d(3)


class Doubled(Net):
    def __init__(self, observation: gym.Space[Any], actions: int) -> None:
        super().__init__(observation, actions)
        self.double()


class NoModule:
    def __init__(self, *_: object) -> None:
        """It is nothing."""


class Zeros:
    def __init__(self, config: ExplorationConfig, ranks: Any, seed: int) -> None:
        self.rows = len(ranks)

    def choose(self, q_EA: Any, version: int) -> Any:
        return np.zeros(self.rows, np.int64)


class Drops:
    def __init__(self, n: int, discount: float, envs: int, dtype: Any) -> None:
        self.n = n

    def process(self, step: Step) -> Columns:
        return {}

    def flush(self) -> Columns:
        return {}


class Kept(TeeRecorder):
    def __init__(self, run: Path) -> None:
        super().__init__()
        self.run = run


def named(kind: type) -> str:
    return f"{__name__}:{kind.__name__}"


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("no_such_pkg.mod:X", "no module 'no_such_pkg'"),
        (
            "vedette_rl.import_by_name:Nothing",
            "module 'vedette_rl.import_by_name' has no 'Nothing'",
        ),
        # `find_import_names` does not see these, so nobody was asked to allow them
        ("antigravity:Agent-v0", "not of the form module:Name"),
        ("antigravity:Agent.inner", "not of the form module:Name"),
    ],
)
def test_a_name_of_nothing_says_what_is_missing(name: str, why: str) -> None:
    with pytest.raises(UnknownNameError, match=why) as raised:
        import_by_name("agent.network", name)
    assert str(raised.value).startswith(f"agent.network is '{name}'")
    assert "antigravity" not in sys.modules


def test_an_own_network_learns_and_acts_the_same_on_both_sides() -> None:
    kind = agent_kind("dqn")
    config = kind.config(network=named(Net))
    agent = kind.build_agent(config, SPACES, device="cpu", seed=0)
    columns = sampled_transitions(SPACES, 32, 0)
    before = agent.model_info()
    for _ in range(3):
        agent.opt({name: torch.from_numpy(column) for name, column in columns.items()})
    after = agent.model_info()
    assert not np.array_equal(before.arrays["net.q.weight"], after.arrays["net.q.weight"])
    policy = kind.build_policy(config, SPACES, ranks=np.zeros(5), seed=0)
    policy.sync_model(after)
    obs = sampled_obs(SPACES.observation, 5, 1)
    q = obs["obs"] @ after.arrays["net.q.weight"].T + after.arrays["net.q.bias"]
    assert policy.act(obs, explore=False).tolist() == q.argmax(1).tolist()


def test_an_own_network_is_exported_as_it_acts() -> None:
    kind = agent_kind("dqn")
    config = kind.config(network=named(Net))
    model = kind.build_agent(config, SPACES, device="cpu", seed=0).model_info()
    policy = kind.build_policy(config, SPACES, ranks=np.zeros(9), seed=0)
    policy.sync_model(model)
    obs = sampled_obs(SPACES.observation, 9, 1)
    assert kind.build_graph is not None
    action, _ = kind.build_graph(config, SPACES, model)(torch.from_numpy(obs["obs"]))
    assert action.tolist() == policy.act(obs, explore=False).tolist()


def test_an_own_network_gets_a_dictionary_as_columns() -> None:
    network = CustomQNetwork(named(Net), NESTED, 2)
    columns = sampled_obs(NESTED, 4, 0)
    assert network({name: torch.from_numpy(c) for name, c in columns.items()}).shape == (4, 2)


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        (Wide, r"it gave \(2, 3\) for 2 observations and 2 actions, not \(2, 2\)"),
        (Normalised, r"its buffer 'norm.running_mean' would not reach the actors"),
        (Doubled, "its 'q.weight' is torch.float64, not float32"),
        (NoModule, "it made a NoModule, not an nn.Module"),
    ],
)
def test_a_network_that_would_not_work_is_refused(kind: type, why: str) -> None:
    with pytest.raises(CustomNetworkError, match=why):
        CustomQNetwork(named(kind), SPACES.observation, 2)


def test_an_exploration_by_name() -> None:
    config = ExplorationConfig(kind=named(Zeros))
    chosen = make_exploration(config, np.zeros(3), 0).choose(np.ones((3, 2), np.float32), 0)
    assert chosen.tolist() == [0, 0, 0]
    assert isinstance(make_exploration(ExplorationConfig(), np.zeros(3), 0), Exploration)
    with pytest.raises(UnknownNameError, match="it has no method choose"):
        make_exploration(ExplorationConfig(kind=named(NoModule)), np.zeros(3), 0)


def test_a_step_processor_by_name() -> None:
    dtype = transition_dtype(SPACES)
    own = make_step_processor(named(Drops), 3, 0.9, 2, dtype)
    assert isinstance(own, Drops)
    assert own.n == 3
    for wrong, why in (
        (named(NoModule), "it is no StepProcessor: it lacks flush, process"),
        ("nope", "there are n_step"),
    ):
        with pytest.raises(UnknownNameError, match=why):
            make_step_processor(wrong, 1, 0.9, 2, dtype)


def test_recorders_by_name(tmp_path: Path) -> None:
    recorders = make_recorders(["tensorboard", "csv", "jsonl", named(Kept)], tmp_path)
    kinds = [type(recorder) for recorder in recorders]
    assert kinds == [TensorboardRecorder, CsvRecorder, JsonlRecorder, Kept]
    own = recorders[-1]
    assert isinstance(own, Kept)
    assert own.run == tmp_path
    for recorder in recorders:
        recorder.close()
    for wrong, why in (
        ("nope", "known: tensorboard, csv, jsonl, or"),
        (named(NoModule), "it is no Recorder: it lacks close, flush, store, write, write_text"),
    ):
        with pytest.raises(UnknownNameError, match=why):
            make_recorders([wrong], tmp_path)


def test_a_model_of_another_network_is_refused() -> None:
    kind = agent_kind("dqn")
    policy = kind.build_policy(kind.config(network=named(Net)), SPACES, ranks=np.zeros(1), seed=0)
    with pytest.raises(Exception, match=r"net\.q\.weight"):
        policy.sync_model(ModelInfo(0, {}))


@pytest.mark.parametrize("earlier", MOVED_MODULES)
def test_a_saved_name_of_a_module_that_has_moved_still_resolves(earlier: str) -> None:
    name = "KeyboardTakeover" if earlier.endswith("takeover") else "GamepadTakeover"
    resolved = import_by_name("env.wrappers", f"{earlier}:{name}")
    assert resolved.__name__ == name
    assert resolved.__module__ == MOVED_MODULES[earlier]
