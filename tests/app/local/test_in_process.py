import errno
import json
import re
import tomllib
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from configurations import configured
from run_directories import new_run
from small_runs import SMALL, config_of, trained  # beside this file
from starts import train_in_process  # of tests/support
from torch import nn

from vedette.cli.app import main
from vedette.local.in_process import InProcessRun, lock_step
from vedette_rl.agents.dqn.agent import DqnAgent
from vedette_rl.agents.registry import agent_kind
from vedette_rl.core import ModelInfo
from vedette_rl.envs.make import environment_spaces, probe_environment
from vedette_rl.errors import DivergedError
from vedette_rl.storage.checkpoints import Checkpoints
from vedette_rl.storage.state_file import read_state
from vedette_services.config import read_config
from vedette_services.config.saving import config_table
from vedette_services.errors import SettingError, UnsavedEndError
from vedette_services.learner.evaluator import ModelEvaluation
from vedette_services.learner.trainer.run_recorder import hyperparameters
from vedette_services.run import outcome
from vedette_services.run.events import read_events
from vedette_services.status.records import TrainerStatus
from vedette_services.status.status import Time


def test_two_runs_of_one_seed_are_bit_identical(tmp_path: Path) -> None:
    (one, first), (other, second) = (
        trained(config_of(), tmp_path / name) for name in ("one", "other")
    )
    weights = one.agent.model_info().arrays
    again = other.agent.model_info().arrays
    assert [*weights] == [*again]
    assert all(weights[name].tobytes() == again[name].tobytes() for name in weights)
    assert first["eval"] == second["eval"]
    assert first["samples"] == second["samples"]
    assert first["record"] == second["record"]
    for column, same in zip(one.ring.columns.values(), other.ring.columns.values(), strict=True):
        assert column.tobytes() == same.tobytes()


def test_one_seed_gives_the_same_weights_however_environments_are_stepped(tmp_path: Path) -> None:
    weights = []
    for stepping in ("serial", "threads"):
        config = config_of(env={"stepping": stepping}, stop={"max_opts": 30})
        run, _ = trained(config, tmp_path / stepping)
        weights.append(run.agent.model_info().arrays)
    for name, array in weights[0].items():
        np.testing.assert_array_equal(array, weights[1][name])


def test_an_agent_that_diverges_ends_the_run_and_says_so(tmp_path: Path) -> None:
    agent = {"loss": "mse", "max_grad_norm": 0}
    env = {"reward_scale": 1e30}
    with pytest.raises(DivergedError) as ended:
        trained(config_of(agent=agent, env=env), tmp_path / "run")
    text = str(ended.value)
    assert re.match(
        r"learning diverged: no gradient of the last \d+ steps is a number that counts after "
        r"optimization step \d+\. Nothing of it is saved\. The largest values that can be drawn: "
        r"reward [123](\.\d+)?e\+30 \(sent by manager \S+, \d+ optimization steps old\), ",
        text,
    ), text
    assert "--new-replay goes on without these samples" in text
    assert "agent.max_grad_norm=10, a smaller agent.learning_rate than" in text
    assert "env.reward_clip (with --new-replay)" in text
    assert [*tmp_path.glob("run/checkpoints/*/state.safetensors")] == []


class BadWhenGreedy(gym.Wrapper[Any, Any, Any, Any]):
    """Its reward is none while `bad`."""

    bad = True

    def step(self, action: Any) -> Any:
        obs, reward, terminated, truncated, info = self.env.step(action)
        return obs, float("nan") if terminated and self.bad else reward, terminated, truncated, info


