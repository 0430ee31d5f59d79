"""What attacks ascend: values from their definitions, slopes from autograd."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from benign.attacks.losses import slope, value
from tests.reference import close, doubles, normals

NAMES: list[Any] = ["margin", "cross_entropy", "dlr"]


def slow_value(name: str, outputs: Tensor, label: int) -> Tensor:
    """One point, as the definitions say."""
    rivals = [outputs[k] for k in range(len(outputs)) if k != label]
    margin = outputs[label] - torch.stack(rivals).max()
    if name == "cross_entropy":
        return -torch.log(torch.exp(outputs[label]) / torch.exp(outputs).sum())
    ranked = outputs.sort(descending=True).values
    return -margin if name == "margin" else -margin / (ranked[0] - ranked[2])


@pytest.mark.parametrize("name", NAMES)
@given(st.integers(0, 10**6), st.integers(3, 6))
@settings(max_examples=20, deadline=None)
def test_values_and_slopes_are_those_of_the_definition(name, seed, classes):
    outputs = normals(2, 4, classes, seed=seed).requires_grad_()
    y = torch.arange(8).reshape(2, 4) % classes
    expected = torch.stack(
        [slow_value(name, outputs[r, n], int(y[r, n])) for r in range(2) for n in range(4)]
    )
    (gradient,) = torch.autograd.grad(expected.sum(), outputs)
    detached = outputs.detach()
    close(value(name, detached, y.double()).flatten(), expected.detach())
    close(slope(name, detached, y.double()), gradient)


@pytest.mark.parametrize("name", ["margin", "cross_entropy"])
def test_two_classes_have_one_output(name):
    outputs, y = doubles(1.5, -0.3)[None], doubles(1.0, 1.0)[None]
    traced = outputs.clone().requires_grad_()
    expected = -traced if name == "margin" else torch.log(1 + torch.exp(-traced))
    close(value(name, outputs, y), expected.detach())
    close(slope(name, outputs, y), torch.autograd.grad(expected.sum(), traced)[0])


@given(st.floats(0.01, 100), st.floats(-10, 10))
def test_the_ratio_is_invariant_to_scale_and_shift(scale, shift):
    outputs, y = normals(1, 3, 4), doubles(0, 1, 3)[None]
    close(value("dlr", scale * outputs + shift, y), value("dlr", outputs, y), 1e-9)


def test_the_ratio_of_equal_outputs_is_finite_and_points_away_from_the_label():
    tied = torch.tensor([[[2.0, 2.0, 2.0, 0.0], [2.0, 2.0, 2.0, 0.0], [1.0, 1.0, 0.0, 0.0]]])
    y = torch.tensor([[0.0, 3.0, 0.0]])
    assert value("dlr", tied, y).tolist() == [[0.0, 2.0, 0.0]]
    slopes = slope("dlr", tied, y)
    assert slopes.isfinite().all()
    assert slopes.gather(2, y.long()[..., None]).max() < 0
    assert slopes.sum(2).abs().max() < 1e-6
