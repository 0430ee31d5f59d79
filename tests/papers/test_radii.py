"""Radii of the impossible and of the certain, against moves, classifiers and chains written out."""

import itertools
import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from benign.data.signal_noise import SignalNoise
from benign.papers.zhang import linear_mode, radii
from benign.streams import Streams
from tests.reference import close, doubles, normals, run_ids

each_norm = pytest.mark.parametrize("p", [1, 2, "inf"])
NORMS: dict[Any, float] = {1: 1, 2: 2, "inf": math.inf}


def points(runs: int = 2, samples: int = 6, seed: int = 0, **fields: Any):
    sizes: dict[str, Any] = {"tokens": 4, "dim": 5, "signal": 2.0, "noise_std": 0.6}
    sizes |= {"samples": samples, "directions": "random"}
    data = SignalNoise(**(sizes | fields))
    sample = data.sample(Streams(run_ids(runs, seed)), "test/0", samples, torch.float64)
    return sample.x, sample.latent["signal"], sample.clean_y


def length(vector: Tensor, p: Any) -> float:
    return float(torch.linalg.vector_norm(vector, NORMS[p]))


# Radii of the signals alone.


def test_known_values_for_signals_on_the_axes():
    """papers/zhang.md section 4: l1 |mu|, l2 |mu|/sqrt2, linf |mu|/2."""
    _, signals, _ = points(runs=1, directions="axes")
    close(radii.universal_radius(signals, 1), doubles(2.0))
    close(radii.universal_radius(signals, 2), doubles(math.sqrt(2)))
    close(radii.universal_radius(signals, "inf"), doubles(1.0))
    for tokens, expected in ((2, 0.3536), (4, 0.1768), (16, 0.0442)):
        close(radii.linear_radius(signals, tokens) / 2, doubles(expected), 1e-3)


def test_the_linear_radius_is_where_training_stalls_without_noise():
    _, signals, _ = points()
    x = torch.zeros(2, 2, 4, 5, dtype=torch.float64)
    x[:, :, 0] = signals
    y = doubles(1.0, -1.0).expand(2, 2)
    close(radii.linear_radius(signals, 4), linear_mode.stall_radius(x, y))


@each_norm
def test_from_the_linear_radius_on_one_class_falls_for_every_u(p: Any):
    """Its margin without noise is at most 0: with noise, which is symmetric, it errs half of the time."""
    _, signals, _ = points(runs=1)
    tokens, dual = 3, {1: math.inf, 2: 2, "inf": 1}[p]
    best = -math.inf
    for seed in range(300):
        u = normals(5, seed=seed) + 3 * (signals[0, 0] - signals[0, 1])
        values = torch.stack([signals[0, 0] @ u, -(signals[0, 1] @ u)]) / tokens
        drop = float(radii.linear_radius(signals, tokens, p)) * torch.linalg.vector_norm(u, dual)
        assert float(values.min() - drop) <= 1e-12
        best = max(best, float(values.min() / drop))
    assert best > 0.7  # the radius is not far too large


# Two points of opposite classes that become one.


@each_norm
@pytest.mark.parametrize("projected", [True, False])
def test_r_perm_is_the_cost_of_a_merge_written_out(p: Any, projected: bool):
    x, signals, _ = points(projected=projected, noise_std=1.5, signal=4.0)
    result = radii.permutation_radius(x, signals, p)
    for run, sample in itertools.product(range(2), range(6)):
        plus, minus = signals[run]
        middle = (plus + minus) / 2
        costs = [max(length(plus - middle, p), length(minus - middle, p))]
        for noise in x[run, sample, 1:]:
            first, second = (plus + noise) / 2, (minus + noise) / 2
            moves = (plus - first, noise - second, minus - second, noise - first)
            costs.append(max(length(move, p) for move in moves))
        close(result[run, sample], doubles(min(costs))[0])


def test_r_perm_of_projected_noise_is_the_closed_form():
    x, signals, y = points(projected=True, noise_std=1.5, samples=40)
    mu = signals[:, 0].norm(dim=1)[:, None]
    noise = x[:, :, 1:].norm(dim=3).amin(2)
    expected = torch.minimum(mu / math.sqrt(2), (mu**2 + noise**2).sqrt() / 2)
    assert (expected < mu / math.sqrt(2)).any()
    assert (expected == mu / math.sqrt(2)).any()
    close(radii.permutation_radius(x, signals), expected)
    close(radii.chain_radius(x, signals), expected)
    close(radii.nearest_token_radius(x, signals, y), expected)


