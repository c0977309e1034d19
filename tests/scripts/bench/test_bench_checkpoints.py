"""The cost of checkpoints is measured with some that are really written."""

import sys
from pathlib import Path

from bench.checkpoints import CheckpointBench


def test_steps_that_a_checkpoint_overlaps_stand_beside_those_between(tmp_path: Path) -> None:
    bench = CheckpointBench(16, 16, apart=5, checkpoints=3, rounds=2, directory=tmp_path)
    interval_s = sys.getswitchinterval()
    found = bench.run()
    assert sys.getswitchinterval() == interval_s
    assert found["checkpoint_bytes"] > 4 * 4 * (4 * 16 + 16 * 16 + 16 * 2)
    assert found["checkpoint_ms"]["min"] > 0
    assert 0 < found["ratio"]["min"] <= found["ratio"]["median"] <= found["ratio"]["max"]
    assert found["cost_ms"]["min"] < found["checkpoint_ms"]["max"]
    assert not list(tmp_path.iterdir())
