"""An attention network without its width: in the coordinates of its tokens alone (papers/jiang.md 7.1, 7.3)."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Float64
from torch import Tensor
from torch.nn.functional import pad

from benign.bartlett import bartlett, chi_square
from benign.data.model import DataModel
from benign.networks.attention import Attention, ProductsPass
from benign.networks.network import Params
from benign.spec.axes import replace
from benign.streams import Streams


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
        queries, keys = [], []
        for head in range(narrow.heads):
            along = streams(f"known/{head}").normal(count, rows, met, dtype=dtype)
            new = bartlett(streams.within(f"new/{head}"), rows, self.network.hidden - met, count)
            both = torch.cat([along, new.to(dtype)], dim=3).mul_(score)
            queries.append(both[:, :, :directions])
            keys.append(both[:, :, directions:])
        values = streams("values").normal(count, directions, narrow.heads, dtype=dtype) * value
        return torch.cat([*queries, *keys, values], dim=3)

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
            known = _by_own_directions(narrow, params, inside)
        else:
            known = _score_products(narrow, params, inside)
        scores, values = products.split([2 * heads * wider, heads], dim=3)
        scores.unflatten(3, (2, heads, wider))[..., :met] += known
        values += (inside.flatten(1, 2) @ narrow.values(params)).view_as(values)
        wide = self.reduced(wider)
        return ProductsPass(wide, params, pad(products, (0, wide.spare_columns())))

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


PIECE = 50
"""points whose products are computed together on a CPU, in its cache: 74 GFLOP/s, 10 whole runs at once 55 (P = 302)"""


def _score_products(
    narrow: Attention, params: Params, inside: Float[Tensor, "runs samples tokens small"]
) -> Float[Tensor, "runs samples tokens 2 heads hidden"]:
    """Return queries and keys of all tokens."""
    products = inside.flatten(1, 2) @ narrow.score_columns(params["weights"])
    return products.unflatten(2, (2, narrow.heads, -1)).unflatten(1, inside.shape[1:3])


def _by_own_directions(
    narrow: Attention, params: Params, inside: Float[Tensor, "runs samples tokens small"]
) -> Float[Tensor, "runs samples tokens 2 heads twice"]:
    """Return queries and keys of the tokens of each point in an orthonormal basis of their own span."""
    gram = _grams(narrow, params, inside)
    # Rounding may make a Gram matrix indefinite by so much. Products of different vectors do not change.
    limits = torch.finfo(gram.dtype)
    slack = 2 * gram.shape[-1] * limits.eps
    gram.diagonal(dim1=-2, dim2=-1).mul_(1 + slack).add_(limits.tiny)
    factor, _ = torch.linalg.cholesky_ex(gram)
    return factor.unflatten(3, (2, -1)).permute(0, 1, 4, 3, 2, 5)


def _grams(
    narrow: Attention, params: Params, inside: Float[Tensor, "runs samples tokens small"]
) -> Float[Tensor, "runs samples heads twice twice"]:
    """Return the inner products of the queries, then keys, of the tokens of each point.

    From queries and keys, or by W_Q W_Q^T, W_K W_Q^T and W_K W_K^T, if these matrices are smaller than the weights.
    """
    runs, samples, tokens, dim = inside.shape
    if 2 * narrow.hidden < 3 * dim:
        vectors = _score_products(narrow, params, inside).permute(0, 1, 4, 3, 2, 5).flatten(3, 4)
        return vectors @ vectors.transpose(3, 4)
    queries, keys = _by_head(narrow, params["weights"]).permute(2, 0, 3, 1, 4)
    pairs = ((queries, queries), (keys, queries), (keys, keys))
    forms = torch.stack([one @ other.transpose(2, 3) for one, other in pairs], dim=2)
    forms = forms.permute(0, 3, 1, 2, 4).flatten(2)
    found = inside.new_empty(runs, samples, tokens * narrow.heads * 3, tokens)
    some, size = (1, PIECE) if inside.device.type == "cpu" else (runs, samples)
    for run in range(0, runs, some):
        for begin in range(0, samples, size):
            here = slice(run, run + some), slice(begin, begin + size)
            points = inside[here]
            moved = (points.flatten(1, 2) @ forms[here[0]]).unflatten(1, (-1, tokens))
            moved = moved.reshape(-1, tokens * narrow.heads * 3, dim)
            found[here] = (moved @ points.flatten(0, 1).transpose(1, 2)).view_as(found[here])
    parts = found.unflatten(2, (tokens, narrow.heads, 3)).permute(4, 0, 1, 3, 2, 5)
    queries, crossed, keys = parts
    above = torch.cat([queries, crossed.transpose(3, 4)], dim=4)
    return torch.cat([above, torch.cat([crossed, keys], dim=4)], dim=3)


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
