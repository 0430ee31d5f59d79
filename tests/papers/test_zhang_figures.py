"""What Zhang's figures draw beside their runs: theory curves, radii, families of curves, budgets."""

import math
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
import torch
import xarray as xr

from benign.attacks.balls import Ball
from benign.attacks.multi_norm import MultiNorm
from benign.attacks.pgd import PGD
from benign.data.signal_noise import SignalNoise
from benign.networks.attention import Attention
from benign.papers.attention_setting import LEVEL, RADIUS
from benign.papers.registry import recipe
from benign.papers.zhang import appendix, figures, linear_mode, radii
from benign.papers.zhang.figures import linear_theory
from benign.plot.variables import extended_curve
from benign.spec.axes import cells
from benign.spec.base import canonical
from benign.stats.boundary import boundary
from benign.streams import Streams
from benign.sweep.dataset import assemble
from tests.reference import run_ids


def empty(name: str, scale: str = "smoke") -> xr.Dataset:
    """The result of a recipe before any run has ended."""
    return assemble(recipe(name).experiment(scale), [])


def test_the_linear_theory_is_the_accuracy_of_the_mean_point():
    """At its SNR a network with uniform attention and u = mean_n y_n xbar_n is right three times of four."""
    samples, tokens, dim = 12, 4, 20_000
    snr = float(linear_mode.critical_snr(np.array([samples]), tokens, dim, LEVEL)[0])
    data = SignalNoise(
        samples=samples,
        tokens=tokens,
        dim=dim,
        snr=snr,
        noise_std=1 / math.sqrt(dim),
        balanced=True,
        projected=True,
    )
    sample = data.sample(Streams(run_ids(5)), "train", samples, torch.float64)
    u = (sample.y[..., None] * sample.x.mean(2)).mean(1)
    error = linear_mode.population_error(u, sample.latent["signal"], data.noise_std, tokens)
    assert float(error.mean()) == pytest.approx(1 - LEVEL, abs=0.02)


def test_the_curve_of_figure_1_is_where_a_map_of_the_linear_theory_crosses():
    spec = recipe("zhang/fig1").experiment("smoke").as_dict()
    tokens, dim = spec["data"]["tokens"], spec["data"]["dim"]
    snr, samples = np.geomspace(0.3, 5, 80), np.array([2, 6, 10, 18])
    z = snr**2 * np.sqrt(dim * samples[:, None]) / (2 * (tokens - 1))
    accuracy = np.vectorize(NormalDist().cdf)(z)
    values = xr.DataArray(accuracy, {"samples": samples, "snr": snr}, ("samples", "snr"))
    result = xr.Dataset({"test_accuracy": values}, attrs={"experiment": canonical(spec)})
    edge = boundary(values, LEVEL)
    assert edge.critical.values == pytest.approx(linear_theory(result)(samples), rel=1e-3)
    assert edge.fit is not None
    assert edge.fit.exponent == pytest.approx(4.0, abs=0.03)


def test_a_run_that_has_ended_stays_at_its_last_value():
    result = xr.Dataset(
        {
            "loss_curve": (("seed", "step"), [[0.7, 0.3, np.nan, np.nan], [0.7, 0.6, 0.5, 0.4]]),
            "loss": ("seed", [0.1, 0.45]),
            "steps": ("seed", [1.0, 3.0]),
        },
        {"step": [0, 1, 2, 4]},
    )
    expected = [[0.7, 0.3, 0.1, 0.1], [0.7, 0.6, 0.5, 0.45]]
    assert extended_curve(result, "loss").transpose("seed", "step").values.tolist() == expected
    short = extended_curve(result.isel(seed=[0]), "loss")
    assert short.step.values.tolist() == [0, 1]
    unfinished = result.assign(steps=result.steps * np.nan, loss=result.loss * np.nan)
    assert extended_curve(unfinished, "loss").sizes["step"] == 4


@pytest.mark.parametrize("scale", ["smoke", "quick", "paper"])
def test_figure_2_has_one_family_in_snr_and_one_in_n(scale: str):
    (of_snr, along_snr, ratios), (of_n, along_n, sizes) = figures.families(
        empty("zhang/fig2", scale)
    )
    assert (along_snr, along_n) == ("snr", "samples")
    assert of_snr == f"N = {int(sizes.samples.max())}"
    assert of_n == "SNR = 12"
    assert (ratios.samples == sizes.samples.max()).all()
    assert (sizes.snr == figures.FIG2_SNR).all()
    for family, name in ((ratios, "snr"), (sizes, "samples")):
        values = family[name].values
        assert (np.diff(values) > 0).all()
    if scale == "paper":
        assert ratios.snr.values.tolist() == [0.16, 1.0, 4.0, 8.0, 12.0, 16.0]
        assert sizes.samples.values.tolist() == [2, 6, 10, 14, 18, 22]


