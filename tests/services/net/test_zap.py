"""Who is admitted while the folder of admitted keys is replaced, missing or broken."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq
from zmq.utils import z85

from vedette_services.net.keys import LearnerKeys, list_keys, make_keys
from vedette_services.net.zap import POLL_EVERY_S, WARN_EVERY_S, ZapHandler


class Handler:
    """A handler on a folder of keys, a clock, and a peer that asks."""

    def __init__(self, directory: Path, public: dict[str, bytes]) -> None:
        self.admitted = directory / "admitted"
        self._public = public
        self._now = 0.0
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.zap = ZapHandler(self._context, LearnerKeys.read(directory), now=0.0)
        self._peer = self._context.socket(zmq.DEALER)
        self._peer.connect("inproc://zeromq.zap.01")

    def look(self, times: int = 1, every_s: float = POLL_EVERY_S) -> set[str]:
        """Let it look at the folder; the names that are closed out."""
        gone = set()
        for _ in range(times):
            self._now += every_s
            gone |= self.zap.poll_removed_keys(self._now)
        return gone

    def code_of(self, name: str) -> bytes:
        """The status code that a key of this name gets; empty if it gets no answer."""
        public = z85.decode(self._public[name])
        request = [b"", b"1.0", b"1", b"vedette", b"10.0.0.1", b"", b"CURVE", public]
        self._peer.send_multipart(request)
        assert self.zap.socket.poll(5000)
        self.zap.answer_requests()
        return self._peer.recv_multipart()[3] if self._peer.poll(200) else b""

    def close(self) -> None:
        self.zap.close()
        self._context.destroy(linger=0)


@pytest.fixture
def handler(tmp_path: Path) -> Iterator[Handler]:
    make_keys(tmp_path / "keys", ["gpu-2", "lab-7"])
    public = {key.name: key.public for key in list_keys(tmp_path / "keys")[1]}
    handler = Handler(tmp_path / "keys", public)
    yield handler
    handler.close()


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]


def test_a_folder_that_is_missing_for_a_while_closes_nobody_out(
    handler: Handler, caplog: pytest.LogCaptureFixture
) -> None:
    handler.admitted.rename(handler.admitted.with_name("away"))
    assert handler.look(6) == set()
    assert handler.code_of("gpu-2") == b"200"
    (said,) = warnings(caplog)
    assert f"cannot be read ({handler.admitted}: No such file or directory)" in said
    assert "the keys of before are let in (gpu-2, lab-7, learner)" in said
    handler.look(1, WARN_EVERY_S)
    assert len(warnings(caplog)) == 2
    handler.admitted.with_name("away").rename(handler.admitted)
    assert handler.look(3) == set()
    assert handler.code_of("lab-7") == b"200"


def test_a_folder_that_cannot_be_read_closes_nobody_out(handler: Handler) -> None:
    handler.admitted.rename(handler.admitted.with_name("away"))
    handler.admitted.write_text("no folder")
    assert handler.look(3) == set()
    assert handler.code_of("gpu-2") == b"200"


def test_a_key_that_is_not_known_while_the_folder_is_missing_gets_no_answer(
    handler: Handler,
) -> None:
    public = handler.admitted / "gpu-2.toml"
    kept = public.read_text()
    public.unlink()
    assert handler.look(2) == {"gpu-2"}
    assert handler.code_of("gpu-2") == b"400"
    handler.admitted.rename(handler.admitted.with_name("away"))
    handler.look()
    assert handler.code_of("gpu-2") == b"", "the list that is put back may name it"
    handler.admitted.mkdir()
    public.write_text(kept)
    handler.look()
    assert handler.code_of("gpu-2") == b"200"


def test_a_learner_that_starts_while_the_folder_is_missing_refuses_nobody_for_good(
    tmp_path: Path,
) -> None:
    make_keys(tmp_path / "keys", ["gpu-2"])
    public = list_keys(tmp_path / "keys")[1][0].public
    (tmp_path / "keys" / "admitted").rename(tmp_path / "away")
    handler = Handler(tmp_path / "keys", {"gpu-2": public})
    assert handler.code_of("gpu-2") == b""
    (tmp_path / "away").rename(tmp_path / "keys" / "admitted")
    handler.look()
    assert handler.code_of("gpu-2") == b"200"
    handler.close()


def test_a_folder_that_is_copied_file_by_file_closes_nobody_out(handler: Handler) -> None:
    contents = {path: path.read_text() for path in handler.admitted.iterdir()}
    (first, text), (second, other) = sorted(contents.items())
    first.unlink()
    second.unlink()
    first.write_text(text)
    assert handler.look() == set()
    second.write_text(other)
    assert handler.look(3) == set()


def test_a_removed_key_is_closed_out_at_the_second_look(handler: Handler) -> None:
    (handler.admitted / "gpu-2.toml").unlink()
    assert handler.look() == set()
    assert handler.look() == {"gpu-2"}
    assert handler.code_of("gpu-2") == b"400"
    assert handler.code_of("lab-7") == b"200"


def test_a_broken_key_file_shuts_out_its_own_key_alone(
    handler: Handler, caplog: pytest.LogCaptureFixture
) -> None:
    (handler.admitted / "new.toml").write_text("name=")
    assert handler.look(2) == set()
    assert "this key file lets nobody in, the others do: " in warnings(caplog)[0]
    assert handler.code_of("lab-7") == b"200"
