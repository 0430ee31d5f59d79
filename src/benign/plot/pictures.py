"""Rows of sample pictures, each row with a word about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure

from benign.plot.sheet import sheet
from benign.plot.style import SMALL


@dataclass(frozen=True, eq=False)
class Row:
    """Pictures side by side."""

    name: str
    """what sets the row apart"""
    pictures: np.ndarray
    """[count, channels, height, width] with 1 or 3 channels, any range of numbers"""
    titles: Sequence[str] = ()
    """a word above each picture"""


def pictures_figure(rows: Sequence[Row], *, title: str, caption: str) -> Figure:
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
