"""Legends below their axes, where they cover nothing."""

from __future__ import annotations

import math
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.transforms import ScaledTranslation

from benign.plot.sheet import wrapped
from benign.plot.style import SMALL

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
