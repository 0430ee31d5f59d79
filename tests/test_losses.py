"""Losses and margins, two classes and several: against autograd and against each other."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from benign.losses import (
    correct,
    logistic_slope,
    loss,
    loss_slope,
    margin,
    margin_slope,
    own_slope,
)
from tests.reference import close

SEEDS = st.integers(0, 10_000)


def draw(seed: int, classes: int) -> tuple[Tensor, Tensor]:
    """Outputs of 2 runs with 5 points each, and labels."""
    source = torch.Generator().manual_seed(seed)
    shape = (2, 5) if classes == 2 else (2, 5, classes)
    outputs = 3 * torch.randn(shape, generator=source, dtype=torch.float64)
    labels = torch.randint(classes, (2, 5), generator=source).double()
    return outputs, 2 * labels - 1 if classes == 2 else labels


@given(SEEDS, st.sampled_from([2, 3, 7]))
def test_slopes_are_derivatives(seed: int, classes: int):
    outputs, y = draw(seed, classes)
    traced = outputs.clone().requires_grad_()
    for value, slope in ((loss, loss_slope), (margin, margin_slope)):
        (expected,) = torch.autograd.grad(value(traced, y).sum(), traced)
        close(slope(outputs, y), expected)


def test_the_own_output_is_that_of_the_label():
    outputs, y = draw(1, 3)
    assert own_slope(outputs, y).sum(2).eq(1).all()
    assert own_slope(outputs, y).argmax(2).equal(y.long())
    outputs, y = draw(1, 2)
    assert own_slope(outputs, y).equal(y)


@given(SEEDS)
def test_two_outputs_are_two_classes(seed: int):
    """Logits F_1 and F_2 have the loss and the margin of the one output f = F_2 - F_1."""
    outputs, y = draw(seed, 2)
    logits = torch.stack([torch.zeros_like(outputs), outputs], dim=2)
    labels = (y + 1) / 2
    close(loss(logits, labels), loss(outputs, y))
    close(margin(logits, labels), margin(outputs, y))


@given(SEEDS)
def test_loss_and_margin_are_their_definitions(seed: int):
    outputs, y = draw(seed, 4)
    for run in range(2):
        for point in range(5):
            scores, own = outputs[run, point].tolist(), int(y[run, point])
            rivals = [score for other, score in enumerate(scores) if other != own]
            assert margin(outputs, y)[run, point] == scores[own] - max(rivals)
            exact = math.log(sum(math.exp(score) for score in scores)) - scores[own]
            assert float(loss(outputs, y)[run, point]) == pytest.approx(exact, rel=1e-10)


def test_large_margins_do_not_overflow():
    """Also between: a softplus that turns linear at 20 would be off by 2e-9 there."""
    z = torch.tensor([[-1000.0, -20.5, 0.0, 20.5, 1000.0]], dtype=torch.float64)
    small = math.log1p(math.exp(-20.5))
    values = loss(z, torch.ones_like(z))[0].tolist()
    assert values == pytest.approx([1000.0, 20.5 + small, math.log(2), small, 0.0], rel=1e-14)
    slopes = logistic_slope(z)[0].tolist()
    assert slopes == pytest.approx([-1.0, -1 / (1 + math.exp(-20.5)), -0.5, -math.exp(-20.5), 0.0])


def test_a_tie_is_an_error_and_nan_is_neither():
    margins = torch.tensor([[1e-30, 0.0, -1.0, math.nan]])
    assert correct(margins)[0, :3].tolist() == [1.0, 0.0, 0.0]
    assert correct(margins)[0, 3].isnan()
