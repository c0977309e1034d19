"""Makes one picture of a film: frames of a gif beside one another, for the page of examples.

vedette eval runs/cart --video cart.gif
python scripts/film_strip.py cart.gif docs/pictures/cartpole.png
"""

from __future__ import annotations

import sys
from pathlib import Path

from PIL import Image

FRAMES = 5
HEIGHT = 120
COLOURS = 64


def film_strip(film: Path) -> Image.Image:
    """Return frames of a film, from the first to the last, beside one another."""
    with Image.open(film) as pictures:
        count = getattr(pictures, "n_frames", 1)
        kept = []
        for place in range(FRAMES):
            pictures.seek(place * (count - 1) // (FRAMES - 1))
            width = round(pictures.width * HEIGHT / pictures.height)
            kept.append(pictures.convert("RGB").resize((width, HEIGHT)))
    strip = Image.new("RGB", (sum(frame.width for frame in kept), HEIGHT))
    left = 0
    for frame in kept:
        strip.paste(frame, (left, 0))
        left += frame.width
    return strip.quantize(COLOURS)


if __name__ == "__main__":
    film_strip(Path(sys.argv[1])).save(sys.argv[2], optimize=True)
