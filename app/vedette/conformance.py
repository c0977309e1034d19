"""Does a client keep the wire's rules? A scripted learner plays with it, and watches.

The learner is the real gateway's state on real sockets. Between the two a script loses batches,
holds acknowledgements back, kills the learner, announces other epochs and runs, and sends models
that no client may act on.
"""

from __future__ import annotations

import logging
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from vedette.local.daemons import free_port
from vedette.wire_rules import (
    SLACK_S,
    ActionChecker,
    Findings,
    ScriptedNetwork,
    Watcher,
    kill_client,
    make_wrong_models,
    start_client,
    without_biases,
)
from vedette_protocol import topics
from vedette_protocol.account import SampleAccounting
from vedette_protocol.ledger import Ledger
from vedette_protocol.messages import Ack, Refusal, Report, Stop
from vedette_protocol.model import pack_model
from vedette_protocol.schema import Schema
from vedette_rl.agents.registry import agent_kind
from vedette_rl.envs.make import environment_spaces
from vedette_rl.envs.spaces import ElementBounds
from vedette_rl.replay.limiter import Limiter
from vedette_rl.replay.rows import MemoryRing
from vedette_services.config.run_config import RunConfig
from vedette_services.learner.gateway.flow_control import FlightLimits
from vedette_services.learner.gateway.state import GatewayState
from vedette_services.net.addresses import Address
from vedette_services.net.keys import LearnerKeys, make_keys
from vedette_services.run.replay_layout import replay_layout
from vedette_services.run.ring_stamp import ActorNumbers, pack_stamp
from vedette_services.simulation.hosts import GatewayHost

log = logging.getLogger("vedette.conform")

_STALL_S = 5.0
_SILENCE_S = 3.0
_LEARNERS = (101, 202, 303, 404, 505)
_NO_LIMIT = 1 << 40
_CARRYING = {
    *("credit", "numbers", "rows", "lost acks", "stalled", "older ack", "foreign ack", "wrong ack"),
    *("new epoch", "newest model", "unknown keys", "learner killed", "stop", "another run"),
}
"""Rules without which the rest of a scene shows nothing new."""


