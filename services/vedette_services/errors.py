"""What can go wrong in what runs. Each error writes its own sentence and knows its exit status.

::

    ServicesError                  1
    ├── UsageError                 2   the command line or the configuration is wrong
    │   ├── ConfigError                a key of the configuration, with the mend
    │   │   └── AddressError           a host and port
    │   ├── SecurityError              something would be open that nobody asked to open
    │   └── NotARunError               a folder that holds no run
    ├── RefusedError               3   the other side said no (version, spec, key, id)
    ├── AddressInUseError          1
    ├── NoAnswerError              1   nobody answers at an address
    └── DaemonFailedError          its own: a daemon that we started ended badly
"""

from __future__ import annotations

from pathlib import Path

DONE, FAILED, USAGE, REFUSED = 0, 1, 2, 3
"""Exit statuses: done or stopped on request, any other failure, usage or configuration, refused."""


class ServicesError(Exception):
    """Everything that `vedette_services` raises on its own account."""

    exit_status = FAILED


class UsageError(ServicesError):
    """The command line or the configuration is wrong: nothing was started."""

    exit_status = USAGE


class ConfigError(UsageError):
    """A key of the configuration is wrong.

    Args:
        key: its path, as `--set` takes it.
        why: what is wrong with it.
        mend: what to do about it; "" where `why` says it already.
    """

    def __init__(self, key: str, why: str, mend: str = "") -> None:
        super().__init__(f"{key}: {why}" + (f"; {mend}" if mend else ""))
        self.key, self.why, self.mend = key, why, mend


class AddressError(ConfigError):
    """Text that is no address."""

    def __init__(self, text: str, why: str) -> None:
        super().__init__(f"address {text!r}", why, "write HOST or HOST:PORT, such as 127.0.0.1:5555")
        self.text = text


class SecurityError(UsageError):
    """Something would be open to the network that nobody asked to open."""


class NotARunError(UsageError):
    """A folder holds no run, or lacks the part of one that was asked for."""

    def __init__(self, directory: Path, lacks: str) -> None:
        super().__init__(f"{directory}: not a run, it has no {lacks}")
        self.directory, self.lacks = directory, lacks


class RefusedError(ServicesError):
    """The other side refused this one, and trying again would not help."""

    exit_status = REFUSED


class AddressInUseError(ServicesError):
    """A port to bind is taken."""

    def __init__(self, endpoint: str, what: str) -> None:
        super().__init__(
            f"cannot bind {endpoint} for {what}: address in use; "
            "end the program that has it or choose another --bind HOST:PORT"
        )
        self.endpoint, self.what = endpoint, what


class NoAnswerError(ServicesError):
    """Nobody answers at an address."""

    def __init__(self, address: object, waited_s: float) -> None:
        super().__init__(f"no learner answers at {address} (waited {waited_s:g} s)")
        self.address, self.waited_s = address, waited_s


class DaemonFailedError(ServicesError):
    """A daemon that was started for a run ended badly."""

    def __init__(self, name: str, status: int, log: Path, last_words: str) -> None:
        how = f"exit status {status}" if status >= 0 else f"signal {-status}"
        words = f": {last_words}" if last_words else ""
        super().__init__(f"the {name} ended with {how}{words} (its log: {log})")
        self.name, self.log = name, log
        self.exit_status = status if status in (USAGE, REFUSED) else FAILED
