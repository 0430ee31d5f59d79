"""Which values of a result are drawn: its variables without axes of one value, their labels and their ranges."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import xarray as xr

from benign.experiment import experiment_of
from benign.plot.caption import describe, endings
from benign.training.descent import Status

NEVER = "-1 if never"
"""how the definition of a variable says that -1 stands for an event that did not happen"""


def variable_of(result: xr.Dataset, name: str, axes: int) -> xr.DataArray:
    """Return a variable over its seeds and its axes of several values, of which there must be `axes`."""
    if name not in result:
        raise ValueError(f"no variable {name!r}; this result has {', '.join(map(str, result))}")
    values = nan_if_never(result[name])
    several = varied_axes(values)
    if len(several) != axes:
        raise ValueError(
            f"`{name}` has {len(several)} axes with several values ({', '.join(several) or 'none'}), "
            f"{axes} can be drawn: select one value of the others, or average over them"
        )
    ones = [dim for dim in values.dims if dim not in (*several, "seed")]
    return with_seeds(values.squeeze(ones, drop=True))


def with_seeds(values: xr.DataArray, seed_dim: str = "seed") -> xr.DataArray:
    """Return the values with a dimension of seeds, which the values of one run lack."""
    if seed_dim in values.dims:
        return values
    return values.drop_vars(seed_dim, errors="ignore").expand_dims(seed_dim)


def nan_if_never(values: xr.DataArray) -> xr.DataArray:
    """Return first steps of an event with NaN for -1, which means that it never happened: a mean must not count -1."""
    definition = str(values.attrs.get("long_name", ""))
    if NEVER not in definition:
        return values
    attrs = values.attrs | {"long_name": definition.replace(NEVER, "no value if never")}
    return values.where(values >= 0).assign_attrs(attrs)


def extended_curve(result: xr.Dataset, name: str) -> xr.DataArray:
    """Return a curve along training in which a run that has ended keeps its final value, the one of the result.

    Otherwise the mean over seeds would jump whenever a run ends. Curves under attack are measured with the training
    attack, and so is the final value where it was measured. A run that diverged has no final value: it is NaN from its
    end on, and the mean is over the other runs. The curve ends at the first step after the last run has ended.
    """
    curve = result[f"{name}_curve"]
    final = [each for each in (f"{name}_training_attack", name) if each in result]
    if not final:
        return curve
    end = result[final[0]]
    if "status" in result:
        end = end.where(result.status != Status.DIVERGED)
    curve = curve.where(curve.step <= result.steps, end)
    last = float(result.steps.max())
    return curve.isel(step=slice(None, 1 + int(np.searchsorted(curve.step, last))))


TRAINED_LOSS = "loss under the training attack"
"""label of `train_loss` of robust training: what was descended, which is not the robust loss"""
ROBUST_LOSS = "robust training loss, at least"
"""label of `train_robust_loss`: as much of the robust training loss as the attacks at the end find"""


def training_losses(result: xr.Dataset) -> dict[str, xr.DataArray]:
    """Return the training losses at the end by their labels; older results lack the second."""
    names = {TRAINED_LOSS: "train_loss", ROBUST_LOSS: "train_robust_loss"}
    return {label: result[name] for label, name in names.items() if name in result}


def varied_axes(values: xr.DataArray) -> list[str]:
    """Return the axes, other than seeds, that have several values."""
    return [str(dim) for dim in values.dims if dim != "seed" and values.sizes[dim] > 1]


def two_axes(values: xr.DataArray, x: str | None, y: str | None) -> tuple[str, str]:
    """Return the axes of a map: `x` and `y` where they are given, the remaining ones otherwise."""
    axes = varied_axes(values)
    for name, chosen in (("x", x), ("y", y)):
        if chosen is not None and chosen not in axes:
            raise ValueError(f"`{name}` must be one of {', '.join(axes)}, got {chosen!r}")
    others = [axis for axis in axes if axis not in (x, y)]
    x = x or others.pop(0)
    return x, y or others.pop(0)


def as_list(variables: str | Sequence[str]) -> list[str]:
    """Return the names as a list, also if it is a single one."""
    return [variables] if isinstance(variables, str) else list(variables)


def readable(variable: str) -> str:
    """Return the name of a variable in words: `test_loss_curve` is `test loss`."""
    return variable.removesuffix("_curve").replace("_", " ")


def value_label(coordinate: xr.DataArray) -> str:
    """Return one value of an axis as the papers write it, `SNR = 4`."""
    name, value = symbol_of(coordinate), coordinate.item()
    return f"{name} = {value:.3g}" if isinstance(value, float) else f"{name} = {value}"


def symbol_of(coordinate: xr.DataArray) -> str:
    """Return the symbol that the papers have for an axis, or its name in words."""
    return str(coordinate.attrs.get("symbol", str(coordinate.name).replace("_", " ")))


def value_range(name: str) -> tuple[float, float]:
    """Return the range of possible values of a variable; the interval of a mean may reach beyond it."""
    if re.search(r"\b(accuracy|error)\b", name) or name.startswith("attention on"):
        return 0.0, 1.0
    if name.endswith("alignment"):  # a cosine
        return -1.0, 1.0
    counts = name.endswith(("loss", "norm", "steps")) or name.startswith("stage")
    return (0.0 if counts else -np.inf), np.inf


def caption_of(result: xr.Dataset) -> str:
    """Return the caption of a figure of this result; the trace of one run contains only some of its sentences."""
    selected = [value_label(each) for each in result.coords.values() if each.ndim == 0]
    sentences = [
        f"{result.attrs['recipe']}." if "recipe" in result.attrs else "",
        describe(experiment_of(result)) if "experiment" in result.attrs else "",
        f"Here {', '.join(selected)}." if selected else "",
        endings(result) if "status" in result else "",
    ]
    return " ".join(filter(None, sentences))
