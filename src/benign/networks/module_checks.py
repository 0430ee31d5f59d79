"""Building an `nn.Module` from its own seed, and checking it on a few points before any work starts."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.parameter import is_lazy
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from benign.networks.network import Cost

PROBED = 3
"""number of points of the check"""


@dataclass(frozen=True)
class PointSize:
    """The sizes of the data that a module may depend on."""

    tokens: int
    dim: int

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"`build` gets only `tokens` and `dim` of the data, not `{name}`: "
            "make it a field of the network"
        )


Build: TypeAlias = Callable[[PointSize], nn.Module]


def drawn(build: Build, size: PointSize, seed: int = 0, device: str = "cpu") -> nn.Module:
    """Return a module that depends on the seed, not on the session's generator, default dtype or default device."""
    dtype = torch.get_default_dtype()
    with torch.random.fork_rng(devices=[]), torch.device(device):
        torch.default_generator.manual_seed(seed)
        torch.set_default_dtype(torch.float32)
        try:
            module = build(size)
        finally:
            torch.set_default_dtype(dtype)
    if not isinstance(module, nn.Module):
        raise TypeError(f"`build` must give an nn.Module, got {type(module).__name__}")
    if lazy := [name for name, part in tensors(module) if is_lazy(part)]:
        raise TypeError(
            f"`build` left the sizes of {', '.join(lazy)} open: do not use lazy modules"
        )
    return module.eval()


def tensors(module: nn.Module) -> list[tuple[str, Tensor]]:
    """Return parameters and buffers by name, a shared one once: `functional_call` sets it wherever it is shared."""
    return [*module.named_parameters(), *module.named_buffers()]


def probe(size: PointSize, device: str = "cpu") -> Float[Tensor, "samples tokens dim"]:
    """Return a few points that are not random."""
    shape = (PROBED, size.tokens, size.dim)
    count = PROBED * size.tokens * size.dim
    return torch.linspace(-1, 1, count, dtype=torch.float32, device=device).reshape(shape)


@contextmanager
def differentiable() -> Iterator[None]:
    """Compute attention by plain operations in a block.

    Under vmap torch does not notice that a gradient is needed and uses fused kernels without gradient or batching rule.
    """
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


@dataclass(frozen=True)
class ModuleReport:
    """Properties of a module, from a pass on a few points."""

    cost: Cost
    modes_differ: bool
    """whether training mode computes something else than eval mode (batch statistics)"""


def check_module(build: Build, size: PointSize, output_count: int | None) -> ModuleReport:
    """Build a module and run it in both modes. Raise ValueError if it cannot be used, with the reason."""
    try:
        module, evaluation, training = _traced(build, size)
    except Exception as error:
        raise ValueError(
            f"`build` and a pass on {PROBED} points of {size.tokens} tokens in {size.dim} dimensions "
            f"failed: {type(error).__name__}: {first_line(error)}"
        ) from error
    _check_outputs(evaluation.outputs, output_count)
    _check_draws(evaluation.draws | training.draws)
    if not any(part.requires_grad for _, part in tensors(module)):
        raise ValueError("the module has no parameter with `requires_grad`: nothing can be trained")
    weights = sum(part.numel() for _, part in tensors(module))
    cost = Cost(3 * weights, evaluation.numbers // PROBED, evaluation.multiplies // PROBED)
    return ModuleReport(cost, evaluation.calls != training.calls)


def first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


def _traced(build: Build, size: PointSize) -> tuple[nn.Module, "_Trace", "_Trace"]:
    with suppress(Exception):  # on the meta device a module of any size is free
        return _traced_on("meta", build, size)
    return _traced_on("cpu", build, size)  # for modules that depend on values, as `if x.sum() > 0`


def _traced_on(device: str, build: Build, size: PointSize) -> tuple[nn.Module, "_Trace", "_Trace"]:
    module, x = drawn(build, size, device=device), probe(size, device)
    with torch.random.fork_rng(devices=[]):
        return module, _Trace(module.eval(), x), _Trace(module.train(), x)


def _check_outputs(outputs: Any, count: int | None) -> None:
    expected = [(PROBED,), (PROBED, 1)] if count is None else [(PROBED, count)]
    got = type(outputs).__name__
    if isinstance(outputs, Tensor):
        if outputs.is_floating_point() and outputs.shape in expected:
            return
        got = f"{list(outputs.shape)} of {outputs.dtype}"
    shapes = " or ".join(str(list(shape)) for shape in expected)
    raise ValueError(
        f"the module must give real outputs of shape {shapes} for {PROBED} points, got {got}: "
        "`output_count` says how many outputs a point has"
    )


def _check_draws(draws: set[str]) -> None:
    if draws:
        raise ValueError(
            f"the pass draws random numbers ({', '.join(sorted(draws))}), which no run could repeat: "
            "remove dropout (p=0) and noise"
        )


class _Trace(TorchDispatchMode):
    """The operations of one pass of a module."""

    def __init__(self, module: nn.Module, x: Tensor):
        super().__init__()
        self.calls: list[tuple[Any, list]] = []
        self.numbers = x.numel()
        self.draws: set[str] = set()
        with torch.enable_grad(), differentiable(), FlopCounterMode(display=False) as count, self:
            self.outputs = module(x)
        self.multiplies = count.get_total_flops() // 2

    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = op(*args, **(kwargs or {}))
        self.calls.append((op, [value for value in args if isinstance(value, (int, float, str))]))
        if torch.Tag.nondeterministic_seeded in op.tags:
            self.draws.add(op.name().removeprefix("aten::"))
        if not op.is_view:
            parts = result if isinstance(result, (tuple, list)) else [result]
            self.numbers += sum(part.numel() for part in parts if isinstance(part, Tensor))
        return result
