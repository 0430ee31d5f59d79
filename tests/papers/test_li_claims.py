"""The claims about Li and Li: identities hold, planted truths hold, planted falsehoods fail, formulas are right."""

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st

from benign.claims import Evidence, Outcome, Undecided, Verdict, judge
from benign.papers.li import theory
from benign.papers.li.claims import CLAIMS, adversarial, figures, studies
from benign.papers.li.claims.adversarial import settled
from benign.papers.li.recursion import tensor_power
from benign.papers.registry import matching, recipe
from benign.spec.axes import cells
from benign.training.metrics.audit import FLAGS

WITHOUT_RUNS = [claim for claim in CLAIMS if not claim.studies]
DATASETS = ("mnist", "cifar", "svhn")


def verdict(name: str, *results: xr.Dataset) -> Verdict:
    """Of a claim on planted results."""
    (claim,) = matching([f"li/{name}"])
    return judge(replace(claim, conditions=None), Evidence("smoke", results=results))


@pytest.mark.parametrize("claim", WITHOUT_RUNS, ids=lambda claim: claim.id)
def test_claims_without_runs_are_judged(claim):
    judged = judge(claim, Evidence("smoke"))
    assert not judged.error
    assert judged.outcome is not Outcome.INCONCLUSIVE


@pytest.mark.parametrize("name", ["lem5.1.exact", "lemD2.perp-frozen", "lemD7.offdiag"])
def test_identities_hold_to_rounding(name):
    judged = verdict(name)
    (part,) = judged.parts
    assert judged.label == "identity"
    assert part.measured is not None
    assert abs(part.measured.estimate.value) < 1e-10


@pytest.mark.parametrize(
    "study",
    [studies.STANDARD, studies.ADVERSARIAL, studies.NOISE],
    ids=lambda study: study.name,
)
@pytest.mark.parametrize("scale", ["smoke", "quick", "paper"])
def test_studies_of_the_theorems_are_inside_them(study, scale):
    for _, cell in cells(study.experiment(scale)):
        attacked = getattr(cell.attack, "clip", 0.0)
        theory.conditions(cell, "4.4" if attacked else "4.3").require()


# Planted truths.


def curves(steps: list[int], losses: np.ndarray) -> xr.Dataset:
    curve = xr.DataArray(losses[None], dims=("size", "seed", "step"), coords={"step": steps})
    return xr.Dataset({"train_loss_curve": curve}, {"dim": ("size", [2])})


@pytest.mark.parametrize(
    ("growth", "spread", "outcome"),
    [
        (1.0, 0.01, Outcome.HOLDS),
        (3.0, 0.01, Outcome.FAILS),  # F_y grows as 3 log t
        (0.0, 0.01, Outcome.FAILS),  # not at all
        (1.0, 2.0, Outcome.INCONCLUSIVE),
    ],
)
def test_only_growth_as_the_logarithm_holds(growth, spread, outcome):
    steps = [0, 100, 200]
    generator = np.random.default_rng(0)
    outputs = 2 + growth * np.log(np.maximum(steps, 1)) + spread * generator.normal(size=(14, 3))
    judged = verdict("thm4.3.log-growth", curves(steps, np.log1p(np.exp(-outputs))))
    assert judged.outcome is outcome


@pytest.mark.parametrize(
    ("exponent", "printed", "derived"),
    [
        (-1.0, Outcome.HOLDS, Outcome.FAILS),
        (-1.5, Outcome.HOLDS, Outcome.FAILS),  # the lemmas bound it from above
        (-1 / 3, Outcome.FAILS, Outcome.HOLDS),
        (-0.6, Outcome.FAILS, Outcome.FAILS),
    ],
)
def test_the_printed_exponent_excludes_the_derived_one(exponent, printed, derived):
    rates = np.array([1.0, 3.0, 10.0, 30.0, 100.0])
    noise = np.random.default_rng(0).normal(size=(5, 5))
    learned = xr.DataArray(
        rates**exponent * np.exp(0.01 * noise), dims=("seed", "rate"), coords={"rate": rates}
    )
    judged = verdict("lem5.2.B-scaling", xr.Dataset({"non_robust_feature_learned": learned}))
    assert {part.name: part.outcome for part in judged.parts} == {
        "Lemmas D.24, E.11": printed,
        "Lemma 5.2": derived,
    }
    assert judged.outcome is printed, "the other law is informational"
    assert not judged.claim.derived


