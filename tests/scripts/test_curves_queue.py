"""The queue of learning runs: order, resumption, refusals and real runs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

import curves
import curves_queue
import gymnasium as gym
import pytest
from curves_data import Finished, Point, drop_runs, read_finished, read_points, write_run
from curves_queue import Queue, Result, RunFailedError, execute_run, only_queue, run_queue
from curves_studies import Label, Run, Study, StudyError, Task, _in_results, read_studies, resolve
from demonstrations import ScriptedPerson

ROOT = Path(__file__).resolve().parents[2]
STEPS = 100


def study(name: str = "small", **changes: Any) -> Study:
    tasks = tuple(Task(env=env, agent="dqn", env_steps=STEPS, every=50) for env in ("A", "B"))
    given = {"title": "", "seeds": (1, 2), "labels": (Label(name="x", peer="dqn"),)}
    return Study(name=name, **{"tasks": tasks, **given, **changes})


def result(run: Run, last: float = 1.0, program: str = "p 1", environment: str = "") -> Result:
    name = run.label.name
    return Result(program, [Point(name, run.seed, STEPS, 10, 1.5, last)], environment)


def names(runs: list[Run]) -> list[str]:
    return [f"{run.task.env}{run.label.name}{run.seed}" for run in runs]


def test_the_first_seed_of_everything_comes_before_the_second_and_a_later_priority_last(
    tmp_path: Path,
) -> None:
    labels = (Label(name="x", peer="dqn"), Label(name="z", peer="dqn", priority=2, seeds=(1,)))
    late = study("late", priority=3, tasks=study().tasks[:1])
    queue = Queue([late, study(labels=labels)], tmp_path)
    assert names(queue.left()) == ["Ax1", "Bx1", "Ax2", "Bx2", "Az1", "Bz1", "Ax1", "Ax2"]


def test_a_study_is_chosen_whole_or_by_its_labels() -> None:
    asked = curves.chosen(["ablation", "locomotion:plain", "locomotion:recipe"])
    found = {study.name: [label.name for label in study.labels] for study in asked}
    assert found["locomotion"] == ["plain", "recipe"]
    assert {"recipe", "without-normalization", "without-batch-norm"} < set(found["ablation"])
    with pytest.raises(StudyError, match="no study locomotion:bare"):
        curves.chosen(["locomotion:bare"])


def test_a_label_runs_on_its_own_tasks_only_and_what_was_published_is_not_run() -> None:
    labels = (Label(name="x", peer="dqn", tasks=("dqn-B",)), Label(name="y", source="a paper"))
    assert names(list(study(labels=labels).runs())) == ["Bx1", "Bx2"]


def test_the_queue_goes_on_where_it_was_and_a_run_that_was_under_way_begins_again(
    tmp_path: Path,
) -> None:
    begun: list[str] = []

    def execute(run: Run) -> Result:
        begun.extend(names([run]))
        if len(begun) == 3:
            raise KeyboardInterrupt
        return result(run)

    with pytest.raises(KeyboardInterrupt):
        run_queue(Queue([study()], tmp_path), commit=False, execute=execute)
    assert names(Queue([study()], tmp_path).left()) == ["Ax2", "Bx2"]
    run_queue(Queue([study()], tmp_path), commit=False, execute=execute)
    assert begun == ["Ax1", "Bx1", "Ax2", "Ax2", "Bx2"]
    assert not Queue([study()], tmp_path).left()


def test_a_run_that_fails_is_left_out_and_the_others_are_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def execute(run: Run) -> Result:
        if run.task.env == "A":
            raise RunFailedError("no such environment")
        return result(run)

    queue = Queue([study()], tmp_path)
    run_queue(queue, commit=False, execute=execute)
    assert names(queue.failed) == ["Ax1", "Ax2"]
    assert "small dqn-A x seed 1 was left out: no such environment" in capsys.readouterr().err
    assert names(Queue([study()], tmp_path).left()) == ["Ax1", "Ax2"]


def test_a_run_without_an_evaluation_at_its_end_is_not_finished(tmp_path: Path) -> None:
    queue = Queue([study()], tmp_path)
    run = queue.left()[0]
    short = Result("p 1", [Point("x", 1, STEPS // 2, 5, 1.0, 3.0)])
    with pytest.raises(RunFailedError, match="not at its end"):
        queue.finish(run, short, 1.0, 1.0)
    assert run in Queue([study()], tmp_path).left()


def test_other_settings_under_the_label_are_refused_until_its_runs_are_dropped(
    tmp_path: Path,
) -> None:
    first = Queue([study()], tmp_path)
    old = first.left()[0]
    first.finish(old, result(old), 1.0, 1.0)
    changed = study(labels=(Label(name="x", peer="dqn", kwargs={"gamma": 0.9}),))
    queue = Queue([changed], tmp_path)
    run = next(run for run in queue.left() if run.task.env == "A")
    with pytest.raises(StudyError, match=r"seed 1 were .* drop small dqn-A x"):
        queue.check(run)
    Queue([study()], tmp_path).check(old)
    assert drop_runs(tmp_path / "small", "dqn-A", "x") == 1
    queue.check(run)
    assert not read_points(tmp_path / "small" / "dqn-A.csv")


def test_evaluations_of_unknown_settings_are_refused(tmp_path: Path) -> None:
    run = Queue([study()], tmp_path).left()[0]
    write_run(tmp_path / "small", [Point("x", 7, 50, 5, 1.0, 0.5)], finished("dqn-A", 7))
    (tmp_path / "small" / "runs.csv").unlink()
    with pytest.raises(StudyError, match=r"settings of seeds \[7\] are not known"):
        Queue([study()], tmp_path).check(run)


def test_two_versions_of_a_program_are_not_one_label(tmp_path: Path) -> None:
    queue = Queue([study()], tmp_path)
    runs = [run for run in queue.left() if run.task.env == "A"]
    queue.finish(runs[0], result(runs[0]), 1.0, 1.0)
    with pytest.raises(StudyError, match="is of p 2, seed 1 p 1"):
        queue.finish(runs[1], result(runs[1], program="p 2"), 1.0, 1.0)


def test_two_versions_of_an_environment_are_not_one_label(tmp_path: Path) -> None:
    queue = Queue([study(seeds=(1, 2, 3))], tmp_path)
    first, second, third = [run for run in queue.left() if run.task.env == "A"]
    queue.finish(first, result(first), 1.0, 1.0)  # of a time when they were not noted
    queue.finish(second, result(second, environment="mujoco 3.9.0"), 1.0, 1.0)
    for other in ("mujoco 4.0.0", ""):
        with pytest.raises(StudyError, match=r"of (mujoco 4|unknown).*seed 2 mujoco 3\.9\.0"):
            queue.finish(third, result(third, environment=other), 1.0, 1.0)
    queue.finish(third, result(third, environment="mujoco 3.9.0"), 1.0, 1.0)
    noted = [run.environment for run in read_finished(tmp_path / "small")]
    assert noted == ["", "mujoco 3.9.0", "mujoco 3.9.0"]


def test_what_is_written_is_read_and_replaces_the_same_run_only(tmp_path: Path) -> None:
    write_run(tmp_path, [Point("x", 2, 50, 5, 1.0, 0.25)], finished("dqn-A", 2))
    write_run(tmp_path, [Point("x", 1, 50, 5, 1.0, 0.5)], finished("dqn-A", 1))
    again = [Point("x", 2, 50, 5, 1.0, 0.75), Point("x", 2, 100, 9, 2.0, 1.0)]
    write_run(tmp_path, again, finished("dqn-A", 2))
    assert read_points(tmp_path / "dqn-A.csv") == [Point("x", 1, 50, 5, 1.0, 0.5), *again]
    assert read_finished(tmp_path) == [finished("dqn-A", 1), finished("dqn-A", 2)]


def finished(task: str, seed: int, **changes: Any) -> Finished:
    known = {"label": "x", "fingerprint": "f", "code": "c", "program": "p 1"}
    numbers = {"opt_steps": 9, "return_last": 1.0, "return_best": 1.0, "wall_s": 9.0, "cpu_s": 36.0}
    return Finished(
        **{"task": task, "seed": seed, "env_steps": STEPS, **known, **numbers, **changes}
    )


def test_what_is_left_is_estimated_from_the_runs_most_like_it(tmp_path: Path) -> None:
    queue = Queue([study()], tmp_path)
    assert queue.cpu_seconds(queue.left()[0]) is None
    assert [*queue.summary()][-1] == "left: 4 runs, 0.0 core-hours and 4 runs of unknown cost"
    write_run(tmp_path / "small", [], finished("dqn-A", 1, cpu_s=3600.0))
    write_run(tmp_path / "small", [], finished("dqn-B", 1, cpu_s=7200.0))
    assert [queue.cpu_seconds(run) for run in queue.left()] == [3600.0, 7200.0]
    assert [*queue.summary()] == [
        "small x: 2 of 4, 3.0 core-hours left",
        "left: 2 runs, 3.0 core-hours",
    ]


def test_a_second_queue_on_the_data_is_refused(tmp_path: Path) -> None:
    with (
        only_queue(tmp_path),
        pytest.raises(StudyError, match="another queue"),
        only_queue(tmp_path),
    ):
        pass
    with only_queue(tmp_path):
        pass


def test_the_list_of_studies_is_sound_and_ours_are_resolved_to_all_defaults() -> None:
    studies = read_studies(ROOT / "docs" / "curves" / "curves.toml")
    runs = [run for each in studies for run in each.runs()]
    assert len({str(run) for run in runs}) == len(runs)
    assert not [run for run in runs if set(run.task.name) & set("/:")]  # it names files
    plain = next(run for run in runs if run.label.name == "plain")
    learner = plain.settings["learner"]
    assert (plain.task.every, learner["eval_interval"]) == (5000, 5000)
    assert plain.settings["agent"]["n_step"] == 1
    other = Run(plain.study, plain.task, plain.label, 9)
    assert (other.fingerprint, other.seed) == (plain.fingerprint, 9)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('budget = "x"', "unexpected keyword"),
        ('[[study.label]]\nname = "x"\npeer = "a2c"', "no peer a2c"),
        ('[[study.label]]\nname = "x"\ntasks = ["dqn-C"]', "no task dqn-C"),
        ('[[study.label]]\nname = "x"\n[[study.label]]\nname = "x"', "label x is there twice"),
        ('[[study.label]]\nname = "x"\npeer = "dqn"\nsource = "y"', "published is not run"),
        ('normalize_by = "y"', "normalize_by y"),
        ('[[study.label]]\nname = "x"\nbeside = ["x"]', "beside x, which is no other label"),
    ],
)
def test_a_study_that_is_wrong_is_named(tmp_path: Path, text: str, message: str) -> None:
    head = '[[study]]\nname = "s"\ntitle = ""\nseeds = [1]\n'
    task = '[[study.task]]\nenv = "A"\nagent = "dqn"\nenv_steps = 1\n'
    top, tables = (text, "") if not text.startswith("[") else ("", text)
    (tmp_path / "list.toml").write_text(f"{head}{top}\n{task}\n{tables}\n")
    with pytest.raises(StudyError, match=message):
        read_studies(tmp_path / "list.toml")


def test_a_time_limit_of_the_task_is_in_our_settings_and_in_the_peers() -> None:
    task = Task(env="CliffWalking-v1", agent="dqn", env_steps=900, every=300, max_episode_steps=200)
    labels = (Label(name="ours"), Label(name="theirs", peer="agent"))
    ours, _, theirs, _ = study(tasks=(task,), labels=labels).runs()
    assert (ours.peer, theirs.peer) == ("", "dqn")
    assert ours.settings["env"]["max_episode_steps"] == 200
    assert theirs.settings["max_episode_steps"] == 200


@pytest.mark.parametrize(
    ("peer", "package", "program"),
    [
        ("ppo", "stable-baselines3", "train_sb3.py"),
        ("crossq", "sbx-rl", "train_sb3.py"),
        ("appo", "sample-factory", "train_sample_factory.py"),
    ],
)
def test_a_peer_is_run_by_its_program_in_its_own_environment(
    peer: str, package: str, program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: list[list[str]] = []
    answer = '{"program": "p 1", "evaluations": []}'

    def note(command: list[str], *_: Any, **__: Any) -> str:
        commands.append([str(word) for word in command])
        return answer

    monkeypatch.setattr(subprocess, "run", note)
    monkeypatch.setattr(curves_queue, "_execute", note)
    run = next(study(labels=(Label(name="x", peer=peer),)).runs())
    assert curves_queue._execute_peer(run, tmp_path) == Result("p 1", [])
    setup, train = commands
    assert setup == [str(ROOT / "scripts" / "setup_peer"), package]
    assert train[0] == str(ROOT / f".venv-{package}" / "bin" / "python")
    assert train[1].endswith(f"/peer_programs/{program}")
    assert Path(train[1]).exists()


def test_peers_play_in_the_environments_of_ours() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extra = project["project"]["optional-dependencies"]["curves"]
    fixed = [package for package in extra if "==" in package]
    assert [package.partition("==")[0] for package in fixed] == ["minatar", "mujoco"]
    peers = (ROOT / "scripts" / "setup_peer").read_text()
    assert all(f'"{package}"' in peers for package in fixed)


def test_a_part_that_a_version_adds_and_has_off_changes_no_fingerprint() -> None:
    before = {"seed": 1, "agent": {"tau": 0.5, "init": {"run": "a"}}, "actors": _actors(1)}
    added = {"decay": 0.0, "norm": False, "noise_color": "white"}
    added["schedule"] = {"steps": 0, "kind": "none"}
    after = {"seed": 2, "agent": {**before["agent"], **added}, "actors": {**_actors(1), "new": 7}}
    assert _in_results(before) == _in_results(after)
    soft = {"alpha": 0.0, "temperature": 0.03}
    assert _in_results({**before, "agent": {**before["agent"], "munchausen": soft}}) == _in_results(
        before
    )
    for added in ({"norm": True}, {"munchausen": {**soft, "alpha": 0.9}}):
        on = {**before, "agent": {**before["agent"], **added}}
        assert _in_results(on) != _in_results(before)
    assert _in_results({**before, "actors": _actors(2)}) != _in_results(before)


def _actors(count: int) -> dict[str, Any]:
    keys = {"envs_per_actor": 8, "n_buffer": 16, "step_processor": "n_step"}
    return {"count": count, **keys}


@pytest.mark.parametrize(
    "changed",
    [
        {"evaluation": {"max_episode_steps": 50}},
        {"actors": {"her_goals": 8}},
        {"actors": {"run_length": 64}},
        {"learner": {"precision": "bfloat16"}},
        {"learner": {"model_dtype": "float16"}},
        {"agent": {"learning_rate": 0.5}},
    ],
)
def test_what_changes_a_result_changes_the_fingerprint(changed: dict[str, Any]) -> None:
    task = Task(env="Pendulum-v1", agent="sac", env_steps=900)
    label = Label(name="x", set={"preset": "none"})
    study = Study(name="s", title="", tasks=(task,), labels=(label,), seeds=(1,))
    other = Label(name="x", set={"preset": "none", **changed})
    assert Run(study, task, label, 1).fingerprint != Run(study, task, other, 1).fingerprint


@pytest.mark.parametrize(
    ("agent", "given", "opts"),
    [
        # 128 samples a step, each drawn 64 times: a step for 2 environment steps
        ("dqn", {}, 500),
        # 32 sequences of 40 steps, each drawn 64 times: one for 20
        ("dqn", {"agent": {"memory": "gru"}}, 50),
        # minibatches of 256, four passes: one for 64
        ("appo", {}, 16),
    ],
)
def test_evaluations_are_as_many_environment_steps_apart_as_the_task_says(
    agent: str, given: dict[str, Any], opts: int
) -> None:
    task = Task(env="CartPole-v1", agent=agent, env_steps=4_000, every=1_000)
    label = Label(name="ours", set={"preset": "none", **given})
    run = next(study(tasks=(task,), labels=(label,)).runs())
    assert resolve(run)["learner"]["eval_interval"] == opts


def test_settings_that_the_configuration_refuses_are_named() -> None:
    label = Label(name="x", set={"agent": {"gamma": 0.9}})
    task = Task(env="CartPole-v1", agent="dqn", env_steps=400)
    run = next(study(tasks=(task,), labels=(label,)).runs())
    with pytest.raises(StudyError, match=r"x seed 1: .*agent\.gamma"):
        Queue([run.study]).check(run)


APPO_CARTPOLE = ("appo", "appo-CartPole-v1", "appo, CartPole")


def test_a_run_of_ours_is_written_as_a_file_that_repeats_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["curves", "config", *APPO_CARTPOLE, "--seed=42"])
    assert curves.main() == 0
    printed = capsys.readouterr().out
    assert printed.startswith("# appo appo-CartPole-v1 appo, CartPole seed 42: vedette run")
    (run,) = (run for run in curves.chosen(["appo:appo, CartPole"])[0].runs() if run.seed == 42)
    assert tomllib.loads(printed) == resolve(run)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (
            (*APPO_CARTPOLE, "--seed=7"),
            "appo: appo, CartPole on appo-CartPole-v1 has no seed 7; it has 41, 42, 43, 44, 45",
        ),
        (
            ("appo", "appo-CartPole-v1", "stable-baselines3, CartPole"),
            "seed 41 is another program's: `scripts/curves settings` prints its settings",
        ),
    ],
)
def test_a_run_that_has_no_file_of_ours_is_refused(
    arguments: tuple[str, ...],
    line: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["curves", "config", *arguments])
    assert curves.main() == 2
    assert line in capsys.readouterr().err


def cartpole(networked: bool) -> Run:
    task = Task(env="CartPole-v1", agent="dqn", env_steps=400, every=100, episodes=2)
    quick = {"warmup_period": 100, "sync_interval": 5}
    label = Label(
        name="ours",
        networked=networked,
        set={"preset": "none", "learner": quick, "actors": {"n_buffer": 8}},
    )
    return next(study(tasks=(task,), labels=(label,)).runs())


@pytest.mark.slow
def test_a_run_of_ours_is_the_same_each_time_and_evaluated_as_the_task_says() -> None:
    first, second = (execute_run(cartpole(networked=False)) for _ in range(2))
    assert [p.return_mean for p in first.points] == [p.return_mean for p in second.points]
    assert first.points[-1].env_steps == 400
    assert [p.opt_steps for p in first.points[:-1]] == [50, 100]
    gymnasium = f"gymnasium {gym.__version__}"
    assert (first.program, first.environment) == ("vedette", gymnasium)


@pytest.mark.slow
def test_a_networked_run_comes_to_its_end(tmp_path: Path) -> None:
    run = cartpole(networked=True)
    queue = Queue([run.study], tmp_path)
    run_queue(queue, commit=False, most=1)
    assert not queue.failed
    assert read_finished(tmp_path / "small")[0].cpu_s > 1


def test_a_command_that_fails_says_so_with_its_last_lines(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "import os; print(os.nice(0)); raise SystemExit('torn')"]
    with pytest.raises(RunFailedError, match=r"(?s)ended with 1.*torn") as failure:
        curves_queue._execute(command, tmp_path / "log")
    assert "\n19\n" in str(failure.value)


def test_what_a_run_started_ends_with_a_queue_that_is_told_to_end(tmp_path: Path) -> None:
    marks = tmp_path / "pid"
    child = f"import os, pathlib, time; pathlib.Path({str(marks)!r}).write_text(str(os.getpid()));"
    code = (
        "import pathlib, signal, sys\n"
        "import curves_queue\n"
        "signal.signal(signal.SIGTERM, signal.default_int_handler)\n"
        f"child = [sys.executable, '-c', {child + ' time.sleep(60)'!r}]\n"
        f"curves_queue._execute(child, pathlib.Path({str(tmp_path / 'log')!r}))\n"
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT / "scripts")}
    queue = subprocess.Popen([sys.executable, "-c", code], env=env, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 90  # it imports torch, and the child is as nice as can be
    while not (marks.exists() and marks.read_text()):
        assert time.monotonic() < deadline
        assert queue.poll() is None
        time.sleep(0.02)
    queue.send_signal(signal.SIGTERM)
    assert queue.wait(30) != 0
    with pytest.raises(ProcessLookupError):
        os.kill(int(marks.read_text()), 0)


def test_the_scripted_person_drives_up_the_hill_and_takes_over_ever_more_rarely() -> None:
    env = ScriptedPerson(gym.make("MountainCarContinuous-v0"), rate=0.2, until=2_000, steps=500)
    env.reset(seed=0)
    taken, ends = [], []
    for t in range(4_000):
        *_, terminated, truncated, info = env.step([0.0])
        taken.append("intervene_action" in info)
        if terminated or truncated:
            ends.append((t, terminated))
            env.reset()
    assert not all(taken[:20])
    assert not any(taken[2_500:])
    assert [terminated for _, terminated in ends][:5] == [True] * 5
    assert not ends[-1][1]  # nobody drives it
