"""Protocols of networks that can be trained in small coordinates."""

from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float, Float64
from torch import Tensor

from benign.data.model import DataModel
from benign.networks.network import Network, Params, Pass
from benign.streams import Streams


@runtime_checkable
class TokenRows(Protocol):
    """A network that depends on a token only through inner products with weight vectors, its rows.

    A step of gradient descent then adds combinations of tokens to the rows, and a gradient in a token is a
    combination of rows: nothing leaves the span of both (papers/jiang.md 7.2, papers/wang.md 6.1).
    """

    def row_count(self, data: DataModel) -> int:
        """Return the number of rows of initial weights that the span needs; equal rows count once.

        If it is 0, `initial_params` draws the rows in the span.
        """
        ...

    def initial_rows(self, params: Params, data: DataModel) -> Float[Tensor, "runs rows dim"]:
        """Return the rows of initial weights, first those that the span needs."""
        ...

    def with_rows(self, params: Params, rows: Float[Tensor, "runs rows dim"]) -> Params:
        """Return the initial weights with other rows, which may have another length."""
        ...

    def widened(self, params: Params, data: DataModel) -> Params:
        """Return the weights of any step in a space with one more coordinate, at which they are zero."""
        ...

    def why_not_gaussian(self) -> str | None:
        """Return why the rows are not independent isotropic Gaussian vectors, or None if they are."""
        ...

    def row_std(self, params: Params, data: DataModel) -> Float64[Tensor, "runs rows"]:
        """Return the standard deviation of a coordinate of each Gaussian row, for data of this dimension."""
        ...


@runtime_checkable
class WidthReduction(Protocol):
    """How a network is trained without its width: for P tokens only a few directions of its hidden space matter.

    Training without an attack moves only the restriction of the weights to the span of the tokens (papers/jiang.md
    7.1). An attack moves tokens along the weights themselves: `closed_params` adds them to the span (7.3).
    """

    @property
    def width(self) -> int:
        """Width of the whole network."""
        ...

    def width_met(self, tokens: int) -> int:
        """Return the number of hidden directions that matter for this many tokens."""
        ...

    def reduced(self, width: int) -> Network:
        """Return the network of this width."""
        ...

    def initial_params(
        self, tokens: int, data: DataModel, streams: Streams, dtype: torch.dtype
    ) -> Params:
        """Draw the initial weights of the reduced network on an orthonormal basis of the span of the tokens."""
        ...

    def closed_params(self, params: Params, data: DataModel, streams: Streams) -> Params:
        """Return these weights with a basis of their components beyond the span of the tokens."""
        ...

    def restricted(
        self, whole: Params, basis: Float[Tensor, "runs dim small"]
    ) -> tuple[Network, Params, Params]:
        """Return the reduced network, its weights on the span with this basis, and the frame that `lifted` needs."""
        ...

    def lifted(
        self, params: Params, whole: Params, frame: Params, basis: Float[Tensor, "runs dim small"]
    ) -> Params:
        """Return the weights of the whole network at which the reduced one has the weights `params`."""
        ...

    def point_weights(
        self, params: Params, data: DataModel, streams: Streams, count: int, directions: int
    ) -> Float[Tensor, "runs samples directions columns"]:
        """Draw the weights along new directions of each of `count` points, given the training run."""
        ...

    def point_pass(
        self,
        params: Params,
        x: Float[Tensor, "runs samples tokens small"],
        weights: Float[Tensor, "runs samples directions columns"],
    ) -> Pass:
        """Run the reduced network on points whose last coordinates are along those new directions."""
        ...

    def point_numbers(self, data: DataModel) -> int:
        """Return how many numbers `point_weights` and `point_pass` hold for one point, besides its tokens."""
        ...

    def score_spread(self, dim: int) -> Tensor:
        """Return how far an attack of radius 1 on a signal of length 1 moves a score at the start, also one a run."""
        ...


@runtime_checkable
class ReducibleWidth(TokenRows, Protocol):
    """A network whose width can be reduced."""

    def width_reduction(self) -> WidthReduction: ...

    def run(self, params: Params, x: Tensor) -> Pass: ...
