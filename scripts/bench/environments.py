"""Where the benchmarks' files are, and the virtual environments of those that we are measured
beside."""

from __future__ import annotations

import fcntl
import subprocess
import sys
import venv
from collections.abc import Sequence
from pathlib import Path

from vedette_services.errors import ServicesError

ROOT = Path(__file__).resolve().parents[2]
PEER_PROGRAMS = Path(__file__).resolve().parent / "peer_programs"
_INSTALL_S = 1800


class NotInstallableError(ServicesError):
    """A peer's packages cannot be installed here."""


def install(directory: Path, needs: Sequence[str], interpreter: str = sys.executable) -> Path:
    """Make a virtual environment, unless it is there already.

    Args:
        directory: of the environment.
        needs: what pip installs into it.
        interpreter: that the environment is made with.

    Returns:
        the environment's interpreter.

    Raises:
        NotInstallableError: it cannot be made.
    """
    directory.parent.mkdir(exist_ok=True)
    with directory.with_name(f"{directory.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another measurement may want the same one
        return _install(directory, needs, interpreter)


def _install(directory: Path, needs: Sequence[str], interpreter: str) -> Path:
    python = directory / "bin" / "python"
    done = directory / "installed"
    if done.exists():
        return python
    try:
        if interpreter == sys.executable:
            venv.create(directory, with_pip=True, clear=True)
        else:
            _run([interpreter, "-m", "venv", "--clear", directory])
        _run([python, "-m", "pip", "install", "--quiet", *needs])
    except subprocess.TimeoutExpired as error:
        raise NotInstallableError(f"not installed within {_INSTALL_S} s") from error
    except subprocess.CalledProcessError as error:
        raise NotInstallableError(f"not installable: {last_line(error.stderr)}") from error
    except FileNotFoundError as error:
        raise NotInstallableError(f"not installable: {interpreter} is not here") from error
    done.touch()
    return python


def _run(command: Sequence[str | Path]) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=_INSTALL_S)


def last_line(text: object) -> str:
    """Return the last line of what a program printed, cut for a message."""
    return (str(text).strip().splitlines() or ["it printed nothing"])[-1][:200]
