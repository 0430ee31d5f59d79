"""The two-layer network of Wang et al. section 2, with closed-form gradients."""

import math
from typing import Any, Literal

import torch
from jaxtyping import Float, Float64
from torch import Tensor
from torch.nn import functional

from benign.data.model import DataModel
from benign.networks.initial import linear_default
from benign.networks.network import Cost, Network, Params, Pass
from benign.spec.axes import PerRun, Shape, default
from benign.spec.base import Count, NonNegative, Positive
from benign.spec.registry import guarantees
from benign.streams import Streams


def smoothed_leaky_relu(z: Tensor, slope: float, smoothness: float) -> Tensor:
    """Return Wang's smoothed leaky ReLU(gamma, H): a parabola on |z| <= 1/H, continued by its tangents.

    (1-gamma)/4 H z^2 + (1+gamma)/2 z inside; z - (1-gamma)/(4H) above; gamma z - (1-gamma)/(4H)
    below.
    """
    inside = z.clamp(-1 / smoothness, 1 / smoothness)
    parabola = inside * ((1 - slope) / 4 * smoothness * inside + (1 + slope) / 2)
    return parabola + smoothed_leaky_relu_derivative(z, slope, smoothness) * (z - inside)


def smoothed_leaky_relu_derivative(z: Tensor, slope: float, smoothness: float) -> Tensor:
    """Return gamma below -1/H, 1 above 1/H, linear between; the Lipschitz constant is (1-gamma)H/2."""
    return (1 + slope) / 2 + (1 - slope) / 2 * (smoothness * z).clamp(-1, 1)


def leaky_relu(z: Tensor, slope: float) -> Tensor:
    """Return z above 0 and `slope` z below; slope 0 is the ReLU."""
    return functional.leaky_relu(z, slope)


def leaky_relu_derivative(z: Tensor, slope: float) -> Tensor:
    """Return 1 above 0, `slope` below and, as in PyTorch, at 0."""
    return torch.where(z > 0, z.new_ones(()), slope)


