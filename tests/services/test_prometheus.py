"""Prometheus reads the numbers of `status --json`, all of them and nothing else."""

from __future__ import annotations

import json
import re
import socket
import threading
import time
import urllib.request
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from vedette.local.daemons import free_port
from vedette_services.config import RunConfig
from vedette_services.errors import ServicesError, SettingError
from vedette_services.net.addresses import Address
from vedette_services.prometheus import (
    PREFIX,
    MetricsAddress,
    metrics,
    serve_metrics,
)
from vedette_services.status.assembly import assemble_known
from vedette_services.status.records import GatewayStatus, TrainerStatus
from vedette_services.status.schema import decode
from vedette_services.status.status import Checkpoint, Eval, Samples, SnapshotStatus, Status

ROOT = Path(__file__).resolve().parents[2]

SAID: dict[str, Any] = {
    "vedette": "0.1",
    "time_s": 1.5,
    "run_id": "r",
    "env": "CartPole-v1",
    "agent": "dqn",
    "epoch": 2,
    "version": 70,
    "opt_steps": 70,
    "env_steps": 1000,
    "exit_reason": "",
    "phase": "training",
    "waits": "",
    "seconds": 3.0,
    "stop": {"target_return": None},
    "samples": {
        "produced": 1000,
        "inserted": 900,
        "duplicates": 1,
        "rejected": 2,
        "dropped": 3,
        "lost": 4,
        "in_flight": 91,
    },
    "rates": {
        "samples_per_sec": 5.5,
        "opt_steps_per_sec": 6.5,
        "opt_steps_per_sec_mean": 6.0,
        "samples_per_opt_step": 12.9,
    },
    "time": {"training_s": 2.0, "optimizing_s": 1.0, "sampling_s": 0.5, "waiting_s": 0.2},
    "replay": {"size": 900, "capacity": 5000, "bytes": 90_000, "disk_lag_s": 2.5},
    "sources": [
        {"name": "demos", "size": 500, "share": 0.25, "episodes": 5, "return_mean": 200.0},
        {"name": "corrections", "size": 7},
    ],
    "limiter": {"samples_per_insert": 8.0, "state": "open", "reason": ""},
    "disk": {"free_bytes": 5000, "total_bytes": 90_000, "reserve_bytes": 800, "short": ""},
    "heartbeat": {"trainer_s": 0.5, "gateway_s": 0.1, "hung": 0, "reason": ""},
    "lag": {"mean": 1.0, "p95": 2.0, "max": 3.0, "seconds_mean": 0.1},
    "eval": {"return_mean": None, "best_return_mean": 20.5},
    "garbage": 0,
    "refused": {"keys": 0, "ids": 0, "handshakes": 1},
    "record": {"loss": 0.25, "q.mean": 9.0},
    "managers": [
        {
            "id": "m",
            "host": 'h"1',
            "state": "running",
            "window": {"batches": 1, "bytes": 10, "delay_s": 0.5},
            "last_seen_s": 0.2,
            "actors": [
                {
                    "id": 0,
                    "alive": True,
                    "restarts": 1,
                    "env_steps": 600,
                    "episodes": 9,
                    "version": 60,
                    "return_mean": 12.5,
                    "length_mean": None,
                    "error": "",
                }
            ],
        },
        {
            "id": "old",
            "host": "h",
            "state": "gone",
            "actors": [],
            "window": {"batches": 0, "bytes": 0},
            "last_seen_s": 99.0,
        },
    ],
}
STATUS = decode(Status, json.dumps(SAID).encode()) or Status()


@pytest.fixture
def scraped() -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    place = MetricsAddress("127.0.0.1", free_port())
    close = serve_metrics(place, lambda: STATUS)
    try:
        with urllib.request.urlopen(
            f"http://{place.host}:{place.port}/metrics", timeout=10
        ) as said:
            families = list(text_string_to_metric_families(said.read().decode()))
    finally:
        close()
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
    }


