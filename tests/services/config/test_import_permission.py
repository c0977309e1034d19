"""What a run's own settings may import: what was typed, allowed, or begun by this user before."""

from __future__ import annotations

import stat
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from configurations import configured

from vedette_services.config import import_permission, write_config
from vedette_services.config.import_permission import (
    check_allowed,
    check_run_imports,
    importing_parts,
    record_begun,
)
from vedette_services.config.loading import load_config, read_config, read_toml
from vedette_services.config.saving import config_table
from vedette_services.errors import ImportPermissionError, UsageError

RUN = Path("runs/theirs")
Table = dict[str, Any]

MODULE = """
import gymnasium
from pathlib import Path
Path(__file__).with_suffix(".executed").touch()
def make(**kwargs) -> gymnasium.Env: return gymnasium.make("CartPole-v1")
"""


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's state folder, in which nothing is recorded yet."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    forget(monkeypatch)
    return tmp_path / "state" / "vedette" / "begun"


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in another process."""
    monkeypatch.setattr(import_permission, "_begun_by_this_process", set())


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Writes a module of makers into a folder that Python finds; returns its file."""

    def write(folder: str = "project", name: str = "guest_of_tests") -> Path:
        place = tmp_path / folder
        place.mkdir(exist_ok=True)
        file = place / f"{name}.py"
        file.write_text(MODULE)
        monkeypatch.syspath_prepend(str(place))
        monkeypatch.delitem(sys.modules, name, raising=False)
        return file

    return write


def a_run(env_id: str = "guest_of_tests:make", **parts: Any) -> Table:
    return {"env": {"id": env_id, **parts.pop("env", {})}, "agent": {"name": "dqn"}, **parts}


@pytest.mark.parametrize(
    "table",
    [
        a_run("subprocess:call"),
        a_run("CartPole-v1", env={"wrappers": ["gymnasium.wrappers:RecordVideo"]}),
        a_run("CartPole-v1", env={"wrappers": [{"name": "my:Wrapper", "kwargs": {}}]}),
        a_run("CartPole-v1", agent={"name": "my_pkg.agents:Mine"}),
        a_run("CartPole-v1", agent={"name": "dqn", "network": "my_pkg:Net"}),
        a_run("CartPole-v1", agent={"name": "dqn", "exploration": {"kind": "my_pkg:Explore"}}),
        a_run("CartPole-v1", actors={"step_processor": "my_pkg:Steps"}),
        a_run("CartPole-v1", replay={"name": "my_pkg:Replay"}),
        a_run("CartPole-v1", learner={"recorders": ["tensorboard", "my_pkg:Recorder"]}),
    ],
)
@pytest.mark.usefixtures("state")
def test_a_run_of_somebody_else_imports_nothing_unless_it_is_allowed_or_typed(table: Table) -> None:
    with pytest.raises(ImportPermissionError, match=r"^runs/theirs: it imports '.*--allow-import"):
        check_run_imports(RUN, table)
    packages = {package for part in importing_parts(table) for package in part.packages}
    check_run_imports(RUN, table, packages)
    names = {name for part in importing_parts(table) for name in part.names}
    check_run_imports(RUN, table, typed=names)


@pytest.mark.usefixtures("state")
def test_a_run_without_imports_needs_no_permission() -> None:
    framed = {"wrappers": ["gymnasium.wrappers:FlattenObservation"]}
    check_run_imports(RUN, a_run("CartPole-v1", env=framed))
    assert not list(importing_parts(a_run("ALE/Pong-v5")))


@pytest.mark.usefixtures("state")
def test_of_two_packages_both_are_asked_for() -> None:
    table = a_run("one:make", env={"wrappers": ["two:Wrapper"]})
    with pytest.raises(ImportPermissionError, match=r"--allow-import one --allow-import two$"):
        check_run_imports(RUN, table)
    with pytest.raises(ImportPermissionError, match=r"--allow-import two$"):
        check_run_imports(RUN, table, ["one"])


