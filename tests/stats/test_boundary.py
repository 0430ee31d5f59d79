"""Boundaries: known laws are recovered, and rows without a crossing are reported."""

import inspect
import math
from typing import Any

import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from benign.stats import Law, boundary, boundary_shift, clopper_pearson, mean_interval, wilson
from benign.stats.boundary import NO_BOUNDARY
from benign.stats.intervals import number
from tests.says import holds, says

SAMPLES = np.array([2.0, 4.0, 6.0, 10.0, 16.0, 24.0, 40.0])
SNR = np.geomspace(0.1, 30, 25)


def ramp(constant, exponent, seeds=1, sign=1.0, noise=0.0, rng: Any = None):
    """A map linear in log(snr), so that interpolation is exact: it crosses 0.5 on the law.

    `noise` is the standard deviation of log SNR* from row to row.
    """
    shift = noise * rng.standard_normal((len(SAMPLES), 1, seeds)) if noise else 0.0
    critical = np.log(constant / SAMPLES)[:, None, None] / exponent + shift
    values = 0.5 + sign * 0.1 * (np.log(SNR)[None, :, None] - critical) * np.ones(seeds)
    return xr.DataArray(
        values,
        {"samples": SAMPLES, "snr": SNR, "seed": np.arange(seeds)},
        ("samples", "snr", "seed"),
        name="accuracy",
    )


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize(("exponent", "constant"), [(2.0, 100.0), (4.0, 50.0)])
def test_an_exact_law_is_recovered(exponent, constant, sign):
    edge = boundary(ramp(constant, exponent, seeds=3, sign=sign), 0.5)
    assert edge.rising == (sign > 0)
    np.testing.assert_allclose(edge.critical, (constant / SAMPLES) ** (1 / exponent), rtol=1e-10)
    np.testing.assert_allclose(edge.critical_per_seed, edge.critical.values[:, None].repeat(3, 1))
    fit = edge.fit
    assert fit is not None
    assert fit.rows == len(SAMPLES)
    # The shape of a transition is fitted, and this one is straight: exact to a few hundredths of a column.
    assert fit.slope == pytest.approx(-1 / exponent, rel=0.02)
    assert fit.constant_interval[0] < constant < fit.constant_interval[1]
    assert fit.constant_interval[1] / fit.constant_interval[0] < 1.3
    assert fit.r_squared == pytest.approx(1, rel=1e-3)
    np.testing.assert_allclose(fit.curve(SAMPLES), edge.critical, rtol=0.01)
    at = edge.constant_for(exponent)
    assert at.low < constant < at.high
    assert at.value == pytest.approx(constant, rel=0.02)


def test_the_fit_is_the_line_of_each_seed_with_students_t_over_seeds():
    """On a fine grid, where every row crosses in every seed."""
    edge = boundary(ramp(100.0, 2.0, seeds=6, noise=0.3, rng=np.random.default_rng(1)), 0.5)
    x, y = np.log(SAMPLES), np.log(edge.critical_per_seed.values)
    slopes = [float(np.polyfit(x, each, 1)[0]) for each in y.T]
    expected = stats.ttest_1samp(slopes, 0).confidence_interval(0.95)
    fit = edge.fit
    assert fit is not None
    assert fit.slope == pytest.approx(np.mean(slopes), abs=0.01)
    assert fit.slope_interval == pytest.approx(tuple(expected), abs=0.03)
    assert fit.exponent_interval == pytest.approx(
        tuple(-1 / end for end in fit.slope_interval), rel=1e-10
    )
    assert fit.errors.source == "6 seeds"
    # At both ends of the constant's interval the line is one half-width away from column = 1.
    for end in fit.constant_interval:
        low, high = np.log(fit.band([end], 0.95)).ravel()
        assert min(abs(low), abs(high)) == pytest.approx(0, abs=1e-6)
    logs = (x[:, None] + 2 * y).mean(0)
    expected = np.exp(stats.ttest_1samp(logs, 0).confidence_interval(0.95))
    value, low, high = edge.constant_for(2.0)
    assert value == pytest.approx(np.exp(logs.mean()), rel=0.02)
    assert (low, high) == pytest.approx(tuple(expected), rel=0.05)


