"""The one-layer attention network of Zhang et al. eq. (1) and Jiang et al. eq. (1), with closed-form gradients."""

import torch
from jaxtyping import Float
from torch import Tensor

from benign.axes import PerRun, Shape
from benign.data.model import DataModel
from benign.networks.initial import Init
from benign.networks.network import Cost, Network, Params, Pass
from benign.spec import Count, Positive
from benign.streams import Streams

ALIGNMENT = 16
"""columns of the weights come in multiples of this: 1040 are multiplied 1.4 times as fast as 1025"""


class Attention(Network):
    """f(X) = (1/M) sum_l softmax(x_l^T W_Q W_K^T X^T) X W_V w_O, summed over heads; w_O is fixed
    and shared.

    No bias, no 1/sqrt(hidden), no positions, no residual. Only u = W_V w_O of W_V is ever seen,
    and it moves by |w_O|^2 times its gradient (papers/zhang.md S2), so u is the parameter;
    `value_matrix` gives W_V back exactly.

    Parameters: `weights` [runs, dim, columns], whose columns are W_Q of every head, W_K of every
    head, the u of every head, then zeros: one matrix product computes all queries, keys and values.
    `output` [runs, value_dim] is w_O, frozen.
    """

    hidden: Shape[Count]
    """width d_h of queries and keys"""
    heads: Shape[Count] = 1
    """number of heads H (Zhang appendix D): f is the sum of H heads with one shared w_O"""
    value_dim: Shape[Count | None] = None
    """width d_v of values; `hidden` if not given"""
    init: Init
    """law of the initial weights"""
    output_norm: PerRun[Positive | None] = None
    """rescale w_O to this norm (the theorems say |w_O| of order 1); None leaves it as drawn"""

    def initial_output(
        self, streams: Streams, dtype: torch.dtype
    ) -> Float[Tensor, "runs value_dim"]:
        output = self.init.output_weights(streams, self.value_dim or self.hidden, dtype)
        if self.output_norm is None:
            return output
        norm = torch.as_tensor(self.output_norm, dtype=dtype, device=output.device)
        return torch.nn.functional.normalize(output, dim=1) * norm.reshape(-1, 1)

    def initial_value_matrix(
        self, data: DataModel, streams: Streams, dtype: torch.dtype, head: int = 0
    ) -> Float[Tensor, "runs dim value_dim"]:
        """W_V of a head before training, drawn again from its stream."""
        width = self.value_dim or self.hidden
        return self.init.value_weights(streams(f"init/value/{head}"), data.dim, width, dtype)

    def initial_params(self, data: DataModel, streams: Streams, dtype: torch.dtype) -> Params:
        output = self.initial_output(streams, dtype)
        heads = range(self.heads)
        columns = [
            self.init.score_weights(streams(f"init/{part}/{head}"), data.dim, self.hidden, dtype)
            for part in ("query", "key")
            for head in heads
        ]
        columns += [
            self.initial_value_matrix(data, streams, dtype, head) @ output[:, :, None]
            for head in heads
        ]
        spare = output.new_zeros(len(output), data.dim, self._spare_columns())
        return {"weights": torch.cat([*columns, spare], dim=2), "output": output}

    def value_matrix(
        self, params: Params, data: DataModel, streams: Streams, head: int = 0
    ) -> Float[Tensor, "runs dim value_dim"]:
        """W_V of a head now: W_V(0) + (u - u(0)) w_O^T / |w_O|^2 (papers/zhang.md S2)."""
        output = params["output"]
        start = self.initial_value_matrix(data, streams, output.dtype, head)
        moved = self.values(params)[:, :, head] - (start @ output[:, :, None])[:, :, 0]
        return (
            start + moved[:, :, None] * (output / output.square().sum(1, keepdim=True))[:, None, :]
        )

    def queries(self, params: Params) -> Float[Tensor, "runs dim heads_hidden"]:
        """W_Q of all heads side by side (a view)."""
        return params["weights"][:, :, : self.heads * self.hidden]

    def keys(self, params: Params) -> Float[Tensor, "runs dim heads_hidden"]:
        """W_K of all heads side by side (a view)."""
        width = self.heads * self.hidden
        return params["weights"][:, :, width : 2 * width]

    def values(self, params: Params) -> Float[Tensor, "runs dim heads"]:
        """u = W_V w_O of every head (a view)."""
        width = 2 * self.heads * self.hidden
        return params["weights"][:, :, width : width + self.heads]

    def _spare_columns(self) -> int:
        return -self.heads * (2 * self.hidden + 1) % ALIGNMENT

    def forward(self, params: Params, x: Tensor) -> Float[Tensor, "runs samples"]:
        return AttentionPass(self, params, x).outputs

    def run(self, params: Params, x: Tensor) -> "AttentionPass":
        return AttentionPass(self, params, x)

    def trained(self, params: Params) -> tuple[str, ...]:
        return ("weights",)

    def cost(self, data: DataModel) -> Cost:
        columns = self.heads * (2 * self.hidden + 1) + self._spare_columns()
        return Cost(
            weights=3 * data.dim * columns,
            point=data.tokens * (data.dim + 3 * columns + 4 * self.heads * data.tokens),
            multiplies=data.tokens * data.dim * columns,
        )


