"""The two-layer convolutional network of Li & Li section 2, with closed-form gradients."""

from collections.abc import Iterator, Sequence
from typing import Literal

import torch
from jaxtyping import Float, Float64, Int
from torch import Tensor
from torch.nn.functional import pad, relu

from benign.data.model import DataModel, column
from benign.networks import patch_cnn_kernels as kernels
from benign.networks.network import Cost, Network, Params, Pass
from benign.spec.axes import PerRun, Shape, default
from benign.spec.base import Count, Positive
from benign.spec.registry import guarantees, has_guarantee
from benign.streams import Streams

LARGEST_Q = 100
"""for a larger q the activation is nearly the ReLU of z - rho"""
PIECE = 2**18
"""numbers <w_jr, x_p> that a CPU works on at a time, so that consecutive operations find them in its cache"""

Points = Float[Tensor, "runs samples tokens dim"]
Weights = Float[Tensor, "runs classes width dim"]
ByClass = Float[Tensor, "runs samples classes"]
ByFilter = Float[Tensor, "runs samples tokens classes width"]


def smoothed_relu(z: Tensor, q: int, threshold: float | Tensor) -> Tensor:
    """Return Li's smoothed ReLU: 0 below 0, z^q / (q rho^(q-1)) up to rho, then z - (1 - 1/q) rho."""
    inside = (z / threshold).clamp(0, 1)
    return threshold / q * inside**q + relu(z - threshold)  # clamp has slope 1 at its bound


def smoothed_relu_derivative(z: Tensor, q: int, threshold: float | Tensor) -> Tensor:
    """Return (z / rho)^(q-1) between 0 and rho, 0 below and 1 above: continuous and increasing."""
    return (z / threshold).clamp(0, 1) ** (q - 1)


def slopes(scaled: Tensor, q: int) -> Tensor:
    """Return psi'(z), given z / rho."""
    return scaled.clamp(0, 1).pow_(q - 1)


def weighted_slopes(scaled: ByFilter, c: ByClass, q: int) -> ByFilter:
    """Return c_j psi'(z_jrp), given z / rho."""
    if kernels.why_not(scaled) is None:
        return kernels.weighted_slopes(scaled, c, q)
    return scaled.clamp(0, 1).pow_(q - 1).mul_(c[:, :, None, :, None])


def class_sums(scaled: ByFilter, q: int) -> ByClass:
    """Return the sums of psi(z_jrp) / rho over filters and patches, given t = z / rho.

    With i = t clamped to [0, 1], psi is rho i^(q-1) (t - (1 - 1/q) i) for all t: fewer passes over memory than a
    formula for each of the three parts.
    """
    if kernels.why_not(scaled) is None:
        return kernels.class_sums(scaled, q)
    inside = scaled.clamp(0, 1)
    active = torch.sub(scaled, inside, alpha=1 - 1 / q).mul_(inside.pow_(q - 1))
    return active.sum((2, 4))


def joined(parts: Sequence[Tensor]) -> Tensor:
    """Return the concatenated pieces; a single one is not copied."""
    return parts[0] if len(parts) == 1 else torch.cat(tuple(parts))


