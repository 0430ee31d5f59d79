"""The linear mode in closed form, against attacks, training and Monte Carlo (papers/zhang.md S5 to S8)."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from benign.attacks.pgd import PGD
from benign.networks.attention import Attention
from benign.papers.zhang import linear_mode
from benign.streams import RunId, Streams
from benign.training.descent import descend
from tests.reference import (
    attacked,
    close,
    doubles,
    normals,
    run_ids,
    small_data,
    small_network,
    small_pgd,
    small_setup,
    start,
)
from tests.says import says

each_ball = pytest.mark.parametrize("per", ["token", "sample"])
each_norm = pytest.mark.parametrize("p", [1, 2, math.inf])
EXACT: dict[str, Any] = {"steps": 1, "step": 1.0}
"""in the linear mode one step as long as the radius is the worst l2 attack"""


def linear(value_std: float = 0.3) -> Attention:
    """The attention network without queries and keys."""
    return small_network(score_std=0.0, value_std=value_std, hidden=1, output_norm=1.0)


def with_vector(u: Tensor) -> tuple[Attention, dict[str, Tensor]]:
    """That network with the vector u."""
    network = linear()
    params = network.initial_params(
        small_data(dim=u.shape[1]), Streams(run_ids(len(u))), torch.float64
    )
    network.values(params)[:] = u[:, :, None]
    return network, params


def pgd_of(radius: Tensor, **fields: Any) -> PGD:
    """An attack with a radius for each run."""
    pgd = small_pgd(**fields)
    return pgd.model_copy(update={"ball": pgd.ball.model_copy(update={"radius": radius})})


def labelled_points(runs: int = 3, samples: int = 5, tokens: int = 3, dim: int = 7, seed: int = 0):
    x = normals(runs, samples, tokens, dim, seed=seed)
    return x, normals(runs, samples, seed=seed + 1).sign()


# S5, the worst perturbation.


@each_ball
def test_s5_many_steps_of_pgd_find_the_worst_margin_and_its_direction(per: Any):
    x, y = labelled_points()
    u, radius, tokens = normals(3, 7, seed=2), doubles(0.1, 0.7, 3.0), x.shape[2]
    network, params = with_vector(u)
    data = small_data(dim=7)
    pgd = pgd_of(radius, per=per, steps=30, step=0.2)
    moved = attacked(pgd, network, params, data, x, y)
    close(
        y * network.forward(params, moved),
        linear_mode.worst_margin(u, x, y, radius, per=per),
        1e-6,
    )
    share = tokens**-0.5 if per == "sample" else 1.0
    step = share * radius[:, None] * u / u.norm(dim=1, keepdim=True)
    close(moved - x, (-y[..., None, None] * step[:, None, None]).expand_as(x), 1e-6)


def steepest(u: Tensor, p: float) -> Tensor:
    """The vector of unit l_p norm with the largest product with u."""
    if p == 2:
        return u / u.norm(dim=1, keepdim=True)
    if p == math.inf:
        return u.sign()
    return torch.zeros_like(u).scatter(1, u.abs().argmax(1, keepdim=True), 1.0) * u.sign()


@each_ball
@each_norm
def test_s5_the_worst_margin_is_attained_in_the_ball(p: float, per: Any):
    x, y = labelled_points()
    u, radius = normals(3, 7, seed=2), doubles(0.1, 0.7, 3.0)
    delta = -y[..., None, None] * steepest(u, p)[:, None, None] * torch.ones_like(x)
    if per == "sample":
        delta[:, :, 1:] *= 0 if p == 1 else 1
        delta /= torch.linalg.vector_norm(delta.flatten(2), p, dim=2)[..., None, None]
    else:
        close(torch.linalg.vector_norm(delta, p, dim=3), torch.ones(*x.shape[:3]).double())
    network, params = with_vector(u)
    reached = y * network.forward(params, x + radius[:, None, None, None] * delta)
    close(reached, linear_mode.worst_margin(u, x, y, radius, p, per))


@settings(max_examples=40)
@given(
    p=st.sampled_from([1, 2, math.inf]),
    per=st.sampled_from(["token", "sample"]),
    seed=st.integers(0, 999),
)
def test_s5_no_perturbation_does_worse(p: float, per: Any, seed: int):
    x, y = labelled_points(seed=seed)
    u, radius = normals(3, 7, seed=seed + 2), doubles(0.1, 0.7, 3.0)
    near = -y[..., None, None] * steepest(u, p)[:, None, None]
    delta = near + 0.3 * normals(*x.shape, seed=seed + 3)
    unit = delta if per == "token" else delta.flatten(2)
    size = torch.linalg.vector_norm(unit, p, dim=-1, keepdim=True)
    delta /= size if per == "token" else size[..., None]
    network, params = with_vector(u)
    reached = y * network.forward(params, x + radius[:, None, None, None] * delta)
    assert (reached >= linear_mode.worst_margin(u, x, y, radius, p, per) - 1e-12).all()


def test_a_ball_without_a_closed_form_is_refused():
    with pytest.raises(ValueError, match=says("`p`", "1, 2", "inf", "3")):
        linear_mode.worst_drop(normals(1, 4), 2, 0.1, p=3)


# S6, the stall radius and the separation radius.


def test_s6_training_stalls_on_one_side_of_the_stall_radius_only():
    """Two per cent on either side; where it stalls, no step gets below log 2, the infimum."""
    data, same_draws = small_data(samples=6, dim=5), [RunId(0, 0, ""), RunId(0, 0, "")]
    sample = start([small_setup(data)], same_draws[:1]).sample
    stall = float(linear_mode.stall_radius(sample.x, sample.y))
    cells = [
        small_setup(
            data, linear(), small_pgd(radius=share * stall, **EXACT), rate=0.5, max_steps=300
        )
        for share in (0.98, 1.02)
    ]
    losses = torch.stack([step.loss for step, _ in descend(start(cells, same_draws))])
    below = math.log(2) - losses
    assert below[-1, 0] > 1e-4
    assert below[:, 1].max() < 1e-14
    assert below[-1, 1] > -1e-2  # it came close: the first loss is further off
    assert below[0, 1] < -2e-2


@each_norm
def test_s6_u_zero_is_best_exactly_from_the_stall_radius_on(p: Any):
    """The slope of the robust loss at u = 0 along its best direction changes sign there."""
    x, y = labelled_points()
    stall = linear_mode.stall_radius(x, y, p)
    best = steepest((y[..., None] * x.mean(2)).mean(1), {1: math.inf, 2: 2, math.inf: 1}[p])
    for share, falls in ((0.999, True), (1.001, False)):
        margins = linear_mode.worst_margin(1e-5 * best, x, y, share * stall, p)
        robust_loss = torch.log1p(torch.exp(-margins)).mean(1)
        assert ((robust_loss < math.log(2)) == falls).all()


@pytest.mark.parametrize("snr", [0.3, 2.0])
def test_s6_the_expected_stall_radius_of_balanced_data(snr: float):
    """Its square is the mean of |m|^2, here over 2000 runs; 4 standard errors, 6e-5 false alarms."""
    data = small_data(snr=snr, samples=10, tokens=4, dim=30, balanced=True)
    sample = data.sample(Streams(run_ids(2000)), "train", 10, torch.float64)
    squares = linear_mode.stall_radius(sample.x, sample.y) ** 2
    expected = linear_mode.expected_stall_radius(data.signal_norm(), snr, 4, 10) ** 2
    error = squares.std() / math.sqrt(len(squares))
    assert abs(squares.mean() - expected) < 4 * error
    assert error < 0.02 * expected


def duality_gap(x: Tensor, y: Tensor, point: Tensor) -> Tensor:
    """Length of a point of the hull less the smallest product with its direction: 0 only at the nearest.

    Any unit vector's smallest product is a lower bound on the length of every point of the hull.
    """
    length = point.norm(dim=1)
    margins = torch.einsum("rnd,rd->rn", y[..., None] * x.mean(2), point / length[:, None])
    return length - margins.amin(1)


@settings(max_examples=60)
@given(
    samples=st.integers(1, 40),
    dim=st.integers(1, 60),
    shift=st.floats(0.1, 5.0),
    scale=st.sampled_from([1e-9, 1.0, 1e9]),
    copies=st.booleans(),
    seed=st.integers(0, 999),
)
def test_s6_the_separator_is_certified(samples, dim, shift, scale, copies, seed):
    x, y = labelled_points(2, samples, 3, dim, seed)
    x = scale * (x + shift * y[..., None, None])
    if copies:
        x, y = x.repeat(1, 2, 1, 1), y.repeat(1, 2)
    point, radius = linear_mode.separator(x, y), linear_mode.separation_radius(x, y)
    if samples <= dim:  # then points in general position can be separated
        assert (radius > 0).all()
    lost = duality_gap(x, y, point)
    size = (x.mean(2)).norm(dim=2).amax(1)
    separable = radius > 1e-6 * size
    assert (lost[separable] <= 1e-12 * size[separable] + 1e-10 * radius[separable]).all()
    margins = linear_mode.worst_margin(point, x, y, 0.999 * radius)
    assert (margins[separable] > 0).all()


@settings(max_examples=20)
@given(samples=st.integers(2, 12), dim=st.integers(1, 5), seed=st.integers(0, 999))
def test_s6_points_around_zero_cannot_be_separated(samples, dim, seed):
    x, y = labelled_points(2, samples, 3, dim, seed)
    x, y = torch.cat([x, -x], 1), torch.cat([y, y], 1)
    assert (linear_mode.separation_radius(x, y) < 1e-12).all()


# S7, the test error.


@pytest.mark.parametrize(("projected", "strong"), [(True, None), (True, 1.3), (False, 1.3)])
def test_s7_test_errors_are_those_of_monte_carlo(projected: bool, strong: float | None):
    """Six numbers from 50 000 points each; 4 standard errors: one of 16 000 would be outside."""
    data = small_data(
        dim=5, tokens=3, projected=projected, strong_noise_std=strong, directions="random"
    )
    streams, radius = Streams(run_ids(3)), doubles(0.05, 0.1, 0.2)
    signals = data.sample(streams, "train", 1, torch.float64).latent["signal"]
    u = normals(3, 5, seed=3) + doubles(0.2, 0.3, 0.4)[:, None] * (signals[:, 0] - signals[:, 1])
    network, params = with_vector(u)
    fresh = data.sample(streams, "test/0", 50_000, torch.float64)
    x, y = fresh.x, fresh.y
    worst = attacked(pgd_of(radius, **EXACT), network, params, data, x, y)
    for points, size in ((x, 0.0), (worst, radius)):
        measured = (y * network.forward(params, points) <= 0).double().mean(1)
        expected = linear_mode.population_error(
            u, signals, data.noise_std, 3, size, strong_noise_std=strong, projected=projected
        )
        assert ((expected > 0.005) & (expected < 0.9)).all()
        error = (expected * (1 - expected) / 50_000).sqrt()
        assert ((measured - expected).abs() < 4 * error).all()


def test_s7_without_noise_a_point_is_right_or_wrong_and_a_tie_is_wrong():
    signals = torch.eye(2, 3, dtype=torch.float64).expand(4, 2, 3)
    u = torch.stack([doubles(1, -1, 0), doubles(1, 1, 0), doubles(1, 0, 0), doubles(0, 0, 0)])
    assert linear_mode.population_error(u, signals, 0.5, 1).tolist() == [0, 0.5, 0.5, 1]
    # Projected noise does not see u in the plane of the signals; unprojected noise does.
    assert linear_mode.population_error(u, signals, 0.5, 2)[0] == 0
    assert 0 < linear_mode.population_error(u, signals, 0.5, 2, projected=False)[0] < 0.5
    for share, error in ((0.999, 0.0), (1.001, 1.0)):
        robust = linear_mode.population_error(u[:1], signals[:1], 0.5, 2, share / math.sqrt(8))
        assert robust.item() == error


# S8, the time to converge.


@pytest.mark.parametrize("tokens", [1, 2, 4])
def test_s8_the_time_to_converge(tokens: int):
    """Within 5 % of the leading order, clean and attacked, at losses .02 and .01 (S8)."""
    signal, norm = 2.0, 0.7
    shares = doubles(0.0, 0.35, 0.7) / (math.sqrt(2) * tokens)
    data = small_data(samples=2, tokens=tokens, dim=3, noise_std=1e-6, balanced=True)
    # Rates for about 300 steps each, so that the discrete time does not matter.
    rates = linear_mode.convergence_steps(0.01, 1.0, signal, tokens, shares * signal, norm) / 300
    cells = [
        small_setup(
            data,
            linear(value_std=1e-6).model_copy(update={"output_norm": norm}),
            small_pgd(radius=float(share) * signal, **EXACT),
            rate=float(rate),
            stop_loss=0.01,
            max_steps=400,
        )
        for share, rate in zip(shares, rates, strict=True)
    ]
    reached = {0.02: torch.zeros(3), 0.01: torch.zeros(3)}
    for step, _ in descend(start(cells)):
        for target, times in reached.items():
            times[step.batch.index[step.loss > target]] = step.number + 1
    for target, times in reached.items():
        law = linear_mode.convergence_steps(target, rates, signal, tokens, shares * signal, norm)
        assert ((times / law - 1).abs() < 0.05).all(), (times / law).tolist()


def test_s8_from_the_stall_radius_on_it_never_converges():
    radius = doubles(0.99, 1.0, 1.5) * 2.0 / (math.sqrt(2) * 3)
    steps = linear_mode.convergence_steps(0.01, 0.1, 2.0, 3, radius)
    assert steps.isfinite().tolist() == [True, False, False]