def test_r_perm_at_the_signal_to_noise_ratio_of_the_figures():
    """papers/zhang.md section 4: 0.5010 |mu| at SNR 16, 0.7071 |mu| at SNR 1 and below."""
    for snr, expected in ((16.0, 0.5010), (0.8, 0.7071)):
        sizes: dict[str, Any] = {"signal": None, "dim": 1024, "tokens": 2, "projected": True}
        x, signals, _ = points(snr=snr, **sizes)
        share = radii.permutation_radius(x, signals) / signals[:, :1].norm(dim=2)
        close(share.mean(), doubles(expected)[0], 1e-3)


@each_norm
def test_a_chain_is_the_best_of_all_orders_of_noise_tokens(p: Any):
    x, signals, _ = points(tokens=5, dim=2, noise_std=2.0, signal=4.0)
    result = radii.chain_radius(x, signals, p)
    direct = radii.permutation_radius(x, signals, p)
    for run, sample in itertools.product(range(2), range(6)):
        noise = list(x[run, sample, 1:])
        costs = []
        for size in range(len(noise) + 1):
            for way in itertools.permutations(noise, size):
                chain = [signals[run, 0], *way, signals[run, 1]]
                costs.append(max(length(a - b, p) for a, b in itertools.pairwise(chain)) / 2)
        close(result[run, sample], doubles(min(costs))[0])
    assert (result <= direct + 1e-12).all()
    assert (result < direct - 1e-3).any()


def merged(x: Tensor, signals: Tensor) -> tuple[Tensor, Tensor]:
    """One point of each class with the same noise, each moved as `permutation_radius` says (one run, p = 2)."""
    noise = x[1:]
    farther = torch.stack([(noise - mu).norm(dim=1) for mu in signals]).amax(0)
    a = int(farther.argmin())
    halves = [(mu + noise[a]) / 2 for mu in signals]
    rest = [token for index, token in enumerate(noise) if index != a]
    return torch.stack([halves[0], halves[1], *rest]), torch.stack([halves[1], halves[0], *rest])


def test_the_merge_is_in_both_balls_and_a_permutation():
    """The order of tokens is that of the unmoved points: signal, then xi_a."""
    x, signals, _ = points(runs=1, noise_std=0.3)
    radius = radii.permutation_radius(x, signals)[0]
    for point, tau in zip(x[0], radius, strict=True):
        left, right = merged(point, signals[0])
        a = int(torch.stack([(point[1:] - mu).norm(dim=1) for mu in signals[0]]).amax(0).argmin())
        noise = torch.cat([point[1 + a][None], point[1:][torch.arange(3) != a]])
        for moved, mu in ((left, signals[0, 0]), (right, signals[0, 1])):
            distance = (moved - torch.cat([mu[None], noise])).norm(dim=1).max()
            assert distance <= tau * (1 + 1e-12)
        assert torch.equal(left[[1, 0, 2, 3]], right)


# The nearest-token classifier.


def nearest_token(x: Tensor, signals: Tensor, p: Any) -> Tensor:
    """g(X), written out for [samples, tokens, dim]."""
    plus, minus = (torch.linalg.vector_norm(x - mu, NORMS[p], dim=2).amin(1) for mu in signals)
    return minus - plus


def worst_nearest_token(x: Tensor, signals: Tensor, y: Tensor, tau: Tensor, p: Any) -> Tensor:
    """y g(X) of one run after every token went towards mu_-y as far as its ball allows."""
    rival = torch.where(y[:, None] > 0, signals[1], signals[0])
    return y * nearest_token(towards(x, rival[:, None], tau, p), signals, p)


@settings(max_examples=30)
@given(p=st.sampled_from([1, 2, "inf"]), projected=st.booleans(), seed=st.integers(0, 10**6))
def test_below_its_radius_the_nearest_token_is_right(p: Any, projected: bool, seed: int):
    x, signals, y = points(runs=1, seed=seed, noise_std=1.0, projected=projected)
    tau = 0.999 * radii.nearest_token_radius(x, signals, y, p)[0]
    assert (worst_nearest_token(x[0], signals[0], y[0], tau, p) > 0).all()
    near = torch.nn.functional.normalize(normals(*x[0].shape, seed=seed), p=NORMS[p], dim=2)
    moved = x[0] + tau[:, None, None] * near
    assert (y[0] * nearest_token(moved, signals[0], p) > 0).all()


