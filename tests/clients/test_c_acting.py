"""The wire's description of acting says it all, and the C client acts by it, for every recipe."""

from __future__ import annotations

import json
import subprocess
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import page_policy
import pytest
from c_programs import Built
from foreign_run import (
    ATARI,
    CARTPOLE,
    COLOURS,
    FLAGS,
    PENDULUM,
    ROBOT,
    ROOM,
    make_run,
    sample_observations,
)
from fuzz_seeds import in_half_the_bytes
from golden_acting import GOLDEN, VECTORS
from numpy.typing import NDArray

from vedette_protocol.codec import decode_control, encode
from vedette_protocol.messages import Run
from vedette_protocol.model import pack_model
from vedette_rl.agents.registry import agent_kind
from vedette_rl.core.learning import ModelInfo
from vedette_rl.envs.spaces import Spaces
from vedette_services.config import presets

BOARD = Spaces(gym.spaces.Box(0, 1, (10, 10, 4), np.uint8), gym.spaces.Discrete(4))
NORMAL = {"normalize_observations": True, "hidden_sizes": [16, 16]}
CASES: dict[str, tuple[str, Spaces, dict[str, Any]]] = {
    "dqn": ("dqn", CARTPOLE, {}),
    "dqn, dueling": ("dqn", CARTPOLE, {"dueling": True, "hidden_sizes": [8, 16]}),
    "dqn, dueling, one layer": ("dqn", CARTPOLE, {"dueling": True, "hidden_sizes": [16]}),
    "dqn, MultiDiscrete": ("dqn", ROOM, {}),
    "dqn, categories": ("dqn", FLAGS, {}),
    "dqn, Atari": ("dqn", ATARI, {"dueling": True, "cnn_hidden_sizes": [32]}),
    "dqn, planes": ("dqn", BOARD, {"cnn_hidden_sizes": [16], "image_max": {"obs": 1}}),
    "dqn, planes of before": ("dqn", BOARD, {"cnn_hidden_sizes": [16]}),
    "iqn": ("iqn", CARTPOLE, {"hidden_sizes": [16, 16]}),
    "iqn, Atari": ("iqn", ATARI, {"cnn_hidden_sizes": [32], "n_action_quantiles": 4}),
    "sac": ("sac", PENDULUM, {}),
    "sac, layer_norm": ("sac", PENDULUM, {**NORMAL, "policy_architecture": "layer_norm"}),
    "sac, several quantile critics": ("sac", PENDULUM, {"n_quantiles": 25, "n_critics": 3}),
    "sac, colours": ("sac", COLOURS, {"image_features": 16, "hidden_sizes": [16]}),
    "sac, cameras": ("sac", ROBOT, {**NORMAL, "image_features": 16, "vector_features": 8}),
    "sac, one CNN": ("sac", ROBOT, {**NORMAL, "shared_cnn": True, "image_features": 16}),
    "td3, residual": ("td3", PENDULUM, {**NORMAL, "policy_architecture": "residual"}),
}
NUMBERS = {"Acrobot-v1": (6, 3), "CartPole-v1": (4, 2), "LunarLander-v3": (8, 4)}
BOXES = {"Hopper-v5": (11, 3), "LunarLanderContinuous-v3": (8, 2), "Pendulum-v1": (3, 1)}
PRESETS = sorted(Path(presets.__file__).parent.glob("*.toml"))


def spaces_of(env: str) -> Spaces:
    """The spaces of a preset's environment."""
    if env.startswith("ALE"):
        return ATARI
    size, actions = NUMBERS.get(env) or BOXES[env]
    obs = gym.spaces.Box(-10, 10, (size,), np.float32)
    bound = gym.spaces.Box(-2, 2, (actions,), np.float32)
    return Spaces(obs, gym.spaces.Discrete(actions) if env in NUMBERS else bound)


def is_described(agent: str, spaces: Spaces, settings: dict[str, Any]) -> bool:
    """Whether a client in another language is told how an agent acts."""
    kind = agent_kind(agent)
    config = kind.config.model_validate({"name": agent, **settings})
    return kind.describe is not None and kind.describe(config, spaces) is not None


for preset in PRESETS:
    agent_name, _, env_name = preset.stem.partition("-")
    agent_settings = tomllib.loads(preset.read_text("utf-8"))["agent"]
    if is_described(agent_name, spaces_of(env_name), agent_settings):
        CASES[preset.stem] = (agent_name, spaces_of(env_name), agent_settings)

