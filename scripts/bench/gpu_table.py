"""The results of `scripts/bench_gpu` as tables: on the terminal, and for the benchmarks page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_SIDES = {
    "eager": "eager",
    "eager_on_the_copy": "eager, copy",
    "captured": "captured",
    "captured_on_the_copy": "captured, copy",
    "by_hand": "by hand",
}
_MIB = 1 << 20


def table(run: Mapping[str, Any]) -> str:
    """Checks, medians of all parts that are done, and what failed, a line each."""
    lines = []
    for name, part in run["parts"].items():
        if "ok" in part:
            verdict = "ok" if part["ok"] else "FAILS"
            reason = f"  ({part['reason']})" if part.get("reason") else ""
            lines.append(f"{name:28}{verdict}{reason}")
        elif "ratio_to" in part:
            rates = [
                f"{words} {_median(part['opt_steps_per_s'][side])}"
                for side, words in _SIDES.items()
            ]
            lines.append(f"{name:28}{'; '.join(rates)} steps/s")
        elif "ratio_with_ingest" in part:
            ratio = _median(part["ratio_with_ingest"])
            rows = _median(part["ingest_rows_per_s"])
            lines.append(f"{name:28}{ratio} of the speed beside {rows} rows/s")
        else:
            lines.append(f"{name:28}{_learned(part)}")
    lines += [f"{name:28}failed: {part['error']}" for name, part in run["failed"].items()]
    return "\n".join(lines)


def page_table(run: Mapping[str, Any]) -> str:
    """The same in Markdown, with the machine and with ranges."""
    identity = run["identity"]
    machine = run["machine"]
    parts = run["parts"]
    title = f"{identity['device']}, {identity['cpu']} ({machine['cores']} cores)"
    versions = f"torch {identity['torch']}, CUDA {machine['cuda']}, commit {identity['commit']}"
    blocks = [f"{title}; {versions}."]
    if identity["quick"]:
        blocks[0] += " A quick run: it shows that all parts run, its times mean nothing."
    heads: tuple[str, ...]
    rows: list[tuple[str, ...]]
    checks = {name: part for name, part in parts.items() if "ok" in part}
    if checks:
        rows = [
            (
                name.removeprefix("check-"),
                "passes" if part["ok"] else "**fails**",
                _number(part.get("td_errors_apart")),
                _number(part.get("model_apart")),
                str(part.get("kinds_captured", "-")),
            )
            for name, part in checks.items()
        ]
        heads = ("check", "verdict", "TD errors apart", "model apart", "graphs")
        blocks.append(_markdown(heads, rows))
    speeds = {name: part for name, part in parts.items() if "ratio_to" in part}
    if speeds:
        heads = ("optimization steps/s", *_SIDES.values(), "/ eager", "/ by hand")
        rows = [
            (
                name,
                *(_range(part["opt_steps_per_s"][side]) for side in _SIDES),
                _range(part["ratio_to"]["eager"]),
                _range(part["ratio_to"]["by_hand"]),
            )
            for name, part in speeds.items()
        ]
        blocks.append(_markdown(heads, rows))
        heads = ("a step of *captured, copy*", "opt ms", "load ms", "MiB at most", *_TRAFFIC)
        rows = [
            (
                name,
                _median(part["ms"]["opt_ms"]),
                _median(part["ms"]["load_ms"]),
                _number(part["peak_device_bytes"], _MIB),
                *_traffic(part["sides"]),
            )
            for name, part in speeds.items()
        ]
        blocks.append(_markdown(heads, rows))
    ingest = {name: part for name, part in parts.items() if "ratio_with_ingest" in part}
    if ingest:
        heads = ("beside samples that come in", "speed / alone", "rows/s", "rows/s wanted")
        rows = [
            (
                name.removeprefix("ingest-"),
                _range(part["ratio_with_ingest"]),
                _range(part["ingest_rows_per_s"]),
                _number(part["wanted_rows_per_s"]),
            )
            for name, part in ingest.items()
        ]
        blocks.append(_markdown(heads, rows))
    learned = {name: part for name, part in parts.items() if "env_steps" in part}
    if learned:
        rows = [(name.removeprefix("learn-"), _learned(part)) for name, part in learned.items()]
        blocks.append(_markdown(("learning", "so far"), rows))
    if run["failed"]:
        rows = [(name, str(part["error"])) for name, part in run["failed"].items()]
        blocks.append(_markdown(("failed", "why"), rows))
    return "\n\n".join(blocks)


_TRAFFIC = ("bytes to the device", "the same without the copy")


def _traffic(sides: Mapping[str, Any]) -> tuple[str, str]:
    with_copy = sides["captured_on_the_copy"]["bytes_to_device"]
    return _number(with_copy), _number(sides["captured"]["bytes_to_device"])


def _learned(part: Mapping[str, Any]) -> str:
    best = part["eval"].get("best_return_mean")
    state = part["exit_reason"] if part["done"] else "goes on"
    return f"best return {_number(best)} after {part['env_steps']:,} steps ({state})"


def _markdown(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _number(value: Any, unit: float = 1.0) -> str:
    if value is None:
        return "-"
    if isinstance(value, str):
        return value
    return f"{value / unit:,.0f}" if abs(value / unit) >= 1000 else f"{value / unit:.4g}"


def _median(figure: Mapping[str, Any]) -> str:
    return _number(figure["median"])


def _range(figure: Mapping[str, Any]) -> str:
    return f"{_number(figure['median'])} ({_number(figure['min'])} to {_number(figure['max'])})"
