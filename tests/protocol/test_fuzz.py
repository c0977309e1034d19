"""Fuzzing of the decoders: whatever comes, a message or a `ProtocolError`, in bounded memory."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from decoder_target import DECODERS, feed
from hypothesis import given, settings
from hypothesis import strategies as st
from wire_examples import EXAMPLES

from vedette_protocol.codec import encode

HERE = Path(__file__).parent
CORPUS = HERE / "fuzz_corpus.json"
"""Inputs that reached something no other one did, as hexadecimal digits."""

SECONDS = int(os.environ.get("VEDETTE_FUZZ_SECONDS", "45"))


def as_input(name: str) -> bytes:
    """An example's frames as the fuzzer sees them, for the decoder that takes them."""
    frames = [bytes(frame) for frame in encode(EXAMPLES[name])]
    body = b"".join(len(frame).to_bytes(2, "big") + frame for frame in frames)
    for what, decoder in enumerate(DECODERS):
        try:
            decoder(frames)
        except Exception:  # noqa: BLE001 - not the one that takes it
            continue
        return bytes([what]) + body
    raise AssertionError(name)


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_example_is_taken_by_one_decoder(name: str) -> None:
    feed(as_input(name))


def test_what_fuzzing_found_worth_keeping_still_holds() -> None:
    for found in json.loads(CORPUS.read_text()):
        feed(bytes.fromhex(found))


@given(st.binary(max_size=400))
@settings(max_examples=400)
def test_examples_spoilt_in_any_way_are_messages_or_protocol_errors(recipe: bytes) -> None:
    feed(b"\x06" + recipe)


@pytest.mark.slow
@pytest.mark.timeout(SECONDS + 90)
def test_nothing_but_protocol_errors_comes_out_guided_by_coverage(tmp_path: Path) -> None:
    if importlib.util.find_spec("atheris") is None:
        pytest.skip("atheris is not installed: pip install 'vedette[fuzz]'")
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    for name in EXAMPLES:
        (corpus / name).write_bytes(as_input(name))
    for number, found in enumerate(json.loads(CORPUS.read_text())):
        (corpus / f"found-{number}").write_bytes(bytes.fromhex(found))
    done = subprocess.run(
        [
            *(sys.executable, HERE / "fuzz_decoders.py", corpus),
            *(f"-max_total_time={SECONDS}", "-rss_limit_mb=0", "-timeout=10", "-max_len=6000"),
            *("-print_final_stats=1", f"-artifact_prefix={tmp_path}/"),
        ],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), *filter(None, sys.path)])},
        capture_output=True,
        text=True,
        timeout=SECONDS + 80,
    )
    told = done.stderr[-3000:]
    print(told)
    left = [f"{x.name}: {x.read_bytes()[:2000].hex()}" for x in tmp_path.glob("*-*") if x.is_file()]
    assert done.returncode == 0, f"{told}\n{left}"
