"""A policy in a file acts as the one it was written from, without torch."""

import io
import json
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from exported_policies import CASES, IMAGE, PARTS, VECTOR, observations, original, policy_file
from safetensors.numpy import load_file, save

from vedette_rl.agents.registry import BUILT_IN, agent_kind
from vedette_rl.core import ModelInfo
from vedette_rl.envs import Spaces
from vedette_rl.errors import PolicyFileError, SpaceLayoutError
from vedette_rl.exported import (
    PolicyFile,
    load_policy,
    read_policy,
    write_numpy,
    write_safetensors,
)
from vedette_rl.exported.policy_file import space_from_json, space_to_json

WRITERS = {"numpy": write_numpy, "safetensors": write_safetensors}


def written(path: Path, found: PolicyFile, form: str = "numpy") -> Path:
    with path.open("wb") as file:
        WRITERS[form](file, found)
    return path


def test_every_agent_is_among_the_cases() -> None:
    assert {given["name"] for given, _ in CASES.values()} == BUILT_IN.keys()


@pytest.mark.parametrize("form", ["numpy", "safetensors"])
@pytest.mark.parametrize("case", CASES)
def test_it_acts_as_the_original_on_many_observations(case: str, form: str, tmp_path: Path) -> None:
    found = policy_file(case)
    loaded = load_policy(written(tmp_path / "policy", found, form))
    obs = observations(found.spaces, 64 if "image" in case else 1000)
    expected = original(found).act(obs, explore=False)
    acted = loaded.act(obs, explore=False)
    assert (acted.shape, acted.dtype) == (expected.shape, expected.dtype)
    if expected.dtype == np.int64:
        np.testing.assert_array_equal(acted, expected)
        assert len(np.unique(acted)) > 1 or "image" in case
    else:
        np.testing.assert_allclose(acted, expected, atol=1e-5)


@pytest.mark.parametrize(
    ("obs", "why"),
    [
        (
            {"obs": VECTOR.sample()},
            r"expected obs of shape \(B, 4\), got \(4,\); add a row axis",
        ),
        ({"obs": np.zeros((2, 9))}, r"expected obs of shape \(B, 4\), got \(2, 9\)$"),
        ({"seen": VECTOR.sample()}, r"a dictionary of \['obs'\], .* got the columns \['seen'\]"),
        (VECTOR.sample(), r"a dictionary of \['obs'\], obs of shape \(B, 4\), got ndarray"),
    ],
)
def test_it_says_what_it_expects_to_see(obs: Any, why: str) -> None:
    with pytest.raises(SpaceLayoutError, match=why):
        policy_file("sac").make_environment_policy().act(obs, explore=False)


def test_other_libraries_words_for_acting_are_answered_with_ours() -> None:
    policy: Any = policy_file("sac").make_environment_policy()
    form = r"policy\.act\({'obs': obs\[None\]}, explore=False\)\[0\] is the action of one"
    with pytest.raises(AttributeError, match=f"a policy has no 'predict': {form}"):
        policy.predict(VECTOR.sample())
    with pytest.raises(TypeError, match=f"act\\(\\) needs explore=False, or .*: {form}"):
        policy.act(VECTOR.sample())
    assert not hasattr(policy, "acted_columns")


def test_it_stays_within_bounds_that_float32_does_not_have(tmp_path: Path) -> None:
    box = gym.spaces.Box(-0.1, 0.1, (2,), np.float64)
    found = policy_file("sac")
    kind = agent_kind("sac")
    agent = kind.build_agent(found.config, Spaces(VECTOR, box), device="cpu", seed=7)
    arrays = {name: array * 50 for name, array in agent.model_info().arrays.items()}
    saturated = PolicyFile(found.config, Spaces(VECTOR, box), ModelInfo(0, arrays))
    loaded = load_policy(written(tmp_path / "policy", saturated))
    actions = loaded.act(observations(saturated.spaces, 100), explore=False)
    assert actions.dtype == np.float64
    assert np.abs(actions).max() > 0.0999
    assert all(box.contains(action) for action in actions)


