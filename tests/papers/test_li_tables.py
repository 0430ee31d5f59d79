"""Tables 1 and 2 of Li: what is printed beside what, and under which scale."""

import json
from typing import Any

import numpy as np
import pytest
import xarray as xr

from benign.attacks.ensemble import EnsembleAttack
from benign.attacks.pgd import PGD
from benign.claims.claim import Evidence
from benign.claims.study import SCALES
from benign.claims.verdict import judge
from benign.data.images import Images
from benign.networks.resnet import ResNet, WideResNet
from benign.papers.li.tables import (
    CIFAR,
    COLUMNS,
    MNIST,
    PAIRS,
    SVHN,
    TABLE_1,
    TABLE_2,
    by_training,
    describe_scale,
    targeted_success,
)
from benign.papers.registry import matching, recipe
from benign.sweep.plan import runs_of
from benign.training.optimisers import SGD
from tests.says import holds

DEFAULT = {"images": "paper", "start": "noise"}
CASES = {case.name: case for case in (MNIST, CIFAR, SVHN)}


@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
def test_the_paper_scale_is_as_printed(case):
    """papers/li.md 3.3: networks, eps, epochs; PGD-10 of eps/4, judged by 20 steps."""
    found = case.experiment("paper", DEFAULT)
    network = ResNet(channels=1, classes=10) if case is MNIST else WideResNet(classes=10)
    assert found.network == network
    assert isinstance(found.data, Images)
    assert found.data.samples == {"mnist": 60_000, "cifar": 50_000, "svhn": 73_257}[case.name]
    assert isinstance(found.training, SGD)
    assert found.training.batch == 128
    assert (found.training.epochs, found.training.momentum, found.training.weight_decay) == (
        30 if case is MNIST else 200,
        0.9,
        5e-4,
    )
    none, attack = found.attack.values
    assert none is None
    assert isinstance(attack, PGD)
    assert (attack.steps, attack.step, attack.start) == (10, 0.25, "zero")
    assert attack.ball.radius == (0.3 if case is MNIST else 8 / 255)
    assert (attack.ball.p, attack.ball.per, attack.ball.box) == ("inf", "sample", (0.0, 1.0))
    judge, asked = found.evaluation.attack, found.evaluation.features
    assert isinstance(judge, EnsembleAttack)
    assert (judge.steps, judge.ball) == (20, attack.ball)
    assert asked is not None
    assert (asked.attack, asked.samples, asked.steps, asked.step) == (attack, 1000, 1000, 0.1)
    assert asked.pairs == (((3, 5), (5, 3), (1, 0), (0, 1)) if case is CIFAR else ())


@pytest.mark.parametrize("scale", SCALES)
def test_reduced_sets_fit(scale):
    for case, name, dim in ((CIFAR, "cifar10_12k", 3072), (SVHN, "svhn28_12k", 2352)):
        found = case.experiment(scale, {**DEFAULT, "images": "reduced"})
        assert isinstance(found.data, Images)
        assert (found.data.source, found.data.dim) == (name, dim)
        assert found.data.samples <= 10_000
        assert found.evaluation.samples <= 2000


def test_both_tables_of_cifar_are_one_experiment():
    first, second = (
        recipe(f"li/{name}").experiment("quick") for name in ("table1_cifar", "table2")
    )
    assert [run.key for run in runs_of(first)] == [run.key for run in runs_of(second)]


def result(pairs: bool = False, seeds: int = 3, source: str = "digits") -> xr.Dataset:
    """Numbers that tell where they belong: 0.1 or 0.2 by training, and a hundredth a column."""
    spec: dict[str, Any] = json.loads(json.dumps(CIFAR.experiment("smoke", DEFAULT).as_dict()))
    spec["data"]["source"] = source
    names = [*COLUMNS, *(f"{name}_curve" for name in COLUMNS)]
    names += [f"reference_accuracy_{kind}" for kind in ("standard", "adversarial")]
    names += [f"inversion_distance_{kind}" for kind in ("standard", "adversarial")]
    names += ["reference_robust_accuracy_adversarial"]
    names += [
        f"{each}_feature_accuracy_of_{kind}"
        for kind in ("standard", "adversarial")
        for each in ("robust", "non_robust")
    ]
    for a, b in PAIRS.values() if pairs else ():
        names += [f"nrf_success_{a}_{b}", f"rf_success_{a}_{b}", f"confusion_{a}_{b}"]
    data: dict[str, Any] = {}
    for place, name in enumerate(names):
        cell = np.array([0.1, 0.2])[:, None] + place / 100 + np.zeros(seeds)
        along = name.endswith("_curve")
        dims = ("attack", "seed", "step") if along else ("attack", "seed")
        data[name] = (dims, cell[..., None] + np.zeros(3) if along else cell)
    pictures = np.full((2, seeds, 8, 3, 1, 8, 8), 0.5, np.float32)
    data["inversions"] = (
        ("attack", "seed", "picture", "kind", "channel", "row", "column"),
        pictures,
    )
    coords = {"attack": ["none", "pgd"], "step": [0, 1, 2], "seed": range(seeds)}
    coords["kind"] = ["original", "non-robust", "robust"]
    data["steps"] = ("attack", "seed"), np.full((2, seeds), 2)
    return xr.Dataset(data, coords, {"experiment": json.dumps(spec)})


