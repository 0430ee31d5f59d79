"""Residual networks for small pictures: ResNet-18 with the CIFAR stem, WRN-34-10, and smaller ones of both."""

from abc import abstractmethod
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import conv2d, relu

from benign.networks.module_checks import PointSize
from benign.networks.pictures import PictureNetwork, as_pictures
from benign.spec.axes import Shape, default
from benign.spec.base import Count
from benign.spec.registry import guarantees


class Residual(PictureNetwork):
    """A body of convolutions, averaged over positions. Every run has its own statistics of batch norm."""

    def build(self, data: PointSize) -> nn.Module:
        return Averaged(self.channels, *self.body(), self.classes or 1)

    @abstractmethod
    def body(self) -> tuple[nn.Module, int]:
        """Return the module from pictures to planes, and the number of planes."""


@guarantees("recordable")
class ResNet(Residual):
    """The residual network of He et al. in its form for CIFAR: a 3 x 3 stem of stride 1, then basic blocks.

    The default is ResNet-18, with 11,173,962 parameters for 10 classes: Li section 4 trains it on MNIST.
    With every group of blocks the number of planes doubles and their side halves. Weights start as in torch.

    >>> import benign as bo
    >>> bo.ResNet(channels=1, classes=10, width=16, blocks=(1, 1, 1)).output_count()
    10
    """

    width: Shape[Count] = default(64)
    """number of planes in the first group"""
    blocks: tuple[Count, ...] = (2, 2, 2, 2)
    """number of blocks in every group; a block has two convolutions"""

    def check(self) -> None:
        super().check()
        if not self.blocks:
            raise ValueError(
                "`blocks` must name at least one group, got (): ResNet-18 has (2, 2, 2, 2)"
            )

    def body(self) -> tuple[nn.Module, int]:
        width = self.width
        layers = [_convolution(self.channels, width), nn.BatchNorm2d(width), nn.ReLU()]
        planes = width
        for group, count in enumerate(self.blocks):
            for block in range(count):
                stride = 2 if group and not block else 1
                layers.append(BasicBlock(planes, width << group, stride))
                planes = width << group
        return Layers(*layers), planes


