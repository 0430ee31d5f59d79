"""Queries and keys of the tokens of one point, in as many directions as they have: 2 M, whatever the width is."""

import torch
from jaxtyping import Float
from torch import Tensor

Inside = Float[Tensor, "runs samples tokens dim"]
"""tokens"""
Weights = Float[Tensor, "runs dim 2 heads width"]
"""W_Q and W_K of every head"""

PIECE = 50
"""points whose products are computed together on a CPU, in its cache: 74 GFLOP/s, 10 whole runs at once 55 (P = 302)"""


def products_by_head(
    inside: Inside, weights: Weights
) -> Float[Tensor, "runs samples tokens 2 heads width"]:
    """Return queries and keys of all tokens."""
    products = inside.flatten(1, 2) @ weights.flatten(2)
    return products.unflatten(2, weights.shape[2:]).unflatten(1, inside.shape[1:3])


def in_own_directions(
    inside: Inside, weights: Weights
) -> Float[Tensor, "runs samples tokens 2 heads twice"]:
    """Return queries and keys of the tokens of each point in an orthonormal basis of their own span."""
    gram = _grams(inside, weights)
    # Rounding may make a Gram matrix indefinite by so much. Products of different vectors do not change.
    limits = torch.finfo(gram.dtype)
    slack = 2 * gram.shape[-1] * limits.eps
    gram.diagonal(dim1=-2, dim2=-1).mul_(1 + slack).add_(limits.tiny)
    factor, _ = torch.linalg.cholesky_ex(gram)
    return factor.unflatten(3, (2, -1)).permute(0, 1, 4, 3, 2, 5)


def _grams(inside: Inside, weights: Weights) -> Float[Tensor, "runs samples heads twice twice"]:
    """Return the inner products of the queries, then keys, of the tokens of each point.

    From queries and keys, or by W_Q W_Q^T, W_K W_Q^T and W_K W_K^T, if these matrices are smaller than the weights.
    """
    (runs, samples, tokens, dim), (heads, width) = inside.shape, weights.shape[3:]
    if 2 * width < 3 * dim:
        vectors = products_by_head(inside, weights).permute(0, 1, 4, 3, 2, 5).flatten(3, 4)
        return vectors @ vectors.transpose(3, 4)
    queries, keys = weights.permute(2, 0, 3, 1, 4)
    pairs = ((queries, queries), (keys, queries), (keys, keys))
    forms = torch.stack([one @ other.transpose(2, 3) for one, other in pairs], dim=2)
    forms = forms.permute(0, 3, 1, 2, 4).flatten(2)
    found = inside.new_empty(runs, samples, tokens * heads * 3, tokens)
    some, size = (1, PIECE) if inside.device.type == "cpu" else (runs, samples)
    for run in range(0, runs, some):
        for begin in range(0, samples, size):
            here = slice(run, run + some), slice(begin, begin + size)
            points = inside[here]
            moved = points.flatten(1, 2) @ forms[here[0]]
            moved = moved.reshape(-1, tokens * heads * 3, dim)
            found[here] = (moved @ points.flatten(0, 1).transpose(1, 2)).view_as(found[here])
    queries, crossed, keys = found.unflatten(2, (tokens, heads, 3)).permute(4, 0, 1, 3, 2, 5)
    gram = inside.new_empty(runs, samples, heads, 2 * tokens, 2 * tokens)
    gram[..., :tokens, :tokens] = queries
    gram[..., :tokens, tokens:] = crossed.transpose(3, 4)
    gram[..., tokens:, :tokens] = crossed
    gram[..., tokens:, tokens:] = keys
    return gram
