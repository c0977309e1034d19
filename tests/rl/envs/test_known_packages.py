"""Names of environments of other packages are answered with the whole name."""

from __future__ import annotations

from pathlib import Path

import pytest

from vedette_rl.envs import EnvConfig, probe_environment
from vedette_rl.envs.known_packages import package_hint
from vedette_rl.errors import UnknownEnvironmentError


@pytest.mark.parametrize(
    ("name", "whole"),
    [
        ("MiniGrid-Empty-5x5-v0", "minigrid:MiniGrid-Empty-5x5-v0"),
        ("FetchReach-v4", "gymnasium_robotics:FetchReach-v4"),
        ("PandaReach-v3", "panda_gym:PandaReach-v3"),
        ("gym_aloha/AlohaInsertion-v0", "gym_aloha:gym_aloha/AlohaInsertion-v0"),
        ("dm_control/cartpole-balance-v0", "shimmy:dm_control/cartpole-balance-v0"),
    ],
)
def test_an_id_without_its_module_is_answered_with_it(name: str, whole: str) -> None:
    with pytest.raises(UnknownEnvironmentError, match=f"named with its module, {whole}"):
        probe_environment(EnvConfig(id=name))


def test_a_package_that_is_not_here_is_named_as_pip_knows_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert package_hint("FetchReach-v4").endswith("pip install 'gymnasium-robotics'")


def test_a_slip_in_a_name_that_is_here_is_still_answered_with_the_nearest() -> None:
    with pytest.raises(UnknownEnvironmentError, match="nearest: CartPole-v1"):
        probe_environment(EnvConfig(id="CartPol-v1"))


def test_a_package_that_registers_in_its_module_envs_is_answered_with_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "registers_inside"
    (package / "envs").mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "envs" / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(
        UnknownEnvironmentError, match=r"registers_inside\.envs may: registers_inside\.envs:In-v0"
    ):
        probe_environment(EnvConfig(id="registers_inside:In-v0"))
