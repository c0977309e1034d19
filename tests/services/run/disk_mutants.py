"""Mutations of what keeps a run whole on a disk that fails, and how many lives find each."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

sys.path.append(str(Path(__file__).parents[2] / "support"))  # where this runs as a program

from mutation import Mutation

_REPEATS = 3  # searches, each from another seed on
_SEEDS_MAX = 500

_SYNCING = "vedette_rl.replay.syncing"
_CHECKSUMS = "vedette_rl.replay.checksums"
_FILES = "vedette_rl.replay.ring_files"
_RING = "vedette_rl.replay.ring"
_MANIFEST = "vedette_rl.replay.manifest"
_LATEST = "vedette_rl.storage.latest_value"
_ATOMIC = "vedette_rl.storage.atomic_files"
_STATE = "vedette_rl.storage.state_file"
_DIRECTORY = "vedette_services.run.directory"

MUTATIONS = {
    # What is evidence
    "an unchanged boot id proves that nothing is lost": Mutation(
        _SYNCING,
        "    ring_files.check_files(directory, manifest)\n    with (",
        "    if commit and not _has_stopped(commit, synced):\n        return None\n"
        "    ring_files.check_files(directory, manifest)\n    with (",
    ),
    "a last commit holds that is older than the last sync": Mutation(
        _SYNCING, "if synced and count < synced.commit.inserted:", "if False:"
    ),
    "a closed replay holds whatever its last commit is": Mutation(
        _SYNCING,
        "synced.closed and synced.commit.inserted == commit.inserted",
        "synced.closed",
    ),
    "rows since the last sync are not verified": Mutation(
        _SYNCING, "lowest = sums.lowest_whole(synced, count, count)", "lowest = synced"
    ),
    "of rows since the last sync the newest block is verified": Mutation(
        _SYNCING,
        "lowest = sums.lowest_whole(synced, count, count)",
        "lowest = synced if sums.lowest_whole(count - 1, count, count) < count else count",
    ),
    "rows whose slots may be overwritten are not verified": Mutation(
        _SYNCING,
        "return sums.lowest_whole(oldest, floor, count) if floor == overwritten else floor",
        "return oldest if floor == overwritten else floor",
    ),
    "rows without checksums count as whole": Mutation(
        _CHECKSUMS, "            return unknown\n", "            return True\n"
    ),
    "a failed sync is not remembered": Mutation(
        _SYNCING, "self._checksums.sync_failed = True", "pass"
    ),
    "after a failed sync memory is evidence": Mutation(
        _SYNCING, "            self._checksums.forget_pages()\n", "            pass\n"
    ),
    "after a failed sync only the rows since are verified": Mutation(
        _SYNCING,
        "        if self.sync_failed:\n            floor",
        "        if False:\n            floor",
    ),
    "a replay is written further beneath its readers after a failed sync": Mutation(
        _SYNCING, "        if evidence.sync_failed:", "        if False:"
    ),
    "rows that cannot be read count as gone": Mutation(
        _CHECKSUMS,
        "        return self._sums(begin, end) in expected\n",
        "        try:\n            return self._sums(begin, end) in expected\n"
        "        except OSError:\n            return False\n",
    ),
    "a stop of the machine is not said": Mutation(
        _SYNCING, "            if _has_stopped(commit, synced):", "            if False:"
    ),
    # Recovery
    "the bound is ignored": Mutation(
        _SYNCING,
        "floor = min(count, max(oldest, synced.bound - manifest.physical_rows))\n"
        "        if self._checksums:",
        "floor = oldest\n        if False:",
    ),
    "a recovery does not verify the rows that it keeps": Mutation(
        _SYNCING,
        "        if self._checksums:\n            overwritten",
        "        if False:\n            overwritten",
    ),
    "after a failed sync what is whole is not brought to the disk": Mutation(
        _SYNCING, "    _settle_failed_sync(directory, manifest)\n    return", "    return"
    ),
    "rows of a release without checksums count as broken": Mutation(
        _CHECKSUMS,
        "gap_begin, gap_end = oldest - oldest % self._block, first\n",
        "pass\n",
    ),
    "the floor is not kept": Mutation(
        _FILES, "_NUMBER.pack(floor), _FLOOR_AT)", "_NUMBER.pack(0), _FLOOR_AT)"
    ),
    "a recovery keeps no row": Mutation(
        _SYNCING, "synced.commit, evidence.floor_of_sync()", "synced.commit, synced.commit.inserted"
    ),
    "a recovery leaves the commit that does not hold": Mutation(
        _SYNCING,
        "    (directory / COMMITS).unlink(missing_ok=True)\n    CommitWriter.make(directory)\n"
        "    commit = CommitWriter(directory)\n"
        "    commit.write(recovery.commit.inserted, stamp, synced=True)\n",
        "    commit = CommitWriter(directory)\n",
    ),
    # Syncing
    "the record is written before the rows are synced": Mutation(
        _SYNCING,
        "        self._checksums.set_synced(tails, before[:2])\n        self.sync_columns()\n",
        "        self._checksums.set_synced(tails, before[:2])\n"
        "        self._record.write(latest, self.bound, self.shared_bound)\n"
        "        self.sync_columns()\n",
    ),
    "one column is not synced": Mutation(
        _SYNCING,
        "for file in self._files:\n                sync",
        "for file in self._files[1:]:\n                sync",
    ),
    "the checksums are not synced": Mutation(
        _SYNCING,
        "for file in self._files:\n                sync",
        "for file in self._files[:-1]:\n                sync",
    ),
    "a failed sync counts as one": Mutation(
        _SYNCING,
        "            self._checksums.sync_failed = True\n            raise\n",
        "            pass\n",
    ),
    "rows since the last sync are not written once more": Mutation(
        _SYNCING, "        checksums.rewrite(begin, (latest.inserted, latest.shared))\n", ""
    ),
    "the last record is not written once more": Mutation(
        _SYNCING, "        self._map.rewrite()\n", ""
    ),
    "the writer goes beyond a bound that is not on the disk": Mutation(
        _SYNCING,
        "        self._record.write(synced, bound, shared_bound)\n"
        "        self.recorded = synced\n        # Only",
        "        self.recorded = synced\n        # Only",
    ),
    "the last sync's checksums are overwritten": Mutation(
        _CHECKSUMS,
        "slot = _SYNC_HEADS[self._head_count(_SYNC_HEADS[0]) == before]",
        "slot = _SYNC_HEADS[0]",
    ),
    "the last commit's checksums are overwritten": Mutation(
        _CHECKSUMS,
        "slot = _COMMIT_HEADS[self._head_count(_COMMIT_HEADS[0]) == self.tail.end]",
        "slot = _COMMIT_HEADS[0]",
    ),
    "missing checksums are not calculated": Mutation(
        _CHECKSUMS, "while begin < min(below, end):", "while False:"
    ),
    "a lost cache may forget which rows have no checksums": Mutation(
        _CHECKSUMS,
        "            self.sync()  # else a lost cache",
        "            pass  # else a lost cache",
    ),
    "a replay is closed before it is synced": Mutation(
        _RING,
        "self._syncer.sync_columns()  # before the commit",
        "pass  # before the commit",
    ),
    # Files
    "a replay's description is not durable": Mutation(
        _MANIFEST, "MANIFEST, text, durable=True)", "MANIFEST, text)"
    ),
    "the names of a replay's files are not durable": Mutation(
        _RING,
        "for folder in (directory, directory.parent):",
        "for folder in ():",
    ),
    "the names of a run's folders are not durable": Mutation(
        _DIRECTORY,
        "for folder in {path.parent for path in new}:",
        "for folder in ():",
    ),
    "run.json is not durable": Mutation(
        _ATOMIC,
        "        replace_file(path, data, durable=True)\n",
        "        replace_file(path, data)\n",
    ),
    "a checkpoint's file is not synced": Mutation(_STATE, "        sync_file(descriptor)\n", ""),
    "a checkpoint's name is not durable": Mutation(
        _STATE,
        "    sync_directory(directory.parent)\n    throttle()\n",
        "    throttle()\n",
    ),
}


def seeds_needed(first: int) -> int:
    """Return how many lives it takes from a seed on until one fails; 0: more than `_SEEDS_MAX`."""
    import pytest
    from failing_life import FAULTS, live  # not before the mutation is installed
    from kinds_of_rows import Machine

    with pytest.MonkeyPatch.context() as monkeypatch:
        machine = Machine(monkeypatch)
        for tried in range(1, _SEEDS_MAX + 1):
            place = Path(tempfile.mkdtemp())
            try:
                live(place / "life", machine, first + tried, FAULTS)
            except Exception:  # noqa: BLE001 - whatever the mutation breaks
                return tried
            finally:
                shutil.rmtree(place)
    return 0


def run_mutant(number: int, repeats: int) -> list[int]:
    """Install a mutation in this process, and search it some times."""
    list(MUTATIONS.values())[number].install()
    return [seeds_needed(repeat * 100_000) for repeat in range(repeats)]


def main() -> int:
    """Search every mutation; exit status 1 if one is not found."""
    survivors = 0
    for number, name in enumerate(MUTATIONS):
        began = time.monotonic()
        command = [sys.executable, __file__, str(number), str(_REPEATS)]
        found = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        needed = [int(word) for word in found.split()]
        survivors += 0 in needed
        took_s = time.monotonic() - began
        seeds = ", ".join(map(str, needed))
        print(f"{median(needed):6g} seeds ({seeds}; {took_s:.0f} s): {name}", flush=True)
    return 1 if survivors else 0


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(*run_mutant(int(sys.argv[1]), int(sys.argv[2])))
    else:
        sys.exit(main())
