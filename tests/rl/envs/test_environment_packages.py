"""A run's record names the versions of what its environment is made of, however that is packed."""

from __future__ import annotations

import builtins
import importlib
import sys
from importlib import metadata
from pathlib import Path

import gymnasium as gym
import pytest

from vedette_rl.envs.config import EnvConfig
from vedette_rl.envs.environment_packages import environment_packages
from vedette_rl.envs.make import make_env
from vedette_rl.envs.native_vector_env import SingleOfVector
from vedette_rl.testing.inputs import ScriptedEnv

GYMNASIUM = {name: metadata.version(name) for name in ("gymnasium", "numpy")}


def install(site: Path, name: str, version: str, **modules: str) -> None:
    """Put a distribution with modules of these texts into a folder."""
    information = site / f"{name.replace('-', '_')}-{version}.dist-info"
    information.mkdir(parents=True)
    about = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    (information / "METADATA").write_text(about)
    (information / "RECORD").write_text("".join(f"{module}.py,,\n" for module in modules))
    for module, text in modules.items():
        (site / f"{module}.py").write_text(text)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder of packages that Python finds."""
    folder = tmp_path / "site-packages"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)
    return folder


SIMULATOR = "import sim_engine\nfrom sim_maps import Map\nimport json\n"
ENVIRONMENT = (
    SIMULATOR + "from vedette_rl.testing.inputs import ScriptedEnv\nclass Sim(ScriptedEnv): ...\n"
)


def test_its_distribution_and_those_that_its_module_imports_have_their_versions(site: Path) -> None:
    install(site, "Sim-World", "2.5", sim_world=ENVIRONMENT)
    install(site, "physics", "4.0.0", sim_engine="")  # named otherwise than its module
    install(site, "sim.maps", "0.1", sim_maps="class Map: ...\n")
    sim = importlib.import_module("sim_world").Sim
    found = environment_packages(gym.wrappers.TimeLimit(sim(), 9))
    theirs = {"Sim-World": "2.5", "physics": "4.0.0", "sim.maps": "0.1"}
    assert found == {"gymnasium": GYMNASIUM["gymnasium"], **theirs}  # the wrapper is Gymnasium's


def test_somebodys_own_file_has_no_version_and_what_it_imports_has(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    install(site, "engine-of-my-own", "7", engine_of_my_own="")
    text = "import engine_of_my_own\nfrom vedette_rl.testing.inputs import ScriptedEnv\n"
    (tmp_path / "my_own_env.py").write_text(text + "class Mine(ScriptedEnv): ...\n")
    mine = importlib.import_module("my_own_env").Mine
    assert environment_packages(mine()) == {"engine-of-my-own": "7"}


def test_of_an_environment_that_comes_with_gymnasium(monkeypatch: pytest.MonkeyPatch) -> None:
    # MuJoCo does this, and every class has `object` among its bases.
    monkeypatch.setattr(builtins, "__ERROR", sys.modules["pytest"], raising=False)
    plain = make_env(EnvConfig(id="CartPole-v1"), check=True)
    form = gym.make_vec("CartPole-v1", 1, vectorization_mode="vector_entry_point")
    vector = SingleOfVector(form)
    assert environment_packages(plain) == environment_packages(vector) == GYMNASIUM


@pytest.mark.parametrize("damage", ["empty", "missing", "without a name", "unreadable"])
def test_a_damaged_distribution_stops_nobody(
    damage: str, site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(site, "sound", "1.5", sound="")
    install(site, "damaged", "3", half_there=ENVIRONMENT.replace(SIMULATOR, "import sound\n"))
    about = site / "damaged-3.dist-info" / "METADATA"
    match damage:
        case "empty":
            about.write_text("")
        case "missing":
            about.unlink()
        case "without a name":
            about.write_text("Metadata-Version: 2.1\nVersion: 3\n")
        case "unreadable":
            about.write_bytes(b"Metadata-Version: 2.1\nName: d\xff\xfe\n")
    monkeypatch.delitem(sys.modules, "half_there", raising=False)
    found = environment_packages(importlib.import_module("half_there").Sim())
    assert found["sound"] == "1.5"


def test_a_lazy_proxy_does_not_load_its_target(site: Path) -> None:
    text = ENVIRONMENT.replace(SIMULATOR, "") + (
        "class Lazy:\n"
        "    @property\n"
        "    def __class__(self): raise RuntimeError('it was loaded')\n"
        "lazy = Lazy()\n"
    )
    install(site, "Lazy-World", "2", lazy_world=text)
    assert environment_packages(importlib.import_module("lazy_world").Sim()) == {"Lazy-World": "2"}


def test_a_module_that_is_loaded_when_it_is_used_is_named_and_not_loaded(site: Path) -> None:
    lazy = (
        "import importlib.util\n"
        "spec = importlib.util.find_spec('sim_slow')\n"
        "spec.loader = importlib.util.LazyLoader(spec.loader)\n"
        "sim_slow = importlib.util.module_from_spec(spec)\n"
        "spec.loader.exec_module(sim_slow)\n"
    )
    install(site, "sim-slow", "9", sim_slow="raise ImportError('no licence')\n")
    install(site, "sim-later", "3", sim_later=ENVIRONMENT.replace(SIMULATOR, lazy))
    found = environment_packages(importlib.import_module("sim_later").Sim())
    assert found == {"sim-later": "3", "sim-slow": "9"}


def test_a_scripted_environment_is_of_no_distribution() -> None:
    assert environment_packages(ScriptedEnv()) == {}
