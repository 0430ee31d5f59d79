"""Gaussian vectors of R^d for any d, by their coordinates in a basis of their span: Bartlett's factor.

Let G have `rows` independent rows, each standard normal in R^d. Gram and Schmidt turn the rows into
an orthonormal basis, and the rows' coordinates in it are L, lower triangular, with G G^T = L L^T:

    L_ij ~ N(0, 1) for j < i,    L_ii = sqrt(chi-square with d - i degrees of freedom),    i, j = 0, 1, ...

all independent (papers/jiang.md 7.1, papers/wang.md 6.2). The dimension enters only as the degrees
of freedom of the diagonal: it may be 1e20 or, where d > rows - 1, not whole, and costs nothing.

A chi-square is a quantile: its distribution function's inverse at a uniform number of its stream.
So changing d keeps every uniform and every normal, and moves L smoothly and monotonically.
"""

import math

import numpy as np
import torch
from jaxtyping import Bool, Float64, Int64, Num
from scipy.special import gammainccinv, gammaincinv, ndtr, ndtri
from torch import Tensor

from benign.streams import Stream, Streams

# Degrees of freedom from which on the expansion is used. scipy 1.17 inverts to 1e-13 up to 4e5, but its
# lower tail is off by 5e-12 at 1e6 and by 5e-6, a tenth of a standard deviation, at 1e9.
_MANY = 2e5
# From here on a polynomial through exact quantiles is used, to 3e-14 (1e-11 at 60).
_SMOOTH = 100
_LARGEST = 9.2
"""|z| of the smallest tail, 2**-65, is 9.08"""
# With fewer degrees of freedom even the quantile of 1 - 2**-65 is too small for a float64.
_FEWEST = 1e-25

# One number, one a run, or one a draw: the axes are the first ones of the draw, each may have length 1.
Freedom = float | Num[Tensor, "..."]


def bartlett(
    streams: Streams, rows: int, freedom: Freedom, *many: int
) -> Float64[Tensor, "runs *many rows columns"]:
    """Return the coordinates of `rows` standard normal vectors of R^freedom, in the order of Gram and Schmidt.

    If freedom < rows, the rows span the space and there are `freedom` columns; if runs differ
    in this, a run with fewer columns than another has zeros in the rest. The first rows of a longer
    factor are a shorter one: `bartlett(s, 5, d)` is `bartlett(s, 9, d)[:, :5, :5]`.

    streams: streams of this draw alone (`streams.within(part)`).
    freedom: a number, or one a run.
    many: numbers of independent factors of each run.
    """
    freedom = _checked(freedom).reshape(-1, 1)
    _require_a_law(freedom, rows)
    column = torch.arange(rows, device="cpu")
    left = (freedom - column).clamp(min=0).reshape(len(freedom), *[1] * len(many), rows)
    chi_squares = chi_square(streams("chi-squares"), left, *many, rows)
    normals = streams("normals").normal(*many, math.comb(rows, 2))
    factor = normals.new_zeros(*normals.shape[:-1], rows, rows)
    row, before = torch.tril_indices(rows, rows, -1, device=factor.device)  # row after row
    factor.flatten(-2).index_copy_(-1, row * rows + before, normals)
    factor.diagonal(dim1=-2, dim2=-1).copy_(chi_squares.sqrt())
    exists = left > 0
    if not exists.all():
        factor *= exists[..., None, :].to(factor.device)
    return factor[..., : int((column < freedom).any(0).sum())]


def chi_square(stream: Stream, freedom: Freedom, *shape: int) -> Float64[Tensor, "runs *shape"]:
    """Draw chi-squares with any degrees of freedom from 0 on, whole or not, to 1e-12 relative.

    Each takes two words of the stream, 64 bits: 32 bits would have steps of 1e-9 and end at 6.3 standard
    deviations; 64 bits reach 9.1 on both sides. The words, and the quantile, which is computed on the
    CPU, are the same for every device. As with all draws, a shorter one is the start of a longer.
    """
    runs = len(stream.words)
    freedoms = _checked(freedom)
    missing_axes = [1] * (1 + len(shape) - freedoms.ndim)
    freedoms = freedoms.reshape(*freedoms.shape, *missing_axes)
    words = stream.integers(2 * math.prod(shape)).reshape(runs, *shape, 2)
    tail, upper = _tail(words.cpu().numpy())
    return torch.from_numpy(_quantile(freedoms.numpy(), tail, upper)).to(words.device)


def _tail(
    words: Num[np.ndarray, "runs *shape 2"],
) -> tuple[Float64[np.ndarray, "runs *shape"], Bool[np.ndarray, "runs *shape"]]:
    """Return the uniform u = (high 2**32 + low + 1/2) / 2**64 as min(u, 1 - u), and whether that is 1 - u.

    A float64 near 1 would lose the digits of the distance.
    """
    upper = words[..., 0] >= 2**31
    high, low = np.moveaxis(np.where(upper[..., None], 2**32 - 1 - words, words), -1, 0)
    return high * 2.0**-32 + (low + 0.5) * 2.0**-64, upper


