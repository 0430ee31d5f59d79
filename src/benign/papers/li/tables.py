"""Tables 1 and 2 of Li and Li, and Figures 4 and 5, which are Table 1 along training, as recipes."""

from collections.abc import Iterable
from functools import partial
from pathlib import Path

import numpy as np
import xarray as xr

from benign.experiment import specification
from benign.papers.li.images import (
    CIFAR,
    MNIST,
    START,
    SVHN,
    Case,
    by_training,
    scale_told,
)
from benign.papers.li.printed import PAIRS, TABLE_1, TABLE_2, TRAININGS
from benign.papers.recipes import Recipe
from benign.plot.bars import Bars, bars_figure, inversions_figure
from benign.plot.lines import Curves, curves_figure
from benign.plot.style import save
from benign.plot.variables import held

COLUMNS = {
    "test_accuracy": "accuracy",
    "robust_accuracy": "robust accuracy",
    "non_robust_feature_accuracy": "on non-robust features",
    "robust_feature_accuracy": "on robust features",
}
"""variables of Table 1, in the order of its columns, and their names"""
ATTACKS = {"NRF-PGD": "nrf", "RF-PGD": "rf"}
BESIDE = "Outlines are the paper's numbers, at the paper's size; whiskers one standard deviation over seeds."
MADE = (
    "Points of features are test images drawn anew from the representation layer of two reference networks, one "
    "trained without and one with the attack, which are not the networks that are tested."
)


