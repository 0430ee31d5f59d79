"""Verdicts: outcome and conditions, planted truths, doubts about attacks."""

import dataclasses
import json

import numpy as np
import pytest
import xarray as xr

import benign as bo
from benign.claims import (
    Claims,
    Evidence,
    Outcome,
    Undecided,
    at_least,
    at_most,
    exact,
    judge,
    mean,
)
from benign.claims.conditions import Condition, Conditions
from tests.says import says


def _experiment(signal):
    return bo.Experiment(
        data=bo.Mixture(samples=4, dim=5, signal=signal),
        network=bo.Linear(),
        training=bo.GradientDescent(rate=0.1, max_steps=3),
        seeds=3,
    )


def _evidence(values, signal: float | list[float] = 4.0):
    data = {"accuracy": ("seed", np.asarray(values, dtype=float))}
    return Evidence("quick", {}, (xr.Dataset(data),), (_experiment(signal),))


def _claim(rule=None, statistic=None, **more):
    claims = Claims("me")

    def accuracy(evidence):
        """Accuracy is at least 0.9."""
        return mean("accuracy", evidence.result.accuracy)

    claims.add("thm1", "Theorem 1", rule or at_least(0.9), **more)(statistic or accuracy)
    (claim,) = claims
    return claim


def strong_signal(cell):
    return Conditions("Theorem 1", (Condition.at_least("(1)", "|mu| >= 3", cell.data.signal, 3.0),))


GOOD, BAD, VAGUE = [0.95, 0.951, 0.952], [0.70, 0.701, 0.702], [0.6, 0.9, 0.99]


@pytest.mark.parametrize(
    ("values", "signal", "word"),
    [
        (GOOD, 4.0, "confirmed"),
        (BAD, 4.0, "refuted"),
        (VAGUE, 4.0, "inconclusive"),
        (GOOD, 1.0, "holds outside its conditions"),
        (BAD, 1.0, "fails outside its conditions"),
        (BAD, [1.0, 4.0], "fails outside its conditions"),
    ],
)
def test_a_verdict_has_two_parts(values, signal, word):
    verdict = judge(_claim(conditions=strong_signal), _evidence(values, signal=signal))
    assert verdict.label == word
    assert (verdict.reason != "") == (word == "inconclusive")
    assert verdict.conditions.ratios == {"(1)": np.min(signal) / 3}


@pytest.mark.parametrize(
    ("scale", "words"),
    [
        ("quick", ["holds at a smaller size", "fails at a smaller size"]),
        ("paper", ["confirmed", "refuted"]),
    ],
)
def test_a_figure_is_refuted_only_at_its_own_size(scale, words):
    claims = Claims("me")

    @claims.add("fig1", "Figure 1, left", at_least(0.9))
    def accuracy(evidence):
        """Accuracy is high."""
        return mean("accuracy", evidence.result.accuracy)

    (claim,) = claims
    evidence = [dataclasses.replace(_evidence(values), scale=scale) for values in (GOOD, BAD)]
    assert [judge(claim, each).label for each in evidence] == words


def test_only_deciding_parts_give_the_reason():
    def two(evidence):
        """Both."""
        return {"a": mean("x", GOOD), "b": mean("x", VAGUE)}

    verdict = judge(
        _claim({"a": at_least(0.9), "b": at_least(0.9)}, two, informational=("b",)), Evidence()
    )
    assert (verdict.label, verdict.reason) == ("confirmed", "")


def test_cells_that_a_theorem_does_not_cover_do_not_count():
    def elsewhere(cell):
        return strong_signal(cell) if cell.data.signal > 2 else None

    verdict = judge(_claim(conditions=elsewhere), _evidence(GOOD, signal=[1.0, 4.0]))
    assert (verdict.label, verdict.conditions.cells, verdict.conditions.inside) == (
        "confirmed",
        1,
        1,
    )


def test_parts_are_judged_apart_and_informational_ones_do_not_decide():
    def two(evidence):
        """Both."""
        return {"printed": exact("a", 2.0), "derived": exact("b", 1.0)}

    rules = {"printed": at_most(1.5), "derived": at_most(1.5)}
    verdict = judge(_claim(rules, two), Evidence())
    assert [part.outcome.value for part in verdict.parts] == ["fails", "holds"]
    assert verdict.outcome is Outcome.FAILS
    informational = judge(_claim(rules, two, informational=("printed",)), Evidence())
    assert informational.outcome is Outcome.HOLDS


@pytest.mark.parametrize(
    "parts", [{}, {"a": exact("a", 1.0)}, {"a": exact("a", 9.0)}], ids=["none", "holds", "fails"]
)
def test_without_a_part_that_decides_nothing_is_decided(parts):
    def statistic(evidence):
        """Anything."""
        return parts

    verdict = judge(_claim({"a": at_most(2.0)}, statistic, informational=("a",)), Evidence())
    assert (verdict.outcome, verdict.label) == (Outcome.INCONCLUSIVE, "inconclusive")
    assert "number" in verdict.reason


def test_a_vacuous_bound_is_inconclusive_and_says_so():
    def vacuous(evidence):
        """Nothing."""
        raise Undecided("vacuous: the bound is 3 nats, more than log 2")

    verdict = judge(_claim(statistic=vacuous), Evidence())
    assert (verdict.label, verdict.reason) == (
        "inconclusive",
        "vacuous: the bound is 3 nats, more than log 2",
    )


def test_an_error_of_the_program_is_not_a_verdict():
    def broken(evidence):
        """Nothing."""
        return mean("x", evidence.result.nonsense)

    verdict = judge(_claim(statistic=broken), _evidence(GOOD))
    assert verdict.label == "error"
    assert "nonsense" in verdict.error


def test_a_verdict_is_plain_json():
    one_seed = judge(_claim(conditions=strong_signal), _evidence([0.95]))
    written = json.loads(json.dumps(one_seed.as_dict(), allow_nan=False))
    assert (written["parts"][0]["low"], written["parts"][0]["basis"]) == ("-inf", "1 seed")
    assert written["setting"] == "inside"


def test_a_claim_needs_a_statement():
    with pytest.raises(ValueError, match=says("me/lem2", "docstring")):
        Claims("me").add("lem2", "Lemma 2", at_most(0))(lambda evidence: exact("x", 0))
