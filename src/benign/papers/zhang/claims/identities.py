"""Identities of Zhang et al. on Algorithm 1 written out in float64 (`papers/zhang/plain.py`).

Some hold for every radius, some are stated by the paper for its own coordinates, and some are symmetries of ours.
"""

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn.functional import normalize

from benign.claims import Claims, Evidence, Kind, Measured, at_least, at_most, mean, share, worst
from benign.papers.statistics import relative_error
from benign.papers.zhang.bounds import attention_band
from benign.papers.zhang.plain import (
    Move,
    PlainTraining,
    Weights,
    attack,
    attention,
    drawn,
    gradients,
    outputs,
    walk,
)

CLAIMS = Claims("zhang")
EXACT = at_most(1e-10)
ALMOST = at_most(1e-6, fails_above=1e-3)
"""an identity up to 1e-6, and not an identity above 1e-3 (papers/zhang.md 6)"""
RADIUS = 0.05
"""radius of the paper's experiments, relative to |mu|"""


def _training(evidence: Evidence, radius: float = RADIUS, hidden: int = 5) -> PlainTraining:
    return drawn(evidence.size(6, 10, 30), radius, hidden=hidden)


def _moves(evidence: Evidence, training: PlainTraining) -> list[Move]:
    """Return the first steps of training."""
    return walk(training, evidence.size(3, 6, 20))


def _errors(values: Tensor, expected: Tensor) -> Tensor:
    """Return |difference| / |expected| of every run."""
    difference = torch.linalg.vector_norm((values - expected).flatten(1), dim=1)
    return difference / torch.linalg.vector_norm(expected.flatten(1), dim=1)


def _values_moved(move: Move, x: Tensor) -> Tensor:
    """Return (V_x(t+1) - V_x(t)) / |w_O|^2 for directions x [runs, count, dim]."""
    moved = torch.einsum("rcd,rd->rc", x, move.after.u - move.before.u)
    return moved / move.before.output.square().sum(1, keepdim=True)


def _pull_of(move: Move, x: Tensor, points: Tensor) -> Tensor:
    """Return sum_n c_n sum_j s_{n,j} <x, x~_{n,j}> over some points (papers/zhang.md 2.3)."""
    pull = move.pull * points
    products = torch.einsum("rcd,rnjd->rcnj", x, move.attacked)
    return torch.einsum("rn,rnj,rcnj->rc", pull, move.column_sums, products)


def _reference(training: PlainTraining) -> Tensor:
    """Return the fixed tokens mu~_+ and mu~_- of the paper: points on the spheres around the signals."""
    size = training.signals.shape
    steps = torch.randn(size, generator=Evidence.generator(1), dtype=torch.float64)
    return training.signals + training.radius * normalize(steps, dim=2)


@CLAIMS.add("grad.closed_form", "proofs of Lemmas 8 and 9", EXACT, kind=Kind.IDENTITY)
def closed_form_gradients(evidence: Evidence) -> Measured:
    """The gradients of the network in W_Q, W_K, W_V and in the tokens have closed forms in G and s."""
    errors = []
    for move in _moves(evidence, _training(evidence)):
        x, w, pull = move.attacked, move.before, move.pull / move.rate
        steps = gradients(w, x, move.y)
        keys, queries = (torch.einsum("rnld,rdh->rnlh", x, part) for part in (w.key, w.query))
        by_query = torch.einsum("rn,rnld,rnlj,rnjh->rdh", pull, x, move.slopes, keys)
        by_key = torch.einsum("rn,rnld,rnjl,rnjh->rdh", pull, x, move.slopes, queries)
        by_value = torch.einsum("rn,rnjd,rnj,rv->rdv", pull, x, move.column_sums, w.output)
        closed = (-by_query, -by_key, -by_value)
        errors += [relative_error(*pair) for pair in zip(closed, steps, strict=True)]
        errors.append(relative_error(_token_gradient(move), _token_gradient_by_autograd(move)))
    return worst("relative error", errors)


