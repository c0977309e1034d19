"""Key files: made closed, read only while they are, never overwritten."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from vedette_services.errors import KeysError
from vedette_services.net.keys import (
    ClientKeys,
    LearnerKeys,
    add_key,
    list_keys,
    make_keys,
    read_public,
    read_secret,
    remove_key,
)


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    os.umask(0)  # even then
    make_keys(tmp_path / "keys", ["a", "b"])
    return tmp_path / "keys"


@pytest.fixture(autouse=True)
def _umask() -> object:
    before = os.umask(0o022)
    yield
    os.umask(before)


def files(folder: Path) -> list[str]:
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


def test_a_folder_holds_the_learners_part_and_a_part_for_each_host(keys: Path) -> None:
    assert files(keys) == [
        "admitted/a.toml",
        "admitted/b.toml",
        "hosts/a/key.secret.toml",
        "hosts/a/learner.toml",
        "hosts/b/key.secret.toml",
        "hosts/b/learner.toml",
        "learner.secret.toml",
    ]


def test_secrets_are_their_owners_alone_whatever_the_umask(keys: Path) -> None:
    secrets = [keys / "learner.secret.toml", *keys.glob("hosts/*/key.secret.toml")]
    assert len(secrets) == 3
    for path in secrets:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(keys.stat().st_mode) == 0o700


def test_public_parts_hold_no_secret(keys: Path) -> None:
    secrets = [read_secret(path).secret.decode() for path in keys.rglob("*.secret.toml")]
    for path in keys.rglob("*.toml"):
        if not path.name.endswith(".secret.toml"):
            assert not any(secret in path.read_text() for secret in secrets)
            assert "secret =" not in path.read_text()


def test_a_hosts_copy_is_all_that_it_needs_and_no_more(keys: Path) -> None:
    own = ClientKeys.read(keys / "hosts" / "a")
    learner = LearnerKeys.read(keys)
    assert own.learner == learner.pair.public
    assert own.pair.name == "a"
    assert own.pair.public == read_public(keys / "admitted" / "a.toml").public
    everything = "".join(path.read_text() for path in (keys / "hosts" / "a").iterdir())
    assert learner.pair.secret.decode() not in everything
    with pytest.raises(KeysError, match="is an actor host's folder"):
        LearnerKeys.read(keys / "hosts" / "a")


def test_beside_the_learner_its_own_pair_serves(keys: Path) -> None:
    own = ClientKeys.read(keys)
    assert (own.pair.name, own.learner) == ("learner", own.pair.public)


def test_a_secret_that_others_can_read_is_refused_with_the_fix(keys: Path) -> None:
    path = keys / "learner.secret.toml"
    for mode in (0o640, 0o604, 0o660):
        path.chmod(mode)
        with pytest.raises(KeysError, match=f"chmod 600 {path}") as refused:
            LearnerKeys.read(keys)
        assert refused.value.exit_status == 2


@pytest.mark.parametrize("open_part", ["admitted", "admitted/a.toml"])
def test_a_folder_to_which_everybody_could_add_keys_is_refused_with_the_fix(
    keys: Path, open_part: str
) -> None:
    path = keys / open_part
    path.chmod(path.stat().st_mode | stat.S_IWOTH)
    with pytest.raises(KeysError, match=f"{open_part}: everybody can write it.*chmod o-w"):
        LearnerKeys.read(keys)
    path.chmod(path.stat().st_mode & ~stat.S_IWOTH)
    LearnerKeys.read(keys)


def test_nothing_is_overwritten(keys: Path) -> None:
    before = {path: (keys / path).read_bytes() for path in files(keys)}
    with pytest.raises(KeysError, match="has keys already"):
        make_keys(keys, ["c"])
    with pytest.raises(KeysError, match="is there already"):
        add_key(keys, "a")
    assert {path: (keys / path).read_bytes() for path in files(keys)} == before


def test_keys_are_added_listed_and_removed(keys: Path) -> None:
    add_key(keys, "c")
    learner, admitted = list_keys(keys)
    assert learner.name == "learner"
    assert [key.name for key in admitted] == ["a", "b", "c"]
    remove_key(keys, "b")
    assert [key.name for key in list_keys(keys)[1]] == ["a", "c"]
    assert not (keys / "hosts" / "b").exists()
    with pytest.raises(KeysError, match="is not there"):
        remove_key(keys, "b")


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "a/b", "-x", "x" * 65, "a b", "learner"])
def test_a_name_that_is_none_makes_no_file(tmp_path: Path, name: str) -> None:
    with pytest.raises(KeysError):
        make_keys(tmp_path / "keys", [name])
    assert not (tmp_path / "keys").exists()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "name = 3",
        'name = "a"',
        "\xff",
        "x" * 5000,
        'name = "a"\npublic = "short"',
        'name = "../a"\npublic = "' + "0" * 40 + '"',
        'name = "a"\npublic = "' + "~" * 40 + '"',
    ],
)
def test_what_is_no_key_file_is_refused_by_name(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.toml"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(KeysError, match=r"x\.toml"):
        read_public(path)


def test_a_pair_that_does_not_fit_together_is_refused(keys: Path) -> None:
    a, b = keys / "hosts/a/key.secret.toml", keys / "hosts/b/key.secret.toml"
    mixed = a.read_text().replace(read_secret(a).secret.decode(), read_secret(b).secret.decode())
    a.write_text(mixed)
    with pytest.raises(KeysError, match="not its secret key's"):
        ClientKeys.read(keys / "hosts" / "a")


def test_a_secret_is_not_shown_by_accident(keys: Path) -> None:
    learner = LearnerKeys.read(keys)
    assert learner.pair.secret.decode() not in repr(learner) + repr(ClientKeys.read(keys))
