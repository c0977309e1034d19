"""The C client delivers every row once, stands fuzzed input, and so does its Rust binding."""

from __future__ import annotations

import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import page_policy
import pytest
from c_programs import Built
from foreign_run import CARTPOLE, PENDULUM, make_run, sample_observations
from fuzz_seeds import write_seeds
from scripted_learner import Kept, ScriptedLearner, assert_every_row_is_delivered_once, check_rows

from vedette_protocol import topics
from vedette_protocol.codec import encode
from vedette_protocol.messages import Run, Stop
from vedette_rl.core import ModelInfo, RowColumn
from vedette_rl.core.columns import INTERVENED, SEQUENCE_KEYS
from vedette_rl.envs.spaces import Spaces
from vedette_services.net.keys import make_keys

pytestmark = pytest.mark.slow
COUNTS = Spaces(gym.spaces.Box(0.0, 1.0, (2,), np.float32), gym.spaces.Discrete(2))
FUZZED_INPUTS = 3000
BAD_PORTS = ["abc", "0", "65534", "99999", "7555x", ""]


def test_the_c_client_stands_what_no_learner_sends(built: Built, tmp_path: Path) -> None:
    program = built("tests/clients/fuzz_client.c")
    seeds = write_seeds(tmp_path)
    done = subprocess.run(
        [program, str(FUZZED_INPUTS), "1", *seeds], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout == f"{FUZZED_INPUTS} inputs\n"


def test_the_c_client_delivers_every_row_once_to_a_learner_that_is_killed(
    built: Built, port: int
) -> None:
    assert_every_row_is_delivered_once(built("clients/c/examples/cartpole.c"), port)


def counted_batches(
    built: Built, port: int, place: Path, run: Run, model: ModelInfo
) -> list[tuple[int, bytes]]:
    """Rows and payload of the batches that the counting program in C has delivered."""
    learner = ScriptedLearner(port, run, model, {})
    program = str(built("tests/clients/counting.c"))
    client = subprocess.Popen([program, "127.0.0.1", str(port), "c-1", str(place), "2"])
    try:
        assert learner.serve(20, limit=1000)
    finally:
        client.kill()
        client.wait()
        learner.close()
    return list(learner.kept.values())


def test_rows_say_where_a_person_took_over(built: Built, port: int, tmp_path: Path) -> None:
    columns = (RowColumn(INTERVENED, "bool"),)
    run, model, _ = make_run("dqn", COUNTS, {"n_step": 3, "hidden_sizes": [4]}, columns=columns)
    kept = counted_batches(built, port, tmp_path, run, model)
    for rows, payload in kept:
        batch = run.schema.views(payload, rows)
        took_over = np.rint(batch["obs"][:, 1] * 2**23).astype(int) % 5 == 0
        np.testing.assert_array_equal(batch[INTERVENED], took_over)
        assert (batch["action"][took_over] == 1).all()


def test_rows_say_which_of_them_follow_one_another(built: Built, port: int, tmp_path: Path) -> None:
    settings = {"n_step": 3, "hidden_sizes": [4]}
    run, model, _ = make_run("dqn", COUNTS, settings, columns=SEQUENCE_KEYS)
    kept = counted_batches(built, port, tmp_path, run, model)
    batches = [run.schema.views(payload, rows) for rows, payload in kept]
    rows = {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}
    own = np.rint(rows["obs"][:, 1] * 2**23).astype(np.int64)
    assert set(rows["env"]) == {0, 1}
    assert (rows["n_steps"] == 1).all()
    assert (rows["reward"] == (own + 1) % 3).all()
    np.testing.assert_array_equal(rows["begins"], (own % 7 == 0) | (own % 11 == 0))
    first = [int(t) for t in rows["t"] - own]
    assert len(set(first)) == 2, "a number for each environment"
    assert all(t % 2**32 == 0 and 0 <= t < 2**62 for t in first)


def remembered(policy: dict[str, Any], model: ModelInfo, rows: dict[str, Any]) -> Any:
    """What is to stand in the column `memory` of these rows, by the page of the wire."""
    expected = np.zeros(rows["memory"].shape)
    for env in set(rows["env"]):
        state = np.zeros(expected.shape[1])
        before = -1
        for k in sorted(np.flatnonzero(rows["env"] == env), key=lambda k: int(rows["t"][k])):
            assert before in (-1, int(rows["t"][k]) - 1), "every row of an environment came"
            before = int(rows["t"][k])
            if rows["begins"][k]:
                state[:] = 0
            expected[k] = state
            page_policy.act(policy, model.arrays, {"obs": rows["obs"][k]}, state)
    return expected


@pytest.mark.parametrize(
    ("agent", "settings", "tolerance"),
    [
        ("dqn", {"exploration": {"kind": "constant", "epsilon_final": 0.5}}, 1e-5),
        ("dqn", {"memory_dtype": "float16"}, 1e-3),
        ("iqn", {"n_cosines": 4, "n_action_quantiles": 3, "hidden_sizes": [4, 4]}, 1e-5),
    ],
)
def test_rows_hold_what_was_remembered_before_them(
    built: Built,
    port: int,
    tmp_path: Path,
    agent: str,
    settings: dict[str, Any],
    tolerance: float,
) -> None:
    """By the policy, by a person, and by a person while nobody asked the policy."""
    settings = {"memory": "gru", "memory_size": 5, "hidden_sizes": [4], **settings}
    run, model, _ = make_run(agent, COUNTS, settings)
    kept = counted_batches(built, port, tmp_path, run, model)
    batches = [run.schema.views(payload, rows) for rows, payload in kept]
    for batch in batches:
        run.schema.check_values(batch)
    rows = {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}
    own = np.rint(rows["obs"][:, 1] * 2**23).astype(np.int64)
    assert (own % 15 == 0).any()
    assert rows["memory"].dtype == settings.get("memory_dtype", "float32")
    assert not rows["memory"][rows["begins"]].any()
    assert (np.abs(rows["memory"][~rows["begins"]]).max(axis=1) > 0.01).all()
    expected = remembered(dict(run.policy), model, rows)
    np.testing.assert_allclose(rows["memory"], expected, atol=tolerance)


@pytest.mark.parametrize(
    ("example", "spaces", "words"),
    [
        (
            "repeat_first",
            Spaces(gym.spaces.Box(0, 1, (3,), np.float32), gym.spaces.Discrete(2)),
            ["5"],
        ),
        (
            "pendulum",  # by the clock, so that models come within its batches
            Spaces(PENDULUM.observation, gym.spaces.Box(-2, 2, (1,), np.float32)),
            ["200"],
        ),
    ],
)
def test_a_batch_of_appo_is_of_one_model_in_runs_and_says_how_likely_actions_were(
    built: Built, port: int, example: str, spaces: Spaces, words: list[str]
) -> None:
    settings = {"memory": "gru", "memory_size": 5, "hidden_sizes": [4]}
    run, model, _ = make_run("appo", spaces, settings)
    run = replace(run, actors={"run_length": 4}, batch_rows=32)
    models = [model]
    for version in range(2, 6):
        _, other, _ = make_run("appo", spaces, settings, weights=version)
        models.append(replace(other, version=version))
    learner = ScriptedLearner(port, run, model, {})
    program = str(built(f"clients/c/examples/{example}.c"))
    client = subprocess.Popen([program, "127.0.0.1", str(port), "c-1", *words])
    try:
        for number, newest in enumerate(models, start=1):
            learner.publish(newest)
            limit = 1000 if example == "pendulum" else 20 * number
            assert learner.serve(20 * number, limit=limit)
            before = learner.report  # the next one comes at any moment of a batch
            assert learner.until(lambda: learner.report is not before, limit=limit)  # noqa: B023
    finally:
        client.kill()
        client.wait()
        learner.close()
    policy = dict(run.policy)
    played = set()
    for rows, payload in [*learner.kept.values()][::3]:
        batch = run.schema.views(payload, rows)
        run.schema.check_values(batch)
        assert rows == (4 if example == "pendulum" else 32), "a run of each environment"
        assert batch["env"].tolist() == sorted(batch["env"])
        played.add(model_of_batch(policy, models, batch).version)
        for env in set(batch["env"]):
            own = batch["env"] == env
            assert np.diff(batch["t"][own]).tolist() == [1, 1, 1]
    assert len(played) >= 3, "newer models are taken"


def model_of_batch(policy: dict[str, Any], models: list[ModelInfo], batch: Any) -> ModelInfo:
    """The model of which all actions of a batch were drawn, as they say how likely they were."""
    off = np.zeros((len(models), len(batch["t"])))
    for m, model in enumerate(models):
        for k in range(off.shape[1]):
            state = batch["memory"][k].astype(np.float64)
            output = page_policy.output_of(policy, model.arrays, {"obs": batch["obs"][k]}, state)
            action = np.atleast_1d(batch["action"][k])
            drawn = batch["policy_action"][k] if "policy_action" in batch else action
            chance = page_policy.log_prob(policy, model.arrays, output, action, drawn)
            off[m, k] = abs(chance - batch["log_prob"][k])
            if "policy_action" in batch:
                np.testing.assert_allclose(action, page_policy.to_bounds(policy, drawn), atol=1e-5)
    worst = off.max(axis=1)
    assert worst.min() < 1e-4, "the rows are of several models"
    return models[int(worst.argmin())]


def test_an_action_of_somebody_else_is_refused_where_rows_hold_how_likely_it_was(
    built: Built, port: int, tmp_path: Path
) -> None:
    run, model, _ = make_run("appo", COUNTS, {"hidden_sizes": [4]})
    learner = ScriptedLearner(port, run, model, {})
    words = [str(built("tests/clients/counting.c")), "127.0.0.1", str(port), "c-1"]
    client = subprocess.Popen([*words, str(tmp_path), "2"], stderr=subprocess.PIPE, text=True)
    try:
        assert learner.until(lambda: client.poll() is not None, limit=1000)
    finally:
        client.kill()
        _, errors = client.communicate()
        learner.close()
    assert "no vedette_set_action in such runs" in errors, errors


def test_a_caller_acts_greedily_with_a_memory_of_its_own(
    built: Built, port: int, tmp_path: Path
) -> None:
    settings = {"memory": "gru", "memory_size": 6, "hidden_sizes": [8]}
    run, model, policy = make_run("dqn", CARTPOLE, settings, weights=1)
    columns, obs = sample_observations(CARTPOLE, 12)
    episodes = (0, 5, 6)
    expected = [
        policy.act({"obs": columns["obs"][k : k + 1]}, explore=False, begins=np.array([begins]))
        for k, begins in enumerate(k in episodes for k in range(12))
    ]
    (tmp_path / "obs").write_bytes(obs.tobytes())
    said = []
    for begins in (episodes, ()):
        learner = ScriptedLearner(port, run, model, {})
        program = built("tests/clients/greedy_with_memory.c")
        words = [program, str(port), tmp_path / "obs", *map(str, begins)]
        client = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        try:
            assert learner.until(lambda: client.poll() is not None, limit=0)  # noqa: B023
        finally:
            client.kill()
            said += client.communicate()[0].splitlines()
            learner.close()
        assert client.returncode == 0, said
    *actions, other_size, without = said
    assert [int(action) for action in actions] == np.concatenate(expected).tolist()
    assert len(set(actions)) > 1, "weights for which all actions are the same"
    assert "not of vedette_memory_size numbers" in other_size
    assert "call vedette_greedy_with_memory" in without


def test_values_that_no_sample_may_have_are_refused_where_they_are_given(
    built: Built, port: int
) -> None:
    run, model, _ = make_run("dqn", CARTPOLE, {"hidden_sizes": [4]})
    learner = ScriptedLearner(port, run, model, {})
    words = [built("tests/clients/refused_values.c"), str(port)]
    client = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    try:
        assert learner.until(lambda: client.poll() is not None, limit=1000)
    finally:
        client.kill()
        said = client.communicate()[0].splitlines()
        learner.close()
    of_number, of_action = "a number that is not finite", "that the run's actions do not have"
    wanted = [of_number, of_number, of_action, of_action, of_number, "1 steps"]
    assert [words in line for words, line in zip(wanted, said, strict=True)] == [True] * 6
    assert client.returncode == 0


@pytest.mark.parametrize("color", ["white", "red"])
def test_coloured_noise_begins_anew_with_each_episode(
    built: Built, port: int, tmp_path: Path, color: str
) -> None:
    spaces = Spaces(COUNTS.observation, gym.spaces.Box(-1, 1, (1,), np.float32))
    settings = {"hidden_sizes": [4], "exploration_noise": 0.1, "noise_color": color}
    run, model, _ = make_run("td3", spaces, settings, columns=SEQUENCE_KEYS)
    still = {name: np.zeros_like(array) for name, array in model.arrays.items()}
    kept = counted_batches(built, port, tmp_path, run, ModelInfo(1, still))
    batches = [run.schema.views(payload, rows) for rows, payload in kept]
    rows = {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}
    jumps: dict[bool, list[float]] = {True: [], False: []}
    for env in (0, 1):
        own = rows["env"] == env
        order = np.argsort(rows["t"][own])
        played, begins, noise = (rows[name][own][order] for name in ("obs", "begins", "action"))
        by_policy = np.rint(played[:, 1] * 2**23).astype(int) % 5 != 0
        pairs = by_policy[1:] & by_policy[:-1] & (np.diff(rows["t"][own][order]) == 1)
        steps = np.abs(np.diff(noise[:, 0]))
        for begin in (True, False):
            jumps[begin] += steps[pairs & (begins[1:] == begin)].tolist()
    assert max(jumps[True]) > 0.05
    assert (max(jumps[False]) < 0.05) == (color == "red")


def test_rows_with_keys_of_another_form_are_refused_by_name(
    built: Built, port: int, tmp_path: Path
) -> None:
    env, time, begins = SEQUENCE_KEYS
    wide = replace(env, high=65_536)
    for columns, why in (
        ((env, time), "some of the columns env, t and begins, and not all"),
        ((wide, time, begins), "column env has not the bounds that the wire says"),
        ((env, replace(time, dtype="uint64"), begins), "column t is not of the type that the wire"),
    ):
        run, model, _ = make_run("dqn", COUNTS, {"hidden_sizes": [4]}, columns=columns)
        learner = ScriptedLearner(port, run, model, {})
        words = [str(built("tests/clients/counting.c")), "127.0.0.1", str(port), "c-1"]
        client = subprocess.Popen([*words, str(tmp_path), "2"], stderr=subprocess.PIPE, text=True)
        try:
            assert learner.until(lambda: client.poll() is not None, limit=0)  # noqa: B023
        finally:
            client.kill()
            _, errors = client.communicate()
            learner.close()
        assert why in errors, errors


@pytest.mark.parametrize(
    ("words", "status", "why"),
    [
        *((["127.0.0.1", port, "c-1"], 2, f"1 to 65533, not '{port}'") for port in BAD_PORTS),
        (["127.0.0.1", "5555", "c-1", "keys", "x"], 2, "usage: cartpole HOST PORT ID [KEYS]"),
        (["127.0.0.1", "5555"], 2, "usage: cartpole HOST PORT ID [KEYS]"),
        (["", "5555", "c-1"], 3, "cartpole: no host"),
        (
            ["127.0.0.1", "5555", "c-1", "keys"],
            3,
            "learner's own folder; give a host's, keys/hosts/",
        ),
        (["127.0.0.1", "5555", "c-1", "nowhere"], 3, "nowhere: no key.secret.toml"),
        (["127.0.0.1", "5555", "c-1", "keys/hosts/open"], 3, "can read this secret (mode 0644);"),
    ],
)
def test_what_is_wrong_on_the_command_line_is_named(
    built: Built, tmp_path: Path, words: list[str], status: int, why: str
) -> None:
    make_keys(tmp_path / "keys", ["open"])
    (tmp_path / "keys" / "hosts" / "open" / "key.secret.toml").chmod(0o644)
    program = built("clients/c/examples/cartpole.c")
    done = subprocess.run(
        [program, *words], cwd=tmp_path, capture_output=True, text=True, timeout=20
    )
    assert (done.returncode, why in done.stderr) == (status, True), done.stderr


@pytest.mark.parametrize("host", ["127.0.0.1", "nowhere.invalid"])
def test_a_client_without_a_learner_says_whom_it_waits_for(
    built: Built, port: int, host: str
) -> None:
    words = [str(built("clients/c/examples/cartpole.c")), host, str(port), "c-1"]
    client = subprocess.Popen(words, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert client.stderr is not None
        line = client.stderr.readline()  # after 3 s
        assert line.startswith(f"waiting for the learner at {host}:{port}")
        assert line.endswith(f":{port}\n") == (host == "127.0.0.1"), "the resolver's reason follows"
        client.send_signal(signal.SIGTERM)
        assert client.wait(20) == 0
    finally:
        client.kill()
        client.communicate()


@pytest.mark.parametrize("memory", ["none", "gru"])
def test_the_c_client_keeps_every_rule_of_the_wire(built: Built, memory: str) -> None:
    pytest.importorskip("vedette.conformance")
    words = [str(built("clients/c/examples/cartpole.c")), "{host}", "{port}", "c-1", "{keys}"]
    setting = ["--set", f"agent.memory={memory}"]
    command = [sys.executable, "-m", "vedette.cli", "conform", *setting, *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110)
    verdicts = [line.split()[0] for line in done.stdout.splitlines()]
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(verdicts) > 20
    assert set(verdicts) == {"kept"}, done.stdout


def test_the_c_client_plays_evaluations_that_are_asked_for(built: Built, port: int) -> None:
    run, model, _ = make_run("dqn", CARTPOLE, {"n_step": 1})
    learner = ScriptedLearner(port, run, model, {})
    learner.settings = {"evaluation": {"episodes": 11, "seed": 0, "max_episode_steps": 12}}
    words = [built("clients/c/examples/cartpole.c"), "127.0.0.1", str(port), "c-1"]
    client = subprocess.Popen([str(word) for word in words], stdout=subprocess.PIPE)

    def evaluation() -> dict[str, Any]:
        found = learner.reported.get("evaluation")
        return found if isinstance(found, dict) else {}

    try:
        assert learner.serve(5, limit=1000)
        assert learner.reported["features"] == ["evaluate"]
        assert not evaluation()
        learner.asks = {"evaluate": 77, "evaluate_version": 2}  # newer than there is
        assert learner.until(lambda: len(learner.kept) > 30, limit=1000)
        assert not evaluation()
        learner.asks = {"evaluate": 78, "evaluate_version": 1}
        assert learner.until(lambda: "return_mean" in evaluation(), limit=1000)
        found = evaluation()
        assert (found["request"], found["epoch"], found["version"]) == (78, 1, 1)
        assert found["episodes"] == 11
        assert found["return_min"] <= found["return_mean"] <= found["return_max"] <= 12
        assert found["length_mean"] == found["return_mean"], "each step of CartPole gives 1"
        assert 0 <= found["cut"] <= 11
        assert found["return_std"] <= found["return_max"] - found["return_min"]
        (actor,) = learner.reported["actors"]
        assert actor["returns"] == actor["episodes"] > 0
        assert actor["episodes"] <= actor["return_sum"] <= actor["env_steps"], "each step gives 1"
        count = len(learner.kept)
        assert learner.until(lambda: len(learner.kept) > count + 10, limit=1000), "it goes on"
        learner.asks = {}
        assert learner.until(lambda: not evaluation(), limit=1000)
        assert learner.serve(0, limit=10_000, stop=True)
        client.communicate(timeout=20)
        assert client.returncode == 0
        for rows, payload in learner.kept.values():
            check_rows(run.schema, rows, payload)
    finally:
        client.kill()
        client.communicate()
        learner.close()


def test_the_c_client_plays_an_evaluation_though_no_samples_are_taken(
    built: Built, port: int
) -> None:
    run, model, _ = make_run("dqn", CARTPOLE, {"n_step": 1})
    learner = ScriptedLearner(port, run, model, {})
    learner.settings = {"evaluation": {"episodes": 3, "seed": 0, "max_episode_steps": 50}}
    words = [built("clients/c/examples/cartpole.c"), "127.0.0.1", str(port), "c-1"]
    client = subprocess.Popen([str(word) for word in words], stdout=subprocess.PIPE)
    try:
        assert learner.serve(5, limit=5)
        assert learner.until(lambda: learner.reported.get("window_batches", 0) >= 4, limit=5)
        learner.asks = {"evaluate": 7, "evaluate_version": 1}
        found: dict[str, Any] = {}
        assert learner.until(
            lambda: "return_mean" in (learner.reported.get("evaluation") or found), limit=5
        )
        assert len(learner.kept) == 5, "nothing above the limit"
        assert learner.reported["window_batches"] <= 128
        assert learner.serve(0, limit=10_000, stop=True)
        client.communicate(timeout=20)
        assert client.returncode == 0
    finally:
        client.kill()
        client.communicate()
        learner.close()


def later_start(run: Run, **changes: Any) -> Run:
    """The run as the learner announces it after its next start."""
    return replace(run, epoch=2, learner=12, **changes)


def test_a_start_with_other_columns_gets_batches_of_another_incarnation(
    built_fast: Built, port: int
) -> None:
    run, model, _ = make_run("dqn", CARTPOLE, {"n_step": 1})
    learner = ScriptedLearner(port, run, model, {})
    words = [built_fast("clients/c/examples/cartpole.c"), "127.0.0.1", str(port), "c-1"]
    client = subprocess.Popen([str(word) for word in words], stdout=subprocess.PIPE)
    try:
        assert learner.serve(10, limit=1000)
        first = learner.incarnations
        learner.close()
        wider, _, _ = make_run(
            "dqn", CARTPOLE, {"n_step": 1}, columns=(RowColumn(INTERVENED, "bool"),)
        )
        again = later_start(run, schema=wider.schema)
        learner = ScriptedLearner(port, again, model, {})
        learner.former = first
        assert learner.until(
            lambda: learner.report is not None and learner.report.incarnation not in first,
            limit=1000,
        )
        learner.kept.clear()
        assert learner.serve(10, limit=1000), "batches of the new columns, as `_receive` asserts"
        assert min(learner.kept) == 0
        assert learner.serve(0, limit=10_000, stop=True)
        client.communicate(timeout=20)
        assert client.returncode == 0
    finally:
        client.kill()
        client.communicate()
        learner.close()


def test_a_learner_of_a_run_that_was_put_back_is_followed_once_no_other_is_heard_of(
    built_fast: Built, port: int
) -> None:
    run, model, _ = make_run("dqn", CARTPOLE, {"n_step": 1})
    kept: Kept = {}
    learner = ScriptedLearner(port, replace(run, epoch=9), replace(model, version=70), kept)
    words = [built_fast("clients/c/examples/cartpole.c"), "127.0.0.1", str(port), "c-1"]
    client = subprocess.Popen([str(word) for word in words], stdout=subprocess.PIPE)
    try:
        assert learner.serve(20, limit=1000)
        learner.close()
        older = replace(run, epoch=2, learner=12)
        learner = ScriptedLearner(port, older, replace(model, version=5), kept)
        assert learner.until(lambda: acting(learner) == 5, limit=4000), acting(learner)
        assert learner.serve(len(kept) + 20, limit=8000), "its acks give no room"
        assert len(learner.incarnations) == 1
        assert learner.serve(0, limit=10_000, stop=True)
        out, _ = client.communicate(timeout=20)
        assert client.returncode == 0
        assert b"all settled" in out
    finally:
        client.kill()
        client.communicate()
        learner.close()


def acting(learner: ScriptedLearner) -> int | None:
    """The version that the client acts with, as it last said."""
    return learner.report.actors[0].version if learner.report else None


def test_no_row_has_rewards_of_two_scales_and_earlier_stops_end_nothing(
    built_fast: Built, port: int
) -> None:
    discount = 0.9
    run, model, _ = make_run("dqn", CARTPOLE, {"n_step": 5, "discount": discount})
    kept: dict[int, tuple[int, bytes]] = {}
    learner = ScriptedLearner(port, run, model, kept)
    words = [built_fast("clients/c/examples/cartpole.c"), "127.0.0.1", str(port), "c-1"]
    client = subprocess.Popen([str(word) for word in words], stdout=subprocess.PIPE)
    try:
        assert learner.serve(10, limit=1000)
        learner.close()
        env = {"reward_scale": 100.0, "reward_clip": 0.0}
        learner = ScriptedLearner(port, later_start(run, env=env), model, kept)
        assert learner.until(lambda: max(rewards(run, kept, discount)) > 50, limit=2000)
        for stop in (Stop("run-1", 1, "earlier", True), Stop("run-0", 2, "other", True)):
            learner.control.send_multipart([topics.ALL, *encode(stop)])
        count = len(kept)
        assert learner.serve(count + 20, limit=4000)
        assert client.poll() is None
        assert rewards(run, kept, discount) == {1, 100}
        assert learner.serve(0, limit=10_000, stop=True)
        client.communicate(timeout=20)
        assert client.returncode == 0
    finally:
        client.kill()
        client.communicate()
        learner.close()


def rewards(run: Run, kept: dict[int, tuple[int, bytes]], discount: float) -> set[float]:
    """The reward of a step in each row, which is a sum over its steps."""
    found: set[float] = set()
    for rows, payload in kept.values():
        columns = run.schema.views(payload, rows)
        weights = (1 - discount ** columns["n_steps"].astype(float)) / (1 - discount)
        found.update(np.round(columns["reward"] / weights, 2).tolist())
    return found


@pytest.mark.timeout(400)
def test_the_rust_binding_delivers_every_row_once_to_a_learner_that_is_killed(
    rust_target: Path, port: int
) -> None:
    assert_every_row_is_delivered_once(rust_target / "debug" / "examples" / "cartpole", port)
