"""The constant that an O, Omega or Theta hides, measured over a sweep, and whether it stays bounded along its axes."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

from benign.claims.expression import evaluate, names_in
from benign.experiment import Experiment
from benign.spec.axes import walk
from benign.stats.intervals import Estimate, check_confidence, interval_text, mean_interval, number
from benign.training.descent import Status

KINDS = ("O", "Omega", "Theta")
TOLERANCE = 0.05
"""a slope this close to 0 is no growth: a factor log d over two decades of d has more"""


@dataclass(frozen=True)
class AxisRatio:
    """The ratio of measured to predicted along one axis."""

    axis: str
    values: tuple[float, ...]
    lows: tuple[float, ...]
    highs: tuple[float, ...]
    """smallest and largest seed mean of a cell at each value"""
    slope: Estimate
    """of log ratio on log axis, other axes held; the mean over seeds of each seed's own"""
    bounded: bool | None
    """whether the statement holds along the axis; None where seeds do not decide"""

    def __str__(self) -> str:
        growth = f"{self.axis}^{number(self.slope.value)} {interval_text((self.slope.low, self.slope.high))}"
        verb = "grows" if self.slope.value > 0 else "falls"
        verdict = {True: "bounded", False: verb, None: "undecided"}[self.bounded]
        ends = f"{number(min(self.lows))} to {number(max(self.highs))}"
        return f"{verdict} like {growth}" if self.bounded is False else f"{verdict} ({growth}), {ends}"  # fmt: skip


@dataclass(frozen=True)
class Constant:
    """The best constants of a statement `variable = kind(formula)` over a sweep."""

    variable: str
    formula: str
    kind: str
    low: Estimate
    """the smallest ratio of a cell, the constant of Omega, with its interval by seeds"""
    high: Estimate
    """the largest, the constant of O"""
    along: dict[str, AxisRatio]
    left_out: int
    """runs without a positive number"""
    capped: int
    """runs that ended at the step cap: their `steps` are a lower bound"""

    @property
    def bounded(self) -> bool | None:
        """Whether the statement holds along every axis; None where it is undecided along one and fails along none."""
        told = [each.bounded for each in self.along.values()]
        return False if False in told else (None if None in told else True)

    def __str__(self) -> str:
        sides = {"O": f"C = {self.high}", "Omega": f"c = {self.low}"}
        both = (
            f"c = {self.low}, C = {self.high}, C / c = {number(self.high.value / self.low.value)}"
        )
        lines = [f"{self.variable} = {self.kind}({self.formula}): {sides.get(self.kind, both)}"]
        lines += [f"  {name}: {each}" for name, each in self.along.items()]
        if self.left_out:
            lines.append(f"  {self.left_out} runs without a positive number are left out")
        if self.capped:
            lines.append(f"  {self.capped} runs ended at the step cap")
        return "\n".join(lines)


def constant(
    result: xr.Dataset,
    variable: str,
    formula: str,
    kind: str = "Theta",
    axes: Sequence[str] | None = None,
    confidence: float = 0.95,
    tolerance: float = TOLERANCE,
) -> Constant:
    """Compare a variable with a formula over a sweep: the ratio's range, and whether it grows along an axis.

    The formula has names of axes and of numbers of the experiment, + - * / ** and log, sqrt, exp, min, max. An O
    statement fails along an axis if the ratio grows, Omega if it falls, Theta if it does either: if the whole interval
    of the slope of log ratio on log axis is beyond `tolerance`. It holds if the whole interval is not; else seeds do
    not decide. `axes` are all numeric ones unless named.

    >>> import tempfile
    >>> import benign as bo
    >>> sweep = bo.Experiment(
    ...     data=bo.Mixture(samples=8, dim=[50, 200], signal=[4.0, 8.0]),
    ...     network=bo.Linear(),
    ...     training=bo.GradientDescent(rate=0.001, stop_loss=0.1, max_steps=2000),
    ...     seeds=5,
    ...     pairing="common",
    ... )
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     result = sweep.run(folder)
    >>> found = bo.constant(result, "steps", "1 / (rate * stop_loss * signal**2)", kind="O")
    >>> found.along["signal"].bounded  # wrong: where noise is long, steps fall slower than 1 / signal^2
    False
    >>> found = bo.constant(result, "steps", "1 / (rate * stop_loss * (signal**2 + dim / samples))", "O")
    >>> found.along["signal"].bounded
    True
    """
    check_confidence(confidence)
    if kind not in KINDS:
        raise ValueError(f"`kind` must be O, Omega or Theta, got {kind!r}")
    measured = result[variable]
    if "seed" not in measured.dims or "step" in measured.dims:
        raise ValueError(f"`variable` must be one number a run, {variable} has {measured.dims}")
    predicted = _predicted(result, formula)
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio = (measured / predicted).transpose(*measured.dims)
    ratio = ratio.where((ratio > 0) & np.isfinite(ratio))
    if not ratio.notnull().any():
        raise ValueError(f"{variable} / ({formula}) is positive in no run")
    cells = ratio.mean("seed")
    told = {}
    for axis in axes if axes is not None else _axes(measured):
        told[axis] = _along(axis, ratio, cells, kind, confidence, tolerance)
    return Constant(
        variable=variable,
        formula=formula,
        kind=kind,
        low=_cell(ratio, cells.argmin(...), confidence),
        high=_cell(ratio, cells.argmax(...), confidence),
        along=told,
        left_out=int(ratio.isnull().sum()),
        capped=int((result["status"] == Status.STEP_CAP).sum()),
    )


