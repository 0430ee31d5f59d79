"""Single cells of an experiment that share one growing folder; used by `locate` and `falsify`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import xarray as xr

from benign.experiment import Experiment, Folder
from benign.spec.axes import Axis, Path, cells, replace
from benign.sweep.folders import open_experiment
from benign.sweep.store import StoreError

GROUP = "cell"
"""dimension of the cells: the fields in which they differ are zipped along it"""

Point = tuple[Any, ...]


def points_in(folder: Folder, paths: Sequence[Path]) -> list[Point]:
    """Return the values of some fields at the cells of a folder, in their order; empty if they are not there."""
    try:
        stored = open_experiment(folder)
        return [tuple(reduce(getattr, path, cell) for path in paths) for _, cell in cells(stored)]
    except (StoreError, AttributeError):  # no folder yet, or components without these fields
        return []


def run_points(
    experiment: Experiment, paths: Sequence[Path], points: Sequence[Point], folder: Folder, **how: Any
) -> xr.Dataset:  # fmt: skip
    """Run the cells that the folder does not hold yet, and return the result over (cell, seed)."""
    values = zip(*points, strict=True)
    changes = {path: Axis(each, GROUP) for path, each in zip(paths, values, strict=True)}
    return Experiment.from_dict(replace(experiment, changes).as_dict()).run(folder, **how)
