"""Claims about Li and Li that need no study: the assumptions, Propositions 3.1 and 3.2, lemmas that are identities.

They use points and hand-made filters, small runs without noise, and recursions, in float64.
"""

import itertools
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from benign.attacks.attack import Target
from benign.attacks.model_free import AllPatch, FeatureSwap
from benign.attacks.pgd import PGD
from benign.claims import (
    Claims,
    Direction,
    Evidence,
    Kind,
    Measured,
    at_least,
    at_most,
    share,
    worst,
)
from benign.claims.identity import identity_batch, identity_steps, own_streams
from benign.data.feature_patches import FeaturePatches
from benign.data.model import Sample
from benign.losses import correct, margin
from benign.networks.patch_cnn import PatchCNN
from benign.papers.li import theory
from benign.papers.li.claims.studies import EPS, FIGURE, SEPARATED, Perturb, linf
from benign.papers.li.recursion import Features, Problem, feature_recursion, tensor_power
from benign.training.optimisers import GradientDescent
from benign.training.setup import Setup

CLAIMS = Claims("li")

GAMMAS = (1.0, 10.0, 100.0)
STREAMS = own_streams("li/claims")


def _data(law: dict) -> FeaturePatches:
    return FeaturePatches(samples=1, dim=100, noise_std=0.1, **law)


def _points(evidence: Evidence, data: FeaturePatches, least: int = 50) -> Sample:
    """Return fresh points; 400 without a failure show a share of 0.99."""
    count = max(least, evidence.size(50, 250, 1000))
    return data.sample(STREAMS, "test/0", count, torch.float64)


def _network_of(features: str, gamma: float, sample: Sample, data: FeaturePatches) -> Target:
    """Return the network w_i = gamma u_i (robust) or gamma v_i (non-robust), with one filter per class."""
    first = 0 if features == "robust" else data.classes
    rows = sample.latent["features"][:, first : first + data.classes]
    network = PatchCNN(width=1, threshold=1.0, init_std=1.0)
    return Target(network, {"weights": gamma * rows[:, :, None]}, data, sample, STREAMS)


def _right(target: Target, perturb: Perturb | None = None) -> Tensor:
    """Return which points are classified correctly, attacked or clean."""
    points = perturb(target) if perturb else target.x
    return correct(margin(target.run(points).outputs, target.y))[0].bool()


@CLAIMS.add("asm.separation", "Section 2.5", at_least(0.99))
def classes_are_separated(evidence: Evidence) -> Measured:
    """With the numbers of Figure 3, points of different classes are more than 2 eps apart in the l_inf norm."""
    data = _data(FIGURE)
    sample = _points(evidence, data)
    x, y = sample.x[0].flatten(1), sample.y[0]
    ones, others = x[y == 0], x[y == 1]
    distances = torch.cdist(ones, others, p=torch.inf)
    limit = theory.robust_accuracy_limit(ones.numpy(), others.numpy(), EPS)
    # Pairs that share a point are not independent, so each point counts once.
    apart = distances > 2 * EPS
    measured = share("pairs farther than 2 eps apart", apart.diagonal(), "disjoint pair")
    return measured.noting(
        f"of all pairs {float(apart.double().mean()):.3g}; "
        f"no classifier's robust accuracy on these points exceeds {limit:.3g}"
    )


@CLAIMS.add(
    "asm.consistency",
    "Assumption 2.3 with B.3; the conflict is derived",
    at_least(1.0),
    kind=Kind.IDENTITY,
)
def the_assumptions_are_consistent(evidence: Evidence) -> Measured:
    """Some numbers satisfy the density condition, eps >= beta, and the robustness of a network of robust features.

    The density condition is sum beta^q > sum alpha^q; robustness with two classes needs
    P < |J_R| max(1, (alpha-eps)/eps)^q. The slack is that of the tighter of the two: at least 1 where both hold.
    """
    steps = evidence.size(6, 14, 40)
    patches = [round(1.6**k) for k in range(1, 25)]
    strengths = [1.3**k for k in range(1, steps)]
    slacks = [
        min(
            theory.density_slack(robust, others, alpha, 1.0, q),
            theory.robust_network_slack(robust, others, alpha, eps, q),
        )
        for robust, others, q in itertools.product((1, 2, 5, 20), patches, (3, 4, 5))
        for eps, alpha in itertools.product([1.0, *strengths], strengths)
        if alpha > eps
    ]
    return worst("largest slack of the tighter condition", slacks)


@CLAIMS.add(
    "prop3.1.v-net-nonrobust",
    "Proposition 3.1",
    {"clean": at_least(0.99), "attacked": at_most(0.01, fails_above=0.5)},
    version=2,
)
def non_robust_filters_are_broken(evidence: Evidence) -> dict[str, Measured]:
    """The network w_i = gamma v_i classifies every clean point correctly, and every point wrongly under Delta(X, y)."""
    data = _data(FIGURE)
    sample = _points(evidence, data, least=400)
    networks = [_network_of("non_robust", gamma, sample, data) for gamma in GAMMAS]
    swap = FeatureSwap(clip=EPS).perturb
    clean = torch.stack([_right(network) for network in networks]).all(0)
    attacked = torch.stack([_right(network, swap) for network in networks]).any(0)
    return {
        "clean": share("points that are right for all gamma = 1, 10, 100", clean, "point"),
        "attacked": share("points that are right under Delta for some gamma", attacked, "point"),
    }


