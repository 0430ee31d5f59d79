"""Lemmas of Li and Li that are identities, or statements about a recursion: computed on the spot, in float64."""

import itertools
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from benign.claims import Claims, Evidence, Measured, at_most, worst
from benign.claims.identity import identity_batch, identity_steps
from benign.data.feature_patches import FeaturePatches
from benign.networks.patch_cnn import PatchCNN
from benign.papers.li.recursion import Features, Problem, feature_recursion, tensor_power
from benign.training.optimisers import GradientDescent
from benign.training.setup import Setup

CLAIMS = Claims("li")

EXACT = 1e-10


@lru_cache(maxsize=4)
def noiseless(steps: int) -> tuple[Problem, Tensor, list[Tensor]]:
    """Standard training on one point a class without noise: the problem, the features, the filters at every step."""
    setup = Setup(
        data=FeaturePatches(
            samples=3, classes=3, tokens=16, dim=30, alpha=2.0, beta=1.0, noise_std=0.0, balanced=True
        ),
        network=PatchCNN(width=10, classes=3, threshold=1.0, init_std=0.05),
        training=GradientDescent(rate=0.1, stop_loss=0.0, max_steps=steps),
        precision="float64",
    )  # fmt: skip
    batch = identity_batch([setup] * 3, "noiseless")
    weights = [step.batch.params["weights"].clone() for step in identity_steps(batch)]
    return Problem.of(setup), batch.sample.latent["features"], weights


def _off(weights: Tensor, features: Tensor) -> Tensor:
    """P_perp w."""
    along = torch.einsum("rimd,rfd->rimf", weights, features)
    return weights - torch.einsum("rimf,rfd->rimd", along, features)


@CLAIMS.add("lem5.1.exact", "Lemma 5.1, D.4", at_most(EXACT))
def features_follow_the_recursion(evidence: Evidence) -> Measured:
    """On points without noise the filters' correlations with all features follow a recursion of their own, exactly."""
    problem, features, weights = noiseless(evidence.size(60, 600, 600))
    states = feature_recursion(Features.of(problem, weights[0], features), len(weights) - 1)
    errors = []
    for state, filters in zip(states, weights, strict=True):
        found = Features.of(problem, filters, features)
        pairs = ((state.robust, found.robust), (state.non_robust, found.non_robust))
        errors += [float((one - other).abs().max()) for one, other in pairs]
    return worst("difference between network and recursion", errors)


@CLAIMS.add("lemD2.perp-frozen", "Lemma D.2", at_most(EXACT))
def off_the_features_nothing_moves(evidence: Evidence) -> Measured:
    """Without noise, standard training never moves the part of a filter that is orthogonal to all features."""
    _, features, weights = noiseless(evidence.size(60, 600, 600))
    start = _off(weights[0], features)
    moves = [float((_off(each, features) - start).abs().max()) for each in weights]
    return worst("distance that P_perp w has moved", moves)


@CLAIMS.add("lemD7.offdiag", "Lemma D.7", at_most(EXACT))
def other_classes_never_grow(evidence: Evidence) -> Measured:
    """Without noise, a positive correlation with another class's feature never increases and a negative one is frozen.

    In every step of standard training with a small step size.
    """
    problem, features, weights = noiseless(evidence.size(60, 600, 600))
    states = [Features.of(problem, each, features) for each in weights]
    other = ~torch.eye(3, dtype=torch.bool)[:, None].expand(3, 10, 3)
    rises = []
    for before, after in itertools.pairwise(states):
        pairs = ((before.robust, after.robust), (before.non_robust, after.non_robust))
        for one, next_one in pairs:
            change = torch.where(one > 0, next_one - one, (next_one - one).abs())
            rises.append(float(change[:, other].max()))
    return worst("rise of a positive one, move of a negative one", rises)


@CLAIMS.add("lemB2.closed-form", "Lemma B.2; the closed form is derived", at_most(0.15))
def the_power_method_has_a_closed_form(evidence: Evidence) -> Measured:
    """While x reaches 1, y stays within a factor of its start.

    Where S (y0/x0)^(q-2) <= 0.75, y is then y0 [1 - S (y0/x0)^(q-2) (1 - x0^(q-2))]^(-1/(q-2)), within 15 %.
    """
    count = evidence.size(4, 12, 30)
    x0 = np.geomspace(0.02, 0.1, count)[:, None, None]
    share = np.linspace(0.05, 0.75, count)[None, :, None]  # S (y0/x0)^(q-2)
    ratio = np.array([0.2, 8 / 15, 1.0])[None, None, :]
    rate = 0.1  # the lemma has eta = 1/poly(d): a tenth of x a step at most
    errors = []
    for q in (3, 4):
        y0 = x0 * (share / ratio) ** (1 / (q - 2))
        x, y = (np.broadcast_to(part, y0.shape).copy() for part in (x0, y0))
        while (going := x < 1).any():
            y = np.where(going, y + rate * ratio * y ** (q - 1), y)
            x = np.where(going, x + rate * x ** (q - 1), x)
        found = tensor_power(x0, y0, ratio, q, x, rate).y.numpy()
        errors += np.abs(y / found - 1).ravel().tolist()
    return worst("relative error of the closed form", errors)
