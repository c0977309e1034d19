"""The gateway's thinking, with real frames and no socket."""

from dataclasses import replace

import numpy as np
import pytest
from configurations import configured  # of tests/support

from vedette_protocol import topics
from vedette_protocol.closed_accounts import Archive
from vedette_protocol.codec import decode_control, decode_up, encode, encode_question
from vedette_protocol.column import Column
from vedette_protocol.limits import EXTRAS_MAX, OLD_ACCOUNTS_MAX
from vedette_protocol.messages import Ack, ActorReport, Batch, Refusal, Report, Run, Status, Stop
from vedette_protocol.schema import Schema
from vedette_rl.envs.make import probe_environment
from vedette_rl.replay.limiter import Limiter
from vedette_services.learner.gateway.flow_control import FlightLimits
from vedette_services.learner.gateway.intake import Block
from vedette_services.learner.gateway.process import describe_acting
from vedette_services.learner.gateway.run_grants import RunGrants
from vedette_services.learner.gateway.state import GatewayState, Position
from vedette_services.status.records import GONE_AFTER_S
from vedette_services.status.stop_conditions import ENV_STEPS_REACHED

SCHEMA = Schema(
    (
        Column("obs", "f4", (2,)),
        Column("action", "i8", (), low=0, high=1),
        Column("reward", "f4", ()),
    )
)
MODEL = Schema((Column("w", "f4", (3,)),))
RUN_ID = "0123456789abcdef"
FREE = Limiter(0.0, min_size=1, error_buffer=0.0, batch_size=1)


def gateway(
    limiter: Limiter = FREE,
    stamp: bytes = b"",
    now: float = 0.0,
    admitted: tuple[str, ...] = ("m",),
    max_managers: int = 2048,
    max_env_steps: int = 0,
    archive: Archive | None = None,
    run_grants: RunGrants | None = None,
) -> GatewayState:
    """A gateway; unless it restores a stamp, the managers `admitted` have reported and an ack."""
    state = GatewayState(
        RUN_ID,
        7,
        SCHEMA,
        stamp=stamp,
        now=now,
        limiter=limiter,
        rows_per_batch=4,
        elements=None,
        max_managers=max_managers,
        max_env_steps=max_env_steps,
        archive=archive,
        run_grants=run_grants,
    )
    state.position = Position(epoch=1, version=10)
    state.announce_run(Run(RUN_ID, 1, 7, SCHEMA, MODEL, {}, {}, {}, 0, 4, 4))
    if not stamp:
        for manager in admitted:
            state.on_samples(report_frames(manager=manager), now)
        state.acks_due(now, 0)
        state.log_lines.waiting.clear()
    return state


def batch_frames(
    seq: int,
    *,
    manager: str = "m",
    incarnation: int = 5,
    rows: int = 4,
    run_id: str = RUN_ID,
    schema: str = SCHEMA.hash,
    reward: float = 1.0,
    action: int = 1,
    base: int = 0,
) -> list[bytes]:
    columns = {
        "obs": np.zeros((rows, 2), np.float32),
        "action": np.full(rows, action, np.int64),
        "reward": np.full(rows, reward, np.float32),
    }
    payload = SCHEMA.pack(columns, rows)
    batch = Batch(run_id, manager, incarnation, seq, 0, 1, 8, schema, rows, payload, base=base)
    return [bytes(frame) for frame in encode(batch)]


def state_batch(seq: int, env_steps: int, manager: str = "m") -> list[bytes]:
    message = decode_up(batch_frames(seq, manager=manager))
    assert isinstance(message, Batch)
    return [bytes(frame) for frame in encode(message._replace(env_steps=env_steps))]


def report_frames(
    *,
    manager: str = "m",
    state: str = "running",
    produced: int = 0,
    window_rows: int = 0,
    incarnation: int = 5,
    host: str = "host",
    **changes: object,
) -> list[bytes]:
    report = Report(
        manager=manager,
        incarnation=incarnation,
        host=host,
        state=state,  # type: ignore[arg-type]  # one of the three
        run_id=RUN_ID,
        produced=produced,
        dropped=0,
        window_batches=9,
        window_rows=window_rows,
        window_bytes=0,
        sequenced=9,
        actors=(ActorReport(0, True, 0, 0, 0, 0), ActorReport(1, True, 0, 0, 0, 0)),
    )
    return [bytes(frame) for frame in encode(replace(report, **changes))]  # type: ignore[arg-type]


