"""Elementwise passes over the products <w_jr, x_p> of `PatchCNN` as one Triton kernel each.

These are twice the numbers of the points of li/fig3, and each kernel reads them once. On an H200 a step of 64 runs of
li/fig3 takes 1.3 ms of its time with them and 1.5 ms with the expressions of torch, which stand beside their calls in
`benign.networks.patch_cnn`.
"""
# pyright: reportMissingImports=false, reportOptionalMemberAccess=false, reportOptionalSubscript=false

import inspect
from typing import Any, TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor

try:
    import triton
    import triton.language as tl
except ImportError:  # a CPU build of torch
    triton = tl = None

NUMBERS = 4096
"""that a program holds in registers"""
constexpr: TypeAlias = Any
"""the word of Triton for what is known when a kernel is compiled"""

ByClass = Float[Tensor, "runs samples classes"]
ByFilter = Float[Tensor, "runs samples tokens classes width"]


def why_not(scaled: ByFilter) -> str | None:
    """Return why the kernels do not take these products, or None."""
    if triton is None or not scaled.is_cuda:
        return "there is no Triton"
    if scaled.requires_grad:
        return "autograd does not see into a kernel"
    if scaled.shape[-1] > NUMBERS:
        return f"a class has more than {NUMBERS} filters"
    return None


def class_sums(scaled: ByFilter, q: int) -> ByClass:
    """Return the sums of psi(z) / rho over filters and patches, given z / rho."""
    tokens, classes, width = scaled.shape[2:]
    out, padded = scaled.new_empty(*scaled.shape[:2], classes), triton.next_power_of_2(width)
    together = min(triton.next_power_of_2(tokens), max(1, NUMBERS // padded))
    _sums[(out.numel(),)](
        scaled.contiguous(), out, tokens, classes, width, Q=q, TOKENS=together, WIDTH=padded
    )
    return out


def weighted_slopes(scaled: ByFilter, c: ByClass, q: int) -> ByFilter:
    """Return c_j psi'(z_jrp), given z / rho."""
    scaled, (tokens, classes, width) = scaled.contiguous(), scaled.shape[2:]
    out, numbers = torch.empty_like(scaled), scaled.numel()
    _slopes[(triton.cdiv(numbers, NUMBERS),)](
        scaled, c.contiguous(), out, numbers, tokens, classes, width, Q=q, BLOCK=NUMBERS
    )
    return out


def _power(inside, Q: "constexpr"):
    """Return inside^(Q - 1)."""
    power = inside
    for _ in tl.static_range(Q - 2):
        power *= inside
    return power


def _sums_kernel(
    scaled, out, tokens, classes, width, Q: "constexpr", TOKENS: "constexpr", WIDTH: "constexpr"
):
    """Sum one class of one point."""
    point, j = (tl.program_id(0) // classes).to(tl.int64), tl.program_id(0) % classes
    r = tl.arange(0, WIDTH)
    total = tl.zeros((TOKENS, WIDTH), scaled.dtype.element_ty)
    for begin in range(0, tokens, TOKENS):
        p = begin + tl.arange(0, TOKENS)
        at = ((point * tokens + p) * classes + j)[:, None] * width + r[None, :]
        z = tl.load(scaled + at, (p < tokens)[:, None] & (r < width)[None, :], 0.0)
        inside = tl.clamp(z, 0.0, 1.0, propagate_nan=tl.PropagateNan.ALL)
        total += (z - (Q - 1) * inside / Q) * _power(inside, Q)
    tl.store(out + point * classes + j, tl.sum(tl.sum(total, 1), 0))


def _slopes_kernel(
    scaled, c, out, numbers, tokens, classes, width, Q: "constexpr", BLOCK: "constexpr"
):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    z = tl.load(scaled + at, at < numbers, 0.0)
    inside = tl.clamp(z, 0.0, 1.0, propagate_nan=tl.PropagateNan.ALL)
    rows = at // width  # (run, sample, token, class)
    of_class = rows // (tokens * classes) * classes + rows % classes
    weight = tl.load(c + of_class, at < numbers, 0.0)
    tl.store(out + at, weight * _power(inside, Q), at < numbers)


if triton is not None:
    # Unwrapped, because tests wrap every function to check its types.
    _power, _sums, _slopes = (
        triton.jit(inspect.unwrap(each)) for each in (_power, _sums_kernel, _slopes_kernel)
    )
