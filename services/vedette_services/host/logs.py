"""Sets up the daemons' logs: text with time and level, or JSON with run, epoch, host and actor too.

A daemon calls `set_up_logging` first thing, and `set_log_context` whenever it learns where it is.
Its children inherit both by the environment.
"""

from __future__ import annotations

import io
import json
import logging
import os
import socket
import sys
import time
from types import TracebackType
from typing import TextIO, cast

from vedette_protocol.foreign_text import one_line
from vedette_services.host.output import tolerate_lost_output

FORMAT_VARIABLE = "VEDETTE_LOG_FORMAT"
_PLACE_VARIABLE = "VEDETTE_LOG_PLACE"  # the parent's place, for children alone

_PLACE: dict[str, str | int | None] = {"run": "", "epoch": 0, "manager": "", "actor": None}


def set_up_logging(chosen: str | None = None) -> None:
    """Log from INFO on to stderr, once and first thing in a daemon's process.

    Args:
        chosen: ``text`` or ``json``; None: what the parent, or `VEDETTE_LOG_FORMAT`, says. With
            ``json`` all that Python prints becomes lines of the log, too.
    """
    tolerate_lost_output()
    chosen = chosen or os.environ.get(FORMAT_VARIABLE) or "text"
    if chosen != "json":
        text = logging.StreamHandler()
        text.setFormatter(TextFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        logging.basicConfig(level=logging.INFO, handlers=[text])
        return
    os.environ[FORMAT_VARIABLE] = chosen
    set_log_context(**json.loads(os.environ.get(_PLACE_VARIABLE) or "{}"))
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter(socket.gethostname()))
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    sys.stdout = cast(TextIO, PrintedLines("stdout"))
    sys.stderr = cast(TextIO, PrintedLines("stderr"))
    sys.excepthook = _log_uncaught


def set_log_context(
    *,
    run: str | None = None,
    epoch: int | None = None,
    manager: str | None = None,
    actor: int | None = None,
) -> None:
    """Say where all later lines come from; what is None stays as it was."""
    given = {"run": run, "epoch": epoch, "manager": manager, "actor": actor}
    new = {name: value for name, value in given.items() if value not in (None, _PLACE[name])}
    if not new:
        return
    _PLACE.update(new)
    os.environ[_PLACE_VARIABLE] = json.dumps(_PLACE)


class TextFormatter(logging.Formatter):
    """Formats a message as one clean line, and times as in JSON: UTC, ISO 8601, milliseconds."""

    converter = staticmethod(time.gmtime)
    default_time_format = "%Y-%m-%dT%H:%M:%S"
    default_msec_format = "%s.%03dZ"

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        """The line of a record, which may quote texts of whatever origin."""
        return one_line(super().formatMessage(record))


class JsonFormatter(TextFormatter):
    """One JSON object a record: time, level, logger, run, epoch, host, manager, actor, message.

    A record may name its `actor` by ``extra={"actor": 3}``.
    """

    def __init__(self, host: str) -> None:
        super().__init__()
        self._host = host

    def format(self, record: logging.LogRecord) -> str:
        """The record as a line without its end."""
        message = record.getMessage()
        if record.exc_info:
            message = f"{message}\n{self.formatException(record.exc_info)}"
        actor = getattr(record, "actor", None)
        line = {
            "time": self.formatTime(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            **_PLACE,
            "host": self._host,
            **({} if actor is None else {"actor": actor}),
            "message": message,
        }
        return json.dumps(line, ensure_ascii=False)


class PrintedLines(io.TextIOBase):
    """A stream whose lines become lines of the log: what environments and libraries print.

    Args:
        name: the logger's name.
    """

    def __init__(self, name: str) -> None:
        self._log = logging.getLogger(name)
        self._begun = ""

    def write(self, text: str) -> int:
        """Take text; every line that is complete goes to the log."""
        *lines, self._begun = (self._begun + text).split("\n")
        for line in lines:
            if line.strip():
                self._log.info("%s", line.rstrip())
        return len(text)

    def writable(self) -> bool:
        return True


def _log_uncaught(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    logging.getLogger("vedette").critical("ended by", exc_info=(kind, error, trace))
