"""The documentation as a whole: the site, its references into the tree, and the wheel's README."""

import ast
import re
import subprocess
import sys
import tomllib
from collections import Counter
from functools import cache
from pathlib import Path

import pytest
from pages import DOCS, PAGES, ROOT, page_id

TESTS = ROOT / "tests"
LINK = re.compile(r"\]\((?!https?:)([^)]*)\)")
NAMES_TESTS = [DOCS / "reference" / "faults.md", DOCS / "reference" / "agents.md"]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    strictly = ("-m", "sphinx", "--fail-on-warning", "--keep-going", "--quiet")
    done = subprocess.run(
        [sys.executable, *strictly, DOCS, tmp_path], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    written = (tmp_path / "reference" / "python.html").read_text("utf-8")
    assert 'id="vedette.report"' in written
    assert "train_async" in written
    assert "AgentContract" in written


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CHANGELOG.md"], ids=page_id)
def test_lines_of_prose_have_at_most_120_characters(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.M | re.S)
    long = [
        line for line in text.splitlines() if len(line) > 120 and not line.lstrip().startswith("|")
    ]
    assert not long


def test_no_entry_of_the_changelog_stands_twice() -> None:
    text = (ROOT / "CHANGELOG.md").read_text("utf-8")
    entries = [" ".join(entry.split()) for entry in re.split(r"\n(?=- |#|\n)", text)]
    twice = Counter(entry for entry in entries if entry.startswith("- "))
    assert [entry for entry, count in twice.items() if count > 1] == []


def test_the_readme_and_contributing_are_short() -> None:
    assert len((ROOT / "README.md").read_text("utf-8").splitlines()) <= 150
    assert len((ROOT / "CONTRIBUTING.md").read_text("utf-8").splitlines()) <= 90


def test_the_wheels_readme_links_to_the_repository() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    hook = settings["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]
    text = "".join((ROOT / part["path"]).read_text("utf-8") for part in hook["fragments"])
    assert LINK.search(text)
    for change in hook["substitutions"]:
        text = re.sub(change["pattern"], change["replacement"], text)
    assert not LINK.search(text)
    linked = re.findall(r"https://github.com/vedette-rl/vedette/blob/main/([^)#]+)", text)
    assert "CHANGELOG.md" in linked
    assert [path for path in linked if not (ROOT / path).exists()] == []
    assert re.search(
        r"!\[[^]]*\]\(https://raw\.githubusercontent\.com/\S+/main/docs/\S+\.svg\)", text
    )


def test_every_fault_has_a_number_of_its_own() -> None:
    page = (DOCS / "reference" / "faults.md").read_text("utf-8")
    numbers = re.findall(r"^\| (\d+) \|", page, re.M)
    assert len(numbers) > 100
    assert [number for number in set(numbers) if numbers.count(number) > 1] == []


@cache
def names_in(path: Path) -> frozenset[str]:
    found = ast.walk(ast.parse(path.read_text("utf-8")))
    return frozenset(
        node.name
        for node in found
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    )


@cache
def every_name() -> frozenset[str]:
    contracts = (ROOT / "rl" / "vedette_rl" / "testing").glob("*.py")
    return frozenset().union(*map(names_in, [*TESTS.rglob("test_*.py"), *contracts]))


@pytest.mark.parametrize("page", NAMES_TESTS, ids=lambda page: page.name)
def test_the_tests_that_a_page_names_are_there(page: Path) -> None:
    for name in re.findall(r"`([^`\s]*test_[^`\s]*)`", page.read_text("utf-8")):
        if name.endswith(".py"):
            found = [p for p in TESTS.rglob(Path(name).name) if p.match(name)]
            assert found, name
        else:
            wanted = name.rpartition(".")[2].removesuffix("...")
            assert any(test.startswith(wanted) for test in every_name()), name
