"""Certificates: lower bounds of the margin under every attack in a ball.

An attack bounds the smallest margin in a ball from above, a certificate from below: if that is
positive, the point is proven robust, up to rounding. Linear networks have the exact minimum, the
others a bound.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf, sqrt
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from benign.attacks.attack import Attack, Target
from benign.attacks.ensemble import EnsembleAttack
from benign.losses import margin
from benign.networks.attention import Attention, AttentionPass
from benign.networks.linear import Linear
from benign.networks.network import Network, Params
from benign.networks.patch_cnn import PatchCNN, PatchCNNPass
from benign.networks.singular import product_norm, spectral_bound
from benign.networks.two_layer import TwoLayer, TwoLayerPass

Norm = Literal[0, 1, 2, "inf"]
Per = Literal["token", "sample"]
Points = Float[Tensor, "runs samples tokens dim"]
Margins = Float[Tensor, "runs samples"]

DUAL: dict[Norm, float] = {1: inf, 2: 2, "inf": 1}


@dataclass(frozen=True)
class Reach:
    """How far an attack can move a point: l_p balls around every token, or one around the whole point."""

    p: Norm
    """1, 2 or inf"""
    radius: Margins
    """of every point"""
    per: Per

    def dual_norm(self, rows: Float[Tensor, "*rows dim"]) -> Float[Tensor, "*rows"]:
        """Return how far a token's product with each row moves at most, in units of the radius.

        A token that shares its ball with others may move by the whole radius.
        """
        return torch.linalg.vector_norm(rows, DUAL[self.p], dim=-1)

    def drop(self, slopes: Float[Tensor, "*rows tokens dim"]) -> Float[Tensor, "*rows"]:
        """Return how far a linear function of the point falls at most, in units of the radius; exact."""
        if self.per == "token":
            return self.dual_norm(slopes).sum(-1)
        return self.dual_norm(slopes.flatten(-2))

    def token_l2(self, dim: int) -> float:
        """Return the radius of the smallest l2 ball that contains the ball of a token, in units of the radius."""
        return sqrt(dim) if self.p == "inf" else 1.0

    def point_l2(self, tokens: int, dim: int) -> float:
        """Return the radius of the smallest l2 ball that contains the ball of a point, in units of the radius."""
        shares = self.per == "sample" and self.p != "inf"
        return self.token_l2(dim) * (1.0 if shares else sqrt(tokens))


Certificate = Callable[[Any, Params, Points, Margins, Reach], Margins]
"""network, parameters, points, labels, reach -> a lower bound of the smallest margin of every point"""


def _never(network: Network) -> bool:
    return False


CERTIFICATES: dict[type[Network], Certificate] = {}
"""for this class alone: a subclass may compute something else and registers its own"""
EXACT: dict[type[Network], Callable[[Any], bool]] = {}
"""whether the certificate of a network of this class is the smallest margin itself"""


def certificate(
    network: type[Network], exact: Callable[[Any], bool] = _never
) -> Callable[[Certificate], Certificate]:
    """Return a decorator that registers a function as the certificate of a class of networks.

    exact: whether the bound is reached, for one network of the class.
    """

    def register(bound: Certificate) -> Certificate:
        CERTIFICATES[network], EXACT[network] = bound, exact
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
    """Return a lower bound of the smallest margin in the ball around every point, or None if no certificate exists.

    The radius is a number or a tensor that broadcasts to [runs, samples]. A box is accepted and
    ignored: it only makes the ball smaller. There is no certificate for p = 0, nor for a class of networks
    that registered none.
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


def certified_margins(target: Target, attack: Attack) -> Margins:
    """Return a lower bound of the margin of every point in all balls of the attack."""
    bounds, threat = [], attack.threat()
    for ball in threat.each() if threat else []:
        radius = ball.radii(target.data, target.x)[:, :, 0, 0]
        bound = certified_margin(
            target.network, target.params, target.x, target.y, ball.p, radius, ball.per
        )
        assert bound is not None
        bounds.append(bound)
    return torch.stack(bounds).amin(0)