def test_intervals_of_another_confidence_are_those_of_a_new_fit():
    values = ramp(100.0, 2.0, seeds=5, noise=0.3, rng=np.random.default_rng(1))
    fit, other = boundary(values, 0.5).fit, boundary(values, 0.5, confidence=0.8).fit
    assert fit is not None
    assert other is not None
    assert fit.at(0.8).slope_interval == other.slope_interval != fit.slope_interval
    assert fit.at(0.8).constant_interval == other.constant_interval


def test_the_crossing_is_interpolated_in_the_logarithm():
    values = xr.DataArray([[0.0, 0.25, 1.0]], {"n": [3], "s": [1, 10, 1000]}, ("n", "s"))
    # a third of the way from 10 to 1000 in the logarithm
    assert boundary(values, 0.5, "n * s**p").critical.item() == pytest.approx(10 * 100 ** (1 / 3))


def test_every_row_without_a_crossing_says_why():
    nan = math.nan
    values = xr.DataArray(
        [[0.1, 0.2, 0.3], [0.6, 0.8, 0.9], [nan, nan, nan], [0.1, 0.9, 0.9]],
        {"samples": [2, 4, 8, 16], "snr": [1.0, 2.0, 4.0]},
        ("samples", "snr"),
        name="accuracy",
    )
    edge = boundary(values, 0.5)
    assert list(edge.critical.isnull().values) == [True, True, True, False]
    low, high, missing, none = map(str, edge.reasons.values)
    assert holds(low, "below 0.5", "highest snr", "4")
    assert holds(high, "above 0.5", "lowest snr", "1")
    assert "missing" in missing
    assert none == ""
    assert edge.fit is None
    assert edge.reason.startswith(NO_BOUNDARY)
    assert holds(edge.reason, "1 of 4 rows", " 4 ")
    head, *rows, fit = str(edge).splitlines()
    assert holds(head, "accuracy", "rises", " 0.5 ", "snr", "1 of 4 samples")
    assert rows == [f"  samples 2: {low}", f"  samples 4: {high}", f"  samples 8: {missing}"]
    assert fit == f"  {edge.reason}"
    assert edge.constant_for(2.0).low == 0
    assert edge.constant_for(2.0).high == math.inf
    with pytest.raises(ValueError, match=says("samples", "level 5")):
        boundary(values, 5.0).constant_for(2.0)


def test_several_crossings_are_counted_and_the_first_is_used():
    values = xr.DataArray(
        [[0.0, 1.0, 0.0, 1.0], [0.0, 0.0, 0.0, 1.0]],
        {"samples": [2, 4], "snr": [1.0, 4.0, 16.0, 64.0]},
        ("samples", "snr"),
    )
    edge = boundary(values, 0.5)
    assert list(edge.crossings.values) == [3, 1]
    np.testing.assert_allclose(edge.critical, [2.0, 32.0])
    (row,) = [line for line in str(edge).splitlines() if "samples 2: " in line]
    assert holds(row, " 3 ", "first")


def test_missing_runs_are_skipped():
    full = ramp(100.0, 2.0, seeds=3)
    holes = full.copy()
    holes[1, 3:6, 0] = math.nan  # one seed lacks a few cells
    holes[2, 10, :] = math.nan  # a cell lacks every seed
    holes[3, :, 1] = math.nan  # a row lacks one seed
    edge = boundary(holes, 0.5)
    np.testing.assert_allclose(edge.critical, boundary(full, 0.5).critical, rtol=1e-10)
    assert edge.critical_per_seed.isnull().sum() == 1
    assert math.isnan(edge.critical_per_seed[3, 1])


def test_one_seed_may_cross_where_the_mean_does_not():
    values = xr.DataArray(
        [[[0.0, 0.0], [1.0, 0.0], [1.0, 0.4]]],
        {"samples": [2], "snr": [1.0, 4.0, 16.0]},
        ("samples", "snr", "seed"),
    )
    edge = boundary(values, 0.8)
    assert math.isnan(edge.critical[0])
    assert edge.critical_per_seed[0, 0] == pytest.approx(4**0.8)
    assert math.isnan(edge.critical_per_seed[0, 1])


