"""The kernel that takes all steps of an ascent against a two-layer ReLU network goes the same way as `GramSpace`."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from benign.attacks import gram, relu_ascent
from benign.attacks.attack import Target
from benign.attacks.balls import Ball
from benign.attacks.gram import GramSpace, plain_attacks, space_for
from benign.attacks.losses import AttackLoss
from benign.attacks.pgd import PGD
from benign.data.mixture import Mixture
from benign.networks.two_layer import TwoLayer
from benign.streams import Streams
from tests.reference import close, run_ids

PLAIN: dict[str, Any] = {"preset": "torch_default"}


@pytest.fixture(autouse=True)
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Products wherever they are possible, also where they do not pay."""
    monkeypatch.setattr(gram, "pays", lambda *sizes: True)


def target_of(device: str, dtype: torch.dtype = torch.float64, **network: Any) -> Target:
    """Points and a network that has been trained for a few steps."""
    data = Mixture(samples=12, dim=60, signal=3.0)
    two_layer = TwoLayer(width=50, **(PLAIN | network))
    streams = Streams(run_ids(3), device)
    sample = data.sample(streams, "train", data.samples, dtype)
    params = two_layer.initial_params(data, streams, dtype)
    for _ in range(5):
        for part, gradient in two_layer.run(params, sample.x).params_gradient(sample.y).items():
            params[part] += 0.02 * gradient
    return Target(two_layer, params, data, sample, streams)


def space_of(target: Target) -> GramSpace:
    space = space_for(target, Ball(radius=1.0, per="sample"), 10)
    assert isinstance(space, GramSpace)
    return space


def test_other_ascents_say_why_the_kernel_does_not_take_them():
    def why_not(loss: AttackLoss = "margin", device: str = "cuda", **network: Any) -> str | None:
        two_layer = TwoLayer(width=50, **(PLAIN | network))
        return relu_ascent.why_not(two_layer, 50, torch.device(device), loss)

    smooth = {"activation": "smoothed_leaky_relu", "slope": 0.2, "smoothness": 3.0}
    assert "ReLU" in str(why_not(**smooth))
    assert "pairs" in str(why_not(preset="hybrid"))
    assert "slope" in str(why_not("cross_entropy"))
    assert "Triton" in str(why_not(device="cpu"))
    wide = TwoLayer(width=relu_ascent.MOST_COLUMNS + 2, **PLAIN)
    assert "neurons" in str(relu_ascent.why_not(wide, wide.width, torch.device("cuda"), "margin"))


@pytest.mark.gpu
@pytest.mark.parametrize("keep", ["last", "best"])
@pytest.mark.parametrize("network", [{}, {"activation": "leaky_relu", "slope": 0.1}], ids=str)
@pytest.mark.parametrize("radius", [0.0, 0.3, 3.0])
def test_the_kernel_goes_the_same_way(keep, network, radius, monkeypatch):
    target = target_of("cuda", **network)
    assert space_of(target)._in_one_kernel("margin")
    attack = PGD(ball=Ball(radius=radius, per="sample"), steps=9, keep=keep)
    points, own_pass = attack.training_pass(target)
    with plain_attacks():
        expected, expected_pass = attack.training_pass(target)
    close(points, expected)
    close(own_pass.outputs, expected_pass.outputs)
    monkeypatch.setattr(relu_ascent, "why_not", lambda *_: "switched off")
    close(points, attack.perturb(target))


@pytest.mark.gpu
def test_runs_of_different_radii_and_vanishing_slopes():
    """A run whose outer weights vanish has no gradient, and its points stay where they are."""
    target = target_of("cuda")
    outer = target.params["outer"].clone()
    outer[1] = 0
    target = replace(target, params=target.params | {"outer": outer})
    radius = torch.tensor([0.2, 1.0, 0.7], dtype=torch.float64, device="cuda")
    ball = Ball(radius=0.2, per="sample").model_copy(update={"radius": radius})
    points = PGD(ball=ball).perturb(target)
    moved = torch.linalg.vector_norm(points - target.x, dim=(2, 3))
    assert not moved[1].any()
    close(moved[0], torch.full_like(moved[0], 0.2))
    close(moved[2], torch.full_like(moved[2], 0.7))
