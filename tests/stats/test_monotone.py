"""Monotonicity of maps against scipy's tau-b and plain counting."""

import itertools
import math
from typing import Any

import numpy as np
import pytest
import xarray as xr
from scipy import stats

from benign.stats import largest_fall, monotone
from tests.says import says


def a_map(values: np.ndarray) -> xr.DataArray:
    return xr.DataArray(
        values, {"snr": np.arange(values.shape[1]) + 1.0}, ("samples", "snr", "seed")
    )


def test_one_line_has_scipys_tau():
    rng = np.random.default_rng(0)
    line = rng.integers(0, 5, (1, 12, 1)).astype(float)
    order = monotone(a_map(line), "snr")
    expected: Any = stats.kendalltau(np.arange(12), line[0, :, 0])
    assert order.tau.value == pytest.approx(expected.statistic, rel=1e-12)
    assert (order.tau.low, order.tau.high, order.share.low, order.share.high) == (-1, 1, 0, 1)


def test_pairs_of_all_lines_are_counted_together():
    rng = np.random.default_rng(1)
    values = rng.integers(0, 4, (3, 6, 4)).astype(float)
    values[2, 3] = math.nan
    mean, up, down, tied = values.mean(-1), 0, 0, 0
    for line in mean:
        for a, b in itertools.combinations(line[~np.isnan(line)], 2):
            up, down, tied = up + (b > a), down + (b < a), tied + (a == b)
    order = monotone(a_map(values), "snr", noise=0)
    assert order.share.value == pytest.approx(up / (up + down), rel=1e-12)
    assert order.tau.value == pytest.approx(
        (up - down) / math.sqrt((up + down) * (up + down + tied)), rel=1e-12
    )
    assert (order.pairs, order.lines, order.of) == (up + down, 3, 3)
    reversed_map = a_map(values).isel(snr=slice(None, None, -1))
    assert monotone(reversed_map, "snr", noise=0) == order
    along_rows = monotone(a_map(values), "samples", noise=0)
    assert along_rows.of == 6


def test_flat_lines_are_left_out():
    rng = np.random.default_rng(2)
    rising = np.linspace(0, 1, 10)[None, :, None] + 0.01 * rng.standard_normal((2, 10, 8))
    flat = 0.01 * rng.standard_normal((3, 10, 8))
    order = monotone(a_map(np.concatenate([rising, flat])), "snr")
    assert (order.lines, order.of) == (2, 5)
    assert order.tau.value == pytest.approx(1)
    with pytest.raises(ValueError, match=says("snr", " 1 ", "order")):
        monotone(a_map(flat), "snr", noise=1.0)
    with pytest.raises(ValueError, match=says("`along`", "'snr'", "'radius'")):
        monotone(a_map(flat), "radius")


@pytest.mark.parametrize("seeds", [4, 8])
def test_intervals_of_a_known_order_cover(seeds: int):
    """True share of rising pairs of noisy means, over many maps, against the intervals of single maps."""
    rng = np.random.default_rng(3)
    truth = np.linspace(0, 1, 6)[None, :, None]
    maps = [truth + rng.standard_normal((4, 6, seeds)) for _ in range(150)]
    order = [monotone(a_map(each), "snr", noise=0) for each in maps]
    mean = np.mean([each.tau.value for each in order])
    missed = sum(not each.tau.low <= mean <= each.tau.high for each in order)
    assert missed <= stats.binom.ppf(1 - 1e-4, 150, 0.05)


def test_the_largest_fall_is_found_and_significant():
    rng = np.random.default_rng(4)
    mean = np.tile(np.linspace(0.5, 1.0, 8), (4, 1))
    mean[2, 6] = 0.6  # from 0.86 at the sixth place
    fall = largest_fall(a_map(mean[..., None] + 0.02 * rng.standard_normal((4, 8, 6))), "snr")
    assert (fall.start, fall.end) == (6.0, 7.0)
    truth = mean[2, 5] - 0.6
    assert fall.value == pytest.approx(truth, abs=0.03)
    assert 0 < fall.estimate.low < truth < fall.estimate.high < truth + 0.12
    assert fall.at(0.5).low > fall.estimate.low
    assert fall.at(0.5).high < fall.estimate.high
    assert "from snr 6" in str(fall)
    up = largest_fall(a_map(np.sort(mean, 1)[..., None] + np.zeros(3)), "snr")
    assert up.estimate == (0, 0, 0)


def test_a_fall_of_noise_is_not_significant():
    rng = np.random.default_rng(5)
    rises = np.linspace(0, 1, 8)[None, :, None]
    falls = [largest_fall(a_map(rises + 0.4 * rng.standard_normal((4, 8, 5))), "snr") for _ in range(60)]  # fmt: skip
    assert np.mean([each.value for each in falls]) > 0.1
    assert sum(each.estimate.low > 0 for each in falls) <= stats.binom.ppf(1 - 1e-4, 60, 0.025)
    assert all(each.estimate.high > 0 for each in falls)


def test_falls_with_missing_runs_and_one_seed():
    values = a_map(np.array([[0.5, 0.8, 0.6], [0.5, 0.6, 0.7]])[..., None] + np.zeros(1))
    assert largest_fall(values, "snr").estimate == pytest.approx((0.2, 0, math.inf))
    assert largest_fall(-values, "samples").value == pytest.approx(0.1)
    holes = a_map(np.repeat(values.values, 3, -1))
    holes[0, 1] = math.nan
    holes[1, 2, 0] = math.nan
    assert largest_fall(holes, "snr").value == 0
    with pytest.raises(ValueError, match=says("`along`", "'radius'")):
        largest_fall(values, "radius")
