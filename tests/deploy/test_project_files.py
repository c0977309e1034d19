"""The files around the project: workflows, hooks, citation and package metadata agree with it."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
REPOSITORY = "https://github.com/vedette-rl/vedette"
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
VERSIONS = ["3.11", "3.12", "3.13", "3.14"]

TOOLS = ("cargo", "gh", "make", "pip", "python", "sudo", "vedette")


def read(path: Path | str) -> Any:
    return yaml.safe_load((ROOT / path).read_text("utf-8"))


def steps(workflow: Path) -> list[dict[str, Any]]:
    return [step for job in read(workflow)["jobs"].values() for step in job["steps"]]


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_pins_its_actions_and_runs_scripts_that_there_are(workflow: Path) -> None:
    assert read(workflow)["permissions"] == {"contents": "read"}
    for step in steps(workflow):
        if "uses" in step:
            assert re.fullmatch(r"[\w-]+/[\w-]+@(v\d+|release/v\d+)", step["uses"]), step
        else:
            command = step["run"].split()[0]
            assert command in TOOLS or (ROOT / command).exists(), step


def test_the_tests_run_on_the_versions_of_python_that_the_package_names() -> None:
    prefix = "Programming Language :: Python :: 3."
    named = [text for text in PROJECT["classifiers"] if text.startswith(prefix)]
    assert [text.rpartition(" ")[2] for text in named] == VERSIONS
    jobs = read(".github/workflows/tests.yml")["jobs"]
    assert jobs["linux"]["strategy"]["matrix"]["python"] == VERSIONS
    assert PROJECT["requires-python"] == f">={VERSIONS[0]}"


def test_only_the_release_publishes_and_without_a_token() -> None:
    jobs = read(".github/workflows/release.yml")["jobs"]
    assert jobs["pypi"]["permissions"] == {"id-token": "write"}
    assert "with" not in jobs["pypi"]["steps"][-1]
    others = [path for path in WORKFLOWS if path.stem != "release"]
    assert not [path for path in others if "pypi-publish" in path.read_text()]


def test_the_addresses_of_the_project_are_one() -> None:
    citation = read("CITATION.cff")
    assert citation["repository-code"] == PROJECT["urls"]["Homepage"] == REPOSITORY
    assert citation["url"] == PROJECT["urls"]["Documentation"]
    assert {"cff-version", "title", "message", "authors", "license"} <= citation.keys()
    assert "version" not in citation  # pyproject.toml is the one place


def test_the_commit_hooks_run_what_the_check_runs() -> None:
    hooks = read(".pre-commit-config.yaml")["repos"][0]["hooks"]
    entries = [hook["entry"].removesuffix(" --force-exclude") for hook in hooks]
    checked = re.findall(r"^\.venv/bin/.*", (ROOT / "scripts" / "check").read_text(), re.MULTILINE)
    assert entries == [line.removesuffix(" .") for line in checked]


@pytest.mark.parametrize("form", ["bug", "idea"])
def test_an_issue_form_asks_for_something(form: str) -> None:
    found = read(f".github/ISSUE_TEMPLATE/{form}.yml")
    fields = found["body"]
    assert found["name"]
    assert found["description"]
    assert any(field.get("validations", {}).get("required") for field in fields)
    assert len({field["id"] for field in fields}) == len(fields)


def test_the_notes_of_another_version_are_refused() -> None:
    command = [ROOT / "scripts" / "package", "--notes", "0.0.7"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1
    expected = f"version 0.0.7 is asked for, pyproject.toml has {PROJECT['version']}"
    assert expected in done.stderr
