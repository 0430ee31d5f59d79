"""Lines of a result along one axis of its experiment or along the steps: means over seeds with their bands."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benign.experiment import specification
from benign.plot.axis import log_ticks, set_axis, step_axis
from benign.plot.chosen import (
    axes_of,
    caption_of,
    held,
    listed,
    named,
    plain,
    possible,
    symbol_of,
    variable_of,
)
from benign.plot.legends import legend_below, rows_for
from benign.plot.lines import GREY, look
from benign.plot.seeds import bands, means
from benign.plot.sheet import Width, drawn_for, inches_of, letter, sheet

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
    known = {name: held(result, name) for name in ATTENTION if f"{name}_curve" in result}
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