def table_1(gap: float, spread: float, seeds: int = 5) -> xr.Dataset:
    """Standard training learns non-robust features by `gap` more than robust ones."""
    generator = np.random.default_rng(0)
    shape = (2, seeds)
    robust = 0.5 + spread * generator.normal(size=shape)
    dims = ("attack", "seed")
    return xr.Dataset(
        {
            "robust_feature_accuracy": (dims, robust),
            "non_robust_feature_accuracy": (dims, robust + gap + spread * generator.normal(size=shape)),
            "robust_accuracy": (dims, robust + np.array([0.0, 0.3])[:, None]),
            **{
                f"{kind}_feature_accuracy_of_{training}": (dims, np.full(shape, level))
                for kind, training, level in (
                    ("non_robust", "standard", 0.9), ("robust", "standard", 0.5),
                    ("non_robust", "adversarial", 0.4), ("robust", "adversarial", 0.7),
                )
            },
        },
        {"attack": ["none", "pgd"]},
        {"experiment": '{"data": {"source": "digits"}}'},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("gap", "spread", "outcome"),
    [
        (0.2, 0.01, Outcome.HOLDS),
        (-0.2, 0.01, Outcome.FAILS),
        (0.02, 0.05, Outcome.INCONCLUSIVE),
    ],
)
@pytest.mark.parametrize("dataset", DATASETS)
def test_orders_of_table_1_are_found(dataset, gap, spread, outcome):
    assert verdict(f"tab1.{dataset}.std-order", table_1(gap, spread)).outcome is outcome


def test_references_themselves_are_informational():
    """Their levels are in the paper's order; other networks are not."""
    for name in ("std-order", "adv-order", "nr-suppressed", "r-enhanced"):
        judged = verdict(f"tab1.cifar.{name}", table_1(-0.2, 0.01))
        outcomes = {part.name: part.outcome for part in judged.parts}
        assert outcomes["references themselves"] is Outcome.HOLDS
        assert judged.outcome is outcomes["other networks"]
    older = table_1(-0.2, 0.01)
    older = older.drop_vars([name for name in older if "_of_" in str(name)])
    assert [part.name for part in verdict("tab1.cifar.std-order", older).parts] == [
        "other networks"
    ]


def test_differences_of_table_1_have_intervals_that_widen_with_the_confidence():
    """Not three standard deviations whatever the confidence: two seeds show less than five."""
    five, two = (verdict("tab1.cifar.std-order", table_1(0.1, 0.02, n)).parts[0] for n in (5, 2))
    assert five.measured
    assert two.measured
    low, lower = (five.measured.at(confidence).low for confidence in (0.95, 0.999))
    assert lower < low
    assert five.outcome is Outcome.HOLDS
    assert two.outcome is Outcome.INCONCLUSIVE


def test_gains_of_table_1_are_found():
    assert verdict("tab1.mnist.rob", table_1(0.1, 0.01)).outcome is Outcome.HOLDS
    assert (
        verdict("tab1.mnist.adv-order", table_1(0.1, 0.01, seeds=1)).outcome is Outcome.INCONCLUSIVE
    )