def test_a_slope_that_may_be_zero_leaves_the_exponent_open():
    flat = boundary(ramp(1.0, 1e9, noise=0.3, rng=np.random.default_rng(3)), 0.5)
    fit = flat.fit
    assert fit is not None
    assert fit.slope_interval[0] < 0 < fit.slope_interval[1]
    assert not fit.bounded
    assert fit.exponent_interval == (-math.inf, math.inf)
    assert fit.constant_interval == (0, math.inf)
    assert "p and c" in str(flat)


def test_a_boundary_at_one_column_has_slope_zero():
    values = xr.DataArray(
        np.tile([0.0, 1.0], (4, 1)),
        {"samples": [2, 4, 8, 16], "snr": [1.0, 4.0]},
        ("samples", "snr"),
    )
    fit = boundary(values, 0.5).fit
    assert fit is not None
    assert (fit.slope, fit.exponent, fit.bounded) == (0, math.inf, False)
    np.testing.assert_allclose(fit.curve([3.0, 5.0]), 2.0)


@settings(max_examples=25, deadline=None)
@given(scale=st.floats(0.01, 100), stretch=st.floats(0.01, 100), order=st.permutations(range(7)))
def test_units_and_order_do_not_matter(scale, stretch, order):
    values = ramp(100.0, 2.0, noise=0.2, rng=np.random.default_rng(5))
    plain = boundary(values, 0.5).fit
    moved = values.isel(samples=list(order)).isel(snr=slice(None, None, -1))
    moved = moved.assign_coords(samples=moved.samples * stretch, snr=moved.snr * scale)
    fit = boundary(-moved.transpose("seed", "snr", "samples"), -0.5).fit
    assert plain is not None
    assert fit is not None
    assert fit.slope == pytest.approx(plain.slope, rel=1e-9)
    assert fit.exponent_interval == pytest.approx(plain.exponent_interval, rel=1e-9)
    expected = math.log(plain.constant) + math.log(stretch) + plain.exponent * math.log(scale)
    assert math.log(fit.constant) == pytest.approx(expected, rel=1e-9, abs=1e-9)


def test_attributes_of_the_column_travel_with_the_critical_values():
    values = ramp(100.0, 2.0)
    values.snr.attrs = {"long_name": "signal-to-noise ratio"}
    values.samples.attrs = {"symbol": "N"}
    critical = boundary(values, 0.5).critical
    assert critical.name == "snr"
    assert critical.attrs == {
        "long_name": "signal-to-noise ratio",
        "level": 0.5,
        "rising": True,
        "quantity": "accuracy",
    }
    assert critical.samples.attrs == {"symbol": "N"}


def test_laws_are_read_as_written():
    assert Law.parse("samples * snr**p") == Law("samples", "snr")
    assert Law.parse("data.samples*signal ** p") == Law("data.samples", "signal")
    printed = Law.parse("samples * snr**2 = 1e3")
    assert printed == Law("samples", "snr", 2.0, 1000.0)
    assert str(printed) == "samples * snr**2 = 1000"
    np.testing.assert_allclose(printed.curve([10.0, 40.0]), [10.0, 5.0])
    with pytest.raises(ValueError, match=says("`law`", "exponent", "constant", "samples * snr**p")):
        Law.parse("samples * snr**p").curve([1.0])


@pytest.mark.parametrize(
    ("law", "parts"),
    [
        ("samples snr p", ["'row * column**p'", "'samples snr p'"]),
        ("samples * snr**q", ["'row * column**p'", "'samples * snr**q'"]),
        ("__import__('os') * snr**p", ["'row * column**p'", "__import__"]),
        ("samples * snr**p; snr", ["'row * column**p'", "'samples * snr**p; snr'"]),
        ("snr * snr**p", ["dimensions", "'snr'"]),
        ("samples * snr**0", ["exponent", " 0,", "'samples * snr**0'"]),
        ("samples * snr**2 = -3", ["constant", "'samples * snr**2 = -3'"]),
        ("samples * snr**2", ["'... **p'", "'samples * snr**2'"]),
        ("samples * radius**p", ["'radius'", "samples, snr", "law='samples * snr**p'"]),
    ],
)
def test_a_wrong_law_is_refused(law, parts):
    with pytest.raises(ValueError, match=says("`law`", *parts)):
        boundary(ramp(100.0, 2.0), 0.5, law)


