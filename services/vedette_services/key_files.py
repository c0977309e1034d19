"""Files that hold a CURVE key: each TOML with ``name``, ``public`` and, where it is secret,
``secret``: 40 characters of Z85 each, as libzmq writes keys."""

from __future__ import annotations

import os
import re
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

import zmq

from vedette_services.errors import KeysError

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
"""What a key may be called."""

_FILE_MAX_BYTES = 4096
_KEY = re.compile(r"[0-9a-zA-Z.\-:+=^!/*?&<>()\[\]{}@%$#]{40}")


@dataclass(frozen=True, slots=True)
class PublicKey:
    """Somebody's name and public key (Z85)."""

    name: str
    public: bytes


@dataclass(frozen=True, slots=True)
class KeyPair:
    """Somebody's name, public and secret key (Z85)."""

    name: str
    public: bytes
    secret: bytes = field(repr=False)


def write_secret(path: Path, pair: KeyPair) -> None:
    """The one place where a secret is written: a new file that only its owner reads.

    Raises:
        KeysError: the file exists; nothing is overwritten.
        OSError: it cannot be written.
    """
    text = (
        f"# The secret key of {pair.name!r}. Whoever can read this file can act in its name.\n"
        f'name = "{pair.name}"\npublic = "{pair.public.decode()}"\n'
        f'secret = "{pair.secret.decode()}"\n'
    )
    _write_new(path, text, 0o600)


def write_public(path: Path, key: PublicKey) -> None:
    """Write a public key to a new file, whole or not at all.

    Raises:
        KeysError: the file exists.
        OSError: it cannot be written.
    """
    text = f'# A public key.\nname = "{key.name}"\npublic = "{key.public.decode()}"\n'
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    aside.unlink(missing_ok=True)
    _write_new(aside, text, 0o644)
    try:
        os.link(aside, path)  # not a rename: that would overwrite
    except FileExistsError as error:
        raise KeysError(path, "is there already") from error
    finally:
        aside.unlink(missing_ok=True)


def _write_new(path: Path, text: str, mode: int) -> None:
    try:
        # The mode is the file's from its first moment: no instant in which others could open it.
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
    except FileExistsError as error:
        raise KeysError(path, "is there already", "keys are never overwritten") from error
    with os.fdopen(file, "w") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(file)


def read_secret(path: Path) -> KeyPair:
    """A key pair from its file.

    Raises:
        KeysError: it is not there, no key file, or somebody else can read it.
    """
    found = _read(path, secret=True)
    pair = KeyPair(found["name"], found["public"].encode(), found["secret"].encode())
    if zmq.curve_public(pair.secret) != pair.public:
        raise KeysError(path, "has a public key that is not its secret key's", "copy it again")
    return pair


def read_public(path: Path) -> PublicKey:
    """A public key from its file.

    Raises:
        KeysError: it is not there, or no key file.
    """
    found = _read(path, secret=False)
    return PublicKey(found["name"], found["public"].encode())


def _closed_to(owner: int) -> int:
    """The permissions that a secret of this owner must not grant.

    One that root laid out for us can be ours only by its group: so do engines that mount secrets.
    """
    return 0o037 if owner == 0 and os.getuid() != 0 else 0o077


def _read(path: Path, *, secret: bool) -> dict[str, str]:
    try:
        with path.open("rb") as stream:
            status = os.fstat(stream.fileno())
            mode = status.st_mode & 0o777
            if secret and mode & _closed_to(status.st_uid):
                raise KeysError(
                    path, f"others can read this secret (mode {mode:04o})", f"chmod 600 {path}"
                )
            text = stream.read(_FILE_MAX_BYTES + 1)
        found = tomllib.loads(text.decode())
    except OSError as error:
        raise KeysError(path, f"cannot be read: {error.strerror or error}") from error
    except ValueError as error:  # of tomllib and of the decoding
        raise KeysError(path, f"is no key file: {error}") from error
    keys = ("public", "secret") if secret else ("public",)
    name = found.get("name")
    if set(found) != {"name", *keys} or not isinstance(name, str) or not NAME.fullmatch(name):
        raise KeysError(path, f"is no key file: it has not just name, {', '.join(keys)}")
    for key in keys:
        if not isinstance(found[key], str) or not _KEY.fullmatch(found[key]):
            raise KeysError(path, f"{key} is not 40 characters of Z85")
    return found
