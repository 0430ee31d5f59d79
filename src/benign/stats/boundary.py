"""Where a heat map crosses a level, and the power law of that curve.

The phase transitions of Jiang et al. and Zhang et al. (Figure 1 of either) are statements of the
form `N SNR^2 = const`. This module finds the critical column of every run (`runs`), fits a line of
log column* on log row to all of them, with effects of seeds (`censored`), and tests the fit
(`fit_test`). `row * column**p = c` then means slope -1/p. Rows that never cross count by the
column that they do not reach. Seeds are the replicates: intervals are Student's t over seeds, plus
what the grid leaves open. docs/statistics.md lists how often they cover.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import xarray as xr

from benign.stats.censored import CensoredFit, fit_censored
from benign.stats.crossing import Crossing, first_crossing
from benign.stats.fit_test import misfit
from benign.stats.intervals import Estimate, check_confidence, interval_text, number
from benign.stats.law import ExponentTest, Law, LineErrors, PowerLaw, exp, line_weights
from benign.stats.runs import RunCrossings, run_crossings

MIN_ROWS = 4
"""rows that must cross: with fewer, a line through them says nothing of a law"""
SHAPE_ERROR = 0.03
"""error of a critical value, in columns, that its transition's shape makes"""
NO_BOUNDARY = "no boundary at this level"
"""first words of the reason why there is no fit"""