@guarantees("recordable", "own_class_gradient")
class PatchCNN(Network):
    """F_j(X) = sum_r sum_p psi(<w_jr, x_p>) for every class j (Li section 2); patches are tokens.

    psi is the smoothed ReLU; there are no biases and no output weights. `outputs` says which functions
    of the F_j are the outputs:

    - `classes`: all F_j, for labels 0, ..., classes - 1. The loss is the cross-entropy.
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
    classes: Shape[Count] = default(2)
    """number of classes k"""
    outputs: Literal["classes", "difference"] = "classes"
    """one output a class, or the difference of two classes"""
    q: Shape[Count] = default(3)
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
        """Return psi(z), element by element, with each run's own threshold."""
        return smoothed_relu(z, self.q, column(self.threshold, z))

    def forward(self, params: Params, x: Tensor) -> Float[Tensor, "runs samples *classes"]:
        """Return the outputs by their definition; `run` computes the same faster."""
        z = torch.einsum("rnpd,rjmd->rnpjm", x, params["weights"])
        return self.outputs_of(self.activate(z).sum((2, 4)))

    def outputs_of(self, by_class: ByClass) -> Float[Tensor, "runs samples *classes"]:
        """Return the outputs, given the F_j."""
        if self.outputs == "difference":
            return by_class[..., 1] - by_class[..., 0]
        return by_class

    def run(self, params: Params, x: Tensor) -> "PatchCNNPass":
        return PatchCNNPass(self, params, x)

    def represent(self, params: Params, x: Tensor) -> Float[Tensor, "runs samples filters"]:
        """Return psi(<w_jr, x_p>) summed over patches, class after class."""
        return self.activate(self.run(params, x).preactivations).sum(2).flatten(2)

    @torch.no_grad()  # autograd could not follow pieces that are written where they belong
    def own_gradient(self, params: Params, x: Tensor, clean: Tensor, y: Tensor) -> Tensor:
        """Use the filters of the own class only: of k classes, a k-th of the multiplications."""
        # On a GPU sorting points costs what it saves: li/fig3 takes 41 us a run-step with it and 29 without at 64
        # runs on an H200, 19 and 23 at 512.
        by_class = self.outputs == "classes" and has_guarantee(self, "own_class_gradient")
        if not by_class or x.is_cuda:
            return super().own_gradient(params, x, clean, y)
        weights, gradient = params["weights"], x.new_empty(x.shape)
        scaled = weights / column(self.threshold, weights)
        pieces = self.pieces(x, y, weights, scaled, gradient)
        for points, labels, filters, divided, out in zip(*pieces, strict=True):
            _own_gradient(points, labels, filters, divided, self.q, out)
        return gradient

    def pieces(self, x: Tensor, *others: Tensor) -> list[tuple[Tensor, ...]]:
        """Return points, and other tensors of the same runs, in pieces of a few runs; on a GPU in one piece."""
        runs = len(x)
        if x.device.type == "cpu":
            runs = max(1, PIECE // (x.shape[1] * x.shape[2] * self.classes * self.width))
        return [part.split(runs) for part in (x, *others)]

    def output_count(self) -> int | None:
        return self.classes if self.outputs == "classes" else None

    def row_count(self, data: DataModel) -> int:
        """Return the number of rows for benign.reduction.protocols: the rows are the filters."""
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

    def __init__(self, network: PatchCNN, params: Params, x: Points):
        self._network, weights = network, params["weights"]
        self._rho = column(network.threshold, weights)
        self._x, self._weights, scaled = network.pieces(x, weights, weights / self._rho)
        self._scaled: list[ByFilter] = []
        sums = []
        for points, filters in zip(self._x, scaled, strict=True):
            products = torch.bmm(points.flatten(1, 2), filters.flatten(1, 2).transpose(1, 2))
            self._scaled.append(products.view(*points.shape[:3], *weights.shape[1:3]))
            sums.append(class_sums(self._scaled[-1], network.q))
        self.outputs = network.outputs_of(joined(sums) * self._rho[..., 0])

    @property
    def preactivations(self) -> ByFilter:
        """z_jrp = <w_jr, x_p>."""
        return joined(self._scaled) * self._rho[..., None]

    def params_gradient(self, c: Float[Tensor, "runs samples *classes"]) -> Params:
        pieces = zip(self._coefficients(c), self._x, strict=True)
        parts = [torch.bmm(k.transpose(1, 2), x.flatten(1, 2)) for k, x in pieces]
        return {"weights": joined(parts).unflatten(1, self._weights[0].shape[1:3])}

    def inputs_gradient(self, c: Float[Tensor, "runs samples *classes"]) -> Points:
        pieces = zip(self._coefficients(c), self._weights, strict=True)
        parts = [torch.bmm(k, weights.flatten(1, 2)) for k, weights in pieces]
        return joined(parts).unflatten(1, self._x[0].shape[1:3])

    def _coefficients(
        self, c: Float[Tensor, "runs samples *classes"]
    ) -> Iterator[Float[Tensor, "runs patches filters"]]:
        """Yield the k_jrp, piece by piece."""
        if self._network.outputs == "difference":
            c = torch.stack((-c, c), dim=2)
        for scaled, part in zip(self._scaled, c.split(len(self._scaled[0])), strict=True):
            yield weighted_slopes(scaled, part, self._network.q).flatten(3).flatten(1, 2)


def _own_gradient(
    x: Points,
    y: Float[Tensor, "runs samples"],
    weights: Weights,
    scaled: Weights,
    q: int,
    out: Points,
) -> None:
    """Write sum_r psi'(<w_yr, x_p>) w_yr into `out`; `scaled` are the weights divided by rho.

    Points are sorted by class, so that one batched product serves each class.
    """
    classes = weights.shape[1]
    samples, places = grouped(y, classes)
    patches = select_rows(x, samples).unflatten(1, (classes, -1)).flatten(2, 3).flatten(0, 1)
    along = torch.bmm(patches, scaled.flatten(0, 1).transpose(1, 2))
    gradient = torch.bmm(slopes(along, q), weights.flatten(0, 1))
    select_rows(gradient.view(len(x), -1, *x.shape[2:]), places, out=out)


def grouped(
    y: Float[Tensor, "runs samples"], classes: int
) -> tuple[Int[Tensor, "runs places"], Int[Tensor, "runs samples"]]:
    """Return groups of one size for labels 0, ..., classes - 1: the sample at each place, the place of each sample.

    Class j has the places from j times the size of the largest class on. Unused places contain sample 0.
    """
    own = y.long()
    belongs = own[..., None] == torch.arange(classes, device=y.device)
    before = belongs.cumsum(1)
    size = int(before[:, -1].max())
    places = own * size + before.gather(2, own[..., None])[..., 0] - 1
    samples = torch.arange(own.shape[1], device=y.device).expand_as(own)
    return own.new_zeros(len(own), classes * size).scatter_(1, places, samples), places


def select_rows(
    rows: Float[Tensor, "runs rows *shape"],
    places: Int[Tensor, "runs places"],
    out: Float[Tensor, "runs places *shape"] | None = None,
) -> Float[Tensor, "runs places *shape"]:
    """Return the rows of every run at these places."""
    first = torch.arange(len(rows), device=rows.device)[:, None] * rows.shape[1]
    chosen, flat_out = (places + first).flatten(), None if out is None else out.flatten(0, 1)
    selected = torch.index_select(rows.flatten(0, 1), 0, chosen, out=flat_out)
    return selected.unflatten(0, places.shape)
