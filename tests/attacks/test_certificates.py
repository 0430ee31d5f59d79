"""Certificates: below every attack, exact where they can be, and what slow references say."""

import itertools
import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from benign.attacks import certificates
from benign.attacks.certificates import certified_margin, smallest_average
from benign.data.mixture import Mixture
from benign.losses import margin, margin_slope
from benign.networks.linear import Linear
from benign.networks.network import Network, Params
from benign.networks.patch_cnn import PatchCNN
from benign.networks.singular import spectral_bound
from benign.networks.two_layer import TwoLayer
from benign.streams import Streams
from tests.reference import (
    attacked,
    by_head,
    close,
    doubles,
    film,
    normals,
    run_ids,
    small_data,
    small_network,
    small_pgd,
    small_setup,
    start,
)
from tests.says import says

DATA = small_data(tokens=3, dim=4)
LINEAR: dict[str, Network] = {
    "linear": Linear(init_std=1.0),
    "uniform": small_network(attend="uniform", heads=2),
    "signal": small_network(attend="signal", heads=2),
    "values": small_network(score_std=0.6, exposed="values", heads=2),
}
BOUNDED: dict[str, Network] = {
    "attention": small_network(score_std=0.4),
    "heads": small_network(score_std=0.6, heads=2, hidden=2),
    "scores": small_network(score_std=0.6, exposed="scores"),
    "theory": TwoLayer(width=6, init_std=0.5),
    "leaky": TwoLayer(width=6, preset="hybrid", activation="leaky_relu", slope=0.3),
    "biases": TwoLayer(
        width=7,
        preset="torch_default",
        activation="smoothed_leaky_relu",
        slope=0.3,
        smoothness=1.5,
    ),
    "classes": PatchCNN(width=3, classes=3, threshold=0.5, init_std=0.7),
    "difference": PatchCNN(width=3, outputs="difference", q=2, threshold=0.8, init_std=0.7),
}
NETWORKS = LINEAR | BOUNDED
DUAL: dict[Any, float] = {1: math.inf, 2: 2, "inf": 1}
each_norm = pytest.mark.parametrize("p", [1, 2, "inf"])
each_ball = pytest.mark.parametrize("per", ["token", "sample"])
balls = {"p": st.sampled_from([1, 2, "inf"]), "per": st.sampled_from(["token", "sample"])}


def case(network: Network, runs: int = 2, samples: int = 3, seed: int = 0):
    """Parameters that are not those of a symmetric start, points and labels."""
    params = network.initial_params(DATA, Streams(run_ids(runs, seed)), torch.float64)
    for name, part in params.items():
        if name != "weights" or isinstance(network, PatchCNN):
            part += 0.3 * normals(*part.shape, seed=seed + len(name))
    x = normals(runs, samples, DATA.tokens, DATA.dim, seed=seed + 1)
    if network.output_count():
        return params, x, normals(runs, samples, seed=seed).argsort(1).double()
    return params, x, normals(runs, samples, seed=seed + 2).sign()


def steepest(slopes: Tensor, p: Any, per: str) -> Tensor:
    """Of unit length, token by token or point by point: where a linear function rises fastest."""
    units = slopes if per == "token" else slopes.flatten(2)
    if p == 2:
        units = torch.nn.functional.normalize(units, dim=-1)
    elif p == "inf":
        units = units.sign()
    else:
        top = torch.zeros_like(units).scatter(-1, units.abs().argmax(-1, keepdim=True), 1.0)
        units = top * units.sign()
    return units.reshape(slopes.shape)


def smallest_found(
    network: Network,
    params: Params,
    x: Tensor,
    y: Tensor,
    p: Any,
    radius: float,
    per: Any,
    steps: int = 40,
) -> Tensor:
    """The smallest margin along Frank-Wolfe descents from the point and from a corner of the ball.

    A step goes a part of the way to the best point for the slopes here: never outside, for any norm.
    """
    found = torch.full(x.shape[:2], math.inf, dtype=x.dtype)
    for begin in (torch.zeros_like(x), radius * steepest(normals(*x.shape, seed=9), p, per)):
        delta = begin
        for step in range(steps):
            here = network.attacked_pass(params, x + delta, x)
            found = torch.minimum(found, margin(here.outputs, y))
            slopes = here.inputs_gradient(margin_slope(here.outputs, y))
            delta = torch.lerp(delta, -radius * steepest(slopes, p, per), 2 / (step % 20 + 2))
    return found


