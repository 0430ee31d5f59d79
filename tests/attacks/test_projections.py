"""Projections against references that search the one unknown number by brute force, and against their definition."""

from itertools import combinations
from typing import Any

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor

from benign.attacks.balls import Ball
from tests.reference import close, doubles, normals

NORMS = [0, 1, 2, "inf"]
BOX = (-0.8, 1.1)
CASES = st.fixed_dictionaries(
    {
        "p": st.sampled_from([1, 2, "inf"]),
        "per": st.sampled_from(["token", "sample"]),
        "dim": st.integers(1, 7),
        "seed": st.integers(0, 10**6),
        "log_size": st.floats(-3, 3),
        "log_radius": st.floats(-3, 1),
        "box": st.sampled_from([None, BOX, (-0.01, 0.01)]),
        "per_sample": st.booleans(),
    }
)


def bisected(test: Any, high: float) -> float:
    """The largest number of [0, high] that passes a test which the small ones pass, to the last digit."""
    low = 0.0
    for _ in range(2000):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        low, high = (middle, high) if test(middle) else (low, middle)
    return low


def slow_projection(v: Tensor, p: Any, radius: float, low: Tensor, high: Tensor) -> Tensor:
    """One vector, from the conditions of Karush, Kuhn and Tucker: a multiplier found by bisection.

    l2: clip(s v) with the largest s <= 1 that is short enough; l1: clip(sign (|v| - t)_+) with the smallest t.
    """

    def clip(z: Tensor) -> Tensor:
        return torch.minimum(torch.maximum(z, low), high)

    if p == "inf":
        return clip(v.clamp(-radius, radius))
    if p == 2:
        near = clip(v)
        if near.norm() <= radius:
            return near
        return clip(bisected(lambda s: clip(s * v).norm() <= radius, 1.0) * v)

    def soft(t: float) -> Tensor:
        return clip(v.sign() * (v.abs() - t).clamp_min(0))

    if soft(0.0).abs().sum() <= radius:
        return soft(0.0)
    return soft(bisected(lambda t: soft(t).abs().sum() > radius, float(v.abs().max())))


def sparse_by_enumeration(v: Tensor, count: int, low: Tensor, high: Tensor) -> float:
    """Smallest distance from v to a vector in the box with at most `count` coordinates other than 0."""
    clipped = torch.minimum(torch.maximum(v, low), high)
    distances = []
    for chosen in combinations(range(len(v)), min(count, len(v))):
        z = torch.zeros_like(v)
        z[list(chosen)] = clipped[list(chosen)]
        distances.append(float((v - z).norm()))
    return min(distances)


def vectors(points: Tensor, per: str) -> Tensor:
    """[runs, samples, units, coordinates]"""
    return points if per == "token" else points.flatten(2)[:, :, None]


def reach(x: Tensor, box: Any) -> tuple[Tensor, Tensor]:
    """How far every coordinate may move down and up."""
    low, high = box or (-1e9, 1e9)
    return (low - x).clamp(max=0), (high - x).clamp(min=0)


def slow(ball: Ball, v: Tensor, radius: Tensor, x: Tensor) -> Tensor:
    """`slow_projection` of every unit."""
    low, high = (vectors(part, ball.per) for part in reach(x, ball.box))
    each = vectors(v, ball.per)
    sizes = radius.expand(*each.shape[:3], 1)
    near = torch.empty_like(each)
    for index in torch.cartesian_prod(*map(torch.arange, each.shape[:3])).tolist():
        i = tuple(index)
        near[i] = slow_projection(each[i], ball.p, float(sizes[i]), low[i], high[i])
    return near.reshape(v.shape)


