"""The ladder of seeds: its rungs, when it stops, and how often all looks together decide wrongly."""

import math

import numpy as np
import pytest
import xarray as xr

import benign as bo
from benign.claims import (
    Claims,
    Evidence,
    Kind,
    Outcome,
    Undecided,
    at_least,
    at_most,
    exact,
    judge,
    mean,
)
from benign.claims.conditions import Condition, Conditions
from benign.claims.frozen import ERROR_RATE, LADDER
from benign.claims.ladder import confidence_of, rungs_of
from benign.claims.verdict import Ends, judge_on
from benign.stats.intervals import clopper_pearson, t_quantile

RANDOM = np.random.default_rng(0)
WIDE = RANDOM.normal(0.0, 1.0, 40)
"""about zero: no number of seeds decides whether it is at least zero"""


def _claim(statistic=None, rule=None, **more):
    claims = Claims("me")

    def average(evidence):
        """The mean is not negative."""
        return mean("x", evidence.result.x)

    claims.add("thm1", "Theorem 1", rule or at_least(0.0), **more)(statistic or average)
    (claim,) = claims
    return claim


def _experiment(seeds):
    return bo.Experiment(
        data=bo.Mixture(samples=4, dim=5, signal=1.0),
        network=bo.Linear(),
        training=bo.GradientDescent(rate=0.1, max_steps=3),
        seeds=seeds,
    )


def _on_ladder(claim, values, rungs=LADDER):
    looked = []

    def judge_at(seeds, confidence):
        looked.append(seeds)
        result = xr.Dataset({"x": ("seed", np.asarray(values[:seeds]))})
        evidence = Evidence("quick", {}, (result,), (_experiment(seeds),))
        return judge(claim, evidence, confidence)

    return judge_on(rungs, judge_at), looked


def test_the_first_rung_is_what_the_studies_have():
    claim = _claim()
    assert rungs_of(claim, [5]) == (5, 10, 20, 40)
    assert rungs_of(claim, [2]) == (5, 10, 20, 40)
    assert rungs_of(claim, [14, 29]) == (14, 20, 40)
    assert rungs_of(claim, [60]) == (60,)
    assert rungs_of(claim, []) == ()
    assert rungs_of(_claim(kind=Kind.IDENTITY), [5]) == ()
    assert confidence_of((5, 10, 20, 40)) == 0.9875
    assert confidence_of((60,)) == 0.95


def test_seeds_are_added_until_the_claim_is_decided():
    values = np.where(np.arange(40) % 2, 1.0, -0.2) + 0.001 * RANDOM.normal(size=40)
    verdict, looked = _on_ladder(_claim(), values)
    assert (verdict.outcome, looked) == (Outcome.HOLDS, [5, 10, 20])
    assert verdict.rung is not None
    assert verdict.rung.text() == (
        "ladder: rung 3 of 4 (20 seeds, intervals of 98.75 %), decided; 3.75 % of the error rate of 5 % spent, "
        "1.25 % left"
    )
    assert verdict.as_dict()["ladder"] == {
        "rungs": [5, 10, 20, 40], "rung": 3, "stop": "decided", "spent": 0.0375, "left": 0.0125,
    }  # fmt: skip
    assert verdict.confidence == 0.9875
    [part] = verdict.parts
    assert part.measured is not None
    assert part.measured.estimate == part.measured.at(0.9875)  # what is shown is what decided


def test_the_ladder_ends_at_40():
    verdict, looked = _on_ladder(_claim(), WIDE)
    assert (verdict.outcome, looked) == (Outcome.INCONCLUSIVE, [5, 10, 20, 40])
    assert verdict.rung is not None
    assert (verdict.rung.stop, verdict.rung.spent) == ("no rung is left", ERROR_RATE)


def _vacuous(evidence):
    """Nothing at all."""
    raise Undecided("vacuous")


def _equal(evidence):
    """Zero width, between the bounds."""
    return exact("x", 0.5)


def _far(cell):
    return Conditions("Theorem 1", (Condition.at_least("(1)", "|mu| >= 3", cell.data.signal, 3.0),))


@pytest.mark.parametrize(
    "claim",
    [
        _claim(_vacuous),
        _claim(_equal, at_most(0.4, fails_above=0.6)),
        _claim(conditions=_far),
    ],
    ids=["vacuous", "zero width", "outside its conditions"],
)
def test_seeds_that_cannot_help_are_not_added(claim):
    verdict, looked = _on_ladder(claim, WIDE)
    assert (verdict.outcome, looked) == (Outcome.INCONCLUSIVE, [5])
    assert verdict.rung is not None
    assert verdict.rung.stop == "more seeds can neither confirm nor refute it"


def test_a_p_value_counts_for_all_rungs():
    verdict, looked = _on_ladder(_claim(rule=at_least(3.0)), WIDE)
    alone = judge(_claim(rule=at_least(3.0)), verdict.evidence)
    assert looked == [5] or looked == [5, 10]
    assert verdict.rung is not None
    assert verdict.p_value == pytest.approx(4 * verdict.rung.least_p)
    assert verdict.p_value == pytest.approx(4 * alone.p_value)


def _wrong(draws: np.ndarray, confidences: dict[int, float]) -> np.ndarray:
    """Return whether each simulation excludes the truth, 0, at some look, and which look was the last."""
    wrong = np.zeros(len(draws), dtype=bool)
    for seeds, confidence in confidences.items():
        sample = draws[:, :seeds]
        half = t_quantile(confidence, seeds - 1) * sample.std(1, ddof=1) / math.sqrt(seeds)
        wrong |= np.abs(sample.mean(1)) > half
    return wrong


@pytest.mark.parametrize("rungs", [(5, 10, 20, 40), (14, 20, 40), (29, 40)])
def test_all_looks_together_exclude_the_truth_in_at_most_5_percent(rungs):
    """4,000 simulations. Looks of 95 % each, which the ladder replaces, do so in more."""
    count = 4000
    draws = np.random.default_rng(2).standard_normal((count, 40))
    ladder = _wrong(draws, dict.fromkeys(rungs, confidence_of(rungs)))
    band = clopper_pearson(int(ladder.sum()), count, 0.99)
    assert band.low <= ERROR_RATE, band
    naive = _wrong(draws, dict.fromkeys(rungs, 0.95))
    assert clopper_pearson(int(naive.sum()), count, 0.99).low > ERROR_RATE


@pytest.mark.slow
@pytest.mark.parametrize("truth", [0.0, -0.05], ids=["holds, just so", "fails, just so"])
def test_verdicts_on_ladders_are_wrong_in_at_most_5_percent(truth, monkeypatch):
    """The same with claims, rules and verdicts: one at its bound, and one just below it."""
    monkeypatch.setattr(
        Ends, "p_value", lambda *_: 1.0
    )  # it takes most of the time, and no outcome needs it
    count, wrong = 500, 0
    random = np.random.default_rng(3)
    claim, falsehood = _claim(), Outcome.FAILS if truth >= 0 else Outcome.HOLDS
    for _ in range(count):
        verdict, _ = _on_ladder(claim, random.normal(truth, 1.0, 40))
        wrong += verdict.outcome is falsehood
    assert clopper_pearson(wrong, count, 0.99).low <= ERROR_RATE