def take(state: GatewayState, frames: list[bytes], now: float = 1.0) -> Block | None:
    state.on_samples(frames, now)
    return next(iter(state.blocks(now)), None)


def acks(state: GatewayState, now: float, inserted: int = 0) -> dict[str, Ack]:
    found = {}
    for frames in state.acks_due(now, inserted):
        message = decode_control([bytes(frame) for frame in frames[1:]])
        assert isinstance(message, Ack)
        assert frames[0] == topics.manager_topic(message.manager)
        found[message.manager] = message
    return found


def test_a_new_batch_is_inserted_and_acknowledged() -> None:
    state = gateway()
    block = take(state, batch_frames(0))
    assert block is not None
    assert block.columns["action"].tolist() == [1, 1, 1, 1]
    assert state.dirty
    assert acks(state, 1.1)["m"].contiguous == 1


def test_a_batch_seen_before_is_counted_and_not_inserted() -> None:
    state = gateway()
    take(state, batch_frames(0))
    assert take(state, batch_frames(0)) is None
    accounting = state.ledger.accounting()
    assert (accounting.inserted, accounting.duplicates) == (4, 4)


@pytest.mark.parametrize(
    "frames",
    [
        batch_frames(0, reward=float("nan")),
        batch_frames(0, reward=float("inf")),
        batch_frames(0, action=2),
        batch_frames(0, action=-1),
        batch_frames(0, schema="0" * 16),
    ],
    ids=["nan", "inf", "action above", "action below", "schema"],
)
def test_an_unsound_batch_is_settled_as_rejected_so_that_it_does_not_come_again(
    frames: list[bytes],
) -> None:
    state = gateway()
    assert take(state, frames) is None
    assert state.ledger.accounting().rejected == 4
    ack = acks(state, 1.1)["m"]
    assert (ack.contiguous, ack.rejected_batches) == (1, 1)
    assert state.rejections.due_lines(2.0)[0].startswith("rejected: batch 0 of m")


def test_an_unsound_batch_harms_none_of_those_that_came_with_it() -> None:
    state = gateway()
    for seq in range(8):
        state.on_samples(batch_frames(seq, reward=float("nan") if seq == 5 else 1.0), 1.0)
    state.on_samples(batch_frames(5), 1.0)  # settled is settled, though this one is sound
    inserted = sum(block.batches for block in state.blocks(1.0))
    accounting = state.ledger.accounting()
    assert inserted == 7
    assert (accounting.inserted, accounting.rejected, accounting.duplicates) == (28, 4, 4)
    ack = acks(state, 1.1)["m"]
    assert (ack.contiguous, ack.rejected_batches) == (8, 1)


def test_why_batches_are_rejected_is_known_until_one_is_inserted() -> None:
    state = gateway()
    take(state, batch_frames(0, reward=float("nan")))
    assert state.rejecting
    take(state, batch_frames(1))
    assert not state.rejecting
    assert "'reward'" in state.rejected_reason  # for the end of the run
    state.on_samples(batch_frames(2, action=2), 1.0)
    state.on_samples(batch_frames(3), 1.0)
    state.blocks(1.0)
    assert not state.rejecting


def test_a_run_of_whose_samples_most_are_rejected_for_ten_seconds_is_of_no_use() -> None:
    state = gateway(admitted=("good", "bad"))
    for second in range(60):
        now = float(second)
        for manager in ("good", "bad") if second < 20 else ("bad",):
            state.on_samples(report_frames(manager=manager), now)
            reward = 1.0 if manager == "good" else float("nan")
            take(state, batch_frames(second, manager=manager, reward=reward), now)
        state.on_samples(batch_frames(60 + second, manager="bad", action=2), now)
        state.blocks(now)
        state.acks_due(now, 0)
        state.tick(now)
        assert second >= 30 or not state.unusable  # "good" counts as gone after 10 s
    assert "samples of 10 s were rejected: column " in state.unusable


def test_the_stamp_does_not_speak_of_batches_that_nobody_has_appended() -> None:
    state = gateway()
    state.on_samples(batch_frames(0), 1.0)
    with pytest.raises(AssertionError):
        state.stamp()


