"""Curves along training without jumps: a run that has ended stays at its last value while others of its cell train."""

from __future__ import annotations

import numpy as np
import xarray as xr

from benign.plot.variables import held


def settled(result: xr.Dataset, name: str, points: list[int] | None = None) -> xr.DataArray:
    """A curve at some of its steps, all of them if not given.

    It ends at the first step after the end of the last run of its cell, with the number that the result has for that
    end.
    """
    base = name.removesuffix("_curve")
    used = [name, "steps", "status", base, f"{base}_training_attack"]
    part = result[[each for each in used if each in result]]
    part = part.isel(step=slice(None) if points is None else points)
    steps = part["step"].values
    last = part["steps"].max("seed").fillna(0).clip(max=steps[-1])
    until = last.copy(data=steps[np.searchsorted(steps, last.values)])
    curve = held(part, base).reindex(step=steps)
    if base not in part:
        return curve
    return curve.where(curve["step"] <= until).transpose(*part[name].dims)