def _token_gradient(move: Move) -> Tensor:
    """Return (1/M) [G X W_K W_Q^T + G^T X W_Q W_K^T + s u^T]."""
    x, w = move.attacked, move.before
    forth = torch.einsum("rnlj,rnjd,rdh,reh->rnle", move.slopes, x, w.key, w.query)
    back = torch.einsum("rnjl,rnjd,rdh,reh->rnle", move.slopes, x, w.query, w.key)
    return (forth + back + torch.einsum("rnl,rd->rnld", move.column_sums, w.u)) / x.shape[2]


def _token_gradient_by_autograd(move: Move) -> Tensor:
    x = move.attacked.detach().requires_grad_()
    with torch.enable_grad():
        return torch.autograd.grad(outputs(move.before, x).sum(), x)[0]


@CLAIMS.add(
    "lem8.tau0",
    "Lemma 8",
    EXACT,
    kind=Kind.IDENTITY,
    misprint="the sign of gamma_{V,-}, and indices of sums in gamma_{V,-} and rho_{V,n,i}",
)
def updates_of_values_clean(evidence: Evidence) -> Measured:
    """Without an attack gamma_{V,+}, gamma_{V,-} and rho_{V,n,i} change as in Lemma 8 with corrected signs and
    indices."""
    training, errors = _training(evidence, 0.0), []
    noise = training.x[:, :, 1:].flatten(1, 2)
    size = training.signals.square().sum(2)
    for move in _moves(evidence, training):
        first = move.pull * move.column_sums[:, :, 0]
        own = torch.stack([first.clamp_min(0).sum(1), first.clamp_max(0).sum(1)], 1)
        errors.append(relative_error(own * size, _values_moved(move, training.signals)))
        products = torch.einsum("rcd,rnjd->rcnj", noise, training.x[:, :, 1:])
        sums = torch.einsum("rn,rnj,rcnj->rc", move.pull, move.column_sums[:, :, 1:], products)
        errors.append(relative_error(sums, _values_moved(move, noise)))
    return worst("relative error", errors)


@CLAIMS.add("lem8.tau_pos", "Lemma 8", ALMOST, kind=Kind.IDENTITY)
def updates_of_values_attacked(evidence: Evidence) -> Measured:
    """Under attack gamma_{V,+} changes by a sum over the points of its own class only (at radius 0.05 |mu|)."""
    training = _training(evidence)
    positive = _reference(training)[:, :1]
    errors = [
        _errors(_pull_of(move, positive, move.y > 0), _values_moved(move, positive))
        for move in _moves(evidence, training)
    ]
    return mean("relative error, mean over steps", torch.stack(errors).mean(0).numpy())


@CLAIMS.add(
    "lem8.sign_minus",
    "Lemma 8",
    at_least(0.95),
    kind=Kind.IDENTITY,
    informational=("printed",),
    version=2,
    misprint="gamma_{V,-} has the sign of gamma_{V,+}; the proofs of its later stages use the other sign",
)
def sign_of_the_negative_value(evidence: Evidence) -> dict[str, Measured]:
    """gamma_{V,-} falls with every step, where gamma_{V,+} grows. (Printed: both grow.)"""
    runs = evidence.size(60, 100, 1000)
    training = drawn(runs, 0.0)
    (move,) = walk(training, 1)
    moved = _values_moved(move, training.signals[:, 1:])[:, 0].numpy()
    return {
        "corrected": share("draws in which gamma_{V,-} falls in the first step", moved < 0, "draw"),
        "printed": share("draws in which gamma_{V,-} grows in the first step", moved > 0, "draw"),
    }


@CLAIMS.add("lem9.inner_product", "Lemma 9", EXACT, kind=Kind.IDENTITY)
def inner_products(evidence: Evidence) -> Measured:
    """A product <q_x, k_z> changes by <dq, k> + <q, dk> + <dq, dk>, where dq is a combination of
    attacked keys, and dk of attacked queries."""
    training, errors = _training(evidence), []
    x = torch.cat([_reference(training), training.x[:, 0]], 1)
    for move in _moves(evidence, training):
        query, key = (torch.einsum("rcd,rdh->rch", x, part) for part in move.before.trained[:2])
        query_step, key_step = _query_step(move, x), _key_step(move, x)
        stated = _products(query_step, key) + _products(query, key_step)
        stated = stated + _products(query_step, key_step)
        after = [torch.einsum("rcd,rdh->rch", x, part) for part in move.after.trained[:2]]
        errors.append(relative_error(stated, _products(*after) - _products(query, key)))
    return worst("relative error", errors)


