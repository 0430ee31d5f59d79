"""The claims about Zhang's figures 1 to 3 on made-up results: what holds, what attacks refute, what stays open."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import xarray as xr

from benign.claims import Evidence, Verdict, judge
from benign.papers.registry import recipe
from benign.papers.zhang.claims import CLAIMS
from benign.papers.zhang.claims.figures import fall
from benign.training.descent import Status
from benign.training.metrics.audit import FLAGS

ALL = {claim.id.removeprefix("zhang/"): claim for claim in CLAIMS}
MASKED = next(code for code, name in FLAGS.items() if name == "masked_on_training_points")
SEEDS = 6


def verdict(name: str, *results: xr.Dataset) -> Verdict:
    """On made-up results, as if of the paper's size."""
    claim = ALL[name]
    experiments = tuple(
        recipe(need if isinstance(need, str) else need.name).experiment("smoke")
        for need in claim.studies
    )
    judged = judge(claim, Evidence("paper", {}, results, experiments))
    assert not judged.error, judged.error
    return judged


def parts(judged: Verdict) -> dict[str, str]:
    return {part.name: part.outcome.value for part in judged.parts}


# Figure 1


def phases(
    power: float = 2.0,
    shift: float = 1.0,
    top: float = 0.99,
    noise: float = 0.004,
    audit: int = 0,
    columns: int = 12,
) -> xr.Dataset:
    """Maps that rise where N SNR^power = c; robust ones later by a factor of `shift` in c, and up to `top`."""
    samples, snr = np.array([2, 4, 8, 16, 32]), np.geomspace(0.1, 40, columns)
    race = np.log(samples[:, None, None] * snr[:, None] ** power)
    generator = np.random.default_rng(0)

    def accuracy(middle: float, top: float) -> tuple[tuple[str, ...], np.ndarray]:
        effects = 0.05 * generator.standard_normal(SEEDS)
        curve = 0.5 + (top - 0.5) / (1 + np.exp(-2 * (race - middle - effects)))
        each = noise * generator.standard_normal((5, columns, SEEDS))
        return ("samples", "snr", "seed"), np.clip(curve + each, 0, 1)

    maps = {
        "test_accuracy": accuracy(2.0, 0.999),
        "robust_accuracy": accuracy(2.0 + math.log(shift), top),
        "audit": (("samples", "snr", "seed"), np.full((5, columns, SEEDS), float(audit))),
    }
    return xr.Dataset(maps, {"samples": samples, "snr": snr, "seed": range(SEEDS)})


def test_a_phase_transition_rests_on_the_attacks_tried():
    judged = verdict("fig1.phase_transition", phases())
    assert judged.label == "unbroken"
    assert judged.attacks


def test_a_corner_that_attacks_take_is_refuted_whatever_is_masked():
    judged = verdict("fig1.phase_transition", phases(top=0.8, audit=MASKED))
    assert judged.label == "refuted"
    assert parts(judged)["high corner"] == "fails"
    assert parts(judged)["low corner"] == "holds"  # an attack proves it
    assert parts(judged)["fall, clean"] == "holds"  # no attack is involved


def test_a_high_corner_is_not_shown_by_masked_attacks():
    judged = verdict("fig1.phase_transition", phases(audit=MASKED))
    assert judged.label == "inconclusive"
    assert parts(judged)["fall, clean"] == parts(judged)["low corner"] == "holds"


def test_clean_accuracy_that_falls_again_refutes_a_transition_whatever_is_masked():
    result = phases(audit=MASKED)
    result["test_accuracy"][:, -1] -= 0.3
    judged = verdict("fig1.phase_transition", result)
    assert judged.label == "refuted"
    assert parts(judged)["fall, clean"] == "fails"


def test_one_seed_decides_no_corner():
    judged = verdict("fig1.phase_transition", phases(top=0.8).isel(seed=[0]))
    assert judged.label == "inconclusive"


@pytest.mark.parametrize(
    ("power", "expected"), [(2.0, "unbroken"), (4.0, "refuted"), (1.0, "refuted")]
)
def test_the_power_of_a_boundary_is_found(power: float, expected: str):
    assert verdict("fig1.boundary_exponent", phases(power, columns=60)).label == expected


