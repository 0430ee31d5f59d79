"""Figure 2 of Zhang et al.: robust training loss and robust test accuracy along training."""

from pathlib import Path

import numpy as np
import xarray as xr

from benign.claims.study import Reading, at
from benign.experiment import Experiment
from benign.papers.attention_questions import OUTPUT, network
from benign.papers.recipes import Recipe
from benign.papers.zhang.setting import RADIUS, noisy_signals, pgd
from benign.plot.lines import Curves, curves_figure
from benign.plot.style import save
from benign.plot.variables import extended_curve
from benign.spec.axes import zipped
from benign.sweep.dataset import ended
from benign.training.descent import Status
from benign.training.optimisers import GradientDescent
from benign.training.setup import Evaluation

SNR = 12.0
"""of the curves that differ in N"""
SYMBOLS = {"samples": "N", "snr": "SNR"}


def _build(scale: str, reading: Reading) -> Experiment:
    """N = 22 with several SNR, then SNR = 12 with several N; the paper does not say which."""
    ratios = at(scale, [0.16, 16.0], [0.16, 1.0, 4.0, 12.0], [0.16, 1.0, 4.0, 8.0, SNR, 16.0])
    sizes = at(scale, [2, 4], [2, 10], [2, 6, 10, 14, 18])
    largest = at(scale, 4, 22, 22)
    dim, hidden = at(scale, (32, 4), (512, 32), (1024, 128))
    return Experiment(
        data=noisy_signals(
            dim,
            samples=zipped("curve", [largest] * len(ratios) + sizes),
            snr=zipped("curve", ratios + [SNR] * len(sizes)),
        ),
        network=network(hidden, reading["w_O"]),
        attack=pgd(RADIUS),
        training=GradientDescent(rate=0.1, stop_loss=0.01, max_steps=at(scale, 6, 200, 5000)),
        evaluation=Evaluation(samples=at(scale, 10, 60, 1000), at="snapshots"),
        seeds=at(scale, 1, 2, 5),
    )


def families(result: xr.Dataset) -> list[tuple[str, str, xr.Dataset]]:
    """What is fixed, what is varied, and the runs along it: SNR at the largest N, then N at SNR = 12."""
    found = []
    for varied, fixed, value in (("snr", "samples", result.samples.max()), ("samples", "snr", SNR)):
        runs = result.isel(curve=np.flatnonzero(result[fixed] == value))
        runs = runs.swap_dims(curve=varied).sortby(varied)
        found.append((f"{SYMBOLS[fixed]} = {float(value):g}", varied, runs))
    return found


def _draw(result: xr.Dataset, folder: Path, caption: str) -> list[Path]:
    rows = [_along_training(*family) for family in families(result)]
    rows.append([_ends(*family) for family in families(result)])
    note = "A run that has ended stays at its last value."
    figure = curves_figure(
        rows, title="Robust loss and accuracy along training", caption=f"{caption} {note}"
    )
    return save(figure, folder / "fig2")


def _along_training(fixed: str, varied: str, runs: xr.Dataset) -> list[Curves]:
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
            "robust training loss (nats)",
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
    """Accuracies at the end, beside each other: clean, under the training attack, and as judged."""
    return Curves(
        [
            ("clean", runs.test_accuracy),
            ("training attack", runs.robust_accuracy_training_attack),
            ("thorough attack", runs.robust_accuracy),
        ],
        "test accuracy at the end",
        varied,
        "signal-to-noise ratio SNR" if varied == "snr" else "training points N",
        level=0.5,
        title=fixed,
    )


def _summarise(result: xr.Dataset) -> str:
    lines = []
    for fixed, varied, runs in families(result):
        lines.append(f"{fixed}:")
        for place in runs[varied].values:
            cell = runs.sel({varied: place})
            reached = int((cell.status == Status.CONVERGED).sum())
            told = {
                "steps": cell.steps,
                "robust training loss": cell.train_loss,
                "clean accuracy": cell.test_accuracy,
                "robust under the training attack": cell.robust_accuracy_training_attack,
                "under a thorough one": cell.robust_accuracy,
            }
            means = ", ".join(f"{name} {float(value.mean()):.3g}" for name, value in told.items())
            counts = f"{reached} of {int(ended(cell).sum())} runs converged"
            lines.append(f"  {varied} {place:g}: {counts}, {means}")
    return "\n".join(lines)


FIGURE_2 = Recipe(
    name="zhang/fig2",
    title="Figure 2: robust training loss and robust test accuracy along training, synthetic data",
    shows="the robust training loss always falls; robust test accuracy rises for large SNR or N only",
    build=_build,
    draw=_draw,
    summarise=_summarise,
    questions=(OUTPUT,),
)
