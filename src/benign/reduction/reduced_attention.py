"""An attention network of any width in the coordinates of its tokens alone: no tensor knows d or d_h.

Gradient descent moves W_Q, W_K and u by combinations of the tokens it sees, so only what they are on the span of
P tokens moves, and only the at most 2 P directions of R^d_h that its queries and keys have there are ever met
(papers/jiang.md 7.1). For Gaussian weights the initial queries and keys of an orthonormal basis of the span are
2 P Gaussian vectors of R^d_h: a Bartlett factor, d_h its degrees of freedom.

Clean training is exact in these coordinates. An attack moves tokens along the weights themselves: `closed` adds
the weights, seen in those 2 P directions, to the span and leaves out what they would reach beyond it
(papers/jiang.md 7.3), which is an approximation.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Float64
from torch import Tensor
from torch.nn.functional import pad

from benign.data.model import DataModel, Sample
from benign.networks.attention import Attention, AttentionPass, ProductsPass
from benign.networks.network import Network, Params
from benign.reduction.bartlett import bartlett, chi_square
from benign.reduction.sampled import GivenNormals
from benign.reduction.test_points import TestPoints
from benign.spec import axes
from benign.streams import Streams


def narrow_width(network: Attention, tokens: int) -> int:
    """Directions of R^d_h that are met by queries and keys of so many tokens."""
    return min(network.hidden, 2 * tokens)


def narrowed(network: Attention, width: int) -> Attention:
    """The network with that many columns. Of w_O only the norm is ever seen."""
    return axes.replace(network, {("hidden",): width, ("value_dim",): 1})


def narrow_params(
    network: Attention, tokens: int, data: DataModel, streams: Streams, dtype: torch.dtype
) -> Params:
    """Initial weights of the narrow network on an orthonormal basis of the span of `tokens` tokens.

    `unseen` are the squared norms of what W_Q, W_K, u, and u summed over heads are beyond that, which never moves.
    """
    norm = torch.linalg.vector_norm(_output(network, streams), dim=1, keepdim=True)
    params = {"output": norm.to(dtype)}
    narrow = narrowed(network, narrow_width(network, tokens))
    score, value = _stds(narrow, params, data)
    own, heads = streams.within("coordinates"), range(network.heads)
    factors = [bartlett(own.within(f"scores/{head}"), 2 * tokens, network.hidden) for head in heads]
    parts = [factor[:, :tokens] for factor in factors] + [factor[:, tokens:] for factor in factors]
    values = own("values").normal(tokens, network.heads) * value
    rows = torch.cat([*(score * part for part in parts), values], dim=2).transpose(1, 2)
    unseen = _unseen(
        narrow, params, data, own, (data.dim - tokens) * network.hidden, data.dim - tokens
    )
    return narrow.with_rows(params, rows.to(dtype)) | {"unseen": unseen}


def _output(network: Attention, streams: Streams) -> Float64[Tensor, "runs value_dim"]:
    """w_O; where its norm is given, one number does."""
    short = network if network.output_norm is None else narrowed(network, 1)
    return short.initial_output(streams, torch.float64)


def _stds(
    network: Attention, params: Params, data: DataModel
) -> tuple[Float64[Tensor, "runs 1 1"], Float64[Tensor, "runs 1 1"]]:
    """sigma_h and sigma_V |w_O|."""
    stds = network.row_std(params, data)
    return stds[:, :1, None], stds[:, -1:, None]


def _unseen(
    network: Attention, params: Params, data: DataModel, own: Streams, scores: int, values: int
) -> Float[Tensor, "runs 4"]:
    """Squared norms of so many entries of each head's W_Q and W_K, of u, and of u summed over heads."""
    heads = network.heads
    entries = [heads * scores, heads * scores, heads * values, values]
    score, value = _stds(network, params, data)
    stds = torch.cat([score, score, value, heads**0.5 * value], dim=2)[:, 0]
    squares = chi_square(own("unseen"), torch.tensor([entries], dtype=torch.float64), 4)
    return (squares * stds.square()).to(params["output"].dtype)


