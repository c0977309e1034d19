"""What the long trials by hand share: a place for their logs, what they say, the verdict."""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from pathlib import Path
from typing import Self


class Trial:
    """One trial. As a context it removes its place at the end, unless that was asked for or
    something is wrong.

    Args:
        name: of the script.
        out: keep run and logs in this new folder; None: somewhere for a while.
    """

    def __init__(self, name: str, out: Path | None) -> None:
        self.place = out or Path(tempfile.mkdtemp(prefix=f"vedette-{name}-"))
        self.place.mkdir(parents=True, exist_ok=True)
        self.wrong: list[str] = []
        self._keep = out is not None
        self._began = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, at: object) -> None:
        if error is None and not self.wrong and not self._keep:
            shutil.rmtree(self.place)
        else:
            print(f"run and logs are in {self.place}")

    @property
    def seconds(self) -> float:
        """Since it began."""
        return time.monotonic() - self._began

    def say(self, text: str) -> None:
        """A line with the time."""
        print(f"{self.seconds:6.1f} s  {text}", flush=True)

    def check(self, holds: bool, wrong: str) -> None:
        """Note what is wrong where something does not hold."""
        if not holds:
            self.wrong.append(wrong)

    def verdict(self) -> int:
        """What is wrong, in words; the exit status."""
        for text in self.wrong:
            print(f"wrong: {text}")
        print("it bore it all" if not self.wrong else f"{len(self.wrong)} things went wrong")
        return 1 if self.wrong else 0


def parser_of(name: str, doc: str) -> argparse.ArgumentParser:
    """A script's command line, with what all of them take."""
    parser = argparse.ArgumentParser(prog=f"scripts/{name}", description=doc.split("\n\n")[0])
    parser.add_argument("--seed", type=int, default=1, help="the same seed picks the same [1]")
    parser.add_argument("--out", type=Path, help="keep run and logs in this new folder")
    return parser
