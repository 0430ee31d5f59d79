"""Ascent against a two-layer ReLU network on a GPU: one Triton kernel takes all steps of a point.

Along an ascent few neurons change sides: in wang/fig1 5 to 75 of 1000 over the 20 steps of a point, one or two a step.
The gradient's products with the columns, sum_s a_s phi'(h_s) G_s with the Gram matrix G, then change by the rows G_s of
these neurons alone, so one product with G starts the ascent, and the rest stays in the registers of a point's program.
Every other ascent, and every machine without Triton, takes the steps of `GramSpace`.
"""

# pyright: reportMissingImports=false, reportOptionalMemberAccess=false, reportOptionalSubscript=false
# pyright: reportPossiblyUnboundVariable=false
import inspect
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor

from benign.attacks.attack import BestSoFar
from benign.attacks.balls import Units
from benign.attacks.losses import AttackLoss
from benign.attacks.projections import tiny_of
from benign.networks.network import Network, Params
from benign.networks.two_layer import TwoLayer

try:
    import triton
    import triton.language as tl
except ImportError:  # a CPU build of torch
    triton = tl = None

Pairs = Float[Tensor, "2 runs samples 1 columns"]
OfColumns = Float[Tensor, "runs samples 1 columns"]

MOST_COLUMNS = 2048
"""of which a program holds eight numbers each in registers"""
WARPS = 4
constexpr: TypeAlias = Any
"""the word of Triton for what is known when a kernel is compiled"""


def why_not(network: Network, columns: int, device: torch.device, loss: AttackLoss) -> str | None:
    """Return why the kernel does not take ascents on products with so many columns of the weights, or None."""
    if not isinstance(network, TwoLayer) or network.activation == "smoothed_leaky_relu":
        return "the network is no two-layer network with (leaky) ReLU"
    if network.paired:
        return "neurons start in pairs, whose differences are the columns"
    if loss != "margin":
        return "the sign of the loss's slope depends on the output"
    if columns > MOST_COLUMNS:
        return f"there are more than {MOST_COLUMNS} neurons"
    if triton is None or device.type != "cuda":
        return "there is no Triton"
    return None


@dataclass(frozen=True)
class Ascent:
    """Ascents of minus the margin from given perturbations, in the coordinates of `GramSpace`."""

    network: TwoLayer
    params: Params
    clean: OfColumns
    """products of the unperturbed points with the columns"""
    gram: Float[Tensor, "runs columns columns"]
    lengths: Float[Tensor, "runs 1 1 columns"]
    """of the columns"""
    y: Float[Tensor, "runs samples"]
    radius: Units
    least: float
    """the least norm of a gradient that a step divides by"""

    def run(
        self, delta: Pairs, along: OfColumns, length: Units, steps: int, best: BestSoFar | None
    ) -> Pairs:
        """Take all steps in place and update `best` with every iterate; `along` are the products of f's gradient."""
        kept = delta if best is None else best.points
        _all_steps[(self.y.numel(),)](
            self.clean,
            *delta,
            along.contiguous(),
            self.gram,
            *(self.params[name] for name in ("outer", "inner_bias", "outer_bias")),
            self.lengths.contiguous(),
            self.y.contiguous(),
            _of_points(length, self.y),
            _of_points(self.radius, self.y),
            *kept,
            self.y if best is None else best.margins,
            self.y.shape[1],
            self.gram.shape[-1],
            steps,
            SLOPE=self.network.slope or 0.0,
            LEAST=self.least,
            TINY=tiny_of(delta),
            KEEPS_BEST=best is not None,
            BLOCK=triton.next_power_of_2(self.gram.shape[-1]),
            num_warps=WARPS,
        )
        return delta


def _of_points(number: Units, y: Tensor) -> Tensor:
    """Return a number of each point, or of all points of a run, as [runs, samples]."""
    return number.reshape(len(y), -1).to(y.dtype).expand_as(y).contiguous()


