"""What a script defines only where it runs is refused before other processes look for it."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from vedette_rl.envs import EnvConfig, make_env
from vedette_rl.envs.naming import environment_table
from vedette_rl.errors import UnknownEnvironmentError, UnknownNameError
from vedette_rl.import_by_name import import_by_name

SCRIPT = """
from gymnasium.envs.classic_control.cartpole import CartPoleEnv
import gymnasium

try:
    class Both(CartPoleEnv):
        pass
finally:
    pass

if __name__ == "__main__":
    class Mine(CartPoleEnv):
        pass

    class Both(Both):
        pass

    class Network:
        pass
"""
FIX = r"line {} of guarded_script.py defines it below `if __name__ == \"__main__\":`.*move it above"


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """A script that runs as the main program, in a folder from which others import it."""
    file = tmp_path / "guarded_script.py"
    file.write_text(SCRIPT)
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    main = ModuleType("__main__")
    main.__file__ = str(file)
    monkeypatch.setitem(sys.modules, "__main__", main)
    exec(compile(SCRIPT, file, "exec"), vars(main))
    yield main
    sys.modules.pop("guarded_script", None)


def test_a_class_below_the_guard_is_refused_with_its_line(script: ModuleType) -> None:
    with pytest.raises(UnknownNameError, match=FIX.format(12)):
        environment_table(script.Mine, shared=True)


def test_a_class_that_an_import_has_too_is_named(script: ModuleType) -> None:
    assert environment_table(script.Both, shared=True) == {"id": "guarded_script:Both"}


def test_a_name_of_such_a_class_is_refused_with_its_line(script: ModuleType) -> None:
    with pytest.raises(UnknownNameError, match=FIX.format(18)):
        import_by_name("agent.network", "guarded_script:Network")
    with pytest.raises(UnknownEnvironmentError, match=FIX.format(12)):
        make_env(EnvConfig(id="guarded_script:Mine"))


def test_a_name_that_is_nowhere_is_said_to_be_missing_alone(script: ModuleType) -> None:
    with pytest.raises(UnknownNameError, match=r"has no 'Other'$"):
        import_by_name("agent.network", "guarded_script:Other")
