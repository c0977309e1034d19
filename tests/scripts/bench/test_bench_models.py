"""Delays are those of models that every actor acted on."""

from pathlib import Path

from bench.models import ModelsBench


def test_the_last_actor_counts_and_a_model_that_one_skipped_does_not(tmp_path: Path) -> None:
    first = [f"{v} {v}.0 {v}.25" for v in range(8)]
    other = [f"{v} {v}.0 {v}.5" for v in range(8) if v != 6]
    (tmp_path / "1.txt").write_text("\n".join([*first, "8 8.0 8"]))  # the last is half written
    (tmp_path / "2.txt").write_text("\n".join([*other, ""]))
    # 0, 1 and 2 are left out while everything gets warm
    assert ModelsBench(actors=2)._delays(tmp_path) == [0.5] * 4
