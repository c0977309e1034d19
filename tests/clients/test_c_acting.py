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
from vedette_protocol.schema import Schema
from vedette_rl.agents.registry import agent_kind
from vedette_rl.core.learning import ModelInfo
from vedette_rl.envs.spaces import Spaces
from vedette_services.config import presets

BOARD = Spaces(gym.spaces.Box(0, 1, (10, 10, 4), np.uint8), gym.spaces.Discrete(4))
NORMAL = {"normalize_observations": True, "hidden_sizes": [16, 16]}
MEMORY = {"memory": "gru", "memory_size": 7, "hidden_sizes": [16, 16]}
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
    "iqn, rescaled": ("iqn", CARTPOLE, {"hidden_sizes": [16, 16], "value_rescaling": True}),
    "iqn, Atari": ("iqn", ATARI, {"cnn_hidden_sizes": [32], "n_action_quantiles": 4}),
    "sac": ("sac", PENDULUM, {}),
    "sac, layer_norm": ("sac", PENDULUM, {**NORMAL, "policy_architecture": "layer_norm"}),
    "sac, several quantile critics": ("sac", PENDULUM, {"n_quantiles": 25, "n_critics": 3}),
    "sac, colours": ("sac", COLOURS, {"image_features": 16, "hidden_sizes": [16]}),
    "sac, cameras": ("sac", ROBOT, {**NORMAL, "image_features": 16, "vector_features": 8}),
    "sac, one CNN": ("sac", ROBOT, {**NORMAL, "shared_cnn": True, "image_features": 16}),
    "td3, residual": ("td3", PENDULUM, {**NORMAL, "policy_architecture": "residual"}),
    "appo": ("appo", CARTPOLE, NORMAL),
    "appo, MultiDiscrete": ("appo", ROOM, {}),
    "appo, Box": ("appo", PENDULUM, {}),
    "appo, colours": ("appo", COLOURS, {"image_features": 16, "hidden_sizes": [16]}),
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


REMEMBERING: dict[str, tuple[str, Spaces, dict[str, Any]]] = {
    "dqn": ("dqn", CARTPOLE, MEMORY),
    "dqn, wider than it sees": ("dqn", CARTPOLE, {**MEMORY, "memory_size": 33}),
    "dqn, dueling, one layer": (
        "dqn",
        CARTPOLE,
        {**MEMORY, "dueling": True, "hidden_sizes": [16], "normalize_observations": True},
    ),
    "dqn, categories": ("dqn", FLAGS, MEMORY),
    "dqn, planes": ("dqn", BOARD, {**MEMORY, "cnn_hidden_sizes": [16]}),
    "iqn": ("iqn", CARTPOLE, {**MEMORY, "n_cosines": 5, "n_action_quantiles": 3}),
    "iqn, rescaled": ("iqn", CARTPOLE, {**MEMORY, "value_rescaling": True}),
    "sac": ("sac", PENDULUM, {**MEMORY, **NORMAL}),
    "sac, colours": ("sac", COLOURS, {**MEMORY, "image_features": 16, "hidden_sizes": [16]}),
    "td3": ("td3", PENDULUM, MEMORY),
    "appo": ("appo", CARTPOLE, MEMORY),
    "appo, Box": ("appo", PENDULUM, {**MEMORY, **NORMAL}),
}


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
EPISODES = np.array([True, *[False] * 11, True, False, True, *[False] * 5])
"""Where the episodes of as many observations begin: of 12, 2 and 6 steps."""


def drawn_run(
    agent: str, spaces: Spaces, settings: dict[str, Any]
) -> tuple[Run, ModelInfo, bytes, NDArray[Any], NDArray[np.float32]]:
    """A run with memory and weights for which actions differ, observations as the client takes
    them, and of numpy the actions of one environment step by step and what it remembers after
    each."""
    columns, obs = sample_observations(spaces, ROWS)
    for weights in range(100):
        run, model, policy = make_run(agent, spaces, settings, weights=weights)
        actions, memories = [], []
        for k, begins in enumerate(EPISODES):
            now = {name: column[k : k + 1] for name, column in columns.items()}
            action = policy.act(now, explore=False, begins=np.array([begins]))
            actions.append(action.reshape(-1))
            memories.append(policy.memory[0].copy())
        if len(np.unique(actions, axis=0)) > 1:
            break
    return run, model, obs.tobytes(), np.array(actions), np.array(memories)


