"""Any `nn.Module` as a network: a user's class builds it, and all runs of a batch are computed together by vmap."""

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
    ModuleReport,
    PointSize,
    check_module,
    differentiable,
    drawn,
    first_line,
    probe,
    tensors,
)
from benign.networks.network import Cost, Network, Params, Pass
from benign.spec.axes import replace, walk
from benign.streams import Streams

FROZEN = "frozen/"
"""prefix of the names of frozen tensors: buffers, and parameters without `requires_grad`"""


class SlowModule(UserWarning):
    """A module whose runs cannot be computed together, so that they are computed one after another."""


class ModuleNetwork(Network):
    """A network computed by an `nn.Module`, which the method `build` of a subclass makes from its fields.

    The module takes points [samples, tokens, dim] and returns [samples] or [samples, 1]; or [samples, k]
    if the subclass overrides `output_count`. Runs may differ only in its parameters and buffers.

    Parameters: those of the module, by its own names. Buffers and parameters without `requires_grad`
    are frozen, and their names begin with `frozen/`.

    If the module has a method `represent` from points to features [samples, features], features are measured too.

    >>> import benign as bo
    >>> class Affine(bo.ModuleNetwork):
    ...     def build(self, data):
    ...         return nn.Sequential(nn.Flatten(), nn.Linear(data.tokens * data.dim, 1))
    >>> Affine.kind
    'affine'
    >>> del bo.ModuleNetwork.choices()["affine"]  # this example is a test, which leaves no trace
    """

    one_by_one: ClassVar[bool] = False
    """whether runs are always computed one after another. vmap is then not tried, the modules of runs are not compared,
    and their layers must share no weights"""

    mixed: ClassVar[bool] = True

    @abstractmethod
    def build(self, data: PointSize) -> nn.Module:
        """Return the module of one run, with weights from torch's generator; `PerRun` fields are the run's numbers."""

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
        return ModulePass(self._template(x), params, x, of_points=True)

    def represent(self, params: Params, x: Tensor) -> Float[Tensor, "runs samples features"]:
        template = self._template(x)
        return template.features(params, x) if template.represents else super().represent(params, x)

    def training_pass(self, params: Params, x: Tensor, clean: Tensor) -> "ModulePass":
        """Run the pass in training mode if that differs from eval mode, in which attacks and tests are.

        Batch statistics are then those of the points, and the running statistics in `params` are updated.
        """
        template = self._template(x)
        return ModulePass(template, params, x, training=template.modes_differ)

    def check_against(self, data: DataModel) -> None:
        _report(_case(self, PointSize(data.tokens, data.dim)))

    def cost(self, data: DataModel) -> Cost:
        return _report(_case(self, PointSize(data.tokens, data.dim))).cost

    def _template(self, x: Float[Tensor, "runs samples tokens dim"]) -> "_Template":
        return _template(_case(self, PointSize(*x.shape[2:])))


class ModulePass(Pass):
    """A pass of every run's module, differentiated by autograd; an unused parameter has gradient 0.

    With `of_points` only the gradient in the points is traced, as attacks need it. That in the parameters takes a
    second pass then.
    """

    def __init__(
        self,
        template: "_Template",
        params: Params,
        x: Tensor,
        training: bool = False,
        of_points: bool = False,
    ):
        self._params = {
            name: part.detach().requires_grad_(not of_points)
            for name, part in params.items()
            if not name.startswith(FROZEN)
        }
        self._x = x.detach().requires_grad_()
        with torch.enable_grad():
            traced = template.outputs({**params, **self._params}, self._x, training)
            self._traced = traced.to(x.dtype)  # outputs in mixed precision have a shorter dtype
        self.outputs = self._traced.detach()
        self._versions = [part._version for part in params.values()]
        self._again = (lambda: ModulePass(template, params, x)) if of_points else None

    def params_gradient(self, c: Float[Tensor, "runs samples *classes"]) -> Params:
        if self._again is not None:
            again = self._again()
            if again._versions != self._versions:
                raise RuntimeError("the weights have changed since this pass")
            return again.params_gradient(c)
        parts = self._gradient(list(self._params.values()), c)
        return {name: part.contiguous() for name, part in zip(self._params, parts, strict=True)}

    def inputs_gradient(self, c: Float[Tensor, "runs samples *classes"]) -> Tensor:
        return self._gradient([self._x], c)[0]

    def _gradient(self, leaves: list[Tensor], c: Tensor) -> tuple[Tensor, ...]:
        if not self._traced.requires_grad:  # the outputs do not depend on the points
            return tuple(torch.zeros_like(leaf) for leaf in leaves)
        return torch.autograd.grad(
            self._traced, leaves, c, retain_graph=True, materialize_grads=True
        )


