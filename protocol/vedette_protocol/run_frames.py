"""The run message: all that a manager needs to take part."""

from __future__ import annotations

from vedette_protocol.errors import SchemaError
from vedette_protocol.fields import Fields
from vedette_protocol.limits import EPOCH_MAX, RUN_MAX_BYTES, U64_MAX
from vedette_protocol.messages import Buffer, Run
from vedette_protocol.packing import check_frame_size, pack, pack_header, unpack
from vedette_protocol.schema import Schema


def encode_run(run: Run) -> list[Buffer]:
    """Header and payload."""
    payload = pack(
        {
            "schema": run.schema.to_wire(),
            "model": run.model.to_wire(),
            "env": run.env,
            "agent": run.agent,
            "actors": run.actors,
        }
    )
    fields = {"run": run.run_id, "epoch": run.epoch, "learner": run.learner, "seed": run.seed}
    return [pack_header("run", fields), check_frame_size(payload, RUN_MAX_BYTES, "run message")]


def decode_run(header: Fields, payload: Buffer) -> Run:
    """What header and payload say.

    Raises:
        ProtocolError: it is none.
    """
    fields = Fields(unpack(payload, RUN_MAX_BYTES), "the run")
    run = Run(
        run_id=header.id("run"),
        epoch=header.integer("epoch", 0, EPOCH_MAX),
        learner=header.integer("learner", 0, U64_MAX),
        schema=Schema.from_wire(fields.pop("schema")),
        model=Schema.from_wire(fields.pop("model")),
        env=fields.settings("env"),
        agent=fields.settings("agent"),
        actors=fields.settings("actors"),
        seed=header.integer("seed", 0, U64_MAX),
    )
    if run.model.sharing is not None:
        raise SchemaError("a model shares nothing")
    header.end_header()
    fields.end()
    return run
