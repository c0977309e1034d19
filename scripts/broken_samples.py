"""Whole runs with one broken reward, and without: the tables of docs/decisions/broken-samples.md.

    .venv/bin/python scripts/broken_samples.py [--opts 6000] [--learning-rate 1e-3] [--seeds 5]

Every run is one process in lock step, so the same machine prints the same numbers again. A step of
an optimizer is counted as scaled or left out by what `vedette_rl.networks.adam` decides of it.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import gymnasium as gym

import vedette
from vedette_rl.networks.adam import VectorAdam

GLITCH_AT = 600
REWARDS = (0.0, 1e6, 1e12, 1e19, 1e38)
RATES = {  # the settings that `--learning-rate` sets
    "sac": ("learning_rate", "alpha_learning_rate"),
    "td3": ("learning_rate",),
    "dqn": (),
}
ENVIRONMENTS = {"sac": "Pendulum-v1", "td3": "Pendulum-v1", "dqn": "CartPole-v1"}


class Glitch(gym.Wrapper[Any, Any, Any, Any]):
    """An environment of which one step, number `at`, has another reward; 0: none has."""

    def __init__(self, env: Any, reward: float, at: int = GLITCH_AT) -> None:
        super().__init__(env)
        self._reward = reward
        self._at = at
        self._steps = 0

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, info = self.env.step(action)
        self._steps += 1
        if self._reward and self._steps == self._at:
            reward = self._reward
        return obs, reward, terminated, truncated, info


@dataclass
class Counted:
    """The steps of all optimizers of a run, and the largest norm of a gradient in typical ones."""

    steps: int = 0
    scaled: int = 0
    left_out: int = 0
    largest: float = 0.0


@contextmanager
def counted_steps(*, limited: bool) -> Iterator[Counted]:
    """Count what optimizers do with their gradients.

    Args:
        limited: gradients are held to typical ones; else only those that cannot be added are left
            out.
    """
    found = Counted()
    move = VectorAdam.move

    def count(adam: VectorAdam) -> None:
        move(adam)
        norm = float(adam._square.sqrt())
        typical = float(adam._typical)
        found.steps += 1
        found.left_out += not norm < 1e18
        found.scaled += float(adam._limit) < norm < 1e18
        if typical and norm < 1e18:
            found.largest = max(found.largest, norm / typical)

    def no_limit(adam: VectorAdam) -> None:
        pass

    unlimited = () if limited else ("_set_limit", "_note_first_norm")
    with mock.patch.object(VectorAdam, "move", count):
        patches = [mock.patch.object(VectorAdam, name, no_limit) for name in unlimited]
        for patch in patches:
            patch.start()
        try:
            yield found
        finally:
            for patch in patches:
                patch.stop()


@dataclass(frozen=True)
class Given:
    """What the command line says.

    Args:
        opts: optimization steps of a run.
        rate: learning rate of SAC and TD3.
        seeds: runs of each cell; their seeds are 0, 1, ...
        agents: those that are trained.
        out: the folder of the runs.
    """

    opts: int
    rate: float
    seeds: int
    agents: list[str]
    out: Path


def play(
    given: Given, agent: str, reward: float, seed: int, *, limited: bool = True
) -> tuple[float, Counted]:
    """Train, and return the mean return of ten episodes of the last model, and what was counted."""
    out = given.out / f"{agent}-{reward:g}-{seed}{'' if limited else '-no-limit'}"
    with counted_steps(limited=limited) as found:
        result = vedette.train(
            preset="none",
            in_process=True,
            progress=False,
            out=out,
            env={
                "id": ENVIRONMENTS[agent],
                "wrappers": [
                    {
                        "name": "broken_samples:Glitch",
                        "kwargs": {"reward": reward},
                        "training_only": True,
                    }
                ],
            },
            agent={
                "name": agent,
                "hidden_sizes": [64, 64],
                "batch_size": 64,
                "n_step": 1,
                **dict.fromkeys(RATES[agent], given.rate),
            },
            actors={"count": 1, "envs_per_actor": 1, "n_buffer": 1},
            replay={"capacity": 10_000, "samples_per_insert": 64},
            learner={"warmup_period": 500, "eval_interval": given.opts, "recorders": []},
            evaluation={"episodes": 10},
            stop={"max_opts": given.opts},
            seed=seed,
        )
    mean = result.summary.eval.return_mean
    assert mean is not None, "the last model of a run is evaluated"
    return mean, found


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--opts", type=int, default=6000, help="optimization steps of a run")
    options.add_argument("--learning-rate", type=float, default=1e-3, help="of SAC and TD3")
    options.add_argument("--seeds", type=int, default=5, help="runs of each cell")
    options.add_argument("--agent", choices=list(RATES), action="append", help="[all]")
    asked = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        agents = asked.agent or list(RATES)
        print_table(Given(asked.opts, asked.learning_rate, asked.seeds, agents, Path(folder)))


def print_table(given: Given) -> None:
    """Run all, and print a row for each reward."""
    print(given)
    print("mean return of the seeds' last models, their returns; steps scaled, left out\n")
    print("| reward of the row | " + " | ".join(agent.upper() for agent in given.agents) + " |")
    print("|---|" + "---|" * len(given.agents))
    limited = [(reward, True) for reward in REWARDS]
    unlimited = [(reward, False) for reward in REWARDS[1:3]]
    largest: list[str] = []
    for reward, is_limited in (*limited, *unlimited):
        cells = []
        for agent in given.agents:
            runs = [
                play(given, agent, reward, seed, limited=is_limited) for seed in range(given.seeds)
            ]
            returns = [f"{mean:.0f}" for mean, _ in runs]
            scaled = sum(found.scaled for _, found in runs)
            left_out = sum(found.left_out for _, found in runs)
            mean = sum(mean for mean, _ in runs) / len(runs)
            cells.append(f"{mean:.0f} ({', '.join(returns)}); {scaled}, {left_out}")
            if not reward:
                largest.append(f"{agent.upper()} {max(found.largest for _, found in runs):.1f}")
        name = f"{reward:g}" if reward else "none"
        name += "" if is_limited else ", no limit"
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)
    print(f"\nlargest norm without the row, in typical ones: {', '.join(largest)}")


if __name__ == "__main__":
    main()
