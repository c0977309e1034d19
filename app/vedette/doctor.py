"""Checks that a host can reach a learner, agrees with it, and can play its environment.

The checks go from the learner's name to the environment and its speed; one that fails ends them.
The learner is asked for its status, its run and its model, and counts no manager for that.
"""

from __future__ import annotations

import errno
import itertools
import secrets
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Literal

import zmq

from vedette_protocol import topics
from vedette_protocol.codec import decode_control, decode_model, encode_question
from vedette_protocol.errors import ProtocolError
from vedette_protocol.foreign_text import printable
from vedette_protocol.limits import PROTOCOL_VERSION
from vedette_protocol.messages import Refusal, Run, Stop
from vedette_rl.errors import RlError, UnknownEnvironmentError
from vedette_rl.storage.system import lock_file
from vedette_rl.storage.unfinished import remove_ended, unfinished_path
from vedette_services.errors import (
    DONE,
    FAILED,
    REFUSED,
    AddressError,
    RefusedError,
    RunImportRefusedError,
    environment_fix,
    foreign_error_message,
)
from vedette_services.host.system import vedette_version
from vedette_services.net import sockets
from vedette_services.net.addresses import Address
from vedette_services.net.handshake import probe_mechanism, time_handshake
from vedette_services.net.keys import ClientKeys
from vedette_services.net.small_packets import SEGMENT_BYTES, SmallPackets
from vedette_services.run.directory import RunDirectory
from vedette_services.run.shared_locks import describe_local_locks
from vedette_services.status.client import StatusClient
from vedette_services.status.status import Status

if TYPE_CHECKING:  # loaded when an environment is built
    from vedette_rl.envs.config import EnvConfig
    from vedette_rl.envs.make import TrialPlay
    from vedette_services.host.step_cost import Stepping

PORTS = ("samples", "control", "models")

_CONNECT_S = 3.0
_GREETING_S = 1.5
_ANSWER_S = 8.0
_RUN_S = 5.0
_MODEL_S = 15.0
_ASK_AGAIN_S = 0.3
_ASKS = 10
_CLOCK_OFF_S = 2.0
_OWNER_S = 6.0  # to see a learner's record move on another host
_SLOW_ROUND_TRIP_S = 0.3
_QUESTIONS = 60  # of 66 bytes: more than two packets of 1,500 bytes
_MTU_FIX = (
    "lower the MTU of this host's interface (ip link set dev IFACE mtu 1280), or let ICMP "
    '"fragmentation needed" through: VPNs and tunnels carry less than 1,500 bytes'
)
_WORTH_A_RATE = 1 << 20  # a smaller model says nothing of the link's rate


