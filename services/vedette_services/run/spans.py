"""What of a run can be executed again: its span, by journal, checkpoints and the replay's rows.

A span is a chain of parts of the journal: from the newest back to the checkpoint that it begins at,
to the part of the epoch that wrote it, if that reaches so far, and so on. It begins at the oldest
state that is there whose draws lie in rows that the replay still has.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from vedette_rl.import_by_name import is_import_name
from vedette_rl.replay.ring import RingReader
from vedette_rl.storage.checkpoints import Checkpoints
from vedette_rl.storage.regular_files import read_json
from vedette_rl.storage.state_file import META_FILE
from vedette_services.config.loading import read_toml
from vedette_services.errors import UsageError
from vedette_services.run.directory import RunDirectory
from vedette_services.run.journal import (
    CONTRACT,
    Header,
    JournalFormatError,
    Part,
    list_parts,
    read_part,
)

_NUMBERS_MAX = 1 << 28
"""Numbers of a journal, of eight bytes each."""

_AND = "; and "
"""Between two reasons."""


class NotExecutableError(UsageError):
    """Something of a run cannot be executed again; says why."""

    def __init__(self, directory: Path, why: str) -> None:
        super().__init__(f"{directory}: {why}")
        self.why = why


@dataclass(frozen=True, slots=True)
class Segment:
    """Steps of one part that are executed.

    Args:
        begin: the step of the state that it begins at.
        end: its last step.
    """

    part: Part
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class Span:
    """What can be executed again.

    Args:
        segments: of the parts, oldest first; each begins where the one before ends.
        starts: the steps at which a state is there: of checkpoints, and 0 where the first part
            begins with none.
        why_not_earlier: why it begins no earlier; "" where it begins with the run.
        why_not_later: why it ends before the newest checkpoint of the run; "" where it does not.
    """

    segments: tuple[Segment, ...]
    starts: tuple[int, ...]
    why_not_earlier: str = ""
    why_not_later: str = ""

    @property
    def begin(self) -> int:
        """The first state."""
        return self.starts[0]

    @property
    def end(self) -> int:
        """The last step."""
        return self.segments[-1].end

    @property
    def not_covered(self) -> tuple[str, ...]:
        """Steps that are not covered, and why; a line each."""
        lines = []
        if self.why_not_earlier:
            lines.append(f"steps before {self.begin:,} are not covered: {self.why_not_earlier}")
        if self.why_not_later:
            lines.append(f"steps behind {self.end:,} are not covered: {self.why_not_later}")
        return tuple(lines)

    def cut(self, begin: int | None, end: int | None) -> tuple[Segment, ...]:
        """The segments from the newest state at or before a step to another step.

        Raises:
            ValueError: they are not within the span.
        """
        last = self.end if end is None else end
        first = self.begin if begin is None else begin
        if not self.begin <= first < last <= self.end:
            raise ValueError(
                f"steps {first:,} to {last:,} are not within the span, {self.begin:,} to "
                f"{self.end:,}" + (f": {self.why_not_earlier}" if first < self.begin else "")
            )
        start = max(step for step in self.starts if step <= first)
        return tuple(
            Segment(each.part, max(each.begin, start), min(each.end, last))
            for each in self.segments
            if each.end > start and each.begin < last
        )


def read_parts(run: RunDirectory) -> list[Part]:
    """The parts of a run's journal that can be read, by epoch and step.

    Raises:
        NotExecutableError: there is none.
    """
    parts = []
    unreadable = []
    numbers = 0
    for path in list_parts(run.journal):
        try:
            parts.append(read_part(path))
        except JournalFormatError as error:  # a kill at its begin
            unreadable.append(str(error))
            continue
        numbers += parts[-1].looks.size
        if numbers > _NUMBERS_MAX:
            why = f"its journal has more than {_NUMBERS_MAX:,} looks, which fill the memory"
            raise NotExecutableError(run.root, why)
    if not parts:
        why = unreadable[0] if unreadable else describe_no_journal(run)
        raise NotExecutableError(run.root, why)
    return parts


def describe_no_journal(run: RunDirectory) -> str:
    """Why a run has no journal, as far as that is known."""
    if run.identity().in_process:
        return "the replay of a run --in-process was in memory and is gone"
    table = read_toml(run.config_file) if run.config_file.exists() else {}
    learner = table.get("learner", {})
    if learner.get("journal") is False:
        return "it has no journal: it was run with learner.journal=false"
    if (ranks := learner.get("ranks", 1)) > 1:
        return describe_ranks(ranks)
    if table.get("replay", {}).get("kind") == "queue":
        return (
            "replay.kind is queue: which looks took the rows of a block is not written down, so "
            "its learning cannot be executed again"
        )
    if is_import_name(name := table.get("replay", {}).get("name", "")):
        return describe_own_replay(name)
    if "journal" in learner:
        whys = (
            "the disk was short or refused it (log/learner.log says so), or it was run by a loop "
            "of your own"
        )
        if not run.journal.is_dir():
            return (
                f"the journal is not there: {run.journal} was removed, or not copied with the run; "
                f"or it was not written: {whys}"
            )
        return f"it has no journal: {run.journal} has no part of it: {whys}"
    return "it has no journal: it was run by a loop of your own, or by release 0.3.0 or before"


def describe_ranks(count: int) -> str:
    """Why a run of several ranks cannot be executed again."""
    return (
        f"learner.ranks is {count}: ranks other than 0 choose rows by their own view when rows are "
        "overwritten"
    )


def describe_own_replay(name: str) -> str:
    """Why a run with a replay of the user's own cannot be executed again."""
    return f"replay.name {name}: a replay of your own may read rows that no look has seen"


