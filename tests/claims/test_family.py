"""Multiplicity: Holm's p-values by inversion of intervals, and the rate of false refutations in a family."""

import math

import numpy as np
import pytest
import xarray as xr
from scipy import stats

from benign.claims import (
    Claims,
    Direction,
    Evidence,
    Kind,
    Measured,
    Undecided,
    at_least,
    at_most,
    between,
    contains,
    exact,
    judge,
    mean,
    share,
)
from benign.claims.family import InFamily, belongs, families, holm
from benign.claims.frozen import ERROR_RATE
from benign.claims.verdict import LEAST_P, Ends
from benign.stats.intervals import clopper_pearson
from benign.stats.monotone import largest_fall

DRAWS = [0.3, 0.55, 0.1, 0.62, 0.44, 0.21]


@pytest.mark.parametrize("rule", [at_least(0.7), between(0.7, 0.8), contains(0.7)])
def test_a_p_value_inverts_the_interval_of_a_mean(rule):
    _, expected = stats.ttest_1samp(DRAWS, 0.7)
    assert Ends(mean("x", DRAWS)).p_value(rule) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(("hits", "trials", "bound"), [(0, 14, 0.5), (3, 14, 0.5), (5, 40, 0.4)])
def test_a_p_value_of_a_share_is_that_of_the_exact_one_sided_test(hits, trials, bound):
    measured = share("x", [True] * hits + [False] * (trials - hits))
    expected = stats.binom.cdf(hits, trials, bound)
    assert Ends(measured).p_value(at_least(bound)) == pytest.approx(expected, rel=1e-5)
    assert Ends(measured).p_value(at_most(bound)) == 1.0


@pytest.mark.parametrize(
    ("measured", "rule", "p_value"),
    [
        (exact("x", 1.0), at_most(0.5), 0.0),
        (exact("x", math.inf), at_most(0.5), 0.0),
        (exact("x", 0.1), at_most(0.5), 1.0),
        (exact("x", 0.1), contains(0.5), 0.0),
        (mean("x", [3.0]), at_most(0.5), 1.0),  # one seed: an infinite interval
        (mean("x", DRAWS), at_least(0.1), 1.0),
        (mean("x", DRAWS), contains(float(np.mean(DRAWS))), 1.0),
        (share("x", [False] * 200), at_least(0.9), LEAST_P),
    ],
)
def test_extreme_p_values(measured, rule, p_value):
    assert Ends(measured).p_value(rule) == p_value


def test_a_p_value_from_samples_is_not_smaller_than_they_can_show():
    """The interval of a fall is drawn by chance: its ends stayed where they are at any higher confidence."""
    noise = np.random.default_rng(0).normal(0.0, 0.1, (4, 3, 5))
    values = xr.DataArray(noise - 0.2 * np.arange(5), dims=("seed", "row", "column"))
    fall = largest_fall(values.assign_coords(column=np.arange(5)), "column")
    reaches = [fall.at(1 - alpha).high - fall.value for alpha in (1e-2, 1e-5, 1e-8)]
    assert reaches[0] < reaches[1] < reaches[2]
    measured = Measured.by("x", fall.at, "4 seeds")
    assert 1e-9 < Ends(measured).p_value(at_most(0.2)) < 0.05


def test_attacks_refute_from_one_side_only():
    """An attack bounds accuracy from above: it refutes `at least`, and never `at most`."""
    low, high = mean("x", [0.4, 0.5, 0.45]), mean("x", [0.95, 0.99, 0.97])
    assert Ends(low, Direction.RISES).p_value(at_least(0.9)) < 0.01
    assert Ends(high, Direction.RISES).p_value(at_most(0.6)) == 1.0
    assert Ends(high, Direction.FALLS).p_value(at_most(0.6)) < 0.01


