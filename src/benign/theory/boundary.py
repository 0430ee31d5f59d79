"""Where a heat map crosses a level, and the power law of that curve.

The phase transitions of Jiang et al. and Zhang et al. (Figure 1 of either) are statements of the
form `N SNR^2 = const`. Here the critical column (SNR*) is found in every row (N), and log SNR* is
regressed on log N, never the reverse: N is set by the experimenter and exact, SNR* is measured and
noisy. `row * column**p = c` then means slope -1/p.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike
from scipy import stats

from benign.theory.intervals import (
    Estimate,
    check_confidence,
    interval_text,
    mean_interval,
    number,
    t_quantile,
)

MIN_ROWS = 3  # two points determine the line and leave nothing to judge it by

_NAME = r"([A-Za-z_][\w.]*)"
_NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
_LAW = re.compile(rf"\s*{_NAME}\s*\*\s*{_NAME}\s*\*\*\s*(p|{_NUMBER})\s*(?:=\s*({_NUMBER})\s*)?")


@dataclass(frozen=True)
class Law:
    """`row * column**exponent = constant`; None is a free exponent `p` or a free constant."""

    row: str
    column: str
    exponent: float | None = None
    constant: float | None = None

    @classmethod
    def parse(cls, text: str) -> Law:
        """Read `samples * snr**p` (free) or `samples * snr**2 = 1000` (as printed in a paper)."""
        match = _LAW.fullmatch(text)
        if match is None:
            raise ValueError(
                "`law` must read 'row * column**p' or 'row * column**2 = 1000', "
                f"for example 'samples * snr**p', got {text!r}"
            )
        row, column, exponent, constant = match.groups()
        if row == column:
            raise ValueError(f"`law` must name two different dimensions, got {row!r} twice")
        law = cls(
            row,
            column,
            None if exponent == "p" else float(exponent),
            None if constant is None else float(constant),
        )
        if law.exponent == 0:
            raise ValueError(f"`law` needs an exponent other than 0, got {text!r}")
        if law.constant is not None and law.constant <= 0:
            raise ValueError(f"`law` needs a positive constant, got {text!r}")
        return law

    def curve(self, rows: ArrayLike) -> np.ndarray:
        """The column value at which the law holds, for each row value."""
        if self.exponent is None or self.constant is None:
            raise ValueError(
                f"`law` needs numbers for exponent and constant to be drawn, got {self}"
            )
        return (self.constant / np.asarray(rows, dtype=float)) ** (1 / self.exponent)

    def __str__(self) -> str:
        exponent = "p" if self.exponent is None else f"{self.exponent:g}"
        constant = "" if self.constant is None else f" = {self.constant:g}"
        return f"{self.row} * {self.column}**{exponent}{constant}"


@dataclass(frozen=True)
class PowerLaw:
    """Least squares of log column* on log row, written as `row * column**exponent = constant`.

    `slope` and `intercept` are those of log column* on log row; `exponent` is -1/slope. Intervals
    are Student's t with `rows - 2` degrees of freedom and take the rows as independent. That of the
    exponent is the image of the slope's; that of the constant is Fieller's, for the row at which
    the line meets column = 1. Both are unbounded when the slope's interval contains 0.
    """

    slope: float
    slope_interval: tuple[float, float]
    intercept: float
    exponent: float
    exponent_interval: tuple[float, float]
    constant: float
    constant_interval: tuple[float, float]
    r_squared: float
    rows: int

    @property
    def bounded(self) -> bool:
        """Whether the slope's interval excludes 0, so that the exponent is known at all."""
        return math.isfinite(self.exponent_interval[0])

    def curve(self, rows: ArrayLike) -> np.ndarray:
        """The fitted column value for each row value."""
        return np.exp(self.intercept + self.slope * np.log(np.asarray(rows, dtype=float)))