def find_chain(
    parts: Sequence[Part], epoch: int | None = None, step: int | None = None
) -> list[Part]:
    """The parts that lead to the newest one, or to the last of an epoch; oldest first.

    Args:
        step: where these parts begin behind it, at a gap in the journal: those that lead to the
            last part with this step.

    Raises:
        ValueError: there is no part of that epoch.
    """
    last = [part for part in parts if epoch in (None, part.header.epoch)]
    if not last:
        have = ", ".join(str(one) for one in sorted({part.header.epoch for part in parts}))
        raise ValueError(f"epoch {epoch} has no part of the journal; there are those of {have}")
    chain = _chain_to(parts, last[-1])
    if step is not None and step <= chain[0].header.step:
        earlier = [part for part in last if part.header.step < step <= part.last_step]
        return _chain_to(parts, earlier[-1]) if earlier else chain
    return chain


def _chain_to(parts: Sequence[Part], last: Part) -> list[Part]:
    chain = [last]
    while (before := _part_before(parts, chain[0])) is not None:
        step = chain[0].header.step
        if step in chain[0].saved:  # of a part that goes on with a long one
            before = replace(before, saved={step: chain[0].saved[step], **before.saved})
        chain.insert(0, before)
    return chain


def _part_before(parts: Sequence[Part], part: Part) -> Part | None:
    """The part in which the state is saved that this one begins at."""
    step = part.header.step
    for other in reversed(parts):
        is_earlier = (other.header.epoch, other.header.step) < (part.header.epoch, step)
        if not is_earlier or other.header.epoch != part.header.written_by:
            continue
        goes_on = other.header.epoch == part.header.epoch and other.end is None
        if other.header.step <= step <= other.last_step and (goes_on or step in other.saved):
            return other  # a start of a run that was over has no step of its own, and saves it
    return None


def find_span(
    run: RunDirectory,
    chain: Sequence[Part],
    rings: Mapping[str, RingReader],
    parts: Sequence[Part] = (),
    until: int | None = None,
    lost: Mapping[str, str] = MappingProxyType({}),
) -> Span:
    """The span of a chain of parts.

    Args:
        rings: those that grow, by the names of their sources.
        parts: all of the journal, by which is said why the chain begins no earlier, or ends before
            the run.
        until: the last step that is asked for, behind which rows need not be there; None: the last
            one.
        lost: why the last rows of a ring are not there, and what can be done.

    Raises:
        NotExecutableError: nothing of it can be executed again.
    """
    if until is not None:
        chain = [part for part in chain if part.header.step < until] or chain[:1]
    last = chain[-1].last_step if until is None else min(until, chain[-1].last_step)
    ends = [after.header.step for _, after in pairwise(chain)] + [last]
    whole: list[Segment] = []
    whys: list[str] = []
    for number in reversed(range(len(chain))):
        part, end = chain[number], ends[number]
        foreign = list(_describe_foreign(run, part.header))
        begin, gone = _first_executable(part, end, rings, lost)
        if not foreign and begin < end:
            whole.insert(0, Segment(part, begin, end))
        whys = foreign + gone
        if whys:
            if not foreign and begin == end:
                count = number + 1
                whys[-1] += _describe_before(run, chain[:count], ends[:count], rings, lost)
            break
    starts = _states(run, whole)
    if not whole or not starts or starts[0] >= ends[-1]:
        if whole or not whys:
            whys.append(_describe_no_state(run, chain))
        raise NotExecutableError(run.root, _AND.join(whys))
    if _was_saved_before(whole, starts[0]):
        whys.append(_describe_no_state(run, chain))
    if not whys and chain[0].header.written_by is not None:
        whys.append(_describe_gap(chain[0], parts))
    begins = [each for each in whole if each.end > starts[0]]
    first = Segment(begins[0].part, max(begins[0].begin, starts[0]), begins[0].end)
    is_newest = bool(parts) and chain[-1] is parts[-1] and last == chain[-1].last_step
    why_not_later = _describe_rest(run, chain[-1]) if is_newest else ""
    return Span((first, *begins[1:]), starts, _AND.join(whys), why_not_later)