def _predicted(result: xr.Dataset, formula: str) -> Any:
    known: dict[str, Any] = _numbers(result.attrs["experiment"])
    known |= {str(n): c for n, c in result.coords.items() if n not in ("seed", "step")}
    for name in names_in(formula):
        if isinstance(known.get(name), list):
            raise ValueError(f"`{name}` is several numbers, {known[name]}: write the one you mean")
    return evaluate(formula, known)


def _numbers(experiment: str) -> dict[str, Any]:
    """Every number of an experiment by the name of its field, a list where there are several.

    Fields that may be axes come first: `samples` are those of the data, not of the evaluation.
    """
    found: dict[tuple[str, bool], list[float]] = {}
    for path, role, value in walk(Experiment.from_dict(json.loads(experiment))):
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            found.setdefault((path[-1], role is not None), []).append(float(value))
    numbers = {name: values for (name, _), values in sorted(found.items())}
    return {name: v if len(set(v)) > 1 else v[0] for name, v in numbers.items()}


def _axes(measured: xr.DataArray) -> list[str]:
    """The coordinates along which something can grow: positive numbers, at least two of them."""
    return [
        str(name)
        for name, coord in measured.coords.items()
        if coord.ndim == 1 and name != "seed" and np.issubdtype(coord.dtype, np.number)
        if len(np.unique(coord)) > 1 and (coord > 0).all()
    ]


def _along(
    axis: str, ratio: xr.DataArray, cells: xr.DataArray, kind: str, confidence: float, tolerance: float
) -> AxisRatio:  # fmt: skip
    if axis not in ratio.coords or ratio[axis].ndim != 1:
        raise ValueError(f"`axes` must be among {', '.join(_axes(ratio))}, got {axis!r}")
    [dim] = ratio[axis].dims
    others = [each for each in cells.dims if each != dim]
    low, high = cells.min(others), cells.max(others)
    slopes = _slopes(ratio, ratio[axis], str(dim))
    known = slopes[np.isfinite(slopes)]
    slope = mean_interval(known, confidence) if known.size else Estimate(math.nan, -math.inf, math.inf)  # fmt: skip
    return AxisRatio(
        axis,
        tuple(map(float, ratio[axis].values)),
        tuple(map(float, low.values)),
        tuple(map(float, high.values)),
        slope,
        _bounded(slope, kind, tolerance),
    )


def _slopes(ratio: xr.DataArray, axis: xr.DataArray, dim: str) -> np.ndarray:
    """Slope of log ratio on log axis, for each seed, every line of the other axes about its own mean."""
    y = xr.apply_ufunc(np.log, ratio)
    x = xr.apply_ufunc(np.log, axis.astype(float)).broadcast_like(y).where(y.notnull())
    centred = x - x.mean(dim)
    others = [each for each in y.dims if each != "seed"]
    with np.errstate(invalid="ignore", divide="ignore"):
        return ((centred * y).sum(others) / (centred**2).sum(others)).values


def _bounded(slope: Estimate, kind: str, tolerance: float) -> bool | None:
    grows = (slope.low > tolerance) and kind != "Omega"
    falls = (slope.high < -tolerance) and kind != "O"
    may_grow = not slope.high <= tolerance and kind != "Omega"
    may_fall = not slope.low >= -tolerance and kind != "O"
    return False if grows or falls else (None if may_grow or may_fall else True)


def _cell(ratio: xr.DataArray, where: Any, confidence: float) -> Estimate:
    """The seeds' mean of one cell."""
    values = ratio.isel(where).values
    return mean_interval(values[np.isfinite(values)], confidence)
