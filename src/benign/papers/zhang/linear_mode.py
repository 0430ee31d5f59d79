"""What the linear mode of the attention network does, in closed form (papers/zhang.md S5 to S8).

With W_Q = W_K = 0 attention is uniform for ever and f(X) = <xbar, u>, xbar the mean of the M tokens.
The worst perturbation, the radius at which training stalls, the radius up to which the points can be
separated, the test errors and the time to converge are then known without training.
"""

import math
from statistics import NormalDist
from typing import Literal, TypeAlias

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import ArrayLike
from torch import Tensor

from benign.data.model import column

Number: TypeAlias = float | Float[Tensor, " runs"]
"""a number, or one a run"""
Norm: TypeAlias = Literal[1, 2] | float
"""norm of the ball: 1, 2 or infinity"""
Per: TypeAlias = Literal["token", "sample"]
Points: TypeAlias = Float[Tensor, "runs samples tokens dim"]
Labels: TypeAlias = Float[Tensor, "runs samples"]
Vectors: TypeAlias = Float[Tensor, "runs dim"]

DUAL: dict[float, float] = {1: math.inf, 2: 2, math.inf: 1}


def worst_drop(
    u: Vectors, tokens: int, radius: Number, p: Norm = 2, per: Per = "token"
) -> Float[Tensor, " runs"]:
    """How far a perturbation in an l_p ball can lower a margin y f (S5).

    tau |u|_p* with a ball for every token, 1/p + 1/p* = 1. One ball over the whole point gives the
    dual norm of (u/M, ..., u/M) instead of the mean of M of them: less by the factor M^(-1/p).
    """
    if p not in DUAL:
        raise ValueError(
            f"`p` must be 1, 2 or infinity, got {p}: the other balls have no attack here"
        )
    share = tokens ** (-1 / p) if per == "sample" else 1.0
    length = torch.linalg.vector_norm(u, DUAL[p], dim=1)
    return share * column(radius, length) * length


def worst_margin(
    u: Vectors, x: Points, y: Labels, radius: Number, p: Norm = 2, per: Per = "token"
) -> Float[Tensor, "runs samples"]:
    """min over the ball of y f, point by point: y <xbar, u> less the worst drop (S5)."""
    clean = torch.einsum("rnd,rd->rn", _signed_means(x, y), u)
    return clean - worst_drop(u, x.shape[2], radius, p, per)[:, None]


def stall_radius(x: Points, y: Labels, p: Norm = 2) -> Float[Tensor, " runs"]:
    """|m|_p with m = mean_n y_n xbar_n: from this tau on, u = 0 is best and training stalls at log 2 (S6)."""
    return torch.linalg.vector_norm(_signed_means(x, y).mean(1), p, dim=1)


def expected_stall_radius(
    signal: Number, snr: Number, tokens: int, samples: int
) -> float | Float[Tensor, " runs"]:
    """About what |m|_2 is for balanced signal-noise data: (|mu|/M) sqrt(1/2 + (M-1)/(N SNR^2)) (S6)."""
    return signal / tokens * (0.5 + (tokens - 1) / (samples * snr**2)) ** 0.5


def separator(x: Points, y: Labels) -> Vectors:
    """The point nearest to 0 in the convex hull of the y_n xbar_n (S6).

    Along it the smallest margin is the largest possible, and equal to its length. It is zero, up to
    rounding, where no u separates the points.
    """
    return torch.stack([_nearest_to_zero(each) for each in _signed_means(x, y)])


def separation_radius(x: Points, y: Labels) -> Float[Tensor, " runs"]:
    """Length of the separator: the robust loss can go to 0 just for l2 balls of a smaller radius (S6)."""
    return torch.linalg.vector_norm(separator(x, y), dim=1)