def test_two_axes_make_a_law_of_their_own():
    values = ramp(100.0, 2.0)
    for names, law in [
        ({}, "samples * snr**p"),
        ({"snr": "signal"}, "samples * signal**p"),
        ({"samples": "signal", "snr": "dim"}, "dim * signal**p"),
        ({"samples": "gap"}, "gap * snr**p"),
    ]:
        assert str(boundary(values.rename(names), 0.5).law) == law


def test_a_whole_result_is_refused():
    unchecked = inspect.unwrap(boundary)  # types are checked in tests only
    with pytest.raises(ValueError, match=says("`values`", "result.test_accuracy", "Dataset")):
        unchecked(ramp(100.0, 2.0).to_dataset(name="test_accuracy"), 0.5)


def test_wrong_values_are_refused():
    values = ramp(100.0, 2.0)
    with pytest.raises(ValueError, match=says("'snr'", "positive", "[-0.9")):
        boundary(values.assign_coords(snr=SNR - 1), 0.5)
    with pytest.raises(ValueError, match=says("'snr'", "numbers")):
        boundary(values.drop_vars("snr"), 0.5)
    with pytest.raises(ValueError, match=says("'snr'", "numbers")):
        boundary(values.assign_coords(snr=[f"s{i}" for i in range(len(SNR))]), 0.5)
    with pytest.raises(ValueError, match=says("'samples'", "1. 1.")):
        boundary(values.assign_coords(samples=[1.0] * len(SAMPLES)), 0.5)
    with pytest.raises(ValueError, match=says("`values`", "samples, snr", "radius")):
        boundary(values.expand_dims("radius"), 0.5, law="samples * snr**p")
    with pytest.raises(ValueError, match=says("two axes", "radius", "samples", "snr")):
        boundary(values.expand_dims("radius"), 0.5)
    with pytest.raises(ValueError, match=says("`values`", "'seed': 0")):
        boundary(values.isel(seed=slice(0)), 0.5)
    with pytest.raises(ValueError, match=says("`values`", "numpy.isfinite")):
        boundary(values / 0.0, 0.5)
    with pytest.raises(ValueError, match=says("`level`", "number", "nan")):
        boundary(values, math.nan)
    with pytest.raises(ValueError, match=says("`confidence`", "0 and 1", "95")):
        boundary(values, 0.5, confidence=95.0)
    with pytest.raises(ValueError, match=says("`values`", "list", "(0,)")):
        mean_interval([])
    for strange in (math.nan, math.inf):
        with pytest.raises(ValueError, match=says("`values`", "1 of 3", "finite")):
            mean_interval([1.0, strange, 2.0])


def test_a_single_seed_selected_by_hand_is_accepted():
    values = ramp(100.0, 2.0, seeds=2).sel(seed=1)
    assert boundary(values, 0.5).critical_per_seed.sizes == {"samples": 7, "seed": 1}


@pytest.mark.parametrize(
    ("value", "text"),
    [(1012.3, "1012"), (2.1, "2.10"), (-0.4999, "-0.500"), (3.2e6, "3.20e+06"), (math.inf, "inf")],
)
def test_numbers_are_written_short(value, text):
    assert number(value) == text


def test_a_test_of_an_exponent_agrees_with_its_interval():
    edge = boundary(ramp(100.0, 2.0, seeds=6, noise=0.1, rng=np.random.default_rng(2)), 0.5)
    fit = edge.fit
    assert fit is not None
    low, high = fit.exponent_interval
    for exponent, inside in [(low * 1.001, True), (high * 0.999, True), (low * 0.999, False), (4, False)]:  # fmt: skip
        tested = edge.exponent_is(exponent)
        assert bool(tested) == tested.inside == inside
        assert (tested.p_value >= 0.05) == inside
    assert edge.exponent_is(low).p_value == pytest.approx(0.05, rel=1e-6)
    for near in (1, 1 + 1e-15, 1 - 1e-14):  # where rounding decides the distance
        assert edge.exponent_is(near * fit.exponent).p_value == pytest.approx(1, abs=1e-6)
    assert holds(str(edge.exponent_is(4.0)), "exponent 4 ", "outside", "[1.")
    with pytest.raises(ValueError, match=says("`exponent`", " 0")):
        edge.exponent_is(0)
    with pytest.raises(ValueError, match=says("fit", "0 of 7 rows")):
        boundary(ramp(100.0, 2.0), 50.0).exponent_is(2)


