"""The journal of a run: what its trainer saw at each draw, in ``RUN/journal``.

By it, the checkpoints and the replay's rows a run's learning is executed again, bit by bit
(``vedette rerun``). ``EPOCH-STEP`` is a *part*: it begins at the checkpoint of that optimization
step, or without one at step 0, in the epoch that wrote it. It is a sequence of blocks ::

    length of the content (4 bytes) | CRC-32 of all behind it (4) | kind (1) | content

and a reader ends at the first block that is not whole: a kill takes what comes after. All numbers
are little-endian. ``HASH.toml`` is the configuration that parts name by this hash.

::

    writer = PartWriter.create(folder, header)
    writer.write(draws_block(first, looks, before) + saved_block(step, hashes))
    writer.sync()
    part = read_part(folder / "1-0")
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from vedette_protocol.foreign_text import printable, replace_unprintable
from vedette_rl.storage.atomic_files import replace_file, sync_directory
from vedette_rl.storage.regular_files import open_regular, parse_json
from vedette_rl.storage.state_hash import HASH_BYTES
from vedette_rl.storage.system import sync_file
from vedette_services.errors import ServicesError

CONTRACT = 1
"""The version of what a draw depends on (`docs/decisions/one-look-a-step.md`)."""

_HEAD = struct.Struct("<IIB")
_KIND = struct.Struct("<B")
_DRAWS = struct.Struct("<QI")  # the number of the first draw, and the count of looks
_SAVED = struct.Struct(f"<Q{HASH_BYTES}s{HASH_BYTES}s")
_SCALARS = struct.Struct(f"<Q{HASH_BYTES}s")
_NAME = re.compile(r"(\d+)-(\d+)")
_PART_MAX_BYTES = 1 << 28

LOOKS_OF_A_BLOCK = 1 << 16
"""Looks that are written to one block."""

_BLOCK_MAX_NUMBERS = 1 << 20  # rows of rings in a block of looks: a sixth of a GB to read them
_PART_MAX_NUMBERS = 1 << 25
_NUMBER_MAX_BYTES = 9  # 63 bits
_DEFLATE_MAX_BYTES = 1 << 16  # that zlib adds to numbers that it cannot make shorter
_STEP_MAX = 1 << 48
_ROWS_MAX = 1 << 60
_HEX = re.compile("[0-9a-f]{1,256}")


class Kind(IntEnum):
    """The kinds of blocks."""

    HEADER = 1
    DRAWS = 2
    SAVED = 3
    SCALARS = 4
    END = 5


_CONTENT_MAX_BYTES: Mapping[int, int] = {
    Kind.HEADER: 1 << 24,  # spaces whose bounds are listed, number by number
    Kind.DRAWS: _DRAWS.size + _BLOCK_MAX_NUMBERS * _NUMBER_MAX_BYTES + _DEFLATE_MAX_BYTES,
    Kind.SAVED: _SAVED.size,
    Kind.SCALARS: _SCALARS.size,
    Kind.END: 1 << 16,
}
"""What the content of a block that a trainer writes has at most, by its kind."""


class JournalFormatError(ServicesError):
    """A part of a journal cannot be read."""

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(f"{path}: {why}: it is no part of a journal of this release")


@dataclass(frozen=True, slots=True)
class Ring:
    """A ring of rows that grows, as a part begins.

    Args:
        name: of its source.
        branch: of its rows (`vedette_rl.replay.rows.Rows`).
        branch_before, branch_begin: the branch before, whose rows below that number are these.
        floor: rows below are gone.
        inserted: rows inserted.
    """

    name: str
    branch: str
    branch_before: str
    branch_begin: int
    floor: int
    inserted: int


@dataclass(frozen=True, slots=True)
class Header:
    """What a part begins with.

    Args:
        run: the run's id.
        epoch: of the trainer's start.
        step: optimization steps at its begin: of the checkpoint, or 0.
        written_by: the epoch that wrote the checkpoint; None: there is none, and the state follows
            from configuration and seed.
        rings: those that grow, in the order of each look's numbers.
        config: the hash of the configuration.
        spaces: of the environment, as JSON has them.
        errors_delay: optimization steps from a draw to the one whose TD errors it sees.
        loader: what brought batches to the device.
        captured, compiled: how optimization steps were done.
        machine: device, processor, threads and what else results may depend on.
        versions: of the software.
        contract: the version of what a draw depends on.
    """

    run: str
    epoch: int
    step: int
    written_by: int | None
    rings: tuple[Ring, ...]
    config: str
    spaces: Any  # JSON
    errors_delay: int
    loader: str
    captured: bool
    compiled: bool
    machine: Mapping[str, str]
    versions: Mapping[str, str]
    contract: int = CONTRACT

    @property
    def name(self) -> str:
        """The name of the part's file."""
        return f"{self.epoch}-{self.step}"

    def to_json(self) -> bytes:
        """The content of the block."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_json(cls, content: bytes) -> Self:
        """Read the content of the block; keys that are not known are left out.

        Raises:
            ValueError: a value is missing, or none that a trainer writes.
        """
        table = parse_json(content)
        if not isinstance(table, dict):
            raise ValueError("it is no table")
        known = {name: table[name] for name in cls.__dataclass_fields__ if name in table}
        if missing := sorted(cls.__dataclass_fields__.keys() - known.keys() - {"contract"}):
            raise ValueError(f"{missing[0]} is missing")
        for name, is_valid in _HEADER_VALUES.items():
            if name in known and not is_valid(known[name]):
                raise ValueError(f"{name} is {_excerpt(known[name])}")
        known["rings"] = tuple(
            Ring(**{name: ring[name] for name in Ring.__dataclass_fields__})
            for ring in known["rings"]
        )
        for name in ("machine", "versions"):
            texts = known[name].items()
            known[name] = {replace_unprintable(key): replace_unprintable(of) for key, of in texts}
        return cls(**known)


def _is_number(value: object, below: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < below


def _is_text(value: object) -> bool:
    return isinstance(value, str) and len(value) < 256 and value.isprintable()


def _are_texts(value: object) -> bool:
    return isinstance(value, dict) and all(isinstance(one, str) for one in value.values())


def _is_ring(value: object) -> bool:
    return isinstance(value, dict) and all(
        name in value and is_valid(value[name]) for name, is_valid in _RING_VALUES.items()
    )


def _are_rings(value: object) -> bool:
    return isinstance(value, list) and len(value) > 0 and all(map(_is_ring, value))


def _is_bool(value: object) -> bool:
    return isinstance(value, bool)


def _excerpt(value: object) -> str:
    """The begin of a value that somebody else has written."""
    return ascii(value)[:80]


_RING_VALUES: Mapping[str, Callable[[object], bool]] = {
    "name": _is_text,
    "branch": _is_text,
    "branch_before": _is_text,
    "branch_begin": lambda value: _is_number(value, _ROWS_MAX),
    "floor": lambda value: _is_number(value, _ROWS_MAX),
    "inserted": lambda value: _is_number(value, _ROWS_MAX),
}
_HEADER_VALUES: Mapping[str, Callable[[object], bool]] = {
    "run": _is_text,
    "epoch": lambda value: _is_number(value, _STEP_MAX),
    "step": lambda value: _is_number(value, _STEP_MAX),
    "written_by": lambda value: value is None or _is_number(value, _STEP_MAX),
    "rings": _are_rings,
    "config": lambda value: isinstance(value, str) and _HEX.fullmatch(value) is not None,
    "spaces": lambda value: isinstance(value, dict),
    "errors_delay": lambda value: _is_number(value, _STEP_MAX),
    "loader": _is_text,
    "captured": _is_bool,
    "compiled": _is_bool,
    "machine": _are_texts,
    "versions": _are_texts,
    "contract": lambda value: _is_number(value, _STEP_MAX),
}
"""What a trainer can have written: anybody may have written the file."""


class StateHashes(NamedTuple):
    """The hashes of a state that was saved: of the agent's part, and of all else."""

    agent: bytes
    others: bytes


