"""Elementary bounds of Zhang et al. that hold, or fail, without training: norms, and products of perturbed tokens."""

import math

import torch
from torch import Tensor

from benign.claims import Claims, Evidence, Measured, at_least, at_most, exact, share, worst
from benign.papers.zhang import bounds
from benign.papers.zhang.claims.starts import FAILURE, sizes, token_draws

CLAIMS = Claims("zhang")
WITHIN = at_most(1.0 + 1e-12)
ORDERS = ((1.0, 2.0), (2.0, 4.0), (1.0, torch.inf), (2.0, torch.inf))
"""p <= q"""


def _vectors(evidence: Evidence, dim: int = 50) -> Tensor:
    """Dense vectors, and the two extremes: one coordinate, and all of one size."""
    count = evidence.size(100, 1000, 10_000)
    draws = torch.randn(count, dim, generator=evidence.generator(), dtype=torch.float64)
    return torch.cat([draws, torch.eye(1, dim), torch.ones(1, dim)])


def _ratios(x: Tensor, left: float, right: float, factor: float) -> Tensor:
    """|x|_left / (factor |x|_right)."""
    return x.norm(left, 1) / (factor * x.norm(right, 1))


@CLAIMS.add("appE.ineq2", "Appendix E, (2)", WITHIN, informational=("corrected",))
def norms_falling(evidence: Evidence) -> dict[str, Measured]:
    """|x|_q <= d^(1/q - 1/p) |x|_p for every vector x and p <= q."""
    x = _vectors(evidence)
    forms = {
        "printed": bounds.larger_norm_factor_printed,
        "corrected": bounds.larger_norm_factor_corrected,
    }
    return {
        name: worst(
            "left side / right side",
            torch.cat([_ratios(x, q, p, factor(x.shape[1], p, q)) for p, q in ORDERS]).numpy(),
        )
        for name, factor in forms.items()
    }


@CLAIMS.add("appE.ineq3", "Appendix E, (3)", WITHIN)
def norms_of_a_vector(evidence: Evidence) -> Measured:
    """|x|_inf <= |x|_2 <= sqrt(d) |x|_inf and |x|_2 <= |x|_1 <= sqrt(d) |x|_2 for every vector x."""
    x = _vectors(evidence)
    root = math.sqrt(x.shape[1])
    sides = ((torch.inf, 2, 1.0), (2, torch.inf, root), (2, 1, 1.0), (1, 2, root))
    ratios = [_ratios(x, left, right, factor) for left, right, factor in sides]
    return worst("left side / right side", torch.cat(ratios).numpy())


@CLAIMS.add(
    "main.norm_equiv",
    "discussion of multi-norm attacks",
    WITHIN,
    informational=("corrected_lower", "corrected_upper"),
)
def norm_equivalence(evidence: Evidence) -> dict[str, Measured]:
    """|x|_2 <= |x|_p <= d^(1/2 - 1/p) |x|_2 for every vector x and p >= 2."""
    x, orders = _vectors(evidence), (3.0, 4.0, 8.0, torch.inf)

    def largest(left: float | None, right: float | None, power: float) -> Measured:
        """Norms of order p where None is given."""
        factors = [x.shape[1] ** (power * (1 / 2 - 1 / p)) for p in orders]
        ratios = [
            _ratios(x, left or p, right or p, factor)
            for p, factor in zip(orders, factors, strict=True)
        ]
        return worst("left side / right side", torch.cat(ratios).numpy())

    return {
        "printed_lower": largest(2.0, None, 0),
        "printed_upper": largest(None, 2.0, 1),
        "corrected_lower": largest(None, 2.0, 0),
        "corrected_upper": largest(2.0, None, 1),
    }


@CLAIMS.add("lem13.signal_inner_lower", "Lemma 13", at_least(-1e-9))
def smallest_signal_product(evidence: Evidence) -> dict[str, Measured]:
    """Two perturbed copies of one signal have a product of at least (|mu| - tau)^2, at any radius."""
    return {
        f"r={r:g}": exact(
            "(smallest product - (|mu| - tau)^2) / |mu|^2",
            _smallest_product(r, evidence.size(500, 2000, 10_000))
            - bounds.signal_product_printed(r),
            f"corrected {bounds.signal_product_corrected(r):.4g}",
        )
        for r in (0.2, 0.5, 0.6, 0.8)
    }


def _smallest_product(r: float, angles: int) -> float:
    """min <a, b> over the disc of radius r around (1, 0): for every a the best b gives a_1 - r |a|.

    A disc is enough: the best b lies in the plane of mu and a. So is its circle, where a ray from 0 ends.
    """
    turn = torch.linspace(0, math.pi, angles + 1, dtype=torch.float64)
    first, second = 1 + r * turn.cos(), r * turn.sin()
    return float((first - r * torch.hypot(first, second)).min())


@CLAIMS.add("lem13.uniform_in_ball", "Lemma 13", at_most(FAILURE), informational=("independent",))
def cross_products(evidence: Evidence) -> dict[str, Measured]:
    """With probability 0.95 every |<mu~, xi~>| over the balls around signal and noise tokens stays below
    |mu| tau + sigma_p tau sqrt(2 log(4 N M / delta)) + tau^2 (tau = |mu| / log d_h)."""
    n = sizes(evidence)
    mu, tau = math.sqrt(n.signal), n.radius * math.sqrt(n.signal)
    bound = bounds.cross_product_printed(mu, tau, n.noise_std, n.samples, n.tokens, FAILURE)
    noise = token_draws(evidence, n)[:, 2:].norm(dim=2)
    reached, _ = bounds.cross_product_corrected(mu, tau, noise)
    # Perturbations that do not know the other token: fixed directions e, e' of length 1, so that
    # <mu + tau e, xi + tau e'> = tau <mu, e'> + tau <e, xi> + tau^2 <e, e'>, with <e, xi> normal.
    along = torch.randn(noise.shape, generator=evidence.generator(2), dtype=torch.float64)
    fixed = mu * tau + tau * n.noise_std * along.abs() + tau**2
    return {
        "worst": share("draws with a larger one", (reached > bound).any(1).numpy(), "draw"),
        "independent": share("draws with a larger one", (fixed > bound).any(1).numpy(), "draw"),
    }
