"""Two audits of a sweep: whether its attacks can be trusted, and whether its step size decides what it shows."""

import json
import math
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from benign.experiment import Experiment
from benign.spec.axes import Axis
from benign.sweep.dataset import masked
from benign.sweep.ends import REASONS, doubts, other_doubts
from benign.sweep.executors.base import ExecutionConfig
from benign.sweep.folders import open_result
from benign.sweep.progress import Watcher
from benign.sweep.records import replacing
from benign.sweep.runner import Runner
from benign.sweep.terminal import counted
from benign.sweep.text import table, value_text
from benign.training.descent import Status
from benign.training.metrics.audit import LEAST_RISE

SLOWER = (1, 2, 4)
"""the rate is divided by these, and the steps multiplied"""
AUDIT = "audit"
"""the folder of a rate audit, inside that of the result"""
COMPARED = ("train_loss", "test_loss", "test_accuracy", "robust_accuracy", "attention_on_signal")
ATTACKS = "attacks.json"
"""the file of an attack audit, in the folder of the result"""
MOST_CELLS = 10
"""cells that are listed, those with the most masked runs and the largest rise of the training loss first"""
MOVED = 0.02
"""change of a mean over seeds that counts; of a loss, relative to it"""


def attack_audit(result: xr.Dataset) -> list[str]:
    """Return lines that compare the training attack, the evaluation attack and the certificates of a result."""
    if "audit" not in result:
        return ["no attack was used, so there is nothing to audit"]
    lines = [f"{int(result['audit'].notnull().sum())} runs with an attack"]
    pairs = [
        ("fresh points", "robust_accuracy_training_attack", "robust_accuracy"),
        ("training points", "train_robust_accuracy", "train_robust_accuracy_judged"),
    ]
    for points, trained, judged in pairs:
        if trained in result and judged in result:
            gap = result[trained] - result[judged]
            lines.append(
                f"{points}: accuracy {_mean(result[trained])} under the training attack, "
                f"{_mean(result[judged])} under the evaluation attack; largest gap {float(gap.max()):.3g}"
            )
    if RAISED in result:
        lines += [_training_loss(result), *_cells(result)]
    if "train_robust_loss_certified" in result:
        accuracy = _mean(result["train_robust_accuracy_certified"])
        most = _mean(result["train_robust_loss_certified"])
        lines.append(f"proven on training points: accuracy {accuracy}, robust loss at most {most}")
    if "robust_accuracy_certified" in result:
        lines.append(f"proven on fresh points: accuracy {_mean(result.robust_accuracy_certified)}")
    return [*lines, *(doubts(result) or ["no run is masked or flagged"])]


RAISED = "train_loss_raised"
TRAINED, JUDGED = "under the training attack", "under the evaluation attack"


def _training_loss(result: xr.Dataset) -> str:
    """Return the training loss under both attacks, and how far the evaluation attack raises it."""
    judged, rise = result["train_robust_loss"], result[RAISED]
    text = f"training loss: {_mean(judged - rise)} {TRAINED}, {_mean(judged)} {JUDGED}"
    ratio = _ratio(judged, rise)
    return text if math.isnan(ratio) else f"{text}; at most {ratio:.3g} times as large in a run"


def _ratio(judged: xr.DataArray, rise: xr.DataArray) -> float:
    """Return the largest ratio of both losses in a run; NaN if none is raised: ratios of tiny losses mean nothing."""
    counts = rise > LEAST_RISE
    return float((judged / (judged - rise)).where(counts).max()) if counts.any() else math.nan


