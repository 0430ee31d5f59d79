"""Certificates: margins that no attack in a ball can undercut.

An attack bounds the smallest margin in a ball from above, a certificate from below: where it is
positive the point is proven robust, up to rounding. Linear networks have the exact minimum, the
others a bound.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf, sqrt
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from benign.losses import margin
from benign.networks.attention import Attention, AttentionPass
from benign.networks.linear import Linear
from benign.networks.network import Network, Params
from benign.networks.patch_cnn import PatchCNN, PatchCNNPass
from benign.networks.singular import spectral_bound
from benign.networks.two_layer import TwoLayer, TwoLayerPass

Norm = Literal[0, 1, 2, "inf"]
Per = Literal["token", "sample"]
Points = Float[Tensor, "runs samples tokens dim"]
Margins = Float[Tensor, "runs samples"]

DUAL: dict[Norm, float] = {1: inf, 2: 2, "inf": 1}


@dataclass(frozen=True)
class Reach:
    """How far a point can be moved: l_p balls around every token, or one around the whole point."""

    p: Norm
    """1, 2 or inf"""
    radius: Margins
    """of every point"""
    per: Per

    def dual_norm(self, rows: Float[Tensor, "*rows dim"]) -> Float[Tensor, "*rows"]:
        """How far a token's product with each row moves, in units of the radius.

        A token of a shared ball may have all of it.
        """
        return torch.linalg.vector_norm(rows, DUAL[self.p], dim=-1)

    def drop(self, slopes: Float[Tensor, "*rows tokens dim"]) -> Float[Tensor, "*rows"]:
        """How far a linear function of the point falls at most, in units of the radius; exact."""
        if self.per == "token":
            return self.dual_norm(slopes).sum(-1)
        return self.dual_norm(slopes.flatten(-2))

    def token_l2(self, dim: int) -> float:
        """Radius of the smallest l2 ball that holds the ball of a token, in units of the radius."""
        return sqrt(dim) if self.p == "inf" else 1.0

    def point_l2(self, tokens: int, dim: int) -> float:
        """The same for a whole point."""
        shares = self.per == "sample" and self.p != "inf"
        return self.token_l2(dim) * (1.0 if shares else sqrt(tokens))


Certificate = Callable[[Any, Params, Points, Margins, Reach], Margins]
"""network, parameters, points, labels, reach -> a lower bound of the smallest margin of every point"""

CERTIFICATES: dict[type[Network], Certificate] = {}
"""by class and not by base class: a subclass may compute something else"""


def certificate(network: type[Network]) -> Callable[[Certificate], Certificate]:
    """Registers the function below it as the certificate of a class of networks."""

    def register(bound: Certificate) -> Certificate:
        CERTIFICATES[network] = bound
        return bound

    return register


def certified_margin(
    network: Network,
    params: Params,
    x: Points,
    y: Margins,
    p: Norm,
    radius: float | Tensor,
    per: Per,
    box: object = None,
) -> Margins | None:
    """A lower bound of the smallest margin in the ball around every point; None where there is none.

    The radius is a number or a tensor that broadcasts to [runs, samples]. A box is accepted and
    ignored: it only takes points out of the ball. There is no certificate for p = 0, nor for a
    class of networks that registered none.
    """
    bound = CERTIFICATES.get(type(network))
    if bound is None or p == 0:
        return None
    size = torch.as_tensor(radius, dtype=x.dtype, device=x.device)
    if size.ndim not in (0, 2):
        raise ValueError(
            f"`radius` must be a number or a tensor [runs, samples], got the shape {tuple(size.shape)}: "
            "add an axis of length 1"
        )
    if (size < 0).any():
        raise ValueError(f"`radius` must not be negative, got {float(size.min())}")
    return bound(network, params, x, y, Reach(p, size.expand(x.shape[:2]), per))


@certificate(Linear)
def _linear(network: Network, params: Params, x: Points, y: Margins, reach: Reach) -> Margins:
    """The exact minimum of y f where f is linear in the attacked points.

    For `Linear` it is y <xbar, u> - tau |u|_p* with a ball for each token (papers/zhang.md S5).
    """
    here = network.attacked_pass(params, x, x)
    return y * here.outputs - reach.radius * reach.drop(here.inputs_gradient(torch.ones_like(y)))


@certificate(TwoLayer)
def _two_layer(network: TwoLayer, params: Params, x: Points, y: Margins, reach: Reach) -> Margins:
    """The better of two bounds (papers/wang.md 1.5).

    By neuron: each <w_s, x> moves by at most tau |w_s|_p* and phi does not fall, so every term
    y a_s phi is smallest at one end of its interval; nearly tight when the rows are parallel.
    By norm: phi has slopes of at most 1, so |f(x) - f(x')| <= |a| |W|_2 |x - x'|.
    """
    here = TwoLayerPass(network, params, x)
    rows = network.inner_weights(params)
    moves = reach.drop(rows.unflatten(2, x.shape[2:]))[:, None] * reach.radius[..., None]
    outer = y[..., None] * params["outer"][:, None]
    by_neuron = (outer * network.activate(here.preactivations - outer.sign() * moves)).sum(2)
    if "outer_bias" in params:
        by_neuron = by_neuron + y * params["outer_bias"][:, None]
    slope = torch.linalg.vector_norm(params["outer"], dim=1) * spectral_bound(rows)
    by_norm = y * here.outputs - slope[:, None] * reach.radius * reach.point_l2(*x.shape[2:])
    return torch.maximum(by_neuron, by_norm)


@certificate(PatchCNN)
def _patch_cnn(network: PatchCNN, params: Params, x: Points, y: Margins, reach: Reach) -> Margins:
    """The own class at its lowest against each rival at its highest (papers/li.md, Theorem 4.4).

    Each <w_jr, x_p> moves by at most eps |w_jr|_p*, and psi does not fall. With one ball for the
    point every patch is given all of it, which is still a bound.
    """
    products = PatchCNNPass(network, params, x).preactivations
    moves = reach.radius[..., None, None, None] * reach.dual_norm(params["weights"])[:, None, None]
    lowest, highest = (network.activate(products + sign * moves).sum(4).sum(2) for sign in (-1, 1))
    own = y if network.outputs == "classes" else (y > 0).to(y.dtype)
    index = own.long()[..., None]
    return margin(highest.scatter(2, index, lowest.gather(2, index)), own)


@certificate(Attention)
def _attention(network: Attention, params: Params, x: Points, y: Margins, reach: Reach) -> Margins:
    """Scores and values in intervals, then the smallest output that these allow.

    Row l of a head is a softmax average of the values y v_j >= y v_j(x) - tau |u|_p*; its exact
    minimum over the intervals is `smallest_average`. Rows and heads are bounded one by one. Where
    no score moves f is linear, and the bound exact. With one ball for the point every token is
    given all of it, which is still a bound.
    """
    if network.attend != "learned" or network.exposed == "values":
        return _linear(network, params, x, y, reach)
    here = AttentionPass(network, params, x)
    values = y[..., None, None] * here.values
    if network.exposed == "all":
        u = network.values(params).transpose(1, 2)
        values = values - _of_points(reach.radius, 2) * reach.dual_norm(u)[:, None, :, None]
    low, high = _score_intervals(network, params, x, reach)
    return smallest_average(values, low, high).mean(-1).sum(-1)


def _score_intervals(
    network: Attention, params: Params, x: Points, reach: Reach
) -> tuple[Tensor, Tensor]:
    """Lowest and highest scores [runs, samples, heads, tokens, tokens] in the ball.

    With q_l = W_Q^T x_l and k_j = W_K^T x_j, moving tokens l and j by a and b moves S_lj by
    <a, W_Q k_j> + <b, W_K q_l> + <a, W_Q W_K^T b>. The triangle inequality and dual norms bound it,
    also for j = l, where b = a. Attention does not change when a row's scores are shifted together,
    so keys count from the mean clean key, which narrows the intervals.
    """
    shape = (network.heads, network.hidden)
    query, key = (
        columns.unflatten(2, shape).transpose(1, 2)[:, None]
        for columns in (network.queries(params), network.keys(params))
    )
    queries, keys = (x[:, :, None] @ weights for weights in (query, key))
    keys = keys - keys.mean(-2, keepdim=True)
    by_query = reach.dual_norm(keys @ query.transpose(-1, -2))[..., None, :]
    by_key = reach.dual_norm(queries @ key.transpose(-1, -2))[..., :, None]
    both = reach.token_l2(x.shape[3]) ** 2 * product_norm(query, key)[..., None, None]
    radius = _of_points(reach.radius, 3)
    moves = radius * (by_query + by_key) + radius**2 * both
    scores = queries @ keys.transpose(-1, -2)
    return scores - moves, scores + moves


def smallest_average(
    values: Float[Tensor, "*points tokens"],
    low: Float[Tensor, "*points rows tokens"],
    high: Float[Tensor, "*points rows tokens"],
) -> Float[Tensor, "*points rows"]:
    """The minimum of sum_j softmax(s)_j v_j over all scores low <= s <= high, for every row; exact.

    The derivative in s_j is softmax_j (v_j - average): at the minimum the scores of values below the
    average are as high, and the others as low, as they can be. So the k smallest are high, for some k.
    """
    values = values[..., None, :]
    rank = values.argsort(-1).argsort(-1)
    smallest = torch.full_like(low[..., 0], inf)
    for k in range(values.shape[-1] + 1):
        weights = torch.where(rank < k, high, low).softmax(-1)
        smallest = torch.minimum(smallest, (weights * values).sum(-1))
    return smallest


def product_norm(
    left: Float[Tensor, "*batch dim hidden"], right: Float[Tensor, "*batch dim hidden"]
) -> Float[Tensor, "*batch"]:
    """|A B^T|_2 by the triangular factors of A and B, which are small where dim is large."""
    first, second = (torch.linalg.qr(each, mode="r").R for each in (left, right))
    return spectral_norm(first @ second.transpose(-1, -2))


def spectral_norm(matrix: Float[Tensor, "*batch rows columns"]) -> Float[Tensor, "*batch"]:
    """The largest singular value; NaN where a number is not finite (an eigenvalue solver would raise).

    From the smaller Gram matrix: several times as fast as all singular values, as exact for the largest.
    """
    rows, columns = matrix.shape[-2:]
    wide = matrix if rows <= columns else matrix.transpose(-1, -2)
    gram = wide @ wide.transpose(-1, -2)
    finite = gram.isfinite().all(-1).all(-1)
    largest = torch.linalg.eigvalsh(torch.where(finite[..., None, None], gram, 0.0))[..., -1]
    return torch.where(finite, largest.clamp_min(0).sqrt(), torch.nan)


def _of_points(numbers: Margins, axes: int) -> Tensor:
    """Numbers of points, ready to multiply what has more axes."""
    return numbers.reshape(*numbers.shape, *[1] * axes)
