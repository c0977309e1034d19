"""A probe that makes environments in the test's process, where its classes and names are known."""

from __future__ import annotations

from typing import Any

from vedette_rl.envs.config import EnvConfig
from vedette_services.host.env_probe import LocalSession


class LocalProcess:
    """In place of a `ProbeProcess`."""

    def __init__(self, say: Any) -> None:
        self._session: LocalSession | None = None
        self.warnings: list[str] = []

    def open(self, config: EnvConfig) -> None:
        self._session = LocalSession(config)

    def ask(self, command: dict[str, Any]) -> dict[str, Any]:
        assert self._session is not None
        try:
            return self._session.ask(command)
        finally:
            self.warnings += self._session.warnings
            self._session.warnings = []

    def close(self) -> None:
        if self._session is not None:
            self._session.close()
        self._session = None

    kill = close
