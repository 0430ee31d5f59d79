"""Theorems 4.1 and 4.2 where their conditions really hold: d up to 1e20, in the coordinates of the tokens."""

from typing import Any

import numpy as np
import xarray as xr

from benign.claims.study import Question, Reading, Scaled
from benign.data.signal_noise import SignalNoise
from benign.experiment import Experiment
from benign.papers.inside import attention_along, descent_along, inside_theorem
from benign.papers.jiang.theory import (
    ALL_ONE,
    HARMFUL_CONSTANT,
    benign_constant,
    conditions,
    largest_rate,
    parts,
    strong_noise_factor,
)
from benign.papers.recipes import Recipe, means_text
from benign.papers.statistics import converged
from benign.plot.lines import Curves, curves_figure
from benign.plot.style import Figure
from benign.spec.axes import zipped
from benign.sweep.dataset import ended
from benign.training.setup import Evaluation

SAMPLES, TOKENS = 20, 4
SPEED = 0.1
"""eta times the largest of |mu|^2 and C_p^2 / N in units of sigma_p^2 d: small steps, though above condition (6)"""

START = Question(
    "start",
    "condition (7) bounds the initial values from above: how large are they?",
    {"largest": "sigma_V at its bound", "small": "a thousandth of it"},
    "the theorem allows it, and errors of fresh points come from it (papers/jiang.md 6)",
)


def _cell(race: float, loss: float) -> Experiment:
    """The smallest experiment inside the conditions at this N SNR^2, but for the rate."""
    snr = (race / SAMPLES) ** 0.5
    chosen: dict[str, Any] = {"samples": SAMPLES, "tokens": TOKENS, "loss": loss, "snr": snr}
    theorem = "4.1" if race >= 1 else "4.2"
    strict = inside_theorem("jiang", theorem=theorem, **chosen).experiment
    wanted = SPEED / max(snr**2, strong_noise_factor(TOKENS) ** 2 / SAMPLES)
    made = inside_theorem("jiang", theorem=theorem, relaxed=wanted / strict.training.rate, **chosen)
    return made.experiment


INSIDE = Recipe(
    name="jiang/inside",
    title="Theorems 4.1 and 4.2 at sizes that satisfy Condition 4.1",
    shows="the test loss inside both theorems, and between their constants",
    questions=(START,),
    conditions=conditions,
)


@INSIDE.builds
def _build(scale: str, reading: Reading) -> Experiment:
    races, losses, seeds, test, steps = Scaled(
        smoke=((1.0, 1e4), (0.3,), 1, 50, 300),
        quick=((1.0, 40.0, 240.0, 1e3, 1e5), (0.1,), 2, 250, 10_000),
        paper=(
            (1.0, 4.0, 20.0, 60.0, 120.0, 240.0, 480.0, 1e3, 3e3, 1e4, 1e5),
            (0.1, 0.03, 0.01),
            10,
            1000,
            100_000,
        ),
    )[scale]
    cells = [_cell(race, loss) for loss in losses for race in races]
    data = [parts(cell)[0] for cell in cells]
    return Experiment(
        data=SignalNoise(
            samples=SAMPLES,
            tokens=TOKENS,
            dim=zipped("cell", [each.dim for each in data]),
            snr=zipped("cell", [each.snr for each in data]),
            noise_std=zipped("cell", [each.noise_std for each in data]),
            strong_noise_std=zipped("cell", [each.strong_noise_std for each in data]),
            projected=True,
        ),
        network=attention_along("cell", cells, 1.0 if reading["start"] == "largest" else 1e-3),
        training=descent_along("cell", cells, steps),
        evaluation=Evaluation(samples=test),
        precision="float64",
        coordinates="sampled",
        seeds=seeds,
    )


def _by_race(result: xr.Dataset) -> list[tuple[float, xr.Dataset]]:
    """For every training loss to reach, the runs along N SNR^2."""
    races = (SAMPLES * result.snr**2).round(9)
    with_error = result.assign(test_error=1 - result.test_accuracy)
    with_error = with_error.assign_coords(race=races).swap_dims(cell="race")
    losses = [float(loss) for loss in np.unique(result.stop_loss)[::-1]]
    return [(loss, with_error.sel(race=(with_error.stop_loss == loss).values)) for loss in losses]


@INSIDE.draws
def _draw(result: xr.Dataset, caption: str) -> Figure:
    marks = [(HARMFUL_CONSTANT, "4.2 proven"), (_benign(), "4.1 proven")]
    parts = _by_race(result)

    def panel(name: str, label: str, level: float | None = None) -> Curves:
        curves = [(f"eps = {loss:g}", part[name]) for loss, part in parts]
        return Curves(curves, label, "race", "N SNR^2", marks, level=level)

    rows = [
        [panel("test_loss", "test loss", 0.1), panel("test_error", "test error")],
        [
            panel("attention_on_signal", "attention on the signal"),
            panel("attention_on_strong_noise", "attention on the strong noise"),
        ],
    ]
    return curves_figure(
        rows,
        title="Benign and harmful overfitting where the theorems apply",
        caption=f"{caption} Sizes satisfy Condition 4.1 with constants 1 and polylog d = 1, but for the step size.",
    )


def _benign() -> float:
    return benign_constant(TOKENS, strong_noise_factor(TOKENS))


@INSIDE.summarises
def _summarise(result: xr.Dataset) -> str:
    lines = []
    for loss, part in _by_race(result):
        reached = int(converged(part).sum())
        lines.append(f"eps = {loss:g}: {reached} of {int(ended(part).sum())} runs reached it")
        for race in part.race.values:
            cell = part.sel(race=race)
            measures = {
                "test loss": cell.test_loss,
                "error": cell.test_error,
                "attention on signal": cell.attention_on_signal,
                "on strong noise": cell.attention_on_strong_noise,
            }
            sizes = f"d = {int(cell.dim):.1e}, d_h = {int(cell.hidden):.1e}, rate {_over(cell):.2g} times (6)"
            means = means_text(measures, ".3f")
            lines.append(f"  N SNR^2 = {race:g}, {sizes}: {means}")
    return "\n".join(lines)


def _over(cell: xr.Dataset) -> float:
    """The rate as a multiple of its bound."""
    return float(cell.rate) / largest_rate(
        max(1.0, float(cell.snr) ** 2), int(cell.hidden), ALL_ONE
    )
