"""The benchmark of the archive writes it, opens it, and finds each session."""

from bench.lines import session_lines
from bench.sessions import SessionsBench


def test_sessions_are_written_and_found() -> None:
    figures = SessionsBench(sessions=2500, managers=7, rounds=2).run()
    assert 50 < figures["archive_bytes"] / figures["sessions"] < 100
    assert session_lines(figures)[0].startswith("2,500 sessions: ")
