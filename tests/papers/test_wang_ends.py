"""Planted robust claims of Wang: refuted by attacks, certified, unbroken between the ends, undecided where masked."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

from benign.claims import Evidence, Study, judge
from benign.claims.verdict import Verdict
from benign.papers.registry import claims
from benign.papers.wang.claims import studies
from benign.training.descent import Status
from benign.training.metrics.audit import FLAGS

SEEDS = 30
MASKED = {name: code for code, name in FLAGS.items()}["masked_on_training_points"]


def judged(name: str, result: xr.Dataset, study: Study) -> Verdict:
    """The verdict on a claim from a made-up result of a study; whatever the conditions."""
    claim = claims()[f"wang/{name}"]
    verdict = judge(claim, Evidence("quick", {}, (result,), (study.experiment("quick"),)))
    assert not verdict.error
    return verdict


def runs(cells: int = 2, **values: Any) -> xr.Dataset:
    """A result whose variables are numbers, the same in all runs, or given by seed."""
    full = {"status": float(Status.STEP_CAP), "audit": 0.0} | values
    return xr.Dataset(
        {
            name: (
                ("cell", "seed"),
                np.broadcast_to(np.asarray(value, float), (cells, SEEDS)).copy(),
            )
            for name, value in full.items()
        }
    )


def some(share: float) -> np.ndarray:
    """1 in a share of the seeds, else less."""
    return np.where(np.arange(SEEDS) < share * SEEDS, 1.0, 0.9)


@pytest.mark.parametrize(
    ("attacked", "certified", "audit", "word"),
    [
        (some(1), some(1), 0, "certified"),
        (some(1), some(0), 0, "unbroken"),
        (some(1), some(0), MASKED, "inconclusive"),
        (some(1), some(1), MASKED, "certified"),
        (some(0.5), some(0), 0, "refuted"),
        (some(0.5), some(0), MASKED, "refuted"),
    ],
)
def test_interpolation_after_one_step(
    attacked: np.ndarray, certified: np.ndarray, audit: int, word: str
):
    result = runs(
        train_robust_accuracy_judged=attacked,
        train_robust_accuracy_certified=certified,
        audit=audit,
    )
    assert judged("sec3.4.one-step-interpolation", result, studies.FIRST_STEP).word == word


def test_seeds_are_counted_and_not_runs():
    """Two cells of 10 seeds are 10 trials: too few for a probability of 0.8."""
    result = runs(train_robust_accuracy_judged=1, train_robust_accuracy_certified=1)
    few = result.isel(seed=slice(10))
    verdict = judged("sec3.4.one-step-interpolation", few, studies.FIRST_STEP)
    assert verdict.word == "inconclusive"
    (part,) = verdict.parts
    assert part.measured is not None
    assert part.measured.basis == "10 of 10 seeds"


def test_a_seed_with_a_missing_run_is_left_out():
    result = runs(train_robust_accuracy_judged=1, train_robust_accuracy_certified=1)
    result["status"][1, 0] = Status.MISSING
    result["train_robust_accuracy_judged"][1, 0] = np.nan
    (part,) = judged("sec3.4.one-step-interpolation", result, studies.FIRST_STEP).parts
    assert part.measured is not None
    assert part.measured.basis == "29 of 29 seeds"


def curves(last: float, robust: float, certified: float) -> xr.Dataset:
    """Loss curves that fall as 1 / t to a last value, and the robust loss at the end."""
    steps = np.array([0, 1, 2, 5, 10, 20, 50, 100, 200])
    wobble = 1 + 0.01 * np.random.default_rng(0).standard_normal(SEEDS)
    curve = np.full((2, SEEDS, steps.size), last) * (200 / np.maximum(steps, 0.5))
    result = runs(
        train_robust_accuracy_judged=1,
        train_robust_accuracy_certified=1,
        train_loss=last,
        train_robust_loss=robust * wobble,
        train_robust_loss_certified=certified * wobble,
    )
    coords = {"step": steps}
    return result.assign(train_loss_curve=(("cell", "seed", "step"), curve)).assign_coords(coords)


@pytest.mark.parametrize(
    ("robust", "certified", "word"),
    [
        (0.002, 0.002, "certified"),
        (0.002, 1.0, "unbroken"),
        (0.02, 1.0, "refuted"),
    ],
)
def test_interpolation_asks_for_the_robust_loss(robust: float, certified: float, word: str):
    """The loss under the training attack is small in all of them."""
    result = curves(0.002, robust, certified)
    assert judged("thm3.1.robust-interpolation", result, studies.INSIDE).word == word


def test_a_loss_that_still_falls_is_not_decided():
    verdict = judged("thm3.1.robust-interpolation", curves(0.05, 0.05, 0.05), studies.INSIDE)
    assert verdict.word == "inconclusive"
    assert "falls" in verdict.reason


@pytest.mark.parametrize(
    ("robust", "certified", "word"),
    [(0.002, 0.002, "certified"), (0.002, 0.02, "unbroken"), (0.004, 0.004, "refuted")],
)
def test_the_loss_falls_to_zero_only_if_no_attack_raises_it(
    robust: float, certified: float, word: str
):
    verdict = judged("thm3.1.loss-to-zero", curves(0.002, robust, certified), studies.INSIDE)
    assert verdict.word == word
    assert [part.rests_on for part in verdict.parts[:2]] == ["", ""]


@pytest.mark.parametrize(
    ("attacked", "certified", "audit", "word"),
    [
        (0.005, 0.995, 0, "certified"),
        (0.005, 0.5, 0, "unbroken"),
        (0.005, 0.5, MASKED, "inconclusive"),
        (0.4, 0.5, MASKED, "refuted"),
    ],
)
def test_overfitting_is_benign(attacked: float, certified: float, audit: int, word: str):
    """By the robust error of fresh points; every training point is certified."""
    result = runs(
        train_robust_accuracy_judged=1,
        train_robust_accuracy_certified=1,
        flipped_fitted=1,
        robust_accuracy=1 - attacked,
        robust_accuracy_certified=certified,
        audit=audit,
    )
    assert judged("thm3.1.benign", result, studies.INSIDE).word == word


def test_runs_without_flipped_labels_say_nothing_about_benign_overfitting():
    result = runs(
        train_robust_accuracy_judged=1,
        flipped_fitted=1,
        robust_accuracy=1,
        robust_accuracy_certified=1,
    )
    result["flipped_fitted"][:, :20] = np.nan
    (part,) = judged("thm3.1.benign", result, studies.INSIDE).parts
    assert part.measured is not None
    assert part.measured.basis == "10 of 10 seeds"


def test_an_error_below_the_floor_is_a_weak_attack_and_one_above_it_an_identity():
    cells = len(studies.FLOOR_RADII)
    for error, word in ((0.6, "identity"), (0.01, "inconclusive")):
        verdict = judged("thm3.2.lower-bound", runs(cells, robust_noisy_error=error), studies.FLOOR)
        assert verdict.word == word


def test_clean_parts_are_never_vetoed():
    """Half of the runs are masked: that leaves the robust part undecided, and the clean one decided."""
    cells, seeds = 12, 12
    random = np.random.default_rng(0)
    margins = 4 + 0.01 * random.standard_normal((cells, seeds))
    arrays = {
        "test_margin_positive": margins,
        "test_margin_negative": margins,
        "spectral_norm": np.ones((cells, seeds)),
        "test_accuracy": np.full((cells, seeds), 1.0),
        "robust_accuracy": np.full((cells, seeds), 1.0),
        "status": np.full((cells, seeds), float(Status.STEP_CAP)),
        "audit": np.where(np.arange(seeds) % 2, MASKED, 0) * np.ones((cells, 1)),
    }
    result = xr.Dataset({name: (("cell", "seed"), values) for name, values in arrays.items()})
    clean, robust = judged("lem4.2.margin-bound", result, studies.LEVELS).parts
    assert (clean.name, clean.outcome.value, clean.rests_on) == ("clean", "holds", "")
    assert (robust.name, robust.outcome.value) == ("robust", "inconclusive")


def test_step_sizes_are_compared_one_by_one():
    """A gap of one cell counts, and seeds that differ leave it open."""
    curve = np.zeros((3, 20, 3))
    spread = 0.003 * np.random.default_rng(0).standard_normal((3, 20, 1))
    for gap, word in ((0.0, "unbroken"), (0.05, "refuted"), (0.01, "inconclusive")):
        errors = 0.1 + curve + spread * (np.arange(3) == 1)[:, None, None]
        errors[1] += gap
        result = xr.Dataset(
            {
                f"{n}_noisy_error_curve": (("cell", "seed", "step"), errors)
                for n in ("test", "robust")
            }
        )
        # The slowest run ends at step 1024; the others are a quarter and a sixteenth of it.
        result = result.assign_coords(step=[64, 256, 1024])
        assert judged("derived.eta-invariance", result, studies.BY_PACE).word == word


@pytest.mark.slow
def test_an_attacked_first_step_is_judged_by_certificates_where_attacks_are_masked(tmp_path: Path):
    """The replayed weights are certified, so that masked runs at other radii take nothing away."""
    experiment = studies.BY_RADIUS.experiment("smoke")
    result = experiment.run(tmp_path)
    result["audit"] = result["audit"] * 0 + MASKED
    claim = claims()["wang/fn1.perturb-at-zero"]
    verdict = judge(claim, Evidence("smoke", {}, (result,), (experiment,)))
    assert not verdict.error
    parts = {part.name: part for part in verdict.parts}
    assert parts["attacked, largest"].rests_on == "certificate"
    assert parts["attacked"].certified is not None
    assert parts["attacked"].certified.estimate.value == 1
