"""Serves the status to Prometheus over HTTP; it is read anew at every scrape."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from vedette_services.errors import AddressError, ServicesError, SettingError
from vedette_services.net.http_server import BoundedHttpServer, start_http_server
from vedette_services.status.schema import Part, numbers
from vedette_services.status.status import ManagerStatus, Status

try:
    from prometheus_client import CollectorRegistry, make_wsgi_app
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
    from prometheus_client.core import Metric as MetricFamily
    from prometheus_client.registry import Collector
except ImportError as error:
    raise SettingError(
        "--metrics-port", "prometheus_client is not installed", "pip install 'vedette[metrics]'"
    ) from error


@dataclass(frozen=True, slots=True)
class MetricsAddress:
    """Address at which metrics are served; everybody who reaches it may read them."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> MetricsAddress:
        """Read ``PORT``, which is this machine's alone, or ``HOST:PORT``.

        Raises:
            SettingError: the text is neither.
        """
        host, _, port = text.rpartition(":")
        if not (port.isascii() and port.isdigit()) or not 1 <= int(port[:9]) <= 65535:
            raise SettingError("--metrics-port", f"{text!r} is no port", "write 9108 or HOST:9108")
        return cls(host.strip("[]") or "127.0.0.1", int(port))


class StatusCollector(Collector):
    """Turns the current status into metrics at every scrape."""

    def __init__(self, status: Callable[[], Status]) -> None:
        self._status = status
        self._reading = threading.Lock()  # several may scrape at once

    def describe(self) -> list[MetricFamily]:
        """Return no families: they are known only at a scrape."""
        return []

    def collect(self) -> Iterator[MetricFamily]:
        """Yield the families of metrics, each with its samples."""
        families: dict[str, CounterMetricFamily | GaugeMetricFamily] = {}
        with self._reading:
            status = self._status()
        for metric in metrics(status):
            family = families.get(metric.name)
            if family is None:
                kind = CounterMetricFamily if metric.counts else GaugeMetricFamily
                labels = [name for name, _ in metric.labels]
                family = kind(f"{PREFIX}_{metric.name}", metric.title, labels=labels)
                families[metric.name] = family
            family.add_metric([value for _, value in metric.labels], metric.value)
        yield from families.values()


def bind_metrics(place: MetricsAddress, status: Callable[[], Status] = Status) -> BoundedHttpServer:
    """Bind the address of metrics; whoever asks for one waits until they are served.

    Args:
        status: called at every scrape.

    Raises:
        ServicesError: the port cannot be bound.
    """
    registry = CollectorRegistry()
    registry.register(StatusCollector(status))
    try:
        return BoundedHttpServer(place.host, place.port, make_wsgi_app(registry))
    except (OSError, AddressError) as error:
        why = error.why if isinstance(error, AddressError) else error.strerror or str(error)
        raise ServicesError(
            f"--metrics-port {place.host}:{place.port}: {why}; choose another port"
        ) from error


def serve_metrics(place: MetricsAddress, status: Callable[[], Status]) -> Callable[[], None]:
    """Serve until the returned function is called.

    Args:
        status: called by the server's own thread at every scrape.

    Raises:
        ServicesError: the port cannot be bound.
    """
    return start_http_server(bind_metrics(place, status), "metrics")


PREFIX = "vedette"

_INFO = ("vedette", "run_id", "env", "agent")


@dataclass(frozen=True, slots=True)
class Metric:
    """One number with its name and labels.

    Args:
        name: without prefix and without a counter's ``_total``.
        title: for people.
        counts: it only grows.
    """

    name: str
    labels: tuple[tuple[str, str], ...]
    value: float
    title: str
    counts: bool = False


def metrics(status: Status) -> Iterator[Metric]:
    """Yield every number of a status, then its texts."""
    run = tuple((name, str(getattr(status, name))) for name in _INFO)
    yield Metric("run", run, 1.0, "which run it is")
    yield from _of_part(status, ())
    for name, value in status.record.items():
        yield Metric("record", (("name", _clean(name)),), value, "last recorded by the agent")
    for source in status.sources:
        yield from _of_part(source, (("source", source.name),), "source")
    for manager in status.managers:
        yield from _of_manager(manager)
    words = {"phase": status.phase, "exit_reason": status.exit_reason}
    for name, word in {**words, "limiter_state": status.limiter.state}.items():
        yield Metric(name, ((name.rpartition("_")[2], word),), 1.0, "as the status says it")


def _of_manager(manager: ManagerStatus) -> Iterator[Metric]:
    whose = (("manager", manager.id), ("host", manager.host))
    yield Metric("manager_present", whose, float(manager.is_present), "it has not gone")
    yield from _of_part(manager, whose, "manager")
    for actor in manager.actors:
        yield from _of_part(actor, (*whose, ("actor", str(actor.id))), "actor")


def _of_part(part: Part, labels: tuple[tuple[str, str], ...], *path: str) -> Iterator[Metric]:
    """Yield the numbers of a part, named by the path to each."""
    for names, number, value in numbers(part, *path):
        title = f"{number.title} ({number.unit})" if number.unit else number.title
        yield Metric("_".join(names), labels, float(value), title, number.counter)


def _clean(name: str) -> str:
    return "".join(letter if letter.isalnum() and letter.isascii() else "_" for letter in name)
