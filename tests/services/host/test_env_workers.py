"""Environments in processes of their own: the same episodes, and what happens when one fails."""

import copy
import ctypes
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from vedette_rl.envs import EnvConfig, make_vector_environment
from vedette_rl.envs.description import describe_environment
from vedette_rl.envs.failures import MOST_UNPLAYED, EnvironmentFailure
from vedette_rl.envs.vector_env import LoopVectorEnv
from vedette_rl.evaluation import GreedyEvaluator
from vedette_services.errors import EnvironmentProcessError
from vedette_services.host.env_workers import ProcessEnvs

pytestmark = pytest.mark.slow  # a process takes a second to start


_FLAGS = {"2": 2, "text": "False", "two": np.array([True, False])}
_FLAGS |= {"1": 1, "one": np.array([True])}


class Drifting(gym.Env[Any, Any]):
    """Draws everything; `fault` says what happens at its third step."""

    observation_space = gym.spaces.Dict(
        {"at": gym.spaces.Box(-9, 9, (2,), np.float64), "mode": gym.spaces.Discrete(3)}
    )
    action_space = gym.spaces.Box(-1, 1, (2,), np.float64)

    def __init__(self, fault: str = "", only: int = -1) -> None:
        self.fault = fault
        self.only = only
        self.played = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return self._obs(), {}

    def step(self, action: Any) -> Any:
        self.played += 1
        if self.played == 3 and self.fault == "raises":
            raise ZeroDivisionError("my own fault")
        if self.played == 3 and self.fault == "exits":
            sys.exit(7)
        if self.played == 3 and self.fault == "dies":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.fault in _FLAGS:
            return self._obs(), 0.0, copy.copy(_FLAGS[self.fault]), False, {}
        if self.fault == "acts":
            return self._obs(), 0.0, False, False, {"intervene_action": 0.5}
        ends, cut = self.np_random.random(2)
        reward = float(np.sum(action) + self.np_random.normal())
        action[:] = 9.0  # its own to keep
        return self._obs(), reward, bool(ends < 0.2), bool(cut < 0.1), {}

    def _obs(self) -> Any:
        at = self.np_random.uniform(-1, 1, 2)
        return {"at": at, "mode": self.np_random.integers(3)}


def config(stepping: str, **kwargs: Any) -> EnvConfig:
    return EnvConfig.model_validate(
        {"id": f"{__name__}:Drifting", "kwargs": kwargs, "stepping": stepping}
    )


def played(stepping: str, steps: int = 40) -> list[Any]:
    """Everything that a vector of three shows."""
    row = make_vector_environment(config(stepping), 3, seed=5, make_processes=ProcessEnvs)
    assert isinstance(row, LoopVectorEnv)
    rng = np.random.default_rng(0)
    seen = [{k: v.copy() for k, v in row.reset().items()}]
    for _ in range(steps):
        step = row.step(rng.uniform(-1, 1, (3, 2)).astype(np.float32))
        seen += [{k: v.copy() for k, v in part.items()} for part in (step.next_obs, step.init_obs)]
        seen.append({"r": step.reward.copy(), "t": step.terminated | step.truncated})
    seen.append({"episodes": np.array(row.pop_finished_episodes())})
    row.close()
    return seen


def test_the_same_seed_gives_the_same_trajectories_however_they_are_stepped() -> None:
    serial = played("serial")
    assert len(serial[-1]["episodes"]) > 5
    for stepping in ("threads", "processes"):
        for one, other in zip(serial, played(stepping), strict=True):
            for name, column in one.items():
                np.testing.assert_array_equal(column, other[name])


class Still:
    def sync_model(self, model: Any) -> None:
        """It has no model."""

    def act(self, obs: Any, *, explore: bool) -> Any:
        return np.zeros((len(obs["obs/at"]), 2), np.float32)


