"""Planted robust claims: refuted by attacks, certified, unbroken between the two ends, inconclusive where masked."""

import numpy as np
import pytest
import xarray as xr
from scipy import stats

import benign as bo
from benign.claims import (
    Claims,
    Direction,
    Evidence,
    Kind,
    Outcome,
    at_least,
    at_most,
    between,
    exact,
    judge,
    mean,
    slope_by_seed,
)
from benign.claims.ends import at_end
from benign.training.metrics.audit import FLAGS
from tests.says import holds

CODES = {name: code for code, name in FLAGS.items()}
MASKED, OTHER = CODES["masked_on_training_points"], CODES["training_attack_weaker_on_test_points"]


def _experiment():
    return bo.Experiment(
        data=bo.Mixture(samples=4, dim=5, signal=4.0),
        network=bo.Linear(),
        attack=bo.PGD(ball=bo.Ball(radius=0.1), steps=3),
        training=bo.GradientDescent(rate=0.1, max_steps=3),
        seeds=3,
    )


def _evidence(attacked, certified=None, audit=(0, 0, 0), clean=(0.97, 0.98, 0.99)):
    data = {"robust_accuracy": attacked, "test_accuracy": clean, "audit": audit}
    if certified is not None:
        data["robust_accuracy_certified"] = certified
    arrays = {name: ("seed", np.asarray(values, dtype=float)) for name, values in data.items()}
    return Evidence("quick", {}, (xr.Dataset(arrays),), (_experiment(),))


def _claim(
    rule, statistic=None, robust: Direction | dict[str, Direction] = Direction.RISES, **more
):
    claims = Claims("me")

    def accuracy(evidence):
        """Robust accuracy is as the rule says."""
        return mean("robust accuracy", evidence.result.robust_accuracy)

    claims.add("thm1", "Theorem 1", rule, robust=robust, **more)(statistic or accuracy)
    (claim,) = claims
    return claim


HIGH, LOW = [0.97, 0.971, 0.972], [0.49, 0.491, 0.492]
ALL_MASKED = [MASKED] * 3


@pytest.mark.parametrize(
    ("rule", "attacked", "certified", "audit", "word", "rests_on"),
    [
        # The attack contradicts it, whatever it masks.
        (at_least(0.95), LOW, None, [0, 0, 0], "refuted", "attack"),
        (at_least(0.95), LOW, None, ALL_MASKED, "refuted", "attack"),
        # The attack proves an upper bound, whatever it masks.
        (at_most(0.6), LOW, None, ALL_MASKED, "confirmed", "attack"),
        # Only certificates prove a lower bound.
        (at_least(0.95), HIGH, HIGH, ALL_MASKED, "certified", "certificate"),
        (at_least(0.95), HIGH, HIGH, [0, 0, 0], "certified", "certificate"),
        # Between the ends the attacks tried decide, if none is masked.
        (at_least(0.95), HIGH, LOW, [0, 0, 0], "unbroken", "attacks tried"),
        (at_least(0.95), HIGH, None, [0, 0, 0], "unbroken", "attacks tried"),
        (at_least(0.95), HIGH, LOW, ALL_MASKED, "inconclusive", "attacks tried"),
        # The certificate refutes an upper bound, an attack cannot.
        (at_most(0.6), HIGH, HIGH, [0, 0, 0], "refuted", "certificate"),
        (at_most(0.6), HIGH, None, [0, 0, 0], "inconclusive", "attacks tried"),
        # An accuracy gap alone does not mask.
        (at_least(0.95), HIGH, None, [OTHER] * 3, "unbroken", "attacks tried"),
    ],
)
def test_each_end_decides_what_it_proves(rule, attacked, certified, audit, word, rests_on):
    verdict = judge(_claim(rule), _evidence(attacked, certified, audit))
    assert (verdict.label, verdict.parts[0].rests_on) == (word, rests_on)
    assert (verdict.reason != "") == (word == "inconclusive")


@pytest.mark.parametrize(("bound", "word"), [(0.85, "unbroken"), (0.95, "inconclusive")])
def test_few_masked_runs_count_only_where_they_could_change_the_answer(bound, word):
    """One of 40 runs is masked: if it is broken, the mean is 0.946, with an interval from 0.897 on."""
    attacked = [0.97 + 0.0001 * seed for seed in range(40)]
    evidence = _evidence(attacked, None, [MASKED] + [0] * 39, [1.0] * 40)
    assert judge(_claim(at_least(bound)), evidence).word == word


def test_an_inconclusive_verdict_names_the_masked_runs():
    masked = judge(_claim(at_least(0.95)), _evidence(HIGH, None, [MASKED, 0, np.nan]))
    assert holds(masked.reason, "masked", "50 %", " 2 ", "could change")
    proof = judge(_claim(at_most(0.6)), _evidence(HIGH))
    assert holds(proof.reason, "certificate")


def test_an_unbroken_verdict_lists_the_attacks():
    verdict = judge(_claim(at_least(0.95)), _evidence(HIGH))
    [attack] = verdict.attacks
    assert holds(attack, "steps", "restarts")
    assert verdict.as_dict()["attacks"] == [attack]
    assert judge(_claim(at_least(0.95), robust={}), _evidence(HIGH)).attacks == ()


