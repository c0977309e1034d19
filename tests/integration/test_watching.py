"""Metrics and logs of real daemons: the numbers of the status, and where every line comes from."""

from __future__ import annotations

import json
import urllib.request
from typing import Any

from daemons import Daemon, Daemons, free_address, status, wait_for
from prometheus_client.parser import text_string_to_metric_families

from vedette_services.net.addresses import Address
from vedette_services.prometheus import metrics
from vedette_services.status.schema import decode
from vedette_services.status.status import Status

GROWS = ("samples_inserted", "samples_produced", "opt_steps", "env_steps", "replay_size")


def scraped(port: int) -> dict[str, float]:
    """Every number without a label, by its name."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as said:
        families = text_string_to_metric_families(said.read().decode())
        return {
            sample.name.removeprefix("vedette_").removesuffix("_total"): sample.value
            for family in families
            for sample in family.samples
            if not sample.labels
        }


def flat(found: dict[str, Any]) -> dict[str, float]:
    told = decode(Status, json.dumps(found).encode()) or Status()
    return {metric.name: metric.value for metric in metrics(told) if not metric.labels}


def lines(daemon: Daemon) -> list[dict[str, Any]]:
    return [json.loads(line) for line in daemon.log.splitlines()]


def assert_between(address: Address, port: int) -> None:
    """What is scraped is what the status was a moment ago, and is again a moment later."""

    def reached(now: dict[str, float], then: dict[str, float]) -> bool:
        return all(now[name] >= then[name] for name in GROWS)

    before = flat(status(address))
    wait_for(lambda: reached(scraped(port), before), "number of the status to be scraped")
    found = scraped(port)
    wait_for(lambda: reached(flat(status(address)), found), "number scraped to be in the status")
    after = flat(status(address))
    assert set(before) & set(after) <= set(found)
    for name in ("epoch", "replay_capacity", "stop_target_return"):
        assert before[name] == found[name] == after[name]


def test_metrics_are_the_statuss_numbers_and_logs_say_where_they_come_from(
    daemons: Daemons,
) -> None:
    address = free_address()
    port = free_address().port
    how = ("--log-format", "json")
    learner = daemons.start(
        "learner",
        "learner",
        "--bind",
        address,
        "--out",
        daemons.place / "run",
        *how,
        "--metrics-port",
        port,
        "stop.target_return=1000",
        "learner.record_agent_info_interval=10",  # lags of what is drawn are known from then on
    )
    manager = daemons.start(
        "actors", "actors", "--learner", address, "--count", 1, "--id", "{host}-m", *how
    )
    wait_for(lambda: status(address).get("opt_steps", 0) > 20, "optimization step")
    assert_between(address, port)
    assert manager.stop() == 0
    assert learner.stop(60.0) == 0
    run_id = json.loads((daemons.place / "run" / "summary.json").read_text())["run_id"]
    for daemon in (learner, manager):
        for line in lines(daemon):
            assert {"run", "epoch", "host", "manager", "actor", "message"} < set(line)
    gateway = [line for line in lines(learner) if line["logger"] == "vedette.gateway"]
    assert {(line["run"], line["epoch"]) for line in gateway} == {(run_id, 1)}
    played = [line for line in lines(manager) if line["message"].startswith("ending")]
    assert [(line["run"], line["epoch"]) for line in played] == [(run_id, 1)]
    assert all(line["manager"].endswith("-m") for line in lines(manager))