def _cells(result: xr.Dataset) -> list[str]:
    """Return a table of the cells in which the evaluation attack raises the training loss most."""
    rises = [(cell["raised"] or 0.0, cell) for cell in attack_cells(result)]
    cells = [cell for rise, cell in rises if rise > LEAST_RISE or cell["masked"]]
    cells.sort(key=lambda cell: (-cell["masked"] / cell["audited"], -(cell["raised"] or 0.0)))
    if not cells:
        return []
    heads = ["masked runs", f"loss {TRAINED}", JUDGED, "most in a run"]
    rows = [[*cells[0]["cell"], *heads]]
    for cell in cells[:MOST_CELLS]:
        most = cell["largest_ratio"]
        rows.append(
            [
                *(value_text(value) for value in cell["cell"].values()),
                f"{cell['masked']} of {cell['audited']}",
                *(_text(cell[name]) for name in ("train_loss", "train_robust_loss")),
                f"{_text(most)} times" if most else "",
            ]
        )
    more = len(cells) - MOST_CELLS
    rest = [f"  and {counted(more, 'more cell')}: {ATTACKS} lists all"] if more > 0 else []
    return [*(f"  {line}" for line in table(rows)), *rest]


def _text(number: float | None) -> str:
    return "" if number is None else f"{number:.3g}"


def attack_cells(result: xr.Dataset) -> list[dict[str, Any]]:
    """Return the masked runs of every cell with an audit, and its mean training losses under both attacks."""
    if "audit" not in result:
        return []
    parts = {"masked": masked(result), "audited": result["audit"].notnull()}
    if RAISED in result:
        parts |= {"judged": result["train_robust_loss"], "rise": result[RAISED]}
    runs = xr.Dataset(parts)
    runs = runs if "seed" in runs.dims else runs.expand_dims("seed")
    dims = [str(dim) for dim in runs.dims if dim != "seed"]
    fields = {name for dim in dims for name in _fields(runs, dim)}
    cells = []
    for index in np.ndindex(*(runs.sizes[dim] for dim in dims)):
        cell = runs.isel(dict(zip(dims, index, strict=True)))
        if not cell["audited"].any():
            continue
        counts = {name: int(cell[name].sum()) for name in ("audited", "masked")}
        where = {name: cell[name].item() for name in runs.coords if name in fields}
        cells.append({"cell": where, **counts, **_losses(cell)})
    return cells


def _fields(runs: xr.Dataset, dim: str) -> list[str]:
    """Return the coordinate of an axis, or those of the fields that vary together along it."""
    named = [str(name) for name, each in runs.coords.items() if each.dims == (dim,) and name != dim]
    return named or [dim]


def _losses(cell: xr.Dataset) -> dict[str, float | None]:
    """Return the training losses of a cell under both attacks."""
    if "rise" not in cell:
        return {}
    judged, rise = cell["judged"], cell["rise"]
    numbers = {
        "train_loss": float((judged - rise).mean()),
        "train_robust_loss": float(judged.mean()),
        "raised": float(rise.mean()),
        "largest_ratio": _ratio(judged, rise),
    }
    return {name: None if math.isnan(number) else number for name, number in numbers.items()}


def store_attack_audit(result: xr.Dataset, folder: Path) -> Path:
    """Write the attack audit of a result into its folder, cell by cell, as JSON; return the file."""
    content = {
        "numerics": result.attrs.get("numerics"),
        "masked_if": ", or ".join(REASONS.values()),
        "audited": int(result["audit"].notnull().sum()),
        "masked": int(masked(result).sum()),
        "flags": other_doubts(result),
        "cells": attack_cells(result),
    }
    file = folder / ATTACKS
    with replacing(file) as out:
        out.write(json.dumps(content, indent=1, ensure_ascii=False).encode())
    return file


def slower(experiment: Experiment, factor: int) -> Experiment:
    """Return the experiment with a smaller rate and more steps: equal rate x steps, equal draws.

    Raises ValueError if the training does not name the fields that make its steps more.
    """
    fields, training = experiment.as_dict(), experiment.training
    fields["training"]["rate"] = _divided(training.rate, factor)
    for name in {"first_attacked_step", *training.in_steps}:
        fields["training"][name] *= factor
    slowed = Experiment.from_dict({**fields, "pairing": "common"})
    steps, wanted = slowed.training.most_steps(), factor * training.most_steps()
    if steps != wanted:
        raise ValueError(
            f"`training` is {training.kind}, which makes {steps} steps at most, not {wanted}, with a rate divided by "
            f"{factor}: name the fields that are a number of steps in its `in_steps`"
        )
    return slowed


