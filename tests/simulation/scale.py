"""Measures what a gateway does for fleets of several sizes, without faults."""

from __future__ import annotations

import gc
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from faulty_network import NetworkFaults
from scenario import Scenario, draw_scenario
from simulate import STATES_LOG
from simulated_fleet import SimulatedFleet

from vedette_rl.replay.limiter import Limiter
from vedette_services.config.parts import ActorsConfig
from vedette_services.status.schema import encode

SIZES = (10, 100, 1000, 2000)
BATCHES_PER_S = 1000  # of all managers together
ROWS = 100
PARTS = ("on_samples", "blocks", "stamp", "acks_due", "tick", "status")
WARMUP_S = 4.0
MEASURED_S = 10.0


class Meter:
    """Adds up calls and processor time, of what it is put around."""

    def __init__(self) -> None:
        self.calls = Counter[str]()
        self.cpu_s = Counter[str]()

    def around(self, owner: Any, method: str) -> None:
        """Measure a method of an object."""
        setattr(owner, method, self.measured(method, getattr(owner, method)))

    def measured(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """Return the same function, measured."""

        def wrapper(*given: Any, **named: Any) -> Any:
            began = time.process_time()
            try:
                return call(*given, **named)
            finally:
                self.calls[name] += 1
                self.cpu_s[name] += time.process_time() - began

        return wrapper


def quiet_scenario(managers: int) -> Scenario:
    """Return a fleet without faults that makes `BATCHES_PER_S`, as far as that is possible."""
    gap_s = managers / BATCHES_PER_S
    return replace(
        draw_scenario(0, managers, 0.0),
        actors=ActorsConfig(count=1, n_buffer=ROWS, window_batches=1024),
        batch_gap_s=(gap_s / 2, gap_s * 3 / 2),
        messages=NetworkFaults(delay_s=(0.0005, 0.002)),
        limiter=Limiter(0.0, min_size=1, error_buffer=0.0, batch_size=1),
        faults=(),
        slow_disk=(0.0, (0.0, 0.0)),
        hostile=(),
        keyed=False,
        tick_s=0.25,
        turn_s=0.005,
        model_s=1000.0,
    )


def measure(managers: int) -> str:
    """Return a row of the table."""
    fleet = SimulatedFleet(quiet_scenario(managers))
    meter = Meter()
    fleet.clock.advance(WARMUP_S)
    gc.disable()  # it would look through all managers, too, which are elsewhere in truth
    gateway = fleet.gateway
    assert gateway is not None
    down: list[int] = []
    publish = fleet.network.publish

    def counted(channel: Any, frames: Any) -> None:
        down.append(sum(map(len, frames)))
        publish(channel, frames)

    fleet.network.publish = counted  # type: ignore[method-assign]
    for name in PARTS:
        meter.around(gateway.state, name)
    batches = -len(fleet.disk.batches)
    for _ in range(int(MEASURED_S / 0.2)):  # the daemon writes its status at every tick
        fleet.clock.advance(0.2)
        meter.measured("status", encode)(gateway.status())
    gc.enable()
    batches += len(fleet.disk.batches)
    cpu_s = {name: meter.cpu_s[name] / MEASURED_S for name in PARTS}
    busy = sum(cpu_s.values())
    words = [f"{managers:5}", f"{batches / MEASURED_S:7.0f}", f"{len(down) / MEASURED_S:7.0f}"]
    words += [f"{sum(down) / MEASURED_S / 1e3:8.0f}", f"{len(fleet.disk.stamp) / 1e3:7.1f}"]
    words += [f"{100 * busy:7.1f}", f"{1e6 * busy * MEASURED_S / max(1, batches):8.0f}"]
    words += [f"{100 * cpu_s[name]:8.1f}" for name in cpu_s]
    return " ".join(words) if managers != SIZES[0] else f"{_head(list(cpu_s))}\n{' '.join(words)}"


def _head(names: list[str]) -> str:
    columns = ["size", "batch/s", " acks/s", "ack kB/s", "stampkB", " core %", "us/batch"]
    return " ".join([f"{columns[0]:>5}", *columns[1:], *(f"{name[:8]:>8}" for name in names)])


if __name__ == "__main__":
    STATES_LOG.disabled = True
    for size in map(int, sys.argv[1:] or SIZES):
        print(measure(size), flush=True)
