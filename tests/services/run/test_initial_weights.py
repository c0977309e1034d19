"""A run that begins with the weights of another: what fits is taken, and what does not is said."""

import json
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from blocks import minibatches, random_block  # of tests/support
from run_directories import new_run, untrained_agent
from small_runs import config_of, trained  # beside this file
from starts import lines_of_start

from vedette_rl.agents import agent_kind
from vedette_rl.core import ModelInfo
from vedette_rl.envs import Spaces
from vedette_rl.envs.make import environment_spaces
from vedette_rl.storage.checkpoints import LoadedCheckpoint, weight_parts
from vedette_rl.storage.state_file import read_state, write_state
from vedette_rl.testing import sampled_transitions
from vedette_services.config import RunConfig, load_config
from vedette_services.config.contradictions import contradictions
from vedette_services.config.loading import complete_config
from vedette_services.config.parts import LearnerConfig
from vedette_services.config.saving import publish_config
from vedette_services.errors import SettingError
from vedette_services.run.initial_weights import WeightsSource, describe_initial_weights
from vedette_services.run.provenance import describe_start

NONE_LEARNED = {"stop": {"max_opts": 1}, "learner": {"eval_interval": 0}}


def model_of(run: Any) -> dict[str, Any]:
    model: ModelInfo = run.agent.model_info()
    return dict(model.arrays)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A finished run, and its last model."""
    out = tmp_path_factory.mktemp("source")
    config = config_of()
    run, _ = trained(config, out)
    publish_config(config, out / "config.toml", "")
    return out, model_of(run)


def begun(out: Path, **parts: Any) -> tuple[list[str], dict[str, Any], dict[str, Any]]:
    """The check's lines, the agent's state before its first step, and the first model."""
    from vedette.local.in_process import InProcessRun

    config = config_of(**parts)
    lines = lines_of_start(config, out, in_process=True)
    made = InProcessRun(config, environment_spaces(config.env), new_run(out))
    return [*lines], made.agent.get_state(), model_of(made)


def test_statistics_of_a_best_model_count_as_many_batches_as_its_agent_had(tmp_path: Path) -> None:
    """APPO counts a block once, whatever its passes and minibatches."""
    config = load_config(None, env="CartPole-v1", agent="appo").config
    spaces = environment_spaces(config.env)
    publish_config(config, tmp_path / "config.toml", "")
    agent = agent_kind("appo").build_agent(config.agent, spaces, device="cpu", seed=0)
    opts = config.replay.passes * config.replay.block // config.agent.batch_size
    assert opts > 1
    state = {"model": dict(agent.model_info().arrays)}
    best = LoadedCheckpoint(tmp_path / "best", state, {"version": 3 * opts}, ())
    found = WeightsSource.of(LearnerConfig(init_from=str(tmp_path), init_checkpoint="best"), best)
    assert found.weights_for(agent).state["observed"]["batches"] == 3


def test_the_last_checkpoint_gives_every_network_and_no_counter(
    tmp_path: Path, source: tuple[Path, dict[str, Any]]
) -> None:
    directory, last = source
    lines, state, model = begun(tmp_path, learner={"init_from": str(directory)})
    for name, array in last.items():
        np.testing.assert_array_equal(model[name], array)
        assert not torch.equal(state["target"][name], torch.zeros(array.shape))
    assert (state["opt_steps"], state["adam"]["step"]) == (0, 0)
    count = 2 * len(last)
    (line,) = [line for line in lines if "arrays from" in line]
    assert line.startswith(
        f"begins with {count} of {count} arrays from {directory}, checkpoint 100: "
    )
    first = "; ".join(f"online/{name}" for name in [*last][:3])
    assert line.endswith(f": {first}; and {count - 3} more")
    assert not any("partly new" in line for line in lines)


def test_the_best_model_gives_the_network_that_acts_and_its_target(
    tmp_path: Path, source: tuple[Path, dict[str, Any]]
) -> None:
    directory, _ = source
    given = {"init_from": str(directory), "init_checkpoint": "best"}
    lines, state, model = begun(tmp_path, learner=given)
    for name, array in model.items():
        np.testing.assert_array_equal(state["target"][name].numpy(), array)
    assert any(f"{directory}, best: " in line for line in lines)


@pytest.mark.parametrize("name", ["sac", "td3"])
def test_a_policy_that_was_given_weights_does_not_act_at_random_first(name: str) -> None:
    def begins(learner: dict[str, Any], **agent: Any) -> tuple[bool, str]:
        table = {"env": {"id": "Pendulum-v1"}, "agent": {"name": name, **agent}, "learner": learner}
        found = load_config(table=table, environment={})
        own: Any = found.config.agent
        return own.uniform_warmup, found.begins

    given = {"init_from": "runs/one"}
    assert begins({}) == (True, "")
    uniform, line = begins(given)
    assert not uniform
    assert line.endswith("from the first step on (agent.uniform_warmup=false)")
    assert begins(given, uniform_warmup=True) == (True, "")


def test_a_normalized_policy_does_not_begin_with_the_weights_of_another() -> None:
    """The best model of a run has its normalization folded in, and cannot be learned on from."""

    def refused(learner: dict[str, Any], **agent: Any) -> list[str]:
        table = {"env": {"id": "Pendulum-v1"}, "agent": {"name": "sac", **agent}}
        config = load_config(table={**table, "learner": learner}, environment={}).config
        return [str(error) for error in contradictions(config)]

    given = {"init_from": "runs/one"}
    (line,) = refused(given, policy_batch_norm=True)
    assert line.startswith("learner.init_from: a policy that learns with batch normalization ")
    assert line.endswith("leave it out, or agent.policy_batch_norm=false")
    assert refused(given) == refused({}, policy_batch_norm=True) == []


def test_a_plain_policy_begins_with_the_folded_one_and_not_with_its_parts() -> None:
    kind = agent_kind("sac")
    box = gym.spaces.Box(-1, 1, (3,), np.float32)
    own, plain = (kind.config(hidden_sizes=(8, 8), policy_batch_norm=on) for on in (True, False))
    agent, other = (
        kind.build_agent(config, Spaces(box, box), device="cpu", seed=k)
        for k, config in enumerate((own, plain))
    )
    for k in range(3):
        columns = sampled_transitions(Spaces(box, box), 32, k)
        agent.opt({name: torch.from_numpy(column) for name, column in columns.items()})
    model = agent.model_info()
    best = WeightsSource("best", {"version": 3}, {}, model.arrays).weights_for(other)
    parts = weight_parts(agent.get_state())
    checkpoint = WeightsSource("checkpoint 3", {}, parts, {}).weights_for(other)
    assert not any(name.startswith("policy/") for name in checkpoint.taken)
    assert "critics/q.weights.0" in checkpoint.taken
    other.set_state(best.state)
    for name, array in model.arrays.items():
        np.testing.assert_array_equal(other.model_info().arrays[name], array, err_msg=name)


def test_epsilon_begins_at_its_end_with_given_weights_unless_it_is_set() -> None:
    """Also where a preset says where it begins."""
    settings = ["learner.init_from=runs/one", "agent.exploration.epsilon_final=0.1"]
    found = load_config(env="CartPole-v1", agent="dqn", settings=settings, environment={})
    own: Any = found.config.agent
    exploration = own.exploration
    assert (exploration.epsilon_start, exploration.kind) == (0.1, "linear")
    assert "(agent.exploration.epsilon_start=0.1)" in found.begins
    for more in ("agent.exploration.epsilon_start=0.5", "agent.exploration.kind=ladder"):
        kept = load_config(
            env="CartPole-v1", agent="dqn", settings=[*settings, more], environment={}
        )
        assert not kept.begins
    made = RunConfig.model_validate(
        {"env": {"id": "CartPole-v1"}, "agent": {"name": "iqn"}, "learner": {"init_from": "x"}}
    )
    assert "epsilon_start=0.05" in complete_config(made).begins


def test_what_does_not_fit_begins_anew_and_is_named(
    tmp_path: Path, source: tuple[Path, dict[str, Any]]
) -> None:
    directory, last = source
    lines, _, model = begun(
        tmp_path, env={"id": "Acrobot-v1"}, learner={"init_from": str(directory)}
    )
    (anew,) = [line for line in lines if line.startswith("begins anew with 6: online/")]
    assert any(line.startswith("the network that acts is partly new: ") for line in lines)
    fits = [name for name, array in last.items() if array.shape == model[name].shape]
    assert fits
    for name, array in last.items():
        if name in fits:
            assert f"online/{name}: " not in anew
        elif f"online/{name}: " in anew:
            assert f"online/{name}: {array.shape} there, {model[name].shape} here" in anew
        if name in fits:
            np.testing.assert_array_equal(model[name], array)


def test_a_run_that_gives_nothing_is_refused_with_the_reason(
    tmp_path: Path, source: tuple[Path, dict[str, Any]]
) -> None:
    for given, why in (
        ({"init_from": str(tmp_path / "nowhere")}, "there is no such folder; name a run's"),
        ({"init_from": str(tmp_path)}, "has no model 'latest' .it has none"),
        ({"init_from": str(source[0]), "init_checkpoint": "7"}, "no model '7' .it has 50, 100, be"),
    ):
        with pytest.raises(SettingError, match=why):
            lines_of_start(config_of(learner=given), tmp_path / "new", in_process=True)
    other = config_of(agent={"hidden_sizes": [3, 3, 3]}, learner={"init_from": str(source[0])})
    with pytest.raises(SettingError, match=r"no array of .* fits: online/"):
        lines_of_start(other, tmp_path / "new", in_process=True)


@pytest.mark.parametrize("which", ["latest", "best"])
def test_weights_that_are_not_finite_are_refused_before_the_start(
    tmp_path: Path, which: str
) -> None:
    directory = saved_model(tmp_path / "source")
    place = directory / {"latest": "checkpoints/5", "best": "best"}[which]
    state, meta = read_state(place)
    arrays = state["model"] if which == "best" else state["agent"]["online"]
    name = [*arrays][-1]
    arrays[name][0] = np.nan
    write_state(place, state, meta)
    config = config_of(learner={"init_from": str(directory), "init_checkpoint": which})
    with pytest.raises(SettingError) as refused:
        lines_of_start(config, tmp_path / "new")
    said = str(refused.value)
    assert said.startswith("learner.init_from: ")
    assert f"/{name} of {directory}, " in said
    assert said.endswith(
        " is not finite: learning had diverged; name another by learner.init_checkpoint"
    )


@pytest.mark.parametrize("which", ["latest", "best", "5"])
def test_weights_that_this_start_would_erase_are_refused_by_whatever_path(
    tmp_path: Path, which: str
) -> None:
    run = saved_model(tmp_path / "run")
    (tmp_path / "link").symlink_to(run)
    (tmp_path / "parts").mkdir()
    for part in ("checkpoints", "best"):
        (tmp_path / "parts" / part).symlink_to(run / part)
    for named in (run, tmp_path / "link", tmp_path / "parts", run / ".." / "run"):
        config = config_of(learner={"init_from": str(named), "init_checkpoint": which})
        with pytest.raises(SettingError) as refused:
            lines_of_start(config, run, fresh=True, force=True)
        assert str(refused.value) == (
            "learner.init_from (--init-from): --fresh erases its weights, which are those of the "
            f"run in {run}; choose another --out"
        )
    inner = saved_model(run / "inner")  # beside what is erased
    lines_of_start(config_of(learner={"init_from": str(inner)}), run, fresh=True, force=True)


@pytest.mark.parametrize("which", ["latest", "best"])
@pytest.mark.parametrize(
    ("there", "told"), [(True, "normalised observations"), (False, "observations as they are")]
)
def test_weights_behind_other_statistics_are_refused_with_the_setting(
    tmp_path: Path, which: str, there: bool, told: str
) -> None:
    begun_with = saved_model(tmp_path / "source", normalize_observations=there)
    learner = {"init_from": str(begun_with), "init_checkpoint": which}
    lines_of_start(
        config_of(agent={"normalize_observations": there}, learner=learner), tmp_path / "a"
    )
    config = config_of(agent={"normalize_observations": not there}, learner=learner)
    with pytest.raises(SettingError) as refused:
        lines_of_start(config, tmp_path / "b")
    assert str(refused.value).startswith("agent.normalize_observations: the weights of ")
    fix = f"expect {told}; set agent.normalize_observations={str(there).lower()}"
    assert str(refused.value).endswith(fix)
    other = config.model_copy(update={"env": config.env.model_copy(update={"id": "Acrobot-v1"})})
    lines_of_start(other, tmp_path / "c")  # its first layer begins anew


@pytest.mark.parametrize("of_best", [False, True])
@pytest.mark.parametrize(
    ("there", "here", "refused", "by_best"),
    [
        ({"policy_architecture": "layer_norm"}, {}, "policy_architecture", True),
        ({}, {"critic_architecture": "layer_norm"}, "critic_architecture", False),
        ({"hidden_sizes": [8]}, {}, "", False),  # other shapes, which are named
        ({"shared_encoder": False}, {}, "", False),  # of images, which there are none
        ({"network": "mlp"}, {}, "", False),  # as `auto` is here
        ({}, {"critic_hidden_sizes": [16]}, "", False),  # as they are without
        ({"memory_size": 64}, {}, "", False),  # of a memory that there is not
        ({"name": "td3", "policy_architecture": "layer_norm"}, {}, "", False),
    ],
)
def test_arrays_that_would_compute_something_else_are_refused_with_the_setting(
    tmp_path: Path,
    there: dict[str, Any],
    here: dict[str, Any],
    refused: str,
    by_best: bool,
    of_best: bool,
) -> None:
    usual = {"name": "sac", "hidden_sizes": [16], "critic_architecture": "mlp"}
    env = {"id": "Pendulum-v1"}
    source = saved_model(tmp_path / "source", env, **{**usual, **there})
    learner = {"init_from": str(source), "init_checkpoint": "best" if of_best else "latest"}
    begins = config_of(env=env, agent={**usual, **here}, learner=learner)
    spaces = environment_spaces(begins.env)
    if not refused or (of_best and not by_best):
        lines = describe_initial_weights(begins, spaces)
        assert lines[0].startswith("begins with ")
        return
    with pytest.raises(SettingError) as caught:
        describe_initial_weights(begins, spaces)
    assert caught.value.key == f"agent.{refused}"
    before = {**usual, "policy_architecture": "mlp", **there}[refused]
    assert caught.value.fix.startswith(f"set agent.{refused}={before}, ")


def test_code_that_the_other_run_names_is_not_run_to_compare_it(tmp_path: Path) -> None:
    source = saved_model(tmp_path / "source", network="mlp")
    file = source / "config.toml"
    saved = file.read_text()
    file.write_text(saved.replace('network = "mlp"', 'network = "gone_module:Net"'))
    assert file.read_text() != saved
    config = config_of(agent={"network": "mlp"}, learner={"init_from": str(source)})
    lines = describe_initial_weights(config, environment_spaces(config.env))
    assert lines[0].startswith("begins with ")


def test_arrays_that_the_new_agent_has_no_place_for_are_named(tmp_path: Path) -> None:
    deeper = saved_model(tmp_path / "source", hidden_sizes=[16, 16])
    lines = lines_of_start(config_of(learner={"init_from": str(deeper)}), tmp_path / "new")
    assert any(line.startswith("has no place for 4 of its arrays: online/") for line in lines)


def saved_model(out: Path, env: dict[str, Any] | None = None, **agent: Any) -> Path:
    """A directory with a checkpoint and a best model, of which none has learned anything."""
    config = config_of(agent=agent, **({"env": env} if env else {}))
    new_run(out, config)
    agent = untrained_agent(config, seed=1)
    write_state(out / "checkpoints" / "5", {"agent": agent.get_state()}, {})
    write_state(out / "best", {"model": dict(agent.model_info().arrays)}, {"version": 5})
    return out


def test_checkpoints_and_provenance_say_where_the_weights_come_from(
    tmp_path: Path, source: tuple[Path, dict[str, Any]]
) -> None:
    directory, last = source
    learner = {**NONE_LEARNED["learner"], "init_from": str(directory)}
    config = config_of(**{**NONE_LEARNED, "learner": learner})
    run, _ = trained(config, tmp_path)
    meta = run.learner._checkpoints.load_latest().meta  # type: ignore[union-attr]
    assert meta["init"]["from"] == f"{directory}, checkpoint 100"
    assert meta["init"]["run_id"] == json.loads((directory / "run.json").read_text())["run_id"]
    assert len(meta["init"]["taken"]) == 2 * len(last)
    assert meta["init"]["left"] == []
    assert (
        f"{directory}, run {meta['init']['run_id']}, latest (100)"
        in describe_start(config).init_from
    )


def test_the_best_model_of_normalised_observations_brings_their_statistics() -> None:
    kind = agent_kind("sac")
    box = gym.spaces.Box(-1, 1, (3,), np.float32)
    config = kind.config(hidden_sizes=(8, 8))
    spaces = Spaces(box, box)
    agent, other = (kind.build_agent(config, spaces, device="cpu", seed=k) for k in (0, 1))
    columns = sampled_transitions(spaces, 32, 0)
    agent.opt({name: torch.from_numpy(column) for name, column in columns.items()})
    model = agent.model_info()
    source = WeightsSource("best", {"version": model.version}, {}, model.arrays)
    other.set_state(source.weights_for(other).state)
    for name, array in other.model_info().arrays.items():
        np.testing.assert_array_equal(array, model.arrays[name], err_msg=name)


def test_statistics_that_move_slowly_go_on_from_those_of_the_best_model() -> None:
    spaces = Spaces(gym.spaces.Box(-1, 1, (3,), np.float32), gym.spaces.Discrete(2))
    kind = agent_kind("appo")
    config = kind.config(hidden_sizes=(8,))
    agent, other = (kind.build_agent(config, spaces, device="cpu", seed=k) for k in (0, 1))
    for batch in minibatches(random_block(spaces, 4, 4, 0), passes=1, size=16):
        agent.opt(batch)
    model = agent.model_info()
    state = WeightsSource("best", {"version": 1}, {}, model.arrays).weights_for(other).state
    other.set_state(state)
    for part in ("normalizer", "observed"):
        np.testing.assert_array_equal(state[part]["mean"], model.arrays["normalizer.mean"])
        assert state[part]["batches"] == 1.0


@pytest.mark.parametrize(
    ("critics", "parts"), [("batch_norm", ["critics"]), ("layer_norm", ["critics", "target"])]
)
def test_the_best_models_encoder_is_that_of_the_critics_which_share_it(
    critics: str, parts: list[str]
) -> None:
    camera = gym.spaces.Box(0, 255, (40, 40, 3), np.uint8)
    box = gym.spaces.Box(-1, 1, (2,))
    config = agent_kind("sac").config(hidden_sizes=(8, 8), critic_architecture=critics)
    spaces = Spaces(camera, box)
    agent, other = (
        agent_kind("sac").build_agent(config, spaces, device="cpu", seed=k) for k in (0, 1)
    )
    found = WeightsSource("best", {"version": 0}, {}, agent.model_info().arrays).weights_for(other)
    encoder = [name for name in found.state["policy"] if name.startswith("encoder.")]
    assert encoder
    for name in encoder:
        for part in parts:
            assert torch.equal(found.state[part][name], found.state["policy"][name]), (part, name)
    assert "critics/q.weights.0: not there" in found.left