# What every certificate promises.


@pytest.mark.parametrize("name", BOUNDED)
@settings(max_examples=6)
@given(**balls, radius=st.floats(0.01, 2.0), seed=st.integers(0, 10**6))
def test_no_attack_gets_below(name: str, p: Any, per: Any, radius: float, seed: int):
    network = NETWORKS[name]
    params, x, y = case(network, seed=seed)
    proven = certified_margin(network, params, x, y, p, radius, per)
    found = smallest_found(network, params, x, y, p, radius, per)
    assert proven is not None
    assert (proven <= found + 1e-10).all()


@pytest.mark.parametrize("name", NETWORKS)
@each_norm
@each_ball
def test_it_starts_at_the_margin_and_falls_with_the_radius(name: str, p: Any, per: Any):
    network = NETWORKS[name]
    params, x, y = case(network)
    clean = margin(network.forward(params, x), y)
    close(certified_margin(network, params, x, y, p, 0.0, per), clean)
    sizes = (0.0, 0.05, 0.3, 1.0, 4.0)
    bounds = [certified_margin(network, params, x, y, p, radius, per) for radius in sizes]
    for before, after in itertools.pairwise(bounds):
        assert before is not None
        assert after is not None
        assert (after <= before + 1e-12).all()
    assert bounds[-1] is not None
    assert (bounds[-1] < clean - 1e-6).all() or getattr(network, "exposed", "all") != "all"


@pytest.mark.parametrize("name", NETWORKS)
@each_ball
def test_the_bound_of_a_point_does_not_depend_on_the_others(name: str, per: Any):
    """With a radius of its own; one a run and one a point broadcast."""
    network = NETWORKS[name]
    params, x, y = case(network)
    radius = 0.2 + normals(2, 3, seed=5).abs()
    together = certified_margin(network, params, x, y, 2, radius, per)
    assert together is not None
    for run, sample in itertools.product(range(2), range(3)):
        alone = certified_margin(
            network,
            {key: part[run : run + 1] for key, part in params.items()},
            x[run : run + 1, sample : sample + 1],
            y[run : run + 1, sample : sample + 1],
            2,
            float(radius[run, sample]),
            per,
        )
        close(alone, together[run : run + 1, sample : sample + 1])
    by_run = certified_margin(network, params, x, y, 2, radius[:, :1], per)
    close(by_run, certified_margin(network, params, x, y, 2, radius[:, :1].expand(2, 3), per))


@pytest.mark.parametrize("name", NETWORKS)
def test_an_attack_of_the_package_gets_no_lower(name: str):
    network = NETWORKS[name]
    params, x, y = case(network, seed=3)
    for per in ("token", "sample"):
        pgd = small_pgd(radius=0.4, per=per, steps=60, step=0.1, keep="best")
        found = margin(
            network.attacked_pass(params, attacked(pgd, network, params, DATA, x, y), x).outputs, y
        )
        proven = certified_margin(network, params, x, y, 2, 0.4, per)
        assert proven is not None
        assert (proven <= found + 1e-10).all()
        if name in LINEAR:
            close(proven, found, 1e-6)


# Exact bounds.


@pytest.mark.parametrize("name", LINEAR)
@each_norm
@each_ball
def test_where_f_is_linear_the_bound_is_attained(name: str, p: Any, per: Any):
    network = NETWORKS[name]
    params, x, y = case(network)
    slopes = network.attacked_pass(params, x, x).inputs_gradient(y)
    moved = x - 0.7 * steepest(slopes, p, per)
    reached = y * network.attacked_pass(params, moved, x).outputs
    close(certified_margin(network, params, x, y, p, 0.7, per), reached)


