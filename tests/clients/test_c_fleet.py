"""C clients beside Python actors on a real learner: real kills, and the proof in the replay."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from c_programs import Built
from counting_run import ENVS, N_BUFFER, CountingRun
from daemons import Daemon, Daemons, free_address, inserted
from test_frames_run import STACK, assert_every_picture_is_where_it_belongs
from test_killed_keys import assert_keys_are_right

from vedette_rl.replay.export import LiveRows
from vedette_services.net.keys import make_keys

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
WINDOW_ROWS = 64 * N_BUFFER


def start_client(run: CountingRun, program: Path, name: str, *keys: Path) -> Daemon:
    """Start a C client that counts, as one of the run's managers."""
    host, port = str(run.address).rsplit(":", 1)
    house = run.learner.house
    words = [program, host, port, name, run.tally, ENVS, *keys]
    client = Daemon(name, house, [str(word) for word in words])
    house.started.append(client)
    run.clients.append(client)
    return client


def test_c_and_python_actors_share_a_run_whose_learner_and_client_are_killed(
    built: Built, fleet: Daemons
) -> None:
    program = built("tests/clients/counting.c")
    run = CountingRun(fleet)
    run.start_manager("python")
    start_client(run, program, "c-1")
    killed = start_client(run, program, "c-2")
    run.flows()
    before = inserted(run.address)
    run.learner.kill9()
    run.start_learner()
    assert run.flows() > before
    killed.kill9()
    start_client(run, program, "c-2")  # the same id, another incarnation
    run.flows()
    run.learner.kill9()
    run.start_learner()
    run.flows()
    proof, accounting = run.finish()
    assert proof.environments == 4 * ENVS, f"{proof}"
    assert set(proof.missing) <= {killed.pid}, f"{proof}, {accounting}"
    assert proof.missing.get(killed.pid, 0) <= WINDOW_ROWS, f"{proof}"
    assert accounting["lost"] <= proof.missing.get(killed.pid, 0), f"{proof}, {accounting}"
    assert accounting["in_flight"] == accounting["rejected"] == 0, f"{accounting}"


def test_rows_of_c_clients_say_which_of_them_follow_one_another(
    built: Built, fleet: Daemons
) -> None:
    program = built("tests/clients/counting.c")
    run = CountingRun(fleet, "agent.n_step=3", "replay.sequence=8", agent="sequence_dqn:Dqn")
    start_client(run, program, "c-1")
    killed = start_client(run, program, "c-2")
    run.flows()
    run.learner.kill9()
    run.start_learner()
    run.flows()
    killed.kill9()
    start_client(run, program, "c-2")
    run.flows()
    run.finish()
    with LiveRows(run.run / "replay") as live:
        columns = {name: live.column(name) for name in live.names}
    assert_keys_are_right(columns)


def test_a_c_client_with_keys_shares_frames_and_loses_none(
    built: Built, fleet: Daemons, tmp_path: Path
) -> None:
    program = built("tests/clients/counting.c")
    keys = tmp_path / "keys"
    make_keys(keys, ["host"])
    pictures = "counting_env:CountPictures-v0"
    run = CountingRun(fleet, f"env.frame_stack={STACK}", env=pictures, keys=keys)
    start_client(run, program, "c-1", keys / "hosts" / "host")
    start_client(run, program, "c-2", keys / "hosts" / "host")
    run.flows()
    run.learner.kill9()
    run.start_learner()
    run.flows()
    accounting = run.stop()
    with LiveRows(run.run / "replay") as live:
        assert live.manifest.shared is not None
        rows = assert_every_picture_is_where_it_belongs(live)
    assert len({(uid, t) for uid, t in rows.tolist()}) == len(rows) == accounting["inserted"]
    assert accounting["produced"] == accounting["inserted"], f"{accounting}"


def test_a_c_client_that_may_never_join_exits_with_3_and_says_why(
    built: Built, fleet: Daemons, tmp_path: Path
) -> None:
    keys, other, outsider = tmp_path / "keys", tmp_path / "other", tmp_path / "outsider"
    make_keys(keys, ["host", "h-2"])
    make_keys(other, ["host"])
    shutil.copytree(other / "hosts" / "host", outsider)
    shutil.copy(keys / "hosts" / "host" / "learner.toml", outsider)
    addresses = {}
    for name, secured in (("secured", ("--keys", keys)), ("plain", ("--insecure",))):
        addresses[name] = free_address()
        words = ("learner", "--env", "CartPole-v1", "--bind", addresses[name], *secured)
        fleet.start(name, *words, "--out", tmp_path / name)

    def why_refused(learner: str, *folder: Path) -> str:
        program = built("clients/c/examples/cartpole.c")
        host, port = str(addresses[learner]).rsplit(":", 1)
        done = subprocess.run(
            [program, host, port, "host", *folder], capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 3, done.stdout + done.stderr
        return done.stderr

    assert "lets in only known keys" in why_refused("secured")
    assert "another key than learner.toml" in why_refused("secured", other / "hosts" / "host")
    assert "refused this key; `vedette keys list`" in why_refused("secured", outsider)
    assert "runs without keys" in why_refused("plain", keys / "hosts" / "host")
    taken = why_refused("secured", keys / "hosts" / "h-2")
    assert "the manager id 'host' belongs to another key; choose another id (--id)" in taken


def test_a_c_client_ends_with_its_run(built: Built, fleet: Daemons) -> None:
    run = CountingRun(fleet, "stop.max_env_steps=2000")
    client = start_client(run, built("tests/clients/counting.c"), "c-1")
    assert client.wait(60.0) in (0, 1)  # 1: the run was over before its last rows were taken
    assert run.learner.wait(60.0) == 0
    assert run.summary["exit_reason"] == "max_env_steps"
