"""From records to one labelled result."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import xarray as xr

from benign.axes import Dimension, Path, coordinates, dimensions
from benign.plan.runs import NUMERICS, runs_of
from benign.spec import canonical
from benign.sweep.records import Record
from benign.training.audit import FLAGS
from benign.training.descent import Status
from benign.training.setup import Setup
from benign.training.variables import Variable, variables

SYMBOLS = {
    "samples": "N",
    "tokens": "M",
    "dim": "d",
    "hidden": "d_h",
    "snr": "SNR",
    "signal": "|mu|",
    "noise_std": "sigma_p",
    "radius": "tau",
    "rate": "eta",
}
"""how the papers write the fields, for figures"""


def assemble(experiment: Any, records: Iterable[Record]) -> xr.Dataset:
    """The result of an experiment: its axes, `seed` and `step` as dimensions, one documented variable a measurement.

    A run without a record has status 0 (missing). A number that was not measured (a diverged run's test error, a curve
    after its run ended) is NaN; `status` and `steps` say why.
    """
    runs = list(runs_of(experiment))
    place = {run.key: number for number, run in enumerate(runs)}
    described = _all_variables(run.cell for run in runs)
    steps = runs[0].cell.snapshot_steps()
    flat = {
        name: _blank(len(runs), len(steps) if variable.along_steps else None, name)
        for name, variable in described.items()
    }
    for record in records:
        rows = [
            (row, place[key])
            for row, key in enumerate(record.arrays["run"].tolist())
            if key in place
        ]
        if rows:
            source, target = (list(part) for part in zip(*rows, strict=True))
            for name in flat.keys() & record.arrays.keys():
                flat[name][target] = record.arrays[name][source]
    return _label(experiment, flat, described, steps)


def _all_variables(cells: Iterable[Setup]) -> dict[str, Variable]:
    """The variables of all cells together; cells of other networks or attacks have others."""
    found: dict[str, Variable] = {}
    for cell in cells:
        found |= variables(cell)
    return found


def _blank(runs: int, steps: int | None, name: str) -> np.ndarray:
    if name == "status":
        return np.full(runs, Status.MISSING, np.int8)
    if name == "steps":
        return np.full(runs, -1, np.int64)
    return np.full((runs,) if steps is None else (runs, steps), np.nan)


def _label(
    experiment: Any, flat: dict[str, np.ndarray], described: dict[str, Variable], steps: list[int]
) -> xr.Dataset:
    grid = dimensions(experiment)
    dims = [dim.name for dim in grid] + ["seed"]
    sizes = [len(dim.values) for dim in grid] + [experiment.seeds]
    coords: dict[str, Any] = {}
    for dim in grid:
        coords |= _coordinates(experiment, dim)
    coords["seed"] = ("seed", range(experiment.seeds), {"long_name": "index of the seed"})
    coords["step"] = ("step", steps, {"long_name": "gradient descent steps", "units": "steps"})
    data = {}
    for name, variable in described.items():
        tail = ["step"] if variable.along_steps else []
        values = flat[name].reshape(sizes + [len(steps)] * len(tail))
        data[name] = (dims + tail, values, {"long_name": variable.meaning, "units": variable.units})
    status = flat["status"]
    data["status"][2].update(flag_values=[s.value for s in Status], flag_meanings=_flags())
    if "audit" in data:
        data["audit"][2].update(flag_masks=list(FLAGS), flag_meanings=" ".join(FLAGS.values()))
    attrs = {
        "experiment": canonical(experiment.as_dict()),
        "numerics": NUMERICS,
        "runs": len(status),
        **{f"runs_{s.name.lower()}": int((status == s).sum()) for s in Status},
    }
    return xr.Dataset(data, coords, attrs)


def _flags() -> str:
    return " ".join(s.name.lower() for s in Status)


def _coordinates(experiment: Any, dim: Dimension) -> dict[str, Any]:
    """The coordinate of a dimension; zipped fields each have one of their own along it."""
    named = {path: coordinates(values) for path, values in dim.fields.items()}
    if len(named) == 1 and dim.values == next(iter(named.values())):
        return {dim.name: (dim.name, list(dim.values), _attributes(experiment, next(iter(named))))}
    last_names = [path[-1] for path in named]
    fields = {
        path[-1] if last_names.count(path[-1]) == 1 else ".".join(path): (
            dim.name,
            list(values),
            _attributes(experiment, path),
        )
        for path, values in named.items()
    }
    counted = (dim.name, list(dim.values), {"long_name": f"place in {', '.join(fields)}"})
    return {dim.name: counted, **fields}


def _attributes(experiment: Any, path: Path) -> dict[str, str]:
    """The docstring of a field, and the papers' symbol for it."""
    owner = experiment
    for name in path[:-1]:
        owner = getattr(owner, name)
    described = {"long_name": type(owner).model_fields[path[-1]].description or path[-1]}
    return described | ({"symbol": SYMBOLS[path[-1]]} if path[-1] in SYMBOLS else {})
