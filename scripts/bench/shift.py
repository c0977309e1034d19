"""A robot comes back from a shift offline: what its outbox holds is uploaded while it plays on.

The outbox is made in advance, by the code that a manager writes it with. A manager with an actor of
one environment then sends it beside live samples, to a learner that trains, without a limiter and
with one. What the manager's log says about the time that is left is held against the time that it
took.
"""

from __future__ import annotations

import math
import re
import secrets
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import zmq

from bench.daemons import ask, learner_of, running
from bench.measuring import largest_resident_bytes
from bench.producer import payloads_of
from vedette.local.daemons import daemon_command, last_lines
from vedette_protocol.codec import decode_control
from vedette_protocol.messages import Run
from vedette_services.actors.outbox.files import OutboxFiles
from vedette_services.actors.outbox.outbox import Outbox
from vedette_services.config import RunConfig, load_config
from vedette_services.errors import ChildFailedError, NoAnswerError
from vedette_services.net.addresses import Address
from vedette_services.net.sockets import control_sub, manager_subscriptions
from vedette_services.status.client import StatusClient

_MANAGER = "robot"
_BATCH_ROWS = 16
_OUTBOX_BYTES = 16 << 30
_RUN_S = 60.0  # the longest wait for the learner's run
_POLL_S = 0.5
_LINE = re.compile(r"^(\S+) \w+ \S+: (.*)$")
_LEFT = re.compile(r"([\d,]+) samples from before are still to be sent: about (\S+) ")
_DONE = "the learner has what processes before this one have left"


@dataclass(frozen=True, slots=True)
class ShiftBench:
    """Uploads the samples of a shift, with the limiter off and on.

    Args:
        hours: of the shift.
        rate: steps a second of the robot, then and now.
        samples_per_insert: the limiter's, where it is on.
        warmup: samples before the first optimization step.
        directory: where the outbox is; None: in the place for temporary files.
        most_s: the longest that an upload may take.
    """

    hours: float = 8.0
    rate: float = 50.0
    samples_per_insert: float = 4.0
    warmup: int = 10_000
    directory: Path | None = None
    most_s: float = 7200.0

    def run(self) -> dict[str, Any]:
        """Measure both."""
        return {
            "rows": self._rows,
            "batch_rows": _BATCH_ROWS,
            "samples_per_insert": self.samples_per_insert,
            "warmup": self.warmup,
            "uploads": {
                "off": self._upload(0.0),
                "on": self._upload(self.samples_per_insert),
            },
        }

    @property
    def _rows(self) -> int:
        return round(self.hours * 3600 * self.rate)

    def _upload(self, samples_per_insert: float) -> dict[str, Any]:
        with (
            tempfile.TemporaryDirectory(prefix="vedette-shift-", dir=self.directory) as place,
            learner_of(self._config(samples_per_insert)) as (address, asker),
        ):
            outbox = Path(place) / "outbox"
            log = Path(place) / "manager.log"
            made_s = fill_outbox(outbox, learn_run(address), self._rows)
            size = sum(path.stat().st_size for path in outbox.iterdir())
            began = time.time()
            ours = ("--learner", str(address), "--id", _MANAGER, "--count", "1")
            command = daemon_command(
                "actors", *ours, "--outbox", str(outbox), "--allow-import", "vedette_rl"
            )
            with running([command], log=log) as (manager,):
                measured = self._follow(asker, manager, log, outbox)
                resident = largest_resident_bytes(manager.pid)
            return {
                "made_s": made_s,
                "outbox_bytes": size,
                "manager_resident_bytes": resident,
                **measured,
                **read_log(log, began),
            }

    def _follow(
        self, asker: StatusClient, manager: subprocess.Popen[bytes], log: Path, outbox: Path
    ) -> dict[str, Any]:
        """Watch the upload until all of it is safe."""
        before = set(outbox.glob("*.outbox"))
        deadline = time.monotonic() + self.most_s
        looks: list[tuple[float, int, int, int]] = []  # seconds, steps played, samples, opt steps
        stored_at = math.inf
        delay_s = 0.0
        while True:
            if (code := manager.poll()) is not None:
                said = "".join(last_lines(log, 1))
                raise ChildFailedError("manager of this measurement", code, said)
            now = time.monotonic()
            status = ask(asker)
            found = [each for each in status.managers if each.id == _MANAGER and each.actors]
            if found and found[0].actors[0].env_steps:
                played = found[0].actors[0].env_steps or 0
                looks.append((now, played, status.samples.inserted or 0, status.opt_steps or 0))
                delay_s = max(delay_s, found[0].window.delay_s or 0.0)
            if stored_at == math.inf and _DONE in log.read_text():
                stored_at = now
            is_safe = stored_at < math.inf and not any(path.exists() for path in before)
            if is_safe and len(looks) > 1:
                break
            if now > deadline:
                raise NoAnswerError("end of the upload", self.most_s)
            time.sleep(_POLL_S)
        begin, *first = looks[0]
        end, *last = next((look for look in looks[1:] if look[0] >= stored_at), looks[-1])
        live, inserted, opts = (
            (b - a) / max(1e-9, end - begin) for a, b in zip(first, last, strict=True)
        )
        accounting = ask(asker).samples
        return {
            "live_steps_per_s": live,
            "live_delay_s": delay_s,
            "inserted_per_s": inserted,
            "opt_steps_per_s": opts,
            "safe_after_stored_s": time.monotonic() - stored_at,
            "lost": accounting.lost,
            "duplicates": accounting.duplicates,
        }

    def _config(self, samples_per_insert: float) -> RunConfig:
        return load_config(
            env="vedette_rl.testing:Synthetic",
            agent="dqn",
            settings=[
                "agent.network=mlp",
                "agent.hidden_sizes=[64,64]",
                "agent.batch_size=64",
                "agent.n_step=1",
                f"env.kwargs.sleep_s={1.0 / self.rate}",
                "actors.envs_per_actor=1",
                f"actors.n_buffer={_BATCH_ROWS}",
                f"replay.capacity={2 * self._rows + 100_000}",
                f"replay.samples_per_insert={samples_per_insert}",
                f"learner.warmup_period={self.warmup}",  # by which the limiter's band is chosen
                "learner.device=cpu",
                "learner.eval_interval=0",
                "stop.max_seconds=100000",
            ],
        ).config


