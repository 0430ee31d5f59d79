"""What the norm of the fixed output vector w_O decides, which the experiments leave open (papers/zhang.md S2 and 5).

|w_O|^2 is the rate of the values over the rate of queries and keys. By Theorem 2 training takes steps in proportion to
1 / |w_O|^2. PyTorch's default has |w_O| = 0.577, and 0.036 if w_O is divided by 16 as the other weights are.
"""

import math

import numpy as np
import torch
import xarray as xr

from benign.claims.measure import slope
from benign.claims.study import Question, Reading, Scaled
from benign.data.signal_noise import SignalNoise
from benign.experiment import Experiment, specification
from benign.networks.attention import Attention
from benign.networks.initial import TorchDefault
from benign.papers.attention_setting import NOISE_LENGTH, RADIUS, pgd
from benign.papers.recipes import Recipe, means_text
from benign.papers.statistics import reached_loss, steps_to_loss
from benign.papers.zhang.linear_mode import convergence_steps
from benign.plot.lines import Curves, curves_figure
from benign.plot.style import Figure
from benign.spec.axes import logspace
from benign.training.optimisers import GradientDescent
from benign.training.setup import Evaluation

UNDIVIDED, DIVIDED = math.sqrt(1 / 3), math.sqrt(1 / 3) / 16
"""|w_O| of PyTorch's default, and of that divided by 16"""

TOKENS = Question(
    "tokens",
    "how many tokens?",
    {
        "4": "few enough for uniform attention to be trained at 0.05 |mu|",
        "16": "as in figure 1, where it cannot be trained",
    },
    "then every norm can reach the loss, in time",
)


OUTPUT_NORM = Recipe(
    name="zhang/output",
    title="Steps, attention and accuracy over the norm of w_O, synthetic data",
    shows="T of order 1 / (eta eps |mu|^2 |w_O|^2) (Theorem 2), and what the three readings of w_O change",
    questions=(TOKENS,),
)


@OUTPUT_NORM.builds
def _build(scale: str, reading: Reading) -> Experiment:
    dim, hidden, samples, norms, ratios, seeds, test, steps = Scaled(
        smoke=(32, 4, 4, 3, (1.0, 8.0), 1, 4, 5),
        quick=(128, 16, 10, 9, (1.0, 2.0, 8.0), 2, 50, 500),
        paper=(1024, 128, 20, 14, (1.0, 2.0, 4.0, 8.0), 5, 1000, 5000),
    )[scale]
    return Experiment(
        data=SignalNoise(
            samples=samples,
            tokens=int(reading["tokens"]),
            dim=dim,
            snr=list(ratios),
            noise_std=NOISE_LENGTH / math.sqrt(dim),
            balanced=True,
        ),
        network=Attention(
            hidden=hidden,
            init=TorchDefault(divide_by=16),
            output_norm=logspace(0.03, 3.0, norms),
        ),
        attack=pgd(RADIUS),
        training=GradientDescent(rate=0.1, stop_loss=0.01, max_steps=steps),
        evaluation=Evaluation(samples=test),
        coordinates="projected",
        pairing="common",
        seeds=seeds,
    )


def theory_steps(result: xr.Dataset, snr: float, tokens: int) -> xr.DataArray:
    """S8 over |w_O|: of uniform attention, or with one token of attention on the signal alone."""
    fields = specification(result)
    data, training, norms = fields["data"], fields["training"], result.output_norm
    signal = snr * data["noise_std"] * math.sqrt(data["dim"])
    steps = convergence_steps(
        training.get("stop_loss", 0.01), training["rate"], signal, tokens, RADIUS * signal,
        torch.from_numpy(norms.values.astype(float)),
    )  # fmt: skip
    return norms.copy(data=steps.numpy()).expand_dims("seed")


def _tokens(result: xr.Dataset) -> int:
    return specification(result)["data"]["tokens"]


@OUTPUT_NORM.draws
def _draw(result: xr.Dataset, caption: str) -> Figure:
    tokens, reached = _tokens(result), reached_loss(result)
    marks = [(DIVIDED, "PyTorch / 16"), (UNDIVIDED, "PyTorch"), (1.0, "1")]

    def panel(values: xr.DataArray, label: str, *more, named: bool = False, **how) -> Curves:
        curves = [(f"SNR = {snr:g}", values.sel(snr=snr)) for snr in values.snr.values]
        named_marks = [(place, word if named else "") for place, word in marks]
        return Curves(
            [*curves, *more], label, "output_norm", "output norm |w_O|", named_marks, **how
        )

    least = float(result.snr.min())
    theory = [
        (f"theory: {word}, SNR = {least:g}", theory_steps(result, least, count))
        for word, count in (("uniform", tokens), ("on the signal", 1))
    ]
    rows = [
        [
            panel(reached, "share that reaches the loss", named=True),
            panel(steps_to_loss(result), "steps to the loss", *theory, log=True),
            panel(
                result.attention_on_signal, "attention on the signal",
                level=1 / tokens, level_name="uniform: 1 / M",
            ),
        ],
        [
            panel(result.test_accuracy, "clean accuracy"),
            panel(result.robust_accuracy, "robust accuracy"),
            panel(
                result.robust_accuracy_training_attack - result.robust_accuracy,
                "taken by the stronger attack", level=0.0, named=True,
            ),
        ],
    ]  # fmt: skip
    return curves_figure(rows, title="What the norm of the output vector decides", caption=caption)


@OUTPUT_NORM.summarises
def _summarise(result: xr.Dataset) -> str:
    lines = []
    for snr in result.snr.values:
        runs = result.sel(snr=snr)
        reached = reached_loss(runs)
        missed = runs.output_norm.values[(reached.mean("seed") < 1).values]
        where = f", all of them for |w_O| above {missed.max():.3g}" if missed.size else ""
        lines.append(
            f"SNR = {snr:g}: {int(reached.sum())} of {int(reached.count())} runs reach the loss{where}; "
            f"steps grow as |w_O| to the {_slope(runs)} (theory: -2)"
        )
        lines += [f"  {word} {_near(runs, norm)}" for word, norm in _NAMED.items()]
    return "\n".join(lines)


_NAMED = {"PyTorch's w_O divided by 16,": DIVIDED, "PyTorch's w_O,": UNDIVIDED, "norm": 1.0}


def _near(runs: xr.Dataset, norm: float) -> str:
    """What the norm of the grid nearest to one does."""
    at = int(np.abs(np.log(runs.output_norm.values / norm)).argmin())
    here = runs.isel(output_norm=at)
    measures = {
        "steps": steps_to_loss(here),
        "attention on the signal": here.attention_on_signal,
        "clean accuracy": here.test_accuracy,
        "robust accuracy": here.robust_accuracy,
    }
    means = means_text(measures)
    return f"{float(here.output_norm):.3g}: {means}"


def _slope(runs: xr.Dataset) -> str:
    """Slope of log steps on log |w_O| over norms that all seeds converge at, and in at least five steps."""
    steps = steps_to_loss(runs).mean("seed", skipna=False)
    kept = steps.where(steps >= 5).dropna("output_norm")
    if kept.size < 3:
        return f"(no exponent: {kept.size} norms with 5 steps and more)"
    return str(slope("", np.log(kept.output_norm.values), np.log(kept.values)).estimate)
