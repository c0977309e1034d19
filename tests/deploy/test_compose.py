"""The compose files, and a fleet of real containers where there is an engine."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).resolve().parents[2]


def services() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    return found


def test_a_fleet_comes_back_with_the_engine_and_a_run_that_is_over_stays_over() -> None:
    assert {services()[name]["restart"] for name in ("learner", "actors")} == {"unless-stopped"}
    assert services()["learner"]["environment"]["VEDETTE_LINGER"] == "inf"
    assert services()["actors"]["entrypoint"] == ["hold", "vedette"]


def test_the_health_check_of_an_actor_asks_nobody() -> None:
    assert services()["actors"]["healthcheck"]["test"] == ["CMD", "healthy"]


def has_engine() -> bool:
    docker = shutil.which("docker")
    return docker is not None and all(
        subprocess.run([docker, *words], capture_output=True, timeout=60).returncode == 0
        for words in (["info"], ["compose", "version"])
    )


@pytest.mark.slow
@pytest.mark.timeout(5400)
def test_a_fleet_of_containers_survives_what_can_happen_to_it() -> None:
    if not has_engine():
        pytest.skip("no Docker engine with Compose v2 here")
    smoke = [sys.executable, str(ROOT / "scripts" / "compose_smoke")]
    done = subprocess.run(smoke, capture_output=True, text=True, timeout=5300)
    assert done.returncode == 0, f"{done.stdout[-4000:]}{done.stderr[-4000:]}"
