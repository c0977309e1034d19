"""Models that come faster than the line carries them."""

from vedette_protocol.messages import ModelChunk
from vedette_services.actors.slow_line import NOTHING_NEW_S, QUIET_S, SlowLine

COUNT = 4


def come(line: SlowLine, version: int, pieces: int, now: float, *, had: bool = False) -> None:
    """So many pieces of a model of four; the last one completes it, if it was not had."""
    for index in range(pieces):
        complete = index == COUNT - 1 and not had
        chunk = ModelChunk("r", 1, version, "0" * 16, index, COUNT, 40, bytes(8), b"x" * 10)
        line.on_chunk(chunk, now, complete=complete)


def test_models_that_come_whole_change_nothing() -> None:
    line = SlowLine(0.0)
    for version in range(20):
        come(line, version, COUNT, float(version))
    assert not line.changes_over()
    assert not line.should_ask(100.0)


def test_one_that_is_torn_now_and_then_changes_nothing() -> None:
    line = SlowLine(0.0)
    for version in range(20):
        come(line, version, COUNT if version % 2 else 2, float(version))
    assert not line.changes_over()


def test_several_torn_in_a_row_change_over_once_and_ask_when_the_queue_is_through() -> None:
    line = SlowLine(0.0)
    for version in range(4):
        come(line, version, 2, 0.0)
    assert line.changes_over()
    assert not line.changes_over()
    assert not line.should_ask(QUIET_S / 2)
    come(line, 5, 2, 0.9)  # still queued
    assert not line.should_ask(1.5)
    assert line.should_ask(2.0)
    assert not line.should_ask(2.1)


def test_after_a_model_the_next_is_asked_for_at_once_and_seldom_while_nothing_is_new() -> None:
    line = SlowLine(0.0)
    for version in range(4):
        come(line, version, 1, 0.0)
    assert line.changes_over()
    assert line.should_ask(2.0)
    come(line, 9, COUNT, 5.0)
    assert line.should_ask(5.1)
    come(line, 9, COUNT, 6.0, had=True)
    assert not line.should_ask(6.0 + NOTHING_NEW_S / 2)
    assert line.should_ask(6.0 + NOTHING_NEW_S)
    come(line, 9, COUNT, 8.0, had=True)
    assert not line.should_ask(8.0 + 1.5 * NOTHING_NEW_S)
    come(line, 10, COUNT, 20.0)
    assert line.should_ask(20.1)


def test_an_answer_that_is_lost_is_asked_for_again() -> None:
    line = SlowLine(0.0)
    for version in range(4):
        come(line, version, 1, 0.0)
    assert line.changes_over()
    assert line.should_ask(2.0)
    assert line.should_ask(2.0 + QUIET_S)
