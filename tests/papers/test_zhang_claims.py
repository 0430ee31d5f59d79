"""The claims about Zhang et al.: identities hold, planted truths hold, and planted falsehoods fail."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import xarray as xr

from benign.claims import Claim, Evidence, Outcome, judge
from benign.papers.jiang.theory import JiangNumbers
from benign.papers.verify import Verifier
from benign.papers.zhang import augment, bounds, plain
from benign.papers.zhang.claims import CLAIMS, draws, identities, theorem3, weak
from benign.papers.zhang.claims.figures import concordant, crossings
from benign.papers.zhang.claims.studies import ZhangCell, case_1, case_2
from benign.papers.zhang.linear_mode import convergence_steps
from benign.papers.zhang.theory import minimal_steps_corrected, theorem_steps
from benign.spec.axes import cells
from benign.training.descent import Status

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
QUICKEST = ["stageII.monotone", "stageII.signs", "stageII.lambda_quadratic", "fig8.boundary_shift"]
SMOKE = Evidence("smoke")


def outcomes(claim: Claim, evidence: Evidence = SMOKE) -> dict[str, Outcome]:
    verdict = judge(claim, evidence)
    assert not verdict.error, verdict.error
    return {part.name: part.outcome for part in verdict.parts}


@pytest.mark.parametrize("name", [name for name in ALL if not ALL[name].studies])
def test_a_claim_without_runs_is_judged(name: str):
    verdict = judge(ALL[name], SMOKE)
    assert not verdict.error
    assert all(part.measured for part in verdict.parts)
    if name in EXACT:  # in float64 all of them are
        assert verdict.outcome is Outcome.HOLDS


def verdicts(names: list[str], folder: Path) -> list[str]:
    verifier = Verifier("smoke", folder, lambda experiment, place, _: experiment.run(place))
    judged = [each.verdict for name in names for each in verifier.judge(ALL[name])]
    return [f"{each.claim.id}: {each.error}" for each in judged if each.error]


def test_claims_are_judged_without_error(tmp_path: Path):
    assert not verdicts(QUICKEST, tmp_path)


def outcome(claim: Claim, result: xr.Dataset, scale: str = "quick") -> Outcome:
    """On made-up results of the study of the claim."""
    (study,) = claim.studies
    assert not isinstance(study, str)
    evidence = Evidence(scale, study.reading(), (result,), (study.experiment("quick"),))
    verdict = judge(replace(claim, robust=None), evidence)
    assert not verdict.error
    return verdict.outcome


def times_of(powers: tuple[float, float, float], noise: float, reached: bool = True) -> xr.Dataset:
    """Times of the cells of `zhang/convergence` by a law, with independent noise for every seed."""
    grid = np.array(
        [
            [0.04, 1.0, 2.0],
            [0.02, 1.0, 2.0],
            [0.01, 1.0, 2.0],
            [0.04, 0.5, 2.0],
            [0.04, 0.25, 2.0],
            [0.04, 1.0, 1.0],
            [0.04, 1.0, 4.0],
        ]
    )
    draws = np.random.default_rng(0).normal(size=(7, 5))
    logs = (np.log(grid) @ np.array(powers))[:, None] + noise * draws
    status = np.full((7, 5), Status.CONVERGED if reached else Status.STEP_CAP)
    coords = {
        name: ("cell", grid[:, place]) for place, name in enumerate(("stop_loss", "rate", "snr"))
    }
    dims = ("cell", "seed")
    return xr.Dataset({"steps": (dims, np.exp(logs)), "status": (dims, status)}, coords)


# Planted results.


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (times_of((-1.0, -1.0, -2.0), 0.01), Outcome.HOLDS),
        (times_of((-1.0, -1.0, -1.0), 0.01), Outcome.FAILS),
        (times_of((-2.0, -1.0, -2.0), 0.01), Outcome.FAILS),
        (times_of((-1.0, -1.0, -2.0), 1.0), Outcome.INCONCLUSIVE),
        (times_of((-1.0, -1.0, -2.0), 0.01, reached=False), Outcome.INCONCLUSIVE),
    ],
    ids=["true", "wrong power of mu", "wrong power of eps", "noisy", "not reached"],
)
def test_wrong_laws_of_the_time_are_found(result: xr.Dataset, expected: Outcome):
    assert outcome(ALL["thm2.case1.convergence"], result) is expected


def slowed(power: float, noise: float) -> xr.Dataset:
    tokens = np.array([2, 4, 6])
    logs = np.zeros((3, 2, 5)) + noise * np.random.default_rng(0).normal(size=(3, 2, 5))
    logs[:, 0] += power * np.log(tokens)[:, None]
    coords = {"tokens": tokens, "attend": ["uniform", "signal"]}
    dims = ("tokens", "attend", "seed")
    status = np.full(logs.shape, Status.CONVERGED)
    return xr.Dataset({"steps": (dims, np.exp(logs)), "status": (dims, status)}, coords)


@pytest.mark.parametrize(
    ("power", "noise", "expected"),
    [
        (1.0, 0.01, Outcome.HOLDS),
        (2.0, 0.01, Outcome.FAILS),
        (1.0, 2.0, Outcome.INCONCLUSIVE),
    ],
)
def test_a_slowdown_by_the_square_of_M_is_found(power: float, noise: float, expected: Outcome):
    assert outcome(ALL["thm2.case2.slowdown_M"], slowed(power, noise)) is expected


def test_the_slowdown_of_the_closed_form_is_that_by_the_square():
    ratio = convergence_steps(0.01, 0.1, 1.0, 4) / convergence_steps(0.01, 0.1, 1.0, 1)
    assert math.isclose(math.log(float(ratio)) / math.log(4), 2.0)


def test_the_shortest_training_is_that_of_the_theorem_at_the_largest_rate():
    cell = ZhangCell(samples=8, snr=2.0, loss=0.1).experiment(steps=1, seeds=1)
    n = JiangNumbers.of(cell)
    assert math.isclose(theorem_steps(n, 1), minimal_steps_corrected(n))


def test_a_cell_is_inside_condition_1():
    made = ZhangCell(samples=8, snr=2.0, loss=0.1).experiment(steps=10, seeds=1, radii=[0.05])
    _, cell = next(cells(made))
    weak = case_1(cell)
    assert weak is not None
    assert weak.hold
    assert case_2(cell) is None


def test_crossings_are_the_last_ones_or_the_first():
    values = xr.DataArray(
        [[1.0, 0.0, 1.0, 0.0], [1.0, 1.0, 1.0, 1.0]], {"r": [0.0, 1.0, 2.0, 3.0]}, ("seed", "r")
    )
    places = crossings(values, "r", 0.5)
    assert places[0] == 2.5
    assert crossings(values, "r", 0.5, "first")[0] == 0.5
    assert math.isnan(places[1])


def test_pairs_within_chance_are_ties():
    values = xr.DataArray(
        [[0.5, 0.51, 0.9], [0.5, 0.49, 0.2]],
        {"n": [1, 2], "snr": [1, 2, 3]},
        ("n", "snr"),
    ).expand_dims(seed=4)
    measured = concordant("", values, ("snr",), 100)
    assert measured.estimate.value == 0.5
    assert measured.note == "4 pairs"


# Planted falsehoods.


def test_a_wrong_factor_in_the_gradients_is_found(monkeypatch: pytest.MonkeyPatch):
    right = plain.Move.slopes.func
    wrong = property(lambda move: 1.001 * right(move))
    monkeypatch.setattr(plain.Move, "slopes", wrong)
    for name in ("grad.closed_form", "lem9.inner_product"):
        assert outcomes(ALL[name]) == {"": Outcome.FAILS}


def test_a_scaling_of_the_rate_by_c_alone_is_found(monkeypatch: pytest.MonkeyPatch):
    right = plain.PlainTraining.scaled

    def wrong(training: plain.PlainTraining, factor: float) -> plain.PlainTraining:
        return replace(right(training, factor), rate=training.rate / factor)

    monkeypatch.setattr(plain.PlainTraining, "scaled", wrong)
    assert outcomes(ALL["sym.scale"]) == {"": Outcome.FAILS}


MISPRINTS = ["lem8.sign_minus", "lem12.qk_init", "appE.ineq2", "main.norm_equiv"]
"""claims whose printed form is judged apart"""


@pytest.mark.parametrize("name", MISPRINTS)
def test_a_misprint_is_judged_as_corrected(name: str):
    claim = ALL[name]
    assert claim.misprint
    assert "printed" in claim.informational
    verdict = judge(claim, SMOKE)
    assert verdict.label == "identity"
    assert {part.name: part.outcome for part in verdict.parts}["printed"] is Outcome.FAILS


def test_values_of_the_printed_sign_would_be_found(monkeypatch: pytest.MonkeyPatch):
    right = identities._values_moved
    monkeypatch.setattr(identities, "_values_moved", lambda move, x: -right(move, x))
    expected = {"corrected": Outcome.FAILS, "printed": Outcome.HOLDS}
    assert outcomes(ALL["lem8.sign_minus"]) == expected


def test_one_coordinate_suffices_in_the_worst_case_and_not_for_every_signal():
    by_part = outcomes(ALL["appE.l0"])
    assert by_part == {
        "any_axes": Outcome.HOLDS,
        "any_dense": Outcome.FAILS,
        "network": Outcome.HOLDS,
    }
    assert judge(ALL["appE.l0"], SMOKE).label == "identity"


@pytest.mark.parametrize(
    ("count", "failing", "expected"),
    [(300, 0, Outcome.HOLDS), (300, 60, Outcome.FAILS), (20, 0, Outcome.INCONCLUSIVE)],
)
def test_a_statement_that_fails_too_often_is_found(count: int, failing: int, expected: Outcome):
    """Lemma 10 with planted classes."""
    claim = ALL["lem10.class_balance"]
    hits = torch.arange(count) < failing
    assert outcomes(replace(claim, statistic=lambda _: draws._failing(hits))) == {"": expected}


def test_noise_that_is_too_long_is_found(monkeypatch: pytest.MonkeyPatch):
    right = draws.token_draws
    monkeypatch.setattr(draws, "token_draws", lambda e, n: 1.3 * right(e, n))  # 1.3^2 > 3/2
    assert outcomes(ALL["lem13.noise_geom"]) == {"": Outcome.FAILS}


def test_a_half_below_the_barrier_is_found_to_be_none():
    """At 0.69 |mu| the rule on token 1 makes no error: the bound would be false there."""
    twins = theorem3._twins(SMOKE)
    near = theorem3._smallest_error(twins, twins.coupled("signal", 0.69), theorem3._any(twins))
    claim = ALL["thm3.half_at_1_over_sqrt2"]
    assert outcomes(replace(claim, statistic=lambda _: near)) == {"": Outcome.FAILS}


HIDDEN = 500


def effects(ratio: Any, gap: float = 1.0, seeds: int = 7) -> list[weak.AttackEffect]:
    """Planted runs: log ratio as a function of d."""
    return [
        weak.AttackEffect(seed, 2, dim, HIDDEN, c / math.log(HIDDEN), ratio(dim) + 0.01 * seed, gap)
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
    monkeypatch.setattr(weak, "_effects", lambda evidence: effects(ratio))
    claim = replace(ALL["lem4.attn_ratio"], conditions=None)
    by_part = outcomes(claim, Evidence("quick", {}, (), (weak.WEAK.experiment("quick"),)))
    assert {by_part[name] for name in by_part if name != "largest"} == {expected}


@pytest.mark.parametrize(("gap", "expected"), [(1.0, Outcome.HOLDS), (2.1, Outcome.FAILS)])
def test_margins_that_fall_too_far_are_found(
    monkeypatch: pytest.MonkeyPatch, gap: float, expected: Outcome
):
    monkeypatch.setattr(weak, "_effects", lambda evidence: effects(math.log, gap))
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
        stated, _ = bounds.augmented_race(8.0, copies, augment.INJECTED)
        races += [share(copies) * stated, stated]
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
    by_part = outcomes(ALL["guide.augmentation"], augmented(share, noise))
    assert {by_part[f"K={copies}"] for copies in augment.COPIES} == {expected}
