"""The claims about Zhang et al.: identities hold, planted truths hold, and planted falsehoods fail."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import xarray as xr

from benign.claims import Claim, Evidence, Outcome, Study, judge
from benign.papers.jiang.theory import JiangNumbers
from benign.papers.verify import Verifier
from benign.papers.zhang import augment, bounds, plain
from benign.papers.zhang.claims import CLAIMS, draws, identities, stages, studies, theorem3, weak
from benign.papers.zhang.claims.figures import crossings
from benign.papers.zhang.claims.studies import ZhangCell, case_1, case_2
from benign.papers.zhang.linear_mode import convergence_steps
from benign.papers.zhang.theory import minimal_steps_corrected, theorem_steps
from benign.spec.axes import cells
from benign.training.descent import Status
from benign.training.metrics.audit import FLAGS

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
    draws = np.random.default_rng(0).normal(size=(7, 14))
    logs = (np.log(grid) @ np.array(powers))[:, None] + noise * draws
    status = np.full((7, 14), Status.CONVERGED if reached else Status.STEP_CAP)
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


# Seeds are the replicates.


def test_a_margin_is_bounded_for_one_more_seed_and_not_for_the_runs_alone(
    monkeypatch: pytest.MonkeyPatch,
):
    """The largest gap of two seeds is below the bound, but says little about a third."""
    claim = replace(ALL["derived.frozen_gap"], conditions=None)
    by_seeds = {}
    for seeds in (2, 20):
        found = [
            replace(each, gap=0.9 + 0.1 * (each.seed % 2))
            for each in effects(lambda d: 0.0, seeds=seeds)
        ]
        monkeypatch.setattr(weak, "_effects", lambda evidence, found=found: found)
        verdict = judge(claim, Evidence("quick", {}, (), (weak.WEAK.experiment("quick"),)))
        assert not verdict.error, verdict.error
        by_seeds[seeds] = verdict.word, [p.measured.estimate for p in verdict.parts if p.measured]
    assert by_seeds[2][0] == "inconclusive"
    assert by_seeds[20][0] == "unbroken"
    assert by_seeds[20][1][0].high < by_seeds[2][1][0].high


def early(change: float, seeds: int = 5) -> xr.Dataset:
    """Norms that change by a factor in Stage I in one run of one seed, and by much more after it."""
    steps = np.array([0, 1, 2, 3])
    result = xr.Dataset(coords={"step": steps, "radius": [0.1, 0.2], "seed": np.arange(seeds)})
    result["stage_1_end"] = (("radius", "seed"), np.full((2, seeds), 2))
    for name in stages.NORMS:
        curve = np.ones((2, seeds, 4))
        curve[..., 3] = 9.0
        curve[1, 2, 1] = math.sqrt(change) if name == stages.NORMS[1] else 1.0
        result[f"{name}_curve"] = (("radius", "seed", "step"), curve)
    return result


def test_norms_are_compared_in_stage_1_by_seed():
    factors = stages._changes(early(1.5))
    assert factors == pytest.approx([1, 1, 1.5, 1, 1])
    assert stages._changes(early(1 / 3))[2] == pytest.approx(3.0)


def test_a_run_without_stage_1_says_nothing_about_norms():
    result = early(1.5)
    result["stage_1_end"][1, 2] = -1
    assert stages._changes(result)[2] == 1.0


@pytest.mark.parametrize("power", [0.5, 1.0, 1.3])
def test_the_power_of_time_is_found_in_what_values_have_gained(power: float):
    step = np.arange(0.0, 60.0)
    values = np.log(5.0 + 0.3 * (step - 7.0).clip(0) ** power)
    values[:7] = np.nan  # before Stage III
    assert stages._power_since_start(step, values) == pytest.approx(power)


@pytest.mark.parametrize(
    ("seeds", "bad", "expected"),
    [
        (14, 0, Outcome.HOLDS),
        (6, 0, Outcome.INCONCLUSIVE),
        (14, 2, Outcome.INCONCLUSIVE),
        (6, 6, Outcome.FAILS),
    ],
)
def test_signs_in_six_seeds_show_less_than_in_fourteen(seeds: int, bad: int, expected: Outcome):
    """Shares of wrong signs that are 0 have no scatter: the number of seeds decides."""
    claim = ALL["stageII.signs"]
    wrong = [np.where(np.arange(seeds) < bad, 0.2, 0.0)] * 3

    def statistic(evidence: Evidence) -> Any:
        return stages._right_seeds(evidence, "seeds", wrong)

    judged = replace(claim, statistic=statistic, conditions=None)
    assert outcomes(judged) == {"": expected}


# Planted robust numbers: both ends.

MASKED = next(code for code, name in FLAGS.items() if name == "masked_on_training_points")
CASE_2 = [0.25, 0.3, 0.5, 0.9]
"""radii of Case 2 in zhang/cases at quick scale"""


def cases(**values: Any) -> xr.Dataset:
    """A result of `zhang/cases`: numbers by radius, the same for 14 seeds; audits without a flag."""
    dims, radii = ("radius", "seed"), studies.RADII
    values = {"audit": 0, "status": Status.CONVERGED, "train_loss": 0.49} | values
    tables = {
        name: (dims, np.broadcast_to(np.reshape(table, (-1, 1)), (len(radii), 14)).astype(float))
        for name, table in values.items()
    }
    return xr.Dataset(tables, {"radius": radii, "seed": range(14)})


def word(name: str, result: xr.Dataset, study: Study = studies.CASES) -> str:
    """On made-up results, whatever the conditions."""
    claim = replace(ALL[name], conditions=None)
    verdict = judge(claim, Evidence("quick", {}, (result,), (study.experiment("quick"),)))
    assert not verdict.error, verdict.error
    return verdict.word


LEARNED = {"train_robust_loss": 0.51}
STUCK = {"status": Status.STEP_CAP, "train_loss": math.log(2), "train_robust_loss": math.log(2)}


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (LEARNED, "unbroken"),
        (LEARNED | {"train_robust_loss_certified": 0.53}, "certified"),
        (LEARNED | {"audit": MASKED}, "inconclusive"),
        (LEARNED | {"train_robust_loss_certified": 0.53, "audit": MASKED}, "certified"),
        # The training attack ends at eps, and the evaluation attack shows that the robust loss does not.
        ({"train_robust_loss": 0.9, "audit": MASKED}, "refuted"),
        (STUCK, "refuted"),
        (STUCK | {"train_loss": 0.6}, "inconclusive"),  # may still get there
    ],
    ids=["attacks", "proven", "masked", "masked, proven", "raised", "stuck", "on its way"],
)
def test_convergence_is_that_of_the_robust_loss(values: dict[str, Any], expected: str):
    assert word("thm2.case2.convergence", cases(**values)) == expected


HIGH, LOW = {"robust_accuracy": 0.9}, {"robust_accuracy": 0.4}


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (HIGH, "unbroken"),
        (HIGH | {"robust_accuracy_certified": 0.8}, "certified"),
        (HIGH | {"audit": MASKED}, "inconclusive"),
        (LOW | {"audit": MASKED}, "refuted"),
        ({"robust_accuracy": [0.9] * 6 + [0.7]}, "refuted"),  # at the largest radius
    ],
)
def test_a_robust_error_that_is_large_at_some_radius_is_found(
    values: dict[str, Any], expected: str
):
    assert word("thm2.robust_error_factor", cases(**values)) == expected


def test_radii_of_case_2_alone_decide_about_it():
    loss = np.where(np.isin(studies.RADII, CASE_2), 0.51, 5.0)
    assert word("thm2.case2.convergence", cases(train_robust_loss=loss)) == "unbroken"


@pytest.mark.parametrize(
    ("law", "expected"),
    [
        (lambda r: (1 - math.sqrt(2) * r) ** -2, "confirmed"),
        (lambda r: (1 - 2 * math.sqrt(2) * r) ** -2, "confirmed"),
        (lambda r: (1 + r) ** -2, "refuted"),  # that of Lemma 21
        (lambda r: (1 - 2 * math.sqrt(2) * r) ** -4, "refuted"),
    ],
)
def test_the_time_grows_between_the_laws_of_focused_and_uniform_attention(law: Any, expected: str):
    steps = [100 * law(min(r, 0.3)) for r in studies.RADII]
    result = cases(steps=steps)
    result["steps"] = result.steps * (1 + 0.001 * result.seed)
    assert word("thm2.time_vs_tau", result) == expected


@pytest.mark.parametrize(("attacked", "expected"), [(0.51, "confirmed"), (0.9, "refuted")])
def test_attention_must_stay_uniform_on_attacked_tokens_too(attacked: float, expected: str):
    result = cases()
    curve = (("radius", "seed", "step"), np.full((7, 14, 3), 0.0))
    result["attention_entropy_curve"] = (*curve[:1], curve[1] + math.log(2))
    wobble = 0.001 * np.arange(14)[:, None]
    result["attention_on_signal_attacked_curve"] = (*curve[:1], curve[1] + attacked + wobble)
    assert word("lem5.uniform", result) == expected


@pytest.mark.parametrize(("seeds", "expected"), [(14, "confirmed"), (5, "inconclusive")])
def test_cells_are_no_replicates_of_an_error_below_eps(seeds: int, expected: str):
    """7 cells of 5 seeds are 35 runs, and say no more than 5 seeds."""
    result = times_of((-1.0, -1.0, -2.0), 0.01).isel(seed=slice(seeds))
    result["test_accuracy"] = xr.ones_like(result.steps)
    assert word("text.error_below_eps", result, studies.CONVERGENCE) == expected
    wrong = result.copy()
    wrong["test_accuracy"] = result.test_accuracy.where(result.stop_loss > 0.01, 0.5)
    assert word("text.error_below_eps", wrong, studies.CONVERGENCE) == "refuted"


def test_widths_that_are_too_close_do_not_give_a_power_of_their_logarithm():
    experiment = studies.THRESHOLD.experiment("quick")
    result = xr.Dataset(coords={"hidden": ("width", [16, 32, 64])})
    verdict = judge(
        ALL["thm2.case1.log_dh_threshold"], Evidence("quick", {}, (result,), (experiment,))
    )
    assert verdict.word == "inconclusive"
    assert "spans only" in verdict.reason


@pytest.mark.parametrize(
    ("shift", "expected"), [(0.0, "inconclusive"), (-0.3, "confirmed"), (0.3, "refuted")]
)
def test_attention_that_learns_nothing_is_no_better_than_uniform_attention(
    shift: float, expected: str
):
    snr = np.geomspace(0.2, 8, 12)
    start = np.log(snr)[:, None, None] - np.array([shift, 0.0])[:, None]
    accuracy = 0.5 + 0.5 / (1 + np.exp(-2 * start)) + np.zeros(5)
    coords = {"snr": snr, "attend": ["learned", "uniform"], "seed": range(5)}
    result = xr.Dataset({"test_accuracy": (("snr", "attend", "seed"), accuracy)}, coords)
    assert word("text.sparser_signals", result, studies.SPARSE) == expected
