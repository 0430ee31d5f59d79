"""The figures of Jiang et al. as recipes."""

import math
from dataclasses import dataclass
from functools import partial
from typing import Literal

import xarray as xr

from benign.claims.study import Question, Reading, Scaled
from benign.data.constructions import FrameNoise
from benign.data.signal_noise import SignalNoise
from benign.experiment import Experiment, experiment_of
from benign.networks.attention import Attention
from benign.networks.initial import TorchDefault
from benign.papers.attention_setting import (
    LABELS,
    OUTPUT,
    PROJECTION,
    network,
)
from benign.papers.images import (
    TRANSFORMER,
    ImageSize,
    count_tests,
    describe_images,
    images,
    ratios,
    sample_pictures,
    source_of,
    training,
    transformer,
    which_images,
)
from benign.papers.jiang.inside import INSIDE
from benign.papers.jiang.theory import (
    JiangNumbers,
    Theorem,
    conditions,
    steps_derived,
    test_loss_limit,
)
from benign.papers.recipes import Recipe
from benign.papers.statistics import converged
from benign.plot.lines import Curves, curves_figure
from benign.plot.maps import Panel, phase_figure
from benign.plot.style import Figure
from benign.plot.variables import extended_curve
from benign.spec.axes import linspace, logspace
from benign.stats.boundary import boundary
from benign.stats.intervals import mean_interval, number
from benign.sweep.dataset import ended
from benign.training.optimisers import GradientDescent
from benign.training.setup import Evaluation

# Figure 1: test loss on synthetic data.


CUT = 0.2
"""test loss that figure 1b cuts at"""
PRINTED = "samples * snr**2 = 1000"
"""the red curve of figure 1"""

SNR_GRID = Question(
    "snr_grid",
    "how are the signal-to-noise ratios of figure 1 spaced between 0.16 and 15.6?",
    {"linear": "evenly: |mu| from 1 to 100", "log": "evenly in the logarithm"},
    "0.16 to 15.6 is |mu| = 1 to 100 at sigma_p sqrt(d) = 6.4",
)

WEIGHTS = Question(
    "weights",
    "the initial weights have the standard deviation of PyTorch's default divided by 16; which law?",
    {
        "normal": "Gaussian, as in the theorems; exact small coordinates are sampled, and each fresh point is tested "
        "on a network of its own with this training run",
        "uniform": "PyTorch's default; fresh points are tested in R^d, all of a run on its one network",
    },
    "the theorems have Gaussian weights, and no difference was found (docs/coordinates.md)",
)


def _entries(reading: Reading) -> Literal["normal", "uniform"]:
    return "normal" if reading["weights"] == "normal" else "uniform"


def _coordinates(reading: Reading) -> Literal["sampled", "projected"]:
    """Return the cheapest exact coordinates of clean training (docs/coordinates.md)."""
    return "sampled" if reading["weights"] == "normal" else "projected"


FIG1 = Recipe(
    name="jiang/fig1",
    title="Figure 1: test loss over sample size and signal-to-noise ratio, synthetic data",
    shows="a sharp transition of the test loss, drawn at N SNR^2 = 1000",
    questions=(OUTPUT, WEIGHTS, LABELS, PROJECTION, SNR_GRID),
    conditions=conditions,
)


@FIG1.builds
def _build_1(scale: str, reading: Reading) -> Experiment:
    dim, hidden, samples, ratios, seeds, test, max_steps = Scaled(
        smoke=(64, 16, range(4, 13, 4), 4, 1, 100, 200),
        quick=(512, 128, range(4, 25, 4), 10, 2, 250, 5000),
        paper=(1024, 512, range(2, 21, 2), 10, 5, 500, 20000),
    )[scale]
    space = linspace if reading["snr_grid"] == "linear" else logspace
    return Experiment(
        data=SignalNoise(
            tokens=16,
            dim=dim,
            samples=list(samples),
            snr=space(0.15625, 15.625, ratios),
            noise_std=0.2,
            strong_noise_std=4.0,
            projected=reading["projection"] == "projected",
            balanced=reading["labels"] == "balanced",
        ),
        network=network(hidden, reading["w_O"], _entries(reading)),
        training=GradientDescent(rate=0.1, stop_loss=0.01, max_steps=max_steps),
        evaluation=Evaluation(samples=test),
        coordinates=_coordinates(reading),
        seeds=seeds,
    )


