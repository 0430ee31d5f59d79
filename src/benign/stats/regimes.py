"""The regimes that the papers distinguish: benign overfitting, harmful overfitting, and no fit.

A run fits if at its end it classifies every training point correctly, attacked as in training (Wang Theorem 3.1; a
loss below log 2 / N implies it). A fit is benign if fresh points are classified correctly too, or have a small loss
(Jiang Theorem 4.1, Zhang Theorem 1), and harmful otherwise (Jiang Theorem 4.2). Training labels may be flipped, and a
fit must reproduce the flipped ones; fresh labels are never flipped, so 0.95 means an error of 0.05 above the noise
(Wang).
"""

from __future__ import annotations

from enum import IntEnum

import xarray as xr

from benign.sweep.dataset import ended

RIGHT = 0.95
"""default accuracy on fresh points from which on a fit is called benign"""


class Regime(IntEnum):
    """The regime of a run, from worst to best."""

    NOT_FITTED = 0
    HARMFUL = 1
    BENIGN = 2

    @property
    def words(self) -> str:
        return self.name.lower().replace("_", " ")


def regimes(
    result: xr.Dataset, variable: str = "test_accuracy", level: float | None = None
) -> xr.DataArray:
    """Return the regime of every run, NaN for missing and failed ones; a diverged run does not fit.

    A fit is benign if an accuracy is at least `level` (default 0.95), or if a loss or an error is at most `level`.
    """
    good, fits = _good(result, variable, level), _fitted(result) == 1
    codes = xr.where(fits, xr.where(good, Regime.BENIGN, Regime.HARMFUL), Regime.NOT_FITTED)
    known = ended(result) & (~fits | result[variable].notnull())
    named = {dim: result[dim] for dim in codes.dims if dim in result.coords}  # with their meanings
    return codes.where(known).assign_coords(named).rename("regime")


def majority_regime(codes: xr.DataArray, seed_dim: str = "seed") -> xr.DataArray:
    """Return the regime of most seeds of a cell; the worst one if several are equally frequent."""
    counts = xr.concat([(codes == each).sum(seed_dim) for each in Regime], "regime")
    return counts.argmax("regime").where(codes.notnull().any(seed_dim))


def rule(variable: str, level: float | None) -> str:
    """Return the condition under which `regimes` calls a fit benign, in signs.

    >>> rule("robust_accuracy", None)
    'robust accuracy ≥ 0.95'
    """
    if variable.endswith("accuracy"):
        return f"{variable.replace('_', ' ')} ≥ {RIGHT if level is None else level:g}"
    return f"{variable.replace('_', ' ')} ≤ {level:g}"


def definition(variable: str, level: float | None) -> str:
    """Return what `regimes` calls benign and harmful, in words."""
    condition = rule(variable, level).replace("≥", "is at least").replace("≤", "is at most")
    return (
        f"Benign: every training point is classified correctly at the end, and {condition}. "
        "Harmful: only the former."
    )


def _good(result: xr.Dataset, variable: str, level: float | None) -> xr.DataArray:
    """Return which runs do well on fresh points."""
    if variable not in result:
        raise ValueError(f"no variable {variable!r}; this result has {', '.join(map(str, result))}")
    if variable.endswith("accuracy"):
        return result[variable] >= (RIGHT if level is None else level)
    if not variable.endswith(("loss", "error")):
        raise ValueError(
            f"`variable` must be an accuracy, a loss or an error of fresh points, such as "
            f"'test_accuracy', got {variable!r}"
        )
    if level is None:
        raise ValueError(
            f"`level` must be given: the largest {variable!r} of a benign fit (Jiang Figure 1b: 0.2 nats)"
        )
    return result[variable] <= level


def _fitted(result: xr.Dataset) -> xr.DataArray:
    """Return the training accuracy, under the training attack if there is one."""
    if "train_accuracy" not in result:
        raise ValueError("no variable 'train_accuracy', which shows whether a run fits its points")
    clean, attacked = result["train_accuracy"], result.get("train_robust_accuracy")
    return clean if attacked is None else attacked.fillna(clean)
