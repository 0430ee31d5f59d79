"""Balls: what is inside, the nearest point inside, the steepest direction."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from benign.attacks.balls import Ball
from benign.spec import SpecError
from tests.reference import close, doubles, normals, small_data, small_setup, start

PER = pytest.mark.parametrize("per", ["token", "sample"])
CASES = st.tuples(
    st.sampled_from(["token", "sample"]),
    st.integers(0, 10**6),
    st.floats(-3, 3),
    st.floats(-3, 1),
)


def lengths(delta: torch.Tensor, per: str) -> torch.Tensor:
    """Norm of every token, or of every point."""
    return delta.norm(dim=-1) if per == "token" else delta.flatten(2).norm(dim=-1)


@given(CASES)
@settings(max_examples=40)
def test_the_projection_is_inside_idempotent_and_nearest(case):
    per, seed, size, log_radius = case
    ball, radius = Ball(radius=1.0, per=per), doubles(10.0**log_radius, 0.5)
    far = normals(2, 3, 2, 4, seed=seed) * 10**size
    near = ball.project(far.clone(), radius)
    limit = radius.reshape(2, *[1] * (lengths(near, per).ndim - 1)) * (1 + 1e-12)
    assert (lengths(near, per) <= limit).all()
    assert torch.allclose(ball.project(near.clone(), radius), near, rtol=1e-14, atol=0)
    # Nearest in a convex set: no point z of the ball has <far - near, z - near> > 0.
    for other in normals(50, *far.shape, seed=seed + 1):
        z = ball.project(other * radius[:, None, None, None], radius)
        rise = ((far - near) * (z - near)).flatten(2).sum(-1)
        assert (rise <= 1e-12 * (1 + far.norm() * radius.max())).all()


@PER
def test_the_projection_is_the_best_of_a_fine_grid(per):
    """Brute force in two numbers: one token of two coordinates, or two tokens of one."""
    shape = (1, 1, 1, 2) if per == "token" else (1, 1, 2, 1)
    ball, radius = Ball(radius=1.0, per=per), doubles(0.7)
    side = torch.linspace(-0.7, 0.7, 281, dtype=torch.float64)
    grid = torch.cartesian_prod(side, side)
    grid = grid[grid.norm(dim=1) <= 0.7]
    for far in ([2.0, 1.0], [-0.3, 0.9], [0.1, -0.2], [0.0, 0.0]):
        point = doubles(*far)
        near = ball.project(point.reshape(shape).clone(), radius).flatten()
        best = (grid - point).norm(dim=1).min()
        assert (near - point).norm() <= best + 1e-12
        assert best - (near - point).norm() < 0.005


@PER
def test_points_inside_are_left_alone(per):
    ball, delta = Ball(radius=1.0, per=per), 0.01 * normals(2, 3, 2, 4)
    assert torch.equal(ball.project(delta.clone(), doubles(1.0, 2.0)), delta)


@PER
def test_a_radius_of_zero_leaves_the_origin_alone(per):
    ball = Ball(radius=0.0, per=per)
    radius = doubles(0.0, 1.0)
    projected = ball.project(5 * normals(2, 3, 2, 4), radius)
    assert not projected[0].any()
    assert projected[1].all()
    zero = torch.zeros(2, 3, 2, 4).double()
    assert torch.equal(ball.project(zero.clone(), radius), zero)


def test_every_run_has_its_own_radius():
    radius = doubles(0.1, 1.0, 3.0)
    delta = Ball(radius=1.0).project(100 * normals(3, 2, 2, 4), radius)
    close(delta.norm(dim=-1), radius[:, None, None].expand(3, 2, 2))


@PER
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("size", [1e-15, 1.0, 1e15])
def test_the_steepest_direction_has_unit_norm_and_the_direction_of_the_gradient(per, dtype, size):
    ball = Ball(radius=1.0, per=per)
    gradient = normals(2, 3, 2, 4).to(dtype) * size
    direction = ball.steepest(gradient.clone())
    tolerance = 1e-6 if dtype == torch.float32 else 1e-12
    close(lengths(direction, per), torch.ones_like(lengths(direction, per)), tolerance)
    size_kept = gradient / size
    norm = lengths(size_kept, per)
    norm = norm[..., None] if per == "token" else norm[..., None, None]
    close(direction, size_kept / norm, tolerance)


@PER
def test_the_steepest_direction_of_a_tiny_gradient_has_unit_norm(per):
    """Saturated float32 gradients are as small as 1e-38, and their squares are zero."""
    ball = Ball(radius=1.0, per=per)
    for size in (1e-20, 1e-22, 1e-24, 1e-30, 1e-36):
        direction = ball.steepest(normals(2, 3, 2, 4).float() * size)
        close(lengths(direction, per), torch.ones_like(lengths(direction, per)), 1e-4)


@PER
def test_a_zero_gradient_has_no_direction(per):
    ball, gradient = Ball(radius=1.0, per=per), normals(2, 3, 2, 4)
    gradient[0, 1] = 0
    gradient[1, 2, 0] = 0
    direction = ball.steepest(gradient.clone())
    assert direction.isfinite().all()
    assert not direction[0, 1].any()
    assert not direction[1, 2, 0].any()
    assert direction[1, 2, 1].any()


def test_a_radius_relative_to_the_signal_is_a_length():
    assert Ball(radius=0.25, relative_to="signal").size(small_data(signal=8.0)) == 2.0
    by_ratio = small_data(snr=3.0, noise_std=0.5, dim=16)
    assert Ball(radius=0.25, relative_to="signal").size(by_ratio) == 0.25 * 3 * 0.5 * 4
    assert Ball(radius=0.25).size(small_data(signal=8.0)) == 0.25


def test_relative_radii_of_a_batch_follow_each_run():
    cells = [small_setup(small_data(signal=signal)) for signal in (1.0, 4.0)]
    data = start(cells).setup.data
    size = Ball(radius=0.5, relative_to="signal").size(data)
    assert torch.equal(torch.as_tensor(size), doubles(0.5, 2.0))


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"radius": -1.0}, ["radius", "-1.0", "greater than or equal to 0"]),
        ({"radius": 1.0, "p": 3}, ["p", "3", "2"]),
        ({"radius": 1.0, "per": "pixel"}, ["per", "pixel", "token", "sample"]),
        ({"radius": 1.0, "relative_to": "noise"}, ["relative_to", "noise", "signal"]),
    ],
)
def test_bad_balls_are_refused_with_field_value_and_remedy(fields, told):
    with pytest.raises(SpecError) as error:
        Ball(**fields)
    assert all(word in str(error.value) for word in told), str(error.value)
