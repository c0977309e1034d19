"""An environment is made once to learn about it, in a process that is gone before a player's is."""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from vedette_rl.envs.config import EnvConfig
from vedette_rl.envs.make import probe_environment
from vedette_services.config.probing import EnvironmentProbe
from vedette_services.errors import SettingError
from vedette_services.host import probe_process, slow_calls
from vedette_services.host.probe_process import ProbeProcess


class Noted(gym.Env[Any, Any]):
    """Notes when it is made and closed, and by which process."""

    observation_space = gym.spaces.Dict(
        {"b": gym.spaces.Box(-1, 1, (2,), np.float32), "a": gym.spaces.MultiDiscrete([2, 3])}
    )
    action_space = gym.spaces.Discrete(3, start=1)
    max_steps = 5000

    def __init__(self, log: str = "", does: str = "") -> None:
        self.log = log
        self.note("make")
        match does:
            case "exit":
                os.write(2, b"no licence server answers\n")
                os._exit(3)
            case "sys.exit":
                sys.exit("no licence")
            case "raise":
                raise RuntimeError("no licence")
            case "window":
                raise RuntimeError("No available video device")
            case "thread":
                threading.Thread(target=lambda: time.sleep(600)).start()
            case "chdir":
                os.chdir("/")
            case "print":
                os.write(1, b"banner\n")
            case "warn":
                kind, line = DeprecationWarning, "<frozen importlib._bootstrap>"
                warnings.warn_explicit("builtin type SwigPyObject", kind, line, 241)
                warnings.warn("a map is missing", stacklevel=1)
            case "slow":
                time.sleep(1.0)

    def note(self, what: str) -> None:
        if self.log:
            with Path(self.log).open("a") as file:
                file.write(f"{what} {os.getpid()}\n")

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return {"b": np.zeros(2, np.float32), "a": np.zeros(2, np.int64)}, {}

    def step(self, action: Any) -> Any:
        time.sleep(0.0005)
        return *self.reset()[:1], 0.0, False, False, {}

    def close(self) -> None:
        self.note("close")


class Port(Noted):
    """There can be one at a time."""

    def __init__(self, port: int) -> None:
        super().__init__()
        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self.socket.bind(("127.0.0.1", port))
            self.socket.listen()
        except OSError:
            self.socket.close()
            raise

    def close(self) -> None:
        self.socket.close()


def config_of(**kwargs: Any) -> EnvConfig:
    return EnvConfig(id=f"{__name__}:Noted", kwargs=kwargs)


@pytest.fixture
def probe() -> Iterator[EnvironmentProbe]:
    with EnvironmentProbe(start=ProbeProcess) as made:
        yield made


def notes(log: Path) -> list[list[str]]:
    return [line.split() for line in log.read_text().splitlines()]


def test_it_is_made_once_elsewhere_and_is_gone_at_the_end(tmp_path: Path) -> None:
    config = config_of(log=str(tmp_path / "log"))
    with EnvironmentProbe(start=ProbeProcess) as probe:
        facts = probe.facts(config)
        again = config.model_copy(update={"stepping": "serial"})
        assert probe.facts(again) is facts
        assert probe.spaces(again) is facts.spaces
    (made, pid), (closed, by) = notes(tmp_path / "log")
    assert (made, closed, by) == ("make", "close", pid)
    assert int(pid) != os.getpid()
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid), 0)
    here = probe_environment(config)
    assert (facts.spaces, facts.episode_bound, facts.has_limit) == (here, 5000, False)
    assert list(facts.spaces.observation.spaces) == ["a", "b"]  # type: ignore[attr-defined]


def test_a_slow_step_is_measured_beside_one_more(tmp_path: Path, probe: EnvironmentProbe) -> None:
    cost = probe.step_cost(config_of(log=str(tmp_path / "log")))
    assert cost is not None
    assert cost.seconds >= 0.0005
    assert not cost.computes
    assert [what for what, _ in notes(tmp_path / "log")].count("make") == 2


@pytest.mark.parametrize(
    ("does", "told"),
    [
        ("raise", "fails when it is made, reset and stepped: RuntimeError: no licence"),
        ("window", "there is no display here: start the command by `xvfb-run -a`"),
        ("sys.exit", "fails when it is made, reset and stepped: "),
        ("exit", "exit status 3 when it was made, reset and stepped; it said last: no licence ser"),
    ],
)
def test_its_failure_is_one_line(does: str, told: str, probe: EnvironmentProbe) -> None:
    config = config_of(does=does)
    for _ in range(2):
        with pytest.raises(SettingError) as refused:
            probe.facts(config)
        assert refused.value.key == "env.id"
        assert told in str(refused.value)
        assert "\n" not in str(refused.value)


@pytest.mark.parametrize("does", ["thread", "chdir", "print"])
def test_what_it_does_to_its_process_stays_there(
    does: str, capfd: pytest.CaptureFixture[str]
) -> None:
    before = Path.cwd()
    began = time.monotonic()
    with EnvironmentProbe(start=ProbeProcess) as probe:
        probe.facts(config_of(does=does))
    assert time.monotonic() - began < 30.0
    assert Path.cwd() == before
    assert "banner" not in "".join(capfd.readouterr())


def test_what_is_waited_for_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slow_calls, "SAY_AFTER_S", 0.0)
    heard: list[str] = []
    with EnvironmentProbe(heard.append, start=ProbeProcess) as probe:
        probe.facts(config_of(does="slow"))
    assert heard
    assert heard[0].startswith(f"waiting for {__name__}:Noted to be made (")


def test_its_warnings_are_told_and_those_of_importing_c_libraries_are_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with EnvironmentProbe(start=ProbeProcess) as probe:
        probe.facts(config_of(does="warn"))
    assert "Noted: a map is missing" in caplog.text
    assert "Swig" not in caplog.text


def test_one_that_is_not_made_in_time_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe_process, "TIMEOUT_S", 0.0)
    with (
        EnvironmentProbe(start=ProbeProcess) as probe,
        pytest.raises(SettingError, match="was not made within 0 s"),
    ):
        probe.facts(config_of(does="slow"))


def test_one_that_exists_once_is_free_for_a_player_at_the_end() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    config = EnvConfig(id=f"{__name__}:Port", kwargs={"port": port})
    with EnvironmentProbe(start=ProbeProcess) as probe:
        probe.facts(config)
        with pytest.raises(OSError, match="in use"):
            Port(port)
    Port(port).close()


def test_a_name_that_only_this_process_knows_is_made_here() -> None:
    gym.register("OnlyHere-v0", entry_point=Noted)
    with EnvironmentProbe(start=ProbeProcess) as probe:
        assert probe.facts(EnvConfig(id="OnlyHere-v0")).episode_bound == 5000
        with pytest.raises(SettingError, match="no such environment"):
            probe.facts(EnvConfig(id="Nowhere-v0"))
