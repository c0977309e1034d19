"""Keys that a one-shot service makes at the first start, and finds at every other."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import zmq

from vedette_services.errors import KeysError
from vedette_services.net.keys import (
    ClientKeys,
    LearnerKeys,
    ensure_keys,
    list_keys,
    make_keys,
    remove_key,
)
from vedette_services.net.zap import ZapHandler


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
