"""What is drawn before training: Lemmas C.1 to C.4, as shares of draws in which a bound is broken."""

import math

import torch
from torch import Tensor

from benign.claims import Claims, Evidence, Measured, at_most, share
from benign.papers.jiang.claims.studies import START, benign
from benign.papers.jiang.recursion import State, start
from benign.papers.jiang.theory import Numbers
from benign.papers.jiang.times import log_factor, start_spread

CLAIMS = Claims("jiang")
DELTA = 0.05
BROKEN = at_most(DELTA)


def drawn(evidence: Evidence) -> tuple[Numbers, State]:
    """The numbers of the one cell, and the start of all its runs: inner products of tokens, queries, keys, values."""
    replay = evidence.replay()
    return Numbers.of(replay.cell), start(replay.start())


def broken(of: str, held: Tensor) -> Measured:
    """How often a bound is broken, from `held` [runs, ...]."""
    return share(f"share of draws in which {of}", ~held.flatten(1).all(1).numpy(), "draw")


def _lengths(n: Numbers) -> Tensor:
    """Scales of the squared lengths of the distinct tokens: signals, then strong and weak noise point by point."""
    point = [n.strong_noise_std**2 * n.dim] + [n.noise] * (n.tokens - 2)
    return torch.tensor([n.signal] * 2 + point * n.samples, dtype=torch.float64)


@CLAIMS.add("C1.class_balance", "Lemma C.1", BROKEN)
def class_balance(evidence: Evidence) -> Measured:
    """With N >= 8 log(4 / delta) points, each class has between N/4 and 3N/4 of them, but for a chance of delta."""
    count = math.ceil(8 * math.log(4 / DELTA))
    draws = evidence.size(200, 1000, 10_000)
    coins = torch.rand(draws, count, generator=evidence.generator(), dtype=torch.float64) < 0.5
    positive = coins.sum(1)
    held = (positive >= count / 4) & (positive <= 3 * count / 4)
    return broken(f"a class of {count} points is out of balance", held[:, None])


@CLAIMS.add(
    "C2.V_init", "Lemma C.2", BROKEN, START, conditions=benign, informational=("at the bound",)
)
def initial_values(evidence: Evidence) -> dict[str, Measured]:
    """Initial values of all tokens are at most d_h^-1/4. The log factor that condition (7) hides is taken as
    C_p sqrt(2 log(4 N M / delta)); without it strong tokens have values of C_p d_h^-1/4."""
    n, state = drawn(evidence)
    spread = start_spread(n.samples, n.tokens, n.strong_noise_std / n.noise_std, DELTA)
    sizes = state.values.abs() * n.hidden**0.25
    strong = torch.zeros(sizes.shape[1], dtype=torch.bool)
    strong[2 :: n.tokens - 1] = True
    return {
        "signals and weak noise": broken("some |V(0)| is too large", sizes[:, ~strong] <= spread),
        "strong noise": broken("some |V_{n,2}(0)| is too large", sizes[:, strong] <= spread),
        "at the bound": broken("some |V(0)| is too large, sigma_V at (7)", sizes <= 1),
    }


@CLAIMS.add("C3.QK_norms", "Lemma C.3", BROKEN, START, conditions=benign)
def query_key_norms(evidence: Evidence) -> Measured:
    """|q|^2 and |k|^2 of every token lie within half of |x|^2 sigma_h^2 d_h."""
    n, state = drawn(evidence)
    wanted = _lengths(n).repeat(2) * n.score_std**2 * n.hidden
    ratios = state.products.diagonal(dim1=1, dim2=2) / wanted
    return broken("a query or key has a length out of range", (ratios - 1).abs() <= 0.5)


@CLAIMS.add("C3.QK_cross", "Lemma C.3", BROKEN, START, conditions=benign)
def query_key_products(evidence: Evidence) -> Measured:
    """Different queries, different keys, and any query with any key have a product of at most
    2 |x| |x'| sigma_h^2 sqrt(d_h L), with the strong length for all noise."""
    n, state = drawn(evidence)
    strong = n.strong_noise_std**2 * n.dim
    lengths = torch.where(torch.arange(len(_lengths(n))) < 2, n.signal, strong).sqrt().repeat(2)
    factor = 2 * n.score_std**2 * math.sqrt(n.hidden * log_factor(n.samples, n.tokens, DELTA))
    ratios = state.products.abs() / (factor * lengths[:, None] * lengths)
    ratios.diagonal(dim1=1, dim2=2).zero_()
    return broken("two of them have a product that is too large", ratios <= 1)


@CLAIMS.add("C4.noise_norms", "Lemma C.4", BROKEN, START, conditions=benign)
def noise_norms(evidence: Evidence) -> Measured:
    """Squared lengths of noise tokens lie within half of their mean, sigma^2 d."""
    n, state = drawn(evidence)
    ratios = (state.gamma.diagonal(dim1=1, dim2=2) / _lengths(n))[:, 2:]
    return broken("a noise token has a length out of range", (ratios - 1).abs() <= 0.5)


@CLAIMS.add("C4.noise_cross", "Lemma C.4", BROKEN, START, conditions=benign)
def noise_products(evidence: Evidence) -> Measured:
    """Different noise tokens have a product of at most 2 C_p^2 sigma_p^2 sqrt(d log(4 N^2 M^2 / delta))."""
    n, state = drawn(evidence)
    log = math.log(4 * (n.samples * n.tokens) ** 2 / DELTA)
    bound = 2 * n.strong_noise_std**2 * math.sqrt(n.dim * log)
    products = state.gamma[:, 2:, 2:].abs().clone()
    products.diagonal(dim1=1, dim2=2).zero_()
    return broken("two noise tokens have a product that is too large", products <= bound)
