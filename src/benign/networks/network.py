"""What every network offers: initial parameters and a forward pass over a batch of runs.

A network needs `initial_params` and `forward` only; `run` then differentiates by autograd. A
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
    """One forward pass that can be pulled back: gradients of sum(c * outputs) for any weights c.

    This base differentiates by autograd; it is the reference for every closed form.
    """

    outputs: Float[Tensor, "runs samples *classes"]

    def __init__(self, network: "Network", params: Params, x: Tensor):
        self._params = {
            name: params[name].detach().requires_grad_() for name in network.trained(params)
        }
        self._x = x.detach().requires_grad_()
        with torch.enable_grad():
            traced = network.forward({**params, **self._params}, self._x)
            self._traced = traced.to(x.dtype)  # mixed precision gives less
        self.outputs = self._traced.detach()

    def params_gradient(self, c: Float[Tensor, "runs samples *classes"]) -> Params:
        leaves = list(self._params.values())
        grads = torch.autograd.grad(self._traced, leaves, c, retain_graph=True)
        # contiguous: the gradient of a sum is one number seen many times, and steps are in place
        return {name: part.contiguous() for name, part in zip(self._params, grads, strict=True)}

    def inputs_gradient(self, c: Float[Tensor, "runs samples *classes"]) -> Tensor:
        return torch.autograd.grad(self._traced, self._x, c, retain_graph=True)[0]


class Network(Component):
    """A family of functions f(params, x): one output a point (its sign predicts), or one a class."""

    recordable: ClassVar[bool] = False
    """whether no value decides what its passes compute, so that a GPU can record them; not inherited"""
    mixed: ClassVar[bool] = False
    """whether its passes may be computed in lower precision (`precision: mixed`)"""

    @abstractmethod
    def initial_params(self, data: DataModel, streams: Streams, dtype: torch.dtype) -> Params:
        """Initial parameters of every run."""

    @abstractmethod
    def forward(self, params: Params, x: Tensor) -> Float[Tensor, "runs samples *classes"]:
        """The outputs f(x)."""

    def run(self, params: Params, x: Tensor) -> Pass:
        """A forward pass that can be pulled back to parameters and inputs."""
        return Pass(self, params, x)

    def attacked_pass(self, params: Params, x: Tensor, clean: Tensor) -> Pass:
        """The pass on attacked points. Like `run`, unless a part of the network sees the clean ones."""
        return self.run(params, x)

    def training_pass(self, params: Params, x: Tensor, clean: Tensor) -> Pass:
        """The pass whose loss is descended. Like `attacked_pass`, unless training changes the network
        (batch statistics)."""
        return self.attacked_pass(params, x, clean)

    def own_gradient(
        self, params: Params, x: Tensor, clean: Tensor, y: Float[Tensor, "runs samples"]
    ) -> Tensor:
        """Gradient of every attacked point's own output, y f or F_y, in the point."""
        here = self.attacked_pass(params, x, clean)
        return here.inputs_gradient(own_slope(here.outputs, y))

    def represent(self, params: Params, x: Tensor) -> Float[Tensor, "runs samples features"]:
        """The layer before the last, as G of Li appendix A; autograd can follow it back to x."""
        raise ValueError(
            f"`network` ({self.kind}) has no representation layer that is known here: "
            "give it a method `represent` from points to features"
        )

    def output_count(self) -> int | None:
        """k where the network gives one output a class; None where it gives one a point."""
        return None

    def trained(self, params: Params) -> tuple[str, ...]:
        """Names of the parameters that gradient descent moves; the others are frozen."""
        return tuple(params)

    def check_against(self, data: DataModel) -> None:
        """Raise ValueError where the network cannot take this data."""

    def require(self) -> None:
        """Raise ValueError where a file that the network needs is not there or not right; asked before work."""

    def check_first_attack(self, step: int) -> None:
        """Raise ValueError where training points cannot be attacked from this step on."""

    def cost(self, data: DataModel) -> "Cost":
        """What a run needs; an estimate, for batch sizes and for `benign show`."""
        return Cost(weights=0, point=data.tokens * data.dim, multiplies=data.tokens * data.dim)


@runtime_checkable
class ScaledGradients(Protocol):
    """A network whose `params_gradient` is a multiple of the gradient: a parameter stands for others that really move.

    The check of components (`benign.testing`) multiplies the gradients of autograd by these factors.
    """

    def gradient_scale(self, params: Params) -> Params:
        """Return the factor of each trained parameter; it broadcasts against the parameter."""
        ...


def declares(network: Network, name: str) -> bool:
    """Return whether the network's own class defines a shortcut.

    An inherited shortcut does not count, because it would ignore what the subclass changes in `forward`.
    """
    return name in vars(type(network))


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
    """of the weights, where attacks may climb in their coordinates (benign.attacks.gram)"""
