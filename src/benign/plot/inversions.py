"""Pictures in rows: test images, and what is drawn from their features in reference networks."""

from __future__ import annotations

import textwrap

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from benign.plot.style import SMALL, style

WORDS = {
    "original": "test image",
    "non-robust": "from features\nof the standard\nreference",
    "robust": "from features\nof the adversarial\nreference",
}
"""how rows are called"""


def inversions_figure(pictures: xr.DataArray, *, title: str, caption: str) -> Figure:
    """A row for every kind, a column for every image; `pictures` [picture, kind, channel, row, column] in [0, 1]."""
    kinds, count = list(pictures["kind"].values), pictures.sizes["picture"]
    with style():
        width = 1.2 + 0.75 * count
        lines = textwrap.wrap(caption, width=int(width * 72 / (0.54 * SMALL)))
        layout = ConstrainedLayoutEngine(w_pad=0.02, h_pad=0.02)
        figure = Figure(figsize=(width, 0.5 + 0.8 * len(kinds) + 0.13 * len(lines)), layout=layout)
        axes = figure.subplots(len(kinds), count, squeeze=False)
        for row, kind in enumerate(kinds):
            beside = {"rotation": 0, "ha": "right", "va": "center", "fontsize": SMALL}
            axes[row, 0].set_ylabel(WORDS.get(kind, kind), **beside)
            for column in range(count):
                _show(axes[row, column], pictures.sel(kind=kind).isel(picture=column))
        figure.suptitle(title)
        figure.supxlabel("\n".join(lines), x=0.012, ha="left", fontsize=SMALL, linespacing=1.3)
    return figure


def _show(ax: Axes, picture: xr.DataArray) -> None:
    values = picture.transpose("row", "column", "channel").values
    grey = values.shape[2] == 1
    ax.imshow(np.clip(values[..., 0] if grey else values, 0, 1), cmap="gray", vmin=0, vmax=1)
    ax.set_xticks([])
    ax.set_yticks([])
