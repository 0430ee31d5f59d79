"""Numbers with intervals: coverage at the stated rate, missing seeds counted."""

import math

import numpy as np
import pytest
from scipy import stats

from benign.claims import Undecided, exact, mean, share, slope, slope_by_seed, worst
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