def test_holm_steps_down():
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.01, 0.04, 0.03], size=5) == pytest.approx([0.05, 0.12, 0.12])
    assert holm([0.5, 0.9]) == [1.0, 1.0]
    assert holm([0.0, 1.0], size=74) == [0.0, 1.0]
    assert holm([]) == []
    with pytest.raises(ValueError, match="size"):
        holm([0.1, 0.2], size=1)
    with pytest.raises(ValueError, match="p-values"):
        holm([math.nan])


@pytest.mark.parametrize("shared", [0.0, 0.6], ids=["independent", "dependent"])
def test_a_family_refutes_true_claims_in_at_most_5_percent(shared):
    """4,000 families of 20 claims at 6 seeds: 15 hold, just so; 5 fail clearly. `shared` is the correlation."""
    count, claims, seeds = 4000, 20, 6
    random = np.random.default_rng(1)
    common = random.standard_normal((count, 1, seeds))
    own = random.standard_normal((count, claims, seeds))
    draws = math.sqrt(shared) * common + math.sqrt(1 - shared) * own
    draws[:, 15:] -= 5.0
    p_values = np.asarray(stats.ttest_1samp(draws, 0.0, axis=2)[1])
    p_values[draws.mean(2) > 0] = 1.0  # the claims say `at least 0`
    alone = held = false = 0
    for row in p_values:
        adjusted = np.array(holm(row.tolist()))
        alone += bool((row[:15] <= ERROR_RATE).any())
        false += bool((adjusted[:15] <= ERROR_RATE).any())
        held += int((adjusted[15:] <= ERROR_RATE).sum())
    band = clopper_pearson(false, count, 0.99)
    assert band.low <= ERROR_RATE, band
    assert alone / count > 2 * ERROR_RATE  # without a correction
    assert held / (5 * count) > 0.8


CLAIMS = Claims("me")


@CLAIMS.add("thm1.far", "Theorem 1", at_least(2.0))
def far(evidence):
    """Far off."""
    return mean("x", DRAWS)


@CLAIMS.add("thm1.near", "Theorem 1", at_least(0.6))
def near(evidence):
    """Off by less."""
    return mean("x", DRAWS)


@CLAIMS.add("thm1.open", "Theorem 1", at_least(0.0))
def unknown(evidence):
    """Nothing is known."""
    raise Undecided("vacuous")


@CLAIMS.add("thm1.sum", "Theorem 1", at_most(0.0), kind=Kind.IDENTITY)
def identity(evidence):
    """An identity that fails."""
    return exact("x", 1.0)


@CLAIMS.add("thm1.ours", "derived", at_least(2.0))
def ours(evidence):
    """Ours."""
    return mean("x", DRAWS)


def test_the_family_is_what_the_paper_states_and_runs_could_contradict():
    assert [claim.id for claim in CLAIMS if belongs(claim)] == [
        "me/thm1.far",
        "me/thm1.near",
        "me/thm1.open",
    ]
    verdicts = [judge(claim, Evidence()) for claim in CLAIMS]
    assert [each.label for each in verdicts] == ["refuted", "refuted", "inconclusive"] + [
        "refuted"
    ] * 2
    far_, near_, open_, *others = families(verdicts, {"me": 4}, {"me"})
    assert others == [None, None]
    assert far_
    assert near_
    assert open_
    assert far_.p_value == pytest.approx(4 * verdicts[0].p_value)
    assert far_.text("refuted").startswith("refuted; holds up against 4 claims (Holm p = ")
    assert near_.p_value == pytest.approx(3 * verdicts[1].p_value)
    assert near_.text("refuted").startswith("refuted alone, not among 4 claims (Holm p = 0.")
    assert (open_.p_value, open_.holds_up) == (1.0, False)


def test_a_part_of_a_family_is_not_corrected():
    far_claim = next(iter(CLAIMS))
    [place] = families([judge(far_claim, Evidence())], {"me": 4}, ())
    assert place
    assert place == InFamily("me", 4, 1, None)
    assert place.as_dict()["holds up"] is None
    assert place.text("refuted") == (
        "refuted; no correction for the number of claims was made: 1 of 4 claims of me judged"
    )
