"""Printed constants and rates of Wang et al., and the linear rule, against numbers worked out by hand."""

import math

import pytest
import torch
from scipy import stats

from benign.papers.wang import bounds
from benign.papers.wang.bounds import alignment, averaged_alignment, linear_rule_errors
from tests.reference import close, doubles


def test_constants_are_those_of_the_proofs():
    """papers/wang.md 2.4: C1 = 10 gives C_r = 7056 / gamma^2 and C2 = 594 / gamma."""
    assert bounds.loss_ratio_bound(1.0) == pytest.approx(7056, abs=1)
    assert bounds.loss_ratio_bound(0.5) == pytest.approx(4 * 7056, abs=4)
    assert bounds.norm_growth_bound(1.0) == pytest.approx(594, abs=1)
    assert bounds.loss_ratio_bound_non_smooth(1.0, 0.25) == pytest.approx(4 * 192 * 10 * 10.025)
    assert bounds.margin_bound(4, 100, 5, 1.0) == pytest.approx(0.2 * 25 / (32 * 594), rel=1e-3)


def test_rates_by_hand():
    assert bounds.smooth_rate(4, 0.1, 2.0, 0.5, 64, 4) == pytest.approx((35 + 8) / 0.2)
    assert bounds.smoothed_leaky_rate(40, 0.1, 2.0, 0.5, 16, 4.0) == pytest.approx(36 / 2)
    assert bounds.non_smooth_rate(40, 0.1, 2.0, 1.0, 0.25) == pytest.approx(30)


@pytest.mark.parametrize("loss", [0.3, 0.01])
def test_the_theorem_takes_as_many_steps_as_its_rate_needs(loss: float):
    smooth = bounds.theorem_steps_smooth(loss, 0.01, 5.0, 0.5, 100, 1000)
    assert bounds.smooth_rate(smooth, 0.01, 5.0, 0.5, 100, 1000) == pytest.approx(loss, rel=1e-10)
    relu = bounds.theorem_steps_non_smooth(loss, 0.01, 5.0, 1.0, 0.2)
    assert bounds.non_smooth_rate(relu, 0.01, 5.0, 1.0, 0.2) == pytest.approx(loss, rel=1e-10)


def test_errors_of_a_linear_rule():
    s, alpha, beta = 1.3, 0.4, 0.1
    near, far, clean = (float(stats.norm.cdf(-each)) for each in (s - alpha, s + alpha, s))
    found = linear_rule_errors(s, alpha, beta)
    close(found.clean, doubles(beta + (1 - 2 * beta) * clean)[0])
    close(found.robust, doubles((1 - beta) * near + beta * (1 - far))[0])
    close(linear_rule_errors(s, 0.0, beta).robust, found.clean)


@pytest.mark.parametrize(
    ("signal", "dim", "clean", "robust"),
    [(1, 1000, 0.577, 0.538), (3, 4000, 0.785, 0.709), (5, 18000, 0.839, 0.744)],
)
def test_the_averaged_predictor_has_the_accuracies_of_the_table(
    signal: float, dim: float, clean: float, robust: float
):
    """papers/wang.md 3.3: n = 100, beta = 0.1, rho = 0.1, noisy labels."""
    s = averaged_alignment(signal, dim, 100, 0.1)
    errors = linear_rule_errors(s, 0.1 * signal, 0.1)
    assert 1 - float(errors.clean) == pytest.approx(clean, abs=6e-4)
    assert 1 - float(errors.robust) == pytest.approx(robust, abs=6e-4)


def test_the_alignment_of_two_points():
    x = torch.tensor([[[2.0, 1.0], [-1.0, 1.0]]], dtype=torch.float64)
    y, signal = doubles(1.0, -1.0)[None], doubles(5.0, 0.0)[None]
    close(alignment(x, y, signal), doubles(15 / math.sqrt(9)))