def leaves(part: Mapping[str, Any]) -> Iterator[float]:
    """Every number and truth of a status, wherever it stands."""
    for name, value in part.items():
        if isinstance(value, Mapping):
            yield from leaves(value)
        elif isinstance(value, list):
            for entry in value:
                yield from leaves({**entry, "id": None})
        elif isinstance(value, int | float) and name != "id":
            yield float(value)


def test_every_number_of_the_status_is_there(
    scraped: dict[tuple[str, frozenset[tuple[str, str]]], float],
) -> None:
    words = 4 + len(STATUS.managers)  # run, phase, exit_reason, limiter_state, and who is present
    assert sorted([*leaves(STATUS.as_dict())]) == sorted(
        value for (name, _), value in scraped.items() if name not in _WORDS
    )
    assert len(scraped) == len([*leaves(STATUS.as_dict())]) + words


_WORDS = {
    "vedette_run",
    "vedette_phase",
    "vedette_exit_reason",
    "vedette_limiter_state",
    "vedette_manager_present",
}


def test_names_are_paths_and_what_only_grows_is_a_counter(
    scraped: dict[tuple[str, frozenset[tuple[str, str]]], float],
) -> None:
    none: frozenset[tuple[str, str]] = frozenset()
    manager = frozenset({("manager", "m"), ("host", 'h"1')})
    assert scraped["vedette_opt_steps", none] == 70, "it falls to that of a checkpoint"
    assert scraped["vedette_samples_inserted_total", none] == 900
    assert scraped["vedette_samples_in_flight", none] == 91
    assert scraped["vedette_lag_p95", none] == 2.0
    assert scraped["vedette_manager_window_bytes", manager] == 10
    assert scraped["vedette_actor_env_steps_total", manager | {("actor", "0")}] == 600
    assert scraped["vedette_record", frozenset({("name", "q_mean")})] == 9.0
    assert scraped["vedette_source_share", frozenset({("source", "demos")})] == 0.25
    assert scraped["vedette_source_size", frozenset({("source", "corrections")})] == 7
    assert scraped["vedette_phase", frozenset({("phase", "training")})] == 1.0


def test_counts_of_the_run_are_not_served_before_they_are_known() -> None:
    """A counter that falls to 0 and comes back has grown by all of it for Prometheus."""
    table = {"env": {"id": "CartPole-v1"}, "agent": {"name": "dqn"}}
    config = RunConfig.model_validate(table)

    def found(learning: TrainerStatus, ingest: GatewayStatus) -> dict[str, float]:
        status = assemble_known("r", config, learning, ingest, Eval())
        return {m.name: m.value for m in metrics(status)}

    opened = GatewayStatus(samples=Samples(*[5000] * 7), env_steps=6000)
    resumed = TrainerStatus(epoch=2, opt_steps=99_000)
    known = found(resumed, opened)
    assert (known["env_steps"], known["samples_inserted"], known["opt_steps"]) == (
        6000,
        5000,
        99000,
    )
    of_the_gateway = {"env_steps", *(name for name in known if name.startswith("samples_"))}
    of_the_gateway |= {"rates_samples_per_opt_step"}
    missing = known.keys() - found(resumed, GatewayStatus()).keys()
    assert of_the_gateway <= missing
    assert {"opt_steps", "version", "epoch"} <= known.keys() - found(TrainerStatus(), opened).keys()


def test_the_dashboard_asks_for_nothing_that_is_not_there() -> None:
    dashboard = (ROOT / "deploy" / "grafana" / "vedette.json").read_text()
    asked = [
        target["expr"]
        for panel in json.loads(dashboard)["panels"]
        for target in panel.get("targets", ())
    ]
    assert len(asked) > 15
    assert names_in(asked) - served() == set()


