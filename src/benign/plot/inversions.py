"""Pictures in rows: test images, and what is drawn from their features in reference networks."""

from __future__ import annotations

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benign.plot.sheet import sheet
from benign.plot.style import SMALL

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
