"""Curves along training without jumps: a run that has ended stays at its last value while others of its cell train."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import xarray as xr


def settled(result: xr.Dataset, name: str, points: Sequence[int] | None = None) -> xr.DataArray:
    """A curve at some of its steps, all of them if not given.

    It ends at the first step after the end of the last run of its cell, with the number that the result has for that
    end. Where the two are of different attacks, along training the one of training counts.
    """
    curve = result[name] if points is None else result[name].isel(step=list(points))
    base = name.removesuffix("_curve")
    known = [each for each in (f"{base}_training_attack", base) if each in result]
    if not known:
        return curve
    steps, ends = curve["step"].values, result["steps"]
    last = ends.max("seed").fillna(0).clip(max=steps[-1])
    until = last.copy(data=steps[np.searchsorted(steps, last.values)])
    held = curve.where(curve["step"] <= ends, result[known[0]])
    return held.where(curve["step"] <= until).transpose(*curve.dims)
