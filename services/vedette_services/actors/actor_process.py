"""One actor process as its manager holds it: the process, its handover, its stats."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

from vedette_rl.storage.latest_value import LatestValueReader
from vedette_services.actors.actor_spec import ActorSpec
from vedette_services.actors.handover import HandoverReader, slot_layout
from vedette_services.actors.instructions import StartActor
from vedette_services.actors.stats import ActorStats
from vedette_services.config.parts import ActorsConfig
from vedette_services.host.processes import python_module, spawn

SLOTS = 2  # one is filled while the other is taken; more would only hold older samples
_TRACEBACK_CHARS = 20_000
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
"""Actors share the processors among them: no library starts a pool in each."""


class ActorProcess:
    """Starts the actor it was ordered; the caller's main thread must make it (see `spawn`)."""

    def __init__(self, order: StartActor, directory: Path, model_map: Path) -> None:
        self.index, self.run = order.index, order.run
        config = ActorsConfig.model_validate(dict(order.run.actors))
        self.handover = HandoverReader(slot_layout(order.run.schema, config), SLOTS)
        self._traceback_file = directory / f"actor-{order.index}.traceback"
        self._traceback_file.unlink(missing_ok=True)
        self._stats_map = directory / f"actor-{order.index}-{order.restarts}.stats"
        self._stats = LatestValueReader(self._stats_map)
        self._stats_seq = 0
        memory_fd, socket_fd = self.handover.pass_fds
        spec = replace(
            ActorSpec.of(order),
            slots=SLOTS,
            memory_fd=memory_fd,
            socket_fd=socket_fd,
            model_map=str(model_map),
            stats_map=str(self._stats_map),
            traceback_file=str(self._traceback_file),
        )
        spec_file = directory / f"actor-{order.index}.json"
        spec_file.write_bytes(spec.to_json())
        self._process = spawn(
            python_module("vedette_services.actors.actor", str(spec_file)),
            environment=_ONE_THREAD,
            pass_fds=self.handover.pass_fds,
        )
        self.handover.close_child_ends()

    def stats(self) -> ActorStats | None:
        """The statistics that it published, if they are new."""
        found = self._stats.read(after=self._stats_seq)
        if found is None:
            return None
        self._stats_seq, data = found
        return ActorStats.from_bytes(data)

    def kill(self) -> None:
        """End it now."""
        self._process.kill()

    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._process.poll()

    def wait(self, timeout_s: float) -> None:
        """Reap a killed process."""
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return  # stuck in the kernel; it dies when it leaves it, and nobody waits for it

    def read_exit_report(self) -> tuple[str, str]:
        """The error that ended it, in one line, and its traceback; "" where it left none."""
        try:
            text = self._traceback_file.read_text(errors="replace")
        except FileNotFoundError:
            return "", ""
        cause, _, traceback = text.partition("\n")
        return cause, traceback[-_TRACEBACK_CHARS:]

    def close(self) -> None:
        """Release what was shared with it."""
        self.handover.close()
        self._stats.close()
        self._stats_map.unlink(missing_ok=True)
