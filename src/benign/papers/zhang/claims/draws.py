"""Claims about vectors and draws, without training: norms, products of tokens, initial values.

Lemmas 10 to 13 are judged inside Condition 1, where d is 1e10 and no machine stores a token: in the distribution of the
products of Gaussian vectors, d and d_h are degrees of freedom only (`benign.bartlett`). These bounds are proven: draws
show no more than that the code and the corrections of misprints are right.
"""

import math

import torch
from torch import Tensor

from benign.bartlett import bartlett, chi_square
from benign.claims import Claims, Evidence, Kind, Measured, at_least, at_most, exact, share, worst
from benign.claims.identity import own_streams
from benign.data.signal_noise import SignalNoise
from benign.papers.inside import inside_theorem
from benign.papers.jiang.theory import JiangNumbers
from benign.papers.zhang import bounds
from benign.streams import Streams

CLAIMS = Claims("zhang")
FAILURE = 0.05
"""delta"""
RARE = at_most(FAILURE)
"""share of draws in which a statement may fail; refuted if the lower end of its interval is above delta"""


def sizes(evidence: Evidence) -> JiangNumbers:
    """Return the smallest numbers inside Condition 1 with N >= 8 log(4 / delta) and tau = |mu| / log d_h."""
    tokens = evidence.size(2, 2, 4)
    chosen = inside_theorem(
        "zhang", samples=36, tokens=tokens, loss=0.1, failure=FAILURE, snr=1.0
    ).experiment
    return JiangNumbers.of(chosen, attacked=True)


def _draws(evidence: Evidence) -> Streams:
    """Return the streams of the draws; 60 draws without a failure show a probability below 0.05."""
    return own_streams("zhang/starts", evidence.size(60, 300, 2000))


def token_draws(evidence: Evidence, n: JiangNumbers) -> Tensor:
    """Return mu_+, mu_- and all noise tokens of independent training sets, in a basis of their span.

    The shape is [draws, tokens, basis].
    """
    streams, rows = _draws(evidence), n.samples * (n.tokens - 1)
    noise = n.noise_std * bartlett(streams.within("noise"), rows, n.dim - 2)
    tokens = noise.new_zeros(len(streams), 2 + rows, 2 + rows)
    tokens[:, 0, 0] = tokens[:, 1, 1] = math.sqrt(n.signal)
    tokens[:, 2:, 2:] = noise
    return tokens


def _failing(fails: Tensor) -> Measured:
    return share("draws in which it fails", fails.numpy(), "draw")


@CLAIMS.add("lem10.class_balance", "Lemma 10", RARE, kind=Kind.IDENTITY)
def class_balance(evidence: Evidence) -> Measured:
    """Of N >= 8 log(4 / delta) points, each class has between N/4 and 3N/4, with probability 1 - delta (here N = 36,
    delta = 0.05)."""
    samples = math.ceil(8 * math.log(4 / FAILURE))
    data = SignalNoise(samples=samples, tokens=1, dim=2, signal=1.0, noise_std=1.0)
    labels = data.sample(_draws(evidence), "train", samples, torch.float64).y
    positive = (labels > 0).sum(1)
    return _failing((positive < samples / 4) | (positive > 3 * samples / 4))


@CLAIMS.add("lem11.v_init", "Lemma 11", RARE, informational=("r=1",), kind=Kind.IDENTITY)
def values_at_start(evidence: Evidence) -> dict[str, Measured]:
    """With probability 1 - delta all initial values |V_+|, |V_-|, |V_{n,i}| of perturbed tokens are below
    d_h^(-1/4)."""
    n = sizes(evidence)
    streams, tokens = _draws(evidence), token_draws(evidence, n)
    std = n.value_std * n.output_norm
    in_basis = std * streams("values").normal(tokens.shape[2])
    rest = std**2 * chi_square(streams("unseen"), float(n.dim - tokens.shape[2]))
    values = torch.einsum("rtb,rb->rt", tokens, in_basis).abs().amax(1)
    length = (in_basis.square().sum(1) + rest).sqrt()

    def exceeding(r: float) -> Measured:
        return _failing(values + r * math.sqrt(n.signal) * length > n.hidden**-0.25)

    return {"r=1/log d_h": exceeding(n.radius), "r=1": exceeding(1.0)}


