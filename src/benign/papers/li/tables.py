"""Feature learning on real images: Tables 1 and 2 of Li and Li, and Figures 4 and 5 (Table 1 along training).

The paper does not give the optimiser, the attacks, the number of inverted images or the method of inversion
(papers/li.md 3.3). Here: SGD with momentum; PGD-10 from the clean point for training (its steps can be recorded as a
CUDA graph, random starts cannot); the inversion steps of Ilyas et al. 2019. Images are not augmented.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from benign.attacks.balls import Ball
from benign.attacks.ensemble import EnsembleAttack
from benign.attacks.pgd import PGD
from benign.claims.study import Question, Reading, Scaled
from benign.data.images import Images
from benign.experiment import Experiment, specification
from benign.networks.network import Network
from benign.networks.resnet import ResNet, WideResNet
from benign.papers.images import TITLES, facts_of, source_of, which_images
from benign.papers.recipes import Recipe
from benign.plot.bars import Bars, bars_figure, inversions_figure
from benign.plot.lines import Curves, curves_figure
from benign.plot.style import Figure
from benign.plot.variables import extended_curve
from benign.training.feature_tests import FeatureTests
from benign.training.optimisers import SGD
from benign.training.setup import Evaluation

# The printed numbers, in per cent: shown next to ours, never in their place.


TRAININGS = ("standard", "adversarial")
"""how networks are trained: without and with an attack"""


class Table1Row(NamedTuple):
    """A row of Table 1."""

    accuracy: float
    robust_accuracy: float
    non_robust_feature_accuracy: float
    robust_feature_accuracy: float


TABLE_1 = {
    ("mnist", "standard"): Table1Row(99.56, 0.04, 88.11, 44.61),
    ("mnist", "adversarial"): Table1Row(99.41, 94.43, 39.49, 69.19),
    ("cifar", "standard"): Table1Row(95.74, 0.00, 91.79, 61.26),
    ("cifar", "adversarial"): Table1Row(86.28, 45.13, 10.88, 67.88),
    ("svhn", "standard"): Table1Row(96.84, 0.16, 73.91, 65.38),
    ("svhn", "adversarial"): Table1Row(91.99, 58.55, 35.50, 77.04),
}
"""Table 1 (ResNet-18 for MNIST, WRN-34-10 for CIFAR-10 and SVHN), by data set and training"""

TABLE_2 = {
    ("standard", "NRF-PGD"): (71.41, 80.36, 54.08, 76.74),
    ("standard", "RF-PGD"): (11.30, 9.58, 1.24, 2.63),
    ("adversarial", "NRF-PGD"): (9.60, 15.16, 0.34, 0.40),
    ("adversarial", "RF-PGD"): (19.38, 26.00, 2.64, 1.96),
}
"""Table 2: targeted success on CIFAR-10 by training and attack, for each of `PAIRS`"""
PAIRS = {"cat to dog": (3, 5), "dog to cat": (5, 3), "car to plane": (1, 0), "plane to car": (0, 1)}
"""the pairs of Table 2, as labels of CIFAR-10"""
PROSE = (9.60, 15.16, 0.34, 0.40)
"""what Appendix A.2 says of RF-PGD against the standard-trained network"""


# Open choices and experiments.


START = Question(
    "start",
    "where does the search for an image with given features begin?",
    {"noise": "at uniform noise", "image": "at another test image, the same for both references"},
    "the caption of Figure 1",
)
CLOSE, MNIST_EPS = 8 / 255, 0.3
RADII = {"digits": 0.15, "mnist": MNIST_EPS}
"""eps in l_inf, 8/255 for coloured images; that of the digits is ours"""


@dataclass(frozen=True)
class TableSize:
    """What goes with the scale."""

    samples: int
    epochs: int
    seeds: int
    tests: int
    inverted: int
    """test images that are drawn anew from features"""
    steps: int
    """of the search for each"""
    ascend: int
    """steps of training attacks; the judge takes twice as many"""
    network: int
    """which of the networks of a data set, from small to the paper's"""
    batch: int = 32
    """points of an update: of 500 images 128 would leave too few updates to learn anything"""


SIZES = Scaled(
    smoke=TableSize(256, 4, 1, 40, 12, 12, 2, 0),
    quick=TableSize(500, 12, 3, 250, 50, 200, 4, 1),
    paper=TableSize(100_000, 30, 5, 10_000, 1000, 1000, 10, 2, 128),
)


