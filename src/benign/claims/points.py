"""Single cells of an experiment, run together in one folder, to which more can be added."""

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
"""dimension of cells that are no grid: the fields in which they differ are zipped along it"""

Point = tuple[Any, ...]


def points_in(folder: Folder, paths: Sequence[Path]) -> list[Point]:
    """Values of the fields at the cells a folder holds, in their order; the store refuses other experiments."""
    try:
        there = open_experiment(folder)
        return [tuple(reduce(getattr, path, cell) for path in paths) for _, cell in cells(there)]
    except (StoreError, AttributeError):  # nothing yet, or parts without such fields
        return []


def run_points(
    experiment: Experiment, paths: Sequence[Path], points: Sequence[Point], folder: Folder, **how: Any
) -> xr.Dataset:  # fmt: skip
    """The result over (cell, seed); what is there already is not computed again."""
    values = zip(*points, strict=True)
    changes = {path: Axis(each, GROUP) for path, each in zip(paths, values, strict=True)}
    return Experiment.from_dict(replace(experiment, changes).as_dict()).run(folder, **how)
