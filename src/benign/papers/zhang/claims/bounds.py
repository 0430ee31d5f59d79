"""Elementary bounds of Zhang et al. that hold, or fail, without training."""

import torch

from benign.claims import Claims, Evidence, Measured, at_most, worst

CLAIMS = Claims("zhang")


@CLAIMS.add("appE.ineq3", "Appendix E, (3)", at_most(1.0 + 1e-12))
def norms_of_a_vector(evidence: Evidence) -> Measured:
    """||x||_p <= d^(1/p - 1/q) ||x||_q for p <= q, for every vector x."""
    count = evidence.size(100, 1000, 10_000)
    draws = torch.randn(count, 50, generator=evidence.generator(), dtype=torch.float64)
    ratios = [
        draws.norm(p, 1) / (50 ** (1 / p - 1 / q) * draws.norm(q, 1))
        for p, q in ((1, 2), (2, 4), (1, torch.inf), (2, torch.inf))
    ]
    return worst("left side / right side", torch.stack(ratios).flatten().numpy())
