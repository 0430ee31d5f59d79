"""The pictures of the gallery. The figure file of the same name in the package has the numbers and how it was made."""

import re
import tempfile
from dataclasses import replace
from pathlib import Path

import xarray as xr
from PIL import Image

from benign.papers import published
from benign.papers.published import Made, answers_that_differ
from benign.papers.requests import RequestOptions, RunRequest, requests_of

COLOURS = 256
"""colours of a picture: enough for a heat map, and a third of the bytes"""


def add(
    gallery: Path, folder: Path, name: str = "", seconds: float | None = None, host: str = ""
) -> str:
    """Draw a folder of results again and add picture, numbers and origin to the gallery; return its name."""
    [request] = requests_of(str(folder), RequestOptions())
    if request.recipe is None:
        raise ValueError(f"{folder} was not made from a recipe: the gallery shows recipes")
    name = name or _name(request)
    result, _ = published.store(folder, published.file_of(name), seconds, host)
    _copy_picture(request, result, gallery / f"{name}.png")
    return name


def label(picture: Made) -> str:
    """Return the reading, `default` or the answers that differ from it, and the changed fields."""
    return ", ".join([*(answers_that_differ(picture) or ["default"]), *picture.changes])


def _name(request: RunRequest) -> str:
    """Return a name: recipe, differences from the default, and the scale unless it is `paper`."""
    made = Made.of({**request.made, "command": "", "numerics": 0})
    parts = [made.target, *answers_that_differ(made), *made.changes]
    return re.sub(r"[^\w.]+", "-", "-".join(parts + [made.scale] * (made.scale != "paper")))


def _copy_picture(request: RunRequest, result: xr.Dataset, path: Path) -> None:
    """Draw in a temporary folder, since the results may be read-only, and reduce the colours."""
    with tempfile.TemporaryDirectory() as folder:
        drawn = replace(request, folder=Path(folder)).draw(result)
        files = [file for file in drawn if file.suffix == ".png"]
        parts = [Image.open(file).convert("RGB") for file in files]
        few = _stacked(parts).quantize(palette=few_colours(parts), dither=Image.Dither.NONE)
        few.save(path, optimize=True)


def few_colours(parts: list[Image.Image]) -> Image.Image:
    """Return a palette with most colours for the first picture: photographs would use up those of its colour bar.

    Maximum coverage keeps rare colours: no channel of zhang/fig1 is off by more than 7 of 255, where median cut is off
    by 60.
    """
    figure, *others = parts
    photographs = COLOURS // 4 if others else 0
    palette_colours = (
        figure.quantize(COLOURS - photographs, Image.Quantize.MAXCOVERAGE).getpalette() or []
    )
    if others:
        rest = _stacked(others).quantize(photographs, Image.Quantize.MAXCOVERAGE)
        palette_colours = (
            palette_colours[: 3 * (COLOURS - photographs)]
            + (rest.getpalette() or [])[: 3 * photographs]
        )
    palette = Image.new("P", (1, 1))
    palette.putpalette(palette_colours)
    return palette


def _stacked(parts: list[Image.Image]) -> Image.Image:
    """Return the pictures of a recipe as one, below each other: some recipes also draw samples or a table."""
    whole = Image.new(
        "RGB", (max(each.width for each in parts), sum(p.height for p in parts)), "white"
    )
    top = 0
    for part in parts:
        whole.paste(part, (0, top))
        top += part.height
    return whole
