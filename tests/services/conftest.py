"""Environments of these tests are made in this process: their classes and names are known here."""

import pytest
from local_probe import LocalProcess

from vedette_services.config import probing


@pytest.fixture(autouse=True)
def _probes_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probing, "start_process", LocalProcess)