def test_an_evaluation_gives_the_same_however_it_is_stepped() -> None:
    found = []
    for stepping in ("serial", "threads", "processes"):
        evaluator = GreedyEvaluator(
            config(stepping), 7, seed=3, side_by_side=3, make_processes=ProcessEnvs
        )
        found += [evaluator.evaluate(Still(), 1), evaluator.evaluate(Still(), 1)]
        evaluator.close()
    assert len(set(found)) == 1
    assert found[0].episodes == 7


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("raises", "ZeroDivisionError: my own fault"),
        ("exits", "its environment's code ended the process: SystemExit: 7 (test_env_workers.py:"),
        ("dies", "an environment's process ended: signal 9"),
    ],
)
def test_a_fault_comes_out_with_its_cause_and_the_environments_number(
    fault: str, said: str
) -> None:
    group = ProcessEnvs(config("processes", fault=fault), 2)
    workers = group._workers
    obs = group.layout.empty(2)
    actions = np.zeros((2, 2))
    group.reset([0, 1], [1, 2], obs, [0, 1])
    group.step(actions, obs)
    group.step(actions[:1], {name: column[:1] for name, column in obs.items()}, [1])
    with pytest.raises(EnvironmentProcessError) as caught:
        group.step(actions, obs)
    assert str(caught.value).startswith(said)
    assert caught.value.__notes__ == ["in environment 1 of 2"]
    if fault == "raises":
        assert "in step" in str(caught.value.__cause__)
    group.close()
    assert all(worker.poll() is not None for worker in workers)


@pytest.mark.parametrize("fault", ["raises", "exits", "dies"])
def test_a_process_that_fails_or_dies_is_started_again_and_the_others_go_on(fault: str) -> None:
    row = make_vector_environment(
        config("processes", fault=fault), 2, seed=5, make_processes=ProcessEnvs
    )
    told: list[EnvironmentFailure] = []
    row.on_failure = told.append
    row.reset()
    valid = [row.step(np.zeros((2, 2), np.float32)).valid.tolist() for _ in range(7)]
    assert valid == [[True] * 2] * 2 + [[False] * 2] + [[True] * 2] * 2 + [[False] * 2, [True] * 2]
    assert sorted(failure.env for failure in told) == [0, 0, 1, 1]
    row.close()


@pytest.mark.parametrize("stepping", ["serial", "threads", "processes"])
@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("2", "step() gave terminated=2, which is no bool"),
        ("text", "step() gave terminated='False', which is no bool"),
        ("two", "step() gave terminated=array([ True, False]), which is no bool"),
        ("acts", "an executed action has shape (), not (2,)"),
    ],
)
def test_what_a_step_must_not_give_is_refused_alike(stepping: str, fault: str, said: str) -> None:
    row = make_vector_environment(
        config(stepping, fault=fault), 2, seed=5, make_processes=ProcessEnvs
    )
    row.reset()
    with pytest.raises(Exception, match=re.escape(said)):
        row.step(np.zeros((2, 2), np.float32))
    row.close()


@pytest.mark.parametrize("stepping", ["serial", "threads", "processes"])
@pytest.mark.parametrize("flag", ["1", "one"])
def test_an_array_of_one_bool_and_the_number_1_end_an_episode(stepping: str, flag: str) -> None:
    row = make_vector_environment(
        config(stepping, fault=flag), 2, seed=5, make_processes=ProcessEnvs
    )
    row.reset()
    assert row.step(np.zeros((2, 2), np.float32)).terminated.tolist() == [True, True]
    row.close()


def test_an_environment_that_cannot_be_made_in_its_process_is_told(tmp_path: Path) -> None:
    once = tmp_path / "made"
    made = config("processes", fault=str(once)).model_copy(update={"id": f"{__name__}:Once"})
    with pytest.raises(EnvironmentProcessError, match="there is only one"):
        ProcessEnvs(made, 2)


def test_an_environment_that_can_exist_once_is_stepped_in_its_process(tmp_path: Path) -> None:
    made = config("processes", fault=str(tmp_path / "made"))
    group = ProcessEnvs(made.model_copy(update={"id": f"{__name__}:Once"}), 1)
    assert group.description == describe_environment(Drifting())
    group.close()


