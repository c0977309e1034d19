"""Key files: made closed, read only while they are, never overwritten, found at every start."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
import zmq

from vedette_services.errors import KeysError
from vedette_services.net.keys import (
    ClientKeys,
    LearnerKeys,
    add_key,
    ensure_keys,
    list_keys,
    make_keys,
    read_public,
    read_secret,
    remove_key,
)
from vedette_services.net.zap import ZapHandler


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


def contents(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_the_first_call_makes_them_and_the_next_one_changes_nothing(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    assert ensure_keys(keys, ["actors"]) == ["actors"]
    before = contents(keys)
    assert ensure_keys(keys, ["actors"]) == []
    assert contents(keys) == before


def test_a_name_that_is_new_is_added_beside_those_that_are_there(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    make_keys(keys, ["actors"])
    before = contents(keys)
    assert ensure_keys(keys, ["actors", "lab-7"]) == ["lab-7"]
    assert before.items() <= contents(keys).items()
    assert [key.name for key in list_keys(keys)[1]] == ["actors", "lab-7"]


def test_folders_that_are_empty_volumes_are_filled(tmp_path: Path) -> None:
    (tmp_path / "keys" / "hosts" / "actors").mkdir(parents=True)
    ensure_keys(tmp_path / "keys", ["actors"])
    own = ClientKeys.read(tmp_path / "keys" / "hosts" / "actors")
    assert own.learner == LearnerKeys.read(tmp_path / "keys").pair.public


@pytest.mark.parametrize("missing", ["admitted/actors.toml", "hosts/actors/learner.toml"])
def test_what_a_killed_call_left_out_is_made_up_for(tmp_path: Path, missing: str) -> None:
    keys = tmp_path / "keys"
    make_keys(keys, ["actors"])
    (keys / missing).unlink()
    pair = ClientKeys.read(keys).pair if missing.startswith("hosts") else None
    ensure_keys(keys, ["actors"])
    own = ClientKeys.read(keys / "hosts" / "actors")
    assert [key.public for key in list_keys(keys)[1]] == [own.pair.public]
    assert pair is None or own.learner == pair.public


def test_a_folder_that_was_moved_to_its_host_is_not_made_again(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    make_keys(keys, ["lab-7"])
    for file in (keys / "hosts" / "lab-7").iterdir():
        file.unlink()
    assert ensure_keys(keys, ["lab-7"]) == []
    assert list((keys / "hosts" / "lab-7").iterdir()) == []


def test_somebody_elses_folder_in_a_hosts_place_is_refused(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    make_keys(keys, ["a", "b"])
    (keys / "hosts" / "a" / "key.secret.toml").unlink()
    (keys / "hosts" / "b" / "key.secret.toml").rename(keys / "hosts" / "a" / "key.secret.toml")
    with pytest.raises(KeysError, match="holds the pair of 'b'"):
        ensure_keys(keys, ["a"])


def test_a_removed_name_is_made_anew(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    ensure_keys(keys, ["actors"])
    first = list_keys(keys)[1]
    remove_key(keys, "actors")
    assert ensure_keys(keys, ["actors"]) == ["actors"]
    assert list_keys(keys)[1] != first


@pytest.mark.skipif(os.getuid() != 0, reason="only root can lay a file out for somebody else")
@pytest.mark.parametrize(("mode", "serves"), [(0o440, True), (0o640, True), (0o444, False)])
def test_a_secret_that_root_laid_out_for_our_group_is_ours(
    tmp_path: Path, mode: int, serves: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_keys(tmp_path / "keys", [])
    (tmp_path / "keys" / "learner.secret.toml").chmod(mode)
    monkeypatch.setattr("vedette_services.net.keys.os.getuid", lambda: 10001)
    if serves:
        LearnerKeys.read(tmp_path / "keys")
    else:
        with pytest.raises(KeysError, match="others can read"):
            LearnerKeys.read(tmp_path / "keys")


def test_keys_and_names_both_name_a_key(tmp_path: Path) -> None:
    make_keys(tmp_path / "keys", ["gpu-2", "lab-7"])
    public = {key.name: key.public.decode() for key in list_keys(tmp_path / "keys")[1]}
    with zmq.Context() as context:
        handler = ZapHandler(context, LearnerKeys.read(tmp_path / "keys"), now=0.0)
        assert handler.names_of(["gpu-2", "nobody"]) == {"gpu-2"}
        assert handler.names_of([public["lab-7"], "gpu-2", "0" * 40]) == {"lab-7", "gpu-2"}
        assert handler.names_of([]) == frozenset()
        handler.close()