def drawn(case: dict[str, Any]) -> tuple[Ball, Tensor, Tensor, Tensor]:
    """The ball, what is projected, the radius of every run or sample, and the clean points."""
    ball = Ball(p=case["p"], radius=1.0, per=case["per"], box=case["box"])
    shape, seed = (2, 2, 2, case["dim"]), case["seed"]
    v = normals(*shape, seed=seed) * 10 ** case["log_size"]
    x = normals(*shape, seed=seed + 1).clamp(*case["box"] or (-9, 9))
    radius = 10 ** case["log_radius"] * doubles(1.0, 0.3).reshape(2, 1, 1, 1)
    if case["per_sample"]:
        radius = radius * doubles(1.0, 0.2).reshape(1, 2, 1, 1)
    return ball, v, radius, x


@given(CASES)
@settings(max_examples=150, deadline=None)
def test_projections_are_those_of_the_slow_reference(case):
    ball, v, radius, x = drawn(case)
    near = ball.project(v.clone(), radius, x)
    expected = slow(ball, v, radius, x)
    assert float((near - expected).abs().max()) <= 1e-8 * float(
        expected.abs().max()
    ) + 1e-13 * float(v.abs().max())


@given(CASES)
@settings(max_examples=60, deadline=None)
def test_projections_are_inside_and_no_point_inside_is_nearer(case):
    """In a convex set the nearest point p of v has <v - p, z - p> <= 0 for every z of the set."""
    ball, v, radius, x = drawn(case)
    near = ball.project(v.clone(), radius, x)
    assert (ball.norm(near) <= radius * (1 + 1e-10)).all()
    low, high = reach(x, ball.box)
    assert ((low <= near) & (near <= high)).all()
    points = ball.points(x, near)
    assert ball.box is None or ((points >= ball.box[0]) & (points <= ball.box[1])).all()
    scale = float(v.norm() * radius.max())
    for number in range(20):
        z = normals(*v.shape, seed=case["seed"] + 2 + number) * radius
        z = torch.maximum(torch.minimum(z, high), low)
        z = z * (radius / ball.norm(z).clamp_min(1e-300)).clamp_max(1)
        ascent_direction = vectors((v - near) * (z - near), ball.per).sum(-1)
        assert float(ascent_direction.max()) <= 1e-9 * scale


@given(CASES)
@settings(max_examples=40, deadline=None)
def test_projections_in_float32_are_inside(case):
    ball, *tensors = drawn(case)
    v, radius, x = (each.float() for each in tensors)
    near = ball.project(v.clone(), radius, x)
    assert near.dtype == torch.float32
    assert (ball.norm(near.double()) <= radius * (1 + 1e-5)).all()
    points = ball.points(x, near)
    assert ball.box is None or ((points >= ball.box[0]) & (points <= ball.box[1])).all()
    expected = slow(ball, v.double(), radius.double(), x.double())
    assert float((near - expected).abs().max()) <= 1e-4 * float(radius.max()) + 1e-6 * float(
        v.abs().max()
    )


@given(
    st.lists(st.sampled_from([-2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0]), min_size=1, max_size=6),
    st.sampled_from([0.0, 0.5, 1.0, 2.0, 3.0]),
    st.sampled_from([None, (-0.5, 1.0)]),
)
@example([1.0, 1.0, 1.0], 1.0, None)
@settings(max_examples=80, deadline=None)
@pytest.mark.parametrize("p", [1, 2, "inf"])
def test_ties_zeros_and_points_on_the_boundary(p, numbers, radius, box):
    """Whole numbers meet kinks, faces and corners exactly."""
    v = doubles(*numbers).reshape(1, 1, 1, -1)
    x, ball = torch.zeros_like(v), Ball(p=p, radius=radius, box=box)
    size = doubles(radius).reshape(1, 1, 1, 1)
    near = ball.project(v.clone(), size, x)
    assert torch.allclose(near, slow(ball, v, size, x), rtol=0, atol=1e-12)
    again = ball.project(near.clone(), size, x)
    assert torch.allclose(again, near, rtol=0, atol=1e-14)