def _maps(result: xr.Dataset) -> tuple[xr.DataArray, xr.DataArray]:
    """Test loss, which the paper draws, and test error, which it does not."""
    return result.test_loss.rename("test loss"), (1 - result.test_accuracy).rename("test error")


@FIG1.maps
def _panels_1(result: xr.Dataset) -> list[Panel]:
    loss, error = _maps(result)
    edge = boundary(loss, CUT)
    return [
        Panel(
            loss,
            "samples",
            "snr",
            "test loss",
            limits=(0.0, 0.7),
            printed=PRINTED,
            boundary=edge,
            moved=result.get("test_loss_moved"),
        ),
        Panel(loss, "samples", "snr", "test loss", cut=CUT, printed=PRINTED, boundary=edge),
        Panel(
            error,
            "samples",
            "snr",
            "test error",
            limits=(0.0, 0.5),
            boundary=boundary(error, 0.05),
            moved=result.get("test_accuracy_moved"),
        ),
    ]


@FIG1.draws
def _draw_1(result: xr.Dataset, caption: str) -> Figure:
    title = "Benign and harmful overfitting of a transformer"
    return phase_figure(_panels_1(result), title=title, caption=caption)


@FIG1.summarises
def _summarise_1(result: xr.Dataset) -> str:
    loss, error = _maps(result)
    edge = boundary(loss, CUT)
    lines = [str(edge)]
    if edge.fit is not None:
        c = edge.constant_for(2.0)
        lines.append(
            f"  at exponent 2: N SNR^2 = {c.value:.4g} [{c.low:.4g}, {c.high:.4g}]; the paper prints 1000"
        )
    return "\n".join([*lines, str(boundary(error, 0.05))])


# Figure 2: test loss on MNIST with a noisy frame (papers/jiang.md 4.2).


NOISE = Question(
    "noise",
    "how strong is the noise on the frame before it is multiplied by 1 - a? Pixels are between 0 and 1",
    {"1": "standard deviation 1", "0.3": "standard deviation 0.3, about that of the pixels"},
    "a standard Gaussian, where nothing is said",
)
_LAYOUT = {"digits": (2, 1), "mnist": (4, 4)}
"""pixels of a patch's side and of the frame: in MNIST the frame is the outer ring of patches"""
_SIZES = Scaled(
    smoke=ImageSize(
        samples=(40, 120, 2), ratios=(0.2, 2.0, 2), hidden=8, epochs=1, batch=16, test=50
    ),
    quick=ImageSize(
        samples=(300, 1500, 3), ratios=(0.2, 2.0, 4), hidden=32, epochs=30, batch=16, test=500
    ),
    paper=ImageSize(
        samples=(3000, 8400, 10), ratios=(0.2, 2.0, 10), hidden=64, epochs=100, test=10_000, seeds=2
    ),
)


FIG2 = Recipe(
    name="jiang/fig2",
    title="Figure 2: test loss over sample size and SNR, MNIST with a noisy frame",
    shows="more samples and a stronger signal lower the test loss, with a visible transition",
    questions=(NOISE, which_images("mnist"), *TRANSFORMER),
)


@FIG2.builds
def _build_2(scale: str, reading: Reading) -> Experiment:
    size, source = _SIZES[scale], source_of(scale, reading, "mnist")
    patch, width = _LAYOUT[source]
    noise = FrameNoise(snr=ratios(size), width=width, noise_std=float(reading["noise"]))
    data = images(size, reading, source, patch, noise)
    return Experiment(
        data=data,
        network=transformer(size, reading, data.label_count()),
        training=training(size, reading),
        evaluation=Evaluation(samples=count_tests(size, reading, source)),
        pairing="common",
        seeds=size.seeds,
    )