@dataclass(frozen=True, eq=False)
class Boundary:
    """The curve on which a map crosses `level`, and the law fitted to it.

    critical           over rows: first crossing of the seed mean, NaN where there is none. Its name
                       and attributes (long_name, units, symbol) are those of the column; `level`,
                       `rising` and `quantity` (the map's name) are added.
    critical_per_seed  over (row, seed): the same for each seed alone.
    reasons            over rows: why there is no critical value, "" where there is one.
    crossings          over rows: how often the seed mean crosses the level along the row.
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
    fit: PowerLaw | None
    reason: str

    def constant_for(self, exponent: float) -> Estimate:
        """c of `row * column**exponent = c`: geometric mean over rows, Student's t interval.

        Rows are taken as independent. Runs with common draws across cells share their luck: judge
        those by one constant per seed, from `critical_per_seed`.
        """
        rows, columns = _found(self.critical)
        if rows.size == 0:
            raise ValueError(
                f"no {self.law.row} row crosses level {self.level:g}: there is no constant"
            )
        logs = mean_interval(np.log(rows) + exponent * np.log(columns), self.confidence)
        return Estimate(*(_exp(value) for value in logs))

    def __str__(self) -> str:
        found = int(self.critical.notnull().sum())
        direction = "rises" if self.rising else "falls"
        lines = [
            f"{self.critical.attrs['quantity']} {direction} through {self.level:g} along "
            f"{self.law.column} in {found} of {self.critical.size} {self.law.row} rows"
        ]
        lines += [f"  {self.law.row} {rows}: {reason}" for reason, rows in self._remarks().items()]
        lines.append(f"  {self._law_text()}")
        return "\n".join(lines)

    def _remarks(self) -> dict[str, str]:
        """Everything unusual about single rows, each remark with the rows it holds for."""
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
            f"R^2 = {fit.r_squared:.3f}, {fit.rows} rows, {100 * self.confidence:g} % intervals"
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

    The crossing is that of the mean over seeds, interpolated linearly in log(column). The map rises
    or falls along the column, whichever it does on average over the rows; a row whose first value
    is already on the far side has no critical value. NaN means a missing run and is skipped. Without a
    `law` the two axes of the values make one, `samples * snr**p`; samples or dim are the rows.

    >>> import xarray as xr
    >>> import benign as bo
    >>> rows, columns = [4, 16], [0.5, 1.0, 2.0, 4.0]
    >>> accuracy = [[[0.5], [0.5], [0.9], [1.0]], [[0.5], [0.9], [1.0], [1.0]]]
    >>> coords = {"samples": rows, "snr": columns, "seed": [0]}
    >>> found = bo.boundary(xr.DataArray(accuracy, coords, ("samples", "snr", "seed")), level=0.7)
    >>> found.critical.values.round(3).tolist()  # the critical SNR of each N
    [1.414, 0.707]
    """
    if not isinstance(values, xr.DataArray):
        given = type(values).__name__
        raise ValueError(f"`values` must be one variable (result.test_accuracy), got a {given}")
    parsed = Law.parse(law or _law_of(_axes(values, seed_dim)))
    if parsed.exponent is not None or parsed.constant is not None:
        raise ValueError(f"`law` is to be fitted, so leave it free as '... **p', got {law!r}")
    check_confidence(confidence)
    if not math.isfinite(level):
        raise ValueError(f"`level` must be a finite number, got {level}")
    data = _prepared(values, parsed, seed_dim)
    columns = data[parsed.column]
    mean = data.mean(seed_dim).values
    rising = _rises(mean)

    def crossing(curve: np.ndarray) -> tuple[float, int, str]:
        return _crossing(columns.values, curve, level, rising, parsed.column)

    first, crossings, reasons = zip(*map(crossing, mean), strict=True)
    per_seed = [[crossing(curve)[0] for curve in row.T] for row in data.values]
    rows = {parsed.row: data[parsed.row]}
    attrs = columns.attrs | {
        "level": level,
        "rising": rising,
        "quantity": str(values.name or "the map"),
    }
    critical = xr.DataArray(list(first), rows, parsed.row, parsed.column, attrs)
    rows_and_seeds = rows | {seed_dim: data[seed_dim]}
    fit, reason = _fit(critical, confidence)
    return Boundary(
        law=parsed,
        level=level,
        rising=rising,
        confidence=confidence,
        critical=critical,
        critical_per_seed=xr.DataArray(
            per_seed, rows_and_seeds, (parsed.row, seed_dim), parsed.column, attrs
        ),
        reasons=xr.DataArray(list(reasons), rows, parsed.row, "reasons"),
        crossings=xr.DataArray(list(crossings), rows, parsed.row, "crossings"),
        fit=fit,
        reason=reason,
    )


def _axes(values: xr.DataArray, seed_dim: str) -> list[str]:
    return [str(dim) for dim in values.dims if dim != seed_dim]


