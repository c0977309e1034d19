"""The status: the names that others read, and JSON of any origin."""

import io
import json
import re
import threading
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import zmq
from hypothesis import given
from hypothesis import strategies as st

from vedette.live import print_once
from vedette.local.daemons import free_port
from vedette.reports.charts import CHART_SPECS
from vedette_protocol import messages
from vedette_protocol.codec import encode as encode_message
from vedette_protocol.messages import ActorReport, Report
from vedette_services.config import RunConfig
from vedette_services.learner.gateway.fleet import Fleet
from vedette_services.net import sockets
from vedette_services.net.addresses import Address
from vedette_services.prometheus import PREFIX, metrics
from vedette_services.status.assembly import assemble_known, counted
from vedette_services.status.client import StatusClient
from vedette_services.status.records import GatewayStatus, TrainerStatus
from vedette_services.status.schema import (
    Count,
    Part,
    declared,
    decode,
    encode,
    printable_json,
    tagged,
)
from vedette_services.status.status import (
    ActorStatus,
    Eval,
    Lag,
    ManagerStatus,
    ReplayStatus,
    Samples,
    Status,
    StopStatus,
    rollout_of,
)
from vedette_services.status.text import status_line, summary_lines

NAMES = json.loads((Path(__file__).parent / "status_names.json").read_text())
"""What there was on 2026-11-22: dashboards, scripts and older versions read them."""


def whole_status() -> Status:
    """A status of which everything is known."""
    fleet = Fleet()
    actor = ActorReport(0, True, 1, 10, 2, 5, 1.0, 2.0, "no")
    report = Report(
        manager="m",
        incarnation=1,
        host="h",
        state="running",
        run_id="r",
        produced=10,
        dropped=0,
        window_batches=1,
        window_rows=2,
        window_bytes=3,
        sequenced=0,
        actors=(actor,),
    )
    fleet.on_report(report, 0.0)
    table = {"env": {"id": "CartPole-v1"}, "agent": {"name": "dqn"}, "stop": {"target_return": 1}}
    config = RunConfig.model_validate(table)
    replay = ReplayStatus(size=1, bytes=1)
    gateway = GatewayStatus(
        samples=Samples(*[1] * 7), managers=fleet.status(1.0), replay=replay, lag=Lag(*[1.0] * 4)
    )
    texts = {"played_by": "manager m", "shown_by": "manager n", "confirming": "version 1"}
    seen = Eval(**{f.name: texts.get(f.name, 1) for f in fields(Eval)})
    drawn = Lag(sample_mean=1.0, sample_p95=1.0, sample_max=1.0)
    learning = TrainerStatus(
        epoch=1, opt_steps=5, record={"loss": 1.0}, lag=drawn, limiter_origin=(0, 0)
    )
    return counted(assemble_known("r", config, learning, gateway, seen))


def test_what_nothing_was_measured_of_is_not_known() -> None:
    table = {"env": {"id": "CartPole-v1"}, "agent": {"name": "dqn"}}
    config = RunConfig.model_validate(table)

    def with_samples(inserted: int, sampled: int) -> Status:
        learning = TrainerStatus(epoch=1, sampled=sampled)
        ingest = GatewayStatus(samples=Samples(inserted=inserted))
        return assemble_known("r", config, learning, ingest, Eval())

    warmup = config.learner.warmup_period
    warming_up = with_samples(warmup, 0)
    assert warming_up.limiter.samples_per_insert is None
    assert warming_up.lag == Lag()
    begins = counted(assemble_known("r", config, TrainerStatus(), GatewayStatus(), Eval()))
    compared = (begins.epoch, begins.opt_steps, begins.env_steps, begins.samples.inserted)
    assert compared == (0, 0, 0, 0), "scripts compare them"
    assert (begins.replay.size, begins.lag.mean, begins.limiter.samples_per_insert) == (0, 0.0, 0.0)
    assert with_samples(warmup + 10, 0).limiter.samples_per_insert == 0.0
    assert with_samples(warmup + 10, 40).limiter.samples_per_insert == 4.0


def paths(part: Any, *path: str) -> Iterator[str]:
    """The places of the values of a JSON object."""
    if isinstance(part, dict | list):
        for name, value in part.items() if isinstance(part, dict) else (("*", v) for v in part):
            yield from paths(value, *path, name)
    else:
        yield ".".join(path)


def test_json_tags_and_metrics_have_the_names_that_they_had() -> None:
    status = whole_status()
    assert set(NAMES["json"]) <= set(paths(status.as_dict()))
    assert set(NAMES["tags"]) <= set(tagged(status))
    found = {f"{PREFIX}_{m.name}{'_total' if m.counts else ''}" for m in metrics(status)}
    assert set(NAMES["prometheus"]) <= found


def test_every_number_is_described_and_every_charted_one_has_a_tag() -> None:
    numeric = {Count, Count | None, float, float | None, bool, int, int | None}

    def walk(kind: type[Part]) -> Iterator[str]:
        for f in fields(kind):
            if f.type in numeric and f.name != "id" and "number" not in f.metadata:
                yield f"{kind.__name__}.{f.name}"
            if is_dataclass(f.default):
                yield from walk(type(f.default))  # type: ignore[arg-type]  # its default is an instance

    assert [*walk(Status), *walk(ManagerStatus), *walk(ActorStatus)] == []
    charted = [number for _, number in declared(Status) if number.chart]
    assert all(number.tags and number.title for number in charted)
    drawn = {tag for spec in CHART_SPECS for tag, _ in spec.curves}
    assert {number.tags[0] for number in charted} <= drawn