def _products(first: Tensor, second: Tensor) -> Tensor:
    return torch.einsum("rch,reh->rce", first, second)


def _query_step(move: Move, x: Tensor) -> Tensor:
    """Return sum_{n,j} alpha_{x;n,j} k~_{n,j} (papers/zhang.md 2.3)."""
    products = torch.einsum("rcd,rnld->rcnl", x, move.attacked)
    alpha = torch.einsum("rn,rcnl,rnlj->rcnj", move.pull, products, move.slopes)
    return torch.einsum("rcnj,rnjd,rdh->rch", alpha, move.attacked, move.before.key)


def _key_step(move: Move, x: Tensor) -> Tensor:
    """Return sum_{n,l} beta_{x;n,l} q~_{n,l}."""
    products = torch.einsum("rcd,rnjd->rcnj", x, move.attacked)
    beta = torch.einsum("rn,rcnj,rnlj->rcnl", move.pull, products, move.slopes)
    return torch.einsum("rcnl,rnld,rdh->rch", beta, move.attacked, move.before.query)


@CLAIMS.add("def6.fixed_keys", "Definition 6", ALMOST, informational=("clean",), kind=Kind.IDENTITY)
def fixed_keys(evidence: Evidence) -> dict[str, Measured]:
    """The step of q_+ is a combination of the keys of fixed reference tokens of its own class."""
    # Coefficients exist whenever the keys span R^d_h, so d_h must exceed their number, 1 + |S_+| (M - 1) = 7.
    return {
        "attacked": _outside_the_span(evidence, RADIUS),
        "clean": _outside_the_span(evidence, 0.0),
    }


def _outside_the_span(evidence: Evidence, radius: float) -> Measured:
    """Return the part of a step of q_+ outside the span of the keys of mu~_+ and of its class's noise, relative to the
    step."""
    training, errors = _training(evidence, radius, hidden=20), []
    reference = _reference(training)[:, :1]
    own = training.y[0] > 0  # labels alternate: the same points in every run
    tokens = torch.cat([reference, training.x[:, own, 1:].flatten(1, 2)], 1)
    for move in _moves(evidence, training):
        step = torch.einsum("rcd,rdh->rch", reference, move.after.query - move.before.query)
        keys = torch.einsum("rcd,rdh->rhc", tokens, move.before.key)
        basis = torch.linalg.qr(keys).Q
        inside = torch.einsum("rhc,rkc,rek->reh", basis, basis, step)
        errors.append(_errors(inside, step))
    return mean("relative residual, mean over steps", torch.stack(errors).mean(0).numpy())


@CLAIMS.add("wv.rank_one", "derived (S2)", EXACT, kind=Kind.IDENTITY)
def rank_one(evidence: Evidence) -> Measured:
    """Training changes W_V by (u - u(0)) w_O^T / |w_O|^2 only, so u = W_V w_O determines it."""
    moves = _moves(evidence, _training(evidence))
    start, errors = moves[0].before, []
    unit = start.output / start.output.square().sum(1, keepdim=True)
    for move in moves:
        stated = torch.einsum("rd,rv->rdv", move.after.u - start.u, unit)
        errors.append(relative_error(stated, move.after.value - start.value))
    return worst("relative error", errors)


@CLAIMS.add("sym.scale", "derived (S3)", EXACT, kind=Kind.IDENTITY)
def scaling(evidence: Evidence) -> Measured:
    """(X, tau, eta, W) -> (c X, c tau, eta / c^2, W / c) leaves f and attention unchanged throughout training."""
    training, errors = _training(evidence), []
    both = _moves(evidence, training), _moves(evidence, training.scaled(3.7))
    for one, scaled in zip(*both, strict=True):
        f, scaled_f = (outputs(move.before, move.attacked) for move in (one, scaled))
        errors += [relative_error(scaled.attention, one.attention), relative_error(scaled_f, f)]
    return worst("relative error", errors)


