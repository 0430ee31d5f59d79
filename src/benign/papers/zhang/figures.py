"""Figures 1 to 3 of Zhang et al. on synthetic data as recipes."""

import math
from collections.abc import Callable
from statistics import NormalDist

import numpy as np
import xarray as xr

from benign.claims.study import Question, Reading, Scaled
from benign.data.signal_noise import SignalNoise
from benign.experiment import Experiment, specification
from benign.papers.attention_setting import (
    LABELS,
    LEVEL,
    OUTPUT,
    PROJECTION,
    RADIUS,
    network,
    noisy_signals,
    pgd,
)
from benign.papers.recipes import Recipe, means_text
from benign.papers.statistics import converged
from benign.papers.zhang.appendix import HEADS, NORMS
from benign.papers.zhang.augment import AUGMENT
from benign.papers.zhang.images import FIGURE_1CD, FIGURE_4, FIGURE_5, FIGURE_6, FIGURE_7, FIGURE_8
from benign.papers.zhang.inside import INSIDE
from benign.papers.zhang.linear_mode import critical_snr
from benign.papers.zhang.output import OUTPUT_NORM
from benign.papers.zhang.radius import RADII
from benign.papers.zhang.theory import conditions
from benign.papers.zhang.tokens import TOKENS
from benign.plot.lines import Curves, curves_figure
from benign.plot.maps import Panel, phase_figure
from benign.plot.style import Figure
from benign.plot.variables import TRAINED_LOSS, extended_curve, training_losses
from benign.spec.axes import linspace, logspace, zipped
from benign.stats.audited import audited_boundary
from benign.stats.boundary import Boundary
from benign.sweep.dataset import ended
from benign.sweep.ends import masked_cells
from benign.training.optimisers import GradientDescent
from benign.training.setup import Evaluation

# Figure 1a, b: clean and robust accuracy.


NOISE = Question(
    "noise",
    "noise is N(0, 0.4 I): is 0.4 a variance or a standard deviation?",
    {"variance": "the covariance, as written: sigma_p = 0.632", "std": "sigma_p = 0.4"},
    "the literal reading; by scaling the two differ only in step size and initial weights",
)
STOP = Question(
    "stop",
    "training stops at loss 0.01: of attacked or of clean points?",
    {"attacked": "the robust training loss", "clean": "the clean training loss"},
    "the robust loss is what is trained",
)
SNR_GRID = Question(
    "snr_grid",
    "how are the signal-to-noise ratios of figure 1 spaced between 0.16 and 16?",
    {"linear": "evenly", "log": "evenly in the logarithm, better for exponents"},
    "heat maps are usually drawn so",
)


FIGURE_1 = Recipe(
    name="zhang/fig1",
    title="Figure 1a, b: clean and robust accuracy after adversarial training, synthetic data",
    shows="a boundary of the form N SNR^2 = constant for clean and for robust accuracy",
    questions=(NOISE, OUTPUT, LABELS, PROJECTION, STOP, SNR_GRID),
    conditions=conditions,
)


@FIGURE_1.builds
def _build_1(scale: str, reading: Reading) -> Experiment:
    dim, hidden, samples, ratios, seeds, test, max_steps = Scaled(
        smoke=(32, 4, range(2, 7, 4), 3, 1, 20, 4),
        quick=(256, 32, range(2, 23, 4), 6, 1, 250, 300),
        paper=(1024, 128, range(2, 23, 2), 12, 5, 1000, 5000),
    )[scale]
    space = linspace if reading["snr_grid"] == "linear" else logspace
    return Experiment(
        data=noisy_signals(
            dim,
            samples=list(samples),
            snr=space(0.16, 16.0, ratios),
            noise_std=0.4 if reading["noise"] == "std" else math.sqrt(0.4),
            projected=reading["projection"] == "projected",
            balanced=reading["labels"] == "balanced",
        ),
        network=network(hidden, reading["w_O"]),
        attack=pgd(RADIUS),
        training=GradientDescent(
            rate=0.1,
            stop_loss=0.01,
            stop_on="clean" if reading["stop"] == "clean" else "attacked",
            max_steps=max_steps,
        ),
        evaluation=Evaluation(samples=test),
        seeds=seeds,
    )


