"""The claims about Jiang et al.: identities hold, planted truths hold, and planted falsehoods fail."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from benign.claims import Evidence, Outcome, judge
from benign.experiment import Experiment
from benign.papers.jiang import theory
from benign.papers.jiang.claims.identities import CLAIMS as IDENTITIES
from benign.papers.jiang.claims.studies import BENIGN_RATES, HARMFUL_END, JiangCell
from benign.papers.jiang.claims.studies import experiment as experiment_of
from benign.papers.jiang.claims.trajectory import trajectories
from benign.papers.jiang.theory import JiangNumbers, conditions
from benign.papers.registry import matching
from benign.spec.axes import cells
from benign.training.descent import Status


def claim(name: str):
    (only,) = matching([f"jiang/{name}"])
    return only


@pytest.mark.parametrize("each", list(IDENTITIES), ids=lambda each: each.id)
def test_identities_hold_to_rounding(each):
    verdict = judge(each, Evidence("smoke"))
    assert verdict.label == "confirmed", verdict.reason


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


@pytest.mark.parametrize(("losses", "outcome"), [(0.5, "holds"), (0.05, "fails")])
def test_a_test_loss_is_confirmed_or_refuted(losses: float, outcome: str):
    spread = np.random.default_rng(2).normal(losses, 0.01, (2, 14))
    result = xr.Dataset({"test_loss": (("cell", "seed"), spread)})
    evidence = Evidence("quick", {}, (result,), (HARMFUL_END.experiment("quick"),))
    verdict = judge(claim("thm4.2.testloss"), evidence)
    assert verdict.outcome.value == outcome
    assert verdict.conditions.label == "inside"


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
    assert theory.harmful_stage_1_steps_printed(NUMBERS) == math.inf


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
