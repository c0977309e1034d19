"""Runs what is left of the learning runs, one after another.

A run is a process of its own at the lowest priority with one thread. Its result is written and
committed when it has ended, so the queue can be stopped or killed at any time: a run that was under
way is begun again.
"""

import fcntl
import json
import os
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w
from curves_data import DATA, Finished, Point, read_finished, read_points, write_run
from curves_studies import PEERS, Run, Study, StudyError, resolve

from vedette_rl.recording.reading import read_curves
from vedette_services.host.system import kill_with_parent
from vedette_services.run.directory import RunDirectory
from vedette_services.run.provenance import read_provenance

ROOT = Path(__file__).resolve().parent.parent
CODE = ("app", "protocol", "rl", "services")
RUN_TIMEOUT_S = 8 * 3600.0
ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "NPROC": "1",  # XLA's pool
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
    "JAX_PLATFORMS": "cpu",
    "VEDETTE_SET": "",
}
NICE = 19
LEARNS_WITH = {"vedette", "python", "torch", "numpy", "cuda"}
"""In a run's versions, what is of no environment."""


class RunFailedError(Exception):
    """A run's process ended badly."""


@dataclass(frozen=True)
class Result:
    """What a run's process found."""

    program: str
    points: list[Point]
    environment: str = ""


class Queue:
    """The runs of some studies that are left.

    Args:
        data: folder with a folder for each study.
    """

    def __init__(self, studies: Sequence[Study], data: Path = DATA) -> None:
        self.studies = studies
        self._data = data
        self.failed: list[Run] = []

    def folder(self, run: Run) -> Path:
        return self._data / run.study.name

    def done(self, study: Study) -> dict[tuple[str, str, int], Finished]:
        """The finished runs of a study, by task, label and seed."""
        runs = read_finished(self._data / study.name)
        return {(run.task, run.label, run.seed): run for run in runs}

    def left(self) -> list[Run]:
        """Runs to do, the next one first."""
        runs = []
        for study in self.studies:
            done = self.done(study)
            keys = ((run, (run.task.name, run.label.name, run.seed)) for run in study.runs())
            runs += [run for run, key in keys if key not in done]
        return sorted((run for run in runs if run not in self.failed), key=lambda run: run.order)

    def check(self, run: Run) -> None:
        """Refuse a run that would be a seed of a label with other settings.

        Raises:
            StudyError: it would.
        """
        finished = [
            each
            for each in read_finished(self.folder(run))
            if (each.task, each.label) == (run.task.name, run.label.name)
        ]
        where = f"{run.study.name} {run.task.name} {run.label.name}"
        remedy = f"name another label, or remove them: scripts/curves drop {where}"
        ours = run.fingerprint
        for each in finished:
            if each.fingerprint != ours:
                raise StudyError(
                    f"{where}: the settings of seed {each.seed} were {each.fingerprint} "
                    f"(code {each.code}), now they are {ours}; {remedy}"
                )
        points = read_points(self.folder(run) / f"{run.task.name}.csv")
        seeds = {point.seed for point in points if point.label == run.label.name}
        if unknown := sorted(seeds - {each.seed for each in finished}):
            raise StudyError(f"{where}: the settings of seeds {unknown} are not known; {remedy}")

    def finish(self, run: Run, result: Result, wall_s: float, cpu_s: float) -> Finished:
        """Write a run's result.

        Raises:
            RunFailedError: it has no evaluation at its end.
            StudyError: other seeds of its label are of another version of the program, or of the
                environment's packages.
        """
        if not result.points or result.points[-1].env_steps < 0.9 * run.task.env_steps:
            raise RunFailedError(f"{run}: its last evaluation is not at its end")
        for each in self.done(run.study).values():
            if (each.task, each.label) != (run.task.name, run.label.name):
                continue
            if each.program != result.program:
                raise StudyError(f"{run}: is of {result.program}, seed {each.seed} {each.program}")
            if each.environment and each.environment != result.environment:
                raise StudyError(
                    f"{run}: its environment is of {result.environment or 'unknown packages'}, of "
                    f"seed {each.seed} {each.environment}: install these"
                )
        returns = [point.return_mean for point in result.points]
        finished = Finished(
            task=run.task.name,
            label=run.label.name,
            seed=run.seed,
            fingerprint=run.fingerprint,
            code=code_version(),
            program=result.program,
            env_steps=result.points[-1].env_steps,
            opt_steps=result.points[-1].opt_steps,
            return_last=returns[-1],
            return_best=max(returns),
            wall_s=wall_s,
            cpu_s=cpu_s,
            environment=result.environment,
        )
        write_run(self.folder(run), result.points, finished)
        return finished

    def cpu_seconds(self, run: Run) -> float | None:
        """An estimate from finished runs, of those that are most like it; None without any."""
        costs = [
            (study.task(each.task), each, each.cpu_s / each.env_steps)
            for study in self.studies
            for each in self.done(study).values()
        ]
        like: list[Callable[[Any, Finished], bool]] = [
            lambda task, each: (each.task, each.label) == (run.task.name, run.label.name),
            lambda task, each: each.label == run.label.name and _agent(task) == run.task.agent,
            lambda task, each: _agent(task) == run.task.agent,
        ]
        for is_like in like:
            if alike := [cost for task, each, cost in costs if is_like(task, each)]:
                return statistics.median(alike) * run.task.env_steps
        return None

    def summary(self) -> Iterator[str]:
        """A line for each label with runs left, and the core-hours of all."""
        left = self.left()
        total = 0.0
        unknown = 0
        for study in self.studies:
            for label in study.labels:
                runs = [run for run in study.runs() if run.label == label]
                todo = [run for run in left if run.study is study and run.label == label]
                costs = [self.cpu_seconds(run) for run in todo]
                known = sum(cost for cost in costs if cost is not None)
                total = total + known
                unknown = unknown + costs.count(None)
                hours = f", {known / 3600:.1f} core-hours left" if todo else ""
                yield f"{study.name} {label.name}: {len(runs) - len(todo)} of {len(runs)}{hours}"
        more = f" and {unknown} runs of unknown cost" if unknown else ""
        yield f"left: {len(left)} runs, {total / 3600:.1f} core-hours{more}"