def test_an_evaluation_that_is_not_finite_is_not_the_best(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    config = config_of(env={"wrappers": [{"name": f"{__name__}:BadWhenGreedy"}]})
    evaluation = ModelEvaluation(config, environment_spaces(config.env), "run", tmp_path / "best")
    policy = agent_kind("dqn").build_agent(
        config.agent, probe_environment(config.env), device="cpu", seed=0
    )
    arrays = policy.model_info().arrays
    assert not evaluation.evaluate(1, ModelInfo(40, arrays), 160)
    assert "version 40 does not count" in caplog.text
    monkeypatch.setattr(BadWhenGreedy, "bad", False)
    assert evaluation.evaluate(1, ModelInfo(80, arrays), 320)
    assert evaluation.status.best_version == 80
    assert read_state(tmp_path / "best")[1]["version"] == 80
    evaluation.close()


def test_the_first_model_of_a_new_epoch_is_evaluated_though_its_version_is_lower(
    tmp_path: Path,
) -> None:
    config = config_of(learner={"eval_interval": 40})
    evaluation = ModelEvaluation(config, environment_spaces(config.env), "run", tmp_path / "best")
    policy = agent_kind("dqn").build_agent(
        config.agent, probe_environment(config.env), device="cpu", seed=0
    )
    played = []
    for epoch, version in ((1, 0), (1, 20), (1, 41), (1, 79), (1, 120), (2, 50), (2, 79), (2, 81)):
        if evaluation.is_due(epoch, version):
            model = ModelInfo(version, policy.model_info().arrays)
            played += [(epoch, version)] * evaluation.evaluate(epoch, model, 4 * version)
    assert played == [(1, 41), (1, 120), (2, 50), (2, 81)]
    evaluation.close()


class Counted(gym.Wrapper[Any, Any, Any, Any]):
    """Counts the environments that are open."""

    left = 0

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        type(self).left += 1

    def close(self) -> None:
        type(self).left -= 1
        super().close()


def test_an_error_in_training_leaves_no_environment_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = config_of(env={"wrappers": [{"name": f"{__name__}:Counted"}]})
    opt = DqnAgent.opt
    steps = iter(range(100))

    def failing(agent: DqnAgent, *given: Any, **how: Any) -> Any:
        if next(steps) == 60:  # the evaluation at 40 was played
            raise ZeroDivisionError
        return opt(agent, *given, **how)

    monkeypatch.setattr(DqnAgent, "opt", failing)
    with pytest.raises(ZeroDivisionError):
        trained(config, tmp_path)
    assert Counted.left == 0
    [*_, last] = read_events(next(tmp_path.rglob("events.jsonl")))[0]
    assert last.kind == "failed"
    assert last.text.startswith("ZeroDivisionError: it does not say why (test_in_process.py:")


class Sudden(gym.Env[Any, Any]):
    """Shows its number and its step, and raises in some."""

    observation_space = gym.spaces.Box(0, 1e6, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)
    made = 0

    def __init__(self) -> None:
        Sudden.made += 1
        self.number = Sudden.made

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.step_number = 0
        return np.float32([self.number, 0]), {}

    def step(self, action: Any) -> Any:
        self.step_number += 1
        if self.number % 2 and self.step_number == 23:
            raise RuntimeError("the contact solver did not converge")
        seen = np.float32([self.number, self.step_number])
        return seen, 1.0, self.step_number == 40, False, {}


def test_no_transition_reaches_over_a_failure_of_its_environment(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = config_of(
        env={"id": f"{__name__}:Sudden"}, agent={"n_step": 3}, learner={"eval_interval": 0}
    )
    run, summary = trained(config, tmp_path)
    failures = sum(manager.failures for manager in summary.managers)
    assert failures > 0
    assert "did not converge (test_in_process.py:" in caplog.text
    rows = run.ring.inserted
    seen = {name: column[:rows] for name, column in run.ring.columns.items()}
    began, ended = seen["obs"], seen["next_obs"]
    np.testing.assert_array_equal(began[:, 0], ended[:, 0])
    np.testing.assert_array_equal(ended[:, 1] - began[:, 1], seen["n_steps"])
    assert {22.0} <= {*began[began[:, 0] % 2 == 0, 1]}
    assert began[began[:, 0] % 2 == 1, 1].max() == 21


class OnlyOne(gym.Wrapper[Any, Any, Any, Any]):
    """An environment that exists once, as one with a licence or a port."""

    taken = False

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        if OnlyOne.taken:
            raise OSError("no other licence")
        OnlyOne.taken = True
        super().__init__(env)

    def close(self) -> None:
        OnlyOne.taken = False
        super().close()


def test_an_environment_that_exists_once_says_who_needs_another_before_it_has_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = {"count": 1, "envs_per_actor": 1}
    config = config_of(env={"wrappers": [{"name": f"{__name__}:OnlyOne"}]}, actors=one)
    opts: list[int] = []
    monkeypatch.setattr(DqnAgent, "opt", lambda *given, **how: opts.append(1))
    with pytest.raises(SettingError, match=r"evaluations cannot make .* no other licence") as error:
        trained(config, tmp_path)
    assert "learner.eval_interval=0" in error.value.fix
    assert opts == []


class Dropped(nn.Module):
    def __init__(self, observation: gym.Space[Any], actions: int) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 16), nn.Linear(16, actions)
        self.dropout = nn.Dropout(0.5)

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        return self.last(self.dropout(torch.relu(self.first(obs))))


def test_two_runs_of_a_network_with_dropout_are_bit_identical_too(tmp_path: Path) -> None:
    config = config_of(agent={"network": f"{__name__}:Dropped"})
    (one, first), (other, second) = (trained(config, tmp_path / name) for name in ("one", "other"))
    weights = one.agent.model_info().arrays
    again = other.agent.model_info().arrays
    assert all(weights[name].tobytes() == again[name].tobytes() for name in weights)
    assert first["eval"] == second["eval"]
    for column, same in zip(one.ring.columns.values(), other.ring.columns.values(), strict=True):
        assert column.tobytes() == same.tobytes()


def test_another_seed_is_another_run(tmp_path: Path) -> None:
    one, _ = trained(config_of(), tmp_path / "one")
    table = {**SMALL, "seed": 1}
    other, _ = trained(configured(table=table), tmp_path / "other")
    assert any(
        not np.array_equal(array, other.agent.model_info().arrays[name])
        for name, array in one.agent.model_info().arrays.items()
    )


def test_a_summary_that_cannot_be_written_ends_no_training_but_is_no_success(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, content: object, *, durable: bool = False) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr(outcome, "write_json", full)
    with pytest.raises(UnsavedEndError, match=r"summary\.json is outdated or missing") as e:
        train_in_process(config_of(), tmp_path)
    assert (e.value.status["exit_reason"], e.value.status["opt_steps"]) == ("max_opts", 100)


def test_a_run_leaves_what_any_run_leaves(tmp_path: Path) -> None:
    config = config_of()
    assert train_in_process(config, tmp_path)["exit_reason"] == "max_opts"
    assert read_config(tmp_path / "config.toml") == config
    assert [path.name for path in Checkpoints(tmp_path / "checkpoints", 3).list()] == ["50", "100"]
    assert list((tmp_path / "tensorboard").iterdir())
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert (summary["exit_reason"], summary["opt_steps"], summary["epoch"]) == ("max_opts", 100, 1)
    samples = summary["samples"]
    assert samples["produced"] == samples["inserted"] == summary["env_steps"] > 64
    assert samples["in_flight"] == samples["lost"] == samples["rejected"] == 0
    assert summary["replay"]["size"] == samples["inserted"]
    actors = summary["managers"][0]["actors"]
    assert [actor["id"] for actor in actors] == [0, 1]
    assert sum(actor["env_steps"] for actor in actors) == samples["produced"]
    _, meta = read_state(tmp_path / "best")
    assert summary["eval"]["best_return_mean"] == meta["return_mean"]
    assert summary["eval"]["version"] == 100


def test_recorders_are_told_what_the_run_is_and_how_it_goes(tmp_path: Path) -> None:
    trained(config_of(learner={"recorders": ["tensorboard", "jsonl"]}), tmp_path)
    lines = [json.loads(line) for line in (tmp_path / "records.jsonl").read_text().splitlines()]
    assert lines[0]["name"] == "config"
    assert tomllib.loads(lines[0]["text"])["agent"]["batch_size"] == 8
    seen = {name for line in lines for name in line}
    assert {"train/loss", "eval/mean_reward", "rollout/ep_rew_mean", "lag/mean"} <= seen
    table = hyperparameters(config_table(config_of()))
    assert (table["agent.batch_size"], table["seed"]) == (8, 0)
    assert table["agent.exploration.kind"] == "linear"
    assert table["agent.hidden_sizes"] == "[16]"
    assert all(isinstance(value, bool | int | float | str) for value in table.values())


def test_every_evaluation_is_on_the_curves_where_it_was_played(tmp_path: Path) -> None:
    config = config_of(learner={"recorders": ["jsonl"], "eval_interval": 20})
    trained(config, tmp_path)
    lines = [json.loads(line) for line in (tmp_path / "records.jsonl").read_text().splitlines()]
    played = {line["eval/version"]: line["step"] for line in lines if "eval/version" in line}
    assert [*played] == [20, 40, 60, 80, 100]
    at_once = config.actors.count * (config.actors.n_buffer + 3 * 4)
    for version, step in played.items():
        drawn_from = version * 8 / config.agent.usual_samples_per_insert
        assert 0 <= step - config.learner.warmup_period - drawn_from <= at_once


def test_the_same_command_resumes_where_the_checkpoint_is(tmp_path: Path) -> None:
    train_in_process(config_of(), tmp_path)
    before = json.loads((tmp_path / "summary.json").read_text())
    train_in_process(config_of(stop={"max_opts": 150}), tmp_path)
    after = json.loads((tmp_path / "summary.json").read_text())
    assert (after["run_id"], after["epoch"], after["opt_steps"]) == (before["run_id"], 2, 150)
    assert after["env_steps"] > before["env_steps"] + 64  # it warms up again
    since = after["samples"]["inserted"] - 64
    assert after["limiter"]["samples_per_insert"] * since == pytest.approx(150 * 8)
    train_in_process(config_of(stop={"max_opts": 20}), tmp_path, fresh=True)
    anew = json.loads((tmp_path / "summary.json").read_text())
    assert (anew["epoch"], anew["opt_steps"]) == (1, 20)
    assert anew["run_id"] != before["run_id"]


@pytest.mark.parametrize("rate", [4.0, 0.0, None])
def test_sides_take_turns_at_the_samples_per_insert(tmp_path: Path, rate: float | None) -> None:
    config = config_of(replay={"samples_per_insert": rate}, learner={"eval_interval": 0})
    learner, _ = trained(config, tmp_path)
    each_step = config.agent.batch_size / config.actors.envs_per_actor
    expected = config.agent.usual_samples_per_insert if rate is None else rate or each_step
    assert lock_step(config).samples_per_insert == expected
    sampled = 100 * config.agent.batch_size
    drawn_from = learner.ring.inserted - config.learner.warmup_period
    at_once = config.actors.count * (config.actors.n_buffer + 3 * 4)
    assert sampled / expected <= drawn_from <= sampled / expected + at_once


def test_it_ends_at_its_environment_steps_or_its_target(tmp_path: Path) -> None:
    _, ended = trained(config_of(stop={"max_opts": 0, "max_env_steps": 300}), tmp_path / "steps")
    assert ended["exit_reason"] == "max_env_steps"
    assert 300 <= ended["env_steps"] < 300 + 2 * (16 + 12)
    _, solved = trained(config_of(stop={"target_return": 1.0}), tmp_path / "solved")
    assert (solved["exit_reason"], solved["opt_steps"]) == ("target_return", 40)
    found = solved["eval"]
    assert (found["reached_version"], found["best_version"], found["reached_episodes"]) == (
        *(40, 40),
        5 * 2,  # evaluation.confirm of as many episodes as an evaluation has
    )


def test_in_lock_step_no_side_limits_the_other(tmp_path: Path) -> None:
    """The actors play while the learner waits: more of them would not help."""
    config = config_of(replay={"samples_per_insert": 8.0})
    run = InProcessRun(config, environment_spaces(config.env), new_run(tmp_path))
    measured = Time(optimizing_share=0.2, sampling_share=0.1, waiting_share=0.7)
    run.publish_status(TrainerStatus(phase="waiting", waits="learner waits: ...", time=measured))
    assert "limit" not in run.status().waits


def test_prioritized_replay_and_sac_run_too(tmp_path: Path) -> None:
    prioritized = config_of(replay={"prioritized": True}, stop={"max_opts": 20})
    _, summary = trained(prioritized, tmp_path / "prioritized")
    assert summary["opt_steps"] == 20
    table = {
        **SMALL,
        "env": {"id": "Pendulum-v1"},
        "agent": {"name": "sac", "hidden_sizes": [16], "batch_size": 8},
        "stop": {"max_opts": 20},
    }
    _, summary = trained(configured(table=table), tmp_path / "sac")
    assert summary["opt_steps"] == 20


def test_the_command_line_has_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "small.toml").write_text(
        "preset = 'none'\n[agent]\nname = 'dqn'\nhidden_sizes = [16]\n[actors]\ncount = 1\n"
        "[learner]\nwarmup_period = 50\neval_interval = 0\n[stop]\nmax_opts = 5\n"
    )
    arguments = ["run", str(tmp_path / "small.toml"), "--in-process", "--out", str(tmp_path / "r")]
    with pytest.raises(SystemExit) as left:
        main(arguments)
    assert not left.value.code
    assert "stop.max_opts is reached" in capsys.readouterr().out
