"""The two-layer convolutional network of Li & Li section 2, with closed-form gradients."""

from typing import Literal

import torch
from jaxtyping import Float, Float64
from torch import Tensor
from torch.nn.functional import pad, relu

from benign.axes import PerRun, Shape
from benign.data.model import DataModel, column
from benign.networks.network import Cost, Network, Params, Pass
from benign.spec import Count, Positive
from benign.streams import Streams

LARGEST_Q = 100
"""beyond it the activation is all but the ReLU of z - rho"""


def smoothed_relu(z: Tensor, q: int, threshold: float | Tensor) -> Tensor:
    """Li's smoothed ReLU: 0 below 0, z^q / (q rho^(q-1)) up to rho, then z - (1 - 1/q) rho."""
    inside = (z / threshold).clamp(0, 1)
    return threshold / q * inside**q + relu(z - threshold)  # clamp has slope 1 at its bound


def smoothed_relu_derivative(z: Tensor, q: int, threshold: float | Tensor) -> Tensor:
    """(z / rho)^(q-1) between 0 and rho, 0 below and 1 above: continuous, and rising."""
    return (z / threshold).clamp(0, 1) ** (q - 1)


def scaled_relu_and_slope(z: Tensor, q: int, threshold: float | Tensor) -> tuple[Tensor, Tensor]:
    """Li's smoothed ReLU divided by rho, and its slope: together in half as many passes over memory as apart."""
    above = (z / threshold).clamp_min_(0)
    inside = above.clamp_max(1)
    slope = inside ** (q - 1)
    return (above - inside).addcmul_(slope, inside, value=1 / q), slope


class PatchCNN(Network):
    """F_j(X) = sum_r sum_p psi(<w_jr, x_p>) for every class j (Li section 2); patches are tokens.

    psi is the smoothed ReLU; there are no biases and no output weights. `outputs` says what is
    seen of the F_j:

    - `classes`: all of them, for labels 0, ..., classes - 1. The loss is the cross-entropy.
    - `difference`: f = F_1 - F_0 of two classes, for labels -1 and +1 as `SignalNoise` and
      `Mixture` have them. Its logistic loss is the cross-entropy of F_0 and F_1, so this is the
      same training with class 0 called -1 and class 1 called +1.

    Parameters: `weights` [runs, classes, width, dim], the filters w_jr.

    >>> import benign as bo
    >>> bo.PatchCNN(width=4, classes=3, threshold=1.0, init_std=0.01).output_count()
    3
    """

    width: Shape[Count]
    """filters of a class, m"""
    classes: Shape[Count] = 2
    """number of classes k"""
    outputs: Literal["classes", "difference"] = "classes"
    """one output a class, or the difference of two classes"""
    q: Shape[Count] = 3
    """degree of the activation below the threshold; the paper's theory and experiments have 3"""
    threshold: PerRun[Positive]
    """rho, where the activation becomes linear (1 in Figure 3, 1/polylog(d) in the theory)"""
    init_std: PerRun[Positive]
    """sigma_0, standard deviation of an initial entry of w_jr (1/sqrt(d) in the theory)"""

    def check(self) -> None:
        if self.classes < 2:
            raise ValueError(
                f"`classes` must be at least 2, got {self.classes}: for labels -1 and +1 use "
                "`classes: 2` with `outputs: difference`"
            )
        if self.outputs == "difference" and self.classes != 2:
            raise ValueError(
                f"`classes` must be 2 with `outputs: difference`, got {self.classes}: "
                "use `outputs: classes`"
            )
        if not 2 <= self.q <= LARGEST_Q:
            raise ValueError(
                f"`q` must lie between 2 and {LARGEST_Q}, got {self.q}: "
                "below 2 the activation is not smooth; the paper uses 3"
            )

    def initial_params(self, data: DataModel, streams: Streams, dtype: torch.dtype) -> Params:
        normal = streams("init/weights").normal(self.classes, self.width, data.dim, dtype=dtype)
        return {"weights": normal.mul_(column(self.init_std, normal))}

    def activate(self, z: Float[Tensor, "runs *shape"]) -> Float[Tensor, "runs *shape"]:
        """psi(z), element by element, with each run's own threshold."""
        return smoothed_relu(z, self.q, column(self.threshold, z))

    def forward(self, params: Params, x: Tensor) -> Float[Tensor, "runs samples *classes"]:
        return PatchCNNPass(self, params, x).outputs

    def run(self, params: Params, x: Tensor) -> "PatchCNNPass":
        return PatchCNNPass(self, params, x)

    def output_count(self) -> int | None:
        return self.classes if self.outputs == "classes" else None

    def row_count(self, data: DataModel) -> int:
        """For small coordinates (benign.coordinates.rows): the rows are the filters."""
        return self.classes * self.width

    def initial_rows(self, params: Params, data: DataModel) -> Float[Tensor, "runs rows dim"]:
        return params["weights"].flatten(1, 2)

    def with_rows(self, params: Params, rows: Float[Tensor, "runs rows dim"]) -> Params:
        return {"weights": rows.unflatten(1, (self.classes, self.width))}

    def widened(self, params: Params, data: DataModel) -> Params:
        return {"weights": pad(params["weights"], (0, 1))}

    def why_not_gaussian(self) -> None:
        return None

    def row_std(self, params: Params, data: DataModel) -> Float64[Tensor, "runs rows"]:
        weights = params["weights"]
        std = torch.as_tensor(self.init_std, dtype=torch.float64, device=weights.device)
        return std.reshape(-1, 1).expand(len(weights), self.row_count(data))

    def cost(self, data: DataModel) -> Cost:
        filters = self.classes * self.width
        return Cost(
            weights=3 * filters * data.dim,
            point=data.tokens * (data.dim + 7 * filters),
            multiplies=data.tokens * data.dim * filters,
        )