def table_2(scale: float = 1.0) -> xr.Dataset:
    """The paper's own numbers, those of NRF-PGD on the standard-trained network times `scale`."""
    rows = np.array(
        [
            [[71.41, 80.36, 54.08, 76.74], [11.30, 9.58, 1.24, 2.63]],
            [[9.60, 15.16, 0.34, 0.40], [19.38, 26.00, 2.64, 1.96]],
        ]
    )
    rows[0, 0] *= scale
    noise = 0.001 * np.random.default_rng(0).normal(size=(*rows.shape, 5))
    success = rows[..., None] / 100 + noise
    data = {
        f"{attack}_success_{a}_{b}": (("attack", "seed"), success[:, row, column])
        for row, attack in enumerate(("nrf", "rf"))
        for column, (a, b) in enumerate([(3, 5), (5, 3), (1, 0), (0, 1)])
    }
    return xr.Dataset(data, {"attack": ["none", "pgd"]})


def test_table_2_as_printed_holds_and_altered_fails():
    for name in ("std-nrf-dominates", "adv-both-low", "adv-reverses", "nrf-drops"):
        assert verdict(f"tab2.{name}", table_2()).outcome is Outcome.HOLDS, name
    assert verdict("tab2.std-nrf-dominates", table_2(0.1)).outcome is Outcome.FAILS
    assert verdict("tab2.nrf-drops", table_2(0.1)).outcome is Outcome.FAILS


# Planted trajectories.


def runs_of(A: torch.Tensor, B: torch.Tensor) -> studies.Trained:
    """Trained networks of which only the products with features are known, [steps, seeds, classes, width]."""
    runs = object.__new__(studies.Trained)
    for name, curves in (("A", A), ("B", B)):
        object.__setattr__(runs, name, curves)
    return runs


def judged_on(runs: studies.Trained, module, name: str, monkeypatch: pytest.MonkeyPatch) -> Verdict:
    monkeypatch.setattr(module, "trained", lambda evidence, *study, **cell: runs)
    return verdict(name)


@pytest.mark.parametrize(("ratio", "outcome"), [(8.5, Outcome.HOLDS), (3.0, Outcome.FAILS)])
def test_dominance_is_a_ratio_with_the_interval_of_a_ratio(ratio, outcome, monkeypatch):
    spread = torch.from_numpy(np.random.default_rng(0).normal(0, 0.1, (1, 14, 2, 3))).exp()
    A = torch.ones(1, 14, 2, 3, dtype=torch.float64)
    judged = judged_on(runs_of(A, ratio * spread), figures, "fig3.std.dominance", monkeypatch)
    (part,) = judged.parts
    assert part.outcome is outcome
    assert part.measured
    for confidence in (0.95, 0.9999):
        value, low, high = part.measured.at(confidence)
        assert low < value < high
        assert value == pytest.approx(ratio, rel=0.2)
    assert part.measured.estimate == part.measured.at(0.95)


@pytest.mark.parametrize(
    ("robust", "outcome"),
    [
        ([0, 0, 0, 0, 0.1, 0.5, 2], Outcome.HOLDS),  # overtakes after B has settled
        ([0, 0, 0, 0, 0.1, 0.2, 0.3], Outcome.FAILS),  # never overtakes
        ([0, 0, 0, 0.5, 2, 2, 2], Outcome.FAILS),  # is ahead when B settles
    ],
)
def test_robust_features_must_overtake_and_later(robust, outcome, monkeypatch):
    others = torch.tensor([0.0, 0.01, 0.1, 0.6, 0.9, 0.92, 0.93])

    def curves(values: torch.Tensor) -> torch.Tensor:
        return values[:, None, None, None].expand(-1, 5, 2, 3)

    runs = runs_of(curves(torch.tensor(robust, dtype=torch.float32)), curves(others))
    judged = judged_on(runs, adversarial, "lem5.2.phase-order", monkeypatch)
    assert judged.outcome is outcome
    assert judged.parts[0].outcome is outcome


# Planted robust accuracies.

MASKED = {name: code for code, name in FLAGS.items()}["masked_on_training_points"]