def test_an_attribute_is_of_an_environment_that_is_made_for_it() -> None:
    group = ProcessEnvs(config("processes"), 1)
    assert group.attribute("played") == 0
    with pytest.raises(AttributeError):
        group.attribute("nothing")
    group.close()


class Served(Drifting):
    """Starts a program that lasts, as a session of its own; closing it needs a word to a server.

    Args:
        fault: as `Drifting`; "hangs": its third step does not come back; "holds the lock": nor does
            it let another thread run.
        place: gets the program's number, and "closed" when it is closed.
    """

    def __init__(self, fault: str = "", place: str = "") -> None:
        super().__init__(fault)
        self.place = Path(place)
        if fault == "hangs, its server detached":  # as launchers of simulators do it
            launcher = ["setsid", "sh", "-c", "sleep 60 >/dev/null 2>&1 & echo $!"]
            number = int(subprocess.check_output(launcher))
        else:
            number = subprocess.Popen(["sleep", "60"], start_new_session=True).pid
        (self.place / f"{number}").touch()

    def step(self, action: Any) -> Any:
        if self.played == 2 and self.fault.startswith("hangs"):
            time.sleep(60)
        if self.played == 2 and self.fault == "holds the lock":
            ctypes.PyDLL(None).sleep(60)
        if self.played == 2 and self.fault == "ends":
            raise EOFError("the server closed the connection")
        return super().step(action)

    def close(self) -> None:
        (self.place / "closed").touch()


def served(place: Path, fault: str) -> EnvConfig:
    made = config("processes", fault=fault, place=str(place))
    return made.model_copy(update={"id": f"{__name__}:Served"})


def programs(place: Path) -> list[int]:
    return [int(path.name) for path in place.iterdir() if path.name.isdecimal()]


@pytest.mark.parametrize("fault", ["raises", "ends"])
def test_an_environment_that_raised_is_closed_before_it_is_made_again(
    fault: str, tmp_path: Path
) -> None:
    row = make_vector_environment(served(tmp_path, fault), 2, seed=5, make_processes=ProcessEnvs)
    told: list[EnvironmentFailure] = []
    row.on_failure = told.append
    row.reset()
    while not told:
        row.step(np.zeros((2, 2), np.float32))
    assert "Error: " in str(told[0].error)
    assert (tmp_path / "closed").exists()
    assert sum(map(_runs, programs(tmp_path))) == 2  # the new ones'
    row.close()
    assert not any(map(_runs, programs(tmp_path)))


def test_a_worker_that_is_killed_leaves_no_program(tmp_path: Path) -> None:
    row = make_vector_environment(served(tmp_path, ""), 2, seed=5, make_processes=ProcessEnvs)
    told: list[EnvironmentFailure] = []
    row.on_failure = told.append
    row.reset()
    row.group._workers[0].kill()  # type: ignore[attr-defined]  # it is a group of processes
    row.step(np.zeros((2, 2), np.float32))
    assert "signal 9" in str(told[0].error)
    assert len(programs(tmp_path)) == 3
    deadline = time.monotonic() + 60.0
    while sum(map(_runs, programs(tmp_path))) > 2:  # the other's, and that of the new one
        assert time.monotonic() < deadline
        time.sleep(0.02)
    row.close()


def test_an_environment_is_closed_where_another_cannot_be_made(tmp_path: Path) -> None:
    made = served(tmp_path, "").model_copy(update={"id": f"{__name__}:ServedOnce"})
    with pytest.raises(EnvironmentProcessError, match="there is only one"):
        ProcessEnvs(made, 2)
    assert (tmp_path / "closed").exists()
    assert not any(map(_runs, programs(tmp_path)))


_FAST_WORKER = """
from vedette_services.host import env_workers, processes
env_workers._END_S = 0.3
processes.ORPHAN_KILL_S = 3
env_workers.run_to_end(env_workers.main, env_workers._say)
"""


