"""What an experiment would cost: which part of its time is known before."""

import pytest

from benign.plan.estimate import estimate
from tests.tiny import tiny


def seconds(*losses: float) -> tuple[float, float]:
    """Least and most time of the small experiment with these losses to reach."""
    cost = estimate(tiny(f"training.stop_loss={list(losses)}").units(), "cpu")
    return cost.least_seconds, cost.most_seconds


def test_only_runs_that_may_end_early_have_an_uncertain_time():
    least, most = seconds(0.0)
    assert least == most
    assert seconds(0.01)[0] < most / 10
    assert seconds(0.01)[1] == most
    lower, upper = seconds(0.0, 0.01)  # of which half the runs take all steps
    assert lower == pytest.approx(upper / 2, rel=0.2)