ROWS = 20


def act_once(
    program: Path, place: Path, run: Run, model: ModelInfo, obs: bytes, *version: str
) -> str:
    """What the program prints for these observations: an action a line, or why not.

    Args:
        version: of the model, to explore; none: greedily.
    """
    frames = [bytes(frame) for frame in encode(run)]
    row = pack_model(1, model.arrays, run.model)[8:]
    paths = [place / name for name in ("header", "payload", "row", "obs")]
    for path, data in zip(paths, (*frames, row, obs), strict=True):
        path.write_bytes(data)
    done = subprocess.run([program, *paths, *version], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("case", CASES)
def test_the_description_of_acting_is_complete(case: str) -> None:
    agent, spaces, settings = CASES[case]
    run, model, policy = make_run(agent, spaces, settings)
    columns, _ = sample_observations(spaces, 2)
    expected = policy.act(columns, explore=False).reshape(2, -1)
    for k in range(2):
        obs = {name: column[k] for name, column in columns.items()}
        got = page_policy.act(dict(run.policy), model.arrays, obs)
        np.testing.assert_allclose(got, expected[k], rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_actions_follow_from_the_bytes_beside_them(name: str) -> None:
    frames = [(VECTORS / f"{name}.run.{k}.bin").read_bytes() for k in range(2)]
    run = decode_control(frames)
    assert isinstance(run, Run)
    body = (VECTORS / f"{name}.model.bin").read_bytes()
    arrays = {key: rows[0] for key, rows in run.model.views(memoryview(body)[8:], 1).items()}
    actions = run.policy["actions"]
    assert not any(actions.get("starts", ())), "the column counts from 0"
    golden = json.loads((VECTORS / f"{name}.json").read_text("utf-8"))
    for k, action in enumerate(golden["actions"]):
        obs = {key: np.array(rows[k]) for key, rows in golden["observations"].items()}
        got = page_policy.act(dict(run.policy), arrays, obs)
        np.testing.assert_allclose(got, action, rtol=2e-4, atol=2e-4)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_the_c_client_acts_greedily_as_numpy_does(built: Built, tmp_path: Path, case: str) -> None:
    agent, spaces, settings = CASES[case]
    columns, obs = sample_observations(spaces, ROWS)
    for weights in range(100):  # until they lead to different actions
        run, model, policy = make_run(agent, spaces, settings, weights=weights)
        expected = policy.act(columns, explore=False).reshape(ROWS, -1)
        if len(np.unique(expected, axis=0)) > 1:
            break
    said = act_once(built("tests/clients/act_once.c"), tmp_path, run, model, obs.tobytes())
    assert "refused" not in said, said
    got = np.array([line.split() for line in said.splitlines()], np.float64)
    np.testing.assert_allclose(got, expected, rtol=2e-4, atol=2e-4)
    assert len(np.unique(got, axis=0)) > 1, "weights for which all actions are the same"


@pytest.mark.slow
def test_the_c_client_explores_from_the_version_that_the_run_says(
    built: Built, tmp_path: Path
) -> None:
    program = built("tests/clients/act_once.c")
    exploration = {"kind": "linear", "epsilon_final": 0.0, "epsilon_steps": 1}
    run, model, _ = make_run("dqn", CARTPOLE, {"exploration": exploration})
    _, obs = sample_observations(CARTPOLE, ROWS)
    begins = replace(run, policy={**run.policy, "explore_from": 100})
    said = {
        (name, version): act_once(program, tmp_path, announced, model, obs.tobytes(), version)
        for name, announced in (("at once", run), ("from 100", begins))
        for version in ("0", "1", "100", "101")
    }
    greedy = act_once(program, tmp_path, run, model, obs.tobytes())
    random = said["at once", "0"]
    assert random != greedy
    assert [said["at once", version] for version in ("1", "100", "101")] == [greedy] * 3
    assert [said["from 100", version] for version in ("0", "1", "100")] == [random] * 3
    assert said["from 100", "101"] == greedy


def drawn_noise(
    built: Built, exponent: float, sequence: int, steps: int, episode: int
) -> NDArray[np.float64]:
    """Noise of 3 dimensions that the C client draws for two environments, ``(T, 2, 3)``."""
    words = [exponent, sequence, 3, steps, episode]
    program = built("tests/clients/draw_noise.c")
    done = subprocess.run([program, *map(str, words)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    numbers = [line.split() for line in done.stdout.splitlines()]
    return np.array(numbers, np.float64).reshape(steps, 2, 3)


@pytest.mark.slow
@pytest.mark.parametrize("exponent", [0.5, 1.0, 2.0])
def test_the_c_clients_noise_has_the_spectrum_and_is_standard_normal(
    built: Built, exponent: float
) -> None:
    numbers = drawn_noise(built, exponent, 256, 256 * 300, 256).reshape(300, 256, 6)
    power = (np.abs(np.fft.rfft(numbers, axis=1)) ** 2).mean((0, 2))[1:128]
    slope = np.polyfit(np.log(np.arange(1, 128)), np.log(power), 1)[0]
    assert slope == pytest.approx(-exponent, abs=0.03)
    samples = 300 * 6
    np.testing.assert_allclose((numbers**2).mean((0, 2)), 1.0, atol=5 * (2 / samples) ** 0.5)
    np.testing.assert_allclose(numbers.mean((0, 2)), 0.0, atol=5 / samples**0.5)


@pytest.mark.slow
@pytest.mark.parametrize(("sequence", "episode"), [(8, 10_000), (100, 8)])
def test_the_c_clients_sequences_are_independent(built: Built, sequence: int, episode: int) -> None:
    """Of environments, dimensions and one behind another, that ended or of another episode."""
    numbers = drawn_noise(built, 2.0, sequence, 8 * 1250, episode).reshape(1250, 8, 6)
    following = np.concatenate([numbers[:-1], numbers[1:]], axis=2)
    for t in range(8):
        found = np.corrcoef(following[:, t].T)
        np.testing.assert_allclose(found, np.eye(12), atol=5 / 1250**0.5)
    assert np.corrcoef(numbers[:, :, 0].T)[3, 4] > 0.5, "of one sequence they are not"


@pytest.mark.slow
@pytest.mark.parametrize(
    "wrong",
    [
        *({"noise_exponent": exponent} for exponent in ("pink", float("inf"), 5.0)),
        *({"noise_steps": steps} for steps in (0, -1, 2.5, 2**40, None)),
    ],
)
def test_the_c_client_refuses_noise_that_it_cannot_draw(
    built: Built, tmp_path: Path, wrong: dict[str, Any]
) -> None:
    program = built("tests/clients/act_once.c")
    run, model, _ = make_run("sac", PENDULUM, {"hidden_sizes": [4], "noise_color": "pink"})
    assert "refused" not in act_once(program, tmp_path, run, model, b"")
    policy = {key: value for key, value in {**run.policy, **wrong}.items() if value is not None}
    assert "refused" in act_once(program, tmp_path, replace(run, policy=policy), model, b"")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("agent", "spaces", "settings"),
    [("dqn", CARTPOLE, {"hidden_sizes": [5]}), ("sac", PENDULUM, {"hidden_sizes": [7, 3]})],
)
def test_the_c_client_reads_models_in_float16(
    built: Built, tmp_path: Path, agent: str, spaces: Spaces, settings: dict[str, Any]
) -> None:
    columns, obs = sample_observations(spaces, ROWS)
    run, model, policy = make_run(agent, spaces, settings)
    short, sent_model = in_half_the_bytes(run, model)
    sent = dict(sent_model.arrays)
    first = next(name for name, array in sent.items() if array.ndim > 1)
    sent[first].flat[:4] = [6e-8, -65504.0, 0.0, 1e-5]  # subnormal, the largest, subnormal
    policy.sync_model(
        ModelInfo(1, {name: array.astype(np.float32) for name, array in sent.items()})
    )
    expected = policy.act(columns, explore=False).reshape(ROWS, -1)
    program = built("tests/clients/act_once.c")
    said = act_once(program, tmp_path, short, ModelInfo(1, sent), obs.tobytes())
    got = np.array([line.split() for line in said.splitlines()], np.float64)
    np.testing.assert_allclose(got, expected, rtol=2e-4, atol=2e-4)


@pytest.mark.slow
def test_a_network_of_the_users_own_is_refused_by_its_name(built: Built, tmp_path: Path) -> None:
    run, model, _ = make_run("dqn", CARTPOLE, {"hidden_sizes": [4]})
    own = {**run.agent, "network": "mine:Net"}
    run = Run(**{f: getattr(run, f) for f in Run.__slots__} | {"policy": {}, "agent": own})
    said = act_once(built("tests/clients/act_once.c"), tmp_path, run, model, b"")
    assert "agent dqn with network mine:Net" in said
    assert "vedette_array" in said
