"""Radii at which no classifier, no network or no training can be robust: Theorem 3, its corrections, the stall radius.

Two points of opposite classes with the same noise are moved to the same point, where every classifier errs on one of
them. Rounding separates the two by 1e-16, so an output below 1e-9 of its size counts as zero, which is an error. All of
this is proven for every classifier: the claims are identities, and the moves need no attack that might be too weak.
"""

import math
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from benign.attacks.attack import Target
from benign.attacks.balls import Ball
from benign.attacks.model_free import CommonShift, Coupling
from benign.attacks.pgd import PGD
from benign.claims import (
    Claims,
    Evidence,
    Kind,
    Measured,
    at_least,
    at_most,
    exact,
    mean,
    share,
    worst,
)
from benign.claims.identity import identity_batch, identity_steps, own_streams
from benign.data.model import Sample
from benign.data.signal_noise import SignalNoise
from benign.networks.attention import Attention
from benign.networks.initial import GaussianInit
from benign.papers.zhang import linear_mode, radii
from benign.streams import Streams
from benign.training.optimisers import GradientDescent
from benign.training.setup import Setup

CLAIMS = Claims("zhang")
Classifier = Callable[[Tensor], Tensor]
"""points [runs, samples, tokens, dim] -> outputs [runs, samples]"""


class TwinPoints(NamedTuple):
    """Points of Definition 1 with fresh noise; the second half has the noise of the first half and the other label."""

    data: SignalNoise
    sample: Sample
    streams: Streams

    @property
    def signals(self) -> Tensor:
        return self.sample.latent["signal"]

    @property
    def length(self) -> Tensor:
        """|mu|, with a dimension for points."""
        return self.signals[:, :1].norm(dim=2)

    def coupled(self, meet: Literal["signal", "permutation"], radius: float) -> Tensor:
        """Return all points, moved to where the classes meet, within this share of |mu|."""
        ball = Ball(radius=radius, relative_to="signal")
        network = _networks()[0]  # `Coupling` does not use it
        return Coupling(ball=ball, meet=meet).perturb(
            Target(network, {}, self.data, self.sample, self.streams)
        )


def _twins(evidence: Evidence, **fields: Any) -> TwinPoints:
    runs, count = evidence.size((2, 50), (5, 200), (20, 1000))
    sizes = {"samples": count, "tokens": 4, "dim": 20, "snr": 2.0, "noise_std": 0.3}
    data = SignalNoise(**({**sizes, "projected": True, "directions": "random"} | fields))
    streams = own_streams("zhang/impossible", runs)
    drawn = data.sample(streams, "test/0", count, torch.float64)
    signals, y = drawn.latent["signal"], torch.ones_like(drawn.y)
    positive, negative = drawn.x, drawn.x.clone()
    positive[:, :, 0], negative[:, :, 0] = signals[:, :1], signals[:, 1:]
    labels = torch.cat([y, -y], 1)
    sample = Sample(torch.cat([positive, negative], 1), labels, labels, drawn.latent)
    return TwinPoints(data, sample, streams)


def _networks() -> list[Attention]:
    """Return networks (1), from uniform to sharp attention."""
    return [
        Attention(hidden=6, heads=heads, init=GaussianInit(score_std=score, value_std=1.0))
        for score, heads in ((0.0, 1), (0.1, 1), (1.0, 1), (0.3, 3))
    ]


def _invariant(twins: TwinPoints) -> list[Classifier]:
    """Return classifiers that ignore the order of tokens: random networks (1), and the nearest token."""

    def classifier(network: Attention) -> Classifier:
        params = network.initial_params(twins.data, twins.streams, torch.float64)
        # adding mu_+ - mu_- to u makes them separate the signals, as trained networks do
        u = network.values(params)
        u += 3 * (twins.signals[:, 0] - twins.signals[:, 1])[..., None] / twins.length[..., None]
        return lambda x: network.forward(params, x)

    return [*map(classifier, _networks()), lambda x: nearest_token(x, twins.signals)]


def _any(twins: TwinPoints) -> list[Classifier]:
    """Return the invariant classifiers, the best linear rule on token 1, and random features of the whole point."""
    across = twins.signals[:, 0] - twins.signals[:, 1]
    flat = twins.data.tokens * twins.data.dim
    inner, outer = twins.streams("inner").normal(flat, 64), twins.streams("outer").normal(64)

    def features(x: Tensor) -> Tensor:
        return torch.einsum("rnf,rf->rn", torch.tanh(x.flatten(2) @ inner), outer)

    def first_token(x: Tensor) -> Tensor:
        return torch.einsum("rnd,rd->rn", x[:, :, 0], across)

    return [*_invariant(twins), first_token, features]