def _describe_foreign(run: RunDirectory, header: Header) -> Iterator[str]:
    """Say why a part is not executed by this release, or is none of this run."""
    if header.contract != CONTRACT:
        release = header.versions.get("vedette", "?")
        yield (
            f"its journal is of contract {header.contract}, and this release executes "
            f"{CONTRACT}: use Vedette {release}"
        )
    if header.run != run.identity().run_id:
        yield f"its journal is of run {header.run}: another one, or before --new-replay"


def _was_saved_before(segments: Sequence[Segment], start: int) -> bool:
    """True where a state of these steps was saved before the first that is there."""
    return any(
        each.begin <= step < start
        for each in segments
        for step in (each.part.header.step, *each.part.saved)
    )


def _describe_before(
    run: RunDirectory,
    chain: Sequence[Part],
    ends: Sequence[int],
    rings: Mapping[str, RingReader],
    lost: Mapping[str, str],
) -> str:
    """How to execute the steps before those whose rows are of another time; "" where none can
    be."""
    lasts = [
        min(last, end)
        for part, end in zip(chain, ends, strict=True)
        if (last := _last_step_with_rows(part, rings)) > part.header.step
    ]
    until = max(lasts, default=0)
    if not 0 < until < ends[-1]:
        return ""
    try:
        find_span(run, chain, rings, until=until, lost=lost)
    except NotExecutableError:
        return ""
    return f" (--until {until} executes what is before)"


def _last_step_with_rows(part: Part, rings: Mapping[str, RingReader]) -> int:
    """The last step of a part up to which all rows that were seen are there, or were; its begin
    where there is none."""
    count = len(part.looks)
    for number, ring in enumerate(part.header.rings):
        reader = rings.get(ring.name)
        seen = part.looks[:count, number].tolist()
        count = bisect_left(
            seen,
            True,
            key=lambda rows: reader is None or not reader.has_rows_of(ring.branch, rows),
        )
    return part.header.step + int(np.count_nonzero(~part.dropped[:count]))


def _first_executable(
    part: Part, end: int, rings: Mapping[str, RingReader], lost: Mapping[str, str]
) -> tuple[int, list[str]]:
    """The first step of a part behind which all draws up to `end` lie in rows that are there, and
    why there is none before; no reason where that is its begin."""
    header = part.header
    begin = header.step
    whys = []
    count = part.looks_until(end)
    steps = header.step + np.cumsum(~part.dropped[:count]) - ~part.dropped[:count]
    for number, ring in enumerate(header.rings):
        reader = rings.get(ring.name)
        if reader is None:
            return end, [f"replay {ring.name} is not there"]
        seen = part.looks[:count, number]
        if count and not reader.has_rows_of(ring.branch, int(seen[-1])):
            if reader.branch == ring.branch:
                why = lost.get(ring.name) or (
                    f"replay {ring.name} has {reader.inserted:,} rows, and step {end:,} saw "
                    f"{int(seen[-1]):,}: this copy of the run is of different times; copy it again"
                )
            else:
                reason = "(lost power, or --new-replay)"
                why = (
                    f"replay {ring.name} has used its row numbers again since {reason}: rows that "
                    f"step {end:,} saw are gone"
                )
            return end, [why]
        gone = _looks_without_rows(seen, ring.floor, reader)
        if gone and int(steps[gone - 1]) + 1 > header.step:
            step = int(steps[gone - 1]) + 1
            needs = max(ring.floor, int(seen[gone - 1]) - reader.capacity)
            oldest = f"there is {_oldest(reader):,}; a larger replay.keep keeps more"
            if ring.name in lost and _oldest(reader) == reader.floor:
                oldest = f"that is known to be whole is {reader.floor:,}: {lost[ring.name]}"
            why = f"step {step:,} needs row {needs:,} of replay {ring.name}, and the oldest"
            whys.append(f"{why} {oldest}")
            begin = max(begin, step)
    return min(begin, end), whys


