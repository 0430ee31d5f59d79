"""The formulas of Zhang et al. at known values: bounds, and times as printed and as corrected."""

import math
from dataclasses import replace

import pytest
import torch

from benign.papers.jiang.theory import JiangNumbers
from benign.papers.zhang import bounds, theory
from tests.reference import close, doubles

NUMBERS = JiangNumbers(
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
    assert math.isclose(theory.stage_1_steps_printed(NUMBERS), numerator / (printed * 2))
    assert math.isclose(theory.stage_1_steps_corrected(NUMBERS), numerator / (corrected * 4))
    assert theory.stage_1_steps_corrected(replace(NUMBERS, radius=0.1)) == math.inf
    clean = replace(NUMBERS, radius=0.0, output_norm=1.0)
    assert math.isclose(theory.stage_1_steps_printed(clean), theory.stage_1_steps_corrected(clean))


def test_the_other_times():
    clean = replace(NUMBERS, radius=0.0)
    assert math.isclose(theory.loss_steps_printed(clean), theory.theorem_steps(clean, 1))
    larger = replace(NUMBERS, radius=0.5)
    assert theory.loss_steps_printed(larger) < theory.loss_steps_printed(NUMBERS)  # as printed
    assert math.isclose(theory.minimal_steps_printed(NUMBERS), 2000)
    assert math.isclose(theory.minimal_steps_corrected(NUMBERS), 200_000)
    assert math.isclose(theory.wang_steps(NUMBERS), 1e12 / (1e8 * 0.01))
    log = math.log(6 * 40**2 / 0.01)
    assert math.isclose(theory.stage_2_steps_printed(clean), 1 / (1e-3 * 100 * 4 * log))


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
