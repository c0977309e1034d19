"""The rules of the wire that a client keeps, a watcher of what it sends, its process and sockets.

`Watcher` checks what always holds. What only a certain event shows, `vedette.conformance` plays.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from vedette_protocol import topics
from vedette_protocol.codec import decode_control, decode_up, encode
from vedette_protocol.column import Columns
from vedette_protocol.errors import ProtocolError
from vedette_protocol.messages import Ack, Batch, Buffer, ModelChunk, Report, Run
from vedette_protocol.model import pack_model, split_into_chunks
from vedette_protocol.packing import pack, unpack
from vedette_rl.agents.recurrent_policy import MEMORY, RecurrentPolicy
from vedette_rl.agents.registry import agent_kind
from vedette_rl.core import ModelInfo
from vedette_rl.core.columns import BEGINS, ENV, TIME, select_part
from vedette_rl.envs.spaces import Spaces
from vedette_services.config.run_config import RunConfig
from vedette_services.host.system import kill_with_parent
from vedette_services.net.addresses import Address
from vedette_services.net.keys import LearnerKeys
from vedette_services.simulation.network import Channel, Frames, SocketNetwork

Verdict = Literal["kept", "broken", "not seen"]

RULES = {
    "join": "subscribes to all and m/ID/ on control and models, and reports",
    "report first": "reports on a connection before it sends a batch",
    "ack first": "sends no batch on a connection before an ack to its incarnation",
    "credit": "sends no batch at or above the highest limit",
    "credit zero": "sends nothing, and goes on reporting, while no number was granted",
    "numbers": "numbers batches from 0 without gaps, in the order of their first sending",
    "base": "every number below base is settled",
    "rows": "batches are of the run, within its limits, and their values are valid",
    "same batch": "a number sent again is the same batch",
    "settled": "what an ack settled is not sent again",
    "reports": "reports at least every 1.5 s",
    "accounting": "dropped + window_rows <= produced; limit is the highest of the acks",
    "lost acks": "without acks it neither sends again nor reconnects",
    "stalled": "sends again, within 5 s of acks, what was sent 5 s before and is not settled",
    "older ack": "an ack with less than before takes no credit back and settles nothing",
    "foreign ack": "ignores acks of another incarnation or run, and of a lower epoch",
    "wrong ack": "an ack of a number that was never sent settles nothing",
    "new epoch": "sends all that is not settled again, at once and in order, for a new epoch",
    "acting": "in a run without exploration every action is the best one by the model",
    "newest model": "acts on the newest model",
    "wrong models": "acts on no model that is older, damaged, too large, not finite or of other "
    "arrays",
    "unknown keys": "ignores unknown keys of run and ack, and unknown features",
    "learner killed": "comes back with its incarnation and its limit, and loses no batch",
    "silence": "makes new connections after 3 s without a control message",
    "stop": "waits for the learner after a stop that is not final",
    "earlier stop": "ignores a final stop of another run or of an earlier start",
    "another run": "begins another run with a new incarnation and numbers from 0",
    "end": "at the run's end sends its window, reports gone and ends with status 0",
    "over": "ends where the run is over before it joined",
    "refusal": "ends after a refusal, with a status other than 0, and sends nothing more",
    "keys": "with keys it talks to the learner of its file alone: to no other, and not in plain",
}
"""Each rule, in words; protocol/README.md has the whole."""

SLACK_S = 1.5
"""A message may be on its way, and a machine busy, for so long."""

_REPORTS_S = 1.5
_CHECKED = 100  # batches by a model: the scripted learner must keep up with its client
_ROUNDING = 1e-3  # of an action's range, or of action values
_MEMORY_ROUNDING = 3e-3  # float16 before a step and after it


@dataclass(slots=True)
class Findings:
    """The verdict on each rule; once broken, a rule stays so."""

    verdicts: dict[str, tuple[Verdict, str]] = field(
        default_factory=lambda: dict.fromkeys(RULES, ("not seen", ""))
    )

    def note(self, rule: str, kept: bool, came: str = "") -> None:
        """Note what came of a rule."""
        if self.verdicts[rule][0] != "broken":
            self.verdicts[rule] = ("kept" if kept else "broken", came)

    def broke(self, rule: str, came: str) -> None:
        """Note a rule that was broken."""
        self.note(rule, False, came)

    @property
    def broken(self) -> list[str]:
        """The rules that were broken."""
        return [rule for rule, (verdict, _) in self.verdicts.items() if verdict == "broken"]

    def lines(self) -> Iterator[str]:
        """Format a line a rule: what was expected, and what came."""
        for rule, (verdict, came) in self.verdicts.items():
            shown = f"; came: {came}" if came and verdict == "broken" else ""
            yield f"{verdict:<9} {rule}: {RULES[rule]}{shown}"


class ActionChecker:
    """Knows the best actions of every published model, in a run whose actors do not explore.

    Args:
        config: the run's configuration.
        spaces: the environment's spaces.
    """

    def __init__(self, config: RunConfig, spaces: Spaces) -> None:
        kind = agent_kind(config.agent.name)
        self._action: Any = spaces.action  # a Box, or Discrete
        described = kind.describe(config.agent, spaces) if kind.describe else None
        self._checks = described is not None and _explores_nothing(described)
        self._build = partial(
            kind.build_policy, config.agent, spaces, ranks=np.zeros(1), seed=config.seed
        )
        self._policies: dict[tuple[int, int], Any] = {}  # by epoch and version; the agents' own
        self._left: dict[tuple[int, int], int] = {}  # batches of each that are still looked at

    def on_model(self, epoch: int, version: int, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Note a model that may be acted on."""
        if self._checks:
            self._left[epoch, version] = _CHECKED
            self._policies[epoch, version] = policy = self._build()
            policy.sync_model(ModelInfo(version, arrays))

    def find_wrong(self, oldest: tuple[int, int], rows: Columns) -> str | None:
        """Describe a row whose action is the best of no model from `oldest` on (epoch, version);
        "": all are; None: there is nothing to compare with, or enough was seen."""
        policies = [policy for known, policy in self._policies.items() if known >= oldest]
        if not policies or not self._left.get(oldest, 1):
            return None
        self._left[oldest] = self._left.get(oldest, _CHECKED) - 1
        obs = select_part(rows, "obs")
        action = np.asarray(rows["action"])
        for policy in policies:
            if isinstance(policy, RecurrentPolicy):
                policy.recall(rows[MEMORY].astype(np.float32))
        right = np.any([self._is_best(policy, obs, action) for policy in policies], axis=0)
        if MEMORY in rows and (forgot := _find_wrong_memory(policies, rows)):
            return forgot
        if right.all():
            return ""
        wrong = int(np.argmin(right))
        best = policies[0].act(obs, explore=False)[wrong]
        seen = {name: np.ravel(column[wrong])[:8].tolist() for name, column in obs.items()}
        return f"action {action[wrong]} for {seen}, expected {best}"

    def _is_best(self, policy: Any, obs: Columns, action: NDArray[Any]) -> NDArray[np.bool_]:
        """Return whether each action is the best one, but for rounding: ``(B,)``."""
        best = policy.act(obs, explore=False)
        if action.dtype.kind == "f":
            near = np.abs(action - best) <= _ROUNDING * (self._action.high - self._action.low)
        else:
            near = action == best
        is_best: NDArray[np.bool_] = near.reshape(len(action), -1).all(axis=1)
        if action.dtype.kind != "f" and action.ndim == 1:  # two that are as good
            inner: Any = policy.inner if isinstance(policy, RecurrentPolicy) else policy
            q_BA = inner.values(inner.network, obs, *inner.constants)
            chosen = np.clip(action - int(self._action.start), 0, q_BA.shape[1] - 1)
            q_B = np.take_along_axis(q_BA, chosen[:, None], 1)[:, 0]
            is_best |= q_BA.max(axis=1) - q_B <= _ROUNDING * (1.0 + np.abs(q_BA).max(axis=1))
        return is_best