def act_once(
    program: Path, place: Path, run: Run, model: ModelInfo, obs: bytes, *further: str | Path
) -> str:
    """What the program prints for these observations: an action a line, or why not.

    Args:
        further: the model's version, to explore; or ``begins`` and a file of them. None: greedily.
    """
    frames = [bytes(frame) for frame in encode(run)]
    row = pack_model(1, model.arrays, run.model)[8:]
    paths = [place / name for name in ("header", "payload", "row", "obs")]
    for path, data in zip(paths, (*frames, row, obs), strict=True):
        path.write_bytes(data)
    done = subprocess.run([program, *paths, *further], capture_output=True, text=True)
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
    state = np.zeros(page_policy.memory_size(dict(run.policy)))
    for k, action in enumerate(golden["actions"]):
        obs = {key: np.array(rows[k]) for key, rows in golden["observations"].items()}
        if len(state) and golden["begins"][k]:
            state[:] = 0
        got = page_policy.act(dict(run.policy), arrays, obs, state)
        np.testing.assert_allclose(got, action, rtol=2e-4, atol=2e-4)
        np.testing.assert_allclose(state, golden.get("memory", [[]] * 4)[k], atol=1e-5)


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


@pytest.mark.parametrize("case", REMEMBERING)
def test_the_description_of_a_core_is_complete(case: str) -> None:
    run, model, _, expected, memories = drawn_run(*REMEMBERING[case])
    spaces = REMEMBERING[case][1]
    columns, _ = sample_observations(spaces, ROWS)
    policy = dict(run.policy)
    state = np.zeros(page_policy.memory_size(policy))
    assert len(state) == memories.shape[1] > 0
    for k, begins in enumerate(EPISODES):
        if begins:
            state[:] = 0
        now = {name: column[k] for name, column in columns.items()}
        got = page_policy.act(policy, model.arrays, now, state)
        np.testing.assert_allclose(got, expected[k], rtol=2e-4, atol=2e-4)
        np.testing.assert_allclose(state, memories[k], atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("case", REMEMBERING)
def test_the_c_client_remembers_as_numpy_does_and_forgets_where_episodes_begin(
    built: Built, tmp_path: Path, case: str
) -> None:
    run, model, obs, expected, memories = drawn_run(*REMEMBERING[case])
    (tmp_path / "begins").write_bytes(EPISODES.tobytes())
    program = built("tests/clients/act_once.c")
    said = act_once(program, tmp_path, run, model, obs, "begins", tmp_path / "begins")
    assert "refused" not in said, said
    got = np.array([line.split() for line in said.splitlines()], np.float64)
    actions, after = np.split(got, [expected.shape[1]], axis=1)
    np.testing.assert_allclose(actions, expected, rtol=2e-4, atol=2e-4)
    assert len(np.unique(actions, axis=0)) > 1, "weights for which all actions are the same"
    np.testing.assert_allclose(after, memories, atol=1e-5)
    assert np.abs(after).max() > 0.1


def wrong_cores(run: Run) -> dict[str, tuple[list[Any], str]]:
    """Layers in the place of a core, and what is said of each."""
    _, w_x, w_h, b_x, b_h, features, size = run.policy["networks"][0][1][0]
    arrays = w_x, w_h, b_x, b_h
    return {
        "unknown": (["lstm", *arrays, features, size], "it has a layer lstm, which this client"),
        "unknown, long": (["l\n" * 200, features], "it has a layer l?l?l?"),
        "swapped": (["gru", w_h, w_x, b_x, b_h, features, size], "sizes need"),
        "no such array": (["gru", "w", w_h, b_x, b_h, features, size], "the model has no array w"),
        "wider": (["gru", *arrays, features + 1, size], "sizes of its layer 0 do not fit"),
        "larger": (["gru", *arrays, features, size + 1], f"array {w_x} is"),
        "absurd": (["gru", *arrays, features, 2**22], "sizes of its layer 0 do not fit"),
        "beyond": (["gru", *arrays, features, 2**63], "sizes of its layer 0 do not fit"),
        "nothing": (["gru", *arrays, features, 0], "sizes of its layer 0 do not fit"),
        "negative": (["gru", *arrays, features, -1], "sizes of its layer 0 do not fit"),
        "cut": (["gru", *arrays], "sizes of its layer 0 do not fit"),
    }


@pytest.mark.slow
@pytest.mark.parametrize("wrong", wrong_cores(make_run("dqn", CARTPOLE, MEMORY)[0]))
def test_the_c_client_refuses_a_core_that_is_none_in_one_line(
    built: Built, tmp_path: Path, wrong: str
) -> None:
    run, model, _ = make_run("dqn", CARTPOLE, MEMORY)
    layer, why = wrong_cores(run)[wrong]
    (name, layers), *others = run.policy["networks"]
    said = {}
    for stored in (True, False):
        policy = {**run.policy, "networks": [[name, [layer, *layers[1:]]], *others]}
        kept = [c for c in run.schema.columns if stored or c.name != "memory"]
        lied = replace(run, policy=policy, schema=Schema(tuple(kept)))
        said[stored] = act_once(built("tests/clients/act_once.c"), tmp_path, lied, model, b"")
        assert said[stored].startswith("refused: the run's "), said
        assert said[stored].count("\n") == 1
        assert why in said[stored], said
    assert "act by vedette_array" in said[False], "rows without it may be made otherwise"


@pytest.mark.slow
def test_the_c_client_refuses_a_core_elsewhere_and_a_column_of_another_size(
    built: Built, tmp_path: Path
) -> None:
    program = built("tests/clients/act_once.c")
    run, model, _ = make_run("dqn", CARTPOLE, MEMORY)
    (name, (core, *layers)), *others = run.policy["networks"]
    square = ["gru", *core[1:5], 7, 7]
    for moved in ([core, square, *layers], [["relu"], core, *layers]):
        policy = {**run.policy, "networks": [[name, moved], *others]}
        said = act_once(program, tmp_path, replace(run, policy=policy), model, b"")
        assert "it has a layer gru that is not the first one" in said, said
    for changed, why in (
        ({"shape": (8,)}, "the run's column memory has 8 numbers, and its policy makes 7"),
        ({"dtype": "f8"}, "the run's column memory is not of the type that the wire says"),
    ):
        columns = [replace(c, **changed) if c.name == "memory" else c for c in run.schema.columns]
        lied = replace(run, schema=Schema(tuple(columns)))
        assert why in act_once(program, tmp_path, lied, model, b"")
    without, other, _ = make_run("dqn", CARTPOLE, {"hidden_sizes": [16, 16]})
    lied = replace(run, policy=without.policy, model=without.model)
    said = act_once(program, tmp_path, lied, other, b"")
    assert "column memory has 7 numbers, and its policy makes 0" in said, said


@pytest.mark.slow
@pytest.mark.parametrize(
    ("spaces", "settings"),
    [(ROOM, {}), (PENDULUM, {"log_std_min": -1.0}), (PENDULUM, {"log_std_max": -6.0})],
)
def test_the_c_client_draws_actions_of_appo_and_knows_how_likely_they_were(
    built: Built, tmp_path: Path, spaces: Spaces, settings: dict[str, Any]
) -> None:
    run, model, _ = make_run("appo", spaces, {"hidden_sizes": [8], **settings}, weights=2)
    columns, obs = sample_observations(spaces, 1)
    draws = 20_000
    program = built("tests/clients/act_once.c")
    said = act_once(program, tmp_path, run, model, obs.tobytes() * draws, "1")
    got = np.array([line.split() for line in said.splitlines()], np.float64)
    policy = dict(run.policy)
    seen = {name: column[0] for name, column in columns.items()}
    output = page_policy.output_of(policy, model.arrays, seen)
    actions, (log_prob, *drawn) = got[:, :2], got[:, 2:].T
    unit = np.transpose(drawn) if drawn else actions
    for k in range(100):
        expected = page_policy.log_prob(policy, model.arrays, output, actions[k], unit[k])
        assert log_prob[k] == pytest.approx(expected, abs=2e-3 if drawn else 1e-5)
    if not drawn:
        chances = np.exp(log_prob)
        found, first, counts = np.unique(actions, axis=0, return_index=True, return_counts=True)
        assert len(found) == 6, "all of 2 times 3 actions"
        assert chances[first].sum() == pytest.approx(1.0, abs=1e-5)
        np.testing.assert_allclose(counts / draws, chances[first], atol=5 * 0.5 / draws**0.5)
        return
    log_std = model.arrays["log_std"].clip(*policy["log_std"])
    np.testing.assert_allclose(
        unit.mean(axis=0), output, atol=5 * np.exp(log_std).max() / draws**0.5 + 1e-5
    )
    np.testing.assert_allclose(unit.std(axis=0), np.exp(log_std), rtol=0.05)
    moved = np.array([page_policy.to_bounds(policy, u) for u in unit])
    np.testing.assert_allclose(actions, moved, atol=1e-5)


@pytest.mark.slow
def test_the_c_client_rounds_to_float16_as_numpy_does(built: Built, tmp_path: Path) -> None:
    halves = np.arange(2**16, dtype=np.uint16).view(np.float16).astype(np.float32)
    halves = halves[np.isfinite(halves)]
    rng = np.random.default_rng(0)
    middles = np.float32((halves[1:].astype(np.float64) + halves[:-1]) / 2)
    drawn = np.float32(rng.normal(size=5000) * 10.0 ** rng.integers(-9, 6, 5000))
    edges = np.float32([65519.99, 65520, 1e9, -1e9, np.inf, 2**-24, 2**-25, 2**-26, 1e-45, -0.0])
    numbers = np.concatenate([halves, middles, np.nextafter(middles, np.float32(9)), drawn, edges])
    (tmp_path / "numbers").write_bytes(numbers.tobytes())
    words = [built("tests/clients/round_half.c"), tmp_path / "numbers"]
    said = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    with np.errstate(over="ignore"):
        expected = numbers.astype(np.float16).view(np.uint16)
    np.testing.assert_array_equal(np.array(said.split(), np.uint16), expected)


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
