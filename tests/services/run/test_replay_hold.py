"""A replay that is removed or replaced beneath its processes is told from the one they have."""

from pathlib import Path

import pytest

from vedette_rl.replay.ring_files import CURSOR
from vedette_services.errors import ReplayGoneError
from vedette_services.run.replay_hold import ReplayHold


def test_a_replay_that_was_removed_or_replaced_is_another_one(tmp_path: Path) -> None:
    replay = tmp_path / "replay"
    replay.mkdir()
    (replay / CURSOR).write_bytes(bytes(8))
    hold = ReplayHold(replay)
    hold.check()
    replay.rename(tmp_path / "away")
    with pytest.raises(ReplayGoneError) as removed:
        hold.check()
    assert str(removed.value) == (
        f"{replay}: the replay was removed while its learner runs; start the run again: it goes on "
        "with an empty one"
    )
    replay.mkdir()
    (replay / CURSOR).write_bytes(bytes(8))
    with pytest.raises(ReplayGoneError, match=r"was replaced .* with the one that is there"):
        hold.check()
    hold.close()
