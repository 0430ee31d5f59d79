"""Bartlett's factor: exact quantiles, the law of Gram matrices, and what a draw may depend on."""

import math
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from benign import bartlett as module
from benign.bartlett import bartlett, chi_square
from benign.streams import RunId, Streams
from tests.says import says

FREEDOMS = [0.5, 1, 3, 50, 1e4, 1e9, 1e13, 1e20]
SWITCH = module._MANY

# Seeds are fixed, so no test of a law can flicker. Over a random choice of seeds each comparison
# would fail a correct sampler with this probability.
ALARM = 1e-6


def some(runs, seed=3):
    return Streams([RunId(seed, index, "") for index in range(runs)])


def strictly_below(factor):
    row, column = torch.tril_indices(factor.shape[1], factor.shape[2], -1)
    return factor[:, row, column]


def diagonal(factor):
    return factor.diagonal(dim1=1, dim2=2)


# The quantile


def relative_error(freedom, x, tail, upper):
    """How far x is from the exact quantile, to first order: the error of its tail over the density.

    For large freedoms the density is integrated from x outwards, over 16 standard deviations; at
    x e^t it is, times the variable itself, c exp(a t - x (e^t - 1)).
    """
    with mpmath.workdps(40):
        a, x, side = mpmath.mpf(freedom) / 2, mpmath.mpf(x) / 2, 1 if upper else -1
        c = mpmath.exp(a * mpmath.log(x) - x - mpmath.loggamma(a))
        if freedom < 1e3:
            mass = mpmath.gammainc(a, *((x, mpmath.inf) if upper else (0, x)), regularized=True)
        else:
            width = side / mpmath.sqrt(a)
            density = lambda s: mpmath.exp(a * width * s - x * mpmath.expm1(width * s))  # noqa: E731
            mass = c * abs(width) * mpmath.quad(density, [0, 1, 2, 4, 8, 16])
        return float(side * (mass - mpmath.mpf(tail)) / c)


@pytest.mark.parametrize("freedom", [0.3, *FREEDOMS, 1.7, 700.3, SWITCH * 0.999, SWITCH, 1e6])
def test_quantiles_are_exact(freedom):
    tails = np.array([2.0**-65, 1e-6, 0.01, 0.2, 0.5])
    for upper in (False, True):
        x = module._quantile(np.full(5, float(freedom)), tails, np.full(5, upper))
        errors = [relative_error(freedom, *case, upper) for case in zip(x, tails, strict=True)]
        assert np.abs(errors).max() < 1e-12, errors


def test_tails_keep_64_bits_on_both_sides():
    top = 2**32 - 1
    words = [[0, 0], [0, 1], [2**31 - 1, top], [2**31, 0], [top, top - 1], [top, top], [7, 2**20]]
    tails, upper = module._tail(np.array([words]))
    for (high, low), tail, above in zip(words, tails[0], upper[0], strict=True):
        uniform = Fraction(2 * (high * 2**32 + low) + 1, 2**65)
        assert above == (uniform > Fraction(1, 2))
        assert Fraction(float(tail)) == pytest.approx(min(uniform, 1 - uniform), rel=2**-53)


@given(st.floats(0, 1e20), st.floats(0, 0.1), st.floats(2.0**-65, 0.5), st.booleans())
@settings(max_examples=200)
def test_quantiles_grow_with_the_freedom(freedom, more, tail, upper):
    """To rounding, and to the accuracy of the two methods where one takes over from the other."""
    low, high = (
        module._quantile(np.array([f]), np.array([tail]), np.array([upper]))[0]
        for f in (freedom, freedom * (1 + more))
    )
    assert low <= high * (1 + 1e-12)
    assert 0 <= low < math.inf


def test_the_two_methods_meet():
    tail = np.logspace(-19, -0.31, 40)
    for upper in (np.full(40, False), np.full(40, True)):
        below, above = (
            module._quantile(np.full(40, freedom), tail, upper)
            for freedom in (np.nextafter(SWITCH, 0), SWITCH)
        )
        np.testing.assert_allclose(below, above, rtol=1e-13)


