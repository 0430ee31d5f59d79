"""Recipes over radii, tokens, output norms and networks: their theory curves, and what they say of made-up runs."""

import json
import math
import re

import numpy as np
import pytest
import torch
import xarray as xr
from scipy import stats
from scipy.optimize import minimize

from benign.experiment import Experiment
from benign.papers.compare import figures as architectures
from benign.papers.registry import recipe
from benign.papers.zhang import output, radius, tokens
from benign.streams import RunId, Streams
from benign.sweep.dataset import assemble
from benign.training.descent import Status
from tests.says import holds


def made_up(name: str, seeds: int = 2, scale: str = "smoke") -> xr.Dataset:
    """A result of a recipe whose runs all converged; its numbers are to be filled in."""
    fields = recipe(name).experiment(scale).as_dict()
    result = assemble(Experiment.from_dict({**fields, "seeds": seeds}), [])
    result["status"][:] = Status.CONVERGED
    result["steps"][:] = 10.0
    if "audit" in result:
        result["audit"][:] = 0.0
    return result


def filled(like: xr.DataArray, values: xr.DataArray) -> xr.DataArray:
    return values.broadcast_like(like).transpose(*like.dims).assign_attrs(like.attrs)


# Radii


@pytest.mark.parametrize("count", [3, 28])
@pytest.mark.parametrize("m", [2, 4, 8])
def test_every_threshold_has_a_radius_on_either_side(m, count):
    radii = np.array(radius.radii_of(m, 128, 4.0, count))
    assert (radii.min(), radii.max()) == radius.ENDS
    for each in radius.thresholds(m, 128, 4.0).values():
        share = radii / each.radius
        assert ((share > 0.95) & (share < 1)).any()
        assert ((share > 1) & (share < 1.05)).any()


def test_thresholds_are_those_of_the_theorems_and_of_section_4():
    found = {name: each.radius for name, each in radius.thresholds(4, 128, 16.0).items()}
    assert found["focus"] == pytest.approx(1 / math.log(128))
    assert found["uniform"] == pytest.approx(0.1768, abs=1e-4)
    assert found["permutation"] == pytest.approx(0.501, abs=1e-3)
    assert found["universal"] == pytest.approx(1 / math.sqrt(2))
    assert radius.thresholds(4, 128, 0.5)["permutation"].radius == found["universal"]


def stepping(at: xr.DataArray, place: float, before: float, after: float) -> xr.DataArray:
    return xr.where(at < place, before, after)


def test_regimes_are_reported_if_attention_and_loss_cross():
    result = made_up("zhang/radius")
    at = result.radius
    for name, values in {
        "attention_on_signal": stepping(at, 0.1, 1.0, 0.25),
        "attention_on_signal_attacked": stepping(at, 0.1, 1.0, 0.25),
        "train_loss": stepping(at, 0.4, 0.01, 0.8),
        "robust_accuracy": stepping(at, 0.6, 1.0, 0.0),
    }.items():
        result[name] = filled(result[name], values)
    result["status"] = filled(
        result.status, stepping(at, 0.4, Status.CONVERGED, Status.STEP_CAP)
    ).astype(int)
    result["audit"] = filled(
        result.audit, stepping(at, 0.6, 1.0, 2.0)
    )  # flag 1 alone does not mask
    summary = recipe("zhang/radius").summarise(result)
    values = at.values

    def between(place: float) -> tuple[float, float]:
        return values[values < place].max(), values[values >= place].min()

    found = radius.crossing(result.attention_on_signal.isel(network=0), 0.625, False).column
    assert between(0.1)[0] < found < between(0.1)[1]
    stall = radius.crossing(result.train_loss.isel(network=0), math.log(2), True).column
    assert between(0.4)[0] < stall < between(0.4)[1]
    edges = [re.escape(f"{edge:.3g}") for edge in (found, stall)]
    assert re.search(rf"clean\D+{edges[0]}\D+collapsed\D+{edges[1]}", summary)
    masked = int((at >= 0.6).sum()) * 2
    assert f"{masked} of {2 * at.size} audited runs" in summary


def test_collapsed_radii_are_not_claimed_where_attention_falls_with_training():
    result = made_up("zhang/radius")
    at = result.radius
    for name, before, after in (("attention_on_signal", 0.85, 0.25), ("train_loss", 0.01, 0.8)):
        result[name] = filled(result[name], stepping(at, 0.18, before, after))
    assert re.search(r"\bnone?\b[^\d\n]*collapsed", recipe("zhang/radius").summarise(result))


def test_steps_drawn_over_the_radius_are_the_convergence_law():
    result = made_up("zhang/radius")
    setting = radius.Setting.of(result)
    drawn = setting.steps(result.radius, 4).isel(seed=0)
    rate, signal, r = radius.SMALL / radius.SIGNAL**2, radius.SIGNAL, drawn.radius.values
    law = 2 * 16 / (rate * 0.05 * signal**2 * (1 - math.sqrt(2) * 4 * r) ** 2)
    inside = r < 1 / (4 * math.sqrt(2))
    np.testing.assert_allclose(drawn.values[inside], law[inside])
    assert np.isnan(drawn.values[~inside]).all()


def test_no_invariant_classifier_beats_the_curve_that_is_drawn():
    result = made_up("zhang/radius")
    best = radius.Setting.of(result).best_accuracy(result.radius)
    assert dict(best.sizes) == {"seed": 2, "radius": result.radius.size}
    assert (best.sel(radius=best.radius[best.radius < 0.5]) == 1).all()
    assert (best.sel(radius=best.radius[best.radius >= math.sqrt(0.5)]) == 0.5).all()


