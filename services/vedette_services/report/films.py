"""The films of a run's evaluations, inside the page where they are small enough."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path

from vedette_services.report.figures import size
from vedette_services.report.markup import Markup, element

FILM_BYTES_MAX = 8 << 20
ALL_BYTES_MAX = 24 << 20
_PLACES = ("*", "videos/*")
_TYPES = {".gif": "image/gif", ".mp4": "video/mp4"}


def film_files(run: Path) -> list[Path]:
    """The films in a run's directory and in its ``videos/``."""
    found = [path for pattern in _PLACES for path in run.glob(pattern)]
    return sorted(path for path in found if path.suffix in _TYPES and path.is_file())


def films(run: Path) -> Iterator[Markup]:
    """Each as a figure; one that is too large, or cannot be read, as a line."""
    room = ALL_BYTES_MAX
    for path in film_files(run):
        name = path.relative_to(run).as_posix()
        try:
            count = path.stat().st_size
            if count > min(FILM_BYTES_MAX, room):
                yield element("p", f"{name} ({size(count)}) is too large to be part of this page.")
                continue
            data = path.read_bytes()
        except OSError as error:
            yield element("p", f"{name} cannot be read: {error.strerror or error}")
            continue
        room -= count
        yield element("figure", element("figcaption", name), _shown(path, data), class_="film")


def _shown(path: Path, data: bytes) -> Markup:
    kind = _TYPES[path.suffix]
    source = f"data:{kind};base64,{base64.b64encode(data).decode()}"
    if path.suffix == ".gif":
        return element("img", src=source, alt="an episode of the evaluated policy")
    return element("video", src=source, controls="", loop="", muted="", playsinline="")
