"""Lines of quantities along training or along an axis of the grid, with their spread over seeds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benign.experiment import specification
from benign.plot.axis import (
    axis_ticks,
    full_size_powers,
    log_ticks,
    many_steps,
    set_axis,
    step_axis,
)
from benign.plot.bands import band_notes, fill_band, mean_bands
from benign.plot.sheet import (
    Width,
    drawn_for,
    for_paper,
    legend_below,
    panel_title,
    rows_for,
    sheet,
    width_of,
)
from benign.plot.style import SMALL
from benign.plot.variables import (
    as_list,
    caption_of,
    extended_curve,
    readable,
    symbol_of,
    value_label,
    value_range,
    variable_of,
    varied_axes,
)

# Okabe and Ito's colours, distinguishable with any colour vision.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")

LINES = ("-", "--", "-.", ":")

GREY = "#8c8c8c"
MARK_LABEL = {"fontsize": SMALL, "color": GREY, "ha": "right"}
CLOSE = 0.06
"""share of the width of a panel: the labels of two closer marks would overlap"""


@dataclass(frozen=True, eq=False)
class Curves:
    """One panel: curves over the dimensions seed and step, or another than step, each with its name in the legend."""

    curves: Sequence[tuple[str, xr.DataArray]]
    """name and values of each curve"""
    label: str
    """name of the y axis"""
    along: str = "step"
    """coordinate of the x axis"""
    along_label: str = "gradient descent steps"
    """name of the x axis"""
    marks: Sequence[tuple[float, str]] = ()
    """vertical lines with their labels"""
    along_log: bool = True
    """whether the x axis is logarithmic; that of steps always is, and includes step 0"""
    log: bool = False
    """whether the y axis is logarithmic"""
    level: float | None = None
    """height of a horizontal line, such as the smallest possible error"""
    level_name: str = ""
    """its name in the legend"""
    title: str = ""
    """title after the letter of the panel"""
    legend: Literal["best", "upper left", "upper right", "lower left", "lower right"] = "best"
    """position of the legend"""


def curves_figure(
    rows: Sequence[Sequence[Curves]], *, title: str, caption: str, width: Width | None = None
) -> Figure:
    """Draw panels in rows, with the band of `mean_bands` around each mean over seeds; the caption names it.

    A legend has only the entries that no earlier legend has. `width` "column" or "page" is for papers: rows become
    shorter.
    """
    if not rows or len({len(row) for row in rows}) != 1:
        raise ValueError("`rows` must hold at least one row, and rows of equal length")
    panels, listed = [panel for row in rows for panel in row], set[tuple[str, ...]]()
    drawn = [values for panel in panels for _, values in panel.curves]
    caption = " ".join(filter(None, [caption, *band_notes(drawn)]))
    count, size = len(panels), (3.55, 2.2)
    with drawn_for(width), sheet(count, len(rows[0]), size, title, caption) as (figure, axes):
        for number, (ax, panel) in enumerate(zip(axes, panels, strict=True)):
            draw_curves(ax, panel)
            _add_legend(ax, panel, listed)
            ax.set_title(panel_title(number, count, panel.title))
    return figure


def line_style(number: int) -> tuple[str, str]:
    """Return colour and dashes of a curve: all 24 are different, and of two curves that coincide both are visible."""
    return COLOURS[number % len(COLOURS)], LINES[(number + number // 12) % len(LINES)]


def draw_curves(ax: Axes, panel: Curves) -> None:
    """Draw mean over seeds and its band; runs that have ended (NaN) no longer count."""
    for number, (name, values) in enumerate(panel.curves):
        mean, low, high = mean_bands(values.transpose(panel.along, "seed").values)
        x = values[panel.along].values
        colour, dashes = line_style(number)
        ax.plot(x, mean, color=colour, linestyle=dashes, label=name)
        if values.sizes["seed"] > 1:
            fill_band(ax, x, low, high, colour)
    if panel.level is not None:
        name = panel.level_name or None
        ax.axhline(panel.level, color=GREY, linewidth=0.8, linestyle=":", label=name)
    for x, _ in panel.marks:
        ax.axvline(x, color=GREY, linewidth=0.8, linestyle="--")
    if panel.along == "step":
        many_steps(ax)
        if for_paper():
            full_size_powers(ax.xaxis)
    values = np.concatenate([each.values.ravel() for _, each in panel.curves])
    if not np.isfinite(values).any():  # then the x axis has no scale either
        ax.text(0.5, 0.5, "no run has a value", transform=ax.transAxes, ha="center", color=GREY)
    elif panel.along != "step":
        if panel.along_log:
            ax.set_xscale("log")
        x = np.concatenate([each[panel.along].values for _, each in panel.curves])
        axis_ticks(ax.xaxis, x.astype(float), panel.along_log)
    if panel.log and (values > 0).any():
        ax.set_yscale("log")
        if for_paper():
            full_size_powers(ax.yaxis)
    ax.set_xlabel(panel.along_label)
    ax.set_ylabel(panel.label)
    _label_marks(ax, panel.marks)


def _add_legend(ax: Axes, panel: Curves, listed: set[tuple[str, ...]]) -> None:
    """Add a legend of the lines whose name, colour and dashes are not `listed` yet, and list them."""
    lines = {
        (str(line.get_label()), str(line.get_color()), str(line.get_linestyle())): line
        for line in ax.lines
        if not str(line.get_label()).startswith("_")  # matplotlib's names of unnamed lines
    }
    new = [line for entry, line in lines.items() if entry not in listed]
    listed.update(lines)
    if new:
        # A pale background: some panels have no free corner.
        frame = {"frameon": True, "framealpha": 0.75, "edgecolor": "none", "fancybox": False}
        ax.legend(handles=new, loc=panel.legend, **frame)


def _label_marks(ax: Axes, marks: Sequence[tuple[float, str]]) -> None:
    """Write a label left of each mark, at the top, or at the bottom if the label before it is too close."""
    last = -np.inf
    for x, label in sorted(marks):
        across = ax.transAxes.inverted().transform(ax.transData.transform((x, 1.0)))[0]
        top = across - last > CLOSE
        last = across if top else last
        height, side = (0.98, "top") if top else (0.02, "bottom")
        at = {"xy": (x, height), "xycoords": ax.get_xaxis_transform(), "va": side}
        ax.annotate(label, **at, rotation=90, **MARK_LABEL)


WIDE = 4.2
"""width in inches of a figure of curves on a screen"""
MOST_PANELS = 8
FEW_POINTS = 20
"""a line of at most so many points has a marker at each"""
ATTENTION = {
    "attention_on_signal": "signal token",
    "attention_on_signal_attacked": "signal token, attacked",
    "attention_on_strong_noise": "strong noise token",
}
"""variables that `attention` draws if they are measured, with their names in the legend"""


def curves(
    result: xr.Dataset,
    variables: str | Sequence[str] = "test_accuracy",
    *,
    by: str | None = None,
    log: bool = False,
    title: str | None = None,
    caption: str | None = None,
    width: Width | None = None,
) -> Figure:
    """Draw means of variables over seeds along the one axis of an experiment, with 95 % intervals as bands.

    The band of two or three seeds is their range. For curves along the steps name them so, `"train_loss_curve"`; for
    one run (`result.sel(..., seed=0)`, or the trace of a replay) that run is drawn. `by` names a second axis, with a
    line for each of its values. `log` makes the y axis logarithmic and the means geometric. `title` and `caption`
    come from the result, "" leaves them out; `width` "column" or "page" is for papers.

    >>> import tempfile
    >>> import benign as bo
    >>> sweep = bo.Experiment(
    ...     data=bo.Mixture(samples=[4, 8], dim=20, signal=[1.0, 2.0, 4.0]),
    ...     network=bo.Linear(),
    ...     training=bo.GradientDescent(rate=0.1, max_steps=50),
    ...     evaluation=bo.Evaluation(samples=50),
    ...     seeds=2,
    ... )
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     result = sweep.run(folder)
    >>> figure = bo.plot.curves(result, "test_accuracy", by="samples", width="column")
    >>> [line.get_label() for line in figure.axes[0].lines]
    ['N = 4', 'N = 8']
    """
    names = as_list(variables)
    lines = [line for name in names for line in _lines(result, name, by, len(names) > 1)]
    drawn = [values for _, _, values in lines]
    if log and not any(bool((values > 0).any()) for values in drawn):
        raise ValueError(f"`log` must be False: no value of {', '.join(names)} is above 0")
    sentences = [caption_of(result), *band_notes(drawn, log), *_still_training(drawn)]
    caption = " ".join(filter(None, sentences)) if caption is None else caption
    title = _title(names, drawn[0]) if title is None else title
    with drawn_for(width):
        legend_rows = rows_for([label for label, _, _ in lines], width_of(WIDE))
        size = WIDE, 2.9 + 0.15 * legend_rows
        with sheet(1, 1, size, title, caption, extra_height=0.1) as (figure, [ax]):
            _draw_lines(ax, names, lines, log)
    return figure


def _draw_lines(
    ax: Axes, names: Sequence[str], lines: Sequence[tuple[str, str, xr.DataArray]], log: bool
) -> None:
    for number, (label, name, values) in enumerate(lines):
        draw_mean(ax, number, label, values, value_range(name), log)
    accuracies = all(readable(name).endswith("accuracy") for name in names)
    if log:
        ax.set_yscale("log")
        log_ticks(ax.yaxis, *ax.get_ylim())
    elif accuracies:
        ax.set_ylim(0, 1.02)
    several = "accuracy" if accuracies else ", ".join(map(readable, names))
    ax.set_ylabel(several if len(names) > 1 else readable(names[0]))
    if len(lines) > 1:
        legend_below(ax, in_columns=True)


def _title(names: Sequence[str], values: xr.DataArray) -> str:
    """Return the title of a figure of curves: `Test accuracy over SNR`."""
    [along] = varied_axes(values)
    quantities = ", ".join(map(readable, names)).capitalize()
    return (
        f"{quantities} along training"
        if along == "step"
        else f"{quantities} over {symbol_of(values[along])}"
    )


def _lines(
    result: xr.Dataset, name: str, by: str | None, several: bool
) -> Iterator[tuple[str, str, xr.DataArray]]:
    """Yield label, variable and values of each line."""
    if by is None:
        yield readable(name), readable(name), variable_of(result, name, 1)
        return
    values = variable_of(result, name, 2)
    if by not in varied_axes(values):
        raise ValueError(f"`by` must be one of {', '.join(varied_axes(values))}, got {by!r}")
    for value in values[by]:
        label = f"{readable(name)}, {value_label(value)}" if several else value_label(value)
        yield label, readable(name), values.sel({by: value})


def attention(
    result: xr.Dataset,
    *,
    title: str | None = None,
    caption: str | None = None,
    width: Width | None = None,
) -> Figure:
    """Draw attention on the signal token and on noise tokens along training, with 95 % intervals.

    Values are means over training points, heads and rows. "Noise token" is the mean of the noise tokens without a line
    of their own. The band of two or three seeds is their range. A run that has ended stays at its last value. An axis
    of several values gives a panel for each.

    >>> import tempfile
    >>> import benign as bo
    >>> sweep = bo.Experiment(
    ...     data=bo.SignalNoise(samples=8, tokens=4, dim=32, noise_std=0.4, snr=[0.5, 4.0]),
    ...     network=bo.Attention(hidden=8, init=bo.TorchDefault(divide_by=4)),
    ...     training=bo.GradientDescent(rate=0.3, stop_loss=0.1, max_steps=40),
    ...     evaluation=bo.Evaluation(samples=20),
    ...     seeds=2,
    ... )
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     result = sweep.run(folder)
    >>> figure = bo.plot.attention(result, width="page")
    >>> [ax.get_title("left") for ax in figure.axes]
    ['(a) SNR = 0.5', '(b) SNR = 4']
    """
    panels = list(_panels(_by_token(result)))
    notes = band_notes([parts["signal token"] for _, parts in panels])
    sentences = [caption_of(result), *notes, "A run that has ended stays at its last value."]
    title = "Attention along training" if title is None else title
    caption = " ".join(filter(None, sentences)) if caption is None else caption
    count, size = len(panels), (3.55, 2.6)
    with drawn_for(width), sheet(count, min(count, 4), size, title, caption) as (figure, axes):
        for number, (ax, (name, parts)) in enumerate(zip(axes, panels, strict=True)):
            _draw_attention(ax, parts)
            ax.set_title(panel_title(number, count, name))
        axes[0].legend()
    return figure


def _by_token(result: xr.Dataset) -> xr.Dataset:
    """Return attention on each kind of token along the steps, and `uniform` attention."""
    if "attention_on_signal_curve" not in result:
        raise ValueError(
            "no variable 'attention_on_signal_curve': it is measured where `network` is `Attention` and `data` is "
            "`SignalNoise`, and `result` must be that of an experiment with its dimension `step`"
        )
    if varied_axes(result["attention_on_signal"]):
        variable_of(result, "attention_on_signal", 1)  # raises if there are several axes
    tokens = xr.DataArray(result.coords.get("tokens", specification(result)["data"]["tokens"]))
    measured = {
        name: extended_curve(result, name) for name in ATTENTION if f"{name}_curve" in result
    }
    clean = [values for name, values in measured.items() if not name.endswith("attacked")]
    rest = (1 - sum(clean)) / (tokens - len(clean)).where(tokens > len(clean))
    parts = {ATTENTION[name]: values for name, values in measured.items()}
    parts["noise token" if len(clean) == 1 else "other noise token"] = rest
    return xr.Dataset({**parts, "uniform": 1 / tokens})


def _panels(parts: xr.Dataset) -> Iterator[tuple[str, xr.Dataset]]:
    """Yield name and contents of each panel."""
    axes = [axis for axis in varied_axes(parts["signal token"]) if axis != "step"]
    if not axes:
        yield "", parts
        return
    [axis] = axes
    if parts.sizes[axis] > MOST_PANELS:
        raise ValueError(
            f"{parts.sizes[axis]} values of {axis!r} are too many panels: select {MOST_PANELS} at most, "
            f"result.sel({axis}=[...])"
        )
    for value in parts[axis]:
        yield value_label(value), parts.sel({axis: value})


def _draw_attention(ax: Axes, parts: xr.Dataset) -> None:
    for number, name in enumerate(map(str, parts.drop_vars("uniform"))):
        draw_mean(ax, number, name, variable_of(parts, name, 1), (0.0, 1.0))
    uniform = parts["uniform"].item()
    ax.axhline(uniform, color=GREY, linewidth=0.8, linestyle=":", label="uniform, 1/M")
    ax.set_ylim(-0.02, 1.02)
    ax.set_ylabel("attention")


def draw_mean(
    ax: Axes,
    number: int,
    label: str,
    values: xr.DataArray,
    within: tuple[float, float],
    log: bool = False,
) -> None:
    """Draw the mean over seeds along the one axis, and its band if there are several seeds."""
    [along] = varied_axes(values)
    values = values.sortby(along)
    mean, low, high = mean_bands(values.transpose(along, "seed").values, log)
    colour, dashes = line_style(number)
    marker = "." if mean.size <= FEW_POINTS else "none"
    ax.plot(values[along], mean, color=colour, linestyle=dashes, marker=marker, label=label)
    if values.sizes["seed"] > 1:
        low, high = (np.clip(end, *within) for end in (low, high))
        fill_band(ax, values[along].values, low, high, colour)
    if along == "step":
        step_axis(ax, values[along])
    else:
        set_axis(ax, values[along], "x")


def _still_training(drawn: Sequence[xr.DataArray]) -> Iterator[str]:
    """Yield the sentence of a caption about means over fewer and fewer runs, if runs end at different steps."""
    for values in drawn:
        training = values.count("seed").values
        training = training[training > 0]
        if "step" in values.dims and len(set(training.tolist())) > 1:
            ends = f"{training[0]} at first, {training[-1]} at last"
            yield f"At every step the mean of the runs still training: {ends}."
            return  # the runs are the same for every variable
