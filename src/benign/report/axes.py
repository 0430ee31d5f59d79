"""The axes of a result as a picture needs them: numbers that ascend, or names of what is counted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np
import xarray as xr

from benign.papers.recipes import Recipe
from benign.report.figures import LABELS, names_of


def ascending(result: xr.Dataset) -> xr.Dataset:
    """With the numbers of every axis in order; labels stay where they are."""
    return result.sortby([dim for dim in axes_of(result) if _counts(result[dim])])


def axes_of(result: xr.Dataset) -> list[str]:
    return [str(dim) for dim in result["status"].dims if dim != "seed"]


def _counts(coordinate: xr.DataArray) -> bool:
    return np.issubdtype(coordinate.dtype, np.number)


def ranks(coordinate: xr.DataArray) -> np.ndarray:
    """The place that each value has when numbers ascend; labels stay where they are."""
    order = np.arange(coordinate.size)
    if _counts(coordinate):
        order[np.argsort(coordinate.values, kind="stable")] = np.arange(coordinate.size)
    return order


def numbered(
    result: xr.Dataset, names: Mapping[str, Sequence[str]] = MappingProxyType({})
) -> xr.Dataset:
    """With numbers on every axis: fields that move together get the numbers of the only field that tells them apart,
    or are counted, as labels are; the attribute `labels` then names them, in the words of `names` where it has any."""
    for dim in axes_of(result):
        if len(names.get(dim, ())) == result.sizes[dim]:
            told = {"long_name": dim, LABELS: list(names[dim])}
            result = result.assign_coords({dim: (dim, np.arange(result.sizes[dim]), told)})
            continue
        beside = [each for each in result.coords.values() if each.dims == (dim,)]
        beside = [each for each in beside if each.name != dim]
        if not beside and _counts(result[dim]):
            continue
        alike = {
            tuple(each.values.tolist()): each for each in reversed(beside)
        }  # the first one counts
        alone = next(iter(alike.values())) if len(alike) == 1 else None
        if alone is not None and _counts(alone) and alone.to_index().is_monotonic_increasing:
            told = {**alone.attrs, "long_name": f"{alone.name}: {alone.attrs.get('long_name', '')}"}
            result = result.assign_coords({dim: (dim, alone.values, told)})
            continue
        fields = {str(each.name): told_apart(names_of(each)) for each in reversed(alike.values())}
        words = told_apart(_in_words(fields) if fields else names_of(result[dim]))
        told = {"long_name": ", ".join(fields) or dim, LABELS: words}
        result = result.assign_coords({dim: (dim, np.arange(len(words)), told)})
    return result


def named_by(
    recipe: Recipe | None, result: xr.Dataset, changes: Sequence[str]
) -> dict[str, Sequence[str]]:
    """The names that a recipe has for places of its axes, but for axes of which a change replaced a field."""
    replaced = {change.partition("=")[0].rpartition(".")[2] for change in changes}
    fields = {
        dim: {str(name) for name, each in result.coords.items() if each.dims == (dim,)}
        for dim in axes_of(result)
    }
    known = recipe.names.items() if recipe else ()
    return {dim: names for dim, names in known if not fields.get(dim, set()) & replaced}


def _in_words(fields: dict[str, list[str]]) -> list[str]:
    """What fields that move together say at each place; the last words of their names will do where these differ."""
    last = [name.rpartition(".")[2] for name in fields]
    short = last if len(set(last)) == len(last) else list(fields)
    return [
        ", ".join(f"{name} {word}" for name, word in zip(short, words, strict=True))
        for words in zip(*fields.values(), strict=True)
    ]


def told_apart(labels: list[str]) -> list[str]:
    """Labels without the parts that all of them share.

    >>> told_apart(["net(width=4, rate=1)", "net(width=8, rate=1)"])
    ['net(width=4)', 'net(width=8)']
    """
    parts = [label.removesuffix(")").split(", ") for label in labels]
    shared = set.intersection(*map(set, parts))
    short = [", ".join(part for part in each if part not in shared) for each in parts]
    if len(set(short)) < len(set(labels)) or not all(short):
        return labels
    return [f"{each})" if each.count("(") > each.count(")") else each for each in short]


def chosen(result: xr.Dataset, several: list[str]) -> list[str]:
    """The two axes of a map: numbers before labels, long ones before short ones, in the order of the experiment."""
    best = sorted(several, key=lambda dim: (LABELS in result[dim].attrs, -result.sizes[dim]))[:2]
    return [dim for dim in several if dim in best]


def home(result: xr.Dataset, coordinate: xr.DataArray) -> str:
    """The axis of a result that holds the values of a coordinate."""
    if coordinate.name in axes_of(result):
        return str(coordinate.name)
    wanted = coordinate.values
    for each in result.coords.values():
        if each.ndim == 1 and each.shape == wanted.shape and (each.values == wanted).all():
            return str(each.dims[0])
    raise ValueError(f"no axis of the experiment holds the values of `{coordinate.name}`")
