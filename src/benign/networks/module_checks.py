"""Builds an `nn.Module` from a seed of its own, and tries it out on a few points before any work starts."""

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
"""points of the pass that tries a module out"""


@dataclass(frozen=True)
class PointSize:
    """What a module may know of the data it is built for."""

    tokens: int
    dim: int

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"`build` knows `tokens` and `dim` of the data only, not `{name}`: "
            "make it a field of the network"
        )


Build: TypeAlias = Callable[[PointSize], nn.Module]


def drawn(build: Build, size: PointSize, seed: int = 0, device: str = "cpu") -> nn.Module:
    """A module that depends on the seed, not on the session's generator, default dtype or default device."""
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
        raise TypeError(f"`build` left the sizes of {', '.join(lazy)} open: use no lazy modules")
    return module.eval()


def tensors(module: nn.Module) -> list[tuple[str, Tensor]]:
    """Parameters and buffers by name, a shared one once: `functional_call` gives it to all who share it."""
    return [*module.named_parameters(), *module.named_buffers()]


def probe(size: PointSize, device: str = "cpu") -> Float[Tensor, "samples tokens dim"]:
    """A few points, without draws."""
    shape = (PROBED, size.tokens, size.dim)
    count = PROBED * size.tokens * size.dim
    return torch.linspace(-1, 1, count, dtype=torch.float32, device=device).reshape(shape)


@contextmanager
def differentiable() -> Iterator[None]:
    """Attention as plain operations. Under vmap torch cannot see that a gradient is wanted and takes fused kernels
    that have none, or no batching rule."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


@dataclass(frozen=True)
class Tryout:
    """What a pass on a few points told of a module."""

    cost: Cost
    acts_apart: bool
    """training mode does something else than eval mode (batch statistics)"""


def try_out(build: Build, size: PointSize, output_count: int | None) -> Tryout:
    """Build a module and run it in both modes; ValueError says what is wrong with it."""
    try:
        module, calm, training = _traced(build, size)
    except Exception as error:
        raise ValueError(
            f"`build` and a pass on {PROBED} points of {size.tokens} tokens in {size.dim} dimensions "
            f"failed: {type(error).__name__}: {first_line(error)}"
        ) from error
    _check_outputs(calm.outputs, output_count)
    _check_draws(calm.draws | training.draws)
    if not any(part.requires_grad for _, part in tensors(module)):
        raise ValueError("the module has no parameter with `requires_grad`: nothing can be trained")
    weights = sum(part.numel() for _, part in tensors(module))
    cost = Cost(3 * weights, calm.numbers // PROBED, calm.multiplies // PROBED)
    return Tryout(cost, calm.calls != training.calls)


def first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


def _traced(build: Build, size: PointSize) -> tuple[nn.Module, "_Trace", "_Trace"]:
    with suppress(Exception):  # on the meta device a module of any size is free
        return _traced_on("meta", build, size)
    return _traced_on("cpu", build, size)  # for what looks at its numbers, as `if x.sum() > 0` does


def _traced_on(device: str, build: Build, size: PointSize) -> tuple[nn.Module, "_Trace", "_Trace"]:
    module, x = drawn(build, size, device=device), probe(size, device)
    with torch.random.fork_rng(devices=[]):
        return module, _Trace(module.eval(), x), _Trace(module.train(), x)


def _check_outputs(outputs: Any, count: int | None) -> None:
    expected = [(PROBED,), (PROBED, 1)] if count is None else [(PROBED, count)]
    given = type(outputs).__name__
    if isinstance(outputs, Tensor):
        if outputs.is_floating_point() and outputs.shape in expected:
            return
        given = f"{list(outputs.shape)} of {outputs.dtype}"
    wanted = " or ".join(str(list(shape)) for shape in expected)
    raise ValueError(
        f"the module must give real outputs of shape {wanted} for {PROBED} points, got {given}: "
        "`output_count` says how many outputs a point has"
    )


def _check_draws(draws: set[str]) -> None:
    if draws:
        raise ValueError(
            f"the pass draws random numbers ({', '.join(sorted(draws))}), which no run could repeat: "
            "leave out dropout (p=0) and noise"
        )


class _Trace(TorchDispatchMode):
    """What torch is asked to do in one pass of a module."""

    def __init__(self, module: nn.Module, x: Tensor):
        super().__init__()
        self.calls: list[tuple[Any, list]] = []
        self.numbers = x.numel()
        self.draws: set[str] = set()
        with torch.enable_grad(), differentiable(), FlopCounterMode(display=False) as count, self:
            self.outputs = module(x)
        self.multiplies = count.get_total_flops() // 2

    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = op(*args, **(kwargs or {}))
        self.calls.append((op, [each for each in args if isinstance(each, (int, float, str))]))
        if torch.Tag.nondeterministic_seeded in op.tags:
            self.draws.add(op.name().removeprefix("aten::"))
        if not op.is_view:
            parts = made if isinstance(made, (tuple, list)) else [made]
            self.numbers += sum(part.numel() for part in parts if isinstance(part, Tensor))
        return made