class Examination:
    """The checks of one host with one learner.

    ::

        for finding in Examination(address, keys).findings():
            print(finding)

    Args:
        keys: the keys of this host; None: it has none.
        env: an environment to build here in place of the run's.
        allow_import: top packages that the run's environment may import here.
        count: actors that this host would start.
    """

    def __init__(
        self,
        address: Address,
        keys: ClientKeys | None = None,
        *,
        env: str | None = None,
        allow_import: Collection[str] = (),
        count: int = 1,
    ) -> None:
        self._address = address
        self._keys = keys
        self._env = env
        self._allow_import = allow_import
        self._count = count

    def findings(self) -> Iterator[Finding]:
        """Make every check in turn; end early where the next one cannot be made."""
        try:
            addresses = self._address.resolved()
        except AddressError as error:
            yield fail("name", error.why, error.fix)
            return
        yield ok("name", f"{self._address.host} is {', '.join(each.host for each in addresses)}")
        several = len(addresses) > 1
        dead = [*itertools.takewhile(lambda each: not self._answers(each), addresses)] * several
        address = (addresses[len(dead) :] or addresses)[0]
        if dead and address not in dead:
            fix = "take it out of the name server: each costs a manager a moment"
            yield warn("name", f"nothing answers at {', '.join(map(str, dead))}", fix)
        ports = [self._port(address, above) for above in range(len(PORTS))]
        yield from ports
        if any(finding.state == "fail" for finding in ports):
            return
        try:
            with StatusClient(address, self._keys) as asker:
                status = asker.ask(_ANSWER_S)
                if status is None:
                    yield self._unanswered(address)
                    return
                yield ok("key", "accepted" if self._keys else "none is asked for (--insecure)")
                yield from _versions(status)
                yield from self._link(asker)
            yield self._large_messages(address)
        except RefusedError as error:
            yield refused("key", str(error))
            return
        yield from self._run_and_environment(address, status)

    # Network

    def _port(self, address: Address, above: int) -> Finding:
        """Check that a port takes connections and speaks ZMTP."""
        check = f"{PORTS[above]} port"
        port = address.port + above
        took_s = time_handshake(address, self._keys, above, _CONNECT_S)
        if took_s is not None:
            return ok(check, _speaks(port, took_s, "CURVE" if self._keys else "NULL"))
        began = time.monotonic()  # without a handshake: the learner counts these connections
        try:
            socket.create_connection((address.host, port), timeout=_CONNECT_S).close()
        except TimeoutError:
            open_ports = f"{address.port} to {address.port + 2}"
            fix = f"let TCP ports {open_ports} through the firewalls in between"
            return fail(check, f"{port}: no answer within {_CONNECT_S:g} s", fix)
        except ConnectionRefusedError:
            fix = "start the learner, or see that its --bind is not 127.0.0.1 and the port is its"
            return fail(check, f"{port}: nothing listens there", fix)
        except OSError as error:
            unreachable = error.errno in (errno.EHOSTUNREACH, errno.ENETUNREACH)
            what = "no route to it" if unreachable else error.strerror or str(error)
            return fail(check, f"{port}: {what}", "check the network, VPN or tunnel to this host")
        took_s = time.monotonic() - began
        mechanism = probe_mechanism(address, above, _GREETING_S)
        if mechanism is None:
            return fail(
                check,
                f"{port}: takes connections and says nothing",
                "a tunnel or proxy without a learner behind it, or a learner that hangs",
            )
        if not mechanism:
            fix = "give the port that the learner prints at its start"
            return fail(check, f"{port}: something answers that is no learner", fix)
        return ok(check, _speaks(port, took_s, mechanism))

    def _answers(self, address: Address) -> bool:
        """Return whether the samples' port of an address takes connections."""
        if time_handshake(address, self._keys, 0, _CONNECT_S) is not None:
            return True
        try:
            socket.create_connection((address.host, address.port), timeout=_CONNECT_S).close()
        except OSError:
            return False
        return True

    def _link(self, asker: StatusClient) -> Iterator[Finding]:
        """Check clock and round trip with repeated requests for the status."""
        trips, offsets = [], []
        for _ in range(_ASKS):
            began, sent = time.monotonic(), time.time()
            status = asker.ask(_ANSWER_S)
            trip = time.monotonic() - began
            if status is None:
                yield fail("round trip", f"a status did not come within {_ANSWER_S:g} s")
                return
            trips.append(trip)
            offsets.append(0.0 if status.time_s is None else status.time_s - (sent + trip / 2))
        offset, trip = statistics.median(offsets), statistics.median(trips)
        message = f"{offset:+.3f} s between the learner's clock and this one"
        if abs(offset) > _CLOCK_OFF_S:
            yield warn("clock", message, "let NTP set both, else logs do not match")
        else:
            yield ok("clock", message)
        message = f"{1000 * trip:.1f} ms (median of {_ASKS} asks for the status)"
        if trip > _SLOW_ROUND_TRIP_S:
            yield warn("round trip", message, "models will be late: expect more lag")
        else:
            yield ok("round trip", message)

    def _unanswered(self, address: Address) -> Finding:
        """Find out why there is no answer: a learner that hangs, or a network that drops it."""
        with SmallPackets(address) as relay, StatusClient(relay.address, self._keys) as asker:
            arrives = asker.ask(_ANSWER_S) is not None
        if arrives:
            return fail(
                "status",
                f"the answer arrives in packets of {SEGMENT_BYTES} bytes, and not in full-size "
                f"ones within {_ANSWER_S:g} s: something on the way drops large packets",
                _MTU_FIX,
            )
        fix = "look at the learner's log; `vedette status` asks the same question"
        return fail("status", f"no answer within {_ANSWER_S:g} s", fix)

    def _large_messages(self, address: Address) -> Finding:
        """Send what fills several packets: many questions for the status at once.

        The one that is asked last is answered only if all of them have arrived.
        """
        topics_asked = [topics.status_topic(secrets.token_hex(32)) for _ in range(_QUESTIONS)]
        sent = sum(map(len, topics_asked))
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        deadline = time.monotonic() + _ANSWER_S
        unanswered = set(topics_asked)
        try:
            with sockets.control_sub(context, address, *topics_asked, keys=self._keys) as control:
                while unanswered and (left := deadline - time.monotonic()) > 0:
                    if control.poll(int(left * 1000) + 1):
                        unanswered.discard(control.recv_multipart()[0])
        finally:
            context.destroy(linger=0)
        if unanswered:
            return fail(
                "large messages",
                f"{sent:,} bytes at once do not reach it within {_ANSWER_S:g} s, and short "
                "messages do: something on the way drops large packets",
                _MTU_FIX,
            )
        return ok("large messages", f"{sent:,} bytes at once reach it, and its answers come back")

    # Run

    def _run_and_environment(self, address: Address, status: Status) -> Iterator[Finding]:
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        try:
            me = f"doctor-{secrets.token_hex(6)}"
            run = self._announced(context, address, me)
            if isinstance(run, Stop):
                yield fail("run", f"it is over ({run.reason})", "start a learner for another")
                return
            if run is None:
                waits = status.waits or status.phase or "it does not say why"
                yield warn("run", f"none is announced yet ({waits})", "ask again in a moment")
            else:
                title = f"{run.agent.get('name')} on {run.env.get('id')}"
                yield ok("run", f"{run.run_id}, epoch {run.epoch}: {title}")
            yield self._samples_arrive(context, address, me, status)
            if run is not None:
                yield self._model(context, address, me, run)
        except ProtocolError as error:
            yield refused("run", str(error), "install the learner's version of vedette here")
            return
        finally:
            context.destroy(linger=0)
        yield from examine_environment(run, self._env, self._allow_import, self._count)

    def _announced(
        self, context: zmq.Context[zmq.Socket[bytes]], address: Address, me: str
    ) -> Run | Stop | None:
        """Ask for the run as a manager does; None if there is none yet."""
        subscribed = sockets.manager_subscriptions(me)
        deadline = time.monotonic() + _RUN_S
        with sockets.control_sub(context, address, *subscribed, keys=self._keys) as control:
            while (left := deadline - time.monotonic()) > 0:
                if control.poll(int(left * 1000) + 1):
                    message = decode_control(control.recv_multipart()[1:])
                    if isinstance(message, Run) or (isinstance(message, Stop) and message.final):
                        return message
        return None

    def _samples_arrive(
        self, context: zmq.Context[zmq.Socket[bytes]], address: Address, me: str, status: Status
    ) -> Finding:
        """Check that what goes to the samples' port reaches the learner of the control port.

        Each port alone may be well where a tunnel leads them to two learners.
        """
        check = "one learner"
        to, of = address.port, address.port + 1
        incarnation = secrets.randbits(63)
        question = encode_question(me, incarnation)
        _, own = sockets.manager_subscriptions(me)
        deadline = time.monotonic() + _ANSWER_S
        with (
            sockets.control_sub(context, address, own, keys=self._keys) as control,
            sockets.samples_push(context, address, self._keys) as samples,
        ):
            while time.monotonic() < deadline:
                with suppress(zmq.Again):  # not connected yet
                    sockets.send_now(samples, question)
                # Asked again: it may have come before the subscription.
                ask_again = min(deadline, time.monotonic() + _ASK_AGAIN_S)
                while (left := ask_again - time.monotonic()) > 0:
                    if not control.poll(int(left * 1000) + 1):
                        continue
                    answer = decode_control(control.recv_multipart()[1:])
                    if isinstance(answer, Refusal) and answer.incarnation == incarnation:
                        return ok(check, f"what is sent to {to} reaches the learner of {of}")
        message = f"what is sent to {to} does not reach the learner of {of} within {_ANSWER_S:g} s"
        if status.replay.disk_lag_s:
            return warn(check, f"{message}: it waits for its disk", "ask again in a moment")
        fix = f"let the three ports {to} to {to + 2} lead to one learner, with nothing held back"
        return fail(check, f"{message}: a tunnel leads them to two, or holds what is sent", fix)

    def _model(
        self, context: zmq.Context[zmq.Socket[bytes]], address: Address, me: str, run: Run
    ) -> Finding:
        """Receive the newest model as a manager does."""
        began = time.monotonic()
        _, own = sockets.manager_subscriptions(me)
        deadline = began + _MODEL_S
        received = 0
        with sockets.models_sub(context, address, own, keys=self._keys) as models:
            while (left := deadline - time.monotonic()) > 0:
                if not models.poll(int(left * 1000) + 1):
                    continue
                chunk = decode_model(models.recv_multipart()[1:])
                if chunk.run_id != run.run_id:
                    port = address.port
                    return fail(
                        "model",
                        f"{port + 2} sends models of run {chunk.run_id}, and {port + 1} announces "
                        f"run {run.run_id}: a tunnel leads them to two learners",
                        f"let the three ports {port} to {port + 2} lead to one learner",
                    )
                received += len(chunk.payload)
                if received >= chunk.total_bytes:
                    return _received(chunk.version, received, time.monotonic() - began)
        fix = "the link is slow, or the models' port is held up on the way"
        return warn("model", f"{received:,} bytes of it within {_MODEL_S:g} s", fix)


