"""What Zhang et al. say about draws: classes, initial values, queries and keys, noise (Lemmas 10 to 13).

Judged inside Condition 1, where d is 1e10 and no machine holds a token: products of Gaussian vectors have a law that
knows d and d_h as degrees of freedom only (`bartlett.py`).
"""

import math

import torch
from torch import Tensor

from benign.bartlett import bartlett, chi_square
from benign.claims import Claims, Evidence, Measured, at_most, share
from benign.claims.identity import own_streams
from benign.data.signal_noise import SignalNoise
from benign.papers.inside import inside_theorem
from benign.papers.jiang.theory import Numbers
from benign.papers.zhang import bounds
from benign.streams import Streams

CLAIMS = Claims("zhang")
FAILURE = 0.05
"""delta"""
RARE = at_most(FAILURE)
"""the share of draws in which a statement fails; fails if the lower end of its interval is above delta"""


def sizes(evidence: Evidence) -> Numbers:
    """The smallest numbers inside Condition 1 with N >= 8 log(4 / delta), tau = |mu| / log d_h."""
    tokens = evidence.size(2, 2, 4)
    chosen = inside_theorem(
        "zhang", samples=36, tokens=tokens, loss=0.1, failure=FAILURE, snr=1.0
    ).experiment
    return Numbers.of(chosen, attacked=True)


def _draws(evidence: Evidence) -> Streams:
    """60 draws without a failure show a chance below 0.05."""
    return own_streams("zhang/starts", evidence.size(60, 300, 2000))


def token_draws(evidence: Evidence, n: Numbers) -> Tensor:
    """mu_+, mu_- and all noise tokens of independent training sets, in a basis of their span [draws, tokens, basis]."""
    streams, rows = _draws(evidence), n.samples * (n.tokens - 1)
    noise = n.noise_std * bartlett(streams.within("noise"), rows, n.dim - 2)
    tokens = noise.new_zeros(len(streams), 2 + rows, 2 + rows)
    tokens[:, 0, 0] = tokens[:, 1, 1] = math.sqrt(n.signal)
    tokens[:, 2:, 2:] = noise
    return tokens


def _failing(found: Tensor, unit: str = "draw") -> Measured:
    return share("draws in which it fails", found.numpy(), unit)


@CLAIMS.add("lem10.class_balance", "Lemma 10", RARE)
def class_balance(evidence: Evidence) -> Measured:
    """With N >= 8 log(4 / delta) points both classes have between N/4 and 3N/4 of them, with probability 1 - delta
    (N = 36, delta = 0.05)."""
    samples = math.ceil(8 * math.log(4 / FAILURE))
    data = SignalNoise(samples=samples, tokens=1, dim=2, signal=1.0, noise_std=1.0)
    labels = data.sample(_draws(evidence), "train", samples, torch.float64).y
    positive = (labels > 0).sum(1)
    return _failing((positive < samples / 4) | (positive > 3 * samples / 4))


@CLAIMS.add("lem11.v_init", "Lemma 11", RARE, informational=("r=1",))
def values_at_start(evidence: Evidence) -> dict[str, Measured]:
    """With probability 1 - delta all values |V_+|, |V_-|, |V_{n,i}| of perturbed tokens start below d_h^(-1/4)."""
    n = sizes(evidence)
    streams, tokens = _draws(evidence), token_draws(evidence, n)
    std = n.value_std * n.output_norm
    seen = std * streams("values").normal(tokens.shape[2])
    unseen = std**2 * chi_square(streams("unseen"), float(n.dim - tokens.shape[2]))
    values = torch.einsum("rtb,rb->rt", tokens, seen).abs().amax(1)
    length = (seen.square().sum(1) + unseen).sqrt()

    def beyond(r: float) -> Measured:
        return _failing(values + r * math.sqrt(n.signal) * length > n.hidden**-0.25)

    return {"r=1/log d_h": beyond(n.radius), "r=1": beyond(1.0)}


@CLAIMS.add("lem12.qk_init", "Lemma 12", RARE, informational=("printed", "attacked"))
def queries_and_keys_at_start(evidence: Evidence) -> dict[str, Measured]:
    """With probability 1 - delta queries and keys start with the norms and the small products of Lemma 12 (its units
    corrected: sigma_h^2 in norms of signals, sqrt d beside noise)."""
    n = sizes(evidence)
    tokens = token_draws(evidence, n)
    products = _score_products(evidence, n, tokens)
    log = math.log(6 * (n.samples * n.tokens) ** 2 / FAILURE)
    numbers = (math.sqrt(n.signal), n.noise_std, n.dim, n.hidden, n.score_std, log)
    right = bounds.start_bounds_corrected(*numbers)
    return {
        "corrected": _failing(_beyond(products, right)),
        "printed": _failing(_beyond(products, bounds.start_bounds_printed(*numbers))),
        "attacked": _failing(_attacked_norm(evidence, n, products) > 1.5 * right.signal_norm),
    }


def _score_products(evidence: Evidence, n: Numbers, tokens: Tensor) -> Tensor:
    """All products of q_+, q_-, q_{n,i}, k_+, k_-, k_{n,i} [draws, 2 tokens, 2 tokens]."""
    count = tokens.shape[2]
    weights = n.score_std * bartlett(_draws(evidence).within("scores"), 2 * count, n.hidden)
    both = torch.cat([tokens @ weights[:, :count], tokens @ weights[:, count:]], 1)
    return both @ both.transpose(1, 2)


def _beyond(products: Tensor, limits: bounds.StartBounds) -> Tensor:
    """Draws in which some norm or product is outside of the bounds."""
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


def _attacked_norm(evidence: Evidence, n: Numbers, products: Tensor) -> Tensor:
    """|q~_+|^2 for mu_+ moved by tau along W_Q q_+, off the signal, where the rows of W_Q do not know q_+.

    Their product with q_+ / |q_+| has length sigma_h sqrt(chi-square with d - 1 degrees of freedom).
    """
    tau = n.radius * math.sqrt(n.signal)
    chi = chi_square(_draws(evidence)("moved"), float(n.dim - 1))
    return (products[:, 0, 0].sqrt() + tau * n.score_std * chi.sqrt()).square()


@CLAIMS.add("lem13.noise_geom", "Lemma 13", RARE)
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
