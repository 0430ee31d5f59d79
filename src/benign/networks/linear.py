"""The attention network with W_Q = W_K = 0, which gradient descent never leaves: linear in the mean token."""

import torch
from jaxtyping import Float, Float64
from torch import Tensor
from torch.nn.functional import pad

from benign.data.model import DataModel
from benign.networks.network import Cost, Network, Params, Pass
from benign.spec.axes import PerRun, default
from benign.spec.base import NonNegative, Positive
from benign.spec.registry import guarantees
from benign.streams import Streams


@guarantees("recordable", "separate_points")
class Linear(Network):
    """f(X) = <x_bar, u> with x_bar the mean of the tokens (papers/zhang.md S5): attention stays uniform.

    As in `Attention`, u = W_V w_O moves by |w_O|^2 times its gradient. With one token attention is 1
    and this is the whole network. `papers/zhang/linear_mode.py` has closed forms for attacks, training
    and the error on test points.

    Parameters: `u` [runs, dim]; `output_norm` [runs] is |w_O|, frozen.

    >>> import benign as bo
    >>> bo.Linear(init_std=0.01).label()
    'linear(init_std=0.01)'
    """

    init_std: PerRun[NonNegative] = default(0.0)
    """standard deviation of an initial entry of u, sigma_V |w_O|"""
    output_norm: PerRun[Positive] = default(1.0)
    """|w_O|"""

    def initial_params(self, data: DataModel, streams: Streams, dtype: torch.dtype) -> Params:
        u = streams("init/value").normal(data.dim, dtype=dtype)
        u *= torch.as_tensor(self.init_std, dtype=dtype, device=u.device).reshape(-1, 1)
        norm = torch.as_tensor(self.output_norm, dtype=dtype, device=u.device)
        return {"u": u, "output_norm": norm.expand(len(u)).clone()}

    def trained(self, params: Params) -> tuple[str, ...]:
        return ("u",)

    def gradient_scale(self, params: Params) -> Params:
        """Return |w_O|^2 for u (papers/zhang.md S2)."""
        return {"u": params["output_norm"].square()[:, None]}

    def forward(self, params: Params, x: Tensor) -> Float[Tensor, "runs samples"]:
        return LinearPass(params, x).outputs

    def run(self, params: Params, x: Tensor) -> "LinearPass":
        return LinearPass(params, x)

    def represent(self, params: Params, x: Tensor) -> Float[Tensor, "runs samples dim"]:
        """Return the mean token."""
        return x.mean(2)

    def row_count(self, data: DataModel) -> int:
        """Return the number of rows for benign.reduction.protocols: u is the only row."""
        return 1

    def initial_rows(self, params: Params, data: DataModel) -> Float[Tensor, "runs 1 dim"]:
        return params["u"][:, None]

    def with_rows(self, params: Params, rows: Float[Tensor, "runs 1 dim"]) -> Params:
        return {**params, "u": rows[:, 0]}

    def widened(self, params: Params, data: DataModel) -> Params:
        return {**params, "u": pad(params["u"], (0, 1))}

    def why_not_gaussian(self) -> None:
        return None

    def row_std(self, params: Params, data: DataModel) -> Float64[Tensor, "runs 1"]:
        u = params["u"]
        std = torch.as_tensor(self.init_std, dtype=torch.float64, device=u.device)
        return std.reshape(-1, 1).expand(len(u), 1)

    def cost(self, data: DataModel) -> Cost:
        size = data.tokens * data.dim
        return Cost(weights=2 * data.dim, point=size, multiplies=size)


class LinearPass(Pass):
    """d f/d u = x_bar, and d f/d x_j = u / M for every token."""

    def __init__(self, params: Params, x: Float[Tensor, "runs samples tokens dim"]):
        self._params, self._x = params, x
        self._means = x.mean(2)
        self.outputs = torch.bmm(self._means, params["u"][:, :, None])[:, :, 0]

    def params_gradient(self, c: Float[Tensor, "runs samples"]) -> Params:
        """Return |w_O|^2 times the gradient of u, its step if W_V moves along its own gradient."""
        gradient = torch.bmm(c[:, None, :], self._means)[:, 0]
        return {"u": gradient * self._params["output_norm"].square()[:, None]}

    def inputs_gradient(
        self, c: Float[Tensor, "runs samples"]
    ) -> Float[Tensor, "runs samples tokens dim"]:
        gradient = c[:, :, None, None] * self._params["u"][:, None, None] / self._x.shape[2]
        return gradient.expand(self._x.shape)
