"""What a network declares so that it can be trained in small coordinates: its weights as vectors of token space."""

from typing import Protocol, runtime_checkable

from jaxtyping import Float, Float64
from torch import Tensor

from benign.data.model import DataModel
from benign.networks.network import Params


@runtime_checkable
class TokenRows(Protocol):
    """A network that sees a token only through inner products with weight vectors, its rows.

    A step of gradient descent then adds combinations of tokens to the rows, and a gradient in a token is a
    combination of rows: nothing leaves the span of both (papers/jiang.md 7.2, papers/wang.md 6.1).
    """

    def row_count(self, data: DataModel) -> int:
        """How many rows of initial weights the span needs; equal ones count once.

        Where it is 0, `initial_params` draws in the span what the rows are there.
        """
        ...

    def initial_rows(self, params: Params, data: DataModel) -> Float[Tensor, "runs rows dim"]:
        """The rows of initial weights, first those that the span needs."""
        ...

    def with_rows(self, params: Params, rows: Float[Tensor, "runs rows dim"]) -> Params:
        """The initial weights with other rows, which may be of another length."""
        ...

    def widened(self, params: Params, data: DataModel) -> Params:
        """The weights, at any time, in a space with one more coordinate, at which they are zero."""
        ...

    def why_not_gaussian(self) -> str | None:
        """What keeps the rows from being independent isotropic Gaussian vectors; None where nothing does."""
        ...

    def row_std(self, params: Params, data: DataModel) -> Float64[Tensor, "runs rows"]:
        """Standard deviation of a coordinate of each Gaussian row, for data of this dimension."""
        ...