def _find_wrong_memory(policies: Sequence[RecurrentPolicy], rows: Columns) -> str:
    """Describe a row whose memory does not follow from the one before it, by none of the policies
    that have just acted on these; "": there is none."""
    memory_BH = rows[MEMORY].astype(np.float32)
    begins = np.asarray(rows[BEGINS])
    known = np.flatnonzero(begins & memory_BH.any(axis=1))
    if len(known):
        return f"row {known[0]} begins an episode, and remembers {memory_BH[known[0]][:4]}"
    keys = zip(rows[ENV].tolist(), rows[TIME].tolist(), strict=True)
    places = {key: k for k, key in enumerate(keys)}
    for (env, t), k in places.items():
        before = places.get((env, t - 1))
        if before is None or begins[k]:
            continue
        off = [np.abs(policy.memory[before] - memory_BH[k]).max() for policy in policies]
        if min(off) > _MEMORY_ROUNDING:
            return (
                f"row {k} remembers {memory_BH[k][:4]}, expected {policies[0].memory[before][:4]}"
            )
    return ""


def without_biases(arrays: Mapping[str, NDArray[Any]]) -> Columns:
    """Return a model's arrays by which small observations decide, too."""
    return {
        name: np.zeros_like(array) if name.endswith(".bias") else array
        for name, array in arrays.items()
    }


