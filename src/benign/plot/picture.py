"""The pictures of an experiment of one's own, which `benign run my.yaml` draws."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import xarray as xr

from benign.plot.chosen import axes_of
from benign.plot.result_lines import curves
from benign.plot.result_maps import phase
from benign.plot.style import save

DRAWN = ("test_accuracy", "robust_accuracy")
"""what is drawn, as far as it is measured"""


def pictures(result: xr.Dataset, folder: Path) -> list[Path]:
    """Draw what can be drawn of a result into its folder: nothing unless one or two axes hold several numbers."""
    names = [name for name in DRAWN if name in result]
    axes = axes_of(result[names[0]])
    if not all(np.issubdtype(result[axis].dtype, np.number) for axis in axes):
        return []
    if len(axes) == 1:
        return save(curves(result, names), folder / "accuracy")
    if len(axes) == 2:
        return [path for name in names for path in save(phase(result, name), folder / name)]
    return []
