"""Actor processes as their manager holds them: the process, its handover and its statistics, and
the models for all of them."""

from __future__ import annotations

import secrets
import subprocess
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

from vedette_protocol.messages import Buffer, Run
from vedette_rl.storage.latest_value import LatestValueReader
from vedette_services.actors.actor_spec import SLOTS, ActorSpec
from vedette_services.actors.actor_stats import ActorStats
from vedette_services.actors.evaluation_process import EvaluationProcess
from vedette_services.actors.handover import HandoverReader, slot_layout
from vedette_services.actors.instructions import StartActor
from vedette_services.config.parts import ActorsConfig
from vedette_services.config.peer_settings import read_peer_settings
from vedette_services.host.limits import start_refused
from vedette_services.host.processes import ONE_THREAD, python_module, spawn
from vedette_services.host.stack_request import StackFrame, request_stack
from vedette_services.host.started_programs import end_programs_of
from vedette_services.run.model_map import ModelMapWriter

_TRACEBACK_CHARS = 20_000


class ActorProcess:
    """Starts the actor it was ordered; the caller's main thread must make it (see `spawn`)."""

    def __init__(self, order: StartActor, directory: Path, model_map: Path) -> None:
        self.index = order.index
        self.run = order.run
        config = read_peer_settings(ActorsConfig, order.run.actors)
        self.handover = HandoverReader(slot_layout(order.run.schema, config), SLOTS)
        self._traceback_file = directory / f"actor-{order.index}.traceback"
        self._traceback_file.unlink(missing_ok=True)
        self._stack_file = directory / f"actor-{order.index}.stack"
        self._stack_file.unlink(missing_ok=True)
        self._stats_map = directory / f"actor-{order.index}-{order.restarts}.stats"
        self._stats = LatestValueReader(self._stats_map)
        self._stats_seq = 0
        memory_fd, socket_fd = self.handover.pass_fds
        spec = replace(
            ActorSpec.of(order, secrets.randbits(64)),
            slots=SLOTS,
            memory_fd=memory_fd,
            socket_fd=socket_fd,
            model_map=str(model_map),
            stats_map=str(self._stats_map),
            traceback_file=str(self._traceback_file),
            stack_file=str(self._stack_file),
        )
        spec_file = directory / f"actor-{order.index}.json"
        spec_file.write_bytes(spec.to_json())
        try:
            self._process = spawn(
                python_module("vedette_services.actors.actor", str(spec_file)),
                name=f"actor {order.index}",
                environment=ONE_THREAD,
                pass_fds=self.handover.pass_fds,
            )
        except BaseException:
            self._release()
            raise
        self.handover.close_child_ends()

    def poll(self) -> None:
        """Count the batches that it published; never waits."""
        self.handover.poll()

    def stats(self) -> ActorStats | None:
        """The statistics that it published, if they are new."""
        newest = self._stats.read(after=self._stats_seq)
        if newest is None:
            return None
        self._stats_seq, data = newest
        return ActorStats.from_bytes(data)

    def inspect(self) -> list[StackFrame]:
        """Where it stands, the innermost call first; empty where it does not say."""
        return request_stack(self._process.pid, self._stack_file)

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
            return  # stuck in the kernel; it dies when it leaves it; waiting longer would not help

    def read_exit_report(self) -> tuple[str, str]:
        """The error that ended it, in one line, and its traceback; "" where it left none."""
        try:
            text = self._traceback_file.read_text(errors="replace")
        except FileNotFoundError:
            return "", ""
        cause, _, traceback = text.partition("\n")
        return cause, traceback[-_TRACEBACK_CHARS:]

    def close(self) -> None:
        """Release what was shared with it; what its environments have started ends with it."""
        end_programs_of([self._process])
        self._release()

    def _release(self) -> None:
        self.handover.close()
        self._stats.close()
        self._stats_map.unlink(missing_ok=True)


class ActorProcesses:
    """Starts the actors of a manager, each in a process, and gives them the models.

    Args:
        directory: gives the directory of the maps shared with them, which it makes again where it
            is gone.
    """

    poll_ms = 50
    """A batch, or the end of a process, wakes the manager."""

    def __init__(self, directory: Callable[[], Path]) -> None:
        self._directory = directory
        self._model_maps: list[ModelMapWriter] = []  # several: see `_find_model_map`
        self._runs = 0

    def pause(self) -> None:
        """The manager has a process to itself: it waits for nothing but its sockets."""

    def prepare(self, run: Run) -> None:
        """Make an empty map for the models of a run."""
        self._runs += 1
        path = self._directory() / f"model-{self._runs}.map"
        self._model_maps = [ModelMapWriter(path, run.model)]

    def store_model(
        self, epoch: int, version: int, body: Buffer, actors: Iterable[ActorProcess]
    ) -> None:
        """Put a model where the actors look for it."""
        assert self._model_maps, "a run is prepared before its models are stored"
        for model_map in self._model_maps:
            model_map.write_body(epoch, body)
        for actor in actors:
            actor.handover.announce_model()

    def start(self, order: StartActor) -> ActorProcess:
        """Start an actor on the run prepared last.

        Raises:
            StartRefusedError: a limit of processes, descriptors or memory is reached.
        """
        try:
            directory = self._directory()
            return ActorProcess(order, directory, self._find_model_map(directory))
        except OSError as error:  # no descriptor for what is shared with it
            if refused := start_refused(f"actor {order.index}", error):
                raise refused from error
            raise

    def start_evaluation(self, run: Run) -> EvaluationProcess:
        """Start the process that plays the evaluations of a run."""
        return EvaluationProcess(run, self._directory())

    def _find_model_map(self, directory: Path) -> Path:
        """Return a map that a new actor can open. Actors that play read on in one that was removed
        meanwhile: it is written as well."""
        assert self._model_maps, "a run is prepared before its actors start"
        newest = self._model_maps[-1]
        if not newest.path.exists():
            newest = newest.copy_to(directory / newest.path.name)
            self._model_maps.append(newest)
        return newest.path
