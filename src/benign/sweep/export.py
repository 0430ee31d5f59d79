"""Exports a result: as a dataframe, or as one file of zarr, NetCDF or CSV."""

import contextlib
import os
import shutil
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd
import xarray as xr

from benign.sweep import figure_file
from benign.sweep.records import temporary_name
from benign.training.descent import Status


def table(result: xr.Dataset) -> xr.Dataset:
    """Return the variables with one number a run, for a table; `status` becomes a word."""
    words = np.array([status.name.lower() for status in Status])
    status = result["status"].copy(data=words[result["status"].values])
    return result.drop_dims(set(result.dims) - set(status.dims)).assign(status=status)


def to_dataframe(result: xr.Dataset, curves: bool = False) -> pd.DataFrame:
    """Return a result as a tidy table: one row a run, with axes, seed, status as a word and every scalar variable.

    With `curves` one row a run and snapshot step instead, with the curves; steps after the end of a run are left out.
    `result.to_dataframe()`, which is xarray's, mixes both and repeats every number at every step.

    >>> import tempfile
    >>> import benign as bo
    >>> sweep = bo.Experiment(
    ...     data=bo.Mixture(samples=4, dim=5, signal=[1.0, 2.0]),
    ...     network=bo.Linear(),
    ...     training=bo.GradientDescent(rate=0.1, max_steps=3),
    ... )
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     result = sweep.run(folder)
    >>> bo.to_dataframe(result)[["signal", "seed", "status", "steps"]]
       signal  seed    status  steps
    0     1.0     0  step_cap      3
    1     2.0     0  step_cap      3
    >>> len(bo.to_dataframe(result, curves=True))  # steps 0 to 3 of both
    8
    """
    if not {"seed", "step"} <= result.coords.keys() or "status" not in result:
        raise ValueError(
            "`result` must be what `run` or `open_result` gives, or a selection of its runs: this one lacks seed, step "
            "or status; result.to_dataframe() takes any"
        )
    if "seed" not in result.dims:  # a single run has no other dimension
        result = result.expand_dims("seed")
    if not curves:
        runs = table(result).to_dataframe().reset_index()
        return runs.astype({"steps": "Int64"})  # whole, and missing where a run has not ended
    names = [name for name, part in result.items() if "step" in part.dims]
    return result[names].to_dataframe().dropna(how="all", subset=names).reset_index()


def _zarr(result: xr.Dataset, file: Path) -> None:
    words = {
        str(name): part.astype(object)
        for name, part in result.coords.items()
        if part.dtype.kind == "U"
    }
    result.assign_coords(words).to_zarr(file, mode="w", consolidated=False)


def _netcdf(result: xr.Dataset, file: Path) -> None:
    result.to_netcdf(file, engine="h5netcdf")


def _csv(result: xr.Dataset, file: Path) -> None:
    to_dataframe(result).to_csv(file, index=False)


KINDS: dict[str, tuple[Callable[[xr.Dataset, Path], None], tuple[str, ...]]] = {
    ".zarr": (_zarr, ("zarr",)),
    ".nc": (_netcdf, ("h5netcdf", "h5py")),
    ".csv": (_csv, ()),
}
"""how to write, and what that needs, by the ending of the name"""
FIGURE = figure_file.ENDING
"""the numbers of a figure, with how they were made: written by `benign.papers.published`"""


def check_export(file: Path, force: bool) -> None:
    """Raise if the file cannot be written, before the result is assembled."""
    endings = (*KINDS, FIGURE)
    if not file.name.endswith(endings):
        raise ValueError(f"{file} must end in {', '.join(endings)}: its ending names the format")
    _, needed = KINDS.get(file.suffix, (None, ()))
    lacking = [package for package in needed if find_spec(package) is None]
    if lacking:
        raise ValueError(
            f"a {file.suffix} file needs {' and '.join(lacking)}: "
            "pip install 'benign[export]', or export to .csv"
        )
    if os.path.lexists(file):
        if not force:
            raise ValueError(f"{file} is there: name another file, or replace it with --force")
        if file.is_dir() and not (file.suffix == ".zarr" and (file / "zarr.json").exists()):
            raise ValueError(f"{file} is a folder and not a former export: name another file")
    if not file.parent.is_dir():
        raise ValueError(f"{file.parent} is no folder: make it or choose another")


def export(result: xr.Dataset, file: Path, force: bool = False) -> None:
    """Write a result in the format that the ending of the file names. The file appears whole or not at all."""
    check_export(file, force)
    draft = temporary_name(file)
    try:
        KINDS[file.suffix][0](result, draft)
        _remove_folder(file)
        os.replace(draft, file)
    finally:
        _remove_folder(draft)
        draft.unlink(missing_ok=True)


def _remove_folder(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(path)
