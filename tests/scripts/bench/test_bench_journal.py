"""The cost of a journal is measured with one that is written, and beside runs that write none."""

from pathlib import Path

import pytest

from bench import journal
from bench.journal import JournalBench
from vedette_services.errors import UsageError
from vedette_services.run.journal import PartWriter


@pytest.mark.slow
def test_a_run_of_each_pair_writes_a_journal_and_the_other_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runs = []
    run = JournalBench._run

    def note(bench: JournalBench, place: Path, kind: str, journal: bool) -> list[float]:
        runs.append((kind, journal))
        return run(bench, place, kind, journal)  # which refuses a run that did the other thing

    monkeypatch.setattr(JournalBench, "_run", note)
    figures = JournalBench(opts=100, pairs=2, kinds=("prioritized",)).run()
    assert runs == [("prioritized", way) for way in (True, True, False, False, True)]
    spread = figures["kinds"]["prioritized"]["wall time"]
    assert len(spread["each_us"]) == 2
    assert spread["without_us"] > 0


def test_draws_that_the_disk_refused_are_not_measured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(journal, "_DRAWS", 50)
    assert journal._measure_draws(tmp_path / "journal", 2)["loop_us"]["min"] > 0

    write = PartWriter.write
    written = []

    def refuse(part: PartWriter, block: bytes) -> None:
        written.append(block)
        if len(written) > 1:  # the header is taken
            raise OSError(28, "No space left on device")
        write(part, block)

    monkeypatch.setattr(PartWriter, "write", refuse)
    with pytest.raises(UsageError, match="did not take all draws"):
        journal._measure_draws(tmp_path / "full", 1)
