"""Copying takes its share of the time, unless somebody waits for it."""

from __future__ import annotations

import pytest

from vedette_services.learner.snapshot.io_share import IoShare


@pytest.mark.parametrize(("hurries", "share_taken"), [(False, 0.2), (True, 1.0)])
def test_copying_takes_no_more_than_its_share(hurries: bool, share_taken: float) -> None:
    now = [0.0]

    def rest(seconds: float) -> None:
        now[0] += seconds

    share = IoShare(0.2, rest, hurries=lambda: hurries, clock=lambda: now[0])
    now[0] = 100.0  # nothing was to be done
    share.begin()
    for work_s in (1.0, 0.5, 2.5):
        now[0] += work_s
        share(1 << 20)
    assert now[0] - 100.0 == pytest.approx(4.0 / share_taken)
