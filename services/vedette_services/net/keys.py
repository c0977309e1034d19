"""Folders of CURVE keys: for the learner and those it admits, and for a host.

::

    DIR/learner.secret.toml        the learner's pair; stays on its host
    DIR/admitted/NAME.toml         public keys of those whom the learner lets in
    DIR/hosts/NAME/key.secret.toml     NAME's pair, and
    DIR/hosts/NAME/learner.toml        the learner's public key: all that NAME's host needs

A folder of either shape is what `--keys` takes: the whole DIR on the learner's host (where the
learner's own pair also serves `status`, `doctor` and local actors), a copy of ``hosts/NAME`` on
another.
"""

from __future__ import annotations

import os
import re
import stat
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import zmq

from vedette_rl.storage.system import sync_file
from vedette_rl.storage.unfinished import remove_ended, unfinished_path
from vedette_services.errors import KeysError

LEARNER = "learner"
"""The name of the learner's own pair."""

LEARNER_SECRET = "learner.secret.toml"
HOST_SECRET = "key.secret.toml"
LEARNER_PUBLIC = "learner.toml"
ADMITTED = "admitted"
HOSTS = "hosts"


NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
"""The names that a key may have."""

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
    remove_ended(path)
    aside = unfinished_path(path)
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
        sync_file(file)


def read_secret(path: Path) -> KeyPair:
    """A key pair from its file.

    Raises:
        KeysError: it is not there, no key file, or somebody else can read it.
    """
    values = _read(path, secret=True)
    pair = KeyPair(values["name"], values["public"].encode(), values["secret"].encode())
    if zmq.curve_public(pair.secret) != pair.public:
        raise KeysError(path, "has a public key that is not its secret key's", "copy it again")
    return pair


def read_public(path: Path) -> PublicKey:
    """A public key from its file.

    Raises:
        KeysError: it is not there, or no key file.
    """
    values = _read(path, secret=False)
    return PublicKey(values["name"], values["public"].encode())


def _closed_to(owner: int) -> int:
    """The permissions that a secret of this owner must not grant.

    One that root laid out for us can be ours only by its group: so do engines that mount secrets.
    Windows has no permissions of this kind; its folders of a user are closed by others.
    """
    if not hasattr(os, "getuid"):
        return 0
    return 0o037 if owner == 0 and os.getuid() != 0 else 0o077


@contextmanager
def _disk_errors(place: Path, done: str) -> Iterator[None]:
    """Raise what a disk refuses as a `KeysError` of `place`, which cannot be `done`."""
    try:
        yield
    except OSError as error:
        raise KeysError(place, f"cannot be {done}: {error.strerror or error}") from error


def _read(path: Path, *, secret: bool) -> dict[str, str]:
    with _disk_errors(path, "read"), path.open("rb") as stream:
        status = os.fstat(stream.fileno())
        mode = status.st_mode & 0o777
        if secret and mode & _closed_to(status.st_uid):
            raise KeysError(
                path, f"others can read this secret (mode {mode:04o})", f"chmod 600 {path}"
            )
        text = stream.read(_FILE_MAX_BYTES + 1)
    try:
        values = tomllib.loads(text.decode())
    except ValueError as error:  # of tomllib and of the decoding
        raise KeysError(path, f"is no key file: {error}") from error
    keys = ("public", "secret") if secret else ("public",)
    name = values.get("name")
    if set(values) != {"name", *keys} or not isinstance(name, str) or not NAME.fullmatch(name):
        raise KeysError(path, f"is no key file: it has not just name, {', '.join(keys)}")
    for key in keys:
        if not isinstance(values[key], str) or not _KEY.fullmatch(values[key]):
            raise KeysError(path, f"{key} is not 40 characters of Z85")
    return values


@dataclass(frozen=True, slots=True)
class LearnerKeys:
    """The learner's pair, and the folder that says who is admitted."""

    directory: Path
    pair: KeyPair

    @classmethod
    def read(cls, directory: Path, *, of_first: bool = False) -> LearnerKeys:
        """The learner's part of a folder made by `vedette keys new`.

        Args:
            of_first: a learner goes on elsewhere, and managers let it in with the first one's keys
                alone.

        Raises:
            KeysError: it has none, others can read it, or anybody could add keys to it.
        """
        if not (directory / LEARNER_SECRET).exists():
            if (directory / HOST_SECRET).exists():
                raise KeysError(
                    directory, "is an actor host's folder", "a learner needs the one it came from"
                )
            fix = f"make them: vedette keys new {directory}"
            if of_first:
                fix = (
                    "copy the first learner's folder of keys there: new ones lock out its managers"
                )
            raise KeysError(directory, "holds no keys", fix)
        check_admitted(directory / ADMITTED)
        return cls(directory.absolute(), read_secret(directory / LEARNER_SECRET))