def times(one, other):
    product = [Fraction(0)] * (len(one) + len(other) - 1)
    for i, a in enumerate(one):
        for j, b in enumerate(other):
            product[i + j] += a * b
    return product


def plus(*parts):
    longest = max(map(len, parts))
    return [sum((part[i] for part in parts if i < len(part)), Fraction(0)) for i in range(longest)]


def derivative(part):
    return [n * c for n, c in enumerate(part)][1:] or [Fraction(0)]


def expansion(terms):
    """The polynomials of the expansion in fractions, by order of the differential equation beside the table."""
    w, z = [[Fraction(0), Fraction(1)]], [Fraction(0), Fraction(1)]
    for order in range(1, terms):
        slope = [derivative(part) for part in w]
        curve = [derivative(part) for part in slope]
        known = range(order)
        squares = [
            plus(
                [Fraction(0)],
                *(times(slope[i], slope[j]) for i in known for j in known if i + j == n),
            )
            for n in range(order + 1)
        ]
        rest = squares[order - 1]
        for i in known:
            change = plus(curve[order - 1 - i], times(z, slope[order - 1 - i]))
            rest = plus(rest, times(w[i], squares[order - i]), [-c for c in times(w[i], change)])
        # w_j'' - z w_j' - w_j = rest, from the highest power down
        found = [Fraction(0)] * (len(rest) + 2)
        for n in reversed(range(len(rest))):
            found[n] = (n + 2) * found[n + 2] - rest[n] / (n + 1)
        w.append(found)
    return w


def test_the_table_solves_its_differential_equation():
    for order, (row, exact) in enumerate(
        zip(module._EXPANSION, expansion(len(module._EXPANSION)), strict=True)
    ):
        table = np.zeros(len(exact))
        table[order + 1 :: -2][: len(row)] = row
        np.testing.assert_allclose(table, [float(c) for c in exact], rtol=1e-15)


# Chi-squares


@pytest.mark.parametrize("freedom", FREEDOMS)
def test_chi_squares_follow_their_law(freedom):
    drawn = chi_square(some(2)("law"), freedom, 10_000).flatten()
    assert stats.kstest(drawn.numpy(), stats.chi2(freedom).cdf).pvalue > ALARM
    scaled = (drawn - freedom) / math.sqrt(2 * freedom)
    errors = stats.norm.isf(ALARM / 2) / math.sqrt(len(drawn))
    assert scaled.mean().abs() < errors
    # The fourth central moment is 12 k^2 + 48 k.
    assert (scaled.square().mean() - 1).abs() < errors * math.sqrt(2 + 12 / freedom)
    assert len(drawn.unique()) > 9_990  # a float64 near 1e20 is one of 1e6 in a standard deviation


def test_no_freedom_is_zero():
    assert torch.equal(chi_square(some(2)("law"), 0, 3), torch.zeros(2, 3, dtype=torch.float64))


def test_a_chi_square_takes_its_own_two_words():
    stream = some(2)("law")
    words = stream.integers(12).double().reshape(2, 3, 2, 2)
    uniform = (words[..., 0] * 2.0**32 + words[..., 1] + 0.5) / 2.0**64
    expected = torch.from_numpy(stats.chi2(2).ppf(uniform.numpy()))
    torch.testing.assert_close(chi_square(stream, 2, 3, 2), expected, rtol=1e-12, atol=0)


def test_freedoms_align_with_the_runs():
    stream, numbers = some(2)("law"), torch.tensor([3.0, 1e9], dtype=torch.float64)
    alone = [chi_square(some(2)[[run]]("law"), numbers[run].item(), 4, 5) for run in range(2)]
    for freedom in (numbers, numbers[:, None], numbers[:, None, None].expand(2, 4, 5)):
        assert torch.equal(chi_square(stream, freedom, 4, 5), torch.cat(alone))
    by_row = chi_square(stream, torch.arange(4.0)[None], 4, 5)
    assert torch.equal(by_row[:, 3], chi_square(stream, 3, 4, 5)[:, 3])
    assert chi_square(stream, numbers).shape == (2,)
    assert chi_square(some(0)("law"), 3, 4).shape == (0, 4)