def _agent(task: Any) -> str:
    return task.agent if task else ""


def run_queue(
    queue: Queue, *, commit: bool, hours: float = 0.0, most: int = 0, execute: Any = None
) -> None:
    """Take one run after another until none is left.

    Args:
        commit: commit each result.
        hours: begin no run after so many.
        most: end after so many runs; 0 for all.
        execute: in the place of `execute_run`.
    """
    until = time.monotonic() + (hours or 1e6) * 3600
    count = 0
    while (left := queue.left()) and time.monotonic() < until and (not most or count < most):
        run = left[0]
        count = count + 1
        began = time.monotonic()
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        try:
            queue.check(run)
            result = (execute or execute_run)(run)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            finished = queue.finish(run, result, time.monotonic() - began, cpu_s)
        except (RunFailedError, StudyError) as error:  # the others are none the worse
            print(f"{run} was left out: {error}", file=sys.stderr, flush=True)
            queue.failed.append(run)
            continue
        print(
            f"{run}: last {finished.return_last:.1f}, best {finished.return_best:.1f}, "
            f"{finished.wall_s / 60:.1f} min ({finished.cpu_s / 60:.1f} of CPU)",
            flush=True,
        )
        if commit:
            commit_data(f"Curves: {run}")


@contextmanager
def only_queue(data: Path = DATA) -> Iterator[None]:
    """Hold the data's lock.

    Raises:
        StudyError: another queue of this checkout runs.
    """
    data.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(data, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError as error:
        raise StudyError(f"another queue runs on {data}") from error
    finally:
        os.close(descriptor)


def execute_run(run: Run) -> Result:
    """Run in processes of its own, which end with ours.

    Raises:
        RunFailedError: it ended badly, or did not end.
    """
    with tempfile.TemporaryDirectory(prefix="curves-") as scratch:
        place = Path(scratch)
        if run.peer:
            return _execute_peer(run, place)
        config, out = place / "config.toml", place / "run"
        config.write_text(tomli_w.dumps(resolve(run)), "utf-8")
        command = [sys.executable, "-m", "vedette.cli", "run", str(config), "--out", str(out)]
        began = time.time()
        _execute(command + ["--in-process"] * (not run.label.networked), place / "log")
        points = read_evaluations(out, run.label.name, run.seed, began)
        return Result("vedette", points, environment_of(out))


def _execute_peer(run: Run, place: Path) -> Result:
    package = PEERS[run.peer]
    subprocess.run([ROOT / "scripts" / "setup_peer", package], check=True)
    python = ROOT / f".venv-{package}" / "bin" / "python"
    task = run.task
    trainer = "train_sample_factory.py" if package == "sample-factory" else "train_sb3.py"
    program = ROOT / "scripts" / "bench" / "peer_programs" / trainer
    command = [str(python), str(program), f"--env={task.env}"]
    command += [f"--algorithm={run.peer}", f"--kwargs={json.dumps(run.label.kwargs)}"]
    command += [f"--seed={run.seed}", f"--steps={task.env_steps}"]
    command += [f"--every={task.every}", f"--episodes={task.episodes}"]
    command += [f"--max-episode-steps={task.max_episode_steps}"]
    answer = json.loads(_execute(command, place / "log").splitlines()[-1])
    points = [Point(label=run.label.name, seed=run.seed, **each) for each in answer["evaluations"]]
    return Result(answer["program"], points)


def _execute(command: Sequence[str], log: Path) -> str:
    """Run a command to its end; what it printed."""

    def in_child() -> None:
        kill_with_parent()
        os.nice(NICE - os.nice(0))

    # A study may name a part of this checkout, `scripts.minatar_games:...`.
    search_path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    with log.open("w") as output:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **ONE_THREAD, "PYTHONPATH": search_path},
            process_group=0,
            preexec_fn=in_child,
        )
        try:
            child.wait(RUN_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            pass
        finally:  # with its own children, and also when a signal ends us
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()
    text = log.read_text("utf-8", "replace")
    if child.returncode:
        raise RunFailedError(f"{' '.join(command)} ended with {child.returncode}\n{text[-2000:]}")
    return text


def read_evaluations(out: Path, label: str, seed: int, began: float) -> list[Point]:
    """The evaluations in the records of one of our runs."""
    curves = read_curves(out).curves
    returns, versions = (curves.get(name) for name in ("eval/mean_reward", "eval/version"))
    if returns is None or versions is None:
        return []
    columns = (returns.steps, versions.values, returns.times - began, returns.values)
    return [
        Point(label, seed, int(env_steps), int(opt_steps), float(wall_s), float(value))
        for env_steps, opt_steps, wall_s, value in zip(*columns, strict=True)
    ]


def environment_of(out: Path) -> str:
    """The packages and versions of the environment of one of our runs."""
    versions = read_provenance(RunDirectory(out))[-1].versions
    return ", ".join(f"{name} {versions[name]}" for name in sorted(versions.keys() - LEARNS_WITH))


def code_version() -> str:
    """The commit that last changed our code; "+" behind it if files are changed."""
    commit = _git("log", "-1", "--format=%h", "--", *CODE)
    return commit + "+" * bool(_git("status", "--porcelain", "--", *CODE))


def commit_data(message: str) -> None:
    """Commit the data and nothing else; what cannot be committed now is in the next commit."""
    data = str(DATA.relative_to(ROOT))
    try:
        _git("add", "--all", "--", data)
        _git("commit", "--quiet", "--message", message, "--", data)
    except subprocess.CalledProcessError as error:
        print(f"not committed: {error}", file=sys.stderr, flush=True)


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(ROOT), *arguments]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout.strip()