def robust_result(attacked: float, certified: float, flag: int = 0) -> xr.Dataset:
    """Accuracies at the largest d of 14 seeds, with a little noise by seed."""
    noise = 0.001 * np.random.default_rng(0).random((1, 14))
    values = {
        "train_robust_accuracy": 1.0,
        "robust_accuracy": attacked,
        "robust_accuracy_training_attack": 0.99,
        "robust_accuracy_certified": certified,
    }
    arrays = {name: (("size", "seed"), value - noise) for name, value in values.items()}
    arrays["audit"] = (("size", "seed"), np.full((1, 14), float(flag)))
    return xr.Dataset(arrays)


def robust_verdict(name: str, result: xr.Dataset, monkeypatch: pytest.MonkeyPatch) -> Verdict:
    """Of networks that ascents off the features do not break."""

    def networks(evidence: Evidence, study: int = 0, **cell) -> SimpleNamespace:
        if evidence.end != "attacked":
            raise Undecided("runs that are trained again have no certified end")
        return SimpleNamespace(end=None)

    points = SimpleNamespace(x=torch.zeros(1, 4, 2, 3), y=torch.tensor([[0, 1, 0, 1]]))
    monkeypatch.setattr(adversarial, "trained", networks)
    monkeypatch.setattr(adversarial, "accuracy", lambda *given: torch.ones(14))
    monkeypatch.setattr(adversarial, "fresh", lambda *given: points)
    (claim,) = matching([f"li/{name}"])
    made = studies.ADVERSARIAL.experiment("smoke")
    evidence = Evidence("smoke", results=(result, result), experiments=(made, made))
    return judge(replace(claim, conditions=None), evidence)


@pytest.mark.parametrize(
    ("attacked", "certified", "flag", "word"),
    [
        (0.3, 0.0, 0, "refuted"),
        (0.3, 0.0, MASKED, "refuted"),  # what an attack broke stays broken
        (0.99, 0.98, MASKED, "certified"),
        (0.99, 0.0, 0, "unbroken"),
        (0.99, 0.0, MASKED, "inconclusive"),
    ],
)
def test_every_attack_is_judged_by_both_ends(attacked, certified, flag, word, monkeypatch):
    result = robust_result(attacked, certified, flag)
    assert robust_verdict("thm4.4.robust-good.any-attack", result, monkeypatch).word == word


@pytest.mark.parametrize("flag", [0, MASKED])
def test_a_named_attack_is_not_vetoed(flag, monkeypatch):
    judged = robust_verdict(
        "thm4.4.robust-good.own-attack", robust_result(0.3, 0.0, flag), monkeypatch
    )
    assert judged.word == "confirmed"


def test_unfinished_training_decides_nothing(monkeypatch):
    result = robust_result(0.3, 0.0)
    result["train_robust_accuracy"] = result["train_robust_accuracy"] - 0.3
    for name in ("own-attack", "any-attack"):
        judged = robust_verdict(f"thm4.4.robust-good.{name}", result, monkeypatch)
        assert judged.word == "inconclusive"
        assert "fitted" in judged.reason


def test_seeds_without_a_number_are_left_out():
    accuracies = np.full((1, 14), 1.0)
    accuracies[0, :2] = np.nan
    result = xr.Dataset({"test_accuracy": (("size", "seed"), accuracies)})
    (part,) = verdict("thm4.3.clean-good", result).parts
    assert part.measured
    assert part.measured.basis == "12 of 12 seeds"
    result["test_accuracy"][0, :5] = np.nan
    assert "9 of 14" in verdict("thm4.3.clean-good", result).reason


def test_statements_that_the_paper_does_not_print_are_derived():
    ours = (
        "thm4.3.log-growth",
        "text.transfer",
        "rem2.5.pgd-training",
        "fig3.adv.phase2-immediate",
    )
    for name in (*ours, "text.tab2-mislabel", "label-leak", "derived.init-residual"):
        (claim,) = matching([f"li/{name}"])
        assert claim.derived, name
    for name in ("lem5.2.B-scaling", "sec2.5.lp", "thm4.4.robust-good.any-attack"):
        (claim,) = matching([f"li/{name}"])
        assert not claim.derived, name


