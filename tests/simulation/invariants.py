"""What must hold at every moment of a simulation, and at its end."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from counting_ring import InvariantError  # beside this file
from honest import HonestHost, mark_of
from wait_reasons import GatewayWaits

from vedette_protocol.account import IncarnationAccount, ManagerEntry, SampleAccounting
from vedette_protocol.limits import RETIRED_MAX, STAMP_MAX_BYTES
from vedette_protocol.messages import Ack, Batch
from vedette_services.learner.gateway.actor_evaluations import CheckedEvaluation
from vedette_services.learner.gateway.flow_control import FlightLimits
from vedette_services.learner.gateway.state import GatewayState

if TYPE_CHECKING:
    from simulated_fleet import SimulatedFleet

WAIT_S = 21.0
"""Who delivers nothing for so long has a reason, in its log or an ack, at most `REASON_S` old.

A cut lasts up to 10 s, and a batch is sent again every 5 s, perhaps just before the cut ends.
"""
LOSSY_WAIT_S = 42.0
"""The same while the network loses a tenth of all messages."""
REASON_S = 45.0  # lines that repeat are logged every 30 s
_LOST_PLACE = "was silent while other managers needed its place"
CLAIMS_MAX = FlightLimits().batches
"""Batches that managers together may take at one gateway by claiming that another granted them."""


class Invariants:
    """Checks a `SimulatedFleet`. Every check raises `InvariantError`."""

    def __init__(self, fleet: SimulatedFleet) -> None:
        self._fleet = fleet
        self._granted: dict[tuple[str, int], int] = {}  # the highest limit of an ack
        self._claimed: dict[tuple[str, int], int] = {}  # batches beyond it that were taken
        self._waits: GatewayWaits | None = None
        self.version_at_heal = (0, 0)
        self.evaluated = 0
        """Evaluations that counted."""
        self._evaluated = (0, 0)  # epoch and version of the last one that counted

    # The gateway

    def watch(self, state: GatewayState) -> None:
        """Watch what a gateway takes and grants."""
        self._claimed.clear()
        waits = self._waits = GatewayWaits(self._fleet, state)
        take = state.on_samples
        make_ack = state.ledger.make_ack
        record = state.ledger.record_batch

        keyed = self._fleet.scenario.keyed

        def on_samples(frames: Any, now: float) -> None:
            take(frames, now, frames.key if keyed else "")

        def watched_ack(manager: str, incarnation: int, **rest: Any) -> Ack:
            ack = make_ack(manager, incarnation, **rest)
            known = self._granted.get((manager, incarnation), 0)
            self._granted[manager, incarnation] = max(known, ack.limit)
            waits.on_ack(ack)
            return ack

        def watched_record(batch: Batch, now: float) -> str:
            verdict = record(batch, now)
            if verdict == "new":
                self._check_granted(batch)
            return verdict

        self._watch_evictions(state.ledger)
        state.on_samples = on_samples  # type: ignore[method-assign, assignment]
        state.ledger.make_ack = watched_ack  # type: ignore[method-assign]
        state.ledger.record_batch = watched_record  # type: ignore[method-assign, assignment]

    def _watch_evictions(self, ledger: Any) -> None:
        """Check that only accounts of those that are gone make room for others."""
        evict = ledger._evict_account
        close = ledger._close_account
        evicting = [False]

        def watched_evict(key: str, now: float) -> bool:
            evicting[0] = True
            found: bool = evict(key, now)
            evicting[0] = False
            return found

        def watched_close(entry: ManagerEntry, account: IncarnationAccount) -> None:
            if evicting[0] and not account.gone:
                raise InvariantError(f"{entry.id} is alive, and its account is closed for another")
            close(entry, account)

        ledger._evict_account = watched_evict
        ledger._close_account = watched_close

    def _check_granted(self, batch: Batch) -> None:
        sender = batch.manager, batch.incarnation
        if (beyond := batch.seq + 1 - self._granted.get(sender, 0)) <= 0:
            return
        self._claimed[sender] = max(beyond, self._claimed.get(sender, 0))
        if batch.manager in self._fleet.hosts or sum(self._claimed.values()) > CLAIMS_MAX:
            limit = self._granted.get(sender, 0)
            text = f"batch {batch.seq} of {batch.manager} is taken, its limit is {limit}"
            raise InvariantError(text)

    def _check_gateway(self) -> None:
        gateway = self._fleet.gateway
        if gateway is None or gateway.ended:
            return
        state: Any = gateway.state
        ledger = state.ledger
        most_managers = self._fleet.scenario.max_managers
        bounds = {
            "managers of the fleet": (len(state.fleet._members), most_managers),
            "accounts": (ledger.places._total, most_managers + 64),
            "retired incarnations": (len(ledger._retired), RETIRED_MAX),
            "refusals": (len(state.admission._refusals), 64),
            "held bytes": (state.held_bytes, self._fleet.scenario.actors.n_buffer * 16 * 4096),
            "bytes of a stamp": (len(self._fleet.disk.stamp), STAMP_MAX_BYTES),
            "senders with a layout": (len(state._reader._layouts), 4096),
            "log lines": (len(state.log_lines.waiting), 10_000),
        }
        for what, (size, most) in bounds.items():
            if size > most:
                raise InvariantError(f"{size} {what}, at most {most}")
        _check_balance(ledger.accounting(), "all managers")
        if gateway.machine.awake and self._waits is not None:
            self._waits.check(gateway.machine.awake_at)
        for checked in gateway.evaluations:
            self._check_evaluation(checked)
        gateway.evaluations.clear()

    def _check_evaluation(self, checked: CheckedEvaluation) -> None:
        """What counts was played by an honest manager, and with the very model that is kept."""
        evaluation = checked.evaluation
        model = checked.model
        trusted = self._fleet.scenario.trusted
        if not checked.counts:
            return
        name = evaluation.played_by.removeprefix("manager ")
        if trusted == frozenset() or name not in self._fleet.scenario.names:
            raise InvariantError(f"an evaluation of {evaluation.played_by} counts")
        played = evaluation.version, evaluation.return_mean, evaluation.length_mean
        if played != (model.version, float(model.version), mark_of(model.body)):
            raise InvariantError(f"{evaluation} is kept for version {model.version}")
        self.evaluated += 1
        self._evaluated = max(self._evaluated, (model.epoch, model.version))

    def _is_evaluated(self) -> bool:
        """Return True if a model of after the last fault was evaluated, where somebody counts."""
        scenario = self._fleet.scenario
        nobody = scenario.evaluates is None or scenario.trusted == frozenset()
        return nobody or self._evaluated > self.version_at_heal

    # The managers

    def check(self) -> None:
        """Check what must hold at every moment."""
        self._check_gateway()
        for host in self._fleet.hosts.values():
            if host.exit is None:
                self._check_host(host)
            elif host.exit.code != 0 and not (host.machine.killed or host.refused):
                raise InvariantError(f"{host.name} ends with {host.exit}")

    def _check_host(self, host: HonestHost) -> None:
        window = host.window
        actors = self._fleet.scenario.actors
        if window is not None:
            if window.batches > actors.window_batches or window.bytes > actors.window_bytes:
                text = f"{window.batches} batches, {window.bytes} bytes in {host.name}'s window"
                raise InvariantError(text)
            if window.produced != window.settled + window.dropped + window.rows:
                raise InvariantError(f"the counts of {host.name}'s window do not add up")
        self._account_for(host)
        self._check_wait(host)

    def _account_for(self, host: HonestHost) -> None:
        """What was handed over is committed, in the window, dropped and counted, or excused."""
        disk = self._fleet.disk
        held = host.held()
        for first in [f for f in host.handed if f not in held]:
            rows = host.handed.pop(first)
            if disk.is_missing(first):
                host.lost_rows += rows
                host.unsound_rows += rows * (first in disk.unsound)
                disk.excuse(first, rows)
        window = host.window
        counted = 0 if window is None else window.dropped
        if not host.lost_rows - host.unsound_rows <= counted <= host.lost_rows:
            raise InvariantError(
                f"{host.name} no longer holds {host.lost_rows} rows that are not in the replay, "
                f"and counts {counted} as dropped"
            )

    def _check_wait(self, host: HonestHost) -> None:
        now = self._fleet.clock.now
        window = host.window
        settled = -1 if window is None else window.settled + window.dropped
        idle = window is not None and not window.batches
        if settled != host.settled or idle:
            host.settled = settled
            host.settled_at = now
        machine = host.machine
        since = max(host.settled_at, machine.awake_at)  # who is paused can say nothing
        most_s = WAIT_S
        messages = self._fleet.scenario.messages
        if messages.drop and now < messages.until_s:
            most_s = LOSSY_WAIT_S
        elif messages.drop:
            since = max(since, messages.until_s)
        if machine.awake and now - since > most_s and now - host.reason_at > REASON_S:
            raise InvariantError(f"{host.name} waits since {since:.1f} s without a reason")
        if machine.awake and (wait := host.waits.missing(now, machine.awake_at)):
            raise InvariantError(f"{machine.name} {wait}, and its log does not say so")

    def on_refused(self, host: HonestHost, text: str) -> None:
        """Check that only one of two machines with an id is refused, and that both are named."""
        fleet = self._fleet
        name = host.name
        if fleet.scenario.is_full and ("the ledger is full" in text or _LOST_PLACE in text):
            fleet.start_again(host)  # as a service manager does
            return
        if name not in fleet.scenario.shared_ids:
            raise InvariantError(f"{name} is refused: {text}")
        pair = f"two managers use the id {name}: "
        own = f"host-of-{host.machine.name}"
        named = pair in text and own in text
        held = 0 if host.window is None else host.window.rows
        if held and f"{held} samples are lost" not in text:
            raise InvariantError(f"{host.machine.name} does not say that {held} rows are lost")
        if not named and "two managers use the same id" not in text:  # by a gateway started since
            raise InvariantError(f"{host.machine.name} does not hear who has its id: {text}")
        if fleet.gateway is not None and not fleet.gateway.ended and named:
            status = fleet.gateway.status()
            if not (status.rivals and status.refused.rivals):
                raise InvariantError(f"the status does not name two managers with the id {name}")
        host.refused = True
        self.on_killed(host)

    def on_killed(self, host: HonestHost) -> None:
        """Excuse what a killed manager held, and nothing else."""
        self._account_for(host)
        for first, rows in host.handed.items():
            self._fleet.disk.excuse(first, rows)

    def on_power_lost(self, rows: int) -> None:
        """Note that rows were taken back."""
        if self._fleet.trace:
            self._fleet.trace(f"learner lost {rows} rows")

    # The end

    def all_progressed(self) -> bool:
        """Return True once every manager has delivered something since the last fault."""
        return not self._standing_still() and self._is_evaluated()

    def check_progress(self) -> None:
        """Check that everybody knows the learner and has delivered something since."""
        still = self._standing_still()
        if still:
            raise InvariantError(f"no progress after the last fault: {', '.join(still[:10])}")
        if not self._is_evaluated():
            raise InvariantError("no model was evaluated after the last fault")

    def _standing_still(self) -> list[str]:
        return [
            host.name
            for host in self._fleet.hosts.values()
            if not host.refused
            and (
                host.window is None
                or host.window.settled <= host.settled_at_heal
                or not self._plays_this_run(host)
            )
        ] + self._still_shared()

    def _still_shared(self) -> list[str]:
        """Return the ids that two honest machines use at once."""
        alive = Counter(host.name for host in self._fleet.hosts.values() if not host.refused)
        return [f"both {name}" for name, count in alive.items() if count > 1]

    def _plays_this_run(self, host: HonestHost) -> bool:
        """Return True if a manager knows the learner's latest start."""
        run = host.state._run
        gateway = self._fleet.gateway
        assert run is not None
        assert gateway is not None
        state = gateway.state
        return (run.epoch, run.learner) == (state.position.epoch, state.learner)

    def check_end(self) -> None:
        """Check that everybody has left and everything is accounted for."""
        fleet = self._fleet
        copied = {"m0" for kind, _ in fleet.scenario.hostile if kind == "copy"}
        left = {host.name for host in fleet.hosts.values() if not host.refused}
        if lost := {host.name for host in fleet.hosts.values()} - left - copied:
            raise InvariantError(f"all machines of {sorted(lost)} were refused")
        for host in fleet.hosts.values():
            self._check_exit(host)
        self._check_gateway()
        assert fleet.gateway is not None
        state: Any = fleet.gateway.state
        ledger = state.ledger
        for name in fleet.scenario.names:
            if name in state.actor_numbers._taken:
                raise InvariantError(f"{name} has left, and has actor numbers")
        if (inserted := ledger.accounting().inserted) != fleet.disk.inserted:
            raise InvariantError(f"{inserted} rows are counted, {fleet.disk.inserted} inserted")
        by_manager = Counter[int]()
        for batch in fleet.disk.batches:
            by_manager[batch.manager] += batch.rows
        known = set(ledger.manager_ids())
        for name in sorted(known & fleet.hosts.keys()):
            account = ledger.accounting(name)
            _check_balance(account, name)
            if account.inserted != by_manager[ledger.manager_number(name)]:
                raise InvariantError(f"{name}: {account.inserted} rows counted as inserted")
            if account.in_flight:
                raise InvariantError(f"{name} left, and {account.in_flight} rows are in flight")
        for host in fleet.hosts.values():
            if host.name in known and not host.refused:
                self._check_last_account(host, ledger)

    def _check_exit(self, host: HonestHost) -> None:
        if host.refused:
            return
        if host.exit is None or host.exit.code != 0:
            raise InvariantError(f"{host.name} ends with {host.exit}")
        self._account_for(host)
        if self._fleet.scenario.queue is not None:
            return  # what has no room until it ends is dropped, and counted
        if host.window is not None and host.window.batches:
            raise InvariantError(f"{host.name} left and held {host.window.batches} batches")

    def _check_last_account(self, host: HonestHost, ledger: Any) -> None:
        account = ledger._entries[host.name].accounts.get(host.state._incarnation)
        window = None
        if account is None or (window := host.window) is None:
            return
        found = account.accounting()
        if found.produced != window.produced or found.dropped != window.dropped:
            raise InvariantError(f"{host.name}: {found}, produced {window.produced}")
        if found.lost > self._fleet.disk.excused:
            raise InvariantError(f"{host.name}: {found.lost} rows counted as lost")


def _check_balance(account: SampleAccounting, whose: str) -> None:
    parts = account.inserted + account.rejected + account.dropped + account.in_flight + account.lost
    if account.produced != parts or min(account.counts()) < 0:
        raise InvariantError(f"the accounting of {whose} does not balance: {account}")