def _quantile(
    freedom: Float64[np.ndarray, "*#shape"],
    tail: Float64[np.ndarray, "*shape"],
    upper: Bool[np.ndarray, "*shape"],
) -> Float64[np.ndarray, "*shape"]:
    """Return the number that a chi-square stays below, or if `upper` above, with probability `tail`."""
    quantile = np.zeros(tail.shape)  # the law with no degrees of freedom is the number 0
    distinct, place = np.unique(freedom, return_inverse=True)
    place = np.broadcast_to(place.reshape(freedom.shape), tail.shape)
    freedom = np.broadcast_to(freedom, tail.shape)
    few = (freedom > _FEWEST) & (freedom < _SMOOTH)
    many = freedom >= _MANY
    smooth = (freedom >= _SMOOTH) & ~many
    quantile[few] = _inverse(freedom[few], tail[few], upper[few])
    normal = ndtri(tail)
    normal = np.where(upper, -normal, normal)
    quantile[smooth] = _interpolated(distinct, place[smooth], normal[smooth])
    quantile[many] = _expansion(freedom[many], normal[many])
    return quantile


def _inverse(
    freedom: Float64[np.ndarray, "draws"],
    tail: Float64[np.ndarray, "draws"],
    upper: Bool[np.ndarray, "draws"],
) -> Float64[np.ndarray, "draws"]:
    """Return chi-square quantiles by scipy, which takes 0.8 us each."""
    quantile = np.empty(len(freedom))
    for part, inverse in ((~upper, gammaincinv), (upper, gammainccinv)):
        quantile[part] = 2 * inverse(freedom[part] / 2, tail[part])
    return quantile


def _interpolated(
    distinct: Float64[np.ndarray, "freedoms"],
    place: Int64[np.ndarray, "draws"],
    z: Float64[np.ndarray, "draws"],
) -> Float64[np.ndarray, "draws"]:
    """Return the chi-square quantiles at the levels of the normal quantiles z, for the freedoms distinct[place].

    The cube root of the quantile is nearly linear in z (Wilson and Hilferty): a Chebyshev polynomial through the
    quantiles at 17 nodes is as exact as these, at 0.1 us a draw instead of 0.8.
    """
    angle = (np.arange(17) + 0.5) * (np.pi / 17)
    nodes = _LARGEST * np.cos(angle)
    exists = (distinct >= _SMOOTH) & (distinct < _MANY)
    freedom = np.where(exists, distinct, _SMOOTH)
    tails, above = ndtr(-np.abs(nodes)), nodes > 0
    roots = [
        np.cbrt(_inverse(freedom, np.full(len(freedom), tail), np.full(len(freedom), side)))
        for tail, side in zip(tails, above, strict=True)
    ]
    # Sums in a fixed order: the coefficients of a freedom must not depend on the others.
    terms = 2 / 17 * np.cos(np.outer(np.arange(17), angle))
    coefficients = np.zeros((17, len(distinct)))
    for term, root in zip(terms.T, roots, strict=True):
        coefficients += term[:, None] * root
    twice = z * (2 / _LARGEST)
    one = two = np.zeros_like(z)
    for row in coefficients[:0:-1]:
        one, two = twice * one - two + row[place], one
    return (0.5 * twice * one - two + 0.5 * coefficients[0][place]) ** 3


def _expansion(
    freedom: Float64[np.ndarray, "many"], z: Float64[np.ndarray, "many"]
) -> Float64[np.ndarray, "many"]:
    """Return the chi-square quantile x at the level of the normal quantile z, by the Cornish-Fisher expansion.

    With k degrees of freedom and h = sqrt(2 / k) it is a series in h, whose polynomials in z follow
    from dx/dz = normal density(z) / chi-square density(x). The first term left out is at most
    220 / k**3 for |z| < 9.2: 3e-14 at the fewest degrees of freedom used here.
    """
    h, square = np.sqrt(2 / freedom), z * z
    terms = (
        z,
        (square - 1) / 3,
        z * (square - 7) / 36,
        -((3 * square + 7) * square - 16) / 810,
        z * ((9 * square + 256) * square - 433) / 38880,
    )
    series = np.zeros_like(z)
    for term in reversed(terms):
        series = h * (term + series)
    return freedom * (1 + series)


def _checked(freedom: Freedom) -> Float64[Tensor, "..."]:
    """Return degrees of freedom in float64 on the CPU. Raise ValueError if one is negative or not finite."""
    if not isinstance(freedom, Tensor):
        freedom = torch.tensor(float(freedom), dtype=torch.float64)
    freedom = freedom.to("cpu", torch.float64)
    wrong = freedom[~(freedom.isfinite() & (freedom >= 0))]
    if len(wrong):
        raise ValueError(f"`freedom` must be 0 or more and finite, got {wrong[0].item()}")
    return freedom


def _require_a_law(freedom: Float64[Tensor, "runs 1"], rows: int) -> None:
    """Raise ValueError unless Wishart's law exists: for whole degrees of freedom, and for all above rows - 1."""
    wrong = freedom[(freedom != freedom.floor()) & (freedom < rows - 1)]
    if len(wrong):
        raise ValueError(
            f"`freedom` must be a whole number or more than {rows - 1}, one less than the {rows} rows, "
            f"got {wrong[0].item()}"
        )
