"""The regimes the papers tell apart: overfitting that is benign, overfitting that does harm, and no fit at all.

A run fits when every training point is right at its end, attacked as in training (Wang Theorem 3.1; a loss below
log 2 / N implies it). A run that fits is benign when fresh points are right as well, or their loss is small (Jiang
Theorem 4.1, Zhang Theorem 1), and harmful when they are not (Jiang Theorem 4.2). Training labels may be flipped, and a
fit must get these as they are; fresh labels never are, so that 0.95 means an error of 0.05 above the noise (Wang).
"""

from __future__ import annotations

from enum import IntEnum

import xarray as xr

from benign.sweep.dataset import ended

RIGHT = 0.95
"""share of fresh points that are right from which on a fit is called benign, unless another is asked for"""


class Regime(IntEnum):
    """From worst to best."""

    NOT_FITTED = 0
    HARMFUL = 1
    BENIGN = 2

    @property
    def words(self) -> str:
        return self.name.lower().replace("_", " ")


def regimes(
    result: xr.Dataset, variable: str = "test_accuracy", level: float | None = None
) -> xr.DataArray:
    """The regime of every run, NaN where it is missing or has failed; one that diverged does not fit.

    A fit is benign where an accuracy is at least `level`, 0.95 if not given, or a loss or an error at most `level`.
    """
    good, fits = _good(result, variable, level), _fitted(result) == 1
    codes = xr.where(fits, xr.where(good, Regime.BENIGN, Regime.HARMFUL), Regime.NOT_FITTED)
    known = ended(result) & (~fits | result[variable].notnull())
    named = {dim: result[dim] for dim in codes.dims if dim in result.coords}  # with their meanings
    return codes.where(known).assign_coords(named).rename("regime")


def majority_regime(codes: xr.DataArray, seed_dim: str = "seed") -> xr.DataArray:
    """The regime of most seeds of a cell; of equally many, the worst."""
    counts = xr.concat([(codes == each).sum(seed_dim) for each in Regime], "regime")
    return counts.argmax("regime").where(codes.notnull().any(seed_dim))


def rule(variable: str, level: float | None) -> str:
    """In signs, from where on `regimes` calls a fit benign.

    >>> rule("robust_accuracy", None)
    'robust accuracy ≥ 0.95'
    """
    if variable.endswith("accuracy"):
        return f"{variable.replace('_', ' ')} ≥ {RIGHT if level is None else level:g}"
    return f"{variable.replace('_', ' ')} ≤ {level:g}"


def definition(variable: str, level: float | None) -> str:
    """In words, what `regimes` calls benign."""
    told = rule(variable, level).replace("≥", "is at least").replace("≤", "is at most")
    return (
        f"Benign: every training point is right at the end, and {told}. Harmful: only the former."
    )


def _good(result: xr.Dataset, variable: str, level: float | None) -> xr.DataArray:
    """Where fresh points are as they should be."""
    if variable not in result:
        raise ValueError(f"no variable {variable!r}; this result has {', '.join(map(str, result))}")
    if variable.endswith("accuracy"):
        return result[variable] >= (RIGHT if level is None else level)
    if not variable.endswith(("loss", "error")):
        raise ValueError(
            f"regimes are told by an accuracy, a loss or an error of fresh points, got {variable!r}: "
            "name one of them, for example 'test_accuracy'"
        )
    if level is None:
        raise ValueError(
            f"`level` must say up to which {variable!r} a fit is benign (Jiang Figure 1b: 0.2 nats)"
        )
    return result[variable] <= level


def _fitted(result: xr.Dataset) -> xr.DataArray:
    """The share of training points that are right, attacked where training attacks them."""
    if "train_accuracy" not in result:
        raise ValueError("no variable 'train_accuracy', which tells whether a run fits its points")
    clean, attacked = result["train_accuracy"], result.get("train_robust_accuracy")
    return clean if attacked is None else attacked.fillna(clean)
