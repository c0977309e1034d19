"""Precision, compilation and capture of the learner's steps."""

from __future__ import annotations

import logging
from contextlib import nullcontext
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from configurations import configured

from vedette_rl.agents.recurrent_policy import memory_column
from vedette_rl.agents.registry import agent_kind
from vedette_rl.envs.spaces import Spaces
from vedette_rl.networks import torch_network
from vedette_rl.testing import sampled_sequences
from vedette_services.config.parts import LearnerConfig
from vedette_services.learner.trainer import learner as learner_module
from vedette_services.learner.trainer.learner import (
    build_learning_agent,
    configured_arithmetic,
    prepare_steps,
)

CPU = torch.device("cpu")
SPACES = {
    "dqn": Spaces(gym.spaces.Box(-1, 1, (4,), np.float32), gym.spaces.Discrete(3)),
    "td3": Spaces(gym.spaces.Box(-1, 1, (4,), np.float32), gym.spaces.Box(-1, 1, (2,), np.float32)),
}


def agent_of(name: str, **learner: Any) -> Any:
    kind = agent_kind(name)
    agent = kind.build_agent(kind.config(hidden_sizes=(16, 16)), SPACES[name], device="cpu", seed=0)
    prepare_steps(agent, CPU, LearnerConfig(**learner))
    return agent


def batch_of(name: str, seed: int = 0, rows: int = 32) -> dict[str, torch.Tensor]:
    rng = np.random.default_rng(seed)
    action = rng.integers(0, 3, rows) if name == "dqn" else rng.random((rows, 2), np.float32)
    arrays = {
        "obs": rng.standard_normal((rows, 4), np.float32),
        "next_obs": rng.standard_normal((rows, 4), np.float32),
        "action": action,
        "reward": rng.standard_normal(rows, np.float32),
        "terminated": rng.random(rows) < 0.1,
        "truncated": np.zeros(rows, np.bool_),
        "n_steps": np.ones(rows, np.uint8),
    }
    return {key: torch.from_numpy(array) for key, array in arrays.items()}


@pytest.mark.parametrize("name", SPACES)
def test_bfloat16_is_near_float32_and_weights_stay_float32(name: str) -> None:
    exact = agent_of(name)
    rounded = agent_of(name, precision="bfloat16")
    for seed in range(20):
        errors, others = (agent.opt(batch_of(name, seed)).td_errors for agent in (exact, rounded))
        assert others.dtype == torch.float32
        torch.testing.assert_close(others, errors, rtol=0.1, atol=0.1)
        assert not torch.equal(others, errors)
    for key, array in rounded.model_info().arrays.items():
        assert array.dtype == np.float32
        np.testing.assert_allclose(array, exact.model_info().arrays[key], atol=0.05)


def agent_with_memory(name: str, **learner: Any) -> Any:
    kind = agent_kind(name)
    config = kind.config(hidden_sizes=(16, 16), memory="gru", memory_size=8)
    spaces = SPACES["dqn" if name == "iqn" else "td3" if name == "sac" else name]
    agent: Any = kind.build_agent(config, spaces, device="cpu", seed=0)
    agent.expect_burn_in(2)
    prepare_steps(agent, CPU, LearnerConfig(**learner))
    return agent


def sequences_of(name: str, seed: int) -> dict[str, torch.Tensor]:
    spaces = SPACES["dqn" if name in ("dqn", "iqn") else "td3"]
    columns = sampled_sequences(spaces, 16, 4, 2, seed, [memory_column(8)])
    return {key: torch.from_numpy(array) for key, array in columns.items()}


@pytest.mark.parametrize("name", ["dqn", "iqn", "sac", "td3"])
def test_bfloat16_with_memory_is_near_float32(name: str) -> None:
    """Encoders and layers are rounded, and not the core: its errors would add up."""
    exact = agent_with_memory(name)
    rounded = agent_with_memory(name, precision="bfloat16")
    for seed in range(10):
        batch = sequences_of(name, seed)
        errors, others = (agent.opt(batch).td_errors for agent in (exact, rounded))
        assert others.dtype == torch.float32
        torch.testing.assert_close(others, errors, rtol=0.1, atol=0.1)
        assert not torch.equal(others, errors)
    for key, array in rounded.model_info().arrays.items():
        assert array.dtype == np.float32
        np.testing.assert_allclose(array, exact.model_info().arrays[key], atol=0.05)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["iqn", "sac"])