class AttentionPass(Pass):
    """A forward pass with the gradients of papers/zhang.md 2.1 (Jiang Lemma B.1).

    With A the attention, z the values, G_lj = A_lj (z_j - (A z)_l) / M and s = column sums of A /
    M, both gradients are one product with the coefficients [G K, G^T Q, s]: d f/d X = coefficients
    W^T and d f/d W = X^T coefficients.
    """

    def __init__(
        self, network: Attention, params: Params, x: Float[Tensor, "runs samples tokens dim"]
    ):
        self._network, self._params, self._x = network, params, x
        runs, samples, tokens, dim = x.shape
        projected = torch.bmm(x.reshape(runs, samples * tokens, dim), params["weights"])
        self._shape = (runs, samples, tokens, network.heads)
        width = network.heads * network.hidden
        self._queries = self._by_head(projected[..., :width], network.hidden)
        self._keys = self._by_head(projected[..., width : 2 * width], network.hidden)
        values = projected[..., 2 * width : 2 * width + network.heads]
        self.values = self._by_head(values, 1)[..., 0]
        self.scores = self._queries @ self._keys.transpose(-1, -2)
        self.attention: Float[Tensor, "runs samples heads tokens tokens"] = self.scores.softmax(-1)
        self._rows = (self.attention @ self.values[..., None])[..., 0]
        self.outputs = self._rows.mean(-1).sum(-1)

    def _by_head(self, columns: Tensor, width: int) -> Tensor:
        """[runs, samples * tokens, heads * width] as [runs, samples, heads, tokens, width]."""
        return columns.reshape(*self._shape, width).transpose(2, 3)

    def _by_column(self, parts: Tensor) -> Tensor:
        """The inverse of `_by_head`."""
        runs, samples, tokens, _ = self._shape
        return parts.transpose(2, 3).reshape(runs, samples * tokens, -1)

    def _coefficients(
        self, c: Float[Tensor, "runs samples"]
    ) -> Float[Tensor, "runs points columns"]:
        tokens = self._shape[2]
        weights = (c / tokens)[:, :, None, None, None]
        moved = (self.values[..., None, :] - self._rows[..., :, None]) * self.attention * weights
        sums = self.attention.sum(-2)[..., None] * weights
        parts = (moved @ self._keys, moved.transpose(-1, -2) @ self._queries, sums)
        columns = [self._by_column(part) for part in parts]
        spare = c.new_zeros(*columns[0].shape[:2], self._network._spare_columns())
        return torch.cat([*columns, spare], dim=-1)

    def params_gradient(self, c: Float[Tensor, "runs samples"]) -> Params:
        """The step of u is |w_O|^2 times its gradient, as if W_V itself had moved."""
        runs, samples, tokens, _ = self._shape
        points = self._x.reshape(runs, samples * tokens, -1)
        gradient = torch.bmm(points.transpose(1, 2), self._coefficients(c))
        self._network.values({"weights": gradient}).mul_(
            self._params["output"].square().sum(1)[:, None, None]
        )
        return {"weights": gradient}

    def inputs_gradient(
        self, c: Float[Tensor, "runs samples"]
    ) -> Float[Tensor, "runs samples tokens dim"]:
        gradient = torch.bmm(self._coefficients(c), self._params["weights"].transpose(1, 2))
        return gradient.reshape(self._x.shape)
