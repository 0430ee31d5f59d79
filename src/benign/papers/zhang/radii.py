"""Radii from which on classifiers must err, and up to which one is proven right (papers/zhang.md section 4).

For signal-noise data: token 1 is mu_y and the others are noise of one law, whatever y. Balls are l_p
and around every token, as in the paper. Zhang's Theorem 3 says that every classifier has a robust
error of at least 1/4 at tau >= |mu|. The argument behind it gives more: two points of opposite
classes with the same noise that can be moved to the same point make one error of two, so 1/2.
"""

from math import inf
from typing import Literal, TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor

Norm: TypeAlias = Literal[1, 2, "inf"]
Points: TypeAlias = Float[Tensor, "runs samples tokens dim"]
Signals: TypeAlias = Float[Tensor, "runs 2 dim"]
"""mu_+ and mu_-, as `SignalNoise` gives them (`sample.latent["signal"]`)"""
Radii: TypeAlias = Float[Tensor, "runs samples"]

Classifiers: TypeAlias = Literal["any", "permutation_invariant", "uniform_attention"]
"""all; those that do not see the order of tokens, as the attention network; f(X) = <xbar, u>"""


def universal_radius(signals: Signals, p: Norm = 2) -> Float[Tensor, " runs"]:
    """Return |mu_+ - mu_-|_p / 2, where the two signals meet (Theorem 3, sharpened); |mu| / sqrt2 for p = 2.

    From here on every classifier has a robust error of at least 1/2. Below, sign<x_1, mu_+ - mu_->
    has none for p = 2, and the nearest signal to token 1 has none for any p.
    """
    return torch.linalg.vector_norm(signals[:, 0] - signals[:, 1], _order(p), dim=1) / 2


def linear_radius(signals: Signals, tokens: int, p: Norm = 2) -> Float[Tensor, " runs"]:
    """Return |mu_+ - mu_-|_p / (2 M); |mu| / (sqrt2 M) for p = 2.

    From here on uniform attention errs at least half of the time on one of the classes. It is also
    where its training stalls when N SNR^2 is large (S6; `linear_mode.stall_radius` at any N).
    """
    return universal_radius(signals, p) / tokens


def permutation_radius(x: Points, signals: Signals, p: Norm = 2) -> Radii:
    """Return R_perm(xi) of every point: from here on no permutation-invariant classifier is right on both classes.

    Either the signals meet, or mu_y meets a noise token xi_a halfway and the noise token meets
    mu_-y halfway: min_a max(|xi_a - mu_+|, |xi_a - mu_-|) / 2. With noise orthogonal to the signals
    and p = 2 this is sqrt(|mu|^2 + min_a |xi_a|^2) / 2, and `nearest_token_radius` equals it.
    """
    through_noise = _to_signals(x, signals, p).amax(3).amin(2) / 2
    return torch.minimum(through_noise, universal_radius(signals, p)[:, None])


def chain_radius(x: Points, signals: Signals, p: Norm = 2) -> Radii:
    """Return R_perm by way of several noise tokens: at most `permutation_radius`, less if noise is not orthogonal.

    Along a chain mu_+ = t_0, ..., t_k = mu_- with noise tokens between, token t_i of class + and
    token t_(i+1) of class - meet halfway: the same tokens in another order. The best chain has the
    shortest longest link.
    """
    ends = signals[:, None].expand(-1, x.shape[1], -1, -1)
    nodes = torch.cat([ends, x[:, :, 1:]], dim=2)
    links = _distances(nodes, nodes, p)
    for via in range(2, nodes.shape[2]):
        detour = torch.maximum(links[:, :, :, via, None], links[:, :, via, None, :])
        links = torch.minimum(links, detour)
    return links[:, :, 0, 1] / 2


def nearest_token_radius(
    x: Points, signals: Signals, clean_y: Float[Tensor, "runs samples"], p: Norm = 2
) -> Radii:
    """Return up to which radius the nearest-token classifier is right in the whole ball: a certificate.

    g(X) = min_j |x_j - mu_-| - min_j |x_j - mu_+| is permutation invariant. At a point of class y no
    token is nearer to mu_-y than min_a |xi_a - mu_-y| or |mu_+ - mu_-|, so half of that is certified.
    """
    other = (clean_y > 0).long()[..., None, None]
    distances = _to_signals(x, signals, p)
    chosen = distances.gather(3, other.expand(*distances.shape[:3], 1))[..., 0]
    return torch.minimum(chosen.amin(2) / 2, universal_radius(signals, p)[:, None])


def proven_error(
    x: Points,
    signals: Signals,
    radius: float | Float[Tensor, " runs"],
    classifiers: Classifiers = "permutation_invariant",
    p: Norm = 2,
) -> Float[Tensor, " runs"]:
    """Return a robust error that no classifier of a kind stays below (Theorem 3, sharpened), at a token's radius.

    `permutation_invariant` is 1/2 P(chain radius <= tau), with the share of the given points for the
    probability: on points with these noises and fair labels the expected error is no less. `any` is
    1/2 from the universal radius on; `uniform_attention` also has 1/4 from the linear radius on.
    """
    tau = torch.as_tensor(radius, dtype=x.dtype, device=x.device).expand(len(x))
    everyone = (tau >= universal_radius(signals, p)).to(x.dtype) / 2
    if classifiers == "any":
        return everyone
    merged = (chain_radius(x, signals, p) <= tau[:, None]).to(x.dtype).mean(1) / 2
    if classifiers == "permutation_invariant":
        return merged
    stalled = (tau >= linear_radius(signals, x.shape[2], p)).to(x.dtype) / 4
    return torch.maximum(merged, stalled)


def _to_signals(x: Points, signals: Signals, p: Norm) -> Float[Tensor, "runs samples noise 2"]:
    """Distances of the noise tokens from mu_+ and mu_-; where there is no noise, one token at infinity."""
    if x.shape[2] == 1:
        return x.new_full((*x.shape[:2], 1, 2), inf)
    return _distances(x[:, :, 1:], signals[:, None].expand(-1, x.shape[1], -1, -1), p)


def _distances(
    first: Float[Tensor, "runs samples these dim"],
    second: Float[Tensor, "runs samples those dim"],
    p: Norm,
) -> Float[Tensor, "runs samples these those"]:
    """All of them, without the loss of digits that inner products would bring."""
    mode = "donot_use_mm_for_euclid_dist"
    return torch.cdist(first, second, p=_order(p), compute_mode=mode)


def _order(p: Norm) -> float:
    return inf if p == "inf" else float(p)
