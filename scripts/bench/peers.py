"""Measures Vedette and its peers in turn, and prints medians and ratios with their spread.

A peer is a small program in `peer_programs/`, which prints one JSON line; it runs in an environment
of its own, made on first use. One that cannot be installed, or fails, is said to and left out.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.environments import PEER_PROGRAMS, ROOT, NotInstallableError, install, last_line

ENVIRONMENTS = ROOT / ".venv-bench"
OF_PROCESSOR = ", of processor"
"""Behind the name of whose rate is for each second of processor time."""
RUN_S = 240

CPU_TORCH = ("torch==2.13.0",)
# It asks for any wandb, which it does not use here; later ones bring much else.
SAMPLE_FACTORY = (*CPU_TORCH, "sample-factory==2.1.1", "wandb==0.19.11")


@dataclass(frozen=True)
class Peer:
    """Who is measured beside us.

    Args:
        name: as the table has it.
        program: in `peer_programs/`.
        needs: what pip installs into its environment.
    """

    name: str
    program: str
    needs: tuple[str, ...]

    @property
    def environment(self) -> Path:
        """Folder of its virtual environment: one for all that need the same."""
        name = "-".join(sorted(need.partition("==")[0].partition("[")[0] for need in self.needs))
        return ENVIRONMENTS / name


WIRE = (
    Peer("multiprocessing.Pipe", "wire_pipe", ("numpy",)),
    Peer("multiprocessing.Queue", "wire_queue", ("numpy",)),
    Peer("gRPC stream", "wire_grpc", ("numpy", "grpcio==1.85.1")),
    Peer("torch.multiprocessing", "wire_torch_queue", ("numpy", *CPU_TORCH)),
    Peer("Ray", "wire_ray", ("numpy", "ray==2.60.0")),
    Peer("Reverb", "wire_reverb", ("dm-reverb[tensorflow]==0.14.0",)),
)
COLLECT = (
    Peer("Stable-Baselines3", "collect_sb3", (*CPU_TORCH, "stable-baselines3==2.9.2")),
    Peer("RLlib", "collect_rllib", (*CPU_TORCH, "ray[rllib]==2.60.0")),
    Peer("TorchRL", "collect_torchrl", (*CPU_TORCH, "torchrl==0.14.1", "gymnasium")),
    Peer("Sample Factory", "collect_sample_factory", SAMPLE_FACTORY),
)
LEARN = (Peer("Stable-Baselines3", "learner_sb3", (*CPU_TORCH, "stable-baselines3==2.9.2")),)
APPO = (Peer("Sample Factory", "learn_sample_factory", SAMPLE_FACTORY),)


@dataclass(frozen=True)
class Table:
    """One comparison.

    Args:
        unit: of the figures.
        ours: the command that measures us, and its options.
        figure: the field of its JSON.
        beside: what else is measured with us, and the field that holds it.
        argument: what every peer is called with, before the seconds.
        peers: in the order of the table.
        processor_figure: the field of the same for each second of processor time of all processes,
            which hardly depends on other load; "": that is not measured.
    """

    unit: str
    ours: tuple[str, ...]
    figure: str
    beside: tuple[tuple[str, str], ...]
    argument: str
    peers: tuple[Peer, ...]
    processor_figure: str = ""


def on_policy(passes: int) -> Table:
    """Collecting and learning at once, with so many passes over each block."""
    ours = ("fleet", "--passes", str(passes))
    of_processor = "steps_per_processor_s"
    return Table("env steps/s", ours, "steps_per_s", (), str(passes), APPO, of_processor)


BARE = ("plain PUSH/PULL", "bare_transitions_per_s")
BY_HAND = ("written by hand", "handwritten_opt_steps_per_s")
TABLES = {
    "wire": Table("transitions/s", ("wire",), "transitions_per_s", (BARE,), "small", WIRE),
    "wire-atari": Table(
        "transitions/s",
        ("wire", "--atari"),
        "frames_once_transitions_per_s",
        (("vedette, stacks whole", "transitions_per_s"), BARE),
        "atari",
        WIRE,
    ),
    "collect": Table("env steps/s", ("fleet",), "steps_per_s", (), "CartPole-v1", COLLECT),
    "learner": Table(
        "optimization steps/s", ("learner", "--single"), "opt_steps_per_s", (BY_HAND,), "256", LEARN
    ),
    "appo": on_policy(passes=4),
    "appo-one-pass": on_policy(passes=1),
    "collect-vectorized": Table(
        "env steps/s", ("fleet", "--vectorized"), "steps_per_s", (), "CartPole-v1", COLLECT
    ),
}


def theirs(table: Table, peer: Peer, python: Path, seconds: float) -> dict[str, float]:
    """Measure a round of a peer."""
    program = PEER_PROGRAMS / f"{peer.program}.py"
    figures = _json_of([python, program, table.argument, str(seconds)])
    rates = {peer.name: float(figures["per_s"])}
    if table.processor_figure:
        rates[peer.name + OF_PROCESSOR] = float(figures["per_processor_s"])
    return rates


def ours(table: Table, seconds: float) -> dict[str, float]:
    """Measure a round of ours, and of what is measured with us."""
    vedette = [sys.executable, "-m", "bench.commands", *table.ours]
    figures = _json_of([*vedette, "--rounds", "1", "--seconds", str(seconds), "--json"])
    rates = {"vedette": figures[table.figure]["median"]}
    if table.processor_figure:
        rates["vedette" + OF_PROCESSOR] = figures[table.processor_figure]["median"]
    for name, field in table.beside:
        rates[name] = figures[field]["median"]
    return rates


def measure(table_name: str, rounds: int, seconds: float, only: set[str]) -> dict[str, Any]:
    """Measure all rounds of ours and of the peers that can be measured, in turn.

    Args:
        table_name: in `TABLES`.
        only: names or programs of peers; empty: all.
    """
    table = TABLES[table_name]
    left_out: dict[str, str] = {}
    pythons: dict[Peer, Path] = {}
    for peer in table.peers:
        if only and peer.name not in only and peer.program not in only:
            continue
        _report(f"preparing {peer.name}")
        try:
            pythons[peer] = install(peer.environment, peer.needs)
        except NotInstallableError as error:
            left_out[peer.name] = str(error)
    rates: dict[str, list[float]] = {}
    for number in range(rounds):
        _report(f"round {number + 1} of {rounds}, load {os.getloadavg()[0]:.1f}")
        for name, rate in ours(table, seconds).items():
            rates.setdefault(name, []).append(rate)
        for peer, python in pythons.items():
            if peer.name in left_out:
                continue
            try:
                for name, rate in theirs(table, peer, python, seconds).items():
                    rates.setdefault(name, []).append(rate)
            except (subprocess.SubprocessError, ValueError, KeyError) as error:
                left_out[peer.name] = f"failed: {last_line(getattr(error, 'stderr', '') or error)}"
                for name in (peer.name, peer.name + OF_PROCESSOR):
                    rates.pop(name, None)
    return {"unit": table.unit, "load": os.getloadavg()[0], "rates": rates, "left_out": left_out}


def _json_of(command: Sequence[str | Path]) -> dict[str, Any]:
    with subprocess.Popen(
        command,
        env={**os.environ, "OMP_NUM_THREADS": "1"},  # one thread each: the cores are for all
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            out, err = process.communicate(timeout=RUN_S)
        finally:  # what it started may outlive it, and keep the pipes open
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command, out, err)
    figures: dict[str, Any] = json.loads(out.splitlines()[-1])
    return figures


def _report(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
