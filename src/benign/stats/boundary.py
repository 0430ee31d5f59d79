"""Where a heat map crosses a level, and the power law of that curve.

The phase transitions of Jiang et al. and Zhang et al. (Figure 1 of either) are statements of the
form `N SNR^2 = const`. This module finds the critical column (SNR*) of every row (N) and regresses
log SNR* on log N (benign.stats.law). `row * column**p = c` then means slope -1/p.

With enough seeds, intervals come from a bootstrap over seeds, jointly over the map; otherwise from
the scatter of rows about the line. The uncertainty of the grid, whose columns only bracket a
crossing, is added. docs/own-lemma.md lists how often the intervals miss on maps with known laws
(tests/stats/test_rates.py). The bootstrap gives a standard error for Student's t: its plain
percentiles missed 7 to 27 % of trial maps at 5 %, and intervals without the grid's share up to all.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import xarray as xr
from scipy import stats

from benign.stats.crossing import Crossing, first_crossing, resampled_crossings
from benign.stats.intervals import Estimate, check_confidence, interval_text, number
from benign.stats.law import (
    ExponentTest,
    Law,
    LineErrors,
    PowerLaw,
    exp,
    line_weights,
    power_law,
    scatter_of,
)

MIN_ROWS = 3  # two points determine the line and leave no residual
ENOUGH_SEEDS = 4  # three seeds estimate their spread worse than the scatter of five rows does


@dataclass(frozen=True, eq=False)
class Boundary:
    """The curve on which a map crosses `level`, and the power law fitted to it.

    critical           over rows: first crossing of the seed mean, NaN without one. Its name
                       and attributes (long_name, units, symbol) are those of the column; `level`,
                       `rising` and `quantity` (the map's name) are added.
    critical_per_seed  over (row, seed): the same for each seed alone.
    reasons            over rows: why there is no critical value, "" if there is one.
    crossings          over rows: how often the seed mean crosses the level along the row.
    open               over (row, end): the range, from `low` to `high`, in which the grid leaves the
                       critical value undetermined.
    fit, reason        the power law and "", or None and why it could not be fitted.
    """

    law: Law
    level: float
    rising: bool
    confidence: float
    critical: xr.DataArray
    critical_per_seed: xr.DataArray
    reasons: xr.DataArray
    crossings: xr.DataArray
    open: xr.DataArray
    fit: PowerLaw | None
    reason: str
    resampled: np.ndarray | None
    """log column* of the bootstrap samples, [resamples, rows]; None for one seed"""

    def constant_for(self, exponent: float) -> Estimate:
        """Return c of `row * column**exponent = c`: the geometric mean over rows, with its interval."""
        known = self._known()
        if not known.any():
            raise ValueError(
                f"no {self.law.row} row crosses level {self.level:g}: there is no constant"
            )
        logs = np.log(self.critical[self.law.row].values[known].astype(float))
        logs = logs + exponent * np.log(self.critical.values[known])
        value, count = float(logs.mean()), logs.size
        scatter = np.atleast_2d(logs.var(ddof=1) / count) if count > 1 else np.zeros((1, 1))
        errors = self._errors(np.full((1, count), exponent / count), scatter, count - 1)
        half = errors.half_width(self.confidence) if errors.degrees else math.inf
        return Estimate(*(exp(end) for end in (value, value - half, value + half)))

    def exponent_is(self, exponent: float) -> ExponentTest:
        """Test whether the fitted law is compatible with an exponent: inside its interval or not, and the p-value."""
        if self.fit is None:
            raise ValueError(f"there is no fit to test: {self.reason}")
        return self.fit.exponent_is(exponent)

    def _known(self) -> np.ndarray:
        """Return which rows have a critical value."""
        return self.critical.notnull().values

    def _grid(self) -> np.ndarray:
        """Return the mean products of the grid's errors in the rows that cross.

        A crossing is taken as uniform between its two ends. The grid may err equally in all rows (as it does if its
        columns are spaced like the law's), and independently in each.
        """
        known = self._known()
        logs, ends = np.log(self.critical.values[known]), np.log(self.open.values[known])
        middle, half = ends.mean(1) - logs, np.ptp(ends, axis=1) / 2
        return np.outer(middle, middle) + (np.outer(half, half) + np.diag(half**2)) / 3

    def _errors(self, weights: np.ndarray, scatter: np.ndarray, degrees: int) -> LineErrors:
        """Return the errors of `weights @ log column*` over the rows that cross.

        `scatter` is its covariance by the scatter of rows alone.
        """
        known, grid = self._known(), self._grid()
        logs = np.log(self.critical.values[known])
        source, seeds = "rows", self.critical_per_seed.shape[1]
        if self.resampled is not None and seeds > min(ENOUGH_SEEDS - 1, degrees):
            moved = (self.resampled[:, known] - logs) @ weights.T
            scatter = np.atleast_2d(np.cov(moved.T)) * seeds / (seeds - 1)
            source, degrees = "seeds", seeds - 1
        return LineErrors(scatter, degrees, weights @ grid @ weights.T, source)

    def _fitted(self) -> tuple[PowerLaw | None, str]:
        """Return the power law through the critical values and "", or None and the reason."""
        known = self._known()
        count = int(known.sum())
        if count < MIN_ROWS:
            return None, f"{count} of {known.size} rows cross the level, {MIN_ROWS} are needed"
        rows = self.critical[self.law.row].values[known].astype(float)
        columns = self.critical.values[known]
        scatter = scatter_of(rows, columns)
        errors = self._errors(line_weights(rows), scatter, count - 2)
        if errors.source == "seeds" and self._misfits(rows, columns):
            source = "rows (they scatter more than seeds and grid explain: it may be no power law)"
            errors = LineErrors(scatter, count - 2, errors.grid, source)
        return power_law(rows, columns, errors, self.confidence), ""

    def _misfits(self, rows: np.ndarray, columns: np.ndarray) -> bool:
        """Return whether the residuals exceed what seeds and grid explain, at level 1 % (approximate chi^2 test)."""
        assert self.resampled is not None
        design = np.column_stack([np.ones_like(rows), np.log(rows)])
        off = np.eye(rows.size) - design @ np.linalg.pinv(design)
        seeds, known = self.critical_per_seed.shape[1], self._known()
        explained = np.atleast_2d(np.cov(self.resampled[:, known].T)) * seeds / (seeds - 1)
        explained = explained + self._grid()
        residual, degrees = float(np.sum((off @ np.log(columns)) ** 2)), rows.size - 2
        expected = float(np.trace(off @ explained))
        return bool(residual * degrees > expected * stats.chi2.ppf(0.99, degrees))

    def __str__(self) -> str:
        crossing = int(self.critical.notnull().sum())
        direction = "rises" if self.rising else "falls"
        lines = [
            f"{self.critical.attrs['quantity']} {direction} through {self.level:g} along "
            f"{self.law.column} in {crossing} of {self.critical.size} {self.law.row} rows"
        ]
        lines += [f"  {self.law.row} {rows}: {reason}" for reason, rows in self._remarks().items()]
        lines.append(f"  {self._law_text()}")
        return "\n".join(lines)

    def _remarks(self) -> dict[str, str]:
        """Return remarks on unusual rows, each with the rows it applies to."""
        remarks: dict[str, list[str]] = {}
        for row, reason, count in zip(
            self.critical[self.law.row].values,
            self.reasons.values,
            self.crossings.values,
            strict=True,
        ):
            if reason:
                remarks.setdefault(str(reason), []).append(f"{row:g}")
            if count > 1:
                which = "" if reason else ", the first is used"
                remarks.setdefault(f"crosses {count} times{which}", []).append(f"{row:g}")
        return {remark: ", ".join(rows) for remark, rows in remarks.items()}

    def _law_text(self) -> str:
        fit = self.fit
        if fit is None:
            return f"no fit: {self.reason}"
        text = (
            f"{self.law.row} * {self.law.column}**p = c with "
            f"p = {number(fit.exponent)} {interval_text(fit.exponent_interval)} and "
            f"c = {number(fit.constant)} {interval_text(fit.constant_interval)}; "
            f"slope {number(fit.slope)} {interval_text(fit.slope_interval)}, "
            f"R^2 = {fit.r_squared:.3f}, {fit.rows} rows, {100 * self.confidence:g} % intervals by "
            f"{fit.errors.source} and grid"
        )
        return text if fit.bounded else f"{text} (the slope may be 0: p and c are not determined)"


def boundary(
    values: xr.DataArray,
    level: float,
    law: str | None = None,
    seed_dim: str = "seed",
    confidence: float = 0.95,
) -> Boundary:
    """Find where `values` crosses `level` along the law's column in each row, and fit the law.

    The mean over seeds is interpolated linearly in log(column). The map rises or falls along the
    column, as it does on average over the rows; a row whose first value is already past the level
    has no critical value. NaN means a missing run and is skipped. Without a `law` the two axes of the
    values make one, `samples * snr**p`, with samples or dim as the rows. `found.exponent_is(2)` tests
    an exponent; `found.constant_for(2)` returns the constant at a given exponent.

    >>> import xarray as xr
    >>> import benign as bo
    >>> rows, columns = [4, 16], [0.5, 1.0, 2.0, 4.0]
    >>> accuracy = [[[0.5], [0.5], [0.9], [1.0]], [[0.5], [0.9], [1.0], [1.0]]]
    >>> coords = {"samples": rows, "snr": columns, "seed": [0]}
    >>> found = bo.boundary(xr.DataArray(accuracy, coords, ("samples", "snr", "seed")), level=0.7)
    >>> found.critical.values.round(3).tolist()  # the critical SNR of each N
    [1.414, 0.707]
    >>> print(found.constant_for(2))  # one seed and four columns leave much open
    8.00 [3.06, 20.9]
    """
    if not isinstance(values, xr.DataArray):
        given = type(values).__name__
        raise ValueError(f"`values` must be one variable (result.test_accuracy), got a {given}")
    parsed = Law.parse(law or _law_of(_axes(values, seed_dim)))
    if parsed.exponent is not None or parsed.constant is not None:
        raise ValueError(
            f"`law` is fitted here, so leave its exponent free as '... **p', got {law!r}"
        )
    check_confidence(confidence)
    if not math.isfinite(level):
        raise ValueError(f"`level` must be a finite number, got {level}")
    data = _prepared(values, parsed, seed_dim)
    columns = data[parsed.column]
    mean = data.mean(seed_dim).values
    rising = rises(mean)

    def crossing(curve: np.ndarray) -> Crossing:
        return first_crossing(columns.values, curve, level, rising, parsed.column)

    first = list(map(crossing, mean))
    per_seed = [[crossing(curve).column for curve in row.T] for row in data.values]
    rows = {parsed.row: data[parsed.row]}
    attrs = columns.attrs | {
        "level": level,
        "rising": rising,
        "quantity": str(values.name or "the map"),
    }

    def over_rows(entries: list, name: str, **coords: Any) -> xr.DataArray:
        return xr.DataArray(entries, rows | coords, (parsed.row, *coords), name)

    several = data.sizes[seed_dim] > 1
    found = Boundary(
        law=parsed,
        level=level,
        rising=rising,
        confidence=confidence,
        critical=over_rows([each.column for each in first], parsed.column).assign_attrs(attrs),
        critical_per_seed=over_rows(
            per_seed, parsed.column, **{seed_dim: data[seed_dim]}
        ).assign_attrs(attrs),
        reasons=over_rows([each.reason for each in first], "reasons"),
        crossings=over_rows([each.count for each in first], "crossings"),
        open=over_rows([[each.low, each.high] for each in first], "open", end=["low", "high"]),
        fit=None,
        reason="",
        resampled=(
            resampled_crossings(columns.values, data.values, level, rising) if several else None
        ),
    )
    fit, reason = found._fitted()
    return replace(found, fit=fit, reason=reason)


def _axes(values: xr.DataArray, seed_dim: str) -> list[str]:
    return [str(dim) for dim in values.dims if dim != seed_dim]


def _law_of(axes: list[str]) -> str:
    """Return the law that two axes suggest: samples or dim are the rows."""
    if len(axes) != 2:
        raise ValueError(
            f"a boundary needs two axes, and these values have {', '.join(axes) or 'none'}: "
            "select one entry of the others, or average over them"
        )
    row = next((size for size in ("samples", "dim") if size in axes), axes[0])
    [column] = [name for name in axes if name != row]
    return f"{row} * {column}**p"


def _prepared(values: xr.DataArray, law: Law, seed_dim: str) -> xr.DataArray:
    """Return checked `values` as floats over (row, column, seed), rows and columns ascending."""
    for dim in (law.row, law.column):
        if dim not in values.dims:
            axes = _axes(values, seed_dim)
            remedy = f": write law='{_law_of(axes)}'" if len(axes) == 2 else ""
            raise ValueError(f"`law` names {dim!r}, but the axes are {', '.join(axes)}{remedy}")
        if dim not in values.coords or not np.issubdtype(values[dim].dtype, np.number):
            raise ValueError(f"coordinate {dim!r} must hold numbers, one for each entry")
        if not (np.isfinite(values[dim]) & (values[dim] > 0)).all():
            raise ValueError(f"coordinate {dim!r} must be positive, got {values[dim].values}")
        if not values.indexes[dim].is_unique:
            raise ValueError(f"coordinate {dim!r} has repeated values: {values[dim].values}")
    extra = set(values.dims) - {law.row, law.column, seed_dim}
    if extra:
        raise ValueError(
            f"`values` must have dimensions {law.row}, {law.column} and perhaps {seed_dim}; "
            f"select one entry of, or average over, {', '.join(sorted(map(str, extra)))}"
        )
    if seed_dim not in values.dims:
        values = values.drop_vars(seed_dim, errors="ignore").expand_dims(seed_dim)
    data = (
        values.transpose(law.row, law.column, seed_dim).sortby([law.row, law.column]).astype(float)
    )
    if 0 in data.shape:
        raise ValueError(f"`values` must not be empty, got sizes {dict(data.sizes)}")
    if np.isinf(data.values).any():
        raise ValueError(
            "`values` must be finite or NaN (missing); mask infinite ones first: "
            "values.where(numpy.isfinite(values))"
        )
    return data


def rises(curves: np.ndarray) -> bool:
    """Return whether the curves, one for each row, rise on average from first to last known value."""
    known = [curve[~np.isnan(curve)] for curve in curves]
    return bool(sum(curve[-1] - curve[0] for curve in known if curve.size) >= 0)
