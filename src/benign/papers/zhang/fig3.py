"""Figure 3 of Zhang et al. (C.1): loss, attention entropy and |W_V| for three radii, and where training fails."""

import math
from pathlib import Path

import xarray as xr

from benign.claims.study import Question, Reading, at
from benign.data.signal_noise import SignalNoise
from benign.experiment import Experiment, specification
from benign.papers.attention_questions import OUTPUT, network
from benign.papers.recipes import Recipe
from benign.papers.zhang.setting import pgd
from benign.plot.lines import Curves, curves_figure
from benign.plot.style import save
from benign.plot.variables import extended_curve
from benign.sweep.dataset import ended
from benign.training.descent import Status
from benign.training.optimisers import GradientDescent
from benign.training.setup import Evaluation

RADII = [0.02, 0.1, 0.5]
"""tau / |mu| of the figure"""
SCAN = [0.2, 0.3, 0.34, 0.37, 0.45, 0.55]
"""radii beside those of the figure: around the linear stall radius 0.354, and to both sides of 0.5"""
SNR, TOKENS, NOISE = 16.0, 2, 1.6
"""NOISE is sigma_p sqrt(d), the length of a noise token, so |mu| = 25.6"""

RATE = Question(
    "rate",
    "the paper gives no step size for figure 3: which one?",
    {
        "common": "0.1, that of the other experiments: eta |mu|^2 = 66, far from gradient flow",
        "small": "0.01, which takes ten times the steps",
    },
    "the section on experiments names one step size",
)


def _build(scale: str, reading: Reading) -> Experiment:
    """N = 25, SNR = 16, M = 2; sigma_p sqrt(d) = 1.6 at every scale."""
    dim, hidden = at(scale, (32, 4), (512, 128), (1024, 512))
    slower = 10 if reading["rate"] == "small" else 1
    return Experiment(
        data=SignalNoise(
            samples=25, tokens=TOKENS, dim=dim, snr=SNR, noise_std=NOISE / math.sqrt(dim)
        ),
        network=network(hidden, reading["w_O"]),
        attack=pgd(sorted(RADII + at(scale, [], SCAN, SCAN))),
        training=GradientDescent(
            rate=0.1 / slower, stop_loss=0.01, max_steps=slower * at(scale, 10, 150, 2000)
        ),
        evaluation=Evaluation(samples=at(scale, 10, 30, 1000)),
        seeds=at(scale, 1, 3, 5),
    )


def marks(hidden: int) -> list[tuple[float, str]]:
    """Radii, as shares of |mu|, at which something is said to change."""
    return [
        (1 / math.log(hidden), "1 / log d_h"),
        (1 / (math.sqrt(2) * TOKENS), "linear stall"),
        (min(math.sqrt(0.5), 0.5 * math.sqrt(1 + SNR**-2)), "R_perm"),
    ]


def _draw(result: xr.Dataset, folder: Path, caption: str) -> list[Path]:
    figure = curves_figure(
        [_along_training(result.sel(radius=RADII)), _over_radii(result)],
        title="What the radius of the attack does to training",
        caption=f"{caption} Entropy: natural logarithm, mean over training points and rows. A run that has ended stays "
        "at its last value. W_V moves along w_O alone: |W_V|² grows by (|u|² - |u(0)|²) / |w_O|².",
    )
    return save(figure, folder / "fig3")


_NOTHING = {"level": math.log(2), "level_name": "log 2: nothing learned"}
_UNIFORM = {"level": math.log(TOKENS), "level_name": "log M: uniform"}


def _along_training(runs: xr.Dataset) -> list[Curves]:
    """Panels a, b and c of the paper."""

    def panel(name: str, label: str, **more) -> Curves:
        curves = extended_curve(runs, name)
        return Curves([(f"τ = {r:g} |μ|", curves.sel(radius=r)) for r in RADII], label, **more)

    return [
        panel("train_loss", "robust training loss (nats)", log=True, **_NOTHING),
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
            {"training attack": "train_loss"},
            "robust training loss (nats)",
            words=True,
            log=True,
            title="at the end",
            **_NOTHING,
        ),
        panel(entropies, "entropy (nats)", title="attention at the end", **_UNIFORM),
        panel(accuracies, "test accuracy", level=0.5, title="at the end"),
    ]


def _summarise(result: xr.Dataset) -> str:
    uniform = math.log(TOKENS)
    lines = [
        f"entropy of uniform attention: {uniform:.3g}; of one focused row of two: {uniform / 2:.3g}"
    ]
    for radius in result.radius.values:
        cell = result.sel(radius=radius)
        reached = int((cell.status == Status.CONVERGED).sum())
        growth = cell.value_norm - cell.value_norm_curve.isel(step=0)
        told = {
            "steps": cell.steps,
            "robust training loss": cell.train_loss,
            "entropy": cell.attention_entropy,
            "of attacked points": cell.attention_entropy_attacked,
            "growth of |u|": growth,
            "robust accuracy": cell.robust_accuracy,
        }
        means = ", ".join(f"{name} {float(value.mean()):.3g}" for name, value in told.items())
        counts = f"{reached} of {int(ended(cell).sum())} runs converged"
        lines.append(f"radius {radius:g} |mu|: {counts}, {means}")
    return "\n".join(lines)


FIGURE_3 = Recipe(
    name="zhang/fig3",
    title="Figure 3: loss, attention entropy and |W_V| along training for three radii",
    shows="radius 0.02 converges with focused attention, 0.1 with uniform attention and larger W_V, 0.5 not at all",
    build=_build,
    draw=_draw,
    summarise=_summarise,
    questions=(OUTPUT, RATE),
)