def _paper_law(edge: Boundary) -> str | None:
    """The paper's law with the constant measured here: none is legible in the paper. None without a boundary."""
    if edge.fit is None:
        return None
    return f"samples * snr**2 = {edge.constant_for(2.0).value:.3g}"


def linear_theory(result: xr.Dataset) -> Callable[[np.ndarray], np.ndarray]:
    """Where uniform attention is right with chance `LEVEL` on clean points, as a curve over N."""
    data = specification(result)["data"]
    return lambda samples: critical_snr(samples, data["tokens"], data["dim"], LEVEL)


def _maps(result: xr.Dataset) -> list[tuple[xr.DataArray, Boundary]]:
    """Clean and robust accuracy, each with where it crosses the level."""
    named = {"clean accuracy": "test_accuracy", "robust accuracy": "robust_accuracy"}
    return [_map(result, variable, name) for name, variable in named.items()]


def _map(result: xr.Dataset, variable: str, name: str) -> tuple[xr.DataArray, Boundary]:
    edge = audited_boundary(result, lambda of: of[variable].rename(name), LEVEL)
    return result[variable].rename(name), edge


@FIGURE_1.maps
def _panels(result: xr.Dataset) -> list[Panel]:
    """Clean and robust accuracy, then on which side of the level they are."""
    return [panel for cut in (None, LEVEL) for panel in _pair(result, cut)]


def _pair(result: xr.Dataset, cut: float | None) -> list[Panel]:
    predictions = (linear_theory(result), None)
    moved = (result.get("test_accuracy_moved"), result.get("robust_accuracy_moved"))
    masked = (None, masked_cells(result, "robust_accuracy"))
    panels = []
    for (values, edge), predicted, crosses, marks in zip(
        _maps(result), predictions, moved, masked, strict=True
    ):
        panels.append(
            Panel(
                values,
                "samples",
                "snr",
                str(values.name),
                cut=cut,
                limits=(0.0, 1.0),
                printed=_paper_law(edge),
                printed_by="paper's exponent",
                boundary=edge,
                predicted=predicted,
                predicted_by="linear theory: N · SNR⁴ = 4 (M - 1)² z² / d",
                moved=crosses,
                masked=marks,
            )
        )
    return panels


@FIGURE_1.draws
def _draw_1(result: xr.Dataset, caption: str) -> Figure:
    note = (
        "The paper gives no constant for its law: the one drawn is fitted here. "
        f"Linear theory: uniform attention, z = {NormalDist().inv_cdf(LEVEL):.3g}."
    )
    return phase_figure(
        _panels(result),
        title="Benign overfitting under adversarial training",
        caption=f"{caption} {note}",
        columns=2,
    )


@FIGURE_1.summarises
def _summarise_1(result: xr.Dataset) -> str:
    lines = []
    for _, edge in _maps(result):
        lines.append(str(edge))
        if edge.fit is not None:
            lines += [f"  at exponent {p}: N SNR^{p} = {_constant(edge, p)}" for p in (2, 4)]
    law = float(linear_theory(result)(np.ones(1))[0] ** 4)
    lines.append(f"linear theory of the clean boundary: N SNR^4 = {law:.4g}")
    return "\n".join(lines)


def _constant(edge: Boundary, exponent: float) -> str:
    c = edge.constant_for(exponent)
    return f"{c.value:.4g} [{c.low:.4g}, {c.high:.4g}]"


# Figure 2: robust training loss and robust test accuracy along training.


FIG2_SNR = 12.0
"""of the curves that differ in N"""
SYMBOLS = {"samples": "N", "snr": "SNR"}
AXES_2 = {"samples": "training points N", "snr": "signal-to-noise ratio SNR"}


