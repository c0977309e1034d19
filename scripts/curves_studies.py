"""Reads the studies of docs/curves/curves.toml: their runs, in order, with their settings.

A study compares labels on tasks. A label is our agent under some settings, or another program. A
run is one seed of a label on a task. The fingerprint of a run's settings covers everything that its
result depends on, except for the seed: with all defaults, so that a changed default is seen.
"""

import hashlib
import json
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

Table = dict[str, Any]
_SB3 = "stable-baselines3"
PEERS = {
    "dqn": _SB3,
    "sac": _SB3,
    "td3": _SB3,
    "ppo": _SB3,
    "recurrent_ppo": "sb3-contrib",
    "crossq": "sbx-rl",
    "appo": "sample-factory",
}
"""Algorithms of other programs, and the package of each, which `scripts/setup_peer` installs."""
NOT_RESULTS = ("seed", "stop", "preset")
"""Parts of a configuration that a fingerprint leaves out: the study says how long a run is."""
IN_RESULTS = {
    "actors": (
        *("count", "envs_per_actor", "n_buffer", "step_processor", "her_goals", "steps_per_row"),
        *("run_length", "explore_from"),
    ),
    "learner": (
        *("warmup_period", "sync_interval", "eval_interval", "pretrain_opts", "precision"),
        *("model_dtype", "compile", "ranks", "init_from"),
    ),
    "evaluation": ("episodes", "seed", "max_episode_steps"),
}
"""Of these parts, the keys on which a result depends; of the others all."""
SWITCHES = {"imitation": ("loss", "none"), "munchausen": ("alpha", 0.0)}
"""Parts within parts, with the key and its value that say that they are off."""
BEFORE = {
    "adam_beta1": 0.9,
    "noise_color": "white",
    "weight_init": "torch",
    "her_goals": 4,
    "steps_per_row": 100,
    "precision": "float32",
    "model_dtype": "float32",
    "ranks": 1,
}
"""Keys that earlier fingerprints had not, with the value that their runs had."""