def test_a_status_is_read_as_it_was_written() -> None:
    status = whole_status()
    assert decode(Status, encode(status)) == status
    assert json.loads(encode(status)) == status.as_dict()
    assert status["samples"]["inserted"] == status.samples.inserted == 1


def test_half_a_character_is_written_and_read() -> None:
    found = decode(Status, encode(Status(waits="a\udc80", run_id="r")))
    assert found == Status(waits="a?", run_id="r")


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ({"opt_steps": True, "env_steps": 4}, Status(env_steps=4)),
        ({"opt_steps": "7", "waits": None, "run_id": 3, "epoch": 2}, Status(epoch=2)),
        ({"stop": {"max_opts": 1.5, "max_seconds": 3}}, Status(stop=StopStatus(max_seconds=3.0))),
        ({"record": {"a": 1, "b": "x"}, "more": {"from": "later"}}, Status(record={"a": 1.0})),
        ({"samples": 3, "managers": {"a": 1}, "eval": []}, Status()),
        ({"seconds": float("nan"), "epoch": 10**400, "time_s": float("inf")}, Status()),
    ],
)
def test_what_is_unknown_or_of_a_wrong_type_is_left_out(
    said: dict[str, Any], found: Status
) -> None:
    assert decode(Status, json.dumps(said).encode()) == found


@pytest.mark.parametrize("text", [b"", b"{", b"[1]", b"3", b"null", b"[" * 100_000, b"\xff"])
def test_what_is_no_json_object_is_no_status(text: bytes) -> None:
    assert decode(Status, text) is None


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)


@given(st.data())
def test_whatever_a_learner_answers_is_shown(data: st.DataObject) -> None:
    said = whole_status().as_dict()
    for _ in range(data.draw(st.integers(1, 5))):
        here = said
        while True:
            name = data.draw(st.sampled_from(sorted(here)))
            if isinstance(here[name], list) and here[name]:
                here[name] = [here[name][0], data.draw(_JSON)]
                inside = here[name][0]
            else:
                inside = here[name]
            if not isinstance(inside, dict) or not inside or data.draw(st.booleans()):
                here[name] = data.draw(_JSON)
                break
            here = inside
    found = decode(Status, json.dumps(said).encode())
    assert found is not None
    assert status_line(found)
    assert summary_lines(found, "runs/x")
    assert list(metrics(found))
    print_once(found, io.StringIO())
    assert decode(Status, encode(found)) is not None


HOSTILE = "\x1b]0;x\x07evil\r\n\u202e\ud800 \x9b2J"


def test_texts_of_a_learner_are_printable_lines() -> None:
    said = {
        "waits": HOSTILE,
        "record": {HOSTILE: 1.0},
        "managers": [{"id": HOSTILE}],
        "x": [HOSTILE],
    }
    found = printable_json(json.dumps(said).encode())
    assert found is not None
    assert json.loads(found)["managers"][0]["id"].isprintable()
    texts = [*paths(json.loads(found)), *re.findall('"([^"]*)"', json.dumps(json.loads(found)))]
    assert all(json.loads(f'"{text}"').isprintable() for text in texts)
    whole = whole_status()
    assert decode(Status, printable_json(encode(whole)) or b"") == whole


@pytest.mark.parametrize("text", [b"", b"{", b"[1]", b"3", b"null", b"[" * 100_000, b"\xff"])
def test_what_is_no_json_object_has_no_texts(text: bytes) -> None:
    assert printable_json(text) is None


def test_a_learner_sends_no_escape_sequence_to_who_asks_for_its_status() -> None:
    address = Address("127.0.0.1", free_port())
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    learner = sockets.control_xpub(context, address, None)

    def answer() -> None:
        for waits in (HOSTILE, HOSTILE):
            event = b""
            while event[:1] != b"\x01":
                event = learner.recv()
            text = json.dumps({"run_id": "r", "waits": waits}).encode()
            learner.send_multipart([event[1:], *encode_message(messages.Status(text))])

    thread = threading.Thread(target=answer)
    thread.start()
    with StatusClient(address) as asker:
        text, found = asker.ask_json(10.0), asker.ask(10.0)
    thread.join(10.0)
    context.destroy(linger=0)
    assert text is not None
    assert json.loads(text)["waits"].isprintable()
    assert found is not None
    assert found.waits.isprintable()
    assert "evil" in found.waits


def test_at_the_end_the_returns_of_managers_that_have_left_are_known() -> None:
    """All have left then: the last line had no return of the actors."""
    actor = ActorStatus(return_mean=30.0, length_mean=30.0)
    left = ManagerStatus(state="gone", left=True, actors=(actor,))
    silent = ManagerStatus(state="gone", actors=(replace(actor, return_mean=9.0),))
    assert rollout_of([left, silent]).return_mean is None
    assert rollout_of([left, silent], left=True).return_mean == 30.0
