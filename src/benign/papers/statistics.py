"""Statistics that the recipes and claims of several papers share: cells, times, means, errors, boundaries."""

import numpy as np
import xarray as xr
from torch import Tensor

from benign.claims import Measured, Undecided, at_least, share
from benign.claims.measure import MOST_MISSING
from benign.experiment import Experiment
from benign.spec.axes import cells
from benign.stats.boundary import Boundary
from benign.sweep.dataset import ended
from benign.training.descent import Status
from benign.training.setup import Setup

MOST = at_least(0.8)
"""of a share of seeds: what is stated with high probability happens in most of them; 14 of 14 show this"""


def cells_of(experiment: Experiment) -> list[Setup]:
    """Return the cells of an experiment, in the order of the grid."""
    return [cell for _, cell in cells(experiment)]


def converged(result: xr.Dataset) -> xr.DataArray:
    """Return which runs reached their loss."""
    return result.status == Status.CONVERGED


def reached_loss(result: xr.Dataset) -> xr.DataArray:
    """Return 1 for runs that reached their loss, 0 for runs that ended otherwise, NaN for runs that did not end."""
    return converged(result).astype(float).where(ended(result))


def steps_to_loss(result: xr.Dataset) -> xr.DataArray:
    """Return T, the steps that a run took to its loss; NaN if it did not reach it."""
    return result.steps.where(converged(result))


def log_steps(result: xr.Dataset) -> xr.DataArray:
    """Return log T; NaN if a run did not reach its loss."""
    return np.log(result.steps.where(converged(result)))


def by_seed(values: xr.DataArray) -> np.ndarray:
    """Return the mean over all dimensions but the seed."""
    return values.mean([dim for dim in values.dims if dim != "seed"]).values


def rows_by_seed(values: xr.DataArray) -> np.ndarray:
    """Return the values of a map with a row for each seed, for `worst_of_runs`."""
    return values.transpose("seed", ...).values.reshape(values.sizes["seed"], -1)


def share_of_seeds(of: str, hits: xr.DataArray, known: xr.DataArray | None = None) -> Measured:
    """Return the share of seeds whose runs all hit: the cells of a seed are one trial, for a statement about all cells.

    Seeds with a run that is not `known` are left out. Raise Undecided if they are more than a fifth.
    """
    cells = [dim for dim in hits.dims if dim != "seed"]
    there = np.ones(hits.sizes["seed"], bool) if known is None else known.all(cells).values
    if there.sum() < (1 - MOST_MISSING) * there.size:
        raise Undecided(f"{of}: only {there.sum()} of {there.size} seeds have all runs")
    return share(of, hits.all(cells).values[there])


def relative_error(values: Tensor, expected: Tensor) -> float:
    """Return the largest difference, relative to the largest number expected."""
    return float((values - expected).abs().max() / expected.abs().max())


def boundary_slope(of: str, edge: Boundary, rows: str = "rows") -> Measured:
    """Return the slope of log column on log row along a boundary, with its interval."""
    if edge.fit is None:
        raise Undecided(f"{of}: {edge.reason}")
    fit = edge.fit
    basis = f"{fit.errors.source}, {fit.rows} {rows}"
    return Measured.by(of, lambda confidence: fit.at(confidence).growth, basis)
