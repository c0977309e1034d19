"""How a manager and its actors do."""

from __future__ import annotations

from typing import Final, get_args

from vedette_protocol.errors import MalformedError
from vedette_protocol.fields import Fields
from vedette_protocol.limits import ACTOR_MAX, ACTORS_MAX, COUNT_MAX, REPORT_MAX_BYTES, U64_MAX
from vedette_protocol.messages import ActorReport, Buffer, ManagerState, Report
from vedette_protocol.packing import check_frame_size, clip_text, pack, pack_header, unpack

_STATES: Final[tuple[ManagerState, ...]] = get_args(ManagerState)


def encode_report(report: Report) -> list[Buffer]:
    """Header and payload."""
    actors = [
        {
            "id": actor.id,
            "alive": actor.alive,
            "restarts": actor.restarts,
            "env_steps": actor.env_steps,
            "episodes": actor.episodes,
            "version": actor.version,
            "return_mean": actor.return_mean,
            "length_mean": actor.length_mean,
            "error": clip_text(actor.error),
        }
        for actor in report.actors
    ]
    if len(actors) > ACTORS_MAX:
        raise MalformedError(f"a report of {len(actors)} actors, expected at most {ACTORS_MAX}")
    payload = pack(
        {
            "host": clip_text(report.host),
            "state": report.state,
            "run": report.run_id,
            "produced": report.produced,
            "dropped": report.dropped,
            "window_batches": report.window_batches,
            "window_rows": report.window_rows,
            "window_bytes": report.window_bytes,
            "sequenced": report.sequenced,
            "base": report.base,
            "actors": actors,
        }
    )
    fields = {"manager": report.manager, "incarnation": report.incarnation}
    return [pack_header("report", fields), check_frame_size(payload, REPORT_MAX_BYTES, "report")]


def decode_report(header: Fields, payload: Buffer) -> Report:
    """What header and payload say.

    Raises:
        ProtocolError: it is none.
    """
    manager = header.id("manager")
    incarnation = header.integer("incarnation", 0, U64_MAX)
    header.end_header()
    fields = Fields(unpack(payload, REPORT_MAX_BYTES), "the report")
    sequenced = fields.integer("sequenced", 0, COUNT_MAX)
    report = Report(
        manager=manager,
        incarnation=incarnation,
        host=fields.text("host"),
        state=fields.choice("state", _STATES),
        run_id=fields.id_or_none("run"),
        produced=fields.integer("produced", 0, COUNT_MAX),
        dropped=fields.integer("dropped", 0, COUNT_MAX),
        window_batches=fields.integer("window_batches", 0, COUNT_MAX),
        window_rows=fields.integer("window_rows", 0, COUNT_MAX),
        window_bytes=fields.integer("window_bytes", 0, COUNT_MAX),
        sequenced=sequenced,
        base=fields.integer("base", 0, sequenced),
        actors=fields.items("actors", _decode_actor, ACTORS_MAX),
    )
    fields.end()
    if report.dropped + report.window_rows > report.produced:
        raise MalformedError("the report has dropped and holds more rows than it produced")
    return report


def _decode_actor(value: object) -> ActorReport:
    fields = Fields(value, "an actor's report")
    actor = ActorReport(
        id=fields.integer("id", 0, ACTOR_MAX),
        alive=fields.boolean("alive"),
        restarts=fields.integer("restarts", 0, COUNT_MAX),
        env_steps=fields.integer("env_steps", 0, COUNT_MAX),
        episodes=fields.integer("episodes", 0, COUNT_MAX),
        version=fields.integer("version", 0, COUNT_MAX),
        return_mean=fields.number("return_mean"),
        length_mean=fields.number("length_mean"),
        error=fields.text("error"),
    )
    fields.end()
    return actor
