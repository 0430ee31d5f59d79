"""Numbers in groups as bars: ours with their spread over seeds, and beside them those that a paper prints."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benign.plot.lines import COLOURS
from benign.plot.sheet import letter, sheet
from benign.plot.style import DARK_GREY, SMALL

ROOM = 1.3
"""of the height of the bars, for a legend above them"""


@dataclass(frozen=True, eq=False)
class Bars:
    """One panel: a group of bars for every name on the x axis."""

    groups: Sequence[str]
    """names on the x axis"""
    ours: Mapping[str, np.ndarray]
    """values [groups, seeds] of each kind of bar, by its name in the legend"""
    printed: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """what the paper prints for each group, by the same names"""
    title: str = ""
    """what sets this panel apart, beside its letter"""


def bars_figure(panels: Sequence[Bars], label: str, *, title: str, caption: str) -> Figure:
    """Panels side by side; whiskers are one standard deviation over seeds on either side, outlines are the paper's."""
    count = len(panels)
    size = (3.55 * max(2, count) / count, 2.8)
    with sheet(count, count, size, title, caption, above=0.0, sharey=True) as (figure, axes):
        for number, (ax, panel) in enumerate(zip(axes, panels, strict=True)):
            _draw_bars(ax, panel)
            ax.set_title(letter(number, count, panel.title))
        axes[0].set_ylabel(label)
        axes[0].set_ylim(0, ROOM * axes[0].get_ylim()[1])
        axes[0].legend(loc="upper center", ncols=2)
    return figure


def _draw_bars(ax: Axes, panel: Bars) -> None:
    kinds = [
        (name, each) for name in panel.ours for each in ("ours", "paper") if _has(panel, name, each)
    ]
    wide = 0.8 / len(kinds)
    at = np.arange(len(panel.groups))
    for place, (name, whose) in enumerate(kinds):
        x = at + (place - (len(kinds) - 1) / 2) * wide
        colour = COLOURS[list(panel.ours).index(name)]
        if whose == "paper":
            told = {"facecolor": "none", "edgecolor": colour, "hatch": "////", "linewidth": 0.8}
            ax.bar(x, panel.printed[name], 0.92 * wide, label=f"{name} (paper)", **told)
            continue
        values = np.ma.masked_invalid(panel.ours[name])
        heights = values.mean(1).filled(np.nan)
        spread = values.std(1, ddof=1).filled(0.0) if values.shape[1] > 1 else None
        whiskers = {"ecolor": DARK_GREY, "elinewidth": 0.8}
        ax.bar(x, heights, 0.92 * wide, yerr=spread, error_kw=whiskers, color=colour, label=name)
        for place in x[np.isnan(heights)]:
            ax.text(place, 0, " no value", rotation=90, ha="center", va="bottom", fontsize=SMALL)
    ax.set_xticks(at, [textwrap.fill(name, 14) for name in panel.groups])


def _has(panel: Bars, name: str, whose: str) -> bool:
    return whose == "ours" or name in panel.printed


@dataclass(frozen=True, eq=False)
class PictureRow:
    """Pictures side by side."""

    name: str
    """what sets the row apart"""
    pictures: np.ndarray
    """[count, channels, height, width] with 1 or 3 channels, any range of numbers"""
    titles: Sequence[str] = ()
    """a word above each picture"""


def pictures_figure(rows: Sequence[PictureRow], *, title: str, caption: str) -> Figure:
    """All pictures of a row on one scale, from its 0.5 % darkest to its 0.5 % brightest numbers."""
    counts = {len(row.pictures) for row in rows}
    if len(counts) != 1:
        raise ValueError(f"`rows` must hold rows of equally many pictures, got {sorted(counts)}")
    (across,) = counts
    cells, size = len(rows) * across, (0.95, 1.1)
    with sheet(cells, across, size, title, caption, beside=0.6, strips=True) as (figure, axes):
        for down, row in enumerate(rows):
            places, shown = axes[down * across :][:across], scaled(row.pictures)
            for number, ax in enumerate(places):
                ax.imshow(shown[number], cmap="gray", vmin=0, vmax=1, interpolation="nearest")
                ax.set_xticks([])
                ax.set_yticks([])
                if row.titles:
                    ax.set_title(row.titles[number], fontsize=SMALL, loc="center")
            places[0].set_ylabel(row.name)
    return figure


def scaled(pictures: np.ndarray) -> np.ndarray:
    """As matplotlib draws them: [count, height, width] or [count, height, width, 3], from 0 to 1."""
    low, high = np.quantile(pictures, [0.005, 0.995])
    shown = np.clip((pictures - low) / max(high - low, 1e-12), 0, 1)
    return shown[:, 0] if pictures.shape[1] == 1 else np.moveaxis(shown, 1, -1)


WORDS = {
    "original": "test image",
    "non-robust": "from features\nof the standard\nreference",
    "robust": "from features\nof the adversarial\nreference",
}
"""how rows are called"""


def inversions_figure(pictures: xr.DataArray, *, title: str, caption: str) -> Figure:
    """A row for every kind, a column for every image; `pictures` [picture, kind, channel, row, column] in [0, 1]."""
    kinds, count = list(pictures["kind"].values), pictures.sizes["picture"]
    cells, size = len(kinds) * count, (0.75, 0.8)
    with sheet(cells, count, size, title, caption, beside=1.2, above=0.5, strips=True) as (
        figure,
        axes,
    ):
        for row, kind in enumerate(kinds):
            beside = {"rotation": 0, "ha": "right", "va": "center", "fontsize": SMALL}
            axes[row * count].set_ylabel(WORDS.get(kind, str(kind)), **beside)
            for column in range(count):
                shown = pictures.sel(kind=kind).isel(picture=column)
                _show(axes[row * count + column], shown)
    return figure


def _show(ax: Axes, picture: xr.DataArray) -> None:
    values = picture.transpose("row", "column", "channel").values
    grey = values.shape[2] == 1
    ax.imshow(np.clip(values[..., 0] if grey else values, 0, 1), cmap="gray", vmin=0, vmax=1)
    ax.set_xticks([])
    ax.set_yticks([])
