"""Zhang's claims that need training: all are there, all can be judged, and the judging can tell true from false."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from benign.claims import Claim, Evidence, Outcome, judge
from benign.papers.jiang.theory import Numbers
from benign.papers.verify import Verifier
from benign.papers.zhang import theory as times
from benign.papers.zhang.claims import figures, stages, text, theorem2
from benign.papers.zhang.claims.figures import concordant, crossings
from benign.papers.zhang.claims.studies import Cell, case_1, case_2
from benign.papers.zhang.linear_mode import convergence_steps
from benign.papers.zhang.theory import theorem_steps
from benign.spec.axes import cells
from benign.training.descent import Status

CLAIMS = {
    claim.id.removeprefix("zhang/"): claim
    for module in (theorem2, stages, figures, text)
    for claim in module.CLAIMS
}

LISTED = [
    "lem5.uniform",
    "lem17.hold",
    "lem18.stage1",
    "stageII.monotone",
    "stageII.signs",
    "stageII.lambda_quadratic",
    "stageIII.exp_v_linear",
    "stageIII.loss_one_over_t",
    "stageIII.attn_to_one",
    "stageIII.noise_value",
    "thm2.case1.convergence",
    "thm2.case1.log_dh_threshold",
    "thm2.case2.convergence",
    "thm2.case2.slowdown_M",
    "thm2.case2.snr_requirement",
    "thm2.clean_error_law",
    "thm2.robust_error_factor",
    "thm2.time_vs_tau",
    "thm22.alignment",
    "appD.mha_same",
    "fig1.phase_transition",
    "fig1.boundary_exponent",
    "fig1.necessity",
    "fig1.clean_vs_robust_boundary",
    "fig2.loss_always_falls",
    "fig2.acc_needs_snr",
    "fig3a.converge",
    "fig3a.order",
    "fig3b.entropy",
    "fig3c.wv",
    "fig3.thm3_attribution",
    "fig4-6.monotone",
    "fig7.multinorm_lower",
    "fig8.boundary_shift",
    "robust.attack_strength",
    "repro.wO_scale",
    "text.error_below_eps",
    "text.large_M",
    "text.sparser_signals",
    "text.time_vs_wang",
    "text.wO_scale",
]

QUICKEST = ["stageII.monotone", "stageII.signs", "stageII.lambda_quadratic", "fig8.boundary_shift"]


def test_every_claim_is_there():
    assert sorted(CLAIMS) == sorted(LISTED)


def verdicts(names: list[str], folder: Path) -> list[str]:
    verifier = Verifier("smoke", folder, lambda experiment, place, _: experiment.run(place))
    found = [each.verdict for name in names for each in verifier.judge(CLAIMS[name])]
    return [f"{each.claim.id}: {each.error}" for each in found if each.error]


def test_claims_are_judged_without_error(tmp_path: Path):
    assert not verdicts(QUICKEST, tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_all_claims_are_judged_without_error(tmp_path: Path):
    assert not verdicts(LISTED, tmp_path)


@pytest.mark.parametrize("scale", ["smoke", "quick", "paper"])
def test_every_study_is_a_valid_experiment(scale: str):
    studies = [
        need for claim in CLAIMS.values() for need in claim.studies if not isinstance(need, str)
    ]
    for study in {need.name: need for need in studies}.values():
        study.experiment(scale)


def outcome(claim: Claim, result: xr.Dataset, scale: str = "quick") -> Outcome:
    """On made-up results of the claim's own study."""
    (study,) = claim.studies
    assert not isinstance(study, str)
    evidence = Evidence(scale, study.reading(), (result,), (study.experiment("quick"),))
    verdict = judge(replace(claim, robust=False), evidence)
    assert not verdict.error
    return verdict.outcome


def times_of(powers: tuple[float, float, float], noise: float, reached: bool = True) -> xr.Dataset:
    """Times of the cells of `zhang/convergence` by a law, with noise of its own for every seed."""
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
def test_the_law_of_the_time_is_told_from_others(result: xr.Dataset, expected: Outcome):
    assert outcome(CLAIMS["thm2.case1.convergence"], result) is expected


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
def test_a_slowdown_by_M_is_told_from_one_by_its_square(
    power: float, noise: float, expected: Outcome
):
    assert outcome(CLAIMS["thm2.case2.slowdown_M"], slowed(power, noise)) is expected


