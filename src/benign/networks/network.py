"""The interface of every network: initial parameters, and a forward pass over a batch of runs.

A network needs only `initial_params` and `forward`; `run` then differentiates by autograd. A
network with closed-form gradients overrides `run`.
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Protocol, TypeAlias, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from benign.data.model import DataModel
from benign.losses import own_slope
from benign.spec.registry import Component
from benign.streams import Streams

Params: TypeAlias = dict[str, Tensor]
"""parameters by name, each with a leading runs axis"""


class Pass:
    """A forward pass, with the gradients of sum(c * outputs) for any weights c.

    This base class differentiates by autograd; it is the reference for every closed form.
    """

    outputs: Float[Tensor, "runs samples *classes"]
    clean_products: Tensor | None = None
    """products of the clean points with the weights, if the attack on these points has computed them"""

    def __init__(self, network: "Network", params: Params, x: Tensor):
        self._params = {
            name: params[name].detach().requires_grad_() for name in network.trained(params)
        }
        self._x = x.detach().requires_grad_()
        with torch.enable_grad():
            traced = network.forward({**params, **self._params}, self._x)
            self._traced = traced.to(x.dtype)  # outputs in mixed precision have a shorter dtype
        self.outputs = self._traced.detach()

    def params_gradient(self, c: Float[Tensor, "runs samples *classes"]) -> Params:
        leaves = list(self._params.values())
        grads = torch.autograd.grad(self._traced, leaves, c, retain_graph=True)
        # contiguous: the gradient of a sum is an expanded number, and steps are in place
        return {name: part.contiguous() for name, part in zip(self._params, grads, strict=True)}

    def inputs_gradient(self, c: Float[Tensor, "runs samples *classes"]) -> Tensor:
        return torch.autograd.grad(self._traced, self._x, c, retain_graph=True)[0]


class Network(Component):
    """A family of functions f(params, x): one output a point (its sign predicts), or one a class."""

    mixed: ClassVar[bool] = False
    """whether its passes may be computed in lower precision (`precision: mixed`)"""

    @abstractmethod
    def initial_params(self, data: DataModel, streams: Streams, dtype: torch.dtype) -> Params:
        """Draw the initial parameters of every run."""

    @abstractmethod
    def forward(self, params: Params, x: Tensor) -> Float[Tensor, "runs samples *classes"]:
        """Return the outputs f(x)."""

    def run(self, params: Params, x: Tensor) -> Pass:
        """Run a forward pass with gradients in parameters and inputs."""
        return Pass(self, params, x)

    def attacked_pass(self, params: Params, x: Tensor, clean: Tensor) -> Pass:
        """Run a pass on attacked points. The same as `run`, unless a part of the network gets the clean points."""
        return self.run(params, x)

    def training_pass(self, params: Params, x: Tensor, clean: Tensor) -> Pass:
        """Run the pass whose loss training descends.

        The same as `attacked_pass`, unless training changes the network (batch statistics).
        """
        return self.attacked_pass(params, x, clean)

    def own_gradient(
        self, params: Params, x: Tensor, clean: Tensor, y: Float[Tensor, "runs samples"]
    ) -> Tensor:
        """Return the gradient of every attacked point's own output, y f or F_y, in the point."""
        here = self.attacked_pass(params, x, clean)
        return here.inputs_gradient(own_slope(here.outputs, y))

    def represent(self, params: Params, x: Tensor) -> Float[Tensor, "runs samples features"]:
        """Return the layer before the last, G of Li appendix A, differentiable in x by autograd."""
        raise ValueError(
            f"`network` ({self.kind}) declares no representation layer: "
            "give it a method `represent` from points to features"
        )

    def output_count(self) -> int | None:
        """Return k if the network has one output for each of k classes, or None if it has a single output."""
        return None

    def trained(self, params: Params) -> tuple[str, ...]:
        """Return the names of the parameters that gradient descent moves; the others are frozen."""
        return tuple(params)

    def check_against(self, data: DataModel) -> None:
        """Raise ValueError if the network does not fit this data."""

    def require(self) -> None:
        """Raise ValueError if a file that the network needs is missing or damaged. Called before any work."""

    def check_first_attack(self, step: int) -> None:
        """Raise ValueError if training points cannot be attacked from this step on."""

    def cost(self, data: DataModel) -> "Cost":
        """Return an estimate of the sizes of a run, for batch sizes and for `benign show`."""
        return Cost(weights=0, point=data.tokens * data.dim, multiplies=data.tokens * data.dim)


@runtime_checkable
class ScaledGradients(Protocol):
    """A network whose `params_gradient` is a multiple of the gradient, because a parameter is a function of others.

    The check of components (`benign.testing`) multiplies the gradients of autograd by these factors.
    """

    def gradient_scale(self, params: Params) -> Params:
        """Return the factor of each trained parameter; it broadcasts against the parameter."""
        ...


@dataclass(frozen=True)
class Cost:
    """Sizes of one run of a network."""

    weights: int
    """numbers held for parameters and their gradients"""
    point: int
    """numbers held for one point in a pass"""
    multiplies: int
    """multiplications of one point in one pass, forward or backward"""
    columns: int = 0
    """columns of the weights if attacks may ascend in their coordinates (benign.attacks.gram), else 0"""