@pytest.mark.parametrize("case", ["dqn", "dqn-image", "iqn-image", "sac", "sac-image"])
def test_it_acts_without_torch(case: str, tmp_path: Path) -> None:
    found = policy_file(case)
    path = written(tmp_path / "policy.npz", found)
    np.savez(tmp_path / "obs.npz", **observations(found.spaces, 3))
    code = (
        "import sys, numpy as np\n"
        "from vedette_rl.exported import load_policy\n"
        f"obs = dict(np.load({str(tmp_path / 'obs.npz')!r}))\n"
        f"policy = load_policy({str(path)!r})\n"
        "assert len(policy.act(obs, explore=False)) == 3\n"
        "assert len(policy.act(obs, explore=True)) == 3\n"
        "assert 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_what_is_known_of_it_is_in_the_file(tmp_path: Path) -> None:
    found = policy_file("dqn-parts")
    for form in WRITERS:
        again = read_policy(written(tmp_path / "policy", found, form))
        assert again.config == found.config
        assert again.spaces == found.spaces
        assert again.meta == {"env": "Mine-v0", "return_mean": 9.5}
        assert again.model.version == 0
        assert [*again.model.arrays] == sorted(found.model.arrays) or form == "numpy"


def dotted(table: dict[str, Any], before: str = "") -> set[str]:
    """The keys of a table and of those in it."""
    keys: set[str] = set()
    for key, value in table.items():
        is_part = isinstance(value, dict) and value
        keys |= dotted(value, f"{before}{key}.") if is_part else {f"{before}{key}"}
    return keys


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e300])
def test_it_does_not_act_on_what_is_not_finite(value: float, tmp_path: Path) -> None:
    found = policy_file("sac")
    loaded = load_policy(written(tmp_path / "policy", found))
    obs = np.zeros((3, 4))
    loaded.act({"obs": obs}, explore=False)
    obs[1, 2] = value
    with pytest.raises(ValueError, match=r"obs has -?(nan|inf) at \[1, 2\], which is not finite"):
        loaded.act({"obs": obs}, explore=False)


@pytest.mark.parametrize("rows", [1, 2])
def test_its_columns_have_equally_many_rows(rows: int, tmp_path: Path) -> None:
    """A single row was repeated for all of the others."""
    found = policy_file("dqn-parts")
    loaded = load_policy(written(tmp_path / "policy", found))
    obs = observations(found.spaces, 3)
    obs["obs/gear"] = obs["obs/gear"][:rows]
    with pytest.raises(
        ValueError, match=rf"unequal numbers of rows, .*obs/gear {rows}.*: give one"
    ):
        loaded.act(obs, explore=False)


@pytest.mark.parametrize("gear", [0, 6])
def test_it_refuses_a_number_that_names_no_category(gear: int, tmp_path: Path) -> None:
    found = policy_file("dqn-parts")
    loaded = load_policy(written(tmp_path / "policy", found))
    obs = observations(found.spaces, 3)
    obs["obs/gear"][1] = gear  # of Discrete(5, start=1)
    with pytest.raises(SpaceLayoutError, match=rf"obs/gear has {gear} at \[1\]: give 1 to 5$"):
        loaded.act(obs, explore=False)


FIRST_KEYS = """
    name network hidden_sizes cnn_hidden_sizes convolutions image_features vector_features
    shared_cnn random_shift normalize_observations batch_size discount n_step learning_rate adam_eps
    weight_decay max_grad_norm schedule.kind schedule.warmup_opts schedule.total_opts schedule.final
    imitation.loss imitation.weight imitation.margin imitation.schedule.kind
    imitation.schedule.warmup_opts imitation.schedule.total_opts imitation.schedule.final
    exploration.kind exploration.epsilon_base exploration.epsilon_alpha exploration.epsilon_start
    exploration.epsilon_final exploration.epsilon_steps exploration.temperature
    munchausen.alpha munchausen.temperature munchausen.lowest
    target_update_interval double dueling loss reward_scale kappa n_cosines n_quantiles
    n_target_quantiles n_action_quantiles tau alpha initial_alpha alpha_learning_rate target_entropy
    critic_architecture critic_hidden_sizes policy_architecture n_critics critics_in_target
    dropped_quantiles policy_delay shared_encoder log_std_min log_std_max uniform_warmup
    exploration_noise target_noise target_noise_clip
    """
