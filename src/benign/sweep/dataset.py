"""From records to one labelled result."""

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import xarray as xr

from benign.experiment import Experiment
from benign.spec.axes import Dimension, Path, cells, coordinates, dimensions
from benign.spec.base import Spec, canonical, descriptions
from benign.sweep.plan import NUMERICS, keys_of
from benign.sweep.records import Record
from benign.sweep.results import ENDED, RunAt, RunResolver, failures
from benign.training.descent import Status
from benign.training.metrics import Variable, variables
from benign.training.metrics.audit import FLAGS, MASKING

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


def assemble(experiment: Experiment, records: Iterable[Record]) -> xr.Dataset:
    """Return the result of an experiment: axes, `seed` and `step` are its dimensions, every metric is a variable.

    A run without a record has status 0 (missing). A number that a run has not (a diverged run's test error, a curve
    after its run ended) is NaN; `status` and `steps` say why. A variable that is newer than all finished runs is left
    out; `not_measured` lists the variables that some runs lack.
    """
    keys = keys_of(experiment)
    place = {key: number for number, key in enumerate(keys)}
    assert len(place) == len(keys), "two cells of the grid are the same run"
    wanted = [variables(cell) for _, cell in cells(experiment)]
    described = _described(wanted)
    _, first = next(cells(experiment))
    steps = first.snapshot_steps()
    flat = {name: variable.blank(len(keys), steps) for name, variable in described.items()}
    flat["status"] = np.full(len(keys), Status.MISSING, np.int8)
    resolver, devices = RunResolver(), set[str]()
    for record in records:
        rows = [(row, place[key]) for row, key in resolver.add(record) if key in place]
        if rows:
            devices.add(_device(record.meta))
            source, target = (list(part) for part in zip(*rows, strict=True))
            for name, values in flat.items():
                known = record.arrays.get(name)
                values[target] = np.nan if known is None else known[source]
    flat["steps"][flat["steps"] < 0] = np.nan  # in a record: the run has not ended
    recorded = [resolver.runs.get(key) for key in keys]
    lacking = _lacking(wanted, recorded)
    for name, (without, ended) in lacking.items():
        if without == ended:
            described.pop(name, None)
    result = _label(experiment, flat, described, steps)
    result.attrs["space"] = _spaces(experiment)
    result.attrs["devices"] = "; ".join(sorted(devices))
    result.attrs["not_measured"] = canonical({name: n for name, (n, _) in lacking.items()})
    if failed := failures(at for at in recorded if at):
        result.attrs["first_error"] = next(iter(failed)).splitlines()[-1]
    return result


def _spaces(experiment: Experiment) -> str:
    """Return the coordinates of the runs and how they are tested, with the number of cells if cells differ."""
    spaces = (cell.space for _, cell in cells(experiment))
    counts = Counter(f"{space.mode}, {space.tested}" for space in spaces)
    if len(counts) == 1:
        return next(iter(counts))
    return "; ".join(f"{count} cells: {text}" for text, count in counts.items())


def _device(meta: Mapping[str, Any]) -> str:
    """Return the device and the version of torch that computed a record."""
    text = f"{meta.get('device')}, torch {meta.get('torch')}"
    return f"{text}, compiled" if meta.get("compiled") else text


def not_measured(result: xr.Dataset) -> dict[str, int]:
    """Return the variables that finished runs lack, with the number of these runs."""
    return json.loads(result.attrs["not_measured"])


def counts_of(status: Any) -> dict[Status, int]:
    """Return the number of runs with each status."""
    return {each: int((status == each).sum()) for each in Status}


def ended(result: xr.Dataset) -> xr.DataArray:
    """Return whether each run ended properly: it is not missing and has not failed."""
    return result["status"].isin(ENDED)


def masked(result: xr.Dataset) -> xr.DataArray:
    """Return whether each run is masked: training misled the attack, so that robust numbers may be wrong.

    A run is masked if the evaluation attack raises its training loss (by `RISE` and `LEAST_RISE` of the audit), or is
    weaker than the training attack on test points. Runs without an audit are not: missing, failed, diverged or clean.
    """
    if "audit" not in result:
        return xr.zeros_like(result["status"], dtype=bool).rename("masked")
    return ((result["audit"].fillna(0).astype(int) & MASKING) > 0).rename("masked")


def masked_share(result: xr.Dataset) -> xr.DataArray:
    """Return the share of masked runs of every cell, of those that have an audit; NaN where none has one."""
    known = result["audit"].notnull() if "audit" in result else False
    runs = masked(result).where(known)
    return runs.mean("seed") if "seed" in runs.dims else runs


def _lacking(
    wanted: list[dict[str, Variable]], recorded: list[RunAt | None]
) -> dict[str, tuple[int, int]]:
    """Return, for every variable that finished runs lack, how many lack it and how many should have it."""
    seeds = len(recorded) // len(wanted)
    alike = Counter(
        (number // seeds, at.names) for number, at in enumerate(recorded) if at and at.ended
    )
    without, ended = Counter[str](), Counter[str]()
    for (cell, names), count in alike.items():
        for name in wanted[cell]:
            ended[name] += count
            without[name] += count * (name not in names)
    return {name: (count, ended[name]) for name, count in sorted(without.items()) if count}


def _described(wanted: list[dict[str, Variable]]) -> dict[str, Variable]:
    """Return the variables of all cells, without arrays whose size differs between cells."""
    described = {name: variable for cell in wanted for name, variable in cell.items()}
    return {
        name: variable
        for name, variable in described.items()
        if not variable.axes
        or all(cell.get(name, variable).axes == variable.axes for cell in wanted)
    }


def _label(
    experiment: Experiment,
    flat: dict[str, np.ndarray],
    described: dict[str, Variable],
    steps: list[int],
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
        tail = variable.tail(steps)
        coords |= {each: (each, list(at)) for each, at in tail.items() if each not in coords}
        values = flat[name].reshape(sizes + [len(at) for at in tail.values()])
        attributes = {"long_name": variable.definition, "units": variable.units}
        data[name] = ([*dims, *tail], values, attributes)
    status = flat["status"]
    data["status"][2].update(flag_values=[s.value for s in Status], flag_meanings=_flags())
    if "audit" in data:
        data["audit"][2].update(flag_masks=list(FLAGS), flag_meanings=" ".join(FLAGS.values()))
    attrs = {
        "experiment": canonical(experiment.as_dict()),
        "numerics": NUMERICS,
        "runs": len(status),
        **{f"runs_{s.name.lower()}": count for s, count in counts_of(status).items()},
    }
    return xr.Dataset(data, coords, attrs)


def _flags() -> str:
    return " ".join(s.name.lower() for s in Status)


def _coordinates(experiment: Experiment, dim: Dimension) -> dict[str, Any]:
    """Return the coordinate of a dimension, and for zipped fields one coordinate each."""
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


def _attributes(experiment: Experiment, path: Path) -> dict[str, str]:
    """Return the long name of a field and the symbol of the papers."""
    owner = experiment
    for name in path[:-1]:
        owner = getattr(owner, name)
    described = {"long_name": short_name(type(owner), path[-1])}
    return described | ({"symbol": SYMBOLS[path[-1]]} if path[-1] in SYMBOLS else {})


def short_name(owner: type[Spec], field: str) -> str:
    """Return the label of a field: its docstring up to the first remark, without code."""
    description = descriptions(owner).get(field, field)
    return re.split(r"[,;:] |(?<!/) \(", description)[0].replace("`", "")
