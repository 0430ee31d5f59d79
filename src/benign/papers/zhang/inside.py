"""Theorem 2 where Condition 1 really holds: radii on one axis, in the span of tokens and weights."""

import numpy as np
import xarray as xr

from benign.attacks.balls import Ball
from benign.attacks.pgd import PGD
from benign.claims.study import Question, Reading, Scaled
from benign.data.signal_noise import SignalNoise
from benign.experiment import Experiment
from benign.papers.inside import attention_along, descent_along, inside_theorem
from benign.papers.jiang.theory import parts
from benign.papers.recipes import Recipe, means_text
from benign.papers.statistics import reached_loss
from benign.plot.lines import Curves, curves_figure
from benign.plot.style import Figure
from benign.spec.axes import zipped
from benign.training.setup import Evaluation

SNR = 1.0
"""which has the smallest d_h and d"""

COORDINATES = Question(
    "coordinates",
    "the span that holds a run has 2 d_h dimensions: keep it whole, or leave out what tokens do not reach?",
    {
        "exact": "whole (sampled coordinates): d_h up to what fits a machine",
        "approximate": "left out (papers/jiang.md 7.3): any d_h, with an error that attacked scores decide",
    },
    "its results need no excuse",
)


INSIDE = Recipe(
    name="zhang/inside",
    title="Theorem 2 at sizes that satisfy Condition 1, over the radius",
    shows="which radii can be trained against and generalise, inside the theorem's conditions",
    questions=(COORDINATES,),
)


@INSIDE.builds
def _build(scale: str, reading: Reading) -> Experiment:
    exact = reading["coordinates"] == "exact"
    # The smallest loss has the largest d_h. The step cap is several times what clean training needs there (1682 at
    # d_h = 10,000).
    losses, max_steps = Scaled(
        smoke=((0.5,), 20) if exact else ((0.5, 0.2), 20),
        quick=((0.5, 0.4), 1000) if exact else ((0.5, 0.4, 0.1), 2000),
        paper=((0.5, 0.4, 0.3), 1500) if exact else ((0.5, 0.4, 0.3, 0.1), 4000),
    )[scale]
    samples, tokens, radii, faster, seeds, test = Scaled(
        smoke=(2, 2, (0.1, 0.5), 10.0, 1, 10),
        quick=(4, 2, (0.05, 0.1, 0.2, 0.4, 0.7, 1.0), 5.0, 2, 40),
        paper=(10, 4, (0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.7, 1.0), 5.0, 3, 40),
    )[scale]
    cells = [
        # the smallest experiment inside Condition 1, but for a rate `faster` times condition (4)
        inside_theorem(
            "zhang", case=1, samples=samples, tokens=tokens, loss=loss, snr=SNR, relaxed=faster
        ).experiment
        for loss in losses
    ]
    data = [parts(cell)[0] for cell in cells]
    return Experiment(
        data=SignalNoise(
            samples=samples,
            tokens=tokens,
            dim=zipped("size", [each.dim for each in data]),
            snr=SNR,
            noise_std=zipped("size", [each.noise_std for each in data]),
            projected=True,
            balanced=True,
        ),
        network=attention_along("size", cells),
        attack=PGD(ball=Ball(radius=list(radii), relative_to="signal"), steps=20, step=0.2),
        training=descent_along("size", cells, max_steps),
        evaluation=Evaluation(samples=test),
        precision="float64",
        coordinates="sampled" if exact else "approximate",
        seeds=seeds,
    )


@INSIDE.draws
def _draw(result: xr.Dataset, caption: str) -> Figure:
    result = result.assign(reached=reached_loss(result))
    marks = [(np.sqrt(0.5), "1 / sqrt 2")]
    # One for every size; only the first is named, as names would overlap.
    limits = sorted(1 / np.log(float(cell.hidden)) for cell in _cells(result))
    marks += [(limit, "" if number else "1 / log d_h") for number, limit in enumerate(limits)]

    def panel(name: str, label: str, *, log: bool = False, level: float | None = None) -> Curves:
        curves = [(_size_of(cell), cell[name]) for cell in _cells(result)]
        return Curves(curves, label, "radius", "radius / |mu|", marks, log=log, level=level)

    rows = [
        [panel("reached", "share of runs that reach the loss"), panel("steps", "steps", log=True)],
        [
            panel("robust_accuracy", "robust accuracy", level=0.5),
            panel("score_shift_max", "largest change of a score", log=True, level=1.0),
        ],
    ]
    return curves_figure(
        rows,
        title="Adversarial training where the theorem applies",
        caption=f"{caption} Sizes satisfy Condition 1 with constants 1 and polylog d = 1, but for the step size; the "
        "constants of the proof are missed.",
    )


def _cells(result: xr.Dataset) -> list[xr.Dataset]:
    return [result.isel(size=place) for place in range(result.sizes["size"])]


def _size_of(cell: xr.Dataset) -> str:
    return f"eps = {float(cell.stop_loss):g}, d_h = {int(cell.hidden):,}"


@INSIDE.summarises
def _summarise(result: xr.Dataset) -> str:
    lines = []
    for cell in _cells(result.assign(reached=reached_loss(result))):
        lines.append(
            f"{_size_of(cell)}, d = {int(cell.dim):.1e}, 1 / log d_h = {1 / np.log(cell.hidden.item()):.3f}:"
        )
        for radius in cell.radius.values:
            runs = cell.sel(radius=radius)
            measures = {
                "reached": runs.reached,
                "steps": runs.steps,
                "test accuracy": runs.test_accuracy,
                "robust": runs.robust_accuracy,
                "attention on signal": runs.attention_on_signal,
                "scores moved by": runs.score_shift_max,
            }
            means = means_text(measures)
            lines.append(f"  radius {radius:g} |mu|: {means}")
    return "\n".join(lines)
