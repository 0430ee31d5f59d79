"""Residual networks: against plain functions of their weights, and the published numbers of parameters."""

import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import conv2d, linear, relu

from benign.data.mixture import Mixture
from benign.networks import module as modules
from benign.networks.module import FROZEN
from benign.networks.module_checks import PointSize
from benign.networks.network import Params
from benign.networks.pictures import PictureNetwork, as_pictures
from benign.networks.resnet import ResNet, WideResNet
from benign.spec.base import SpecError
from benign.streams import Streams
from benign.training.engine import products
from tests.reference import (
    close,
    doubles,
    film,
    normals,
    run_ids,
    small_data,
    small_pgd,
    small_setup,
    start,
)
from tests.says import says

SIDE = 8
SMALL: list[Any] = [
    ResNet(width=4, blocks=(1, 2), classes=3),
    ResNet(width=3, blocks=(1, 1, 1), channels=1),
    WideResNet(depth=10, widen=1, classes=2),
    WideResNet(depth=16, widen=1, channels=1),
]
each_network = pytest.mark.parametrize("network", SMALL, ids=lambda network: network.label())


def pictures(network: PictureNetwork, samples: int = 6, **fields: Any) -> Mixture:
    sizes: dict[str, Any] = {"samples": samples, "dim": network.channels * SIDE**2, "signal": 4.0}
    return Mixture(**(sizes | fields))


def draw(network: PictureNetwork, runs: int = 2) -> Params:
    """Weights of every run, with running statistics that are no zeros and ones."""
    params = network.initial_params(pictures(network), Streams(run_ids(runs)), torch.float64)
    for seed, (name, part) in enumerate(params.items()):
        if "running_var" in name:
            part += 0.3 * normals(*part.shape, seed=seed).abs()
        elif "running_mean" in name:
            part += 0.1 * normals(*part.shape, seed=seed)
        elif "norm" in name and part.is_floating_point():
            part += 0.3 * normals(*part.shape, seed=seed)
    return params


def points(network: PictureNetwork, runs: int = 2, samples: int = 5) -> Tensor:
    return normals(runs, samples, 1, network.channels * SIDE**2, seed=1)


