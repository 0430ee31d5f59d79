"""A result as one file for other programs: zarr, NetCDF or a table."""

import contextlib
import os
import shutil
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import xarray as xr

from benign.sweep.records import temporary_name
from benign.training.descent import Status


def table(result: xr.Dataset) -> xr.Dataset:
    """What a table of runs can hold: every variable of one number a run, `status` in words."""
    words = np.array([status.name.lower() for status in Status])
    told = result["status"].copy(data=words[result["status"].values])
    return result.drop_dims(set(result.dims) - set(told.dims)).assign(status=told)


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
    table(result).to_dataframe().reset_index().to_csv(file, index=False)


KINDS: dict[str, tuple[Callable[[xr.Dataset, Path], None], tuple[str, ...]]] = {
    ".zarr": (_zarr, ("zarr",)),
    ".nc": (_netcdf, ("h5netcdf", "h5py")),
    ".csv": (_csv, ()),
}
"""how to write, and what that needs, by the ending of the name"""


def check_export(file: Path, force: bool) -> None:
    """Refuse a file that cannot be written, before the result is put together."""
    if file.suffix not in KINDS:
        raise ValueError(f"{file} must end in {', '.join(KINDS)}: its ending says what is written")
    lacking = [package for package in KINDS[file.suffix][1] if find_spec(package) is None]
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
    """Write a result in the way that the ending of the file says; it appears whole or not at all."""
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
