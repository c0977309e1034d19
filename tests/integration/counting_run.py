"""A run of counting environments: a learner that only collects, and managers by hand."""

from __future__ import annotations

import json
from collections.abc import Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any

from daemons import (
    ROOT,
    START_S,
    Daemon,
    Daemons,
    balances,
    flows,
    free_address,
    status,
    wait_for,
)
from proof import Proof, prove

from vedette_services.net.addresses import Address
from vedette_services.net.keys import ClientKeys

N_BUFFER = 20
WINDOW_BATCHES = 64
ENVS = 4
SETTINGS = (
    "replay.capacity=300000",
    "learner.warmup_period=250000",  # never reached: nothing is trained, the cores are the tests'
    "learner.eval_interval=0",
    "agent.n_step=1",
    "env.kwargs.sleep_s=0.001",
    "env.stepping=serial",  # whose time is not measured by steps that no replay holds
    f"actors.envs_per_actor={ENVS}",
    f"actors.n_buffer={N_BUFFER}",
    f"actors.window_batches={WINDOW_BATCHES}",
)


class CountingRun:
    """Its daemons, its directory and, at the end, its proof.

    Args:
        bind: where the learner listens, if not on three free ports of loopback.
        keys: the learner's folder of keys, which serves everybody here.
        env: what is played.
        agent: what would learn.
        allow: packages that managers import.
        source: the checkout whose learner runs.
    """

    def __init__(
        self,
        daemons: Daemons,
        *settings: str,
        bind: Address | None = None,
        keys: Path | None = None,
        env: str = "counting_env:Count-v0",
        agent: str = "dqn",
        allow: tuple[str, ...] = ("counting_env",),
        source: Path = ROOT,
    ) -> None:
        self._env = env
        self._agent = agent
        self._allowed = [word for package in allow for word in ("--allow-import", package)]
        self._daemons = daemons
        self._settings = settings
        self._secured = ("--keys", keys) if keys else ("--insecure",)
        self._client = ClientKeys.read(keys) if keys else None
        self.run = daemons.place / "run"
        self.tally = daemons.place / "tally"
        self.tally.mkdir()
        self.address = bind or free_address()
        self.managers: list[Daemon] = []
        self.clients: list[Daemon] = []  # in other languages, which write no line
        self.learner = self.start_learner(source)

    def start_learner(self, source: Path = ROOT, options: Sequence[str | Path] = ()) -> Daemon:
        """Start it, or start it again on what it left; perhaps with further options."""
        self.learner = self._daemons.start(
            "learner",
            "learner",
            "--env",
            self._env,
            "--agent",
            self._agent,
            "--bind",
            self.address,
            "--out",
            self.run,
            *self._secured,
            *options,
            *SETTINGS,
            f"env.kwargs.tally={self.tally}",
            *self._settings,
            source=source,
        )
        return self.learner

    def start_manager(
        self,
        name: str,
        *options: str | Path,
        count: int = 1,
        to: Address | str = "",
        run_in: tuple[str, ...] = (),
        source: Path = ROOT,
    ) -> Daemon:
        manager = self._daemons.start(
            name,
            "actors",
            "--learner",
            to or self.address,
            "--id",
            name,
            "--count",
            count,
            *self._allowed,
            *self._secured,
            *options,
            run_in=run_in,
            source=source,
        )
        self.managers.append(manager)
        return manager

    def flows(self, more: int = 500, timeout_s: float = START_S) -> int:
        return flows(self.address, more, timeout_s, self._client)

    def status(self) -> dict[str, Any]:
        """Its status; empty where none answers."""
        return status(self.address, keys=self._client)

    def stop(self) -> dict[str, int]:
        """Stop the managers, then the learner; the accounting, which must balance."""
        for manager in filter(attrgetter("running"), self.managers):
            # Before its first line it may end by the signal itself: Python is loading.
            wait_for(
                lambda log=manager.log_file: log.stat().st_size, f"first line of {manager.name}"
            )
        for one in filter(attrgetter("running"), (*self.managers, *self.clients)):
            assert one.stop() == 0, f"{one.name} ended badly"
        assert self.learner.stop() == 0, "the learner ended badly"
        accounting: dict[str, int] = self.summary["samples"]
        assert balances(accounting), f"the sample accounting does not balance: {accounting}"
        return accounting

    def finish(self) -> tuple[Proof, dict[str, int]]:
        """Stop everybody; the replay, none of which may be overwritten, and the accounting."""
        accounting = self.stop()
        proof = prove(self.run, self.tally)
        print(proof, accounting)
        assert accounting["inserted"] == proof.rows, f"{proof.rows} rows, accounting {accounting}"
        assert proof.once_each, f"{proof}"
        return proof, accounting

    def assert_nothing_was_lost(self) -> dict[str, int]:
        """End what still runs: every step that was played is in the replay; the accounting."""
        proof, accounting = self.finish()
        assert proof.whole, f"{proof}, accounting {accounting}"
        assert accounting["produced"] == accounting["inserted"], f"{accounting}"
        assert accounting["lost"] == accounting["in_flight"] == 0, f"{accounting}"
        return accounting

    def state_of(self, manager: str) -> str:
        """What the status says that a manager's state is; empty where it has none of that id."""
        found = [m["state"] for m in self.status().get("managers", []) if m["id"] == manager]
        return str(found[0]) if found else ""

    @property
    def summary(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(Path(self.run / "summary.json").read_text())
        return found