FIGURE_2 = Recipe(
    name="zhang/fig2",
    title="Figure 2: robust training loss and robust test accuracy along training, synthetic data",
    shows="the robust training loss always falls; robust test accuracy rises for large SNR or N only",
    questions=(OUTPUT,),
)


@FIGURE_2.builds
def _build_2(scale: str, reading: Reading) -> Experiment:
    """N = 22 with several SNR, then SNR = 12 with several N; the paper does not say which."""
    ratios = Scaled(
        smoke=[0.16, 16.0],
        quick=[0.16, 1.0, 4.0, 12.0],
        paper=[0.16, 1.0, 4.0, 8.0, FIG2_SNR, 16.0],
    )[scale]
    sizes = Scaled(smoke=[2, 4], quick=[2, 10], paper=[2, 6, 10, 14, 18])[scale]
    largest = Scaled(4, 22, 22)[scale]
    dim, hidden = Scaled(smoke=(32, 4), quick=(512, 32), paper=(1024, 128))[scale]
    return Experiment(
        data=noisy_signals(
            dim,
            samples=zipped("curve", [largest] * len(ratios) + sizes),
            snr=zipped("curve", ratios + [FIG2_SNR] * len(sizes)),
        ),
        network=network(hidden, reading["w_O"]),
        attack=pgd(RADIUS),
        training=GradientDescent(rate=0.1, stop_loss=0.01, max_steps=Scaled(6, 200, 5000)[scale]),
        evaluation=Evaluation(samples=Scaled(10, 60, 1000)[scale], at="snapshots"),
        seeds=Scaled(1, 2, 5)[scale],
    )


def families(result: xr.Dataset) -> list[tuple[str, str, xr.Dataset]]:
    """Return the fixed number, the varied one, and the runs along it: SNR at the largest N, then N at SNR = 12."""
    rows = []
    for varied, fixed, value in (
        ("snr", "samples", result.samples.max()),
        ("samples", "snr", FIG2_SNR),
    ):
        runs = result.isel(curve=np.flatnonzero(result[fixed] == value))
        runs = runs.swap_dims(curve=varied).sortby(varied)
        rows.append((f"{SYMBOLS[fixed]} = {float(value):g}", varied, runs))
    return rows


@FIGURE_2.draws
def _draw_2(result: xr.Dataset, caption: str) -> Figure:
    rows = [_along_training_2(*family) for family in families(result)]
    rows.append([_ends(*family) for family in families(result)])
    rows.append([_losses_at_the_end(*family) for family in families(result)])
    note = "A run that has ended stays at its last value."
    return curves_figure(
        rows, title="Loss and accuracy along adversarial training", caption=f"{caption} {note}"
    )


def _along_training_2(fixed: str, varied: str, runs: xr.Dataset) -> list[Curves]:
    """Panels a and b of the paper, or c and d."""

    def each(values: xr.DataArray) -> list[tuple[str, xr.DataArray]]:
        name = SYMBOLS[varied]
        return [
            (f"{name} = {place:g}", values.sel({varied: place})) for place in values[varied].values
        ]

    accuracy = extended_curve(runs, "robust_accuracy")
    return [
        Curves(
            each(extended_curve(runs, "train_loss")),
            f"{TRAINED_LOSS} (nats)",
            log=True,
            level=0.01,
            level_name="training stops",
            title=fixed,
        ),
        Curves(
            each(accuracy),
            "robust test accuracy",
            level=0.5,
            level_name="chance",
            title=f"{fixed}, training attack",
        ),
    ]


def _ends(fixed: str, varied: str, runs: xr.Dataset) -> Curves:
    """Accuracies at the end in one panel: clean, under the training attack, and as judged."""
    return Curves(
        [
            ("clean", runs.test_accuracy),
            ("training attack", runs.robust_accuracy_training_attack),
            ("thorough attack", runs.robust_accuracy),
        ],
        "test accuracy at the end",
        varied,
        AXES_2[varied],
        level=0.5,
        title=fixed,
    )


