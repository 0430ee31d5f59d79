"""Any `nn.Module` as a network: a class of the user's builds it, and all runs of a batch go through it together."""

import warnings
from abc import abstractmethod
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.func import functional_call, vmap

from benign.data.model import DataModel
from benign.networks.module_checks import (
    PointSize,
    Tryout,
    differentiable,
    drawn,
    first_line,
    probe,
    tensors,
    try_out,
)
from benign.networks.network import Cost, Network, Params, Pass
from benign.spec.axes import replace, walk
from benign.streams import Streams

FROZEN = "frozen/"
"""begins the names of what gradient descent leaves alone: buffers, and parameters without `requires_grad`"""


class SlowModule(UserWarning):
    """A module whose runs cannot be computed together, so that they are computed one after another."""


class ModuleNetwork(Network):
    """A network whose pass is that of an `nn.Module`: a subclass has fields and says how the module is built.

    The module takes points [samples, tokens, dim] and gives [samples] or [samples, 1]; or [samples, k]
    where the subclass overrides `output_count`. Runs may differ in its parameters and buffers only.

    Parameters: those of the module, by its own names. Buffers and parameters without `requires_grad`
    are frozen, and their names begin with `frozen/`.

    A module with a method `represent` from points to features [samples, features] has them seen.

    >>> import benign as bo
    >>> class Affine(bo.ModuleNetwork):
    ...     def build(self, data):
    ...         return nn.Sequential(nn.Flatten(), nn.Linear(data.tokens * data.dim, 1))
    >>> Affine.kind
    'affine'
    >>> del bo.ModuleNetwork.choices()["affine"]  # this example is a test, which leaves no trace
    """

    one_by_one: ClassVar[bool] = False
    """whether runs are computed one after another, as is known: modules are not tried together, nor compared, and
    share no weights among their layers"""

    mixed: ClassVar[bool] = True

    @abstractmethod
    def build(self, data: PointSize) -> nn.Module:
        """The module of one run, freshly drawn from torch's generator; `PerRun` fields are that run's numbers."""

    def initial_params(self, data: DataModel, streams: Streams, dtype: torch.dtype) -> Params:
        size = PointSize(data.tokens, data.dim)
        template = _template(_case(self, size))
        # One 32-bit word: torch's CPU generator takes no more of a seed.
        seeds = streams("init/module").integers(1)[:, 0].tolist()
        states = [
            template.state_of(drawn(_of_run(self, run).build, size, seed))
            for run, seed in enumerate(seeds)
        ]
        stacked = {name: torch.stack([state[name] for state in states]) for name in states[0]}
        return {
            name: part.to(streams.device, dtype if part.is_floating_point() else part.dtype)
            for name, part in stacked.items()
        }

    def trained(self, params: Params) -> tuple[str, ...]:
        return tuple(name for name in params if not name.startswith(FROZEN))

    def forward(self, params: Params, x: Tensor) -> Float[Tensor, "runs samples *classes"]:
        return self._template(x).outputs(params, x)

    def run(self, params: Params, x: Tensor) -> "ModulePass":
        return ModulePass(self._template(x), params, x)

    def represent(self, params: Params, x: Tensor) -> Float[Tensor, "runs samples features"]:
        template = self._template(x)
        return template.features(params, x) if template.represents else super().represent(params, x)

    def training_pass(self, params: Params, x: Tensor, clean: Tensor) -> "ModulePass":
        """In training mode where that makes a difference: batch statistics are those of the points, and the
        running ones move, in `params`. Attacks and tests are in eval mode."""
        template = self._template(x)
        return ModulePass(template, params, x, training=template.acts_apart)

    def check_against(self, data: DataModel) -> None:
        _tryout(_case(self, PointSize(data.tokens, data.dim)))

    def cost(self, data: DataModel) -> Cost:
        return _tryout(_case(self, PointSize(data.tokens, data.dim))).cost

    def _template(self, x: Float[Tensor, "runs samples tokens dim"]) -> "_Template":
        return _template(_case(self, PointSize(*x.shape[2:])))


