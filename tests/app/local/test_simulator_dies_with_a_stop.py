"""A signal that asks a run in one process to stop may reach its simulators, too, and end them."""

import logging
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import gymnasium as gym
import pytest
from small_runs import config_of, trained  # beside this file

from vedette_rl.storage.checkpoints import Checkpoints
from vedette_services.host.processes import StopSignals

EVALUATION_SEEDS = (10_000, 10_001)


class Simulated(gym.Wrapper[Any, Any, Any, Any]):
    """Its simulator ends for all of its kind at a moment, and no other one can be started.

    Args:
        at: "made 3", "step 170", "evaluated" or "": when that is; "closed":
            only `close` fails.
        signal: what happens in that moment.
    """

    at = ""
    signal: ClassVar[Callable[[], None]]
    dead = False
    made = 0
    steps = 0
    closed = 0

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        type(self).made += 1
        self.use(f"made {self.made}")

    def use(self, moment: str) -> None:
        if moment == self.at and not self.dead:
            type(self).dead = True
            type(self).signal()
        if self.dead:
            raise ConnectionError("the simulator exited unexpectedly")

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        self.use("evaluated" if seed in EVALUATION_SEEDS else "reset")
        return self.env.reset(seed=seed, options=options)

    def step(self, action: Any) -> Any:
        type(self).steps += 1
        self.use(f"step {self.steps}")
        return self.env.step(action)

    def close(self) -> None:
        super().close()
        type(self).closed += 1
        if self.at == "closed" or self.dead:
            raise ConnectionError("the simulator is gone")


CONFIG = config_of(env={"wrappers": [{"name": f"{__name__}:Simulated"}]})


@pytest.fixture
def stop(monkeypatch: pytest.MonkeyPatch) -> Iterator[StopSignals]:
    stop = StopSignals(signals=())
    for name, value in {"at": "", "dead": False, "made": 0, "steps": 0, "closed": 0}.items():
        monkeypatch.setattr(Simulated, name, value)
    monkeypatch.setattr(Simulated, "signal", stop.request, raising=False)
    yield stop
    stop.close()


@pytest.mark.parametrize(("at", "opts"), [("made 9", 0), ("step 170", 1), ("evaluated", 40)])
def test_the_run_ends_as_stopped_with_its_checkpoint(
    at: str, opts: int, tmp_path: Path, stop: StopSignals, caplog: pytest.LogCaptureFixture
) -> None:
    Simulated.at = at
    with caplog.at_level(logging.WARNING):
        _, summary = trained(CONFIG, tmp_path, stop=stop)
    assert Simulated.dead
    assert summary["exit_reason"] == "interrupted"
    assert summary["opt_steps"] >= opts
    newest = Checkpoints(tmp_path / "checkpoints", 3).list()[-1]
    assert newest.name == str(summary["opt_steps"])
    assert "asked to stop, and then: ConnectionError: the simulator exited" in caplog.text


def test_a_signal_that_comes_a_moment_after_the_simulators_is_waited_for(
    tmp_path: Path, stop: StopSignals, monkeypatch: pytest.MonkeyPatch
) -> None:
    Simulated.at = "step 170"
    later = threading.Timer(0.03, stop.request)
    monkeypatch.setattr(Simulated, "signal", later.start)
    _, summary = trained(CONFIG, tmp_path, stop=stop)
    later.join()
    assert summary["exit_reason"] == "interrupted"


def test_without_a_request_to_stop_it_is_the_runs_failure(
    tmp_path: Path, stop: StopSignals, monkeypatch: pytest.MonkeyPatch
) -> None:
    Simulated.at = "step 170"
    monkeypatch.setattr(Simulated, "signal", lambda: None)
    with pytest.raises(ConnectionError, match="exited unexpectedly"):
        trained(CONFIG, tmp_path, stop=stop)


def test_an_error_of_close_ends_no_run(
    tmp_path: Path, stop: StopSignals, caplog: pytest.LogCaptureFixture
) -> None:
    def dies_when_it_is_closed() -> None:
        Simulated.at = "closed"

    _, summary = trained(CONFIG, tmp_path, on_loaded=dies_when_it_is_closed)
    assert summary["exit_reason"] == "max_opts"
    assert caplog.text.count("environments failed: ConnectionError") == 3  # two actors', evaluation
    assert Simulated.closed == Simulated.made
