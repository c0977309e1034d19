"""Fixtures of the tests of clients in other languages."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq
from c_programs import Built, build_rust, make_builder


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Builds programs with the C client and sanitizers."""
    return make_builder(tmp_path_factory.mktemp("c"))


@pytest.fixture(scope="session")
def built_fast(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Builds programs with the C client, without optimization and sanitizers."""
    return make_builder(tmp_path_factory.mktemp("fast"), sanitized=False)


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[object]:
    """Daemons that no test leaves behind."""
    from daemons import Daemons

    with Daemons(tmp_path) as house:
        yield house


@pytest.fixture
def port() -> int:
    """Of three free ones on loopback."""
    with zmq.Context() as context, context.socket(zmq.PULL) as socket:
        found = socket.bind_to_random_port("tcp://127.0.0.1", 20_000, 30_000)
        socket.unbind(f"tcp://127.0.0.1:{found}")
    return found


@pytest.fixture(scope="session")
def rust_target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Rust binding, built and tested: the folder of what was made."""
    return build_rust(tmp_path_factory.mktemp("rust"))
