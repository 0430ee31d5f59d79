"""Two audits of a sweep: whether its attacks can be trusted, and whether its step size decides what it shows."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from benign.experiment import Experiment
from benign.spec.axes import Axis
from benign.sweep.dataset import masked, masked_share
from benign.sweep.executors.base import ExecutionConfig
from benign.sweep.folders import open_result
from benign.sweep.progress import Watcher
from benign.sweep.runner import Runner
from benign.sweep.terminal import counted
from benign.sweep.text import value_text
from benign.training.descent import Status
from benign.training.metrics.audit import FLAGS, LEAST_RISE, RISE

SLOWER = (1, 2, 4)
"""the rate is divided by these, and the steps multiplied"""
AUDIT = "audit"
"""the folder of a rate audit, inside that of the result"""
COMPARED = ("train_loss", "test_loss", "test_accuracy", "robust_accuracy", "attention_on_signal")
MASKED = (
    f"masked: the evaluation attack raises the training loss by more than {100 * RISE:g} % (and {LEAST_RISE:g} nats): "
    "the network has learned to mislead the training attack; or it is the weaker one on fresh points: docs/attacks.md"
)
MOST_CELLS = 10
"""masked cells that are listed, those with the most masked runs first"""
MOVED = 0.02
"""change of a mean over seeds that counts; of a loss, relative to it"""


def flagged(result: xr.Dataset) -> str:
    """Return how many runs are doubtful, and why; empty if none is."""
    if "audit" not in result:
        return ""
    codes = result["audit"].fillna(0).astype(int)
    counts = {name: int(((codes & code) > 0).sum()) for code, name in FLAGS.items()}
    return ", ".join(
        f"{counted(count, 'run')} {name.replace('_', ' ')}"
        for name, count in counts.items()
        if count
    )


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
    if "train_loss_raised" in result:
        lines += _training_loss(result)
    if "robust_accuracy_certified" in result:
        lines.append(f"proven on fresh points: accuracy {_mean(result.robust_accuracy_certified)}")
    doubts = flagged(result)
    if not doubts:
        return [*lines, "no run is flagged: no attack is beaten by another, no contradiction"]
    lines.append(f"flagged: {doubts}")
    return [*lines, *_masked_cells(result), MASKED] if masked(result).any() else lines


def _training_loss(result: xr.Dataset) -> list[str]:
    """Return the training loss under both attacks, its largest ratio, and what is proven about it."""
    judged, rise = result["train_robust_loss"], result["train_loss_raised"]
    trained = judged - rise
    ends = (
        f"{_mean(trained)} under the training attack, {_mean(judged)} under the evaluation attack"
    )
    lines = [f"training loss: {ends}"]
    if (rise > LEAST_RISE).any():  # ratios of losses that are nearly 0 mean nothing
        ratio = float((judged / trained).where(rise > LEAST_RISE).max())
        lines[0] += f"; at most {ratio:.3g} times as large in a run"
    if "train_robust_loss_certified" in result:
        accuracy = _mean(result["train_robust_accuracy_certified"])
        most = _mean(result["train_robust_loss_certified"])
        lines.append(f"proven on training points: accuracy {accuracy}, robust loss at most {most}")
    return lines


def _masked_cells(result: xr.Dataset) -> list[str]:
    """Return how many runs are masked, and in which cells most of them are."""
    count, audited = int(masked(result).sum()), int(result["audit"].notnull().sum())
    share = masked_share(result)
    cells = (share if share.dims else share.expand_dims("cell")).to_series()
    worst = sorted(((v, at) for at, v in cells.items() if v > 0), key=lambda pair: -pair[0])
    lines = [f"masked: {count} of {audited} runs, in {len(worst)} of {share.size} cells"]
    for value, at in worst[:MOST_CELLS]:
        places = zip(share.dims, at if isinstance(at, tuple) else (at,), strict=False)
        cell = ", ".join(f"{dim} = {value_text(place)}" for dim, place in places)
        lines.append(f"  {cell or 'the only cell'}: {100 * value:.0f} % of its runs")
    more = len(worst) - MOST_CELLS
    return [*lines, f"  and {more} more cells"] if more > 0 else lines


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