class StudyError(Exception):
    """The list of studies, or what was asked of it, is wrong."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """An environment, how long it is trained on, and how it is evaluated.

    Args:
        env: as Gymnasium names it.
        agent: ours; a peer's algorithm is named by its label.
        env_steps: environment steps of a run; it does not stop at a target.
        every: environment steps between two evaluations.
        episodes: greedy episodes of an evaluation.
        target: the return that counts as solved; None where there is none.
        max_episode_steps: a time limit; 0 is the environment's own.
    """

    env: str
    agent: str
    env_steps: int
    every: int = 5_000
    episodes: int = 20
    target: float | None = None
    max_episode_steps: int = 0

    @property
    def name(self) -> str:
        return f"{self.agent}-{self.env.replace('/', '_').replace(':', '_')}"


@dataclass(frozen=True, kw_only=True)
class Label:
    """One side of a comparison.

    Args:
        name: of its curve.
        set: settings of ours, as in a configuration file; what is not named is the default.
        networked: daemons rather than one process in lock step.
        peer: an algorithm of another program, in place of our agent; "agent": the task's.
        kwargs: arguments of the peer's algorithm; what is not named is its default.
        source: where its data were published; it is not run.
        seeds: in place of the study's.
        tasks: names of the tasks that it is run on; empty for all.
        priority: in place of the study's.
        beside: the labels from which a table has its differences.
    """

    name: str
    set: Table = field(default_factory=dict)
    networked: bool = False
    peer: str = ""
    kwargs: Table = field(default_factory=dict)
    source: str = ""
    seeds: tuple[int, ...] = ()
    tasks: tuple[str, ...] = ()
    priority: int = 0
    beside: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Study:
    """Labels compared on tasks.

    Args:
        name: of its folder of data and of its picture.
        title: heading of its section of the results page.
        about: what a reader needs to know of it, below the heading.
        normalize_by: the label by whose mean return those of all are divided; "" for none.
        priority: runs of lower numbers come first.
        whom: the user whose choice of an agent it is about, in the table at the top of the results
            page; "" where it is about no such choice.
        ours: the labels of that table; all others that are no label of ours stand beside them.
    """

    name: str
    title: str
    tasks: tuple[Task, ...]
    labels: tuple[Label, ...]
    seeds: tuple[int, ...]
    about: str = ""
    normalize_by: str = ""
    priority: int = 1
    whom: str = ""
    ours: tuple[str, ...] = ()

    def task(self, name: str) -> Task | None:
        """The task of this name; None if it is not listed any more."""
        return next((task for task in self.tasks if task.name == name), None)

    def runs(self) -> "Iterator[Run]":
        """All its runs."""
        for label in (each for each in self.labels if not each.source):
            for task in self.tasks:
                if not label.tasks or task.name in label.tasks:
                    for seed in label.seeds or self.seeds:
                        yield Run(self, task, label, seed)


@dataclass(frozen=True)
class Run:
    """One seed of a label on a task."""

    study: Study
    task: Task
    label: Label
    seed: int

    def __str__(self) -> str:
        return f"{self.study.name} {self.task.name} {self.label.name} seed {self.seed}"

    @property
    def order(self) -> tuple[int, int]:
        """Runs are taken by priority, and the first seed of everything before the second."""
        seeds = self.label.seeds or self.study.seeds
        return self.label.priority or self.study.priority, seeds.index(self.seed)

    @property
    def peer(self) -> str:
        """The peer's algorithm; "" if it is ours."""
        return self.task.agent if self.label.peer == "agent" else self.label.peer

    def table(self) -> Table:
        """The settings of our run as a nested table, but for the interval of evaluations."""
        ours = {
            "seed": self.seed,
            "stop": {"max_env_steps": self.task.env_steps, "target_return": "none"},
            "evaluation": {"episodes": self.task.episodes},
            "learner": {"recorders": ["csv"]},
        }
        if self.task.max_episode_steps:
            ours["env"] = {"max_episode_steps": self.task.max_episode_steps}
        return merge(self.label.set, ours)

    @cached_property
    def settings(self) -> Table:
        """Everything that its result depends on but the seed, with all defaults."""
        task = self.task
        steps = {"env_steps": task.env_steps, "every": task.every, "episodes": task.episodes}
        if self.peer:
            if task.max_episode_steps:
                steps["max_episode_steps"] = task.max_episode_steps
            return {**steps, "peer": self.peer, "env": task.env, "kwargs": self.label.kwargs}
        mode = "networked" if self.label.networked else "in-process"
        return {**steps, "mode": mode, **_in_results(resolve(self))}

    @property
    def fingerprint(self) -> str:
        text = json.dumps(self.settings, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:10]


def resolve(run: Run) -> Table:
    """The whole configuration of one of our runs, with the interval of evaluations.

    Raises:
        StudyError: it is refused.
    """
    from vedette.local.in_process import lock_step
    from vedette_services.config.loading import load_config
    from vedette_services.config.run_config import RunConfig
    from vedette_services.config.saving import config_table
    from vedette_services.errors import ServicesError
    from vedette_services.run.replay_layout import make_run_limiter

    task = run.task
    table = run.table()

    def load(table: Table) -> RunConfig:
        return load_config(None, table=table, env=task.env, agent=task.agent, environment={}).config

    try:
        config = load(table)
        if config.replay.is_queue:
            samples_per_insert = float(config.replay.passes)
        else:
            limiter = (make_run_limiter if run.label.networked else lock_step)(config)
            samples_per_insert = limiter.samples_per_insert
        opts_per_env_step = samples_per_insert / config.samples_per_opt
        every = max(1, round(task.every * opts_per_env_step))  # ours counts optimization steps
        table = merge(table, {"learner": {"eval_interval": every}})
        return config_table(load(table))
    except ServicesError as error:
        raise StudyError(f"{run}: {error}") from error