def test_the_step_at_which_a_curve_settles():
    curve = torch.tensor([0.0, 0.01, 0.1, 0.6, 0.9, 0.92, 0.93])
    flat = torch.linspace(0, 1, 7)
    assert settled(torch.stack((curve, flat), 1)) == [4, 6]


# Formulas.


def numbers(**changes) -> theory.LiNumbers:
    """Figure 3's."""
    fig3 = {
        "classes": 2, "dim": 100, "samples": 100, "alpha": 2.0, "beta": 1.0, "robust_patches": 1,
        "other_patches": 15, "noise_std": 0.1, "init_std": 0.1, "width": 100, "q": 3, "rho": 1.0,
        "rate": 0.1, "eps": 1.2, "attack_rate": 10.0,
    }  # fmt: skip
    return theory.LiNumbers(**(fig3 | changes))


def test_conditions_at_figure_3():
    conditions = theory.conditions(numbers(), "4.4")
    assert conditions.hold
    assert conditions["2.3 (a)"].ratio == 2
    assert conditions["2.3 (b)"].ratio == 15 / 8
    assert conditions["separation"].ratio == pytest.approx(2 / 2.4)
    assert (conditions["separation"].holds, conditions["separation"].required) == (False, False)
    assert not theory.conditions(numbers(init_std=0.01), "4.3").hold
    strict = theory.LiConstants(log_power=1.0)
    assert [row.name for row in theory.conditions(numbers(), "4.3", strict).failing] == ["B.3 rho"]
    (_, cell), _ = cells(recipe("li/fig3").experiment("paper"))
    assert theory.conditions(cell, "4.3")["B.3 sigma_0"].ratio == pytest.approx(0.1)


@given(
    robust=st.integers(1, 50),
    others=st.integers(1, 10_000),
    alpha=st.floats(1.001, 50),
    eps=st.floats(1.0, 50),
    q=st.integers(3, 6),
)
def test_density_and_robustness_exclude_one_another(robust, others, alpha, eps, q):
    """Papers/li.md 2.9: with beta = 1 <= eps < alpha one of the two slacks is below 1."""
    if eps < alpha:
        dense = theory.density_slack(robust, others, alpha, 1.0, q)
        assert min(dense, theory.robust_network_slack(robust, others, alpha, eps, q)) < 1


def test_what_no_classifier_can_exceed():
    ones, others = np.zeros((3, 2)), np.array([[1.0, 0.0], [0.0, 5.0], [0.5, 1.0]])
    assert theory.robust_accuracy_limit(ones, others, 0.5) == pytest.approx(1 - 2 / 6)
    assert theory.robust_accuracy_limit(ones, others, 0.4) == 1
    assert theory.separation_slack(2.0, 1.2) < 1 < theory.separation_slack(2.5, 1.2)


def test_printed_and_corrected_laws():
    assert theory.linear_network_slack_printed(1, 2.0, 1.2) == pytest.approx(0.8 / 1.2)
    assert theory.linear_network_slack_corrected(1, 15, 2.0, 1.2) == pytest.approx(0.8 / 19.2)
    assert theory.held_back_printed(1000.0) == pytest.approx(1e-3)
    assert theory.held_back_corrected(1000.0, 1.0, 1.0, 3) == pytest.approx(0.1)
    assert theory.self_stopped(1000.0, 1.0, 1.0, 3, 0.1) == pytest.approx(0.1)
    assert theory.largest_start_printed(100, 100) == pytest.approx(math.log(100) / 10)
    assert theory.largest_start_corrected(100, 0.01) == pytest.approx(0.0303, abs=1e-4)
    bound = theory.robust_feature_bound(0.02, 0.01, 0.5, 3)
    assert bound == pytest.approx(float(tensor_power(0.02, 0.01, 0.5, 3, 1e12, 1.0).y))
    assert theory.robust_feature_bound(0.01, 0.02, 0.6, 3) == math.inf