@CLAIMS.add("sym.perm", "derived (S1)", EXACT, kind=Kind.IDENTITY)
def permutations(evidence: Evidence) -> Measured:
    """A permutation of the tokens of a point changes neither f nor the course of training."""
    training, order, errors = _training(evidence), torch.tensor([2, 0, 1]), []
    permuted = replace(training, x=training.x[:, :, order])
    both = _moves(evidence, training), _moves(evidence, permuted)
    for one, other in zip(*both, strict=True):
        x, w = one.attacked, one.before
        rows = one.attention[:, :, order][..., order]
        errors += [
            relative_error(outputs(w, x[:, :, order]), outputs(w, x)),
            relative_error(other.after.query, one.after.query),
            relative_error(attention(w, x[:, :, order]), rows),
        ]
    return worst("relative error", errors)


@CLAIMS.add("qk.balance", "derived (S4)", EXACT, kind=Kind.IDENTITY)
def balance(evidence: Evidence) -> Measured:
    """A step changes W_Q^T W_Q - W_K^T W_K by eta^2 (g_Q^T g_Q - g_K^T g_K) only, so gradient flow conserves it."""
    errors = []
    for move in _moves(evidence, _training(evidence)):
        query, key, _ = gradients(move.before, move.attacked, move.y)
        stated = move.rate**2 * (_gram(query) - _gram(key))
        after = _gram(move.after.query) - _gram(move.after.key)
        change = after - _gram(move.before.query) + _gram(move.before.key)
        errors.append(relative_error(change, stated))
    return worst("relative error", errors)


def _gram(part: Tensor) -> Tensor:
    return torch.einsum("rdh,rdk->rhk", part, part)


@CLAIMS.add("lem14.logit_half", "Lemma 14", at_most(1.0 + 1e-12), kind=Kind.IDENTITY)
def slope_near_half(evidence: Evidence) -> Measured:
    """If the values of its attacked tokens are small, the slope of the loss at a point is about 1/2: it differs by at
    most a quarter of the largest |V~| (our constant)."""
    ratios = []
    for weights, x, y in _attacked(evidence):
        slope = torch.sigmoid(-y * outputs(weights, x))
        largest = torch.einsum("rnld,rd->rnl", x, weights.u).abs().amax(2)
        ratios.append(((slope - 0.5).abs() / (largest / 4)).flatten())
    return worst("|-l' - 1/2| / (max |V~| / 4)", torch.cat(ratios).numpy())


def _attacked(evidence: Evidence) -> Iterator[tuple[Weights, Tensor, Tensor]]:
    """Yield weights of growing size, from values near 0 to saturated outputs, with attacked points and labels."""
    for factor in (0.01, 0.3, 1.0, 3.0):
        training = _training(evidence, 0.3)
        weights = training.weights.over(1 / factor)
        yield weights, attack(weights, training.x, training.y, training.radius), training.y


@CLAIMS.add("lem15.softmax_band", "Lemma 15", at_most(1e-12), kind=Kind.IDENTITY)
def softmax_band(evidence: Evidence) -> Measured:
    """If scores are small, attention is about 1/M: with scores of at most h in size it is between 1/(1 + (M-1) e^(2h))
    and 1/(1 + (M-1) e^(-2h)) (our constants)."""
    excess = []
    for weights, x, _ in _attacked(evidence):
        queries, keys = (torch.einsum("rnld,rdh->rnlh", x, part) for part in weights.trained[:2])
        scores = torch.einsum("rnlh,rnjh->rnlj", queries, keys)
        band = attention_band(scores.abs().flatten(2).amax(2)[..., None, None], x.shape[2])
        entries = scores.softmax(3)
        excess.append(torch.maximum(band[0] - entries, entries - band[1]).flatten())
    return worst("distance of an entry from the band", torch.cat(excess).numpy())
