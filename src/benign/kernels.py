# pyright: reportOptionalMemberAccess=false, reportInvalidTypeForm=false, reportMissingImports=false
"""Kernels in Triton that fuse what attacks do to tensors of many points: few passes over the memory of a GPU.

    replace_points    copies chosen points
    gram_step         a step of projected ascent in the coordinates of the weights, with momentum
    attention         output of the attention network on products, and the gradient of a loss in them

Each does what a plain expression does that stands elsewhere and is its reference: `replace_points` of
`benign.attacks.attack`, `GramSpace.momentum_step`, and `ProductsPass` of `benign.networks.attention`. Triton comes with
the CUDA builds of torch. Where it is missing, on a CPU, and inside `plain_kernels`, the plain expressions run. Rounding
differs.
"""

from typing import Any

import torch
from torch import Tensor

from benign.networks.products import Switch

try:
    import triton
    import triton.language as tl
except ImportError:
    triton = tl = None

KERNELS = Switch()
plain_kernels = KERNELS.off
"""in this context nothing runs in fused kernels"""

LARGEST = 1024
"""largest number of columns of a row that a kernel holds in registers"""


def why_not(tensor: Tensor) -> str | None:
    """Return why fused kernels do not apply to a tensor, or None if they do."""
    if not tensor.is_cuda:
        return f"the tensor is on {tensor.device.type}, not on a CUDA device"
    if triton is None:
        return "triton is not installed; it comes with the CUDA builds of torch"
    if tensor.dtype != torch.float32:
        return f"kernels compute in float32, not in {tensor.dtype}"
    return None if KERNELS.on else "kernels are switched off (`plain_kernels`)"


def fits_attention(tokens: int, hidden: int) -> bool:
    """Return whether a point of attention fits into the registers of a program."""
    return max(16, _power_of_two(tokens)) * max(16, _power_of_two(hidden)) <= 16384


def _jit(function: Any) -> Any:
    return function if triton is None else triton.jit(function)


def _power_of_two(number: int) -> int:
    return 1 << (number - 1).bit_length()


def replace_points(points: Tensor, others: Tensor, chosen: Tensor) -> None:
    """Copy the chosen points [runs, samples] of `others` into `points` [*pair, runs, samples, tokens, width]."""
    size = points.shape[-2] * points.shape[-1]
    many = points.numel() // size
    _replace[(many,)](points, others, chosen, chosen.numel(), size, 1024, num_warps=4)


@_jit
def _replace(points, others, chosen, count, size, BLOCK: "tl.constexpr"):
    point = tl.program_id(0).to(tl.int64)
    if tl.load(chosen + point % count):
        for begin in range(0, size, BLOCK):
            place = begin + tl.arange(0, BLOCK)
            mask = place < size
            value = tl.load(others + point * size + place, mask=mask)
            tl.store(points + point * size + place, value, mask=mask)


