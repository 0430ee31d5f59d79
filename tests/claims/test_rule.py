"""Rules: holds, fails or inconclusive, by interval."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benign.claims import Outcome, at_least, at_most, between, contains, exponent
from benign.stats.intervals import Estimate, interval_text
from tests.says import holds, says

HOLDS, FAILS, INCONCLUSIVE = Outcome.HOLDS, Outcome.FAILS, Outcome.INCONCLUSIVE

CASES = [
    (at_least(0.9), (0.91, 0.99), HOLDS),
    (at_least(0.9), (0.85, 0.95), INCONCLUSIVE),
    (at_least(0.9), (0.80, 0.89), FAILS),
    (at_least(0.95, fails_below=0.6), (0.70, 0.80), INCONCLUSIVE),
    (at_least(0.95, fails_below=0.6), (0.50, 0.55), FAILS),
    (at_most(1e-10), (1e-12, 1e-12), HOLDS),
    (at_most(1e-6, fails_above=1e-3), (1e-4, 1e-4), INCONCLUSIVE),
    (at_most(1e-6, fails_above=1e-3), (2e-3, 2e-3), FAILS),
    (between(-1.15, -0.85), (-1.1, -0.9), HOLDS),
    (between(-1.15, -0.85), (-1.3, -0.7), INCONCLUSIVE),
    (between(-1.15, -0.85), (-0.8, -0.5), FAILS),
    (contains(-0.5, (-0.25,)), (-0.6, -0.4), HOLDS),
    (contains(-0.5, (-0.25,)), (-0.6, -0.2), INCONCLUSIVE),
    (contains(-0.5, (-0.25,)), (-0.4, -0.2), FAILS),
    (at_least(0.9), (-math.inf, math.inf), INCONCLUSIVE),
]


@pytest.mark.parametrize(("rule", "ends", "outcome"), CASES)
def test_an_interval_decides(rule, ends, outcome):
    estimate = Estimate(sum(ends) / 2, *ends)
    assert rule.judge(estimate) is outcome
    if outcome is INCONCLUSIVE:
        assert holds(rule.reason(estimate), interval_text(ends), "seeds")


@given(
    st.floats(-5, 5),
    st.floats(0, 3),
    st.floats(-5, 5),
    st.floats(0, 3),
    st.floats(0, 2),
    st.floats(0, 2),
)
def test_a_range_never_holds_and_fails_for_intervals_around_one_truth(
    low, width, centre, half, a, b
):
    rule = between(low, low + width, low - a, low + width + b)
    truth = Estimate(centre, centre, centre)
    wide = Estimate(centre, centre - half, centre + half)
    decided = rule.judge(wide)
    assert decided is INCONCLUSIVE or decided is rule.judge(truth)


def test_a_rule_that_fails_where_it_holds_is_refused():
    with pytest.raises(ValueError, match=says("low=0.5", "fails_below=0.6")):
        at_least(0.5, fails_below=0.6)


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        (at_least(0.95, 0.6), ">= 0.95 (fails if < 0.6)"),
        (at_most(1e-10), "<= 1e-10"),
        (between(-1.15, -0.85), "in [-1.15, -0.85]"),
        (contains(-0.5, (-0.25,)), "-0.5 and not -0.25"),
    ],
)
def test_rules_are_written_as_text(rule, text):
    assert str(rule) == text


def test_printed_and_derived_exponents_have_one_rule():
    for claimed, rivals in ((-0.5, (-1 / 3, -0.25)), (2, (1.5, 3, 4)), (4, (3, 5)), (-1, (0, -2))):
        rule = exponent(claimed)
        assert rule.judge(Estimate(claimed, claimed, claimed)) is HOLDS
        assert all(rule.judge(Estimate(each, each, each)) is FAILS for each in rivals)
    assert str(exponent(0)) == "in [-0.2, 0.2]"
