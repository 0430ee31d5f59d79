"""Numbers with intervals: coverage at the stated rate, missing seeds counted."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from benign.claims import (
    Measured,
    Undecided,
    exact,
    largest_mean,
    mean,
    share,
    slope,
    slope_by_seed,
    smallest_mean,
    worst,
    worst_of_runs,
)
from benign.stats import Estimate
from tests.says import says


def _misses(count, trials: int, rate: float) -> bool:
    """Whether the number of misses is incompatible with a rate, at a chance of 1e-4."""
    return bool(stats.binomtest(int(count), trials, rate).pvalue < 1e-4)


def test_the_interval_of_a_mean_covers_the_truth_as_often_as_it_says():
    draws = np.random.default_rng(0).normal(3.0, 2.0, (2000, 6))
    estimates = [mean("x", row).estimate for row in draws]
    assert not _misses(sum(not each.low <= 3.0 <= each.high for each in estimates), 2000, 0.05)


def test_the_interval_of_a_slope_covers_the_truth_as_often_as_it_says():
    random, x = np.random.default_rng(1), np.linspace(0, 1, 5)
    rows = -0.5 * x + random.normal(0, 0.1, (2000, 5))
    estimates = [slope("b", x, row).estimate for row in rows]
    assert not _misses(sum(not each.low <= -0.5 <= each.high for each in estimates), 2000, 0.05)


def test_slopes_by_seed_account_for_errors_shared_along_the_axis():
    random, x = np.random.default_rng(2), np.linspace(0, 1, 5)
    lucky = -0.5 * x + random.normal(0, 1, (2000, 8, 1)) + random.normal(0, 0.1, (2000, 8, 5))
    estimates = [slope_by_seed("b", x, rows).estimate for rows in lucky]
    assert not _misses(sum(not each.low <= -0.5 <= each.high for each in estimates), 2000, 0.05)


@pytest.mark.parametrize(("hits", "shown"), [(14, 0.8), (29, 0.9), (5, 0.54)])
def test_shares_reach_the_bounds_of_the_rules(hits, shown):
    """claim_rules.md: 14 seeds without failure for 0.8, 29 for 0.9, 5 of 5 show only 0.55."""
    assert share("ok", [True] * hits).estimate.low >= shown
    assert share("ok", [True] * (hits - 1)).estimate.low < share("ok", [True] * hits).estimate.low


def test_each_end_of_a_share_is_a_bound_at_95_percent():
    """Exactly: each number of hits of 20 has its chance."""
    hits = np.arange(21)
    estimates = [share("ok", [True] * k + [False] * (20 - k)).estimate for k in hits]
    chance = stats.binom.pmf(hits, 20, 0.7)
    for missed in ([e.low > 0.7 for e in estimates], [e.high < 0.7 for e in estimates]):
        assert 0.001 < chance[missed].sum() < 0.05


def test_missing_seeds_are_counted_and_too_many_decide_nothing():
    assert mean("x", [1, 2, 3, 4, math.nan]).note.startswith("1 of 5 seeds")
    with pytest.raises(Undecided, match=says("x", "3 of 5", "seeds")):
        mean("x", [1, 2, 3, math.nan, math.inf])


def test_what_cannot_be_measured_is_undecided():
    with pytest.raises(Undecided, match=r"^x\b.*number"):
        exact("x", math.nan)
    with pytest.raises(Undecided, match=r"^x\b"):
        worst("x", [])
    with pytest.raises(Undecided, match=says("b: ", "2 points")):
        slope("b", [1, 2], [1, 2])
    with pytest.raises(Undecided, match=r"^ok\b"):
        share("ok", [])


@pytest.mark.parametrize("seeds", [2, 5, 20])
@pytest.mark.parametrize("log", [False, True])
def test_the_next_seed_exceeds_the_worst_of_runs_as_rarely_as_it_says(seeds, log):
    """For normal values exactly 5 %, for the logarithms of lognormal ones too; the largest so far can only lower it."""
    random = np.random.default_rng(seeds)
    draws = random.normal(0.0, 0.5, (4000, seeds + 1))
    draws = np.exp(draws) if log else draws
    ends = [worst_of_runs("x", row[:seeds], log).estimate.high for row in draws]
    assert not _misses((draws[:, seeds] > ends).sum(), 4000, 0.05)


def test_fewer_seeds_confirm_less():
    values = [0.5, 0.52, 0.51, 0.49, 0.5]
    ends = [worst_of_runs("x", values[:count]).estimate for count in (1, 2, 3, 5)]
    assert [math.isinf(end.high) for end in ends] == [True, False, False, False]
    assert ends[1].high > ends[2].high > ends[3].high > max(values)
    assert ends[3].low == ends[3].value == 0.52


def test_the_worst_of_a_seed_is_over_its_cells():
    rows = [[1.0, 5.0], [2.0, 4.0]]
    assert worst_of_runs("x", rows).estimate.value == 5.0
    assert worst_of_runs("x", rows).basis == "largest of 2 seeds"
    with pytest.raises(ValueError, match=says("log", "positive", "-1")):
        worst_of_runs("x", [-1.0, 2.0], log=True)


@pytest.mark.parametrize(
    "measured",
    [
        mean("x", [1.0, 2.0, 4.0]),
        share("x", [True, True, False]),
        worst_of_runs("x", [1.0, 2.0, 4.0]),
        slope("x", [1.0, 2.0, 3.0], [1.0, 2.0, 4.0]),
    ],
    ids=["mean", "share", "worst", "slope"],
)
def test_intervals_are_nested_and_known_at_any_confidence(measured):
    ends = [measured.at(confidence) for confidence in (0.5, 0.9, 0.95, 0.999)]
    assert ends[2] == measured.estimate
    for inner, outer in itertools.pairwise(ends):
        assert outer.low <= inner.low <= inner.high <= outer.high


def test_a_number_with_sampling_error_needs_its_interval():
    with pytest.raises(ValueError, match=says("x", "interval")):
        Measured("x", Estimate(1.0, 0.5, 1.5), "guess")


def test_the_largest_mean_covers_whichever_cell_is_largest():
    """Nine cells with one mean: the t interval of the cell that happens to be largest would miss it often."""
    generator, misses, alone = np.random.default_rng(0), 0, 0
    for _ in range(400):
        rows = generator.standard_normal((6, 9))
        _, low, high = largest_mean("x", rows).estimate
        misses += not low <= 0 <= high
        _, low, high = mean("x", rows[:, rows.mean(0).argmax()]).estimate
        alone += not low <= 0 <= high
    assert misses <= 28  # 5 %, and two standard errors
    assert alone > 60


def test_the_largest_mean_needs_seeds_and_is_of_all_cells():
    rows = np.array([[0.1, 0.5], [0.12, 0.52], [0.11, 0.54]])
    measured = largest_mean("x", rows)
    assert measured.estimate.value == pytest.approx(0.52)
    assert measured.estimate.low > 0.4
    assert measured.basis == "2 cells of 3 seeds"
    assert math.isinf(largest_mean("x", rows[:1]).estimate.high)
    with pytest.raises(Undecided):
        largest_mean("x", [[math.nan, 1.0], [math.nan, 1.0]])


def test_the_largest_mean_by_size_is_a_distance():
    rows = np.array([[0.1, -0.5], [0.12, -0.52], [0.11, -0.54]])
    value, low, high = largest_mean("x", rows, absolute=True).estimate
    assert value == pytest.approx(0.52)
    assert 0.4 < low < value < high
    noise = np.random.default_rng(0).normal(0, 1, (5, 3))
    assert largest_mean("x", noise, absolute=True).estimate.low == 0


def test_seeds_that_agree_by_chance_leave_no_zero_width():
    """Two seeds, of which both miss 3 of 50 points."""
    rows = np.array([[0.06, 0.0], [0.06, 0.0]])
    assert largest_mean("x", rows).estimate.low == 0.06
    low, high = largest_mean("x", rows, resolution=1 / 50).estimate[1:]
    assert low < 0 < 0.1 < high


def test_the_smallest_mean_is_the_largest_of_negative_values():
    rows = np.random.default_rng(3).standard_normal((7, 4))
    value, low, high = smallest_mean("x", rows).at(0.9)
    assert (-value, -high, -low) == tuple(largest_mean("x", -rows).at(0.9))
    assert value == pytest.approx(rows.mean(0).min())