def _explores_nothing(policy: Mapping[str, Any]) -> bool:
    exploration = policy.get("exploration", {})
    if policy["head"] == "deterministic":
        return bool(policy["noise"] == 0)
    values = policy["head"] in ("values", "dueling")
    return values and (exploration["kind"], exploration["epsilon_final"]) == ("constant", 0.0)


class Watcher:
    """Checks what a client must keep at any time. `now` is in seconds.

    Args:
        actions: checks its actions; None: they are not checked.
    """

    run: Run
    """The run that was announced last."""

    def __init__(self, findings: Findings, actions: ActionChecker | None = None) -> None:
        self.findings = findings
        self._actions = actions
        self.manager = ""
        self.incarnation = -1
        self.joined: set[tuple[str, bytes]] = set()
        self.report: Report | None = None
        self.batches: dict[int, bytes] = {}  # by number, a digest
        self.versions: list[tuple[int, int]] = []  # of the batches, in order
        self.again: list[int] = []  # numbers sent again, in order
        self.limit = 0
        self.settled: dict[int, float] = {}  # when it was first acknowledged
        self.contiguous = 0
        self.subscribed = False
        """It hears what is for it on control."""
        self._reported = self._acked = False  # on this connection
        self._reported_at = 0.0

    def on_new_connection(self) -> None:
        """The learner's sockets are new."""
        self._reported = self._acked = self.subscribed = False
        self._reported_at = 0.0

    def on_subscription(self, channel: str, event: bytes) -> None:
        """Note what the client subscribes to."""
        if event[:1] == b"\1":
            self.joined.add((channel, event[1:]))
            if event[1:].startswith(b"m/"):
                self.manager = event[3:-1].decode()
        if channel == "control" and event[1:].startswith(b"m/"):
            self.subscribed = event[:1] == b"\1"
        if not self.manager or self.report is None:
            return
        own = topics.manager_topic(self.manager)
        wanted = {(channel, t) for channel in ("control", "models") for t in (topics.ALL, own)}
        if wanted <= self.joined:
            self.findings.note("join", True)

    def on_ack(self, ack: Ack, now: float) -> None:
        """Note an ack that was sent to it."""
        if (ack.manager, ack.incarnation) != (self.manager, self.incarnation):
            return
        if not self.subscribed:
            return  # it does not hear that
        if ack.run_id != self.run.run_id or ack.epoch < self.run.epoch:
            return
        self._acked = True
        if ack.beyond > len(self.batches):
            return  # it settles a number that was never sent, and so nothing
        self.limit = max(self.limit, ack.limit)
        for number in range(self.contiguous, ack.beyond):
            if number < ack.contiguous or ack.extras >> (number - ack.contiguous) & 1:
                self.settled.setdefault(number, now)
        while self.contiguous in self.settled:
            self.contiguous += 1

    def on_up(self, frames: Sequence[bytes], now: float) -> Batch | Report | None:
        """Check a message of the client; None: it is none."""
        try:
            message = decode_up(frames)
        except ProtocolError as error:
            self.findings.broke("rows", f"not a message: {error}")
            return None
        if message.incarnation != self.incarnation:
            self._begin(message.incarnation)
        if isinstance(message, Report):
            self._on_report(message, now)
        else:
            self._on_batch(message, now)
        return message

    def _begin(self, incarnation: int) -> None:
        self.incarnation = incarnation
        self.limit = 0
        self.contiguous = 0
        self.batches = {}
        self.settled = {}
        self.again = []
        self.versions = []

    def _on_report(self, report: Report, now: float) -> None:
        note = self.findings.note
        self.report = report
        self._reported = True
        self.on_subscription("", b"")
        late_s = now - self._reported_at if self._reported_at else 0.0
        note("reports", late_s <= _REPORTS_S + SLACK_S, f"{late_s:.1f} s between two reports")
        self._reported_at = now if report.state == "running" else 0.0
        counted = report.dropped + report.window_rows <= report.produced
        sound = report.base <= report.sequenced and report.limit <= self.limit
        said = f"produced {report.produced}, dropped {report.dropped}, window {report.window_rows}"
        note("accounting", counted and sound, f"{said}, limit {report.limit} of {self.limit}")

    def _on_batch(self, batch: Batch, now: float) -> None:
        note = self.findings.note
        seq = batch.seq
        note("report first", self._reported, f"batch {seq}")
        note("ack first", self._acked, f"batch {seq}")
        note("credit", seq < self.limit, f"batch {seq}, limit {self.limit}")
        lowest = self.contiguous
        note("base", batch.base <= lowest, f"base {batch.base}, {lowest} is not settled")
        self._check_rows(batch)
        content = (batch.rows, batch.epoch, batch.version, batch.env_steps, bytes(batch.payload))
        digest = hashlib.blake2b(repr(content).encode(), digest_size=16).digest()
        if seq in self.batches:
            self.again.append(seq)
            note("same batch", self.batches[seq] == digest, f"batch {seq}")
            old = seq in self.settled and now - self.settled[seq] > SLACK_S
            note("settled", not old, f"batch {seq}")
        else:
            expected = len(self.batches)
            note("numbers", seq == expected, f"batch {seq}, expected {expected}")
            self.batches[seq] = digest
            self.versions.append((batch.epoch, batch.version))

    def _check_rows(self, batch: Batch) -> None:
        run = self.run
        why = ""
        if batch.run_id != run.run_id:
            return  # of the run before, which had not ended for it
        if batch.schema != run.schema.hash:
            why = f"batch {batch.seq} is of schema {batch.schema}"
        elif batch.rows > run.batch_rows or batch.env_steps > run.batch_env_steps:
            why = f"batch {batch.seq} has {batch.rows} rows and {batch.env_steps} steps"
        else:
            try:
                run.schema.check_values(rows := run.schema.views(batch.payload, batch.rows))
                self._check_actions(batch, rows)
            except ProtocolError as error:
                why = f"batch {batch.seq}: {error}"
        self.findings.note("rows", not why, why)

    def _check_actions(self, batch: Batch, rows: Columns) -> None:
        if self._actions is None or self.run.schema.sharing is not None:
            return
        wrong = self._actions.find_wrong((batch.epoch, batch.version), rows)
        if wrong is not None:
            self.findings.note("acting", not wrong, f"batch {batch.seq}: {wrong}")