class End(NamedTuple):
    """The end of a part: its last step, and why."""

    step: int
    reason: str


@dataclass(frozen=True, slots=True)
class Part:
    """A part that was read.

    Args:
        path: its file.
        looks: ``(N, rings)``: the rows inserted that each look saw.
        dropped: ``(N,)``: the look was dropped for doubt, and its draw looked again.
        saved: the hashes of the states that were saved, by step.
        scalars: the hashes of recorded scalars, by step.
        end: None: it was cut off.
    """

    path: Path
    header: Header
    looks: NDArray[np.int64]
    dropped: NDArray[np.bool_]
    saved: Mapping[int, StateHashes] = field(default_factory=dict)
    scalars: Mapping[int, bytes] = field(default_factory=dict)
    end: End | None = None

    @property
    def last_step(self) -> int:
        """The last optimization step whose draw is in it."""
        last = self.header.step + int(np.count_nonzero(~self.dropped))
        return last if self.end is None else min(last, self.end.step)

    def is_behind(self, is_gone: Callable[[Sequence[int]], bool]) -> bool:
        """True where the last draw, and so any, saw rows that are gone."""
        last = self.looks[-1].tolist() if len(self.looks) else None
        return is_gone(last or [ring.inserted for ring in self.header.rings])

    def looks_until(self, step: int) -> int:
        """The number of looks of the steps up to this one, at most `last_step`."""
        draws = step - self.header.step
        return int(np.searchsorted(np.cumsum(~self.dropped), draws)) + 1 if draws > 0 else 0