def _speaks(port: int, took_s: float, mechanism: str) -> str:
    closed = "with keys" if mechanism == "CURVE" else "without keys"
    return f"{port}: connected in {1000 * took_s:.1f} ms, ZMTP 3 {closed}"


def _received(version: int, received: int, took_s: float) -> Finding:
    message = f"version {version}, {received:,} bytes in {1000 * took_s:.0f} ms with the connecting"
    if received < _WORTH_A_RATE:
        return ok("model", f"{message} (too small to tell the link's rate)")
    rate = received / took_s / 1e6
    if rate < 1.0:
        return warn("model", f"{message}, {rate:.2f} MB/s", "the link is slow: sync less often")
    return ok("model", f"{message}, {rate:.1f} MB/s")


def _versions(status: Status) -> Iterator[Finding]:
    """Compare the versions; a status that was decoded has our protocol."""
    theirs, ours = status.vedette, vedette_version()
    protocol = status.protocol or PROTOCOL_VERSION
    message = f"protocol {protocol}, vedette {theirs or '?'} there"
    if theirs == ours:
        yield ok("version", f"{message} and here")
    else:
        yield warn("version", f"{message}, {ours or '?'} here", "install the same on both sides")


def examine_environment(
    run: Run | None, env: str | None, allow_import: Collection[str], count: int
) -> Iterator[Finding]:
    """Build the environment here, compare its rows with the run's, and measure its steps.

    Args:
        run: the announced run; None: there is none yet.
        env: the environment to build in place of the run's.
        count: actors that this host would start.
    """
    from vedette_rl.envs.config import EnvConfig
    from vedette_rl.envs.make import try_environment
    from vedette_services.actors.actor import check_schema
    from vedette_services.actors.run_validation import names_no_environment, validate_run
    from vedette_services.config.peer_settings import read_peer_settings

    if run is None and env is None:
        yield warn("environment", "not looked at: there is no run", "--env ID builds one")
        return
    try:
        if env is not None:
            config = EnvConfig(id=env)  # typed here: it may import what it names
        else:
            assert run is not None
            if names_no_environment(run):
                validate_run(run, allow_import, makes_envs=False)
                why = "the run declares its spaces and names none; vedette.Actor or a client plays"
                yield ok("environment", why)
                return
            validate_run(run, allow_import)  # refuses an import that is not allowed
            config = read_peer_settings(EnvConfig, run.env)
        trial = try_environment(
            config, steps=0 if _may_be_robot(run) else _TRIAL_STEPS, seconds=_TRIAL_S
        )
        yield ok(
            "environment", f"{config.id} can be built and stepped here{_describe_trial(trial)}"
        )
        if run is not None:
            check_schema(trial.spaces, run.schema)
            yield ok("spec", f"rows here are those of the run (schema {run.schema.hash})")
        yield from _speed(config, run, count)
    except RunImportRefusedError as error:
        yield refused("environment", str(error))
    except RefusedError as error:
        yield refused("spec", str(error))
    except RlError as error:  # it says the fix, as in `vedette run`
        fix = "install it on this host" if _is_not_installed(error) else ""
        yield fail("environment", " ".join(f"{error}{_notes(error)}".split()), fix)
    except Exception as error:  # noqa: BLE001 - an environment may raise anything
        fix = environment_fix(error) or "fix the environment"
        why = f"it raises {foreign_error_message(error)}{_notes(error)}"
        yield fail("environment", why, fix)