def test_batches_are_looked_into_before_another_incarnation_may_close_their_account() -> None:
    state = gateway()
    state.on_samples(batch_frames(0, reward=float("nan")), 1.0)
    for incarnation in range(6, 6 + 2 * OLD_ACCOUNTS_MAX):
        state.on_samples(batch_frames(0, incarnation=incarnation), 1.0 + incarnation)
    assert state.blocks(20.0) == []
    accounting = state.ledger.accounting()
    assert (accounting.inserted, accounting.rejected) == (0, 4)


def test_a_batch_of_another_run_is_neither_stored_nor_acknowledged() -> None:
    state = gateway(admitted=())
    assert take(state, batch_frames(0, run_id="f" * 16)) is None
    assert state.garbage == 1
    assert acks(state, 1.1) == {}


def test_bytes_that_are_no_message_are_counted() -> None:
    state = gateway()
    for frames in ([b""], [b"GET / HTTP/1.1"], [b"\xc1", b"x"], [b"a", b"b", b"c"]):
        assert take(state, frames) is None
    assert state.garbage == 4


def test_a_payload_of_the_wrong_length_is_rejected_in_the_name_of_its_sender() -> None:
    state = gateway()
    take(state, report_frames())
    header, payload = batch_frames(0)
    assert take(state, [header, payload[:-1]]) is None
    assert acks(state, 1.1)["m"].rejected_batches == 1


def test_acks_are_repeated_though_nothing_changes() -> None:
    state = gateway()
    take(state, batch_frames(0))
    assert "m" in acks(state, 1.0)
    assert acks(state, 1.1) == {}
    assert "m" in acks(state, 1.25)


def test_an_ack_that_says_something_new_waits_only_20_ms() -> None:
    state = gateway()
    take(state, batch_frames(0))
    acks(state, 1.0)
    take(state, batch_frames(1))
    assert acks(state, 1.01) == {}
    assert acks(state, 1.03)["m"].contiguous == 2


def test_among_many_managers_news_wait_longer_unless_they_are_many_themselves() -> None:
    managers = [f"m{number}" for number in range(64)]
    state = gateway(admitted=tuple(managers))
    for manager in managers:
        take(state, batch_frames(0, manager=manager))
    assert len(acks(state, 1.0)) == 64
    take(state, batch_frames(1, manager="m0"))
    for seq in range(1, 17):  # a quarter of what each of 64 may have under way
        take(state, batch_frames(seq, manager="m1"))
    assert set(acks(state, 1.03)) == {"m1"}
    assert "m0" in acks(state, 1.21)


def test_managers_of_the_gateway_before_that_stay_away_count_as_gone() -> None:
    before = gateway(admitted=("stays", "never-back"))
    state = gateway(stamp=before.stamp(), now=100.0)
    take(state, report_frames(manager="stays"), 110.0)
    state.tick(100.0 + GONE_AFTER_S)
    assert len(acks(state, 100.0 + GONE_AFTER_S)) == 2
    state.tick(101.0 + GONE_AFTER_S)
    assert [manager for manager, _ in state.ledger.alive_incarnations()] == ["stays"]
    assert acks(state, 102.0 + GONE_AFTER_S)["stays"].limit > 0


def test_the_limiter_withholds_credit_and_says_why() -> None:
    limiter = Limiter(1.0, min_size=4, error_buffer=4.0, batch_size=4)
    state = gateway(limiter)
    take(state, report_frames())
    limit = acks(state, 1.0, inserted=0)["m"].limit
    assert limit >= 1
    ack = acks(state, 2.0, inserted=100)["m"]
    assert ack.limit == limit
    assert "learner must draw" in ack.reason


def test_credit_under_the_limiter_is_what_may_still_be_inserted() -> None:
    limiter = Limiter(1.0, min_size=100, error_buffer=20.0, batch_size=4)
    state = gateway(limiter, admitted=())
    take(state, report_frames())
    state.position = Position(epoch=1, version=10, sampled=20)
    # surplus 120 - 20 = 100, the edge is 120: 20 samples, that is 5 batches of 4
    assert acks(state, 1.0, inserted=120)["m"].limit == 5


def test_a_manager_that_leaves_gets_credit_though_the_limiter_is_shut() -> None:
    limiter = Limiter(1.0, min_size=4, error_buffer=4.0, batch_size=4)
    state = gateway(limiter, admitted=())
    take(state, report_frames())
    take(state, report_frames(manager="leaving", state="draining"))
    found = acks(state, 2.0, inserted=100)
    assert found["m"].limit == 0
    assert found["leaving"].limit > 0


