"""The start (Appendix C): how often a draw of data and initial weights breaks the bounds of Lemmas C.1 to C.4.

Each is a tail bound with explicit constants that is proven for all sizes, so that only an error in the proof or in the
code breaks it: the measured shares show how loose the bounds are.
"""

import math

import torch
from torch import Tensor

from benign.claims import Claims, Evidence, Kind, Measured, at_most, share
from benign.papers.jiang.claims.studies import START, benign
from benign.papers.jiang.recursion import State, start
from benign.papers.jiang.theory import JiangNumbers, log_factor, start_spread

CLAIMS = Claims("jiang")
FAILURE = 0.05
"""delta of the lemmas"""
BROKEN = at_most(FAILURE)
LEVELS = {"delta": FAILURE}


def _start(evidence: Evidence) -> tuple[JiangNumbers, State]:
    """Return the numbers of the cell and the start of its runs: products of tokens, queries and keys, and values."""
    replay = evidence.replay()
    return JiangNumbers.of(replay.cell), start(replay.start())


def _failures(of: str, holds: Tensor) -> Measured:
    """Return the share of draws in which a bound fails, from where it holds [draws, ...]."""
    return share(f"share of draws in which {of}", ~holds.flatten(1).all(1).numpy(), "draw")


def _lengths(n: JiangNumbers) -> Tensor:
    """Return the mean squared lengths of the distinct tokens: signals, then strong and weak noise point by point."""
    point = [n.strong_noise_std**2 * n.dim] + [n.noise] * (n.tokens - 2)
    return torch.tensor([n.signal] * 2 + point * n.samples, dtype=torch.float64)


@CLAIMS.add("C1.class_balance", "Lemma C.1", BROKEN, kind=Kind.IDENTITY, levels=LEVELS)
def class_balance(evidence: Evidence) -> Measured:
    """Of N >= 8 log(4 / delta) points, each class has between N/4 and 3N/4, with probability 1 - delta."""
    count = math.ceil(8 * math.log(4 / evidence.levels["delta"]))
    draws = evidence.size(200, 1000, 10_000)
    coins = torch.rand(draws, count, generator=evidence.generator(), dtype=torch.float64) < 0.5
    positive = coins.sum(1)
    balanced = (positive >= count / 4) & (positive <= 3 * count / 4)
    return _failures(f"a class of {count} points is out of balance", balanced[:, None])


@CLAIMS.add(
    "C2.V_init",
    "Lemma C.2",
    BROKEN,
    START,
    conditions=benign,
    informational=("at the bound",),
    kind=Kind.BY_CONSTRUCTION,
    levels=LEVELS,
)
def initial_values(evidence: Evidence) -> dict[str, Measured]:
    """With probability 1 - delta the initial values of all tokens are at most d_h^(-1/4). Condition (7) hides a log
    factor. Here it is C_p sqrt(2 log(4 N M / delta)), so that the bound holds; without it strong tokens have values of
    C_p d_h^(-1/4)."""
    n, state = _start(evidence)
    spread = start_spread(
        n.samples, n.tokens, n.strong_noise_std / n.noise_std, evidence.levels["delta"]
    )
    sizes = state.values.abs() * n.hidden**0.25
    strong = torch.zeros(sizes.shape[1], dtype=torch.bool)
    strong[2 :: n.tokens - 1] = True
    return {
        "signals and weak noise": _failures(
            "some |V(0)| is too large", sizes[:, ~strong] <= spread
        ),
        "strong noise": _failures("some |V_{n,2}(0)| is too large", sizes[:, strong] <= spread),
        "at the bound": _failures("some |V(0)| is too large, sigma_V at (7)", sizes <= 1),
    }


@CLAIMS.add(
    "C3.QK_norms", "Lemma C.3", BROKEN, START, conditions=benign, kind=Kind.IDENTITY, levels=LEVELS
)
def query_key_norms(evidence: Evidence) -> Measured:
    """With probability 1 - delta, |q|^2 and |k|^2 of every token x are between 1/2 and 3/2 of |x|^2 sigma_h^2 d_h."""
    n, state = _start(evidence)
    expected = _lengths(n).repeat(2) * n.score_std**2 * n.hidden
    ratios = state.products.diagonal(dim1=1, dim2=2) / expected
    return _failures("a query or key has a length out of range", (ratios - 1).abs() <= 0.5)


@CLAIMS.add(
    "C3.QK_cross", "Lemma C.3", BROKEN, START, conditions=benign, kind=Kind.IDENTITY, levels=LEVELS
)
def query_key_products(evidence: Evidence) -> Measured:
    """With probability 1 - delta, the product of two different queries, of two different keys, or of a query and a key
    is at most 2 |x| |x'| sigma_h^2 sqrt(d_h L), with the length of strong noise for all noise."""
    n, state = _start(evidence)
    strong = n.strong_noise_std**2 * n.dim
    lengths = torch.where(torch.arange(len(_lengths(n))) < 2, n.signal, strong).sqrt().repeat(2)
    factor = (
        2
        * n.score_std**2
        * math.sqrt(n.hidden * log_factor(n.samples, n.tokens, evidence.levels["delta"]))
    )
    ratios = state.products.abs() / (factor * lengths[:, None] * lengths)
    ratios.diagonal(dim1=1, dim2=2).zero_()
    return _failures("two of them have a product that is too large", ratios <= 1)


@CLAIMS.add(
    "C4.noise_norms",
    "Lemma C.4",
    BROKEN,
    START,
    conditions=benign,
    kind=Kind.IDENTITY,
    levels=LEVELS,
)
def noise_norms(evidence: Evidence) -> Measured:
    """With probability 1 - delta, squared lengths of noise tokens are between 1/2 and 3/2 of their mean, sigma^2 d."""
    n, state = _start(evidence)
    ratios = (state.gamma.diagonal(dim1=1, dim2=2) / _lengths(n))[:, 2:]
    return _failures("a noise token has a length out of range", (ratios - 1).abs() <= 0.5)


@CLAIMS.add(
    "C4.noise_cross",
    "Lemma C.4",
    BROKEN,
    START,
    conditions=benign,
    kind=Kind.IDENTITY,
    levels=LEVELS,
)
def noise_products(evidence: Evidence) -> Measured:
    """With probability 1 - delta, two different noise tokens have a product of at most
    2 C_p^2 sigma_p^2 sqrt(d log(4 N^2 M^2 / delta))."""
    n, state = _start(evidence)
    log = math.log(4 * (n.samples * n.tokens) ** 2 / evidence.levels["delta"])
    bound = 2 * n.strong_noise_std**2 * math.sqrt(n.dim * log)
    products = state.gamma[:, 2:, 2:].abs().clone()
    products.diagonal(dim1=1, dim2=2).zero_()
    return _failures("two noise tokens have a product that is too large", products <= bound)