_TRIAL_STEPS = 1000
_TRIAL_S = 1.0


def _may_be_robot(run: Run | None) -> bool:
    """Return True for the one environment of a run, which must not be tried out."""
    from vedette_services.config.parts import ActorsConfig
    from vedette_services.config.peer_settings import read_peer_settings

    if run is None:
        return False
    actors = read_peer_settings(ActorsConfig, run.actors)
    return actors.count * actors.envs_per_actor <= 1


def _describe_trial(trial: TrialPlay) -> str:
    """Say how much was looked at."""
    if trial.steps == 1:
        return " (one step was looked at)"
    ends = "1 end" if trial.episodes == 1 else f"{trial.episodes:,} ends"
    return f": {trial.steps:,} random steps with {ends} of episodes were looked at"


def _notes(error: BaseException) -> str:
    """Format what was noted about an error, such as the step in which it came."""
    return "".join(f" ({note})" for note in getattr(error, "__notes__", ()))


def _is_not_installed(error: RlError) -> bool:
    """Return True for an environment that needs a module which is not here."""
    if not isinstance(error, UnknownEnvironmentError) or error.__cause__ is None:
        return False
    return not isinstance(error.__cause__, TypeError)  # of its constructor


def _speed(env: EnvConfig, run: Run | None, count: int) -> Iterator[Finding]:
    """Measure the environment's steps per second here, and what that is for the host's actors."""
    from vedette_services.config.parts import ActorsConfig
    from vedette_services.config.peer_settings import read_peer_settings
    from vedette_services.config.probing import EnvironmentProbe

    actors = ActorsConfig() if run is None else read_peer_settings(ActorsConfig, run.actors)
    if _may_be_robot(run) or env.is_declared or env.is_vector_form:
        return
    with EnvironmentProbe() as probe:
        cost = probe.step_cost(env)
    if cost is None:
        return
    envs = actors.envs_per_actor
    side_by_side: Stepping = "threads" if cost.overlaps else "processes"
    stepping = side_by_side if env.stepping == "auto" else env.stepping
    one = cost.steps_per_s(envs, stepping)
    several = f" of {envs} side by side" if one * cost.seconds > 1.5 else ""
    yield ok(
        "speed",
        f"a step {cost.describe()}: at most {one:,.0f} steps/s of an actor{several}, "
        f"{count * one:,.0f} of the {count} that `vedette actors` starts here; acting is not "
        "counted",
    )


