"""What a sending recorder keeps, drops and counts while its service is slow."""

import threading
from collections.abc import Sequence

import pytest

from vedette_rl.recording import sending_recorder
from vedette_rl.recording.sending_recorder import Scalar, SendingRecorder


class SlowService(SendingRecorder):
    """Waits for `filled`, holds the first scalars until `go`, then takes or refuses them."""

    def __init__(self, *, refuses: bool) -> None:
        self.steps: list[int] = []
        self.filled, self.began, self.go = (threading.Event() for _ in range(3))
        self._refuses = refuses
        super().__init__("slow", again_after_s=0.01)

    def open(self) -> None:
        assert self.filled.wait(10)

    def send_scalars(self, scalars: Sequence[Scalar]) -> None:
        self.began.set()
        assert self.go.wait(10)
        if self._refuses:
            self._refuses = False
            raise OSError("not now")
        self.steps += [scalar.step for scalar in scalars]

    def finish(self, end: str) -> None:
        pass


@pytest.mark.parametrize(
    ("refuses", "written", "steps"),
    [(False, 6, [0, 1, 2, 3, 4, 5]), (False, 9, [0, 1, 2, 3, 5, 6, 7, 8]), (True, 6, [2, 3, 4, 5])],
)
def test_what_is_dropped_while_it_is_sent_is_sent_once_and_left_out_only_if_refused(
    refuses: bool,
    written: int,
    steps: list[int],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(sending_recorder, "KEPT_MAX", 4)
    service = SlowService(refuses=refuses)
    for step in range(4):
        service.write({"x": 1.0}, step)
    service.filled.set()
    service.flush(3)
    assert service.began.wait(10)
    for step in range(4, written):
        service.write({"x": 1.0}, step)
    service.go.set()
    service.close()
    assert service.steps == steps
    left_out = [r.getMessage() for r in caplog.records if "not sent" in r.getMessage()]
    missing = written - len(steps)
    assert left_out == ([f"slow: {missing} scalars were not sent"] if missing else [])