class PartWriter:
    """Writes one part, which is made anew and never appended to by a later start."""

    def __init__(self, path: Path, file: int) -> None:
        self.path = path
        self._file = file
        self._end = 0

    @classmethod
    def create(cls, folder: Path, header: Header) -> PartWriter:
        """Make the part; the disk has its header and its name then.

        Raises:
            OSError: the disk takes no file.
        """
        path = folder / header.name
        writer = cls(path, os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644))
        try:
            writer.write(make_block(Kind.HEADER, header.to_json()))
            writer.sync()
            sync_directory(folder)
        except BaseException:
            writer.close()
            path.unlink(missing_ok=True)
            raise
        return writer

    def write(self, blocks: bytes) -> None:
        """Write blocks behind those before. What a full disk takes of them is taken away again, so
        that the next are not behind half a block.

        Raises:
            OSError: the disk does not take them.
        """
        try:
            done = 0
            while done < len(blocks):
                done += os.pwrite(self._file, blocks[done:], self._end + done)
        except OSError:
            os.truncate(self._file, self._end)
            raise
        self._end += len(blocks)

    @property
    def size(self) -> int:
        """Bytes written."""
        return self._end

    def sync(self) -> None:
        """Have the disk have what was written."""
        sync_file(self._file)

    def close(self) -> None:
        """Close the file; the disk need not have it."""
        os.close(self._file)


def make_block(kind: Kind, content: bytes) -> bytes:
    """A block of this content."""
    behind = _KIND.pack(kind) + content
    return _HEAD.pack(len(content), zlib.crc32(behind), kind) + content


def draws_block(first: int, records: Sequence[Look], before: Sequence[int]) -> bytes:
    """The block of looks.

    Args:
        first: the optimization step of the first of them.
        records: the looks, in their order.
        before: the rows that the look before the first saw, or a part began with.
    """
    seen = np.array([before, *[look.seen for look in records]], np.int64)
    increases = np.diff(seen, axis=0).astype(np.uint64)
    increases[:, 0] *= 2
    increases[:, 0] += np.array([look.dropped for look in records], np.uint64)
    content = _DRAWS.pack(first, len(records)) + zlib.compress(_varints(increases.ravel()), 1)
    return make_block(Kind.DRAWS, content)


class Look(NamedTuple):
    """What a draw saw: the rows inserted of each ring that grows; and if it was dropped for
    doubt."""

    seen: tuple[int, ...]
    dropped: bool = False


def saved_block(step: int, hashes: StateHashes) -> bytes:
    """The block of a state that was saved."""
    return make_block(Kind.SAVED, _SAVED.pack(step, *hashes))


def scalars_block(step: int, digest: bytes) -> bytes:
    """The block of recorded scalars."""
    return make_block(Kind.SCALARS, _SCALARS.pack(step, digest))