def test_the_power_of_the_clean_boundary_is_not_vetoed_by_masked_attacks():
    result = phases(4.0, audit=MASKED, columns=60)
    judged = verdict("fig1.boundary_exponent", result)
    assert parts(judged) == {"clean": "fails", "robust": "inconclusive"}
    assert judged.label == "refuted"
    never = result.assign(robust_accuracy=0 * result.robust_accuracy, audit=0 * result.audit)
    judged = verdict("fig1.boundary_exponent", never)
    assert parts(judged) == {"clean": "fails", "robust": "inconclusive"}
    assert judged.label == "refuted"


@pytest.mark.parametrize(
    ("shift", "noise", "expected"),
    [(1.0, 0.004, "unbroken"), (4.0, 0.004, "refuted"), (1.0, 0.25, "inconclusive")],
)
def test_two_boundaries_are_compared_by_seed(shift: float, noise: float, expected: str):
    judged = verdict("fig1.clean_vs_robust_boundary", phases(shift=shift, noise=noise))
    assert judged.label == expected
    assert judged.claim.derived
    (part,) = judged.parts
    if part.measured is not None:
        assert part.measured.basis == f"{SEEDS} seeds"


@pytest.mark.parametrize(
    ("value", "audit", "expected"),
    [(0.5, 0, "confirmed"), (0.5, MASKED, "confirmed"), (0.99, MASKED, "inconclusive")],
)
def test_no_cell_far_below_the_boundary_is_robust(value: float, audit: int, expected: str):
    """An attack proves an upper end. That masked runs are robust there would be no proof."""
    result = phases(audit=audit)
    result["robust_accuracy"][0, 0] = value
    assert verdict("fig1.necessity", result).label == expected


# Figures 2 and 3


def curves(loss: float, raised: float, audit: int = 0, **more: Any) -> xr.Dataset:
    """Losses at the end of the curves of figure 2, and a raise by the evaluation attack in some runs."""
    spread = 1 + 0.01 * np.random.default_rng(0).standard_normal((4, SEEDS))
    trained = loss * spread
    robust = trained.copy()
    robust[2] += raised
    dims = ("curve", "seed")
    tables = {
        "train_loss": (dims, trained),
        "train_robust_loss": (dims, robust),
        "audit": (dims, np.full((4, SEEDS), float(audit))),
    } | {name: (dims, np.full((4, SEEDS), value)) for name, value in more.items()}
    coords = {"samples": ("curve", [22, 22, 22, 2]), "snr": ("curve", [1.0, 4.0, 12.0, 12.0])}
    return xr.Dataset(tables, coords | {"seed": range(SEEDS)})


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (curves(0.0098, 0.0), "unbroken"),
        (curves(0.0098, 0.0, train_robust_loss_certified=0.0105), "certified"),
        (curves(0.0098, 0.0, MASKED), "inconclusive"),
        # The training attack ends below 0.01, and the evaluation attack does not: the claimed loss is not the trained.
        (curves(0.0098, 0.4), "refuted"),
        (curves(0.0098, 0.4, MASKED), "refuted"),
        (curves(0.0108, 0.0), "inconclusive"),  # one more seed may be above
    ],
    ids=["attacks", "proven", "masked", "raised", "raised, masked", "close"],
)
def test_the_loss_of_figure_2_is_the_robust_one(result: xr.Dataset, expected: str):
    judged = verdict("fig2.loss_always_falls", result)
    assert judged.label == expected
    assert parts(judged)["training attack"] in ("holds", "inconclusive")


def ends(robust: list[float], noise: float = 0.004) -> xr.Dataset:
    """Robust accuracy at the end of curves along SNR at N = 22, and of one more with N = 2."""
    generator = np.random.default_rng(1)
    values = np.array(robust)[:, None] + noise * generator.standard_normal((4, SEEDS))
    return curves(0.0098, 0.0).assign(robust_accuracy=(("curve", "seed"), values))


@pytest.mark.parametrize(
    ("robust", "noise", "expected"),
    [
        ([0.5, 0.7, 0.95, 0.6], 0.004, "unbroken"),
        ([0.5, 0.95, 0.7, 0.4], 0.004, "refuted"),  # falls again
        ([0.7, 0.7, 0.7, 0.4], 0.004, "refuted"),  # does not rise with SNR
        ([0.5, 0.7, 0.95, 0.6], 0.4, "inconclusive"),
    ],
)
def test_accuracy_must_end_higher_the_larger_the_ratio(
    robust: list[float], noise: float, expected: str
):
    assert verdict("fig2.acc_needs_snr", ends(robust, noise)).label == expected