def test_table_1_tells_its_scale_and_the_paper_in_columns_of_its_own():
    text = recipe("li/table1_cifar").summarise(result())
    scale, head, *rows = text.splitlines()
    for word in ("8 x 8 digits", "256 training images", "depth 10, widen 1", "4 epochs", "3 seeds"):
        assert word in scale, word
    assert holds(scale, "WRN-34-10", "200 epochs")
    assert head.split().count("paper") == len(COLUMNS)
    for row, training, first in zip(rows, ("standard", "adversarial"), (10, 20), strict=False):
        ours = [f"{first + place:.1f} +- 0.0" for place in range(4)]
        printed = [f"{number:.2f}" for number in TABLE_1["cifar", training]]
        expected = [training, *(w for both in zip(ours, printed, strict=True) for w in both)]
        assert " ".join(row.split()) == " ".join(expected)
    assert rows[2].split()[:2] == ["standard", "reference"]
    assert rows[3].split()[:2] == ["adversarial", "reference"]
    assert [word for word in rows[3].split()[2:] if word not in ("+-", "0.0")] == [
        "19.0", "22.0", "26.0", "25.0"
    ]  # fmt: skip
    assert "references" in rows[-1]


def test_numbers_that_are_not_there_are_not_filled_in():
    """A run that diverged has no number; the paper's stays in its own column."""
    found = result(seeds=1)
    found["robust_accuracy"][:] = np.nan
    row = recipe("li/table1_mnist").summarise(found).splitlines()[2]
    assert row.split()[:5] == ["standard", "10.0", "99.56", "-", "0.04"]


def test_table_2_has_every_number_at_its_place():
    found = result(pairs=True, source="cifar10")
    success = targeted_success(found)
    assert success.dims == ("attack", "pair", "training", "seed")
    for (a, b), pair in zip(PAIRS.values(), success["pair"].values, strict=True):
        for attack in ("nrf", "rf"):
            ours = success.sel(attack=attack, pair=pair).values
            assert np.array_equal(ours, found[f"{attack}_success_{a}_{b}"].values)
    text = recipe("li/table2").summarise(found)
    _, head, *rows = text.splitlines()
    assert "cat to dog" in head
    assert [row.split()[:2] for row in rows[:3]] == [
        ["standard", "NRF-PGD"],
        ["standard", "RF-PGD"],
        ["standard", "no"],
    ]
    for number in TABLE_2["adversarial", "RF-PGD"]:
        assert f"{number:.2f}" in rows[4]
    told = recipe("li/table2").summarise(result(pairs=True))
    assert "class 3 to 5" in told
    assert "cat" not in told


def test_figures_tell_their_scale(tmp_path):
    for name, pairs in (("li/table1_svhn", False), ("li/table2", True)):
        drawn = recipe(name).draw(result(pairs), tmp_path, "A caption.")
        for path in drawn:
            if path.suffix == ".svg":
                text = path.read_text(encoding="utf-8")
                assert "8 x 8 digits" in text
                assert "A caption." in text
        bars = next(p for p in drawn if p.name in ("table1.svg", "table2.svg")).read_text()
        assert "(paper)" in bars


def test_the_axis_of_attacks_is_named():
    found = by_training(result())
    assert list(found["training"].values) == ["standard", "adversarial"]
    assert float(found["test_accuracy"].sel(training="adversarial")[0]) == pytest.approx(0.2)
    assert "1 seed" in describe_scale(result(seeds=1))


def test_claims_are_judged_on_runs(tmp_path):
    """From the smoke runs to verdicts without an error; one seed decides no order."""
    experiment = recipe("li/table1_mnist").experiment("smoke")
    found = experiment.run(tmp_path)
    for claim in matching(["li/tab1.mnist.*"]):
        verdict = judge(claim, Evidence("smoke", DEFAULT, (found,), (experiment,)))
        assert not verdict.error, verdict.error


def test_an_axis_may_hold_no_attack():
    """Standard training is no attack, not one of radius 0, which would cost as much as an attack."""
    found = CIFAR.experiment("smoke", DEFAULT)
    assert found.from_dict(found.as_dict()) == found
    cells = [run.cell for run in runs_of(found)]
    assert [cell.attack is None for cell in cells] == [True, False]
    assert [run.where["attack"] == "none" for run in runs_of(found)] == [True, False]