@CLAIMS.add(
    "lem12.qk_init",
    "Lemma 12",
    RARE,
    kind=Kind.IDENTITY,
    informational=("printed", "attacked"),
    misprint="sigma_p for sigma_h in norms of signals, and d^(3/2) for sqrt(d) in products with noise",
)
def queries_and_keys_at_start(evidence: Evidence) -> dict[str, Measured]:
    """With probability 1 - delta initial queries and keys have the norms and the small products of Lemma 12, with units
    corrected: sigma_h^2 for sigma_p^2 in norms of signals, and sqrt(d) for d^(3/2) in products with noise."""
    n = sizes(evidence)
    tokens = token_draws(evidence, n)
    products = _score_products(evidence, n, tokens)
    log = math.log(6 * (n.samples * n.tokens) ** 2 / FAILURE)
    numbers = (math.sqrt(n.signal), n.noise_std, n.dim, n.hidden, n.score_std, log)
    corrected = bounds.start_bounds_corrected(*numbers)
    return {
        "corrected": _failing(_outside(products, corrected)),
        "printed": _failing(_outside(products, bounds.start_bounds_printed(*numbers))),
        "attacked": _failing(_attacked_norm(evidence, n, products) > 1.5 * corrected.signal_norm),
    }


def _score_products(evidence: Evidence, n: JiangNumbers, tokens: Tensor) -> Tensor:
    """Return all products of q_+, q_-, q_{n,i}, k_+, k_-, k_{n,i}: [draws, 2 tokens, 2 tokens]."""
    count = tokens.shape[2]
    weights = n.score_std * bartlett(_draws(evidence).within("scores"), 2 * count, n.hidden)
    both = torch.cat([tokens @ weights[:, :count], tokens @ weights[:, count:]], 1)
    return both @ both.transpose(1, 2)


