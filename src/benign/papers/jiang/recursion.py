"""Clean training of one attention head without weights, in inner products of tokens (papers/jiang.md 2.3, 7.1).

Every step moves W_Q, W_K and v = W_V w_O within the span of the P training tokens, the rows of T. So
losses, scores, values and attention follow from Gamma = T T^T, from the products of the queries Q = T W_Q
and the keys K = T W_K, and from u = T v. Nothing of length d or d_h is needed after the start.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from jaxtyping import Float, Int
from torch import Tensor

from benign.data.model import Sample
from benign.data.signal_noise import SignalNoise
from benign.losses import loss, loss_slope
from benign.networks.attention import Attention
from benign.spec.registry import has_guarantee
from benign.training.descent import Batch
from benign.training.setup import Setup

Square = Float[Tensor, "runs distinct distinct"]
Places = Int[Tensor, "runs samples tokens"]


@dataclass(frozen=True)
class Tokens:
    """T and the places E_n: token m of point n is row `places[n, m]` of `vectors`.

    Rows may repeat. Equal tokens then share out the coefficients of one, and every sum over them holds.
    """

    vectors: Float[Tensor, "runs distinct dim"]
    places: Places

    @staticmethod
    def all(x: Float[Tensor, "runs samples tokens dim"]) -> "Tokens":
        """A row for each of the N M tokens, for any data."""
        runs, samples, tokens, _ = x.shape
        rows = torch.arange(samples * tokens, device=x.device).reshape(1, samples, tokens)
        return Tokens(x.flatten(1, 2), rows.expand(runs, -1, -1))

    @staticmethod
    def distinct(sample: Sample) -> "Tokens":
        """The P = 2 + N (M - 1) tokens of signal-noise data: mu_+, mu_-, then the noise point by point."""
        runs, samples, tokens, _ = sample.x.shape
        vectors = torch.cat([sample.latent["signal"], sample.x[:, :, 1:].flatten(1, 2)], 1)
        noise = torch.arange(2, vectors.shape[1], device=vectors.device)
        noise = noise.reshape(1, samples, tokens - 1).expand(runs, -1, -1)
        return Tokens(vectors, torch.cat([(sample.clean_y < 0).long()[..., None], noise], 2))


@dataclass(frozen=True)
class State:
    """One step of a batch of runs, before its update.

    Constant: `gamma`, `places`, labels `y`, `rate` eta and `value_rate` eta |w_O|^2.
    Changing: `products` H = Z Z^T of Z = [Q; K], and `values` u = T v.
    """

    gamma: Square
    places: Places
    y: Float[Tensor, "runs samples"]
    rate: Float[Tensor, " runs"]
    value_rate: Float[Tensor, " runs"]
    products: Float[Tensor, "runs twice twice"]
    values: Float[Tensor, "runs distinct"]
    number: int = 0

    @staticmethod
    def start(
        tokens: Tokens,
        y: Float[Tensor, "runs samples"],
        queries: Float[Tensor, "runs dim hidden"],
        keys: Float[Tensor, "runs dim hidden"],
        v: Float[Tensor, "runs dim"],
        output_norm: Float[Tensor, " runs"],
        rate: Float[Tensor, " runs"],
    ) -> "State":
        """From W_Q, W_K, v and |w_O|."""
        vectors = tokens.vectors
        projected = torch.cat([vectors @ queries, vectors @ keys], 1)
        return State(
            gamma=vectors @ vectors.transpose(1, 2),
            places=tokens.places,
            y=y,
            rate=rate,
            value_rate=rate * output_norm**2,
            products=projected @ projected.transpose(1, 2),
            values=(vectors @ v[:, :, None])[..., 0],
        )

    @property
    def scores_of_rows(self) -> Square:
        """<q_a, k_b> of all pairs of rows of T."""
        rows = self.values.shape[1]
        return self.products[:, :rows, rows:]

    @cached_property
    def scores(self) -> Float[Tensor, "runs samples tokens tokens"]:
        """x_l^T W_Q W_K^T x_j within each point."""
        return self.scores_of_rows[self._pairs]

    @cached_property
    def attention(self) -> Float[Tensor, "runs samples tokens tokens"]:
        return self.scores.softmax(-1)

    @cached_property
    def token_values(self) -> Float[Tensor, "runs samples tokens"]:
        """z = X v."""
        return self.values.gather(1, self.places.flatten(1)).view_as(self.places)

    @cached_property
    def outputs(self) -> Float[Tensor, "runs samples"]:
        return self._rows.mean(-1)

    @cached_property
    def loss(self) -> Float[Tensor, " runs"]:
        return loss(self.outputs, self.y).mean(1)

    @cached_property
    def score_slope(self) -> Square:
        """B = (1/N) sum_n y_n l'_n E_n^T G_n E_n, the slope of the loss in the scores of rows."""
        moved = self.attention * (self.token_values[..., None, :] - self._rows[..., None])
        slope = torch.zeros_like(self.gamma)
        return slope.index_put_(self._pairs, self._weights[..., None] * moved, accumulate=True)

    @cached_property
    def value_slope(self) -> Float[Tensor, "runs distinct"]:
        """c = (1/(N M)) sum_n y_n l'_n E_n^T A_n^T 1, the slope of the loss in u."""
        pull = self._weights * self.attention.sum(-2)
        return torch.zeros_like(self.values).scatter_add_(
            1, self.places.flatten(1), pull.flatten(1)
        )

    @cached_property
    def alpha(self) -> Square:
        """-eta Gamma B: how the next queries are made of these keys, Q + alpha K."""
        return -self.rate[:, None, None] * (self.gamma @ self.score_slope)

    @cached_property
    def beta(self) -> Square:
        """-eta Gamma B^T: how the next keys are made of these queries, K + beta Q."""
        return -self.rate[:, None, None] * (self.gamma @ self.score_slope.transpose(1, 2))

    def after(self) -> "State":
        """The next step: Z <- L Z with L = [[1, alpha], [beta, 1]], u <- u - eta |w_O|^2 Gamma c."""
        step = torch.zeros_like(self.products)
        rows = self.values.shape[1]
        step[:, :rows, rows:], step[:, rows:, :rows] = self.alpha, self.beta
        step.diagonal(dim1=1, dim2=2).fill_(1)
        moved = (self.gamma @ self.value_slope[:, :, None])[..., 0]
        return replace(
            self,
            products=step @ self.products @ step.transpose(1, 2),
            values=self.values - self.value_rate[:, None] * moved,
            number=self.number + 1,
        )

    @property
    def _pairs(self) -> tuple[Tensor, Tensor, Tensor]:
        """Run and rows of T of every pair of tokens of a point."""
        runs = torch.arange(len(self.places), device=self.places.device)[:, None, None, None]
        return runs, self.places[..., :, None], self.places[..., None, :]

    @cached_property
    def _rows(self) -> Float[Tensor, "runs samples tokens"]:
        """A z, the mean value that each token attends to."""
        return (self.attention @ self.token_values[..., None])[..., 0]

    @cached_property
    def _weights(self) -> Float[Tensor, "runs samples 1"]:
        """y_n l'_n / (N M)."""
        _, samples, tokens = self.places.shape
        return (loss_slope(self.outputs, self.y) / (samples * tokens))[..., None]