@given(
    st.integers(0, 10**6),
    st.integers(0, 6),
    st.sampled_from([None, BOX]),
    st.sampled_from(["token", "sample"]),
)
@settings(max_examples=60, deadline=None)
def test_sparse_projections_are_the_best_of_all_choices(seed, count, box, per):
    ball = Ball(p=0, radius=count, box=box, per=per)
    v, x = normals(2, 1, 2, 3, seed=seed), normals(2, 1, 2, 3, seed=seed + 1).clamp(-0.8, 1.1)
    radius = doubles(count, count // 2).reshape(2, 1, 1, 1)
    near = ball.project(v.clone(), radius, x)
    assert (ball.norm(near) <= radius).all()
    low, high = reach(x, box)
    assert ((low <= near) & (near <= high)).all()
    parts = [vectors(each, per).flatten(0, 2) for each in (v, near, low, high)]
    counts = radius.expand(*vectors(v, per).shape[:3], 1).flatten().tolist()
    for each, found, down, up, most in zip(*parts, counts, strict=True):
        assert (
            float((each - found).norm()) <= sparse_by_enumeration(each, int(most), down, up) + 1e-12
        )


@pytest.mark.parametrize("box", [None, BOX])
@pytest.mark.parametrize("p", NORMS)
@pytest.mark.parametrize("per", ["token", "sample"])
def test_points_inside_are_left_alone(p, box, per):
    ball = Ball(p=p, radius=9 if p == 0 else 9.0, per=per, box=box)
    delta, x = 0.01 * normals(2, 3, 2, 4), 0.1 * normals(2, 3, 2, 4, seed=1)
    radius = doubles(9.0, 12.0).reshape(2, 1, 1, 1)
    assert torch.equal(ball.project(delta.clone(), radius, x), delta)


@pytest.mark.parametrize("box", [None, BOX])
@pytest.mark.parametrize("p", NORMS)
@pytest.mark.parametrize("per", ["token", "sample"])
def test_a_radius_of_zero_leaves_only_the_origin(p, box, per):
    ball, x = Ball(p=p, radius=0, per=per, box=box), 0.1 * normals(2, 3, 2, 4, seed=1)
    radius = doubles(0.0, 1.0).reshape(2, 1, 1, 1)
    near = ball.project(5 * normals(2, 3, 2, 4), radius, x)
    assert not near[0].any()
    assert near[1].any()
    zero = torch.zeros(2, 3, 2, 4).double()
    assert torch.equal(ball.project(zero.clone(), radius, x), zero)


@pytest.mark.parametrize("p", [1, 2, "inf"])
def test_a_point_outside_the_box_may_stay_or_come_back(p):
    ball, x = Ball(p=p, radius=2.0, box=(0.0, 1.0)), doubles(-0.5, 1.5, 0.5).reshape(1, 1, 1, 3)
    radius = doubles(2.0).reshape(1, 1, 1, 1)
    away = ball.project(doubles(-0.3, 0.3, 0.0).reshape(x.shape), radius, x)
    assert torch.equal(ball.points(x, away), x)
    back = ball.project(doubles(0.25, -0.25, 0.1).reshape(x.shape), radius, x)
    close(ball.points(x, back).flatten(), doubles(-0.25, 1.25, 0.6))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("box", [None, BOX])
@pytest.mark.parametrize("p", [1, 2])
def test_large_points_of_many_sizes_are_projected_to_the_boundary(p, box, dtype):
    """3000 coordinates over eight orders of magnitude, far outside: sums must not lose the radius."""
    sizes = 10 ** (
        8 * torch.rand(2, 1, 3, 1000, generator=torch.Generator().manual_seed(0)).double() - 4
    )
    v = (sizes * normals(2, 1, 3, 1000)).to(dtype)
    ball, x = (
        Ball(p=p, radius=1.0, per="sample", box=box),
        (0.1 * normals(2, 1, 3, 1000, seed=2)).to(dtype),
    )
    radius = doubles(0.7, 5.0).reshape(2, 1, 1, 1).to(dtype)
    norm = ball.norm(ball.project(v.clone(), radius, x).double())
    close(norm, radius.double(), 1e-10 if dtype == torch.float64 else 1e-5)
