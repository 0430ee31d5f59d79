"""Bars in groups, our numbers with their spread next to those that a paper prints; and rows of pictures."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benign.plot.bands import band_notes, mean_bands
from benign.plot.lines import COLOURS
from benign.plot.sheet import panel_title, sheet
from benign.plot.style import DARK_GREY, SMALL

HEADROOM = 1.3
"""height of the axes as a multiple of the highest bar: the legend is above the bars"""


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
    """title after the letter of the panel"""


def bars_figure(panels: Sequence[Bars], label: str, *, title: str, caption: str) -> Figure:
    """Draw panels side by side.

    Whiskers are the band of `mean_bands`, which the caption names. Outlines are the paper's.
    """
    count = len(panels)
    drawn = [
        xr.DataArray(values, dims=("group", "seed"))
        for panel in panels
        for values in panel.ours.values()
    ]
    caption = " ".join(filter(None, [caption, *band_notes(drawn, name="Whiskers")]))
    size = (3.55 * max(2, count) / count, 2.8)
    with sheet(count, count, size, title, caption, extra_height=0.0, sharey=True) as (figure, axes):
        for number, (ax, panel) in enumerate(zip(axes, panels, strict=True)):
            _draw_bars(ax, panel)
            ax.set_title(panel_title(number, count, panel.title))
        axes[0].set_ylabel(label)
        axes[0].set_ylim(0, HEADROOM * axes[0].get_ylim()[1])
        axes[0].legend(loc="upper center", ncols=2)
    return figure


def _draw_bars(ax: Axes, panel: Bars) -> None:
    kinds = [
        (name, of)
        for name in panel.ours
        for of in ("ours", "paper")
        if of == "ours" or name in panel.printed
    ]
    wide = 0.8 / len(kinds)
    at = np.arange(len(panel.groups))
    for number, (name, of) in enumerate(kinds):
        x = at + (number - (len(kinds) - 1) / 2) * wide
        colour = COLOURS[list(panel.ours).index(name)]
        if of == "paper":
            outline = {"facecolor": "none", "edgecolor": colour, "hatch": "////", "linewidth": 0.8}
            ax.bar(x, panel.printed[name], 0.92 * wide, label=f"{name} (paper)", **outline)
            continue
        values = panel.ours[name]
        heights, low, high = mean_bands(np.where(np.isfinite(values), values, np.nan))
        ends = np.nan_to_num([heights - low, high - heights])
        spread = ends if values.shape[1] > 1 else None
        whiskers = {"ecolor": DARK_GREY, "elinewidth": 0.8}
        ax.bar(x, heights, 0.92 * wide, yerr=spread, error_kw=whiskers, color=colour, label=name)
        for missing in x[np.isnan(heights)]:
            ax.text(missing, 0, " no value", rotation=90, ha="center", va="bottom", fontsize=SMALL)
    ax.set_xticks(at, [textwrap.fill(name, 14) for name in panel.groups])


@dataclass(frozen=True, eq=False)
class PictureRow:
    """A row of pictures."""

    name: str
    """label of the row"""
    pictures: np.ndarray
    """[count, channels, height, width] with 1 or 3 channels, any range of numbers"""
    titles: Sequence[str] = ()
    """of each picture"""


def pictures_figure(rows: Sequence[PictureRow], *, title: str, caption: str) -> Figure:
    """Draw rows of pictures; those of a row share a grey scale, from its 0.5 % to its 99.5 % quantile."""
    counts = {len(row.pictures) for row in rows}
    if len(counts) != 1:
        raise ValueError(f"`rows` must hold rows of equally many pictures, got {sorted(counts)}")
    (across,) = counts
    cells, size = len(rows) * across, (0.95, 1.1)
    with sheet(cells, across, size, title, caption, extra_width=0.6, strips=True) as (figure, axes):
        for number, row in enumerate(rows):
            row_axes, images = axes[number * across :][:across], scaled(row.pictures)
            for column, ax in enumerate(row_axes):
                _show_image(ax, images[column], interpolation="nearest")
                if row.titles:
                    ax.set_title(row.titles[column], fontsize=SMALL, loc="center")
            row_axes[0].set_ylabel(row.name)
    return figure


def scaled(pictures: np.ndarray) -> np.ndarray:
    """Return pictures as matplotlib takes them: [count, height, width] or [count, height, width, 3], from 0 to 1."""
    low, high = np.quantile(pictures, [0.005, 0.995])
    images = np.clip((pictures - low) / max(high - low, 1e-12), 0, 1)
    return images[:, 0] if pictures.shape[1] == 1 else np.moveaxis(images, 1, -1)


ROW_LABELS = {
    "original": "test image",
    "non-robust": "from features\nof the standard\nreference",
    "robust": "from features\nof the adversarial\nreference",
}
"""labels of the kinds of pictures"""


def inversions_figure(pictures: xr.DataArray, *, title: str, caption: str) -> Figure:
    """Draw a row for each kind, a column for each image; `pictures` [picture, kind, channel, row, column] in [0, 1]."""
    kinds, count = list(pictures["kind"].values), pictures.sizes["picture"]
    cells, size = len(kinds) * count, (0.75, 0.8)
    with sheet(
        cells, count, size, title, caption, extra_width=1.2, extra_height=0.5, strips=True
    ) as (
        figure,
        axes,
    ):
        for row, kind in enumerate(kinds):
            label = {"rotation": 0, "ha": "right", "va": "center", "fontsize": SMALL}
            axes[row * count].set_ylabel(ROW_LABELS.get(kind, str(kind)), **label)
            for column in range(count):
                picture = pictures.sel(kind=kind).isel(picture=column)
                values = picture.transpose("row", "column", "channel").values
                image = values[..., 0] if values.shape[2] == 1 else values
                _show_image(axes[row * count + column], np.clip(image, 0, 1))
    return figure


def _show_image(ax: Axes, image: np.ndarray, **options: Any) -> None:
    """Show an image with numbers from 0 to 1, without ticks."""
    ax.imshow(image, cmap="gray", vmin=0, vmax=1, **options)
    ax.set_xticks([])
    ax.set_yticks([])
