"""An actor in a program that owns its loop, against a learner of the tests."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from fake_learner import FakeLearner, a_model, a_run, spaces_of, wait_for

from vedette_protocol.messages import EvaluationReport, Refusal, Run
from vedette_rl.agents.registry import agent_kind
from vedette_rl.core import ModelInfo
from vedette_rl.errors import SpaceLayoutError
from vedette_services.actors.custom_loop import Actor
from vedette_services.actors.manager_state import ManagerState
from vedette_services.errors import (
    AddressError,
    NoModelError,
    RefusedError,
    RunOverError,
    SpacesNotKnownError,
    SpecMismatchError,
)
from vedette_services.net.addresses import Address

COUNT = {"id": "actors_test_envs:ActorsCount-v0"}
ENDS_AT = 7


class Counter:
    """A simulator of E environments that number their steps; every seventh ends an episode.

    The observation is (environment, t); its space is that of `ActorsCount`.
    """

    def __init__(self, envs: int) -> None:
        self.t = np.zeros(envs, np.int64)

    @property
    def obs(self) -> np.ndarray:
        return np.stack([np.arange(len(self.t)), self.t], axis=1).astype(np.float32)

    def step(self, action: np.ndarray) -> tuple[Any, ...]:
        assert action.shape == self.t.shape
        self.t += 1
        ends = self.t % ENDS_AT == 0
        return self.t.astype(np.float64), self.obs, ends & (self.t % 2 == 0), ends


@contextmanager
def serving(learner: FakeLearner) -> Iterator[None]:
    """Serves in a thread; whatever fails there fails here."""
    over = threading.Event()
    errors = list[BaseException]()

    def serve() -> None:
        try:
            while not over.is_set():
                learner.turn()
        except BaseException as error:  # noqa: BLE001 - raised below
            errors.append(error)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(10.0)
    assert not errors, errors


def play(actor: Actor, sim: Counter, until: Callable[[], bool]) -> int:
    """Steps until something holds; the number of steps."""
    steps = 0
    deadline = time.monotonic() + 30.0
    while actor.running and not until():
        assert time.monotonic() < deadline
        actor.observe(*(outcome := sim.step(actor.act())))
        steps += 1
        if outcome[3].any():
            actor.begin(sim.obs, outcome[3])
    return steps


def counting_run(n_step: int = 1, **fields: Any) -> Run:
    run = a_run(COUNT, envs_per_actor=2, **fields)
    return dataclasses.replace(run, agent={**run.agent, "n_step": n_step})


SPACES = {
    "observation_space": gym.spaces.Box(0.0, 1e9, (2,), np.float32),
    "action_space": gym.spaces.Discrete(2),
}


def check_every_step_once(learner: FakeLearner, batches: list[Any], sim: Counter) -> None:
    learner.batches = batches
    obs, after = learner.column("obs"), learner.column("next_obs")
    for env, steps in enumerate(sim.t.tolist()):
        rows = obs[:, 0] == env
        order = np.argsort(obs[rows, 1], kind="stable")
        np.testing.assert_array_equal(obs[rows, 1][order], np.arange(steps))
        np.testing.assert_array_equal(after[rows, 1][order], np.arange(steps) + 1)
        ends = (np.arange(steps) + 1) % ENDS_AT == 0
        np.testing.assert_array_equal(learner.column("truncated")[rows][order], ends)


def test_every_step_of_several_environments_arrives_once_though_the_learner_is_killed(
    address: Address,
) -> None:
    sim = Counter(3)
    run = counting_run(n_buffer=20)
    first = FakeLearner(address, run)
    with Actor(str(address), envs=3, **SPACES) as actor:
        with serving(first):
            actor.begin(sim.obs)
            play(actor, sim, lambda: first.rows() > 300)
        incarnation = first.report().incarnation
        first.close()
        play(actor, sim, lambda: sim.t[0] > 400)
        again = dataclasses.replace(run, epoch=2, learner=5)
        second = FakeLearner(address, again, ledger=first.ledger)
        with serving(second):
            play(actor, sim, lambda: second.rows() > 300)
            second.stop(final=True)
            play(actor, sim, lambda: False)  # to the end of the run
            assert actor.close()
            wait_for(lambda: second.report().state == "gone")
        with pytest.raises(RunOverError, match=r"the run is over \(test\)"):
            actor.act()
    report = second.report()
    assert (report.state, report.dropped, report.window_rows) == ("gone", 0, 0)
    assert report.incarnation == incarnation
    assert report.produced == first.rows() + second.rows() == sim.t.sum()
    check_every_step_once(second, first.batches + second.batches, sim)
    assert actor.stats()["episodes"] == (sim.t // ENDS_AT).sum()


def test_nothing_waits_where_batches_may_be_dropped_and_the_oldest_are_dropped_and_counted(
    address: Address,
) -> None:
    learner = FakeLearner(address, counting_run(n_buffer=10, window_batches=5), credit=0)
    sim = Counter(1)
    steps_s: list[float] = []
    with (
        serving(learner),
        Actor(str(address), envs=1, on_full="drop_oldest", **SPACES) as actor,
    ):
        actor.begin(sim.obs)

        def is_whole() -> bool:  # batches of 10; the last step of an episode waits for the next
            return sim.t[0] % 10 == 0 and sim.t[0] % ENDS_AT != 0

        while actor.stats().get("dropped", 0) < 300 or not is_whole():
            began = time.monotonic()
            play(actor, sim, lambda: True) or actor.observe(*sim.step(actor.act()))
            steps_s.append(time.monotonic() - began)
        # once all are in the window, as beside batches that were all sent the new one is dropped
        wait_for(lambda: actor.stats()["produced"] == sim.t[0])
        learner.credit = 64
        assert actor.close()
        wait_for(lambda: learner.report().state == "gone")
    # Every tenth step hands over a batch. A busy machine delays a few steps, whatever they do.
    assert np.quantile(steps_s, 0.95) < 0.25
    report = learner.report()
    assert report.produced == sim.t[0] == report.dropped + learner.rows()
    assert learner.column("obs")[-1, 1] == sim.t[0] - 1  # the newest ones are kept


def test_observe_waits_for_room_while_the_learner_gives_no_credit_and_for_nothing_while_it_is_away(
    address: Address,
) -> None:
    run = counting_run(n_buffer=10, window_batches=50)
    learner = FakeLearner(address, run, credit=0)
    sim = Counter(1)
    steps = [0]
    with Actor(str(address), envs=1, **SPACES) as actor:

        def loop() -> None:
            while actor.running:
                actor.observe(*sim.step(actor.act()))
                steps[0] += 1

        with serving(learner):
            actor.begin(sim.obs)
            thread = threading.Thread(target=loop)
            thread.start()
            wait_for(lambda: learner.report().window_rows == 10)
            time.sleep(0.5)
            queued = steps[0]
            assert 170 <= queued <= 190  # in the queue 16 batches
        learner.close()
        wait_for(lambda: actor.stats()["batches"] == 50)  # all of the window
        wait_for(lambda: steps[0] >= 500)
        assert steps[0] <= max(queued, 500) + 640 + 10
        again = FakeLearner(address, run, ledger=learner.ledger)
        with serving(again):
            wait_for(lambda: again.rows() > 1000)
            again.stop(final=True)
            thread.join(20.0)
            actor.close()
    check_every_step_once(again, again.batches, sim)


def evaluated(learner: FakeLearner, request: int) -> EvaluationReport | None:
    """The results of an evaluation, once they are reported."""
    found = learner.report().evaluation if learner.reports else None
    done = found is not None and found.request == request and found.return_mean is not None
    return found if done else None


def greedy_actions(run: Run, obs: np.ndarray) -> np.ndarray:
    kind = agent_kind("dqn")
    agent = {**run.agent}
    spaces = spaces_of(dict(run.env))
    policy = kind.build_policy(
        kind.config.model_validate(agent), spaces, ranks=np.zeros(len(obs)), seed=0
    )
    policy.sync_model(ModelInfo(0, a_model(run)))
    return policy.act({"obs": obs}, explore=False)


@pytest.mark.parametrize(("n_step", "longest"), [(1, None), (3, None), (3, 4)])
def test_evaluations_are_greedy_episodes_that_send_no_rows(
    address: Address, n_step: int, longest: int | None
) -> None:
    run = counting_run(n_step, n_buffer=5)
    run = dataclasses.replace(run, evaluation={"episodes": 5, "max_episode_steps": longest})
    learner = FakeLearner(address, run)
    sim = Counter(2)
    actions: list[np.ndarray] = []
    with Actor(str(address), envs=2, evaluates=True, **SPACES) as actor:

        def play_on(until: Callable[[], bool]) -> None:
            deadline = time.monotonic() + 30.0
            while not until():
                assert time.monotonic() < deadline
                actions.append(actor.act())
                outcome = sim.step(actions[-1])
                actor.observe(*outcome)
                if outcome[3].any() and sim.t[0] % 2:  # else the next one begins by itself
                    actor.begin(sim.obs, outcome[3])

        with serving(learner):
            actor.begin(sim.obs)
            play_on(lambda: learner.rows() > 100)
            assert learner.report().features == ("evaluate", "confirm")
            learner.asks = 77
            play_on(lambda: evaluated(learner, 77) is not None)
            found = evaluated(learner, 77)
            count = learner.rows()
            play_on(lambda: learner.rows() > count + 100)
            assert actor.close()
    assert found is not None
    length = longest or ENDS_AT
    obs = learner.column("obs")
    steps = np.arange(len(actions))
    missing = [np.setdiff1d(steps, obs[obs[:, 0] == env, 1].astype(int)) for env in range(2)]
    judged = [group for m in missing for group in m.reshape(-1, length)]
    returns = [float((group + 1).sum()) for group in judged]
    assert all(g[0] % ENDS_AT == 0 and g[-1] - g[0] == length - 1 for g in judged)
    assert (len(judged), found.episodes, found.cut) == (5, 5, 5 if longest else 0)
    assert (found.epoch, found.version, found.length_mean) == (1, 0, length)
    assert (found.return_min, found.return_max) == (min(returns), max(returns))
    assert found.return_mean == pytest.approx(np.mean(returns))
    assert found.return_std == pytest.approx(np.std(returns))
    for env, of_env in enumerate(missing):
        seen = np.stack([np.full(len(of_env), env), of_env], axis=1).astype(np.float32)
        chosen = [int(actions[t][env]) for t in of_env]
        assert chosen == greedy_actions(run, seen).tolist()
    assert actor.stats()["env_steps"] == 2 * len(actions) - 5 * length


def test_an_evaluation_is_played_though_the_learner_takes_no_samples(address: Address) -> None:
    run = dataclasses.replace(counting_run(n_buffer=1), evaluation={"episodes": 2})
    learner = FakeLearner(address, run, credit=0)
    sim = Counter(1)
    with serving(learner), Actor(str(address), envs=1, evaluates=True, **SPACES) as actor:
        actor.begin(sim.obs)
        over = threading.Event()
        loop = threading.Thread(target=play, args=(actor, sim, over.is_set))
        loop.start()
        wait_for(lambda: bool(learner.reports) and learner.report().window_rows == 1)
        learner.asks = 9
        wait_for(lambda: evaluated(learner, 9))
        over.set()
        learner.credit = 1000
        loop.join(20.0)
        assert actor.close()


def test_an_evaluation_that_is_not_wanted_any_more_ends_within_its_episode(
    address: Address,
) -> None:
    run = counting_run(n_buffer=1)
    learner = FakeLearner(address, dataclasses.replace(run, evaluation={"episodes": 100_000}))
    sim = Counter(1)
    with serving(learner), Actor(str(address), envs=1, evaluates=True, **SPACES) as actor:
        actor.begin(sim.obs)
        learner.asks = 5
        play(actor, sim, lambda: (found := learner.report().evaluation) and found.episodes > 2)
        count = learner.rows()
        learner.asks = 0
        play(actor, sim, lambda: learner.rows() > count + 20)
        assert learner.report().evaluation is None
        assert actor.close()


def test_an_episode_that_begins_anew_before_its_end_is_cut(address: Address) -> None:
    learner = FakeLearner(address, counting_run(3, n_buffer=1))
    sim = Counter(1)
    with serving(learner), Actor(str(address), envs=1, **SPACES) as actor:
        actor.begin(sim.obs)
        for _ in range(4):
            actor.observe(*sim.step(actor.act()))
        sim.t[:] = 100
        actor.begin(sim.obs)
        for _ in range(2):
            actor.observe(*sim.step(actor.act()), action=np.array([1]))
        assert actor.close()
    pairs = list(zip(learner.column("obs")[:, 1], learner.column("next_obs")[:, 1], strict=True))
    assert pairs == [(0, 3), (1, 4), (2, 4), (3, 4), (100, 102), (101, 102)]
    assert learner.column("action")[-2:].tolist() == [1, 1]
    assert not learner.column("truncated").any()


def test_executed_actions_are_one_for_each_environment_and_of_its_space(address: Address) -> None:
    learner = FakeLearner(address, counting_run(n_buffer=1))
    sim = Counter(2)
    with serving(learner), Actor(str(address), envs=2, **SPACES) as actor:
        actor.begin(sim.obs)
        outcome = sim.step(actor.act())
        for action, why in (
            ([1], r"action=\[1\]: 1 for 2 environments"),
            ([1, 0, 1], "3 for 2 environments"),
            (1, "action=1: give one for each environment"),
            ([1.7, 0], "action=1.7 of environment 0: 1.7 is no int64"),
            ([0, 99], "action=99 of environment 1: 99 is outside 0 to 1"),
            ([0, None], "environment 1: it is of object: numbers are needed"),
        ):
            with pytest.raises(ValueError, match=why):
                actor.observe(*outcome, action=action)
        actor.observe(*outcome, action=np.array([1.0, 0.0]))
        assert actor.close()
    rows = np.argsort(learner.column("obs")[:, 0])
    assert learner.column("action")[rows].tolist() == [1, 0]


def test_a_fault_while_it_leaves_is_raised_by_close(
    address: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("a fault of the manager")

    monkeypatch.setattr(ManagerState, "leave", fail)
    sim = Counter(1)
    with serving(FakeLearner(address, counting_run())):
        actor = Actor(str(address), envs=1, **SPACES)
        actor.begin(sim.obs)
        actor.observe(*sim.step(actor.act()))
        with pytest.raises(ZeroDivisionError, match="a fault of the manager"):
            actor.close()
        actor.close()  # once is enough


def test_without_an_axis_it_plays_one_environment_and_needs_no_declared_spaces(
    address: Address,
) -> None:
    learner = FakeLearner(address, a_run(n_buffer=16))
    env = gym.make("CartPole-v1")
    with serving(learner), Actor(str(address)) as actor:
        actor.begin(env.reset(seed=0)[0])
        for _ in range(100):
            action = actor.act()
            obs, reward, terminated, truncated, _ = env.step(action)
            actor.observe(reward, obs, terminated, truncated)
            if terminated or truncated:
                actor.begin(env.reset()[0])
        with pytest.raises(SpaceLayoutError, match=r"has shape \(3,\), expected \(4,\)"):
            actor.act(), actor.observe(1.0, np.zeros(3, np.float32))
        with pytest.raises(ValueError, match="rewards of shape"):
            actor.observe(np.ones(2), obs)
        for flag in ("no", None, 2, np.nan, "1"):
            with pytest.raises(
                ValueError, match=r"truncated=.* a flag is True or False, or 1 or 0"
            ):
                actor.observe(1.0, obs, False, flag if flag is not None else object())
        for reward in (np.nan, np.inf, 1e300, "1", None, 1j):
            with pytest.raises(ValueError, match=r"rewards=.*(not finite|not a number)"):
                actor.observe(reward, obs)
        with pytest.raises(SpaceLayoutError, match=r"'obs'\[\d+\] is nan, which is not finite"):
            actor.observe(1.0, np.full(4, np.nan, np.float32))
        with pytest.raises(SpaceLayoutError, match=r"of <U1: numbers are needed"):
            actor.observe(1.0, ["a"] * 4)
        with pytest.raises(SpaceLayoutError, match=r"is \(obs, info\), as reset\(\) returns them"):
            actor.begin(env.reset())
        with pytest.raises(ValueError, match=r"which=1: True or False"):
            actor.begin(obs, 1)
        actor.observe(1.0, obs, np.float32(0), 1)
        actor.begin(obs, True)
        assert actor.stats()["episodes"] < 101
        assert actor.close()
        with pytest.raises(RunOverError, match="closed"):
            actor.begin(obs)
    assert learner.rows() == 101
    assert learner.column("truncated")[-1]


def test_another_run_takes_the_place_of_the_one_before_without_a_pause(address: Address) -> None:
    first = FakeLearner(address, counting_run(n_buffer=10))
    sim = Counter(1)
    with Actor(str(address), envs=1, **SPACES) as actor:
        with serving(first):
            actor.begin(sim.obs)
            play(actor, sim, lambda: first.rows() > 50)
        first.close()
        second = FakeLearner(address, counting_run(n_buffer=10, run_id="other"))
        with serving(second):
            play(actor, sim, lambda: second.rows() > 50)
            assert actor.close()
    t = second.column("obs")[:, 1]
    np.testing.assert_array_equal(t, np.arange(t[0], t[0] + len(t)))


def test_the_end_is_an_exception_where_nobody_asks_whether_it_runs(address: Address) -> None:
    learner = FakeLearner(address, counting_run())
    sim = Counter(1)
    with serving(learner), Actor(str(address), envs=1, **SPACES) as actor:
        actor.begin(sim.obs)
        learner.stop(final=True)

        def play_on() -> None:
            while True:
                actor.observe(*sim.step(actor.act()))

        with pytest.raises(RunOverError):
            play_on()


def test_a_refusal_says_why(address: Address) -> None:
    learner = FakeLearner(address, counting_run())
    sim = Counter(1)
    with serving(learner), Actor(str(address), envs=1, id="m1", **SPACES) as actor:
        actor.begin(sim.obs)
        wait_for(lambda: bool(learner.reports))
        learner.tell(Refusal("m1", learner.report().incarnation, "id", "somebody else's"))
        with pytest.raises(RefusedError, match="somebody else's"):
            play(actor, sim, lambda: False)
        with pytest.raises(RefusedError):
            actor.act()


def test_what_cannot_be_played_is_refused_in_the_loop(address: Address) -> None:
    learner = FakeLearner(address, counting_run())
    wrong = {**SPACES, "observation_space": gym.spaces.Box(0.0, 1.0, (5,), np.float32)}
    with serving(learner):
        with (
            Actor(str(address), id="a", **wrong) as actor,
            pytest.raises(SpecMismatchError, match=r"'obs'.*give observation_space= and"),
        ):
            actor.begin(np.zeros(5, np.float32))
        with (
            Actor(str(address), id="b") as actor,
            pytest.raises(SpacesNotKnownError, match="observation_space= and action_space="),
        ):
            actor.begin(np.zeros(2, np.float32))


def test_begin_waits_for_a_learner_no_longer_than_it_is_told(address: Address) -> None:
    with (
        Actor(str(address), wait_s=0.3) as actor,
        pytest.raises(NoModelError, match=r"within 0.3 s: it does not answer"),
    ):
        actor.begin(np.zeros(4, np.float32))


def test_calls_out_of_order_are_refused(address: Address) -> None:
    with Actor(str(address)) as actor:
        with pytest.raises(RuntimeError, match="act before begin"):
            actor.act()
        with pytest.raises(RuntimeError, match="observe before act"):
            actor.observe(0.0, np.zeros(4, np.float32))
    with pytest.raises(TypeError, match="given together"):
        Actor(str(address), action_space=SPACES["action_space"])
    for bad in ("a b", "x" * 65, ""):
        with pytest.raises(ValueError, match="an id is 1 to 64 of"):
            Actor(str(address), id=bad)
    for count in (0, 2.0, "2", True):
        with pytest.raises(ValueError, match="a number of environments from 1 on"):
            Actor(str(address), envs=count)  # type: ignore[arg-type]  # on purpose
    with pytest.raises(AddressError, match="a scheme is not part of it; write HOST"):
        Actor(f"tcp://{address}")
    with pytest.raises(ValueError, match="one of block, drop_oldest"):
        Actor(str(address), on_full="drop")  # type: ignore[arg-type]  # on purpose


def test_it_loads_no_torch() -> None:
    code = "import sys, vedette; vedette.Actor; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
