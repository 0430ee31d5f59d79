"""Appendices D and E and C.3 of Zhang et al. on synthetic data as recipes: several heads, and balls in several norms.

An axis-aligned signal can be moved onto the other one from |mu_+ - mu_-|_p / 2 on: |mu| in l1, 0.707 |mu| in l2,
|mu| / 2 in linf (papers/zhang.md section 4). Equal radii would mean different things.
"""

import math

import xarray as xr

from benign.attacks.attack import Attack
from benign.attacks.balls import NORMS as NORM_OF
from benign.attacks.balls import Ball, Balls
from benign.attacks.multi_norm import MultiNorm
from benign.attacks.pgd import PGD
from benign.claims.study import Question, Reading, Scaled
from benign.experiment import Experiment, specification
from benign.networks.attention import Attention
from benign.papers.attention_setting import (
    LEVEL,
    OUTPUT,
    RADIUS,
    changed,
    network,
    noisy_signals,
    pgd,
)
from benign.papers.recipes import Recipe, means_text
from benign.papers.statistics import converged, steps_to_loss
from benign.plot.lines import Curves, curves_figure
from benign.plot.style import Figure
from benign.plot.variables import TRAINED_LOSS, training_losses
from benign.spec.axes import logspace, zipped
from benign.stats.boundary import boundary
from benign.sweep.dataset import ended
from benign.training.optimisers import GradientDescent
from benign.training.setup import Evaluation

# Appendix D: several heads with one fixed w_O, said to do as a single head does.