@dataclass(frozen=True, slots=True)
class ClientKeys:
    """A connecting socket's own pair, and the learner's public key (Z85)."""

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
        if not (directory / LEARNER_SECRET).exists():
            fix = "name this host's folder: hosts/NAME of the one that `vedette keys new` made"
            raise KeysError(directory, "holds no keys", fix)
        pair = LearnerKeys.read(directory).pair
        return cls(pair, pair.public)


def check_admitted(folder: Path) -> None:
    """Refuse a folder of admitted keys to which every user of this host could add theirs.

    Raises:
        KeysError: it, or a file in it, can be written by everybody.
    """
    if not folder.is_dir() or os.statvfs(folder).f_flag & os.ST_RDONLY:  # e.g. a mounted secret
        return
    for path in (folder, *sorted(folder.glob("[!.]*.toml"))):
        if path.stat().st_mode & stat.S_IWOTH:
            raise KeysError(path, "everybody can write it, and so be let in", f"chmod o-w {path}")


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
    with _disk_errors(directory, "written"):
        for place in (directory, directory / ADMITTED, directory / HOSTS):
            place.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_secret(directory / LEARNER_SECRET, KeyPair(LEARNER, *zmq.curve_keypair()))
        for name in names:
            add_key(directory, name)


def add_key(directory: Path, name: str) -> Path:
    """Make a pair for another host and let it in; returns the folder to copy there.

    A learner that runs with this folder admits it within a second or two.

    Raises:
        KeysError: the name is none or taken, or `directory` is not a learner's folder.
    """
    check_name(name)
    learner = LearnerKeys.read(directory).pair
    host = directory / HOSTS / name
    admitted = directory / ADMITTED / f"{name}.toml"
    if admitted.exists() or (host.exists() and any(host.iterdir())):
        raise KeysError(admitted, "is there already", f"vedette keys remove {directory} {name}")
    with _disk_errors(host, "written"):
        host.mkdir(mode=0o700, parents=True, exist_ok=True)  # it may be an empty volume
        admitted.parent.mkdir(mode=0o700, exist_ok=True)
        pair = KeyPair(name, *zmq.curve_keypair())
        write_secret(host / HOST_SECRET, pair)
        write_public(host / LEARNER_PUBLIC, PublicKey(LEARNER, learner.public))
        write_public(admitted, PublicKey(name, pair.public))
    return host


def remove_key(directory: Path, name: str) -> None:
    """Let a host in no more, and forget its pair. A running learner closes it out.

    Raises:
        KeysError: no host of this name is admitted.
    """
    check_name(name)
    admitted = directory / ADMITTED / f"{name}.toml"
    host = directory / HOSTS / name
    if not admitted.exists():
        raise KeysError(admitted, "is not there", f"vedette keys list {directory}")
    with _disk_errors(admitted, "removed"):
        admitted.unlink()
        for file in (host / HOST_SECRET, host / LEARNER_PUBLIC):
            file.unlink(missing_ok=True)
        if host.is_dir() and not os.path.ismount(host):
            host.rmdir()


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


def ensure_keys(directory: Path, names: list[str]) -> list[str]:
    """Make what is missing of a folder of keys; what is there stays.

    It may have been stopped half-way before: a pair without its admission is admitted.

    Returns:
        The names whose pair was made now.

    Raises:
        KeysError: a name is none, a file is broken, or the place cannot be written.
    """
    for name in names:
        check_name(name)
    if not (directory / LEARNER_SECRET).exists():
        make_keys(directory, [])
    made = [name for name in names if not _has_pair(directory, name)]
    for name in names:
        if name in made:
            add_key(directory, name)
        else:
            _complete(directory, name)
    return made


def _has_pair(directory: Path, name: str) -> bool:
    """Return whether a host has keys; its folder may have been moved to it since."""
    secret = directory / HOSTS / name / HOST_SECRET
    return secret.exists() or (directory / ADMITTED / f"{name}.toml").exists()


def _complete(directory: Path, name: str) -> None:
    host = directory / HOSTS / name
    admitted = directory / ADMITTED / f"{name}.toml"
    if not (host / HOST_SECRET).exists():
        return
    pair = read_secret(host / HOST_SECRET)
    if pair.name != name:
        raise KeysError(host, f"holds the pair of {pair.name!r}", "give each host its own folder")
    if not (host / LEARNER_PUBLIC).exists():
        learner = LearnerKeys.read(directory).pair
        write_public(host / LEARNER_PUBLIC, PublicKey(LEARNER, learner.public))
    if not admitted.exists():
        admitted.parent.mkdir(mode=0o700, exist_ok=True)
        write_public(admitted, PublicKey(name, pair.public))
