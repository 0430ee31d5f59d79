"""Curves along training without jumps: a run that has ended stays at its last value while others of its cell train."""

from __future__ import annotations

import numpy as np
import xarray as xr

from benign.plot.chosen import held


def settled(result: xr.Dataset, name: str, points: list[int] | None = None) -> xr.DataArray:
    """A curve at some of its steps, all of them if not given.

    It ends at the first step after the end of the last run of its cell, with the number that the result has for that
    end. Where the two are of different attacks, along training the one of training counts.
    """
    base = name.removesuffix("_curve")
    known = [each for each in (f"{base}_training_attack", base) if each in result]
    part = result[[name, "steps", *known[:1]]].isel(step=slice(None) if points is None else points)
    if not known:
        return part[name]
    steps = part["step"].values
    last = part["steps"].max("seed").fillna(0).clip(max=steps[-1])
    until = last.copy(data=steps[np.searchsorted(steps, last.values)])
    curve = held(part, base, known[0]).reindex(step=steps)
    return curve.where(curve["step"] <= until).transpose(*part[name].dims)