@dataclass(frozen=True)
class Table1Case:
    """A data set of Table 1."""

    name: str
    """as in the claims' ids"""
    paper: str
    """the paper's set"""
    rate: float
    networks: tuple[Network, Network, Network]
    """at each scale"""
    epochs: int
    """of the paper"""
    pairs: tuple[tuple[int, int], ...] = ()

    @property
    def images(self) -> Question:
        return which_images(self.paper)

    def experiment(self, scale: str, reading: Reading) -> Experiment:
        """Standard and adversarial training, tested along the way."""
        size, source = SIZES[scale], source_of(scale, reading, self.paper)
        facts = facts_of(source)
        attack = PGD(ball=ball(source), steps=size.ascend, step=2.5 / size.ascend)
        feature_tests = FeatureTests(
            attack=attack,
            samples=min(size.inverted, facts.test),
            steps=size.steps,
            start=reading["start"],  # pyright: ignore[reportArgumentType]
            pairs=self.pairs,
            matching_steps=max(2, size.steps // 10),
        )
        return Experiment(
            data=_data(source, min(size.samples, facts.train)),
            network=_seeing(self.networks[size.network], facts.channels),
            attack=[None, attack],
            training=SGD(
                rate=self.rate,
                weight_decay=5e-4,
                schedule="drops",
                batch=size.batch,
                epochs=self.epochs if scale == "paper" else size.epochs,
                stop_loss=0.0,
            ),
            evaluation=Evaluation(
                samples=min(size.tests, facts.test),
                attack=EnsembleAttack(ball=ball(source), steps=2 * size.ascend, restarts=1),
                at="snapshots",
                features=feature_tests,
            ),
            seeds=size.seeds,
            pairing="common",
        )


MNIST = Table1Case(
    "mnist",
    "mnist",
    0.01,
    (
        ResNet(width=4, blocks=(1, 1), classes=10),
        ResNet(width=8, blocks=(1, 1, 1), classes=10),
        ResNet(classes=10),
    ),
    30,
)
_WIDE = (
    WideResNet(depth=10, widen=1, classes=10),
    WideResNet(depth=10, widen=2, classes=10),
    WideResNet(classes=10),
)
CIFAR = Table1Case("cifar", "cifar10", 0.1, _WIDE, 200, tuple(PAIRS.values()))
SVHN = Table1Case("svhn", "svhn", 0.01, _WIDE, 200)


def ball(source: str) -> Ball:
    """Where attacks stay, and pixels in [0, 1]."""
    return Ball(p="inf", radius=RADII.get(source, CLOSE), per="sample", box=(0.0, 1.0))


def _data(source: str, samples: int) -> Images:
    facts = facts_of(source)
    return Images(
        source=source,
        samples=samples,
        dim=facts.channels * facts.side**2,
        channels=1 if facts.channels == 1 else 3,
        classes=tuple(range(facts.classes)),
    )


def _seeing(network: Network, channels: int) -> Network:
    """The network for pictures of so many colours."""
    return type(network).from_dict({**network.as_dict(), "channels": channels})


def by_training(result: xr.Dataset) -> xr.Dataset:
    """A result with the axis of attacks named by what it is: standard or adversarial training."""
    return result.rename(attack="training").assign_coords(training=list(TRAININGS))


def describe_scale(result: xr.Dataset) -> str:
    """Return the size of the runs, for a caption or a line above their numbers."""
    spec: dict[str, Any] = specification(result)
    data, network, training = spec["data"], spec["network"], spec["training"]
    shape = {
        name: network[name] for name in ("width", "blocks", "depth", "widen") if name in network
    }
    sizes = ", ".join(f"{name} {value}" for name, value in shape.items())
    seeds = result.sizes["seed"]
    eps = spec["evaluation"]["attack"]["ball"]["radius"]
    return (
        f"{TITLES[data['source']]}: {data['samples']:,} training images, {network['kind']} ({sizes}), "
        f"{training['epochs']} epochs, eps = {eps:.3g}, {seeds} seed{'s' * (seeds > 1)}, "
        f"{spec['evaluation']['features']['samples']} images drawn anew"
    )


# Figures and summaries.


COLUMNS = {
    "test_accuracy": "accuracy",
    "robust_accuracy": "robust accuracy",
    "non_robust_feature_accuracy": "on non-robust features",
    "robust_feature_accuracy": "on robust features",
}
"""variables of Table 1, in the order of its columns, and their names"""
ATTACKS = {"NRF-PGD": "nrf", "RF-PGD": "rf"}
PER_CENT = "per cent, mean +- standard deviation over seeds"
BESIDE = "Outlines are the paper's numbers, at the paper's size."
MADE = (
    "Points of features are test images drawn anew from the representation layer of two reference networks, one "
    "trained without and one with the attack, which are not the networks that are tested."
)


def targeted_success(result: xr.Dataset) -> xr.DataArray:
    """Share of points taken for the target, by training, attack (nrf, rf), pair and seed."""
    measures = by_training(result)
    by_attack = [
        xr.concat([measures[f"{attack}_success_{a}_{b}"] for a, b in PAIRS.values()], "pair")
        for attack in ATTACKS.values()
    ]
    named = {"attack": list(ATTACKS.values()), "pair": list(PAIRS)}
    return xr.concat(by_attack, "attack").assign_coords(named)


def _pair_names(result: xr.Dataset) -> list[str]:
    """What the classes of the pairs are called; on other images than CIFAR-10 their labels."""
    if str(specification(result)["data"]["source"]).startswith("cifar10"):
        return list(PAIRS)
    return [f"class {a} to {b}" for a, b in PAIRS.values()]


def _per_cent(values: xr.DataArray) -> np.ndarray:
    return 100 * values.values.reshape(-1, values.sizes["seed"])


def _mean_text(values: np.ndarray) -> str:
    """Mean and standard deviation over seeds, in per cent."""
    known = values[np.isfinite(values)]
    if not known.size:
        return "-"
    return f"{known.mean():.1f}" + (f" +- {known.std(ddof=1):.1f}" if known.size > 1 else "")


def _lines(rows: list[list[str]]) -> list[str]:
    """Rows of words with their columns one below another."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(word.ljust(w) for word, w in zip(row, widths, strict=True)) for row in rows]


def _draw_bars(case: Table1Case, measures: xr.Dataset, caption: str) -> Figure:
    ours = {
        f"{training} training": np.concatenate(
            [_per_cent(measures[name].sel(training=training)) for name in COLUMNS]
        )
        for training in TRAININGS
    }
    printed = {f"{each} training": TABLE_1[case.name, each] for each in TRAININGS}
    return bars_figure(
        [Bars(list(COLUMNS.values()), ours, printed)],
        "per cent",
        title="Features learned with and without an attack",
        caption=f"{caption} {BESIDE} {MADE}",
    )


def _draw_curves(measures: xr.Dataset, caption: str) -> Figure:
    panels = []
    for training in TRAININGS:
        cell = measures.sel(training=training)
        drawn = {
            "non-robust features": extended_curve(cell, "non_robust_feature_accuracy"),
            "robust features": extended_curve(cell, "robust_feature_accuracy"),
            "test images": extended_curve(cell, "test_accuracy"),
        }
        title = f"{training} training"
        panels.append(Curves([*drawn.items()], "accuracy", along_label="epochs", title=title))
    title = "Accuracy on images of robust and of non-robust features"
    return curves_figure([panels], title=title, caption=f"{caption} {MADE}")


def _draw_table_1(case: Table1Case, result: xr.Dataset, caption: str) -> dict[str, Figure]:
    measures, caption = by_training(result), f"{caption} {describe_scale(result)}."
    pictures = inversions_figure(
        measures["inversions"].isel(training=0, seed=0),
        title="Images drawn from features",
        caption=f"{caption} Of the first seed.",
    )
    return {
        "table1": _draw_bars(case, measures, caption),
        "fig4": _draw_curves(measures, caption),
        "inverted": pictures,
    }


def _summarise_table_1(case: Table1Case, result: xr.Dataset) -> str:
    measures = by_training(result)
    rows = [["training", *_with_paper(COLUMNS.values())]]
    for training in TRAININGS:
        row = [training]
        for name, printed in zip(COLUMNS, TABLE_1[case.name, training], strict=True):
            row += [_mean_text(_per_cent(measures[name].sel(training=training))), f"{printed:.2f}"]
        rows.append(row)
    rows += [_of_reference(measures, training) for training in TRAININGS]
    scale = f"{PER_CENT}; ours: {describe_scale(result)}; paper: {_paper(case)}"
    return "\n".join([scale, *_lines(rows), _references(measures)])


def _of_reference(measures: xr.Dataset, training: str) -> list[str]:
    """The row of a reference network itself: the paper does not say that others were tested in Table 1."""
    first = measures.isel(training=0)
    robust = "reference_robust_accuracy_adversarial" if training == "adversarial" else ""
    names = [f"reference_accuracy_{training}", robust]
    names += [f"{each}_feature_accuracy_of_{training}" for each in ("non_robust", "robust")]
    shares = [_mean_text(_per_cent(first[name])) if name in first else "-" for name in names]
    return [f"{training} reference", *(word for each in shares for word in (each, ""))]


def _with_paper(columns: Iterable[str]) -> list[str]:
    """Return every column next to the paper's."""
    return [each for name in columns for each in (name, "paper")]


def _paper(case: Table1Case) -> str:
    network = "ResNet-18" if case is MNIST else "WRN-34-10"
    return f"{network}, all training images, {case.epochs} epochs"


def _references(measures: xr.Dataset) -> str:
    """How near the search for images came."""
    first = measures.isel(training=0)
    near = [
        _mean_text(_per_cent(first[f"inversion_distance_{training}"])) for training in TRAININGS
    ]
    return (
        "features of the drawn images are within " + " % (standard reference) and ".join(near) +
        " % (adversarial reference) of the norm of those they were drawn from; references are judged on images drawn "
        "anew, under their training attack"
    )  # fmt: skip


def _draw_table_2(result: xr.Dataset, caption: str) -> Figure:
    success = targeted_success(result)
    panels = [
        Bars(
            _pair_names(result),
            {
                name: _per_cent(success.sel(training=training, attack=attack))
                for name, attack in ATTACKS.items()
            },
            {name: TABLE_2[training, name] for name in ATTACKS},
            title=f"{training} training",
        )
        for training in TRAININGS
    ]
    return bars_figure(
        panels,
        "targeted success, per cent",
        title="Attacks along non-robust and along robust features",
        caption=f"{caption} {describe_scale(result)}. {BESIDE}",
    )


def _summarise_table_2(result: xr.Dataset) -> str:
    success, measures = targeted_success(result), by_training(result)
    rows = [["training", "attack", *_with_paper(_pair_names(result))]]
    for training in TRAININGS:
        for name, attack in ATTACKS.items():
            row = [training, name]
            for pair, printed in zip(PAIRS, TABLE_2[training, name], strict=True):
                ours = success.sel(training=training, attack=attack, pair=pair)
                row += [_mean_text(_per_cent(ours)), f"{printed:.2f}"]
            rows.append(row)
        row = [training, "no attack"]
        for a, b in PAIRS.values():
            row += [
                _mean_text(_per_cent(measures[f"confusion_{a}_{b}"].sel(training=training))),
                "",
            ]
        rows.append(row)
    scale = (
        f"targeted success in {PER_CENT}; ours: {describe_scale(result)}; paper: {_paper(CIFAR)}"
    )
    return "\n".join([scale, *_lines(rows)])


TABLES = [
    *(
        Recipe(
            name=f"li/table1_{case.name}",
            title=f"Table 1 and Figures 4 and 5 ({case.name}): accuracy on images of robust and non-robust features",
            shows="standard training learns non-robust features, adversarial training robust ones",
            build=case.experiment,
            figure=partial(_draw_table_1, case),
            summarise=partial(_summarise_table_1, case),
            questions=(case.images, START),
            names={"attack": TRAININGS},
        )
        for case in (MNIST, CIFAR, SVHN)
    ),
    Recipe(
        name="li/table2",
        title="Table 2: targeted attacks along non-robust (NRF-PGD) and robust (RF-PGD) features, CIFAR-10",
        shows="non-robust features fool standard training only",
        build=CIFAR.experiment,
        figure=_draw_table_2,
        summarise=_summarise_table_2,
        questions=(CIFAR.images, START),
        names={"attack": TRAININGS},
    ),
]
"""`li/table2` is the experiment of `li/table1_cifar`: `benign merge` takes the runs of one for the other"""
