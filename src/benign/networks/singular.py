"""The largest singular value of many matrices at once, by products alone."""

import torch
from jaxtyping import Float
from torch import Tensor

SQUARES = 12
"""The Gram matrix is squared so often. On an H200 eigenvalues of 60 matrices of 1000 rows took 0.55 s, as long as a
hundred attacked steps of training; 12 squares take 0.03 s."""

Matrices = Float[Tensor, "*batch rows columns"]
Numbers = Float[Tensor, "*batch"]


def spectral_bound(matrix: Matrices) -> Numbers:
    """No less than the largest singular value, and for rank r at most r^(1/8192) times it.

    It is |G^k|_F^(1/2k) of the Gram matrix G with k = 2^12. NaN where a number is not finite.
    """
    return _powers(matrix)[1]


def largest_singular_value(matrix: Matrices) -> Numbers:
    """|A v| for the unit vector v along the longest column of G^k: below the norm by at most 5e-5 of it.

    That much only where the second singular value is a ten-thousandth below the first; else exact up to rounding.
    """
    power, bound = _powers(matrix)
    rows, columns = matrix.shape[-2:]
    longest = torch.linalg.vector_norm(power, dim=-2).argmax(-1)[..., None, None]
    v = power.gather(-1, longest.expand(*power.shape[:-1], 1))
    v = v / torch.linalg.vector_norm(v, dim=-2, keepdim=True)
    seen = (matrix.transpose(-1, -2) if rows <= columns else matrix) @ v
    found = torch.linalg.vector_norm(seen, dim=(-2, -1))
    return torch.where(bound > 0, found, bound)


def _powers(matrix: Matrices) -> tuple[Float[Tensor, "*batch n n"], Numbers]:
    """G^k up to a factor, and the bound."""
    tiny = torch.finfo(matrix.dtype).tiny
    largest = matrix.abs().amax((-2, -1)).clamp_min(tiny)
    shown = matrix / largest[..., None, None]  # squares of tiny numbers would be 0
    wide = shown if shown.shape[-2] <= shown.shape[-1] else shown.transpose(-1, -2)
    power = wide @ wide.transpose(-1, -2)
    size = torch.linalg.matrix_norm(power)
    told = size.log()
    for doubling in range(1, SQUARES + 1):
        power = power / size.clamp_min(tiny)[..., None, None]
        power = power @ power
        size = torch.linalg.matrix_norm(power)
        told = told + size.log() / 2**doubling
    return power, (told / 2).exp() * largest
