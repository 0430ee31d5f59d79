"""What a network declares so that attacks can climb in the coordinates of its weights (benign.attacks.gram), and
clean training can carry its products (benign.training.fast.carried)."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol, runtime_checkable

from jaxtyping import Float
from torch import Tensor

from benign.networks.network import Params, Pass

OfColumns = Float[Tensor, "runs samples tokens columns"]


class Shortcut:
    """Whether a shorter way through products is taken; tests and measurements switch it off for a block."""

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
    """A pass on tokens that are known only by their products with the columns; these are its inputs."""

    outputs: Float[Tensor, "runs samples *classes"]

    def inputs_gradient(
        self, c: Float[Tensor, "runs samples *classes"], out: Tensor | None = None
    ) -> OfColumns:
        """Gradient of sum(c * outputs): the coefficients of the columns in the gradient in a token."""
        ...


@runtime_checkable
class SeesProducts(Protocol):
    """A network that sees a token only through its products with the columns of one weight matrix.

    A gradient in a token is then a combination of the columns (papers/gram_pgd.md).
    """

    def weight_columns(self, params: Params) -> Float[Tensor, "runs inputs columns"] | None:
        """The matrix; None where some part of the network sees something else."""
        ...

    def products_pass(self, params: Params, products: OfColumns) -> ProductsPass:
        """A pass on tokens with these products."""
        ...

    def known_pass(self, params: Params, points: Tensor, products: OfColumns) -> Pass:
        """The pass on points whose tokens have these products."""
        ...


@runtime_checkable
class CarriedPass(Protocol):
    """What a pass offers besides, on points whose products with the columns are known."""

    def moves(
        self, c: Float[Tensor, "runs samples *classes"]
    ) -> Float[Tensor, "runs points columns"]:
        """Coefficients of the tokens in what a step along sum(c * outputs) adds to the columns."""
        ...


@runtime_checkable
class CarriesProducts(Protocol):
    """A network that moves nothing but the columns of that matrix, each by a combination of the tokens it sees."""

    def weight_columns(self, params: Params) -> Float[Tensor, "runs dim columns"] | None:
        """The matrix itself, to be changed in place; None where some part of the network sees something else."""
        ...

    def carried_pass(
        self,
        params: Params,
        products: Float[Tensor, "runs samples tokens columns"],
        x: Float[Tensor, "runs samples tokens dim"],
        flush: Callable[[], None],
    ) -> Pass:
        """A `CarriedPass` on points with these products; `flush` is to be called before the matrix is read."""
        ...