HEADS_SAMPLES = 10

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
def _build_heads(scale: str, reading: Reading) -> Experiment:
    dim, hidden = Scaled(smoke=(32, 4), quick=(128, 16), paper=(1024, 128))[scale]
    heads = Scaled(smoke=[1, 2], quick=[1, 2, 4], paper=[1, 2, 4, 8])[scale]
    return Experiment(
        data=noisy_signals(
            dim, tokens=4, samples=HEADS_SAMPLES, snr=logspace(0.12, 4.0, Scaled(2, 6, 10)[scale])
        ),
        network=_with_heads(network(hidden, reading["w_O"]), heads, reading),
        attack=pgd(RADIUS),
        training=GradientDescent(rate=0.1, stop_loss=0.01, max_steps=Scaled(6, 200, 5000)[scale]),
        evaluation=Evaluation(samples=Scaled(10, 80, 500)[scale]),
        seeds=Scaled(1, 4, 6)[scale],
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
    races = {}
    for name, kind in (("clean", "test_accuracy"), ("robust", "robust_accuracy")):
        edge = boundary(result[kind], LEVEL, "heads * snr**p")
        races[name] = HEADS_SAMPLES * edge.critical_per_seed**2
    return races


@HEADS.draws
def _draw_heads(result: xr.Dataset, caption: str) -> Figure:
    times = steps_to_loss(result)

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
def _summarise_heads(result: xr.Dataset) -> str:
    races = critical_races(result)
    lines = []
    for h in result.heads.values:
        cell = result.sel(heads=h)
        measures = {f"critical N SNR^2, {name}": each.sel(heads=h) for name, each in races.items()}
        measures["steps of runs that converged"] = steps_to_loss(cell)
        measures["robust accuracy"] = cell.robust_accuracy
        measures["under the training attack"] = cell.robust_accuracy_training_attack
        means = means_text(measures)
        counts = f"{int(converged(cell).sum())} of {int(ended(cell).sum())} runs converged"
        lines.append(f"H = {h}: {counts}, {means}")
    return "\n".join(lines)


# Appendix E and C.3: training and judging in l1, l2, linf balls, and in all three.


IMPOSSIBLE = {"l1": 1.0, "l2": math.sqrt(0.5), "linf": 0.5}
"""|mu_+ - mu_-|_p / (2 |mu|) of orthogonal signals along axes: no classifier is robust from here on"""
PRINTED_RADII = {"l1": 20.0, "l2": 1.0, "linf": 1 / 30}
"""radii as multiples of the l2 radius (C.3)"""
ALL = "all three"

BUDGETS = Question(
    "budgets",
    "C.3 has radii of 20, 1 and 1/30 times the l2 radius, for images: which ones for synthetic data?",
    {
        "equal_share": "each at 0.0707 of the radius at which no classifier is robust: 0.0707, 0.05, 0.0354 |mu|",
        "printed": "as printed: 1, 0.05, 0.00167 |mu|, of which the first is the impossible radius itself",
    },
    "with the printed radii no classifier is robust in l1",
)


def multiples(budgets: str) -> dict[str, float]:
    """The radius in every norm as a multiple of the one in l2."""
    if budgets == "printed":
        return PRINTED_RADII
    return {norm: radius / IMPOSSIBLE["l2"] for norm, radius in IMPOSSIBLE.items()}


def attacks(budgets: str) -> list[Attack]:
    """In l1, l2, linf, and the worst of the three for every point."""
    chosen = multiples(budgets)
    alone: list[Attack] = [
        PGD(ball=Ball(p=p, radius=RADIUS * chosen[name], relative_to="signal"), steps=20, step=0.2)
        for name, p in NORM_OF.items()
    ]
    l1, l2, linf = chosen.values()
    together = Balls(radius=RADIUS, relative_to="signal", l1=l1, l2=l2, linf=linf)
    return [*alone, MultiNorm(balls=together, combine="worst")]


NORMS = Recipe(
    name="zhang/norms",
    title="Appendix E and C.3: accuracy over SNR after training in l1, l2 and linf balls, and in all three",
    shows="robust accuracy rises with SNR in every norm, and is lower against all norms at once",
    questions=(BUDGETS, OUTPUT),
    names={"attack": [*NORM_OF, ALL]},
)


@NORMS.builds
def _build_norms(scale: str, reading: Reading) -> Experiment:
    dim, hidden = Scaled(smoke=(16, 2), quick=(128, 16), paper=(1024, 128))[scale]
    samples, tokens = Scaled(smoke=(4, 2), quick=(10, 4), paper=(10, 4))[scale]
    return Experiment(
        data=noisy_signals(
            dim, tokens=tokens, samples=samples, snr=logspace(0.15, 6.0, Scaled(2, 6, 10)[scale])
        ),
        network=network(hidden, reading["w_O"]),
        attack=attacks(reading["budgets"])[
            Scaled(smoke=slice(1, None, 2), quick=slice(None), paper=slice(None))[scale]
        ],
        training=GradientDescent(rate=0.1, stop_loss=0.01, max_steps=Scaled(3, 150, 400)[scale]),
        evaluation=Evaluation(samples=Scaled(10, 40, 500)[scale]),
        seeds=Scaled(1, 2, 5)[scale],
    )


def by_norm(result: xr.Dataset) -> list[tuple[str, xr.Dataset]]:
    """The runs trained and judged against each attack, by the norm of its ball."""
    specs = specification(result)["attack"]
    words = {p: name for name, p in NORM_OF.items()}
    names = [ALL if "balls" in each else words[each["ball"].get("p", 2)] for each in specs]
    return [(name, result.isel(attack=place)) for place, name in enumerate(names)]


@NORMS.draws
def _draw_norms(result: xr.Dataset, caption: str) -> Figure:
    parts = by_norm(result)

    def panel(name: str, label: str, **more) -> Curves:
        curves = [(norm, part[name]) for norm, part in parts]
        return Curves(curves, label, "snr", "signal-to-noise ratio SNR", **more)

    chance = {"level": 0.5, "level_name": "chance"}
    rows = [
        [
            panel("test_accuracy", "clean accuracy", **chance),
            panel("robust_accuracy", "robust accuracy", title="thorough attack", **chance),
        ],
        [
            panel(
                "train_loss",
                f"{TRAINED_LOSS} (nats)",
                log=True,
                level=0.01,
                level_name="training stops",
            ),
            panel(
                "robust_accuracy_training_attack",
                "robust accuracy",
                title="training attack",
                **chance,
            ),
        ],
    ]
    radii = ", ".join(f"{name} {radius:.3g}" for name, radius in _radii(result).items())
    note = f"Each line: trained and judged in balls of that norm; radii / |mu|: {radii}."
    return curves_figure(
        rows, title="Adversarial training in several norms", caption=f"{caption} {note}"
    )


def _radii(result: xr.Dataset) -> dict[str, float]:
    """tau / |mu| in every norm, as the attack in all of them has it."""
    *_, together = specification(result)["attack"]
    balls = Balls(**{name: value for name, value in together["balls"].items() if name != "kind"})
    return {name: ball.radius for name, ball in zip(NORM_OF, balls.each(), strict=True)}


@NORMS.summarises
def _summarise_norms(result: xr.Dataset) -> str:
    lines = []
    for norm, part in by_norm(result):
        reached = int(converged(part).sum())
        lines.append(f"{norm}: {reached} of {int(ended(part).sum())} runs converged")
        for snr in part.snr.values:
            cell = part.sel(snr=snr)
            measures = {
                "clean accuracy": cell.test_accuracy,
                "robust": cell.robust_accuracy,
                "under the training attack": cell.robust_accuracy_training_attack,
                **training_losses(cell),
            }
            means = means_text(measures)
            lines.append(f"  SNR {snr:g}: {means}")
    return "\n".join(lines)