def _law_of(axes: list[str]) -> str:
    """The law that two axes suggest: the sizes that an experimenter sets are the rows."""
    if len(axes) != 2:
        raise ValueError(
            f"a boundary needs two axes, and these values have {', '.join(axes) or 'none'}: "
            "select one entry of the others, or average over them"
        )
    row = next((size for size in ("samples", "dim") if size in axes), axes[0])
    [column] = [name for name in axes if name != row]
    return f"{row} * {column}**p"


def _prepared(values: xr.DataArray, law: Law, seed_dim: str) -> xr.DataArray:
    """`values` checked, as floats over (row, column, seed), rows and columns ascending."""
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


def _rises(curves: np.ndarray) -> bool:
    """Whether the curves, one per row, rise on average from first to last known value."""
    known = [curve[~np.isnan(curve)] for curve in curves]
    return bool(sum(curve[-1] - curve[0] for curve in known if curve.size) >= 0)


def _crossing(
    columns: np.ndarray, curve: np.ndarray, level: float, rising: bool, name: str
) -> tuple[float, int, str]:
    """First crossing of one curve, the number of its crossings, and the reason if there is none."""
    known = ~np.isnan(curve)
    columns, curve = columns[known], curve[known]
    if curve.size == 0:
        return math.nan, 0, "every value is missing"
    beyond = curve >= level if rising else curve <= level
    changes = np.flatnonzero(beyond[1:] != beyond[:-1])
    if beyond[0]:
        side = "above" if rising else "below"
        reason = f"already at or {side} {level:g} at the lowest {name}, {columns[0]:.3g}"
        return math.nan, changes.size, reason
    if changes.size == 0:
        side = "below" if rising else "above"
        return math.nan, 0, f"stays {side} {level:g} up to the highest {name}, {columns[-1]:.3g}"
    before, after = changes[0], changes[0] + 1
    fraction = (level - curve[before]) / (curve[after] - curve[before])
    critical = columns[before] * (columns[after] / columns[before]) ** fraction
    return float(critical), changes.size, ""


def _found(critical: xr.DataArray) -> tuple[np.ndarray, np.ndarray]:
    """Row values and critical columns of the rows that have one."""
    present = critical.dropna(str(critical.dims[0]))
    return present[critical.dims[0]].values.astype(float), present.values


def _fit(critical: xr.DataArray, confidence: float) -> tuple[PowerLaw | None, str]:
    """The power law through the known critical values, or the reason why there is none."""
    rows, columns = _found(critical)
    if rows.size < MIN_ROWS:
        return None, f"{rows.size} of {critical.size} rows cross the level, {MIN_ROWS} are needed"
    x, y = np.log(rows), np.log(columns)
    slope, _, correlation, _, error = map(float, stats.linregress(x, y))
    # scipy's error is NaN when all columns are equal: a line without residuals
    half = t_quantile(confidence, x.size - 2) * (0.0 if math.isnan(error) else error)
    slope_interval = (slope - half, slope + half)
    bounded = slope_interval[0] > 0 or slope_interval[1] < 0
    centre, height = float(x.mean()), float(y.mean())
    law = PowerLaw(
        slope=slope,
        slope_interval=slope_interval,
        intercept=height - slope * centre,
        exponent=-1 / slope if slope else math.inf,
        exponent_interval=_sorted(-1 / end for end in slope_interval)
        if bounded
        else (-math.inf, math.inf),
        constant=_exp(centre - height / slope) if slope else math.nan,
        constant_interval=(
            _sorted(_exp(centre + end) for end in _fieller(height, slope, half, float(x.var())))
            if bounded
            else (0.0, math.inf)
        ),
        r_squared=correlation**2,
        rows=x.size,
    )
    return law, ""


def _fieller(height: float, slope: float, half: float, spread: float) -> tuple[float, float]:
    """Fieller's interval for the zero of `height + slope * x`, x counted from the mean of the data.

    Every x with |height + slope x| <= half * sqrt(spread + x^2), where `half` is the half-width of
    the slope's interval and `spread` the variance of x over the data; bounded as half < |slope|.
    """
    leading = slope**2 - half**2
    root = half * math.sqrt(height**2 + leading * spread)
    return (-height * slope - root) / leading, (-height * slope + root) / leading


def _sorted(ends: Iterable[float]) -> tuple[float, float]:
    low, high = sorted(ends)
    return low, high


def _exp(value: float) -> float:
    """exp, infinite instead of an error where a barely determined constant overflows."""
    return math.exp(value) if value < 700 else math.inf