def learn_run(address: Address) -> Run:
    """Return the run that a learner announces.

    Raises:
        NoAnswerError: none, within a minute.
    """
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    control = control_sub(context, address, *manager_subscriptions(_MANAGER))
    try:
        deadline = time.monotonic() + _RUN_S
        while time.monotonic() < deadline:
            if control.poll(100):
                message = decode_control(control.recv_multipart()[1:])
                if isinstance(message, Run):
                    return message
        raise NoAnswerError("run of this measurement", _RUN_S)
    finally:
        context.destroy(linger=0)


def fill_outbox(directory: Path, run: Run, rows: int) -> float:
    """Write so many rows as a manager does that never reaches its learner; the seconds it took."""
    began = time.monotonic()
    files = OutboxFiles(directory, max_bytes=_OUTBOX_BYTES)
    window = Outbox(files).begin(run, _MANAGER, secrets.randbits(64), "block")
    payloads = payloads_of(run.schema, _BATCH_ROWS)
    for number in range(-(-rows // _BATCH_ROWS)):
        window.add_batch(0, run.epoch, 0, _BATCH_ROWS, payloads[number % len(payloads)])
    files.close()
    return time.monotonic() - began


def read_log(log: Path, began: float) -> dict[str, Any]:
    """Return what a manager's log says of an upload.

    Args:
        began: when the manager was started, in seconds since 1970.

    Returns:
        `uploaded_s`, from its start on, `upload_per_s`, and `said`: for each line about the time
        that is left its moment, the rows left, the seconds that it says, and those that it took.
    """
    lines = list(_timed_lines(log))
    rows = next(
        int(found.group(1).replace(",", ""))
        for _, text in lines
        if (found := re.search(r"holds ([\d,]+) samples of this run", text))
    )
    begins = next(at for at, text in lines if "samples of this run from before" in text)
    ended = next(at for at, text in lines if _DONE in text)
    said = [
        {
            "at_s": at - begins,
            "left": int(found.group(1).replace(",", "")),
            "said_s": _seconds(found.group(2)),
            "took_s": ended - at,
        }
        for at, text in lines
        if (found := _LEFT.search(text))
    ]
    return {
        "joined_s": begins - began,
        "uploaded_s": ended - begins,
        "uploaded_per_s": rows / (ended - begins),
        "said": said,
    }


def _timed_lines(log: Path) -> Iterator[tuple[float, str]]:
    for line in log.read_text().splitlines():
        if found := _LINE.match(line):
            yield datetime.fromisoformat(found[1]).timestamp(), found[2]


def _seconds(clock: str) -> float:
    """Read what `format_duration` writes: ``4``, ``3:05`` or ``2:03:05``."""
    parts = [float(part) for part in clock.split(":")]
    seconds = 0.0
    for part in parts:
        seconds = 60.0 * seconds + part
    return seconds