def test_with_projected_noise_it_is_wrong_just_above():
    """So R_perm is exact for permutation-invariant classifiers: none can be right beyond it."""
    x, signals, y = points(runs=1, noise_std=1.0, projected=True)
    tau = 1.001 * radii.nearest_token_radius(x, signals, y)[0]
    assert (worst_nearest_token(x[0], signals[0], y[0], tau, 2) < 0).all()


def towards(x: Tensor, goal: Tensor, tau: Tensor, p: Any) -> Tensor:
    """Every token as far towards the goal as the ball allows."""
    gap = goal - x
    size = torch.linalg.vector_norm(gap, NORMS[p], dim=2, keepdim=True)
    return x + gap * (tau[:, None, None] / size).clamp(max=1)


# Proven errors.


def test_proven_errors_are_shares_of_halves():
    x, signals, _ = points(noise_std=0.5, samples=30)
    chain = radii.chain_radius(x, signals)
    tau = chain.median(1).values
    close(radii.proven_error(x, signals, tau), (chain <= tau[:, None]).double().mean(1) / 2)
    everyone = radii.universal_radius(signals)
    for classifiers in ("any", "permutation_invariant", "uniform_attention"):
        close(radii.proven_error(x, signals, everyone, classifiers), doubles(0.5, 0.5))
    below = everyone * 0.999
    assert not radii.proven_error(x, signals, below, "any").any()
    linear = everyone / 4
    assert not radii.proven_error(x, signals, linear * 0.999, "uniform_attention").any()
    close(radii.proven_error(x, signals, linear * 1.001, "uniform_attention"), doubles(0.25, 0.25))
    assert not radii.proven_error(x, signals, linear * 1.001).any()


def test_no_linear_rule_beats_what_is_proven():
    """S7 gives the robust error of f(X) = <xbar, u> exactly."""
    x, signals, _ = points(projected=True, noise_std=0.5, samples=200)
    for tau, seed in itertools.product((0.2, 0.36, 0.5, 0.8, 1.1, 1.5), range(10)):
        u = 0.3 * normals(2, 5, seed=seed) + signals[:, 0] - signals[:, 1]
        error = linear_mode.population_error(u, signals, 0.5, 4, tau)
        # 200 points: 4 standard errors of half a share
        slack = 4 * 0.5 * 0.5 / math.sqrt(200)
        assert (error >= radii.proven_error(x, signals, tau, "uniform_attention") - slack).all()
        assert (error >= radii.proven_error(x, signals, tau, "any") - 1e-12).all()


@each_norm
def test_radii_are_in_order(p: Any):
    x, signals, y = points(noise_std=1.0, samples=50)
    chain, direct = radii.chain_radius(x, signals, p), radii.permutation_radius(x, signals, p)
    sure = torch.minimum(
        radii.nearest_token_radius(x, signals, y, p), radii.nearest_token_radius(x, signals, -y, p)
    )
    universal = radii.universal_radius(signals, p)[:, None]
    assert (sure <= chain * (1 + 1e-12)).all()
    assert (chain <= direct * (1 + 1e-12)).all()
    assert (direct <= universal * (1 + 1e-12)).all()


def test_one_token_has_the_universal_radius():
    x, signals, y = points(tokens=1)
    universal = radii.universal_radius(signals)[:, None].expand(2, 6)
    close(radii.permutation_radius(x, signals), universal)
    close(radii.chain_radius(x, signals), universal)
    close(radii.nearest_token_radius(x, signals, y), universal)


def test_a_run_alone_has_the_radii_it_has_among_others():
    x, signals, y = points(runs=3)
    for run in range(3):
        one = slice(run, run + 1)
        close(radii.chain_radius(x[one], signals[one]), radii.chain_radius(x, signals)[one], 1e-14)
        close(
            radii.nearest_token_radius(x[one], signals[one], y[one]),
            radii.nearest_token_radius(x, signals, y)[one],
            1e-14,
        )
