"""Measures Vedette and its peers in turn, and prints medians and ratios with their spread.

Run by `scripts/bench_peers`. A peer is a small program in `scripts/peers/`, which prints one JSON
line; it runs in an environment of its own, made on first use. One that cannot be installed, or
fails, is said to and left out.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import os
import signal
import statistics
import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
ENVIRONMENTS = ROOT / ".venv-bench"
INSTALL_S = 1800
RUN_S = 240

CPU_TORCH = ("torch==2.13.0",)
# It asks for any wandb, which it does not use here; later ones bring much else.
SAMPLE_FACTORY = (*CPU_TORCH, "sample-factory==2.1.1", "wandb==0.19.11")


@dataclass(frozen=True)
class Peer:
    """Who is measured beside us.

    Args:
        name: as the table has it.
        program: in `scripts/peers/`.
        needs: what pip installs into its environment.
    """

    name: str
    program: str
    needs: tuple[str, ...]

    @property
    def python(self) -> Path:
        """Of its environment: one for all that need the same."""
        name = "-".join(sorted(need.partition("==")[0].partition("[")[0] for need in self.needs))
        return ENVIRONMENTS / name / "bin" / "python"


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


@dataclass(frozen=True)
class Table:
    """One comparison.

    Args:
        unit: of the figures.
        ours: the command that measures us, without `vedette`.
        figure: the field of its JSON.
        beside: what else is measured with us, and the field that holds it.
        argument: what every peer is called with, before the seconds.
        peers: in the order of the table.
    """

    unit: str
    ours: tuple[str, ...]
    figure: str
    beside: tuple[tuple[str, str], ...]
    argument: str
    peers: tuple[Peer, ...]


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
    "collect-vectorized": Table(
        "env steps/s", ("fleet", "--vectorized"), "steps_per_s", (), "CartPole-v1", COLLECT
    ),
}


def installed(peer: Peer) -> str:
    """Make the peer's environment if it is not there; "" or why it cannot be made."""
    ENVIRONMENTS.mkdir(exist_ok=True)
    with (ENVIRONMENTS / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another measurement may want the same one
        return _install(peer)


def _install(peer: Peer) -> str:
    done = peer.python.parent.parent / "installed"
    if done.exists():
        return ""
    venv.create(done.parent, with_pip=True, clear=True)
    command = [peer.python, "-m", "pip", "install", "--quiet", *peer.needs]
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=INSTALL_S)
    except subprocess.TimeoutExpired:
        return f"not installed within {INSTALL_S} s"
    except subprocess.CalledProcessError as error:
        return f"not installable: {_last_line(error.stderr)}"
    done.touch()
    return ""


def theirs(peer: Peer, argument: str, seconds: float) -> float:
    """A round of a peer."""
    program = ROOT / "scripts" / "peers" / f"{peer.program}.py"
    return float(_json_of([peer.python, program, argument, str(seconds)])["per_s"])


def ours(table: Table, seconds: float) -> dict[str, float]:
    """A round of ours, and of what is measured with us."""
    vedette = [sys.executable, "-m", "vedette.cli", "bench", *table.ours]
    found = _json_of([*vedette, "--rounds", "1", "--seconds", str(seconds), "--json"])
    rates = {"vedette": found[table.figure]["median"]}
    for name, field in table.beside:
        rates[name] = found[field]["median"]
    return rates


def measure(table: Table, rounds: int, seconds: float, only: set[str]) -> dict[str, Any]:
    """All rounds of all who can be measured."""
    left_out: dict[str, str] = {}
    peers = []
    for peer in table.peers:
        if only and peer.name not in only and peer.program not in only:
            continue
        _say(f"preparing {peer.name}")
        if why := installed(peer):
            left_out[peer.name] = why
        else:
            peers.append(peer)
    rates: dict[str, list[float]] = {}
    for number in range(rounds):
        _say(f"round {number + 1} of {rounds}, load {os.getloadavg()[0]:.1f}")
        for name, rate in ours(table, seconds).items():
            rates.setdefault(name, []).append(rate)
        for peer in [peer for peer in peers if peer.name not in left_out]:
            try:
                rates.setdefault(peer.name, []).append(theirs(peer, table.argument, seconds))
            except (subprocess.SubprocessError, ValueError, KeyError) as error:
                left_out[peer.name] = f"failed: {_last_line(getattr(error, 'stderr', '') or error)}"
                rates.pop(peer.name, None)
    return {"unit": table.unit, "load": os.getloadavg()[0], "rates": rates, "left_out": left_out}


def lines(found: dict[str, Any]) -> list[str]:
    """The table for people: medians, least and most, and how many times theirs ours is."""
    said = [f"{found['unit']}, load at the end {found['load']:.1f}"]
    mine = found["rates"]["vedette"]
    for name, rates in found["rates"].items():
        times = [a / b for a, b in zip(mine, rates, strict=True)]
        ratio = statistics.median(mine) / statistics.median(rates)
        said.append(
            f"{name:<24}{statistics.median(rates):>14,.0f} ({min(rates):,.0f} to {max(rates):,.0f})"
            f"   ours / theirs {ratio:.2f} ({min(times):.2f} to {max(times):.2f})"
        )
    said += [f"{name:<24}{why}" for name, why in found["left_out"].items()]
    return said


def _json_of(command: list[Any]) -> dict[str, Any]:
    with subprocess.Popen(
        command,
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
    found: dict[str, Any] = json.loads(out.splitlines()[-1])
    return found


def _last_line(text: object) -> str:
    return (str(text).strip().splitlines() or ["no word"])[-1][:200]


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def main() -> None:
    """Measure one table."""
    parser = argparse.ArgumentParser(description="Vedette beside its peers, in turn.")
    parser.add_argument("table", choices=TABLES)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--only", default="", help="names or programs of peers, with commas")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    only = set(filter(None, asked.only.split(",")))
    found = measure(TABLES[asked.table], asked.rounds, asked.seconds, only)
    print(json.dumps(found) if asked.json else "\n".join(lines(found)))


if __name__ == "__main__":
    main()
