"""The lines of a manager's log: a new one at once, one that repeats at a bounded rate."""

from __future__ import annotations

import errno
from collections import deque

from vedette_protocol.messages import Ack, Run
from vedette_protocol.send_window import Window
from vedette_rl.number_format import format_bytes, format_duration
from vedette_rl.storage.write_errors import describe_write_error
from vedette_services.actors.connection import Connection
from vedette_services.actors.instructions import Instruction, Level, WriteLog
from vedette_services.actors.outbox.files import OutboxFiles
from vedette_services.actors.outbox.outbox import Outbox
from vedette_services.actors.outbox.window import OutboxWindow
from vedette_services.host.rate_limited_log import RateLimitedLog
from vedette_services.status.records import SAMPLES_LATE_S
from vedette_services.status.stop_conditions import ENV_STEPS_REACHED

REPEAT_S = 30.0
LONG_WITHOUT_CREDIT_S = 10.0
_UPLOAD_LINES = 10
"""Lines by which the rate of an upload is measured: five minutes, since a rate changes all the time
where the learner gives credit by what it draws."""
UNHEARD = 2
"""Sockets in a row to which no ack came. One may meet a learner that dies a moment later."""


class ManagerLog:
    """Words the manager's log lines, as instructions.

    Args:
        learner: the learner's address.
    """

    def __init__(self, learner: str, now: float) -> None:
        self._where = f"the learner at {learner}"
        self._repeats = RateLimitedLog(REPEAT_S, changed_s=REPEAT_S / 10)
        self._delays = RateLimitedLog(REPEAT_S)  # the text changes all the time
        self._credit_at = now
        self._disk_failed = False
        self._unkept = RateLimitedLog(REPEAT_S)  # the text changes all the time
        self._is_away = False
        self._faults = RateLimitedLog(REPEAT_S)
        self._full = RateLimitedLog(REPEAT_S)
        # The times of its last lines, and the rows sent until then.
        self._upload = deque[tuple[float, int]](maxlen=_UPLOAD_LINES)
        self.address_error = ""
        """Why the learner's address is not known; "" if it is."""

    def log(self, level: Level, subject: str, text: str, now: float) -> list[Instruction]:
        """A line, unless the same was logged of its subject a short time ago."""
        return [WriteLog(level, text)] if self._repeats.should_log(subject, text, now) else []

    def log_reconnected(self) -> list[Instruction]:
        """A silence is over."""
        self._repeats.reset("silence")
        return [WriteLog("info", f"in touch with {self._where}")]

    def log_starting(self, ack: Ack, now: float) -> list[Instruction]:
        """The learner is there, and has announced no run yet."""
        text = f"{self._where} is there and announces no run yet: {ack.reason or 'it starts'}"
        return self.log("info", "starting", text, now)

    def log_reconnecting(
        self, connection: Connection, now: float, *, connected: bool
    ) -> list[Instruction]:
        """The sockets are made again."""
        if not connection.silent:
            return self.log("warning", "silence", f"connecting again to {self._where}", now)
        if not connection.ever_received:
            nothing = "nothing answers there yet; `vedette doctor` says how far one gets"
            why = "it is connected and silent" if connected else self.address_error or nothing
            return self.log("info", "silence", f"waiting for {self._where}: {why}", now)
        if connection.unheard >= UNHEARD:
            text = (
                f"{self._where} announces its run, and acknowledges nothing that is sent to it: "
                "perhaps a tunnel leads the three ports to two learners, or holds what is sent; "
                "`vedette doctor` tests that"
            )
            return self.log("warning", "unheard", text, now)
        text = f"no word from {self._where}: connecting again until it answers"
        return self.log("warning", "silence", text, now)

    def log_no_credit(self, ack: Ack, now: float) -> list[Instruction]:
        """No batch may be sent; logged once that lasts: the limiter's pauses are short and many."""
        if not ack.reason:
            self._credit_at = now
        if now - self._credit_at < LONG_WITHOUT_CREDIT_S:
            return []
        return self.log("info", "credit", f"the learner takes no samples now: {ack.reason}", now)

    def log_delay(self, window: Window | OutboxWindow, now: float) -> list[Instruction]:
        """Samples reach the learner late; nobody waits for that where the oldest are dropped."""
        delay_s = window.delay_s(now)
        # Where the oldest are dropped before that, it is said on the way there.
        late_s = min(SAMPLES_LATE_S, window.max_age_s / 2)
        if window.on_full == "block" or delay_s < late_s:
            return []
        dropped = f", {window.dropped:,} samples are dropped" if window.dropped else ""
        text = (
            f"samples reach the learner {delay_s:.0f} s late{dropped}: it takes fewer than the "
            "actors make (lower replay.samples_per_insert), or is away"
        )
        return [WriteLog("warning", text)] if self._delays.should_log("delay", "", now) else []

    def log_outbox(self, outbox: Outbox, run: Run) -> list[Instruction]:
        """What processes before this one have left, as a run begins."""
        directory = outbox.files.directory
        done: list[Instruction] = []
        if rows := outbox.ended_rows:
            text = f"{directory} holds {rows:,} samples of this run from before: they are sent, too"
            done.append(WriteLog("info", text))
        if foreign := outbox.foreign_sessions(run):
            rows = sum(session.unstored_rows for session in foreign)
            runs = sorted({session.run_id for session in foreign})
            text = (
                f"{directory} holds {rows:,} samples that run {run.run_id} does not take, of run "
                f"{', '.join(runs[:3])}: they stay until a learner of that run answers; where this "
                "run has begun again with --new-replay none will: remove their files"
            )
            done.append(WriteLog("warning", text))
        return done

    def log_outbox_full(
        self, outbox: Outbox, run: Run, payload_bytes: int, now: float
    ) -> list[Instruction]:
        """Actors wait for room for a batch."""
        if not self._full.should_log("full", "", now):
            return []
        files = outbox.files
        if files.away is not None:
            text = (
                f"{files.directory} is away ({files.away.strerror}), and memory has no room for "
                "more: actors wait until it is back, or until the learner has what is in memory"
            )
            return [WriteLog("warning", text)]
        if payload_bytes >= files.max_bytes:
            text = (
                f"a batch of {format_bytes(payload_bytes)} is larger than the outbox "
                f"{files.directory}, which has {format_bytes(files.max_bytes)}: start this manager "
                "with a larger --outbox-mib, or lower actors.n_buffer"
            )
            return [WriteLog("warning", text)]
        text = (
            f"the outbox {files.directory} is full: actors wait for room in its "
            f"{format_bytes(files.max_bytes)}"
        )
        if foreign := sum(session.bytes for session in outbox.foreign_sessions(run)):
            text += (
                f", of which other runs take {format_bytes(foreign)}: remove their files, or start "
                "this manager with a larger --outbox-mib"
            )
            return [WriteLog("warning", text)]
        return [WriteLog("info", text)]

    def log_upload(self, outbox: Outbox, now: float) -> list[Instruction]:
        """How much of what processes before this one have left is still to be sent, and how long
        that will take at the rate of the last minutes."""
        left = outbox.ended_rows
        if not left:
            self._upload.clear()
            return []
        if not self._upload:
            self._upload.append((now, outbox.uploaded))
        at, uploaded = self._upload[-1]
        if now - at < REPEAT_S:
            return []
        if outbox.uploaded == uploaded:
            self._upload.clear()  # a rate that counts the time without a learner is none
            self._upload.append((now, uploaded))
            return [WriteLog("info", f"{left:,} samples from before wait for the learner")]
        self._upload.append((now, outbox.uploaded))
        since, uploaded = self._upload[0]
        how_long = format_duration(left * (now - since) / (outbox.uploaded - uploaded))
        text = (
            f"{left:,} samples from before are still to be sent: about {how_long} at the rate of "
            f"the last {format_duration(now - since)}"
        )
        return [WriteLog("info", text)]

    def log_left(self, outbox: Outbox) -> list[Instruction]:
        """What stays in the outbox at the end."""
        own = outbox.own.rows if outbox.own is not None else 0
        if lost := outbox.files.rows_in_memory_alone:
            left = own + outbox.ended_rows - lost
            text = (
                f"{lost:,} samples that the learner does not have could not be written to "
                f"{outbox.files.directory}, and are lost; {left:,} are in its files"
            )
            return [WriteLog("error", text)]
        if rows := own + outbox.ended_rows:
            text = f"{rows:,} samples that the learner does not have stay in the outbox"
        elif not outbox.is_empty:
            text = "samples that are not known to be on the learner's disk stay in the outbox"
        else:
            return []
        return [WriteLog("info", text)]

    def log_outbox_state(self, files: OutboxFiles, now: float) -> list[Instruction]:
        """What could not be read or deleted, and whether the disk takes what is to be kept."""
        for fault in files.faults:
            self._faults.add("outbox", fault)
        files.faults.clear()
        lines = [f"outbox: {damage}" for damage in files.damage]  # once, as the folder was read
        files.damage.clear()
        lines += self._faults.due_lines(now)
        done: list[Instruction] = [WriteLog("error", line) for line in lines]
        if (files.away is not None) != self._is_away:
            self._is_away = files.away is not None
            done.append(self._describe_away(files))
        failure = files.failure
        if failure is None:
            if not self._disk_failed:
                return done
            self._disk_failed = False
            return [*done, WriteLog("info", f"{files.directory}: samples are written again")]
        self._disk_failed = True
        why = describe_write_error(failure, files.directory)
        if self._unkept.should_log("outbox", why, now):
            text = f"samples cannot be kept in {files.directory}: {why}; {_describe_unkept(files)}"
            done.append(WriteLog("error", text))
        return done

    def _describe_away(self, files: OutboxFiles) -> Instruction:
        """The outbox's folder is away, or back."""
        folder = files.directory
        if files.away is None:
            text = (
                f"{folder} is back: what its files have is sent, and what is in memory is written"
            )
            return WriteLog("info", text)
        why = files.away.strerror or str(files.away)
        held = files.rows_in_files_alone
        kept = f"; {held:,} samples in its files are sent once it is back" if held else ""
        text = (
            f"the outbox {folder} is away ({why}), as of a disk that is not mounted{kept}. New "
            f"samples are held in memory, {format_bytes(files.memory_bytes_max)} at most; "
            f"{_describe_unkept(files)}"
        )
        if files.away.errno == errno.ENOENT:
            text += "; it uses no other folder in that place unless it is started again"
        return WriteLog("error", text)

    def log_rejected(self, ack: Ack, now: float) -> list[Instruction]:
        """Batches were rejected, and why the last one was."""
        if not ack.rejected_reason:
            return []
        if ack.rejected_reason == ENV_STEPS_REACHED:
            text = f"the run has all its samples: {ENV_STEPS_REACHED}"
            return self.log("info", "rejected", text, now)
        text = f"the learner rejects batches of this manager: {ack.rejected_reason}"
        return self.log("warning", "rejected", text, now)

    def log_actor_death(
        self, index: int, why: str, traceback: str, now: float
    ) -> list[Instruction]:
        """An actor died; its traceback whole, but not the same one again and again."""
        text = f"actor {index} died: {why}"
        if traceback and self._repeats.should_log(f"traceback {index}", why, now):
            text += "\n" + traceback.rstrip()
        return [WriteLog("warning", text, index)]


def _describe_unkept(files: OutboxFiles) -> str:
    """How many samples are in memory alone, and what that means."""
    return (
        f"{files.rows_in_memory_alone:,} samples are in memory alone, kept no better than without "
        "an outbox: lost if this manager is killed, and freed once the learner has stored them"
    )
