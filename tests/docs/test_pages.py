"""What the documentation says can be typed, and leads where it says."""

import contextlib
import os
import random
import re
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest
import typer
from pages import DOCS, PAGES, commands, make_place, page_id, script, words

from vedette.cli.app import app
from vedette_services.config import load_config
from vedette_services.status.schema import declared
from vedette_services.status.status import (
    ActorStatus,
    ManagerStatus,
    SourceStatus,
    Status,
)

RUN = [page for page in PAGES if "```sh\n" in page.read_text("utf-8")]


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_every_command_of_a_page_is_one_that_can_be_given(page: Path) -> None:
    group: Any = typer.main.get_command(app)
    for command in commands(page):
        if words(command)[0].startswith("--"):
            continue  # what typer answers at once
        context = group.make_context("vedette", words(command))
        asked = group
        sub = context
        while hasattr(asked, "resolve_command"):
            _, asked, rest = asked.resolve_command(sub, [*sub._protected_args, *sub.args])
            sub = asked.make_context("x", list(rest), parent=sub)
            if sub.params.get("settings") or sub.params.get("arguments"):
                _check_keys([*(sub.params["settings"] or []), *(sub.params["arguments"] or [])])


def _check_keys(given: list[str]) -> None:
    """Settings among a command's arguments are keys that there are."""
    settings = [text for text in given if "=" in text]
    load_config(settings=[s for s in settings if not s.startswith("agent.")], environment={})


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_links_within_the_checkout_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text("utf-8")):
        there = page.parent / target
        assert there.exists(), target


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("page", RUN, ids=page_id)
def test_the_commands_of_a_page_run_one_after_the_other(page: Path, tmp_path: Path) -> None:
    port = random.randrange(28_200, 28_900, 3)
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("VEDETTE")},
        **make_place(tmp_path),
        "VEDETTE_BIND": f"127.0.0.1:{port}",
        "VEDETTE_LEARNER": f"127.0.0.1:{port}",
        "OMP_NUM_THREADS": "1",
    }
    with (tmp_path / "said.log").open("w+") as said:
        running = subprocess.Popen(
            ["bash", "-x", "-c", script(page)],
            cwd=tmp_path,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            status = running.wait(800)
        finally:
            with contextlib.suppress(ProcessLookupError):  # nobody is left
                os.killpg(running.pid, signal.SIGKILL)
        said.seek(0)
        text = said.read()
    assert status == 0, text[-5000:]
    assert "\nall done\n" in text
    assert "Traceback" not in text, text


_BESIDE_THE_STATUS = (
    "train/",
    "priority/",
    "queue/",
    "sampling/",
    "replay/share_",
    "replay/return_",
)


def test_the_table_of_tags_names_what_is_recorded() -> None:
    page = (DOCS / "reference" / "tensorboard.md").read_text("utf-8")
    table = [line for line in page.splitlines() if line.startswith("| `")]
    told = {tag for line in table for tag in re.findall(r"`([^`]+)`", line.split("|")[1])}
    of_status = {tag for _, number in declared(Status) for tag in number.tags}
    costs = {"average_opt_time", "average_sample_time"}
    others = {tag for tag in told if tag.startswith(_BESIDE_THE_STATUS)}
    assert told - others == of_status | costs


def test_the_page_on_status_names_every_field() -> None:
    page = (DOCS / "reference" / "status.md").read_text("utf-8")
    named = {word for code in re.findall(r"`([^`]+)`", page) for word in re.findall(r"\w+", code)}
    kinds = (Status, SourceStatus, ManagerStatus, ActorStatus)
    assert {name for kind in kinds for name in _names(kind)} - named == set()


def _names(kind: type) -> Iterator[str]:
    for one in fields(kind):
        yield one.name
        if is_dataclass(one.default):
            yield from _names(type(one.default))