@guarantees("recordable", "token_products", "separate_points")
class TwoLayer(Network):
    """f(x) = sum_s a_s phi(<w_s, x>) (Wang section 2); x is a point with its tokens end to end.

    `preset` is one of three readings of the paper (papers/wang.md 3.2), or the limit of the first:

    - `theory`: a_s = +-1/sqrt(width), half of each sign, fixed; no biases. The rows w_s of the two
      halves start as the same Gaussian draw, so that f = 0 at the start.
    - `vanishing`: `theory` in the limit omega_init -> 0, which condition (3) of Assumption 1 approaches
      (papers/wang.md 6.3). The start matters only through the signs of the <w_s, x_i>, for ReLU and
      leaky ReLU; not at all for a smoothed one, where phi' = phi'(0).
    - `hybrid`: the same with the standard deviation of PyTorch's default, 1/sqrt(3 inputs).
    - `torch_default`: f(x) = b + sum_s a_s phi(<w_s, x> + b_s), all trained, each layer drawn as
      `nn.Linear` does.

    While f = 0 its gradient in x is rounding noise, from which an attack with normalised steps would make
    a full-size perturbation: Wang's Algorithm 1 attacks from step 1 on
    (`training.first_attacked_step: 1`).

    Parameters: `inner` [runs, width, inputs], whose rows are w_s; `outer` [runs, width], the a_s;
    with `torch_default` also `inner_bias` [runs, width] and `outer_bias` [runs].

    >>> import benign as bo
    >>> network = bo.TwoLayer(width=40, init_std=1e-6)
    >>> network.preset, network.activation
    ('theory', 'relu')
    """

    width: Shape[Count]
    """number of neurons m"""
    activation: Literal["relu", "leaky_relu", "smoothed_leaky_relu"] = "relu"
    """phi"""
    slope: NonNegative | None = None
    """gamma: the slope of a leaky ReLU below 0, the least slope of a smoothed one"""
    smoothness: Positive | None = None
    """H of the smoothed leaky ReLU, which bends on |z| <= 1/H"""
    preset: Literal["theory", "vanishing", "hybrid", "torch_default"] = "theory"
    """which weights are trained and how they start"""
    init_std: PerRun[NonNegative | None] = default(None)
    """omega_init, standard deviation of an initial entry of w_s; for `preset: theory`"""

    def check(self) -> None:
        self._check_activation()
        if self.preset == "theory" and self.init_std is None:
            raise ValueError("`init_std` must be given with `preset: theory`, got None")
        if self.preset != "theory" and self.init_std is not None:
            raise ValueError(
                f"`init_std` belongs to `preset: theory`, got {self.init_std} with `{self.preset}`: "
                "leave it out"
            )
        if self.preset != "torch_default" and self.width % 2:
            raise ValueError(
                f"`width` must be even with `preset: {self.preset}`, whose neurons start in pairs, "
                f"got {self.width}: use {self.width + 1} or `preset: torch_default`"
            )

    def _check_activation(self) -> None:
        needed = {"relu": (), "leaky_relu": ("slope",)}.get(
            self.activation, ("slope", "smoothness")
        )
        for name in ("slope", "smoothness"):
            value = getattr(self, name)
            if value is None and name in needed:
                raise ValueError(
                    f"`{name}` must be given with `activation: {self.activation}`, got None"
                )
            if value is not None and name not in needed:
                raise ValueError(
                    f"`{name}` has no meaning with `activation: {self.activation}`, got {value}: "
                    "leave it out or choose another activation"
                )
        if self.slope is not None and self.slope > 1:
            raise ValueError(f"`slope` must be at most 1, the slope above 0, got {self.slope}")
        if self.activation == "smoothed_leaky_relu" and self.slope == 0:
            raise ValueError(
                "`slope` must be more than 0 with `activation: smoothed_leaky_relu`, got 0.0: "
                "Wang's smooth class has phi' >= gamma > 0"
            )

    def initial_params(self, data: DataModel, streams: Streams, dtype: torch.dtype) -> Params:
        inputs = data.tokens * data.dim
        if self.preset == "torch_default":
            return {
                "inner": linear_default(
                    streams("init/inner"), inputs, self.width, inputs, dtype=dtype
                ),
                "inner_bias": linear_default(
                    streams("init/inner_bias"), inputs, self.width, dtype=dtype
                ),
                "outer": linear_default(streams("init/outer"), self.width, self.width, dtype=dtype),
                "outer_bias": linear_default(streams("init/outer_bias"), self.width, dtype=dtype),
            }
        half = streams("init/inner").normal(self.width // 2, inputs, dtype=dtype)
        std = self._init_std(inputs, dtype)
        half *= torch.as_tensor(std, dtype=dtype, device=half.device).reshape(-1, 1, 1)
        outer = half.new_full((len(half), self.width), 1 / math.sqrt(self.width))
        outer[:, self.width // 2 :] *= -1
        return {"inner": half.repeat(1, 2, 1), "outer": outer}

    def _init_std(self, inputs: int, dtype: torch.dtype) -> Any:
        if self.preset == "vanishing":
            # So small that the first step of a neuron rounds it away, while a neuron that no point moves keeps
            # its signs. 4e-29 in float32, 2e-231 in float64: its products with tokens do not underflow.
            return torch.finfo(dtype).tiny ** 0.75
        return 1 / math.sqrt(3 * inputs) if self.preset == "hybrid" else self.init_std

    def check_first_attack(self, step: int) -> None:
        if self.preset == "vanishing" and step == 0:
            raise ValueError(
                "`training.first_attacked_step` must be at least 1 with `network.preset: vanishing`, got 0: "
                "f = 0 everywhere before the first step, so that an attack would have no gradient to follow; "
                "use 1, as Wang's Algorithm 1 does"
            )

    def trained(self, params: Params) -> tuple[str, ...]:
        return tuple(params) if self.preset == "torch_default" else ("inner",)

    def inner_weights(self, params: Params) -> Float[Tensor, "runs width inputs"]:
        """Return Wang's W, one row w_s a neuron (appendix B); not a copy."""
        return params["inner"]

    def activate(self, z: Tensor) -> Tensor:
        """Return phi(z), element by element."""
        if self.activation == "smoothed_leaky_relu":
            return smoothed_leaky_relu(z, *self._bend())
        return leaky_relu(z, self.slope or 0.0)

    def derivative(self, z: Tensor) -> Tensor:
        """Return phi'(z), element by element."""
        if self.activation == "smoothed_leaky_relu":
            return smoothed_leaky_relu_derivative(z, *self._bend())
        return leaky_relu_derivative(z, self.slope or 0.0)

    def _bend(self) -> tuple[float, float]:
        assert self.slope is not None
        assert self.smoothness is not None
        return self.slope, self.smoothness

    def forward(self, params: Params, x: Tensor) -> Float[Tensor, "runs samples"]:
        return TwoLayerPass(self, params, x).outputs

    def run(self, params: Params, x: Tensor) -> "TwoLayerPass":
        return TwoLayerPass(self, params, x)

    def represent(self, params: Params, x: Tensor) -> Float[Tensor, "runs samples width"]:
        """Return the activations of the neurons."""
        return self.activate(self.run(params, x).preactivations)

    def weight_columns(self, params: Params) -> Float[Tensor, "runs inputs width"]:
        """Return the matrix for benign.networks.products: the w_s, multiplied with all tokens of a point end to end.

        For neurons that start in pairs, the columns are the difference and the second neuron of each pair: the first
        gradients are small differences of the two, and products with the w_s themselves would lose their digits.
        """
        rows = params["inner"]
        if self.paired:
            first, second = rows.chunk(2, 1)
            rows = torch.cat([first - second, second], 1)
        return rows.transpose(1, 2)

    @property
    def paired(self) -> bool:
        """Whether neurons start in pairs: neuron s equal to neuron s + width / 2."""
        return self.preset != "torch_default"

    def products_pass(
        self, params: Params, products: Float[Tensor, "runs samples 1 width"]
    ) -> "ProductsPass":
        return ProductsPass(self, params, products)

    def known_pass(
        self, params: Params, points: Tensor, products: Float[Tensor, "runs samples 1 width"]
    ) -> "TwoLayerPass":
        return TwoLayerPass(self, params, points, products)

    def row_count(self, data: DataModel) -> int:
        """Return the number of rows for benign.reduction.protocols: the parts of the w_s multiplied with each token.

        Except with `torch_default` the second half of the neurons starts equal to the first. The rows of a vanishing
        start need not be in the span: only their signs on the training tokens matter.
        """
        return 0 if self.preset == "vanishing" else self._drawn_neurons() * data.tokens

    def initial_rows(self, params: Params, data: DataModel) -> Float[Tensor, "runs rows dim"]:
        drawn = params["inner"][:, : self._drawn_neurons()]
        return drawn.unflatten(2, (data.tokens, data.dim)).flatten(1, 2)

    def with_rows(self, params: Params, rows: Float[Tensor, "runs rows dim"]) -> Params:
        drawn = rows.unflatten(1, (self._drawn_neurons(), -1)).flatten(2)
        return {**params, "inner": drawn.repeat(1, self.width // drawn.shape[1], 1)}

    def widened(self, params: Params, data: DataModel) -> Params:
        by_token = params["inner"].unflatten(2, (data.tokens, data.dim))
        return {**params, "inner": functional.pad(by_token, (0, 1)).flatten(2)}

    def why_not_gaussian(self) -> str | None:
        if self.preset != "torch_default":
            return None
        return "`network.preset` is torch_default, whose uniform weights are no Gaussian vectors: use `hybrid`"

    def row_std(self, params: Params, data: DataModel) -> Float64[Tensor, "runs rows"]:
        inner = params["inner"]
        std = self._init_std(data.tokens * data.dim, inner.dtype)
        std = torch.as_tensor(std, dtype=torch.float64, device=inner.device)
        return std.reshape(-1, 1).expand(len(inner), self.row_count(data))

    def _drawn_neurons(self) -> int:
        return self.width if self.preset == "torch_default" else self.width // 2

    def cost(self, data: DataModel) -> Cost:
        inputs = data.tokens * data.dim
        return Cost(
            weights=3 * self.width * inputs,
            point=inputs + 4 * self.width,
            multiplies=self.width * inputs,
            columns=self.width if data.tokens == 1 else 0,
        )


class TwoLayerPass(Pass):
    """A forward pass with its gradients.

    With h_s = <w_s, x> + b_s and the coefficients k_s = a_s phi'(h_s), d f/d w_s = k_s x and
    d f/d x = sum_s k_s w_s: one product each for all points and neurons.
    """

    def __init__(
        self,
        network: TwoLayer,
        params: Params,
        x: Float[Tensor, "runs samples tokens dim"],
        products: Float[Tensor, "runs samples 1 width"] | None = None,
    ):
        """Run the pass.

        products: the products of the points with `weight_columns`, if they are known.
        """
        self._network, self._params, self._x = network, params, x
        self._points = x.flatten(2)
        self.preactivations: Float[Tensor, "runs samples width"]
        self.preactivations = self._project() if products is None else self._from(products)
        if "inner_bias" in params:
            self.preactivations = self.preactivations + params["inner_bias"][:, None, :]
        self._hidden = network.activate(self.preactivations)
        self.outputs = torch.bmm(self._hidden, params["outer"][:, :, None])[:, :, 0]
        if "outer_bias" in params:
            self.outputs = self.outputs + params["outer_bias"][:, None]

    def _project(self) -> Float[Tensor, "runs samples width"]:
        """Return the products <w_s, x>."""
        rows = self._network.inner_weights(self._params)
        return torch.bmm(self._points, rows.transpose(1, 2))

    def _from(self, products: Float[Tensor, "runs samples 1 width"]) -> Tensor:
        """Return the products <w_s, x>, from the products with `weight_columns`."""
        products = products.flatten(2)
        if not self._network.paired:
            return products
        difference, second = products.chunk(2, -1)
        return torch.cat([difference + second, second], -1)

    def _coefficients(
        self, c: Float[Tensor, "runs samples"]
    ) -> Float[Tensor, "runs samples width"]:
        slopes = self._network.derivative(self.preactivations)
        return slopes * self._params["outer"][:, None, :] * c[:, :, None]

    def params_gradient(self, c: Float[Tensor, "runs samples"]) -> Params:
        coefficients = self._coefficients(c)
        gradient = {"inner": torch.bmm(coefficients.transpose(1, 2), self._points)}
        if self._network.preset == "torch_default":
            gradient["inner_bias"] = coefficients.sum(1)
            gradient["outer"] = torch.bmm(c[:, None, :], self._hidden)[:, 0]
            gradient["outer_bias"] = c.sum(1)
        return gradient

    def inputs_gradient(
        self, c: Float[Tensor, "runs samples"]
    ) -> Float[Tensor, "runs samples tokens dim"]:
        rows = self._network.inner_weights(self._params)
        return torch.bmm(self._coefficients(c), rows).reshape(self._x.shape)


class ProductsPass(TwoLayerPass):
    """A pass on points of one token given only by their products with the columns; these products are its inputs."""

    def __init__(self, network: TwoLayer, params: Params, products: Tensor):
        super().__init__(network, params, products, products)

    def inputs_gradient(
        self, c: Float[Tensor, "runs samples"], out: Tensor | None = None
    ) -> Float[Tensor, "runs samples 1 width"]:
        coefficients = self._coefficients(c)[:, :, None]
        if self._network.paired:
            first, second = coefficients.chunk(2, -1)
            coefficients = torch.cat([first, first + second], -1)
        return coefficients if out is None else out.copy_(coefficients)