class ModulePass(Pass):
    """A pass of every run's module, differentiated by autograd; a parameter that has no part in it has gradient 0."""

    def __init__(self, template: "_Template", params: Params, x: Tensor, training: bool = False):
        self._params = {
            name: part.detach().requires_grad_()
            for name, part in params.items()
            if not name.startswith(FROZEN)
        }
        self._x = x.detach().requires_grad_()
        with torch.enable_grad():
            traced = template.outputs({**params, **self._params}, self._x, training)
            self._traced = traced.to(x.dtype)  # mixed precision gives less
        self.outputs = self._traced.detach()

    def params_gradient(self, c: Float[Tensor, "runs samples *classes"]) -> Params:
        parts = self._gradient(list(self._params.values()), c)
        return {name: part.contiguous() for name, part in zip(self._params, parts, strict=True)}

    def inputs_gradient(self, c: Float[Tensor, "runs samples *classes"]) -> Tensor:
        return self._gradient([self._x], c)[0]

    def _gradient(self, leaves: list[Tensor], c: Tensor) -> tuple[Tensor, ...]:
        return torch.autograd.grad(
            self._traced, leaves, c, retain_graph=True, materialize_grads=True
        )


class _Template:
    """One module that lends its code to every run's parameters and buffers."""

    def __init__(self, case: "_Case"):
        network = _of_run(case.network, 0)
        self.acts_apart = _tryout(case).acts_apart
        self._kind, self._signed = network.kind, network.output_count() is None
        self._known, self._probe = network.one_by_one, probe(case.size)
        # Of what is known only the code is needed: on the meta device it has no numbers.
        self._module = drawn(network.build, case.size, device="meta" if self._known else "cpu")
        self.represents = hasattr(self._module, "represent")
        self._represent = _Represent(self._module)
        self._together = not self._known and self._can_together()

    def _can_together(self) -> bool:
        trouble = self._trouble_together()
        if trouble:
            self._warn(f"its runs are computed one by one, since vmap cannot: {trouble}")
        if self.acts_apart:
            self._warn(
                "its runs are trained one by one, since training mode is not eval mode (batch statistics)"
            )
        return trouble is None

    def _warn(self, text: str) -> None:
        warnings.warn(f"`network` ({self._kind}): {text}", SlowModule, stacklevel=2)

    def _trouble_together(self) -> str | None:
        """What stands against computing two runs at a time; None where nothing does."""
        twice = {name: torch.stack([part, part]) for name, part in tensors(self._module)}
        leaves = [part for part in twice.values() if part.requires_grad]
        try:
            with torch.enable_grad(), differentiable(), warnings.catch_warnings():
                warnings.filterwarnings("error", ".*batching rule")  # vmap with a loop inside
                outputs = vmap(self._one)(twice, torch.stack([self._probe, self._probe]))
                torch.autograd.grad(outputs.sum(), leaves, allow_unused=True)
        except Exception as error:
            return first_line(error)

    def _one(self, state: Params, x: Float[Tensor, "samples tokens dim"]) -> Tensor:
        """The outputs of one run."""
        outputs = self._called(self._module, state, x)
        return outputs.reshape(len(x)) if self._signed else outputs

    def _features(self, state: Params, x: Float[Tensor, "samples tokens dim"]) -> Tensor:
        """The features of one run."""
        inside = {f"module.{name}": part for name, part in state.items()}
        return self._called(self._represent, inside, x)

    def _called(self, module: nn.Module, state: Params, x: Tensor) -> Tensor:
        # What is known shares no weights; looking for them took as long as all else outside of the module.
        return functional_call(module, state, (x,), tie_weights=not self._known)

    def outputs(self, params: Params, x: Tensor, training: bool = False) -> Tensor:
        """The outputs of every run. What the module changes in training mode changes in `params`."""
        return self._every(self._one, params, x, training)

    def features(self, params: Params, x: Tensor) -> Tensor:
        """What `represent` of the module gives, for every run."""
        return self._every(self._features, params, x, False)

    def _every(self, one: Callable, params: Params, x: Tensor, training: bool) -> Tensor:
        if self._module.training != training:
            self._module.train(training)
        state = {name.removeprefix(FROZEN): part for name, part in params.items()}
        with nullcontext() if self._known else differentiable():
            if self._together and not training:
                return vmap(one)(state, x)
            runs = zip(_apart(state, len(x)), x, strict=True)
            return torch.stack([_alone(one, own, points) for own, points in runs])

    def state_of(self, module: nn.Module) -> Params:
        """Parameters and buffers of a run's module, which must differ from the template in nothing else."""
        ours, theirs = _state(self._module), _state(module)
        if _shapes(ours) != _shapes(theirs):
            raise ValueError(
                f"`network` ({self._kind}): runs of one batch have modules of different shapes, {_shapes(ours)} and "
                f"{_shapes(theirs)}: mark a field that decides shapes `Shape`, not `PerRun`"
            )
        if not self._known and not _alike(
            *(_response(code, theirs, self._probe) for code in (self._module, module))
        ):
            raise ValueError(
                f"`network` ({self._kind}): the modules of two runs differ in more than parameters and buffers: "
                "keep what differs by run in a buffer (`register_buffer`), or mark its field `Shape`"
            )
        return theirs