def test_without_credit_nothing_new_is_taken_however_far_ahead_it_claims_to_be() -> None:
    limiter = Limiter(1.0, min_size=4, error_buffer=4.0, batch_size=4)
    state = gateway(limiter)
    limit = acks(state, 0.5, inserted=100)["m"].limit
    assert limit == 2
    take(state, batch_frames(0))
    for seq in (limit, EXTRAS_MAX, 5 * EXTRAS_MAX):
        assert take(state, batch_frames(seq, base=seq)) is None
    assert take(state, batch_frames(0)) is None  # seen before: it wants its ack again
    accounting = state.ledger.accounting()
    assert (accounting.inserted, accounting.duplicates, state.refused_credit) == (4, 4, 3)


def test_no_incarnation_may_send_before_an_ack_grants_it_a_limit() -> None:
    state = gateway(admitted=())
    for incarnation in range(5, 8):  # incarnations are free
        for seq in range(100):
            assert take(state, batch_frames(seq, incarnation=incarnation)) is None
    assert (state.ledger.accounting().inserted, state.refused_credit) == (0, 300)
    assert acks(state, 1.0)["m"].limit == 0  # it has not reported either
    take(state, report_frames(incarnation=8), 1.1)
    assert acks(state, 1.2)["m"].limit > 0
    assert take(state, batch_frames(0, incarnation=8)) is not None


def test_a_limit_of_the_gateway_before_is_honoured_and_more_is_not() -> None:
    before = gateway()
    limit = acks(before, 0.5)["m"].limit
    take(before, batch_frames(0))
    state = gateway(stamp=before.stamp(), now=100.0)
    assert acks(state, 100.0)["m"].limit == 1  # nothing is granted before its report
    take(state, report_frames(limit=limit), 100.1)
    assert take(state, batch_frames(limit - 1), 100.1) is not None
    assert take(state, batch_frames(limit), 100.1) is None
    claims = {f"liar{n}": 1 << 40 for n in range(6)}
    for manager, claim in claims.items():
        take(state, report_frames(manager=manager, limit=claim), 100.2)
    granted = [state.ledger.account(manager, 5).limit for manager in claims]
    assert sum(granted) + limit - 1 == FlightLimits().batches


def test_claims_move_neither_environment_steps_nor_sums_beyond_what_is_possible() -> None:
    state = gateway()
    take(state, report_frames(produced=1 << 61, sequenced=1 << 50))
    for seq in range(6):
        huge = Batch(RUN_ID, "m", 5, seq, 0, 1, 8, SCHEMA.hash, 1 << 20, bytes(8), 0, 1 << 40)
        take(state, [bytes(frame) for frame in encode(huge)])
    accounting = state.ledger.accounting()
    assert (accounting.env_steps, accounting.rejected) == (0, 6 * 4)
    assert accounting.produced == 4 * state.ledger.account("m", 5).limit
    assert acks(state, 1.1)["m"].rejected_reason == "1048576 rows, the run's have 4"


def test_the_batch_that_reaches_the_limit_of_environment_steps_is_the_last_one_inserted() -> None:
    managers = ("m", "n")
    state = gateway(admitted=managers, max_env_steps=10)
    for seq in range(4):
        for manager in managers:
            state.on_samples(state_batch(seq, 4, manager), 1.0)
    inserted = sum(block.batches for block in state.blocks(1.0))
    accounting = state.ledger.accounting()
    assert (inserted, accounting.env_steps) == (3, 12)  # of 4 steps each
    assert (accounting.inserted, accounting.rejected, state.admission.late) == (12, 20, 20)
    said = acks(state, 1.1)
    # They are settled: nobody holds them, and nobody has to wait for them.
    assert {name: ack.contiguous for name, ack in said.items()} == {"m": 4, "n": 4}
    assert said["m"].rejected_reason == ENV_STEPS_REACHED
    assert not state.rejecting
    assert not state.rejections.due_lines(2.0)
    resumed = gateway(stamp=state.stamp(), max_env_steps=14)
    take(resumed, report_frames(sequenced=4), 2.0)
    acks(resumed, 2.0)
    assert take(resumed, state_batch(4, 4), 2.1) is not None
    assert take(resumed, state_batch(5, 4), 2.1) is None
    assert resumed.ledger.accounting().env_steps == 16