def rate_audit(
    experiment: Experiment,
    folder: Path,
    config: ExecutionConfig = ExecutionConfig(),  # noqa: B008
    watcher: Watcher | None = None,
) -> list[str]:
    """Run at the rate, half and a quarter of it, each in a folder of its own; return in lines what moved.

    A number that changes with the rate at equal rate x steps is not a property of gradient flow.
    """
    results = [
        Runner(slower(experiment, factor), folder / f"rate_{factor}", config).run(watcher)
        for factor in SLOWER
    ]
    lines = ["means at the rate, half and a quarter of it; cells whose mean over seeds moved"]
    for name in COMPARED:
        if all(name in result for result in results):
            lines.append(_compared(name, [_sound(result)[name] for result in results]))
    ended = ", ".join(str(int((r.status == Status.CONVERGED).sum())) for r in results)
    return [*lines, f"converged runs: {ended} of {results[0].status.size}"]


def _compared(name: str, values: list[xr.DataArray]) -> str:
    means = [value.mean("seed") for value in values]
    change = np.abs(means[-1] - means[0])
    moved = int(_moved(name, means[0], means[-1]).sum())
    values_text = ", ".join(f"{float(mean.mean()):.3g}" for mean in means)
    return f"{name}: {values_text}; {moved} of {means[0].size} cells moved, at most by {float(change.max()):.2g}"


def _moved(name: str, fast: xr.DataArray, slow: xr.DataArray) -> xr.DataArray:
    """Return 1 for cells whose mean over seeds moved, 0 for the others, NaN for cells without a mean."""
    change = abs(slow - fast)
    scale = abs(slow) if name.endswith("loss") else 1.0
    return (change > MOVED * scale).astype(float).where(change.notnull())


def with_rate_audit(result: xr.Dataset, folder: Path) -> xr.Dataset:
    """Return the result with the outcome of the audit of its step size, for figures; unchanged if there was no audit.

    Every variable that the audit compared gets a companion, such as `test_loss_moved`, over the cells of the result.
    """
    places = [folder / AUDIT / f"rate_{factor}" for factor in (SLOWER[0], SLOWER[-1])]
    if not all(place.is_dir() for place in places):
        return result
    with warnings.catch_warnings(action="ignore"):  # the audit has reported failed runs
        fast, slow = (_sound(open_result(place)) for place in places)
    moves = []
    for name in COMPARED:
        if name in fast and name in result and set(fast[name].dims) == set(result[name].dims):
            moved = _moved(name, fast[name].mean("seed"), slow[name].mean("seed"))
            moves.append(
                f"{name.replace('_', ' ')} in {int(moved.sum())} of {int(moved.count())} cells"
            )
            here = {dim: result[dim] for dim in moved.dims}
            result = result.assign({f"{name}_moved": moved.reindex(here)})
    seeds = fast.sizes["seed"]
    of = "1 seed" if seeds == 1 else f"{seeds} seeds"
    note = f"Step-size audit, {of}: a quarter of the rate moves {', '.join(moves)}."
    return result.assign_attrs(rate_audit=note)


def _sound(result: xr.Dataset) -> xr.Dataset:
    return result.where(result["status"].isin([Status.CONVERGED, Status.STEP_CAP]))


def _mean(value: xr.DataArray) -> str:
    return f"{float(value.mean()):.3g}"


def _divided(rate: Any, factor: int) -> Any:
    if not isinstance(rate, Axis):
        return rate / factor
    values = [each / factor for each in rate.values]
    return {"zipped": rate.group, "values": values} if rate.group else values