def nearest_token(x: Tensor, signals: Tensor) -> Tensor:
    """Return min_j |x_j - mu_-| - min_j |x_j - mu_+|."""
    distances = torch.cdist(x, signals[:, None].expand(-1, x.shape[1], -1, -1)).amin(2)
    return distances[..., 1] - distances[..., 0]


def _smallest_error(twins: TwinPoints, moved: Tensor, classifiers: list[Classifier]) -> Measured:
    """Return the smallest error of any classifier in any run."""
    errors = []
    for classifier in classifiers:
        size = classifier(twins.sample.x).abs().amax(1, keepdim=True)
        wrong = twins.sample.y * classifier(moved) <= 1e-9 * size
        errors.append(wrong.double().mean(1))
    of = f"smallest robust error of {len(classifiers)} classifiers"
    return exact(of, float(torch.stack(errors).min()))


@CLAIMS.add("thm3.quarter", "Theorem 3", at_least(0.25), kind=Kind.IDENTITY)
def quarter(evidence: Evidence) -> Measured:
    """For every tau >= |mu|, every classifier has a robust test error of at least 1/4."""
    twins = _twins(evidence)
    return _smallest_error(twins, twins.coupled("signal", 1.0), _any(twins))


@CLAIMS.add("thm3.half_at_1_over_sqrt2", "derived (section 4)", at_least(0.5), kind=Kind.IDENTITY)
def half(evidence: Evidence) -> Measured:
    """Already at tau = 0.7072 |mu|, where the balls of the two signals meet, every classifier has a robust error of at
    least 1/2."""
    twins = _twins(evidence)
    return _smallest_error(twins, twins.coupled("signal", 0.7072), _any(twins))


_ABOVE, _BELOW = at_least(0.5), at_most(0.0)


@CLAIMS.add(
    "thm3.perm_barrier",
    "derived (section 4)",
    {
        "above": _ABOVE,
        "above_isotropic": _ABOVE,
        "moves": at_most(1.001),
        "below": _BELOW,
        "below_isotropic": _BELOW,
    },
    kind=Kind.IDENTITY,
)
def permutation_barrier(evidence: Evidence) -> dict[str, Measured]:
    """Just above R_perm, which is about |mu| / 2 for a strong signal, networks (1) err on half of the points; just
    below it the nearest token makes no error. This holds for noise orthogonal to the signals; with isotropic noise each
    of the two bounds of that case holds."""
    projected, isotropic = (_twins(evidence, projected=flag) for flag in (True, False))
    moved = projected.coupled("permutation", 1.0)
    lengths = (moved - projected.sample.x).norm(dim=3).amax(2)
    needed = lengths / radii.permutation_radius(projected.sample.x, projected.signals)
    return {
        "above": _barrier_error(projected),
        "above_isotropic": _barrier_error(isotropic),
        "moves": worst("longest move / R_perm", needed.flatten().numpy()),
        "below": _nearest_token_error(projected, 0.999),
        "below_isotropic": _nearest_token_error(isotropic, 0.999),
    }


def _barrier_error(twins: TwinPoints) -> Measured:
    """Return the smallest error of classifiers that ignore the order of tokens, where the classes meet."""
    return _smallest_error(twins, twins.coupled("permutation", 1.0), _invariant(twins))


def _nearest_token_error(twins: TwinPoints, part: float) -> Measured:
    """Return the error of the nearest token under its worst attack, at this part of its certified radius.

    All tokens move straight to mu_-y: none can come nearer to it, and token 1, which starts at mu_y, no farther from
    that.
    """
    x, y, signals = twins.sample.x, twins.sample.y, twins.signals
    tau = part * radii.nearest_token_radius(x, signals, y)
    chosen = (y > 0).long()[..., None].expand(-1, -1, x.shape[3])
    way = signals.gather(1, chosen)[:, :, None] - x
    length = way.norm(dim=3, keepdim=True)
    moved = x + way * (tau[..., None, None] / length).clamp_max(1)
    wrong = y * nearest_token(moved, signals) <= 0
    return exact("error of the nearest token", float(wrong.double().mean()))


