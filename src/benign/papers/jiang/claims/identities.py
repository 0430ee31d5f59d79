"""Identities of gradient descent (Appendices B and F): they hold to rounding, or the code is wrong."""

from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from benign.claims import Claims, Evidence, Kind, Measured, at_most, exact, worst
from benign.claims.identity import identity_batch, identity_steps
from benign.data.signal_noise import SignalNoise
from benign.losses import loss
from benign.networks.attention import Attention
from benign.networks.initial import GaussianInit
from benign.papers.jiang.recursion import State, Tokens, predict, start
from benign.papers.statistics import relative_error
from benign.training.descent import Batch, Step
from benign.training.metrics.attention import attention_network, attention_pass
from benign.training.optimisers import GradientDescent
from benign.training.setup import Setup

CLAIMS = Claims("jiang")
ROUNDING = at_most(1e-10)


class TrainedStep(NamedTuple):
    """Weights and outputs at one step of training by autograd."""

    queries: Tensor
    keys: Tensor
    values: Tensor
    """v = W_V w_O"""
    outputs: Tensor
    token_values: Tensor


@cache
def trained(steps: int) -> tuple[Batch, list[TrainedStep]]:
    """Return the start and the steps of five runs of a small network on projected noise that learns attention."""
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
    return begin, [_copied(step) for step in identity_steps(batch)]


def _copied(step: Step) -> TrainedStep:
    network, params = attention_network(step), step.batch.params
    weights = network.queries(params), network.keys(params), network.values(params)[:, :, 0]
    output = attention_pass(step.clean_pass)
    parts = (*weights, output.outputs, output.values[:, :, 0])
    return TrainedStep(*(part.clone() for part in parts))


def _trained(evidence: Evidence) -> tuple[Batch, list[TrainedStep]]:
    return trained(evidence.size(20, 60, 200))


def _moves(evidence: Evidence) -> Iterator[tuple[Tokens, State, TrainedStep, TrainedStep]]:
    """Yield the tokens, the predicted state, the step and the next step, for all steps."""
    batch, steps = _trained(evidence)
    tokens = Tokens.distinct(batch.sample)
    for state, (now, later) in zip(
        predict(start(batch), len(steps) - 2), pairwise(steps), strict=True
    ):
        yield tokens, state, now, later


def _errors(errors: Iterator[float]) -> Measured:
    return worst("largest relative error over steps", list(errors))


