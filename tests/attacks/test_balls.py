"""Balls: radii, norms, steepest directions, uniform points. Projections: test_projections.py."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import kstest
from torch import Tensor

from benign.attacks.balls import Ball
from benign.spec.base import SpecError
from benign.spec.yaml import parse_yaml
from benign.streams import Streams
from tests.reference import close, doubles, normals, run_ids, small_data, small_setup, start

PER = pytest.mark.parametrize("per", ["token", "sample"])
NORMS = pytest.mark.parametrize("p", [0, 1, 2, "inf"])
RUNS = run_ids(2)


def each(*numbers: float) -> Tensor:
    """One radius a run."""
    return doubles(*numbers)[:, None, None, None]


def project(ball: Ball, delta: Tensor, radius: Tensor) -> Tensor:
    return ball.project(delta.clone(), radius, torch.zeros_like(delta))


def coordinates(points: Tensor, per: str) -> Tensor:
    """The coordinates of each token, or of each point, along the last axis."""
    return points if per == "token" else points.flatten(2)


def lengths(delta: torch.Tensor, per: str) -> torch.Tensor:
    """Norm of every token, or of every point."""
    return delta.norm(dim=-1) if per == "token" else delta.flatten(2).norm(dim=-1)


@PER
def test_the_projection_is_the_best_of_a_fine_grid(per):
    """Brute force in two numbers: one token of two coordinates, or two tokens of one."""
    shape = (1, 1, 1, 2) if per == "token" else (1, 1, 2, 1)
    ball, radius = Ball(radius=1.0, per=per), each(0.7)
    side = torch.linspace(-0.7, 0.7, 281, dtype=torch.float64)
    grid = torch.cartesian_prod(side, side)
    grid = grid[grid.norm(dim=1) <= 0.7]
    for far in ([2.0, 1.0], [-0.3, 0.9], [0.1, -0.2], [0.0, 0.0]):
        point = doubles(*far)
        near = project(ball, point.reshape(shape), radius).flatten()
        best = (grid - point).norm(dim=1).min()
        assert (near - point).norm() <= best + 1e-12
        assert best - (near - point).norm() < 0.005


@PER
@NORMS
@pytest.mark.parametrize("box", [None, (0.0, 1.0)])
def test_only_an_l2_ball_without_a_box_is_round(p, per, box):
    ball = Ball(p=p, radius=2.0, per=per, box=box)
    assert ball.is_round == (p == 2 and box is None)


def test_every_run_has_its_own_radius():
    radius = doubles(0.1, 1.0, 3.0)
    delta = project(Ball(radius=1.0), 100 * normals(3, 2, 2, 4), each(*radius.tolist()))
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


@PER
@pytest.mark.parametrize(("p", "order"), [(1, 1), (2, 2), ("inf", torch.inf)])
def test_a_radius_relative_to_the_point_is_a_share_of_its_norm(per, p, order):
    x = normals(2, 3, 2, 4)
    ball = Ball(p=p, radius=0.1, relative_to="point", per=per)
    radii = ball.radii(small_data(), x)
    close(radii[..., 0, 0], 0.1 * torch.linalg.vector_norm(x.flatten(2), order, dim=2))
    near = ball.project(100 * normals(2, 3, 2, 4, seed=1), radii, x)
    close(ball.norm(near), radii.expand_as(ball.norm(near)))


@PER
@pytest.mark.parametrize("p", [1, 2, "inf"])
@given(seed=st.integers(0, 10**6))
@settings(max_examples=15, deadline=None)
def test_the_steepest_direction_attains_the_dual_norm(per, p, seed):
    """<d, g> = |g|_p* with |d|_p = 1, and no other direction of unit norm rises as fast."""
    ball, gradient = Ball(p=p, radius=1.0, per=per), normals(2, 3, 2, 4, seed=seed)
    flat = coordinates(gradient, per)
    dual = {1: flat.abs().amax(-1), 2: flat.square().sum(-1).sqrt(), "inf": flat.abs().sum(-1)}[p]
    direction = ball.steepest(gradient.clone())
    close(ball.norm(direction), torch.ones_like(ball.norm(direction)))
    close((coordinates(direction, per) * flat).sum(-1), dual)
    close(ball.dual_norm(gradient).flatten(), dual.flatten())
    for number in range(10):
        other = normals(2, 3, 2, 4, seed=seed + 1 + number)
        other = coordinates(other / ball.norm(other), per)
        assert ((other * flat).sum(-1) <= dual * (1 + 1e-12)).all()


@PER
def test_a_sparse_step_moves_the_largest_slopes_each_by_one(per):
    ball, gradient = Ball(p=0, radius=2, per=per), normals(2, 3, 2, 4)
    ball = ball.model_copy(update={"radius": doubles(2, 3)})
    direction = ball.steepest(gradient.clone())
    for run, count in ((0, 2), (1, 3)):
        flat, moved = coordinates(gradient, per)[run], coordinates(direction, per)[run]
        assert (moved.count_nonzero(-1) == count).all()
        best = flat.abs().sort(-1).values[..., -count:].sum(-1)
        close((moved * flat).sum(-1), best)
        close(ball.dual_norm(gradient)[run].flatten(), best.flatten())
        assert set(moved.unique().tolist()) == {-1.0, 0.0, 1.0}


@PER
def test_an_l1_step_over_several_coordinates_shares_its_length_equally(per):
    ball, gradient = Ball(p=1, radius=1.0, coordinates=3, per=per), normals(2, 3, 2, 4)
    moved = coordinates(ball.steepest(gradient.clone()), per)
    flat = coordinates(gradient, per)
    assert (moved.count_nonzero(-1) == 3).all()
    close(moved.abs().amax(-1), torch.full(moved.shape[:-1], 1 / 3).double(), 1e-7)
    close((moved * flat).sum(-1), flat.abs().sort(-1).values[..., -3:].mean(-1))
    alone = torch.zeros(1, 1, 1, 4).double()
    alone[..., 2] = -5.0
    assert ball.steepest(alone.clone()).flatten().tolist() == [0, 0, -1, 0]
    many = Ball(p=1, radius=1.0, coordinates=99).steepest(normals(1, 1, 1, 4))
    close(many.abs(), torch.full((1, 1, 1, 4), 0.25).double())


@PER
@NORMS
def test_a_zero_gradient_has_no_direction_in_any_norm(per, p):
    ball = Ball(p=p, radius=2, per=per)
    assert not ball.steepest(torch.zeros(2, 3, 2, 4)).any()


def uniform(ball: Ball, radius: Tensor, samples: int = 5, dim: int = 3, seed: int = 0) -> Tensor:
    x = 0.1 * normals(2, samples, 2, dim)
    return ball.uniform(Streams(run_ids(2, seed)), radius, x)


@PER
@pytest.mark.parametrize("p", [1, 2, "inf"])
def test_uniform_points_have_the_radial_law_of_the_ball(per, p):
    """P(norm <= t radius) = t^n. Kolmogorov and Smirnov at 1e-4 each: six laws, one false alarm in 1,600."""
    ball = Ball(p=p, radius=1.0, per=per)
    norms = ball.norm(uniform(ball, each(0.5, 2.0), 2000)) / each(0.5, 2.0)
    assert float(norms.max()) <= 1 + 1e-12
    size = 3 if per == "token" else 6
    for run in norms:
        assert kstest(run.flatten().numpy(), lambda t: t**size).pvalue > 1e-4


@pytest.mark.parametrize("p", [1, 2, "inf"])
def test_uniform_points_fill_the_ball_evenly(p):
    """Against points of the cube that happen to lie in the ball: first coordinate, the sum of all, and the sign.

    Two-sample Kolmogorov and Smirnov at 1e-4, a mean within 4 standard errors: one false alarm in 3,000.
    """
    ball = Ball(p=p, radius=1.0)
    drawn = uniform(ball, each(1.0, 1.0), 2000).flatten(0, 2)
    cube = 2 * torch.rand(60000, 3, generator=torch.Generator().manual_seed(1)).double() - 1
    inside = cube[torch.linalg.vector_norm(cube, {1: 1, 2: 2, "inf": torch.inf}[p], dim=1) <= 1]
    for read in (lambda z: z[:, 0], lambda z: z.sum(1), lambda z: z.abs().amax(1)):
        assert kstest(read(drawn).numpy(), read(inside).numpy()).pvalue > 1e-4
    assert abs(float(drawn.sign().mean())) < 4 / drawn.numel() ** 0.5


@PER
def test_uniform_sparse_points_move_random_coordinates_anywhere_in_the_box(per):
    """Frequencies within 4 standard errors (one false alarm in 16,000 each), values by Kolmogorov at 1e-4."""
    ball, x = Ball(p=0, radius=2, per=per, box=(-1.0, 3.0)), torch.zeros(2, 2000, 2, 3).double()
    delta = ball.uniform(Streams(RUNS), each(2, 1), x)
    flat = coordinates(delta, per).flatten(1, -2)
    for run, count in ((0, 2), (1, 1)):
        moved = flat[run] != 0
        assert (moved.sum(-1) == count).all()
        share = count / flat.shape[-1]
        error = (share * (1 - share) / len(moved)) ** 0.5
        assert ((moved.double().mean(0) - share).abs() < 4 * error).all()
        values = flat[run][moved]
        assert kstest(values.numpy(), "uniform", args=(-1, 4)).pvalue > 1e-4


@PER
@pytest.mark.parametrize(
    ("p", "box"),
    [(1, None), (2, None), ("inf", None), *((p, (-0.2, 0.3)) for p in (0, 1, 2, "inf"))],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_uniform_points_are_inside_and_depend_on_the_run_alone(per, p, box, dtype):
    ball, slack = Ball(p=p, radius=2, per=per, box=box), 1e-5 if dtype == torch.float32 else 1e-10
    x, radius = (0.1 * normals(2, 5, 2, 3)).to(dtype).clamp(-0.2, 0.3), each(2, 1).to(dtype)
    before = torch.get_rng_state()
    delta = ball.uniform(Streams(RUNS), radius, x)
    assert torch.equal(torch.get_rng_state(), before)
    assert delta.dtype == dtype
    assert (ball.norm(delta) <= radius * (1 + slack)).all()
    points = ball.points(x, delta)
    assert box is None or torch.equal(points, points.clamp(*box))
    for run in range(2):
        alone = ball.uniform(Streams(RUNS[run : run + 1]), radius[run : run + 1], x[run : run + 1])
        close(alone[0], delta[run], slack / 10)  # powers are rounded by their place in memory
    assert not torch.equal(delta, ball.uniform(Streams(run_ids(2, 1)), radius, x))


@pytest.mark.parametrize("written", ["inf", ".inf"])
def test_infinity_is_written_as_a_word_or_a_number(written):
    assert Ball.from_dict(parse_yaml(f"{{p: {written}, radius: 1}}")).p == "inf"
    infinity: Any = float("inf")
    assert Ball(p=infinity, radius=1.0) == Ball(p="inf", radius=1.0)
    assert Ball.from_dict(Ball(p="inf", radius=1.0, box=(0, 1)).as_dict()) == Ball(
        p="inf", radius=1.0, box=(0.0, 1.0)
    )
    axis: Any = Ball(p=[1, 2, infinity], radius=1.0).p
    assert axis.values == (1, 2, "inf")


@pytest.mark.parametrize(
    ("fields", "parts"),
    [
        ({"radius": -1.0}, ["radius", "-1.0", "greater than or equal to 0"]),
        ({"radius": 1.0, "p": 3}, ["p", "3", "2"]),
        ({"radius": 1.0, "per": "pixel"}, ["per", "pixel", "token", "sample"]),
        ({"radius": 1.0, "relative_to": "noise"}, ["relative_to", "noise", "signal", "point"]),
        ({"radius": 1.0, "p": True}, ["p", "True", "inf"]),
        ({"radius": 1.5, "p": 0}, ["`radius`", "1.5", "whole"]),
        ({"radius": [1, 2.5], "p": 0}, ["`radius`", "2.5", "whole", "radius=2.5"]),
        ({"radius": 1, "p": 0, "relative_to": "point"}, ["`relative_to`", "point", " out"]),
        ({"radius": 1.0, "box": (1.0, 0.0)}, ["`box`", "[1.0, 0.0]", "lowest < highest"]),
        ({"radius": 1.0, "box": (0.0, "high")}, ["box", "high", "number"]),
        ({"radius": 1.0, "coordinates": 4}, ["`coordinates`", "4", "p = 2", " out"]),
        ({"radius": 1.0, "p": 1, "coordinates": 0}, ["coordinates", "0", "greater"]),
    ],
)
def test_bad_balls_are_refused_with_field_value_and_remedy(fields, parts):
    with pytest.raises(SpecError) as error:
        Ball(**fields)
    assert all(word in str(error.value) for word in parts), str(error.value)
