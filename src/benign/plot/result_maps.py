"""Maps of a result over two axes of its experiment: the mean of a variable, or the regime of every cell."""

from __future__ import annotations

from collections.abc import Sequence

import xarray as xr
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap, Normalize
from matplotlib.figure import Figure

from benign.plot.chosen import caption_of, listed, plain, two_axes, variable_of
from benign.plot.legends import legend_below
from benign.plot.maps import (
    Panel,
    by_seed,
    draw_cells,
    mark_cells,
    part_cells,
    phase_figure,
    printed_curve,
)
from benign.plot.sheet import Width, drawn_for, sheet
from benign.plot.style import DARK_GREY
from benign.stats import regimes as theory
from benign.stats.boundary import boundary
from benign.stats.regimes import Regime, of_most

# Dark to bright from worst to best: told apart with any colour vision, and in grey.
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
    """The mean of a variable over seeds as a heat map over two axes; of several variables, maps side by side.

    `level` adds the fitted boundary at it, `printed` a law as a paper prints it; `printed_by` says in the legend whose
    law that is. `title` and `caption` are made of the result, "" leaves them out; `width` "column" or "page" is for
    papers.

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
    names = listed(variables)
    panels = [_panel(result, name, x, y, level, printed, printed_by) for name in names]
    return phase_figure(
        panels,
        title=", ".join(map(plain, names)).capitalize() if title is None else title,
        caption=caption_of(result) if caption is None else caption,
        width=width,
    )


def _panel(
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
    edge = None if level is None else boundary(values, level, law=f"{x} * {y}**p")
    limits = (0.0, 1.0) if name.endswith("accuracy") else None
    law = {"printed": printed, "printed_by": printed_by}
    return Panel(values, x, y, plain(name), limits=limits, boundary=edge, **law)


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
    """Where overfitting is benign, where it is harmful, and where training points are not fitted, over two axes.

    A run fits when all training points are right at its end, attacked as in training. A fit is benign where an
    accuracy is at least `level` (0.95 if not given), or a loss or an error at most `level`. A cell shows the regime of
    most of its seeds, of equally many the worst. Everything else is as in `phase`.

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
    """The cells of `codes` (y, x, seed), and a legend that counts them and tells the `rule` of the best."""
    cells = of_most(codes)
    colours = ListedColormap([REGIME_COLOURS[each] for each in Regime])
    mesh = draw_cells(ax, cells, colours, Normalize(0, len(Regime) - 1))
    part_cells(ax, mesh)
    all_cells = int(cells.notnull().sum())
    for each in reversed(Regime):
        name, best = f"{each.words}: {int((cells == each).sum())}", each is max(Regime)
        if best:
            name = f"{each.words} ({rule}){name.removeprefix(each.words)} of {all_cells} cells"
        square = {"marker": "s", "markeredgecolor": DARK_GREY, "markeredgewidth": 0.5}
        ax.plot([], [], linestyle="none", color=REGIME_COLOURS[each], label=name, **square)
    differ = codes.notnull() & (codes != cells)
    mark_cells(ax, cells, differ.any("seed"), "seeds differ")
