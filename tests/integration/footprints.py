"""What processes take, over a long time: memory of their own and open descriptors, by role."""

from __future__ import annotations

import os
from collections import defaultdict

from daemons import role_of

from vedette_services.host.system import private_bytes

_SHOWN = ("learner", "gateway", "trainer", "evaluator", "actors", "actor")


class Footprints:
    """Looks now and then; tells the first and the last of the processes that lived longest."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, int], list[tuple[int, int]]] = defaultdict(list)

    def look(self, pids: list[int]) -> None:
        """Take down what each of these takes now."""
        for pid in pids:
            role, memory, files = role_of(pid), private_bytes(pid), _open_files(pid)
            if role in _SHOWN and memory and files:
                self._seen[role, pid].append((memory, files))

    def lines(self) -> list[str]:
        """A line a role: of its process that was seen most often, then and at the end, and most."""
        told = []
        for role in _SHOWN:
            own = [seen for (its, _), seen in self._seen.items() if its == role]
            if not own:
                continue
            longest = max(own, key=len)
            begin = longest[min(len(longest) - 1, len(longest) // 10)]  # once it has settled
            memory, files = (max(s[i] for seen in own for s in seen) for i in (0, 1))
            told.append(
                f"{role:<9} {begin[0] >> 20} MiB and {begin[1]} files, at its end "
                f"{longest[-1][0] >> 20} and {longest[-1][1]}, the most {memory >> 20} and {files} "
                f"({len(longest)} looks at the one that lived longest, of {len(own)})"
            )
        return told


def _open_files(pid: int) -> int:
    try:
        return len(os.listdir(f"/proc/{pid}/fd"))  # noqa: PTH208 - only their number is wanted
    except OSError:
        return 0  # it ended meanwhile
