"""Where curves of single seeds cross a level."""

import numpy as np
import xarray as xr


def crossings(values: xr.DataArray, axis: str, level: float) -> np.ndarray:
    """For every seed the place on the axis where its curve last crosses the level, linearly between places; NaN where
    it does not."""
    curves = values.transpose("seed", axis).values.astype(float)
    places = values[axis].values.astype(float)
    return np.array([_last(places, curve - level) for curve in curves])


def _last(places: np.ndarray, above: np.ndarray) -> float:
    known = np.isfinite(above)
    places, above = places[known], above[known]
    changes = np.flatnonzero((above[1:] >= 0) != (above[:-1] >= 0))
    if not changes.size:
        return np.nan
    left = changes[-1]
    share = above[left] / (above[left] - above[left + 1])
    return float(places[left] + share * (places[left + 1] - places[left]))