@CLAIMS.add(
    "prop3.2.u-net-robust",
    "Proposition 3.2",
    at_least(0.99, fails_below=0.5),
    robust=Direction.RISES,
    version=2,
)
def robust_filters_withstand(evidence: Evidence) -> Measured:
    """The network w_i = gamma u_i classifies every point correctly under every perturbation of at most eps.

    Judged inside Assumption 2.3 with separated classes: alpha = 2.5 > 2 eps, |J_R| = 1, |J_NR| = 19; by the gamma of 1,
    10 and 100 with which most points withstand all attacks.
    """
    data = _data(SEPARATED)
    sample = _points(evidence, data)
    attacks = {
        "Delta": FeatureSwap(clip=EPS),
        "all patches": AllPatch(clip=EPS),
        "margin ascent": PGD(ball=linf(), step=0.125),
    }
    networks = [_network_of("robust", gamma, sample, data) for gamma in GAMMAS]
    right = torch.stack(
        [
            torch.stack([_right(network, attack.perturb) for attack in attacks.values()])
            for network in networks
        ]
    )  # [gamma, attack, point]
    most = int(right.all(1).double().mean(1).argmax())
    slack = theory.linear_network_slack_corrected(1, data.tokens - 1, SEPARATED["alpha"], EPS)
    shares = right.double().mean(2).amax(0).tolist()
    accuracies = ", ".join(
        f"{name} {value:.2g}" for name, value in zip(attacks, shares, strict=True)
    )
    measured = share("points that withstand all attacks", right[most].all(0), "point")
    return measured.noting(f"{accuracies}; |J_R| (alpha - eps) / (P eps) = {slack:.2g}")


EXACT = 1e-10


@lru_cache(maxsize=4)
def noiseless(steps: int) -> tuple[Problem, Tensor, list[Tensor]]:
    """Return problem, features, and filters at every step of standard training on one point per class without noise."""
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
    """Return P_perp w."""
    along = torch.einsum("rimd,rfd->rimf", weights, features)
    return weights - torch.einsum("rimf,rfd->rimd", along, features)


@CLAIMS.add("lem5.1.exact", "Lemma 5.1, D.4", at_most(EXACT), kind=Kind.IDENTITY)
def features_follow_the_recursion(evidence: Evidence) -> Measured:
    """On points without noise the filters' correlations with all features follow a closed recursion exactly."""
    problem, features, weights = noiseless(evidence.size(60, 600, 600))
    states = feature_recursion(Features.of(problem, weights[0], features), len(weights) - 1)
    errors = []
    for state, filters in zip(states, weights, strict=True):
        trained = Features.of(problem, filters, features)
        pairs = ((state.robust, trained.robust), (state.non_robust, trained.non_robust))
        errors += [float((one - other).abs().max()) for one, other in pairs]
    return worst("difference between network and recursion", errors)


@CLAIMS.add("lemD2.perp-frozen", "Lemma D.2", at_most(EXACT), kind=Kind.IDENTITY)
def off_the_features_nothing_moves(evidence: Evidence) -> Measured:
    """Without noise, standard training never moves the part of a filter that is orthogonal to all features."""
    _, features, weights = noiseless(evidence.size(60, 600, 600))
    start = _off(weights[0], features)
    moves = [float((_off(filters, features) - start).abs().max()) for filters in weights]
    return worst("distance that P_perp w has moved", moves)


@CLAIMS.add("lemD7.offdiag", "Lemma D.7", at_most(EXACT), kind=Kind.IDENTITY)
def other_classes_never_grow(evidence: Evidence) -> Measured:
    """Without noise a filter's positive correlation with a feature of another class never increases, and a negative one
    never changes.

    Judged at every step of standard training with a small step size.
    """
    problem, features, weights = noiseless(evidence.size(60, 600, 600))
    states = [Features.of(problem, filters, features) for filters in weights]
    other = ~torch.eye(3, dtype=torch.bool)[:, None].expand(3, 10, 3)
    rises = []
    for before, after in itertools.pairwise(states):
        pairs = ((before.robust, after.robust), (before.non_robust, after.non_robust))
        for one, next_one in pairs:
            change = torch.where(one > 0, next_one - one, (next_one - one).abs())
            rises.append(float(change[:, other].max()))
    return worst("rise of a positive correlation, change of a negative one", rises)


@CLAIMS.add(
    "lemB2.closed-form",
    "Lemma B.2; the closed form is derived",
    at_most(0.15),
    kind=Kind.IDENTITY,
    levels={"hypothesis": 0.75},
)
def the_power_method_has_a_closed_form(evidence: Evidence) -> Measured:
    """While x grows to 1, y stays within a constant factor of its start.

    Where S (y0/x0)^(q-2) <= 0.75, y is then y0 [1 - S (y0/x0)^(q-2) (1 - x0^(q-2))]^(-1/(q-2)), within 15 %.
    """
    count = evidence.size(4, 12, 30)
    x0 = np.geomspace(0.02, 0.1, count)[:, None, None]
    share = np.linspace(0.05, evidence.levels["hypothesis"], count)[
        None, :, None
    ]  # S (y0/x0)^(q-2)
    ratio = np.array([0.2, 8 / 15, 1.0])[None, None, :]
    rate = 0.1  # the lemma has eta = 1/poly(d): a tenth of x a step at most
    errors = []
    for q in (3, 4):
        y0 = x0 * (share / ratio) ** (1 / (q - 2))
        x, y = (np.broadcast_to(part, y0.shape).copy() for part in (x0, y0))
        while (going := x < 1).any():
            y = np.where(going, y + rate * ratio * y ** (q - 1), y)
            x = np.where(going, x + rate * x ** (q - 1), x)
        closed = tensor_power(x0, y0, ratio, q, x, rate).y.numpy()
        errors += np.abs(y / closed - 1).ravel().tolist()
    return worst("relative error of the closed form", errors)
