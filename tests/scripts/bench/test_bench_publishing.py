"""The cost of publishing is measured with models that are really written to a map."""

import sys

import pytest

from bench import publishing
from bench.publishing import PublishingBench
from vedette_rl.core import ModelInfo
from vedette_services.run.model_map import ModelMapWriter


def test_every_step_of_the_blocks_that_publish_gives_out_a_model(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    versions = []

    class Watched(ModelMapWriter):
        def write(self, epoch: int, info: ModelInfo, env_steps: int = 0) -> None:
            versions.append(info.version)
            super().write(epoch, info, env_steps)

    monkeypatch.setattr(publishing, "ModelMapWriter", Watched)
    interval_s = sys.getswitchinterval()
    found = PublishingBench(16, 16, opts=3, blocks=2, rounds=2).run()
    assert sys.getswitchinterval() == interval_s
    assert found["model_bytes"] > 4 * (4 * 16 + 16 * 16 + 16 * 2)
    assert found["call_ms"]["min"] > 0
    assert 0 < found["ratio"]["min"] <= found["ratio"]["median"] <= found["ratio"]["max"]
    assert versions == sorted(set(versions))
    # Warm at 50; blocks of 3 without and with take turns; a newer one replaces one that waits.
    assert set(versions) <= {n for at in (53, 59, 65, 71) for n in range(at + 1, at + 4)}
    assert versions[-1] == 74
