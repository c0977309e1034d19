"""Keys that are made at the first start and stay: what a one-shot service of a fleet calls."""

from __future__ import annotations

from pathlib import Path

from vedette_services.errors import KeysError
from vedette_services.key_files import PublicKey, read_secret, write_public
from vedette_services.keys import (
    ADMITTED,
    HOST_SECRET,
    HOSTS,
    LEARNER,
    LEARNER_PUBLIC,
    LEARNER_SECRET,
    LearnerKeys,
    add_key,
    check_name,
    make_keys,
)


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
    """Whether a host has keys; its folder may have been moved to it since."""
    secret = directory / HOSTS / name / HOST_SECRET
    return secret.exists() or (directory / ADMITTED / f"{name}.toml").exists()


def _complete(directory: Path, name: str) -> None:
    host, admitted = directory / HOSTS / name, directory / ADMITTED / f"{name}.toml"
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
