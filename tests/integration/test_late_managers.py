"""A learner whose run is over tells whoever comes late, for a while."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from daemons import Daemons, free_address, status, wait_for
from gateway_process import N_BUFFER, GatewayProcess, HonestManager

from vedette.doctor import Examination

OVER = "the run is over (max_opts)"


@pytest.fixture
def daemons(tmp_path: Path) -> Iterator[Daemons]:
    with Daemons(tmp_path) as daemons:
        yield daemons


def test_a_gateway_answers_late_managers_until_it_is_stopped(
    tmp_path: Path, daemons: Daemons
) -> None:
    with GatewayProcess(tmp_path) as gateway:
        gateway.status()
        gateway.finish("max_opts")
        wait_for(lambda: gateway.status()["phase"] == "done", "end")
        late = daemons.start("late", "actors", "--learner", gateway.address, "--count", 1)
        assert late.wait(60) == 0
        assert OVER in late.log
        findings = list(Examination(gateway.address).findings())
        assert (findings[-1].check, findings[-1].message) == ("run", "it is over (max_opts)")
        assert gateway.stop() == 0


def test_the_end_waits_for_a_manager_of_an_earlier_gateway_that_is_not_back_yet(
    tmp_path: Path,
) -> None:
    """Rows that it had told of are not lost, though the run is over before it is back."""
    with GatewayProcess(tmp_path) as gateway, closing(HonestManager(gateway)) as honest:
        honest.send_some(2)
        holds = {"produced": 3 * N_BUFFER, "window_batches": 1, "window_rows": N_BUFFER}
        honest.push(honest.report(**holds, sequenced=3))
        wait_for(lambda: gateway.status()["samples"]["produced"] == 3 * N_BUFFER, "report")
        gateway.end()
        gateway.finish("max_opts")
        gateway.start()
        honest.send_some(1, timeout_s=30.0)
        honest.push(honest.report(state="gone"))
        wait_for(lambda: not gateway.status()["managers_present"], "end")
        samples = gateway.status()["samples"]
        assert (samples["inserted"], samples["lost"]) == (3 * N_BUFFER, 0)
        assert gateway.stop() == 0


@pytest.mark.slow
def test_a_learner_stays_for_late_managers_and_ctrl_c_ends_that(
    tmp_path: Path, daemons: Daemons
) -> None:
    run = tmp_path / "run"
    learner = daemons.start(
        "learner",
        "learner",
        "--env",
        "CartPole-v1",
        "--agent",
        "dqn",
        "--out",
        run,
        "--linger",
        "inf",
        "--bind",
        free_address(),
        "stop.max_seconds=1",
    )
    summary = run / "summary.json"
    wait_for(lambda: summary.exists() and json.loads(summary.read_text())["exit_reason"], "summary")
    wait_for(lambda: "for late actor hosts" in learner.log, "word that it stays")
    late = daemons.start("late", "actors", "--learner", f"@{run}", "--count", 1)
    assert late.wait(60) == 0
    assert "the run is over (max_seconds)" in late.log
    assert learner.running
    learner.send_group(signal.SIGINT)
    assert learner.wait(10) == 0
    assert not (run / "learner.json").exists()
    assert "Traceback" not in learner.log


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_manager_that_was_stopped_over_the_end_finds_it_in_its_connection(
    tmp_path: Path, daemons: Daemons
) -> None:
    """Though nobody lingers: what was sent while it was stopped is there when it goes on."""
    address = free_address()
    learner = daemons.start(
        *("learner", "learner", "--env", "CartPole-v1", "--agent", "dqn"),
        *("--out", tmp_path / "run", "--bind", address, "--linger", "0"),
        *("preset=none", "agent.hidden_sizes=[16]", "learner.warmup_period=100"),
        *("learner.eval_interval=0", "actors.count=1", "stop.max_seconds=15"),
    )
    manager = daemons.start("m", "actors", "--learner", address, "--count", 1)
    wait_for(lambda: status(address).get("opt_steps"), "training")
    manager.send(signal.SIGSTOP)
    assert learner.wait(120) == 0  # its gateway has waited 5 s for it
    manager.send(signal.SIGCONT)
    assert manager.wait(60) == 0
    assert "the run is over (max_seconds)" in manager.log


def test_the_status_of_a_run_that_is_over_is_still_told(tmp_path: Path) -> None:
    with GatewayProcess(tmp_path) as gateway:
        gateway.status()
        gateway.finish("target_return")
        wait_for(lambda: status(gateway.address).get("phase") == "done", "end")
        assert gateway.status()["exit_reason"] == "target_return"