def test_every_alert_is_of_numbers_that_are_there_and_says_what_is_wrong() -> None:
    yaml = pytest.importorskip("yaml")
    text = (ROOT / "deploy" / "prometheus" / "vedette.rules.yml").read_text()
    (group,) = yaml.safe_load(text)["groups"]
    alerts = {rule["alert"]: rule for rule in group["rules"]}
    named = {"VedetteCheckpointFails", "VedetteCheckpointOld", "VedetteStandsStill"}
    assert named | {"VedetteDiskFull", "VedetteSnapshotFails"} < alerts.keys()
    for rule in alerts.values():
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert rule["annotations"]["summary"]
    assert names_in([rule["expr"] for rule in alerts.values()]) - served() == set()


def names_in(expressions: list[str]) -> set[str]:
    return {name for expr in expressions for name in re.findall(r"vedette_\w+", expr)}


def served() -> set[str]:
    """The names of all metrics, once everything is known."""
    known = Eval(*[1] * len(fields(Eval)))
    status = replace(
        STATUS,
        eval=known,
        checkpoint=Checkpoint(70, 1.5),
        snapshot=SnapshotStatus("/mnt/nas", "written", 3, 5.0, 900, 12, 60, 2, 0),
        managers_present=1,
    )
    return {f"{PREFIX}_{m.name}{'_total' if m.counts else ''}" for m in metrics(status)}


def test_a_failing_checkpoint_is_a_number_that_an_alert_can_ask_for() -> None:
    status = replace(STATUS, checkpoint=Checkpoint(70, 90.0, 3, "No space left on device"))
    found = {m.name: m.value for m in metrics(status)}
    assert found["checkpoint_opt_steps"] == 70
    assert found["checkpoint_age_s"] == 90.0
    assert found["checkpoint_failures"] == 3


def test_a_taken_port_is_said_in_a_line() -> None:
    place = MetricsAddress("127.0.0.1", free_port())
    close = serve_metrics(place, lambda: STATUS)
    try:
        with pytest.raises(ServicesError, match="choose another port"):
            serve_metrics(place, lambda: STATUS)
    finally:
        close()


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [("9108", "127.0.0.1", 9108), ("0.0.0.0:9108", "0.0.0.0", 9108), ("[::]:9108", "::", 9108)],
)
def test_a_bare_port_is_this_machines_alone(text: str, host: str, port: int) -> None:
    assert MetricsAddress.parse(text) == MetricsAddress(host, port)


@pytest.mark.parametrize("text", ["", "x", "0", "host:", "65536", "host:x"])
def test_what_is_no_port_is_refused(text: str) -> None:
    with pytest.raises(SettingError, match="--metrics-port"):
        MetricsAddress.parse(text)


def scrape(place: MetricsAddress) -> str:
    with urllib.request.urlopen(f"http://{place.host}:{place.port}/metrics", timeout=10) as said:
        text: str = said.read().decode()
    return text


def test_two_that_scrape_at_once_read_one_after_the_other() -> None:
    reading = threading.Lock()

    def read() -> Status:
        assert reading.acquire(blocking=False), "two read at once"
        time.sleep(0.05)
        reading.release()
        return STATUS

    place = MetricsAddress("127.0.0.1", free_port())
    close = serve_metrics(place, read)
    try:
        with ThreadPoolExecutor(4) as pool:
            assert all("vedette_run" in text for text in pool.map(scrape, [place] * 8))
    finally:
        close()


def test_a_name_is_resolved_as_every_other_address_is(monkeypatch: pytest.MonkeyPatch) -> None:
    place = MetricsAddress("metrics.test", free_port())
    monkeypatch.setattr(Address, "resolved", lambda self: [Address("127.0.0.1", self.port)])
    close = serve_metrics(place, lambda: STATUS)
    socket.create_connection(("127.0.0.1", place.port), timeout=10).close()
    close()


def test_a_name_that_does_not_resolve_is_said_in_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "unknown")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with pytest.raises(ServicesError, match=r"host 'nowhere\.test' does not resolve"):
        serve_metrics(MetricsAddress("nowhere.test", 9108), lambda: STATUS)