class Plain:
    """The network of one run as a chain of functions; weights are taken in the order in which they are used."""

    def __init__(self, network: Any, params: Params, run: int, training: bool = False):
        self.network, self.training = network, training
        self.state = {name.removeprefix(FROZEN): part[run] for name, part in params.items()}

    def conv(self, name: str, x: Tensor, stride: int = 1) -> Tensor:
        weight = self.state[f"{name}.weight"]
        return conv2d(x, weight, stride=stride, padding=weight.shape[-1] // 2)

    def norm(self, name: str, x: Tensor) -> Tensor:
        weight, bias = (self.state[f"{name}.{part}"] for part in ("weight", "bias"))
        if self.training:
            mean, var = x.mean((0, 2, 3)), x.var((0, 2, 3), correction=0)
        else:
            mean, var = (self.state[f"{name}.running_{part}"] for part in ("mean", "var"))
        scale = weight / (var + 1e-5).sqrt()
        return (x - mean[:, None, None]) * scale[:, None, None] + bias[:, None, None]

    def strides(self, groups: Any) -> Iterator[int]:
        for group, count in enumerate(groups):
            yield from [2 if group else 1] + [1] * (count - 1)

    def features(self, x: Tensor) -> Tensor:
        side = math.isqrt(x.shape[-1] // self.network.channels)
        x = x.reshape(len(x), self.network.channels, side, side)
        return (self.basic(x) if isinstance(self.network, ResNet) else self.wide(x)).mean((2, 3))

    def basic(self, x: Tensor) -> Tensor:
        x = relu(self.norm("body.1", self.conv("body.0", x)))
        for place, stride in enumerate(self.strides(self.network.blocks), start=3):
            name = f"body.{place}"
            inside = relu(self.norm(f"{name}.first_norm", self.conv(f"{name}.first", x, stride)))
            inside = self.norm(f"{name}.second_norm", self.conv(f"{name}.second", inside))
            if f"{name}.around.0.weight" in self.state:
                x = self.norm(f"{name}.around.1", self.conv(f"{name}.around.0", x, stride))
            x = relu(inside + x)
        return x

    def wide(self, x: Tensor) -> Tensor:
        x = self.conv("body.0", x)
        count = (self.network.depth - 4) // 6
        for place, stride in enumerate(self.strides([count] * 3), start=1):
            name = f"body.{place}"
            active = relu(self.norm(f"{name}.first_norm", x))
            inside = relu(
                self.norm(f"{name}.second_norm", self.conv(f"{name}.first", active, stride))
            )
            inside = self.conv(f"{name}.second", inside)
            around = f"{name}.around.weight" in self.state
            x = inside + (self.conv(f"{name}.around", active, stride) if around else x)
        return relu(self.norm(f"body.{3 * count + 1}", x))

    def __call__(self, x: Tensor) -> Tensor:
        outputs = linear(self.features(x), self.state["head.weight"], self.state["head.bias"])
        return outputs if self.network.classes else outputs[:, 0]


@each_network
def test_outputs_and_features_are_those_of_plain_functions(network: PictureNetwork):
    params, x = draw(network), points(network)
    outputs, features = network.forward(params, x), network.represent(params, x)
    for run in range(2):
        plain = Plain(network, params, run)
        close(outputs[run], plain(x[run]))
        close(features[run], plain.features(x[run]))


@each_network
@pytest.mark.parametrize("runs", [1, 2])
def test_a_training_pass_has_the_statistics_of_its_points(network: PictureNetwork, runs: int):
    params, x = draw(network, runs), points(network, runs)
    before = {name: part.clone() for name, part in params.items()}
    forward_pass = network.training_pass(params, x, x)
    c = normals(*forward_pass.outputs.shape, seed=2)
    in_params, in_points = forward_pass.params_gradient(c), forward_pass.inputs_gradient(c)
    for run in range(runs):
        leaves = {name: before[name].clone().requires_grad_() for name in in_params}
        leaf = x[run].clone().requires_grad_()
        outputs = Plain(network, {**before, **leaves}, run, training=True)(leaf)
        close(forward_pass.outputs[run], outputs.detach())
        (outputs * c[run]).sum().backward()
        assert leaf.grad is not None
        close(in_points[run], leaf.grad)
        for name, part in leaves.items():
            assert part.grad is not None
            torch.testing.assert_close(in_params[name][run], part.grad[run], rtol=1e-9, atol=1e-10)
    moved = [name for name in params if not torch.equal(params[name], before[name])]
    assert moved == [name for name in params if name.startswith(FROZEN)]


@each_network
def test_a_pass_of_an_attack_has_the_gradients_of_plain_functions(network: PictureNetwork):
    """In eval mode a convolution and the batch norm after it are one convolution."""
    params, x = draw(network), points(network)
    forward_pass = network.run(params, x)
    c = normals(*forward_pass.outputs.shape, seed=2)
    in_params, in_points = forward_pass.params_gradient(c), forward_pass.inputs_gradient(c)
    for run in range(2):
        leaves = {name: params[name].clone().requires_grad_() for name in in_params}
        leaf = x[run].clone().requires_grad_()
        (Plain(network, {**params, **leaves}, run)(leaf) * c[run]).sum().backward()
        assert leaf.grad is not None
        close(in_points[run], leaf.grad)
        for name, part in leaves.items():
            assert part.grad is not None
            torch.testing.assert_close(in_params[name][run], part.grad[run], rtol=1e-9, atol=1e-10)


@each_network
def test_attacks_in_mixed_precision_are_near_those_in_full(network: PictureNetwork):
    params, x = draw(network), points(network)
    single = {
        name: part.float() if part.is_floating_point() else part for name, part in params.items()
    }
    expected, c = network.run(params, x), normals(1)[0]
    with products("mixed", "cpu"):
        mixed = network.run(single, x.float())
        gradient = mixed.inputs_gradient(c.float().expand_as(mixed.outputs))
    assert not torch.equal(mixed.outputs, network.run(single, x.float()).outputs)
    for found, exact in (
        (mixed.outputs, expected.outputs),
        (gradient, expected.inputs_gradient(c.expand_as(expected.outputs))),
    ):
        assert float((found - exact).norm() / exact.norm()) < 0.2


@pytest.mark.gpu
@each_network
def test_a_gpu_computes_a_step_of_an_attack_in_one_kernel_a_layer(
    network: PictureNetwork, monkeypatch
):
    params, x = draw(network), points(network)
    there = {name: part.cuda() for name, part in params.items()}
    single = {
        name: part.float() if part.is_floating_point() else part for name, part in there.items()
    }
    expected, c = network.run(there, x.cuda()), normals(1).cuda()
    with products("float32", "cuda"):
        found = network.run(single, x.float().cuda())
        gradient = found.inputs_gradient(c.float().expand_as(found.outputs))
    close(found.outputs.double(), expected.outputs, 1e-5)
    exact = expected.inputs_gradient(c.expand_as(expected.outputs))
    assert float((gradient - exact).norm() / exact.norm()) < 1e-4


def parameters(network: PictureNetwork) -> int:
    module = network.build(PointSize(1, 3072))
    return sum(part.numel() for part in module.parameters())


def test_they_have_as_many_parameters_as_are_published():
    with torch.device("meta"):
        assert parameters(ResNet(classes=10)) == 11_173_962
        assert parameters(WideResNet(classes=10)) == 46_160_474
        assert parameters(WideResNet(depth=28, classes=10)) == 36_479_194


def test_modules_computed_one_by_one_are_checked_on_the_meta_device():
    """A large network is neither run on the CPU nor filled with numbers before it is drawn."""
    network = WideResNet(classes=10)
    data = Mixture(samples=4, dim=3072, signal=1.0)
    network.check_against(data)
    template = modules._template(modules._case(network, PointSize(1, 3072)))
    assert all(part.is_meta for part in template._module.parameters())
    assert template.modes_differ
    assert 5.1e9 < network.cost(data).multiplies < 6.7e9


def test_runs_are_drawn_and_computed_as_if_alone():
    network = SMALL[0]
    both, x = draw(network), points(network)
    first, second = both["body.0.weight"]
    assert not torch.equal(first, second)
    alone = {name: part[1:] for name, part in both.items()}
    assert torch.equal(network.forward(both, x)[1:], network.forward(alone, x[1:]))


def test_planes_are_read_channel_by_channel():
    """A network whose first layer sees the third channel only."""
    network = ResNet(width=2, blocks=(1,), classes=2)
    params, x = draw(network, 1), points(network, 1)
    params["body.0.weight"][:, :, :2] = 0
    changed = x.clone().unflatten(3, (3, SIDE, SIDE))
    changed[..., :2, :, :] += 1
    close(network.forward(params, changed.flatten(3)), network.forward(params, x), 1e-14)
    changed[..., 2, :, :] += 1
    apart = network.forward(params, changed.flatten(3)) - network.forward(params, x)
    assert float(apart.abs().max()) > 1e-3


def test_patches_are_assembled():
    picture = torch.arange(2 * 3 * 4 * 4).reshape(2, 3, 4, 4).double()
    patches = [picture[:, :, r : r + 2, c : c + 2].flatten(1) for r in (0, 2) for c in (0, 2)]
    assert torch.equal(as_pictures(torch.stack(patches, 1), 3), picture)
    assert torch.equal(as_pictures(picture.flatten(1)[:, None], 3), picture)


def test_they_learn_under_attack():
    network = ResNet(width=4, blocks=(1, 1), channels=1)
    data, attack = pictures(network, samples=8), small_pgd(radius=0.2, per="sample", steps=2)
    setup = small_setup(data=data, network=network, attack=attack, max_steps=40, rate=0.1)
    frames = film(start([setup]))
    assert float(frames[-1].loss) < 0.2 * float(frames[0].loss)
    assert frames[-1].params["frozen/body.1.num_batches_tracked"].tolist() == [41]


@pytest.mark.parametrize(
    ("data", "parts"),
    [
        (small_data(), ["`data.tokens`", "square", "3", "1", "picture"]),
        (
            Mixture(samples=4, dim=50, signal=1.0),
            ["`data.dim`", "channels=3", "square", "50", "`network.channels`"],
        ),
    ],
    ids=["patches", "no square"],
)
def test_points_that_are_no_pictures_are_refused(data: Any, parts: list[str]):
    with pytest.raises(SpecError, match=says(*parts)):
        small_setup(data=data, network=ResNet(width=2, blocks=(1,)))


def test_weights_of_wide_ones_start_by_the_planes_they_go_to():
    params = draw(WideResNet(depth=10, widen=4), 1)
    for name, planes in (("body.0.weight", 16), ("body.3.second.weight", 256)):
        close(params[name].std(), doubles((2 / (9 * planes)) ** 0.5)[0], 0.05)