class PatchCNNPass(Pass):
    """A forward pass with the gradients of papers/li.md 1.6.

    With the coefficients k_jrp = c_j psi'(<w_jr, x_p>), the weighted sum of a point's outputs has
    the gradients sum_p k_jrp x_p in w_jr and sum_jr k_jrp w_jr in x_p: one product each for all
    patches and filters.
    """

    def __init__(
        self, network: PatchCNN, params: Params, x: Float[Tensor, "runs samples tokens dim"]
    ):
        self._network, self._x = network, x
        self._patches = x.flatten(1, 2)
        self._filters = params["weights"].flatten(1, 2)
        products = torch.bmm(self._patches, self._filters.transpose(1, 2))
        self.preactivations: Float[Tensor, "runs samples tokens classes width"]
        self.preactivations = products.reshape(*x.shape[:3], network.classes, network.width)
        threshold = column(network.threshold, self.preactivations)
        active, self._slopes = scaled_relu_and_slope(self.preactivations, network.q, threshold)
        by_class = active.sum(4).sum(2) * threshold[..., 0, 0]
        difference = network.outputs == "difference"
        self.outputs = by_class[..., 1] - by_class[..., 0] if difference else by_class

    def _coefficients(
        self, c: Float[Tensor, "runs samples *classes"]
    ) -> Float[Tensor, "runs patches filters"]:
        if self._network.outputs == "difference":
            c = torch.stack((-c, c), dim=2)
        return (self._slopes * c[:, :, None, :, None]).flatten(3).flatten(1, 2)

    def params_gradient(self, c: Float[Tensor, "runs samples *classes"]) -> Params:
        gradient = torch.bmm(self._coefficients(c).transpose(1, 2), self._patches)
        return {"weights": gradient.unflatten(1, (self._network.classes, self._network.width))}

    def inputs_gradient(
        self, c: Float[Tensor, "runs samples *classes"]
    ) -> Float[Tensor, "runs samples tokens dim"]:
        return torch.bmm(self._coefficients(c), self._filters).reshape(self._x.shape)
