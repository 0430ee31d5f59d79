"""Identities of gradient descent (papers/jiang.md 2): they hold to rounding, or the code is wrong."""

from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from benign.claims import Claims, Evidence, Measured, at_most, exact, worst
from benign.claims.identity import identity_batch, identity_steps
from benign.data.signal_noise import SignalNoise
from benign.losses import loss
from benign.networks.attention import Attention
from benign.networks.initial import GaussianInit
from benign.papers.jiang.recursion import State, Tokens, predict, start
from benign.training.descent import Batch, Step
from benign.training.metrics.attention import attention_network, attention_pass
from benign.training.optimisers import GradientDescent
from benign.training.setup import Setup

CLAIMS = Claims("jiang")
ROUNDING = at_most(1e-10)


class Trained(NamedTuple):
    """Weights and what they give at one step of real training."""

    queries: Tensor
    keys: Tensor
    values: Tensor
    """v = W_V w_O"""
    outputs: Tensor
    token_values: Tensor


@cache
def trained(steps: int) -> tuple[Batch, list[Trained]]:
    """Five runs of a small network on projected noise, trained so fast that attention is learned."""
    setting = Setup(
        data=SignalNoise(
            samples=6,
            tokens=3,
            dim=30,
            signal=2.5,
            noise_std=0.3,
            strong_noise_std=0.6,
            projected=True,
            balanced=True,
        ),
        network=Attention(hidden=7, init=GaussianInit(score_std=0.25, value_std=0.05), value_dim=5),
        training=GradientDescent(rate=0.4, stop_loss=0.0, max_steps=steps),
        precision="float64",
    )
    begin, batch = (identity_batch([setting] * 5) for _ in range(2))
    return begin, [_seen(step) for step in identity_steps(batch)]


def _seen(step: Step) -> Trained:
    network, params = attention_network(step), step.batch.params
    parts = network.queries(params), network.keys(params), network.values(params)[:, :, 0]
    seen = attention_pass(step.clean_pass)
    return Trained(*(part.clone() for part in (*parts, seen.outputs, seen.values[:, :, 0])))


def _pairs(evidence: Evidence) -> Iterator[tuple[Tokens, State, Trained, Trained]]:
    """The tokens, and at every step the predicted state, the weights and the next weights."""
    batch, steps = trained(evidence.size(20, 60, 200))
    tokens = Tokens.distinct(batch.sample)
    for state, (now, later) in zip(
        predict(start(batch), len(steps) - 2), pairwise(steps), strict=True
    ):
        yield tokens, state, now, later


def _error(found: Tensor, wanted: Tensor) -> float:
    """Largest difference, relative to the largest number."""
    return float((found - wanted).abs().max() / wanted.abs().max())


def _errors(errors: Iterator[float]) -> Measured:
    return worst("largest relative error over steps", list(errors))


