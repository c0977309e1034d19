"""`--keys`, `--insecure`, a folder that comes from the environment, and what a sweep hands on."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from configurations import configured  # of tests/support
from local_probe import LocalProcess

from vedette.cli.options import KEYS_VARIABLE, chosen_keys
from vedette_services.config import probing, write_config
from vedette_services.config.probing import EnvironmentProbe
from vedette_services.errors import UsageError
from vedette_services.host import probe_process


def test_insecure_overrides_a_folder_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEYS_VARIABLE, "keys")
    assert chosen_keys(Path("keys"), insecure=True) is None
    assert chosen_keys(Path("keys"), insecure=False) == Path("keys")


def test_saying_both_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(KEYS_VARIABLE, raising=False)
    with pytest.raises(UsageError, match="contradict"):
        chosen_keys(Path("keys"), insecure=True)


def test_a_trial_makes_no_environment_to_learn_of_it(
    vedette: Callable[..., tuple[int, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = configured("replay.capacity=1000", "env.stepping=serial", env="CartPole-v1")
    write_config(config, tmp_path / "trial.toml")
    with EnvironmentProbe(start=LocalProcess) as probe:  # type: ignore[arg-type]  # in its place
        probe.facts(config.env)
    (tmp_path / "known.json").write_text(json.dumps(probe.known()))
    monkeypatch.setattr(probe_process, "ProbeProcess", None)
    monkeypatch.setattr(probing, "start_process", None)  # whoever starts one fails
    known = ("--known", tmp_path / "known.json")
    trial = ("run", tmp_path / "trial.toml", "--complete", "--out", "one")
    status, said = vedette(*trial, *known, "agent.batch_size=2000")
    assert (status, "agent.batch_size" in said) == (2, True), said


def test_the_home_stands_for_a_tilde_that_no_shell_has_replaced(
    vedette: Callable[..., tuple[int, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    table = tmp_path / "mine.toml"
    table.write_bytes(b'\xef\xbb\xbf[replay]\ndirectory = "~/rows"\n')  # as Notepad saves it
    status, text = vedette("config", "~/mine.toml", "learner.snapshot=~/copy", "agent.network=mlp")
    assert status == 0
    assert f'directory = "{tmp_path}/rows"' in text
    assert f'snapshot = "{tmp_path}/copy"' in text
    assert vedette("runs", "~/none")[1] == f"vedette: {tmp_path}/none: there is no such folder\n"
    assert vedette("report", "--out=~/report.html", "~/none")[1].startswith(f"vedette: {tmp_path}")
