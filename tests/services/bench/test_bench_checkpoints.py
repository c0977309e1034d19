"""What checkpoints cost the training loop is measured with some that are really written."""

from pathlib import Path

from vedette_services.bench.checkpoints import CheckpointBench


def test_the_loop_is_measured_in_peace_and_while_checkpoints_are_written(tmp_path: Path) -> None:
    bench = CheckpointBench(batch_size=16, hidden=16, seconds=0.1, rounds=2, directory=tmp_path)
    found = bench.run()
    assert found["checkpoint_bytes"] > 4 * 4 * (4 * 16 + 16 * 16 + 16 * 2)
    assert found["checkpoint_s"] > 0
    assert 0 < found["ratio"]["min"] <= found["ratio"]["median"] <= found["ratio"]["max"]
    assert not list(tmp_path.iterdir())
