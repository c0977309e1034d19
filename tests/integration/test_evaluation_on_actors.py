"""A learner whose host has no environment: its managers play it, and evaluate its models."""

from __future__ import annotations

import json
import os
import signal
import threading
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import tomli_w
from daemons import Daemon, Daemons, balances, free_address, status, wait_for

import vedette
from vedette_rl.replay.export import LiveRows
from vedette_services.config.presets import read_preset
from vedette_services.net.keys import ClientKeys, list_keys, make_keys
from vedette_services.run.finished import FinishedRun

FAR = """
import gymnasium
from gymnasium.envs.classic_control.cartpole import CartPoleEnv


def make():
    return gymnasium.wrappers.TimeLimit(CartPoleEnv(), 500)
"""
pytestmark = pytest.mark.slow

SMALL = ("learner.warmup_period=300", "agent.hidden_sizes=[16]")
SPACES = {
    "observation": {"space": "box", "shape": [4]},
    "action": {"space": "discrete", "n": 2},
}


def write_config(path: Path, **stop: float) -> None:
    """Write the settings of CartPole's preset, with the spaces of the environment declared."""
    table = read_preset("dqn", "CartPole-v1")
    assert table is not None
    table["env"] |= {"id": "far_environments:make", **SPACES}
    table["evaluation"]["episodes"] = 10
    table["agent"]["name"] = "dqn"
    table["stop"] = stop
    path.write_text(tomli_w.dumps(table))


class FarRun:
    """A run with keys, whose environment is on the managers' path alone."""

    def __init__(self, daemons: Daemons, *settings: str, **stop: float) -> None:
        place = daemons.place
        self.daemons = daemons
        self.run = place / "run"
        self.keys = place / "keys"
        self.address = free_address()
        self.settings = settings
        make_keys(self.keys, ["gpu-2", "lab-7"])
        names = {key.name: key.public.decode() for key in list_keys(self.keys)[1]}
        self.config = place / "far.toml"
        write_config(self.config, **stop)
        self.trusted = f'evaluation.trusted=["{names["gpu-2"]}"]'
        self.far = place / "far"
        self.far.mkdir()
        (self.far / "far_environments.py").write_text(FAR)
        self.learner = self.start_learner()

    def start_learner(self) -> Daemon:
        return self.daemons.start(
            "learner",
            "learner",
            self.config,
            "--out",
            self.run,
            "--keys",
            self.keys,
            "--bind",
            self.address,
            self.trusted,
            *self.settings,
        )

    def start_manager(self, name: str, *options: str) -> Daemon:
        path = os.pathsep.join([str(self.far), os.environ.get("PYTHONPATH", "")])
        return self.daemons.start(
            name,
            "actors",
            "--learner",
            self.address,
            "--id",
            name,
            "--count",
            1,
            "--keys",
            self.keys / "hosts" / name,
            "--allow-import",
            "far_environments",
            *options,
            run_in=("env", f"PYTHONPATH={path}"),
        )

    def status(self) -> dict[str, dict[str, object]]:
        return status(self.address, keys=ClientKeys.read(self.keys))

    def evaluated(self) -> int:
        """The version of the last evaluation of this start; 0 if there is none, or no answer."""
        return int(str(self.status().get("eval", {}).get("version") or 0))

    def opts(self) -> int:
        """Optimization steps; 0 where nobody answers."""
        return int(str(self.status().get("opt_steps", 0)))

    def summary(self) -> dict[str, dict[str, object]]:
        found: dict[str, dict[str, object]] = json.loads((self.run / "summary.json").read_text())
        return found


def evaluating(manager: Daemon) -> list[int]:
    """The process of a manager that plays evaluations."""
    return manager.children("evaluation")


@pytest.mark.timeout(900)
def test_cartpole_is_solved_by_evaluations_on_actors_with_kills_of_everybody(
    daemons: Daemons,
) -> None:
    run = FarRun(daemons, max_seconds=800.0)
    manager = run.start_manager("gpu-2")
    wait_for(run.evaluated, "evaluation", 120.0)

    wait_for(lambda: run.status().get("evaluating"), "evaluation that goes on", 120.0)
    manager.kill9()  # in an evaluation
    manager = run.start_manager("gpu-2")
    before = wait_for(run.evaluated, "status")
    wait_for(lambda: run.evaluated() > before, "another one", 120.0)

    run.learner.kill9()
    run.learner = run.start_learner()
    wait_for(run.evaluated, "evaluation after it", 180.0)
    os.kill(wait_for(lambda: (evaluating(manager) or [0])[0], "its process"), signal.SIGKILL)
    best = "best_return_mean"
    wait_for(lambda: (run.status().get("eval", {}).get(best) or 0.0) >= 475.0, "solution", 600.0)
    assert run.learner.stop() == 0
    run.settings = ("stop.target_return=475",)
    run.learner = run.start_learner()
    assert run.learner.wait(120.0) == 0
    assert manager.wait(60.0) == 0
    summary = run.summary()
    assert summary["exit_reason"] == "target_return"
    assert float(str(summary["eval"]["best_return_mean"])) >= 475.0
    assert balances(summary["samples"])  # type: ignore[arg-type]  # counts
    assert summary["samples"]["rejected"] == 0
    kept = FinishedRun.open(run.run).load_model(None)
    assert kept.meta["version"] == summary["eval"]["best_version"]
    assert kept.meta["played_by"] == "manager gpu-2"