@CLAIMS.add(
    "thm3.tight_radius",
    "Section 4, remark on Theorem 3",
    at_least(0.95, fails_below=0.9),
    kind=Kind.IDENTITY,
    informational=("network (1)",),
)
def tight_radius(evidence: Evidence) -> dict[str, Measured]:
    """The radius |mu| of Theorem 3 is almost tight: robust classifiers exist up to 0.95 |mu| or so."""
    twins = _twins(evidence, snr=16.0)
    meeting = radii.universal_radius(twins.signals)[:, None] / twins.length
    invariant = radii.permutation_radius(twins.sample.x, twins.signals) / twins.length
    return {
        "any": worst("largest r with a robust classifier", meeting.flatten().numpy()),
        "network (1)": mean("R_perm / |mu| at SNR 16", invariant.mean(1).numpy()),
    }


@CLAIMS.add(
    "appE.l0",
    "Appendix E",
    at_least(0.25),
    kind=Kind.IDENTITY,
    informational=("any_dense",),
    version=2,
)
def one_coordinate(evidence: Evidence) -> dict[str, Measured]:
    """In the worst case, changing one coordinate of every token suffices for a large robust test error: of every
    classifier if signals lie along axes, of networks (1) whatever the signals. (For dense signals a vote of coordinates
    resists it.)"""
    axes = _twins(evidence, directions="axes")
    zeroed = axes.sample.x.clone()
    zeroed[:, :, 0] = 0  # a signal along an axis has one coordinate
    dense = _twins(evidence, directions=_dense(20))
    return {
        "any_axes": _smallest_error(axes, zeroed, _any(axes)),
        "any_dense": _vote_error(dense),
        "network": _shifted_error(dense),
    }


def _dense(dim: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return two orthogonal signals without a zero coordinate."""
    return (1.0,) * dim, tuple(float((-1) ** place) for place in range(dim))


def _vote_error(twins: TwinPoints) -> Measured:
    """Return the robust error of a vote of the coordinates of token 1 that differ between the signals.

    An attack controls one vote at most.
    """
    first, signals = twins.sample.x[:, :, 0], twins.signals[:, None]
    nearer = (first - signals[:, :, 1]).abs() - (first - signals[:, :, 0]).abs()
    votes = twins.sample.y * nearer.sign().sum(2)
    return exact("robust error of a vote", float((votes - 2 <= 0).double().mean()))


def _shifted_error(twins: TwinPoints) -> Measured:
    """Return the smallest robust error of networks (1) when one coordinate of all tokens moves far."""
    errors = []
    for network in _networks():
        params = network.initial_params(twins.data, twins.streams, torch.float64)
        target = Target(network, params, twins.data, twins.sample, twins.streams)
        margins = twins.sample.y * target.run(CommonShift(size=1e4).perturb(target)).outputs
        errors.append((margins <= 0).double().mean())
    return exact("smallest robust error of networks (1)", float(torch.stack(errors).min()))


@CLAIMS.add("case2.stall_radius", "derived (S6)", at_least(0.9), kind=Kind.IDENTITY)
def stall_radius(evidence: Evidence) -> dict[str, Measured]:
    """Training with uniform attention stalls at log 2 from tau = |mean_n y_n xbar_n| on: at a radius 2 % below this it
    learns, and at one 2 % above it does not."""
    return {
        "below": share("runs below log 2", (_gain(evidence, 0.98) > 1e-9).numpy(), "run"),
        "above": share("runs not below log 2", (_gain(evidence, 1.02) <= 1e-9).numpy(), "run"),
    }


def _gain(evidence: Evidence, part: float) -> Tensor:
    """Return log 2 less the final robust loss, each run at this part of its own stall radius.

    The runs are the claim's own: a study has no axis for a radius that depends on the points of each run.
    """
    streams = own_streams("zhang/stall", evidence.size(30, 40, 100))
    data = SignalNoise(samples=10, tokens=2, dim=30, snr=1.0, noise_std=30**-0.5, projected=True)
    sample = data.sample(streams, "train", data.samples, torch.float64)
    stalls = linear_mode.stall_radius(sample.x, sample.y)
    cells = [
        Setup(
            data=data,
            network=Attention(
                hidden=1,
                init=GaussianInit(score_std=0.0, value_std=1e-3),
                output_norm=1.0,
                attend="uniform",
            ),
            # one step over the whole radius: the worst perturbation of a linear function
            attack=PGD(ball=Ball(radius=part * float(stall)), steps=1, step=1.0),
            training=GradientDescent(
                rate=0.5, stop_loss=0.0, max_steps=evidence.size(30, 200, 3000)
            ),
            precision="float64",
        )
        for stall in stalls
    ]
    *_, last = identity_steps(identity_batch(cells, "zhang/stall"))
    return math.log(2) - last.loss
