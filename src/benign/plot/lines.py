"""Quantities along training, or along an axis of the grid, one line a setting, with the spread over seeds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benign.experiment import specification
from benign.plot.axis import axis_ticks, level_powers, log_ticks, many_steps, set_axis, step_axis
from benign.plot.sheet import (
    Width,
    drawn_for,
    for_paper,
    inches_of,
    legend_below,
    letter,
    rows_for,
    sheet,
)
from benign.plot.style import SMALL
from benign.plot.variables import (
    axes_of,
    caption_of,
    extended_curve,
    listed,
    named,
    plain,
    possible,
    symbol_of,
    variable_of,
)
from benign.stats.boundary import ENOUGH_SEEDS
from benign.stats.intervals import mean_interval

# Okabe and Ito's colours, distinguishable with any colour vision.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")

LINES = ("-", "--", "-.", ":")

GREY = "#8c8c8c"
BESIDE = {"fontsize": SMALL, "color": GREY, "ha": "right"}
CLOSE = 0.06
"""share of the width of a panel below which words beside two marks would cover one another"""


@dataclass(frozen=True, eq=False)
class Curves:
    """One panel: curves with dims (seed, step), or another than step, each with its name in the legend."""

    curves: Sequence[tuple[str, xr.DataArray]]
    """name and values of each curve"""
    label: str
    """names the quantity on the y axis"""
    along: str = "step"
    """the coordinate on the x axis"""
    along_label: str = "gradient descent steps"
    """name of the x axis"""
    marks: Sequence[tuple[float, str]] = ()
    """vertical lines, each with a word about it"""
    along_log: bool = True
    """whether the x axis is logarithmic; steps always are, with room for step 0"""
    log: bool = False
    """whether the y axis is logarithmic"""
    level: float | None = None
    """a horizontal line, such as an error that cannot be beaten"""
    level_name: str = ""
    """a word about it"""
    title: str = ""
    """what sets this panel apart from its neighbours, beside its letter"""
    legend: Literal["best", "upper left", "upper right", "lower left", "lower right"] = "best"
    """where the legend stands"""


def curves_figure(
    rows: Sequence[Sequence[Curves]], *, title: str, caption: str, width: Width | None = None
) -> Figure:
    """Panels in rows; bands are one standard error of the mean over seeds on either side.

    A legend tells what no panel before it has told. `width` "column" or "page" is for papers: rows become shorter.
    """
    if not rows or len({len(row) for row in rows}) != 1:
        raise ValueError("`rows` must hold at least one row, and rows of equal length")
    panels, told = [panel for row in rows for panel in row], set[tuple[str, ...]]()
    count, size = len(panels), (3.55, 2.2)
    with drawn_for(width), sheet(count, len(rows[0]), size, title, caption) as (figure, axes):
        for number, (ax, panel) in enumerate(zip(axes, panels, strict=True)):
            draw_curves(ax, panel)
            _name_curves(ax, panel, told)
            ax.set_title(letter(number, count, panel.title))
    return figure


def look(number: int) -> tuple[str, str]:
    """Colour and line of a curve: no two of 24 alike, and of two that lie on one another both are seen."""
    return COLOURS[number % len(COLOURS)], LINES[(number + number // 12) % len(LINES)]


def draw_curves(ax: Axes, panel: Curves) -> None:
    """Mean and standard error over seeds along the steps; a run that has ended counts no more."""
    for number, (name, values) in enumerate(panel.curves):
        mean = values.mean("seed")
        x = mean[panel.along].values
        colour, line = look(number)
        ax.plot(x, mean, color=colour, linestyle=line, label=name)
        if values.sizes["seed"] > 1:
            band = values.std("seed", ddof=1) / np.sqrt(values.count("seed"))
            ax.fill_between(x, mean - band, mean + band, color=colour, alpha=0.2, linewidth=0)
    if panel.level is not None:
        name = panel.level_name or None
        ax.axhline(panel.level, color=GREY, linewidth=0.8, linestyle=":", label=name)
    for place, _ in panel.marks:
        ax.axvline(place, color=GREY, linewidth=0.8, linestyle="--")
    if panel.along == "step":
        many_steps(ax)
        if for_paper():
            level_powers(ax.xaxis)
    values = np.concatenate([each.values.ravel() for _, each in panel.curves])
    if not np.isfinite(values).any():  # nor has the x axis a scale then
        ax.text(0.5, 0.5, "no run has a value", transform=ax.transAxes, ha="center", color=GREY)
    elif panel.along != "step":
        if panel.along_log:
            ax.set_xscale("log")
        places = np.concatenate([each[panel.along].values for _, each in panel.curves])
        axis_ticks(ax.xaxis, places.astype(float), panel.along_log)
    if panel.log and (values > 0).any():
        ax.set_yscale("log")
        if for_paper():
            level_powers(ax.yaxis)
    ax.set_xlabel(panel.along_label)
    ax.set_ylabel(panel.label)
    _name_marks(ax, panel.marks)


def _name_curves(ax: Axes, panel: Curves, told: set[tuple[str, ...]]) -> None:
    """A legend of the lines whose names and looks are not `told`, which they are from here on."""
    looks = {
        (str(line.get_label()), str(line.get_color()), str(line.get_linestyle())): line
        for line in ax.lines
        if not str(line.get_label()).startswith("_")  # which matplotlib calls those without a name
    }
    new = [line for each, line in looks.items() if each not in told]
    told.update(looks)
    if new:
        # A pale ground: some legends have no place that is free.
        frame = {"frameon": True, "framealpha": 0.75, "edgecolor": "none", "fancybox": False}
        ax.legend(handles=new, loc=panel.legend, **frame)


def _name_marks(ax: Axes, marks: Sequence[tuple[float, str]]) -> None:
    """A word left of every mark, at the top, or at the bottom where one at the top would be in its way."""
    last = -np.inf
    for place, word in sorted(marks):
        across = ax.transAxes.inverted().transform(ax.transData.transform((place, 1.0)))[0]
        top = across - last > CLOSE
        last = across if top else last
        height, side = (0.98, "top") if top else (0.02, "bottom")
        at = {"xy": (place, height), "xycoords": ax.get_xaxis_transform(), "va": side}
        ax.annotate(word, **at, rotation=90, **BESIDE)


WIDE = 4.2
"""inches of a figure of curves on a screen"""
MOST_PANELS = 8
FEW_POINTS = 20
"""that are marked on their line"""
ATTENTION = {
    "attention_on_signal": "signal token",
    "attention_on_signal_attacked": "signal token, attacked",
    "attention_on_strong_noise": "strong noise token",
}
"""what `attention` draws, as far as it is measured, and how it calls it"""


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
    """Means of variables over seeds along the one axis of an experiment, with 95 % intervals as bands.

    Bands of two or three seeds are their range. Along the steps it takes curves, `"train_loss_curve"`; of one run
    (`result.sel(..., seed=0)`, or the trace of a replay) it draws that run. `by` names a second axis: a line for each
    of its values. `log` is for the y axis, and gives geometric means. `title` and `caption` are made of the result, ""
    leaves them out; `width` "column" or "page" is for papers.

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
    names = listed(variables)
    lines = [line for name in names for line in _lines(result, name, by, len(names) > 1)]
    drawn = [values for _, _, values in lines]
    if log and not any(bool((values > 0).any()) for values in drawn):
        raise ValueError(f"`log` must be False: no value of {', '.join(names)} is above 0")
    told = [caption_of(result), *bands(drawn, log), *_still_training(drawn)]
    caption = " ".join(filter(None, told)) if caption is None else caption
    title = _title(names, drawn[0]) if title is None else title
    with drawn_for(width):
        below = rows_for([label for label, _, _ in lines], inches_of(WIDE))
        size = WIDE, 2.9 + 0.15 * below
        with sheet(1, 1, size, title, caption, above=0.1) as (figure, [ax]):
            _draw_lines(ax, names, lines, log)
    return figure


