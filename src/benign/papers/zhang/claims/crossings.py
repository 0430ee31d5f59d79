"""Where curves of single seeds cross a level."""

from typing import Literal

import numpy as np
import xarray as xr


def crossings(
    values: xr.DataArray, axis: str, level: float, which: Literal["first", "last"] = "last"
) -> np.ndarray:
    """For every seed the place on the axis where its curve crosses the level, linearly between places; NaN where it
    does not. The last place is where something ends for good; accuracy over SNR is asked for the first, since single
    runs lose it again at large SNR."""
    curves = values.transpose("seed", axis).values.astype(float)
    places = values[axis].values.astype(float)
    return np.array([_place(places, curve - level, which) for curve in curves])


def _place(places: np.ndarray, above: np.ndarray, which: str) -> float:
    known = np.isfinite(above)
    places, above = places[known], above[known]
    changes = np.flatnonzero((above[1:] >= 0) != (above[:-1] >= 0))
    if not changes.size:
        return np.nan
    left = changes[0 if which == "first" else -1]
    share = above[left] / (above[left] - above[left + 1])
    return float(places[left] + share * (places[left + 1] - places[left]))
