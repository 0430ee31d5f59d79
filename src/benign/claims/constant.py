"""The constant hidden in an O, Omega or Theta: its size over a sweep, and whether it stays bounded along each axis.

The predicted size is a formula of the user, such as `1 / (rate * stop_loss * signal**2)`.
"""

from __future__ import annotations

import ast
import json
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

from benign.experiment import Experiment
from benign.spec.axes import walk
from benign.stats.intervals import Estimate, check_confidence, interval_text, mean_interval, number
from benign.training.descent import Status

KINDS = ("O", "Omega", "Theta")
TOLERANCE = 0.05
"""largest slope that does not count as growth; a factor log d over two decades of d has a larger one"""


@dataclass(frozen=True)
class AxisRatio:
    """How the ratio of measured to predicted changes along one axis."""

    axis: str
    values: tuple[float, ...]
    lows: tuple[float, ...]
    highs: tuple[float, ...]
    """`lows` and `highs`: the smallest and the largest cell mean (over seeds) at each value of the axis"""
    slope: Estimate
    """slope of log ratio on log axis at fixed other axes: the mean over seeds of the slope of each seed"""
    bounded: bool | None
    """whether the statement holds along the axis; None if the seeds do not decide"""

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
    """the smallest cell mean of the ratio, the constant of Omega, with its interval over seeds"""
    high: Estimate
    """the largest cell mean of the ratio, the constant of O"""
    along: dict[str, AxisRatio]
    left_out: int
    """number of runs without a positive ratio"""
    capped: int
    """number of runs that ended at the step cap; their `steps` are a lower bound"""

    @property
    def bounded(self) -> bool | None:
        """Whether the statement holds along every axis; None if it fails along no axis and some axis is undecided."""
        verdicts = [ratio.bounded for ratio in self.along.values()]
        return False if False in verdicts else (None if None in verdicts else True)

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
    """Compare a variable with a formula over a sweep: the range of their ratio, and whether it grows along an axis.

    - `formula`: names of axes and of numbers of the experiment, `+ - * / **`, and log, sqrt, exp, min, max.
    - `kind`: an O statement fails along an axis if the ratio grows, Omega if it falls, Theta if it does either. The
      slope of log ratio on log axis decides: the statement fails if the whole interval of the slope lies beyond
      `tolerance`, holds if the whole interval lies within it, and is undecided otherwise.
    - `axes`: the axes to examine; all numeric ones if not given.

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
    along = {
        axis: _along(axis, ratio, cells, kind, confidence, tolerance)
        for axis in (axes if axes is not None else _axes(measured))
    }
    return Constant(
        variable=variable,
        formula=formula,
        kind=kind,
        low=_cell(ratio, cells.argmin(...), confidence),
        high=_cell(ratio, cells.argmax(...), confidence),
        along=along,
        left_out=int(ratio.isnull().sum()),
        capped=int((result["status"] == Status.STEP_CAP).sum()),
    )


def _predicted(result: xr.Dataset, formula: str) -> Any:
    known: dict[str, Any] = _numbers(result.attrs["experiment"])
    known |= {str(n): c for n, c in result.coords.items() if n not in ("seed", "step")}
    for name in names_in(formula):
        if isinstance(known.get(name), list):
            raise ValueError(
                f"`{name}` stands for several numbers, {known[name]}: write the one you mean"
            )
    return evaluate(formula, known)


def _numbers(experiment: str) -> dict[str, Any]:
    """Return every number of an experiment by the name of its field, as a list if there are several.

    Fields that may be axes come first: `samples` is the number of training samples, not of test samples.
    """
    numbers: dict[tuple[str, bool], list[float]] = {}
    for path, role, value in walk(Experiment.from_dict(json.loads(experiment))):
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            numbers.setdefault((path[-1], role is not None), []).append(float(value))
    by_name = {name: values for (name, _), values in sorted(numbers.items())}
    return {name: v if len(set(v)) > 1 else v[0] for name, v in by_name.items()}


def _axes(measured: xr.DataArray) -> list[str]:
    """Return the coordinates along which a ratio can grow: those with at least two positive numbers."""
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
    """Return for each seed the slope of log ratio on log axis, with an intercept for each cell of the other axes."""
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
    """Return the mean over seeds of one cell."""
    values = ratio.isel(where).values
    return mean_interval(values[np.isfinite(values)], confidence)


# Formulas, computed without Python's eval.

OPERATIONS: dict[type, Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
    ast.UAdd: operator.pos,
    ast.USub: operator.neg,
}
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "log": np.log,
    "sqrt": np.sqrt,
    "exp": np.exp,
    "min": np.minimum,
    "max": np.maximum,
}
ARGUMENTS = {"log": 1, "sqrt": 1, "exp": 1, "min": 2, "max": 2}


def names_in(text: str) -> list[str]:
    """Return the names in a formula, without functions, in order.

    >>> names_in("samples * max(snr, 1)**2 / log(dim)")
    ['samples', 'snr', 'dim']
    """
    tree = _parsed(text)
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    named = [
        node for node in ast.walk(tree) if isinstance(node, ast.Name) and id(node) not in called
    ]
    in_order = sorted(named, key=lambda node: (node.lineno, node.col_offset))
    return list(dict.fromkeys(node.id for node in in_order))


def evaluate(text: str, values: Mapping[str, Any]) -> Any:
    """Return the value of a formula of names, numbers, + - * / ** and log, sqrt, exp, min, max.

    The values of names are numbers, arrays or labelled arrays, so a formula can be computed over a grid.
    Raise ValueError if the formula contains anything else.

    >>> float(evaluate("2 * sqrt(n) - 1", {"n": 9.0}))
    5.0
    """
    return _value(_parsed(text), values, text)


def _parsed(text: str) -> ast.expr:
    try:
        return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ValueError(f"{text!r} is not a formula: write it as in Python") from None


def _value(node: ast.expr, values: Mapping[str, Any], text: str) -> Any:
    match node:
        case ast.Constant(value=bool()):
            pass
        case ast.Constant(value=int() | float() as number):
            return float(number)  # of whole numbers a power could grow without end
        case ast.Name(id=name):
            if name in values:
                return values[name]
            raise ValueError(f"{text!r} names `{name}`, known are: {', '.join(sorted(values))}")
        case ast.BinOp(left, op, right) if type(op) in OPERATIONS:
            left, right = _value(left, values, text), _value(right, values, text)
            return OPERATIONS[type(op)](left, right)
        case ast.UnaryOp(op, operand) if type(op) in OPERATIONS:
            return OPERATIONS[type(op)](_value(operand, values, text))
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in FUNCTIONS:
            if len(args) != ARGUMENTS[name]:
                raise ValueError(f"{text!r}: {name} takes {ARGUMENTS[name]}, got {len(args)}")
            return FUNCTIONS[name](*(_value(each, values, text) for each in args))
    raise ValueError(
        f"{text!r}: `{ast.unparse(node)}` is not allowed; a formula has names, numbers, + - * / **, "
        f"{', '.join(FUNCTIONS)}"
    )