def test_the_marks_of_figure_3_are_the_radii_of_its_data():
    std = 1.6 / math.sqrt(5000)
    data = SignalNoise(samples=4, tokens=2, dim=5000, snr=16.0, noise_std=std, projected=True)
    sample = data.sample(Streams(run_ids(1)), "test/0", 20, torch.float64)
    mu, signals = data.signal_norm(), sample.latent["signal"]
    of_width, stall, permuted = (place for place, _ in figures.marks(512))
    assert of_width == pytest.approx(0.1603, abs=1e-4)
    assert stall == pytest.approx(float(radii.linear_radius(signals, 2)[0]) / mu)
    measured = float(radii.permutation_radius(sample.x, signals).mean()) / mu
    assert permuted == pytest.approx(measured, abs=1e-4) == pytest.approx(0.501, abs=1e-4)


def test_figure_3_reports_the_growth_of_values():
    result = empty("zhang/fig3")
    result["value_norm"][:] = 0.9
    result["value_norm_curve"][:] = 0.4
    assert "|u| 0.5," in recipe("zhang/fig3").summarise(result)


@pytest.mark.parametrize(("answer", "power"), [("printed", 0.0), ("root", 0.5), ("full", 1.0)])
def test_the_output_vector_of_several_heads(answer: str, power: float):
    chosen = recipe("zhang/heads")
    made = chosen.experiment("paper", chosen.reading({"scale": answer}))
    found: dict[int, float] = {}
    for _, cell in cells(made):
        network = cell.network
        assert isinstance(network, Attention)
        w = network.initial_output(Streams(run_ids(50)), torch.float64)
        found[network.heads] = float(w.square().sum(1).mean().sqrt())
    assert list(found) == [1, 2, 4, 8]
    for count, norm in found.items():
        assert norm == pytest.approx(math.sqrt(1 / 3) / count**power, rel=0.03)


def test_critical_ratios_of_heads_are_those_of_the_maps():
    snr, counts = np.geomspace(0.1, 10, 60), np.array([1, 2, 4])
    races = {"test_accuracy": 3.0 * counts, "robust_accuracy": 20.0 / counts}
    at = np.repeat((appendix.HEADS_SAMPLES * snr**2)[:, None], 2, 1)
    dims = ("heads", "snr", "seed")
    maps = {name: (dims, 1 - 0.5 / (1 + at / race[:, None, None])) for name, race in races.items()}
    found = appendix.critical_races(xr.Dataset(maps, {"heads": counts, "snr": snr}))
    for name, race in zip(("clean", "robust"), races.values(), strict=True):
        expected = np.repeat(race[:, None], 2, 1)
        assert found[name].values == pytest.approx(expected, rel=0.01)


def shares(budgets: str) -> dict[Any, float]:
    """Radii as shares of the radius at which no classifier is robust."""
    data = SignalNoise(samples=2, tokens=2, dim=8, snr=1.0, noise_std=1.0)
    signals = data.sample(Streams(run_ids(1)), "train", 2, torch.float64).latent["signal"]
    found = {}
    for attack in appendix.attacks(budgets)[:3]:
        assert isinstance(attack, PGD)
        p: Any = attack.ball.p
        found[p] = attack.ball.size(data) / float(radii.universal_radius(signals, p)[0])
    return found


def test_budgets_are_equal_shares_of_what_is_impossible():
    assert list(shares("equal_share").values()) == pytest.approx([RADIUS / math.sqrt(0.5)] * 3)


def test_the_printed_budget_in_l1_is_the_impossible_one():
    found = shares("printed")
    assert found[1] == pytest.approx(1.0)
    assert found[2] == pytest.approx(RADIUS / math.sqrt(0.5))
    assert found["inf"] == pytest.approx(RADIUS / 30 / 0.5)


@pytest.mark.parametrize("budgets", ["equal_share", "printed"])
def test_the_last_attack_is_in_the_balls_of_the_others(budgets: str):
    *alone, together = appendix.attacks(budgets)
    assert isinstance(together, MultiNorm)
    balls: list[Ball] = [each.ball for each in alone if isinstance(each, PGD)]
    assert [(b.p, b.radius) for b in balls] == [(b.p, b.radius) for b in together.balls.each()]


def test_lines_of_norms_have_the_names_of_their_balls():
    names = [name for name, _ in appendix.by_norm(empty("zhang/norms", "quick"))]
    assert names == ["l1", "l2", "linf", "all three"]
    assert [name for name, _ in appendix.by_norm(empty("zhang/norms"))] == ["l2", "all three"]