def test_a_freedom_keeps_its_digits():
    """Not rounded to float32 on the way: 0.1 would move by 1e-8, 1e9 + 1 by one."""
    for freedom in (0.1, 1e9 + 1, 10**20):
        exact = torch.tensor([freedom], dtype=torch.float64)
        assert torch.equal(
            chi_square(some(1)("law"), freedom, 3), chi_square(some(1)("law"), exact, 3)
        )
        assert torch.equal(bartlett(some(1), 1, freedom), bartlett(some(1), 1, exact))


# The factor


def same_law(sample, other):
    compared: Any = stats.ks_2samp(sample, other)
    return compared.pvalue > ALARM


def statistics(gram):
    """Entries, extreme eigenvalues and log determinant of Gram matrices, without their kernel."""
    last, values = gram.shape[1] - 1, torch.linalg.eigvalsh(gram)
    positive = values[:, values.mean(0) > 1e-9]
    entries = [gram[:, i, j] for i, j in ((0, 0), (1, 0), (last, last), (last, last // 2))]
    return [*entries, positive[:, 0], positive[:, -1], positive.log().sum(1)]


@pytest.mark.parametrize(("rows", "dim"), [(20, 40), (5, 5), (12, 7), (3, 1)])
def test_factor_has_the_law_of_gaussian_rows(rows, dim):
    """2000 factors against 2000 Gram matrices, also where the rows span the space."""
    factor = bartlett(some(2000), rows, dim)
    assert factor.shape == (2000, rows, min(rows, dim))
    gaussian = some(2000, seed=4)("rows").normal(rows, dim)
    ours, theirs = (statistics(each @ each.mT) for each in (factor, gaussian))
    for our, their in zip(ours, theirs, strict=True):
        assert same_law(our.numpy(), their.numpy())


@pytest.mark.parametrize(("rows", "freedom"), [(6, 7.5), (6, 5.5), (4, 1e13), (8, 3)])
def test_each_row_has_a_chi_square_length(rows, freedom):
    """Whatever its place: the diagonal of Wishart's matrix, whole or not, few or many."""
    lengths = bartlett(some(2000), rows, freedom).square().sum(2)
    for length in lengths.T:
        assert stats.kstest(length.numpy(), stats.chi2(freedom).cdf).pvalue > ALARM


def test_parts_come_from_their_own_streams():
    factor, streams = bartlett(some(3), 5, 9), some(3)
    assert torch.equal(strictly_below(factor), streams("normals").normal(10))
    assert torch.equal(factor, factor.tril())
    chi_squares = chi_square(streams("chi-squares"), torch.tensor([[9, 8, 7, 6, 5]]), 5)
    assert torch.equal(diagonal(factor), chi_squares.sqrt())


def test_a_factor_is_pinned():
    """A change here changes every result drawn in coordinates: raise the numerics version."""
    factor = bartlett(Streams([RunId(0, 0, "")]), 3, 1000)
    pinned = [
        [32.561513524878514, 0, 0],
        [0.011274313563372523, 31.256029433817215, 0],
        [-1.2846699504434629, 1.5820695430829481, 32.56187059358851],
    ]
    pinned = torch.tensor([pinned], dtype=torch.float64)
    torch.testing.assert_close(factor, pinned, rtol=1e-12, atol=0)


@given(st.floats(12, 1e20), st.floats(0, 1))
@settings(max_examples=30)
def test_changing_the_dimension_keeps_the_normals(freedom, more):
    small, large = (bartlett(some(2), 12, each) for each in (freedom, freedom * (1 + more)))
    assert torch.equal(strictly_below(small), strictly_below(large))
    assert (diagonal(small) <= diagonal(large) * (1 + 1e-12)).all()


def test_a_slightly_larger_dimension_moves_the_diagonal_slightly():
    """sqrt(chi-square) grows by about 1 / (2 sqrt(d)) for each dimension."""
    for dim in (1e3, SWITCH - 5, 1e6):
        step = diagonal(bartlett(some(50), 10, dim + 1)) - diagonal(bartlett(some(50), 10, dim))
        torch.testing.assert_close(
            step * 2 * math.sqrt(dim), torch.ones_like(step), rtol=0.3, atol=0
        )


@given(st.integers(0, 9), st.sampled_from([1, 4, 9, 30, 1e9]))
def test_the_first_rows_of_a_longer_factor_are_a_shorter_one(rows, dim):
    long, short = bartlett(some(2), 9, dim), bartlett(some(2), rows, dim)
    assert torch.equal(short, long[:, :rows, : short.shape[2]])
    assert (long[:, :rows, short.shape[2] :] == 0).all()


def test_batch_equals_each_run_alone():
    """Runs with fewer columns than others have zeros in the rest."""
    freedom = torch.tensor([3, 1e12, 0, 6, 6.5], dtype=torch.float64)
    together = bartlett(some(5), 7, freedom)
    assert together.shape == (5, 7, 7)
    for run, columns in enumerate([3, 7, 0, 6, 7]):
        alone = bartlett(some(5)[[run]], 7, freedom[run].item())
        assert alone.shape == (1, 7, columns)
        assert torch.equal(together[run, :, :columns], alone[0])
        assert (together[run, :, columns:] == 0).all()
    assert torch.equal(bartlett(some(5)[[3, 1]], 7, freedom[[3, 1]]), together[[3, 1]])


def test_the_dimension_does_not_change_the_size():
    drawn = [bartlett(some(2), 30, dim) for dim in (2e3, 1e6, 1e9, 1e12, 1.6e13)]
    assert {each.shape for each in drawn} == {(2, 30, 30)}
    assert {each.untyped_storage().nbytes() for each in drawn} == {2 * 30 * 30 * 8}


def test_no_global_state():
    before, numpys = torch.get_rng_state(), repr(np.random.get_state())  # noqa: NPY002
    first = bartlett(some(3), 4, 17)
    assert torch.equal(torch.get_rng_state(), before)
    assert repr(np.random.get_state()) == numpys  # noqa: NPY002
    torch.manual_seed(1)
    assert torch.equal(bartlett(some(3), 4, 17), first)


def test_many_factors_of_a_run_have_the_law_of_one():
    """Lengths of rows have mean `freedom`, within 4 standard errors, and no two factors are alike."""
    freedom = torch.tensor([7.0, 3.0])
    factors = bartlett(some(2), 4, freedom, 2000)
    assert factors.shape == (2, 2000, 4, 4)
    lengths = factors.square().sum(3)
    error = (2 * freedom[:, None] / 2000).sqrt()
    assert ((lengths.mean(1) - freedom[:, None]).abs() < 4 * error).all()
    assert len(lengths[0, :, 0].unique()) == 2000
    assert factors[1, ..., 3].abs().max() == 0, "a space of 3 dimensions"


def test_bad_freedoms_are_refused():
    several = torch.tensor([5.0, -1.0])
    for freedom, value in ((-1, "-1"), (math.nan, "nan"), (math.inf, "inf"), (several, "-1")):
        with pytest.raises(ValueError, match=says("`freedom`", "0", "finite", value)):
            bartlett(some(2), 3, freedom)
        with pytest.raises(ValueError, match=says("`freedom`", "0", "finite", value)):
            chi_square(some(2)("law"), freedom)
    with pytest.raises(ValueError, match=says("`freedom`", "whole", "4", "5 rows", "3.5")):
        bartlett(some(2), 5, torch.tensor([9.0, 3.5]))


@pytest.mark.gpu
def test_cuda_draws_the_same():
    there = Streams(some(3).runs, device="cuda")
    for dim in (3, 40, 1e13):
        factor = bartlett(there, 5, dim)
        assert factor.device.type == "cuda"
        torch.testing.assert_close(factor.cpu(), bartlett(some(3), 5, dim), rtol=1e-12, atol=1e-12)
    here = chi_square(some(3)("law"), 1e13, 9)
    assert torch.equal(chi_square(there("law"), 1e13, 9).cpu(), here)
