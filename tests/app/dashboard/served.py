"""Serves a dashboard for a test, and asks it."""

from __future__ import annotations

import http.client
import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from email.message import Message
from pathlib import Path
from threading import Thread
from typing import Any, cast

from run_folders import make_run

from vedette.dashboard import Dashboard, DirectorySource
from vedette_services.net.addresses import Address
from vedette_services.net.http_server import BoundedHttpServer
from vedette_services.status.client import StatusClient
from vedette_services.status.status import (
    ActorStatus,
    Checkpoint,
    Eval,
    ManagerStatus,
    Samples,
    Status,
    WindowStatus,
)


@dataclass(frozen=True)
class Answer:
    """What the server has answered."""

    status: int
    headers: Message
    text: str

    @property
    def data(self) -> Any:
        """The object that the page's script draws."""
        text = self.text.partition('type="application/json">')[2]
        return json.loads(text.partition("</script>")[0])

    @property
    def runs(self) -> dict[str, str]:
        """Paths of the pages of runs, by name."""
        found = re.findall('<a href="(/run/[0-9a-f]{16})">([^<]*)</a>', self.text)
        return {name: path for path, name in found}


@dataclass(frozen=True)
class Served:
    """A server that runs."""

    port: int

    def get(self, path: str = "/", method: str = "GET", **headers: str) -> Answer:
        """Ask for a path as it is; `If_None_Match` is the header ``If-None-Match``."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.putrequest(method, path, skip_host="Host" in headers)
            for name, value in headers.items():
                connection.putheader(name.replace("_", "-"), value)
            connection.endheaders()
            answer = connection.getresponse()
            return Answer(answer.status, answer.headers, answer.read().decode())
        finally:
            connection.close()


@contextmanager
def serving(app: Dashboard | Path, port: int = 0) -> Iterator[Served]:
    """Serve a dashboard, or that of a directory."""
    app = Dashboard(DirectorySource(app)) if isinstance(app, Path) else app
    server = BoundedHttpServer("127.0.0.1", port, app)
    thread = Thread(target=server.serve_forever, args=(0.02,))  # it ends at once
    thread.start()
    try:
        yield Served(server.server_port)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def make_started_run(run: Path, **more: Any) -> Path:
    """Make the directory of a run as `make_run` does, in which a learner was started."""
    make_run(run, **more)
    (run / "run.json").write_text('{"run_id": "0123456789abcdef", "epoch": 1}')
    return run


def fleet_status(count: int, step: int = 1, **more: Any) -> Status:
    """The status of a training run with so many managers; some are in trouble."""
    fields: dict[str, Any] = {
        "run_id": "0123456789abcdef",
        "env": "CartPole-v1",
        "agent": "dqn",
        "epoch": 1,
        "phase": "training",
        "seconds": 60.0 + step,
        "time_s": 1_700_000_000.0 + step,
        "env_steps": 1000 * step,
        "opt_steps": 100 * step,
        "version": 100 * step,
        "samples": Samples(1000 * step, 1000 * step, 0, 0, 0, 0, 0),
        "record": {"loss": 1 / step},
        "eval": Eval(
            10.0 * step,
            1.0,
            9.0 * step,
            11.0 * step,
            10.0,
            20,
            0,
            90 * step,
            900 * step,
            10.0 * step,
            90 * step,
        ),
        "waits": "actors wait: the learner must draw 64 more samples",
        "checkpoint": Checkpoint(100 * step, 12.0),
        "window_limits": WindowStatus(64, 1 << 26),
        "managers_present": count,
        "managers": tuple(map(_manager, range(count))),
    }
    return Status(**{**fields, **more})


def _manager(number: int) -> ManagerStatus:
    silent = number % 30 == 29
    failing = number % 25 == 24
    error = "ValueError: the simulator's licence server does not answer" if failing else ""
    actors = [
        ActorStatus(i, not failing, 3 * failing, 5000, 40, 90, 21.5, 21.5, error) for i in range(8)
    ]
    state = "gone" if silent else "running"
    host = f"node-{number // 4:03}.cluster.example.org"
    window = WindowStatus(number % 64, 4096 * number)
    seen_s = 42.0 if silent else 0.3
    name = f"{host.partition('.')[0]}-{number % 4}"
    return ManagerStatus(
        name, number, host, state, False, 812.5, tuple(actors), 0, window, last_seen_s=seen_s
    )


class FakeClient:
    """Answers like a learner's status client, from a list; None: it does not answer."""

    def __init__(self, answers: Sequence[Status | Exception | None]) -> None:
        self.address = Address()
        self.answers = list(answers)
        self.asked = 0

    def ask(self, timeout_s: float) -> Status | None:
        """Give the next answer; the last one again and again."""
        answer = self.answers[min(self.asked, len(self.answers) - 1)]
        self.asked += 1
        if isinstance(answer, Exception):
            raise answer
        return answer

    def close(self) -> None:
        """Nothing is open."""

    @classmethod
    def of(cls, *answers: Status | Exception | None) -> StatusClient:
        """Make one that passes for a `StatusClient`."""
        return cast(StatusClient, cls(answers))
