"""Folders of CURVE keys: who is let in, and what a host needs of them.

::

    DIR/learner.secret.toml        the learner's pair; stays on its host
    DIR/admitted/NAME.toml         public keys of those whom the learner lets in
    DIR/hosts/NAME/key.secret.toml     NAME's pair, and
    DIR/hosts/NAME/learner.toml        the learner's public key: all that NAME's host needs

A folder of either shape is what `--keys` takes: the whole DIR on the learner's host (where the
learner's own pair also serves `status`, `doctor` and local actors), a copy of ``hosts/NAME`` on
another. What is in a file is `vedette_services.key_files`'s.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import zmq

from vedette_services.errors import KeysError
from vedette_services.key_files import (
    NAME,
    KeyPair,
    PublicKey,
    read_public,
    read_secret,
    write_public,
    write_secret,
)

LEARNER = "learner"
"""The name of the learner's own pair."""

LEARNER_SECRET = "learner.secret.toml"
HOST_SECRET = "key.secret.toml"
LEARNER_PUBLIC = "learner.toml"
ADMITTED, HOSTS = "admitted", "hosts"


@dataclass(frozen=True, slots=True)
class LearnerKeys:
    """What the learner's sockets need: its pair, and the folder that says who is let in."""

    directory: Path
    pair: KeyPair

    @classmethod
    def read(cls, directory: Path) -> LearnerKeys:
        """The learner's part of a folder made by `vedette keys new`.

        Raises:
            KeysError: it has none, or others can read it.
        """
        if not (directory / LEARNER_SECRET).exists():
            if (directory / HOST_SECRET).exists():
                raise KeysError(
                    directory, "is an actor host's folder", "a learner needs the one it came from"
                )
            raise KeysError(directory, "holds no keys", f"make them: vedette keys new {directory}")
        return cls(directory.absolute(), read_secret(directory / LEARNER_SECRET))


@dataclass(frozen=True, slots=True)
class ClientKeys:
    """What a connecting socket needs: its own pair, and the learner's public key (Z85)."""

    pair: KeyPair
    learner: bytes

    @classmethod
    def read(cls, directory: Path) -> ClientKeys:
        """The keys of an actor host's folder, or of the learner's own.

        Raises:
            KeysError: there are none, they do not fit, or others can read the secret.
        """
        if (directory / HOST_SECRET).exists():
            pair = read_secret(directory / HOST_SECRET)
            return cls(pair, read_public(directory / LEARNER_PUBLIC).public)
        pair = LearnerKeys.read(directory).pair
        return cls(pair, pair.public)


# Making


def make_keys(directory: Path, names: list[str]) -> None:
    """Make a folder with the learner's pair, and a pair for each name.

    Raises:
        KeysError: there are keys already, a name is none, or the place cannot be written.
    """
    for name in names:
        check_name(name)
    if (directory / LEARNER_SECRET).exists() or (directory / HOST_SECRET).exists():
        raise KeysError(
            directory, "has keys already", f"vedette keys add {directory} NAME adds another host's"
        )
    try:
        for place in (directory, directory / ADMITTED, directory / HOSTS):
            place.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_secret(directory / LEARNER_SECRET, _new_pair(LEARNER))
        for name in names:
            add_key(directory, name)
    except OSError as error:
        raise KeysError(directory, f"cannot be written: {error.strerror or error}") from error


def add_key(directory: Path, name: str) -> Path:
    """Make a pair for another host and let it in; returns the folder to copy there.

    A learner that runs with this folder admits it within a second or two.

    Raises:
        KeysError: the name is none or taken, or `directory` is not a learner's folder.
    """
    check_name(name)
    learner = LearnerKeys.read(directory).pair
    host, admitted = directory / HOSTS / name, directory / ADMITTED / f"{name}.toml"
    if admitted.exists() or _holds_something(host):
        raise KeysError(admitted, "is there already", f"vedette keys remove {directory} {name}")
    try:
        host.mkdir(mode=0o700, parents=True, exist_ok=True)  # it may be an empty volume
        admitted.parent.mkdir(mode=0o700, exist_ok=True)
        pair = _new_pair(name)
        write_secret(host / HOST_SECRET, pair)
        write_public(host / LEARNER_PUBLIC, PublicKey(LEARNER, learner.public))
        write_public(admitted, PublicKey(name, pair.public))
    except OSError as error:
        raise KeysError(host, f"cannot be written: {error.strerror or error}") from error
    return host


def remove_key(directory: Path, name: str) -> None:
    """Let a host in no more, and forget its pair. A running learner closes it out.

    Raises:
        KeysError: nobody of this name is let in.
    """
    check_name(name)
    admitted, host = directory / ADMITTED / f"{name}.toml", directory / HOSTS / name
    if not admitted.exists():
        raise KeysError(admitted, "is not there", f"vedette keys list {directory}")
    try:
        admitted.unlink()
        for file in (host / HOST_SECRET, host / LEARNER_PUBLIC):
            file.unlink(missing_ok=True)
        if host.is_dir() and not os.path.ismount(host):
            host.rmdir()
    except OSError as error:
        raise KeysError(admitted, f"cannot be removed: {error.strerror or error}") from error


def list_keys(directory: Path) -> tuple[PublicKey, list[PublicKey]]:
    """The learner's public key, and of those whom it lets in, by name.

    Raises:
        KeysError: `directory` is no learner's folder, or a file in it is broken.
    """
    pair = LearnerKeys.read(directory).pair
    admitted = sorted((directory / ADMITTED).glob("[!.]*.toml"))
    return PublicKey(pair.name, pair.public), [read_public(path) for path in admitted]


def check_name(name: str) -> None:
    """Refuse what is no name of a host's key.

    Raises:
        KeysError: it is not 1 to 64 of ``A-Z a-z 0-9 . _ -``, or means the learner.
    """
    if not NAME.fullmatch(name):
        raise KeysError(repr(name), "is no name", "use 1 to 64 of A-Z a-z 0-9 . _ -")
    if name == LEARNER:
        raise KeysError(repr(name), "means the learner's own key", "choose another")


def _holds_something(folder: Path) -> bool:
    return folder.exists() and any(folder.iterdir())


def _new_pair(name: str) -> KeyPair:
    public, secret = zmq.curve_keypair()
    return KeyPair(name, public, secret)
