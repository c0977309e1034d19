"""`--keys`, `--insecure`, and a folder that comes from the environment."""

from pathlib import Path

import pytest

from vedette.cli.options import KEYS_VARIABLE, chosen_keys
from vedette_services.errors import UsageError


def test_insecure_overrides_a_folder_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEYS_VARIABLE, "keys")
    assert chosen_keys(Path("keys"), insecure=True) is None
    assert chosen_keys(Path("keys"), insecure=False) == Path("keys")


def test_saying_both_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(KEYS_VARIABLE, raising=False)
    with pytest.raises(UsageError, match="opposite"):
        chosen_keys(Path("keys"), insecure=True)
