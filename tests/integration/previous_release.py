"""The previous release from the repository's history: its source, run by this interpreter."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from daemons import ROOT, environment

PREVIOUS = "097495ab191d60af58d2d98a0dd519f213e05459"
"""The commit of the last release, 0.3.0, whose peers work together with ours."""

PACKAGES = ("app", "protocol", "rl", "services")


class MissingCommitError(Exception):
    """The repository does not have the commit of the previous release."""


def unpack_previous(folder: Path, commit: str = PREVIOUS, repository: Path = ROOT) -> Path:
    """Write the packages of the previous release into an empty folder; returns it.

    Raises:
        MissingCommitError: the repository is no complete clone.
    """
    archive = folder / "previous.tar"
    command = ["git", "-C", str(repository), "archive", "-o", str(archive), commit, *PACKAGES]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise MissingCommitError(
            f"{repository} lacks commit {commit[:8]}, the previous release "
            f"({' '.join(done.stderr.split())}); git fetch --unshallow, or clone all of it"
        )
    subprocess.run(["tar", "-xf", str(archive), "-C", str(folder)], check=True)
    archive.unlink()
    return folder


def run_in_previous(source: Path, code: str, given: Any) -> Any:
    """Run Python in the previous release; `given` is its ``given``, and ``answer`` is returned.

    Args:
        source: what `unpack_previous` returned.
    """
    program = (
        f"import json, sys, vedette_services\n"
        f"assert vedette_services.__file__.startswith({str(source)!r}), vedette_services.__file__\n"
        f"given = json.load(sys.stdin)\n{code}\njson.dump(answer, sys.stdout)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        input=json.dumps(given),
        env=environment("", source),
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
