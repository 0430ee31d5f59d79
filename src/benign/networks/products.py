"""Protocols of networks that see tokens only through products with their weights.

They let attacks ascend in the coordinates of the weights (benign.attacks.gram), and clean training carry its products
(benign.training.fast.gram_state).
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol, runtime_checkable

from jaxtyping import Float
from torch import Tensor

from benign.networks.network import Params, Pass

OfColumns = Float[Tensor, "runs samples tokens columns"]


class Switch:
    """Whether products are used; tests and measurements switch them off for a block."""

    def __init__(self) -> None:
        self.on = True

    @contextmanager
    def off(self) -> Iterator[None]:
        before, self.on = self.on, False
        try:
            yield
        finally:
            self.on = before


@runtime_checkable
class ProductsPass(Protocol):
    """A pass on tokens given only by their products with the columns; these products are its inputs."""

    outputs: Float[Tensor, "runs samples *classes"]

    def inputs_gradient(
        self, c: Float[Tensor, "runs samples *classes"], out: Tensor | None = None
    ) -> OfColumns:
        """Return the gradient of sum(c * outputs): the coefficients of the columns in the gradient in a token."""
        ...


@runtime_checkable
class SeesProducts(Protocol):
    """A network that sees a token only through its products with the columns of one weight matrix.

    A gradient in a token is then a combination of the columns (papers/gram_pgd.md).
    """

    def weight_columns(self, params: Params) -> Float[Tensor, "runs inputs columns"] | None:
        """Return the matrix, or None if some part of the network sees a token otherwise."""
        ...

    def products_pass(self, params: Params, products: OfColumns) -> ProductsPass:
        """Run a pass on tokens with these products."""
        ...

    def known_pass(self, params: Params, points: Tensor, products: OfColumns) -> Pass:
        """Run the ordinary pass on points whose tokens have these products."""
        ...


@runtime_checkable
class CarriedPass(Protocol):
    """A pass that also returns the move of the columns as coefficients of the tokens."""

    def moves(
        self, c: Float[Tensor, "runs samples *classes"]
    ) -> Float[Tensor, "runs points columns"]:
        """Return the coefficients of the tokens in the change of the columns by a step along sum(c * outputs)."""
        ...


@runtime_checkable
class CarriesProducts(Protocol):
    """A network whose training moves only the columns of that matrix, each by a combination of tokens."""

    def weight_columns(self, params: Params) -> Float[Tensor, "runs dim columns"] | None:
        """Return the matrix itself, to be changed in place, or None if some part sees a token otherwise."""
        ...

    def carried_pass(
        self,
        params: Params,
        products: Float[Tensor, "runs samples tokens columns"],
        x: Float[Tensor, "runs samples tokens dim"],
        flush: Callable[[], None],
    ) -> Pass:
        """Run a `CarriedPass` on points with these products; it calls `flush` before it reads the matrix."""
        ...
