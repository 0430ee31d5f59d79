"""Clean runs of an attention network in the coordinates of their tokens, drawn in R^d: the same runs for less.

As in `narrow`, only what the weights are on the span of the training tokens moves, and only in the directions of
R^d_h that their queries and keys have there. Fresh points meet the whole weights, W(0) + E (V(t) - V(0)) O^T, where E
is a basis of the span, O one of those directions, and V what is trained (papers/jiang.md 7.1).
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from benign.data.model import DataModel, Sample
from benign.networks.attention import Attention
from benign.networks.network import Network, Params, Pass
from benign.reduction.reduced_attention import narrow_width, narrowed
from benign.reduction.span import View, view_of_span
from benign.reduction.test_points import TestPoints
from benign.spec import axes


@dataclass(frozen=True)
class Expanded(TestPoints):
    """Points of R^d, on which the trained weights are put back into the whole ones."""

    view: View
    """the span of the training tokens"""
    network: Attention
    """of full width"""
    whole: Params
    """its weights at the start"""
    directions: Float[Tensor, "runs heads hidden width"] | None
    """of every head those of R^d_h that are trained; None where all are"""
    start: Float[Tensor, "runs tokens columns"]
    """the narrow network's weights at the start"""

    def model(self, data: DataModel) -> DataModel:
        return self.view.data

    def run(self, network: Network, params: Params, sample: Sample) -> Pass:
        assert isinstance(network, Attention)
        moved = _widened(network, params["weights"] - self.start, self.directions)
        spare = self.network.spare_columns()
        moved = torch.nn.functional.pad(moved, (0, spare))
        weights = torch.baddbmm(self.whole["weights"], self.view.basis, moved)
        return self.network.run({**self.whole, "weights": weights}, sample.x)

    def select(self, places: Tensor) -> "Expanded":
        whole = {name: part[places] for name, part in self.whole.items()}
        directions = None if self.directions is None else self.directions[places]
        network = axes.select(self.network, places)
        return Expanded(self.view.select(places), network, whole, directions, self.start[places])


def expanded(
    data: DataModel, network: Attention, sample: Sample, whole: Params
) -> tuple[Attention, Params, Sample, Expanded]:
    """The narrow network, its weights, the training points as it sees them, and how it sees fresh ones."""
    view = view_of_span(data, sample, sample.x.new_zeros(len(sample.x), 0, data.dim))
    inside = view.of(whole["weights"].transpose(1, 2)).transpose(1, 2)
    width = narrow_width(network, inside.shape[1])
    directions = None if width == network.hidden else _directions(network, inside)
    narrow = narrowed(network, width)
    rows = _in_directions(network, inside, directions).transpose(1, 2)
    norm = torch.linalg.vector_norm(whole["output"], dim=1, keepdim=True)
    params = narrow.with_rows({"output": norm}, rows)
    beyond = whole["weights"] - torch.bmm(view.basis, inside)
    queries, keys, values = (
        part({"weights": beyond}) for part in (network.queries, network.keys, network.values)
    )
    parts = (queries, keys, values, values.sum(2, keepdim=True))
    params["unseen"] = torch.stack([part.square().sum((1, 2)) for part in parts], dim=1)
    source = Expanded(view, network, whole, directions, params["weights"].clone())
    return narrow, params, view.of_sample(sample), source


def _by_head(network: Attention, columns: Tensor) -> Float[Tensor, "runs rows 2 heads hidden"]:
    """The columns of W_Q and of W_K."""
    return network.score_columns(columns).unflatten(2, (2, network.heads, network.hidden))


def _directions(network: Attention, inside: Tensor) -> Float[Tensor, "runs heads hidden width"]:
    """Of every head an orthonormal basis of what its queries and keys span, for all tokens of the span."""
    vectors = _by_head(network, inside).permute(0, 3, 4, 1, 2).flatten(3)
    return torch.linalg.qr(vectors.double()).Q.to(inside.dtype)


def _in_directions(
    network: Attention, columns: Tensor, directions: Tensor | None
) -> Float[Tensor, "runs rows narrow_columns"]:
    """W_Q, W_K and u with queries and keys along the directions; without spare columns."""
    scores = _by_head(network, columns)
    if directions is not None:
        scores = torch.einsum("rtphk,rhkw->rtphw", scores, directions)
    return torch.cat([scores.flatten(2), network.values({"weights": columns})], dim=2)


def _widened(
    narrow: Attention, columns: Tensor, directions: Tensor | None
) -> Float[Tensor, "runs rows wide_columns"]:
    """The inverse, from the narrow network's columns."""
    turned = None if directions is None else directions.transpose(2, 3)
    return _in_directions(narrow, columns, turned)
