"""The one-layer attention network of Zhang et al. eq. (1) and Jiang et al. eq. (1), with closed-form gradients."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

import torch
from jaxtyping import Float, Float64
from torch import Tensor
from torch.nn.functional import pad

from benign.bartlett import bartlett, chi_square
from benign.data.model import DataModel
from benign.networks.initial import Init
from benign.networks.network import Cost, Network, Params, Pass
from benign.networks.own_directions import in_own_directions, products_by_head
from benign.spec.axes import PerRun, Shape, default, replace
from benign.spec.base import Count, Positive
from benign.spec.registry import guarantees
from benign.streams import Streams

Part: TypeAlias = Literal["all", "values", "scores"]
"""the whole network; its values, u = W_V w_O; its attention scores, W_Q and W_K"""

ALIGNMENT = 16
"""the number of columns of the weights is a multiple of this: 1040 are multiplied 1.4 times as fast as 1025"""


@guarantees("recordable", "token_products", "carried_products", "separate_points")
class Attention(Network):
    """f(X) = (1/M) sum_l softmax(x_l^T W_Q W_K^T X^T) X W_V w_O, summed over heads; w_O is fixed
    and shared.

    No bias, no 1/sqrt(hidden), no positions, no residual. f depends on W_V only through u = W_V w_O,
    which moves by |w_O|^2 times its gradient (papers/zhang.md S2), so u is the parameter;
    `value_matrix` returns W_V exactly.

    Parameters: `weights` [runs, dim, columns], whose columns are W_Q of every head, W_K of every
    head, the u of every head, then zeros: one matrix product computes all queries, keys and values.
    `output` [runs, value_dim] is w_O, frozen.

    Three interventions isolate parts of the network: `attend` sets the attention, `train` freezes a part,
    and `exposed` exposes only one of the two paths to the attack, in training and at the test.

    >>> import benign as bo
    >>> init = bo.TorchDefault(divide_by=16)  # as in the papers' experiments
    >>> bo.Attention(hidden=32, init=init, attend="uniform").train
    'all'
    """

    hidden: Shape[Count]
    """width d_h of queries and keys"""
    heads: Shape[Count] = default(1)
    """number of heads H (Zhang appendix D): f is the sum of H heads with one shared w_O"""
    value_dim: Shape[Count | None] = default(None)
    """width d_v of values; `hidden` if not given"""
    init: Init
    """law of the initial weights"""
    output_norm: PerRun[Positive | None] = default(None)
    """norm to which w_O is rescaled (of order 1 in the theorems); None leaves it as drawn"""
    attend: Shape[Literal["learned", "uniform", "signal"]] = default("learned")
    """attention of a token: softmax of its scores, uniform, or only on token 1 (the oracle)"""
    train: Shape[Part] = default("all")
    """the part that gradient descent moves"""
    exposed: Shape[Part] = default("all")
    """the part that gets attacked tokens; the other part gets the clean ones"""

    def check(self) -> None:
        if self.train == "scores" and self.attend != "learned":
            raise ValueError(
                f"`train` must not be scores with `attend: {self.attend}`, which has none: "
                "nothing would be trained; use `attend: learned` or `train: values`"
            )

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
        """Return W_V of a head before training, drawn again from its stream."""
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
        spare = output.new_zeros(len(output), data.dim, self.spare_columns())
        return {"weights": torch.cat([*columns, spare], dim=2), "output": output}

    def value_matrix(
        self, params: Params, data: DataModel, streams: Streams, head: int = 0
    ) -> Float[Tensor, "runs dim value_dim"]:
        """Return W_V of a head now: W_V(0) + (u - u(0)) w_O^T / |w_O|^2 (papers/zhang.md S2)."""
        output = params["output"]
        start = self.initial_value_matrix(data, streams, output.dtype, head)
        moved = self.values(params)[:, :, head] - (start @ output[:, :, None])[:, :, 0]
        return (
            start + moved[:, :, None] * (output / output.square().sum(1, keepdim=True))[:, None, :]
        )

    def queries(self, params: Params) -> Float[Tensor, "runs dim heads_hidden"]:
        """Return W_Q of all heads, concatenated (a view)."""
        return params["weights"][:, :, : self.heads * self.hidden]

    def keys(self, params: Params) -> Float[Tensor, "runs dim heads_hidden"]:
        """Return W_K of all heads, concatenated (a view)."""
        width = self.heads * self.hidden
        return params["weights"][:, :, width : 2 * width]

    def values(self, params: Params) -> Float[Tensor, "runs dim heads"]:
        """Return u = W_V w_O of every head (a view)."""
        width = 2 * self.heads * self.hidden
        return params["weights"][:, :, width : width + self.heads]

    def spare_columns(self) -> int:
        return -self.heads * (2 * self.hidden + 1) % ALIGNMENT

    def forward(self, params: Params, x: Tensor) -> Float[Tensor, "runs samples"]:
        return AttentionPass(self, params, x).outputs

    def run(self, params: Params, x: Tensor) -> "AttentionPass":
        return AttentionPass(self, params, x)

    def represent(self, params: Params, x: Tensor) -> Float[Tensor, "runs samples heads_dim"]:
        """Return the tokens averaged by attention, over all rows, for every head."""
        return (self.run(params, x).attention.mean(3) @ x).flatten(2)

    def attacked_pass(self, params: Params, x: Tensor, clean: Tensor) -> "AttentionPass":
        if self.exposed == "all":
            return AttentionPass(self, params, x)
        return SplitPass(self, params, x, clean)

    def weight_columns(self, params: Params) -> Float[Tensor, "runs dim columns"] | None:
        """Return the matrix for benign.networks.products, or None if one path gets the clean tokens."""
        return params["weights"] if self.exposed == "all" else None

    def products_pass(
        self, params: Params, products: Float[Tensor, "runs samples tokens columns"]
    ) -> "ProductsPass":
        return ProductsPass(self, params, products)

    def known_pass(
        self, params: Params, points: Tensor, products: Float[Tensor, "runs samples tokens columns"]
    ) -> "AttentionPass":
        return AttentionPass(self, params, points, products)

    def carried_pass(
        self,
        params: Params,
        products: Float[Tensor, "runs samples tokens columns"],
        x: Float[Tensor, "runs samples tokens dim"],
        flush: Callable[[], None],
    ) -> "CarriedPass":
        return CarriedPass(self, params, products, x, flush)

    def score_columns(self, columns: Tensor) -> Float[Tensor, "runs rows score_columns"]:
        """Return the columns of W_Q and W_K (a view)."""
        return columns[..., : 2 * self.heads * self.hidden]

    def value_columns(self, columns: Tensor) -> Float[Tensor, "runs rows value_columns"]:
        """Return the columns of u and the spare ones (a view)."""
        return columns[..., 2 * self.heads * self.hidden :]

    def trained(self, params: Params) -> tuple[str, ...]:
        return ("weights",)

    def gradient_scale(self, params: Params) -> Params:
        """Return |w_O|^2 for u (papers/zhang.md S2), 1 for W_Q and W_K, and 0 for the part that is not trained."""
        scale = torch.ones_like(params["weights"][:, :1])
        self.value_columns(scale).mul_(params["output"].square().sum(1)[:, None, None])
        if self.train == "values":
            self.score_columns(scale).zero_()
        if self.train == "scores":
            self.value_columns(scale).zero_()
        return {"weights": scale}

    def row_count(self, data: DataModel) -> int:
        """Return the number of rows for benign.reduction.protocols: the columns of W_Q and W_K, and u."""
        return self.heads * (2 * self.hidden + 1)

    def initial_rows(self, params: Params, data: DataModel) -> Float[Tensor, "runs rows dim"]:
        return params["weights"][:, :, : self.row_count(data)].transpose(1, 2)

    def with_rows(self, params: Params, rows: Float[Tensor, "runs rows dim"]) -> Params:
        """Return weights with these rows, and u(0) as `initial_values`, because it cannot be drawn again."""
        columns = pad(rows.transpose(1, 2), (0, self.spare_columns()))
        values = rows[:, -self.heads :].transpose(1, 2).clone()
        return {**params, "weights": columns.contiguous(), "initial_values": values}

    def widened(self, params: Params, data: DataModel) -> Params:
        return {**params, "weights": pad(params["weights"], (0, 0, 0, 1))}

    def why_not_gaussian(self) -> str | None:
        if self.init.normal_stds(1) is not None:
            return None
        return (
            f"`network.init` is {self.init.kind}, whose weights are no Gaussian vectors: use `gaussian_init`, "
            "or `torch_default` with `entries: normal`"
        )

    def row_std(self, params: Params, data: DataModel) -> Float64[Tensor, "runs rows"]:
        """Return sigma_h for W_Q and W_K, sigma_V |w_O| for u."""
        stds = self.init.normal_stds(data.dim)
        assert stds is not None
        norm = torch.linalg.vector_norm(params["output"].double(), dim=1, keepdim=True)
        scores, values = (
            torch.as_tensor(std, dtype=norm.dtype, device=norm.device).reshape(-1, 1)
            for std in stds
        )
        widths = (2 * self.heads * self.hidden, self.heads)
        parts = (scores.expand(len(norm), widths[0]), (values * norm).expand(-1, widths[1]))
        return torch.cat(parts, dim=1)

    def width_reduction(self) -> "AttentionWidth":
        """Return how the network is reduced to coordinates without d_h (benign.reduction.protocols)."""
        return AttentionWidth(self)

    def cost(self, data: DataModel) -> Cost:
        columns = self.heads * (2 * self.hidden + 1) + self.spare_columns()
        return Cost(
            weights=3 * data.dim * columns,
            point=data.tokens * (data.dim + 3 * columns + 4 * self.heads * data.tokens),
            multiplies=data.tokens * data.dim * columns,
            columns=columns if self.exposed == "all" else 0,
        )


class AttentionPass(Pass):
    """A forward pass with the gradients of papers/zhang.md 2.1 (Jiang Lemma B.1).

    With A the attention, z the values, G_lj = A_lj (z_j - (A z)_l) / M and s = column sums of A /
    M, both gradients are one product with the coefficients [G K, G^T Q, s]: d f/d X = coefficients
    W^T and d f/d W = X^T coefficients.
    """

    def __init__(
        self,
        network: Attention,
        params: Params,
        x: Float[Tensor, "runs samples tokens dim"],
        products: Float[Tensor, "runs samples tokens columns"] | None = None,
    ):
        """Run the pass.

        products: the products of the tokens with the weights, if they are known.
        """
        self._network, self._params, self._x = network, params, x
        runs, samples, tokens, _ = x.shape
        self._shape = (runs, samples, tokens, network.heads)
        known = products is not None
        projected = self._points(products) if known else self._project(params["weights"])
        width = network.heads * network.hidden
        self.queries = self._by_head(projected[..., :width], network.hidden)
        self.keys = self._by_head(projected[..., width : 2 * width], network.hidden)
        values = projected[..., 2 * width : 2 * width + network.heads]
        self.values = self._by_head(values, 1)[..., 0]
        self.scores = self.queries @ self.keys.transpose(-1, -2)
        self.attention: Float[Tensor, "runs samples heads tokens tokens"] = self._attend()
        self._rows = (self.attention @ self.values[..., None])[..., 0]
        self.outputs = self._rows.mean(-1).sum(-1)

    def _points(self, x: Tensor) -> Float[Tensor, "runs points dim"]:
        return x.flatten(1, 2)

    def _project(self, weights: Tensor) -> Float[Tensor, "runs points columns"]:
        return torch.bmm(self._points(self._x), weights)

    def _attend(self) -> Tensor:
        attend = self._network.attend
        if attend == "learned":
            return self.scores.softmax(-1)
        if attend == "uniform":
            return torch.full_like(self.scores, 1 / self.scores.shape[-1])
        on_signal = torch.zeros_like(self.scores)
        on_signal[..., 0] = 1
        return on_signal

    def _by_head(self, columns: Tensor, width: int) -> Tensor:
        """Return [runs, samples * tokens, heads * width] as [runs, samples, heads, tokens, width]."""
        return columns.reshape(*self._shape, width).transpose(2, 3)

    def _by_column(self, parts: Tensor) -> Tensor:
        """Return the inverse of `_by_head`."""
        runs, samples, tokens, _ = self._shape
        return parts.transpose(2, 3).reshape(runs, samples * tokens, -1)

    def _coefficients(
        self, c: Float[Tensor, "runs samples"], out: Tensor | None = None
    ) -> Float[Tensor, "runs points columns"]:
        tokens = self._shape[2]
        weights = (c / tokens)[:, :, None, None, None]
        moved = (self.values[..., None, :] - self._rows[..., :, None]) * self.attention * weights
        if self._network.attend != "learned":
            moved.zero_()
        sums = self.attention.sum(-2)[..., None] * weights
        parts = (moved @ self.keys, moved.transpose(-1, -2) @ self.queries, sums)
        columns = [self._by_column(part) for part in parts]
        spare = c.new_zeros(*columns[0].shape[:2], self._network.spare_columns())
        return torch.cat([*columns, spare], dim=-1, out=out)

    def moves(self, c: Float[Tensor, "runs samples"]) -> Float[Tensor, "runs points columns"]:
        """Return the coefficients of a step of the weights; u moves by |w_O|^2 times its gradient, as if W_V moved."""
        network, coefficients = self._network, self._coefficients(c)
        values = network.value_columns(coefficients)
        values.mul_(self._params["output"].square().sum(1)[:, None, None])
        if network.train == "values":
            network.score_columns(coefficients).zero_()
        if network.train == "scores":
            values.zero_()
        return coefficients

    def params_gradient(self, c: Float[Tensor, "runs samples"]) -> Params:
        return {"weights": self._weights_gradient(self.moves(c))}

    def _weights_gradient(self, coefficients: Tensor) -> Float[Tensor, "runs dim columns"]:
        return torch.bmm(self._points(self._x).transpose(1, 2), coefficients)

    def inputs_gradient(
        self, c: Float[Tensor, "runs samples"]
    ) -> Float[Tensor, "runs samples tokens dim"]:
        gradient = torch.bmm(self._coefficients(c), self._params["weights"].transpose(1, 2))
        return gradient.reshape(self._x.shape)


class ProductsPass(AttentionPass):
    """A pass on tokens given only by their products with the columns of the weights; these products are its inputs."""

    def __init__(self, network: Attention, params: Params, products: Tensor):
        super().__init__(network, params, products, products)

    def inputs_gradient(
        self, c: Float[Tensor, "runs samples"], out: Tensor | None = None
    ) -> Float[Tensor, "runs samples tokens columns"]:
        flat = None if out is None else out.flatten(1, 2)
        return self._coefficients(c, flat).unflatten(1, self._x.shape[1:3])


class CarriedPass(AttentionPass):
    """A pass on points whose products with the columns of the weights are known; `flush` updates the weights."""

    def __init__(
        self,
        network: Attention,
        params: Params,
        products: Float[Tensor, "runs samples tokens columns"],
        x: Float[Tensor, "runs samples tokens dim"],
        flush: Callable[[], None],
    ):
        self._flush = flush
        super().__init__(network, params, x, products)

    def inputs_gradient(
        self, c: Float[Tensor, "runs samples"]
    ) -> Float[Tensor, "runs samples tokens dim"]:
        self._flush()
        return super().inputs_gradient(c)


class SplitPass(AttentionPass):
    """A pass in which one path gets attacked tokens, which are its inputs, and the other the clean tokens."""

    def __init__(self, network: Attention, params: Params, x: Tensor, clean: Tensor):
        self._scored, self._valued = (x, clean) if network.exposed == "scores" else (clean, x)
        super().__init__(network, params, x)

    def _project(self, weights: Tensor) -> Float[Tensor, "runs points columns"]:
        scores = torch.bmm(self._points(self._scored), self._network.score_columns(weights))
        values = torch.bmm(self._points(self._valued), self._network.value_columns(weights))
        return torch.cat([scores, values], dim=2)

    def _weights_gradient(self, coefficients: Tensor) -> Float[Tensor, "runs dim columns"]:
        scored, valued = (self._points(x).transpose(1, 2) for x in (self._scored, self._valued))
        scores = torch.bmm(scored, self._network.score_columns(coefficients))
        values = torch.bmm(valued, self._network.value_columns(coefficients))
        return torch.cat([scores, values], dim=2)

    def inputs_gradient(
        self, c: Float[Tensor, "runs samples"]
    ) -> Float[Tensor, "runs samples tokens dim"]:
        network = self._network
        side = network.score_columns if network.exposed == "scores" else network.value_columns
        rows = side(self._params["weights"]).transpose(1, 2)
        return torch.bmm(side(self._coefficients(c)), rows).reshape(self._x.shape)


@dataclass(frozen=True)
class AttentionWidth:
    """An attention network of any width in the coordinates of its tokens alone.

    Gradient descent moves W_Q, W_K and u by combinations of the training tokens, so only their restrictions to the
    span of P tokens move, and only the at most 2 P directions of R^d_h matter that queries and keys have there
    (papers/jiang.md 7.1). For Gaussian weights the initial queries and keys of an orthonormal basis of the span are
    2 P Gaussian vectors of R^d_h: a Bartlett factor with d_h degrees of freedom, so that no tensor has size d or d_h.

    Clean training is exact in these coordinates. An attack moves tokens along the weights themselves:
    `closed_params` adds the weights, restricted to those 2 P directions, to the span and ignores their components
    beyond it (papers/jiang.md 7.3), which is an approximation.
    """

    network: Attention
    """the network of full width"""

    @property
    def width(self) -> int:
        return self.network.hidden

    def width_met(self, tokens: int) -> int:
        """Return the number of directions of R^d_h that queries and keys of this many tokens have."""
        return min(self.network.hidden, 2 * tokens)

    def reduced(self, width: int) -> Attention:
        """Return the network with this many columns, which depends on w_O only through its norm."""
        return replace(self.network, {("hidden",): width, ("value_dim",): 1})

    def initial_params(
        self, tokens: int, data: DataModel, streams: Streams, dtype: torch.dtype
    ) -> Params:
        """Draw the initial weights of the reduced network on an orthonormal basis of the span of `tokens` tokens.

        `unseen` are the squared norms of W_Q, W_K, u, and u summed over heads beyond that span, which never move.
        """
        network = self.network
        # If the norm of w_O is given, one number represents it.
        short = network if network.output_norm is None else self.reduced(1)
        output = short.initial_output(streams, torch.float64)
        params = {"output": torch.linalg.vector_norm(output, dim=1, keepdim=True).to(dtype)}
        narrow = self._narrow(tokens)
        score, value = _stds(narrow, params, data)
        own, heads = streams.within("coordinates"), range(network.heads)
        factors = [
            bartlett(own.within(f"scores/{head}"), 2 * tokens, network.hidden) for head in heads
        ]
        parts = [factor[:, :tokens] for factor in factors]
        parts += [factor[:, tokens:] for factor in factors]
        values = own("values").normal(tokens, network.heads) * value
        rows = torch.cat([*(score * part for part in parts), values], dim=2).transpose(1, 2)
        beyond = data.dim - tokens
        unseen = _unseen(narrow, params, data, own, beyond * network.hidden, beyond)
        return narrow.with_rows(params, rows.to(dtype)) | {"unseen": unseen}

    def closed_params(self, params: Params, data: DataModel, streams: Streams) -> Params:
        """Return the weights with those beyond the span of the tokens (papers/jiang.md 7.3).

        Without the directions of R^d_h that the queries and keys of the tokens do not have.
        """
        narrow = self._narrow(params["weights"].shape[1])
        rows, own = narrow.initial_rows(params, data), streams.within("coordinates")
        count, tokens = rows.shape[1:]
        std = narrow.row_std(params, data)[:, :, None]
        beyond = std * bartlett(own.within("beyond"), count, data.dim - tokens)
        rows = torch.cat([rows, beyond.to(rows.dtype)], dim=2)
        left_out = (data.dim - tokens) * (self.network.hidden - narrow.hidden)
        unseen = _unseen(narrow, params, data, own, left_out, 0)
        return narrow.with_rows(params, rows) | {"unseen": unseen}

    def restricted(
        self, whole: Params, basis: Float[Tensor, "runs dim tokens"]
    ) -> tuple[Attention, Params, Params]:
        """Return the reduced network, its weights, and its frame.

        The frame has `start`, the weights at the start, and if there are fewer columns `directions`
        [runs, heads, hidden, width], the directions of R^d_h of every head that are trained.
        """
        network = self.network
        inside = (whole["weights"].transpose(1, 2) @ basis).transpose(1, 2)
        narrow = self._narrow(inside.shape[1])
        directions = None if narrow.hidden == network.hidden else _directions(network, inside)
        rows = _in_directions(network, inside, directions).transpose(1, 2)
        norm = torch.linalg.vector_norm(whole["output"], dim=1, keepdim=True)
        params = narrow.with_rows({"output": norm}, rows)
        beyond = whole["weights"] - torch.bmm(basis, inside)
        queries, keys, values = (
            part({"weights": beyond}) for part in (network.queries, network.keys, network.values)
        )
        parts = (queries, keys, values, values.sum(2, keepdim=True))
        params["unseen"] = torch.stack([part.square().sum((1, 2)) for part in parts], dim=1)
        frame = {"start": params["weights"].clone()}
        return narrow, params, frame if directions is None else frame | {"directions": directions}

    def lifted(
        self, params: Params, whole: Params, frame: Params, basis: Float[Tensor, "runs dim tokens"]
    ) -> Params:
        """Return W(0) + E (V(t) - V(0)) O^T, with E the basis, O the directions and V the reduced weights."""
        start, directions = frame["start"], frame.get("directions")
        back = None if directions is None else directions.transpose(2, 3)
        moved = _in_directions(self._narrow(start.shape[1]), params["weights"] - start, back)
        moved = pad(moved, (0, self.network.spare_columns()))
        return {**whole, "weights": torch.baddbmm(whole["weights"], basis, moved)}

    def point_weights(
        self, params: Params, data: DataModel, streams: Streams, count: int, directions: int
    ) -> Float[Tensor, "runs samples directions columns"]:
        """Draw W_Q, W_K and u along the directions of each point.

        In R^d_h, where the queries and keys of a point's tokens inside the span of training have up to 2 M directions:
        W_Q and W_K have components along these, then in new directions of each point. So nothing has the size of d_h.
        """
        narrow, rows = self._narrow(params["weights"].shape[1]), 2 * directions
        dtype, met = params["weights"].dtype, self._met_by_point(narrow, data.tokens)
        score, value = (std[..., None].to(dtype) for std in _stds(narrow, params, data))
        wider = met + min(rows, self.network.hidden - met)
        heads, runs = narrow.heads, len(score)
        # Filled part by part: copies of large tensors were a third of the time of a point.
        weights = score.new_empty(runs, count, directions, heads * (2 * wider + 1))
        parts = weights[..., :-heads].unflatten(3, (2, heads, wider)).permute(0, 1, 3, 2, 4, 5)
        for head in range(heads):
            along = streams(f"known/{head}").normal(count, rows, met, dtype=dtype)
            new = bartlett(streams.within(f"new/{head}"), rows, self.network.hidden - met, count)
            for columns, drawn in ((slice(met), along), (slice(met, None), new)):
                parts[:, :, :, :, head, columns] = drawn.unflatten(2, (2, directions))
        weights[..., :-heads] *= score
        values = streams("values").normal(count, directions, heads, dtype=dtype)
        weights[..., -heads:] = values * value
        return weights

    def point_pass(
        self,
        params: Params,
        x: Float[Tensor, "runs samples tokens small"],
        weights: Float[Tensor, "runs samples directions columns"],
    ) -> ProductsPass:
        """Run the network on each point in the directions of R^d_h that its own queries and keys have."""
        dim, heads = params["weights"].shape[1], self.network.heads
        narrow = self._narrow(dim)
        inside, own = x.split([dim, weights.shape[2]], dim=3)
        met, wider = self._met_by_point(narrow, x.shape[2]), (weights.shape[3] // heads - 1) // 2
        products = own @ weights
        if met < narrow.hidden:
            known = in_own_directions(inside, _by_head(narrow, params["weights"]))
        else:
            known = products_by_head(inside, _by_head(narrow, params["weights"]))
        scores, values = products.split([2 * heads * wider, heads], dim=3)
        scores.unflatten(3, (2, heads, wider))[..., :met] += known
        values += (inside.flatten(1, 2) @ narrow.values(params)).view_as(values)
        return ProductsPass(self.reduced(wider), params, products)

    def _met_by_point(self, narrow: Attention, tokens: int) -> int:
        """Return the number of directions of R^d_h in which weights of a point are drawn apart: those that its queries
        and keys have inside the span of training, or all known ones.
        """
        return min(2 * tokens, narrow.hidden)

    def point_numbers(self, data: DataModel) -> int:
        # Weights, products, and a Gram matrix, each of about 8 M x M numbers a head, with copies.
        return 64 * self.network.heads * data.tokens**2

    def score_spread(self, dim: int) -> Tensor:
        """Return sigma_h^2 sqrt(d d_h) (papers/jiang.md 7.3)."""
        stds = self.network.init.normal_stds(dim)
        assert stds is not None
        return torch.as_tensor(stds[0]) ** 2 * math.sqrt(dim * self.network.hidden)

    def _narrow(self, tokens: int) -> Attention:
        return self.reduced(self.width_met(tokens))


def _stds(
    narrow: Attention, params: Params, data: DataModel
) -> tuple[Float64[Tensor, "runs 1 1"], Float64[Tensor, "runs 1 1"]]:
    """Return sigma_h and sigma_V |w_O|."""
    stds = narrow.row_std(params, data)
    return stds[:, :1, None], stds[:, -1:, None]


def _unseen(
    narrow: Attention, params: Params, data: DataModel, own: Streams, scores: int, values: int
) -> Float[Tensor, "runs 4"]:
    """Draw the squared norms of this many entries of each head's W_Q and W_K, of u, and of u summed over heads."""
    heads = narrow.heads
    entries = [heads * scores, heads * scores, heads * values, values]
    score, value = _stds(narrow, params, data)
    stds = torch.cat([score, score, value, heads**0.5 * value], dim=2)[:, 0]
    squares = chi_square(own("unseen"), torch.tensor([entries], dtype=torch.float64), 4)
    return (squares * stds.square()).to(params["output"].dtype)


def _by_head(network: Attention, columns: Tensor) -> Float[Tensor, "runs rows 2 heads hidden"]:
    """Return the columns of W_Q and of W_K."""
    return network.score_columns(columns).unflatten(2, (2, network.heads, network.hidden))


def _directions(network: Attention, inside: Tensor) -> Float[Tensor, "runs heads hidden width"]:
    """Return, for every head, an orthonormal basis of the span of the queries and keys of all tokens."""
    vectors = _by_head(network, inside).permute(0, 3, 4, 1, 2).flatten(3)
    return torch.linalg.qr(vectors.double()).Q.to(inside.dtype)


def _in_directions(
    network: Attention, columns: Tensor, directions: Tensor | None
) -> Float[Tensor, "runs rows other_columns"]:
    """Return W_Q, W_K and u with queries and keys along the directions, without spare columns."""
    scores = _by_head(network, columns)
    if directions is not None:
        scores = torch.einsum("rtphk,rhkw->rtphw", scores, directions)
    return torch.cat([scores.flatten(2), network.values({"weights": columns})], dim=2)
