"""How the boundary moves with the number M of tokens (Zhang Theorem 2 has M of order 1; the experiments have M = 16).

With uniform attention a fresh point is classified at z = SNR^2 sqrt(d N) / (2 (M - 1)) standard deviations, so the
critical SNR grows like sqrt(M - 1) (papers/zhang.md section 5). Attention that finds the signal would not dilute it.
"""

import math
from collections.abc import Callable

import numpy as np
import xarray as xr

from benign.claims.study import Question, Reading, Scaled
from benign.data.signal_noise import SignalNoise
from benign.experiment import Experiment, specification
from benign.papers.attention_setting import LEVEL, NOISE_LENGTH, RADIUS, changed, network, pgd
from benign.papers.recipes import Recipe
from benign.papers.statistics import converged
from benign.papers.zhang.linear_mode import critical_snr
from benign.plot.laws import Critical, exponents_figure
from benign.plot.style import Figure
from benign.spec.axes import logspace, zipped
from benign.stats.audited import audited_boundary
from benign.stats.boundary import Boundary
from benign.sweep.dataset import ended
from benign.training.optimisers import GradientDescent
from benign.training.setup import Evaluation

AROUND = (0.4, 5.0)
"""ratios that are tried, as multiples of the predicted one"""
PLACES = {"learned attention": 0, "uniform attention": 1}

TRAINING = Question(
    "training",
    "clean training, or against the attack of figure 1?",
    {"clean": "no attack is in doubt", "adversarial": "l2 balls of radius 0.05 |mu| per token"},
    "uniform attention cannot be trained at 0.05 |mu| when M > 14, unless N SNR^2 is small",
)


def predicted(samples: int, dim: int) -> Callable[[np.ndarray], np.ndarray]:
    """The critical SNR of uniform attention over M - 1."""
    return lambda others: critical_snr(samples, others + 1, dim, LEVEL)


TOKENS = Recipe(
    name="zhang/tokens",
    title="Critical SNR over the number of tokens, with learned and with uniform attention",
    shows="what M of order 1 (Condition 1) hides: how the boundary of clean accuracy moves with M",
    questions=(TRAINING,),
    names={"network": ["learned attention", "uniform attention"]},
)


@TOKENS.builds
def _build(scale: str, reading: Reading) -> Experiment:
    dim, hidden, samples, numbers, ratios, seeds, test, steps = Scaled(
        smoke=(32, 4, 4, (2, 3, 5), 3, 1, 20, 10),
        quick=(256, 16, 12, (2, 4, 8, 16), 7, 3, 300, 600),
        paper=(1024, 64, 20, (2, 4, 8, 16, 32, 64), 12, 10, 1000, 3000),
    )[scale]
    expected = predicted(samples, dim)
    cells = [
        (tokens, float(f"{factor * float(expected(np.array(tokens - 1.0))):.6g}"))
        for tokens in numbers
        for factor in logspace(*AROUND, ratios)
    ]
    learned = network(hidden, "undivided")
    linear = changed(learned, attend="uniform", hidden=1, value_dim=hidden)
    return Experiment(
        data=SignalNoise(
            samples=samples,
            tokens=zipped("cell", [tokens for tokens, _ in cells]),
            dim=dim,
            snr=zipped("cell", [snr for _, snr in cells]),
            noise_std=NOISE_LENGTH / math.sqrt(dim),
            projected=True,
            balanced=True,
        ),
        network=[learned, linear],
        attack=pgd(RADIUS) if reading["training"] == "adversarial" else None,
        training=GradientDescent(rate=0.1, stop_loss=0.05, max_steps=steps),
        evaluation=Evaluation(samples=test),
        pairing="common",
        seeds=seeds,
    )


def boundaries(result: xr.Dataset) -> dict[str, Boundary]:
    """Critical SNR over M - 1 of either attention, for clean accuracy and, where there is one, for robust accuracy."""
    kinds = {"clean": "test_accuracy", "robust": "robust_accuracy"}
    edges = {}
    for kind, name in kinds.items():
        if name in result:
            for attention, place in PLACES.items():
                edges[f"{attention}, {kind}"] = _edge(result.isel(network=place, drop=True), name)
    return edges


def _edge(result: xr.Dataset, name: str) -> Boundary:
    def over_others(of: xr.Dataset) -> xr.DataArray:
        others = (of.tokens - 1).assign_attrs(long_name="noise tokens M - 1")
        cells = of[name].assign_coords(others=others).drop_vars("tokens")
        return cells.set_index(cell=["others", "snr"]).unstack("cell")

    return audited_boundary(result, over_others, LEVEL, "others * snr**p")


def _expected(result: xr.Dataset) -> Callable[[np.ndarray], np.ndarray]:
    data = specification(result)["data"]
    return predicted(data["samples"], data["dim"])


@TOKENS.draws
def _draw(result: xr.Dataset, caption: str) -> Figure:
    expected = _expected(result)
    sets = [
        Critical(name, edge, expected if name == "uniform attention, clean" else None)
        for name, edge in boundaries(result).items()
    ]
    return exponents_figure(
        sets,
        x="noise tokens M - 1",
        y="SNR at accuracy 0.75",
        title="The signal-to-noise ratio that M tokens need",
        caption=f"{caption} Dashed: linear theory of uniform attention, N SNR^4 = 4 (M - 1)^2 z^2 / d.",
    )


@TOKENS.summarises
def _summarise(result: xr.Dataset) -> str:
    expected, lines = _expected(result), []
    for name, edge in boundaries(result).items():
        fit = edge.fit
        power = edge.reason if fit is None else fit.growth
        lines.append(f"{name}: SNR* grows as M - 1 to the {power} (linear theory: 0.5)")
        known = edge.critical.dropna("others")
        shares = known / expected(known.others.values.astype(float))
        cells = zip(known.others.values, known.values, shares.values, strict=True)
        rows = [f"M = {others + 1:g}: {snr:.3g} ({share:.2f})" for others, snr, share in cells]
        lines.append(f"  SNR* (share of the linear theory): {', '.join(rows) or 'none'}")
    return "\n".join([*lines, *_training_text(result)])


def _training_text(result: xr.Dataset) -> list[str]:
    lines = []
    for attention, place in PLACES.items():
        runs = result.isel(network=place)
        done = ended(runs)
        reached = converged(runs).sum().item()
        steps = runs.steps.where(done).groupby("tokens").median(...)
        medians = [f"M = {each:g}: {float(steps.sel(tokens=each)):.3g}" for each in steps.tokens]
        lines.append(
            f"{attention}: {reached} of {int(done.sum())} runs reach the loss; median steps {', '.join(medians)}"
        )
    return lines