def test_an_invalid_batch_does_not_use_up_environment_steps() -> None:
    state = gateway(max_env_steps=10)
    for seq, env_steps in enumerate((4, 1 << 40, 4, 4, 4)):
        state.on_samples(state_batch(seq, env_steps), 1.0)
    inserted = sum(block.batches for block in state.blocks(1.0))
    assert (inserted, state.ledger.env_steps) == (3, 12)


def test_a_batch_of_more_environment_steps_than_the_run_allows_is_rejected() -> None:
    state = gateway()
    for seq, env_steps in enumerate((4, 3, 5)):
        batch = state_batch(seq, env_steps)
        take(state, batch)
    accounting = state.ledger.accounting()
    assert (accounting.env_steps, accounting.inserted, accounting.rejected) == (7, 8, 4)
    assert "5 environment steps" in acks(state, 1.1)["m"].rejected_reason


def test_managers_get_actor_numbers_side_by_side() -> None:
    state = gateway(admitted=())
    take(state, report_frames(manager="a"))
    take(state, report_frames(manager="b"))
    found = acks(state, 1.0)
    assert sorted(ack.first_actor for ack in found.values()) == [0, 2]


def test_a_joiner_hears_of_the_run_on_its_own_topic_alone() -> None:
    state = gateway()
    [frames] = state.on_subscription(b"\x01m/joiner/", b"")
    assert frames[0] == b"m/joiner/"
    assert isinstance(decode_control([bytes(f) for f in frames[1:]]), Run)
    assert state.on_subscription(b"\x01all", b"") == []
    assert state.on_subscription(b"\x00m/joiner/", b"") == []


def test_who_asks_for_the_status_gets_it_on_a_topic_of_its_own() -> None:
    state = gateway()
    [frames] = state.on_subscription(b"\x01s/nonce/", b"{}")
    assert frames[0] == b"s/nonce/"
    assert decode_control([bytes(f) for f in frames[1:]]) == Status(b"{}")


def test_subscriptions_to_anything_else_are_counted_as_garbage() -> None:
    state = gateway()
    assert state.on_subscription(b"\x01" + b"x" * 500, b"") == []
    assert state.garbage == 1


def test_before_the_first_model_nobody_may_send() -> None:
    state = GatewayState(
        RUN_ID, 7, SCHEMA, stamp=b"", now=0.0, limiter=FREE, rows_per_batch=4, elements=None
    )
    take(state, report_frames())
    ack = acks(state, 1.0)["m"]
    assert (ack.limit, ack.reason) == (0, "the learner is starting")
    assert state.on_subscription(b"\x01m/m/", b"") == []


def test_who_joins_after_the_end_is_told_of_the_end_and_not_of_the_run() -> None:
    state = gateway()
    state.announce_stop("interrupted", final=False)
    (joined,) = state.on_subscription(b"\x01m/m/", b"")
    assert isinstance(decode_control(joined[1:]), Run)
    state.announce_stop("max_opts", final=True)
    (joined,) = state.on_subscription(b"\x01m/m/", b"")
    assert decode_control(joined[1:]) == Stop(RUN_ID, state.position.epoch, "max_opts", final=True)


def test_a_manager_that_leaves_for_a_reason_is_shown_with_it() -> None:
    state = gateway()
    why = "the learner's run imports 'mine:Env', which this host does not allow"
    report = Report(
        "m",
        5,
        "host",
        "gone",
        RUN_ID,
        *[0] * 6,
        actors=(ActorReport(0, False, 0, 0, 0, 0, error=why),),
    )
    for now in (1.0, 1.1):  # it comes again until it is answered, and is said once
        state.on_samples([bytes(frame) for frame in encode(report)], now)
    assert [(n.level, n.text) for n in state.log_lines.waiting] == [
        ("warning", f"manager m has left: {why}")
    ]
    shown = state.fleet.status(1.0)[0]
    assert (shown["state"], shown["actors"][0]["error"]) == ("gone", why)