@pytest.mark.timeout(180)
def test_an_untrusted_manager_is_shown_and_a_trusted_one_decides(daemons: Daemons) -> None:
    run = FarRun(daemons, *SMALL, max_opts=100_000, target_return=15.0)
    run.start_manager("lab-7")
    wait_for(lambda: run.status().get("eval", {}).get("shown_version"), "shown one", 90.0)
    shown = run.status()["eval"]
    assert shown["shown_by"] == "manager lab-7"
    assert shown["best_return_mean"] is None
    assert not (run.run / "best").exists()
    manager = run.start_manager("gpu-2")
    assert run.learner.wait(90.0) == 0
    assert manager.wait(30.0) == 0
    summary = run.summary()
    assert summary["eval"]["played_by"] == "manager gpu-2"
    assert summary["eval"]["best_return_mean"] is not None
    if summary["exit_reason"] == "target_return":
        assert summary["eval"]["reached_episodes"] > 0  # confirmed by the same manager
    assert "decides nothing" in run.learner.log


@pytest.mark.timeout(180)
def test_without_an_evaluator_the_returns_of_trusted_actors_decide(daemons: Daemons) -> None:
    run = FarRun(daemons, *SMALL, target_return=12.0, max_seconds=100.0)
    run.start_manager("gpu-2", "--no-evaluate")
    assert run.learner.wait(120.0) == 0
    summary = run.summary()
    assert summary["exit_reason"] == "target_return"
    assert summary["eval"]["played_by"] == "returns of actors"
    assert "the returns of the actors of those that there are" in run.learner.log


class OwnLoop:
    """CartPoles that a thread of this process plays for a run, with `vedette.Actor`."""

    def __init__(self, run: FarRun, envs: int, *, evaluates: bool) -> None:
        self._envs = [gym.make("CartPole-v1") for _ in range(envs)]
        keys = run.keys / "hosts" / "gpu-2"
        self.actor = vedette.Actor(
            str(run.address), keys=keys, envs=envs, wait_s=240.0, id="own-1", evaluates=evaluates
        )
        self.error: BaseException | None = None
        self.settled = False
        self._thread = threading.Thread(target=self._play)
        self._thread.start()

    def _play(self) -> None:
        try:
            with self.actor as actor:
                obs = np.stack([env.reset(seed=k)[0] for k, env in enumerate(self._envs)])
                actor.begin(obs)
                while actor.running:
                    self._step(actor)
                self.settled = actor.close()
        except BaseException as error:  # noqa: BLE001 - raised by `join`
            self.error = error

    def _step(self, actor: vedette.Actor) -> None:
        actions = actor.act()
        came = [env.step(action) for env, action in zip(self._envs, actions, strict=True)]
        obs, rewards, terminated, truncated, _ = (np.array(x) for x in zip(*came, strict=True))
        actor.observe(rewards, obs, terminated, truncated)
        if (ended := terminated | truncated).any():
            for k in np.flatnonzero(ended):
                obs[k] = self._envs[k].reset()[0]
            actor.begin(obs, ended)

    def join(self, timeout_s: float) -> None:
        """Wait for the end of its run."""
        self._thread.join(timeout_s)
        if self.error is not None:
            raise self.error
        assert not self._thread.is_alive(), f"the loop has not ended within {timeout_s:g} s"


def check_every_row_once(replay: Path, envs: int) -> int:
    """Check that rows are distinct, and each follows another, but for the ends; their number."""
    with LiveRows(replay) as live:
        rows = {name: live.column(name) for name in ("obs", "next_obs", "terminated", "truncated")}
        assert len(live) == live.inserted, "all that was inserted is still there"

    def whole(column: np.ndarray[Any, Any]) -> list[bytes]:
        return [row.tobytes() for row in column]

    began = whole(rows["obs"])
    assert len({*began}) == len(began), "no row twice"
    goes_on = ~(rows["terminated"] | rows["truncated"])
    unfollowed = {*whole(rows["next_obs"][goes_on])} - {*began}
    assert len(unfollowed) <= envs, "but where the run ended"
    return len(began)


@pytest.mark.timeout(900)
def test_cartpole_is_solved_by_an_own_loop_alone_with_keys_and_a_kill_and_every_row_comes_once(
    daemons: Daemons,
) -> None:
    envs = 16
    capacity = "replay.capacity=400000"
    run = FarRun(daemons, capacity, max_seconds=800.0, target_return=475.0)
    loop = OwnLoop(run, envs, evaluates=True)
    wait_for(lambda: run.opts() >= 200, "a learner that trains")
    run.learner.kill9()  # before the first evaluation, which may reach the target
    run.learner = run.start_learner()
    assert run.learner.wait(800.0) == 0
    loop.join(60.0)
    assert loop.settled
    summary = run.summary()
    counted = loop.actor.stats()
    assert summary["exit_reason"] == "target_return"
    assert float(str(summary["eval"]["best_return_mean"])) >= 475.0
    assert summary["eval"]["played_by"] == "manager own-1"
    samples: Any = summary["samples"]
    assert samples["inserted"] == samples["produced"] == counted["produced"]
    assert check_every_row_once(run.run / "replay", envs) == samples["inserted"]
    print(summary["env_steps"], summary["eval"], samples, counted)


@pytest.mark.timeout(180)
def test_without_an_evaluator_the_returns_of_own_loops_decide(daemons: Daemons) -> None:
    run = FarRun(daemons, *SMALL, target_return=12.0, max_seconds=100.0)
    loop = OwnLoop(run, 1, evaluates=False)
    assert run.learner.wait(120.0) == 0
    loop.join(60.0)
    summary = run.summary()
    assert summary["exit_reason"] == "target_return"
    assert summary["eval"]["played_by"] == "returns of actors"
    assert "the returns of the actors of those that there are" in run.learner.log
