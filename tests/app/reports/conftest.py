"""The run that the tests of reports read."""

from pathlib import Path

import pytest
from run_folders import make_run


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """The directory of a run that has ended well."""
    return make_run(tmp_path / "run")
