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
from jaxtyping import Bool, Float64, Num
from scipy.special import gammainccinv, gammaincinv, ndtri
from torch import Tensor

from benign.streams import Stream, Streams

# Degrees of freedom from which on the expansion is used. scipy 1.17 inverts to 1e-13 up to 4e5, but
# takes 0.5 us a number, the expansion 0.05; and its lower tail is off by 5e-12 at 1e6 and by 5e-6, a tenth of
# a standard deviation, at 1e9.
_MANY = 350.0
# With fewer degrees of freedom even the quantile of 1 - 2**-65 is too small for a float64.
_FEWEST = 1e-25

# With k degrees of freedom and h = sqrt(2 / k) the quantile is k (1 + h w), where w = w_0 + h w_1 + ... is a series
# of polynomials in the normal quantile z. As dx/dz = normal density(z) / chi-square density(x), the derivative of its
# logarithm gives (1 + h w) w'' = -z (1 + h w) w' + (w + h) w'^2, which determines them from w_0 = z on
# (tests/test_bartlett.py does it in fractions). Row j: the coefficients of z**(j + 1), z**(j - 1), ... in w_j.
_EXPANSION = (
    (1.0,),
    (
        0.3333333333333333,
        -0.3333333333333333,
    ),
    (
        0.027777777777777776,
        -0.19444444444444445,
    ),
    (
        -0.003703703703703704,
        -0.008641975308641974,
        0.019753086419753086,
    ),
    (
        0.0002314814814814815,
        0.006584362139917695,
        -0.011136831275720165,
    ),
    (
        5.878894767783657e-05,
        -0.0011904761904761906,
        -0.004521849892220263,
        0.007211444248481286,
    ),
    (
        -2.553644914756026e-05,
        -2.9619014958521132e-05,
        0.0019699536764865985,
        0.0019713145317569185,
    ),
    (
        4.899078973153047e-06,
        8.37198162301043e-05,
        -0.0001726108824874257,
        -0.0019049977863420935,
        0.0006526298981717363,
    ),
    (
        -2.428276122977769e-07,
        -2.5886869379667732e-05,
        -0.00012957468509809046,
        0.0003315300488940178,
        0.0017720095753556973,
    ),
    (
        -1.85406221071516e-07,
        3.1606390583680632e-06,
        6.401354139884852e-05,
        0.00015464459476106582,
        -0.0003422181639308517,
        -0.0012385769635511374,
    ),
    (
        7.542464855411896e-08,
        7.141944463516492e-07,
        -1.2067700029214249e-05,
        -0.00010892212692274078,
        -0.00021062606246895457,
        0.00018480123844331257,
    ),
    (
        -1.47216272806884e-08,
        -4.862830116312092e-07,
        -1.2910952342610796e-06,
        2.584903934438905e-05,
        0.00015965487056649542,
        0.00033242239699043496,
        -0.0004509888376840951,
    ),
    (
        5.159887341078076e-10,
        1.2597739160689628e-07,
        1.6169950999454123e-06,
        2.3373997567293168e-06,
        -3.8088777470510184e-05,
        -0.00021660803036033374,
        -0.000580699948552732,
    ),
    (
        7.32986413160022e-10,
        -1.0727261975015052e-08,
        -5.215193450492114e-07,
        -4.03057610274527e-06,
        -7.441658238208083e-06,
        3.5204146127751125e-05,
        0.00027055607600347514,
        0.0006639604003340528,
    ),
    (
        -2.921357345635569e-10,
        -5.3823156694394545e-09,
        6.134899589490101e-08,
        1.4596007989857974e-06,
        9.103421322062891e-06,
        2.588026549396464e-05,
        1.191280264468795e-05,
        -0.00024025308389214985,
    ),
    (
        5.717312238897994e-11,
        2.8318979540274848e-09,
        2.2228338885458432e-08,
        -1.805735457340096e-07,
        -3.187050776764147e-06,
        -1.9675371733794243e-05,
        -7.531125874348814e-05,
        -0.00015313216335369304,
        0.000449835386727579,
    ),
)

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
    runs = len(stream.keys)
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
    if freedom.min(initial=_MANY) >= _MANY:  # without copies of `freedom`: a third of the time
        return _expansion(freedom, _normal_quantile(tail, upper))
    freedom = np.broadcast_to(freedom, tail.shape)
    quantile = np.zeros(tail.shape)  # the law with no degrees of freedom is the number 0
    few, many = (freedom > _FEWEST) & (freedom < _MANY), freedom >= _MANY
    for part, inverse in ((few & ~upper, gammaincinv), (few & upper, gammainccinv)):
        quantile[part] = 2 * inverse(freedom[part] / 2, tail[part])
    quantile[many] = _expansion(freedom[many], _normal_quantile(tail[many], upper[many]))
    return quantile


def _normal_quantile(
    tail: Float64[np.ndarray, "*shape"], upper: Bool[np.ndarray, "*shape"]
) -> Float64[np.ndarray, "*shape"]:
    quantile = ndtri(tail)
    return np.negative(quantile, out=quantile, where=upper)


def _expansion(
    freedom: Float64[np.ndarray, "*#shape"], z: Float64[np.ndarray, "*shape"]
) -> Float64[np.ndarray, "*shape"]:
    """Return the chi-square quantile x at the level of the normal quantile z, by the Cornish-Fisher expansion.

    For |z| < 9.2 and the fewest degrees of freedom used here it is exact to 4e-14.
    """
    h = np.sqrt(2 / freedom)
    by_power = [np.zeros_like(h) for _ in range(len(_EXPANSION) + 1)]
    for order, row in enumerate(_EXPANSION):
        for place, coefficient in enumerate(row):
            by_power[order + 1 - 2 * place] += coefficient * h**order
    series = np.zeros_like(z)
    for coefficient in reversed(by_power):
        series *= z
        series += coefficient
    series *= h
    series += 1
    series *= freedom
    return series


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