@pytest.mark.parametrize(
    ("rule", "word"),
    [(at_most(0.05), "unbroken"), (at_least(0.01), "confirmed"), (at_least(0.2), "inconclusive")],
)
def test_errors_are_bounded_from_the_other_side(rule, word):
    def error(evidence):
        """The robust error is as the rule says."""
        return mean("robust error", 1 - evidence.result.robust_accuracy)

    assert judge(_claim(rule, error, Direction.FALLS), _evidence(HIGH)).word == word


@pytest.mark.parametrize("audit", [[0, 0, 0], ALL_MASKED])
def test_clean_parts_are_never_vetoed(audit):
    def both(evidence):
        """Clean and robust."""
        result = evidence.result
        return {
            "clean": mean("clean", result.test_accuracy),
            "robust": mean("robust", result.robust_accuracy),
        }

    claim = _claim(at_least(0.9), both, {"robust": Direction.RISES})
    clean, robust = judge(claim, _evidence(HIGH, None, audit)).parts
    assert (clean.outcome, clean.rests_on) == (Outcome.HOLDS, "")
    assert robust.outcome is (Outcome.INCONCLUSIVE if any(audit) else Outcome.HOLDS)


def _map(audit):
    """Accuracy over two radii: it falls, and the attack is masked in the runs that `audit` flags."""
    values = {"robust_accuracy": [[0.9, 0.91, 0.92], [0.5, 0.51, 0.52]], "audit": audit}
    arrays = {n: (("radius", "seed"), np.asarray(v, dtype=float)) for n, v in values.items()}
    data = xr.Dataset(arrays, {"radius": [0.0, 1.0]})
    return Evidence("quick", {}, (data,), (_experiment(),))


def _falls(evidence):
    """Robust accuracy falls with the radius."""
    accuracy = evidence.result.robust_accuracy.transpose("seed", "radius")
    return slope_by_seed("slope", evidence.result.radius, accuracy)


@pytest.mark.parametrize(
    ("masked", "word"),
    [
        ([[0, 0, 0], [0, 0, 0]], "unbroken"),
        ([[0, 0, 0], ALL_MASKED], "unbroken"),  # a stronger attack makes it fall faster
        ([ALL_MASKED, [0, 0, 0]], "inconclusive"),  # a stronger attack could turn it round
    ],
)
def test_a_mixed_number_is_open_only_if_masked_runs_could_change_it(masked, word):
    assert judge(_claim(at_most(-0.1), _falls, Direction.MIXED), _map(masked)).word == word


def test_a_mixed_number_can_fail():
    claim = _claim(at_least(0.0), _falls, Direction.MIXED)
    assert judge(claim, _map(np.zeros((2, 3)))).word == "refuted"


def test_a_number_that_is_not_made_of_robust_variables_is_not_certified():
    """The certified end replaces robust accuracy; a number that it leaves alone is not proven by that."""

    def clean(evidence):
        """Not robust at all."""
        return mean("clean", evidence.result.test_accuracy)

    verdict = judge(_claim(at_least(0.9), clean), _evidence(HIGH, HIGH))
    assert verdict.word == "unbroken"


def test_losses_have_no_upper_end_without_a_certificate():
    data = xr.Dataset({"train_robust_loss": ("seed", [0.5, 0.51, 0.52])})
    evidence = Evidence("quick", {}, (data,), (_experiment(),))

    def loss(evidence):
        """The robust training loss is small."""
        return mean("loss", evidence.result.train_robust_loss)

    claim = _claim(at_most(0.01), loss, Direction.FALLS)
    assert judge(claim, evidence).word == "refuted"
    assert np.isinf(at_end(evidence, "certified").result.train_robust_loss).all()
    assert judge(_claim(at_most(1.0), loss, Direction.FALLS), evidence).word == "unbroken"


@pytest.mark.parametrize("kind", [Kind.IDENTITY, Kind.BY_CONSTRUCTION, Kind.CALIBRATED])
def test_what_could_not_fail_is_not_confirmed(kind):
    def one(evidence):
        """One."""
        return exact("one", 1.0)

    assert judge(_claim(at_most(1.0), one, {}, kind=kind), Evidence()).word == kind.value
    assert judge(_claim(at_most(0.5), one, {}, kind=kind), Evidence()).word == "refuted"


def test_the_p_value_of_a_refutation_is_where_its_interval_ends():
    """At confidence 1 - p the interval of the mean just reaches the bound."""
    values = [0.80, 0.82, 0.84, 0.81]

    def accuracy(evidence):
        """Accuracy."""
        return mean("accuracy", values)

    def p_value(bound):
        return judge(_claim(at_least(bound), accuracy, {}), Evidence()).p_value

    t = (0.86 - np.mean(values)) / (np.std(values, ddof=1) / 2)
    two_sided = 2 * stats.t.sf(t, 3)
    assert p_value(0.86) == pytest.approx(two_sided, rel=1e-6)
    assert p_value(0.5) == 1.0


def test_a_number_without_sampling_error_fails_for_certain():
    def one(evidence):
        """One."""
        return exact("one", 1.0)

    assert judge(_claim(between(2.0, 3.0), one, {}), Evidence()).p_value == 0