"""Settings that the first release knows."""


@pytest.mark.parametrize("name", sorted(BUILT_IN.keys() - {"appo"}))  # which came later
def test_a_policy_that_needs_nothing_new_names_nothing_new(name: str) -> None:
    spaces = Spaces(VECTOR, gym.spaces.Discrete(2))
    plain = agent_kind(name).config(name=name)
    header = json.loads(PolicyFile(plain, spaces, ModelInfo(0, {})).header())
    new = dotted(header["agent"]) - {*FIRST_KEYS.split()}
    assert not new, "a key that came later is marked with `LATER_KEY`"
    needs_it = plain.model_copy(update={"image_max": {"obs": 1}})
    header = json.loads(PolicyFile(needs_it, spaces, ModelInfo(0, {})).header())
    assert header["agent"]["image_max"] == {"obs": 1}
    assert agent_kind(name).config.model_validate(header["agent"]) == needs_it


def test_safetensors_has_the_arrays_by_their_names(tmp_path: Path) -> None:
    found = policy_file("dqn")
    arrays = load_file(written(tmp_path / "policy.safetensors", found, "safetensors"))
    assert set(arrays) == {f"q.{k}.{part}" for k in range(3) for part in ("weight", "bias")}


@pytest.mark.parametrize(
    "space",
    [
        VECTOR,
        PARTS,
        IMAGE,
        gym.spaces.Discrete(3, start=-1),
        gym.spaces.MultiDiscrete([[2, 3], [4, 5]], start=[[1, 0], [0, 2]]),
        gym.spaces.Box(np.array([0, -np.inf]), np.array([1, 5.5]), dtype=np.float64),
        gym.spaces.Box(-(2**40), 2**40, (3,), np.int64),
        gym.spaces.Box(np.array([-1.5, -np.inf]), np.array([1, 5.5]), dtype=np.longdouble),
        gym.spaces.Dict(),
    ],
    ids=str,
)
def test_a_space_comes_back_from_json_as_it_was(space: gym.Space[object]) -> None:
    text = json.dumps(space_to_json(space), allow_nan=False)
    assert space_from_json(json.loads(text)) == space


def test_an_images_bounds_take_no_room() -> None:
    assert len(json.dumps(space_to_json(IMAGE))) < 120