def _losses_at_the_end(fixed: str, varied: str, runs: xr.Dataset) -> Curves:
    """What was trained, and what is known of the robust training loss."""
    return Curves(
        list(training_losses(runs).items()),
        "loss at the end (nats)",
        varied,
        AXES_2[varied],
        log=True,
        level=0.01,
        level_name="training stops",
        title=fixed,
    )


@FIGURE_2.summarises
def _summarise_2(result: xr.Dataset) -> str:
    lines = []
    for fixed, varied, runs in families(result):
        lines.append(f"{fixed}:")
        for place in runs[varied].values:
            cell = runs.sel({varied: place})
            reached = int(converged(cell).sum())
            measures = {
                "steps": cell.steps,
                **training_losses(cell),
                "clean accuracy": cell.test_accuracy,
                "robust under the training attack": cell.robust_accuracy_training_attack,
                "under a thorough one": cell.robust_accuracy,
            }
            means = means_text(measures)
            counts = f"{reached} of {int(ended(cell).sum())} runs converged"
            lines.append(f"  {varied} {place:g}: {counts}, {means}")
    return "\n".join(lines)


# Figure 3 (C.1): loss, attention entropy and |W_V| for three radii, and where training fails.


FIG3_RADII = [0.02, 0.1, 0.5]
"""tau / |mu| of the figure"""
FIG3_SCANNED_RADII = [0.2, 0.3, 0.34, 0.37, 0.45, 0.55]
"""radii in addition to those of the figure: around the linear stall radius 0.354, and to both sides of 0.5"""
FIG3_SNR, FIG3_TOKENS, FIG3_NOISE_LENGTH = 16.0, 2, 1.6
"""FIG3_NOISE_LENGTH is sigma_p sqrt(d), the length of a noise token, so |mu| = 25.6"""

RATE = Question(
    "rate",
    "the paper gives no step size for figure 3: which one?",
    {
        "common": "0.1, that of the other experiments: eta |mu|^2 = 66, far from gradient flow",
        "small": "0.01, which takes ten times the steps",
    },
    "the section on experiments names one step size",
)


FIGURE_3 = Recipe(
    name="zhang/fig3",
    title="Figure 3: loss, attention entropy and |W_V| along training for three radii",
    shows="radius 0.02 converges with focused attention, 0.1 with uniform attention and larger W_V, 0.5 not at all",
    questions=(OUTPUT, RATE),
)


@FIGURE_3.builds
def _build_3(scale: str, reading: Reading) -> Experiment:
    """N = 25, SNR = 16, M = 2; sigma_p sqrt(d) = 1.6 at every scale."""
    dim, hidden = Scaled(smoke=(32, 4), quick=(512, 128), paper=(1024, 512))[scale]
    slower = 10 if reading["rate"] == "small" else 1
    return Experiment(
        data=SignalNoise(
            samples=25,
            tokens=FIG3_TOKENS,
            dim=dim,
            snr=FIG3_SNR,
            noise_std=FIG3_NOISE_LENGTH / math.sqrt(dim),
        ),
        network=network(hidden, reading["w_O"]),
        attack=pgd(
            sorted(
                FIG3_RADII
                + Scaled(smoke=[], quick=FIG3_SCANNED_RADII, paper=FIG3_SCANNED_RADII)[scale]
            )
        ),
        training=GradientDescent(
            rate=0.1 / slower, stop_loss=0.01, max_steps=slower * Scaled(10, 150, 2000)[scale]
        ),
        evaluation=Evaluation(samples=Scaled(10, 30, 1000)[scale]),
        seeds=Scaled(1, 3, 5)[scale],
    )


def marks(hidden: int) -> list[tuple[float, str]]:
    """Radii, as shares of |mu|, at which something is said to change."""
    return [
        (1 / math.log(hidden), "1 / log d_h"),
        (1 / (math.sqrt(2) * FIG3_TOKENS), "linear stall"),
        (min(math.sqrt(0.5), 0.5 * math.sqrt(1 + FIG3_SNR**-2)), "R_perm"),
    ]


