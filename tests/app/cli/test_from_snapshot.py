"""`vedette learner --from-snapshot`: what is refused takes nothing over, so that the learner that
still writes there goes on."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from configurations import configured
from starts import spec_of

from vedette.local.daemons import free_port
from vedette_rl.agents.registry import agent_kind
from vedette_rl.storage.checkpoints import Checkpoints
from vedette_services.config.saving import publish_config
from vedette_services.host.processes import StopSignals
from vedette_services.learner.snapshot.keeper import SnapshotKeeper
from vedette_services.net.addresses import Address
from vedette_services.run.directory import LearnerSpec, RunDirectory
from vedette_services.run.snapshot_directory import Generation, SnapshotDirectory
from vedette_services.run.snapshot_of_new_replay import check_snapshot_of_new_replay
from vedette_services.run.start import Start

Run = Callable[..., tuple[int, str]]

SETTINGS = ("replay.capacity=6000", "agent.batch_size=8", "agent.hidden_sizes=[16]")
NETWORK = """
from torch import nn

class Net(nn.Sequential):
    def __init__(self, observation_space, actions):
        super().__init__(nn.Linear(4, {width}), nn.Linear({width}, actions))
"""


class First:
    """The learner that writes the snapshot: up to where its gateway and trainer would start.

    Args:
        place: of its run and its snapshot, and of the code that it imports.
    """

    def __init__(self, place: Path, *settings: str) -> None:
        self.snapshot = place / "snapshot"
        settings = (*SETTINGS, f"learner.snapshot={self.snapshot}", *settings)
        config = configured(*settings, env="CartPole-v1", agent="dqn")
        run = RunDirectory(place / "first")
        run.make()
        spec: LearnerSpec = spec_of(run, run.ensure_id(), config, Address("127.0.0.1", 5555))
        spec.write()
        publish_config(config, run.config_file)
        kind = agent_kind("dqn")
        agent = kind.build_agent(config.agent, spec.spaces, device="cpu", seed=0)
        Checkpoints(run.checkpoints, keep=1).save(10, {"agent": agent.get_state()}, {})
        self._stop = StopSignals([])
        self._keeper = SnapshotKeeper(spec)
        self._keeper.begin(self._stop)
        self.begun = self.newest()

    def newest(self) -> Generation:
        newest = SnapshotDirectory(self.snapshot).look().newest
        assert newest is not None
        return newest

    def close(self) -> None:
        self._keeper.close()
        self._stop.close()


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Iterator[First]:
    learner = First(tmp_path_factory.mktemp("first"))
    yield learner
    learner.close()


def assert_nothing_was_taken(first: First) -> None:
    assert first.newest().start == first.begun.start
    assert not Path("new").exists()
    assert not [path for path in Path().iterdir() if path.name.startswith(".new")]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--env", "Acrobot-v1"], "first0/snapshot has CartPole-v1, not Acrobot-v1"),
        (["--env", "nowhere:Env"], "env.id: cannot make environment 'nowhere:Env'"),
        (["--agent", "sac"], "agent.name: agent 'sac' takes"),
        (["--set", "replay.capacity=7000"], "has a capacity of 6000, not 7000"),
        (["--set", "agent.n_step=5"], "first0/snapshot has samples made with"),
        (["--set", "agent.hidden_sizes=[32]"], "first0/snapshot has [16]"),
        (["--set", "agent.network=nowhere:Net"], "agent.network"),
        (["--set", "learner.recorders=[nowhere]"], "learner.recorders"),
        (["--set", "learner.lerning_rate=1"], "unknown key"),
        (["--set", "learner.init_from=first"], "resumes with its own weights"),
        (["--set", 'evaluation.trusted=["robot"]'], "evaluation.trusted: names keys"),
        (["--set", "replay.sources.demo.data=nowhere.npz"], "there is no such file"),
        (["--metrics-port", "nowhere"], "--metrics-port: 'nowhere' is no port"),
        (["--keys", "nowhere"], "nowhere"),
        (["--bind", "192.0.2.1:5555", "--insecure"], "cannot bind 192.0.2.1:5555"),
    ],
)
def test_what_is_refused_takes_nothing_over(
    vedette: Run, first: First, options: list[str], why: str
) -> None:
    bind = [] if "--bind" in options else ["--bind", f"127.0.0.1:{free_port()}"]
    status, said = vedette(
        "learner", "--from-snapshot", first.snapshot, "--out", "new", *bind, *options
    )
    assert status in (1, 2), said
    assert why in said
    assert "--fresh" not in said
    assert_nothing_was_taken(first)


@pytest.mark.parametrize("what", ["samples", "models", "metrics", "metrics at an own port"])
def test_a_port_that_is_taken_is_found_before_anything_is_taken_over(
    vedette: Run, first: First, what: str
) -> None:
    port = free_port()
    metrics = free_port()
    with socket.socket() as other:
        taken = {"samples": port, "models": port + 2, "metrics": metrics}.get(what)
        if taken is None:
            metrics = port + 1
        else:
            other.bind(("127.0.0.1", taken))
            other.listen()
        options = ["--bind", f"127.0.0.1:{port}", "--metrics-port", metrics]
        status, said = vedette(
            "learner", "--from-snapshot", first.snapshot, "--out", "new", *options
        )
    assert status == 1, said
    assert "Address already in use" in said
    assert_nothing_was_taken(first)


def test_weights_that_do_not_fit_the_code_of_this_host_take_nothing_over(
    vedette: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    for width, name in ((8, "other_net"), (16, "own_net")):
        (tmp_path / f"{name}.py").write_text(NETWORK.format(width=width))
    first = First(tmp_path, "agent.network=own_net:Net")
    (tmp_path / "own_net.py").write_text("from other_net import Net\n")
    monkeypatch.delitem(__import__("sys").modules, "own_net")
    try:
        options = ["--bind", f"127.0.0.1:{free_port()}", "--allow-import", "own_net"]
        status, said = vedette(
            "learner", "--from-snapshot", first.snapshot, "--out", "new", *options
        )
        assert status == 2, said
        assert "it is of another network" in said
        assert_nothing_was_taken(first)
    finally:
        first.close()


def test_a_start_that_is_killed_while_it_copies_leaves_nothing_to_the_next_one(
    vedette: Run, first: First, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    command = [
        sys.executable,
        "-m",
        "vedette.cli",
        "learner",
        "--from-snapshot",
        str(first.snapshot),
    ]
    command += ["--out", "new", "--bind", f"127.0.0.1:{free_port()}"]
    process = subprocess.Popen(command)
    try:
        while not any(tmp_path.glob(".new.*.new/run.json")):
            assert process.poll() is None
            time.sleep(0.01)
    finally:
        process.kill()  # kill -9
        process.wait()
    (left,) = tmp_path.glob(".new.*.new")
    options = ["--env", "Acrobot-v1", "--bind", f"127.0.0.1:{free_port()}"]
    status, said = vedette("learner", "--from-snapshot", first.snapshot, "--out", "new", *options)
    assert status == 2, said
    assert f"removed {left.name}: a start that was killed has left it" in said
    assert_nothing_was_taken(first)
    assert list(tmp_path.iterdir()) == []


def _contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.mark.parametrize(
    ("options", "snapshot", "why"),
    [
        (["--fresh", "--force"], "snapshot", "--fresh: learner.snapshot={} has rows of another"),
        (["--new-replay"], "snapshot", "--new-replay: learner.snapshot={} has rows of another"),
        (["--fresh", "--force"], "gone/snapshot", "--fresh: learner.snapshot={} cannot be reached"),
        (["--new-replay"], "link", "--new-replay: learner.snapshot={} cannot be reached (it is a"),
    ],
)
def test_an_empty_replay_is_refused_beside_its_snapshot_before_anything_is_erased(
    vedette: Run, tmp_path: Path, options: list[str], snapshot: str, why: str
) -> None:
    first = First(tmp_path)
    first.close()
    (tmp_path / "link").symlink_to(tmp_path / "missing")
    root = tmp_path / snapshot
    before = _contents(tmp_path / "first"), _contents(tmp_path / "snapshot")
    status, said = vedette(
        *("learner", "--env", "CartPole-v1", "--out", "first", *options),
        *("--bind", f"127.0.0.1:{free_port()}", "--set", f"learner.snapshot={root}"),
    )
    assert status == 2, said
    assert why.format(root) in said
    assert "or name another one; nothing has changed" in said
    assert before == (_contents(tmp_path / "first"), _contents(tmp_path / "snapshot"))


@pytest.mark.parametrize(
    ("snapshot", "why"),
    [
        ("snapshot", "learner.snapshot: {0} has rows of another replay"),
        ("gone/snapshot", "learner.snapshot: {0} cannot be reached"),
    ],
)
def test_a_new_run_is_refused_beside_the_snapshot_of_another_before_it_has_a_folder(
    vedette: Run, tmp_path: Path, snapshot: str, why: str
) -> None:
    First(tmp_path).close()
    root = tmp_path / snapshot
    before = _contents(tmp_path / "snapshot")
    status, said = vedette(
        *("learner", "--env", "CartPole-v1", "--out", "second"),
        *("--bind", f"127.0.0.1:{free_port()}", "--set", f"learner.snapshot={root}"),
    )
    assert status == 2, said
    assert why.format(root) in said
    assert ("vedette learner --from-snapshot" in said) == (snapshot == "snapshot")
    assert not (tmp_path / "second").exists()
    assert before == _contents(tmp_path / "snapshot")


@pytest.mark.parametrize("snapshot", ["empty", "new", "none"])
def test_an_empty_replay_may_begin_beside_an_empty_snapshot(tmp_path: Path, snapshot: str) -> None:
    (tmp_path / "empty").mkdir()
    root = "none" if snapshot == "none" else str(tmp_path / snapshot)
    config = configured(f"learner.snapshot={root}", env="CartPole-v1")
    check_snapshot_of_new_replay(config, tmp_path / "run", Start.of(fresh=True, force=True))
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("options", "fix"),
    [
        (
            ["--keys", "none", "--bind", "127.0.0.1"],
            "none: holds no keys; copy the first learner's folder of keys there",
        ),
        (["--bind", "0.0.0.0"], "copy the first learner's folder of keys here and give --keys DIR"),
    ],
)
def test_no_new_keys_are_advised_for_a_learner_that_goes_on(
    vedette: Run, options: list[str], fix: str
) -> None:
    """They would lock out every manager of the first one."""
    status, said = vedette("learner", "--from-snapshot", "snapshot", "--out", "new", *options)
    assert status == 2, said
    assert fix in said
    assert "keys new" not in said
    status, said = vedette("learner", "--env", "CartPole-v1", "--out", "new", *options)
    assert status == 2, said
    assert "keys new" in said