def radii(audit: int = 0, **values: Any) -> xr.Dataset:
    """Numbers by radius (0.02, 0.1, 0.5 of |mu|) with a little noise by seed."""
    spread = 1 + 0.01 * np.random.default_rng(0).standard_normal((3, SEEDS))
    dims = ("radius", "seed")
    tables = {name: (dims, np.reshape(value, (3, 1)) * spread) for name, value in values.items()}
    status = np.array([Status.CONVERGED, Status.CONVERGED, Status.STEP_CAP])[:, None]
    tables["status"] = (dims, np.broadcast_to(status, (3, SEEDS)).astype(float))
    tables["audit"] = (dims, np.full((3, SEEDS), float(audit)))
    return xr.Dataset(tables, {"radius": [0.02, 0.1, 0.5], "seed": range(SEEDS)})


@pytest.mark.parametrize(
    ("losses", "more", "audit", "expected"),
    [
        ([0.0098, 0.0098, 1.3], {}, 0, "unbroken"),
        ([0.0098, 0.0098, 1.3], {"train_robust_loss_certified": [0.01, 0.01, 9]}, 0, "certified"),
        ([0.0098, 0.0098, 1.3], {}, MASKED, "inconclusive"),
        ([0.0098, 0.5, 1.3], {}, MASKED, "refuted"),
        (
            [0.0098, 0.0098, 0.3],
            {},
            0,
            "inconclusive",
        ),  # only a certificate could show that it fell
    ],
)
def test_which_radii_converge_by_the_robust_loss(
    losses: list[float], more: dict[str, list[float]], audit: int, expected: str
):
    assert (
        verdict("fig3a.converge", radii(audit, train_robust_loss=losses, **more)).label == expected
    )


@pytest.mark.parametrize(
    ("entropy", "expected"),
    [([0.52, 0.59, 0.5], "refuted"), ([0.52, 0.97, 0.5], "confirmed")],
)
def test_the_entropy_against_the_weak_attack_does_not_decide(entropy: list[float], expected: str):
    """Half of log 2 is the mean of a focused row and a uniform one."""
    result = radii(attention_entropy=np.array(entropy) * math.log(2))
    assert verdict("fig3b.entropy", result).label == expected


def test_the_strength_of_an_attack_is_measured_over_seeds():
    def runs(lost: list[float]) -> xr.Dataset:
        dims, zero = ("snr", "seed"), np.zeros((20, len(lost)))
        names = ("robust_accuracy_training_attack", "train_robust_accuracy")
        tables = {name: (dims, zero + 0.9) for name in names} | {
            name: (dims, 0.9 - (zero + lost))
            for name in ("robust_accuracy", "train_robust_accuracy_judged")
        }
        return xr.Dataset(tables, {"seed": range(len(lost))})

    def label(lost: list[float]) -> str:
        return verdict("robust.attack_strength", runs(lost), runs(lost)).word

    assert label([0.30, 0.31, 0.29, 0.3]) == "refuted"
    assert label([0.0, 0.01, 0.0, 0.002]) == "confirmed"
    assert label([0.0, 0.3]) == "inconclusive"  # however many cells


# Falls


def test_the_largest_fall_of_a_rising_map_is_that_of_the_noise():
    measured = fall(phases().test_accuracy, ("samples", "snr"))
    assert 0 <= measured.estimate.low < measured.estimate.value < measured.estimate.high < 0.05


def test_a_fall_along_one_axis_is_found():
    result = phases()
    result["test_accuracy"][-1] -= 0.2
    assert fall(result.test_accuracy, ("samples",)).estimate.low > 0.1
    assert fall(result.test_accuracy, ("snr",)).estimate.high < 0.05


def test_a_single_seed_bounds_no_fall():
    assert math.isinf(fall(phases().test_accuracy.isel(seed=[0]), ("snr",)).estimate.high)


def test_the_levels_of_claims_are_read():
    """A higher level is crossed elsewhere: the statistic follows the claim's number."""
    claim = ALL["fig1.necessity"]
    result = phases()
    evidence = Evidence("paper", {}, (result,), (recipe("zhang/fig1").experiment("smoke"),))
    values = []
    for level in (0.75, 0.98):
        judged = judge(replace(claim, levels={**claim.levels, "accuracy": level}), evidence)
        (part,) = judged.parts
        assert part.measured is not None
        values.append(part.measured.estimate.value)
    assert values[0] < values[1]