@FIG2.maps
def _panels_2(result: xr.Dataset) -> list[Panel]:
    return [
        Panel(result.test_loss, "samples", "snr", "test loss"),
        Panel(1 - result.test_accuracy, "samples", "snr", "test error"),
    ]


@FIG2.draws
def _draw_2(result: xr.Dataset, caption: str) -> dict[str, Figure]:
    caption = f"{caption} {describe_images(result)}"
    title = "A vision transformer on pictures with a noisy frame"
    figure = phase_figure(_panels_2(result), title=title, caption=caption)
    return {"fig2": figure, **sample_pictures(result, "fig2_samples", caption)}


@FIG2.summarises
def _summarise_2(result: xr.Dataset) -> str:
    loss, error = result.test_loss.mean("seed"), 1 - result.test_accuracy.mean("seed")
    lines = []
    for name, row in (("test loss", loss), ("test error", error)):
        row = row.sortby(["samples", "snr"])
        ends = [float(row.isel(samples=k, snr=k)) for k in (0, -1)]
        lines.append(
            f"{name}: {ends[0]:.3g} at the smallest N and SNR, {ends[1]:.3g} at the largest"
        )
    runs, there = ended(result), converged(result)
    lines.append(
        f"{int(there.sum())} of {int(runs.sum())} runs reach the training loss, the largest loss at "
        f"the end is {float(result.train_loss.max()):.3g}"
    )
    return "\n".join(lines)


# Figures 3 and 4: scores, attention and values along training (appendix A).


TOKENS = 4
SCORES = {
    "mu for mu": "score_signal_for_signal",
    "mu for xi_2": "score_signal_for_strong",
    "xi_2 for mu": "score_strong_for_signal",
    "xi_2 for xi_2": "score_strong_for_strong",
}
ATTENTION = {"on mu": "attention_on_signal", "on xi_2": "attention_on_strong_noise"}
VALUES = {"mu_+^T v": "value_positive_signal", "y xi_2^T v": "value_strong_noise"}
"""names in the figures, and the variables that are drawn"""


@dataclass(frozen=True)
class _CurveFigure:
    """One of the two figures."""

    figure: str
    theorem: Theorem
    samples: int
    signal: float
    title: str


BENIGN = _CurveFigure("fig3", "4.1", 16, 25.0, "Benign overfitting of a transformer along training")
HARMFUL = _CurveFigure(
    "fig4", "4.2", 10, 15.0, "Harmful overfitting of a transformer along training"
)


def _build_case(case: _CurveFigure, scale: str, reading: Reading) -> Experiment:
    """Appendix A; below paper scale with smaller d and d_h and the same lengths of tokens."""
    dim = Scaled(64, 512, 2048)[scale]
    longer = math.sqrt(2048 / dim)
    return Experiment(
        data=SignalNoise(
            samples=case.samples,
            tokens=TOKENS,
            dim=dim,
            signal=case.signal,
            noise_std=0.05 * longer,
            strong_noise_std=1.0 * longer,
            balanced=True,
        ),
        network=Attention(
            hidden=dim // 2,
            value_dim=dim // 8,
            init=TorchDefault(
                divide_by=16,
                divide_output=reading["w_O"] == "divided",
                entries=_entries(reading),
            ),
            output_norm=1.0 if reading["w_O"] == "unit" else None,
        ),
        training=GradientDescent(rate=0.1, stop_loss=0.01, max_steps=20_000),
        evaluation=Evaluation(samples=Scaled(50, 250, 250)[scale]),
        coordinates=_coordinates(reading),
        seeds=Scaled(1, 14, 14)[scale],
    )


def numbers(result: xr.Dataset) -> JiangNumbers:
    """What the theorems are about, of the one cell of a result."""
    return JiangNumbers.of(experiment_of(result))