def _draw_lines(
    ax: Axes, names: Sequence[str], lines: Sequence[tuple[str, str, xr.DataArray]], log: bool
) -> None:
    for number, (label, name, values) in enumerate(lines):
        draw_mean(ax, number, label, values, possible(name), log)
    accuracies = all(plain(name).endswith("accuracy") for name in names)
    if log:
        ax.set_yscale("log")
        log_ticks(ax.yaxis, *ax.get_ylim())
    elif accuracies:
        ax.set_ylim(0, 1.02)
    several = "accuracy" if accuracies else ", ".join(map(plain, names))
    ax.set_ylabel(several if len(names) > 1 else plain(names[0]))
    if len(lines) > 1:
        legend_below(ax, abreast=True)


def _title(names: Sequence[str], values: xr.DataArray) -> str:
    """`Test accuracy over SNR`."""
    [along] = axes_of(values)
    what = ", ".join(map(plain, names)).capitalize()
    return (
        f"{what} along training" if along == "step" else f"{what} over {symbol_of(values[along])}"
    )


def _lines(
    result: xr.Dataset, name: str, by: str | None, several: bool
) -> Iterator[tuple[str, str, xr.DataArray]]:
    """The label, the variable and the values of each line."""
    if by is None:
        yield plain(name), plain(name), variable_of(result, name, 1)
        return
    values = variable_of(result, name, 2)
    if by not in axes_of(values):
        raise ValueError(f"`by` must be one of {', '.join(axes_of(values))}, got {by!r}")
    for place in values[by]:
        label = named(place)
        yield f"{plain(name)}, {label}" if several else label, plain(name), values.sel({by: place})