def start(batch: Batch) -> State:
    """Return the state of a batch that has not been trained yet (papers/jiang.md 2.3)."""
    setup, params, sample = batch.setup, batch.params, batch.sample
    network = setup.network
    if not isinstance(network, Attention):
        raise ValueError(f"`network` must be attention, got {network.kind}: use Attention")
    _check(setup, network)
    signal_noise = isinstance(setup.data, SignalNoise)
    rate = torch.as_tensor(setup.training.rate, dtype=sample.x.dtype, device=sample.x.device)
    return State.start(
        Tokens.distinct(sample) if signal_noise else Tokens.all(sample.x),
        sample.y,
        network.queries(params),
        network.keys(params),
        network.values(params)[:, :, 0],
        torch.linalg.vector_norm(params["output"], dim=1),
        rate.expand(len(batch)),
    )


def predict(state: State, steps: int) -> Iterator[State]:
    """Yield this state and those after each of so many steps of the recursion (papers/jiang.md 2.3)."""
    yield state
    for _ in range(steps):
        state = state.after()
        yield state


def _check(setup: Setup, network: Attention) -> None:
    """The recursion is that of one learned head, all of it trained on clean points at a constant rate."""
    attack, training = setup.attack and setup.attack.kind, setup.training
    if not has_guarantee(training, "plain_update"):
        raise ValueError(
            f"`training` must be plain gradient descent for the recursion, got {training.kind}: change it, or train"
        )
    drops = 0 if training.constant_rate() else getattr(training, "drop_every", "another schedule")
    for field, value, wanted in (
        ("network.heads", network.heads, 1),
        ("network.attend", network.attend, "learned"),
        ("network.train", network.train, "all"),
        ("attack", attack, None),
        ("training.drop_every", drops, 0),
    ):
        if value != wanted:
            raise ValueError(
                f"`{field}` must be {wanted} for the recursion, got {value}: change it, or train"
            )
