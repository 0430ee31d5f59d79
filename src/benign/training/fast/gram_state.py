"""Clean training on products: the training tokens do not move, so their products with the weights are updated instead.

Without an attack the columns of the weights move by combinations of the training tokens X [points, dim], and the
network sees these through Z = X W alone. A step W <- W - X^T C is then Z <- Z - X X^T C: one product with the Gram
matrix of the tokens in place of two with the tokens. W(0) - X^T (sum of all C) is computed when the weights are read.
The method's `update` is not called: this is for methods with the guarantee `plain_update`.
"""

from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from benign.networks.network import Network, Params, Pass
from benign.networks.products import CarriesProducts, Switch
from benign.spec.registry import has_guarantee

CARRYING = Switch()
plain_training = CARRYING.off
"""inside, batches that begin to train move their weights at every step"""


class GramState:
    """The products of a batch's training tokens with the columns of its weights, from step to step.

    Reading the weights drops the products: the reader may then change the weights, and rounding does not add up from
    one reading to the next. A batch whose weights are read in every step takes the steps of plain training.
    """

    def __init__(
        self,
        network: CarriesProducts,
        params: Params,
        columns: Float[Tensor, "runs dim columns"],
        points: Float[Tensor, "runs samples tokens dim"],
    ):
        self._network, self._params, self._columns, self._points = network, params, columns, points
        self._products: Tensor | None = None
        self._moved: Tensor | None = None
        """coefficients of the tokens in the move of the weights since they were last read"""

    @staticmethod
    def of(network: Network, params: Params, points: Tensor) -> "GramState | None":
        """Return the state, or None if the network has no guarantee for it or if it would be slower."""
        if not CARRYING.on or not isinstance(network, CarriesProducts):
            return None
        if not has_guarantee(network, "carried_products"):
            return None
        columns, (samples, tokens) = network.weight_columns(params), points.shape[1:3]
        if columns is None or not pays(samples * tokens, *columns.shape[1:]):
            return None
        return GramState(network, params, columns, points)

    @property
    def _tokens(self) -> Float[Tensor, "runs points dim"]:
        return self._points.flatten(1, 2)

    @cached_property
    def _gram(self) -> Float[Tensor, "runs points points"]:
        return torch.bmm(self._tokens, self._tokens.transpose(1, 2))

    def forward_pass(self) -> Pass:
        """Run the network on the training points."""
        if self._products is None:
            self._products = torch.bmm(self._tokens, self._columns)
        products = self._products.unflatten(1, self._points.shape[1:3])
        return self._network.carried_pass(self._params, products, self._points, self.flush)

    def move(self, coefficients: Float[Tensor, "runs points columns"]) -> None:
        """Move the weights by minus these combinations of the tokens."""
        if self._products is None:
            self._move_columns(coefficients)
            return
        # Not in place: passes of earlier steps use the old products.
        self._products = torch.baddbmm(self._products, self._gram, coefficients, alpha=-1)
        self._moved = coefficients if self._moved is None else self._moved.add_(coefficients)

    def flush(self) -> None:
        """Apply the steps so far to the weights, in place."""
        if self._moved is not None:
            self._move_columns(self._moved)
        self._products = self._moved = None

    def _move_columns(self, coefficients: Tensor) -> None:
        self._columns.baddbmm_(self._tokens.transpose(1, 2), coefficients, alpha=-1)


def pays(points: int, dim: int, columns: int) -> bool:
    """Return whether products need fewer multiplications in a step of a run."""
    through_space, by_products = 2 * points * dim * columns, points * points * columns
    # Measured on one thread: at 320 tokens and 1040 columns carrying took 0.20 of the time at d = 1024, 0.70 at 302,
    # 0.89 at 210. Where a step has few multiplications to save, it gained nothing: 0.9 to 1.16 of the time at 32 tokens
    # in 32 dimensions with 160 columns, 1.19 at 6 in 8.
    return by_products < 3 / 4 * through_space and through_space - by_products > 300_000