@each_norm
def test_linear_mode_is_the_closed_form(p: Any):
    """papers/zhang.md S5: y <xbar, u> - tau |u|_p*; one ball for the point takes the factor M^(-1/p)."""
    network = Linear(init_std=1.0)
    params, x, y = case(network)
    norm = torch.linalg.vector_norm(params["u"], DUAL[p], dim=1)[:, None]
    clean = y * torch.einsum("rnd,rd->rn", x.mean(2), params["u"])
    share = 3 ** -(1 / (math.inf if p == "inf" else p))
    close(certified_margin(network, params, x, y, p, 0.7, "token"), clean - 0.7 * norm)
    close(certified_margin(network, params, x, y, p, 0.7, "sample"), clean - 0.7 * share * norm)


def test_attention_without_scores_has_the_linear_bound():
    """Nothing detects W_Q = W_K = 0; the intervals are points then."""
    network = small_network(score_std=0.0)
    params, x, y = case(network)
    linear = small_network(score_std=0.0, attend="uniform")
    for p in (1, 2, "inf"):
        expected = certified_margin(linear, params, x, y, p, 0.7, "token")
        close(certified_margin(network, params, x, y, p, 0.7, "token"), expected)


# Two layers.


def slow_neurons(network: TwoLayer, params: Params, point: Tensor, y: float, p, radius, per):
    """The bound by neurons of one run and one point."""
    total = y * params["outer_bias"] if "outer_bias" in params else 0.0
    for s, row in enumerate(params["inner"]):
        blocks = row.reshape(point.shape)
        if per == "token":
            reach = sum(torch.linalg.vector_norm(block, DUAL[p]) for block in blocks)
        else:
            reach = torch.linalg.vector_norm(row, DUAL[p])
        here = row @ point.flatten()
        if "inner_bias" in params:
            here = here + params["inner_bias"][s]
        ends = torch.stack([here - radius * reach, here + radius * reach])
        total = total + (y * params["outer"][s] * network.activate(ends)).min()
    return total


@pytest.mark.parametrize("name", ["theory", "leaky", "biases"])
@each_norm
@each_ball
def test_two_layers_have_the_better_of_two_bounds(name: str, p: Any, per: Any):
    network: Any = NETWORKS[name]
    params, x, y = case(network)
    tokens, dim = x.shape[2:]
    inside = {1: 1.0, 2: 1.0, "inf": math.sqrt(dim)}[p]
    shared = per == "sample" and p != "inf"
    inside *= 1.0 if shared else math.sqrt(tokens)
    for radius in (0.01, 0.5):
        result = certified_margin(network, params, x, y, p, radius, per)
        assert result is not None
        for run, n in itertools.product(range(2), range(3)):
            own = {key: part[run] for key, part in params.items()}
            label = float(y[run, n])
            by_neuron = slow_neurons(network, own, x[run, n], label, p, radius, per)
            slope = spectral_bound(own["inner"]) * own["outer"].norm()
            by_norm = label * network.forward(params, x)[run, n] - slope * inside * radius
            close(result[run, n], torch.maximum(torch.as_tensor(by_neuron), by_norm))


def test_each_of_the_two_bounds_is_the_better_one_somewhere():
    """Orthogonal rows of one sign: by norm. Rows that are parallel: by neuron."""
    network = TwoLayer(width=4, init_std=0.5)
    x, y = 3 * torch.ones(1, 1, 1, 4).double(), torch.ones(1, 1).double()
    outer = torch.full((1, 4), 0.5).double()
    orthogonal = {"inner": torch.eye(4).double()[None], "outer": outer}
    by_norm = certified_margin(network, orthogonal, x, y, 2, 1.0, "sample")
    assert by_norm is not None
    assert by_norm.item() == pytest.approx(5.0, rel=1e-3)  # `spectral_bound` is a little above 1
    parallel = {"inner": torch.eye(4).double()[None, :1].expand(1, 4, 4), "outer": outer}
    off = certified_margin(network, parallel, x, y, 2, 4.0, "sample")
    assert off is not None
    assert torch.equal(off, torch.zeros(1, 1).double())  # 6 - 2 * 4 by norm


