"""What commit 9a998dc2 wrote is read: runs of daemons and in one process, replays, policies.

`written_by_9a998dc2/make.py` says what is in the archive. Each value is compared with what 9a998dc2
said of it.
"""

from __future__ import annotations

import json
import math
import shutil
import sys
import tarfile
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from daemons import Daemon, Daemons, balances, free_address
from numpy.typing import NDArray

from vedette import curves, evaluate, export_policy, export_replay, load_policy
from vedette.cli.app import main
from vedette_rl.exported.policy_file import read_policy
from vedette_rl.import_by_name import import_by_name
from vedette_rl.replay.commits import last_commit
from vedette_rl.storage.checkpoints import Checkpoints
from vedette_services.config.loading import read_config
from vedette_services.run.directory import RunDirectory
from vedette_services.run.events import read_events
from vedette_services.run.provenance import read_provenance

pytestmark = pytest.mark.timeout(240)

WRITTEN = Path(__file__).with_name("written_by_9a998dc2")
DAEMONS = ("cartpole", "pictures", "loop")
IN_PROCESS = ("pendulum", "begun", "recorded")
EVALUATED = ("cartpole", "pendulum", "begun")

Unpack = Callable[..., Mapping[str, Any]]


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The archive, unpacked once: that takes longer than most of these tests."""
    place = tmp_path_factory.mktemp("written")
    with tarfile.open(WRITTEN / "runs.tar.xz") as archive:
        archive.extractall(place, filter="data")
    return place


@pytest.fixture
def unpack(unpacked: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Unpack:
    """Copies runs and files by name, and goes where they are; returns what 9a998dc2 said."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    for module in ("numbered_env.py", "numbered_loop.py"):
        shutil.copy(WRITTEN / module, tmp_path)

    def unpack(*names: str) -> Mapping[str, Any]:
        for name in ("recorded.json", *names):
            if (unpacked / name).is_dir():
                shutil.copytree(unpacked / name, tmp_path / name)
            else:
                shutil.copy2(unpacked / name, tmp_path / name)
        recorded: Mapping[str, Any] = json.loads(Path("recorded.json").read_text())
        return recorded

    return unpack


