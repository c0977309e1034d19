"""`kill -9` of a learner with several sources: what each holds afterwards."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from counting_env import Count
from daemons import Daemons, flows, free_address, kill_child

from vedette.exporting import export_replay
from vedette_services.run.finished import FinishedRun

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

ROWS = 500


class Helped(Count):
    """A person takes every fifth step of each environment."""

    def step(self, action: np.int64) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        *found, _ = super().step(action)
        info = {"intervene_action": np.int64(1)} if self._t % 5 == 0 else {}
        return (*found, info)


gym.register("HelpedCount-v0", entry_point=Helped)


def demonstrations(path: Path) -> Path:
    """An exported replay of `ROWS` rows, as wide as the counting environment's."""
    numbers = np.arange(ROWS + 1, dtype=np.float32) / ROWS
    obs = np.stack([numbers, numbers], 1)
    of_rows = {"obs": obs[:-1], "next_obs": obs[1:], "reward": np.ones(ROWS, np.float32)}
    flags = {"terminated": np.zeros(ROWS, bool), "truncated": np.arange(ROWS) % 50 == 49}
    np.savez(
        path, action=np.zeros(ROWS, np.int64), n_steps=np.ones(ROWS, np.uint8), **of_rows, **flags
    )
    return path


def lerobot_set(root: Path) -> Path:
    """A LeRobotDataset of `ROWS` such steps, in ten episodes that end."""
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    length = ROWS // 10
    shapes = {"observation.state": 2, "action": 1, "next.reward": 1, "next.done": 1}
    dtypes = ("float32", "int64", "float32", "bool")
    info = {
        "codebase_version": "v3.0",
        "fps": 10,
        "total_episodes": 10,
        "total_frames": ROWS,
        "data_path": "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet",
        "features": {
            name: {"dtype": dtype, "shape": [width]}
            for (name, width), dtype in zip(shapes.items(), dtypes, strict=True)
        },
    }
    episodes = [
        {"episode_index": e, "length": length, "data/chunk_index": 0, "data/file_index": 0}
        for e in range(10)
    ]
    rows = [
        {
            "episode_index": n // length,
            "observation.state": np.float32([n / ROWS, n / ROWS]),
            "action": 0,
            "next.reward": np.float32(1.0),
            "next.done": n % length == length - 1,
        }
        for n in range(ROWS)
    ]
    for folder, table in (("meta/episodes", episodes), ("data", rows)):
        (root / folder / "chunk-000").mkdir(parents=True)
        pq.write_table(pa.Table.from_pylist(table), root / folder / "chunk-000/file-000.parquet")
    (root / "meta" / "info.json").write_text(json.dumps(info))
    return root


@pytest.mark.parametrize("made", [demonstrations, lerobot_set])
def test_no_row_of_any_source_is_lost_or_twice(
    daemons: Daemons, made: Callable[[Path], Path]
) -> None:
    place = daemons.place
    address = free_address()
    config = place / "run.toml"
    data = made(place / "demos.npz")
    config.write_text(
        f'[replay.sources.demos]\ndata = "{data}"\nshare = 0.25\n'
        "[replay.sources.interventions]\nshare = 0.25\n"
    )

    def start() -> Any:
        return daemons.start(
            "learner",
            "learner",
            config,
            "--env",
            "test_killed_sources:HelpedCount-v0",
            "--agent",
            "dqn",
            "--bind",
            address,
            "--out",
            place / "run",
            "agent.n_step=1",
            "learner.eval_interval=0",
            "replay.capacity=200_000",
            "learner.warmup_period=200",
            "replay.prioritized=true",
            "learner.save_interval=50",
            "replay.samples_per_insert=2",
            "agent.batch_size=16",  # it is not about learning
        )

    learner = start()
    manager = daemons.start(
        "manager",
        "actors",
        "--learner",
        address,
        "--count",
        2,
        "--allow-import",
        "test_killed_sources",
    )
    flows(address, 200)
    record = place / "run/replay/sources/demos/source.json"
    read_at = record.stat().st_mtime_ns
    data.rename(place / "gone")  # no later start reads it
    for part in ("gateway", "trainer", "gateway"):
        kill_child(learner, part)
        flows(address, 200)
    for _ in range(3):
        learner.kill9()
        learner = start()
        flows(address, 200)
    assert manager.stop() == 0
    assert learner.stop() == 0
    assert record.stat().st_mtime_ns == read_at
    export_replay(FinishedRun.open(place / "run"), "npz", place / "all.npz")
    with np.load(place / "all.npz") as found:
        rows = {name: found[name] for name in found.files}
    of_source = {name: rows["source"] == name for name in ("actors", "demos", "interventions")}
    assert of_source["demos"].sum() == ROWS
    summary = json.loads((place / "run/summary.json").read_text())
    samples = summary["samples"]
    assert of_source["actors"].sum() == samples["inserted"], samples
    assert samples["produced"] == samples["inserted"], samples
    assert samples["lost"] == 0, samples

    def steps(mask: Any) -> Counter[tuple[float, float]]:
        return Counter(map(tuple, rows["next_obs"][mask].tolist()))

    of_actors = steps(of_source["actors"] & rows["intervened"])
    assert len(of_actors) == of_actors.total() > 50
    assert steps(of_source["interventions"]) == of_actors
    assert (rows["action"][rows["intervened"]] == 1).all()
    assert set(np.unique(rows["reward"][of_source["demos"]])) == {1.0}
    shares = {source["name"]: source["share"] for source in summary["sources"]}
    assert shares == pytest.approx({"demos": 0.25, "interventions": 0.25}, abs=0.01)
    sizes = {source["name"]: source["size"] for source in summary["sources"]}
    assert sizes == {name: of_source[name].sum() for name in ("demos", "interventions")}
