"""The still of the live view is what the live view draws of the statuses beside it."""

import re
import runpy

from pages import ROOT

PICTURES = ROOT / "docs" / "pictures"


def words(svg: str) -> list[str]:
    return re.findall(r"<text[^>]*>([^<]*)</text>", svg)


def test_the_still_is_drawn_by_the_program() -> None:
    still = runpy.run_path(str(ROOT / "scripts" / "still.py"))["still"]
    now = still((PICTURES / "statuses.jsonl").read_text("utf-8"))
    assert words(now) == words((PICTURES / "live.svg").read_text("utf-8")), "run scripts/docs"


def test_the_pictures_ask_for_nothing_from_elsewhere() -> None:
    for picture in PICTURES.glob("*.svg"):
        text = picture.read_text("utf-8")
        assert "@font-face" not in text
        assert "<image" not in text
        assert "url(http" not in text
