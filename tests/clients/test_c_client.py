"""The C client delivers every row once, stands fuzzed input, and so does its Rust binding."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from c_programs import Built
from fuzz_seeds import write_seeds
from scripted_learner import assert_every_row_is_delivered_once

pytestmark = pytest.mark.slow
FUZZED_INPUTS = 3000


def test_the_c_client_stands_what_no_learner_sends(built: Built, tmp_path: Path) -> None:
    program = built("tests/clients/fuzz_client.c")
    seeds = write_seeds(tmp_path)
    done = subprocess.run(
        [program, str(FUZZED_INPUTS), "1", *seeds], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout == f"{FUZZED_INPUTS} inputs\n"


def test_the_c_client_delivers_every_row_once_to_a_learner_that_is_killed(
    built: Built, port: int
) -> None:
    assert_every_row_is_delivered_once(built("clients/c/examples/cartpole.c"), port)


@pytest.mark.timeout(400)
def test_the_rust_binding_delivers_every_row_once_to_a_learner_that_is_killed(
    rust_target: Path, port: int
) -> None:
    assert_every_row_is_delivered_once(rust_target / "debug" / "examples" / "cartpole", port)
