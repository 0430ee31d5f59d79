"""Appendix D of Zhang et al.: several heads with one fixed w_O, said to do as a single head does."""

import math

import xarray as xr

from benign.claims.study import Question, Reading, at
from benign.experiment import Experiment
from benign.networks.attention import Attention
from benign.papers.attention_questions import OUTPUT, network
from benign.papers.recipes import Recipe
from benign.papers.zhang.setting import LEVEL, RADIUS, changed, noisy_signals, pgd
from benign.plot.lines import Curves, curves_figure
from benign.plot.style import Figure
from benign.spec.axes import logspace, zipped
from benign.stats.boundary import boundary
from benign.sweep.dataset import ended
from benign.training.descent import Status
from benign.training.optimisers import GradientDescent
from benign.training.setup import Evaluation

SAMPLES = 10

SCALE = Question(
    "scale",
    "the heads share w_O: is it divided when there are H of them?",
    {
        "printed": "no: the values of all heads together learn H times as fast",
        "root": "by sqrt H: they learn as fast as those of a single head",
        "full": "by H: they learn H times slower (H^2 times slower each)",
    },
    "the appendix writes f as the sum of heads",
)
_POWER = {"printed": 0.0, "root": 0.5, "full": 1.0}
_DRAWN_NORM = {"undivided": math.sqrt(1 / 3), "divided": math.sqrt(1 / 3) / 16, "unit": 1.0}
"""root mean square of |w_O| by the answer to `w_O`; a divided w_O has a norm that is no draw"""


HEADS = Recipe(
    name="zhang/heads",
    title="Appendix D: accuracy over SNR and steps to converge with 1 to 8 heads",
    shows="several heads with one w_O train and generalise as a single head does",
    questions=(OUTPUT, SCALE),
)


@HEADS.builds
def _build(scale: str, reading: Reading) -> Experiment:
    dim, hidden = at(scale, (32, 4), (128, 16), (1024, 128))
    heads = at(scale, [1, 2], [1, 2, 4], [1, 2, 4, 8])
    return Experiment(
        data=noisy_signals(
            dim, tokens=4, samples=SAMPLES, snr=logspace(0.12, 4.0, at(scale, 2, 6, 10))
        ),
        network=_with_heads(network(hidden, reading["w_O"]), heads, reading),
        attack=pgd(RADIUS),
        training=GradientDescent(rate=0.1, stop_loss=0.01, max_steps=at(scale, 6, 200, 5000)),
        evaluation=Evaluation(samples=at(scale, 10, 80, 500)),
        seeds=at(scale, 1, 4, 6),
    )


def _with_heads(net: Attention, heads: list[int], reading: Reading) -> Attention:
    """As many heads as these, w_O as the answer to `scale` has it."""
    if reading["scale"] == "printed":
        return changed(net, heads=heads)
    base, power = _DRAWN_NORM[reading["w_O"]], _POWER[reading["scale"]]
    norms = [base / count**power for count in heads]
    return changed(net, heads=zipped("heads", heads), output_norm=zipped("heads", norms))


def critical_races(result: xr.Dataset) -> dict[str, xr.DataArray]:
    """N SNR^2 at which clean and robust accuracy cross 0.75, for every number of heads and every seed."""
    found = {}
    for name, kind in (("clean", "test_accuracy"), ("robust", "robust_accuracy")):
        edge = boundary(result[kind], LEVEL, "heads * snr**p")
        found[name] = SAMPLES * edge.critical_per_seed**2
    return found


@HEADS.draws
def _draw(result: xr.Dataset, caption: str) -> Figure:
    times = result.steps.where(result.status == Status.CONVERGED)

    def along_snr(values: xr.DataArray, label: str, **more) -> Curves:
        curves = [(f"H = {h}", values.sel(heads=h)) for h in values.heads.values]
        return Curves(curves, label, "snr", "signal-to-noise ratio SNR", **more)

    rows = [
        [
            along_snr(result.test_accuracy, "clean accuracy", level=LEVEL, level_name=f"{LEVEL:g}"),
            along_snr(
                result.robust_accuracy, "robust accuracy", level=LEVEL, level_name=f"{LEVEL:g}"
            ),
        ],
        [
            along_snr(times, "steps to converge", log=True, title="runs that converged"),
            Curves(
                list(critical_races(result).items()),
                f"N SNR² at accuracy {LEVEL:g}",
                "heads",
                "heads H",
                along_log=False,
            ),
        ],
    ]
    return curves_figure(rows, title="Several heads beside one", caption=caption)


@HEADS.summarises
def _summarise(result: xr.Dataset) -> str:
    races = critical_races(result)
    lines = []
    for h in result.heads.values:
        cell = result.sel(heads=h)
        converged = cell.status == Status.CONVERGED
        told = {f"critical N SNR^2, {name}": each.sel(heads=h) for name, each in races.items()}
        told["steps of runs that converged"] = cell.steps.where(converged)
        told["robust accuracy"] = cell.robust_accuracy
        told["under the training attack"] = cell.robust_accuracy_training_attack
        means = ", ".join(f"{name} {float(value.mean()):.3g}" for name, value in told.items())
        counts = f"{int(converged.sum())} of {int(ended(cell).sum())} runs converged"
        lines.append(f"H = {h}: {counts}, {means}")
    return "\n".join(lines)