def make_wrong_models(run: Run, arrays: Mapping[str, NDArray[Any]]) -> Iterator[list[ModelChunk]]:
    """Models that no client may act on, in chunks: old, damaged, of other arrays, not finite, too
    large."""
    good = {version: pack_model(version, arrays, run.model) for version in (5, 20, 30, 40, 50)}
    nans = {name: np.full_like(array, np.nan) for name, array in arrays.items()}
    good[40] = pack_model(40, nans, run.model)
    wrong_headers: tuple[tuple[Buffer, dict[str, Any]], ...] = (
        (good[5], {}),
        (good[20], {"digest": bytes(8)}),
        (good[30], {"spec": "0" * 16}),
        (good[40], {}),
        (bytes(good[50]) + bytes(1 << 20), {}),
    )
    for body, wrong in wrong_headers:
        chunks = split_into_chunks(run.run_id, run.epoch, run.model.hash, body)
        yield [replace(chunk, **wrong) for chunk in chunks]


def start_client(command: Sequence[str], address: Address, keys: Path) -> subprocess.Popen[bytes]:
    """Start a client in a process group of its own; on Linux it dies with this thread.

    Args:
        command: its words, in which ``{host}``, ``{port}``, ``{learner}`` and ``{keys}`` are
            replaced; all but the last are in its environment, too.
        keys: the folder of its keys.
    """
    names = {"host": address.host, "port": str(address.port), "learner": str(address)}
    given = {f"VEDETTE_{name.upper()}": value for name, value in names.items()}
    names["keys"] = str(keys)
    return subprocess.Popen(
        [re.sub(r"\{(\w+)\}", lambda m: names.get(m[1], m[0]), word) for word in command],
        env={**os.environ, **given},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=kill_with_parent,
    )


