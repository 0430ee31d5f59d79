"""What a network declares so that attacks can climb in the coordinates of its weights (benign.attacks.products)."""

from typing import Protocol, runtime_checkable

from jaxtyping import Float
from torch import Tensor

from benign.networks.network import Params, Pass

OfColumns = Float[Tensor, "runs samples tokens columns"]


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
