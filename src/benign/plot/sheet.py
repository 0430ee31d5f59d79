"""The sheet of a figure: its width, title, caption and legends, and its panels in rows.

A figure for a screen is as wide as its panels. One for a paper is exactly as wide as a column or a page, with text
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
"""widths of figures in papers of two columns: one column, or both"""
PANELS_IN_A_ROW = {"column": 1, "page": 2}
LINE, TITLE_LINE = 0.13, 0.17
"""height in inches of a line of the caption, and of each line of the title after the first"""
TITLE = 9.5 * 0.68
"""rough width in points of a bold letter of a title"""

_WIDTH: ContextVar[str | None] = ContextVar("width", default=None)


@contextmanager
def drawn_for(width: str | None) -> Iterator[None]:
    """Make figures inside a `with` block this wide, "column" or "page"; None changes nothing."""
    if width is not None and width not in INCHES:
        raise ValueError(f"`width` must be one of {', '.join(INCHES)}, got {width!r}")
    before = _WIDTH.set(width or _WIDTH.get())
    try:
        yield
    finally:
        _WIDTH.reset(before)


@contextmanager
def sheet(
    panels: int,
    columns: int,
    size: tuple[float, float],
    title: str,
    caption: str,
    *,
    extra_width: float = 0.0,
    extra_height: float = 0.4,
    gap: float = 0.02,
    strips: bool = False,
    **shared: Any,
) -> Iterator[tuple[Figure, list[Axes]]]:
    """Make a figure with empty panels, `columns` in a row, each of `size` in inches, to be drawn inside the block.

    `extra_width` and `extra_height` are inches of the whole figure next to and above its panels, `gap` is the share of
    its width between panels. Rows that are `strips` of pictures stay rows at every width. `shared` is passed to
    `Figure.subplots`.
    """
    for_width, wide, tall = _WIDTH.get(), columns * size[0] + extra_width, size[1]
    if for_width is not None:
        if strips:
            tall *= INCHES[for_width] / wide
        else:
            columns = min(columns, PANELS_IN_A_ROW[for_width])
        wide = INCHES[for_width]
    rows = math.ceil(panels / columns)
    lines = textwrap.wrap(caption, width=int(wide * 72 / (0.54 * SMALL)))
    heading = textwrap.wrap(title, width=int(wide * 72 / TITLE))
    high = tall * rows + extra_height + LINE * len(lines) + TITLE_LINE * max(len(heading) - 1, 0)
    with style():
        pads = (0.02, 0.02) if strips else (0.08, 0.06)
        layout = ConstrainedLayoutEngine(w_pad=pads[0], h_pad=pads[1], wspace=gap)
        figure = Figure(figsize=(wide, high), layout=layout)
        axes = figure.subplots(rows, columns, squeeze=False, **shared).flatten()
        for ax in axes[panels:]:
            ax.remove()
        if heading:
            figure.suptitle("\n".join(heading))
        if lines:
            under = {"x": 0.012, "ha": "left", "fontsize": SMALL, "linespacing": 1.3}
            figure.supxlabel("\n".join(lines), **under)
        yield figure, list(axes[:panels])


def width_of(on_screen: float) -> float:
    """Return the width in inches of a figure made now: that `on_screen`, or that of a paper."""
    return on_screen if (for_width := _WIDTH.get()) is None else INCHES[for_width]


def for_paper() -> bool:
    """Return whether figures are now made for a paper."""
    return _WIDTH.get() is not None


def wrapped(name: str, ax: Axes) -> str:
    """Return a name of the legend below a panel, in lines that fit in a paper; intervals are not broken."""
    spec, figure = ax.get_subplotspec(), ax.figure
    if not for_paper() or spec is None or not isinstance(figure, Figure):
        return name
    margin = 0.85  # inches: the numbers of the axis, and the mark before the name
    inches = figure.get_figwidth() / spec.get_gridspec().ncols - margin
    unbroken = re.sub(r"\[[^]]*\]", lambda interval: interval[0].replace(" ", "\xa0"), name)
    return textwrap.fill(unbroken, int(inches * 72 / (0.5 * SMALL))).replace("\xa0", " ")


def panel_title(number: int, panels: int, title: str = "") -> str:
    """Return the title of a panel with its letter, `(b) title`; a single panel has no letter."""
    return f"({'abcdefghijkl'[number]}) {title}".strip() if panels > 1 else title


NO_VALUE, FEWER_SEEDS = "no value", "some seeds missing"
"""entries at the end of a legend"""
Y_AXIS = 0.6
"""width in inches of the numbers and the name of a y axis"""


def legend_below(ax: Axes, in_columns: bool = False) -> None:
    """Put the legend under the axis name, a fixed distance below the axes: it covers no cell and no line.

    Entries are in one column, or `in_columns`, as many as fit.
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
        ncols=columns_for(names, ax.figure.get_figwidth()) if in_columns else 1,
        loc="upper left",
        bbox_to_anchor=(0, 0),
        bbox_transform=ax.transAxes + ScaledTranslation(0, -32 / 72, ax.figure.dpi_scale_trans),
        borderaxespad=0,
        borderpad=0,
        labelspacing=0.35,
    )


def columns_for(names: Sequence[str], inches: float) -> int:
    """Return how many columns of these names, each with its line, fit into a legend `inches` wide."""
    each = SMALL * (0.55 * max(map(len, names)) + 5) / 72
    return max(1, min(len(names), int((inches - Y_AXIS) / each)))


def rows_for(names: Sequence[str], inches: float) -> int:
    """Return the number of rows of a legend of these names in columns."""
    return math.ceil(len(names) / columns_for(names, inches))