@CLAIMS.add("B1.gradients", "Lemma B.1", ROUNDING, kind=Kind.IDENTITY)
def gradients(evidence: Evidence) -> Measured:
    """The gradients of the loss in W_Q, W_K and W_V have closed forms: X^T G X W_K, X^T G^T X W_Q, and a vector times
    w_O^T."""
    batch, steps = _trained(evidence)
    x, y, network = batch.sample.x, batch.sample.y, batch.setup.network
    assert isinstance(network, Attention)
    errors = []
    for now in steps[:: max(1, len(steps) // 10)]:
        parts = [part.clone().requires_grad_() for part in now[:3]]
        _plain_loss(x, y, *parts).sum().backward()
        ones = torch.ones(len(y), dtype=y.dtype)
        state = State.start(Tokens.all(x), y, *now[:3], ones, ones)
        flat = x.flatten(1, 2)
        back = flat.transpose(1, 2)
        slope = state.score_slope
        closed = (
            back @ slope @ (flat @ now.keys),
            back @ slope.transpose(1, 2) @ (flat @ now.queries),
            (back @ state.value_slope[..., None])[..., 0],
        )
        grads = [part.grad for part in parts]
        errors += [
            relative_error(form, grad)
            for form, grad in zip(closed, grads, strict=True)
            if grad is not None
        ]
    return worst("largest relative error against automatic differentiation", errors)


def _plain_loss(x: Tensor, y: Tensor, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Return the loss of every run by equation (1)."""
    scores = (x @ queries[:, None]) @ (x @ keys[:, None]).transpose(-1, -2)
    outputs = (scores.softmax(-1) @ (x @ values[:, None, :, None])).mean((-1, -2))
    return loss(outputs, y).mean(1)


@CLAIMS.add("B2.gamma_rho", "Lemma B.2", ROUNDING, kind=Kind.IDENTITY)
def gamma_rho(evidence: Evidence) -> Measured:
    """Values of tokens are V(0) + gamma |w_O|^2 (signals) and V(0) + rho |w_O|^2 (noise), where gamma and rho follow
    the updates of Lemma B.2."""
    return _errors(_value_errors(evidence))


def _value_errors(evidence: Evidence) -> Iterator[float]:
    for tokens, state, _, later in _moves(evidence):
        values = (tokens.vectors @ later.values[..., None])[..., 0]
        yield relative_error(state.after().values, values)


@CLAIMS.add("B3.alpha_beta", "Definition B.2, F.1", ROUNDING, kind=Kind.IDENTITY)
def alpha_beta(evidence: Evidence) -> Measured:
    """In a step every query changes by alpha times the keys of the training tokens, and every key by beta times their
    queries."""
    return _errors(_move_errors(evidence))


def _move_errors(evidence: Evidence) -> Iterator[float]:
    for tokens, state, now, later in _moves(evidence):
        q, k = tokens.vectors @ now.queries, tokens.vectors @ now.keys
        yield relative_error(q + state.alpha @ k, tokens.vectors @ later.queries)
        yield relative_error(k + state.beta @ q, tokens.vectors @ later.keys)


@CLAIMS.add("F2.inner_products", "F.2", ROUNDING, kind=Kind.IDENTITY)
def inner_products(evidence: Evidence) -> Measured:
    """A step turns the products S of queries and keys into S + alpha H_KK + H_QQ beta^T + alpha S^T beta^T, and changes
    the products H_QQ of queries and H_KK of keys likewise."""
    return _errors(_product_errors(evidence))


def _product_errors(evidence: Evidence) -> Iterator[float]:
    for tokens, state, now, later in _moves(evidence):
        q, k = tokens.vectors @ now.queries, tokens.vectors @ now.keys
        s, qq, kk = (a @ b.transpose(1, 2) for a, b in ((q, k), (q, q), (k, k)))
        alpha, beta = state.alpha, state.beta
        ta, tb, ts = (part.transpose(1, 2) for part in (alpha, beta, s))
        q, k = tokens.vectors @ later.queries, tokens.vectors @ later.keys
        yield relative_error(s + alpha @ kk + qq @ tb + alpha @ ts @ tb, q @ k.transpose(1, 2))
        yield relative_error(qq + alpha @ ts + s @ ta + alpha @ kk @ ta, q @ q.transpose(1, 2))
        yield relative_error(kk + beta @ s + ts @ tb + beta @ qq @ tb, k @ k.transpose(1, 2))


@CLAIMS.add("F12.row_sum", "F.12", ROUNDING, kind=Kind.IDENTITY)
def row_sum(evidence: Evidence) -> Measured:
    """The coefficients alpha_{s,s} and alpha_{n,s,i} of a class sum to 0, because every row of attention sums to 1."""
    sums = ((state.alpha[:, :2].sum(2), state.alpha) for _, state, _, _ in _moves(evidence))
    return _errors(float(total.abs().max() / alpha.abs().max()) for total, alpha in sums)


@CLAIMS.add("derived.alpha_eq_beta", "derived", ROUNDING, kind=Kind.IDENTITY)
def alpha_equals_beta(evidence: Evidence) -> Measured:
    """alpha_{s,s} = beta_{s,s}: the signal's query learns from its key as much as its key learns from its query."""
    coefficients = ((state.alpha, state.beta) for _, state, _, _ in _moves(evidence))
    return _errors(
        relative_error(_diagonal(beta), _diagonal(alpha)) for alpha, beta in coefficients
    )


def _diagonal(part: Tensor) -> Tensor:
    return part.diagonal(dim1=1, dim2=2)[:, :2]


@CLAIMS.add("derived.balance", "derived", ROUNDING, kind=Kind.IDENTITY)
def balance(evidence: Evidence) -> Measured:
    """A step changes W_Q^T W_Q - W_K^T W_K by eta^2 (g_Q^T g_Q - g_K^T g_K) only, so gradient flow conserves it."""
    return _errors(_balance_errors(evidence))


def _balance_errors(evidence: Evidence) -> Iterator[float]:
    for _, _, now, later in _moves(evidence):
        before, after = (_square(step.queries) - _square(step.keys) for step in (now, later))
        moved = _square(later.queries - now.queries) - _square(later.keys - now.keys)
        yield relative_error(before + moved, after)


def _square(part: Tensor) -> Tensor:
    return part.transpose(1, 2) @ part


@CLAIMS.add("B2.gamma_monotone", "Lemma B.2", at_most(0), kind=Kind.IDENTITY)
def gamma_monotone(evidence: Evidence) -> Measured:
    """gamma_{V,+} increases and gamma_{V,-} decreases at every step, whatever the noise."""
    rises = []
    for tokens, _, now, later in _moves(evidence):
        moved = (tokens.vectors[:, :2] @ (later.values - now.values)[..., None])[..., 0]
        rises.append((moved * torch.tensor([1.0, -1.0], dtype=moved.dtype)).amin())
    wrong = sum(int((rise <= 0).sum()) for rise in rises)
    return exact(f"steps in the wrong direction, of {len(rises)}", wrong)


@CLAIMS.add("D1.loss_derivative", "Lemma D.1", at_most(0.0), kind=Kind.IDENTITY)
def loss_derivative(evidence: Evidence) -> Measured:
    """With m the largest |V| over the tokens of a point, 1 / (1 + e^m) <= -l'(y f) <= 1 / (1 + e^-m)."""
    batch, steps = _trained(evidence)
    excess = []
    for now in steps:
        largest = now.token_values.abs().amax(2)
        slope = torch.sigmoid(-batch.sample.y * now.outputs)
        outside = (torch.sigmoid(-largest) - slope, slope - torch.sigmoid(largest))
        excess += [float(side.max()) for side in outside]
    return worst("excess of -l' over its bounds", excess)
