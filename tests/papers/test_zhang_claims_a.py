"""Claims of Zhang et al. that need hardly any training: all there, identities exact, and planted falsehoods found."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import xarray as xr

from benign.claims import Claim, Evidence, Outcome, Study, judge
from benign.papers.claims import study_of
from benign.papers.zhang import augment, bounds, plain
from benign.papers.zhang.claims import CLAIMS, draws, identities, theorem3, weak
from tests.reference import close, doubles

IDS = [
    "grad.closed_form",
    "lem8.tau0",
    "lem8.tau_pos",
    "lem8.sign_minus",
    "lem9.inner_product",
    "def6.fixed_keys",
    "wv.rank_one",
    "sym.scale",
    "sym.perm",
    "qk.balance",
    "lem10.class_balance",
    "lem11.v_init",
    "lem12.qk_init",
    "lem13.noise_geom",
    "lem13.signal_inner_lower",
    "lem13.uniform_in_ball",
    "lem14.logit_half",
    "lem15.softmax_band",
    "lem4.attn_ratio",
    "lem6.margin_gap",
    "derived.frozen_gap",
    "thm3.quarter",
    "thm3.half_at_1_over_sqrt2",
    "thm3.perm_barrier",
    "thm3.tight_radius",
    "case2.stall_radius",
    "appE.ineq2",
    "appE.ineq3",
    "main.norm_equiv",
    "appE.l0",
    "guide.augmentation",
]
ALL = {claim.id.removeprefix("zhang/"): claim for claim in CLAIMS}
EXACT = [
    "grad.closed_form",
    "lem8.tau0",
    "lem9.inner_product",
    "wv.rank_one",
    "sym.scale",
    "sym.perm",
    "qk.balance",
]
SMOKE = Evidence("smoke")


def outcomes(claim: Claim, evidence: Evidence = SMOKE) -> dict[str, Outcome]:
    verdict = judge(claim, evidence)
    assert not verdict.error, verdict.error
    return {part.name: part.outcome for part in verdict.parts}


def test_every_claim_of_this_part_is_there():
    assert set(IDS) <= set(ALL)


@pytest.mark.parametrize("name", [name for name in IDS if not ALL[name].studies])
def test_a_claim_without_runs_is_judged(name: str):
    verdict = judge(ALL[name], SMOKE)
    assert not verdict.error
    assert all(part.measured for part in verdict.parts)
    if name in EXACT:  # in float64 all of them are
        assert verdict.outcome is Outcome.HOLDS


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in IDS if ALL[name].studies])
def test_a_claim_on_runs_is_judged(name: str, tmp_path):
    (need,) = ALL[name].studies
    study = study_of(need)
    assert isinstance(study, Study)
    experiment = study.experiment("smoke")
    result = experiment.run(tmp_path)
    assert not judge(ALL[name], Evidence("smoke", {}, (result,), (experiment,))).error


# Planted falsehoods.


def test_a_wrong_factor_in_the_gradients_is_found(monkeypatch: pytest.MonkeyPatch):
    right = plain.Move.slopes.func
    wrong = property(lambda move: 1.001 * right(move))
    monkeypatch.setattr(plain.Move, "slopes", wrong)
    for name in ("grad.closed_form", "lem9.inner_product"):
        assert outcomes(ALL[name]) == {"": Outcome.FAILS}


def test_a_scaling_of_the_rate_by_c_alone_is_found(monkeypatch: pytest.MonkeyPatch):
    right = plain.Training.scaled

    def wrong(training: plain.Training, factor: float) -> plain.Training:
        return replace(right(training, factor), rate=training.rate / factor)

    monkeypatch.setattr(plain.Training, "scaled", wrong)
    assert outcomes(ALL["sym.scale"]) == {"": Outcome.FAILS}


def test_values_of_the_right_sign_would_hold(monkeypatch: pytest.MonkeyPatch):
    right = identities._values_moved
    monkeypatch.setattr(identities, "_values_moved", lambda move, x: -right(move, x))
    assert outcomes(ALL["lem8.sign_minus"]) == {"": Outcome.HOLDS}


@pytest.mark.parametrize(
    ("count", "failing", "expected"),
    [(300, 0, Outcome.HOLDS), (300, 60, Outcome.FAILS), (20, 0, Outcome.INCONCLUSIVE)],
)
def test_a_statement_that_fails_too_often_is_found(count: int, failing: int, expected: Outcome):
    """Lemma 10 with classes that are planted."""
    claim = ALL["lem10.class_balance"]
    hits = torch.arange(count) < failing
    assert outcomes(replace(claim, statistic=lambda _: draws._failing(hits))) == {"": expected}


def test_noise_that_is_too_long_is_found(monkeypatch: pytest.MonkeyPatch):
    right = draws.token_draws
    monkeypatch.setattr(draws, "token_draws", lambda e, n: 1.3 * right(e, n))  # 1.3^2 > 3/2
    assert outcomes(ALL["lem13.noise_geom"]) == {"": Outcome.FAILS}


def test_a_half_below_the_barrier_is_found_to_be_none():
    """At 0.69 |mu| the rule on token 1 makes no error: the bound would be false there."""
    world = theorem3._world(SMOKE)
    near = theorem3._smallest_error(world, world.coupled("signal", 0.69), theorem3._any(world))
    claim = ALL["thm3.half_at_1_over_sqrt2"]
    assert outcomes(replace(claim, statistic=lambda _: near)) == {"": Outcome.FAILS}


HIDDEN = 500


def endings(ratio: Any, gap: float = 1.0, seeds: int = 7) -> list[weak.Ending]:
    """Planted runs: log ratio as a function of d."""
    return [
        weak.Ending(seed, 2, dim, HIDDEN, c / math.log(HIDDEN), ratio(dim) + 0.01 * seed, gap)
        for c in weak.SHARES
        for dim in (1000, 10_000, 100_000)
        for seed in range(seeds)
    ]


@pytest.mark.parametrize(
    ("ratio", "expected"),
    [
        (lambda d: 1 / math.log(d), Outcome.HOLDS),
        (lambda d: math.sqrt(d) / 100, Outcome.FAILS),
    ],
)
def test_attention_that_an_attack_moves_more_in_high_dimension_is_found(
    monkeypatch: pytest.MonkeyPatch, ratio: Any, expected: Outcome
):
    monkeypatch.setattr(weak, "_found", lambda evidence: endings(ratio))
    claim = replace(ALL["lem4.attn_ratio"], conditions=None)
    found = outcomes(claim, Evidence("quick", {}, (), (weak.WEAK.experiment("quick"),)))
    assert {found[name] for name in found if name != "largest"} == {expected}


@pytest.mark.parametrize(("gap", "expected"), [(1.0, Outcome.HOLDS), (2.1, Outcome.FAILS)])
def test_margins_that_fall_too_far_are_found(
    monkeypatch: pytest.MonkeyPatch, gap: float, expected: Outcome
):
    monkeypatch.setattr(weak, "_found", lambda evidence: endings(math.log, gap))
    for name in ("lem6.margin_gap", "derived.frozen_gap"):
        claim = replace(ALL[name], conditions=None)
        assert outcomes(claim, Evidence("quick", {}, (), (weak.WEAK.experiment("quick"),))) == {
            "": expected
        }


def augmented(share: Any, noise: float = 0.02, seeds: int = 6) -> Evidence:
    """A result whose copies are worth this share of as many points, for every K."""
    generator = np.random.default_rng(0)
    races = [8.0]
    for copies in augment.COPIES:
        told, _ = bounds.augmented_race(8.0, copies, augment.INJECTED)
        races += [share(copies) * told, told]
    spread = np.exp(noise * generator.standard_normal((len(races), seeds)))
    race = np.array(races)[:, None] * spread
    cosine = (1 + 2 * (augment.TOKENS - 1) / race) ** -0.5
    result = xr.Dataset({"value_alignment": (("data", "seed"), cosine)})
    return Evidence("quick", {}, (result,), ())


@pytest.mark.parametrize(
    ("share", "noise", "expected"),
    [
        (lambda copies: 1.0, 0.02, Outcome.HOLDS),
        (lambda copies: 2 / (1 + copies), 0.02, Outcome.FAILS),
        (lambda copies: 1.0, 2.0, Outcome.INCONCLUSIVE),
    ],
)
def test_copies_that_are_no_new_points_are_found(share: Any, noise: float, expected: Outcome):
    found = outcomes(ALL["guide.augmentation"], augmented(share, noise))
    assert {found[f"K={copies}"] for copies in augment.COPIES} == {expected}


# The bounds themselves.


def test_printed_and_corrected_bounds_at_known_values():
    assert bounds.larger_norm_factor_printed(4, 1, 2) == 0.5
    assert bounds.larger_norm_factor_corrected(4, 1, 2) == 1
    assert bounds.smaller_norm_factor(4, 1, 2) == 2
    assert [bounds.least_robust_error_printed(r) for r in (0.8, 1)] == [0, 0.25]
    assert [bounds.least_robust_error_corrected(r) for r in (0.7, 0.8)] == [0, 0.5]
    assert bounds.expected_permutation_radius(16.0) == pytest.approx(0.5010, 1e-3)
    assert bounds.signal_product_corrected(0.6) == pytest.approx(0.14)
    assert bounds.signal_product_printed(0.3) == bounds.signal_product_corrected(0.3)
    assert bounds.augmented_race(10.0, 1, 1.0) == (5.0, 5.0)
    printed = bounds.start_bounds_printed(2.0, 0.5, 16, 9, 0.1, 4.0)
    right = bounds.start_bounds_corrected(2.0, 0.5, 16, 9, 0.1, 4.0)
    assert right.noise_norm == pytest.approx(4 * 0.01 * 9)
    assert printed.signal_norm / right.signal_norm == pytest.approx(25.0)
    assert printed.signal_noise == 16 * right.signal_noise


def test_the_largest_cross_product_lies_between_its_bounds():
    """By ascent over both balls, in the plane of signal and noise."""
    mu, tau = doubles(2.0, 0.0), 0.7
    noise = doubles(0.0, 3.0)
    first, second = torch.zeros(2).double(), torch.zeros(2).double()
    for _ in range(200):
        first = tau * torch.nn.functional.normalize(noise + second, dim=0)
        second = tau * torch.nn.functional.normalize(mu + first, dim=0)
    found = float((mu + first) @ (noise + second))
    low, high = bounds.cross_product_corrected(2.0, tau, noise.norm())
    assert low - 1e-9 <= found <= high


def test_the_attention_band_is_reached():
    h = doubles(0.3)
    low, high = bounds.attention_band(h, 3)
    close(torch.softmax(doubles(-0.3, 0.3, 0.3), 0)[0], low[0])
    close(torch.softmax(doubles(0.3, -0.3, -0.3), 0)[0], high[0])