def _in_results(config: Table) -> Table:
    """The settings on which a result depends.

    One that is off (false, 0, empty or "none"), or as it was before it had a key, is left out, as
    if it were not there: a version that adds a part, and has it off, is the same.
    """
    settings: Table = {}
    for part, table in config.items():
        if part not in NOT_RESULTS:
            kept = IN_RESULTS.get(part, tuple(table))
            settings[part] = _without_off({key: table[key] for key in kept if key in table})
    return settings


def _without_off(table: Table) -> Table:
    kept: Table = {}
    for key, value in table.items():
        if isinstance(value, dict):
            switch, off = SWITCHES.get(key, ("", None))
            value = {} if switch and value.get(switch) == off else _without_off(value)
        if value and value != "none" and value != BEFORE.get(key):
            kept[key] = value
    return kept


def merge(below: Mapping[str, Any], above: Mapping[str, Any]) -> Table:
    """A nested table with the values of `above` over those of `below`."""
    merged = dict(below)
    for name, value in above.items():
        both = isinstance(value, Mapping) and isinstance(merged.get(name), Mapping)
        merged[name] = merge(merged[name], value) if both else value
    return merged


def read_studies(file: Path) -> list[Study]:
    """All studies of the list.

    Raises:
        StudyError: a study is wrong.
    """
    tables = tomllib.loads(file.read_text("utf-8")).get("study", [])
    studies = [_study(table) for table in tables]
    names = [study.name for study in studies]
    if len(set(names)) < len(names):
        raise StudyError(f"two studies of one name among {', '.join(names)}")
    return studies


def _study(table: Table) -> Study:
    name = table.get("name", "a study without a name")
    try:
        given = dict(table)
        defaults = {
            key: given.pop(key)
            for key in ("agent", "env_steps", "every", "episodes")
            if key in given
        }
        tasks = tuple(Task(**{**defaults, **each}) for each in given.pop("task"))
        labels = tuple(_label(each) for each in given.pop("label", []))
        given |= {key: tuple(given[key]) for key in ("seeds", "ours") if key in given}
        study = Study(**given, tasks=tasks, labels=labels)
    except (TypeError, KeyError) as error:
        raise StudyError(f"{name}: {error}") from error
    _check(study)
    return study


def _label(table: Table) -> Label:
    given = dict(table)
    given |= {key: tuple(given[key]) for key in ("seeds", "tasks", "beside") if key in given}
    return Label(**given)


def _check(study: Study) -> None:
    tasks, labels = [task.name for task in study.tasks], [label.name for label in study.labels]
    for kind, of_kind in (("task", tasks), ("label", labels)):
        if twice := {name for name in of_kind if of_kind.count(name) > 1}:
            raise StudyError(f"{study.name}: {kind} {', '.join(twice)} is there twice")
    if study.normalize_by and study.normalize_by not in labels:
        raise StudyError(f"{study.name}: normalize_by {study.normalize_by} is none of its labels")
    if unknown := set(study.ours) - set(labels):
        raise StudyError(f"{study.name}: ours has no label {', '.join(sorted(unknown))}")
    if bool(study.ours) != bool(study.whom):
        raise StudyError(f"{study.name}: whom and ours belong together")
    for label in study.labels:
        if unknown := set(label.tasks) - set(tasks):
            raise StudyError(f"{study.name} {label.name}: no task {', '.join(sorted(unknown))}")
        if label.peer and label.peer not in ("agent", *PEERS):
            raise StudyError(f"{study.name} {label.name}: no peer {label.peer}")
        if unknown := set(label.beside) - (set(labels) - {label.name}):
            names = ", ".join(sorted(unknown))
            raise StudyError(f"{study.name} {label.name}: beside {names}, which is no other label")
        if label.peer and label.set:
            raise StudyError(f"{study.name} {label.name}: a peer has kwargs, no set")
        if label.source and (label.peer or label.set):
            raise StudyError(f"{study.name} {label.name}: what was published is not run")
