"""Augmentation by injected noise (Zhang et al., practical guideline 2): what it does to N, to SNR and to N SNR^2.

The paper says that it lowers SNR and raises N, "since noise injection yields new data points". Three data sets with the
same signals: N points; K noisy copies of each; and as many independent points of the lower SNR, which K N new points
would be. With uniform attention u ends up along mean_n y_n xbar_n, and its angle to mu_+ - mu_- has
tan^2 = 2 (M - 1) / (N SNR^2): what N SNR^2 the data were worth can be read off the trained weights.
"""

import math
from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np
import xarray as xr

from benign.attacks.balls import Ball
from benign.attacks.pgd import PGD
from benign.claims.study import Question, Reading, Scaled
from benign.data.noisy_copies import NoisyCopies
from benign.data.signal_noise import SignalNoise
from benign.experiment import Experiment
from benign.networks.attention import Attention
from benign.networks.initial import TorchDefault
from benign.papers.recipes import Recipe
from benign.papers.zhang.bounds import augmented_race
from benign.plot.lines import Curves, curves_figure
from benign.plot.style import Figure
from benign.training.optimisers import GradientDescent
from benign.training.setup import Evaluation

COPIES = (2, 4, 8)
"""K"""
INJECTED = 1.0
"""standard deviation of the injected noise, relative to sigma_p"""
SNR = 1.0
TOKENS = 4
SIGNAL = 5.0
"""|mu|, so that a rate of 0.5 takes a hundred steps"""

ATTENTION = Question(
    "attention",
    "the network of the experiments learns attention; how data are worth is exact for uniform attention",
    {"learned": "as in the paper", "uniform": "linear mode, in which N SNR^2 is all that counts"},
    "the guideline is about the paper's network",
)


AUGMENT = Recipe(
    name="zhang/augment",
    title="Guideline 2: data augmentation by injected noise",
    shows="what N SNR^2 noisy copies of the training points are worth, beside as many new points",
    questions=(ATTENTION,),
)


@AUGMENT.builds
def _build(scale: str, reading: Reading) -> Experiment:
    dim, hidden, samples, seeds, test, steps = Scaled(
        smoke=(32, 4, 4, 1, 4, 10),
        quick=(256, 16, 8, 6, 50, 150),
        paper=(1024, 128, 20, 20, 1000, 2000),
    )[scale]
    std = SIGNAL / (SNR * math.sqrt(dim))
    common = {
        "tokens": TOKENS,
        "dim": dim,
        "signal": SIGNAL,
        "projected": True,
        "balanced": True,
    }
    data: list[SignalNoise] = [SignalNoise(samples=samples, noise_std=std, **common)]
    for copies in COPIES:
        many, injected = copies * samples, INJECTED * std
        data += [
            NoisyCopies(
                samples=many, copies=copies, injected_std=injected, noise_std=std, **common
            ),
            SignalNoise(samples=many, noise_std=math.hypot(std, injected), **common),
        ]
    return Experiment(
        data=data,
        network=Attention(
            hidden=hidden,
            init=TorchDefault(divide_by=16),
            output_norm=1.0,
            attend="uniform" if reading["attention"] == "uniform" else "learned",
        ),
        attack=PGD(ball=Ball(radius=0.05, relative_to="signal"), steps=20, step=0.2),
        training=GradientDescent(rate=0.5, stop_loss=0.05, max_steps=steps),
        evaluation=Evaluation(samples=test),
        seeds=seeds,
    )


@dataclass(frozen=True)
class Worth:
    """N SNR^2 read off the trained weights, [seed] or [copies, seed]."""

    original: xr.DataArray
    copied: xr.DataArray
    independent: xr.DataArray


def worth(result: xr.Dataset) -> Worth:
    """2 (M - 1) / tan^2 of the angle between u and mu_+ - mu_-, for every data set."""
    cosine = result.value_alignment
    race = 2 * (TOKENS - 1) / (1 / cosine**2 - 1)
    race.attrs = {"long_name": "N SNR^2 read off the weights"}
    across = _across(result)

    def along(first: int) -> xr.DataArray:
        rows = race.isel({across: slice(first, None, 2)}).drop_vars(across, errors="ignore")
        return rows.rename({across: "copies"}).assign_coords(copies=list(COPIES))

    return Worth(race.isel({across: 0}, drop=True), along(1), along(2))


def _across(result: xr.Dataset) -> Hashable:
    """The dimension of the data sets: none, then copies and independent points for every K."""
    return next(dim for dim in result.value_alignment.dims if dim != "seed")


@AUGMENT.draws
def _draw(result: xr.Dataset, caption: str) -> Figure:
    race = worth(result)
    original = race.original.expand_dims(copies=list(COPIES))
    races = Curves(
        [
            ("as many new points", race.independent),
            ("noisy copies", race.copied),
            ("no augmentation", original),
        ],
        "N SNR^2, read off the weights",
        "copies",
        "copies K of a point",
    )
    return curves_figure([[races]], title="Noisy copies are no new points", caption=caption)


@AUGMENT.summarises
def _summarise(result: xr.Dataset) -> str:
    race = worth(result)
    before = float(race.original.mean())
    across, accuracy = _across(result), result.robust_accuracy.mean("seed")
    lines = [
        f"no augmentation: SNR {SNR:g}, N SNR^2 read off the weights {before:.3g}, "
        f"robust accuracy {float(accuracy.isel({across: 0})):.3g}"
    ]
    for place, copies in enumerate(COPIES):
        claimed, real = augmented_race(1.0, copies, INJECTED)
        copied, fresh = (
            float(each.sel(copies=copies).mean()) / before
            for each in (race.copied, race.independent)
        )
        robust = [float(accuracy.isel({across: 1 + 2 * place + arm})) for arm in (0, 1)]
        lines.append(
            f"K = {copies}: points x {copies}, SNR x {1 / np.hypot(1, INJECTED):.3g}; N SNR^2 of copies x {copied:.3g} "
            f"(law {real:.3g}), of as many new points x {fresh:.3g} (law {claimed:.3g}); "
            f"robust accuracy {robust[0]:.3g} and {robust[1]:.3g}"
        )
    return "\n".join(lines)
