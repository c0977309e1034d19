"""A run that a newer release wrote is refused as that, and a mistyped key as a mistyped key."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from vedette_services.config.loading import load_config, read_config
from vedette_services.config.saving import write_config
from vedette_services.errors import ManySettingsError, NewerRunError, SettingError
from vedette_services.host.system import vedette_version

HERE = vedette_version()


def saved_run(folder: Path, *, last: str, line: str = 'outbox = "/x"') -> Path:
    """A run's configuration with a line more in [actors], last started by a release."""
    saved = folder / "config.toml"
    write_config(load_config(env="CartPole-v1", agent="dqn").config, saved)
    saved.write_text(saved.read_text().replace("[actors]", f"[actors]\n{line}"))
    starts = [{"versions": {"vedette": "0.1.0"}}, {"versions": {"vedette": last}}]
    if last:
        (folder / "provenance.json").write_text(json.dumps(starts))
    return saved


@pytest.mark.parametrize("last", ["99.0.0", HERE, ""])
def test_a_run_with_a_key_of_a_newer_release_is_refused_as_that(tmp_path: Path, last: str) -> None:
    saved = saved_run(tmp_path, last=last)
    with pytest.raises(NewerRunError) as read:
        read_config(saved)
    with pytest.raises(NewerRunError) as resumed:
        load_config(saved=saved, settings=["actors.count=3"])
    assert str(read.value) == str(resumed.value)
    unknown = f"{HERE} here does not know actors.outbox"
    by_hand = "take out what you wrote yourself, or install the version that wrote it"
    said = {
        "99.0.0": f"made by a newer version of vedette (99.0.0; {unknown}); install vedette 99.0.0",
        HERE: f"vedette {unknown}, and vedette {HERE} started this run last; {by_hand}",
        "": f"vedette {unknown}, and it is not recorded which version started this run last; "
        f"{by_hand}",
    }
    assert str(read.value) == f"{saved}: {said[last]}"


def test_a_value_of_a_newer_release_is_refused_as_that_where_the_run_says_so(
    tmp_path: Path,
) -> None:
    line = 'on_full = "compress"'
    with pytest.raises(NewerRunError, match=r"does not know actors.on_full"):
        read_config(_without_on_full(saved_run(tmp_path, last="99.0.0", line=line)))
    with pytest.raises(SettingError, match=r"actors.on_full: must be 'block' or"):
        read_config(_without_on_full(saved_run(tmp_path, last=HERE, line=line)))


def _without_on_full(saved: Path) -> Path:
    saved.write_text(saved.read_text().replace('on_full = "block"\n', ""))
    return saved


def test_a_key_that_a_later_release_dropped_is_no_newer_release(tmp_path: Path) -> None:
    saved = saved_run(tmp_path, last="0.1.0")
    with pytest.raises(SettingError, match=r"actors.outbox: unknown key"):
        read_config(saved)


def test_a_mistyped_key_of_a_command_is_its_own_beside_a_whole_run(tmp_path: Path) -> None:
    saved = saved_run(tmp_path, last=HERE, line="")
    with pytest.raises((SettingError, ManySettingsError), match=r"actors.outbocks: unknown key"):
        load_config(saved=saved, settings=["actors.outbocks=3"])


@pytest.mark.parametrize("provenance", ["", "[]", "[{}]", "{", '[{"versions": 3}]', "[" * 100_000])
def test_a_damaged_provenance_says_no_release(tmp_path: Path, provenance: str) -> None:
    saved = saved_run(tmp_path, last="")
    (tmp_path / "provenance.json").write_text(provenance)
    with pytest.raises(NewerRunError, match="it is not recorded which version"):
        read_config(saved)
