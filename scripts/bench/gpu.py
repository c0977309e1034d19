"""The first hour on a GPU, part by part; run by `scripts/bench_gpu`, `scripts/bench/run gpu`.

Parts in the order of their value, each in a process of its own that is ended at its bound:

* ``check-*``: captured steps beside steps as they are, batches and models that are copied beside
  the host's, a capture that fails. A check has a tolerance and a verdict; where one fails, the
  exit status is 2.
* ``sac-hopper-256``, ``dqn-cartpole-256``, ``dqn-atari-512``: optimization steps a second of the
  trainer's loop, eager and captured, with and without a copy of the replay on the device, beside a
  captured loop by hand; memory, and bytes that cross to the device.
* ``ingest-*``: the same while samples come in.
* ``dqn-atari-512-tf32``, ``dqn-atari-512-bfloat16``: the same in other precisions.
* ``sac-paper-256``, ``dqn-atari-32``, ``dqn-atari-512-prioritized``: further speeds.
* ``learn-hopper``, ``learn-pong``: learning, in pieces that resume.

The file: {"format", "runs": [{"identity", "machine", "parts": {NAME: {...}}, "failed": {NAME:
{"error", "traceback", ...}}}]}. A run is continued by calls with the same identity: source, commit,
device, processor, torch and settings. Parts that failed are tried again behind all others.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec

NEEDED = (
    *("annotated_types", "cloudpickle", "farama_notifications", "gymnasium", "msgpack", "numpy"),
    *("pydantic", "pydantic_core", "safetensors", "tomli_w", "torch", "typing_extensions"),
    *("typing_inspection", "vedette", "vedette_protocol", "vedette_rl", "vedette_services"),
)
"""Modules that the measured part of the project imports."""

try:
    import argparse
    import contextlib
    import hashlib
    import json
    import os
    import platform
    import signal
    import subprocess
    import tempfile
    import time
    from pathlib import Path
    from typing import Any

    import numpy as np
    import torch

    from bench.gpu_parts import PARTS
    from bench.gpu_table import page_table, table
except ModuleNotFoundError as error:
    names = dict.fromkeys([*NEEDED, error.name or ""])
    missing = ", ".join(name for name in names if name and "." not in name and not find_spec(name))
    sys.exit(
        f"bench_gpu: {sys.executable} lacks {missing or error.name}: install it, or set PYTHON"
    )

ROOT = Path(__file__).resolve().parents[2]
FORMAT = 2
DONE, MISSING, CHECK_FAILED = 0, 1, 2
"""Exit statuses: all parts are done, some are missing or failed, a check says no."""
_STACK_S = 5.0  # before its end a part that hangs writes where it stands
_QUICK_GRACE_S = 5.0
_TAIL = 40  # lines of a part's errors


def identity_of(device: str, commit: str, *, quick: bool) -> dict[str, Any]:
    """What the results of one run have in common."""
    source = hashlib.sha256()
    files = [*ROOT.glob("*/vedette*/**/*.py"), *ROOT.glob("scripts/bench/*.py")]
    for path in sorted(files):
        source.update(path.read_bytes())
    described = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=12"]
    if not commit and (ROOT / ".git").exists():
        commit = subprocess.run(described, check=False, capture_output=True, text=True).stdout
    return {
        "commit": commit.strip() or "unknown",
        "source": source.hexdigest()[:16],
        "device": torch.cuda.get_device_name() if device == "cuda" else "cpu",
        "cpu": _cpu_name(),
        "torch": torch.__version__,
        "quick": quick,
    }


def _cpu_name() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def machine() -> dict[str, Any]:
    """What else is worth knowing of it."""
    return {
        "cores": os.cpu_count(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "cuda": torch.version.cuda,
    }


class Results:
    """The file of results, written whole after each part."""

    def __init__(self, path: Path, identity: dict[str, Any]) -> None:
        self._path = path
        self._all: dict[str, Any] = {"format": FORMAT, "runs": []}
        if path.exists():
            self._all = _read(path)
        runs = [run for run in self._all["runs"] if run["identity"] == identity]
        new = {"identity": identity, "machine": machine(), "parts": {}, "failed": {}}
        self.run: dict[str, Any] = runs[0] if runs else new
        if not runs:
            self._all["runs"].append(self.run)

    @property
    def parts(self) -> dict[str, Any]:
        """The results of parts that are done, by name."""
        parts: dict[str, Any] = self.run["parts"]
        return parts

    @property
    def failed(self) -> dict[str, Any]:
        """What is known of the parts that failed, by name."""
        failed: dict[str, Any] = self.run["failed"]
        return failed

    def missing(self, names: list[str]) -> list[str]:
        """The parts of these that are to be done, those that failed before at the end."""
        left = [name for name in names if not self.parts.get(name, {}).get("done", False)]
        return sorted(left, key=lambda name: name in self.failed)

    def keep(self, name: str, result: dict[str, Any]) -> None:
        """Keep what a part gave, or how it failed, and write the file."""
        if "error" in result:
            self.failed[name] = result
        else:
            self.parts[name] = result
            self.failed.pop(name, None)
        aside = self._path.with_name(self._path.name + ".part")
        aside.write_text(json.dumps(self._all, indent=1, allow_nan=False) + "\n")
        aside.replace(self._path)


def _read(path: Path) -> dict[str, Any]:
    try:
        read: dict[str, Any] = json.loads(path.read_text())
    except ValueError:
        read = {}
    if not isinstance(read, dict) or read.get("format") != FORMAT:
        sys.exit(
            f"bench_gpu: {path} is no file of this benchmark (format {FORMAT}): name another one "
            "by --out"
        )
    return read


def run_part(
    name: str, device: str, *, quick: bool, runs: Path, seconds_left: float
) -> dict[str, Any]:
    """Run a part in a process of its own; its result, or how it failed."""
    part = PARTS[name]
    grace_s = _QUICK_GRACE_S if quick else part.grace_s
    bound_s = min(part.bound_s(quick=quick), max(seconds_left, 0.0) + grace_s)
    with tempfile.TemporaryDirectory(prefix="vedette-bench-") as scratch:
        out = Path(scratch) / "part.json"
        errors = Path(scratch) / "stderr"
        size = "quick" if quick else "full"
        stack_s = max(bound_s - _STACK_S, bound_s / 2)
        command = [sys.executable, "-X", "faulthandler", "-m", "bench.gpu_parts", name]
        command += [str(out), device, size, str(runs), f"{seconds_left:.0f}", f"{stack_s:.1f}"]
        began = time.monotonic()
        with errors.open("wb") as stderr:
            process = subprocess.Popen(command, stderr=stderr, start_new_session=True)
            try:
                status: int | None = process.wait(bound_s)
            except subprocess.TimeoutExpired:
                status = None
            finally:
                _end_group(process)
        took_s = time.monotonic() - began
        said = errors.read_text(errors="replace").splitlines()[-_TAIL:]
        if out.exists():
            result: dict[str, Any] = json.loads(out.read_text())
            return {**result, "took_s": took_s}
    if status is None:
        why = f"no end after {bound_s:.0f} s"
    elif status < 0:
        why = f"ended by {signal.Signals(-status).name}"
    else:
        why = f"exit status {status} without a result"
    return {"error": why, "traceback": "\n".join(said), "took_s": took_s}


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """End a part and what it has started."""
    with contextlib.suppress(ProcessLookupError):  # nothing of it is left
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def parse() -> argparse.Namespace:
    """The command line; `names` are the parts to do."""
    parser = argparse.ArgumentParser(
        prog="scripts/bench/run gpu", description=__doc__.split("\n")[0]
    )
    parser.add_argument("--minutes", type=float, default=9.0, help="of this call, setup included")
    parser.add_argument("--out", type=Path, default=Path("bench_gpu.json"))
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--only", default=",".join(PARTS), help="parts, separated by commas")
    parser.add_argument("--quick", action="store_true", help="see that it runs; times mean nothing")
    parser.add_argument("--commit", default="", help="what to note where there is no git")
    parser.add_argument(
        "--page", action="store_true", help="print the file's table for the benchmarks page alone"
    )
    options = parser.parse_args()
    options.names = options.only.split(",")
    if unknown := set(options.names) - set(PARTS):
        parser.error(f"no part {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    if options.device == "cuda" and not torch.cuda.is_available():
        parser.error(f"torch {torch.__version__} sees no CUDA device: --device cpu")
    if options.page and not options.out.exists():
        parser.error(f"{options.out} is not there: measure first, or name another file by --out")
    return options


def main() -> int:
    """Do the parts that are missing, as long as there is time."""
    options = parse()
    if options.page:
        for run in _read(options.out)["runs"]:
            print(page_table(run))
        return DONE
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # leave no process behind
    deadline = float(os.environ.get("BENCH_BEGAN", time.time())) + 60 * options.minutes
    on_gpu = options.device != "cpu" and torch.cuda.is_available()
    device = "cuda" if on_gpu else "cpu"
    results = Results(options.out, identity_of(device, options.commit, quick=options.quick))
    runs = options.out.with_suffix(".runs")
    print(json.dumps(results.run["identity"]), file=sys.stderr)
    for name in results.missing(options.names):
        left_s = deadline - time.time()
        if left_s <= 0:
            print(f"the {options.minutes:g} minutes are used up", file=sys.stderr)
            break
        print(f"{name} ...", file=sys.stderr, flush=True)
        result = run_part(name, device, quick=options.quick, runs=runs, seconds_left=left_s)
        if "error" in result:
            print(f"{name} failed: {result['error']}", file=sys.stderr)
        results.keep(name, result)
    print(table(results.run))
    if missing := results.missing(options.names):
        print(f"not done yet: {', '.join(missing)}; call it again", file=sys.stderr)
    if wrong := [name for name, part in results.parts.items() if part.get("ok") is False]:
        print(f"checks that fail: {', '.join(wrong)}", file=sys.stderr)
        return CHECK_FAILED
    return MISSING if missing else DONE


if __name__ == "__main__":
    sys.exit(main())