def targeted_success(result: xr.Dataset) -> xr.DataArray:
    """Share of points taken for the target, by training, attack (nrf, rf), pair and seed."""
    found = by_training(result)
    by_attack = [
        xr.concat([found[f"{attack}_success_{a}_{b}"] for a, b in PAIRS.values()], "pair")
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


def _told(values: np.ndarray) -> str:
    """Mean and standard deviation over seeds, in per cent."""
    known = values[np.isfinite(values)]
    if not known.size:
        return "-"
    return f"{known.mean():.1f}" + (f" +- {known.std(ddof=1):.1f}" if known.size > 1 else "")


def _lines(rows: list[list[str]]) -> list[str]:
    """Rows of words with their columns one below another."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(word.ljust(w) for word, w in zip(row, widths, strict=True)) for row in rows]


def _draw_bars(case: Case, found: xr.Dataset, folder: Path, caption: str) -> list[Path]:
    ours = {
        f"{training} training": np.concatenate(
            [_per_cent(found[name].sel(training=training)) for name in COLUMNS]
        )
        for training in TRAININGS
    }
    printed = {f"{each} training": TABLE_1[case.name, each] for each in TRAININGS}
    figure = bars_figure(
        [Bars(list(COLUMNS.values()), ours, printed)],
        "per cent",
        title="Features learned with and without an attack",
        caption=f"{caption} {BESIDE} {MADE}",
    )
    return save(figure, folder / "table1")


def _draw_curves(found: xr.Dataset, folder: Path, caption: str) -> list[Path]:
    panels = []
    for training in TRAININGS:
        cell = found.sel(training=training)
        drawn = {
            "non-robust features": held(cell, "non_robust_feature_accuracy"),
            "robust features": held(cell, "robust_feature_accuracy"),
            "test images": held(cell, "test_accuracy"),
        }
        title = f"{training} training"
        panels.append(Curves([*drawn.items()], "accuracy", along_label="epochs", title=title))
    title = "Accuracy on images of robust and of non-robust features"
    figure = curves_figure([panels], title=title, caption=f"{caption} {MADE}")
    return save(figure, folder / "fig4")


def _draw_table_1(case: Case, result: xr.Dataset, folder: Path, caption: str) -> list[Path]:
    found, caption = by_training(result), f"{caption} {scale_told(result)}."
    pictures = inversions_figure(
        found["inversions"].isel(training=0, seed=0),
        title="Images drawn from features",
        caption=f"{caption} Of the first seed.",
    )
    return [
        *_draw_bars(case, found, folder, caption),
        *_draw_curves(found, folder, caption),
        *save(pictures, folder / "inverted"),
    ]


def _summarise_table_1(case: Case, result: xr.Dataset) -> str:
    found = by_training(result)
    rows = [["training", *_with_paper(COLUMNS.values())]]
    for training in TRAININGS:
        row = [training]
        for name, printed in zip(COLUMNS, TABLE_1[case.name, training], strict=True):
            row += [_told(_per_cent(found[name].sel(training=training))), f"{printed:.2f}"]
        rows.append(row)
    rows += [_of_reference(found, training) for training in TRAININGS]
    scale = f"per cent; ours: {scale_told(result)}; paper: {_paper(case)}"
    return "\n".join([scale, *_lines(rows), _references(found)])


def _of_reference(found: xr.Dataset, training: str) -> list[str]:
    """The row of a reference network itself: the paper does not say that others were tested in Table 1."""
    first = found.isel(training=0)
    robust = "reference_robust_accuracy_adversarial" if training == "adversarial" else ""
    names = [f"reference_accuracy_{training}", robust]
    names += [f"{each}_feature_accuracy_of_{training}" for each in ("non_robust", "robust")]
    told = [_told(_per_cent(first[name])) if name in first else "-" for name in names]
    return [f"{training} reference", *(word for each in told for word in (each, ""))]


def _with_paper(columns: Iterable[str]) -> list[str]:
    """Every column with the paper's beside it."""
    return [each for name in columns for each in (name, "paper")]


def _paper(case: Case) -> str:
    network = "ResNet-18" if case is MNIST else "WRN-34-10"
    return f"{network}, all training images, {case.epochs} epochs"


def _references(found: xr.Dataset) -> str:
    """How near the search for images came."""
    first = found.isel(training=0)
    near = [_told(_per_cent(first[f"inversion_distance_{training}"])) for training in TRAININGS]
    return (
        "features of the drawn images are within " + " % (standard reference) and ".join(near) +
        " % (adversarial reference) of the norm of those they were drawn from; references are judged on images drawn "
        "anew, under their training attack"
    )  # fmt: skip


def _draw_table_2(result: xr.Dataset, folder: Path, caption: str) -> list[Path]:
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
    figure = bars_figure(
        panels,
        "targeted success, per cent",
        title="Attacks along non-robust and along robust features",
        caption=f"{caption} {scale_told(result)}. {BESIDE}",
    )
    return save(figure, folder / "table2")


def _summarise_table_2(result: xr.Dataset) -> str:
    success, found = targeted_success(result), by_training(result)
    rows = [["training", "attack", *_with_paper(_pair_names(result))]]
    for training in TRAININGS:
        for name, attack in ATTACKS.items():
            row = [training, name]
            for pair, printed in zip(PAIRS, TABLE_2[training, name], strict=True):
                ours = success.sel(training=training, attack=attack, pair=pair)
                row += [_told(_per_cent(ours)), f"{printed:.2f}"]
            rows.append(row)
        row = [training, "no attack"]
        for a, b in PAIRS.values():
            row += [_told(_per_cent(found[f"confusion_{a}_{b}"].sel(training=training))), ""]
        rows.append(row)
    scale = f"targeted success in per cent; ours: {scale_told(result)}; paper: {_paper(CIFAR)}"
    return "\n".join([scale, *_lines(rows)])


TABLES = [
    *(
        Recipe(
            name=f"li/table1_{case.name}",
            title=f"Table 1 and Figures 4 and 5 ({case.name}): accuracy on images of robust and non-robust features",
            shows="standard training learns non-robust features, adversarial training robust ones",
            build=case.experiment,
            draw=partial(_draw_table_1, case),
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
        draw=_draw_table_2,
        summarise=_summarise_table_2,
        questions=(CIFAR.images, START),
        names={"attack": TRAININGS},
    ),
]
"""`li/table2` is the experiment of `li/table1_cifar`: `benign merge` takes the runs of one for the other"""