def test_what_has_not_come_when_a_run_is_over_is_lost_until_its_manager_is_heard_again() -> None:
    state = gateway()
    state.on_samples(report_frames(produced=12, window_rows=8), 1.0)
    state.on_samples(batch_frames(0), 1.0)
    state.blocks(1.0)
    assert state.ledger.accounting().in_flight == 8
    state.end_run()
    assert state.dirty
    accounting = state.ledger.accounting()
    assert (accounting.produced, accounting.inserted, accounting.in_flight, accounting.lost) == (
        12,
        4,
        0,
        8,
    )
    again = gateway(stamp=state.stamp(), now=100.0)  # the run goes on all the same
    assert again.ledger.accounting().lost == 8
    again.on_samples(report_frames(produced=12, window_rows=8), 101.0)
    assert (again.ledger.accounting().in_flight, again.ledger.accounting().lost) == (8, 0)


def test_a_silent_manager_is_gone_and_what_it_held_is_lost_until_it_speaks_again() -> None:
    state = gateway()
    take(state, report_frames(produced=12, window_rows=12), now=1.0)
    take(state, batch_frames(0), now=1.0)
    state.tick(5.0)
    assert state.ledger.accounting().in_flight == 8
    state.tick(30.0)
    accounting = state.ledger.accounting()
    assert (accounting.in_flight, accounting.lost) == (0, 8)
    assert state.fleet.status(30.0)[0]["state"] == "gone"
    take(state, batch_frames(1), now=31.0)
    accounting = state.ledger.accounting()
    assert (accounting.in_flight, accounting.lost) == (4, 0)


def test_the_stamp_brings_back_what_was_settled() -> None:
    state = gateway()
    take(state, report_frames())
    take(state, batch_frames(0))
    take(state, batch_frames(2))
    acks(state, 1.0)
    again = gateway(stamp=state.stamp())
    assert not state.dirty
    assert take(again, batch_frames(0)) is None
    assert take(again, batch_frames(2)) is None
    assert take(again, batch_frames(1)) is not None
    assert again.ledger.manager_number("m") == state.ledger.manager_number("m")


def test_another_protocol_version_is_refused_for_good() -> None:
    state = gateway()
    take(state, report_frames())
    header, payload = batch_frames(0)
    at = header.index(b"\xa1v") + 2
    take(state, [header[:at] + b"\x63" + header[at + 1 :], payload])
    messages = [decode_control([bytes(f) for f in m[1:]]) for m in state.acks_due(1.0, 0)]
    refusals = [message for message in messages if isinstance(message, Refusal)]
    assert [refusal.code for refusal in refusals] == ["version"]


def test_a_question_is_answered_by_a_refusal_and_counts_nowhere() -> None:
    state = gateway(admitted=())
    state.on_samples(encode_question("doctor-1", 5), 1.0, "key")
    [message] = state.acks_due(1.0, 0)
    refusal = decode_control([bytes(frame) for frame in message[1:]])
    assert isinstance(refusal, Refusal)
    assert message[0] == topics.manager_topic("doctor-1")
    assert (refusal.manager, refusal.incarnation, refusal.code) == ("doctor-1", 5, "version")
    assert state.garbage == 0
    assert state.rejections.due_lines(100.0) == []
    assert state.fleet.present == []
    assert state.ledger.manager_ids() == []


def rowless(seq: int) -> list[bytes]:
    """A batch whose header is wrong, so that it is refused before anything is held."""
    header, payload = batch_frames(seq)
    at = header.index(b"\xa4rows") + 5
    return [header[:at] + b"\x00" + header[at + 1 :], payload]


def test_a_batch_with_a_wrong_header_is_settled_once_and_is_garbage_after_that() -> None:
    state = gateway()
    for _ in range(2):
        assert take(state, rowless(0)) is None
    ack = acks(state, 1.1)["m"]
    assert (ack.contiguous, ack.rejected_batches, state.garbage) == (1, 1, 1)
    assert "'rows'" in ack.rejected_reason
    take(state, rowless(5 * EXTRAS_MAX))  # beyond its limit: nothing to settle
    assert (state.garbage, state.ledger.account("m", 5).rejected_batches) == (2, 1)


def test_what_is_held_is_validated_before_a_later_message_is_refused() -> None:
    state = gateway()
    state.on_samples(batch_frames(0), 1.0)
    state.on_samples(rowless(1), 1.0)
    assert "'rows'" in state.rejected_reason  # the newest is the one that is told
    assert sum(block.batches for block in state.blocks(1.0)) == 1
    assert "'rows'" in state.rejected_reason