def npz(**arrays: object) -> bytes:
    file = io.BytesIO()
    np.savez(file, **arrays)  # type: ignore[arg-type]  # an array of objects, on purpose
    return file.getvalue()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"PK",
        b"PK\x03\x04torn",
        pickle.dumps({"a": 1}),
        b"\x08\x00\x00\x00\x00\x00\x00\x00{}      ",
        npz(x=np.zeros(3)),
        npz(header=np.array([{}], object)),
        npz(header=np.frombuffer(b"[1, 2]", np.uint8)),
        npz(header=np.frombuffer(b'{"format": "vedette policy"}', np.uint8)),
        npz(header=np.frombuffer(b'{"format": "x", "format_version": 1}', np.uint8)),
    ],
)
def test_what_is_no_policy_is_refused_in_one_line(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "policy"
    path.write_bytes(content)
    with pytest.raises(PolicyFileError, match="cannot read policy") as refused:
        load_policy(path)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        (
            "policy.onnx",
            b"\x08\x09\x12\x07pytorch",
            "it is for programs that read ONNX, and is not",
        ),
        ("policy.py", b"import torch\n" * 9, "it is a Python program"),
        ("config.toml", b"seed = 3\n" * 9, "it is a configuration"),
        ("model.zip", npz(data=np.zeros(3)), "it is an archive, and no policy of ours"),
        ("model.PT", npz(data=np.zeros(3)), "it is of another program"),
        (
            "replay.npz",
            npz(obs=np.zeros(3)),
            "it is torn or of another program (arrays without the header of a policy)",
        ),
        (
            "state.safetensors",
            save({"w": np.zeros(3)}),
            "it is torn or of another program (arrays without the header of a policy)",
        ),
    ],
)
def test_what_a_file_is_and_what_to_give_instead_is_said(
    tmp_path: Path, name: str, content: bytes, said: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(PolicyFileError) as refused:
        load_policy(path)
    text = str(refused.value)
    assert text.startswith(f"cannot read policy {path}: {said}")
    assert text.endswith(
        "; give a file that `vedette export --format safetensors` (or numpy) wrote, or a run's "
        "directory"
    )


def test_the_numpy_form_has_header_and_model_whatever_numpy_writes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    savez = np.savez

    def old_savez(file: Any, *args: Any, **arrays: Any) -> None:  # before numpy 2.1
        taken = arrays.pop("allow_pickle", None)
        savez(file, *args, **arrays, **({} if taken is None else {"was_allow_pickle": taken}))

    monkeypatch.setattr(np, "savez", old_savez)
    path = written(tmp_path / "policy.npz", policy_file("dqn"))
    with np.load(path) as file:
        names = set(file.files)
        assert {name.partition("/")[0] for name in names} == {"header", "model"}
        arrays = {name: file[name] for name in names}
    np.savez(path, **arrays, allow_pickle_of_an_old_numpy=np.array(False))
    obs = observations(policy_file("dqn").spaces, 10)
    expected = original(policy_file("dqn")).act(obs, explore=False)
    np.testing.assert_array_equal(load_policy(path).act(obs, explore=False), expected)


def test_a_file_that_is_cut_short_is_refused(tmp_path: Path) -> None:
    for form in WRITERS:
        path = written(tmp_path / "policy", policy_file("dqn"), form)
        path.write_bytes(path.read_bytes()[:-200])
        with pytest.raises(PolicyFileError):
            load_policy(path)


def test_a_file_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(PolicyFileError, match="No such file"):
        load_policy(tmp_path / "none.npz")


def test_a_file_imports_no_module_that_it_names(tmp_path: Path) -> None:
    found = policy_file("dqn")
    header = json.loads(found.header())
    header["agent"]["name"] = "antigravity:Agent"
    path = tmp_path / "policy.npz"
    path.write_bytes(npz(header=np.frombuffer(json.dumps(header).encode(), np.uint8)))
    with pytest.raises(PolicyFileError, match="give allow_import=True"):
        load_policy(path)
    assert "antigravity" not in sys.modules


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"format_version": 2}, r"made by a newer version of vedette \(its format is 2"),
        ({"agent": {"dreams": 3}}, "agent.dreams is not known here: a newer version"),
        ({"agent": {"hidden_sizes": "wide"}}, "its agent's hidden_sizes"),
    ],
)
def test_a_policy_of_a_newer_release_is_refused_as_such(
    tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    header = json.loads(policy_file("dqn").header())
    for key, value in changes.items():
        header[key] = {**header[key], **value} if isinstance(value, dict) else value
    path = tmp_path / "policy.npz"
    path.write_bytes(npz(header=np.frombuffer(json.dumps(header).encode(), np.uint8)))
    with pytest.raises(PolicyFileError, match=said):
        load_policy(path)


MEMORIES: dict[str, gym.Space[Any]] = {
    "dqn": gym.spaces.Discrete(5),
    "iqn": gym.spaces.Discrete(5),
    "sac": gym.spaces.Box(np.float32([-2, 0]), np.float32([2, 10])),
    "td3": gym.spaces.Box(-1, 1, (3,), np.float32),
    "appo": gym.spaces.MultiDiscrete([2, 4, 3]),
}


def file_with_memory(agent: str) -> PolicyFile:
    kind = agent_kind(agent)
    config = kind.config(memory="gru", memory_size=8, hidden_sizes=(16, 16))
    spaces = Spaces(VECTOR, MEMORIES[agent])
    model = kind.build_agent(config, spaces, device="cpu", seed=0).model_info()
    rng = np.random.default_rng(0)  # a new network's values are almost the same for all actions
    steep = {
        name: array + rng.normal(size=array.shape).astype(np.float32)
        for name, array in model.arrays.items()
    }
    if "normalizer.scale" in steep:
        steep["normalizer.scale"] = np.abs(steep["normalizer.scale"])
    return PolicyFile(config, spaces, ModelInfo(1, steep))


@pytest.mark.parametrize("form", ["numpy", "safetensors"])
@pytest.mark.parametrize("agent", MEMORIES)
def test_a_policy_with_memory_remembers_as_the_original(
    agent: str, form: str, tmp_path: Path
) -> None:
    found = file_with_memory(agent)
    loaded = load_policy(written(tmp_path / "policy", found, form))
    expected = agent_kind(agent).build_policy(found.config, found.spaces, ranks=np.zeros(1), seed=0)
    expected.sync_model(found.model)
    rng = np.random.default_rng(0)
    forgetful = []
    for step in range(50):
        obs = {"obs": rng.uniform(-1, 1, (6, 4)).astype(np.float32)}
        begins = rng.random(6) < (1.0 if step == 0 else 0.1)
        acted = loaded.act(obs, explore=False, begins=begins)
        np.testing.assert_array_equal(acted, expected.act(obs, explore=False, begins=begins))
        fresh = load_policy(tmp_path / "policy")
        forgetful.append((fresh.act(obs, explore=False) != acted).any())
    assert any(forgetful), "what was seen before makes no difference"


def test_a_loaded_policy_forgets_at_a_reset(tmp_path: Path) -> None:
    policy = load_policy(written(tmp_path / "policy", file_with_memory("sac")))
    rng = np.random.default_rng(0)
    first, second = ({"obs": rng.uniform(-1, 1, (3, 4)).astype(np.float32)} for _ in range(2))
    policy.act(first, explore=False)
    remembered = policy.act(second, explore=False)
    policy.reset()
    policy.act(first, explore=False)
    np.testing.assert_array_equal(policy.act(second, explore=False), remembered)
    policy.act(first, explore=False)
    assert (policy.act(second, explore=False) != remembered).any(), "one episode went on"


@pytest.mark.parametrize(
    ("begins", "came"),
    [
        (np.array([True, False]), r"shape \(2,\) of bool"),
        (np.array([0, 1, 0]), r"shape \(3,\) of int64"),  # as places they would be rows 0 and 1
        (True, r"shape \(\) of bool"),
        (np.ones((3, 1), np.bool_), r"shape \(3, 1\) of bool"),
    ],
)
def test_a_loaded_policy_refuses_begins_that_are_not_one_bool_a_row(begins: Any, came: str) -> None:
    policy = file_with_memory("sac").make_environment_policy()
    obs = {"obs": np.zeros((3, 4), np.float32)}
    with pytest.raises(ValueError, match=rf"one bool for each of 3 rows.*got {came}"):
        policy.act(obs, explore=False, begins=begins)


def test_begins_of_a_loaded_policy_may_be_a_list() -> None:
    of_lists, of_arrays = (file_with_memory("sac").make_environment_policy() for _ in range(2))
    obs = {"obs": np.full((3, 4), 0.5, np.float32)}
    for begins in ([True, True, True], [False, True, False]):
        listed: Any = begins
        acted = of_lists.act(obs, explore=False, begins=listed)
        same = of_arrays.act(obs, explore=False, begins=np.array(begins))
        np.testing.assert_array_equal(acted, same)


def test_a_loaded_policy_without_memory_has_a_reset_too() -> None:
    policy = policy_file("sac").make_environment_policy()
    obs = observations(policy_file("sac").spaces, 3)
    acted = policy.act(obs, explore=False)
    policy.reset()
    np.testing.assert_array_equal(policy.act(obs, explore=False), acted)