def closed(
    network: Attention, hidden: int, params: Params, data: DataModel, streams: Streams
) -> Params:
    """The weights of the narrow `network` with what they are beyond the tokens' span (papers/jiang.md 7.3).

    Left out are the directions of R^hidden that the tokens' own queries and keys do not have.
    """
    rows, own = network.initial_rows(params, data), streams.within("coordinates")
    count, tokens = rows.shape[1:]
    std = network.row_std(params, data)[:, :, None]
    beyond = std * bartlett(own.within("beyond"), count, data.dim - tokens)
    rows = torch.cat([rows, beyond.to(rows.dtype)], dim=2)
    left_out = (data.dim - tokens) * (hidden - network.hidden)
    unseen = _unseen(network, params, data, own, left_out, 0)
    return network.with_rows(params, rows) | {"unseen": unseen}


@dataclass(frozen=True)
class PerPointTestPoints(TestPoints):
    """Test points that each bring the part of the frozen weights that they alone meet.

    Every point has the law it has with the trained network, given the training run; over points that
    part is drawn anew, so that a mean over them is that of all networks with this training run.
    """

    dim: int
    """d"""
    hidden: int
    """d_h"""
    network: Attention
    """the narrow network"""
    params: Params
    """with its `output`"""

    def draw(
        self, model: DataModel, streams: Streams, split: str, count: int, dtype: torch.dtype
    ) -> Sample:
        """Points in the span's coordinates and, beyond it, in the basis of each point's own noise tokens."""
        noise, own = model.noise_count() // model.samples, streams.within(f"{split}/outside")
        along = own("along").normal(count, noise, model.dim)
        beyond = bartlett(own.within("tokens"), noise, self.dim - model.dim, count)
        normals = torch.cat([along, beyond], dim=3)
        given = GivenNormals(streams, f"{split}/noise", normals)
        sample = model.reduced(model.dim + beyond.shape[3]).sample(given, split, count, dtype)
        sample.latent["outside"] = self._weights(model, own, count, beyond.shape[3]).to(dtype)
        return sample

    def _weights(
        self, model: DataModel, own: Streams, count: int, directions: int
    ) -> Float64[Tensor, "runs samples directions columns"]:
        """W_Q, W_K and u along the directions of each point: in the known directions of R^d_h, then in their own."""
        network, rows = self.network, 2 * directions
        score, value = (std[..., None] for std in _stds(network, self.params, model))
        queries, keys = [], []
        for head in range(network.heads):
            known = own(f"known/{head}").normal(count, rows, network.hidden)
            new = bartlett(own.within(f"new/{head}"), rows, self.hidden - network.hidden, count)
            both = score * torch.cat([known, new], dim=3)
            queries.append(both[:, :, :directions])
            keys.append(both[:, :, directions:])
        values = own("values").normal(count, directions, network.heads) * value
        return torch.cat([*queries, *keys, values], dim=3)

    def run(self, network: Network, params: Params, sample: Sample) -> AttentionPass:
        assert isinstance(network, Attention)
        return outside_pass(network, params, sample.x, sample.latent["outside"])

    def select(self, places: Tensor) -> "PerPointTestPoints":
        params = {name: part[places] for name, part in self.params.items()}
        return PerPointTestPoints(self.dim, self.hidden, axes.select(self.network, places), params)


def outside_pass(
    network: Attention,
    params: Params,
    x: Float[Tensor, "runs samples tokens small"],
    outside: Float[Tensor, "runs samples directions columns"],
) -> AttentionPass:
    """The narrow network on points whose last coordinates are along directions of their own, with weights there.

    These weights have more columns a head than the narrow network, which is zero in the further ones.
    """
    inside, own = x.split([params["weights"].shape[1], outside.shape[2]], dim=3)
    wider = (outside.shape[3] // network.heads - 1) // 2
    scores = network.score_columns(params["weights"]).unflatten(2, (-1, network.hidden))
    scores = pad(scores, (0, wider - network.hidden)).flatten(2)
    weights = torch.cat([scores, network.values(params)], dim=2)
    products = inside @ weights[:, None] + own @ outside
    wide = narrowed(network, wider)
    return ProductsPass(wide, params, pad(products, (0, wide.spare_columns())))