def test_the_slowdown_of_the_closed_form_is_that_by_the_square():
    ratio = convergence_steps(0.01, 0.1, 1.0, 4) / convergence_steps(0.01, 0.1, 1.0, 1)
    assert math.isclose(math.log(float(ratio)) / math.log(4), 2.0)


NUMBERS = Numbers(
    samples=20,
    tokens=2,
    dim=10**6,
    hidden=10**4,
    snr=10.0,
    noise_std=1e-3,
    strong_noise_std=1e-3,
    score_std=0.01,
    value_std=0.01,
    output_norm=2.0,
    rate=1e-3,
    loss=0.1,
    radius=0.001,
)


def test_the_time_of_stage_1_as_printed_and_as_corrected():
    tau = 0.1 * 0.1
    slack = 10 * tau + 2e-3 * tau * math.sqrt(2 * math.log(4 * 40 / 0.01)) + tau**2
    gain = 20 * (10 - tau) ** 2
    printed = gain - (20 + 120) * slack - 240
    corrected = gain - 20 * 121 * slack - 240
    numerator = 10 * 2 * 7 * 20 / (1e-3 * 10)
    assert math.isclose(times.stage_1_steps_printed(NUMBERS), numerator / (printed * 2))
    assert math.isclose(times.stage_1_steps_corrected(NUMBERS), numerator / (corrected * 4))
    assert times.stage_1_steps_corrected(replace(NUMBERS, radius=0.1)) == math.inf
    clean = replace(NUMBERS, radius=0.0, output_norm=1.0)
    assert math.isclose(times.stage_1_steps_printed(clean), times.stage_1_steps_corrected(clean))


def test_the_other_times():
    clean = replace(NUMBERS, radius=0.0)
    assert math.isclose(times.loss_steps_printed(clean), theorem_steps(clean, 1))
    larger = replace(NUMBERS, radius=0.5)
    assert times.loss_steps_printed(larger) < times.loss_steps_printed(NUMBERS)  # as printed
    assert math.isclose(times.minimal_steps_printed(NUMBERS), 2000)
    assert math.isclose(times.minimal_steps_corrected(NUMBERS), 200_000)
    assert math.isclose(times.wang_steps(NUMBERS), 1e12 / (1e8 * 0.01))
    log = math.log(6 * 40**2 / 0.01)
    assert math.isclose(times.stage_2_steps_printed(clean), 1 / (1e-3 * 100 * 4 * log))


def test_the_shortest_training_is_that_of_the_theorem_at_the_largest_rate():
    cell = Cell(samples=8, snr=2.0, loss=0.1).experiment(steps=1, seeds=1)
    n = Numbers.of(cell)
    assert math.isclose(theorem_steps(n, 1), times.minimal_steps_corrected(n))


def test_a_cell_is_inside_condition_1():
    made = Cell(samples=8, snr=2.0, loss=0.1).experiment(steps=10, seeds=1, radii=[0.05])
    _, cell = next(cells(made))
    weak = case_1(cell)
    assert weak is not None
    assert weak.hold
    assert case_2(cell) is None


def test_crossings_are_the_last_ones_or_the_first():
    values = xr.DataArray(
        [[1.0, 0.0, 1.0, 0.0], [1.0, 1.0, 1.0, 1.0]], {"r": [0.0, 1.0, 2.0, 3.0]}, ("seed", "r")
    )
    found = crossings(values, "r", 0.5)
    assert found[0] == 2.5
    assert crossings(values, "r", 0.5, "first")[0] == 0.5
    assert math.isnan(found[1])


def test_pairs_within_chance_are_ties():
    values = xr.DataArray(
        [[0.5, 0.51, 0.9], [0.5, 0.49, 0.2]],
        {"n": [1, 2], "snr": [1, 2, 3]},
        ("n", "snr"),
    ).expand_dims(seed=4)
    found = concordant("", values, ("snr",), 100)
    assert found.estimate.value == 0.5
    assert found.note == "4 pairs"