def end_block(end: End) -> bytes:
    """The block at the end of a part."""
    return make_block(Kind.END, json.dumps(end._asdict()).encode())


def hash_scalars(record: Mapping[str, float]) -> bytes:
    """The hash of recorded scalars: of their names and all digits."""
    digest = hashlib.blake2b(digest_size=HASH_BYTES)
    for name in sorted(record):
        digest.update(f"{name} {float(record[name]).hex()}\n".encode())
    return digest.digest()


def list_parts(folder: Path) -> list[Path]:
    """The files of the parts in a journal, by epoch and step."""
    if not folder.is_dir():
        return []
    found = [(_NAME.fullmatch(path.name), path) for path in folder.iterdir()]
    named = [((int(name[1]), int(name[2])), path) for name, path in found if name]
    return [path for _, path in sorted(named)]


def read_part(path: Path) -> Part:
    """Read a part up to the first block that is not whole.

    Raises:
        JournalFormatError: it has no header, blocks that do not follow each other, or what no
            trainer writes.
    """
    data = _read_file(path)
    try:
        blocks = list(_whole_blocks(data))
    except ValueError as error:
        raise JournalFormatError(path, str(error)) from error
    if not blocks or blocks[0][0] != Kind.HEADER:
        raise JournalFormatError(path, "it has no header")
    try:
        header = Header.from_json(blocks[0][1])
    except ValueError as error:
        raise JournalFormatError(path, f"its header cannot be read ({error})") from error
    if header.name != path.name:
        raise JournalFormatError(path, f"its header is of part {header.name}")
    before = np.array([ring.inserted for ring in header.rings], np.int64)
    step = header.step
    seen, dropped = [before[None, :][:0]], [np.empty(0, bool)]
    saved: dict[int, StateHashes] = {}
    scalars: dict[int, bytes] = {}
    end: End | None = None
    numbers = 0
    for kind, content in blocks[1:]:
        try:
            match kind:
                case Kind.DRAWS:
                    first, looks, of_doubt = _read_draws(content, before)
                    if first != step + 1:
                        raise ValueError(f"step {first} follows step {step}")
                    numbers += looks.size
                    if numbers > _PART_MAX_NUMBERS:
                        raise ValueError(f"more than {_PART_MAX_NUMBERS:,} numbers")
                    before = looks[-1]
                    step += int(np.count_nonzero(~of_doubt))
                    seen.append(looks)
                    dropped.append(of_doubt)
                case Kind.SAVED:
                    of, agent, others = _SAVED.unpack(content)
                    saved[of] = StateHashes(agent, others)
                case Kind.SCALARS:
                    of, digest = _SCALARS.unpack(content)
                    scalars[of] = digest
                case Kind.END:
                    end = _read_end(content)
        except (ValueError, struct.error, zlib.error) as error:
            raise JournalFormatError(path, f"a block cannot be read ({error})") from error
    return Part(path, header, np.concatenate(seen), np.concatenate(dropped), saved, scalars, end)


def _read_file(path: Path) -> bytes:
    """The content of a part's file, which may be anything."""
    try:
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            if size > _PART_MAX_BYTES:
                raise JournalFormatError(path, f"it has more than {_PART_MAX_BYTES:,} bytes")
            return file.read(size)
    except OSError as error:
        raise JournalFormatError(path, error.strerror or str(error)) from error


def _read_end(content: bytes) -> End:
    table = parse_json(content)
    if not isinstance(table, dict):
        raise ValueError("its end is no table")
    step, reason = table.get("step"), table.get("reason")
    if not isinstance(step, int) or not _is_number(step, _STEP_MAX):
        raise ValueError(f"it ends at step {_excerpt(step)}")
    if not isinstance(reason, str):
        raise ValueError(f"it ends for {_excerpt(reason)}")
    return End(step, printable(reason))