def population_error(
    u: Vectors,
    signals: Float[Tensor, "runs 2 dim"],
    noise_std: Number,
    tokens: int,
    radius: Number = 0.0,
    *,
    strong_noise_std: Number | None = None,
    projected: bool = True,
    p: Norm = 2,
    per: Per = "token",
) -> Float[Tensor, " runs"]:
    """Probability of y f <= 0 at a fresh point, or somewhere in the ball around it, exactly (S7).

    Given y = +-1, M y f is Gaussian with mean +-<mu_+-, u>; the M - 1 noise tokens make its standard
    deviation, one of them with `strong_noise_std` if given. Projected noise sees only the part of u
    off the signals.
    """
    means = torch.einsum("rsd,rd->rs", signals, u) * u.new_tensor([1.0, -1.0])
    means = means - tokens * worst_drop(u, tokens, radius, p, per)[:, None]
    length = torch.linalg.vector_norm(_off(u, signals) if projected else u, dim=1)
    weak = column(noise_std, length)
    strong = weak if strong_noise_std is None else column(strong_noise_std, length)
    others = tokens - 1
    variance = min(others, 1) * strong**2 + max(others - 1, 0) * weak**2
    deviation = (variance.sqrt() * length)[:, None]
    error = torch.special.ndtr(-means / deviation)
    certain = (means <= 0).to(u.dtype)  # a tie is an error
    return torch.where(deviation > 0, error, certain).mean(1)


def critical_snr(samples: ArrayLike, tokens: ArrayLike, dim: int, accuracy: float) -> np.ndarray:
    """The SNR at which clean accuracy is this: N SNR^4 = 4 (M - 1)^2 z^2 / d with z = Phi^-1(accuracy).

    u is along mean_n y_n xbar_n, whose noise outweighs its signal there: y f has mean over deviation
    z = SNR^2 sqrt(d N) / (2 (M - 1)) at fresh points (papers/zhang.md section 5).
    """
    z, others = NormalDist().inv_cdf(accuracy), np.asarray(tokens) - 1
    return np.asarray((4 * others**2 * z**2 / (dim * np.asarray(samples))) ** 0.25)


def convergence_steps(
    target_loss: Number,
    rate: Number,
    signal: Number,
    tokens: int,
    radius: Number = 0.0,
    output_norm: Number = 1.0,
) -> Float[Tensor, " *runs"]:
    """Steps until the robust loss is small: 2 M^2 / (eta eps |w_O|^2 |mu|^2 (1 - sqrt2 M tau/|mu|)^2) (S8).

    Leading order in eps for balanced points without noise; infinite from the stall radius on.
    `tokens=1` is attention that looks at the signal only.
    """
    numbers = (target_loss, rate, signal, radius, output_norm)
    eps, eta, mu, tau, norm = (torch.as_tensor(each, dtype=torch.float64) for each in numbers)
    robust_signal = (mu - math.sqrt(2) * tokens * tau).clamp_min(0)
    return 2 * tokens**2 / (eta * eps * (norm * robust_signal) ** 2)


def _signed_means(x: Points, y: Labels) -> Float[Tensor, "runs samples dim"]:
    """y_n xbar_n."""
    return y[..., None] * x.mean(2)


def _off(u: Vectors, signals: Float[Tensor, "runs 2 dim"]) -> Vectors:
    """The part of u orthogonal to the two signals, which are orthogonal to each other."""
    units = torch.nn.functional.normalize(signals, dim=2)
    return u - torch.einsum("rs,rsd->rd", torch.einsum("rsd,rd->rs", units, u), units)


def _nearest_to_zero(points: Float[Tensor, "samples dim"]) -> Float[Tensor, " dim"]:
    """Nearest point to 0 of a convex hull, by non-negative least squares.

    With w = s lambda, lambda in the simplex, |sum_n w_n z_n|^2 + (s - 1)^2 is smallest over s at
    r^2 / (1 + r^2), r = |sum_n lambda_n z_n|: it has the same best lambda.
    """
    from scipy.optimize import nnls  # not above: the import takes 0.2 s

    columns = points.T.double()
    size = torch.linalg.vector_norm(columns, dim=0).max().clamp_min(torch.finfo().tiny)
    triangle = torch.linalg.qr(columns / size, mode="r").R  # the same lengths in fewer rows
    rows = torch.cat([triangle, triangle.new_ones(1, len(points))]).numpy(force=True)
    target = rows[:, 0] * 0
    target[-1] = 1
    weights = torch.from_numpy(nnls(rows, target)[0]).to(columns.device)
    return (columns @ (weights / weights.sum())).to(points.dtype)
