"""The small vision transformer of the papers' experiments: attention layers, then a perceptron with ReLU."""

import math
from typing import ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import layer_norm, relu

from benign.data.model import DataModel, column
from benign.networks.initial import linear_default
from benign.networks.network import Cost, Network, Params
from benign.spec.axes import PerRun, Shape, default
from benign.spec.base import Count, Positive
from benign.spec.registry import guarantees
from benign.streams import Streams

POSITION_STD = 0.02
"""standard deviation of an initial entry of positions and of the class token, as ViTs have it"""

Tokens = Float[Tensor, "runs samples tokens hidden"]
Heads = Float[Tensor, "runs samples heads tokens head_dim"]
Maps = Float[Tensor, "runs samples heads tokens tokens"]


@guarantees("recordable")
class VisionTransformer(Network):
    """Two attention layers of four heads, then an MLP with ReLU, all of width 128 (Zhang section 6, Jiang 4.2).

    With H_0 = X E + b + P, a layer is H + Attend(Norm(H)) W_O + b_O, where Attend puts the heads'
    softmax(Q K^T / sqrt(d_h)) V side by side; the output is a (ReLU(W pool(Norm(H_L)) + b)) + b'.
    The papers do not specify more; other readings are fields: without `residual` the sum with H is left
    out, without `layer_norm` every Norm is the identity.

    Weights and biases start as those of `nn.Linear`, uniform on +-1/sqrt(inputs), divided by `divide_by`.
    Norms start with gain 1 and shift 0, positions and class token as N(0, 0.02^2), undivided.

    Parameters: `embed` [runs, dim, hidden]; `qkv` [runs, layers, hidden, 3 hidden], columns Q, K, V, each
    head after head; `project` [runs, layers, hidden, hidden], W_O; `mlp` [runs, hidden, mlp] and `head`
    [runs, mlp, outputs]; each with its bias, `embed_bias` and so on; `gain` and `shift` [runs, layers + 1,
    hidden], the last for the norm before pooling; `positions` [runs, tokens, hidden] and `class_token`
    [runs, 1, hidden], which comes first.

    >>> import benign as bo
    >>> bo.VisionTransformer(classes=10, divide_by=16).label()
    'vision_transformer(classes=10, divide_by=16.0)'
    """

    mixed: ClassVar[bool] = True

    hidden: Shape[Count] = default(128)
    """width of a token inside the network"""
    layers: Shape[Count] = default(2)
    """number of attention layers"""
    heads: Shape[Count] = default(4)
    """heads of a layer; each has `hidden` / `heads` columns"""
    mlp: Shape[Count] = default(128)
    """hidden units of the MLP after the attention layers"""
    classes: Shape[Count | None] = default(None)
    """number of outputs; None for one, whose sign predicts labels -1 and +1"""
    residual: bool = True
    """layers add to their inputs"""
    layer_norm: bool = True
    """normalise tokens before every layer and before pooling"""
    positions: Literal["learned", "none"] = "learned"
    """learned vectors added to embedded tokens"""
    pool: Literal["mean", "cls"] = "mean"
    """input of the MLP: the mean token, or a learned class token"""
    score_scale: bool = True
    """divide scores by sqrt(hidden / heads)"""
    divide_by: PerRun[Positive] = default(1.0)
    """divides the initial weights and biases (16 in the papers)"""

    def check(self) -> None:
        if self.hidden % self.heads:
            raise ValueError(
                f"`hidden` must be a multiple of heads={self.heads}, got {self.hidden}: "
                f"use {self.heads * max(1, round(self.hidden / self.heads))}"
            )
        if self.classes == 1:
            raise ValueError(
                "`classes` must be at least 2, got 1: leave it out for labels -1 and +1"
            )

    def output_count(self) -> int | None:
        return self.classes

    def initial_params(self, data: DataModel, streams: Streams, dtype: torch.dtype) -> Params:
        params: Params = {}
        for name, (copies, inputs, outputs) in self._linears(data.dim).items():
            weights, biases = streams(f"init/{name}"), streams(f"init/{name}_bias")
            params[name] = linear_default(weights, inputs, *copies, inputs, outputs, dtype=dtype)
            params[f"{name}_bias"] = linear_default(biases, inputs, *copies, outputs, dtype=dtype)
        for part in params.values():
            part.div_(column(self.divide_by, part))
        if self.layer_norm:
            like = params["embed"]
            params["gain"] = like.new_ones(len(like), self.layers + 1, self.hidden)
            params["shift"] = torch.zeros_like(params["gain"])
        for name, count in self._vectors(data.tokens).items():
            drawn = streams(f"init/{name}").normal(count, self.hidden, dtype=dtype)
            params[name] = drawn.mul_(POSITION_STD)
        return params

    def _linears(self, dim: int) -> dict[str, tuple[tuple[int, ...], int, int]]:
        """Return copies, inputs and outputs of the layers that are drawn as `nn.Linear`."""
        width, layers = self.hidden, (self.layers,)
        return {
            "embed": ((), dim, width),
            "qkv": (layers, width, 3 * width),
            "project": (layers, width, width),
            "mlp": ((), width, self.mlp),
            "head": ((), self.mlp, self.classes or 1),
        }

    def _vectors(self, tokens: int) -> dict[str, int]:
        """Return the numbers of position vectors and class tokens, without those that are 0."""
        own = int(self.pool == "cls")
        vectors = {"positions": (tokens + own) * (self.positions == "learned"), "class_token": own}
        return {name: count for name, count in vectors.items() if count}

    def forward(self, params: Params, x: Tensor) -> Float[Tensor, "runs samples *classes"]:
        features = self.represent(params, x)
        outputs = _affine(features, params["head"], params["head_bias"])
        return outputs[..., 0] if self.classes is None else outputs

    def represent(self, params: Params, x: Tensor) -> Float[Tensor, "runs samples mlp"]:
        """Return the hidden units of the MLP, on which the outputs are linear."""
        tokens = self._normal(self._through(params, x)[0])
        pooled = tokens[:, :, 0] if self.pool == "cls" else tokens.mean(2)
        return relu(_affine(pooled, *self._after_norm(params, self.layers, "mlp")))

    def attention_maps(
        self, params: Params, x: Tensor
    ) -> Float[Tensor, "runs samples layers heads tokens tokens"]:
        """Return the attention of every token (row) in every layer and head; a class token is the first."""
        return torch.stack(self._through(params, x)[1], 2)

    def _through(self, params: Params, x: Tensor) -> tuple[Tokens, list[Maps]]:
        """Return the tokens after the last layer, and the attention of every layer."""
        tokens, maps = self._embedded(params, x), []
        for layer in range(self.layers):
            columns = _affine(self._normal(tokens), *self._score_columns(params, layer))
            queries, keys, values = self._by_head(columns)
            # Plain products: fused attention took as long at 16 tokens, and does not return attention maps.
            maps.append((queries @ keys.transpose(3, 4)).softmax(-1))
            heads = (maps[-1] @ values).transpose(2, 3).flatten(3)
            moved = _affine(heads, params["project"][:, layer], params["project_bias"][:, layer])
            tokens = tokens + moved if self.residual else moved
        return tokens, maps

    def _embedded(self, params: Params, x: Tensor) -> Tokens:
        tokens = _affine(x, params["embed"], params["embed_bias"])
        if self.pool == "cls":
            first = params["class_token"][:, None].expand(-1, x.shape[1], -1, -1)
            tokens = torch.cat([first, tokens], 2)
        return tokens + params["positions"][:, None] if "positions" in params else tokens

    def _normal(self, tokens: Tokens) -> Tokens:
        """Return the norm without its gain and shift, which `_after_norm` includes."""
        return layer_norm(tokens, tokens.shape[-1:]) if self.layer_norm else tokens

    def _after_norm(self, params: Params, place: int, name: str) -> tuple[Tensor, Tensor]:
        """Return weights and bias of the layer after norm number `place`, with the gain g and shift s of the norm.

        (t g + s) W + b = t (g W) + (s W + b); weights are fewer than tokens.
        """
        weights, bias = params[name], params[f"{name}_bias"]
        if weights.ndim == 4:  # one for every layer
            weights, bias = weights[:, place], bias[:, place]
        if not self.layer_norm:
            return weights, bias
        gain, shift = params["gain"][:, place], params["shift"][:, place]
        return gain[:, :, None] * weights, _affine(shift[:, None], weights, bias)[:, 0]

    def _score_columns(self, params: Params, layer: int) -> tuple[Tensor, Tensor]:
        """Return weights and bias of Q, K and V; the scale of the scores is included in Q."""
        weights, bias = self._after_norm(params, layer, "qkv")
        if not self.score_scale:
            return weights, bias
        scale = weights.new_ones(3 * self.hidden)
        scale[: self.hidden] = 1 / math.sqrt(self.hidden // self.heads)
        return scale * weights, scale * bias

    def _by_head(self, columns: Tensor) -> tuple[Heads, ...]:
        """Return Q, K and V of every head, from concatenated columns."""
        split = columns.unflatten(3, (3, self.heads, -1))
        return split.permute(3, 0, 1, 4, 2, 5).contiguous().unbind(0)

    def cost(self, data: DataModel) -> Cost:
        tokens = data.tokens + (self.pool == "cls")
        sizes = self._linears(data.dim).values()
        linears = sum(
            math.prod(copies) * (inputs + 1) * outputs for copies, inputs, outputs in sizes
        )
        others = (2 * self.layers + 2) * self.hidden * self.layer_norm
        others += self.hidden * sum(self._vectors(data.tokens).values())
        # Of a layer in units of `hidden`: normed, q k v twice, heads twice, W_O, the sum.
        layer = tokens * (11 * self.hidden + 2 * self.heads * tokens)
        inside = 4 * self.hidden * tokens + 2 * self.mlp
        products = data.tokens * data.dim * self.hidden + (self.hidden + 1) * self.mlp
        products += self.layers * tokens * self.hidden * (4 * self.hidden + 2 * tokens)
        return Cost(
            weights=3 * (linears + others),
            point=data.tokens * data.dim + self.layers * layer + inside,
            multiplies=products,
        )


def _affine(x: Tensor, weights: Tensor, bias: Tensor) -> Tensor:
    """Return x W + b with the weights of every run: one product for all its points and tokens."""
    rows = x.flatten(1, -2)
    return torch.baddbmm(bias[:, None], rows, weights).reshape(*x.shape[:-1], weights.shape[-1])
