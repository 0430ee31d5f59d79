"""Figures 3 and 4 of Jiang et al. as recipes: scores, attention and values along training (appendix A)."""

import math
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import xarray as xr

from benign.claims.study import Reading, at
from benign.data.signal_noise import SignalNoise
from benign.experiment import Experiment, experiment_of
from benign.networks.attention import Attention
from benign.networks.initial import TorchDefault
from benign.papers.attention_questions import OUTPUT
from benign.papers.jiang.theory import Numbers, Theorem, conditions, steps_derived, test_loss_limit
from benign.papers.recipes import Recipe
from benign.plot.lines import Curves, curves_figure
from benign.plot.style import save
from benign.plot.variables import extended_curve
from benign.stats.intervals import mean_interval, number
from benign.sweep.dataset import ended
from benign.training.descent import Status
from benign.training.optimisers import GradientDescent
from benign.training.setup import Evaluation

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
class _Case:
    """One of the two figures."""

    figure: str
    theorem: Theorem
    samples: int
    signal: float
    title: str


BENIGN = _Case("fig3", "4.1", 16, 25.0, "Benign overfitting of a transformer along training")
HARMFUL = _Case("fig4", "4.2", 10, 15.0, "Harmful overfitting of a transformer along training")


def _build(case: _Case, scale: str, reading: Reading) -> Experiment:
    """Appendix A; below paper scale with smaller d and d_h and the same lengths of tokens."""
    dim = at(scale, 64, 512, 2048)
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
            init=TorchDefault(divide_by=16, divide_output=reading["w_O"] == "divided"),
            output_norm=1.0 if reading["w_O"] == "unit" else None,
        ),
        training=GradientDescent(rate=0.1, stop_loss=0.01, max_steps=20_000),
        evaluation=Evaluation(samples=at(scale, 50, 250, 250)),
        coordinates="projected",
        seeds=at(scale, 1, 14, 14),
    )


def numbers(result: xr.Dataset) -> Numbers:
    """What the theorems are about, of the one cell of a result."""
    return Numbers.of(experiment_of(result))


def _draw(case: _Case, result: xr.Dataset, folder: Path, caption: str) -> list[Path]:
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
    told = f"T by formula: {_formula(case)} = {number(time)} steps. A run that has ended stays at its last value."
    figure = curves_figure([row], title=case.title, caption=f"{caption} {told}")
    return save(figure, folder / case.figure)


def _formula(case: _Case) -> str:
    if case.theorem == "4.1":
        return "2 / (eta eps |mu|^2 |w_O|^2)"
    return "N / (eta eps C_p^2 sigma_p^2 d |w_O|^2)"


def _summarise(case: _Case, result: xr.Dataset) -> str:
    n, groups = numbers(result), {"scores": SCORES, "attention": ATTENTION, "values": VALUES}
    reached = int((result.status == Status.CONVERGED).sum())
    lines = [
        f"{reached} of {int(ended(result).sum())} runs reached the training loss {n.loss:g}",
        f"steps: {_mean(result.steps)}; {_times(case, result)}",
    ]
    for name, group in groups.items():
        told = [f"{each} {_mean(result[variable])}" for each, variable in group.items()]
        lines.append(f"{name}: {', '.join(told)}")
    lines.append(f"test loss: {_mean(result.test_loss)}{_limit(case, n)}")
    lines.append(f"test error (0/1): {_mean(1 - result.test_accuracy)}")
    return "\n".join(lines)


def _mean(values: xr.DataArray) -> str:
    """Over the seeds that have a value, with its interval."""
    known = values.dropna("seed").values
    return str(mean_interval(known)) if known.size else "of no run"


def _times(case: _Case, result: xr.Dataset) -> str:
    """The formula at full attention, and with the attention that is left on the token that was learned."""
    n, learned = numbers(result), list(ATTENTION.values())[case.theorem == "4.2"]
    left = float(result[learned].mean())
    told = f"{_formula(case)} = {number(steps_derived(n, case.theorem, 1.0))}"
    if not left > 0:  # no run has a value
        return told
    return f"{told}, {number(steps_derived(n, case.theorem, left))} when divided by attention^2"


def _limit(case: _Case, n: Numbers) -> str:
    if case.theorem == "4.2":
        return ""
    return f"; log(1 + eps^((2M - 1) / M^2)), with all attention on mu: {test_loss_limit(n.loss, n.tokens, 1.0):.3f}"


def _recipe(case: _Case, shows: str) -> Recipe:
    kind = case.title.split()[0].lower()
    return Recipe(
        name=f"jiang/{case.figure}",
        title=f"Figure {case.figure[-1]}: scores, attention and values along {kind} training, synthetic data",
        shows=shows,
        build=partial(_build, case),
        draw=partial(_draw, case),
        summarise=partial(_summarise, case),
        questions=(OUTPUT,),
        conditions=partial(conditions, theorem=case.theorem),
    )


FIG3 = _recipe(
    BENIGN, "scores, attention and value of the signal outgrow those of the strong noise"
)
FIG4 = _recipe(
    HARMFUL, "scores, attention and value of the strong noise outgrow those of the signal"
)
