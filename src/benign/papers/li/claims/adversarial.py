"""Adversarial training: Theorem 4.4, off-diagonal features, the phases of Lemma 5.2, and extensions of the theorem.

Theorem 4.4 is judged inside its conditions, sigma_0 = 1/sqrt(d), where the part of a filter that is orthogonal to the
features stops it (`theory.self_stopped`). Numbers for the smaller start of Figure 3 are informational.

An accuracy under one named attack, such as Delta or the training attack, is known exactly and has no direction; what
is said of every attack has one.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from benign.attacks.model_free import FeatureOrthogonal, FeatureSwap
from benign.attacks.pgd import PGD
from benign.claims import (
    Claims,
    Direction,
    Evidence,
    Measured,
    Undecided,
    at_least,
    at_most,
    between,
    exponent,
    mean,
    share,
    slope_by_seed,
)
from benign.claims.conditions import Conditions
from benign.claims.rule import EXPONENT
from benign.papers.li.claims.standard import WHP
from benign.papers.li.claims.studies import (
    ADVERSARIAL,
    ATTACK_RATES,
    EPS,
    FIG3_START,
    INNER,
    SMALL_START,
    STANDARD,
    Trained,
    accuracy,
    fresh,
    linf,
    trained,
)
from benign.papers.li.recursion import Problem, saturation
from benign.papers.li.theory import conditions, robust_accuracy_limit
from benign.papers.statistics import cells_of, share_of_seeds
from benign.training.setup import Setup

CLAIMS = Claims("li")

FITTED = {"fitted": 0.9}
"""share of attacked training points that are fitted when training has finished"""
LEARNED = {"accuracy": 0.99}
"""stands for a vanishing error on robust features alone"""
NOT_JUDGED = ("small start",)
BOTH = (ADVERSARIAL, SMALL_START)


def theorem_44(cell: Setup) -> Conditions:
    """Return the conditions of Theorem 4.4."""
    return conditions(cell, "4.4")


def where_judged(cell: Setup) -> Conditions | None:
    """Return the conditions of Theorem 4.4; None at the smaller start of Figure 3, about which no theorem speaks."""
    small = getattr(cell.network, "init_std", None) == FIG3_START
    return None if small else conditions(cell, "4.4")


def _both(evidence: Evidence, measure: Callable[[int], Measured]) -> dict[str, Measured]:
    """Measure the study inside the theorem and the one with the smaller start; raise if training has not finished.

    The theorem is about T = poly(d)/eta, when attacked training points are fitted, by the training attack. The other
    end of that accuracy says nothing about training.
    """
    fitted = _largest(evidence, 0, "train_robust_accuracy").mean()
    if evidence.end == "attacked" and fitted < evidence.levels["fitted"]:
        steps = evidence.experiments[0].training.most_steps()
        raise Undecided(
            f"after {steps} steps {fitted:.2f} of the attacked training points are fitted"
        )
    return {"theory's start": measure(0), "small start": measure(1)}


def _largest(evidence: Evidence, study: int, variable: str) -> np.ndarray:
    """Return a variable by seed, at the largest d if the study has several."""
    values = evidence.results[study][variable]
    return (values.isel(size=-1) if "size" in values.dims else values).values


def _learned(evidence: Evidence, result: xr.Dataset) -> Measured:
    """Return the share of seeds whose robust features suffice and are learned more strongly than the others."""
    level, alone = evidence.levels["accuracy"], result["robust_feature_accuracy"]
    robust, others = result["robust_feature_learned"], result["non_robust_feature_learned"]
    of = f"seeds with accuracy >= {level:g} on robust features and max A > max B"
    measured = share_of_seeds(of, (alone >= level) & (robust > others), alone.notnull())
    return measured.noting(f"max A {float(robust.mean()):.3g}, max B {float(others.mean()):.3g}")


@CLAIMS.add(
    "thm4.4.robust-learned",
    "Theorem 4.4",
    WHP,
    *BOTH,
    conditions=where_judged,
    informational=NOT_JUDGED,
    levels=FITTED | LEARNED,
)
def robust_features_are_learned(evidence: Evidence) -> dict[str, Measured]:
    """After adversarial training the robust features alone suffice for correct classification, and they are learned
    more strongly than the non-robust ones."""

    def measure(study: int) -> Measured:
        result = evidence.results[study]
        return _learned(evidence, result.isel(size=-1) if "size" in result.dims else result)

    return _both(evidence, measure)


@CLAIMS.add(
    "thm4.4.delta-survives",
    "Theorem 4.4",
    at_least(0.99),
    *BOTH,
    conditions=where_judged,
    informational=NOT_JUDGED,
    levels=FITTED,
)
def swapped_features_are_withstood(evidence: Evidence) -> dict[str, Measured]:
    """After adversarial training a network is robust to Delta(X, y), the attack that breaks standard training."""

    def measure(study: int) -> Measured:
        swap = FeatureSwap(clip=EPS).perturb
        accuracies = accuracy(trained(evidence, study).end, swap, evidence.size(20, 100, 500))
        return mean("accuracy under Delta", accuracies).within(0, 1)

    return _both(evidence, measure)


@CLAIMS.add(
    "thm4.4.robust-good.own-attack",
    "Theorem 4.4",
    at_least(0.95),
    *BOTH,
    conditions=where_judged,
    informational=NOT_JUDGED,
    levels=FITTED,
)
def the_own_attack_is_withstood(evidence: Evidence) -> dict[str, Measured]:
    """After adversarial training test points are classified correctly under the training attack."""

    def measure(study: int) -> Measured:
        accuracies = _largest(evidence, study, "robust_accuracy_training_attack")
        return mean("accuracy under the training attack", accuracies).within(0, 1)

    return _both(evidence, measure)


@CLAIMS.add(
    "thm4.4.robust-good.any-attack",
    "Theorem 4.4",
    at_least(0.95, fails_below=0.6),
    *BOTH,
    conditions=where_judged,
    informational=NOT_JUDGED,
    robust=Direction.RISES,
    levels=FITTED,
    version=2,
)
def every_attack_is_withstood(evidence: Evidence) -> dict[str, Measured]:
    """After adversarial training with alpha > 2 eps, test points are classified correctly under every perturbation of
    at most eps.

    Judged by the lowest accuracy under the training attack, the strong attack (with the closed form against robust
    features), and ascents orthogonal to the features.
    """

    def measure(study: int) -> Measured:
        of, strong = "lowest accuracy under an attack", _largest(evidence, study, "robust_accuracy")
        if evidence.end in ("certified", "unproven"):
            return mean(of, strong).within(0, 1)
        count = evidence.size(20, 100, 500)
        ascent = FeatureOrthogonal(attack=PGD(ball=linf(), step=0.125)).perturb
        batch = trained(evidence, study).end
        off = accuracy(batch, ascent, count).numpy()
        own = _largest(evidence, study, "robust_accuracy_training_attack")
        points = fresh(batch, count)
        x, y = points.x[0].flatten(1), points.y[0]
        limit = robust_accuracy_limit(x[y == 0].numpy(), x[y == 1].numpy(), EPS)
        certified = _largest(evidence, study, "robust_accuracy_certified").mean()
        lowest = mean(of, np.minimum(np.minimum(off, own), strong)).within(0, 1)
        return lowest.noting(
            f"off the features {off.mean():.3g}, training attack {own.mean():.3g}; "
            f"certified {certified:.3g}, possible {limit:.3g}"
        )

    return _both(evidence, measure)


@CLAIMS.add("lemD21.offdiag-adv", "Lemma D.21", at_most(1.5), ADVERSARIAL, conditions=theorem_44)
def other_classes_stay_small(evidence: Evidence) -> Measured:
    """Adversarial training never lets a filter's product with a feature of another class grow beyond its initial
    order."""
    result = evidence.result.isel(size=-1)
    kinds = [result[f"other_{kind}_features_learned_curve"] for kind in ("robust", "non_robust")]
    curves = xr.concat(kinds, "kind").max("kind")
    return mean("largest C or D / initial one", curves.max("step") / curves.isel(step=0))


@CLAIMS.add(
    "lem5.2.plateau", "Lemma 5.2, D.22", between(0.8, 1.2), ATTACK_RATES, conditions=theorem_44
)
def non_robust_features_stop(evidence: Evidence) -> dict[str, Measured]:
    """Non-robust features stop growing where eta~ beta^(q-2) sum_r B_r^q / rho^(q-1) is near 1, for every eta~."""
    problem = Problem.of(cells_of(evidence.experiment)[0])
    parts = {}
    for rate in evidence.result["rate"].values.tolist():
        runs = trained(evidence, rate=rate)
        if max(settled(runs.non_robust.mean(2))) >= len(runs.B) - 1:
            raise Undecided(f"max B still rises after {len(runs.B) - 1} steps at eta~ = {rate:g}")
        values = saturation(problem, runs.B[-1].double(), rate).mean(1)
        parts[f"eta~ = {rate:g}"] = mean("eta~ beta sum B^3 at the end", values)
    return parts


@CLAIMS.add(
    "lem5.2.B-scaling",
    "Lemmas D.24, E.11",
    {"Lemmas D.24, E.11": at_most(-(1 - EXPONENT)), "Lemma 5.2": exponent(-1 / 3)},
    ATTACK_RATES,
    conditions=theorem_44,
    informational=("Lemma 5.2",),
    levels={"largest eta~": 30.0},
    version=2,
)
def the_plateau_falls_with_the_attack_rate(evidence: Evidence) -> dict[str, Measured]:
    """After adversarial training max_r B is at most of order d^-c0 = 1 / eta~. By our reading of Lemma 5.2, which does
    not decide, it is of order eta~^(-1/q)."""
    learned = evidence.result["non_robust_feature_learned"]
    # Up to 30: there one filter still leads, and T = 1000 is long enough (papers/li.md 2.5).
    largest = evidence.levels["largest eta~"]
    learned = learned.sel(rate=learned["rate"] <= largest).transpose("seed", "rate")
    rates = np.log(learned["rate"].values)
    logs = np.log(learned.where(learned > 0).values)
    measured = slope_by_seed("slope of log max B on log eta~", rates, logs)
    return {"Lemmas D.24, E.11": measured, "Lemma 5.2": measured}


def settled(curve: Tensor) -> list[int]:
    """Return the first step after the steepest rise with a rise below a tenth of it, for every seed of [steps,
    seeds]."""
    rises = curve.diff(dim=0)
    steepest = rises.argmax(0)
    slow = rises < 0.1 * rises.amax(0)
    slow &= torch.arange(len(rises))[:, None] > steepest
    return [int(row.nonzero()[0]) if row.any() else len(rises) for row in slow.T]


class PhaseOrder(NamedTuple):
    """The phases of adversarial training of one seed."""

    settles: int
    """step at which B settles"""
    overtakes: float
    """step at which A overtakes B; infinite if it never does"""
    ratio: float
    """A / B when B settles"""


def _phase_orders(runs: Trained) -> list[PhaseOrder]:
    robust, others = runs.robust.mean(2), runs.non_robust.mean(2)
    orders = []
    for seed, step in enumerate(settled(others)):
        # Both are noise at the start, so A > B counts only after B has settled.
        ahead = (robust[step:, seed] > others[step:, seed]).nonzero()
        overtakes = step + int(ahead[0]) if len(ahead) else math.inf
        orders.append(PhaseOrder(step, overtakes, float(robust[step, seed] / others[step, seed])))
    return orders


@CLAIMS.add(
    "lem5.2.phase-order",
    "Lemmas D.23, D.24",
    {"order": at_least(0.5), "ratio": at_most(0.5)},
    ATTACK_RATES,
    conditions=theorem_44,
    levels={"eta~": 10.0},
    version=2,
)
def non_robust_features_come_first(evidence: Evidence) -> dict[str, Measured]:
    """Adversarial training first learns the non-robust features until they stop growing, and only then the robust ones.

    Judged at eta~ = 10: A is below half of B when B settles, and in most seeds it overtakes B later.
    """
    orders = _phase_orders(trained(evidence, rate=evidence.levels["eta~"]))
    steps = ", ".join(f"{order.settles} and {order.overtakes:g}" for order in orders[:3])
    later = [order.settles < order.overtakes < math.inf for order in orders]
    after = share("seeds in which A overtakes B after B settles", later)
    return {
        "order": after.noting(f"steps of the first seeds: {steps}"),
        "ratio": mean("max A / max B when B settles", [order.ratio for order in orders]),
    }


# Extensions that the paper states, and an attack that its proof omits.


def _robust_features_learned(evidence: Evidence, place: int) -> Measured:
    """Return the share of seeds with learned robust features under an attack of `studies.inner_attacks`."""
    result = evidence.result.isel(attack=place)
    accuracies = float(result["robust_accuracy"].mean())
    return _learned(evidence, result).noting(
        f"accuracy under the evaluation attack in l_inf {accuracies:.3g}"
    )


@CLAIMS.add(
    "rem2.5.pgd-training",
    "derived (Remark 2.5 calls one step an approximation of the full maximum)",
    WHP,
    INNER,
    conditions=theorem_44,
    levels=LEARNED,
)
def full_inner_maximisation(evidence: Evidence) -> Measured:
    """Training against the full inner maximum, which one step approximates, learns the robust features as well."""
    return _robust_features_learned(evidence, 1)


@CLAIMS.add("sec2.5.lp", "Section 2.5", WHP, INNER, conditions=theorem_44, levels=LEARNED)
def other_norms(evidence: Evidence) -> Measured:
    """The main results extend to other l_p norms with p >= 2: with l_2 balls the robust features are learned as
    well."""
    return _robust_features_learned(evidence, 2)


@CLAIMS.add(
    "derived.init-residual",
    "derived; Lemma D.28 leaves it out",
    at_most(0.5),
    STANDARD,
    ADVERSARIAL,
    robust=Direction.RISES,
)
def the_start_can_be_attacked(evidence: Evidence) -> dict[str, Measured]:
    """Perturbations orthogonal to all features break networks that start at sigma_0 = 1/sqrt(d), after either training.

    An l_inf attack along the signs of P_perp w(0) moves a product by 0.8 eps sqrt(d) |P_perp w(0)|. Judged at the
    largest d: accuracy at most one half.
    """
    attack = FeatureOrthogonal(attack=PGD(ball=linf(), step=0.125)).perturb
    parts = {}
    for study, name in enumerate(("standard", "adversarial")):
        result = evidence.results[study]
        ends = [trained(evidence, study, size=size.item()).end for size in result["size"].values]
        by_size = [accuracy(end, attack, evidence.size(20, 100, 250)) for end in ends]
        means = zip((float(each.mean()) for each in by_size), result["dim"].values, strict=True)
        measured = mean("accuracy under ascents off the features", by_size[-1]).within(0, 1)
        parts[name] = measured.noting(
            ", ".join(f"{value:.3g} at d = {dim}" for value, dim in means)
        )
    return parts