def test_what_this_user_has_begun_needs_no_permission_in_any_directory(
    state: Path, module: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    module()
    record_begun(a_run())
    forget(monkeypatch)
    check_run_imports(RUN, a_run())
    check_run_imports(Path("elsewhere"), a_run())
    assert len(list(state.iterdir())) == 1
    record_begun(a_run())
    assert len(list(state.iterdir())) == 1
    assert stat.S_IMODE(state.stat().st_mode) == 0o700


@pytest.mark.usefixtures("state")
@pytest.mark.usefixtures("state")
def test_a_run_of_the_script_that_runs_is_known_to_later_commands(
    module: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A script is loaded as the main program: its module has no specification."""
    script = ModuleType("__main__")
    script.__file__ = str(module("project"))
    script.__spec__ = None
    monkeypatch.setitem(sys.modules, "guest_of_tests", script)
    record_begun(a_run())
    monkeypatch.delitem(sys.modules, "guest_of_tests")
    forget(monkeypatch)
    check_run_imports(RUN, a_run(), ())


def test_other_arguments_are_another_call(module: Callable[[str], Path]) -> None:
    module()
    record_begun(a_run(env={"kwargs": {"binary": "sim"}}))
    check_run_imports(RUN, a_run(env={"kwargs": {"binary": "sim"}}))
    for kwargs in ({"binary": "/bin/sh"}, {"binary": "sim", "more": 1}, {}):
        with pytest.raises(ImportPermissionError, match="no record here"):
            check_run_imports(RUN, a_run(env={"kwargs": kwargs}))
    wrapped = {"kwargs": {"binary": "sim"}, "wrappers": ["guest_of_tests:Wrapper"]}
    with pytest.raises(ImportPermissionError):
        check_run_imports(RUN, a_run(env=wrapped))


@pytest.mark.usefixtures("state")
def test_numbers_of_an_agent_may_change_and_its_texts_may_not(
    module: Callable[[str], Path],
) -> None:
    module()

    def agent(**settings: Any) -> Table:
        return a_run("CartPole-v1", agent={"name": "guest_of_tests:Mine", **settings})

    record_begun(agent(learning_rate=1e-3, weights="mine.pt"))
    check_run_imports(RUN, agent(learning_rate=1e-4, weights="mine.pt"))
    with pytest.raises(ImportPermissionError):
        check_run_imports(RUN, agent(learning_rate=1e-3, weights="theirs.pt"))


@pytest.mark.usefixtures("state")
def test_a_module_that_lies_elsewhere_is_another_module(
    module: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = module("project")
    record_begun(a_run())
    forget(monkeypatch)
    module("copied")
    with pytest.raises(ImportPermissionError) as refused:
        check_run_imports(RUN, a_run())
    assert f"'guest_of_tests' was in {file.parent} when you began it" in str(refused.value)
    assert f"and is in {tmp_path / 'copied'} now" in str(refused.value)


def test_a_folder_of_state_that_others_can_write_is_not_believed(
    state: Path, module: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    module()
    record_begun(a_run())
    forget(monkeypatch)
    state.chmod(0o777)
    with pytest.raises(ImportPermissionError):
        check_run_imports(RUN, a_run())
    record_begun(a_run())  # it is not written there either, and this process knows it
    check_run_imports(RUN, a_run())
    forget(monkeypatch)
    state.chmod(0o700)
    check_run_imports(RUN, a_run())


def test_without_a_home_a_process_knows_what_it_has_begun_itself(
    module: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    module()
    for variable in ("XDG_STATE_HOME", "LOCALAPPDATA", "HOME"):
        monkeypatch.delenv(variable, raising=False)
    forget(monkeypatch)
    with pytest.raises(ImportPermissionError):
        check_run_imports(RUN, a_run())
    record_begun(a_run())
    check_run_imports(RUN, a_run())


@pytest.mark.usefixtures("state")
def test_a_saved_configuration_is_what_was_recorded(
    module: Callable[[str], Path], tmp_path: Path
) -> None:
    module()
    env = {"id": "guest_of_tests:make", "kwargs": {"size": 1.0, "names": ["a"], "deep": {"x": 2}}}
    wrappers = ["gymnasium.wrappers:FlattenObservation"]
    config = configured(table={"env": {**env, "wrappers": wrappers}, "agent": {"name": "dqn"}})
    record_begun(config_table(config))
    write_config(config, tmp_path / "config.toml")
    check_run_imports(tmp_path, read_toml(tmp_path / "config.toml"))
    read_config(tmp_path / "config.toml", allow_import=())


def saved_run(folder: Path, text: str = "") -> Path:
    """A run's directory whose settings somebody has changed."""
    folder.mkdir()
    write_config(configured(env="CartPole-v1", agent="dqn"), folder / "config.toml")
    whole = (folder / "config.toml").read_text()
    changed = whole.replace('id = "CartPole-v1"', 'id = "guest_of_tests:make"') + text
    (folder / "config.toml").write_text(changed)
    (folder / "run.json").write_text('{"run_id": "0123456789abcdef", "epoch": 1}')
    return folder / "config.toml"


@pytest.mark.usefixtures("state")
def test_a_resumed_run_imports_what_is_typed_again_and_nothing_else(
    module: Callable[[str], Path], tmp_path: Path
) -> None:
    executed = module().with_suffix(".executed")
    saved = saved_run(tmp_path / "run")
    with pytest.raises(ImportPermissionError, match=r"--allow-import guest_of_tests$"):
        load_config(saved=saved, fit="here")
    with pytest.raises(ImportPermissionError):
        load_config(saved, fit="here")  # the same file, given as one to begin a run with
    assert not executed.exists()
    assert load_config(saved=saved, env="guest_of_tests:make").config.env.module
    assert load_config(saved=saved, allow_import=["guest_of_tests"]).config.env.module
    assert load_config(saved, allow_import=["guest_of_tests"]).config.env.module


@pytest.mark.usefixtures("state")
def test_a_file_of_the_user_may_import_what_it_names(
    module: Callable[[str], Path], tmp_path: Path
) -> None:
    module()
    mine = tmp_path / "mine.toml"
    mine.write_text('[env]\nid = "guest_of_tests:make"\n[agent]\nname = "dqn"\n')
    assert load_config(mine).config.env.module == "guest_of_tests"


@pytest.mark.parametrize(
    ("written", "fix"),
    [
        ("a,b.c", "write --allow-import a --allow-import b"),
        ("a, a.b:Name,", "write --allow-import a"),
        ("a,1b", "write --allow-import a"),
        ("1a,1b", "name its package"),
        ("b.c", "its package is b"),
    ],
)
def test_names_that_no_package_has_are_refused_with_names_that_are_taken(
    written: str, fix: str
) -> None:
    with pytest.raises(UsageError) as refused:
        check_allowed([written], "--allow-import")
    said = f"--allow-import {written}: it is no name of a package; {fix}"
    assert str(refused.value) == said