def _looks_without_rows(seen: NDArray[np.int64], floor: int, reader: RingReader) -> int:
    """The number of looks, from the first on, some of whose rows are gone."""
    oldest = _oldest(reader)
    needs = np.maximum(seen - reader.capacity, floor)
    return int(np.searchsorted(needs, oldest)) if oldest > floor else 0


def _oldest(reader: RingReader) -> int:
    """The oldest row that is there, with its frames."""
    return max(reader.floor, reader.doubtful_below(reader.inserted), 0)


def _describe_gap(first: Part, parts: Sequence[Part]) -> str:
    """Why no part leads to the checkpoint that one begins at."""
    step = first.header.step
    for other in reversed(parts):
        if other.header.epoch == first.header.written_by and other.last_step < step:
            reason = "it was cut off" if other.end is None else other.end.reason
            is_there = other.last_step > other.header.step
            before = f" (--until {other.last_step} executes what is before)" if is_there else ""
            return (
                f"the part before ends at step {other.last_step:,}: {reason}; the journal goes on "
                f"at the checkpoint of step {step:,}{before}"
            )
    return f"no part of the journal leads to the checkpoint of step {step:,}"


def _describe_rest(run: RunDirectory, last: Part) -> str:
    """Why the newest part ends before the newest checkpoint; "" where it does not."""
    epochs = _checkpoint_epochs(run)
    newest = max(epochs, default=0)
    epoch = epochs.get(newest)
    if epoch is not None and epoch > last.header.epoch:
        return (
            f"the checkpoint of step {newest:,} is of start {epoch}, and these steps are of start "
            f"{last.header.epoch}"
        )
    later = [
        step
        for step, epoch in epochs.items()
        if epoch is not None and epoch >= last.header.epoch and step > last.last_step
    ]
    if not later:
        return ""
    reason = "its file was cut off" if last.end is None else last.end.reason
    return (
        f"the journal ends at step {last.last_step:,} ({reason}), and there is a checkpoint of "
        f"step {max(later):,}"
    )


def _states(run: RunDirectory, segments: Sequence[Segment]) -> tuple[int, ...]:
    """The steps within the segments at which a state is there, in order."""
    found = set[int]()
    epochs = _checkpoint_epochs(run)
    for each in segments:
        header = each.part.header
        wrote = dict.fromkeys(each.part.saved, header.epoch) | {header.step: header.written_by}
        if header.written_by is None:
            epochs[0] = None  # it follows from configuration and seed
        found |= {
            step
            for step, epoch in wrote.items()
            if step in epochs and epochs[step] == epoch and each.begin <= step < each.end
        }
    return tuple(sorted(found))


def _checkpoint_epochs(run: RunDirectory) -> dict[int, int | None]:
    """The epochs that have written the checkpoints that are there, by step."""
    found: dict[int, int | None] = {}
    for path in Checkpoints(run.checkpoints, keep=1).list():
        try:
            found[int(path.name)] = int(read_json(path / META_FILE)["epoch"])
        except (OSError, ValueError, KeyError, TypeError):
            continue  # a copy for people: it may have been removed
    return found


def _describe_no_state(run: RunDirectory, chain: Sequence[Part]) -> str:
    last = chain[-1]
    if last.last_step == last.header.step and last.end is None and len(chain) == 1:
        return (
            f"its journal's part {last.path.name} has no whole draw: its file was cut off, or is "
            "damaged at its begin"
        )
    kept = ", ".join(path.name for path in Checkpoints(run.checkpoints, keep=1).list())
    first = chain[0].header.step
    return (
        f"its journal begins at step {first:,}, and of the states since there are the checkpoints "
        f"{kept or 'none'}: a larger learner.keep_checkpoints keeps more"
    )
