"""Lines of a result along one axis of its experiment or along the steps: means over seeds with their 95 % intervals."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benign.experiment import specification
from benign.plot.axis import log_ticks, set_axis, step_axis
from benign.plot.chosen import axes_of, caption_of, held, listed, plain, possible, variable_of
from benign.plot.lines import GREY, look
from benign.plot.sheet import Width, drawn_for, letter, sheet
from benign.theory.intervals import mean_interval

BANDS = "Bands: 95 % intervals of the mean over seeds."
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
    title: str = "",
    caption: str | None = None,
    width: Width | None = None,
) -> Figure:
    """Means of variables over seeds along the one axis of an experiment, with 95 % intervals as bands.

    Along the steps it takes curves, `"train_loss_curve"`; of one run (`result.sel(..., seed=0)`, or the trace of
    a replay) it draws that run. `by` names a second axis: a line for each of its values. `log` is for the y axis. The
    caption is made of the result, "" leaves it out; `width` "column" or "page" is for papers.

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
    told = [caption_of(result), *_of_seeds([values for _, _, values in lines])]
    caption = " ".join(filter(None, told)) if caption is None else caption
    with drawn_for(width), sheet(1, 1, (4.2, 3.0), title, caption, above=0.0) as (figure, [ax]):
        for number, (label, name, values) in enumerate(lines):
            draw_mean(ax, number, label, values, possible(name))
        accuracies = all(plain(name).endswith("accuracy") for name in names)
        if log:
            ax.set_yscale("log")
            log_ticks(ax.yaxis, *ax.get_ylim())
        elif accuracies:
            ax.set_ylim(0, 1.02)
        several = "accuracy" if accuracies else ", ".join(map(plain, names))
        ax.set_ylabel(several if len(names) > 1 else plain(names[0]))
        ax.legend()
    return figure


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
        label = _named(place)
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
    average. A run that has ended stays at its last value. An axis of several values gives a panel for each of them.

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
    seeds = [BANDS] if result.sizes.get("seed", 1) > 1 else []
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
        yield _named(place), parts.sel({axis: place})


def _draw_attention(ax: Axes, parts: xr.Dataset) -> None:
    for number, name in enumerate(map(str, parts.drop_vars("uniform"))):
        draw_mean(ax, number, name, variable_of(parts, name, 1), (0.0, 1.0))
    uniform = parts["uniform"].item()
    ax.axhline(uniform, color=GREY, linewidth=0.8, linestyle=":", label="uniform, 1/M")
    ax.set_ylim(-0.02, 1.02)
    ax.set_ylabel("attention")


def draw_mean(
    ax: Axes, number: int, label: str, values: xr.DataArray, within: tuple[float, float]
) -> None:
    """The mean over seeds along the one axis, and its interval where there are several."""
    [along] = axes_of(values)
    values = values.sortby(along)
    rows = values.transpose(along, "seed").values
    mean, low, high = np.array([_estimate(row[~np.isnan(row)]) for row in rows]).T
    colour, line = look(number)
    marker = "." if mean.size <= FEW_POINTS else "none"
    ax.plot(values[along], mean, color=colour, linestyle=line, marker=marker, label=label)
    if values.sizes["seed"] > 1:
        low, high = (np.clip(end, *within) for end in (low, high))
        ax.fill_between(values[along], low, high, color=colour, alpha=0.2, linewidth=0)
    (step_axis if along == "step" else set_axis)(ax, values[along], "x")


def _estimate(row: np.ndarray) -> tuple[float, float, float]:
    """Mean of the seeds that have a value and its interval, which one alone has not."""
    if row.size < 2:
        return (row[0] if row.size else np.nan, np.nan, np.nan)
    return mean_interval(row)


def _of_seeds(drawn: Sequence[xr.DataArray]) -> Iterator[str]:
    """What must be said of the seeds behind curves."""
    if max(values.sizes["seed"] for values in drawn) > 1:
        yield BANDS
    for values in drawn:
        training = values.count("seed").values
        training = training[training > 0]
        if "step" in values.dims and len(set(training.tolist())) > 1:
            ends = f"{training[0]} at first, {training[-1]} at last"
            yield f"At every step the mean of the runs still training: {ends}."
            return  # the runs are the same for every variable


def _named(place: xr.DataArray) -> str:
    """`SNR = 4`: one value of an axis, as the papers write it."""
    name, value = place.attrs.get("symbol", str(place.name).replace("_", " ")), place.item()
    return f"{name} = {value:.3g}" if isinstance(value, float) else f"{name} = {value}"
