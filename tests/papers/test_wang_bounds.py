"""Wang's lower bound, against numeric integration and the rule that attains it."""

import math

import numpy as np
import pytest
import torch
from scipy import integrate, stats
from torch import Tensor

import benign as bo
from benign.papers.wang.bounds import (
    error_floor,
    gaussian_overlap,
    margin_error_bound,
    margin_per_norm,
    robust_error_floor,
)
from tests.reference import close, doubles

CASES = [(2.0, 0.5, 0.1, 1.0), (1.0, 0.9, 0.3, 0.7), (5.0, 0.0, 0.0, 1.3), (3.0, 2.0, 0.05, 2.0)]


@pytest.mark.parametrize(("distance", "std"), [(0.0, 1.0), (1.3, 1.0), (3.0, 0.7)])
def test_the_overlap_is_the_integral_of_the_smaller_density(distance: float, std: float):
    """In the plane, with v along the diagonal; the kink halfway costs the trapezoid rule some digits."""
    shift, end = distance / math.sqrt(2), distance + 8 * std
    grid = torch.linspace(-end, end, 1501, dtype=torch.float64)
    first, second = torch.meshgrid(grid, grid, indexing="ij")

    def density(s: Tensor, t: Tensor) -> Tensor:
        return torch.exp(-(s**2 + t**2) / (2 * std**2)) / (2 * math.pi * std**2)

    smaller = torch.minimum(density(first, second), density(first + shift, second + shift))
    integral = torch.trapezoid(torch.trapezoid(smaller, grid), grid)
    close(gaussian_overlap(distance, std), integral, 2e-4)


@pytest.mark.parametrize(("distance", "std"), [(1.3, 1.0), (3.0, 0.7), (9.0, 1.0)])
def test_and_to_eight_digits_on_a_line(distance: float, std: float):
    def density(t: float) -> float:
        return math.exp(-(t**2) / (2 * std**2)) / (math.sqrt(2 * math.pi) * std)

    def smaller(t: float) -> float:
        return min(density(t), density(t + distance))

    middle, width = -distance / 2, 12 * std
    halves = ((middle - width, middle), (middle, middle + width))
    integral = sum(integrate.quad(smaller, *half, epsabs=0, epsrel=1e-11)[0] for half in halves)
    close(gaussian_overlap(distance, std), doubles(integral)[0], 1e-8)


@pytest.mark.parametrize(("signal", "radius", "flip", "std"), CASES)
def test_closed_forms(signal: float, radius: float, flip: float, std: float):
    tail = float(stats.norm.cdf(-(signal - radius) / std))
    sharp, printed = flip + (1 - 2 * flip) * tail, flip + (1 - 2 * flip) / 2 * tail
    close(robust_error_floor(signal, radius, flip, std), doubles(sharp)[0])
    close(robust_error_floor(signal, radius, flip, std, "printed"), doubles(printed)[0])
    overlap = gaussian_overlap(2 * (1 - radius / signal) * signal, std)
    close(error_floor(overlap, flip), doubles(sharp)[0])


@pytest.mark.parametrize(("signal", "radius", "flip", "std"), CASES)
def test_the_best_linear_rule_is_just_above_the_sharp_floor(
    signal: float, radius: float, flip: float, std: float
):
    """papers/wang.md 2.3: sign<mu, x> is within beta (Phi(-(r - alpha)) - Phi(-(r + alpha))) of it."""
    near, far = (stats.norm.cdf(-(signal + sign * radius) / std) for sign in (-1, 1))
    risk = (1 - flip) * near + flip * (1 - far)
    floor = float(robust_error_floor(signal, radius, flip, std))
    assert floor <= risk + 1e-12
    assert abs(risk - floor - flip * (near - far)) < 1e-12


def test_from_the_signal_on_it_is_one_half():
    signal = doubles(1.0, 1.0, 1.0)
    radius = doubles(1.0, 1.5, 0.999999)
    for version in ("printed", "sharp"):
        close(robust_error_floor(signal, radius, 0.2, 1.0, version)[:2], doubles(0.5, 0.5))
    close(robust_error_floor(signal, radius, 0.2)[2], doubles(0.5)[0], 1e-5)


def test_the_margin_bounds_the_error_of_trained_networks(tmp_path):
    """Lemma 4.2 with its explicit constant, clean and attacked, with 3 standard errors; and not vacuous."""
    attack = bo.PGD(ball=bo.Ball(radius=0.3, per="sample"), steps=5)
    result = bo.Experiment(
        data=bo.Mixture(samples=40, dim=100, signal=[3.0, 6.0], flip=0.05, balanced=True),
        network=bo.TwoLayer(width=20, init_std=1e-3),
        attack=attack,
        training=bo.GradientDescent(
            rate=0.05, stop_loss=0.05, max_steps=300, first_attacked_step=1
        ),
        evaluation=bo.Evaluation(samples=2000, attack=attack),
        seeds=3,
    ).run(tmp_path / "run")
    margin = margin_per_norm(result).mean("seed")
    assert margin.sel(signal=6.0) > margin.sel(signal=3.0) > 0.3
    for radius, error in ((0.0, 1 - result.test_accuracy), (0.3, 1 - result.robust_accuracy)):
        bound = margin_error_bound(result, radius)
        assert (error <= bound + 3 * np.sqrt(bound / 2000)).all()
        assert float(bound.sel(signal=6.0).max()) < 0.2
    assert margin_error_bound(result, 100.0).isnull().all()