def test_compiled_networks_with_memory_learn_as_the_others_to_rounding(name: str) -> None:
    plain, compiled = agent_with_memory(name), agent_with_memory(name, compile=True)
    for seed in range(6):
        batch = sequences_of(name, seed)
        errors, others = (agent.opt(batch).td_errors for agent in (plain, compiled))
        torch.testing.assert_close(errors, others, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("precision", ["float32", "tf32"])
def test_on_a_cpu_other_precisions_change_nothing(precision: str) -> None:
    plain = agent_of("dqn")
    asked = agent_of("dqn", precision=precision)
    for seed in range(5):
        errors, others = (agent.opt(batch_of("dqn", seed)).td_errors for agent in (plain, asked))
        assert torch.equal(errors, others)


def arithmetic() -> tuple[str, bool, bool]:
    """The precision of products of matrices, whether convolutions are rounded to TF32, and whether
    they give the same bits each time."""
    cudnn = torch.backends.cudnn
    return torch.get_float32_matmul_precision(), cudnn.allow_tf32, cudnn.deterministic


@pytest.mark.parametrize("ends", [True, False])
@pytest.mark.parametrize(
    ("asked", "meanwhile"),
    [
        (LearnerConfig(), ("highest", False, True)),
        (LearnerConfig(precision="tf32"), ("high", True, True)),
        (LearnerConfig(precision="bfloat16"), ("highest", False, True)),
        (LearnerConfig(deterministic=False), ("highest", False, False)),
    ],
    ids=["by default", "tf32", "bfloat16", "not deterministic"],
)
def test_matrices_and_convolutions_are_as_configured_while_a_gpu_learns_and_not_beyond(
    asked: LearnerConfig, meanwhile: tuple[str, bool, bool], ends: bool
) -> None:
    before = arithmetic()
    with (
        nullcontext() if ends else pytest.raises(OSError, match="end"),
        configured_arithmetic(asked, torch.device("cuda")),
    ):
        assert arithmetic() == meanwhile
        if not ends:
            raise OSError("an early end")
    assert arithmetic() == before
    with configured_arithmetic(asked, CPU):
        assert arithmetic() == before


@pytest.mark.parametrize(("device", "made_current"), [("cuda:1", [1]), ("cuda", []), ("cpu", [])])
def test_the_configured_gpu_is_made_current_before_the_agent_is_built(
    device: str, made_current: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    current: list[int | None] = []
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: current.append(device.index))

    class Kind:
        def build_agent(self, *_: Any, **__: Any) -> Any:
            assert current == made_current
            return agent_of("dqn")

    monkeypatch.setattr(learner_module, "agent_kind", lambda name: Kind())
    monkeypatch.setattr(learner_module, "prepare_steps", lambda *_: None)
    build_learning_agent(configured(env="CartPole-v1"), SPACES["dqn"], 0, torch.device(device))
    assert current == made_current


def test_without_a_compiler_networks_run_as_they_are_and_the_reason_is_said(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def missing(*_: Any, **__: Any) -> Any:
        raise RuntimeError("InvalidCxxCompiler: No working C++ compiler found\nin a long story")

    monkeypatch.setattr(torch_network.torch, "compile", missing)
    with caplog.at_level(logging.WARNING):
        asked = agent_of("dqn", compile=True)
    (line,) = caplog.messages
    assert "RuntimeError: InvalidCxxCompiler: No working C++ compiler found" in line
    assert "\n" not in line
    plain = agent_of("dqn")
    errors, others = (agent.opt(batch_of("dqn")).td_errors for agent in (plain, asked))
    assert torch.equal(errors, others)


@pytest.mark.slow
def test_compiled_networks_learn_as_the_others_to_rounding() -> None:
    plain = agent_of("td3")
    compiled = agent_of("td3", compile=True)
    for seed in range(6):
        errors, others = (agent.opt(batch_of("td3", seed)).td_errors for agent in (plain, compiled))
        torch.testing.assert_close(errors, others, rtol=1e-4, atol=1e-5)
    for key, array in compiled.model_info().arrays.items():
        np.testing.assert_allclose(array, plain.model_info().arrays[key], atol=1e-4)


def test_an_agent_with_an_opt_of_its_own_is_told_that_it_is_not_captured(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Own:
        def opt(self, *_: Any) -> None: ...

    with caplog.at_level(logging.INFO):
        prepare_steps(Own(), CPU, LearnerConfig())  # type: ignore[arg-type]  # no more is asked
        assert not caplog.messages
        prepare_steps(Own(), CPU, LearnerConfig(precision="bfloat16"))  # type: ignore[arg-type]
    (line,) = caplog.messages
    assert line.startswith("Own: its optimization steps run one operation after the other")
