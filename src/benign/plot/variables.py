"""What is drawn of a result: its variables without axes of one value, their names, and what a caption says of them."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import xarray as xr

from benign.experiment import experiment_of
from benign.plot.caption import describe, endings
from benign.training.descent import Status

NEVER = "-1 if never"
"""how the meaning of a variable tells it"""


def variable_of(result: xr.Dataset, name: str, axes: int) -> xr.DataArray:
    """A variable with its seeds and its axes of several values; ValueError unless these are so many."""
    if name not in result:
        raise ValueError(f"no variable {name!r}; this result has {', '.join(map(str, result))}")
    values = reached(result[name])
    several = axes_of(values)
    if len(several) != axes:
        raise ValueError(
            f"`{name}` has {len(several)} axes with several values ({', '.join(several) or 'none'}), "
            f"{axes} can be drawn: select one value of the others, or average over them"
        )
    ones = [dim for dim in values.dims if dim not in (*several, "seed")]
    values = values.squeeze(ones, drop=True)
    if "seed" in values.dims:
        return values
    return values.drop_vars("seed", errors="ignore").expand_dims("seed")


def reached(values: xr.DataArray) -> xr.DataArray:
    """First steps at which something was so, without a number where it never was: a mean must not count -1."""
    told = str(values.attrs.get("long_name", ""))
    if NEVER not in told:
        return values
    attrs = values.attrs | {"long_name": told.replace(NEVER, "no value if never")}
    return values.where(values >= 0).assign_attrs(attrs)


def extended_curve(result: xr.Dataset, name: str) -> xr.DataArray:
    """A curve along training on which a run that has ended stays at its last value, that of the result.

    Without that the mean over seeds would jump whenever a run leaves it. Of an attack the curve is that of training,
    and so is its last value where that was measured. A run that diverged has no last value: it is NaN from its end
    on, and the mean is that of the others. The curve stops soon after the last run has.
    """
    curve = result[f"{name}_curve"]
    ends = [each for each in (f"{name}_training_attack", name) if each in result]
    if not ends:
        return curve
    end = result[ends[0]]
    if "status" in result:
        end = end.where(result.status != Status.DIVERGED)
    curve = curve.where(curve.step <= result.steps, end)
    last = float(result.steps.max())
    return curve.isel(step=slice(None, 1 + int(np.searchsorted(curve.step, last))))


def axes_of(values: xr.DataArray) -> list[str]:
    """The axes of the experiment that hold several values."""
    return [str(dim) for dim in values.dims if dim != "seed" and values.sizes[dim] > 1]


def two_axes(values: xr.DataArray, x: str | None, y: str | None) -> tuple[str, str]:
    """The axes of a map: those asked for, and what is left for the others."""
    axes = axes_of(values)
    for name, asked in (("x", x), ("y", y)):
        if asked is not None and asked not in axes:
            raise ValueError(f"`{name}` must be one of {', '.join(axes)}, got {asked!r}")
    left = [axis for axis in axes if axis not in (x, y)]
    x = x or left.pop(0)
    return x, y or left.pop(0)


def listed(variables: str | Sequence[str]) -> list[str]:
    """One name, or several."""
    return [variables] if isinstance(variables, str) else list(variables)


def plain(variable: str) -> str:
    """The name of a variable in words."""
    return variable.removesuffix("_curve").replace("_", " ")


def named(place: xr.DataArray) -> str:
    """`SNR = 4`: one value of an axis, as the papers write it."""
    name, value = symbol_of(place), place.item()
    return f"{name} = {value:.3g}" if isinstance(value, float) else f"{name} = {value}"


def symbol_of(coordinate: xr.DataArray) -> str:
    """An axis as the papers write it, or its name in words."""
    return str(coordinate.attrs.get("symbol", str(coordinate.name).replace("_", " ")))


def possible(name: str) -> tuple[float, float]:
    """Where values of a variable can lie: an interval of their mean may reach beyond."""
    if re.search(r"\b(accuracy|error)\b", name) or name.startswith("attention on"):
        return 0.0, 1.0
    if name.endswith("alignment"):  # a cosine
        return -1.0, 1.0
    counts = name.endswith(("loss", "norm", "steps")) or name.startswith("stage")
    return (0.0 if counts else -np.inf), np.inf


def caption_of(result: xr.Dataset) -> str:
    """What a result knows of itself: a trace of one run knows less."""
    chosen = [named(each) for each in result.coords.values() if each.ndim == 0]
    told = [f"Here {', '.join(chosen)}."] if chosen else []
    if "experiment" in result.attrs:
        told.insert(0, describe(experiment_of(result)))
    if "recipe" in result.attrs:
        told.insert(0, f"{result.attrs['recipe']}.")
    if "status" in result:
        told.append(endings(result))
    return " ".join(filter(None, told))
