"""Identities of Wang's appendix, which hold to rounding, on a small run of each activation."""

import math
from functools import cache

import torch
from torch import Tensor

from benign.claims import Claims, Evidence, Kind, Measured, at_most, worst
from benign.claims.identity import identity_batch, identity_steps
from benign.networks.network import Params
from benign.networks.two_layer import TwoLayer
from benign.papers.statistics import cells_of
from benign.papers.wang.claims import extremes
from benign.papers.wang.claims.studies import CASES, WangCell, experiment, network
from benign.training.descent import Step
from benign.training.setup import Setup

CLAIMS = Claims("wang")
ROUNDING = 1e-10


def _small(case: str) -> Setup:
    """Return a run whose start is large enough for neurons to be on both sides of the bend."""
    layer = network(case, 8, preset="theory", init_std=0.05)
    made = experiment(
        [WangCell(6, 40, 3.0, 0.1, 0.5)], layer, steps=10, seeds=1, test=1, coordinates="ambient"
    )
    return cells_of(made)[0]


def increment_error(before: Step, weights: Params, after: Params, x: Tensor) -> Tensor:
    """Return the error of f(x; W') - f(x; W) = (eta/n) sum_i g_i lambda_i(x) <y_i x_i, x>, relative to the largest.

    lambda_i(x) = (1/m) sum_s [phi(<w'_s, x>) - phi(<w_s, x>)] / <w'_s - w_s, x> phi'(<w_s, x_i>), at the points x_i
    trained on: exact for any activation.
    """
    layer, sample = extremes.two_layer(before.batch.setup), before.batch.sample
    points, fresh = before.attacked[:, :, 0], x[:, :, 0]
    old, new = (fresh @ each["inner"].mT for each in (weights, after))
    secant = (layer.activate(new) - layer.activate(old)) / (new - old)
    bent = layer.derivative(points @ weights["inner"].mT)
    shares = torch.einsum("rqm,rnm->rqn", secant, bent) / layer.width
    products = torch.einsum("rqd,rnd->rqn", fresh, points)
    pace = before.batch.setup.training.rate_at(before.number) / points.shape[1]
    pulls = extremes.slopes(before) * sample.y
    expected = pace[:, None] * torch.einsum("rqn,rqn,rn->rq", shares, products, pulls)
    moved = layer.run(after, x).outputs - layer.run(weights, x).outputs
    return (moved - expected).abs().amax() / moved.abs().amax()


def gradient_product_error(step: Step) -> Tensor:
    """Return the error of Lemma B.8 by autograd: <grad f(x), grad f(x')> = (1/m) <x, x'> sum_s phi'(<w_s, x>)
    phi'(<w_s, x'>)."""
    layer, weights = extremes.two_layer(step.batch.setup), step.batch.params
    points = step.attacked[0, :2, 0]
    bent = layer.derivative(points @ weights["inner"][0].T)
    printed = (points[0] @ points[1]) * (bent[0] @ bent[1]) / layer.width
    gradients = [_gradient(layer, weights, point) for point in points]
    return ((gradients[0] * gradients[1]).sum() - printed).abs() / printed.abs()


def _gradient(layer: TwoLayer, weights: Params, point: Tensor) -> Tensor:
    with torch.enable_grad():
        inner = weights["inner"].detach().clone().requires_grad_()
        value = layer.activate(point @ inner[0].T) @ weights["outer"][0]
        return torch.autograd.grad(value, inner)[0]


@cache
def errors(case: str) -> dict[str, float]:
    """Return the largest relative error of every identity along a small run."""
    cell = _small(case)
    largest: dict[str, float] = {}
    fresh = torch.randn(1, 5, 1, 40, generator=torch.Generator().manual_seed(1)).double()
    total = start = torch.zeros(())
    for before, weights, after in extremes.pairs(identity_steps(identity_batch([cell]))):
        if before.number == 0:
            largest |= _start_errors(before, weights, fresh)
            start = _aligned(before, weights)
        total = total + cell.training.rate * extremes.along_signal(before)
        now = {
            "eq. (15)": (_aligned(after, after.batch.params) - start - total).abs() / total.abs(),
            "increment": increment_error(before, weights, after.batch.params, fresh),
            "B.8": gradient_product_error(after),
        }
        for name, error in now.items():
            largest[name] = max(largest.get(name, 0.0), float(error))
    return largest


def _aligned(step: Step, weights: Params) -> Tensor:
    """Return <W, V>."""
    return torch.einsum(
        "rmd,rm,rd->r", weights["inner"], weights["outer"], extremes.signal_direction(step)
    )


def _start_errors(step: Step, weights: Params, fresh: Tensor) -> dict[str, float]:
    values = step.batch.setup.network.run(weights, fresh).outputs
    return {
        "f = 0": float(values.abs().amax()),
        "loss log 2": abs(float(step.loss) / math.log(2) - 1),
        "G = 1/2": abs(float(extremes.slopes(step).mean()) * 2 - 1),
    }


@CLAIMS.add(
    "identities",
    "(15), Lemma B.8, proof of Lemma B.26, section 2",
    at_most(ROUNDING),
    kind=Kind.IDENTITY,
)
def identities(evidence: Evidence) -> Measured:
    """At the start f = 0, the loss is log 2 and G is 1/2. Products of gradients are as in Lemma B.8, a step changes f
    by (eta/n) sum_i g_i lambda_i <y_i x_i, x>, and <W, V> grows as in equation (15)."""
    named = {f"{name}, {case}": error for case in CASES for name, error in errors(case).items()}
    largest = max(named, key=lambda name: named[name])
    return worst("relative error", list(named.values())).noting(f"largest: {largest}")