class _Represent(nn.Module):
    """A module whose pass is another's `represent`: `functional_call` knows `forward` only."""

    def __init__(self, module: nn.Module):
        super().__init__()
        self.module: Any = module

    def forward(self, x: Tensor) -> Tensor:
        return self.module.represent(x)


def _apart(state: Params, runs: int) -> list[Params]:
    """The state of every run, not copied. The gradient of one run alone is not copied either, those of several once:
    an index for each would write all of them for each."""
    if runs == 1:
        return [{name: part.squeeze(0) for name, part in state.items()}]
    each = {
        name: part.unbind(0) if part.requires_grad else [part[run] for run in range(runs)]
        for name, part in state.items()
    }
    return [{name: parts[run] for name, parts in each.items()} for run in range(runs)]


def _alone(one: Callable, before: Params, x: Tensor) -> Tensor:
    after = dict(before)
    outputs = one(after, x)
    for (
        name,
        part,
    ) in after.items():  # what was changed in place is changed in the batch's state already
        if part is not before[name]:
            before[name].copy_(part.detach())
    return outputs


@dataclass(frozen=True)
class _Case:
    """What decides the code of a module: the same for networks that differ in the numbers of runs alone."""

    key: tuple[type, str, PointSize]
    network: ModuleNetwork = field(compare=False)

    @property
    def size(self) -> PointSize:
        return self.key[2]


def _case(network: ModuleNetwork, size: PointSize) -> _Case:
    numbers = {
        path: ... for path, role, value in walk(network) if role == "run" and value is not None
    }
    return _Case((type(network), repr(replace(network, numbers)), size), network)


@lru_cache(maxsize=32)
def _template(case: _Case) -> _Template:
    return _Template(case)


@lru_cache(maxsize=1024)
def _tryout(case: _Case) -> Tryout:
    network = _of_run(case.network, 0)
    try:
        return try_out(network.build, case.size, network.output_count())
    except ValueError as error:
        raise ValueError(f"`network` ({network.kind}): {error}") from error


def _of_run(network: ModuleNetwork, run: int) -> ModuleNetwork:
    """The network of one run of a batch: plain numbers, validated again, since whole ones were stacked as floats."""
    numbers = {
        path: value[run].item() for path, _, value in walk(network) if isinstance(value, Tensor)
    }
    return network.from_dict(replace(network, numbers).as_dict()) if numbers else network


def _state(module: nn.Module) -> Params:
    return {
        name if part.requires_grad else FROZEN + name: part.detach()
        for name, part in tensors(module)
    }


def _shapes(state: Params) -> dict[str, list[int]]:
    return {name: list(part.shape) for name, part in state.items()}


def _response(code: nn.Module, state: Params, x: Tensor) -> list[Tensor]:
    """What a module makes of a state in both modes, changed buffers included."""
    seen: list[Tensor] = []
    for training in (False, True):
        copy = {name.removeprefix(FROZEN): part.clone() for name, part in state.items()}
        seen += [functional_call(code.train(training), copy, (x,)), *copy.values()]
    return seen


def _alike(left: list[Tensor], right: list[Tensor]) -> bool:
    return all(
        torch.allclose(a, b, rtol=0, atol=0, equal_nan=True)
        for a, b in zip(left, right, strict=True)
    )