@dataclass(frozen=True, eq=False)
class Boundary:
    """The curve on which a map crosses `level`, and the power law fitted to it.

    critical           over rows: first crossing of the seed mean, NaN without one. Its name
                       and attributes (long_name, units, symbol) are those of the column; `level`,
                       `rising` and `quantity` (the map's name) are added.
    critical_per_seed  over (row, seed): the same for each seed alone.
    reasons            over rows: why there is no critical value, "" if there is one.
    crossings          over rows: how often the seed mean crosses the level along the row.
    by_run             where each run crosses, with its transition's shape; from these the law is fitted.
    grid               over rows: the root mean square error of a critical value, in log column, that
                       the grid leaves and that all seeds have in common.
    fit, reason        the power law and "", or None and why there is none.
    """

    law: Law
    level: float
    rising: bool
    confidence: float
    critical: xr.DataArray
    critical_per_seed: xr.DataArray
    reasons: xr.DataArray
    crossings: xr.DataArray
    by_run: RunCrossings
    grid: np.ndarray
    fit: PowerLaw | None
    reason: str

    def constant_for(self, exponent: float) -> Estimate:
        """Return c of `row * column**exponent = c` with its interval: its logarithm is averaged over rows and seeds.

        It is the constant of the law if there is one; whether there is, `fit` says.
        """
        known = self._known()
        if not known.any():
            raise ValueError(
                f"no {self.law.row} row crosses level {self.level:g}: there is no constant"
            )
        fitted = fit_censored(self._log_constants(exponent), np.ones((known.size, 1)))
        weights = np.full((1, int(known.sum())), exponent / known.sum())
        errors = self._errors(fitted, weights, 1)
        value = float(fitted.coefficients[0])
        half = errors.half_width(self.confidence) if errors.degrees else math.inf
        return Estimate(*(exp(end) for end in (value, value - half, value + half)))

    def _log_constants(self, exponent: float) -> RunCrossings:
        """Return log(row * column**exponent) of the runs."""
        logs = np.log(self.critical[self.law.row].values.astype(float))[:, None]
        ends = logs + exponent * self.by_run.low, logs + exponent * self.by_run.high
        return RunCrossings(np.minimum(*ends), np.maximum(*ends))

    def exponent_is(self, exponent: float) -> ExponentTest:
        """Test whether the fitted law is compatible with an exponent: inside its interval or not, and the p-value."""
        if self.fit is None:
            raise ValueError(f"there is no fit to test: {self.reason}")
        return self.fit.exponent_is(exponent)

    def _known(self) -> np.ndarray:
        """Return which rows have a critical value."""
        return self.critical.notnull().values

    def _errors(self, fitted: CensoredFit, weights: np.ndarray, coefficients: int) -> LineErrors:
        """Return the errors of fitted coefficients, which `weights` makes of the rows' log column* without censoring.

        The grid may err equally in all rows (as it does if its columns are spaced like the law's), and independently
        in each: both are counted.
        """
        off = self.grid[self._known()]
        grid = weights @ (np.outer(off, off) + np.diag(off**2)) @ weights.T
        seeds = fitted.replicates
        if seeds > 1:
            pseudo = fitted.pseudo[np.isfinite(fitted.pseudo).all(1)]
            draws = np.atleast_2d(np.cov(pseudo.T)) / seeds
            return LineErrors(draws, seeds - 1, grid, f"{seeds} seeds")
        degrees = int(self.by_run.known.sum()) - coefficients
        return LineErrors(fitted.model, degrees, grid, "the rows of one seed")

    def _fitted(self, misfit: str) -> tuple[PowerLaw | None, str]:
        """Return the power law and "", or None and the reason, such as that the test of fit failed."""
        known = self._known()
        count = int(known.sum())
        if count < MIN_ROWS:
            few = f"{count} of {known.size} rows cross it, {MIN_ROWS} are needed"
            return None, f"{NO_BOUNDARY}: {few}"
        if misfit:
            return None, f"{NO_BOUNDARY}: {misfit}"
        rows = self.critical[self.law.row].values.astype(float)
        centre = float(np.log(rows[known]).mean())
        fitted = fit_censored(
            self.by_run, np.column_stack([np.ones(known.size), np.log(rows) - centre])
        )
        height, slope = map(float, fitted.coefficients)
        slope = 0.0 if abs(slope) < 1e-12 else slope
        points = np.log(self.critical.values[known])
        off = points - height - slope * (np.log(rows[known]) - centre)
        spread = points - points.mean()
        return PowerLaw(
            slope=slope,
            height=height,
            centre=centre,
            r_squared=1 - float(off @ off / (spread @ spread)) if spread.any() else 0.0,
            rows=count,
            errors=self._errors(fitted, line_weights(rows[known]), 2),
            confidence=self.confidence,
        ), ""

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
            return self.reason
        text = (
            f"{self.law.row} * {self.law.column}**p = c with "
            f"p = {number(fit.exponent)} {interval_text(fit.exponent_interval)} and "
            f"c = {number(fit.constant)} {interval_text(fit.constant_interval)}; "
            f"slope {number(fit.slope)} {interval_text(fit.slope_interval)}, "
            f"R^2 = {fit.r_squared:.3f}, {fit.rows} rows, {100 * fit.confidence:g} % intervals by "
            f"{fit.errors.source}"
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

    `critical` is the crossing of the mean over seeds, interpolated linearly in log(column). The map rises or falls
    along the column, as it does on average over the rows; a row whose first value is already past the level has no
    critical value, but counts in the fit. NaN means a missing run and is skipped. Without a `law` the two axes of the
    values make one, `samples * snr**p`, with samples or dim as the rows.

    The law is that of the typical run: log column* = line in log row + effect of the seed + scatter of the run, and its
    intervals count seeds. There is no fit (`found.fit` is None, `found.reason` says why) if fewer than four rows cross,
    or if the test of fit fails: rows that cross back, or critical values on no power law. `found.exponent_is(2)` tests
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
    12.3 [4.70, 32.4]
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
    places = columns.values
    mean = data.mean(seed_dim).values
    rising = rises(mean)

    def crossing(curve: np.ndarray) -> Crossing:
        return first_crossing(places, curve, level, rising, parsed.column)

    first = list(map(crossing, mean))
    per_run = [[crossing(curve) for curve in row.T] for row in data.values]
    runs = run_crossings(places, data.values, level, rising)
    grid = _grid_errors(places, per_run, runs)
    logs = np.log(data[parsed.row].values)
    rows = {parsed.row: data[parsed.row]}
    attrs = columns.attrs | {
        "level": level,
        "rising": rising,
        "quantity": str(values.name or "the map"),
    }

    def over_rows(entries: list, name: str, **coords: Any) -> xr.DataArray:
        return xr.DataArray(entries, rows | coords, (parsed.row, *coords), name)

    found = Boundary(
        law=parsed,
        level=level,
        rising=rising,
        confidence=confidence,
        critical=over_rows([each.column for each in first], parsed.column).assign_attrs(attrs),
        critical_per_seed=over_rows(
            [[each.column for each in row] for row in per_run],
            parsed.column,
            **{seed_dim: data[seed_dim]},
        ).assign_attrs(attrs),
        reasons=over_rows([each.reason for each in first], "reasons"),
        crossings=over_rows([each.count for each in first], "crossings"),
        by_run=runs,
        grid=grid,
        fit=None,
        reason="",
    )
    fit, reason = found._fitted(misfit(data.values, level, rising, runs, logs, grid**2))
    return replace(found, fit=fit, reason=reason)


def boundary_shift(first: Boundary, second: Boundary, exponent: float = 2.0) -> xr.DataArray:
    """Return log(c_second / c_first) of `row * column**exponent = c` by seed, for two boundaries of the same runs.

    The difference of log column* is taken run by run, so neither the rows that cross nor the effect of a seed on both
    matter. Where one boundary lies beyond the grid its last column is a bound of the difference; rows where both do say
    nothing. Each seed has its pseudo-value of the jackknife (with complete data its mean over rows), NaN if it says
    nothing. Student's t over seeds gives the interval.
    """
    if not first.critical_per_seed.coords.equals(second.critical_per_seed.coords):
        raise ValueError("the two boundaries must be of the same rows and seeds")
    apart = second.by_run.less(first.by_run)
    if (apart.informative.any(1)).sum() < 2 or not apart.known.any():
        rows = int(apart.known.any(1).sum())
        raise ValueError(
            f"both boundaries cross in only {rows} of {len(apart.low)} {first.law.row} rows"
        )
    fitted = fit_censored(apart, np.ones((len(apart.low), 1)))
    values = fitted.pseudo[:, 0] if fitted.replicates > 1 else fitted.coefficients
    [seed_dim] = [dim for dim in first.critical_per_seed.dims if dim != first.law.row]
    seeds = {seed_dim: first.critical_per_seed[seed_dim]}
    return xr.DataArray(exponent * values, seeds, (seed_dim,), "log(c_second / c_first)")


def _grid_errors(
    columns: np.ndarray, per_run: list[list[Crossing]], runs: RunCrossings
) -> np.ndarray:
    """Return the root mean square error of each row's log column* that the grid leaves in all seeds alike.

    Between two columns the place of a crossing is open in a range g (`Crossing.low` to `high`). Rounding to the middle
    of g errs by at most g / 2, periodically in the place. Seeds that scatter by s average the harmonics of this error:
    its mean square is g^2 / (2 pi^2) * sum over k of exp(-(2 pi k s / g)^2) / k^2, and g^2 / 12 if they do not scatter.
    Added is the error of a crossing whose shape is not quite the fitted one.
    """
    opened = np.array([[np.log(each.high / each.low) for each in row] for row in per_run])
    crossed = np.isfinite(opened)
    ranges = np.where(crossed, opened, 0.0).sum(1) / np.maximum(crossed.sum(1), 1)
    known = runs.known
    count = known.sum(1, keepdims=True)
    values = np.where(known, runs.low, 0.0)
    off = np.where(known, values - values.sum(1, keepdims=True) / np.maximum(count, 1), 0.0)
    degrees = int(np.maximum(count - 1, 0).sum())
    scatter = math.sqrt(float((off**2).sum()) / degrees) if degrees else 0.0
    k = np.arange(1, 30)
    with np.errstate(divide="ignore"):
        phase = 2 * math.pi * k * scatter / np.maximum(ranges, 1e-12)[:, None]
    sums = (np.exp(-(phase**2)) / k**2).sum(1)
    shape = SHAPE_ERROR * float(np.median(np.diff(np.log(columns)))) if columns.size > 1 else 0.0
    return np.hypot(ranges * np.sqrt(sums / 2) / math.pi, shape)


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
        places = values[dim].values
        if not (np.isfinite(places) & (places > 0)).all():
            raise ValueError(f"coordinate {dim!r} must be positive, got {places}")
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
    data = values.transpose(law.row, law.column, seed_dim).astype(float)
    for dim in (law.row, law.column):
        if (np.diff(data[dim].values) < 0).any():
            data = data.sortby(dim)
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
