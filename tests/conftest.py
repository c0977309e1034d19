"""Property tests have no time limit for an example: a loaded machine would fail them. One thread a
process: where cores are shared, two threads of torch wait for one another ten times as long as they
compute. No GPU: tests are the same everywhere; what a GPU itself does is checked by
`scripts/bench_gpu`."""

import os
import signal
from collections.abc import Iterator
from types import FunctionType

import pytest
from hypothesis import HealthCheck, settings

from vedette_rl import module_search

# Read when torch is imported, or asked for a device; children inherit them.
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["CUDA_VISIBLE_DEVICES"] = ""

# What a shell starts with `&` ignores these, and so would the programs that tests stop by them.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGQUIT) is signal.SIG_IGN:
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)

settings.register_profile("loaded", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("loaded")


def pytest_make_parametrize_id(val: object) -> str | None:
    """Functions by name: without their address a test is called the same in every process."""
    return val.__name__ if isinstance(val, FunctionType) else None


@pytest.fixture(scope="session", autouse=True)
def state_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The folder of the user's state is one of the tests', for them and their children."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture(autouse=True)
def search_folders(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that a test calls in this process adds its folder for that test alone."""
    monkeypatch.setattr(module_search, "_folders", [])
