"""What a benchmark of an outbox's upload reads in its manager's log."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from bench.shift import read_log

LOG = """\
2026-11-27T10:00:00.500Z INFO vedette.actors: run r, epoch 1: Synthetic
2026-11-27T10:00:01.000Z INFO vedette.actors: o holds 1,440,000 samples of this run from before: \
they are sent, too
2026-11-27T10:00:31.000Z INFO vedette.actors: 720,000 samples from before are still to be sent: \
about 30 s
2026-11-27T10:01:01.000Z INFO vedette.actors: 72,000 samples from before are still to be sent: \
about 1:05 min
2026-11-27T10:01:21.000Z INFO vedette.actors: the learner has what processes before this one have \
left
"""


def test_what_the_log_says_is_left_stands_beside_what_it_took(tmp_path: Path) -> None:
    log = tmp_path / "manager.log"
    log.write_text(LOG)
    found = read_log(log, datetime(2026, 11, 27, 10, tzinfo=UTC).timestamp())
    assert found["joined_s"] == pytest.approx(1.0)
    assert found["uploaded_s"] == pytest.approx(80.0)
    assert found["uploaded_per_s"] == pytest.approx(18_000.0)
    assert found["said"] == [
        {"at_s": 30.0, "left": 720_000, "said_s": 30.0, "took_s": 50.0},
        {"at_s": 60.0, "left": 72_000, "said_s": 65.0, "took_s": 20.0},
    ]