def test_seeds_with_shared_errors_widen_the_constant():
    """All rows of a seed move together: the rows' scatter is none, the seeds' is 0.3 a seed."""
    rng = np.random.default_rng(4)
    values = ramp(100.0, 2.0, seeds=9)
    moved = values - 0.1 * 0.3 * rng.standard_normal(9)
    edge = boundary(moved, 0.5)
    per_seed = np.log(SAMPLES[:, None] * edge.critical_per_seed.values**2).mean(0)
    expected = stats.ttest_1samp(per_seed, 0).confidence_interval(0.95)
    value, low, high = edge.constant_for(2.0)
    assert math.log(value) == pytest.approx(per_seed.mean(), abs=0.02)
    assert math.log(high / low) == pytest.approx(expected.high - expected.low, rel=0.02)


@pytest.mark.parametrize("width", [0.05, 0.2, 0.5])
@pytest.mark.parametrize(("exponent", "constant"), [(2.0, 1000.0), (4.0, 3000.0)])
def test_a_grid_without_noise_covers_the_truth(exponent, constant, width):
    """A loss that falls from 0.69 to 0, cut at 0.2, on ten even columns: the grid's error is all there is."""
    rows, columns = np.arange(2.0, 21, 2), np.linspace(1.6, 16, 10)
    depth = np.log(columns)[None] - np.log(constant / rows)[:, None] / exponent
    loss = 0.69 / (1 + np.exp(depth / width + math.log(0.49 / 0.2)))
    coords = {"samples": rows, "snr": columns, "seed": range(5)}
    map = xr.DataArray(np.repeat(loss[..., None], 5, -1), coords, tuple(coords))
    edge = boundary(map, 0.2)
    assert edge.exponent_is(exponent)
    at, fit = edge.constant_for(exponent), edge.fit
    assert at.low < constant < at.high
    assert fit is not None
    assert fit.constant_interval[0] < constant < fit.constant_interval[1]


@pytest.mark.parametrize(("interval", "method"), [(wilson, "wilson"), (clopper_pearson, "exact")])
def test_intervals_of_shares_cover(interval, method):
    for hits, trials in [(0, 10), (7, 10), (990, 1000)]:
        expected: Any = stats.binomtest(hits, trials).proportion_ci(0.9, method)
        assert interval(hits, trials, 0.9) == (hits / trials, expected.low, expected.high)
    # The coverage of a share of 0.9 in 50 trials, summed over what may be drawn.
    counts = np.arange(51)
    covered = [low <= 0.9 <= high for _, low, high in (interval(int(k), 50) for k in counts)]
    rate = stats.binom.pmf(counts, 50, 0.9)[covered].sum()
    assert rate >= (0.95 if method == "exact" else 0.93)
    with pytest.raises(ValueError, match=says("`hits`", "`trials`", "3", "2")):
        interval(3, 2)


def test_rows_off_any_power_law_have_no_fit():
    """Two groups of rows at different heights, known precisely by every seed: no line goes through them."""
    rows, columns = np.arange(2, 24, 2), np.geomspace(0.1, 20, 60)
    critical = np.where(rows < 12, 10.0, 0.5)
    noise = np.random.default_rng(0).normal(0, 0.02, (rows.size, 1, 5))
    sharp = 8 * np.log(columns[None, :, None] / critical[:, None, None]) + noise
    coords = {"samples": rows, "snr": columns, "seed": range(5)}
    edge = boundary(xr.DataArray(1 / (1 + np.exp(-sharp)), coords, list(coords)), 0.5)
    assert edge.fit is None
    assert edge.reason.startswith(NO_BOUNDARY)
    assert holds(edge.reason, "power law", "p = ")
    assert edge.reason in str(edge)
    straight = 8 * np.log(columns[None, :, None] * np.sqrt(rows)[:, None, None] / 10) + noise
    fine = boundary(xr.DataArray(1 / (1 + np.exp(-straight)), coords, list(coords)), 0.5)
    assert fine.fit is not None
    assert holds(str(fine), "95 %", "5 seeds")


