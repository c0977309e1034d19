"""What the images hold is what the project needs, pinned."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LEARNERS_OWN = {"jinja2", "markupsafe", "torch", "tensorboard", "onnx", "onnxscript"}


def pinned(name: str) -> dict[str, str]:
    """Versions by package of one of the requirement files; every line pins one."""
    lines = (ROOT / "deploy" / f"requirements-{name}.txt").read_text().splitlines()
    found = [line for line in lines if line and not line.startswith("#")]
    pairs = [re.fullmatch(r"([a-z0-9-]+)==([0-9][0-9a-z.]*)", line) for line in found]
    assert all(pairs), f"not pinned: {[x for x, y in zip(found, pairs, strict=True) if not y]}"
    return {pair[1]: pair[2] for pair in pairs if pair}


def wanted() -> dict[str, str]:
    """What pyproject.toml asks for: the range by package."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    asked = [*project["dependencies"], *extras["metrics"], *extras["onnx"]]
    pairs = [re.match(r"([A-Za-z0-9-]+)(.*)", text) for text in asked]
    return {pair[1].lower(): pair[2] for pair in pairs if pair}


def test_the_actors_image_has_everything_but_what_only_learners_need() -> None:
    assert wanted().keys() - {"prometheus-client"} - LEARNERS_OWN <= pinned("actor").keys()
    assert not LEARNERS_OWN & pinned("actor").keys()


def test_the_learners_image_has_everything() -> None:
    assert wanted().keys() <= (pinned("actor") | pinned("learner") | pinned("torch")).keys()


@pytest.mark.parametrize("name", ["actor", "learner", "torch"])
def test_what_is_pinned_is_what_the_project_allows(name: str) -> None:
    requirements = pytest.importorskip("packaging.specifiers")
    for package, version in pinned(name).items():
        if package in wanted():
            assert requirements.SpecifierSet(wanted()[package]).contains(version), package


def test_no_package_is_pinned_twice() -> None:
    names = [package for part in ("actor", "learner", "torch") for package in pinned(part)]
    assert len(names) == len(set(names))


def test_both_runs_of_the_manifests_are_the_same() -> None:
    def run(path: str) -> object:
        return tomllib.loads((ROOT / "deploy" / path).read_text())

    assert run("run.toml") == run("kubernetes/run.toml")


def test_a_release_pins_the_base_of_the_images_by_its_digest(tmp_path: Path) -> None:
    digest = "sha256:" + "0123456789abcdef" * 4
    docker = tmp_path / "bin" / "docker"
    docker.parent.mkdir()
    docker.write_text(f"#!/bin/sh\necho {digest}\n")
    docker.chmod(0o755)
    for file in ("Dockerfile", "docker-compose.yml", ".env.example", "scripts/pin_base"):
        (tmp_path / file).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / file, tmp_path / file)
    path = f"{docker.parent}:{os.environ['PATH']}"
    for _ in range(2):  # again, when a release replaces the digest of the last
        subprocess.run(
            [tmp_path / "scripts" / "pin_base"], env={"PATH": path}, check=True, timeout=60
        )
    pinned = f"python:3.11-slim-bookworm@{digest}"
    assert f"ARG BASE={pinned}\n" in (tmp_path / "Dockerfile").read_text()
    assert f"VEDETTE_BASE_IMAGE:-{pinned}}}\n" in (tmp_path / "docker-compose.yml").read_text()
    assert f"#VEDETTE_BASE_IMAGE={pinned}\n" in (tmp_path / ".env.example").read_text()