def _outside(products: Tensor, limits: bounds.StartBounds) -> Tensor:
    """Return in which draws some norm or product is outside the bounds."""
    count = products.shape[1]
    signal = torch.zeros(count, dtype=torch.bool)
    signal[[0, 1, count // 2, count // 2 + 1]] = True
    both, neither = signal[:, None] & signal, ~(signal[:, None] | signal)
    most = torch.full((count, count), limits.signal_noise, dtype=products.dtype)
    most[both], most[neither] = limits.signal_signal, limits.noise_noise
    most.fill_diagonal_(math.inf)
    norms = products.diagonal(dim1=1, dim2=2)
    size = torch.where(signal, limits.signal_norm, limits.noise_norm).to(norms)
    outside = (norms < size / 2) | (norms > 1.5 * size)
    return outside.any(1) | (products.abs() > most).flatten(1).any(1)


def _attacked_norm(evidence: Evidence, n: JiangNumbers, products: Tensor) -> Tensor:
    """Return |q~_+|^2 for mu_+ moved by tau along W_Q q_+, orthogonally to the signal.

    There the rows of W_Q are independent of q_+, so their product with q_+ / |q_+| has length sigma_h sqrt(chi-square
    with d - 1 degrees of freedom).
    """
    tau = n.radius * math.sqrt(n.signal)
    chi = chi_square(_draws(evidence)("moved"), float(n.dim - 1))
    return (products[:, 0, 0].sqrt() + tau * n.score_std * chi.sqrt()).square()


@CLAIMS.add("lem13.noise_geom", "Lemma 13", RARE, kind=Kind.IDENTITY)
def noise_geometry(evidence: Evidence) -> Measured:
    """With probability 1 - delta noise tokens have squared lengths between sigma_p^2 d / 2 and 3 sigma_p^2 d / 2, and
    products of at most 2 sigma_p^2 sqrt(d log(4 N^2 M^2 / delta))."""
    n = sizes(evidence)
    noise = token_draws(evidence, n)[:, 2:]
    products = noise @ noise.transpose(1, 2)
    norms = products.diagonal(dim1=1, dim2=2)
    low, high = bounds.noise_norms(n.noise_std, n.dim)
    most = bounds.noise_products(n.noise_std, n.dim, n.samples, n.tokens, FAILURE)
    others = products - torch.diag_embed(norms)
    wrong = ((norms < low) | (norms > high)).any(1)
    return _failing(wrong | (others.abs() > most).flatten(1).any(1))


WITHIN = at_most(1.0 + 1e-12)
ORDERS = ((1.0, 2.0), (2.0, 4.0), (1.0, torch.inf), (2.0, torch.inf))
"""p <= q"""


def _vectors(evidence: Evidence, dim: int = 50) -> Tensor:
    """Return dense vectors and the two extremes: a single coordinate, and all coordinates equal."""
    count = evidence.size(100, 1000, 10_000)
    draws = torch.randn(count, dim, generator=evidence.generator(), dtype=torch.float64)
    return torch.cat([draws, torch.eye(1, dim), torch.ones(1, dim)])


def _ratios(x: Tensor, left: float, right: float, factor: float) -> Tensor:
    """Return |x|_left / (factor |x|_right)."""
    return x.norm(left, 1) / (factor * x.norm(right, 1))


@CLAIMS.add(
    "appE.ineq2",
    "Appendix E, (2)",
    WITHIN,
    kind=Kind.IDENTITY,
    informational=("printed",),
    version=2,
    misprint="p and q are exchanged",
)
def norms_falling(evidence: Evidence) -> dict[str, Measured]:
    """|x|_p <= d^(1/p - 1/q) |x|_q for every vector x and p <= q. (Printed: |x|_q <= d^(1/q - 1/p) |x|_p.)"""
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


@CLAIMS.add("appE.ineq3", "Appendix E, (3)", WITHIN, kind=Kind.IDENTITY)
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
    kind=Kind.IDENTITY,
    informational=("printed",),
    version=2,
    misprint="both inequalities are reversed",
)
def norm_equivalence(evidence: Evidence) -> dict[str, Measured]:
    """|x|_p <= |x|_2 <= d^(1/2 - 1/p) |x|_p for every vector x and p >= 2. (Printed: with 2 and p exchanged, so that
    |x|_2 <= |x|_p.)"""
    x, orders = _vectors(evidence), (3.0, 4.0, 8.0, torch.inf)

    def ratios(left: float | None, right: float | None, power: float) -> torch.Tensor:
        """Return the ratios over p of two norms; None is the norm of order p."""
        factors = [x.shape[1] ** (power * (1 / 2 - 1 / p)) for p in orders]
        return torch.cat(
            [_ratios(x, left or p, right or p, f) for p, f in zip(orders, factors, strict=True)]
        )

    of = "left side / right side"
    printed = torch.cat([ratios(2.0, None, 0), ratios(None, 2.0, 1)])
    return {
        "lower": worst(of, ratios(None, 2.0, 0).numpy()),
        "upper": worst(of, ratios(2.0, None, 1).numpy()),
        "printed": worst(of, printed.numpy()),
    }


@CLAIMS.add("lem13.signal_inner_lower", "Lemma 13", at_least(-1e-9), kind=Kind.IDENTITY)
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
    """Return min <a, b> over the disc of radius r around (1, 0), where the best b for a gives a_1 - r |a|.

    The disc suffices because the best b lies in the plane of mu and a; its circle suffices because the minimum is
    there.
    """
    turn = torch.linspace(0, math.pi, angles + 1, dtype=torch.float64)
    first, second = 1 + r * turn.cos(), r * turn.sin()
    return float((first - r * torch.hypot(first, second)).min())


@CLAIMS.add("lem13.uniform_in_ball", "Lemma 13", at_most(FAILURE), informational=("independent",))
def cross_products(evidence: Evidence) -> dict[str, Measured]:
    """With probability 0.95, |<mu~, xi~>| for all mu~ and xi~ in the balls around signal and noise tokens stays below
    |mu| tau + sigma_p tau sqrt(2 log(4 N M / delta)) + tau^2 (tau = |mu| / log d_h)."""
    n = sizes(evidence)
    mu, tau = math.sqrt(n.signal), n.radius * math.sqrt(n.signal)
    bound = bounds.cross_product_printed(mu, tau, n.noise_std, n.samples, n.tokens, FAILURE)
    noise = token_draws(evidence, n)[:, 2:].norm(dim=2)
    reached, _ = bounds.cross_product_corrected(mu, tau, noise)
    # Perturbations that are independent of the other token: fixed directions e, e' of length 1, so that
    # <mu + tau e, xi + tau e'> = tau <mu, e'> + tau <e, xi> + tau^2 <e, e'>, with <e, xi> normal.
    along = torch.randn(noise.shape, generator=evidence.generator(2), dtype=torch.float64)
    fixed = mu * tau + tau * n.noise_std * along.abs() + tau**2
    return {
        "worst": share("draws with a larger one", (reached > bound).any(1).numpy(), "draw"),
        "independent": share("draws with a larger one", (fixed > bound).any(1).numpy(), "draw"),
    }
