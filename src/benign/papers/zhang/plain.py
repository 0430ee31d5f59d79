"""Algorithm 1 of Zhang et al. written out with all its matrices, by autograd: what identities are checked on.

Nothing here is shared with the network that is trained elsewhere (`benign.networks.attention`), which keeps
u = W_V w_O only and has its gradients in closed form.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import logsigmoid, normalize

from benign.data.signal_noise import SignalNoise
from benign.streams import RunId, Streams

Points = Float[Tensor, "runs samples tokens dim"]
Labels = Float[Tensor, "runs samples"]
Square = Float[Tensor, "runs samples tokens tokens"]


@dataclass(frozen=True)
class Weights:
    """W_Q, W_K, W_V and the fixed w_O of network (1), for every run."""

    query: Float[Tensor, "runs dim hidden"]
    key: Float[Tensor, "runs dim hidden"]
    value: Float[Tensor, "runs dim value_dim"]
    output: Float[Tensor, "runs value_dim"]

    @property
    def u(self) -> Float[Tensor, "runs dim"]:
        """W_V w_O."""
        return torch.einsum("rdv,rv->rd", self.value, self.output)

    @property
    def trained(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.query, self.key, self.value

    def moved(self, rate: float, gradients: tuple[Tensor, ...]) -> "Weights":
        query, key, value = (
            part - rate * g for part, g in zip(self.trained, gradients, strict=True)
        )
        return Weights(query, key, value, self.output)

    def over(self, factor: float) -> "Weights":
        """The trained matrices divided by a factor."""
        query, key, value = (part / factor for part in self.trained)
        return Weights(query, key, value, self.output)


@dataclass(frozen=True)
class PlainTraining:
    """What Algorithm 1 starts from in independent runs: signals, points, labels, weights, radius and rate."""

    signals: Float[Tensor, "runs 2 dim"]
    x: Points
    y: Labels
    weights: Weights
    radius: float
    """tau"""
    rate: float
    """eta"""

    def scaled(self, factor: float) -> "PlainTraining":
        """(c X, c tau, eta / c^2, W / c): the same trajectory of f (papers/zhang.md S3)."""
        return replace(
            self,
            signals=factor * self.signals,
            x=factor * self.x,
            weights=self.weights.over(factor),
            radius=factor * self.radius,
            rate=self.rate / factor**2,
        )


@dataclass(frozen=True)
class Move:
    """One step of Algorithm 1: the weights before and after, and the attacked points it was taken at."""

    before: Weights
    after: Weights
    attacked: Points
    y: Labels
    rate: float

    @cached_property
    def attention(self) -> Square:
        return attention(self.before, self.attacked)

    @cached_property
    def values(self) -> Float[Tensor, "runs samples tokens"]:
        """v = X~ u."""
        return torch.einsum("rnld,rd->rnl", self.attacked, self.before.u)

    @cached_property
    def column_sums(self) -> Float[Tensor, "runs samples tokens"]:
        """s_{n,j} = sum_l A_{n,lj}."""
        return self.attention.sum(2)

    @cached_property
    def slopes(self) -> Square:
        """G_{n,lj} = A_{n,lj} (v_{n,j} - sum_k A_{n,lk} v_{n,k})."""
        means = torch.einsum("rnlj,rnj->rnl", self.attention, self.values)
        return self.attention * (self.values[:, :, None, :] - means[..., None])

    @cached_property
    def pull(self) -> Labels:
        """c_n = (eta / (N M)) y_n sigma(-y_n f_n)."""
        samples, tokens = self.attacked.shape[1:3]
        margins = self.y * outputs(self.before, self.attacked)
        return self.rate / (samples * tokens) * self.y * torch.sigmoid(-margins)


def attention(weights: Weights, x: Points) -> Square:
    """Return A = softmax(X W_Q W_K^T X^T) by rows, eq. (1)."""
    queries, keys = (torch.einsum("rnld,rdh->rnlh", x, part) for part in weights.trained[:2])
    return torch.einsum("rnlh,rnjh->rnlj", queries, keys).softmax(3)


def outputs(weights: Weights, x: Points) -> Labels:
    """f(X) = (1/M) 1^T A X u, eq. (1)."""
    values = torch.einsum("rnld,rd->rnl", x, weights.u)
    return torch.einsum("rnlj,rnj->rnl", attention(weights, x), values).mean(2)


def losses(weights: Weights, x: Points, y: Labels) -> Labels:
    """Return log(1 + exp(-y f)) of every point."""
    return -logsigmoid(y * outputs(weights, x))


def attack(weights: Weights, x: Points, y: Labels, radius: float, steps: int = 20) -> Points:
    """Return the points that the PGD of Algorithm 1 reaches.

    It takes steps of a fifth of the radius along each token's gradient, on its l2 ball.
    """
    delta = torch.zeros_like(x)
    for _ in range(steps if radius else 0):
        delta.requires_grad_()
        with torch.enable_grad():
            (rise,) = torch.autograd.grad(losses(weights, x + delta, y).sum(), delta)
        delta = delta.detach() + 0.2 * radius * normalize(rise, dim=3, eps=1e-300)
        delta = delta * (radius / delta.norm(dim=3, keepdim=True).clamp_min(1e-300)).clamp_max(1)
    return x + delta


def gradients(weights: Weights, x: Points, y: Labels) -> tuple[Tensor, ...]:
    """Return the gradients of every run's mean loss in W_Q, W_K and W_V, by autograd."""
    query, key, value = (part.detach().requires_grad_() for part in weights.trained)
    with torch.enable_grad():
        total = losses(Weights(query, key, value, weights.output), x, y).mean(1).sum()
        return torch.autograd.grad(total, (query, key, value))


def walk(training: PlainTraining, steps: int) -> list[Move]:
    """Take so many steps of Algorithm 1 and return them."""
    weights, moves = training.weights, []
    for _ in range(steps):
        attacked = attack(weights, training.x, training.y, training.radius)
        after = weights.moved(training.rate, gradients(weights, attacked, training.y))
        moves.append(Move(weights, after, attacked, training.y, training.rate))
        weights = after
    return moves


def drawn(
    runs: int, radius: float, *, hidden: int = 5, samples: int = 6, tokens: int = 3, dim: int = 12
) -> PlainTraining:
    """Small runs of Definition 1 with weights of order 1; `radius` is a share of |mu|."""
    signal = 2.0
    data = SignalNoise(
        samples=samples, tokens=tokens, dim=dim, signal=signal, noise_std=0.5,
        projected=True, balanced=True, directions="random",
    )  # fmt: skip
    streams = Streams([RunId(0, index, "plain") for index in range(runs)])
    sample = data.sample(streams, "train", samples, torch.float64)
    query, key, value = (
        0.3 * streams(part).normal(dim, hidden) for part in ("query", "key", "value")
    )
    weights = Weights(query, key, value, streams("output").normal(hidden) / hidden**0.5)
    signals = sample.latent["signal"]
    return PlainTraining(signals, sample.x, sample.y, weights, radius * signal, rate=0.5)