def _steps_of_a_point(
    clean, coefficients, products, along, gram, outer, bias, outer_bias, lengths, y, length, radius,
    best_coefficients, best_products, best_margins, samples, columns, steps,
    SLOPE: "constexpr", LEAST: "constexpr", TINY: "constexpr", KEEPS_BEST: "constexpr",
    BLOCK: "constexpr",
):  # fmt: skip
    """Take all steps of one point: the expressions of `GramSpace.inverse_norm`, `move` and `BestSoFar.update`."""
    row = tl.program_id(0).to(tl.int64)
    run, column = row // samples, tl.arange(0, BLOCK)
    inside, here, of_run = column < columns, row * columns + column, run * columns + column
    x = tl.load(clean + here, inside, 0.0)
    c, p = tl.load(coefficients + here, inside, 0.0), tl.load(products + here, inside, 0.0)
    q = tl.load(along + here, inside, 0.0)
    a, b = tl.load(outer + of_run, inside, 0.0), tl.load(bias + of_run, inside, 0.0)
    size = tl.load(lengths + of_run, inside, 0.0)
    label, step_length, most = tl.load(y + row), tl.load(length + row), tl.load(radius + row)
    high, low = tl.full((BLOCK,), 1.0, x.dtype), tl.full((BLOCK,), SLOPE, x.dtype)
    tiny, least = tl.full((), TINY, x.dtype), tl.full((), LEAST, x.dtype)
    jump = tl.full((), 1.0 - SLOPE, x.dtype)
    if KEEPS_BEST:
        best_c = tl.load(best_coefficients + here, inside, 0.0)
        best_p = tl.load(best_products + here, inside, 0.0)
        lowest, offset = tl.load(best_margins + row), tl.load(outer_bias + run)
    active = x + p + b > 0
    for _ in range(steps):
        if KEEPS_BEST:
            z = x + p + b
            margin = label * (tl.sum(tl.where(active, z, low * z) * a, 0) + offset)
            better = margin < lowest
            best_c, best_p = tl.where(better, c, best_c), tl.where(better, p, best_p)
            lowest = tl.where(better, margin, lowest)
        direction = tl.where(active, high, low) * a * -label
        largest = tl.max(tl.abs(direction) * size, 0)
        inverse = tl.where(largest > tiny, 1 / tl.maximum(largest, tiny), 0.0)
        direction, rise = direction * inverse, q * (-label * inverse)
        norm = tl.sqrt(tl.maximum(tl.sum(direction * rise, 0), 0.0))
        way = step_length / tl.maximum(norm, least)
        c, p = c + direction * way, p + rise * way
        norm = tl.sqrt(tl.maximum(tl.sum(c * p, 0), 0.0))
        shorter = tl.minimum(most / tl.maximum(norm, tiny), 1.0)
        c, p = c * shorter, p * shorter
        now = x + p + b > 0
        # The neurons that changed sides, twice their number, and 1 more if they are active now.
        changed = tl.where(now != active, 2 * column + now.to(tl.int32), 2 * BLOCK)
        first = tl.min(changed, 0)
        while first < 2 * BLOCK:
            neuron = run * columns + first // 2
            by = tl.load(outer + neuron) * jump * (2 * (first % 2) - 1)
            q += by * tl.load(gram + neuron * columns + column, inside, 0.0)
            changed = tl.where(changed > first, changed, 2 * BLOCK)
            first = tl.min(changed, 0)
        active = now
    if KEEPS_BEST:
        z = x + p + b
        margin = label * (tl.sum(tl.where(active, z, low * z) * a, 0) + offset)
        better = margin < lowest
        best_c, best_p = tl.where(better, c, best_c), tl.where(better, p, best_p)
        tl.store(best_coefficients + here, best_c, inside)
        tl.store(best_products + here, best_p, inside)
        tl.store(best_margins + row, tl.where(better, margin, lowest))
    tl.store(coefficients + here, c, inside)
    tl.store(products + here, p, inside)


# Unwrapped, because tests wrap every function to check its types.
_all_steps = None if triton is None else triton.jit(inspect.unwrap(_steps_of_a_point))
