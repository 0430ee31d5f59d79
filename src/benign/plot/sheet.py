"""The sheet a figure is drawn on: its width, its title, its caption, and panels in rows.

A figure for a screen is as wide as its panels. One for a paper is exactly as wide as a column or a page, with letters
of the same size: panels move to the next row instead of shrinking.
"""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Literal

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.transforms import ScaledTranslation

from benign.plot.style import SMALL, style

Width = Literal["column", "page"]
INCHES = {"column": 3.35, "page": 6.9}
"""what papers in two columns give a figure: one column, or both"""
ABREAST = {"column": 1, "page": 2}
"""panels side by side at these widths"""
LINE, TITLE_LINE = 0.13, 0.17
"""inches of height for a line of the caption, and of the title after its first"""
TITLE = 9.5 * 0.68
"""points that a bold letter of a title takes, roughly"""

_ASKED: ContextVar[str | None] = ContextVar("width", default=None)


@contextmanager
def drawn_for(width: str | None) -> Iterator[None]:
    """Figures made inside the block are of this width, "column" or "page"; None leaves it as it is."""
    if width is not None and width not in INCHES:
        raise ValueError(f"`width` must be one of {', '.join(INCHES)}, got {width!r}")
    before = _ASKED.set(width or _ASKED.get())
    try:
        yield
    finally:
        _ASKED.reset(before)


@contextmanager
def sheet(
    panels: int,
    columns: int,
    size: tuple[float, float],
    title: str,
    caption: str,
    *,
    beside: float = 0.0,
    above: float = 0.4,
    apart: float = 0.02,
    strips: bool = False,
    **shared: Any,
) -> Iterator[tuple[Figure, list[Axes]]]:
    """A figure and its empty panels, `columns` in a row, each of `size` in inches, to be drawn in the package's style.

    `beside` and `above` are inches for the whole figure, `apart` is the share of its width between panels. Rows that
    are `strips` of pictures stay rows at every width. `shared` is for `Figure.subplots`.
    """
    asked, wide, tall = _ASKED.get(), columns * size[0] + beside, size[1]
    if asked is not None:
        if strips:
            tall *= INCHES[asked] / wide
        else:
            columns = min(columns, ABREAST[asked])
        wide = INCHES[asked]
    down = math.ceil(panels / columns)
    lines = textwrap.wrap(caption, width=int(wide * 72 / (0.54 * SMALL)))
    heading = textwrap.wrap(title, width=int(wide * 72 / TITLE))
    high = tall * down + above + LINE * len(lines) + TITLE_LINE * max(len(heading) - 1, 0)
    with style():
        pads = (0.02, 0.02) if strips else (0.08, 0.06)
        layout = ConstrainedLayoutEngine(w_pad=pads[0], h_pad=pads[1], wspace=apart)
        figure = Figure(figsize=(wide, high), layout=layout)
        axes = figure.subplots(down, columns, squeeze=False, **shared).flatten()
        for ax in axes[panels:]:
            ax.remove()
        if heading:
            figure.suptitle("\n".join(heading))
        if lines:
            under = {"x": 0.012, "ha": "left", "fontsize": SMALL, "linespacing": 1.3}
            figure.supxlabel("\n".join(lines), **under)
        yield figure, list(axes[:panels])


def inches_of(wide: float) -> float:
    """How wide a figure made now becomes that is so `wide` on a screen."""
    return wide if (asked := _ASKED.get()) is None else INCHES[asked]


def for_paper() -> bool:
    """Whether figures are now made for a paper."""
    return _ASKED.get() is not None


def wrapped(name: str, ax: Axes) -> str:
    """A name for the legend below a panel, in lines that fit in a paper; intervals stay whole."""
    spec, figure = ax.get_subplotspec(), ax.figure
    if not for_paper() or spec is None or not isinstance(figure, Figure):
        return name
    beside = 0.85  # inches: the numbers of the axis, and the mark before the name
    inches = figure.get_figwidth() / spec.get_gridspec().ncols - beside
    whole = re.sub(r"\[[^]]*\]", lambda interval: interval[0].replace(" ", "\xa0"), name)
    return textwrap.fill(whole, int(inches * 72 / (0.5 * SMALL))).replace("\xa0", " ")


def letter(number: int, panels: int, title: str = "") -> str:
    """The name of a panel: `(b) its title`; one alone needs no letter."""
    return f"({'abcdefghijkl'[number]}) {title}".strip() if panels > 1 else title


NO_VALUE, FEWER_SEEDS = "no value", "some seeds missing"
"""what is told last"""
BESIDE = 0.6
"""inches: the numbers and the name of the y axis"""


def legend_below(ax: Axes, abreast: bool = False) -> None:
    """Put the legend under the axis name, a fixed distance below the axes: it covers no cell and no line.

    Names stand below one another, or `abreast`, as many as there is room for.
    """
    entries = list(zip(*ax.get_legend_handles_labels(), strict=True))
    if not entries:
        return
    entries.sort(key=lambda entry: entry[1] in (NO_VALUE, FEWER_SEEDS))
    handles, names = zip(*entries, strict=True)
    assert isinstance(ax.figure, Figure)
    ax.legend(
        handles,
        [wrapped(name, ax) for name in names],
        ncols=columns_for(names, ax.figure.get_figwidth()) if abreast else 1,
        loc="upper left",
        bbox_to_anchor=(0, 0),
        bbox_transform=ax.transAxes + ScaledTranslation(0, -32 / 72, ax.figure.dpi_scale_trans),
        borderaxespad=0,
        borderpad=0,
        labelspacing=0.35,
    )


def columns_for(names: Sequence[str], inches: float) -> int:
    """How many of these names fit abreast in a figure so wide, with the lines before them."""
    each = SMALL * (0.55 * max(map(len, names)) + 5) / 72
    return max(1, min(len(names), int((inches - BESIDE) / each)))


def rows_for(names: Sequence[str], inches: float) -> int:
    """Lines that a legend of names abreast has."""
    return math.ceil(len(names) / columns_for(names, inches))