@guarantees("recordable")
class WideResNet(Residual):
    """The wide residual network of Zagoruyko and Komodakis, with batch norm before every convolution.

    The default is WRN-34-10, with 46,160,474 parameters for 10 classes: Li section 4 trains it on CIFAR-10
    and SVHN. Three groups of (depth - 4) / 6 blocks have 16, 32 and 64 planes, times `widen`.
    Convolutions start as N(0, 2 / (9 planes)), as in the code of TRADES.

    >>> import benign as bo
    >>> bo.WideResNet(depth=16, widen=4).label()
    'wide_res_net(depth=16, widen=4)'
    """

    depth: Shape[Count] = default(34)
    """number of layers, 4 more than a multiple of 6"""
    widen: Shape[Count] = default(10)
    """factor of the numbers of planes"""

    def check(self) -> None:
        super().check()
        if self.depth < 10 or self.depth % 6 != 4:
            raise ValueError(
                f"`depth` must be 4 more than a multiple of 6, got {self.depth}: 10, 16, 22, 28, 34, ..."
            )

    def body(self) -> tuple[nn.Module, int]:
        layers: list[nn.Module] = [_convolution(self.channels, 16)]
        planes = 16
        for group in range(3):
            for block in range((self.depth - 4) // 6):
                stride = 2 if group and not block else 1
                layers.append(WideBlock(planes, (16 << group) * self.widen, stride))
                planes = (16 << group) * self.widen
        for layer in nn.ModuleList(layers).modules():
            if isinstance(layer, nn.Conv2d):
                nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
        return nn.Sequential(*layers, nn.BatchNorm2d(planes), nn.ReLU()), planes


class Averaged(nn.Module):
    """From points to pictures, through the body, averaged over positions, to outputs."""

    def __init__(self, channels: int, body: nn.Module, planes: int, outputs: int):
        super().__init__()
        self.channels, self.body, self.head = channels, body, nn.Linear(planes, outputs)

    def represent(self, x: Float[Tensor, "samples tokens dim"]) -> Float[Tensor, "samples planes"]:
        """Return the averages of the planes."""
        pictures = as_pictures(x, self.channels)
        if x.is_cuda:  # the memory order of tensor cores
            pictures = pictures.contiguous(memory_format=torch.channels_last)
        return self.body(pictures).mean((2, 3))

    def forward(self, x: Float[Tensor, "samples tokens dim"]) -> Float[Tensor, "samples outputs"]:
        return self.head(self.represent(x))


class Layers(nn.Sequential):
    """Layers in sequence. A convolution is computed together with the batch norm and the ReLU after it."""

    def forward(self, input: Tensor) -> Tensor:
        x, layers = input, [*self]
        while layers:
            match layers:
                case [nn.Conv2d() as convolution, nn.BatchNorm2d() as norm, nn.ReLU(), *layers]:
                    x = active(convolution, norm, x)
                case [nn.Conv2d() as convolution, nn.BatchNorm2d() as norm, *layers]:
                    x = normed(convolution, norm, x)
                case [layer, *layers]:
                    x = layer(x)
        return x


class BasicBlock(nn.Module):
    """Two convolutions, each followed by batch norm, and a shortcut."""

    def __init__(self, inputs: int, planes: int, stride: int):
        super().__init__()
        self.first, self.second = _convolution(inputs, planes, stride), _convolution(planes, planes)
        self.first_norm, self.second_norm = nn.BatchNorm2d(planes), nn.BatchNorm2d(planes)
        self.around = Layers()
        if stride != 1 or inputs != planes:
            self.around = Layers(_convolution(inputs, planes, stride, 1), nn.BatchNorm2d(planes))

    def forward(self, x: Tensor) -> Tensor:
        inside = active(self.first, self.first_norm, x)
        return active(self.second, self.second_norm, inside, self.around(x))


class WideBlock(nn.Module):
    """Two convolutions, each after batch norm and ReLU; if sizes change, the shortcut is a third one."""

    def __init__(self, inputs: int, planes: int, stride: int):
        super().__init__()
        self.first_norm, self.second_norm = nn.BatchNorm2d(inputs), nn.BatchNorm2d(planes)
        self.first, self.second = _convolution(inputs, planes, stride), _convolution(planes, planes)
        self.around = None if inputs == planes else _convolution(inputs, planes, stride, 1)

    def forward(self, x: Tensor) -> Tensor:
        before = relu(self.first_norm(x))
        inside = self.second(active(self.first, self.second_norm, before))
        return inside + (x if self.around is None else self.around(before))


def normed(convolution: nn.Conv2d, norm: nn.BatchNorm2d, x: Tensor) -> Tensor:
    """Return norm(convolution(x)), in eval mode by one convolution."""
    if norm.training:
        return norm(convolution(x))
    return conv2d(x, *_folded(convolution, norm))


def active(
    convolution: nn.Conv2d, norm: nn.BatchNorm2d, x: Tensor, added: Tensor | None = None
) -> Tensor:
    """Return relu(norm(convolution(x)) + added), in eval mode by one convolution."""
    if norm.training:
        outputs = norm(convolution(x))
        return relu(outputs if added is None else outputs + added)
    weight, bias, stride, padding = _folded(convolution, norm)
    parts = (part if part is None else _autocast(part) for part in (x, added, weight, bias))
    return _Active.apply(*parts, stride, padding)


def _folded(convolution: nn.Conv2d, norm: nn.BatchNorm2d) -> tuple[Tensor, Tensor, Any, Any]:
    """Return weight, bias, stride and padding of the convolution that computes both in eval mode."""
    mean, variance = norm.running_mean, norm.running_var
    assert mean is not None
    assert variance is not None
    scale = norm.weight * (variance + norm.eps).rsqrt()
    weight = convolution.weight * scale[:, None, None, None]
    bias = torch.addcmul(norm.bias, mean, scale, value=-1)
    return weight, bias, convolution.stride, convolution.padding


def _autocast(part: Tensor) -> Tensor:
    """Return a factor of a convolution in the precision that autocast would give it."""
    kind = part.device.type
    if kind == "meta" or not torch.is_autocast_enabled(kind):
        return part
    return part.to(torch.get_autocast_dtype(kind))


class _Active(torch.autograd.Function):
    """relu(convolution + bias + added), on a GPU by one kernel.

    A step of ascent of ResNet-18 took 3.6 ms instead of 6.1 with torch's batch norm in eval mode, whose gradient alone
    was 1.9 ms (H200, batch 256, tf32).
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        added: Tensor | None,
        weight: Tensor,
        bias: Tensor,
        stride: tuple[int, int],
        padding: tuple[int, int],
    ) -> Tensor:
        if not x.is_cuda or x.dtype == torch.float64:  # cuDNN has no such kernel
            outputs = conv2d(x, weight, bias, stride, padding)
            outputs = relu(outputs if added is None else outputs + added)
        elif added is None:
            outputs = torch.cudnn_convolution_relu(x, weight, bias, stride, padding, (1, 1), 1)
        else:
            outputs = torch.cudnn_convolution_add_relu(
                x, weight, added, 1.0, bias, stride, padding, (1, 1), 1
            )
        ctx.save_for_backward(x, weight, outputs)
        ctx.stride, ctx.padding = stride, padding
        return outputs

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> Any:
        x, weight, outputs = ctx.saved_tensors
        gradient = torch.ops.aten.threshold_backward(grad_outputs[0], outputs, 0)
        of_x, of_added, of_weight, of_bias = ctx.needs_input_grad[:4]
        in_x, in_weight, in_bias = torch.ops.aten.convolution_backward(
            gradient,
            x,
            weight,
            [len(weight)],
            ctx.stride,
            ctx.padding,
            (1, 1),
            False,
            (0, 0),
            1,
            (of_x, of_weight, of_bias),
        )
        return in_x, gradient if of_added else None, in_weight, in_bias, None, None


def _convolution(inputs: int, planes: int, stride: int = 1, side: int = 3) -> nn.Conv2d:
    return nn.Conv2d(inputs, planes, side, stride, padding=side // 2, bias=False)