def examine_directory(out: Path) -> Iterator[Finding]:
    """Check that a directory can hold a run, and that its locks keep a second learner away.

    Args:
        out: of a run, which may go on on another host; or an empty one.
    """
    check = "directory"
    if not out.is_dir():
        yield fail(check, f"{out} is no folder", "make it, or name one that is there")
        return
    remove_ended(out / "lock")
    file = unfinished_path(out / "lock")
    try:
        with file.open("wb") as opened:
            yield ok(check, f"{out} can be written")
            yield _own_lock(opened)
    except OSError as error:
        yield fail(check, f"{out} cannot be written: {error.strerror}", "name another folder")
        return
    finally:
        file.unlink(missing_ok=True)
    fix = "mount it with locks that all hosts share"
    if why := describe_local_locks(out):
        yield warn("locks", f"other hosts do not see them: {why}", fix)
    if (owner := RunDirectory(out).unseen_owner(_OWNER_S)) is not None:
        yield fail("locks", f"{owner} has this run, and its lock is not seen here", fix)


_HELD = 9
_LOCK_IT = f"""
import os, sys
from vedette_rl.storage.system import lock_file
try:
    lock_file(os.open(sys.argv[1], os.O_RDWR))
except BlockingIOError:
    sys.exit({_HELD})
"""
"""What a second process runs: its exit status says if the first one's lock keeps it out."""


def _own_lock(opened: IO[bytes]) -> Finding:
    """Check that a lock of this process keeps another process of this host out."""
    if not lock_file(opened.fileno()):
        fix = "mount it with locks"
        return warn("locks", "the file system has none: a second learner waits for a while", fix)
    command = [sys.executable, "-c", _LOCK_IT, opened.name]
    second = subprocess.run(command, capture_output=True, text=True, check=False)
    if second.returncode == 0:
        return fail("locks", "two processes of this host have one at once", "use another disk")
    if second.returncode != _HELD:
        return fail("locks", f"a second process cannot try one: {second.stderr.strip()[-200:]}")
    return ok("locks", "one process of this host has it at a time")


@dataclass(frozen=True, slots=True)
class Finding:
    """One check and its outcome.

    Args:
        check: name of the check.
        state: "warn" where a run works all the same.
        message: the outcome.
        fix: the remedy; "" if there is nothing to do.
        status: exit status of the command.
    """

    check: str
    state: Literal["ok", "warn", "fail"]
    message: str
    fix: str = ""
    status: int = DONE

    def __str__(self) -> str:
        fix = f"; {self.fix}" if self.fix else ""
        message = printable(self.message, None)  # it may quote a learner
        return f"{self.state:<4}  {self.check:<12} {message}{fix}"


def ok(check: str, message: str) -> Finding:
    return Finding(check, "ok", message)


def warn(check: str, message: str, fix: str = "") -> Finding:
    return Finding(check, "warn", message, fix)


def fail(check: str, message: str, fix: str = "") -> Finding:
    """A finding that keeps this host from taking part."""
    return Finding(check, "fail", message, fix, FAILED)


def refused(check: str, message: str, fix: str = "") -> Finding:
    """A refusal by the other side: trying again will not help."""
    return Finding(check, "fail", message, fix, REFUSED)