@each_norm
@each_ball
def test_antiparallel_rows_make_the_bound_by_neurons_exact(p: Any, per: Any):
    """papers/wang.md 1.5: rows a_s c_s w all fall along one direction."""
    network = TwoLayer(width=6, activation="leaky_relu", slope=0.4, init_std=0.5)
    params, x, y = case(network)
    w, c = normals(2, 1, 12, seed=7), normals(2, 6, 1, seed=8).abs()
    params["inner"] = params["outer"].sign()[..., None] * c * w
    direction = steepest(w.reshape(2, 1, 3, 4).expand_as(x), p, per)
    moved = x - 0.5 * y[..., None, None] * direction
    reached = y * network.forward(params, moved)
    close(certified_margin(network, params, x, y, p, 0.5, per), reached)


def test_wangs_theory_mode_is_certified_nearly_tightly():
    """papers/wang.md 1.5 measured 0.147 under attack against 0.145 proven."""
    data = Mixture(samples=10, dim=300, signal=5.0)
    network = TwoLayer(width=20, init_std=1e-4)
    pgd = small_pgd(radius=0.5, per="sample", steps=30, step=0.2)
    setup = small_setup(data, network, pgd, rate=0.05, max_steps=15, first_attacked_step=1)
    last = film(start([setup]))[-1]
    params, x, y = last.params, last.x, last.y
    found = margin(network.forward(params, attacked(pgd, network, params, data, x, y)), y)
    proven = certified_margin(network, params, x, y, 2, 0.5, "sample")
    assert proven is not None
    assert (found > 0).all()
    assert (proven <= found + 1e-10).all()
    assert (proven >= 0.97 * found).all()


# Patches.


@each_norm
@each_ball
@pytest.mark.parametrize("name", ["classes", "difference"])
def test_patches_against_loops(name: str, p: Any, per: Any):
    network: Any = NETWORKS[name]
    params, x, y = case(network)
    result = certified_margin(network, params, x, y, p, 0.2, per)
    assert result is not None
    for run, n in itertools.product(range(2), range(3)):
        low, high = ([0.0] * network.classes for _ in range(2))
        for j, filters in enumerate(params["weights"][run]):
            for row, patch in itertools.product(filters, x[run, n]):
                reach = 0.2 * torch.linalg.vector_norm(row, DUAL[p])
                ends = torch.stack([row @ patch - reach, row @ patch + reach])[None]
                below, above = network.activate(ends)[0]
                low[j], high[j] = low[j] + float(below), high[j] + float(above)
        own = int(y[run, n]) if name == "classes" else int(y[run, n] > 0)
        rivals = [high[j] for j in range(network.classes) if j != own]
        close(result[run, n], doubles(low[own] - max(rivals))[0])


def test_the_difference_of_two_classes_has_the_bound_of_the_two_classes():
    difference: Any = NETWORKS["difference"]
    params, x, y = case(difference)
    both = difference.model_copy(update={"outputs": "classes"})
    close(
        certified_margin(both, params, x, (y > 0).double(), "inf", 0.1, "token"),
        certified_margin(difference, params, x, y, "inf", 0.1, "token"),
    )


def test_opposite_filters_and_one_patch_make_the_bound_exact():
    network = PatchCNN(width=1, outputs="difference", threshold=0.5, init_std=1.0)
    w, x, y = normals(1, 4), normals(1, 5, 1, 4, seed=1), normals(1, 5, seed=2).sign()
    params = {"weights": torch.stack([-w, w], dim=1)[:, :, None]}
    moved = x - 0.3 * y[..., None, None] * w.sign()
    reached = y * network.forward(params, moved)
    close(certified_margin(network, params, x, y, "inf", 0.3, "token"), reached)


# Attention.


def corners(low: Tensor, high: Tensor, values: Tensor) -> Tensor:
    """The smallest softmax average over all 2^M corners of one row."""
    ends = itertools.product(*zip(low, high, strict=True))
    return torch.stack([torch.stack(each).softmax(0) @ values for each in ends]).min()


