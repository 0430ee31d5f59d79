"""Phase diagrams: a quantity over two axes of a grid, with the law that a paper prints and the law measured."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib
import numpy as np
import xarray as xr
from matplotlib import patheffects
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection, QuadMesh
from matplotlib.colors import Colormap, ListedColormap, Normalize
from matplotlib.figure import Figure

from benign.plot.axis import set_axis
from benign.plot.laws import (
    NO_LAW,
    crossings_name,
    curve_points,
    fit_name,
    fitted_rows,
    masked_name,
    moved_name,
    printed_law,
)
from benign.plot.lines import curves
from benign.plot.sheet import (
    FEWER_SEEDS,
    NO_VALUE,
    Width,
    drawn_for,
    legend_below,
    panel_title,
    sheet,
)
from benign.plot.style import (
    BLACK,
    BLUE,
    COLOUR_MAP,
    DARK_GREY,
    GREY,
    VERMILLION,
    save,
)
from benign.plot.variables import (
    as_list,
    caption_of,
    readable,
    two_axes,
    variable_of,
    varied_axes,
    with_seeds,
)
from benign.stats import regimes as theory
from benign.stats.audited import audited_boundary
from benign.stats.boundary import Boundary
from benign.stats.law import Law
from benign.stats.regimes import Regime, majority_regime
from benign.sweep.ends import masked_cells

# A light rim keeps a line readable on dark and on bright cells.
_RIM = [patheffects.withStroke(linewidth=2.8, foreground="white")]
_THIN_RIM = [patheffects.withStroke(linewidth=2.0, foreground="white")]

SIDES = ("#414487", "#f9e784")
"""colours of cells below and above a cut"""
_EXTEND = {
    (False, False): "neither",
    (True, False): "min",
    (False, True): "max",
    (True, True): "both",
}

MANY_CELLS = 2500
"""a map of more cells is one picture inside a vector file"""
SEAM, BETWEEN = 0.6, 0.5
"""widths in points of edges of cells in their own colour, and of lines between cells"""
LARGEST_MARK = 16.0
"""area in square points of the mark of a cell whose runs are all masked"""
LEVELS = 128
"""number of colours of a map: each is a shape in the colour bar of a vector file"""


@dataclass(frozen=True, eq=False)
class Panel:
    """One map of a phase figure."""

    values: xr.DataArray
    """over the axes `x` and `y` and perhaps seeds; their mean is drawn"""
    x: str
    """horizontal axis"""
    y: str
    """vertical axis"""
    label: str
    """name of the quantity"""
    cut: float | None = None
    """draw only on which side of this value each cell is"""
    limits: tuple[float, float] | None = None
    """of the colour scale"""
    printed: str | None = None
    """a law as a paper prints it, `samples * snr**2 = 1000`"""
    printed_by: str = "paper"
    """source of that law in the legend"""
    boundary: Boundary | None = None
    """a measured boundary (`benign.boundary`), drawn with its law"""
    predicted: Callable[[np.ndarray], np.ndarray] | None = None
    """prediction of a theory that is not a power law: the column of `boundary.law` at its rows"""
    predicted_by: str = "predicted"
    """name of that prediction in the legend"""
    moved: xr.DataArray | None = None
    """over the same axes: 1 where a smaller step size changes the cell, 0 where it does not, NaN where it was not tried
    (`moved_by_rate` of an audited result)"""
    masked: xr.DataArray | None = None
    """over the same axes: the share of masked runs (`benign.sweep.ends.masked_cells`), for a robust quantity"""


def phase_figure(
    panels: Sequence[Panel],
    *,
    title: str,
    caption: str,
    columns: int = 4,
    width: Width | None = None,
) -> Figure:
    """Draw one to eight maps in rows of at most `columns`, each with its legend below it, and a caption under all.

    `width` "column" or "page" is for papers: one map in a row, or two.
    """
    if not 1 <= len(panels) <= 8:
        raise ValueError(f"`panels` must hold 1 to 8 panels, got {len(panels)}")
    size = (3.55, 2.8 + 0.15 * max(map(_legend_rows, panels)))
    count, across = len(panels), min(columns, len(panels))
    with (
        drawn_for(width),
        sheet(
            count, across, size, title, caption, extra_width=0.25, extra_height=0.45, gap=0.04
        ) as (
            figure,
            axes,
        ),
    ):
        for number, (ax, panel) in enumerate(zip(axes, panels, strict=True)):
            _draw(ax, panel)
            ax.set_title(panel_title(number, count))
    return figure


def _legend_rows(panel: Panel) -> int:
    parts = (panel.printed, panel.predicted, panel.moved, panel.masked)
    return sum(part is not None for part in parts) + 3 * (panel.boundary is not None) + 1


def _draw(ax: Axes, panel: Panel) -> None:
    heat_map(
        ax, panel.values, panel.x, panel.y, label=panel.label, cut=panel.cut, limits=panel.limits
    )
    if panel.printed is not None:
        printed_curve(ax, panel.printed, panel.values, panel.x, panel.y, source=panel.printed_by)
    if panel.boundary is not None:
        fitted_curve(ax, panel.boundary, panel.x, panel.y)
        if panel.predicted is not None:
            law, name = panel.boundary.law, panel.predicted_by
            curve(ax, law, panel.x, panel.y, panel.predicted, label=name, color=BLUE, linestyle=":")
    if panel.moved is not None:
        _mark_moved(ax, panel.moved, panel.x, panel.y)
    if panel.masked is not None:
        _mark_masked(ax, panel.masked, panel.x, panel.y)
    legend_below(ax)


def heat_map(
    ax: Axes,
    values: xr.DataArray,
    x: str,
    y: str,
    *,
    label: str,
    cut: float | None = None,
    limits: tuple[float, float] | None = None,
    seed_dim: str = "seed",
) -> QuadMesh:
    """Draw the mean of `values` over seeds, one cell centred on each pair of coordinates.

    An axis is logarithmic if the logarithms of its coordinates are more evenly spaced than the coordinates. Cells
    without a finite mean are hatched; a dot marks cells that lack some of their seeds.
    """
    if limits is not None and not limits[0] < limits[1]:
        raise ValueError(f"`limits` must be (low, high) with low < high, got {limits}")
    data = by_seed(values, x, y, seed_dim)
    grid = data.mean(seed_dim)
    drawn = np.ma.masked_invalid(grid.values)
    colours = matplotlib.colormaps[COLOUR_MAP].resampled(LEVELS)
    norm = Normalize(*(limits or finite_range(grid.values)))
    if cut is not None:
        drawn, colours, norm = drawn >= cut, ListedColormap(SIDES), Normalize(0, 1)
    mesh = draw_cells(ax, grid.copy(data=np.ma.filled(drawn.astype(float), np.nan)), colours, norm)
    fewer = data.count(seed_dim) < data.sizes[seed_dim]
    mark_cells(ax, grid, fewer & (abs(grid) < np.inf), FEWER_SEEDS)
    _colour_bar(ax, mesh, drawn, label, cut)
    return mesh


def draw_cells(ax: Axes, grid: xr.DataArray, colours: Colormap, norm: Normalize) -> QuadMesh:
    """Draw one coloured cell for each number of `grid` (y, x); cells without a finite number are hatched."""
    y, x = grid.dims
    x_edges, y_edges = (set_axis(ax, grid[dim], name) for dim, name in ((x, "x"), (y, "y")))
    values = np.ma.masked_invalid(grid.values)
    # Vectors are sharp at any size, but very many are slow to show. Edges in the colours of the cells hide the seams
    # that PDF viewers leave between them.
    style = {"cmap": colours, "norm": norm, "edgecolors": "face", "linewidth": SEAM}
    mesh = ax.pcolormesh(x_edges, y_edges, values, rasterized=values.size > MANY_CELLS, **style)
    ax.set_xlim(x_edges[0], x_edges[-1])
    ax.set_ylim(y_edges[0], y_edges[-1])
    ax.autoscale(False)
    _hatch_missing(ax, grid, x_edges, y_edges)
    return mesh


def separate_cells(ax: Axes, mesh: QuadMesh) -> None:
    """Draw thin light lines between cells, so that cells of one colour can be counted."""
    corners = np.asarray(mesh.get_coordinates())
    if corners[..., 0].size > MANY_CELLS:
        return
    line = {"color": "white", "linewidth": BETWEEN, "zorder": mesh.get_zorder() + 0.5}
    ax.vlines(corners[0, 1:-1, 0], 0, 1, transform=ax.get_xaxis_transform(), **line)
    ax.hlines(corners[1:-1, 0, 1], 0, 1, transform=ax.get_yaxis_transform(), **line)


def printed_curve(
    ax: Axes, law: str, values: xr.DataArray, x: str, y: str, *, source: str = "paper"
) -> None:
    """Draw a law as printed, such as `samples * snr**2 = 1000`, over a heat map of `values`."""
    parsed, name = printed_law(law, values, source)
    curve(ax, parsed, x, y, parsed.curve, label=name, color=VERMILLION)


def fitted_curve(ax: Axes, boundary: Boundary, x: str, y: str) -> None:
    """Draw a measured boundary over a heat map: critical points, their range over seeds, the fitted law."""
    law, critical = boundary.law, boundary.critical
    rows, columns = critical[law.row].values, critical.values
    known = np.isfinite(columns)
    _check_axes(law, x, y)
    along_x = law.column == x
    per_seed = boundary.critical_per_seed.isel({law.row: known})
    seed_dim = str(per_seed.dims[1])
    if per_seed.sizes[seed_dim] > 1:
        low, high = per_seed.min(seed_dim), per_seed.max(seed_dim)
        bars = ax.hlines if along_x else ax.vlines
        bars(rows[known], low, high, color=BLACK, linewidth=0.9, zorder=4, path_effects=_THIN_RIM)
    points = (columns[known], rows[known]) if along_x else (rows[known], columns[known])
    ax.plot(
        *points,
        linestyle="none",
        marker="o",
        markersize=3.6,
        markerfacecolor="white",
        markeredgecolor=BLACK,
        markeredgewidth=0.9,
        zorder=5,
        label=crossings_name(boundary),
    )
    fit = boundary.fit
    if fit is None and boundary.reason:
        ax.plot([], [], linestyle="none", label=boundary.reason)
    elif fit is not None and not fit.bounded:
        ax.plot([], [], linestyle="none", label=NO_LAW)
    elif fit is not None:
        line = {"label": fit_name(boundary, fit), "color": BLACK, "linestyle": "--"}
        curve(ax, law, x, y, fit.curve, between=fitted_rows(boundary), **line)


def curve(
    ax: Axes,
    law: Law,
    x: str,
    y: str,
    column_of: Callable[[np.ndarray], np.ndarray],
    *,
    label: str,
    between: tuple[float, float] = (0.0, math.inf),
    **line,
) -> None:
    """Draw `column = column_of(row)` for rows `between` two values, as far as it is inside the axes.

    The legend says so if no part of the curve is inside.
    """
    _check_axes(law, x, y)
    points = curve_points(law, x, (ax.get_xlim(), ax.get_ylim()), column_of, between)
    if not np.isfinite(points).all(0).any():
        label = f"{label} (outside the map)"
    ax.plot(*points, label=label, zorder=3, path_effects=_RIM, **line)


def by_seed(values: xr.DataArray, x: str, y: str, seed_dim: str = "seed") -> xr.DataArray:
    """Return the values as floats over (y, x, seed), x and y ascending."""
    for dim in (x, y):
        if dim not in values.dims:
            raise ValueError(f"axis {dim!r} is not among the values' dimensions {values.dims}")
        if not np.issubdtype(values[dim].dtype, np.number):
            raise ValueError(f"coordinate {dim!r} must hold numbers, got {values[dim].values}")
    extra = set(values.dims) - {x, y, seed_dim}
    if extra:
        raise ValueError(
            f"`values` must have dimensions {y}, {x} and perhaps {seed_dim}; "
            f"select one entry of, or average over, {', '.join(sorted(map(str, extra)))}"
        )
    return with_seeds(values, seed_dim).astype(float).transpose(y, x, seed_dim).sortby([y, x])


def _hatch_missing(ax: Axes, grid: xr.DataArray, x_edges: np.ndarray, y_edges: np.ndarray) -> None:
    rows, columns = np.nonzero(~np.isfinite(grid.values))
    if rows.size:
        left, right = x_edges[columns], x_edges[columns + 1]
        low, high = y_edges[rows], y_edges[rows + 1]
        corners = np.stack([left, low, right, low, right, high, left, high], -1).reshape(-1, 4, 2)
        ax.add_collection(
            PolyCollection(
                list(corners),
                facecolor=GREY,
                edgecolor=DARK_GREY,
                linewidth=0.0,
                hatch="//////",
                label=NO_VALUE,
            ),
            autolim=False,
        )


def mark_cells(ax: Axes, grid: xr.DataArray, where: xr.DataArray, label: str) -> None:
    """Draw a dot in every cell of `where`."""
    y, x = grid.dims
    rows, columns = np.nonzero(where.values)
    if rows.size:
        ax.plot(
            grid[x].values[columns],
            grid[y].values[rows],
            linestyle="none",
            marker=".",
            markersize=4,
            color="white",
            markeredgecolor=BLACK,
            markeredgewidth=0.5,
            label=label,
        )


def _mark_moved(ax: Axes, moved: xr.DataArray, x: str, y: str) -> None:
    """Draw a cross on every cell that a smaller step size changes: its value is not that of gradient flow."""
    tried = moved.transpose(y, x)
    rows, columns = np.nonzero(tried.values == 1)
    ax.plot(
        tried[x].values[columns],
        tried[y].values[rows],
        linestyle="none",
        marker="x",
        markersize=3.2,
        markeredgewidth=0.8,
        color=BLACK,
        path_effects=_THIN_RIM,
        label=moved_name(tried),
    )


def _mark_masked(ax: Axes, masked: xr.DataArray, x: str, y: str) -> None:
    """Draw a triangle on every cell with masked runs, of an area that is their share."""
    share = masked.transpose(y, x)
    rows, columns = np.nonzero(share.values > 0)
    ax.scatter(
        share[x].values[columns],
        share[y].values[rows],
        s=LARGEST_MARK * share.values[rows, columns],
        marker="v",
        facecolor="white",
        edgecolor=BLACK,
        linewidth=0.6,
        zorder=3,
        label=masked_name(share),
    )


def _colour_bar(
    ax: Axes, mesh: QuadMesh, drawn: np.ma.MaskedArray, label: str, cut: float | None
) -> None:
    # Placed relative to the axes, so that a wide legend below does not push the bar away.
    bar_axes = ax.inset_axes((1.03, 0, 0.04, 1))
    low, high = mesh.get_clim()
    below, above = bool((drawn < low).any()), bool((drawn > high).any())
    bar = ax.figure.colorbar(mesh, cax=bar_axes, label=label, extend=_EXTEND[below, above])
    if cut is not None:
        bar.set_ticks([0.25, 0.75], labels=[f"< {cut:g}", f"≥ {cut:g}"])
        bar_axes.tick_params(length=0)
    bar.outline.set_linewidth(0.6)
    assert bar.solids is not None
    bar.solids.set(rasterized=False, edgecolor="face", linewidth=SEAM)


def finite_range(values: np.ndarray) -> tuple[float, float]:
    """Return the smallest and the largest finite number; (0, 1) if there are no finite numbers."""
    finite = values[np.isfinite(values)]
    return (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)


def _check_axes(law: Law, x: str, y: str) -> None:
    if {law.row, law.column} != {x, y}:
        raise ValueError(f"`law` must be about the axes {x!r} and {y!r}, got {law}")


# Dark to bright from worst to best: distinguishable with any colour vision, and in grey.
REGIME_COLOURS = {
    Regime.NOT_FITTED: "#443983",
    Regime.HARMFUL: "#cc79a7",
    Regime.BENIGN: "#f9e784",
}


def phase(
    result: xr.Dataset,
    variables: str | Sequence[str] = "test_accuracy",
    *,
    x: str | None = None,
    y: str | None = None,
    level: float | None = None,
    printed: str | None = None,
    printed_by: str = "paper",
    title: str | None = None,
    caption: str | None = None,
    width: Width | None = None,
) -> Figure:
    """Draw the mean of a variable over seeds as a heat map over two axes; several variables are maps side by side.

    `level` adds the fitted boundary at that level, `printed` a law as a paper prints it; `printed_by` is the source of
    that law in the legend. `title` and `caption` come from the result, "" leaves them out; `width` "column" or "page"
    is for papers.

    >>> import tempfile
    >>> import benign as bo
    >>> sweep = bo.Experiment(
    ...     data=bo.Mixture(samples=[4, 8], dim=20, signal=[1.0, 4.0]),
    ...     network=bo.Linear(),
    ...     training=bo.GradientDescent(rate=0.1, max_steps=50),
    ...     evaluation=bo.Evaluation(samples=50),
    ... )
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     result = sweep.run(folder)
    >>> figure = bo.plot.phase(result, printed="samples * signal**2 = 16", width="column")
    >>> float(figure.get_figwidth())  # inches
    3.35
    """
    names = as_list(variables)
    panels = [_panel_of(result, name, x, y, level, printed, printed_by) for name in names]
    return phase_figure(
        panels,
        title=", ".join(map(readable, names)).capitalize() if title is None else title,
        caption=caption_of(result) if caption is None else caption,
        width=width,
    )


def _panel_of(
    result: xr.Dataset,
    name: str,
    x: str | None,
    y: str | None,
    level: float | None,
    printed: str | None,
    printed_by: str,
) -> Panel:
    values = variable_of(result, name, 2)
    x, y = two_axes(values, x, y)
    edge = None
    if level is not None:
        edge = audited_boundary(result, lambda of: variable_of(of, name, 2), level, f"{x} * {y}**p")
    limits = (0.0, 1.0) if name.endswith("accuracy") else None
    law = {"printed": printed, "printed_by": printed_by}
    marks = masked_cells(result, name)
    return Panel(
        values, x, y, readable(name), limits=limits, boundary=edge, masked=_over(marks, x, y), **law
    )


def _over(marks: xr.DataArray | None, x: str, y: str) -> xr.DataArray | None:
    """Return marks of cells over the two axes of a map: all other axes have one value."""
    if marks is None:
        return None
    return marks.squeeze([dim for dim in marks.dims if dim not in (x, y)], drop=True)


def regimes(
    result: xr.Dataset,
    variable: str = "test_accuracy",
    level: float | None = None,
    *,
    x: str | None = None,
    y: str | None = None,
    printed: str | None = None,
    printed_by: str = "paper",
    title: str | None = None,
    caption: str | None = None,
    width: Width | None = None,
) -> Figure:
    """Draw over two axes where overfitting is benign, where it is harmful, and where training points are not fitted.

    A run fits if it classifies all training points correctly at its end, attacked as in training. A fit is benign if an
    accuracy is at least `level` (0.95 if not given), or a loss or an error at most `level`. A cell shows the regime of
    most of its seeds, and in a tie the worst. Everything else is as in `phase`.

    >>> import tempfile
    >>> import benign as bo
    >>> sweep = bo.Experiment(
    ...     data=bo.Mixture(samples=[4, 8], dim=20, signal=[0.1, 8.0]),
    ...     network=bo.Linear(),
    ...     training=bo.GradientDescent(rate=0.1, max_steps=50),
    ...     evaluation=bo.Evaluation(samples=50),
    ... )
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     result = sweep.run(folder)
    >>> figure = bo.plot.regimes(result)
    >>> [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    ['benign (test accuracy ≥ 0.95): 2 of 4 cells', 'harmful: 2', 'not fitted: 0']
    """
    codes = theory.regimes(result, variable, level)
    values = variable_of(codes.to_dataset(), "regime", 2)
    x, y = two_axes(values, x, y)
    codes = by_seed(values, x, y)
    title = "Regimes of overfitting" if title is None else title
    if caption is None:
        caption = f"{caption_of(result)} {theory.definition(variable, level)}".strip()
    with drawn_for(width), sheet(1, 1, (3.8, 3.4), title, caption) as (figure, [ax]):
        _draw_regimes(ax, codes, theory.rule(variable, level))
        if printed is not None:
            printed_curve(ax, printed, values, x, y, source=printed_by)
        legend_below(ax)
    return figure


def _draw_regimes(ax: Axes, codes: xr.DataArray, rule: str) -> None:
    """Draw the cells of `codes` (y, x, seed), and a legend with their numbers and the `rule` of benign fits."""
    cells = majority_regime(codes)
    colours = ListedColormap([REGIME_COLOURS[each] for each in Regime])
    mesh = draw_cells(ax, cells, colours, Normalize(0, len(Regime) - 1))
    separate_cells(ax, mesh)
    all_cells = int(cells.notnull().sum())
    for each in reversed(Regime):
        name, best = f"{each.words}: {int((cells == each).sum())}", each is max(Regime)
        if best:
            name = f"{each.words} ({rule}){name.removeprefix(each.words)} of {all_cells} cells"
        square = {"marker": "s", "markeredgecolor": DARK_GREY, "markeredgewidth": 0.5}
        ax.plot([], [], linestyle="none", color=REGIME_COLOURS[each], label=name, **square)
    differ = codes.notnull() & (codes != cells)
    mark_cells(ax, cells, differ.any("seed"), "seeds differ")


DRAWN = ("test_accuracy", "robust_accuracy")
"""variables drawn for an experiment without a recipe, if they are measured"""


def pictures(result: xr.Dataset, folder: Path) -> list[Path]:
    """Draw the accuracies of a result if one or two of its axes have several numbers; return the files."""
    names = [name for name in DRAWN if name in result]
    axes = varied_axes(result[names[0]])
    if not all(np.issubdtype(result[axis].dtype, np.number) for axis in axes):
        return []
    if len(axes) == 1:
        return save(curves(result, names), folder / "accuracy")
    if len(axes) == 2:
        return [path for name in names for path in save(phase(result, name), folder / name)]
    return []