def gram_step(
    here: Tensor,
    before: Tensor | None,
    gradient: Tensor,
    length: Tensor,
    radius: Tensor,
    column_norms: Tensor,
    per_token: bool,
    momentum: float,
    least: float,
    out: Tensor,
) -> Tensor:
    """Write P(here + m (new - here) + (1 - m) (here - before)) into `out`, which may be one of the tensors.

    new = P(here + length * gradient / |gradient|) is the result without a perturbation before. Perturbations are pairs
    [2, runs, samples, tokens, width]; `length` and `radius` broadcast to [runs, samples, 1, 1].
    """
    _, runs, samples, tokens, width = here.shape
    rows, columns = (1 if per_token else tokens), _power_of_two(width)
    block = 1 if per_token else _power_of_two(tokens)
    together = max(1, 4096 // columns) if per_token else 1
    units = runs * samples * tokens // rows
    length, radius = (part.expand(runs, samples, 1, 1) for part in (length, radius))
    size = together * block * columns
    _gram_step[(-(-units // together),)](
        here, here if before is None else before, gradient, out,
        length, length.stride(0), length.stride(1), radius, radius.stride(0), radius.stride(1),
        column_norms, column_norms.shape[-1], here.numel() // 2,
        units, units // (runs * samples), samples, rows, width, momentum, least,
        torch.finfo(here.dtype).tiny,
        before is not None, together, block, columns,
        num_warps=4 if size <= 4096 else 8 if size <= 8192 else 16,
    )  # fmt: skip
    return out


@_jit
def _gram_step(
    here, before, gradient, out,
    length, length_run, length_point, radius, radius_run, radius_point,
    norms, columns, half,
    units, units_of_point, samples, rows, width, momentum, least,
    tiny,
    CARRIED: "tl.constexpr", UNITS: "tl.constexpr", ROWS: "tl.constexpr", WIDTH: "tl.constexpr",
):  # fmt: skip
    """One program holds some units (tokens or points) as a block [units, rows, columns]."""
    unit = tl.program_id(0).to(tl.int64) * UNITS + tl.arange(0, UNITS)
    there = unit < units
    point = unit // units_of_point
    run = point // samples
    sample = point % samples
    row = tl.arange(0, ROWS)
    column = tl.arange(0, WIDTH)
    mask = there[:, None, None] & (row < rows)[None, :, None] & (column < width)[None, None, :]
    place = (unit[:, None, None] * rows + row[None, :, None]) * width + column[None, None, :]
    step = tl.load(length + run * length_run + sample * length_point, mask=there, other=0.0)
    most = tl.load(radius + run * radius_run + sample * radius_point, mask=there, other=0.0)
    norm = tl.load(
        norms + run[:, None] * columns + column[None, :],
        mask=there[:, None] & (column < columns)[None, :],
        other=0.0,
    )
    x0 = tl.load(here + place, mask=mask, other=0.0)
    x1 = tl.load(here + half + place, mask=mask, other=0.0)
    g0 = tl.load(gradient + place, mask=mask, other=0.0)
    g1 = tl.load(gradient + half + place, mask=mask, other=0.0)
    # Scaled first, because squares of saturated gradients underflow.
    largest = tl.max(tl.max(tl.abs(g0 * norm[:, None, :]), 2), 1)
    inverse = tl.where(largest > tiny, 1.0 / tl.maximum(largest, tiny), 0.0)[:, None, None]
    g0 = g0 * inverse
    g1 = g1 * inverse
    size = tl.sqrt(tl.maximum(tl.sum(tl.sum(g0 * g1, 2), 1), 0.0))
    size = (step / tl.maximum(size, least))[:, None, None]
    z0 = x0 + size * g0
    z1 = x1 + size * g1
    size = tl.sqrt(tl.maximum(tl.sum(tl.sum(z0 * z1, 2), 1), 0.0))
    shorter = tl.minimum(most / tl.maximum(size, tiny), 1.0)[:, None, None]
    z0 = z0 * shorter
    z1 = z1 * shorter
    if CARRIED:
        b0 = tl.load(before + place, mask=mask, other=0.0)
        b1 = tl.load(before + half + place, mask=mask, other=0.0)
        z0 = momentum * z0 + (2.0 - 2.0 * momentum) * x0 - (1.0 - momentum) * b0
        z1 = momentum * z1 + (2.0 - 2.0 * momentum) * x1 - (1.0 - momentum) * b1
        size = tl.sqrt(tl.maximum(tl.sum(tl.sum(z0 * z1, 2), 1), 0.0))
        shorter = tl.minimum(most / tl.maximum(size, tiny), 1.0)[:, None, None]
        z0 = z0 * shorter
        z1 = z1 * shorter
    tl.store(out + place, z0, mask=mask)
    tl.store(out + half + place, z1, mask=mask)


def attention(
    clean: Tensor,
    moved: Tensor,
    y: Tensor,
    cross_entropy: bool,
    heads: int,
    hidden: int,
    gradient: Tensor,
    start: Tensor | None = None,
    along: Tensor | None = None,
) -> Tensor:
    """Return the outputs f [runs, samples] on products clean + moved, and write the gradient of an attack's loss.

    clean, moved, gradient: [runs, samples, tokens, width], whose columns are queries and keys of every head, values of
    every head, then others, which are neither read nor written.
    cross_entropy: the loss is log(1 + exp(-y f)) instead of -y f.
    start, along: if given, the sums of gradient times start over columns are written into `along` [..., tokens].
    """
    runs, samples, tokens, _ = clean.shape
    outputs = torch.empty(runs, samples, dtype=clean.dtype, device=clean.device)
    none = start is None or along is None
    _attention[(runs * samples,)](
        clean, moved, y.contiguous(), outputs, gradient, clean if none else start, clean if none else along,
        clean.stride(2), moved.stride(2), gradient.stride(2), 0 if none else along.stride(2),
        cross_entropy, not none, heads, hidden, tokens,
        max(16, _power_of_two(hidden)), max(16, _power_of_two(tokens)),
        num_warps=4,
    )  # fmt: skip
    return outputs


@_jit
def _attention(
    clean, moved, y, outputs, gradient, start, along,
    clean_row, moved_row, gradient_row, along_row,
    CROSS_ENTROPY: "tl.constexpr", STARTED: "tl.constexpr", HEADS: "tl.constexpr",
    HIDDEN: "tl.constexpr", TOKENS: "tl.constexpr", H: "tl.constexpr", T: "tl.constexpr",
):  # fmt: skip
    """One program computes one point. H and T are the hidden width and the number of tokens, padded."""
    point = tl.program_id(0).to(tl.int64)
    clean += point * TOKENS * clean_row
    moved += point * TOKENS * moved_row
    gradient += point * TOKENS * gradient_row
    start += point * TOKENS * clean_row
    along += point * TOKENS * along_row
    token = tl.arange(0, T)
    label = tl.load(y + point)
    output = 0.0
    if HEADS > 1:  # the loss needs the sum of all heads before the gradient of one
        for head in range(HEADS):
            _, _, _, _, rows = _head(
                clean, moved, clean_row, moved_row, head, HEADS, HIDDEN, TOKENS, H, T
            )
            output += tl.sum(rows) / TOKENS
    total = tl.zeros([T], tl.float32)
    for head in range(HEADS):
        queries, keys, values, attention, rows = _head(
            clean, moved, clean_row, moved_row, head, HEADS, HIDDEN, TOKENS, H, T
        )
        if HEADS == 1:
            output = tl.sum(rows) / TOKENS
        slope = -label
        if CROSS_ENTROPY:
            slope = -label / (1.0 + tl.exp(label * output))
        slope = slope / TOKENS
        weights = (values[None, :] - rows[:, None]) * attention * slope
        by_query = tl.dot(weights, keys, input_precision="ieee")
        by_key = tl.dot(tl.trans(weights), queries, input_precision="ieee")
        by_value = tl.sum(attention, 0) * slope
        hidden = tl.arange(0, H)
        mask = (token < TOKENS)[:, None] & (hidden < HIDDEN)[None, :]
        first = head * HIDDEN + hidden[None, :]
        second = HEADS * HIDDEN + first
        third = 2 * HEADS * HIDDEN + head
        tl.store(gradient + token[:, None] * gradient_row + first, by_query, mask=mask)
        tl.store(gradient + token[:, None] * gradient_row + second, by_key, mask=mask)
        tl.store(gradient + token * gradient_row + third, by_value, mask=token < TOKENS)
        if STARTED:
            s = tl.load(start + token[:, None] * clean_row + first, mask=mask, other=0.0)
            total += tl.sum(by_query * s, 1)
            s = tl.load(start + token[:, None] * clean_row + second, mask=mask, other=0.0)
            total += tl.sum(by_key * s, 1)
            s = tl.load(start + token * clean_row + third, mask=token < TOKENS, other=0.0)
            total += by_value * s
    if STARTED:
        tl.store(along + token * along_row, total, mask=token < TOKENS)
    tl.store(outputs + point, output)


@_jit
def _head(
    clean, moved, clean_row, moved_row, head,
    HEADS: "tl.constexpr", HIDDEN: "tl.constexpr", TOKENS: "tl.constexpr",
    H: "tl.constexpr", T: "tl.constexpr",
):  # fmt: skip
    """Return queries, keys, values, attention and its averages of the values for one head, zero beyond the tokens."""
    token = tl.arange(0, T)
    hidden = tl.arange(0, H)
    mask = (token < TOKENS)[:, None] & (hidden < HIDDEN)[None, :]
    first = head * HIDDEN + hidden[None, :]
    second = HEADS * HIDDEN + first
    third = 2 * HEADS * HIDDEN + head
    queries = tl.load(clean + token[:, None] * clean_row + first, mask=mask, other=0.0)
    queries += tl.load(moved + token[:, None] * moved_row + first, mask=mask, other=0.0)
    keys = tl.load(clean + token[:, None] * clean_row + second, mask=mask, other=0.0)
    keys += tl.load(moved + token[:, None] * moved_row + second, mask=mask, other=0.0)
    values = tl.load(clean + token * clean_row + third, mask=token < TOKENS, other=0.0)
    values += tl.load(moved + token * moved_row + third, mask=token < TOKENS, other=0.0)
    scores = tl.dot(queries, tl.trans(keys), input_precision="ieee")
    scores = tl.where((token < TOKENS)[None, :], scores, float("-inf"))
    scores = tl.exp(scores - tl.max(scores, 1)[:, None])
    attention = scores / tl.sum(scores, 1)[:, None]
    attention = tl.where((token < TOKENS)[:, None], attention, 0.0)
    return queries, keys, values, attention, tl.sum(attention * values[None, :], 1)