@settings(max_examples=40)
@given(
    tokens=st.integers(1, 5),
    width=st.sampled_from([0.0, 0.5, 5.0, 800.0]),
    ties=st.booleans(),
    seed=st.integers(0, 10**6),
)
def test_the_smallest_average_is_that_of_the_best_corner(tokens, width, ties, seed):
    values = normals(2, tokens, seed=seed)
    if ties:
        values = values.round()
    middle, half = 3 * normals(2, 3, tokens, seed=seed + 1), width * normals(2, 3, tokens).abs()
    result = smallest_average(values, middle - half, middle + half)
    for point, row in itertools.product(range(2), range(3)):
        best = corners((middle - half)[point, row], (middle + half)[point, row], values[point])
        assert abs(float(result[point, row] - best)) < 1e-12
    for share in (-0.9, 0.1, 0.7):
        inner = middle + half * share * normals(2, 3, tokens, seed=seed + 2).sign()
        assert (result <= (inner.softmax(-1) * values[:, None]).sum(-1) + 1e-12).all()


def slow_attention(network, params: Params, x: Tensor, y: Tensor, p, radius: float, per) -> Tensor:
    """The bound of one run and one point, entry by entry and corner by corner."""
    queries, keys = (
        by_head(network, part)[0] for part in (network.queries(params), network.keys(params))
    )
    total = torch.zeros((), dtype=x.dtype)
    embed = {1: 1.0, 2: 1.0, "inf": math.sqrt(x.shape[1])}[p]
    for head in range(network.heads):
        query, key, u = queries[head], keys[head], network.values(params)[0, :, head]
        mean = (x @ key).mean(0)
        both = torch.linalg.matrix_norm(query @ key.T, 2) * (radius * embed) ** 2
        values = y * (x @ u)
        if network.exposed == "all":
            values = values - radius * torch.linalg.vector_norm(u, DUAL[p])
        for left in x:
            low, high = [], []
            for right in x:
                score = left @ query @ (right @ key - mean)
                first = torch.linalg.vector_norm(query @ (right @ key - mean), DUAL[p])
                second = torch.linalg.vector_norm(key @ (left @ query), DUAL[p])
                move = radius * (first + second) + both
                low.append(score - move)
                high.append(score + move)
            total = total + corners(torch.stack(low), torch.stack(high), values) / len(x)
    return total


@pytest.mark.parametrize("name", ["attention", "heads", "scores"])
@each_norm
def test_attention_against_loops(name: str, p: Any):
    network: Any = NETWORKS[name]
    params, x, y = case(network)
    for radius in (0.05, 0.5):
        result = certified_margin(network, params, x, y, p, radius, "token")
        assert result is not None
        for run, n in itertools.product(range(2), range(3)):
            own = {key: part[run : run + 1] for key, part in params.items()}
            slow = slow_attention(network, own, x[run, n], y[run, n], p, radius, "token")
            close(result[run, n], slow)


@settings(max_examples=30)
@given(p=balls["p"], seed=st.integers(0, 10**6), radius=st.floats(0.01, 2.0))
def test_scores_stay_in_their_intervals(p: Any, seed: int, radius: float):
    """Also those of a token with itself; a row's scores count from its product with the mean clean key."""
    network = small_network(score_std=0.5, heads=2)
    params, x, y = case(network, seed=seed)
    reach = certificates.Reach(p, torch.full_like(y, radius), "token")
    low, high = certificates._score_intervals(network, params, x, reach)
    query, key = (
        by_head(network, part)[:, None] for part in (network.queries(params), network.keys(params))
    )
    centre = (x[:, :, None] @ key).mean(-2, keepdim=True)
    product = (query @ key.transpose(-1, -2))[:, 0, 0]
    left, _, right = torch.linalg.svd(product)
    for moves in (
        normals(*x.shape, seed=seed),
        left[:, None, None, :, 0] + right[:, None, None, 0],
    ):
        moved = x + radius * steepest(moves.expand_as(x).contiguous(), p, "token")
        tokens = moved[:, :, None]
        scores = (tokens @ query) @ (tokens @ key - centre).transpose(-1, -2)
        assert (scores >= low - 1e-10).all()
        assert (scores <= high + 1e-10).all()