def _whole_blocks(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The kind and content of each block up to the first that is not whole; of kinds that are not
    known, too.

    Raises:
        ValueError: one is whole and longer than any of its kind that a trainer writes.
    """
    at = 0
    while at + _HEAD.size <= len(data):
        length, checksum, kind = _HEAD.unpack_from(data, at)
        begin = at + _HEAD.size
        content = data[begin : begin + length]
        if len(content) < length or zlib.crc32(_KIND.pack(kind) + content) != checksum:
            return
        largest = _CONTENT_MAX_BYTES.get(kind, length)
        if length > largest:
            name = Kind(kind).name.lower()
            raise ValueError(
                f"a block of kind {name} has {length:,} bytes, and one of a trainer has at most "
                f"{largest:,}"
            )
        yield kind, content
        at = begin + length


def _read_draws(
    content: bytes, before: NDArray[np.int64]
) -> tuple[int, NDArray[np.int64], NDArray[np.bool_]]:
    """The step of the first look, the rows that the looks saw, and which were dropped."""
    first, count = _DRAWS.unpack_from(content)
    expected = count * len(before)
    most = min(LOOKS_OF_A_BLOCK, _BLOCK_MAX_NUMBERS // len(before))
    if not 0 < count <= most:
        raise ValueError(f"{count:,} looks in a block, where a trainer writes 1 to {most:,}")
    largest = expected * _NUMBER_MAX_BYTES
    inflate = zlib.decompressobj()
    expanded = inflate.decompress(content[_DRAWS.size :], largest)
    if inflate.unconsumed_tail or not inflate.eof:
        raise ValueError(f"{count:,} looks of more than {largest:,} bytes, or cut off")
    numbers = _read_varints(expanded)
    if len(numbers) != expected:
        raise ValueError(f"{len(numbers)} numbers of {count} looks")
    increases = numbers.reshape(count, len(before))
    dropped = (increases[:, 0] & 1).astype(bool)
    increases[:, 0] >>= 1
    looks = before + np.cumsum(increases, axis=0)
    if (looks < before).any() or (looks >= _ROWS_MAX).any():
        raise ValueError("looks of more rows than can be")
    return first, looks, dropped


def _varints(numbers: NDArray[np.uint64]) -> bytes:
    """Unsigned numbers, each as its groups of seven bits, lowest first; all but the last of a
    number have bit 7."""
    lengths = np.ones(len(numbers), np.int64)
    rest = numbers >> np.uint64(7)
    while rest.any():
        lengths += rest > 0
        rest >>= np.uint64(7)
    ends = np.cumsum(lengths)
    out = np.empty(int(ends[-1]) if len(ends) else 0, np.uint8)
    begins = ends - lengths
    for group in range(int(lengths.max(initial=0))):
        has = lengths > group
        bits = (numbers[has] >> np.uint64(7 * group)) & np.uint64(127)
        more = (lengths[has] > group + 1).astype(np.uint64) << np.uint64(7)
        out[begins[has] + group] = bits | more
    return out.tobytes()


def _read_varints(data: bytes) -> NDArray[np.int64]:
    groups = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(groups < 128)
    if not len(ends) or ends[-1] != len(groups) - 1:
        raise ValueError("a number has no end")
    begins = np.concatenate([[0], ends[:-1] + 1])
    if (ends - begins).max() >= _NUMBER_MAX_BYTES:
        raise ValueError("a number is too long")
    within = np.arange(len(groups)) - np.repeat(begins, ends - begins + 1)
    bits = (groups & 127).astype(np.int64) << (7 * within)
    numbers: NDArray[np.int64] = np.add.reduceat(bits, begins)
    return numbers


def keep_config(folder: Path, text: str) -> str:
    """Keep the text of a configuration in a journal, which is made; return the hash that names it.

    Raises:
        OSError: the disk takes no file.
    """
    if not folder.is_dir():
        folder.mkdir(exist_ok=True)
        sync_directory(folder.parent)
    name = hash_config(text.encode())
    path = config_file(folder, name)
    if not path.exists():
        replace_file(path, text, durable=True)
    return name


def hash_config(text: bytes) -> str:
    """The hash that names a configuration."""
    return hashlib.blake2b(text, digest_size=HASH_BYTES).hexdigest()


def config_file(folder: Path, name: str) -> Path:
    """The file of a configuration that a part names."""
    return folder / f"{name}.toml"
