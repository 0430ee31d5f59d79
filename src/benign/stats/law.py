"""The law of a boundary: how it is written, and how well critical values determine it.

log column* is regressed on log row, never the reverse: rows are set by the experimenter and exact,
critical columns are measured. Their errors have two sources, which `LineErrors` keeps apart: draws
(seeds; for one seed the scatter of rows about the line) and the grid, whose columns only bracket a crossing.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from benign.stats.intervals import Estimate, interval_text, normal_quantile, t_quantile

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
        """Return the law of a text: `samples * snr**p` (free) or `samples * snr**2 = 1000` (as printed in a paper)."""
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
        """Return the column value at which the law holds, for each row value."""
        if self.exponent is None or self.constant is None:
            raise ValueError(
                f"`law` needs numbers for exponent and constant to be drawn, got {self}"
            )
        return (self.constant / np.asarray(rows, dtype=float)) ** (1 / self.exponent)

    def __str__(self) -> str:
        exponent = "p" if self.exponent is None else f"{self.exponent:g}"
        constant = "" if self.constant is None else f" = {self.constant:g}"
        return f"{self.row} * {self.column}**{exponent}{constant}"


@dataclass(frozen=True, eq=False)
class LineErrors:
    """The errors of the line's `(height, slope)`; height is log column* at the mean log row.

    `draws` is a covariance with `degrees` degrees of freedom; `grid` is the mean square error of a
    crossing between two columns. A half-width adds two terms in squares: Student's t quantile for
    `draws` and the normal quantile for `grid`.
    """

    draws: np.ndarray
    degrees: int
    grid: np.ndarray
    source: str
    """the source of `draws`: `5 seeds`, or the rows of a single one"""

    def squares(self, confidence: float) -> np.ndarray:
        """Return the matrix of squared half-widths: entry (i, i) is that of the i-th number."""
        t, z = t_quantile(confidence, self.degrees), normal_quantile(confidence)
        return t**2 * self.draws + z**2 * self.grid

    def along(self, direction: ArrayLike) -> LineErrors:
        """Return the errors of one number, `direction @ (height, slope)`."""
        d = np.atleast_2d(np.asarray(direction, dtype=float))
        return LineErrors(d @ self.draws @ d.T, self.degrees, d @ self.grid @ d.T, self.source)

    def half_width(self, confidence: float) -> float:
        """Return the half-width of the only number."""
        return math.sqrt(self.squares(confidence).item())

    def p_value(self, distance: float) -> float:
        """Return 1 minus the confidence at which the interval of the only number ends at this distance.

        >>> errors = LineErrors(np.array([[1.0]]), 10, np.array([[0.0]]), "seeds")
        >>> round(errors.p_value(2.228139), 6)  # the 97.5 % quantile of Student's t
        0.05
        """
        distance = abs(distance)
        if distance <= self.half_width(TINY):  # 0 up to rounding
            return 1.0
        if distance >= self.half_width(1 - TINY):
            return TINY

        from scipy.optimize import root_scalar  # not above: the import takes 0.2 s

        def beyond(chance: float) -> float:
            return self.half_width(1 - chance) - distance

        return float(root_scalar(beyond, bracket=(TINY, 1), xtol=TINY).root)


TINY = 1e-12
"""the smallest p-value that is reported"""


@dataclass(frozen=True)
class ExponentTest:
    """The test of an exponent against the critical values."""

    exponent: float
    inside: bool
    """whether the confidence interval contains it"""
    p_value: float
    """the probability that a law with this exponent gives a fit at least as far away"""
    fitted: Estimate
    source: str

    def __bool__(self) -> bool:
        return self.inside

    def __str__(self) -> str:
        verdict = "inside" if self.inside else "outside"
        interval = interval_text((self.fitted.low, self.fitted.high))
        return f"exponent {self.exponent:g} is {verdict} {interval} (p = {self.p_value:.2g}, by {self.source})"


@dataclass(frozen=True)
class PowerLaw:
    """The line of log column* on log row, written as `row * column**exponent = constant`.

    `slope` and `height` belong to the line; `exponent` is -1/slope. The interval of the exponent is
    the image of the slope's; the interval of the constant is Fieller's (1954), for the row at which the
    line meets column = 1. Both are unbounded if the slope's interval contains 0. `errors` holds the
    sources of the intervals, and `at` gives the same law with intervals of another confidence.
    """

    slope: float
    height: float
    """log column of the line at `centre`"""
    centre: float
    """mean log row, at which the height of the line is most certain"""
    r_squared: float
    rows: int
    """number of rows whose mean crosses the level"""
    errors: LineErrors
    confidence: float

    def at(self, confidence: float) -> PowerLaw:
        """Return the same law with intervals of this confidence."""
        return replace(self, confidence=confidence)

    @property
    def _half(self) -> float:
        return math.sqrt(self.errors.squares(self.confidence)[1, 1])

    @property
    def slope_interval(self) -> tuple[float, float]:
        return self.slope - self._half, self.slope + self._half

    @property
    def intercept(self) -> float:
        return self.height - self.slope * self.centre

    @property
    def exponent(self) -> float:
        return -1 / self.slope if self.slope else math.inf

    @property
    def exponent_interval(self) -> tuple[float, float]:
        if not self.bounded:
            return -math.inf, math.inf
        return _sorted(-1 / end for end in self.slope_interval)

    @property
    def constant(self) -> float:
        return exp(self.centre - self.height / self.slope) if self.slope else math.nan

    @property
    def constant_interval(self) -> tuple[float, float]:
        if not self.bounded:
            return 0.0, math.inf
        ends = _fieller(self.height, self.slope, self.errors.squares(self.confidence))
        return _sorted(exp(self.centre + end) for end in ends)

    @property
    def growth(self) -> Estimate:
        """The power of the row with which the critical column grows, and its interval."""
        return Estimate(self.slope, *self.slope_interval)

    @property
    def bounded(self) -> bool:
        """Whether the slope's interval excludes 0, so that the exponent has a finite interval."""
        return abs(self.slope) > self._half

    def curve(self, rows: ArrayLike) -> np.ndarray:
        """Return the fitted column value for each row value."""
        return np.exp(self.intercept + self.slope * np.log(np.asarray(rows, dtype=float)))

    def band(self, rows: ArrayLike, confidence: float) -> tuple[np.ndarray, np.ndarray]:
        """Return the interval of the line at each row value, as columns."""
        x = np.log(np.asarray(rows, dtype=float))
        away = np.stack([np.ones_like(x), x - self.centre])
        half = np.sqrt(np.einsum("ir,ij,jr->r", away, self.errors.squares(confidence), away))
        line = self.intercept + self.slope * x
        return np.exp(line - half), np.exp(line + half)

    def exponent_is(self, exponent: float) -> ExponentTest:
        """Test an exponent by its slope, -1/exponent; this also works if the interval of the exponent is unbounded."""
        if exponent == 0:
            raise ValueError("`exponent` must not be 0: no boundary has a vertical law")
        low, high = self.slope_interval
        slope = -1 / exponent
        return ExponentTest(
            exponent=exponent,
            inside=low <= slope <= high,
            p_value=self.errors.along([0, 1]).p_value(self.slope - slope),
            fitted=Estimate(self.exponent, *self.exponent_interval),
            source=self.errors.source,
        )


def line_weights(rows: ArrayLike) -> np.ndarray:
    """Return weights [2, rows] that map log column* to `(height, slope)` of the least-squares line."""
    x = np.log(np.asarray(rows, dtype=float))
    centred = x - x.mean()
    return np.stack([np.full(x.size, 1 / x.size), centred / (centred @ centred)])


def _fieller(height: float, slope: float, squares: np.ndarray) -> tuple[float, float]:
    """Return Fieller's interval for the zero of `height + slope * x`, x measured from the mean of the data:

    every x with (height + slope x)^2 <= (1, x) squares (1, x)^T; bounded as slope^2 > squares[1, 1].
    """
    a = slope**2 - squares[1, 1]
    b = height * slope - squares[0, 1]
    c = height**2 - squares[0, 0]
    # The estimate itself is inside, so the discriminant is negative only by rounding.
    root = math.sqrt(max(b * b - a * c, 0.0))
    return (-b - root) / a, (-b + root) / a


def _sorted(ends: Iterable[float]) -> tuple[float, float]:
    low, high = sorted(ends)
    return low, high


def exp(value: float) -> float:
    """Return exp(value), or infinity on overflow: a barely determined constant may be that large."""
    return math.exp(value) if value < 700 else math.inf