@FIGURE_3.draws
def _draw_3(result: xr.Dataset, caption: str) -> Figure:
    return curves_figure(
        [_along_training_3(result.sel(radius=FIG3_RADII)), _over_radii(result)],
        title="What the radius of the attack does to training",
        caption=f"{caption} Entropy: natural logarithm, mean over training points and rows. A run that has ended stays "
        "at its last value. W_V moves along w_O alone: |W_V|² grows by (|u|² - |u(0)|²) / |w_O|².",
    )


_NOTHING = {"level": math.log(2), "level_name": "log 2: nothing learned"}
_UNIFORM = {"level": math.log(FIG3_TOKENS), "level_name": "log M: uniform"}


def _along_training_3(runs: xr.Dataset) -> list[Curves]:
    """Panels a, b and c of the paper."""

    def panel(name: str, label: str, **more) -> Curves:
        curves = extended_curve(runs, name)
        return Curves([(f"τ = {r:g} |μ|", curves.sel(radius=r)) for r in FIG3_RADII], label, **more)

    return [
        panel("train_loss", f"{TRAINED_LOSS} (nats)", log=True, **_NOTHING),
        panel("attention_entropy", "entropy (nats)", title="attention, clean points", **_UNIFORM),
        panel("value_norm", "|u| (1 / length)", title="u = W_V w_O"),
    ]


def _over_radii(result: xr.Dataset) -> list[Curves]:
    """Loss, entropy and accuracy at the end, over all radii; the first says what the marks are."""
    places = marks(specification(result)["network"]["hidden"])

    def panel(curves: dict[str, str], label: str, words: bool = False, **more) -> Curves:
        named = [(name, result[variable]) for name, variable in curves.items()]
        marked = places if words else [(place, "") for place, _ in places]
        return Curves(named, label, "radius", "radius τ / |μ|", marked, along_log=False, **more)

    entropies = {"clean": "attention_entropy", "attacked": "attention_entropy_attacked"}
    accuracies = {
        "clean": "test_accuracy",
        "training attack": "robust_accuracy_training_attack",
        "thorough attack": "robust_accuracy",
    }
    return [
        panel(
            {label: str(values.name) for label, values in training_losses(result).items()},
            "loss (nats)",
            words=True,
            log=True,
            title="at the end",
            **_NOTHING,
        ),
        panel(entropies, "entropy (nats)", title="attention at the end", **_UNIFORM),
        panel(accuracies, "test accuracy", level=0.5, title="at the end"),
    ]


@FIGURE_3.summarises
def _summarise_3(result: xr.Dataset) -> str:
    uniform = math.log(FIG3_TOKENS)
    lines = [
        f"entropy of uniform attention: {uniform:.3g}; of one focused row of two: {uniform / 2:.3g}"
    ]
    for radius in result.radius.values:
        cell = result.sel(radius=radius)
        reached = int(converged(cell).sum())
        growth = cell.value_norm - cell.value_norm_curve.isel(step=0)
        measures = {
            "steps": cell.steps,
            **training_losses(cell),
            "entropy": cell.attention_entropy,
            "of attacked points": cell.attention_entropy_attacked,
            "growth of |u|": growth,
            "robust accuracy": cell.robust_accuracy,
        }
        means = means_text(measures)
        counts = f"{reached} of {int(ended(cell).sum())} runs converged"
        lines.append(f"radius {radius:g} |mu|: {counts}, {means}")
    return "\n".join(lines)


RECIPES = [
    FIGURE_1,
    FIGURE_2,
    FIGURE_3,
    HEADS,
    NORMS,
    INSIDE,
    AUGMENT,
    RADII,
    TOKENS,
    OUTPUT_NORM,
    FIGURE_1CD,
    FIGURE_4,
    FIGURE_5,
    FIGURE_6,
    FIGURE_7,
    FIGURE_8,
]
