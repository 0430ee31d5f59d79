"""Matching and inverting the features of a reference network: exact where the answer is known."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from benign.attacks.balls import Ball
from benign.attacks.feature_matching import (
    invert_features,
    match_features,
    representation,
    targeted_success,
)
from benign.attacks.model_free import AllPatch
from benign.data.feature_patches import FeaturePatches
from benign.networks.attention import Attention
from benign.networks.linear import Linear
from benign.networks.network import Network, Params
from benign.networks.patch_cnn import PatchCNN
from benign.networks.two_layer import TwoLayer
from benign.networks.vision_transformer import VisionTransformer
from benign.streams import Streams
from tests.reference import attacked, close, doubles, normals, run_ids, small_data, small_network
from tests.registry import forgetting
from tests.says import says

SHAPE = (2, 5, 3, 4)
X = normals(*SHAPE)


def linear_map(features: int, runs: int = 2):
    """A map of every run from points to features."""
    weights = normals(runs, 12, features, seed=3)
    return lambda points: points.flatten(2) @ weights


def curved(points: Tensor) -> Tensor:
    return torch.tanh(0.1 * linear_map(5)(points))


def apart(represent: Any, points: Tensor, goal: Tensor) -> Tensor:
    return (represent(points) - represent(goal)).norm(dim=2)


def inside(ball: Ball, points: Tensor, x: Tensor = X) -> bool:
    return bool((ball.norm(points - x) <= ball.radius * (1 + 1e-10)).all())


@pytest.mark.parametrize("p", [2, "inf"])
@pytest.mark.parametrize("represent", [linear_map(6), curved], ids=["linear", "curved"])
def test_a_goal_inside_the_ball_is_matched(p, represent):
    """A point with the same features exists, so the distance goes to zero."""
    ball = Ball(p=p, radius=0.5)
    goal = X + ball.project(
        0.2 * normals(*SHAPE, seed=1), torch.full((2, 1, 1, 1), 0.5).double(), X
    )
    before = apart(represent, X, goal)
    points = match_features(represent, X, goal, ball, steps=250)
    assert (apart(represent, points, goal) < 1e-6 * before).all()
    assert inside(ball, points)


@pytest.mark.parametrize("p", [2, "inf"])
@pytest.mark.parametrize("per", ["token", "sample"])
def test_without_a_map_the_nearest_point_is_the_projection(p, per):
    """|x + delta - goal|_2 over the ball: what `Ball.project` gives in closed form."""
    ball, goal = Ball(p=p, radius=0.7, per=per), X + 2 * normals(*SHAPE, seed=1)
    points = match_features(lambda points: points.flatten(2), X, goal, ball, steps=300)
    radius = torch.full((2, 1, 1, 1), 0.7, dtype=torch.float64)
    close(points - X, ball.project(goal - X, radius, X), 1e-4)


@given(
    st.sampled_from([0, 1, 2, "inf"]),
    st.sampled_from(["token", "sample"]),
    st.sampled_from([None, (-1.0, 1.0)]),
    st.integers(0, 3),
    st.floats(0.1, 2),
)
@settings(max_examples=15)
def test_matching_stays_in_the_ball_and_never_loses(p, per, box, radius, step):
    ball, goal = Ball(p=p, radius=float(radius), per=per, box=box), normals(*SHAPE, seed=1)
    start = X.clamp(-1, 1)
    points = match_features(curved, start, goal, ball, steps=6, step=step)
    assert inside(ball, points, start)
    assert box is None or float(points.abs().max()) <= 1
    assert (apart(curved, points, goal) <= apart(curved, start, goal)).all()
    assert radius or torch.equal(points, start)


def test_matching_brings_most_points_nearer_and_keeps_the_nearest():
    ball, goal = Ball(p="inf", radius=0.3, per="sample"), normals(*SHAPE, seed=1)
    distances = [
        apart(curved, match_features(curved, X, goal, ball, steps=n), goal) for n in (1, 5, 25, 100)
    ]
    for fewer, more in pairwise(distances):
        assert (more <= fewer).all()
    assert (distances[-1] < 0.9 * apart(curved, X, goal)).all()


def test_every_point_is_matched_as_if_alone_by_its_own_radius():
    goal, before = normals(*SHAPE, seed=1), torch.get_rng_state()
    radii = doubles(0.1, 0.6)
    both = Ball(p=2, radius=0.0).model_copy(update={"radius": radii})
    together = match_features(curved, X, goal, both, steps=6)
    weights = normals(2, 12, 5, seed=3)
    for run, point in ((0, 1), (1, 4)):
        one = slice(run, run + 1), slice(point, point + 1)
        alone = match_features(
            lambda points, run=run: torch.tanh(0.1 * (points.flatten(2) @ weights[run : run + 1])),
            X[one],
            goal[one],
            Ball(p=2, radius=float(radii[run])),
            steps=6,
        )
        close(together[one], alone)
    assert torch.equal(torch.get_rng_state(), before)


def test_the_caller_need_not_enable_gradients():
    with torch.no_grad():
        points = match_features(curved, X, normals(*SHAPE, seed=1), Ball(radius=0.3), steps=3)
        found = invert_features(curved, curved(X), torch.zeros_like(X), steps=3)
    assert not points.requires_grad
    assert not found.points.requires_grad
    assert (points != X).any()


def test_a_relative_radius_is_refused():
    with pytest.raises(ValueError, match=says("`ball.relative_to`", "'signal'", " out")):
        match_features(curved, X, X, Ball(radius=0.1, relative_to="signal"))


FIGURE_3: dict[str, Any] = {"alpha": 2.0, "beta": 1.0, "noise_std": 0.1}


def test_non_robust_features_fool_only_networks_of_non_robust_features():
    """Table 2 in small: NRF-PGD with w_i = v_i as reference, against gamma v_i and against gamma u_i."""
    data = FeaturePatches(samples=20, tokens=16, dim=100, **FIGURE_3)
    network = PatchCNN(width=1, q=3, threshold=1.0, init_std=1.0)
    sample = data.sample(Streams(run_ids(1)), "test/0", 60, torch.float64)
    features = sample.latent["features"]
    robust, fragile = ({"weights": part[:, :, None]} for part in features.chunk(2, dim=1))
    source, goal = sample.y[0] == 0, sample.y[0] == 1
    count = min(int(source.sum()), int(goal.sum()))
    x, goals = sample.x[:, source][:, :count], sample.x[:, goal][:, :count]
    wanted = torch.ones(1, count, dtype=torch.float64)
    ball = Ball(p="inf", radius=1.2, per="sample")
    points = match_features(representation(network, fragile), x, goals, ball, steps=40)
    assert inside(ball, points, x)

    def success(params: Params, points: Tensor) -> float:
        sharp = {"weights": 10 * params["weights"]}
        return float(targeted_success(network.forward(sharp, points), wanted))

    assert success(fragile, x) == success(robust, x) == 0
    assert success(fragile, points) == 1
    assert success(robust, points) == 0
    # The robust network could have been fooled inside this ball, only not by these features.
    strong = attacked(
        AllPatch(clip=1.2), network, robust, data, x, 0 * wanted, _latent(sample, source, count)
    )
    assert success(robust, strong) == 1


def _latent(sample: Any, keep: Tensor, count: int) -> dict[str, Tensor]:
    parts = {name: sample.latent[name][:, keep][:, :count] for name in ("robust", "strength")}
    return {"features": sample.latent["features"], **parts}


def test_an_invertible_map_is_inverted():
    """From zero, with no knowledge of X."""
    represent = lambda points: points.flatten(2) @ (torch.eye(12).double() + 0.1 * normals(12, 12))  # noqa: E731
    found = invert_features(represent, represent(X), torch.zeros_like(X), steps=500)
    close(found.points, X, 1e-6)
    assert (found.distance < 1e-6).all()


def test_inversion_returns_the_relative_distance():
    goal = linear_map(6)(X)
    start = normals(*SHAPE, seed=5)
    before = (linear_map(6)(start) - goal).norm(dim=2) / goal.norm(dim=2)
    close(invert_features(linear_map(6), goal, start, steps=0).distance, before)
    found = invert_features(linear_map(6), goal, start, steps=400)
    assert (found.distance < 1e-5).all()
    close(found.distance, (linear_map(6)(found.points) - goal).norm(dim=2) / goal.norm(dim=2))


def test_inversion_moves_by_whole_points():
    """The first step has length `step` and goes straight down."""
    goal = linear_map(6)(X)
    found = invert_features(linear_map(6), goal, torch.zeros_like(X), steps=1, step=0.01)
    down = goal @ normals(2, 12, 6, seed=3).transpose(1, 2)
    close(found.points.flatten(2), 0.01 * down / down.norm(dim=2, keepdim=True))


def test_inversion_stays_in_the_box():
    pictures = torch.sigmoid(X)
    goal, start = curved(pictures), torch.full_like(X, 3.0)
    found = invert_features(curved, goal, start, steps=60, box=(0.0, 1.0))
    assert float(found.points.min()) >= 0
    assert float(found.points.max()) <= 1
    assert (found.distance < 1e-3).all()
    at_once = invert_features(curved, goal, start, steps=0, box=(0.0, 1.0))
    assert torch.equal(at_once.points, torch.ones_like(X))
    with pytest.raises(ValueError, match=says("`box`", "lowest < highest", "(1.0, 0.0)")):
        invert_features(curved, goal, start, box=(1.0, 0.0))


DATA = small_data()
CNN = PatchCNN(width=4, classes=3, threshold=0.5, init_std=0.5)
TWO_LAYER = TwoLayer(width=6, preset="torch_default")
HEADS = small_network(0.8, 0.8, heads=2)
UNIFORM = small_network(attend="uniform")
LINEAR = Linear(init_std=1.0)
VIT = VisionTransformer(hidden=6, heads=2, mlp=5, classes=3)


def read_out(network: Any, params: Params, features: Tensor) -> Tensor:
    """The outputs, from the last layer alone."""
    if isinstance(network, PatchCNN):
        return features.unflatten(2, (network.classes, network.width)).sum(3)
    if isinstance(network, TwoLayer):
        return (features @ params["outer"][..., None])[..., 0] + params["outer_bias"][:, None]
    if isinstance(network, Attention):
        u = network.values(params).transpose(1, 2).flatten(1)
        return (features @ u[..., None])[..., 0]
    if isinstance(network, VisionTransformer):
        return features @ params["head"] + params["head_bias"][:, None]
    return (features @ params["u"][..., None])[..., 0]


@pytest.mark.parametrize(
    "network", [CNN, TWO_LAYER, HEADS, UNIFORM, LINEAR, VIT], ids=lambda network: network.label()
)
def test_outputs_and_gradients_can_be_read_from_the_representation(network: Network):
    streams = Streams(run_ids(2))
    x = DATA.sample(streams, "train", 4, torch.float64).x
    params = network.initial_params(DATA, streams, torch.float64)
    forward_pass = network.run(params, x)
    traced = x.clone().requires_grad_()
    outputs = read_out(network, params, representation(network, params)(traced))
    close(outputs.detach(), forward_pass.outputs)
    c = normals(*forward_pass.outputs.shape)
    (gradient,) = torch.autograd.grad(outputs, traced, c)
    close(gradient, forward_pass.inputs_gradient(c))


@pytest.fixture
def unknown() -> Iterator[Network]:
    """A network with no layer that is known; registered for one test only."""

    with forgetting():

        class Unknown(Network):
            def initial_params(self, data: Any, streams: Any, dtype: Any) -> Params: ...

            def forward(self, params: Params, x: Tensor) -> Tensor: ...

        yield Unknown()


def test_a_network_without_a_known_layer_is_refused(unknown):
    with pytest.raises(ValueError, match=says("`network`", "unknown", "`represent`")):
        representation(unknown, {})(X)


def test_success_is_the_share_classified_as_the_goal():
    outputs = torch.tensor([[[2.0, 1.0, 0.0], [0.0, 3.0, 1.0], [1.0, 1.0, 0.0], [0.0, 0.0, 9.0]]])
    assert float(targeted_success(outputs, torch.tensor([[0.0, 1.0, 1.0, 0.0]]))) == 0.5
    signed = torch.tensor([[1.0, -2.0, 0.0, 3.0]])
    assert float(targeted_success(signed, torch.tensor([[1.0, -1.0, 1.0, -1.0]]))) == 0.5
