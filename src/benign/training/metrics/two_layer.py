"""Active neurons, norms of weights and positions of attacked points: Wang et al., section 4 and appendix B.

A pair (point i, neuron s) is *active* where <w_s, .> > 0 on the whole ball around x_i, and it is *of one sign*
where y_i is the sign of a_s: A(t) and T of papers/wang.md. The ball is that of an l2 `PGD` on training
points; before the first attacked step, without an attack and with any other it is the clean point.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from benign.attacks.pgd import PGD
from benign.data.mixture import Mixture
from benign.losses import logistic_slope
from benign.networks.singular import largest_singular_value
from benign.networks.two_layer import TwoLayer, TwoLayerPass
from benign.training.descent import Step, training_attack
from benign.training.metrics.metric import PerRunValue, attacked, metric, running_metric
from benign.training.setup import Setup


def two_layer(setup: Setup) -> bool:
    return isinstance(setup.network, TwoLayer)


def attacked_two_layer(setup: Setup) -> bool:
    return attacked(setup) and two_layer(setup)


def attacked_mixture(setup: Setup) -> bool:
    return attacked_two_layer(setup) and isinstance(setup.data, Mixture)


def active_pairs(step: Step) -> Bool[Tensor, "runs samples width"]:
    """A(t) cap T: the active pairs of one sign (Wang Lemmas 4.5, B.21, B.26)."""
    clean = step.clean_pass
    assert isinstance(clean, TwoLayerPass)
    active = clean.preactivations > _reach(step)[:, None, :]
    return active & (step.batch.sample.y[:, :, None] == step.batch.params["outer"][:, None].sign())


def _reach(step: Step) -> Float[Tensor, "runs width"]:
    """Return the largest decrease of <w_s, .> on the ball of a point: alpha |w_s|, summed over the tokens' balls.

    Where a box cuts the ball (not `Ball.is_round`), this is an upper bound.
    """
    setup, weights = step.batch.setup, _weights(step)
    attack = setup.attack
    if (
        not isinstance(attack, PGD)
        or attack.ball.p != 2
        or attack.ball.relative_to not in (None, "signal")
        or training_attack(step.batch, step.number) is None
    ):
        return weights.new_zeros(weights.shape[:2])
    parts = setup.data.tokens if attack.ball.per == "token" else 1
    norms = torch.linalg.vector_norm(weights.unflatten(2, (parts, -1)), dim=3).sum(2)
    radius = torch.as_tensor(attack.ball.size(setup.data)).to(norms)
    return radius.reshape(-1, 1) * norms


@metric(
    "share of the (point, neuron) pairs with y_i = sign a_s that are active on the point's ball",
    applies=two_layer,
)
def active_share(step: Step) -> PerRunValue:
    signs = step.batch.params["outer"].sign()[:, None]
    together = (step.batch.sample.y[:, :, None] == signs).sum((1, 2))
    return _number(active_pairs(step).sum((1, 2)), step) / together


@metric(
    "neurons with sign a_s = y_i active on a point's ball, as a share of all neurons; smallest over points",
    applies=two_layer,
)
def active_neurons_min(step: Step) -> PerRunValue:
    return _number(active_pairs(step), step).mean(2).amin(1)


@metric(
    "points with y_i = sign a_s on whose ball a neuron is active, as a share of all points; smallest over neurons",
    applies=two_layer,
)
def active_points_min(step: Step) -> PerRunValue:
    return _number(active_pairs(step), step).mean(1).amin(1)


@running_metric(
    "active (point, neuron) pairs with y_i = sign a_s that become inactive, summed over steps, as a share of all pairs",
    finish=lambda state: state[:, 0],
    applies=lambda setup: (
        two_layer(setup) and setup.training.batches_per_epoch(setup.data.samples) == 1
    ),
)
def activation_lost(so_far: Tensor | None, step: Step) -> Float[Tensor, "runs one_and_pairs"]:
    """0 where A(t) cap T is in A(t+1) cap T at every step (Wang B.26, E1). The state ends with the pairs."""
    now = active_pairs(step).flatten(1)
    if so_far is None:
        lost = torch.zeros_like(step.loss)
    else:
        left = (so_far[:, 1:] > 0) & ~now
        lost = so_far[:, 0] + _number(left, step).mean(1)
    return torch.cat([lost[:, None], _number(now, step)], dim=1)


@metric("mean of g = -l'(y f) over the points trained on (Wang's G)", applies=two_layer)
def mean_loss_slope(step: Step) -> PerRunValue:
    return -logistic_slope(step.margins).mean(1)


@metric("largest over smallest g = -l'(y f) of a point trained on", applies=two_layer)
def loss_ratio(step: Step) -> PerRunValue:
    """Lemma 4.4. By logarithms: the slopes of well fitted points underflow."""
    logs = torch.nn.functional.logsigmoid(-step.margins)
    return (logs.amax(1) - logs.amin(1)).exp()


@metric(
    "largest distance of an attacked training point from the span of the clean ones",
    "length",
    attacked_two_layer,
)
def span_distance(step: Step) -> PerRunValue:
    """Lemma 4.1."""
    clean = step.batch.sample.x.flatten(2)
    moved = step.attacked.flatten(2) - clean
    if clean.shape[1] >= clean.shape[2]:  # they span everything
        return moved.new_zeros(len(moved))
    # By the Gram matrix in float64: on a GPU the factors of 64 matrices take as long as 50 attacked steps.
    points = clean.double()
    along = torch.linalg.solve(
        points @ points.transpose(1, 2), points @ moved.double().transpose(1, 2)
    )
    outside = moved.double() - along.transpose(1, 2) @ points
    return torch.linalg.vector_norm(outside, dim=2).amax(1).to(moved.dtype)


@metric(
    "smallest <mu, y_i x_i> / |mu|^2 of an attacked training point x_i whose label is not flipped",
    applies=attacked_mixture,
)
def signal_in_attacked(step: Step) -> PerRunValue:
    """Lemma B.11; NaN where every label is flipped."""
    sample = step.batch.sample
    signal = sample.latent["signal"][:, 0]
    along = sample.y * torch.einsum("rnd,rd->rn", step.attacked.flatten(2), signal)
    shares = along / signal.square().sum(1, keepdim=True)
    unflipped = sample.y == sample.clean_y
    smallest = torch.where(unflipped, shares, torch.inf).amin(1)
    return torch.where(unflipped.any(1), smallest, torch.nan)


@metric("Frobenius norm of the inner weights W", "1/length", two_layer)
def weight_norm(step: Step) -> PerRunValue:
    return torch.linalg.vector_norm(_weights(step), dim=(1, 2))


@metric("largest singular value of the inner weights W", "1/length", two_layer)
def spectral_norm(step: Step) -> PerRunValue:
    """NaN for a run that has diverged."""
    return largest_singular_value(_weights(step))


def _weights(step: Step) -> Float[Tensor, "runs width inputs"]:
    network = step.batch.setup.network
    assert isinstance(network, TwoLayer)
    return network.inner_weights(step.batch.params)


def _number(truth: Tensor, step: Step) -> Tensor:
    """Return truth values or counts as numbers of the run's precision, NaN in a diverged run."""
    diverged = ~step.loss.isfinite().reshape(-1, *[1] * (truth.ndim - 1))
    return truth.to(step.loss.dtype).masked_fill(diverged, torch.nan)