def test_the_actor_numbers_of_a_manager_that_leaves_are_free_for_others() -> None:
    state = gateway(admitted=("a", "b"))
    take(state, report_frames(manager="a", state="gone"))
    take(state, report_frames(manager="c"))
    found = acks(state, 1.1)
    assert {manager: ack.first_actor for manager, ack in found.items()} == {"b": 2, "c": 0}


def test_a_joiner_hears_its_limit_at_once() -> None:
    state = gateway(admitted=tuple(f"m{number}" for number in range(60)))
    assert len(acks(state, 1.0)) == 60
    take(state, report_frames(manager="late"), 1.02)  # others wait longer for their news
    take(state, batch_frames(0, manager="m0"), 1.02)
    assert set(acks(state, 1.03)) == {"late"}
    take(state, report_frames(manager="late", incarnation=6), 1.04)
    assert acks(state, 1.06)["late"].incarnation == 6


def test_a_gateway_is_told_of_batches_beyond_a_limit_and_goes_on_when_they_come_again() -> None:
    state = gateway(Limiter(1.0, min_size=8, error_buffer=8.0, batch_size=4))
    limit = acks(state, 0.5)["m"].limit
    for seq in range(limit + 3):
        take(state, batch_frames(seq))
    assert (state.ledger.account("m", 5).contiguous, state.refused_credit) == (limit, 3)
    assert state.rejections.due_lines(9.0) == [
        "credit: manager m sends more than it may (and 2 more)"
    ]
    state.position = Position(epoch=1, version=10, sampled=1000)
    assert acks(state, 1.1, inserted=4 * limit)["m"].limit > limit
    assert take(state, batch_frames(limit)) is not None


def test_the_rate_of_a_manager_is_that_of_its_inserted_rows() -> None:
    state = gateway()
    for second in range(1, 4):
        state.on_samples(batch_frames(second - 1), float(second))
        state.on_samples(report_frames(produced=1000 * second), float(second))
        state.acks_due(float(second), 0)
    [manager] = state.fleet.status(3.0)
    assert manager.samples_per_sec == 4.0


def test_a_run_tells_its_managers_where_exploration_begins() -> None:
    table = {"replay": {"sources": {"demos": {"data": "demos.npz"}}}}
    settings = ("preset=none", "learner.pretrain_opts=500")
    config = configured(*settings, env="CartPole-v1", agent="dqn", table=table)
    message = gateway().run_message(config, 1, MODEL)
    assert message.actors["explore_from"] == 500
    spaces = probe_environment(config.env)
    described = describe_acting(config, spaces)
    assert described is not None
    assert described["explore_from"] == 500
    config = configured("preset=none", env="CartPole-v1", agent="dqn")
    assert "explore_from" not in gateway().run_message(config, 1, MODEL).actors
    assert "explore_from" not in (describe_acting(config, spaces) or {})


def test_a_manager_of_a_later_epoch_is_told_of_once() -> None:
    """As after the run was put back from an older copy."""
    state = gateway()
    for seq, epoch in enumerate((1, 4, 5)):
        message = decode_up(batch_frames(seq))
        assert isinstance(message, Batch)
        take(state, [bytes(frame) for frame in encode(message._replace(epoch=epoch))])
    (line,) = state.log_lines.waiting
    assert line.level == "warning"
    assert "manager m plays a model of epoch 4, and this run is at epoch 1" in line.text
    assert state.ledger.accounting().inserted == 12  # its rows count all the same


def test_a_manager_with_a_later_version_of_the_same_epoch_is_told_of_once() -> None:
    """As where a copy of the run was started as often as the run itself since."""
    state = gateway()
    run = Run(RUN_ID, 1, 7, SCHEMA, MODEL, {}, {}, {}, 0, 4, 4)
    for published in (10, 20):
        state.on_model(run, published, 0.0)
    for seq, version in enumerate((10, 20, 500, 600)):
        message = decode_up(batch_frames(seq))
        assert isinstance(message, Batch)
        take(state, [bytes(frame) for frame in encode(message._replace(version=version))])
    (line,) = state.log_lines.waiting
    assert line.level == "warning"
    said = "manager m plays a model of epoch 1, version 500, and this run is at version 20 of it"
    assert said in line.text
    assert "put back from an older copy, or another learner of it runs" in line.text
    assert state.ledger.accounting().inserted == 16