def test_intervals_are_attained_where_one_token_moves_along_the_slope():
    """W_Q = w a^T and W_K = w b^T: all three terms reach their bounds together, for S_ll as well."""
    network = small_network(hidden=1)
    params, x, y = case(network, runs=1, samples=1)
    w = torch.nn.functional.normalize(normals(4), dim=0)
    params["weights"][0, :, 0] = w
    params["weights"][0, :, 1] = w
    along = x[0, 0] @ w
    x = x + (1 + along.abs().max() - along)[None, None, :, None] * w  # all products with w equal
    reach = certificates.Reach(2, torch.full_like(y, 0.5), "token")
    _, high = certificates._score_intervals(network, params, x, reach)
    moved = (x + 0.5 * w)[0, 0] @ w
    centre = (x[0, 0] @ w).mean()
    close(high[0, 0, 0], moved[:, None] * (moved - centre)[None, :])


# Missing certificates and wrong arguments.


class Cubic(Linear):
    """Another function than its base class."""

    def forward(self, params: Params, x: Tensor) -> Tensor:
        return super().forward(params, x) ** 3


def test_a_network_has_a_certificate_when_it_registers_one(monkeypatch):
    """A subclass does not inherit it."""
    network = Cubic(init_std=1.0)
    params, x, y = case(network)
    monkeypatch.setattr(certificates, "CERTIFICATES", dict(certificates.CERTIFICATES))
    assert certified_margin(network, params, x, y, 2, 0.1, "token") is None

    @certificates.certificate(Cubic)
    def cubed(network, params, x, y, reach):
        return certificates._linear(Linear(), params, x, y, reach) ** 3

    expected = certified_margin(Linear(), params, x, y, 2, 0.1, "token")
    assert expected is not None
    close(certified_margin(network, params, x, y, 2, 0.1, "token"), expected**3)


def test_no_certificate_counts_coordinates():
    network = NETWORKS["linear"]
    params, x, y = case(network)
    assert certified_margin(network, params, x, y, 0, 1.0, "token") is None


def test_a_box_is_ignored():
    network = NETWORKS["attention"]
    params, x, y = case(network)
    without = certified_margin(network, params, x, y, 2, 0.1, "token")
    close(certified_margin(network, params, x, y, 2, 0.1, "token", box=(-1.0, 1.0)), without)


@pytest.mark.parametrize(
    ("radius", "parts"),
    [
        (torch.ones(2), ["`radius`", "number", "[runs, samples]", "(2,)"]),
        (-0.1, ["`radius`", "negative", "-0.1"]),
    ],
)
def test_a_wrong_radius_is_named(radius: Any, parts: list[str]):
    network = NETWORKS["linear"]
    params, x, y = case(network)
    with pytest.raises(ValueError, match=says(*parts)):
        certified_margin(network, params, x, y, 2, radius, "token")


@pytest.mark.parametrize("name", NETWORKS)
def test_a_run_that_diverged_is_not_certified_and_harms_no_other(name: str):
    network = NETWORKS[name]
    params, x, y = case(network)
    before = certified_margin(network, params, x, y, 2, 0.1, "token")
    assert before is not None
    for part in params.values():
        part[0] = math.nan
    after = certified_margin(network, params, x, y, 2, 0.1, "token")
    assert after is not None
    assert after[0].isnan().all()
    close(after[1], before[1], 1e-14)


@pytest.mark.parametrize("name", NETWORKS)
def test_single_precision_stays_single(name: str):
    network = NETWORKS[name]
    params, x, y = case(network)
    single = {key: part.float() for key, part in params.items()}
    result = certified_margin(network, single, x.float(), y.float(), 2, 0.1, "sample")
    assert result is not None
    assert result.dtype == torch.float32
    close(result.double(), certified_margin(network, params, x, y, 2, 0.1, "sample"), 1e-4)
