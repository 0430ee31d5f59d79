"""Power laws of a result: critical values over an axis, the law fitted to them, and the law a theory predicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import xarray as xr
from matplotlib.figure import Figure

from benign.plot.axis import axis_name
from benign.plot.chosen import caption_of, listed, plain, variable_of
from benign.plot.critical import Critical, draw_critical
from benign.plot.legends import legend_below
from benign.plot.sheet import Width, drawn_for, sheet
from benign.stats.boundary import Boundary, boundary
from benign.stats.law import Law


def exponents(
    result: xr.Dataset,
    variables: str | Sequence[str] = "test_accuracy",
    *,
    level: float,
    law: str | None = None,
    predicted: str | Mapping[str, str] | None = None,
    title: str | None = None,
    caption: str | None = None,
    width: Width | None = None,
) -> Figure:
    """Where variables cross a level, over one axis, with the fitted power laws, their intervals and predicted ones.

    `law` is as in `bo.boundary`. `predicted` is a law as a paper prints it, `"samples * snr**2 = 1000"`, or one for
    each variable; without its constant it is drawn through the middle of the points. A fitted law whose slope may be 0
    is told and not drawn. `title` and `caption` are made of the result, "" leaves them out; `width` "column" or "page"
    is for papers.

    >>> import numpy as np
    >>> import xarray as xr
    >>> import benign as bo
    >>> rows, columns = np.array([4, 8, 16, 32]), np.geomspace(0.5, 16, 20)
    >>> score = rows[:, None, None] * columns[None, :, None] ** 2 / 64 * np.array([1.0, 1.1])
    >>> axes = {"samples": rows, "snr": columns, "seed": [0, 1]}
    >>> values = xr.DataArray(score / (1 + score), axes, ("samples", "snr", "seed"))
    >>> figure = bo.plot.exponents(
    ...     xr.Dataset({"test_accuracy": values}), level=0.5, predicted="samples * snr**2"
    ... )
    >>> [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    ['test accuracy 0.5', 'fit: exponent -0.50 [-0.504, -0.496]', 'predicted: exponent -0.5']
    """
    names = listed(variables)
    if isinstance(predicted, Mapping) and (unknown := set(predicted) - set(names)):
        raise ValueError(f"`predicted` names {sorted(unknown)}, which are not among {names}")
    sets = [_critical(result, name, level, law, predicted) for name in names]
    found = sets[0].boundary
    row, column = axis_name(found.critical[found.law.row]), axis_name(found.critical)
    if title is None:
        crosses = "crosses" if len(names) == 1 else "cross"
        title = f"Where {' and '.join(map(plain, names))} {crosses} {level:g}"
    if caption is None:
        caption = f"{caption_of(result)} {_legend(sets)}".strip()
    size = (4.2, 2.9 + 0.15 * (3 * len(names) + 1))
    with drawn_for(width), sheet(1, 1, size, title, caption, above=0.0) as (figure, [ax]):
        draw_critical(ax, sets, row, f"critical {column}", bands=True)
        legend_below(ax)
    return figure


def _critical(
    result: xr.Dataset,
    name: str,
    level: float,
    law: str | None,
    predicted: str | Mapping[str, str] | None,
) -> Critical:
    found, label = boundary(variable_of(result, name, 2), level, law), f"{plain(name)} {level:g}"
    printed = predicted.get(name) if isinstance(predicted, Mapping) else predicted
    if printed is None:
        return Critical(label, found)
    told = _predicted(printed, found)
    assert told.exponent is not None
    curve = None if told.constant is None else told.curve
    return Critical(label, found, curve, f"predicted: exponent {-1 / told.exponent:.3g}")


def _predicted(printed: str, found: Boundary) -> Law:
    """A law of the same rows and columns; one without a constant goes through the middle of the points, if any."""
    law, free = Law.parse(printed), found.law
    if law.exponent is None or (law.row, law.column) != (free.row, free.column):
        example = f"{free.row} * {free.column}**2"
        raise ValueError(
            f"`predicted` must be a law with its exponent, as {example!r}, got {printed!r}"
        )
    if law.constant is None and found.critical.notnull().any():
        return replace(law, constant=found.constant_for(law.exponent).value)
    return law


def _legend(sets: Sequence[Critical]) -> str:
    """What a caption must say of points and lines."""
    seeds = sets[0].boundary.critical_per_seed.shape[1] > 1
    percent = f"{100 * sets[0].boundary.confidence:g} %"
    told = (
        "Points: crossings of the mean over seeds, bars their range."
        if seeds
        else "Points: crossings."
    )
    fits = [each.boundary.fit for each in sets]
    drawn = any(fit is not None and fit.bounded for fit in fits)
    lines = f" Lines: fitted laws with {percent} intervals." if drawn else ""
    dashed = " Dashed: predicted." if any(each.predicted for each in sets) else ""
    return f"{told}{lines}{dashed}"