def _draw_case(case: _CurveFigure, result: xr.Dataset, caption: str) -> Figure:
    time = steps_derived(numbers(result), case.theorem, attention=1.0)

    def panel(label: str, named: dict[str, str], **more) -> Curves:
        curves = [(name, extended_curve(result, variable)) for name, variable in named.items()]
        return Curves(curves, label, marks=[(time, "T by formula")], **more)

    row = [
        panel("score x_l^T W_Q W_K^T x_j", SCORES, title="scores: row for token"),
        panel(
            "attention, mean over rows",
            ATTENTION,
            level=1 / TOKENS,
            level_name="uniform",
            title="attention",
        ),
        panel("value x^T v, v = W_V w_O", VALUES, title="values"),
    ]
    note = f"T by formula: {_formula(case)} = {number(time)} steps. A run that has ended stays at its last value."
    return curves_figure([row], title=case.title, caption=f"{caption} {note}")


def _formula(case: _CurveFigure) -> str:
    if case.theorem == "4.1":
        return "2 / (eta eps |mu|^2 |w_O|^2)"
    return "N / (eta eps C_p^2 sigma_p^2 d |w_O|^2)"


def _summarise_case(case: _CurveFigure, result: xr.Dataset) -> str:
    n, groups = numbers(result), {"scores": SCORES, "attention": ATTENTION, "values": VALUES}
    reached = int((converged(result)).sum())
    lines = [
        f"{reached} of {int(ended(result).sum())} runs reached the training loss {n.loss:g}",
        f"steps: {_mean(result.steps)}; {_times(case, result)}",
    ]
    for name, group in groups.items():
        means = [f"{each} {_mean(result[variable])}" for each, variable in group.items()]
        lines.append(f"{name}: {', '.join(means)}")
    lines.append(f"test loss: {_mean(result.test_loss)}{_limit(case, n)}")
    lines.append(f"test error (0/1): {_mean(1 - result.test_accuracy)}")
    return "\n".join(lines)


def _mean(values: xr.DataArray) -> str:
    """Over the seeds that have a value, with its interval."""
    known = values.dropna("seed").values
    return str(mean_interval(known)) if known.size else "of no run"


def _times(case: _CurveFigure, result: xr.Dataset) -> str:
    """The formula at full attention, and with the attention that is left on the token that was learned."""
    n, learned = numbers(result), list(ATTENTION.values())[case.theorem == "4.2"]
    left = float(result[learned].mean())
    text = f"{_formula(case)} = {number(steps_derived(n, case.theorem, 1.0))}"
    if not left > 0:  # no run has a value
        return text
    return f"{text}, {number(steps_derived(n, case.theorem, left))} when divided by attention^2"


def _limit(case: _CurveFigure, n: JiangNumbers) -> str:
    if case.theorem == "4.2":
        return ""
    return f"; log(1 + eps^((2M - 1) / M^2)), with all attention on mu: {test_loss_limit(n.loss, n.tokens, 1.0):.3f}"


def _recipe(case: _CurveFigure, shows: str) -> Recipe:
    kind = case.title.split()[0].lower()
    return Recipe(
        name=f"jiang/{case.figure}",
        title=f"Figure {case.figure[-1]}: scores, attention and values along {kind} training, synthetic data",
        shows=shows,
        build=partial(_build_case, case),
        figure=partial(_draw_case, case),
        summarise=partial(_summarise_case, case),
        questions=(OUTPUT, WEIGHTS),
        conditions=partial(conditions, theorem=case.theorem),
    )


FIG3 = _recipe(
    BENIGN, "scores, attention and value of the signal outgrow those of the strong noise"
)
FIG4 = _recipe(
    HARMFUL, "scores, attention and value of the strong noise outgrow those of the signal"
)


RECIPES = [
    FIG1,
    FIG2,
    FIG3,
    FIG4,
    INSIDE,
]