# Tokens


def test_the_predicted_ratio_has_an_accuracy_of_three_quarters():
    others, samples, dim = np.array([1.0, 15.0]), 20, 1024
    snr = tokens.predicted(samples, dim)(others)
    z = snr**2 * np.sqrt(dim * samples) / (2 * others)
    np.testing.assert_allclose(stats.norm.cdf(z), tokens.LEVEL)


def test_the_exponent_in_the_number_of_tokens_is_found():
    result = made_up("zhang/tokens", scale="quick")  # a law needs four rows
    fields = json.loads(result.attrs["experiment"])["data"]
    middle = tokens.predicted(fields["samples"], fields["dim"])(result.tokens - 1.0)
    line = 0.75 + 0.2 * np.log(result.snr / middle)
    for place, factor in ((0, 0.5), (1, 1.0)):  # learned attention needs half the ratio
        result.test_accuracy[{"network": place}] = line - 0.2 * math.log(factor)
    found = tokens.boundaries(result)
    assert list(found) == ["learned attention, clean", "uniform attention, clean"]
    for edge, factor in zip(found.values(), (0.5, 1.0), strict=True):
        assert edge.fit is not None
        assert edge.fit.slope == pytest.approx(0.5)
        expected = factor * np.unique(np.asarray(middle))
        np.testing.assert_allclose(edge.critical.values, expected, rtol=1e-6)
    summary = recipe("zhang/tokens").summarise(result)
    assert "(0.50)" in summary.splitlines()[1]
    assert "56 of 56 runs" in summary


# Output norms


def test_steps_over_the_output_norm_follow_theorem_2():
    result = made_up("zhang/output")
    law = output.theory_steps(result, 1.0, 4).isel(seed=0)
    ratio = law.values * law.output_norm.values**2
    np.testing.assert_allclose(ratio, ratio[0])
    signal = math.sqrt(0.4 * 1024)
    expected = 2 * 16 / (0.1 * 0.01 * (signal * (1 - math.sqrt(2) * 4 * 0.05)) ** 2)
    assert ratio[0] == pytest.approx(expected)


def test_the_exponent_of_steps_is_of_runs_that_converged():
    result = made_up("zhang/output")
    result["steps"] = filled(result.steps, 100 * result.output_norm**-2.0)
    summary = recipe("zhang/output").summarise(result)
    assert holds(summary, "steps", "|w_O|", "-2.00 [-2.00, -2.00]", "theory: -2")
    result["status"][{"output_norm": 0}] = Status.STEP_CAP
    summary = recipe("zhang/output").summarise(result)
    assert re.search(r"4 of 6 runs\D+\|w_O\|\D+0\.03\b", summary)
    assert holds(summary, "exponent", "2 norms")


# Architectures


def hard_margin(means: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The shortest u with y <xbar, u> >= 1, by a general solver."""
    rows = y[:, None] * means
    found = minimize(
        lambda u: (u @ u / 2, u),
        rows.mean(0) / (rows @ rows.mean(0)).min(),
        jac=True,
        method="SLSQP",
        constraints={"type": "ineq", "fun": lambda u: rows @ u - 1, "jac": lambda u: rows},
        options={"maxiter": 500, "ftol": 1e-14},
    )
    assert found.success
    return found.x


@pytest.mark.parametrize("share", [0.0, architectures.RADIUS])
def test_the_reference_is_the_max_margin_classifier_of_the_training_points(share):
    result = made_up("compare/architectures")
    accuracy = architectures.max_margin_accuracy(result, share)
    experiment = Experiment.from_dict(json.loads(result.attrs["experiment"]))
    cell = experiment.replay(samples=2, snr=2.0, model=1, seed=1)
    train, y = cell.train.x[0].double(), cell.train.y[0].double()
    u = torch.from_numpy(hard_margin(train.mean(1).numpy(), y.numpy()))
    streams = Streams([RunId(7, 0, "fresh")])
    fresh = cell.run.cell.data.sample(streams, "test/0", 20_000, torch.float64)
    margins = fresh.y[0] * (fresh.x[0].mean(1) @ u) - share * 2.0 * u.norm()
    right = float((margins > 0).double().mean())
    found = float(accuracy.sel(samples=2, snr=2.0, seed=1))
    assert found == pytest.approx(right, abs=4 * math.sqrt(0.25 / 20_000))
    assert found < 1


def test_every_network_is_found_in_its_place():
    result = made_up("compare/architectures")
    model = result.model
    names = result.network.values
    assert all("uniform" in names[place] for place in (1, 5))
    assert all(str(names[place]).startswith("patch_cnn") for place in (3, 7))
    critical = 0.1 + 0.1 * model
    accuracy = 0.75 + 0.1 * np.log(result.snr / critical)
    for name in architectures.ACCURACIES.values():
        result[name] = filled(result[name], accuracy)
    found = architectures.boundaries(result)
    for number, training in enumerate(architectures.TRAININGS):
        for place, name in enumerate(architectures.NAMES):
            edge = found[training]["robust accuracy"][name]
            expected = 0.1 + 0.1 * (number * len(architectures.NAMES) + place)
            np.testing.assert_allclose(edge.critical.values, expected)
    summary = recipe("compare/architectures").summarise(result)
    assert "loss 1.00" in summary