def printed(capsys: pytest.CaptureFixture[str], *command: str) -> Any:
    """The JSON that a command prints."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main([*command, "--json"])
    assert ended.value.code == 0
    return json.loads(capsys.readouterr().out)


def assert_says(now: Any, before: Any, where: str = "") -> None:
    """Fields may be added, and numbers are rounded."""
    match before:
        case dict():
            for key, value in before.items():
                assert_says(now[key], value, f"{where}.{key}")
        case list():
            assert len(now) == len(before), where
            for i, value in enumerate(before):
                assert_says(now[i], value, f"{where}[{i}]")
        case float():
            assert now == pytest.approx(before, rel=1e-4), where
        case _:
            assert now == before, where


def columns_of(file: Path | str) -> dict[str, NDArray[Any]]:
    with np.load(file) as columns:
        return dict(columns)


def exported_rows(run: str) -> dict[str, NDArray[Any]]:
    """The rows of a replay, as they are exported now."""
    export_replay(run, f"{run}-now.npz", allow_import=["numbered_env"])
    return columns_of(f"{run}-now.npz")


def assert_same_rows(
    now: Mapping[str, NDArray[Any]], before: Mapping[str, NDArray[Any]], *, skipped: int = 0
) -> None:
    """What was there first is there first, but for rows that newer ones have taken the place of."""
    assert now.keys() - before.keys() == {"reward_scale", "reward_clip"}  # of later releases
    assert before.keys() <= now.keys()
    for name, column in before.items():
        kept = column[skipped:]
        assert now[name].dtype == column.dtype
        np.testing.assert_array_equal(now[name][: len(kept)], kept, err_msg=name)


def summary_of(run: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path(run, "summary.json").read_text())
    return found


def go_on(daemons: Daemons, run: str, *arguments: object) -> dict[str, Any]:
    """Resume a run to its end, as a user does; returns its summary. It recorded no imports."""
    allowed = ("--allow-import", "numbered_env")
    daemon = daemons.start(f"goes-on-{run}", "run", "--out", run, *allowed, *arguments)
    assert daemon.wait(180.0) == 0, daemon.log
    return summary_of(run)


def go_on_here(run: str, *arguments: str) -> dict[str, Any]:
    """Resume a run of one process to its end, in this process; returns its summary."""
    allowed = ("--allow-import", "numbered_env")
    with pytest.raises(SystemExit) as ended:
        main(["run", "--in-process", "--out", run, *allowed, *arguments])
    assert ended.value.code == 0
    return summary_of(run)


@pytest.mark.parametrize("name", [*DAEMONS, *IN_PROCESS])
def test_its_status_says_what_it_said(
    name: str, unpack: Unpack, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded = unpack(name)
    assert_says(printed(capsys, "status", name), recorded["status"][name])


def test_all_its_runs_are_listed_and_reported(
    unpack: Unpack, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded = unpack(*DAEMONS, *IN_PROCESS)
    with pytest.raises(SystemExit, match="0"):
        main(["runs", "."])
    listed = capsys.readouterr().out
    assert all(name in listed for name in (*DAEMONS, *IN_PROCESS))
    assert_says(printed(capsys, "report", "cartpole", "pendulum"), recorded["report"])
    starts = read_provenance(RunDirectory(Path("cartpole")))
    assert [start.exit_reason for start in starts] == ["max_env_steps"] * 2
    assert {start.host for start in starts} == {"host"}
    events, broken = read_events(Path("cartpole/events.jsonl"))
    assert broken == 0
    assert [event.who for event in events if event.kind == "changed"] == [
        "agent.learning_rate",
        "stop.max_env_steps",
    ]


@pytest.mark.parametrize("name", EVALUATED)
def test_its_best_model_plays_as_it_did(
    name: str, unpack: Unpack, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded = unpack(name)
    played = ("--episodes", "3", "--seed", "7")
    assert_says(printed(capsys, "eval", name, *played), recorded["evaluations"][name])


@pytest.mark.parametrize(
    "file", ["cartpole.safetensors", "cartpole.npz", "pendulum.safetensors", "pictures.npz"]
)
def test_its_exported_policies_act_as_they_did(file: str, unpack: Unpack) -> None:
    recorded = unpack(file)
    shape = {"cartpole": (4,), "pendulum": (3,), "pictures": (3, 2, 8)}[Path(file).stem]
    obs = np.random.default_rng(0).uniform(0, 1, (8, *shape)).astype(np.float32)
    if file == "pictures.npz":
        obs = (obs * 255).astype(np.uint8)
    actions = load_policy(file).act({"obs": obs}, explore=False)
    np.testing.assert_allclose(actions, recorded["actions"][file], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", EVALUATED)
def test_its_exported_policies_play_and_are_exported_again(name: str, unpack: Unpack) -> None:
    file = f"{name}.safetensors"
    recorded = unpack(name, file)
    played = evaluate(file, episodes=3, seed=7)
    expected = recorded["evaluations"][name]
    assert played.return_mean == pytest.approx(expected["return_mean"], rel=1e-4)
    assert played.version == expected["version"]
    export_policy(name, "now.safetensors")
    now, before = read_policy("now.safetensors"), read_policy(file)
    assert (now.config, now.spaces) == (before.config, before.spaces)
    assert now.meta.keys() >= before.meta.keys()
    assert now.model.arrays.keys() == before.model.arrays.keys()
    for array, values in before.model.arrays.items():
        np.testing.assert_array_equal(now.model.arrays[array], values)


@pytest.mark.slow
@pytest.mark.skipif(find_spec("onnxruntime") is None, reason="onnxruntime is not installed")
def test_its_onnx_file_is_what_is_exported_now(unpack: Unpack) -> None:
    import onnxruntime

    unpack("cartpole", "cartpole.onnx")
    export_policy("cartpole", "now.onnx", format="onnx")
    obs = np.random.default_rng(0).uniform(-1, 1, (1, 4)).astype(np.float32)
    outputs = []
    for file in ("now.onnx", "cartpole.onnx"):
        session = onnxruntime.InferenceSession(file)
        names = [part.name for part in (*session.get_inputs(), *session.get_outputs())]
        outputs.append((names, session.run(None, {session.get_inputs()[0].name: obs})))
    assert outputs[0][0] == outputs[1][0]
    for now, before in zip(outputs[0][1], outputs[1][1], strict=True):
        np.testing.assert_allclose(now, before, rtol=1e-5)


@pytest.mark.parametrize("name", DAEMONS)
def test_its_replays_have_the_rows_that_they_had(name: str, unpack: Unpack) -> None:
    unpack(name, f"{name}-replay.npz")
    before = columns_of(f"{name}-replay.npz")
    now = exported_rows(name)
    assert_same_rows(now, before)
    assert len(now["reward"]) == len(before["reward"])


def test_a_run_of_daemons_goes_on(unpack: Unpack, daemons: Daemons) -> None:
    """No sample is lost or repeated, and what was learned stays."""
    recorded = unpack("cartpole", "cartpole-replay.npz", "demos.npz")["status"]["cartpole"]
    summary = go_on(daemons, "cartpole", "stop.max_env_steps=520")
    samples = summary["samples"]
    assert summary["epoch"] == recorded["epoch"] + 1
    assert summary["opt_steps"] > recorded["opt_steps"]
    assert summary["env_steps"] >= 520
    assert balances(samples)
    assert samples["lost"] == samples["duplicates"] == 0
    new = samples["inserted"] - recorded["samples"]["inserted"]
    assert 0 < new < recorded["replay"]["capacity"]
    now = exported_rows("cartpole")
    before = columns_of("cartpole-replay.npz")
    actors = before["source"] == now["source"][0]
    before = {name: column[actors] for name, column in before.items()}
    assert_same_rows(now, before, skipped=new)
    assert summary["eval"]["best_return_mean"] >= recorded["eval"]["best_return_mean"]
    steps = curves("cartpole")["eval/mean_reward"].steps
    assert len(steps) > 4
    assert (np.diff(steps) >= 0).all()


@pytest.mark.slow
def test_a_run_whose_machine_stopped_goes_on(unpack: Unpack, daemons: Daemons) -> None:
    """Rows that were not on its disk are counted as lost; no other one is, and none comes twice."""
    unpack("pictures", "pictures-replay.npz")
    before = columns_of("pictures-replay.npz")
    committed = last_commit(Path("pictures/replay")).inserted
    (begun,) = Checkpoints(Path("pictures/checkpoints"), keep=1).list()
    summary = go_on(daemons, "pictures", "stop.max_env_steps=280")
    samples = summary["samples"]
    assert summary["epoch"] == 2
    assert summary["opt_steps"] > int(begun.name)
    assert balances(samples)
    now = exported_rows("pictures")
    assert samples["inserted"] == len(now["reward"])
    assert len(before["reward"]) > 100
    assert samples["lost"] >= committed - len(before["reward"])
    assert_same_rows(now, before)
    from numbered_env import steps_of

    played = steps_of(now["obs"])
    assert len(np.unique(played, axis=0)) == len(played)
    np.testing.assert_array_equal(steps_of(now["next_obs"]) - played, [[0, 1]] * len(played))
    for uid in np.unique(played[:, 0]):  # what the last kill took is at its end
        steps = np.sort(played[played[:, 0] == uid, 1])
        np.testing.assert_array_equal(steps, np.arange(len(steps)))


@pytest.mark.slow
def test_a_loop_of_a_users_own_goes_on(unpack: Unpack, daemons: Daemons) -> None:
    recorded = unpack("loop", "loop-replay.npz")["status"]["loop"]
    address = free_address()
    loop = Daemon("loop", daemons, [sys.executable, "numbered_loop.py", "loop", str(address), "30"])
    daemons.started.append(loop)
    joined = ("--learner", address, "--count", 1, "--allow-import", "numbered_env")
    actors = daemons.start("actors", "actors", *joined)
    assert loop.wait(120.0) == 0, loop.log
    assert actors.wait(60.0) == 0, actors.log
    summary = summary_of("loop")
    samples = summary["samples"]
    assert summary["epoch"] == recorded["epoch"] + 1
    assert summary["opt_steps"] == recorded["opt_steps"] + 30
    assert balances(samples)
    assert samples["inserted"] > recorded["samples"]["inserted"]
    now = exported_rows("loop")
    before = columns_of("loop-replay.npz")
    assert_same_rows(now, before, skipped=max(0, samples["inserted"] - len(now["reward"])))


@pytest.mark.parametrize(("name", "until"), [("pendulum", 260), ("begun", 220), ("recorded", 150)])
def test_a_run_of_one_process_goes_on(name: str, until: int, unpack: Unpack) -> None:
    """Its samples are counted on, though its replay is gone with its process."""
    recorded = unpack(name)["status"][name]
    (saved,) = Checkpoints(Path(name, "checkpoints"), keep=1).list()
    accounting = json.loads((saved / "meta.json").read_text())["books"]
    assert accounting["produced"] == recorded["samples"]["produced"]
    summary = go_on_here(name, f"stop.max_env_steps={until}")
    samples = summary["samples"]
    assert summary["epoch"] == recorded["epoch"] + 1
    assert summary["opt_steps"] > recorded["opt_steps"]
    assert summary["env_steps"] >= until > recorded["env_steps"]
    assert balances(samples)
    assert samples["inserted"] > accounting["inserted"]
    assert samples["inserted"] - accounting["inserted"] == summary["replay"]["size"]
    (last,) = Checkpoints(Path(name, "checkpoints"), keep=1).list()
    meta = json.loads((last / "meta.json").read_text())
    assert meta["accounting"]["env_steps"] == summary["env_steps"]
    assert meta["accounting"]["sampled"] > accounting["sampled"]
    for curve in curves(name).values():
        assert (np.diff(curve.steps) >= 0).all()
        assert all(map(math.isfinite, curve.times))


@pytest.mark.parametrize("name", ["of-the-same-settings", "of-one-step", "of-pictures"])
def test_a_new_run_draws_from_its_rows_and_episodes(name: str, unpack: Unpack) -> None:
    """From as many as 9a998dc2 did; and it begins with the same weights, where it is asked to."""
    pytest.importorskip("minari")
    data = ("cartpole", "demos.npz", "collected", "loop", "loop-replay.npz", "loop-minari")
    recorded = unpack(*data)["new runs"][name]
    summary = go_on_here(name, *recorded["arguments"])
    assert len(summary["sources"]) == len(recorded["sources"]) > 0
    for now, before in zip(summary["sources"], recorded["sources"], strict=True):
        assert now.pop("share") > 0
        assert before.pop("share") > 0
        assert_says(now, before)
    saved = Checkpoints(Path(name, "checkpoints"), keep=1).list()[-1]
    init = json.loads((saved / "meta.json").read_text()).get("init")
    if recorded["init"] is None:
        assert init is None
    else:
        assert [init[key] for key in ("run_id", "taken", "left")] == [
            recorded["init"][key] for key in ("run_id", "taken", "left")
        ]


@pytest.mark.parametrize(
    "name",
    [
        "vedette_rl.envs.gamepad:GamepadTakeover",
        "vedette_rl.envs.takeover:KeyboardTakeover",
        "vedette_rl.networks.frozen_encoder:FrozenEncoder",
        "vedette_rl.testing:BitFlip",
        "vedette_rl.testing:Synthetic",
        "vedette_rl.testing:VisualReach",
        "vedette_rl.testing.inputs:BitFlip",
    ],
)
def test_names_that_its_pages_gave_to_configurations_resolve(name: str, unpack: Unpack) -> None:
    """In a saved configuration, too."""
    assert import_by_name("env.wrappers", name).__name__ == name.partition(":")[2]
    unpack("cartpole")
    file = Path("cartpole/config.toml")
    text = file.read_text("utf-8")
    assert "wrappers = []" in text
    wrapper = f"""wrappers = [{{ name = "{name}", kwargs = {{}} }}]"""
    file.write_text(text.replace("wrappers = []", wrapper), "utf-8")
    assert [wrapper.name for wrapper in read_config(file).env.wrappers] == [name]


def test_its_archive_is_small_and_names_no_machine(unpack: Unpack) -> None:
    unpack(*DAEMONS, *IN_PROCESS)
    assert (WRITTEN / "runs.tar.xz").stat().st_size < 300_000
    for name in (*DAEMONS, *IN_PROCESS):
        starts = read_provenance(RunDirectory(Path(name)))
        places = {(start.host, start.directory, start.platform) for start in starts}
        assert places == {("host", "/home/user/project", "Linux-x86_64")}
