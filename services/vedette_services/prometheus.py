"""The HTTP server that Prometheus asks: one more reading of the boards for every scrape."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from vedette_services.errors import MetricsError, SettingError

try:
    from prometheus_client import CollectorRegistry, start_http_server
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
    from prometheus_client.registry import Collector
except ImportError as error:
    raise SettingError(
        "--metrics-port", "prometheus_client is not installed", "pip install 'vedette[metrics]'"
    ) from error


@dataclass(frozen=True, slots=True)
class MetricsAddress:
    """Where metrics are served: everybody who reaches it may read them."""

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
    """Answers a scrape with the numbers of the status of this moment."""

    def __init__(self, status: Callable[[], Mapping[str, Any]]) -> None:
        self._status = status

    def describe(self) -> list[Metric]:
        """None: what there is, is known at each scrape only."""
        return []

    def collect(self) -> Iterator[Metric]:
        """The families of metrics, each with its samples."""
        families: dict[str, Metric] = {}
        for number in numbers(self._status()):
            family = families.setdefault(number.name, _family(number))
            family.add_metric([value for _, value in number.labels], number.value)  # type: ignore[attr-defined]  # of both subclasses
        yield from families.values()


def _family(number: StatusNumber) -> Metric:
    kind = CounterMetricFamily if number.counts else GaugeMetricFamily
    help_ = f"{number.name} of the run's status"
    return kind(f"{PREFIX}_{number.name}", help_, labels=[name for name, _ in number.labels])


def serve_metrics(
    place: MetricsAddress, status: Callable[[], Mapping[str, Any]]
) -> Callable[[], None]:
    """Serve until the returned function is called.

    Args:
        status: called by the server's own thread at every scrape.

    Raises:
        MetricsError: the port cannot be had.
    """
    registry = CollectorRegistry()
    registry.register(StatusCollector(status))
    try:
        server, thread = start_http_server(place.port, place.host, registry)
    except OSError as error:
        raise MetricsError(place.host, place.port, error.strerror or str(error)) from error

    def close() -> None:
        server.shutdown()
        server.server_close()
        thread.join(5.0)

    return close


PREFIX = "vedette"

COUNTERS = frozenset(
    {
        "actor_env_steps",
        "actor_episodes",
        "actor_restarts",
        "env_steps",
        "garbage",
        "opt_steps",
        "refused_handshakes",
        "refused_ids",
        "refused_keys",
        "samples_dropped",
        "samples_duplicates",
        "samples_inserted",
        "samples_produced",
        "samples_rejected",
    }
)
"""What only grows while a learner lives (some of it over all its lives)."""

_WORDS = ("phase", "exit_reason", "limiter_state")
"""Texts of which there are a few: a number 1 with the word as its label."""

_INFO = ("vedette", "run_id", "env", "agent")


@dataclass(frozen=True, slots=True)
class StatusNumber:
    """One number with its name and labels.

    Args:
        name: without prefix and without a counter's ``_total``.
    """

    name: str
    labels: tuple[tuple[str, str], ...]
    value: float

    @property
    def counts(self) -> bool:
        """Whether it only grows."""
        return self.name in COUNTERS


def numbers(status: Mapping[str, Any]) -> Iterator[StatusNumber]:
    """Every number of a status, then its few words."""
    yield StatusNumber("run", tuple((name, str(status.get(name, ""))) for name in _INFO), 1.0)
    for name, value in _flat(status, ()):
        if name.startswith("record_"):
            yield StatusNumber("record", (("name", name.removeprefix("record_")),), value)
        else:
            yield StatusNumber(name, (), value)
    for manager in status.get("managers", ()):
        yield from _of_manager(manager)
    words = {**status, "limiter_state": status.get("limiter", {}).get("state", "")}
    for name in _WORDS:
        yield StatusNumber(name, ((name.rpartition("_")[2], str(words.get(name) or "")),), 1.0)


def _of_manager(manager: Mapping[str, Any]) -> Iterator[StatusNumber]:
    whose = (("manager", str(manager["id"])), ("host", str(manager.get("host", ""))))
    yield StatusNumber("manager_present", whose, float(manager.get("state") != "gone"))
    for name, value in _flat(manager, ("manager",)):
        yield StatusNumber(name, whose, value)
    for actor in manager.get("actors", ()):
        which = (*whose, ("actor", str(actor["id"])))
        for name, value in _flat({**actor, "id": None}, ("actor",)):
            yield StatusNumber(name, which, value)


def _flat(part: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[tuple[str, float]]:
    """Numbers and truths of nested mappings, by the path to each."""
    for name, value in part.items():
        match value:
            case bool() | int() | float():
                yield "_".join((*path, _clean(name))), float(value)
            case Mapping():
                yield from _flat(value, (*path, _clean(name)))
            case _:
                continue


def _clean(name: str) -> str:
    return "".join(letter if letter.isalnum() and letter.isascii() else "_" for letter in name)