@CLAIMS.add("B1.gradients", "Lemma B.1", ROUNDING)
def gradients(evidence: Evidence) -> Measured:
    """The gradients of the loss in W_Q, W_K and W_V have a closed form: X^T G X W_K, X^T G^T X W_Q and a vector times
    w_O."""
    batch, steps = trained(evidence.size(20, 60, 200))
    x, y, network = batch.sample.x, batch.sample.y, batch.setup.network
    assert isinstance(network, Attention)
    errors = []
    for now in steps[:: max(1, len(steps) // 10)]:
        parts = [part.clone().requires_grad_() for part in now[:3]]
        _plain_loss(x, y, *parts).sum().backward()
        state = State.start(
            Tokens.all(x),
            y,
            *now[:3],
            torch.ones(len(y), dtype=y.dtype),
            torch.ones(len(y), dtype=y.dtype),
        )
        flat = x.flatten(1, 2)
        back = flat.transpose(1, 2)
        slope = state.score_slope
        closed = (
            back @ slope @ (flat @ now.keys),
            back @ slope.transpose(1, 2) @ (flat @ now.queries),
            (back @ state.value_slope[..., None])[..., 0],
        )
        errors += [
            _error(c, p.grad) for c, p in zip(closed, parts, strict=True) if p.grad is not None
        ]
    return worst("largest relative error against automatic differentiation", errors)


def _plain_loss(x: Tensor, y: Tensor, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """The loss of every run as equation (1) has it."""
    scores = (x @ queries[:, None]) @ (x @ keys[:, None]).transpose(-1, -2)
    outputs = (scores.softmax(-1) @ (x @ values[:, None, :, None])).mean((-1, -2))
    return loss(outputs, y).mean(1)


@CLAIMS.add("B2.gamma_rho", "Lemma B.2", ROUNDING)
def gamma_rho(evidence: Evidence) -> Measured:
    """Values of tokens are V(0) + gamma |w_O|^2 (signals) and V(0) + rho |w_O|^2 (noise), with the stated updates."""
    return _errors(_value_errors(evidence))


def _value_errors(evidence: Evidence) -> Iterator[float]:
    for tokens, state, _, later in _pairs(evidence):
        wanted = (tokens.vectors @ later.values[..., None])[..., 0]
        yield _error(state.after().values, wanted)


@CLAIMS.add("B3.alpha_beta", "Definition B.2, F.1", ROUNDING)
def alpha_beta(evidence: Evidence) -> Measured:
    """Every query moves by alpha times the keys, every key by beta times the queries of the training tokens."""
    return _errors(_move_errors(evidence))


def _move_errors(evidence: Evidence) -> Iterator[float]:
    for tokens, state, now, later in _pairs(evidence):
        q, k = tokens.vectors @ now.queries, tokens.vectors @ now.keys
        yield _error(q + state.alpha @ k, tokens.vectors @ later.queries)
        yield _error(k + state.beta @ q, tokens.vectors @ later.keys)


@CLAIMS.add("F2.inner_products", "F.2", ROUNDING)
def inner_products(evidence: Evidence) -> Measured:
    """Inner products of queries and keys follow S + alpha H_KK + H_QQ beta^T + alpha S^T beta^T and its like."""
    return _errors(_product_errors(evidence))


def _product_errors(evidence: Evidence) -> Iterator[float]:
    for tokens, state, now, later in _pairs(evidence):
        q, k = tokens.vectors @ now.queries, tokens.vectors @ now.keys
        s, qq, kk = (a @ b.transpose(1, 2) for a, b in ((q, k), (q, q), (k, k)))
        alpha, beta = state.alpha, state.beta
        ta, tb, ts = (part.transpose(1, 2) for part in (alpha, beta, s))
        q, k = tokens.vectors @ later.queries, tokens.vectors @ later.keys
        yield _error(s + alpha @ kk + qq @ tb + alpha @ ts @ tb, q @ k.transpose(1, 2))
        yield _error(qq + alpha @ ts + s @ ta + alpha @ kk @ ta, q @ q.transpose(1, 2))
        yield _error(kk + beta @ s + ts @ tb + beta @ qq @ tb, k @ k.transpose(1, 2))


@CLAIMS.add("F12.row_sum", "F.12", ROUNDING)
def row_sum(evidence: Evidence) -> Measured:
    """alpha_{s,s} and the alpha_{n,s,i} of its class sum to 0, since attention rows sum to 1."""
    sums = ((state.alpha[:, :2].sum(2), state.alpha) for _, state, _, _ in _pairs(evidence))
    return _errors(float(total.abs().max() / alpha.abs().max()) for total, alpha in sums)


@CLAIMS.add("derived.alpha_eq_beta", "derived", ROUNDING)
def alpha_equals_beta(evidence: Evidence) -> Measured:
    """alpha_{s,s} = beta_{s,s}: the signal's query learns from its key as its key does from its query."""
    return _errors(
        _error(_diagonal(state.beta), _diagonal(state.alpha)) for _, state, _, _ in _pairs(evidence)
    )


def _diagonal(part: Tensor) -> Tensor:
    return part.diagonal(dim1=1, dim2=2)[:, :2]


@CLAIMS.add("derived.balance", "derived", ROUNDING)
def balance(evidence: Evidence) -> Measured:
    """W_Q^T W_Q - W_K^T W_K changes in a step by eta^2 (dQ^T dQ - dK^T dK) only: gradient flow conserves it."""
    return _errors(_balance_errors(evidence))


def _balance_errors(evidence: Evidence) -> Iterator[float]:
    for _, _, now, later in _pairs(evidence):
        before, after = (_square(each.queries) - _square(each.keys) for each in (now, later))
        moved = _square(later.queries - now.queries) - _square(later.keys - now.keys)
        yield _error(before + moved, after)


def _square(part: Tensor) -> Tensor:
    return part.transpose(1, 2) @ part


@CLAIMS.add("B2.gamma_monotone", "Lemma B.2", at_most(0))
def gamma_monotone(evidence: Evidence) -> Measured:
    """gamma_{V,+} rises and gamma_{V,-} falls at every step, whatever the noise does."""
    rises = []
    for tokens, _, now, later in _pairs(evidence):
        moved = (tokens.vectors[:, :2] @ (later.values - now.values)[..., None])[..., 0]
        rises.append((moved * torch.tensor([1.0, -1.0], dtype=moved.dtype)).amin())
    wrong = sum(int((rise <= 0).sum()) for rise in rises)
    return exact(f"steps in another direction, of {len(rises)}", wrong)


@CLAIMS.add("D1.loss_derivative", "Lemma D.1", at_most(0.0))
def loss_derivative(evidence: Evidence) -> Measured:
    """With m the largest |V| of a point's tokens, 1 / (1 + e^m) <= -l'(y f) <= 1 / (1 + e^-m)."""
    batch, steps = trained(evidence.size(20, 60, 200))
    beyond = []
    for now in steps:
        largest = now.token_values.abs().amax(2)
        slope = torch.sigmoid(-batch.sample.y * now.outputs)
        outside = (torch.sigmoid(-largest) - slope, slope - torch.sigmoid(largest))
        beyond += [float(each.max()) for each in outside]
    return worst("how far -l' is beyond its bounds", beyond)