def attention(
    result: xr.Dataset,
    *,
    title: str | None = None,
    caption: str | None = None,
    width: Width | None = None,
) -> Figure:
    """Where an attention network looks along training: at the signal token, at a noise token, with 95 % intervals.

    Means over training points, heads and rows. "Noise token" is one of those that are not drawn by themselves, on
    average. Bands of two or three seeds are their range. A run that has ended stays at its last value. An axis of
    several values gives a panel for each of them.

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
    seeds = bands([parts["signal token"] for _, parts in panels])
    told = [caption_of(result), *seeds, "A run that has ended stays at its last value."]
    title = "Attention along training" if title is None else title
    caption = " ".join(filter(None, told)) if caption is None else caption
    count, size = len(panels), (3.55, 2.6)
    with drawn_for(width), sheet(count, min(count, 4), size, title, caption) as (figure, axes):
        for number, (ax, (name, parts)) in enumerate(zip(axes, panels, strict=True)):
            _draw_attention(ax, parts)
            ax.set_title(letter(number, count, name))
        axes[0].legend()
    return figure


def _by_token(result: xr.Dataset) -> xr.Dataset:
    """Attention on each kind of token along the steps, and `uniform` attention."""
    if "attention_on_signal_curve" not in result:
        raise ValueError(
            "no variable 'attention_on_signal_curve': it is measured where `network` is `Attention` and `data` is "
            "`SignalNoise`, and `result` must be that of an experiment with its dimension `step`"
        )
    if axes_of(result["attention_on_signal"]):
        variable_of(result, "attention_on_signal", 1)  # refuses more than one
    tokens = xr.DataArray(result.coords.get("tokens", specification(result)["data"]["tokens"]))
    known = {name: extended_curve(result, name) for name in ATTENTION if f"{name}_curve" in result}
    apart = [values for name, values in known.items() if not name.endswith("attacked")]
    rest = (1 - sum(apart)) / (tokens - len(apart)).where(tokens > len(apart))
    parts = {ATTENTION[name]: values for name, values in known.items()}
    parts["noise token" if len(apart) == 1 else "other noise token"] = rest
    return xr.Dataset({**parts, "uniform": 1 / tokens})


def _panels(parts: xr.Dataset) -> Iterator[tuple[str, xr.Dataset]]:
    """The name of each panel, and what is in it."""
    axes = [axis for axis in axes_of(parts["signal token"]) if axis != "step"]
    if not axes:
        yield "", parts
        return
    [axis] = axes
    if parts.sizes[axis] > MOST_PANELS:
        raise ValueError(
            f"{parts.sizes[axis]} values of {axis!r} are too many panels: select {MOST_PANELS} at most, "
            f"result.sel({axis}=[...])"
        )
    for place in parts[axis]:
        yield named(place), parts.sel({axis: place})


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
    """The mean over seeds along the one axis, and its band where there are several."""
    [along] = axes_of(values)
    values = values.sortby(along)
    mean, low, high = means(values.transpose(along, "seed").values, log)
    colour, line = look(number)
    marker = "." if mean.size <= FEW_POINTS else "none"
    ax.plot(values[along], mean, color=colour, linestyle=line, marker=marker, label=label)
    if values.sizes["seed"] > 1:
        low, high = (np.clip(end, *within) for end in (low, high))
        ax.fill_between(values[along], low, high, color=colour, alpha=0.2, linewidth=0)
    if along == "step":
        step_axis(ax, values[along])
    else:
        set_axis(ax, values[along], "x")


def _still_training(drawn: Sequence[xr.DataArray]) -> Iterator[str]:
    """What must be said of curves whose runs end one by one."""
    for values in drawn:
        training = values.count("seed").values
        training = training[training > 0]
        if "step" in values.dims and len(set(training.tolist())) > 1:
            ends = f"{training[0]} at first, {training[-1]} at last"
            yield f"At every step the mean of the runs still training: {ends}."
            return  # the runs are the same for every variable


def means(rows: np.ndarray, log: bool = False) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of `rows` [places, seeds] the mean of the seeds that have a value, and both ends of its band.

    NaN is a band of too few seeds, and, with `log`, what has no logarithm.
    """
    few = rows.shape[1] < ENOUGH_SEEDS
    mean, low, high = np.array([_mean(row[~np.isnan(row)], log, few) for row in rows]).T
    return mean, low, high


def _mean(seeds: np.ndarray, log: bool, few: bool) -> np.ndarray:
    found = np.full(3, np.nan)
    if not seeds.size or (log and seeds.min() <= 0):
        return found
    values = np.log(seeds) if log else seeds
    found[0] = values.mean()
    if few and values.size > 1:
        found[1:] = values.min(), values.max()
    elif values.size >= ENOUGH_SEEDS:
        found[1:] = mean_interval(values)[1:]
    return np.exp(found) if log else found


def bands(drawn: Sequence[xr.DataArray], log: bool = False) -> Iterator[str]:
    """What a caption says of lines and bands; nothing of one seed."""
    seeds = max(values.sizes.get("seed", 1) for values in drawn)
    if seeds > 1 and log:
        yield "Lines: geometric means."
    if 1 < seeds < ENOUGH_SEEDS:
        yield f"Bands: range over {seeds} seeds."
    elif seeds > 1:
        counts = np.concatenate([values.count("seed").values.ravel() for values in drawn])
        fewer = ((counts > 0) & (counts < ENOUGH_SEEDS)).any()
        where = f", where at least {ENOUGH_SEEDS} have a value" if fewer else ""
        yield f"Bands: 95 % intervals of the mean over seeds{where}."
    if log and any(bool((values <= 0).any()) for values in drawn):
        yield "No line where a seed is 0 or less: it has no logarithm."