def test_rows_that_fall_back_have_no_fit():
    """Accuracy rises through the level and falls back: the first crossing alone would lie on a perfect law."""
    values = ramp(30.0, 2.0, seeds=5, noise=0.1, rng=np.random.default_rng(2))
    folded = values.where(values < 0.6, 1.2 - values)
    assert boundary(values, 0.5).fit is not None
    edge = boundary(folded, 0.5)
    assert edge.fit is None
    assert edge.reason.startswith(NO_BOUNDARY)
    assert holds(edge.reason, "cross back", "p = ")
    one_row = values.copy()
    one_row[3] = folded[3]
    assert boundary(one_row, 0.5).fit is None


def test_rows_of_one_seed_that_fall_back_for_good_have_no_fit():
    """One seed tests nothing, but a rising curve through a row that falls back to where it was does not cross."""
    row = [0.0, 0.1, 0.2, 0.6, 0.2, 0.2, 0.2, 0.2, 0.2]
    last = [0.0, 0.1, 0.2, 0.3, 0.4, 0.6, 0.9, 1.0, 1.0]
    coords = {"samples": [2, 4, 8, 16, 32, 64], "snr": np.geomspace(0.1, 10, 9)}
    edge = boundary(xr.DataArray([row] * 5 + [last], coords, list(coords)), 0.5)
    assert edge.critical.notnull().all()
    assert edge.fit is None
    assert holds(edge.reason, NO_BOUNDARY, "1 of 6", "stay beyond", " 4 ")
    assert edge.constant_for(2.0).high == math.inf


def test_rows_that_never_cross_are_information():
    """Two rows that never cross within the grid move the law towards what they exclude."""
    values = ramp(100.0, 2.0, seeds=4, noise=0.05, rng=np.random.default_rng(3))
    short = values.sel(snr=values.snr < 4.5)  # rows 2 and 4 cross at 7.1 and 5
    edge = boundary(short, 0.5)
    assert list(edge.critical.isnull().values[:3]) == [True, True, False]
    late = short.copy()
    late[:2] = 0.9  # past the level at once: below the first column
    assert edge.fit is not None
    assert edge.fit.slope == pytest.approx(-0.5, abs=0.06)
    moved = boundary(late, 0.5)
    assert moved.fit is None or moved.fit.slope > edge.fit.slope + 0.1


def test_the_shift_of_two_boundaries_is_counted_by_seed():
    rng = np.random.default_rng(5)
    seeds = 0.1 * 0.4 * rng.standard_normal(5)  # 0.4 in log column, in both maps
    own = 0.1 * 0.05 * rng.standard_normal(5)
    first = ramp(50.0, 2.0, seeds=5, noise=0.02, rng=rng) - seeds
    second = ramp(200.0, 2.0, seeds=5, noise=0.02, rng=rng) - seeds - own
    edges = boundary(first, 0.5), boundary(second, 0.5)
    shift = boundary_shift(*edges, exponent=2.0)
    np.testing.assert_allclose(shift, math.log(4) + 2 * own / 0.1, atol=0.06)
    np.testing.assert_allclose(boundary_shift(edges[1], edges[0]), -shift, atol=1e-9)
    low, high = mean_interval(shift.values)[1:]
    assert low < math.log(4) < high
    assert high - low < 0.4
    # Beyond the grid the last column is a bound: rows of the second that do not cross still count.
    narrow = boundary(second.sel(snr=second.snr < 7), 0.5)
    assert narrow.critical.isnull().any()
    np.testing.assert_allclose(boundary_shift(edges[0], narrow), shift, atol=0.08)
    with pytest.raises(ValueError, match=says("same rows and seeds")):
        boundary_shift(edges[0], boundary(second.isel(seed=slice(3)), 0.5))
    with pytest.raises(ValueError, match=says("0 of 7 samples rows")):
        boundary_shift(edges[0], boundary(second, 5.0))