class _Template:
    """One module whose code is run with every run's parameters and buffers."""

    def __init__(self, case: "_Case"):
        network = _of_run(case.network, 0)
        self.modes_differ = _report(case).modes_differ
        self._kind, self._signed = network.kind, network.output_count() is None
        self._one_by_one, self._probe = network.one_by_one, probe(case.size)
        # One by one, only the code of the module is used: on the meta device it needs no memory.
        device = "meta" if self._one_by_one else "cpu"
        self._module = drawn(network.build, case.size, device=device)
        self.represents = hasattr(self._module, "represent")
        self._represent = _Represent(self._module)
        self._batched = not self._one_by_one and self._can_batch()

    def _can_batch(self) -> bool:
        reason = self._why_not_batched()
        if reason:
            self._warn(f"its runs are computed one by one, because vmap failed: {reason}")
        if self.modes_differ:
            self._warn(
                "its runs are trained one by one, because training mode differs from eval mode (batch statistics)"
            )
        return reason is None

    def _warn(self, text: str) -> None:
        warnings.warn(f"`network` ({self._kind}): {text}", SlowModule, stacklevel=2)

    def _why_not_batched(self) -> str | None:
        """Return why vmap cannot compute two runs at a time, or None if it can."""
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
        """Return the outputs of one run."""
        outputs = self._called(self._module, state, x)
        return outputs.reshape(len(x)) if self._signed else outputs

    def _features(self, state: Params, x: Float[Tensor, "samples tokens dim"]) -> Tensor:
        """Return the features of one run."""
        inside = {f"module.{name}": part for name, part in state.items()}
        return self._called(self._represent, inside, x)

    def _called(self, module: nn.Module, state: Params, x: Tensor) -> Tensor:
        # With `one_by_one` no weights are shared; the search for shared ones took as long as all else in this call.
        return functional_call(module, state, (x,), tie_weights=not self._one_by_one)

    def outputs(self, params: Params, x: Tensor, training: bool = False) -> Tensor:
        """Return the outputs of every run. In training mode the module may change tensors of `params`."""
        return self._all_runs(self._one, params, x, training)

    def features(self, params: Params, x: Tensor) -> Tensor:
        """Return the features of the module's `represent`, for every run."""
        return self._all_runs(self._features, params, x, False)

    def _all_runs(self, one: Callable, params: Params, x: Tensor, training: bool) -> Tensor:
        if self._module.training != training:
            self._module.train(training)
        state = {name.removeprefix(FROZEN): part for name, part in params.items()}
        with nullcontext() if self._one_by_one else differentiable():
            if self._batched and not training:
                return vmap(one)(state, x)
            runs = zip(_split_runs(state, len(x)), x, strict=True)
            return torch.stack([_one_run(one, own, points) for own, points in runs])

    def state_of(self, module: nn.Module) -> Params:
        """Return parameters and buffers of a run's module. Raise ValueError if it differs in anything else."""
        ours, theirs = _state(self._module), _state(module)
        if _shapes(ours) != _shapes(theirs):
            raise ValueError(
                f"`network` ({self._kind}): runs of one batch have modules of different shapes, {_shapes(ours)} and "
                f"{_shapes(theirs)}: mark a field that decides shapes `Shape`, not `PerRun`"
            )
        if not self._one_by_one and not _equal(
            *(_response(code, theirs, self._probe) for code in (self._module, module))
        ):
            raise ValueError(
                f"`network` ({self._kind}): the modules of two runs differ in more than parameters and buffers: "
                "keep what differs by run in a buffer (`register_buffer`), or mark its field `Shape`"
            )
        return theirs


class _Represent(nn.Module):
    """A module whose pass is `represent` of another: `functional_call` only calls `forward`."""

    def __init__(self, module: nn.Module):
        super().__init__()
        self.module: Any = module

    def forward(self, x: Tensor) -> Tensor:
        return self.module.represent(x)


def _split_runs(state: Params, runs: int) -> list[Params]:
    """Return the state of every run, as views.

    Gradients of several runs are copied once (`unbind`): an index for each run would write all of them for each run.
    """
    if runs == 1:
        return [{name: part.squeeze(0) for name, part in state.items()}]
    by_name = {
        name: part.unbind(0) if part.requires_grad else [part[run] for run in range(runs)]
        for name, part in state.items()
    }
    return [{name: parts[run] for name, parts in by_name.items()} for run in range(runs)]


def _one_run(one: Callable, before: Params, x: Tensor) -> Tensor:
    """Return the outputs of one run, and copy tensors that its module replaced into the state of the batch."""
    after = dict(before)
    outputs = one(after, x)
    for name, part in after.items():
        if part is not before[name]:
            before[name].copy_(part.detach())
    return outputs


@dataclass(frozen=True)
class _Case:
    """The key of a module's code: equal for networks that differ only in numbers of their runs."""

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
def _report(case: _Case) -> ModuleReport:
    network = _of_run(case.network, 0)
    try:
        return check_module(network.build, case.size, network.output_count())
    except ValueError as error:
        raise ValueError(f"`network` ({network.kind}): {error}") from error


def _of_run(network: ModuleNetwork, run: int) -> ModuleNetwork:
    """Return the network of one run of a batch: validated again, because whole numbers were stacked as floats."""
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
    """Return the outputs of a module with this state, and its buffers afterwards, in both modes."""
    response: list[Tensor] = []
    for training in (False, True):
        copy = {name.removeprefix(FROZEN): part.clone() for name, part in state.items()}
        response += [functional_call(code.train(training), copy, (x,)), *copy.values()]
    return response


def _equal(left: list[Tensor], right: list[Tensor]) -> bool:
    return all(
        torch.allclose(a, b, rtol=0, atol=0, equal_nan=True)
        for a, b in zip(left, right, strict=True)
    )