class Script:
    """A learner and a client that is started for each scene.

    Args:
        config: the run's configuration.
        command: starts the client; ``{host}``, ``{port}``, ``{learner}`` and ``{keys}``, the folder
            of its keys, are replaced. With ``{keys}`` the learner has keys, else none.
        start_s: the client may take so long to join.
    """

    def __init__(self, config: RunConfig, command: Sequence[str], start_s: float) -> None:
        self.findings = Findings()
        self._config = config
        self._command = list(command)
        self._start_s = start_s
        self.spaces = environment_spaces(config.env)
        kind = agent_kind(config.agent.name)
        self._policy = kind.describe(config.agent, self.spaces) if kind.describe else None
        agents = (kind.build_agent(config.agent, self.spaces, device="cpu", seed=k) for k in (3, 0))
        self.arrays = [without_biases(agent.model_info().arrays) for agent in agents]
        """The models that are published in turn: on CartPole the best action by the first depends
        on the observation, that by the second does not."""
        self._layout = replay_layout(config, self.spaces)
        self._next_arrays = 0
        self.keys: list[LearnerKeys] = []
        """The keys of this learner, and of another; empty: the client is given none."""

    def play(self, scenes: Sequence[str] = ()) -> Findings:
        """Play the scenes, or those of these names."""
        with tempfile.TemporaryDirectory(prefix="vedette-conform-") as folder:
            own, other = Path(folder, "own"), Path(folder, "other")
            self._folder = own / "hosts" / "client"
            if any("{keys}" in word for word in self._command):
                for keys in (own, other):
                    make_keys(keys, ["client"])
                self.keys = [LearnerKeys.read(keys) for keys in (own, other)]
            for name in scenes or SCENES:
                self._play_scene(name)
        return self.findings

    def _play_scene(self, name: str) -> None:
        self._run_id = "conformance"
        self._epoch = 1
        self._learners = iter(_LEARNERS)
        self._address = Address("127.0.0.1", free_port())
        self._stamp = b""
        self._actions = ActionChecker(self._config, self.spaces)
        watcher = Watcher(self.findings, self._actions)
        self.network = ScriptedNetwork(self._address, watcher, *self.keys[:1])
        self._broken_before = {*self.findings.broken}
        self._make_learner()
        self.network.open_sockets()
        self._client = start_client(self._command, self._address, self._folder)
        try:
            SCENES[name](self)
        finally:
            kill_client(self._client)
            self.network.end()
        if self.network.stood_still_s > 1.0:
            still = f"this machine stood still for {self.network.stood_still_s:.1f} s"
            log.warning("scene %s: %s; rules of time may be judged wrongly", name, still)

    @property
    def is_lost(self) -> bool:
        """True if this scene broke a rule without which the rest of it shows nothing."""
        return bool(_CARRYING.intersection(self.findings.broken) - self._broken_before)

    # The learner

    @property
    def watcher(self) -> Watcher:
        """The watcher of the client of this scene."""
        return self.network.watcher

    def _make_learner(self) -> None:
        """Make a gateway from what the one before had committed, and announce the run."""
        config = self._config
        actors = self._config.actors
        layout = self._layout
        if not self._stamp:
            self._ring = MemoryRing(layout.stored, 10_000, guard=1000 + actors.n_buffer)
            empty = Ledger(self._run_id, SampleAccounting())
            self._stamp = pack_stamp(empty, ActorNumbers())
        state = GatewayState(
            self._run_id,
            next(self._learners),
            layout.schema,
            stamp=self._stamp,
            now=self.network.clock.now,
            limiter=Limiter(0.0, 0, 0.0, config.samples_per_opt),
            rows_per_batch=actors.n_buffer,
            elements=ElementBounds(self.spaces),
            window=FlightLimits(actors.window_batches, actors.window_bytes),
            batch_bytes=layout.batch_bytes,
            batch_env_steps=actors.env_steps_max(config.row_steps),
            policy=self._policy,
        )
        self.run = state.run_message(config, self._epoch, Schema.from_arrays(self.arrays[0]))
        self.watcher.run = self.run
        self.gateway = GatewayHost(state, self._ring, self.network, actors.n_buffer)
        self.publish(1)

    def publish(self, version: int) -> None:
        """Publish a model with other arrays than the last one, and the run where it is new."""
        arrays = self.arrays[self._next_arrays]
        self._next_arrays = 1 - self._next_arrays
        self._actions.on_model(self._epoch, version, arrays)
        self.gateway.publish(self.run, version, pack_model(version, arrays, self.run.model))

    def restart(self, *, run_id: str = "", dark_s: float | None = None) -> None:
        """Begin another epoch, or another run.

        Args:
            dark_s: the learner is killed, and away for so long; None: its sockets stay.
        """
        self._stamp = self._ring.stamp
        self.gateway.kill()
        if dark_s is not None:
            self.network.close_sockets()
            self.wait(dark_s)
            self.watcher.on_new_connection()
            self.network.open_sockets()
        if run_id:
            self._run_id = run_id
            self._epoch = 1
            self._stamp = b""
        else:
            self._epoch += 1
        self._make_learner()

    def wait(self, seconds: float) -> None:
        """Serve for a while."""
        self.until(lambda: False, seconds)

    def until(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Serve until something holds; False if it does not within `seconds`."""
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() >= deadline:
                return False
            self.network.serve()
        return True

    def until_without_acks(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Wait as `until` does, with the run announced now and then, which keeps the connection."""
        deadline = time.monotonic() + seconds
        while not self.until(condition, 0.5):
            if time.monotonic() >= deadline:
                return False
            self.network.send("control", topics.ALL, self.run)
        return True

    def acked(self, **changes: Any) -> Ack:
        """The last ack, with changes."""
        assert self.network.last_ack is not None, "it has reported"
        return replace(self.network.last_ack, **changes)

    def ended(self, seconds: float) -> int | None:
        """The client's exit status; None if it has not ended within `seconds`."""
        self.until(lambda: self._client.poll() is not None, seconds)
        return self._client.returncode

    def join(self) -> bool:
        """Wait until the client has reported of the run."""
        watcher = self.watcher

        def has_joined() -> bool:
            of_run = watcher.report is not None and watcher.report.run_id == self.run.run_id
            return of_run and self.findings.verdicts["join"][0] != "not seen"

        self.until(lambda: has_joined() or self._client.poll() is not None, self._start_s)
        if has_joined():
            return True
        joined = sorted(f"{channel} {topic.decode()}" for channel, topic in watcher.joined)
        what = "no report of the run" if watcher.report is None else "reports"
        if (status := self._client.poll()) is not None:
            what += f", and it ended with status {status}"
        self.findings.broke("join", f"{', '.join(joined) or 'no subscription'}; {what}")
        return False

    def let(self, most: int, count: int | None = None, seconds: float = 15.0) -> bool:
        """Grant numbers below `most`, and wait for as many batches, or for `count` of them."""
        self.network.most = most
        return self.until(lambda: len(self.watcher.batches) >= (count or most), seconds)


def play_deliveries(script: Script) -> None:
    """Credit, lost and odd acks, another epoch on the same connection, models, the end."""
    network = script.network
    watcher = script.watcher
    note = script.findings.note
    if not script.join():
        return
    script.wait(2.0)
    count = len(watcher.batches)
    note("credit zero", not count, f"{count} batches while the limit was 0")
    network.lost = {1}
    network.holds_acks = False
    network.most = 4
    script.until(lambda: watcher.limit == 4, 5.0)
    network.holds_acks = True
    if not script.until_without_acks(lambda: len(watcher.batches) >= 4, 30.0):
        return
    checks = (_check_lost_acks, _check_stalled, _check_odd_acks, _check_new_epoch, _check_models)
    for check in (*checks, end):
        if script.is_lost:
            return
        check(script)


def _check_lost_acks(script: Script) -> None:
    network = script.network
    watcher = script.watcher
    connections = script.network.connections
    script.until_without_acks(lambda: False, 6.5)
    again = sorted(set(watcher.again))
    same = network.connections == connections
    came = f"sent again: {again}" if again else "" if same else "new connections"
    script.findings.note("lost acks", not again and same, came)


def _check_stalled(script: Script) -> None:
    network = script.network
    watcher = script.watcher
    network.lost = set()
    network.holds_acks = False
    before = len(watcher.again)
    sent_again = script.until(lambda: 1 in watcher.again[before:], _STALL_S + SLACK_S)
    others = sorted(set(watcher.again[before:]) - {1})
    came = f"also {others}" if others else "" if sent_again else "batch 1 was not sent again"
    script.findings.note("stalled", sent_again and not others, came)


def _check_odd_acks(script: Script) -> None:
    network = script.network
    watcher = script.watcher
    note = script.findings.note
    script.until(lambda: watcher.contiguous >= 4, 5.0)
    network.lost = {6, 7}
    network.most = 8
    script.until(lambda: watcher.limit == 8, 5.0)
    network.most = 4
    before = len(watcher.again)
    for _ in range(5):
        network.send_ack(script.acked(contiguous=0, extras=0, limit=0))
        script.wait(0.1)
    went_on = script.until(lambda: len(watcher.batches) >= 8, 20.0)
    came = "" if went_on else f"only {len(watcher.batches)} of 8 granted batches came"
    again = sorted(set(watcher.again[before:]) - {6, 7})
    note("older ack", went_on and not again, came or (f"sent again: {again}" if again else ""))
    script.until(lambda: watcher.contiguous >= 6, 3.0)
    everything = {"contiguous": 8, "extras": 0, "limit": 1000}
    _check_ignored(
        script,
        "foreign ack",
        script.acked(incarnation=watcher.incarnation ^ 1, **everything),
        script.acked(run_id="another", **everything),
        script.acked(epoch=0, **everything),
    )
    _check_ignored(script, "wrong ack", script.acked(contiguous=1000, extras=0, limit=8))


def _check_ignored(script: Script, rule: str, *acks: Ack) -> None:
    """Send acks that settle nothing: 6 and 7 stay in the window, and nothing comes beyond."""
    watcher = script.watcher
    for ack in acks:
        script.network.send_ack(ack)
    script.wait(0.8)  # until another report
    base = watcher.report.base if watcher.report else 0
    beyond = len(watcher.batches) > 8
    came = f"{len(watcher.batches)} batches" if beyond else f"base {base}, 6 and 7 are not settled"
    script.findings.note(rule, not beyond and base <= 6, came)


def _check_new_epoch(script: Script) -> None:
    network = script.network
    watcher = script.watcher
    network.lost = set()
    network.most = 8
    before = len(watcher.again)
    script.restart()
    script.until(lambda: {6, 7} <= {*watcher.again[before:]}, 2.0 + SLACK_S)
    again = watcher.again[before:]
    came = f"sent again: {again}, not 6, 7"
    script.findings.note("new epoch", again[:2] == [6, 7], came)


def _check_models(script: Script) -> None:
    network = script.network
    watcher = script.watcher
    findings = script.findings
    network.most = _NO_LIMIT
    script.publish(10)
    acts = script.until(lambda: _newest(watcher) == 10, 15.0)
    findings.note("newest model", acts, f"it acts on version {_newest(watcher)}")
    if not acts:
        return
    for chunks in make_wrong_models(script.run, script.arrays[0]):
        for chunk in chunks:
            network.send("models", topics.ALL, chunk)
        script.wait(0.3)
    network.send_unknown_keys(script.run, script.acked())
    count = len(watcher.batches)
    flows = script.until(lambda: len(watcher.batches) > count + 4, 10.0)
    findings.note("unknown keys", flows, "" if flows else "no batch came after them")
    seen = sorted(
        {version for _, version in watcher.versions if 10 < version < 60} | {_newest(watcher)}
    )
    findings.note(
        "wrong models", seen == [10], "" if seen == [10] else f"it acts on version {seen}"
    )
    script.publish(60)
    if not script.until(lambda: _newest(watcher) == 60, 15.0):
        findings.broke("newest model", "it acts on no newer one after wrong ones")


def _newest(watcher: Watcher) -> int:
    return watcher.versions[-1][1] if watcher.versions else -1


def end(script: Script) -> None:
    """The run is over: a client sends its window, and ends."""
    watcher = script.watcher
    network = script.network
    network.holds_acks = True  # so that its window holds something
    script.until(lambda: watcher.report is not None and watcher.report.window_batches > 0, 5.0)
    dropped = watcher.report.dropped if watcher.report else 0
    for number in range(50):
        network.send("control", topics.ALL, Stop(script.run.run_id, script.run.epoch, "over", True))
        if (status := script.ended(0.3)) is not None:
            break
        if number == 3:
            network.holds_acks = False
    script.wait(0.5)
    report = watcher.report
    assert report is not None, "it has joined"
    unsettled = [n for n in watcher.batches if n not in watcher.settled]
    came = f"exit status {status}, report {report.state}, {report.window_rows} rows in the window, "
    came += f"{len(unsettled)} batches not settled, {report.dropped - dropped} rows dropped"
    settled = not unsettled and not report.window_rows and report.dropped == dropped
    script.findings.note("end", (status, report.state) == (0, "gone") and settled, came)


def play_kills(script: Script) -> None:
    """The learner is killed; falls silent; stops and comes back; has another run."""
    network = script.network
    watcher = script.watcher
    findings = script.findings
    if not (script.join() and script.let(6, seconds=30.0)):
        return
    network.lost = {8, 9}
    network.holds_acks = True
    network.most = 10
    network.send_ack(script.acked(limit=10))
    script.until_without_acks(lambda: len(watcher.batches) >= 10, 20.0)
    network.lost = set()
    before = len(watcher.again)
    incarnation = watcher.incarnation
    script.wait(0.2)
    watcher.report = None
    script.restart(dark_s=1.5)
    script.until(lambda: watcher.report is not None and watcher.subscribed, 15.0)
    script.wait(0.3)  # meanwhile a client sends that waits for no ack
    network.holds_acks = False
    sent_again = script.until(lambda: {8, 9} <= {*watcher.again[before:]}, 15.0)
    report: Report | None = watcher.report
    same = watcher.incarnation == incarnation and report is not None and report.limit == 10
    came = "" if sent_again else f"sent again: {watcher.again[before:]}, not 8, 9"
    came = came if same else f"incarnation or limit of the report is another; {came}"
    findings.note("learner killed", sent_again and same, came)
    script.until(lambda: watcher.subscribed, 10.0)
    for check in (_check_silence, _check_stop, _check_earlier_stop, _check_another_run, end):
        if script.is_lost:
            return
        check(script)


def _check_silence(script: Script) -> None:
    network = script.network
    connections = script.network.connections
    script.gateway.kill()  # the sockets stay, and nothing is said
    began = time.monotonic()
    reconnected = script.until(
        lambda: network.connections > connections, _SILENCE_S + 2.0 + SLACK_S
    )
    waited_s = time.monotonic() - began
    early = reconnected and waited_s < _SILENCE_S - 0.5
    came = f"new connections after {waited_s:.1f} s" if reconnected else "no new connection"
    script.findings.note("silence", reconnected and not early, came)
    script.restart()


def _check_stop(script: Script) -> None:
    network = script.network
    watcher = script.watcher
    network.send("control", topics.ALL, Stop(script.run.run_id, script.run.epoch, "later", False))
    status = script.ended(2.0)
    count = len(watcher.batches)
    flows = status is None and script.let(_NO_LIMIT, count + 4, seconds=20.0)
    came = "" if flows else f"exit status {status}" if status is not None else "no batch came"
    script.findings.note("stop", flows, came)


def _check_earlier_stop(script: Script) -> None:
    run = script.run
    count = len(script.watcher.batches)
    for stop in (
        Stop(run.run_id, run.epoch - 1, "earlier", True),
        Stop("another", run.epoch, "other", True),
    ):
        script.network.send("control", topics.ALL, stop)
    status = script.ended(1.0)
    flows = status is None and script.until(lambda: len(script.watcher.batches) > count, 10.0)
    came = f"exit status {status}" if status is not None else "no batch came"
    script.findings.note("earlier stop", flows, "" if flows else came)


def _check_another_run(script: Script) -> None:
    watcher = script.watcher
    before = script.watcher.incarnation
    script.restart(run_id="another", dark_s=1.0)
    new = script.until(lambda: watcher.incarnation != before and len(watcher.batches) >= 2, 30.0)
    script.findings.note("another run", new, "" if new else "no batch of a new incarnation")


def play_over(script: Script) -> None:
    """The run was over before the client came."""
    script.gateway.kill()
    over = Stop(script.run.run_id, script.run.epoch, "over", True)
    deadline = time.monotonic() + script._start_s
    status = None
    while status is None and time.monotonic() < deadline:
        script.network.send("control", topics.ALL, over)
        status = script.ended(0.3)
    joined = bool(script.watcher.manager)
    ended = "it has not ended" if status is None else f"it ended with status {status}"
    came = ended if joined else f"no subscription, and {ended}"
    script.findings.note("over", status is not None and joined, came)


def play_refusal(script: Script) -> None:
    """The learner refuses the client."""
    watcher = script.watcher
    if not (script.join() and script.let(4, 2, seconds=30.0)):
        return
    refusal = Refusal(watcher.manager, watcher.incarnation, "id", "the script refuses it")
    script.network.send("control", topics.manager_topic(watcher.manager), refusal)
    script.wait(SLACK_S)
    count = len(watcher.batches)
    script.network.most = _NO_LIMIT
    status = script.ended(10.0)
    more = len(watcher.batches) > count
    came = f"exit status {status}" + (", and batches after it" if more else "")
    script.findings.note("refusal", status not in (None, 0) and not more, came)


def play_keys(script: Script) -> None:
    """In place of the learner whose key the client has stands another one; then one without."""
    network = script.network
    watcher = script.watcher
    if not (script.keys and script.join() and script.let(4, seconds=30.0)):
        return
    own, other = script.keys
    script.gateway.kill()
    heard = {}
    for name, keys in (("another learner", other), ("a learner without keys", None)):
        network.close_sockets()
        script.wait(0.5)
        network.keys, before = keys, network.heard
        network.open_sockets()
        script.wait(_SILENCE_S + 3.0)
        heard[name] = network.heard - before
    network.keys = own
    count = len(watcher.batches)
    status = script.ended(0.0)
    network.most = _NO_LIMIT
    script.restart(dark_s=0.5)
    back = status is None and script.until(lambda: len(watcher.batches) > count + 4, 20.0)
    came = ", ".join(f"{n} messages to {name}" for name, n in heard.items() if n)
    came = came or ("" if back or status else "no batch to the learner of its file again")
    script.findings.note("keys", not came and status != 0, came or f"exit status {status}")


SCENES: dict[str, Callable[[Script], None]] = {
    "deliveries": play_deliveries,
    "kills": play_kills,
    "over": play_over,
    "refusal": play_refusal,
    "keys": play_keys,
}
"""Scenes; each starts the client again."""
