"""The linear rule that Wang's networks come close to: sign<u, x> with u = sum_i y_i x_i (papers/wang.md 2.3, 2.5).

Errors are those of Gaussian clusters with unit noise, in an l2 ball of radius alpha; s = <u, mu> / |u|.
After one clean step from a vanishing start a network with a smooth activation *is* this rule.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from benign.papers.wang.bounds import Number, Numbers

ndtr = torch.special.ndtr


class Errors(NamedTuple):
    """Of a linear rule against labels that are flipped with chance beta."""

    clean: Numbers
    robust: Numbers


def linear_rule_errors(s: Number, radius: Number, flip: Number = 0.0) -> Errors:
    """Clean: beta + (1 - 2 beta) Phi(-s). Robust: (1 - beta) Phi(-(s - alpha)) + beta (1 - Phi(-(s + alpha)))."""
    s, alpha, beta = (torch.as_tensor(each, dtype=torch.float64) for each in (s, radius, flip))
    robust = (1 - beta) * ndtr(alpha - s) + beta * ndtr(s + alpha)
    return Errors(beta + (1 - 2 * beta) * ndtr(-s), robust)


def averaged_alignment(signal: Number, dim: Number, samples: Number, flip: Number = 0.0) -> Numbers:
    """s ~ q r^2 / sqrt(n d + q^2 r^2) of a typical draw, with q = (1 - 2 beta) n."""
    r, d, n = (torch.as_tensor(each, dtype=torch.float64) for each in (signal, dim, samples))
    kept = (1 - 2 * torch.as_tensor(flip, dtype=torch.float64)) * n
    return kept * r**2 / (n * d + (kept * r) ** 2).sqrt()


def critical_dim(signal: Number, samples: Number, radius: Number, flip: Number = 0.0) -> Numbers:
    """The d at which s - alpha = 1, an error of 1 - Phi(1) against clean labels (papers/wang.md 2.5).

    d = (q^2 / n) (r^4 / (1 + alpha)^2 - r^2) with q = (1 - 2 beta) n.
    """
    r, n, alpha, beta = (
        torch.as_tensor(each, dtype=torch.float64) for each in (signal, samples, radius, flip)
    )
    return (1 - 2 * beta) ** 2 * n * (r**4 / (1 + alpha) ** 2 - r**2)


def alignment(
    x: Float[Tensor, "runs samples dim"],
    y: Float[Tensor, "runs samples"],
    signal: Float[Tensor, "runs dim"],
) -> Float[Tensor, " runs"]:
    """s = <u, mu> / |u| of these training points: u = sum_i y_i x_i."""
    u = torch.einsum("rn,rnd->rd", y, x)
    return (u * signal).sum(1) / torch.linalg.vector_norm(u, dim=1)
