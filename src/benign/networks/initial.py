"""Initial weights: Gaussian as in the theorems, or PyTorch's default divided by a factor as in the experiments."""

import math
from abc import abstractmethod
from typing import Any, Literal

import torch
from torch import Tensor

from benign.data.model import column
from benign.spec.axes import PerRun, default
from benign.spec.base import NonNegative, Positive
from benign.spec.registry import Component
from benign.streams import Stream, Streams


class Init(Component):
    """A law of the initial weights of an attention network."""

    @abstractmethod
    def score_weights(self, stream: Stream, dim: int, hidden: int, dtype: torch.dtype) -> Tensor:
        """Draw W_Q or W_K, [runs, dim, hidden]."""

    @abstractmethod
    def value_weights(self, stream: Stream, dim: int, value_dim: int, dtype: torch.dtype) -> Tensor:
        """Draw W_V, [runs, dim, value_dim]."""

    def normal_stds(self, dim: int) -> tuple[Any, Any] | None:
        """Return the standard deviations of the entries of W_Q and W_K, and of W_V, if they are independent normals."""
        return None

    def output_weights(self, streams: Streams, value_dim: int, dtype: torch.dtype) -> Tensor:
        """Draw w_O, [runs, value_dim]: entries of `nn.Linear(value_dim, 1)`, whose squared norm is about 1/3."""
        return linear_default(streams("init/output"), value_dim, value_dim, dtype=dtype)


class GaussianInit(Init):
    """Independent normal entries: sigma_h for W_Q and W_K, sigma_V for W_V (Zhang Algorithm 1, Jiang 3).

    >>> import benign as bo
    >>> bo.GaussianInit(score_std=0.01, value_std=0.02).label()
    'gaussian_init(score_std=0.01, value_std=0.02)'
    """

    score_std: PerRun[NonNegative]
    """sigma_h"""
    value_std: PerRun[NonNegative]
    """sigma_V"""

    def score_weights(self, stream: Stream, dim: int, hidden: int, dtype: torch.dtype) -> Tensor:
        return _scaled(stream.normal(dim, hidden, dtype=dtype), self.score_std)

    def value_weights(self, stream: Stream, dim: int, value_dim: int, dtype: torch.dtype) -> Tensor:
        return _scaled(stream.normal(dim, value_dim, dtype=dtype), self.value_std)

    def normal_stds(self, dim: int) -> tuple[Any, Any]:
        return self.score_std, self.value_std


class TorchDefault(Init):
    """The default of `nn.Linear(dim, ., bias=False)`, uniform on +-1/sqrt(dim), divided by a factor.

    With `entries: normal` W_Q, W_K and W_V are normal with the same standard deviation, 1/sqrt(3 dim).

    >>> import benign as bo
    >>> bo.TorchDefault(divide_by=16).label()
    'torch_default(divide_by=16.0)'
    """

    divide_by: PerRun[Positive] = default(1.0)
    """divides W_Q, W_K and W_V (16 in the papers' experiments)"""
    divide_output: bool = False
    """divide w_O as well; the papers do not say"""
    entries: Literal["uniform", "normal"] = "uniform"
    """law of W_Q, W_K and W_V: small coordinates can be sampled for normal entries; w_O is uniform"""

    def score_weights(self, stream: Stream, dim: int, hidden: int, dtype: torch.dtype) -> Tensor:
        return self._weights(stream, dim, hidden, dtype)

    def value_weights(self, stream: Stream, dim: int, value_dim: int, dtype: torch.dtype) -> Tensor:
        return self._weights(stream, dim, value_dim, dtype)

    def normal_stds(self, dim: int) -> tuple[Any, Any] | None:
        if self.entries == "uniform":
            return None
        std = 1 / (self.divide_by * math.sqrt(3 * dim))
        return std, std

    def _weights(self, stream: Stream, dim: int, width: int, dtype: torch.dtype) -> Tensor:
        if self.entries == "normal":
            normals = stream.normal(dim, width, dtype=dtype)
            return _scaled(normals, 1 / (self.divide_by * math.sqrt(3 * dim)))
        return _scaled(linear_default(stream, dim, dim, width, dtype=dtype), 1 / self.divide_by)

    def output_weights(self, streams: Streams, value_dim: int, dtype: torch.dtype) -> Tensor:
        weights = super().output_weights(streams, value_dim, dtype)
        return _scaled(weights, 1 / self.divide_by) if self.divide_output else weights


def linear_default(stream: Stream, fan_in: int, *shape: int, dtype: torch.dtype) -> Tensor:
    """Draw weights or biases by the default of `nn.Linear`: uniform on +-1/sqrt(fan_in)."""
    return stream.uniform(*shape, dtype=dtype).mul_(2).sub_(1).div_(math.sqrt(fan_in))


def _scaled(weights: Tensor, factor) -> Tensor:
    """Multiply each run's weights by its factor, a number or a tensor [runs]."""
    return weights.mul_(column(factor, weights))