def is_exact(network: Network, attack: Attack | None) -> bool:
    """Return whether the attack asks for the smallest margin in whole balls and `certified_margins` has it.

    `EnsembleAttack` asks for it; every other attack is a way of attacking of its own.
    """
    if not isinstance(attack, EnsembleAttack) or not EXACT.get(type(network), _never)(network):
        return False
    return all(ball.p != 0 and ball.box is None for ball in attack.ball.each())


def _always(network: Network) -> bool:
    return True


def _is_linear(network: Attention) -> bool:
    """Return whether f is linear in the attacked tokens: no score moves."""
    return network.attend != "learned" or network.exposed == "values"


@certificate(Linear, exact=_always)
def _linear(network: Network, params: Params, x: Points, y: Margins, reach: Reach) -> Margins:
    """Return the exact minimum of y f if f is linear in the attacked points.

    For `Linear` it is y <xbar, u> - tau |u|_p* with a ball for each token (papers/zhang.md S5).
    """
    here = network.attacked_pass(params, x, x)
    return y * here.outputs - reach.radius * reach.drop(here.inputs_gradient(torch.ones_like(y)))


@certificate(TwoLayer)
def _two_layer(network: TwoLayer, params: Params, x: Points, y: Margins, reach: Reach) -> Margins:
    """Return the better of two bounds (papers/wang.md 1.5).

    By neuron: each <w_s, x> moves by at most tau |w_s|_p* and phi does not decrease, so every term
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
    """Return the lowest own output minus the highest rival output (papers/li.md, Theorem 4.4).

    Each <w_jr, x_p> moves by at most eps |w_jr|_p*, and psi does not decrease. If the patches share one
    ball, each of them is allowed the whole radius, which is still a bound.
    """
    products = PatchCNNPass(network, params, x).preactivations
    moves = reach.radius[..., None, None, None] * reach.dual_norm(params["weights"])[:, None, None]
    lowest, highest = (network.activate(products + sign * moves).sum(4).sum(2) for sign in (-1, 1))
    own = y if network.outputs == "classes" else (y > 0).to(y.dtype)
    index = own.long()[..., None]
    return margin(highest.scatter(2, index, lowest.gather(2, index)), own)


@certificate(Attention, exact=_is_linear)
def _attention(network: Attention, params: Params, x: Points, y: Margins, reach: Reach) -> Margins:
    """Return the smallest output over intervals of the scores and values.

    Row l of a head is a softmax average of the values y v_j >= y v_j(x) - tau |u|_p*; its exact
    minimum over the intervals is `smallest_average`. Rows and heads are bounded separately. If
    no score moves, f is linear and the bound exact. If the tokens share one ball, each of them is
    allowed the whole radius, which is still a bound.
    """
    if _is_linear(network):
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
    """Return the lowest and the highest scores [runs, samples, heads, tokens, tokens] in the ball.

    With q_l = W_Q^T x_l and k_j = W_K^T x_j, moving tokens l and j by a and b moves S_lj by
    <a, W_Q k_j> + <b, W_K q_l> + <a, W_Q W_K^T b>. The triangle inequality and dual norms bound it,
    also for j = l, where b = a. Attention does not change if all scores of a row are shifted together,
    so the mean clean key is subtracted from the keys, which narrows the intervals.
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
    """Return the exact minimum of sum_j softmax(s)_j v_j over all scores low <= s <= high, for every row.

    The derivative in s_j is softmax_j (v_j - average): at the minimum the scores of values below the
    average are as high, and the others as low, as they can be. So for some k, the scores of the k smallest
    values are high.
    """
    values = values[..., None, :]
    rank = values.argsort(-1).argsort(-1)
    smallest = torch.full_like(low[..., 0], inf)
    for k in range(values.shape[-1] + 1):
        weights = torch.where(rank < k, high, low).softmax(-1)
        smallest = torch.minimum(smallest, (weights * values).sum(-1))
    return smallest


def _of_points(numbers: Margins, axes: int) -> Tensor:
    """Return numbers of points with that many more axes of length 1."""
    return numbers.reshape(*numbers.shape, *[1] * axes)