def kill_client(client: subprocess.Popen[bytes]) -> None:
    """Kill a client's process group, if it is still there."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(client.pid, signal.SIGKILL)
    client.wait(10.0)


class ScriptedNetwork(SocketNetwork):
    """Sockets of a learner on which a script loses batches, and holds back acks and credit."""

    def __init__(self, address: Address, watcher: Watcher, keys: LearnerKeys | None = None) -> None:
        super().__init__(address, keys)
        self.watcher = watcher
        self.most = 0
        """The limit of an ack, at most."""
        self.holds_acks = False
        self.lost: set[int] = set()
        """Batches that the learner does not get, when they come."""
        self.last_ack: Ack | None = None
        self.connections = 0
        """Times that the client subscribed to its own topic on control."""
        self.heard = 0
        """Messages and subscriptions that came."""

    def on_message(self, channel: Channel, frames: Sequence[bytes]) -> None:
        now = time.monotonic()
        self.heard = self.heard + 1
        if channel != "samples":
            self.watcher.on_subscription(channel, frames[0])
            self.connections += channel == "control" and frames[0].startswith(b"\1m/")
        else:
            message = self.watcher.on_up(frames, now)
            if isinstance(message, Batch) and message.seq in self.lost:
                return
        super().on_message(channel, frames)

    def publish(self, channel: Channel, frames: Frames) -> None:
        """Send a message; an ack with the credit that the script gives."""
        message = decode_control(frames[1:]) if channel == "control" else None
        if not isinstance(message, Ack):
            super().publish(channel, frames)
        elif not self.holds_acks:
            self.send_ack(replace(message, limit=min(message.limit, self.most)))

    def send_ack(self, ack: Ack) -> None:
        """Send an ack to the client."""
        self.watcher.on_ack(ack, time.monotonic())
        if ack.manager == self.watcher.manager and ack.incarnation == self.watcher.incarnation:
            self.last_ack = ack
        self.send("control", topics.manager_topic(ack.manager), ack)

    def send(self, channel: Channel, topic: bytes, message: Any) -> None:
        """Send a message."""
        super().publish(channel, [topic, *encode(message)])

    def send_unknown_keys(self, run: Run, ack: Ack) -> None:
        """Send a run and an ack as a later release may send them."""
        later = replace(run, features=("tomorrow",))
        header, payload = (bytes(frame) for frame in encode(later))
        more = pack({**unpack(payload, len(payload)), "tomorrow": [1, {"a": None}]})
        super().publish("control", [topics.ALL, pack({**unpack(header, 4096), "later": 1}), more])
        told = pack({**unpack(bytes(encode(ack)[0]), 4096), "later": "x"})
        super().publish("control", [topics.manager_topic(ack.manager), told])