def killed_owner(place: Path, fault: str) -> list[int]:
    """Kill a process whose environment is in its third step, or was asked for none; return its
    worker and what that has started."""
    script = f"""
        import sys, time
        sys.path[:0] = {[str(Path(__file__).parent)]!r}
        from pathlib import Path
        from vedette_services.host import env_workers
        from {__name__} import _FAST_WORKER, ProcessEnvs, np, served
        def fast(module, *arguments):
            return [sys.executable, "-P", "-c", _FAST_WORKER, *arguments]
        if __name__ == "__main__":
            env_workers.python_module = fast
            group = ProcessEnvs(served(Path({str(place)!r}), {fault!r}), 1)
            obs = group.layout.empty(1)
            group.reset([0], [1], obs, [0])
            for _ in range(2):
                group.step(np.zeros((1, 2)), obs)
            if {fault!r}:
                group._send(0, b"step")
                time.sleep(0.2)  # it is in it
            print(group._workers[0].pid, flush=True)
            time.sleep(60)
    """
    owner = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)], stdout=subprocess.PIPE, text=True
    )
    assert owner.stdout is not None
    worker = int(owner.stdout.readline())
    owner.kill()
    owner.wait(10)
    owner.stdout.close()
    return [worker, *programs(place)]


@pytest.mark.parametrize("fault", ["", "hangs", "hangs, its server detached"])
def test_an_environment_whose_owner_was_killed_leaves_no_program(
    fault: str, tmp_path: Path
) -> None:
    left = killed_owner(tmp_path, fault)
    assert len(left) == 2
    wait_until_gone(left, 20)
    assert (tmp_path / "closed").exists() == (not fault)


def test_a_worker_that_runs_no_thread_ends_after_its_owner_was_killed(tmp_path: Path) -> None:
    worker, program = killed_owner(tmp_path, "holds the lock")
    wait_until_gone([worker], 10)
    os.kill(program, signal.SIGKILL)  # nobody was there to end it


class ServedOnce(Served):
    def __init__(self, fault: str = "", place: str = "") -> None:
        if programs(Path(place)):
            raise RuntimeError("there is only one")
        super().__init__(fault, place)


class NeverBegins(Drifting):
    """Its process dies in each reset."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        os.kill(os.getpid(), signal.SIGSEGV)


def test_one_whose_process_dies_before_each_first_step_is_broken() -> None:
    made = config("processes").model_copy(update={"id": f"{__name__}:NeverBegins"})
    row = make_vector_environment(made, 2, seed=5, make_processes=ProcessEnvs)
    told: list[EnvironmentFailure] = []
    row.on_failure = told.append
    with pytest.raises(EnvironmentProcessError, match="ended: signal 11") as caught:
        row.reset()
    assert f"{MOST_UNPLAYED} times in a row before a step" in caught.value.__notes__[-1]
    assert [failure.env for failure in told].count(0) == MOST_UNPLAYED - 1
    row.close()


class Once(Drifting):
    """The file that `fault` names says that there is one already."""

    def __init__(self, fault: str = "") -> None:
        super().__init__()
        if Path(fault).exists():
            raise RuntimeError("there is only one")
        Path(fault).touch()


def test_no_process_is_left_when_their_owner_is_killed() -> None:
    script = f"""
        import sys, time
        sys.path[:0] = {[str(Path(__file__).parent)]!r}
        from {__name__} import ProcessEnvs, config
        if __name__ == "__main__":
            group = ProcessEnvs(config("processes"), 2)
            print(*(worker.pid for worker in group._workers), flush=True)
            time.sleep(60)
    """
    owner = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)], stdout=subprocess.PIPE, text=True
    )
    assert owner.stdout is not None
    pids = [int(pid) for pid in owner.stdout.readline().split()]
    assert len(pids) == 2
    owner.kill()
    owner.wait(10)
    wait_until_gone(pids, 10)
    owner.stdout.close()


def wait_until_gone(pids: list[int], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while any(map(_runs, pids)):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
