"""The claims about Jiang et al.: identities hold, planted truths hold, and planted falsehoods fail."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from benign.claims import Claim, Evidence, Outcome, Verdict, exponent, judge
from benign.claims.rule import Range
from benign.claims.verdict import PartVerdict
from benign.experiment import Experiment
from benign.papers.jiang import theory
from benign.papers.jiang.claims import stage_3, stages
from benign.papers.jiang.claims.identities import CLAIMS as IDENTITIES
from benign.papers.jiang.claims.studies import (
    BENIGN_INSIDE,
    BENIGN_RATES,
    HARMFUL_END,
    HARMFUL_STAGES,
    JiangCell,
)
from benign.papers.jiang.claims.studies import experiment as experiment_of
from benign.papers.jiang.claims.trajectory import FreshPoints, Trajectory, trajectories
from benign.papers.jiang.theory import JiangNumbers, conditions, theorem_steps
from benign.papers.registry import matching
from benign.spec.axes import cells
from benign.sweep.plan import Run
from benign.training.descent import Status


def claim(name: str):
    (only,) = matching([f"jiang/{name}"])
    return only


@pytest.mark.parametrize("each", list(IDENTITIES), ids=lambda each: each.id)
def test_identities_hold_to_rounding(each):
    verdict = judge(each, Evidence("smoke"))
    assert verdict.label == "identity", verdict.reason


# Truth that was planted.


def planted_times(power: float, noise: float = 0.02, seeds: int = 5) -> Evidence:
    """The rate study at quick scale with T = |mu|^-power ... in place of training, and noise between seeds."""
    experiment = BENIGN_RATES.experiment("quick")
    spread = np.random.default_rng(0).normal(0, noise, (9, seeds))
    steps = np.array([[_law(n, power)] * seeds for n in _numbers(experiment)]) * np.exp(spread)
    both = ("cell", "seed")
    status = np.full(steps.shape, int(Status.CONVERGED))
    return Evidence(
        "quick",
        {},
        (xr.Dataset({"steps": (both, steps), "status": (both, status)}),),
        (experiment,),
    )


def _numbers(experiment: Experiment) -> list[JiangNumbers]:
    return [JiangNumbers.of(cell) for _, cell in cells(experiment)]


def _law(n: JiangNumbers, power: float) -> float:
    return n.signal ** (-power / 2) / (n.rate * n.loss * n.output_norm**2)


def test_a_rate_is_confirmed_refuted_or_left_open():
    assert judge(claim("thm4.1.rate_mu"), planted_times(2.0)).outcome is Outcome.HOLDS
    assert judge(claim("thm4.1.rate_mu"), planted_times(1.0)).outcome is Outcome.FAILS
    assert (
        judge(claim("thm4.1.rate_mu"), planted_times(2.0, noise=1.0)).outcome
        is Outcome.INCONCLUSIVE
    )
    for name in ("rate_eps", "rate_eta", "rate_wO"):
        assert judge(claim(f"thm4.1.{name}"), planted_times(2.0)).outcome is Outcome.HOLDS


EXPONENTS = ("rate_eps", "rate_eta", "rate_mu", "rate_wO")


def test_one_rule_asks_for_every_exponent():
    for name in (*(f"thm4.1.{each}" for each in EXPONENTS), "thm4.2.rate_N", "thm4.2.rate_sigma"):
        assert claim(name).rule == exponent(round(sum(_range(claim(name))) / 2))
    for name in ("fig1.boundary_exponent", "fig1.boundary_exponent_error"):
        assert claim(name).rule == exponent(-0.5)
    assert claim("fig1.boundary_exponent_error").derived  # Jiang et al. speak of the loss


def _range(of: Claim) -> tuple[float, float]:
    assert isinstance(of.rule, Range)
    return of.rule.low, of.rule.high


def relative_times(ratios: np.ndarray, status: np.ndarray) -> Evidence:
    """Runs of the only cell that took so many times their bound."""
    experiment = BENIGN_INSIDE.experiment("quick")
    (n,) = _numbers(experiment)
    steps = ratios * theorem_steps(n, "4.1") * 4 * n.tokens**2
    both = ("cell", "seed")
    result = xr.Dataset({"steps": (both, steps[None]), "status": (both, status[None])})
    return Evidence("quick", {}, (result,), (experiment,))


def times_of(ratios: list[float], *statuses: Status) -> PartVerdict:
    status = np.full(len(ratios), int(Status.CONVERGED))
    status[: len(statuses)] = statuses
    verdict = judge(claim("thm4.1.convergence"), relative_times(np.array(ratios), status))
    assert not verdict.error, verdict.error
    return verdict.parts[0]


def test_a_time_within_its_bound_needs_runs_that_agree():
    assert times_of([0.18, 0.181, 0.182, 0.183, 0.184]).outcome is Outcome.HOLDS
    assert times_of([0.18, 0.18, 0.18, 0.18, 1.1]).outcome is Outcome.FAILS
    # Fewer runs, or runs that differ more, do not confirm more easily.
    assert times_of([0.3, 0.9, 0.4, 0.2, 0.8]).outcome is Outcome.INCONCLUSIVE
    assert times_of([0.2]).outcome is Outcome.INCONCLUSIVE


def test_runs_that_do_not_reach_their_loss_count_as_slow():
    most = [0.18] * 4
    assert times_of([2.0, *most], Status.STEP_CAP).outcome is Outcome.FAILS
    assert times_of([0.01, *most], Status.DIVERGED).outcome is Outcome.FAILS
    stopped = times_of([0.5, *most], Status.STEP_CAP)
    assert (stopped.outcome, "stopped before the bound" in stopped.reason) == (
        Outcome.INCONCLUSIVE,
        True,
    )
    missing = times_of([0.01, 0.181, 0.182, 0.183, 0.184], Status.MISSING)
    assert missing.outcome is Outcome.HOLDS
    assert missing.measured
    assert "1 of 5 seeds" in missing.measured.note


def planted_map(power: float, noise: float = 0.0) -> Evidence:
    """A map of the test loss that passes .2 where N SNR^power is 1000^(power / 2)."""
    samples, snr = np.array([4, 8, 12, 16, 20, 24]), np.linspace(0.2, 30, 60)
    race = samples[:, None] * snr[None] ** power / 1000 ** (power / 2)
    loss = 0.8 * np.exp(-race * math.log(4))
    loss = loss[..., None] * np.exp(np.random.default_rng(1).normal(0, noise, (*race.shape, 3)))
    losses = xr.DataArray(
        loss, {"samples": samples, "snr": snr, "seed": [0, 1, 2]}, ("samples", "snr", "seed")
    )
    return Evidence("quick", {}, (xr.Dataset({"test_loss": losses}),), ())


def test_a_boundary_is_confirmed_or_refuted():
    assert judge(claim("fig1.boundary_exponent"), planted_map(2.0)).outcome is Outcome.HOLDS
    assert judge(claim("fig1.boundary_exponent"), planted_map(4.0)).outcome is Outcome.FAILS
    assert judge(claim("fig1.boundary_1000"), planted_map(2.0)).outcome is Outcome.HOLDS
    assert judge(claim("fig1.monotone"), planted_map(2.0)).outcome is Outcome.HOLDS
    upside_down = planted_map(2.0).result.map(lambda loss: 1 - loss)
    assert (
        judge(claim("fig1.monotone"), Evidence("quick", {}, (upside_down,), ())).outcome
        is Outcome.FAILS
    )


def noisy_map(spread: float, seeds: int, rise: float = 0.0) -> Evidence:
    """The map of `planted_map` with noise of each run, and a rise of the loss in one row."""
    losses = planted_map(2.0).result.test_loss.isel(seed=0, drop=True)
    losses = losses.isel(samples=slice(0, None, 2), snr=slice(0, None, 12)).copy()
    losses[1, 4] += rise
    noise = np.random.default_rng(4).normal(0, spread, (*losses.shape, seeds))
    result = xr.Dataset(
        {"test_loss": losses + xr.DataArray(noise, dims=("samples", "snr", "seed"))}
    )
    return Evidence("quick", {}, (result,), ())


@pytest.mark.parametrize(
    ("spread", "seeds", "rise", "outcome"),
    [
        (0.02, 10, 0.0, Outcome.HOLDS),  # strictly monotone, with noise
        (0.02, 10, 0.4, Outcome.FAILS),  # re-entrant in one row
        (0.2, 3, 0.0, Outcome.INCONCLUSIVE),  # fewer runs do not confirm, nor does noise refute
    ],
)
def test_a_loss_falls_if_no_line_rises(spread, seeds, rise, outcome):
    verdict = judge(claim("fig1.monotone"), noisy_map(spread, seeds, rise))
    assert verdict.outcome is outcome, [part.statistic() for part in verdict.parts]


def test_the_red_curve_is_a_calibration_and_seeds_are_its_replicates():
    verdict = judge(claim("fig1.boundary_1000"), planted_map(2.0, noise=0.05))
    assert verdict.word == "calibrated"
    (part,) = verdict.parts
    assert part.measured
    assert part.measured.basis == "3 seeds"
    assert part.measured.estimate.low < part.measured.estimate.high
    # With power 4 the boundary leaves the curve by more than a factor of 2.
    assert judge(claim("fig1.boundary_1000"), planted_map(4.0)).outcome is Outcome.FAILS


def test_a_test_error_of_0_refutes_by_the_share_of_seeds():
    error = np.stack([np.full(14, 0.3), np.zeros(14)])
    both, status = ("cell", "seed"), np.full((2, 14), int(Status.CONVERGED))
    result = xr.Dataset({"test_accuracy": (both, 1 - error), "status": (both, status)})
    evidence = Evidence("quick", {}, (result,), (HARMFUL_END.experiment("quick"),))
    verdict = judge(claim("thm4.2.test_error"), evidence)
    assert [part.outcome.value for part in verdict.parts] == ["holds", "fails"]
    for part in verdict.parts:
        assert part.measured
        assert part.measured.estimate.low < part.measured.estimate.high
    assert verdict.word == "refuted"
    assert verdict.claim.derived


@pytest.mark.parametrize(("losses", "outcome"), [(0.5, "holds"), (0.05, "fails")])
def test_a_test_loss_is_confirmed_or_refuted(losses: float, outcome: str):
    spread = np.random.default_rng(2).normal(losses, 0.01, (2, 14))
    result = xr.Dataset({"test_loss": (("cell", "seed"), spread)})
    evidence = Evidence("quick", {}, (result,), (HARMFUL_END.experiment("quick"),))
    verdict = judge(claim("thm4.2.testloss"), evidence)
    assert verdict.outcome.value == outcome
    assert verdict.conditions.label == "inside"


# Claims on steps of training.


def trajectory(seed: int, values: np.ndarray, **more) -> Trajectory:
    """A run with planted values of the signal, strong noise and weak noise tokens, [steps, points, tokens]."""
    (cell,) = [cell for _, cell in cells(HARMFUL_STAGES.experiment("quick"))]
    steps, points, tokens = values.shape
    scores = np.zeros((steps, points, tokens, tokens))
    fields = {
        "y": np.ones(points),
        "steps": np.arange(steps),
        "losses": np.full(steps, 0.1),
        "scores": scores,
        "signs": np.ones(steps),
        "key_drift": 0.0,
        "fresh": FreshPoints(*(np.zeros(0) for _ in range(3))),
        "converged": True,
    }
    return Trajectory(run=Run(cell, seed, {"seed": seed}), values=values, **(fields | more))


def judged(name: str, runs: list[Trajectory], monkeypatch: pytest.MonkeyPatch) -> Verdict:
    for module in (stages, stage_3):
        monkeypatch.setattr(module, "trajectories", lambda evidence: runs)
    verdict = judge(claim(name), Evidence("quick", {}, (), (HARMFUL_STAGES.experiment("quick"),)))
    assert not verdict.error, verdict.error
    return verdict


def of_tokens(strong: float, signal: float, steps: int = 3) -> np.ndarray:
    values = np.full((steps, 4, 4), 1e-6)
    values[..., 0], values[..., 1] = signal, strong
    return values


def test_a_misprint_does_not_decide(monkeypatch: pytest.MonkeyPatch):
    runs = [trajectory(seed, of_tokens(1.0, 0.01)) for seed in range(14)]
    verdict = judged("E3.dominance", runs, monkeypatch)
    assert verdict.claim.misprint
    assert [(part.name, part.outcome.value) for part in verdict.parts] == [
        ("corrected", "holds"),
        ("printed", "fails"),  # a negative number of steps
    ]
    assert verdict.word == "confirmed"
    never = [trajectory(seed, of_tokens(0.01, 1.0)) for seed in range(14)]
    assert judged("E3.dominance", never, monkeypatch).outcome is Outcome.FAILS


def test_cells_of_a_seed_are_no_further_seeds(monkeypatch: pytest.MonkeyPatch):
    """Two starts of each of 5 seeds: 5 replicates, and the worst start of a seed counts."""
    jitter = 1e-4 * np.random.default_rng(3).random(5)
    small = [trajectory(seed, of_tokens(1.0, 0.002 + jitter[seed])) for seed in range(5)]
    verdict = judged("N.signal_small", small + small, monkeypatch)
    (part,) = verdict.parts
    assert part.measured
    assert part.measured.basis == "largest of 5 seeds"
    assert part.measured.estimate.low < part.measured.estimate.high
    assert verdict.outcome is Outcome.HOLDS
    large = [trajectory(seed, of_tokens(1.0, 0.2)) for seed in range(5)]
    assert judged("N.signal_small", small + large, monkeypatch).outcome is Outcome.FAILS


def test_a_limit_is_not_decided_at_one_size(monkeypatch: pytest.MonkeyPatch):
    """Scores of strong tokens with themselves: their order decides; that they are not small at this size does not."""

    def runs(score: float) -> list[Trajectory]:
        planted = np.zeros((3, 4, 4, 4))
        planted[..., 1, 1] = score
        return [trajectory(seed, of_tokens(1.0, 0.01), scores=planted) for seed in range(14)]

    verdict = judged("D4.scores_small_strong", runs(1.9), monkeypatch)
    outcomes = {part.name: part.outcome.value for part in verdict.parts}
    assert outcomes == {"order": "holds", "o(1)": "fails"}
    assert verdict.word == "confirmed"
    assert judged("D4.scores_small_strong", runs(1000.0), monkeypatch).word == "refuted"


@pytest.mark.parametrize(("seeds", "word"), [(14, "confirmed"), (5, "inconclusive")])
def test_few_seeds_that_all_agree_do_not_confirm(
    seeds: int, word: str, monkeypatch: pytest.MonkeyPatch
):
    rising = of_tokens(1.0, 0.01, steps=8) * np.linspace(0.01, 0.05, 8)[:, None, None]
    scores = np.zeros((8, 4, 4, 4))
    scores[..., 1] = np.arange(8)[:, None, None]
    runs = [trajectory(seed, rising, scores=scores) for seed in range(seeds)]
    verdict = judged("L.doubling", runs, monkeypatch)
    assert verdict.word == word
    falling = [replace(run, scores=-scores) for run in runs]
    assert judged("L.doubling", falling, monkeypatch).word == "refuted"


# Cells, trajectories, theory.


def test_cells_are_inside_their_theorem():
    cell = JiangCell(race=1.0, samples=4, tokens=4, loss=0.1)
    made = experiment_of([cell], seeds=1, steps=10)
    assert all(conditions(n, "4.2").hold for n in _numbers(made))
    hasty = experiment_of([replace(cell, speed=0.1)], seeds=1, steps=10)
    (row,) = [conditions(n, "4.2").failing for n in _numbers(hasty)]
    assert [each.name for each in row] == ["(6)"]


def test_a_trajectory_is_the_run(tmp_path: Path):
    made = experiment_of([JiangCell(race=1.0, samples=4, tokens=4, loss=0.3)], seeds=2, steps=200)
    result = made.run(tmp_path)
    for seed, run in enumerate(trajectories(Evidence("smoke", {}, (result,), (made,)))):
        end = result.isel(cell=0, seed=seed)
        assert run.converged
        assert run.steps[-1] == end.steps
        np.testing.assert_allclose(run.losses[-1], end.train_loss, rtol=1e-10)
        np.testing.assert_allclose(
            run.attention[-1][..., 0].mean(), end.attention_on_signal, rtol=1e-10
        )
        largest = np.abs(run.values[-1][:, 1:]).max()
        np.testing.assert_allclose(largest, end.value_noise_max, rtol=1e-10)
        first = run.dominance(1)
        assert (-1 if first is None else run.steps[first]) == end.stage_1_end_harmful
        np.testing.assert_allclose((run.fresh.margins > 0).mean(), end.test_accuracy)


NUMBERS = JiangNumbers(
    samples=20,
    tokens=4,
    dim=100,
    hidden=10_000,
    snr=200.0,
    noise_std=0.1,
    strong_noise_std=1.0,
    score_std=0.1,
    value_std=0.1,
    output_norm=2.0,
    rate=0.01,
    loss=0.05,
)
"""sigma_p^2 d = 1, C_p = 10, |mu|^2 = 4e4, d_h^1/4 = 10"""


def test_times_of_stage_1_are_those_of_the_lemmas():
    benign = 10 * 4 * 13 * 20 / (0.01 * 10 * (20 * 4e4 - 60 * 16 * 100) * 4)
    assert theory.benign_stage_1_steps_printed(NUMBERS) == pytest.approx(benign, rel=1e-12)
    assert theory.benign_stage_1_steps_printed(replace(NUMBERS, snr=1.0)) == math.inf
    harmful = 4 * 4 * 13 * 20 / (0.01 * 10 * (100 - 24 * 4) * 4)
    assert theory.harmful_stage_1_steps_corrected(NUMBERS) == pytest.approx(harmful, rel=1e-12)
    printed = 4 * 4 * 13 * 20 / (0.01 * 10 * (100 - 200 * 4) * 4)  # negative: a misprint
    assert theory.harmful_stage_1_steps_printed(NUMBERS) == pytest.approx(printed, rel=1e-12)
    assert theory.harmful_stage_1_steps_corrected(replace(NUMBERS, tokens=5)) == math.inf


def test_derived_times_and_losses():
    benign = 2 / (0.5**2 * 0.01 * 0.05 * 4e4 * 4)
    assert theory.steps_derived(NUMBERS, "4.1", 0.5) == pytest.approx(benign, rel=1e-12)
    harmful = 20 / (0.5**2 * 0.01 * 0.05 * 100 * 4)
    assert theory.steps_derived(NUMBERS, "4.2", 0.5) == pytest.approx(harmful, rel=1e-12)
    # Attention 1 everywhere: the test loss is log(1 + eps) of V = log(1 / eps).
    assert theory.test_loss_derived(1.0, math.log(20)) == pytest.approx(math.log(1.05), rel=1e-12)
    assert theory.test_loss_limit(0.01, 16, 1.0) == pytest.approx(0.452, abs=1e-3)  # jiang.md 3
    assert theory.margin_bound_printed(math.exp(-16), 2) == pytest.approx(1.0, rel=1e-12)
    assert theory.even_race_derived(20.0) == 800.0


def test_bounds_on_attention_and_starts():
    log = math.log(6 * 80**2 / 0.01)
    assert theory.attention_left_printed(NUMBERS, "signal") == pytest.approx(20 * log**3 / 100)
    assert theory.attention_left_printed(NUMBERS, "noise") == pytest.approx(20 * 4e4 * log**3 / 100)
    assert theory.start_spread(20, 4, 10.0) == pytest.approx(10 * math.sqrt(2 * math.log(32_000)))
